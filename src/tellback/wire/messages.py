"""Content blocks and chat messages in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from tellback.types.blocks import ContentBlock, load_blocks
from tellback.wire.base import camel

MAX_BLOCKS = 1_000
"""The maximum number of blocks of a message."""

_SNAKE_NAMES = {camel(name): name for name in ("mime_type", "tool_use_id", "tool_name", "is_error", "invalid_input")}

_BLOCK_EXAMPLES = [
    {"type": "text", "text": "Where is my refund?"},
    {"type": "image", "url": "https://example.com/cat.png", "mimeType": "image/png"},
    {"type": "tool_use", "id": "tu_1", "name": "lookup", "arguments": {"order": 7}},
    {"type": "tool_result", "toolUseId": "tu_1", "content": "shipped", "isError": False},
]

_BLOCK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "ContentBlock",
    "required": ["type"],
    "properties": {
        "type": {"type": "string", "description": "text, image, audio, file, tool_use or tool_result"},
        "text": {"type": "string"},
        "url": {"type": "string"},
        "data": {"type": "string", "description": "base64 data, if there is no url"},
        "mimeType": {"type": "string"},
        "name": {"type": "string"},
        "id": {"type": "string"},
        "arguments": {"type": "object"},
        "toolUseId": {"type": "string"},
        "toolName": {"type": "string"},
        "isError": {"type": "boolean"},
        "invalidInput": {"type": "string", "description": "The model's text, if it is not a JSON object."},
    },
    "examples": _BLOCK_EXAMPLES,
}


def encode_block(block: ContentBlock) -> dict[str, Any]:
    """Encode a block as JSON.

    >>> from tellback.types.blocks import ToolResultBlock
    >>> encode_block(ToolResultBlock("tu_1", "shipped"))
    {'type': 'tool_result', 'toolUseId': 'tu_1', 'content': 'shipped', 'isError': False}
    """
    encoded = {camel(name): value for name, value in block.items()}
    if encoded.get("parts") is not None:
        encoded["parts"] = [encode_block(part) for part in encoded["parts"]]
    return encoded


def decode_block(encoded: Mapping[str, Any]) -> ContentBlock:
    """Decode a block: the inverse of `encode_block`."""
    decoded = {_SNAKE_NAMES.get(name, name): value for name, value in encoded.items()}
    if decoded.get("parts") is not None:
        decoded["parts"] = [
            {_SNAKE_NAMES.get(name, name): value for name, value in part.items()} for part in decoded["parts"]
        ]
    return load_blocks([decoded])[0]


def is_allowed_url(url: str) -> bool:
    """Whether callers may use the URL. Only web and data URLs are allowed.

    >>> is_allowed_url("https://example.com/cat.png"), is_allowed_url("data:image/png;base64,aGk="), is_allowed_url("file:///etc")
    (True, True, False)
    """
    return url.lower().startswith(("https://", "http://", "data:"))


def validate_url(url: str) -> str:
    """Return the URL, or raise if callers may not use it."""
    if not is_allowed_url(url):
        raise ValueError("url must begin with https:// or http://, or be a data: URL")
    return url


def _normalize_block(block: dict[str, Any]) -> dict[str, Any]:
    """Rename the keys of a caller's block, including nested blocks."""
    normalized = {_SNAKE_NAMES.get(name, name): value for name, value in block.items()}
    if isinstance(normalized.get("url"), str):
        validate_url(normalized["url"])
    for name in ("content", "parts"):
        nested = normalized.get(name)
        if isinstance(nested, dict):
            normalized[name] = _normalize_block(nested)
        elif isinstance(nested, list):
            normalized[name] = [_normalize_block(each) if isinstance(each, dict) else each for each in nested]
    return normalized


BlockOut = Annotated[dict[str, Any], WithJsonSchema(_BLOCK_SCHEMA)]
"""A content block in a response."""

BlockIn = Annotated[dict[str, Any], AfterValidator(_normalize_block), WithJsonSchema(_BLOCK_SCHEMA)]
"""A content block in a request; blocks of responses are accepted unchanged."""

ContentIn = str | Annotated[list[BlockIn], Field(max_length=MAX_BLOCKS)]
"""The content of a message: a string or a list of content blocks."""
