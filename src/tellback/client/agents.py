"""`user.agents` of a server: agents by their descriptions, and agents with routes."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Unpack

from tellback.agent.response import Response, StreamChunk, last_chunk
from tellback.agent.session import SessionState
from tellback.chat import Model
from tellback.chat.approval import as_approvals
from tellback.client.handle import RemoteHandle, header_text
from tellback.client.options import model_name, refuse_local
from tellback.client.sessions import RemoteSessions
from tellback.client.transport import path_of
from tellback.client.values import given, metadata_json, named
from tellback.conversations import checks
from tellback.errors import InvalidArgumentError
from tellback.specs.handle import AgentTurn
from tellback.specs.model import AgentSpec
from tellback.types import ReplyDelta
from tellback.types.conversations import TurnOutcome
from tellback.types.sessions import SESSION_STATUSES
from tellback.wire.agents import AgentResponseWire, AgentWire
from tellback.wire.sessions import session_tag
from tellback.wire.turns import TurnOutcomeWire, delta_value

HERE = "ai-agents"


class RemoteAgents(RemoteHandle):
    """One user's way to the agents that a server has."""

    async def list(self) -> builtins.list[AgentSpec]:
        """The descriptions of all agents that have one; a credential of the role "user" is not shown any."""
        told = await self._transport.call("GET", path_of(HERE), user=self._user)
        specs = (AgentWire.model_validate(each).value() for each in told["items"])
        return [spec for spec in specs if spec is not None]

    async def get(self, name: str) -> AgentSpec | None:
        """The description of that name, or None."""
        found = await self._named(HERE, name)
        return None if found is None else AgentWire.model_validate(found).value()

    async def invoke(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        conversation_id: str | None = None,
        model: str | Model | None = None,
        **turn: Unpack[AgentTurn],
    ) -> TurnOutcome:
        """Run one turn of an agent, with the arguments its description asks for. Its tools are the server's."""
        body = _invocation(arguments, conversation_id, model, turn)
        told = await self._post(_at(name, "invoke"), body, key=turn.get("idempotency_key"), native=True)
        outcome: TurnOutcome = TurnOutcomeWire.model_validate(told).value()
        return outcome

    async def invoke_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        conversation_id: str | None = None,
        model: str | Model | None = None,
        **turn: Unpack[AgentTurn],
    ) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        """`invoke` as an iterator over deltas, whose last item is the `TurnOutcome`. Closing it cancels the turn."""
        body = _invocation(arguments, conversation_id, model, turn)
        async with aclosing(self._streamed(_at(name, "invoke"), body, turn.get("idempotency_key"))) as found:
            async for event, data in found:
                if event == "result":
                    yield TurnOutcomeWire.model_validate(data).value()
                elif (delta := delta_value(event, data)) is not None:
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
        """Let an agent with routes answer, as `agent.respond` does. The server keeps the session.

        A `session` that is a value is sent with its version: if it is not the newest any more, that raises
        `PreconditionFailedError`; by its id, turns wait for each other.
        """
        body = _said(history, session, approvals, metadata, trace_id, wait)
        headers = _headers(session, idempotency_key)
        path = _at(name, "respond")
        told = await self._transport.call("POST", path, user=self._user, body=body, headers=headers, is_native=True)
        return AgentResponseWire.model_validate(told).value()

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
        """`respond` as chunks: text as it comes, and one last that is `done`. Closing the iterator cancels the turn."""
        body = _said(history, session, approvals, metadata, trace_id, wait)
        accumulated = ""
        path, headers = _at(name, "respond"), _headers(session, idempotency_key)
        async with aclosing(self._streamed(path, body, None, headers)) as found:
            async for event, data in found:
                if event == "delta":
                    accumulated += data["delta"]
                    yield StreamChunk(data["delta"], accumulated)
                elif event == "result":
                    yield last_chunk(accumulated, AgentResponseWire.model_validate(data).value())

    def sessions(self, name: str) -> RemoteSessions:
        """The user's sessions with an agent with routes."""
        return RemoteSessions(self._transport, self._user, name)


def _at(name: str, *more: str) -> str:
    return path_of(HERE, checks.known_id("agent", name), *more)


def _invocation(
    arguments: Mapping[str, Any] | None, conversation_id: str | None, model: str | Model | None, turn: AgentTurn
) -> dict[str, Any]:
    unknown = turn.keys() - AgentTurn.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"invoke takes no {', '.join(sorted(unknown))}.")
    refuse_local(turn)
    not_sent = [name for name in ("provider", "tail_limit") if turn.get(name) is not None]
    if not_sent:
        raise InvalidArgumentError(f"{', '.join(not_sent)} cannot be chosen on a server.")
    approvals = turn.get("approvals")
    return given(
        arguments=arguments,
        conversation_id=conversation_id,
        model=model_name(model),
        approvals=None if approvals is None else _decisions(approvals),
        metadata=metadata_json(turn.get("metadata")),
        trace_id=turn.get("trace_id"),
        wait=turn.get("wait"),
        memory_space_id=turn.get("memory_space_id"),
        recall=named(turn.get("recall")),
        max_cycles=turn.get("max_cycles"),
    )


def _said(
    history: str | Sequence[Mapping[str, Any]] | None,
    session: SessionState | str | None,
    approvals: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
    trace_id: str | None,
    wait: float | None,
) -> dict[str, Any]:
    return given(
        message=history if isinstance(history, str) else None,
        history=None if isinstance(history, str) else history,
        session_id=session.id if isinstance(session, SessionState) else session,
        approvals=None if approvals is None else _decisions(approvals),
        metadata=metadata_json(metadata),
        trace_id=trace_id,
        wait=wait,
    )


def _headers(session: SessionState | str | None, key: str | None) -> dict[str, str]:
    found = {} if key is None else {"Idempotency-Key": header_text("idempotency_key", key)}
    if isinstance(session, SessionState) and session.version:
        found["If-Match"] = ", ".join(session_tag(session.version, status) for status in SESSION_STATUSES)
    return found


def _decisions(approvals: Mapping[str, Any]) -> dict[str, Any]:
    return {
        id: {"approved": each.approved, "reason": each.reason, "input": each.input}
        for id, each in as_approvals(approvals).items()
    }
