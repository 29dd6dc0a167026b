"""A turn whose tools run here: the message, then what tools gave, in as many requests as the model asks for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Generic, TypeVar

from tellback.chat import ChatOptions, Model
from tellback.client.handle import RemoteHandle
from tellback.client.options import model_name, options_json, refuse_local, turn_options
from tellback.client.tools import LocalTools
from tellback.client.values import given, metadata_json, named
from tellback.turn.values import TurnResult
from tellback.types import ReplyDelta, ToolCall
from tellback.types.conversations import StoredMessage, TurnOutcome
from tellback.wire.base import Wire
from tellback.wire.turns import delta_value

DEFAULT_CYCLES = ChatOptions().max_iterations

Ended = TypeVar("Ended", TurnOutcome, TurnResult)


class Legs(Generic[Ended]):
    """What is sent next, until nothing waits for tools that run here.

    `more` is what the caller passed by keyword, and `wire` reads what the server gives. `rest` is in every request, and
    `first` in the first one, besides what all turns have in common.

    All requests of a turn share its cycles, which the server counts too. When they are used up, what the tools gave
    is sent once more, for an answer without tools, as in process.
    """

    def __init__(
        self,
        wire: type[Wire],
        model: str | Model | None,
        more: Mapping[str, Any],
        *,
        rest: Mapping[str, Any],
        first: Mapping[str, Any],
    ) -> None:
        refuse_local(more)
        options = turn_options(
            more.get("options"), model, more.get("tools"), more.get("tool_handler"), more.get("max_cycles")
        )
        self._local = LocalTools(options.tools, more.get("approvals"))
        self._wire = wire
        self._cycles = options.max_iterations
        self._rest = {
            **rest,
            **given(
                model=model_name(options.model or None),
                tools=self._local.described(),
                options=options_json(options),
                max_cycles=None if self._cycles == DEFAULT_CYCLES else self._cycles,
                recall=named(more.get("recall")),
                trace_id=more.get("trace_id"),
                wait=more.get("wait"),
            ),
        }
        self._ended: Ended | None = None
        self._settled = 0
        self._asked: int | None = None
        self.key: str | None = more.get("idempotency_key")
        self.body: dict[str, Any] | None = {
            **self._rest,
            **given(metadata=metadata_json(more.get("metadata"))),
            **first,
        }

    @property
    def is_first(self) -> bool:
        """Whether nothing was sent yet."""
        return self._ended is None

    @property
    def ended(self) -> Ended:
        """How the turn ended, of all its parts."""
        assert self._ended is not None
        return self._ended

    async def resume(self, pending: tuple[ToolCall, ...]) -> None:
        """Begin with what was decided on calls that wait."""
        results, undecidable = await self._local.results(pending), self._local.undecidable()
        assert self.body is not None
        self._settled = 1  # the reply that asked is counted with those that follow
        if results:
            self.body["toolResults"] = results
        if undecidable or not results:
            self.body["approvals"] = undecidable

    async def go_on(self, told: Any) -> None:
        """Take what the server gave, run what waits for its tools, and make ready what came of it."""
        after: Ended = self._wire.model_validate(told).value()
        ended = self._ended = after if self._ended is None else joined(self._ended, after)
        self.key, self.body = None, None
        if self._asked is not None:
            if ended.model_calls > self._asked:  # if not, some wait for a person
                self._ended = capped(ended)
            return
        results = await self._local.results(ended.pending)
        if not results:
            return
        self.body = {**self._rest, "toolResults": results}
        if isinstance(ended, TurnResult) and ended.conversation_id is not None:
            self.body["conversationId"] = ended.conversation_id
        if ended.model_calls - self._settled >= self._cycles:
            self._asked = ended.model_calls
            self.body["options"] = {**self._rest.get("options", {}), "toolChoice": "none"}


class RunsTurns(RemoteHandle):
    """Sends a turn to its path, leg by leg."""

    async def _run(self, path: str, legs: Legs[Ended]) -> Ended:
        while (body := legs.body) is not None:
            await legs.go_on(await self._post(path, body, key=legs.key, native=legs.is_first))
        return legs.ended

    async def _run_streamed(self, path: str, legs: Legs[Ended]) -> AsyncGenerator[ReplyDelta | Ended, None]:
        while (body := legs.body) is not None:
            result: Any = None
            async with aclosing(self._streamed(path, body, legs.key)) as found:
                async for event, data in found:
                    if event == "result":
                        result = data
                    elif (delta := delta_value(event, data)) is not None:
                        yield delta
            await legs.go_on(result)
        yield legs.ended


def joined(before: Ended, after: Ended) -> Ended:
    """One turn of its parts."""
    done = {call.id: call for call in (*before.tool_invocations, *after.tool_invocations)}
    both: dict[str, Any] = {
        "tool_invocations": tuple(done.values()),
        "context": after.context or before.context,
        "problems": (*before.problems, *after.problems),
        "model_calls": before.model_calls + after.model_calls - 1,  # the call that asked for the tools is in both
    }
    if isinstance(before, TurnResult):
        assert isinstance(after, TurnResult)
        messages, usage = _appended(before.messages, after.messages), before.usage + after.usage
        return replace(after, messages=messages, usage=usage, **both)
    assert isinstance(after, TurnOutcome)
    return replace(
        after,
        appended_messages=_appended(before.appended_messages, after.appended_messages),
        aggregate_usage=before.aggregate_usage + after.aggregate_usage,
        total_latency_ms=before.total_latency_ms + after.total_latency_ms,
        **both,
    )


def _appended(before: tuple[StoredMessage, ...], after: tuple[StoredMessage, ...]) -> tuple[StoredMessage, ...]:
    known = {message.id for message in before}
    return (*before, *(message for message in after if message.id not in known))


def capped(ended: Ended) -> Ended:
    """A turn that was asked for an answer without tools; calls that it makes all the same are not made."""
    if isinstance(ended, TurnOutcome):
        return replace(ended, status="max_cycles", stop_reason="max_iterations", pending=())
    return replace(ended, ok=True, status="max_cycles", pending=())
