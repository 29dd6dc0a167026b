"""`/ai-agents`: agents and their sessions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import Response

from tellback import validation
from tellback.agent.response import Response as AgentResponse
from tellback.agent.response import StreamChunk
from tellback.agent.sessions.session import SessionState
from tellback.chat_backends import ServedAgent
from tellback.errors import (
    InvalidArgumentError,
    NotAllowedError,
    NotFoundError,
    PreconditionFailedError,
    SessionConflictError,
    TellbackError,
)
from tellback.server.auth import Caller
from tellback.server.client_tools import validate_decisions
from tellback.server.idempotency import KEY_HEADER
from tellback.server.lifecycle import cancel_on_disconnect
from tellback.server.requests import is_not_modified, require_match
from tellback.server.responses import invalid_cursor_error, json_response, parse_position
from tellback.server.routes.endpoint import Call, check, handle, with_idempotency_key
from tellback.server.routes.turns import encode_problems, run_turn_to_end, stream_turn_response, wants_stream
from tellback.server.settings import LOCAL_USER
from tellback.server.streaming.sse import EventStream, encode_frame
from tellback.server.tenant_agents import TenantAgents
from tellback.specs import AgentSpec
from tellback.specs.agents import Agents
from tellback.specs.model import Parameter
from tellback.types.conversations import SessionData
from tellback.types.ids import from_micros, to_micros
from tellback.wire.agents import (
    AgentDelta,
    AgentResponseWire,
    AgentWire,
    InvokeAgent,
    RespondTo,
    SessionEventWire,
    SessionWire,
    session_etag,
)
from tellback.wire.base import Page
from tellback.wire.turns import TurnOutcomeWire

_DIAGRAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A Mermaid diagram.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}

MAX_PAGES_READ = 20
"""The number of pages of a user's sessions to search for one agent's sessions per request."""

_NOT_MODIFIED_RESPONSE: dict[int | str, dict[str, Any]] = {304: {"description": "Not modified."}}


@handle("list_agents")
async def list_agents(call: Call) -> Response:
    """List agents from specs, then agents with routes."""
    caller = call.caller
    specs, agents = _agent_specs(caller), caller.server.agents
    names = dict.fromkeys([*(spec.name for spec in specs.list()), *agents])
    return json_response(Page[Any](items=[_describe_agent(caller, specs.get(name), name) for name in names]))


@handle("get_agent")
async def get_agent(call: Call) -> Response:
    """Describe an agent."""
    caller, name = call.caller, call.arguments["name"]
    spec = _agent_specs(caller).get(name)
    if spec is None and name not in caller.server.agents:
        raise NotFoundError("agent", name)
    return json_response(_describe_agent(caller, spec, name))


@handle("invoke_agent")
async def invoke_agent(call: Call) -> Response:
    """Run a turn of an agent from a spec."""
    request, caller, name, body = call.request, call.caller, call.arguments["name"], call.body
    agents = caller.user.agents
    spec = agents.get(name)
    if spec is None:
        raise NotFoundError("agent", name)
    _reject_changed_inputs(caller, body)
    await validate_decisions(caller.user, body.conversation_id, set(body.approvals or ()))
    arguments = with_idempotency_key(body.arguments(), request.headers.get(KEY_HEADER))
    arguments["model"] = _resolve_model(caller, spec, body)
    if wants_stream(call):
        return stream_turn_response(caller, agents.invoke_stream(name, **arguments), TurnOutcomeWire)
    return await run_turn_to_end(request, agents.invoke(name, **arguments), TurnOutcomeWire)


@handle("respond")
async def respond(call: Call) -> Response:
    """Run a turn of an agent with routes."""
    request, caller, body, if_match = call.request, call.caller, call.body, call.arguments["if_match"]
    if body.history is not None and caller.principal.role == "user":
        raise NotAllowedError("A credential of the role 'user' may only send a message, not a history.")
    _reject_changed_inputs(caller, body)
    served = _served_agent(call)
    session, status = await _resolve_session(served, body.session_id, if_match)
    arguments = with_idempotency_key(body.arguments(), request.headers.get(KEY_HEADER))
    if wants_stream(call):
        chunks = served.agent.respond_stream(body.message_or_history, session, user=served.user, **arguments)
        return EventStream(_encode_frames(chunks, if_match is not None), caller.server.settings)
    try:
        work = served.agent.respond(body.message_or_history, session, user=served.user, **arguments)
        response = await cancel_on_disconnect(request, work)
    except SessionConflictError as error:
        raise _to_precondition_error(error, if_match is not None) from error
    return json_response(_encode_response(response), headers={"ETag": session_etag(response.session.version, status)})


@handle("get_diagram", responses=_DIAGRAM_RESPONSE)
async def get_diagram(call: Call) -> Response:
    """Draw the routes of an agent."""
    name, session_id = call.arguments["name"], call.arguments["session_id"]
    if session_id is None:
        agent = call.caller.server.agents.get(name)
        if agent is None:
            raise NotFoundError("agent with routes", name)
        return Response(agent.to_mermaid(), media_type="text/plain")
    served = _served_agent(call)
    found = await served.load_state(session_id)
    if found is None:
        raise NotFoundError("session", session_id)
    return Response(served.agent.to_mermaid(found[0]), media_type="text/plain")


def _agent_specs(caller: Caller) -> Agents:
    """Return the agent specs, which are the same for all users."""
    return caller.user_handle(caller.user_id or LOCAL_USER).agents


def _describe_agent(caller: Caller, spec: AgentSpec | None, name: str) -> AgentWire:
    return AgentWire.describe(spec, caller.server.agents.get(name), include_spec=caller.principal.role != "user")


def _resolve_model(caller: Caller, spec: AgentSpec, body: InvokeAgent) -> Any:
    """Return the requested model, by name or by an argument of the spec. Raises if callers may not use it."""
    spec_model: Any = spec.model
    if isinstance(spec_model, Parameter):
        named = (body.arguments_ or {}).get(spec_model.name)
        if isinstance(named, str):
            caller.resolve_model(named)
    return None if body.model is None or body.model == spec_model else caller.resolve_model(body.model)


def _reject_changed_inputs(caller: Caller, body: InvokeAgent | RespondTo) -> None:
    """Raise if a user changes the input of a call. Users may only approve or deny it."""
    decisions = (body.approvals or {}).values()
    if caller.principal.role == "user" and any(getattr(each, "input", None) is not None for each in decisions):
        raise NotAllowedError("A credential of the role 'user' may approve or deny a call, but not change its input.")


async def _resolve_session(
    served: ServedAgent, session_id: str | None, if_match: list[str] | None
) -> tuple[SessionState | str | None, str]:
    """Return the session's id and status; with `If-Match`, return the session itself instead of its id.

    With an id, the turn waits for other turns of the session. With a session, a turn in the meantime is a conflict.
    """
    if session_id is None:
        if if_match is not None:
            raise InvalidArgumentError("If-Match needs a session: send its sessionId.")
        return None, "active"
    found = await served.load_state(session_id)
    etag = None if found is None else session_etag(found[0].version, found[1])
    require_match(if_match, etag)
    if found is None:
        return session_id, "active"
    return (session_id if if_match is None else found[0]), found[1]


async def _encode_frames(chunks: AsyncGenerator[StreamChunk, None], has_condition: bool) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                if chunk.response is not None:
                    yield encode_frame("result", _encode_response(chunk.response).to_json())
                elif chunk.delta:
                    yield encode_frame("delta", AgentDelta(delta=chunk.delta).to_json())
    except SessionConflictError as error:
        raise _to_precondition_error(error, has_condition) from error


def _to_precondition_error(error: SessionConflictError, has_condition: bool) -> TellbackError:
    if not has_condition:
        return error
    return PreconditionFailedError("The session has changed since the ETag in If-Match: read it again and retry.")


def _encode_response(response: AgentResponse) -> AgentResponseWire:
    wire = AgentResponseWire.from_value(response)
    wire.problems = encode_problems(response.problems)
    return wire


@handle("create_session")
async def create_session(call: Call) -> Response:
    """Create a session."""
    body = call.body
    served = _served_agent(call)
    try:
        created = await served.persistence.create_session(
            id=body.id,
            user_id=served.user.scope.user_id,
            agent_name=served.agent.name,
            initial_data=validation.validate_metadata(body.initial_data),
        )
    except SessionConflictError as error:
        raise SessionConflictError(error.id, 0, 0) from error  # the session may be another user's, so hide its version
    return _session_response(created, 201)


@handle("list_sessions")
async def list_sessions(call: Call) -> Response:
    """List the user's sessions with this agent. The adapter lists the sessions with all agents."""
    status, page_size = call.arguments["status"], call.page_size
    served = _served_agent(call)
    user_id, last = served.user.scope.user_id, _parse_session_cursor(call.position)
    sessions: list[SessionData] = []
    for _ in range(MAX_PAGES_READ):
        found = await served.persistence.get_user_sessions(user_id, page_size + 1, before=last)
        for each in found[:page_size]:
            last = each
            if served.owns(each) and status in (None, each.status):
                sessions.append(each)
            if len(sessions) == page_size:
                break
        has_more = bool(found) and last is not found[-1]
        if len(sessions) == page_size or not has_more:
            break
    return call.items(sessions, f"{to_micros(last.created_at)} {last.id}" if has_more and last is not None else None)


@handle("get_session", responses=_NOT_MODIFIED_RESPONSE)
async def get_session(call: Call) -> Response:
    """Return a session, or 304 if the client has the current version."""
    found = await _served_agent(call).get_session(call.arguments["session_id"])
    etag = session_etag(found.version, found.status)
    if is_not_modified(call.arguments["if_none_match"], etag):
        return Response(status_code=304, headers={"ETag": etag})
    return _session_response(found)


@check("update_session", "complete_session", "abandon_session", "delete_session")
async def validate_etag(call: Call) -> None:
    """Raise if the session has changed since the client read it."""
    found = await _served_agent(call).get_session(call.arguments.get("session_id") or call.arguments["id"])
    require_match(call.arguments["if_match"], session_etag(found.version, found.status))


@handle("update_session", "complete_session", "abandon_session")
async def update_session(call: Call) -> Response:
    """Change a session's status."""
    id, method = call.arguments["session_id"], call.operation.method.__name__
    status = {"status": call.body.status} if call.body is not None else {}
    changed = await getattr(_served_agent(call).persistence, method)(id, **status)
    if changed is None:
        raise NotFoundError("session", id)
    return _session_response(changed)


@handle("delete_session")
async def delete_session(call: Call) -> None:
    """Delete a session."""
    if not await _served_agent(call).persistence.delete_session(call.arguments["id"]):
        raise NotFoundError("session", call.arguments["id"])


@handle("get_session_messages")
async def get_session_messages(call: Call) -> Response:
    """Return the newest messages of a session."""
    served, id, before = _served_agent(call), call.arguments["id"], parse_position(call.position)
    await served.get_session(id)
    found = await served.persistence.get_session_messages(id, call.page_size + 1, before=before)
    messages = found[-call.page_size :]
    return call.items(messages, str(messages[0].position) if len(found) > call.page_size else None)


@handle("load_session_history")
async def load_session_history(call: Call) -> Response:
    """Return the events of a session's last messages."""
    id = call.arguments["id"]
    served = _served_agent(call)
    await served.get_session(id)
    events = await served.persistence.load_session_history(id, call.page_size)
    return json_response(Page[Any](items=[SessionEventWire.from_value(each) for each in events]))


def _served_agent(call: Call) -> ServedAgent:
    return TenantAgents.for_app(call.request.app).agent(call.caller, call.arguments["name"])


def _session_response(session: SessionData, status: int = 200) -> Response:
    return json_response(
        SessionWire.from_value(session), status, {"ETag": session_etag(session.version, session.status)}
    )


def _parse_session_cursor(position: str | None) -> SessionData | None:
    """Parse a cursor to the last session of the previous page."""
    if position is None:
        return None
    micros, _, id = position.partition(" ")
    try:
        return SessionData(validation.validate_name("cursor", id), created_at=from_micros(int(micros[:18])))
    except (ValueError, OverflowError):
        raise invalid_cursor_error() from None
