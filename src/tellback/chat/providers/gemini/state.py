"""Parts of Gemini's replies that must be sent back unchanged: thought signatures, code it ran."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from tellback.chat.providers.media import EARLIER_TEXT
from tellback.types import Message, ToolCall, message_text

META_KEY = "gemini"


def parts_to_meta(parts: Sequence[Mapping[str, Any]], calls: Sequence[ToolCall]) -> Mapping[str, Any] | None:
    """A message's `meta` for these parts (JSON only), or None when text and calls say it all."""
    if all(
        not part.get("thought_signature") and set(part) <= {"text", "thought", "function_call"} for part in parts
    ) and not any((part.get("function_call") or {}).get("id") for part in parts):
        return None
    stored_parts = []
    for part in parts:
        # Summaries of thoughts are for people; Gemini wants only its signatures back.
        if part.get("thought") and not part.get("thought_signature"):
            continue
        stored_parts.append({name: _to_json(value) for name, value in part.items()})
    return {META_KEY: {"parts": stored_parts, "calls": [call.id for call in calls]}}


def parts_from_meta(message: Message) -> list[dict[str, Any]] | None:
    """The parts as they came, unless the message has been changed since."""
    state = (message.meta or {}).get(META_KEY)
    if not state:
        return None
    earlier = (message.meta or {}).get(EARLIER_TEXT)
    parts = [{"text": earlier}, *state["parts"]] if earlier else state["parts"]
    text = "".join(part.get("text") or "" for part in parts if not part.get("thought"))
    if text != message_text(message) or state["calls"] != [call.id for call in message.tool_calls]:
        return None
    return [{name: _from_json(name, value) for name, value in part.items()} for part in parts]


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    return value


def _from_json(name: str, value: Any) -> Any:
    if name == "thought_signature":
        return base64.b64decode(value)
    if name == "inline_data":
        return {**value, "data": base64.b64decode(value["data"])}
    return value
