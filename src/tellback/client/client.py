"""`TellbackClient`: a Tellback server over HTTP, and the handle of one of its users."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Self, Unpack

import httpx2

from tellback import validation
from tellback.chat import Model
from tellback.client.admin import RemoteAdmin, RemoteBindings, RemoteEvents, RemoteJobs, RemoteKeys
from tellback.client.agents import RemoteAgents
from tellback.client.conversations import RemoteConversations
from tellback.client.memory import RemoteMemory, RemoteWorkingContextBuilder
from tellback.client.transport import RemoteHandle, Transport
from tellback.client.turn_loop import TurnLoop, TurnRunner, reject_unknown_arguments
from tellback.errors import InvalidArgumentError
from tellback.sync import SyncTellbackClient
from tellback.turns.attachments import parse_attachments
from tellback.turns.chat import ChatArguments
from tellback.types import ReplyDelta
from tellback.types.conversations import TurnResult
from tellback.wire.arguments import encode_arguments, encode_duration
from tellback.wire.operations import AppOperations
from tellback.wire.turns import TurnResultWire


def _chat_turn_loop(
    text: str | None, namespace: str, space: str | None, model: str | Model | None, more: ChatArguments
) -> TurnLoop:
    reject_unknown_arguments("chat", more, ChatArguments)
    if more.get("skills") is not None:
        raise InvalidArgumentError("skills cannot be sent to a server: give them to an agent that it serves.")
    names = ("system", "session_id", "conversation_id", "memory_wait")
    common_fields = encode_arguments(namespace=namespace, **{name: more.get(name) for name in names})
    # Null is not the same as leaving them out: without a space nothing is remembered, and `closeAfter` never closes.
    common_fields["space"] = space
    if "close_after" in more:
        common_fields["closeAfter"] = encode_duration("close_after", more["close_after"])
    first_fields: dict[str, Any] = encode_arguments(text=text)
    if more.get("attachments") is not None:
        first_fields["attachments"] = [_encode_attachment(each) for each in parse_attachments(more["attachments"])]
    return TurnLoop(
        TurnResultWire, model, more, common_fields=common_fields, first_fields=first_fields, names_conversation=True
    )


def _encode_attachment(attachment: Any) -> dict[str, Any]:
    data = None if attachment.data is None else base64.b64encode(attachment.data).decode("ascii")
    names = ("name", "mime", "text", "url", "size")
    return encode_arguments(**{name: getattr(attachment, name) for name in names}, data=data)


class RemoteUser(TurnRunner):
    """One user's handle, as `tb.user(...)` gives it, of what a server keeps.

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
    def working_context(self) -> RemoteWorkingContextBuilder:
        """What a model should know before it answers."""
        return RemoteWorkingContextBuilder(self._transport, self._user)

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

    async def chat(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> TurnResult:
        """Say something, and be answered by a model that remembers: `reply.text`, `reply.atoms_used`.

        The arguments are those of `tb.user(...).chat`; `tools` are called here.
        """
        return await self._run(self._path("chat"), await self._build_loop(text, namespace, space, model, more))

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
        async with aclosing(self._run_streamed(self._path("chat"), loop)) as items:
            async for item in items:
                yield item

    async def _build_loop(
        self, text: str | None, namespace: str, space: str | None, model: str | Model | None, more: ChatArguments
    ) -> TurnLoop:
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


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay queued. `skipped` counts conversations that no binding matches."""

    conversations: int
    jobs: int
    skipped: int


class TellbackClient(RemoteHandle, AppOperations):
    """A server over HTTP. `client.user("maya")` has what `tb.user("maya")` has: same methods, values and errors.

    `api_key` is an API key or a JWT; one that is of a single user needs no name: `client.user()`. What can be sent
    again without harm is, up to `retries` times, when there was no answer. `timeout` is in seconds. `http` is an
    `httpx2.AsyncClient` of your own.

    Use it with `async with`, or with a plain `with` from synchronous code: every method then waits by itself.

    >>> client = TellbackClient("https://memory.example.com", api_key="tb_...")
    >>> client.user("maya").user_id
    'maya'
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float = 120.0,
        retries: int = 2,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        super().__init__(Transport(url, api_key, seconds=timeout, retries=retries, http=http), None)

    def user(self, user_id: str | None = None) -> RemoteUser:
        """The handle of a user of the credential's tenant and app."""
        return RemoteUser(
            self._transport, None if user_id is None else validation.validate_scope_id("user_id", user_id)
        )

    @property
    def events(self) -> RemoteEvents:
        """The feed of everyone's changes in the credential's tenant and app: for admins."""
        return RemoteEvents(self._transport, None, everyone=True)

    @property
    def jobs(self) -> RemoteJobs:
        """Everyone's jobs in the credential's tenant and app: for admins."""
        return RemoteJobs(self._transport, None)

    @property
    def bindings(self) -> RemoteBindings:
        """Everyone's bindings in the credential's tenant and app: for admins."""
        return RemoteBindings(self._transport, None)

    @property
    def keys(self) -> RemoteKeys:
        """The API keys of the credential's tenant and app: for admins."""
        return RemoteKeys(self._transport, None)

    async def close_stale(self, older_than: timedelta | float) -> list[str]:
        """Close every user's open conversations in which nothing happened for that long; gives their ids."""
        body = encode_arguments(older_than=encode_duration("older_than", older_than))
        return [id async for page in self._post_pages("close_everyones_stale", body) for id in page["conversationIds"]]

    async def replay(self, namespace: str | None = None, extraction_version: str | None = None) -> ReplayResult:
        """Queue everyone's conversations of a namespace to be extracted again, the oldest first; gives how many.

        It does not wait until that is done: `jobs.list` tells.
        """
        body = encode_arguments(namespace=namespace, extraction_version=extraction_version)
        counts = Counter[str]()
        async for page in self._post_pages("replay_conversations", body):
            counts.update({field.name: page[field.name] for field in fields(ReplayResult)})
        return ReplayResult(**counts)

    async def _post_pages(self, operation: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Send a request again and again, with the cursor of the answer before, until all is done."""
        cursor: str | None = None
        while True:
            page = await self._post(self._path(operation), {**body, **encode_arguments(cursor=cursor)})
            yield page
            cursor = page["nextCursor"]
            if cursor is None:
                return

    async def open(self) -> Self:
        """Nothing to do: connections are made when they are needed."""
        return self

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __enter__(self) -> SyncTellbackClient:
        self._sync = SyncTellbackClient(self)
        return self._sync

    def __exit__(self, *exception: object) -> None:
        self._sync.close()
