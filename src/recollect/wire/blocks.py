"""Content blocks on the wire, as the source of their names has them: `mimeType`, `toolUseId`, `isError`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from recollect.types.blocks import ContentBlock, as_blocks, stored_blocks
from recollect.wire.base import camel

_SNAKE = {camel(name): name for name in ("mime_type", "tool_use_id", "tool_name", "is_error", "invalid_input")}


def block_json(block: ContentBlock) -> dict[str, Any]:
    """A block on the wire.

    >>> from recollect.types.blocks import ToolResultBlock
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
    },
    "examples": _EXAMPLES,
}

BlockOut = Annotated[dict[str, Any], BeforeValidator(_on_the_wire), WithJsonSchema(_SCHEMA)]
"""A content block, as servers give it."""

BlockIn = Annotated[dict[str, Any], WithJsonSchema(_SCHEMA)]

ContentIn = str | list[BlockIn]
"""What was said: a text, or a list of content blocks."""


def blocks_of(given: list[dict[str, Any]]) -> tuple[ContentBlock, ...]:
    """The blocks of a message that a server gave."""
    return tuple(map(block_value, given))


__all__ = ["BlockIn", "BlockOut", "ContentIn", "as_blocks", "block_json", "block_value", "blocks_of"]
