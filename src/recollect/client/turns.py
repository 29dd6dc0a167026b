"""Turns that a server runs. Tools run here, unless they are the server's own."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Unpack

from recollect.chat import ChatOptions, Model
from recollect.client.handle import RemoteHandle, header_text
from recollect.client.tools import LocalTools
from recollect.client.transport import path_of
from recollect.client.values import content_json, given, jsonable, named
from recollect.conversations import checks
from recollect.conversations.turn_requests import TurnArguments
from recollect.errors import InvalidArgumentError, RemoteError
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
        turn = _Turn(model, user_text, more)
        path = self._at(id, "run-turn")
        if turn.resumes:
            await turn.resume(await self.pending(id))
        outcome: TurnOutcome | None = None
        while (body := turn.body) is not None:
            told = await self._post(path, body, key=turn.key, native=True)
            outcome = joined(outcome, TurnOutcomeWire.model_validate(told).value())
            await turn.go_on(outcome.pending)
        assert outcome is not None
        return outcome

    async def stream_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        """`run_turn` as an iterator over deltas, whose last item is the `TurnOutcome`. Closing it cancels the turn."""
        turn = _Turn(model, user_text, more)
        path = self._at(id, "run-turn")
        if turn.resumes:
            await turn.resume(await self.pending(id))
        outcome: TurnOutcome | None = None
        while (body := turn.body) is not None:
            headers = None if turn.key is None else {"Idempotency-Key": header_text("idempotency_key", turn.key)}
            frames = self._transport.frames(
                "POST", path, user=self._user, body={**body, "stream": True}, headers=headers
            )
            ended: TurnOutcome | None = None
            async with aclosing(frames):
                async for frame in frames:
                    data = json.loads(frame.data)
                    if frame.event == "result":
                        ended = TurnOutcomeWire.model_validate(data).value()
                    elif (delta := delta_value(frame.event, data)) is not None:
                        yield delta
            if ended is None:
                raise RemoteError("The server's stream ended without the turn's result.")
            outcome = joined(outcome, ended)
            await turn.go_on(outcome.pending)
        assert outcome is not None
        yield outcome

    async def pending(self, id: str) -> tuple[ToolCall, ...]:
        """The tool calls that wait for a person's decision, which `run_turn(id, approvals={call_id: True})` takes."""
        found = await self._transport.call("GET", self._at(id, "pending"), user=self._user)
        return tuple(ToolCallOut.model_validate(each).value() for each in found["items"])

    def _at(self, id: str, *more: str) -> str:
        return path_of(HERE, made_id("conversation", id), *more)


class _Turn:
    """What is sent next: the message, then what tools gave, until nothing waits for them."""

    def __init__(self, model: str | Model | None, user_text: str | None, more: TurnArguments) -> None:
        unknown = more.keys() - TurnArguments.__annotations__.keys()
        if unknown:
            raise InvalidArgumentError(f"run_turn takes no {', '.join(sorted(unknown))}.")
        self.key = more.get("idempotency_key")
        self._local = LocalTools(more.get("tools"), more.get("tool_handler"), more.get("approvals"))
        refuse_local(more)
        self._rest = given(
            model=model_name(model),
            provider=more.get("provider"),
            tools=self._local.described(),
            options=options_json(more.get("options")),
            max_cycles=more.get("max_cycles"),
            tail_limit=more.get("tail_limit"),
            wait=more.get("wait"),
            trace_id=more.get("trace_id"),
            memory_space_id=more.get("memory_space_id"),
            recall=named(more.get("recall")),
        )
        first = given(user_text=user_text, metadata=more.get("metadata"))
        if more.get("content") is not None:
            first["content"] = content_json(more["content"])  # type: ignore[arg-type]
        self.resumes = more.get("approvals") is not None
        self.body: dict[str, Any] | None = {**self._rest, **first}

    async def resume(self, pending: tuple[ToolCall, ...]) -> None:
        """Begin with what was decided on calls that wait."""
        results, rest = await self._local.results(pending), self._local.undecidable()
        assert self.body is not None
        if results:
            self.body["toolResults"] = results
        if rest or not results:
            self.body["approvals"] = rest

    async def go_on(self, pending: tuple[ToolCall, ...]) -> None:
        """Run what waits for its tools, and make ready what came of it."""
        results = await self._local.results(pending)
        self.body = {**self._rest, "toolResults": results} if results else None
        self.key = None


def joined(before: TurnOutcome | None, after: TurnOutcome) -> TurnOutcome:
    """One turn of its parts."""
    if before is None:
        return after
    known = {message.id for message in before.appended_messages}
    done = {call.id: call for call in (*before.tool_invocations, *after.tool_invocations)}
    return replace(
        after,
        appended_messages=(
            *before.appended_messages,
            *(message for message in after.appended_messages if message.id not in known),
        ),
        aggregate_usage=before.aggregate_usage + after.aggregate_usage,
        tool_invocations=tuple(done.values()),
        total_latency_ms=before.total_latency_ms + after.total_latency_ms,
        model_calls=before.model_calls + after.model_calls - 1,  # the call that asked for the tools is in both
        context=after.context or before.context,
        problems=(*before.problems, *after.problems),
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
    return {name: jsonable(value) for name, value in found.items()}


def refuse_local(more: Mapping[str, Any]) -> None:
    """Refuse what only means something in the process where the turn runs."""
    named_here = [name for name in LOCAL if more.get(name) is not None]
    if named_here:
        raise InvalidArgumentError(f"{', '.join(named_here)} cannot be sent to a server: tools of the client run here.")
