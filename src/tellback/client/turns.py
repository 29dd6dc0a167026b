"""Turns that a server runs. Tools run here, unless they are the server's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Unpack

from tellback.chat import Model
from tellback.client.ids import require_server_id
from tellback.client.legs import TurnLoop, TurnRunner
from tellback.client.transport import build_path
from tellback.client.values import encode_arguments, encode_content
from tellback.conversations.turn_requests import TurnArguments
from tellback.errors import InvalidArgumentError
from tellback.types import ReplyDelta, ToolCall
from tellback.types.conversations import TurnOutcome
from tellback.wire.messages import ToolCallOut
from tellback.wire.turns import TurnOutcomeWire

CONVERSATIONS_PATH = "ai-conversations"


class RemoteTurns(TurnRunner):
    """Turns of one user's conversations."""

    async def run_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> TurnOutcome:
        """Let the server store the user's message, ask the model, and store everything as it comes.

        The arguments are those of `conversations.run_turn`; `model` is a name. `tools` and `tool_handler` are called
        here, whenever the model asks for them.
        """
        return await self._run(
            self._conversation_path(id, "run-turn"), await self._build_loop(id, model, user_text, more)
        )

    async def stream_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        """`run_turn` as an iterator over deltas, whose last item is the `TurnOutcome`. Closing it cancels the turn."""
        loop = await self._build_loop(id, model, user_text, more)
        async with aclosing(self._run_streamed(self._conversation_path(id, "run-turn"), loop)) as items:
            async for item in items:
                yield item

    async def pending(self, id: str) -> tuple[ToolCall, ...]:
        """The tool calls that wait for a person's decision, which `run_turn(id, approvals={call_id: True})` takes."""
        found = await self._transport.call("GET", self._conversation_path(id, "pending"), user=self._user)
        return tuple(ToolCallOut.model_validate(each).value() for each in found["items"])

    async def _build_loop(
        self, id: str, model: str | Model | None, user_text: str | None, more: TurnArguments
    ) -> TurnLoop[TurnOutcome]:
        loop = _conversation_turn_loop(model, user_text, more)
        if more.get("approvals") is not None:
            await loop.resume(await self.pending(id))
        return loop

    def _conversation_path(self, id: str, *more: str) -> str:
        return build_path(CONVERSATIONS_PATH, require_server_id("conversation", id), *more)


def _conversation_turn_loop(
    model: str | Model | None, user_text: str | None, more: TurnArguments
) -> TurnLoop[TurnOutcome]:
    unknown = more.keys() - TurnArguments.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"run_turn takes no {', '.join(sorted(unknown))}.")
    content = more.get("content")
    return TurnLoop(
        TurnOutcomeWire,
        model,
        more,
        common_fields=encode_arguments(
            provider=more.get("provider"),
            tail_limit=more.get("tail_limit"),
            memory_space_id=more.get("memory_space_id"),
        ),
        first_fields=encode_arguments(
            user_text=user_text, content=None if content is None else encode_content(content)
        ),
    )
