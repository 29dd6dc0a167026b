"""Turns that a server runs. Tools run here, unless they are the server's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Unpack

from recollect.chat import ChatOptions, Model
from recollect.client.handle import RemoteHandle
from recollect.client.ids import made_id
from recollect.client.legs import DEFAULT_CYCLES, Legs, cycles_of, joined_calls
from recollect.client.tools import LocalTools
from recollect.client.transport import path_of
from recollect.client.values import content_json, given, metadata_json, named
from recollect.conversations.turn_requests import TurnArguments
from recollect.errors import InvalidArgumentError
from recollect.types import ReplyDelta, ToolCall
from recollect.types.conversations import TurnOutcome
from recollect.wire.messages import ToolCallOut
from recollect.wire.turns import TurnOutcomeWire, delta_value

HERE = "ai-conversations"
LOCAL = ("sender", "session", "extras")
"""What tools find in `recollect.request` in process: there is nothing to bind on a server."""


class RemoteTurns(RemoteHandle):
    """Turns of one user's conversations."""

    async def run_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> TurnOutcome:
        """Let the server store the user's message, ask the model, and store everything as it comes.

        The arguments are those of `conversations.run_turn`; `model` is a name. `tools` and `tool_handler` are called
        here, whenever the model asks for them.
        """
        legs = await self._legs(id, model, user_text, more)
        path = self._at(id, "run-turn")
        outcome: TurnOutcome | None = None
        while (body := legs.body) is not None:
            told = await self._post(path, body, key=legs.key, native=legs.is_first)
            outcome = await legs.go_on(joined(outcome, TurnOutcomeWire.model_validate(told).value()))
        assert outcome is not None
        return outcome

    async def stream_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        """`run_turn` as an iterator over deltas, whose last item is the `TurnOutcome`. Closing it cancels the turn."""
        legs = await self._legs(id, model, user_text, more)
        path = self._at(id, "run-turn")
        outcome: TurnOutcome | None = None
        while (body := legs.body) is not None:
            ended: TurnOutcome | None = None
            async with aclosing(self._streamed(path, body, legs.key)) as found:
                async for event, data in found:
                    if event == "result":
                        ended = TurnOutcomeWire.model_validate(data).value()
                    elif (delta := delta_value(event, data)) is not None:
                        yield delta
            assert ended is not None
            outcome = await legs.go_on(joined(outcome, ended))
        assert outcome is not None
        yield outcome

    async def pending(self, id: str) -> tuple[ToolCall, ...]:
        """The tool calls that wait for a person's decision, which `run_turn(id, approvals={call_id: True})` takes."""
        found = await self._transport.call("GET", self._at(id, "pending"), user=self._user)
        return tuple(ToolCallOut.model_validate(each).value() for each in found["items"])

    async def _legs(self, id: str, model: str | Model | None, user_text: str | None, more: TurnArguments) -> Legs:
        legs = _legs_of(model, user_text, more)
        if more.get("approvals") is not None:
            await legs.resume(await self.pending(id))
        return legs

    def _at(self, id: str, *more: str) -> str:
        return path_of(HERE, made_id("conversation", id), *more)


def _legs_of(model: str | Model | None, user_text: str | None, more: TurnArguments) -> Legs:
    unknown = more.keys() - TurnArguments.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"run_turn takes no {', '.join(sorted(unknown))}.")
    refuse_local(more)
    local = LocalTools(more.get("tools"), more.get("tool_handler"), more.get("approvals"))
    cycles = cycles_of(more.get("max_cycles"), more.get("options"))
    rest = given(
        model=model_name(model),
        provider=more.get("provider"),
        tools=local.described(),
        options=options_json(more.get("options")),
        max_cycles=None if cycles == DEFAULT_CYCLES else cycles,
        tail_limit=more.get("tail_limit"),
        wait=more.get("wait"),
        trace_id=more.get("trace_id"),
        memory_space_id=more.get("memory_space_id"),
        recall=named(more.get("recall")),
    )
    first = given(user_text=user_text, metadata=metadata_json(more.get("metadata")))
    if more.get("content") is not None:
        first["content"] = content_json(more["content"])  # type: ignore[arg-type]
    return Legs(local, rest, first, key=more.get("idempotency_key"), cycles=cycles)


def joined(before: TurnOutcome | None, after: TurnOutcome) -> TurnOutcome:
    """One turn of its parts."""
    if before is None:
        return after
    known = {message.id for message in before.appended_messages}
    new = tuple(message for message in after.appended_messages if message.id not in known)
    return replace(
        after,
        appended_messages=(*before.appended_messages, *new),
        aggregate_usage=before.aggregate_usage + after.aggregate_usage,
        total_latency_ms=before.total_latency_ms + after.total_latency_ms,
        **joined_calls(before, after),
    )


def model_name(model: str | Model | None) -> str | None:
    """The name of a model that the server has."""
    if isinstance(model, str | None):
        return model
    raise InvalidArgumentError("a server takes the name of a model: the object would have to run there.")


def options_json(options: ChatOptions | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The options that can be sent."""
    if options is None:
        return None
    if isinstance(options, ChatOptions):
        default = ChatOptions()
        set_ = {name: getattr(options, name) for name in ChatOptions.__dataclass_fields__}
        options = {name: value for name, value in set_.items() if value != getattr(default, name)}
    found: dict[str, Any] = named(dict(options))
    if "system" in found:
        found["systemPrompt"] = found.pop("system")
    found.pop("maxIterations", None)  # it is sent as maxCycles
    if found.get("onMaxIterations") == "answer":
        del found["onMaxIterations"]  # that is what turns do
    return found or None


def refuse_local(more: Mapping[str, Any]) -> None:
    """Refuse what only means something in the process where the turn runs."""
    named_here = [name for name in LOCAL if more.get(name) is not None]
    if named_here:
        raise InvalidArgumentError(f"{', '.join(named_here)} cannot be sent to a server: tools of the client run here.")
