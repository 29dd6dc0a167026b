"""Content blocks on the wire, as the source of their names has them: `mimeType`, `toolUseId`, `isError`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from tellback.types.blocks import ContentBlock, stored_blocks
from tellback.wire.base import camel

MOST_BLOCKS = 1_000
"""How many blocks a message may have."""

_SNAKE = {camel(name): name for name in ("mime_type", "tool_use_id", "tool_name", "is_error", "invalid_input")}


def block_json(block: ContentBlock) -> dict[str, Any]:
    """A block on the wire.

    >>> from tellback.types.blocks import ToolResultBlock
    >>> block_json(ToolResultBlock("tu_1", "shipped"))
    {'type': 'tool_result', 'toolUseId': 'tu_1', 'content': 'shipped', 'isError': False}
    """
    found = {camel(name): value for name, value in block.items()}
    if found.get("parts") is not None:
        found["parts"] = [block_json(part) for part in found["parts"]]
    return found


def block_value(given: Mapping[str, Any]) -> ContentBlock:
    """A block from the wire: the inverse of `block_json`."""
    found = {_SNAKE.get(name, name): value for name, value in given.items()}
    if found.get("parts") is not None:
        found["parts"] = [{_SNAKE.get(name, name): value for name, value in part.items()} for part in found["parts"]]
    return stored_blocks([found])[0]


def is_address(url: str) -> bool:
    """Whether it leads to the web, or is the thing itself: nothing else is for callers to point to.

    >>> is_address("https://example.com/cat.png"), is_address("data:image/png;base64,aGk="), is_address("file:///etc")
    (True, True, False)
    """
    return url.lower().startswith(("https://", "http://", "data:"))


def check_address(url: str) -> str:
    """The address, if it is one that callers may send."""
    if not is_address(url):
        raise ValueError("a url begins with https:// or http://, or it is a data: URL")
    return url


def _taken(given: dict[str, Any]) -> dict[str, Any]:
    """A block that a caller sent, in our names, as are the blocks in it."""
    found = {_SNAKE.get(name, name): value for name, value in given.items()}
    if isinstance(found.get("url"), str):
        check_address(found["url"])
    for name in ("content", "parts"):
        inside = found.get(name)
        if isinstance(inside, dict):
            found[name] = _taken(inside)
        elif isinstance(inside, list):
            found[name] = [_taken(each) if isinstance(each, dict) else each for each in inside]
    return found


def _on_the_wire(value: Any) -> Any:
    return value if isinstance(value, dict) else block_json(value)


_EXAMPLES = [
    {"type": "text", "text": "Where is my refund?"},
    {"type": "image", "url": "https://example.com/cat.png", "mimeType": "image/png"},
    {"type": "tool_use", "id": "tu_1", "name": "lookup", "arguments": {"order": 7}},
    {"type": "tool_result", "toolUseId": "tu_1", "content": "shipped", "isError": False},
]

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "ContentBlock",
    "required": ["type"],
    "properties": {
        "type": {"type": "string", "description": "text, image, audio, file, tool_use or tool_result"},
        "text": {"type": "string"},
        "url": {"type": "string"},
        "data": {"type": "string", "description": "base64, where there is no url"},
        "mimeType": {"type": "string"},
        "name": {"type": "string"},
        "id": {"type": "string"},
        "arguments": {"type": "object"},
        "toolUseId": {"type": "string"},
        "toolName": {"type": "string"},
        "isError": {"type": "boolean"},
        "invalidInput": {"type": "string", "description": "What the model wrote, if it is no JSON object."},
    },
    "examples": _EXAMPLES,
}

BlockOut = Annotated[dict[str, Any], BeforeValidator(_on_the_wire), WithJsonSchema(_SCHEMA)]
"""A content block, as servers give it."""

BlockIn = Annotated[dict[str, Any], AfterValidator(_taken), WithJsonSchema(_SCHEMA)]
"""A content block, as callers send it: also just as a server gave it."""

ContentIn = str | Annotated[list[BlockIn], Field(max_length=MOST_BLOCKS)]
"""What was said: a text, or a list of content blocks."""


def blocks_of(given: list[dict[str, Any]]) -> tuple[ContentBlock, ...]:
    """The blocks of a message that a server gave."""
    return tuple(map(block_value, given))
