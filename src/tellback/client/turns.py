"""Turns that a server runs. Tools run here, unless they are the server's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Unpack

from tellback.chat import Model
from tellback.client.ids import made_id
from tellback.client.legs import Legs, RunsTurns
from tellback.client.transport import path_of
from tellback.client.values import content_json, given
from tellback.conversations.turn_requests import TurnArguments
from tellback.errors import InvalidArgumentError
from tellback.types import ReplyDelta, ToolCall
from tellback.types.conversations import TurnOutcome
from tellback.wire.messages import ToolCallOut
from tellback.wire.turns import TurnOutcomeWire

HERE = "ai-conversations"


class RemoteTurns(RunsTurns):
    """Turns of one user's conversations."""

    async def run_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> TurnOutcome:
        """Let the server store the user's message, ask the model, and store everything as it comes.

        The arguments are those of `conversations.run_turn`; `model` is a name. `tools` and `tool_handler` are called
        here, whenever the model asks for them.
        """
        return await self._run(self._at(id, "run-turn"), await self._legs(id, model, user_text, more))

    async def stream_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        """`run_turn` as an iterator over deltas, whose last item is the `TurnOutcome`. Closing it cancels the turn."""
        legs = await self._legs(id, model, user_text, more)
        async with aclosing(self._run_streamed(self._at(id, "run-turn"), legs)) as items:
            async for item in items:
                yield item

    async def pending(self, id: str) -> tuple[ToolCall, ...]:
        """The tool calls that wait for a person's decision, which `run_turn(id, approvals={call_id: True})` takes."""
        found = await self._transport.call("GET", self._at(id, "pending"), user=self._user)
        return tuple(ToolCallOut.model_validate(each).value() for each in found["items"])

    async def _legs(
        self, id: str, model: str | Model | None, user_text: str | None, more: TurnArguments
    ) -> Legs[TurnOutcome]:
        legs = _legs_of(model, user_text, more)
        if more.get("approvals") is not None:
            await legs.resume(await self.pending(id))
        return legs

    def _at(self, id: str, *more: str) -> str:
        return path_of(HERE, made_id("conversation", id), *more)


def _legs_of(model: str | Model | None, user_text: str | None, more: TurnArguments) -> Legs[TurnOutcome]:
    unknown = more.keys() - TurnArguments.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"run_turn takes no {', '.join(sorted(unknown))}.")
    content = more.get("content")
    return Legs(
        TurnOutcomeWire,
        model,
        more,
        rest=given(
            provider=more.get("provider"),
            tail_limit=more.get("tail_limit"),
            memory_space_id=more.get("memory_space_id"),
        ),
        first=given(user_text=user_text, content=None if content is None else content_json(content)),
    )
