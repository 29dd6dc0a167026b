"""`TellbackClient`, a client for a Tellback server, and the handle of a user."""

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
        raise InvalidArgumentError("skills cannot be sent to a server: configure them for an agent on the server.")
    names = ("system", "session_id", "conversation_id", "memory_wait")
    common_fields = encode_arguments(namespace=namespace, **{name: more.get(name) for name in names})
    # Null is sent explicitly: a null `space` disables memory, a null `closeAfter` never closes.
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
    """The handle of one user on a server, like `tb.user(...)`.

    `user_id` may be None if the credential belongs to a single user. The handle then accesses that user's data.

    In this example, the server runs in the same process. For a remote server, leave `http` out:

    >>> import asyncio
    >>> from tellback import Tellback
    >>> from tellback.server import ServerSettings, create_app
    >>> from tellback.testing import ScriptedModel, says
    >>> async def main():
    ...     async with Tellback(":memory:", model=ScriptedModel([says("Hello, Maya!")])) as tb:
    ...         app = create_app(tb, ServerSettings(open=True), opens=False)
    ...         http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    ...         async with http, TellbackClient("http://127.0.0.1:8765", http=http) as client:
    ...             maya = client.user("maya")
    ...             reply = await maya.chat("I keep bees.")
    ...             messages = await maya.conversations.messages(reply.conversation_id)
    ...             print([message.text for message in messages])
    >>> asyncio.run(main())
    ['I keep bees.', 'Hello, Maya!']
    """

    @property
    def user_id(self) -> str | None:
        """The user's id, if it was passed."""
        return self._user

    @property
    def conversations(self) -> RemoteConversations:
        """The user's conversations."""
        return RemoteConversations(self._transport, self._user)

    @property
    def memory(self) -> RemoteMemory:
        """The user's memory."""
        return RemoteMemory(self._transport, self._user)

    @property
    def working_context(self) -> RemoteWorkingContextBuilder:
        """Builds the context for a model's answer."""
        return RemoteWorkingContextBuilder(self._transport, self._user)

    @property
    def agents(self) -> RemoteAgents:
        """The agents of the server, for this user."""
        return RemoteAgents(self._transport, self._user)

    @property
    def events(self) -> RemoteEvents:
        """The change feed of this user."""
        return RemoteEvents(self._transport, self._user)

    @property
    def admin(self) -> RemoteAdmin:
        """Export, erasure and usage of the user's data."""
        return RemoteAdmin(self._transport, self._user)

    async def chat(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> TurnResult:
        """Send a message and get an answer by a model that uses the user's memories: `reply.text`, `reply.atoms_used`.

        The arguments are those of `tb.user(...).chat`; `tools` run in this process.
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
        """Run `chat` and yield deltas, then the `TurnResult`. Closing the iterator cancels the turn."""
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
                raise InvalidArgumentError("The chat has no open conversation: pass conversation_id.")
            id = found.id
        assert loop.body is not None
        loop.body["conversationId"] = id
        await loop.resume(await conversations.pending(id))
        return loop


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay. `skipped` is the number of conversations without a matching binding."""

    conversations: int
    jobs: int
    skipped: int


class TellbackClient(RemoteHandle, AppOperations):
    """A client for a server. `client.user("maya")` has the methods, values and errors of `tb.user("maya")`.

    `api_key` is an API key or a JWT; if it belongs to a single user, call `client.user()` without an id. A request that
    is safe to repeat is retried up to `retries` times, if no response arrives or its status is 429 or 503. `timeout` is
    in seconds. `http` is a custom `httpx2.AsyncClient`.

    Use it with `async with`, or with `with` in synchronous code, where every method blocks.

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
        """Return the handle of a user of the credential's tenant and app."""
        return RemoteUser(
            self._transport, None if user_id is None else validation.validate_scope_id("user_id", user_id)
        )

    @property
    def events(self) -> RemoteEvents:
        """The changes of all users in the credential's tenant and app. Requires the role `admin`."""
        return RemoteEvents(self._transport, None, everyone=True)

    @property
    def jobs(self) -> RemoteJobs:
        """The jobs of all users in the credential's tenant and app. Requires the role `admin`."""
        return RemoteJobs(self._transport, None)

    @property
    def bindings(self) -> RemoteBindings:
        """The bindings of all users in the credential's tenant and app. Requires the role `admin`."""
        return RemoteBindings(self._transport, None)

    @property
    def keys(self) -> RemoteKeys:
        """The API keys of the credential's tenant and app. Requires the role `admin`."""
        return RemoteKeys(self._transport, None)

    async def close_stale(self, older_than: timedelta | float) -> list[str]:
        """Close all users' open conversations that have no message newer than `older_than`, and return their ids."""
        body = encode_arguments(older_than=encode_duration("older_than", older_than))
        return [id async for page in self._post_pages("close_everyones_stale", body) for id in page["conversationIds"]]

    async def replay(self, namespace: str | None = None, extraction_version: str | None = None) -> ReplayResult:
        """Queue all users' conversations of a namespace (default: all) for extraction, oldest first.

        Returns the counts without waiting for the jobs: see `jobs.list`.
        """
        body = encode_arguments(namespace=namespace, extraction_version=extraction_version)
        counts = Counter[str]()
        async for page in self._post_pages("replay_conversations", body):
            counts.update({field.name: page[field.name] for field in fields(ReplayResult)})
        return ReplayResult(**counts)

    async def _post_pages(self, operation: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Repeat a request with the cursor of the previous response until there is none."""
        cursor: str | None = None
        while True:
            page = await self._post(self._path(operation), {**body, **encode_arguments(cursor=cursor)})
            yield page
            cursor = page["nextCursor"]
            if cursor is None:
                return

    async def open(self) -> Self:
        """Return the client. Connections are opened when needed."""
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
