"""Streamed chunks of llama.cpp put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tellback.chat.providers.failures import error_from_status
from tellback.chat.providers.local.decode import AnswerReader
from tellback.chat.usage import make_usage
from tellback.errors import ProviderError, ProviderRequestError
from tellback.types import ChatReply, ReplyDelta, TextDelta, ThinkingDelta

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


class LocalStreamReader:
    """What the chunks of one call have given so far. `reader` is for answers that are held to say or call."""

    def __init__(self, provider: str, model: str, reader: AnswerReader | None) -> None:
        self._provider = provider
        self._model = model
        self._reader = reader
        self._finish_reason: str | None = None
        self._usage: Mapping[str, Any] = {}
        self._timings: Mapping[str, Any] = {}
        self._text: list[str] = []
        self._thinking: list[str] = []

    @property
    def is_complete(self) -> bool:
        """Whether it said why it stopped."""
        return self._finish_reason is not None

    @property
    def is_finished(self) -> bool:
        """Usage follows the reason, so only the end is the end."""
        return False

    def add(self, chunk: Mapping[str, Any]) -> Iterator[ReplyDelta]:
        """Take one chunk, and give its deltas."""
        if "error" in chunk:
            raise error_from_chunk(chunk, self._provider, self._model)
        self._usage = chunk.get("usage") or self._usage
        self._timings = chunk.get("timings") or self._timings
        for choice in chunk.get("choices") or ():
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            delta = choice.get("delta") or {}
            if thought := delta.get("reasoning_content"):
                self._thinking.append(thought)
                yield ThinkingDelta(thought)
            if piece := delta.get("content"):
                yield from map(self._record, [TextDelta(piece)] if self._reader is None else self._reader.feed(piece))

    def close(self) -> Iterator[ReplyDelta]:
        """What is left to give when no chunk follows."""
        if self._reader is not None:
            yield from self._reader.close()

    def reply(self) -> ChatReply:
        """The whole reply."""
        call = self._reader.call if self._reader is not None else None
        reason = STOP_REASONS.get(self._finish_reason or "", self._finish_reason or "")
        return ChatReply(
            text="".join(self._text),
            tool_calls=() if call is None else (call,),
            stop_reason="tool_use" if call is not None and reason == "end_turn" else reason,
            usage=make_usage({**self._usage, "cost_usd": 0.0}, self._provider, self._model),
            raw={"finish_reason": self._finish_reason, "usage": self._usage, "timings": self._timings},
            thinking="".join(self._thinking),
        )

    def _record(self, delta: ReplyDelta) -> ReplyDelta:
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        return delta


def error_from_chunk(chunk: Mapping[str, Any], provider: str, model: str) -> ProviderError:
    """The error that llama.cpp reports, in our words."""
    error = chunk["error"]
    if error.get("type") == "exceed_context_size_error":
        return ProviderRequestError(
            f"The request is of {error.get('n_prompt_tokens')} tokens, and {model} was opened with a context of"
            f" {error.get('n_ctx')}. Shorten the history or the tools, or pass LocalModel(..., context=...).",
            provider=provider,
            model=model,
            status=400,
            body=dict(chunk),
        )
    return error_from_status(provider, model, error.get("code"), str(error.get("message")), body=dict(chunk))
