"""`user.conversations` on a server: the log, and turns."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Unpack

from tellback.chat import Model
from tellback.client.turn_loop import TurnLoop, TurnRunner, reject_unknown_arguments
from tellback.turns.request import TurnArguments
from tellback.types import Message, ReplyDelta
from tellback.types.conversations import StoredMessage, TurnResult
from tellback.wire.arguments import encode_arguments, encode_content
from tellback.wire.operations import ConversationOperations
from tellback.wire.turns import TurnOutcomeWire


class RemoteConversations(TurnRunner, ConversationOperations):
    """The conversations of one user on a server, with the methods of `user.conversations`."""

    async def append_messages(
        self, id: str, messages: Sequence[Message | Mapping[str, Any]]
    ) -> builtins.list[StoredMessage]:
        """Append many messages in one transaction: all are stored, or none."""
        return await super().append_messages(id, messages) if messages else []

    async def raw_turns(
        self,
        id: str,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        include_hidden: bool = False,
    ) -> builtins.list[StoredMessage]:
        """List messages like `messages`, including internal ones, as a model sees them."""
        return await self.messages(id, limit, True, before, after, include_hidden)

    async def run_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> TurnResult:
        """Run a turn on the server: store the user's message, call the model, and store its messages.

        The arguments are those of `conversations.run_turn`; `model` is a name. `tools` and `tool_handler` run in this
        process.
        """
        return await self._run(self._path("run_turn", id=id), await self._build_loop(id, model, user_text, more))

    async def stream_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """Run `run_turn` and yield deltas, then the `TurnResult`. Closing the iterator cancels the turn."""
        loop = await self._build_loop(id, model, user_text, more)
        async with aclosing(self._run_streamed(self._path("run_turn", id=id), loop)) as items:
            async for item in items:
                yield item

    async def _build_loop(
        self, id: str, model: str | Model | None, user_text: str | None, more: TurnArguments
    ) -> TurnLoop:
        reject_unknown_arguments("run_turn", more, TurnArguments)
        content = more.get("content")
        names = ("provider", "tail_limit", "memory_space_id")
        loop = TurnLoop(
            TurnOutcomeWire,
            model,
            more,
            common_fields=encode_arguments(**{name: more.get(name) for name in names}),
            first_fields=encode_arguments(
                user_text=user_text, content=None if content is None else encode_content(content)
            ),
        )
        if more.get("approvals") is not None:
            await loop.resume(await self.pending(id))
        return loop
