"""`RemoteUser`: one user's handle on a server, and `user.chat`."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Unpack

from tellback.chat import Model
from tellback.client.admin import RemoteAdmin, RemoteEvents
from tellback.client.agents import RemoteAgents
from tellback.client.conversations import RemoteConversations
from tellback.client.handle import encode_arguments, encode_duration, encode_value
from tellback.client.memory import RemoteMemory, RemoteWorkingContexts
from tellback.client.transport import build_path
from tellback.client.turn_loop import TurnLoop, TurnRunner
from tellback.errors import InvalidArgumentError
from tellback.turns.attachments import parse_attachments
from tellback.turns.chat import ChatArguments
from tellback.turns.types import TurnResult
from tellback.types import ReplyDelta
from tellback.wire.turns import TurnResultWire

CHAT_PATH = build_path("ai-conversations", "chat")


class RemoteChat(TurnRunner):
    """What a user says, and what a server answers."""

    async def chat(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> TurnResult:
        """Say something, and be answered by a model that remembers: `reply.text`, `reply.atoms_used`.

        The arguments are those of `rc.user(...).chat`; `tools` are called here.
        """
        return await self._run(CHAT_PATH, await self._build_loop(text, namespace, space, model, more))

    async def chat_stream(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """`chat` as an iterator over deltas, whose last item is the `TurnResult`. Closing it cancels the turn."""
        loop = await self._build_loop(text, namespace, space, model, more)
        async with aclosing(self._run_streamed(CHAT_PATH, loop)) as items:
            async for item in items:
                yield item

    async def _build_loop(
        self, text: str | None, namespace: str, space: str | None, model: str | Model | None, more: ChatArguments
    ) -> TurnLoop[TurnResult]:
        loop = _chat_turn_loop(text, namespace, space, model, more)
        if more.get("approvals") is None:
            return loop
        conversations, id = RemoteConversations(self._transport, self._user), more.get("conversation_id")
        if id is None:
            found = await conversations.find(namespace, more.get("session_id"))
            if found is None:
                raise InvalidArgumentError("nothing waits for a decision in that chat: pass its conversation_id.")
            id = found.id
        assert loop.body is not None
        loop.body["conversationId"] = id
        await loop.resume(await conversations.pending(id))
        return loop


def _chat_turn_loop(
    text: str | None, namespace: str, space: str | None, model: str | Model | None, more: ChatArguments
) -> TurnLoop[TurnResult]:
    unknown = more.keys() - ChatArguments.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"chat takes no {', '.join(sorted(unknown))}.")
    if more.get("skills") is not None:
        raise InvalidArgumentError("skills cannot be sent to a server: give them to an agent that it serves.")
    common_fields = encode_arguments(
        namespace=namespace,
        system=more.get("system"),
        session_id=more.get("session_id"),
        conversation_id=more.get("conversation_id"),
        memory_wait=more.get("memory_wait"),
    )
    common_fields["space"] = (
        space  # null remembers nothing, and below it never closes: that is not what leaving them out is
    )
    if "close_after" in more:
        common_fields["closeAfter"] = encode_duration("close_after", more["close_after"])
    first_fields: dict[str, Any] = encode_arguments(text=text)
    if more.get("attachments") is not None:
        first_fields["attachments"] = [_encode_attachment(each) for each in parse_attachments(more["attachments"])]
    return TurnLoop(TurnResultWire, model, more, common_fields=common_fields, first_fields=first_fields)


def _encode_attachment(attachment: Any) -> dict[str, Any]:
    data = attachment.data
    encoded = encode_arguments(
        name=attachment.name, mime=attachment.mime, text=attachment.text, url=attachment.url, size=attachment.size
    )
    if data is not None:
        encoded["data"] = base64.b64encode(data).decode("ascii")
    return {name: encode_value(value) for name, value in encoded.items()}


class RemoteUser(RemoteChat):
    """One user's handle, as `rc.user(...)` gives it, of what a server keeps.

    `user_id` is None for a credential that is of one user: then it is that one.
    """

    @property
    def user_id(self) -> str | None:
        """The user's id, if the client was told."""
        return self._user

    @property
    def conversations(self) -> RemoteConversations:
        """What was said."""
        return RemoteConversations(self._transport, self._user)

    @property
    def memory(self) -> RemoteMemory:
        """What is remembered of the user."""
        return RemoteMemory(self._transport, self._user)

    @property
    def working_context(self) -> RemoteWorkingContexts:
        """What a model should know before it answers."""
        return RemoteWorkingContexts(self._transport, self._user)

    @property
    def agents(self) -> RemoteAgents:
        """The agents that the server has, for this user."""
        return RemoteAgents(self._transport, self._user)

    @property
    def events(self) -> RemoteEvents:
        """The feed of this user's changes."""
        return RemoteEvents(self._transport, self._user)

    @property
    def admin(self) -> RemoteAdmin:
        """All that is kept of the user: to be exported, erased, or counted."""
        return RemoteAdmin(self._transport, self._user)
