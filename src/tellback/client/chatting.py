"""`user.chat` of a server."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Unpack

from tellback.chat import Model
from tellback.client.conversations import RemoteConversations
from tellback.client.legs import Legs, RunsTurns
from tellback.client.transport import path_of
from tellback.client.values import given, jsonable, seconds_json
from tellback.errors import InvalidArgumentError
from tellback.turn.attachments import attachments_of
from tellback.turn.chatting import ChatArguments
from tellback.turn.values import TurnResult
from tellback.types import ReplyDelta
from tellback.wire.turns import TurnResultWire

PATH = path_of("ai-conversations", "chat")


class RemoteChat(RunsTurns):
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
        return await self._run(PATH, await self._legs(text, namespace, space, model, more))

    async def chat_stream(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """`chat` as an iterator over deltas, whose last item is the `TurnResult`. Closing it cancels the turn."""
        legs = await self._legs(text, namespace, space, model, more)
        async with aclosing(self._run_streamed(PATH, legs)) as items:
            async for item in items:
                yield item

    async def _legs(
        self, text: str | None, namespace: str, space: str | None, model: str | Model | None, more: ChatArguments
    ) -> Legs[TurnResult]:
        legs = _legs_of(text, namespace, space, model, more)
        if more.get("approvals") is None:
            return legs
        talks, id = RemoteConversations(self._transport, self._user), more.get("conversation_id")
        if id is None:
            found = await talks.find(namespace, more.get("session_id"))
            if found is None:
                raise InvalidArgumentError("nothing waits for a decision in that chat: pass its conversation_id.")
            id = found.id
        assert legs.body is not None
        legs.body["conversationId"] = id
        await legs.resume(await talks.pending(id))
        return legs


def _legs_of(
    text: str | None, namespace: str, space: str | None, model: str | Model | None, more: ChatArguments
) -> Legs[TurnResult]:
    unknown = more.keys() - ChatArguments.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"chat takes no {', '.join(sorted(unknown))}.")
    if more.get("skills") is not None:
        raise InvalidArgumentError("skills cannot be sent to a server: give them to an agent that it serves.")
    rest = given(
        namespace=namespace,
        system=more.get("system"),
        session_id=more.get("session_id"),
        conversation_id=more.get("conversation_id"),
        memory_wait=more.get("memory_wait"),
    )
    rest["space"] = space  # null remembers nothing, and below it never closes: that is not what leaving them out is
    if "close_after" in more:
        rest["closeAfter"] = seconds_json("close_after", more["close_after"])
    first: dict[str, Any] = given(text=text)
    if more.get("attachments") is not None:
        first["attachments"] = [_attachment(each) for each in attachments_of(more["attachments"])]
    return Legs(TurnResultWire, model, more, rest=rest, first=first)


def _attachment(attachment: Any) -> dict[str, Any]:
    data = attachment.data
    found = given(
        name=attachment.name, mime=attachment.mime, text=attachment.text, url=attachment.url, size=attachment.size
    )
    if data is not None:
        found["data"] = base64.b64encode(data).decode("ascii")
    return {name: jsonable(value) for name, value in found.items()}
