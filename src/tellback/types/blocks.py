"""Content blocks: the parts of a message in the log.

A block is a frozen value that also reads as a mapping of the fields that are set, so `block.text`, `block["text"]`
and `dict(block)` all work, and a block equals a mapping with the same fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from tellback.types.messages import Message, MessagePart, ToolCall, flatten_parts, message_text


class _Block(Mapping[str, Any]):
    """The base class of blocks: a mapping of the fields that are not None."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        value = getattr(self, key) if key in _BLOCK_FIELDS[type(self)] else None
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return (key for key in _BLOCK_FIELDS[type(self)] if getattr(self, key) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True, eq=False)
class TextBlock(_Block):
    """Text.

    >>> TextBlock("Hello") == {"type": "text", "text": "Hello"}
    True
    """

    type: ClassVar[str] = "text"

    text: str
    meta: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MediaBlock(_Block):
    """An image, audio or file, according to `type`. It has a `url`, or base64 `data`.

    >>> MediaBlock("image", url="https://example.com/cat.png", mime_type="image/png")["mime_type"]
    'image/png'
    """

    type: str
    url: str | None = None
    data: str | None = None
    mime_type: str | None = None
    name: str | None = None
    text: str | None = None
    meta: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ToolUseBlock(_Block):
    """A tool call of the assistant.

    >>> ToolUseBlock("tu_1", "lookup", {"order": 7})["arguments"]
    {'order': 7}
    """

    type: ClassVar[str] = "tool_use"

    id: str
    name: str
    arguments: Mapping[str, Any]
    invalid_input: str | None = None
    meta: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ToolResultBlock(_Block):
    """The result of a tool call: text, and `parts` if it contains more than text.

    >>> ToolResultBlock("tu_1", "shipped").is_error
    False
    """

    type: ClassVar[str] = "tool_result"

    tool_use_id: str
    content: str
    is_error: bool = False
    tool_name: str | None = None
    parts: tuple[ContentBlock, ...] | None = None


_BLOCK_FIELDS: Mapping[type, tuple[str, ...]] = {
    kind: tuple(dict.fromkeys(("type", *(field.name for field in fields(kind)))))
    for kind in (TextBlock, MediaBlock, ToolUseBlock, ToolResultBlock)
}

ContentBlock = TextBlock | MediaBlock | ToolUseBlock | ToolResultBlock
"""One piece of a message in the log."""

Content = str | ContentBlock | MessagePart | Mapping[str, Any] | Sequence[Any]
"""The types that are accepted as content: text, a block, or a list of blocks, parts, mappings and texts."""

_MEDIA_TYPES = ("image", "audio", "file")
_FIELD_ALIASES: Mapping[Any, str] = {
    "mimeType": "mime_type",
    "mime": "mime_type",
    "toolUseId": "tool_use_id",
    "toolName": "tool_name",
    "isError": "is_error",
    "input": "arguments",
}


def as_blocks(content: Content) -> tuple[ContentBlock, ...]:
    """Convert content to blocks; raise TypeError if it is not content.

    >>> as_blocks(["Look:", {"type": "image", "url": "https://example.com/cat.png"}])[1].type
    'image'
    """
    if isinstance(content, str):
        return (TextBlock(content),)
    if isinstance(content, _Block | MessagePart | Mapping):
        return (_as_block(content),)
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        return tuple(map(_as_block, content))
    raise TypeError(f"content must be a string or a list of blocks, got {content!r:.80}")


def _as_block(item: Any) -> ContentBlock:
    if isinstance(item, str):
        return TextBlock(item)
    if isinstance(item, MessagePart):
        return _validate_block(_from_part(item), item)
    if isinstance(item, TextBlock | MediaBlock | ToolUseBlock | ToolResultBlock):
        return _validate_block(item, item)
    if not isinstance(item, Mapping):
        raise TypeError(f"a block must be a mapping with a 'type', got {item!r:.80}")
    values: dict[str, Any] = {str(_FIELD_ALIASES.get(name, name)): value for name, value in item.items()}
    kind = values.pop("type", None)
    if kind not in (*_MEDIA_TYPES, "text", "tool_use", "tool_result"):
        known_types = f"text, {', '.join(_MEDIA_TYPES)}, tool_use or tool_result"
        raise TypeError(f"unknown block type {kind!r} in {item!r:.120}: use {known_types}")
    try:
        block = _build_block(kind, values)
    except TypeError as error:
        raise TypeError(f"invalid {kind} block {item!r:.120}: {str(error).partition(') ')[2] or error}") from None
    return _validate_block(block, item)


def _build_block(kind: str, values: dict[str, Any]) -> ContentBlock:
    if kind == "text":
        return TextBlock(**values)
    if kind == "tool_use":
        return ToolUseBlock(**{"arguments": {}, **values})
    if kind != "tool_result":
        return MediaBlock(kind, **values)
    content, parts = values.pop("content", ""), values.pop("parts", None)
    if parts is None and not isinstance(content, str):
        parts = content
    if parts is not None:
        parts = as_blocks(parts)
        if not isinstance(content, str):
            content = flatten_parts([to_part(part) for part in parts])
    return ToolResultBlock(**{"content": content, "parts": parts, "is_error": False, **values})


_TEXT_FIELDS = ("text", "url", "data", "mime_type", "name", "id", "tool_use_id", "tool_name", "content")
_FIELD_TYPES: Mapping[str, tuple[type[Any], str]] = {
    **dict.fromkeys((*_TEXT_FIELDS, "invalid_input"), (str, "must be a string")),
    "meta": (Mapping, "must be a mapping"),
    "arguments": (Mapping, "must be a mapping"),
    "is_error": (bool, "must be true or false"),
}
_REQUIRED_FIELDS = {
    "text": ("text",),
    "tool_use": ("id", "name", "arguments"),
    "tool_result": ("tool_use_id", "content"),
}


def _validate_block(block: ContentBlock, original: Any) -> ContentBlock:
    """Return the block, or raise TypeError if a field has a wrong type and could not be stored and loaded."""
    problem = None
    for name in _BLOCK_FIELDS[type(block)]:
        value: Any = getattr(block, name)
        if value is None and name not in _REQUIRED_FIELDS.get(block.type, ()):
            continue
        kind, expected = _FIELD_TYPES.get(name, (object, ""))
        if not isinstance(value, kind):
            problem = f"{name} {expected}"
        elif name == "parts" and not all(isinstance(part, TextBlock | MediaBlock) for part in value):
            problem = "parts must be text or media blocks"
    if problem is None and isinstance(block, MediaBlock) and block.url is None and block.data is None:
        problem = "it needs a url or data"
    if problem is not None:
        raise TypeError(f"invalid {block.type} block {original!r:.120}: {problem}")
    return block


def load_blocks(stored: Sequence[Mapping[str, Any]]) -> tuple[ContentBlock, ...]:
    """Load stored blocks. This never fails: a block of an unknown type is loaded as media.

    >>> [block.type for block in load_blocks([{"type": "text", "text": "Look:"}, {"type": "hologram", "url": "h.bin"}])]
    ['text', 'hologram']
    """
    return tuple(map(_load_block, stored))


def _load_block(block: Mapping[str, Any]) -> ContentBlock:
    match block:
        case {"type": "text", "text": text}:
            return TextBlock(text, block.get("meta"))
        case {"type": "tool_use", "id": id, "name": name}:
            arguments = block.get("arguments", {})
            return ToolUseBlock(id, name, arguments, block.get("invalid_input"), block.get("meta"))
        case {"type": "tool_result", "tool_use_id": id}:
            parts = block.get("parts")
            return ToolResultBlock(
                tool_use_id=id,
                content=block.get("content", ""),
                is_error=block.get("is_error", False),
                tool_name=block.get("tool_name"),
                parts=None if parts is None else load_blocks(parts),
            )
    media_fields = {name: value for name, value in block.items() if name in _BLOCK_FIELDS[MediaBlock]}
    return MediaBlock(**{"type": "unknown", **media_fields})


def _from_part(part: MessagePart) -> ContentBlock:
    if part.kind == "text":
        return TextBlock(part.text or "", part.meta)
    return MediaBlock(part.kind, part.url, part.data, part.mime, part.name, part.text, part.meta)


def to_part(block: ContentBlock) -> MessagePart:
    """Convert a text or media block to a part of a chat message.

    >>> to_part(MediaBlock("image", url="https://example.com/cat.png")).kind
    'image'
    """
    if isinstance(block, TextBlock):
        return MessagePart("text", block.text, meta=block.meta)
    if isinstance(block, MediaBlock):
        return MessagePart(block.type, block.text, block.mime_type, block.data, block.url, block.name, block.meta)
    raise TypeError(f"a {block.type} block is not a part of a message")


def blocks_text(blocks: Sequence[ContentBlock]) -> str:
    """Return the text in the blocks, including the text of tool results.

    >>> blocks_text(as_blocks(["a", {"type": "image", "url": "u"}, "b"]))
    'a\\n\\nb'
    """
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock):
        return blocks[0].text
    worded = [block for block in blocks if isinstance(block, TextBlock | ToolResultBlock)]
    texts = [block.text if isinstance(block, TextBlock) else block.content for block in worded]
    return "\n\n".join(filter(None, texts))


def message_blocks(message: Message) -> tuple[ContentBlock, ...]:
    """Convert the content of a chat message to blocks.

    >>> from tellback.types import assistant_message
    >>> call = ToolCall("tu_1", "lookup", {"order": 7})
    >>> [block.type for block in message_blocks(assistant_message("One moment.", tool_calls=[call]))]
    ['text', 'tool_use']
    """
    if message.role == "tool":
        parts = None if message.parts is None else tuple(map(_from_part, message.parts))
        text = message.content if isinstance(message.content, str) else message_text(message)
        return (ToolResultBlock(message.tool_call_id or "", text, message.is_error, message.name, parts),)
    blocks: list[ContentBlock] = []
    if message.parts:
        blocks.extend(map(_from_part, message.parts))
    elif message.content:
        blocks.append(TextBlock(message_text(message)))
    calls = message.tool_calls
    return (*blocks, *(ToolUseBlock(call.id, call.name, call.input, call.invalid_input, call.meta) for call in calls))


def chat_messages(role: str, blocks: Sequence[ContentBlock], meta: Mapping[str, Any] | None = None) -> list[Message]:
    """Convert blocks to chat messages: the inverse of `message_blocks`.

    The result is one message, unless the blocks contain tool results and something else: each tool result is a separate
    chat message.

    >>> [message.content for message in chat_messages("user", [TextBlock("Where is my order?")])]
    ['Where is my order?']
    >>> results = [ToolResultBlock("tu_1", "shipped"), ToolResultBlock("tu_2", "lost")]
    >>> [(message.role, message.content) for message in chat_messages("tool", results)]
    [('tool', 'shipped'), ('tool', 'lost')]
    """
    results = [_result_message(block, meta) for block in blocks if isinstance(block, ToolResultBlock)]
    if results and len(results) == len(blocks):
        return results
    calls = tuple([_to_call(block) for block in blocks if isinstance(block, ToolUseBlock)])
    visible = [block for block in blocks if isinstance(block, TextBlock | MediaBlock)]
    if len(visible) == 1 and isinstance(visible[0], TextBlock) and visible[0].meta is None:
        return [*results, Message(role, visible[0].text, tool_calls=calls, meta=meta)]
    parts = tuple(map(to_part, visible))
    return [*results, Message(role, flatten_parts(parts), parts or None, calls, meta=meta)]


def _to_call(block: ToolUseBlock) -> ToolCall:
    return ToolCall(block.id, block.name, block.arguments, block.invalid_input, block.meta)


def _result_message(block: ToolResultBlock, meta: Mapping[str, Any] | None) -> Message:
    return Message(
        "tool",
        block.content,
        None if block.parts is None else tuple(map(to_part, block.parts)),
        tool_call_id=block.tool_use_id,
        name=block.tool_name,
        is_error=block.is_error,
        meta=meta,
    )
