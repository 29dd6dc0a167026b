"""`user.agents` on a server: agents from specs, agents with routes, and their sessions."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Unpack

from tellback.agent import Event
from tellback.agent.response import Response, StreamChunk, last_chunk
from tellback.agent.sessions.serialization import message_to_events
from tellback.agent.sessions.session import SessionState
from tellback.chat import Model
from tellback.client.transport import RemoteHandle, Transport, key_header, list_all
from tellback.client.turn_loop import encode_approvals, reject_local_arguments, reject_unknown_arguments
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.specs.model import AgentSpec
from tellback.turns.request import InvokeOptions
from tellback.types import ReplyDelta
from tellback.types.conversations import SESSION_STATUSES, MessageData, SessionData, SessionStatus, TurnResult
from tellback.wire.agents import AgentResponseWire, AgentWire, SessionMessageWire, SessionWire, session_etag
from tellback.wire.arguments import encode_arguments, encode_mapping, encode_metadata, encode_model
from tellback.wire.operations import SessionOperations
from tellback.wire.turns import TurnOutcomeWire, decode_delta


class RemoteSessions(RemoteHandle, SessionOperations):
    """The methods of `Persistence` for one user and agent. The agent's internal state stays on the server."""

    def __init__(self, transport: Transport, user: str | None, agent: str) -> None:
        super().__init__(transport, user, {"name": agent})

    async def create_session(
        self, id: str | None = None, *, initial_data: Mapping[str, Any] | None = None
    ) -> SessionData:
        """Create a session. Raises `SessionConflictError` if the id exists."""
        body = encode_arguments(id=id, initial_data=encode_metadata(initial_data))
        session: SessionData = SessionWire.decode(await self._post(self._path("create_session"), body))
        return session

    async def find_active_session(self) -> SessionData | None:
        """Return the newest active session, or None."""
        found = await self.get_user_sessions(limit=1, status="active")
        return found[0] if found else None

    async def get_user_sessions(
        self, limit: int | None = None, *, status: SessionStatus | None = None
    ) -> list[SessionData]:
        """List the user's sessions, newest first."""
        path, query = self._path("list_sessions"), encode_arguments(status=status)
        return await list_all(self._transport, path, SessionWire.decode, limit, user=self._user, query=query)

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session; return False if it does not exist."""
        try:
            await self._transport.call("DELETE", self._path("delete_session", id=session_id), user=self._user)
        except NotFoundError:
            return False
        return True

    async def get_session_messages(self, session_id: str, limit: int | None = None) -> list[MessageData]:
        """Return the last `limit` messages of a session, in order."""
        path = self._path("get_session_messages", id=session_id)
        return await list_all(
            self._transport, path, SessionMessageWire.decode, limit, user=self._user, query={}, is_backwards=True
        )

    async def load_session_history(self, session_id: str, limit: int = 200) -> list[Event]:
        """Return the events of the last `limit` messages of a session, as `respond` accepts them."""
        messages = await self.get_session_messages(session_id, limit)
        return [event for each in messages for event in message_to_events(each)]


class RemoteAgents(RemoteHandle):
    """The agents of a server, for one user."""

    async def list(self) -> builtins.list[AgentSpec]:
        """List the specs of all agents that have one; credentials of the role `user` get an empty list."""
        payload = await self._get(self._path("list_agents"))
        specs = map(AgentWire.decode, payload["items"])
        return [spec for spec in specs if spec is not None]

    async def get(self, name: str) -> AgentSpec | None:
        """Return the spec of that name, or None."""
        try:
            payload = await self._get(self._path("get_agent", name=name))
        except NotFoundError:
            return None
        spec: AgentSpec | None = AgentWire.decode(payload)
        return spec

    async def invoke(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        conversation_id: str | None = None,
        model: str | Model | None = None,
        **turn: Unpack[InvokeOptions],
    ) -> TurnResult:
        """Run one turn of an agent, with the arguments that its spec declares. Its tools run on the server."""
        body = _encode_invocation(arguments, conversation_id, model, turn)
        headers = key_header(turn.get("idempotency_key"))
        payload = await self._post(self._path("invoke_agent", name=name), body, headers, has_own_key=True)
        return TurnOutcomeWire.model_validate(payload).value()

    async def invoke_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        conversation_id: str | None = None,
        model: str | Model | None = None,
        **turn: Unpack[InvokeOptions],
    ) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """Run `invoke` and yield deltas, then the `TurnResult`. Closing the iterator cancels the turn."""
        body = _encode_invocation(arguments, conversation_id, model, turn)
        path, headers = self._path("invoke_agent", name=name), key_header(turn.get("idempotency_key"))
        async with aclosing(self._stream_turn(path, body, headers)) as events:
            async for event, data in events:
                if event == "result":
                    yield TurnOutcomeWire.model_validate(data).value()
                elif (delta := decode_delta(event, data)) is not None:
                    yield delta

    async def respond(
        self,
        name: str,
        history: str | Sequence[Mapping[str, Any]] | None = None,
        session: SessionState | str | None = None,
        *,
        approvals: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        trace_id: str | None = None,
        wait: float | None = None,
    ) -> Response:
        """Run a turn of an agent with routes, like `agent.respond`. The server stores the session.

        A `session` value is sent with its version: if the session has changed since, `PreconditionFailedError` is
        raised. With a session id, the turn waits until earlier turns of the session in the same server process have
        ended.
        """
        body = _encode_respond_body(history, session, approvals, metadata, trace_id, wait)
        headers = _respond_headers(session, idempotency_key)
        payload = await self._post(self._path("respond", name=name), body, headers, has_own_key=True)
        return AgentResponseWire.model_validate(payload).value()

    async def respond_stream(
        self,
        name: str,
        history: str | Sequence[Mapping[str, Any]] | None = None,
        session: SessionState | str | None = None,
        *,
        approvals: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        trace_id: str | None = None,
        wait: float | None = None,
    ) -> AsyncGenerator[StreamChunk, None]:
        """Run `respond` and yield chunks; the last one is `done`. Closing the iterator cancels the turn."""
        body = _encode_respond_body(history, session, approvals, metadata, trace_id, wait)
        accumulated = ""
        path, headers = self._path("respond", name=name), _respond_headers(session, idempotency_key)
        async with aclosing(self._stream_turn(path, body, headers)) as events:
            async for event, data in events:
                if event == "delta":
                    accumulated += data["delta"]
                    yield StreamChunk(data["delta"], accumulated)
                elif event == "result":
                    yield last_chunk(accumulated, AgentResponseWire.model_validate(data).value())

    def sessions(self, name: str) -> RemoteSessions:
        """Return the handle of the user's sessions with an agent."""
        return RemoteSessions(self._transport, self._user, name)


def _encode_invocation(
    arguments: Mapping[str, Any] | None, conversation_id: str | None, model: str | Model | None, turn: InvokeOptions
) -> dict[str, Any]:
    reject_unknown_arguments("invoke", turn, InvokeOptions)
    reject_local_arguments(turn)
    unsupported = [name for name in ("provider", "tail_limit") if turn.get(name) is not None]
    if unsupported:
        raise InvalidArgumentError(f"{', '.join(unsupported)} cannot be sent to a server.")
    approvals = turn.get("approvals")
    return encode_arguments(
        arguments=arguments,
        conversation_id=conversation_id,
        model=encode_model(model),
        approvals=None if approvals is None else encode_approvals(approvals),
        metadata=encode_metadata(turn.get("metadata")),
        recall=encode_mapping(turn.get("recall")),
        **{name: turn.get(name) for name in ("trace_id", "wait", "memory_space_id", "max_cycles")},
    )


def _encode_respond_body(
    history: str | Sequence[Mapping[str, Any]] | None,
    session: SessionState | str | None,
    approvals: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
    trace_id: str | None,
    wait: float | None,
) -> dict[str, Any]:
    return encode_arguments(
        message=history if isinstance(history, str) else None,
        history=None if isinstance(history, str) else history,
        session_id=session.id if isinstance(session, SessionState) else session,
        approvals=None if approvals is None else encode_approvals(approvals),
        metadata=encode_metadata(metadata),
        trace_id=trace_id,
        wait=wait,
    )


def _respond_headers(session: SessionState | str | None, key: str | None) -> dict[str, str]:
    headers = key_header(key)
    if isinstance(session, SessionState) and session.version:
        headers["If-Match"] = ", ".join(session_etag(session.version, status) for status in SESSION_STATUSES)
    return headers
