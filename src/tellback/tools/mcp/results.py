"""Convert the answer of an MCP tool to a `ToolResult`, limited in blocks, media and characters."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tellback.types import MessagePart, ToolResult, audio_part, flatten_parts, image_part, render_part, text_part
from tellback.types.jsontext import dump_json

MAX_BLOCKS = 1_000
MAX_MEDIA_CHARS = 20_000_000
MAX_MEDIA = 100
_SEPARATOR = "\n\n"
_MIME = re.compile(r"(?=.{1,100}\Z)[a-z]+/[a-z0-9!#$&^_.+-]+", re.IGNORECASE)


def limit_blocks(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer to `tools/call` with not more blocks of content than anybody reads."""
    content = answer.get("content")
    if not isinstance(content, list) or len(content) <= MAX_BLOCKS:
        return answer
    note = {"type": "text", "text": f"[cut: the first {MAX_BLOCKS} of {len(content)} blocks are shown]"}
    return {**answer, "content": [*content[:MAX_BLOCKS], note]}


def to_tool_result(answer: Mapping[str, Any], max_chars: int) -> ToolResult:
    """The answer to `tools/call` as a result; `value` is the structured content, if there is any.

    >>> to_tool_result({"content": [{"type": "text", "text": "Sunny"}]}, 1_000).content
    'Sunny'
    """
    parts = _limit_media(answer.get("content", ()))
    structured, structured_text = _render_structured(answer.get("structuredContent"))
    if not parts and structured_text:
        parts = [text_part(structured_text)]
    parts = _truncate(parts, max_chars)
    is_text_only = all(part.kind == "text" for part in parts)
    return ToolResult(
        id="",
        content=flatten_parts(parts),
        is_error=bool(answer.get("isError")),
        parts=None if is_text_only else tuple(parts),
        value=structured,
    )


def _render_structured(value: Any) -> tuple[Any, str]:
    if value is None:
        return None, ""
    try:
        return value, dump_json(value)
    except RecursionError:
        return None, "[structured content left out: it is nested too deeply]"


def _decode_block(block: Mapping[str, Any]) -> MessagePart:
    kind = block.get("type")
    if kind == "text":
        return text_part(str(block.get("text", "")))
    if kind in ("image", "audio"):
        return _decode_media(block)
    if kind == "resource_link":
        label = block.get("title") or block.get("name") or ""
        about = f"\n{block['description']}" if block.get("description") else ""
        return text_part(f"[link: {label} {block.get('uri', '')}]{about}")
    if kind == "resource":
        return text_part(_render_resource(block.get("resource") or {}))
    return text_part(f"[{kind}: a kind of content that is not known here]")


def _decode_media(block: Mapping[str, Any]) -> MessagePart:
    kind, data, mime = block["type"], str(block.get("data", "")), str(block.get("mimeType") or "")
    if not mime.startswith(f"{kind}/") or not _MIME.fullmatch(mime):
        return text_part(f"[{kind} left out: its type is given as {mime!r:.80}]")
    try:
        is_empty = not base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return text_part(f"[{kind} left out: its data is not base64]")
    if is_empty:
        return text_part(f"[{kind} left out: it is empty]")
    return image_part(data=data, mime=mime) if kind == "image" else audio_part(data=data, mime=mime)


def _render_resource(resource: Mapping[str, Any]) -> str:
    uri = resource.get("uri", "")
    if isinstance(resource.get("text"), str):
        return f"[resource: {uri}]\n{resource['text']}"
    mime = resource.get("mimeType") or "unknown type"
    return f"[resource: {uri}, {mime}, {len(str(resource.get('blob', ''))) * 3 // 4} bytes that are not text]"


def _limit_media(content: Sequence[Any]) -> list[MessagePart]:
    """The parts without the images and recordings that are too many, or too large together."""
    parts: list[MessagePart] = []
    count = size = 0
    for block in content:
        if block.get("type") in ("image", "audio"):
            chars = len(str(block.get("data", "")))
            count, size = count + 1, size + chars
            if count > MAX_MEDIA or size > MAX_MEDIA_CHARS:
                parts.append(text_part(f"[{block['type']} left out: one too many or too large, {chars} characters]"))
                continue
        part = _decode_block(block)
        if part.kind != "text" or part.text:
            parts.append(part)
    return parts


def _truncate(parts: list[MessagePart], max_chars: int) -> list[MessagePart]:
    """The parts with no more text than allowed, as it will be shown, and a note of how much was cut."""
    lengths = [len(render_part(part)) + len(_SEPARATOR) for part in parts]
    total = sum(lengths) - len(_SEPARATOR)
    if total <= max_chars:
        return parts
    truncated: list[MessagePart] = []
    remaining = max_chars - sum(chars for part, chars in zip(parts, lengths, strict=True) if part.kind != "text")
    for part, chars in zip(parts, lengths, strict=True):
        if part.kind != "text":
            truncated.append(part)
        elif remaining > 0:
            truncated.append(text_part((part.text or "")[:remaining]))
            remaining -= chars
    truncated.append(text_part(f"[cut: the first {max_chars} of {total} characters are shown]"))
    return truncated
