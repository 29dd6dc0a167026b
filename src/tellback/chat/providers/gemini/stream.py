"""Gemini's responses, one or a stream of them, put together."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from tellback.chat.providers.gemini.state import parts_to_meta
from tellback.chat.usage import make_usage
from tellback.types import (
    ChatReply,
    ReplyDelta,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from tellback.types.jsontext import dump_json

STOP_REASONS = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"), "refusal"
    ),
}


class GeminiStreamReader:
    """What the responses of one call have given so far."""

    def __init__(self, provider: str, model: str) -> None:
        self.finish_reason: str | None = None
        self.block_reason: str | None = None
        self._provider = provider
        self._model = model
        self._parts: list[dict[str, Any]] = []
        self._calls: list[ToolCall] = []
        self._usage: Mapping[str, Any] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether Gemini said why it stopped, or that it would not start."""
        return self.finish_reason is not None or self.block_reason is not None

    @property
    def is_finished(self) -> bool:
        """Gemini just ends."""
        return False

    def close(self) -> Iterator[ReplyDelta]:
        """Nothing is held back."""
        return iter(())

    def add(self, response: Any) -> Iterator[ReplyDelta]:
        """Take one response, and give its deltas."""
        self._model = response.model_version or self._model
        if response.usage_metadata is not None:
            self._usage = response.usage_metadata.model_dump(exclude_none=True)
        feedback = response.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            self.block_reason = _enum_value(feedback.block_reason)
        candidate = next(iter(response.candidates or ()), None)
        if candidate is None:
            return
        if candidate.finish_reason is not None:
            self.finish_reason = _enum_value(candidate.finish_reason)
        for part in (candidate.content.parts if candidate.content is not None else None) or ():
            yield from self._add_part(part)

    def _add_part(self, part: Any) -> Iterator[ReplyDelta]:
        raw = part.model_dump(exclude_none=True)
        if part.function_call is not None:
            call = ToolCall(
                part.function_call.id or f"gemini_{uuid.uuid4().hex[:24]}",
                part.function_call.name or "",
                part.function_call.args or {},
            )
            self._calls.append(call)
            self._parts.append(raw)
            yield ToolUseStart(call.id, call.name)
            yield ToolUseInputDelta(call.id, dump_json(call.input))
            yield ToolUseEnd(call.id)
            return
        last = self._parts[-1] if self._parts else None
        if last is not None and _continues_part(last, raw):
            last.update(raw, text=last["text"] + raw["text"])
        else:
            self._parts.append(raw)
        if part.text:
            yield ThinkingDelta(part.text) if part.thought else TextDelta(part.text)

    def reply(self) -> ChatReply:
        """The whole reply."""
        texts = [part for part in self._parts if "text" in part]
        return ChatReply(
            text="".join(part["text"] for part in texts if not part.get("thought")),
            tool_calls=tuple(self._calls),
            stop_reason=self._stop_reason(),
            usage=make_usage(self._usage, self._provider, self._model) if self._usage else None,
            raw={"finish_reason": self.finish_reason, "block_reason": self.block_reason},
            thinking="".join(part["text"] for part in texts if part.get("thought")),
            meta=parts_to_meta(self._parts, self._calls),
        )

    def _stop_reason(self) -> str:
        if self._calls and self.finish_reason in ("STOP", None):
            return "tool_use"
        if self.finish_reason is None:
            return "refusal" if self.block_reason else "end_turn"
        return STOP_REASONS.get(self.finish_reason, self.finish_reason)


def _continues_part(last: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Whether a part is more text of the one before it, not yet closed by a signature."""
    return (
        "text" in last
        and "text" in part
        and last.get("thought") == part.get("thought")
        and "thought_signature" not in last
        and set(part) <= {"text", "thought", "thought_signature"}
    )


def _enum_value(value: Any) -> str:
    return str(getattr(value, "value", value))
