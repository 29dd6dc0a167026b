"""What a server's tool gave, as a result for the model."""

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
_GAP = "\n\n"
_MIME = re.compile(r"(?=.{1,100}\Z)[a-z]+/[a-z0-9!#$&^_.+-]+", re.IGNORECASE)


def fewer_blocks(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer to `tools/call` with not more blocks of content than anybody reads."""
    content = answer.get("content")
    if not isinstance(content, list) or len(content) <= MAX_BLOCKS:
        return answer
    note = {"type": "text", "text": f"[cut: the first {MAX_BLOCKS} of {len(content)} blocks are shown]"}
    return {**answer, "content": [*content[:MAX_BLOCKS], note]}


def tool_result(answer: Mapping[str, Any], max_chars: int) -> ToolResult:
    """The answer to `tools/call` as a result; `value` is the structured content, if there is any.

    >>> tool_result({"content": [{"type": "text", "text": "Sunny"}]}, 1_000).content
    'Sunny'
    """
    parts = _fewer_media(answer.get("content", ()))
    structured, written = _structured(answer.get("structuredContent"))
    if not parts and written:
        parts = [text_part(written)]
    parts = _cut(parts, max_chars)
    plain = all(part.kind == "text" for part in parts)
    return ToolResult(
        id="",
        content=flatten_parts(parts),
        is_error=bool(answer.get("isError")),
        parts=None if plain else tuple(parts),
        value=structured,
    )


def _structured(value: Any) -> tuple[Any, str]:
    if value is None:
        return None, ""
    try:
        return value, dump_json(value)
    except RecursionError:
        return None, "[structured content left out: it is nested too deeply]"


def _part(block: Mapping[str, Any]) -> MessagePart:
    kind = block.get("type")
    if kind == "text":
        return text_part(str(block.get("text", "")))
    if kind in ("image", "audio"):
        return _media(block)
    if kind == "resource_link":
        label = block.get("title") or block.get("name") or ""
        about = f"\n{block['description']}" if block.get("description") else ""
        return text_part(f"[link: {label} {block.get('uri', '')}]{about}")
    if kind == "resource":
        return text_part(_resource(block.get("resource") or {}))
    return text_part(f"[{kind}: a kind of content that is not known here]")


def _media(block: Mapping[str, Any]) -> MessagePart:
    kind, data, mime = block["type"], str(block.get("data", "")), str(block.get("mimeType") or "")
    if not mime.startswith(f"{kind}/") or not _MIME.fullmatch(mime):
        return text_part(f"[{kind} left out: its type is given as {mime!r:.80}]")
    try:
        empty = not base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return text_part(f"[{kind} left out: its data is not base64]")
    if empty:
        return text_part(f"[{kind} left out: it is empty]")
    return image_part(data=data, mime=mime) if kind == "image" else audio_part(data=data, mime=mime)


def _resource(resource: Mapping[str, Any]) -> str:
    uri = resource.get("uri", "")
    if isinstance(resource.get("text"), str):
        return f"[resource: {uri}]\n{resource['text']}"
    mime = resource.get("mimeType") or "unknown type"
    return f"[resource: {uri}, {mime}, {len(str(resource.get('blob', ''))) * 3 // 4} bytes that are not text]"


def _fewer_media(content: Sequence[Any]) -> list[MessagePart]:
    """The parts without the images and recordings that are too many, or too large together."""
    kept: list[MessagePart] = []
    count = size = 0
    for block in content:
        if block.get("type") in ("image", "audio"):
            chars = len(str(block.get("data", "")))
            count, size = count + 1, size + chars
            if count > MAX_MEDIA or size > MAX_MEDIA_CHARS:
                kept.append(text_part(f"[{block['type']} left out: one too many or too large, {chars} characters]"))
                continue
        part = _part(block)
        if part.kind != "text" or part.text:
            kept.append(part)
    return kept


def _cut(parts: list[MessagePart], max_chars: int) -> list[MessagePart]:
    """The parts with no more text than allowed, as it will be shown, and a note of how much was cut."""
    shown = [len(render_part(part)) + len(_GAP) for part in parts]
    total = sum(shown) - len(_GAP)
    if total <= max_chars:
        return parts
    kept: list[MessagePart] = []
    left = max_chars - sum(chars for part, chars in zip(parts, shown, strict=True) if part.kind != "text")
    for part, chars in zip(parts, shown, strict=True):
        if part.kind != "text":
            kept.append(part)
        elif left > 0:
            kept.append(text_part((part.text or "")[:left]))
            left -= chars
    kept.append(text_part(f"[cut: the first {max_chars} of {total} characters are shown]"))
    return kept
