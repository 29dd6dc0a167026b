"""A turn whose tools run here: the message, then what tools gave, in as many requests as the model asks for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Generic, TypeVar

from tellback.chat import ChatOptions, Model
from tellback.client.handle import RemoteHandle
from tellback.client.options import encode_options, reject_local_arguments, require_model_name, resolve_turn_options
from tellback.client.tools import LocalTools
from tellback.client.values import encode_arguments, encode_mapping, encode_metadata
from tellback.turn.values import TurnResult
from tellback.types import ReplyDelta, ToolCall
from tellback.types.conversations import StoredMessage, TurnOutcome
from tellback.wire.base import WireModel
from tellback.wire.turns import decode_delta

DEFAULT_CYCLES = ChatOptions().max_iterations

TurnEnd = TypeVar("TurnEnd", TurnOutcome, TurnResult)


class TurnLoop(Generic[TurnEnd]):
    """What is sent next, until nothing waits for tools that run here.

    `more` is what the caller passed by keyword, and `wire` reads what the server gives. `rest` is in every request, and
    `first` in the first one, besides what all turns have in common.

    All requests of a turn share its cycles, which the server counts too. When they are used up, what the tools gave
    is sent once more, for an answer without tools, as in process.
    """

    def __init__(
        self,
        model_class: type[WireModel],
        model: str | Model | None,
        arguments: Mapping[str, Any],
        *,
        common_fields: Mapping[str, Any],
        first_fields: Mapping[str, Any],
    ) -> None:
        reject_local_arguments(arguments)
        options = resolve_turn_options(
            arguments.get("options"),
            model,
            arguments.get("tools"),
            arguments.get("tool_handler"),
            arguments.get("max_cycles"),
        )
        self._local_tools = LocalTools(options.tools, arguments.get("approvals"))
        self._model_class = model_class
        self._max_cycles = options.max_iterations
        self._common_fields = {
            **common_fields,
            **encode_arguments(
                model=require_model_name(options.model or None),
                tools=self._local_tools.encode_descriptions(),
                options=encode_options(options),
                max_cycles=None if self._max_cycles == DEFAULT_CYCLES else self._max_cycles,
                recall=encode_mapping(arguments.get("recall")),
                trace_id=arguments.get("trace_id"),
                wait=arguments.get("wait"),
            ),
        }
        self._result: TurnEnd | None = None
        self._calls_before = 0
        self._calls_at_limit: int | None = None
        self.key: str | None = arguments.get("idempotency_key")
        self.body: dict[str, Any] | None = {
            **self._common_fields,
            **encode_arguments(metadata=encode_metadata(arguments.get("metadata"))),
            **first_fields,
        }

    @property
    def is_first(self) -> bool:
        """Whether nothing was sent yet."""
        return self._result is None

    @property
    def result(self) -> TurnEnd:
        """How the turn ended, of all its parts."""
        assert self._result is not None
        return self._result

    async def resume(self, pending: tuple[ToolCall, ...]) -> None:
        """Begin with what was decided on calls that wait."""
        results, undecidable = (
            await self._local_tools.run_pending(pending),
            self._local_tools.encode_remaining_decisions(),
        )
        assert self.body is not None
        self._calls_before = 1  # the reply that asked is counted with those that follow
        if results:
            self.body["toolResults"] = results
        if undecidable or not results:
            self.body["approvals"] = undecidable

    async def advance(self, payload: Any) -> None:
        """Take what the server gave, run what waits for its tools, and make ready what came of it."""
        after: TurnEnd = self._model_class.model_validate(payload).value()
        result = self._result = after if self._result is None else merge_results(self._result, after)
        self.key, self.body = None, None
        if self._calls_at_limit is not None:
            if result.model_calls > self._calls_at_limit:  # if not, some wait for a person
                self._result = mark_max_cycles(result)
            return
        results = await self._local_tools.run_pending(result.pending)
        if not results:
            return
        self.body = {**self._common_fields, "toolResults": results}
        if isinstance(result, TurnResult) and result.conversation_id is not None:
            self.body["conversationId"] = result.conversation_id
        if result.model_calls - self._calls_before >= self._max_cycles:
            self._calls_at_limit = result.model_calls
            self.body["options"] = {**self._common_fields.get("options", {}), "toolChoice": "none"}


class TurnRunner(RemoteHandle):
    """Sends a turn to its path, leg by leg."""

    async def _run(self, path: str, loop: TurnLoop[TurnEnd]) -> TurnEnd:
        while (body := loop.body) is not None:
            await loop.advance(await self._post(path, body, key=loop.key, has_own_key=loop.is_first))
        return loop.result

    async def _run_streamed(self, path: str, loop: TurnLoop[TurnEnd]) -> AsyncGenerator[ReplyDelta | TurnEnd, None]:
        while (body := loop.body) is not None:
            result: Any = None
            async with aclosing(self._stream_turn(path, body, loop.key)) as events:
                async for event, data in events:
                    if event == "result":
                        result = data
                    elif (delta := decode_delta(event, data)) is not None:
                        yield delta
            await loop.advance(result)
        yield loop.result


def merge_results(before: TurnEnd, after: TurnEnd) -> TurnEnd:
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
        messages, usage = _merge_messages(before.messages, after.messages), before.usage + after.usage
        return replace(after, messages=messages, usage=usage, **both)
    assert isinstance(after, TurnOutcome)
    return replace(
        after,
        appended_messages=_merge_messages(before.appended_messages, after.appended_messages),
        aggregate_usage=before.aggregate_usage + after.aggregate_usage,
        total_latency_ms=before.total_latency_ms + after.total_latency_ms,
        **both,
    )


def _merge_messages(before: tuple[StoredMessage, ...], after: tuple[StoredMessage, ...]) -> tuple[StoredMessage, ...]:
    known = {message.id for message in before}
    return (*before, *(message for message in after if message.id not in known))


def mark_max_cycles(result: TurnEnd) -> TurnEnd:
    """A turn that was asked for an answer without tools; calls that it makes all the same are not made."""
    if isinstance(result, TurnOutcome):
        return replace(result, status="max_cycles", stop_reason="max_iterations", pending=())
    return replace(result, ok=True, status="max_cycles", pending=())
