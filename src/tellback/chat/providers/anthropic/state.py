"""Blocks of Anthropic's replies that must be sent back unchanged: signed thinking, server tools, compaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tellback.chat.providers.media import EARLIER_TEXT
from tellback.types import Message, message_text

META_KEY = "anthropic"


def blocks_to_meta(blocks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """A message's `meta` for these blocks, or None when text and calls say it all."""
    if all(block.get("type") in ("text", "tool_use") and not block.get("citations") for block in blocks):
        return None
    return {META_KEY: {"content": [_drop_nulls(block) for block in blocks]}}


def blocks_from_meta(message: Message) -> list[dict[str, Any]] | None:
    """The blocks as they came, unless the message has been changed since."""
    state = (message.meta or {}).get(META_KEY)
    if not state:
        return None
    blocks = [dict(block) for block in state["content"]]
    earlier = (message.meta or {}).get(EARLIER_TEXT)
    if earlier:  # thinking must stay in front
        thinking = [block for block in blocks if "thinking" in block.get("type", "")]
        rest = [block for block in blocks if "thinking" not in block.get("type", "")]
        blocks = [*thinking, {"type": "text", "text": earlier}, *rest]
    text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text")
    calls = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    if text != message_text(message) or calls != [call.id for call in message.tool_calls]:
        return None
    return [block for block in blocks if block.get("type") != "text" or (block.get("text") or "").strip()]


def _drop_nulls(block: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if value is not None}
