"""Answers as OpenAI's clients know them: whole, or chunk by chunk."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tellback.turn.values import TurnResult
from tellback.types import ChatUsage, ToolCall
from tellback.types.ids import new_id
from tellback.types.jsontext import dump_json

DONE_MARKER = "[DONE]"

_FINISH_REASONS = {"truncated": "length", "approval": "tool_calls"}


@dataclass(frozen=True, slots=True)
class CompletionWriter:
    """Writes one completion. `model` is whose it is, unless the provider says otherwise."""

    model: str
    with_usage: bool = False
    id: str = field(default_factory=lambda: new_id("chatcmpl").replace("_", "-", 1))
    created: int = field(default_factory=lambda: int(time.time()))

    def encode_completion(self, result: TurnResult) -> dict[str, Any]:
        """The completion at once."""
        calls = [_encode_tool_call(call) for call in result.pending]
        message: dict[str, Any] = {"role": "assistant", "content": result.text or None if calls else result.text}
        message["refusal"] = None
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(result)}
        return {
            **self._common_fields("chat.completion", result.usage.model),
            "choices": [choice],
            "usage": encode_usage(result.usage),
        }

    def first_chunk(self) -> str:
        """The first chunk."""
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def text_chunk(self, text: str) -> str:
        """A chunk of text."""
        return self._chunk({"content": text})

    def last_chunks(self, result: TurnResult) -> list[str]:
        """The last chunks: the calls, why it ends, and what it took."""
        chunks = [
            self._chunk({"tool_calls": [{"index": number, **_encode_tool_call(call)}]})
            for number, call in enumerate(result.pending)
        ]
        chunks.append(self._chunk({}, finish_reason(result)))
        if self.with_usage:
            head = self._common_fields("chat.completion.chunk")
            chunks.append(json.dumps({**head, "choices": [], "usage": encode_usage(result.usage)}))
        return [*chunks, DONE_MARKER]

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self.with_usage else {}
        return json.dumps({**self._common_fields("chat.completion.chunk"), "choices": [choice], **usage})

    def _common_fields(self, object: str, model: str | None = None) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": model or self.model,
            "system_fingerprint": None,
        }


def finish_reason(result: TurnResult) -> str:
    """Why the answer ends."""
    last = next((each.stop_reason for each in reversed(result.messages) if each.role == "assistant"), None)
    if last == "refusal" and not result.pending:
        return "content_filter"
    return _FINISH_REASONS.get(result.status, "stop")


def encode_usage(usage: ChatUsage) -> dict[str, Any] | None:
    """The tokens, where the provider counts them."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    prompt_tokens, completion_tokens = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens if usage.total_tokens is None else usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
    }


def _encode_tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": dump_json(call.input)}
    return {"id": call.id, "type": "function", "function": function}


def encode_model(name: str) -> dict[str, Any]:
    """A model, as `/v1/models` lists it."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "tellback"}


def encode_models(names: Sequence[str]) -> dict[str, Any]:
    """Models, as `/v1/models` lists them."""
    return {"object": "list", "data": [encode_model(name) for name in names]}
