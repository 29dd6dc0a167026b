"""What a server's tool gave, as a result for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.types import MessagePart, ToolResult, audio_part, flatten_parts, image_part, text_part
from recollect.types.jsontext import dump_json

MAX_MEDIA_CHARS = 20_000_000
MAX_MEDIA = 100


def tool_result(answer: Mapping[str, Any], max_chars: int) -> ToolResult:
    """The answer to `tools/call` as a result; `value` is the structured content, if there is any.

    >>> tool_result({"content": [{"type": "text", "text": "Sunny"}]}, 1_000).content
    'Sunny'
    """
    parts = [_part(block) for block in answer.get("content", ())]
    structured = answer.get("structuredContent")
    if not parts and structured is not None:
        parts = [text_part(dump_json(structured))]
    parts = _cut(_fewer_media(parts), max_chars)
    plain = all(part.kind == "text" for part in parts)
    return ToolResult(
        id="",
        content=flatten_parts(parts),
        is_error=bool(answer.get("isError")),
        parts=None if plain else tuple(parts),
        value=structured,
    )


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
    if not mime.startswith(f"{kind}/"):
        return text_part(f"[{kind} left out: its type is given as {mime!r:.80}]")
    return image_part(data=data, mime=mime) if kind == "image" else audio_part(data=data, mime=mime)


def _resource(resource: Mapping[str, Any]) -> str:
    uri = resource.get("uri", "")
    if isinstance(resource.get("text"), str):
        return f"[resource: {uri}]\n{resource['text']}"
    mime = resource.get("mimeType") or "unknown type"
    return f"[resource: {uri}, {mime}, {len(str(resource.get('blob', ''))) * 3 // 4} bytes that are not text]"


def _fewer_media(parts: list[MessagePart]) -> list[MessagePart]:
    """The parts without the images and recordings that are too many, or too large together."""
    kept: list[MessagePart] = []
    count = size = 0
    for part in parts:
        if part.kind != "text":
            count, size = count + 1, size + len(part.data or "")
            if count > MAX_MEDIA or size > MAX_MEDIA_CHARS:
                kept.append(text_part(f"[{part.kind} left out: {part.mime}, {len(part.data or '')} characters]"))
                continue
        kept.append(part)
    return kept


def _cut(parts: list[MessagePart], max_chars: int) -> list[MessagePart]:
    """The parts with no more text than allowed, and a note of how much was cut."""
    total = sum(len(part.text or "") for part in parts)
    if total <= max_chars:
        return parts
    kept: list[MessagePart] = []
    left = max_chars
    for part in parts:
        if part.kind != "text":
            kept.append(part)
        elif left > 0:
            text = (part.text or "")[:left]
            left -= len(text)
            kept.append(text_part(text))
    kept.append(text_part(f"[cut: the first {max_chars} of {total} characters are shown]"))
    return kept
