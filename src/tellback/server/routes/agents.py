"""Routes of agents and of their sessions: `/ai-agents`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

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
from tellback.server.auth import Caller, CallerDep
from tellback.server.client_tools import validate_decisions
from tellback.server.idempotency import KEY_HEADER, LONG_RUNNING
from tellback.server.lifecycle import ShutdownSignal, cancel_on_disconnect, shutdown_response
from tellback.server.openapi import DELTA_EVENTS, stream_responses
from tellback.server.problems import get_request_id
from tellback.server.requests import IfMatchHeader, IfNoneMatchHeader, StrictRoute, is_not_modified, require_match
from tellback.server.responses import (
    CursorParam,
    LimitParam,
    decode_cursor,
    encode_cursor,
    json_response,
    no_content,
    problem_responses,
    resolve_page_size,
)
from tellback.server.routes.endpoint import with_idempotency_key
from tellback.server.routes.turns import AcceptHeader, encode_problems, encode_turn_result, stream_turn_response
from tellback.server.settings import LOCAL_USER
from tellback.server.streaming.sse import MEDIA_TYPE, EventStream, encode_frame
from tellback.server.tenant_agents import TenantAgents
from tellback.specs import AgentSpec
from tellback.specs.agents import Agents
from tellback.specs.model import Parameter
from tellback.types.conversations import SessionData, SessionStatus
from tellback.types.ids import from_micros, to_micros
from tellback.wire.agents import (
    MAX_SESSION_ID_LENGTH,
    AgentDelta,
    AgentResponseWire,
    AgentWire,
    CreateSession,
    InvokeAgent,
    RespondTo,
    SessionEventWire,
    SessionMessageWire,
    SessionWire,
    UpdateSession,
    session_etag,
)
from tellback.wire.base import Page
from tellback.wire.turns import TurnOutcomeWire

router = APIRouter(prefix="/ai-agents", tags=["agents"], route_class=StrictRoute)

AgentNamePath = Annotated[str, Path(max_length=200, examples=["support"])]

_ERROR_STATUSES = (404, 409, 502, 504)
_INVOKE_RESPONSES = stream_responses(
    "How the turn ended; as a stream: its deltas, and at last result or error.",
    {**DELTA_EVENTS, "result": TurnOutcomeWire},
)
_RESPOND_RESPONSES = stream_responses(
    "The answer; as a stream: the events delta, and at last result or error.",
    {"delta": AgentDelta, "result": AgentResponseWire},
)
_DIAGRAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A Mermaid diagram.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}

sessions_router = APIRouter(prefix="/ai-agents/{name}/sessions", tags=["agents"], route_class=StrictRoute)

RoutedAgentNamePath = Annotated[str, Path(max_length=200, examples=["Wanda"])]
SessionIdPath = Annotated[str, Path(max_length=MAX_SESSION_ID_LENGTH, examples=["web-42"])]

MAX_PAGES_READ = 20
"""How many pages of a user's sessions are looked through for those of one agent, in one request."""

_NOT_MODIFIED_RESPONSE: dict[int | str, dict[str, Any]] = {304: {"description": "You have it already."}}


@router.get("", response_model=Page[AgentWire], responses=problem_responses())
async def list_agents(caller: CallerDep) -> Response:
    """All agents there are: those by their descriptions first."""
    specs, agents = _agent_specs(caller), caller.server.agents
    names = dict.fromkeys([*(spec.name for spec in specs.list()), *agents])
    return json_response(Page[Any](items=[_describe_agent(caller, specs.get(name), name) for name in names]))


@router.get("/{name}", response_model=AgentWire, responses=problem_responses(404))
async def get_agent(caller: CallerDep, name: AgentNamePath) -> Response:
    """An agent."""
    spec = _agent_specs(caller).get(name)
    if spec is None and name not in caller.server.agents:
        raise NotFoundError("agent", name)
    return json_response(_describe_agent(caller, spec, name))


@router.post(
    "/{name}/invoke",
    response_model=TurnOutcomeWire,
    responses={**problem_responses(*_ERROR_STATUSES), **_INVOKE_RESPONSES},
    openapi_extra=LONG_RUNNING,
)
async def invoke_agent(
    request: Request, caller: CallerDep, name: AgentNamePath, body: InvokeAgent, accept: AcceptHeader = ""
) -> Response:
    """Run one turn of an agent by its description, in a new conversation or in `conversationId`.

    If the connection ends early, the turn is cancelled; what was stored stays.
    """
    agents = caller.user.agents
    spec = agents.get(name)
    if spec is None:
        raise NotFoundError("agent", name)
    _reject_changed_inputs(caller, body)
    await validate_decisions(caller.user, body.conversation_id, set(body.approvals or ()))
    arguments = with_idempotency_key(body.arguments(), request.headers.get(KEY_HEADER))
    arguments["model"] = _resolve_model(caller, spec, body)
    if body.stream or MEDIA_TYPE in accept:
        return stream_turn_response(caller, agents.invoke_stream(name, **arguments), TurnOutcomeWire)
    if ShutdownSignal.for_app(request.app).is_set:
        return shutdown_response(get_request_id(request))
    result = await cancel_on_disconnect(request, agents.invoke(name, **arguments))
    return json_response(encode_turn_result(result, TurnOutcomeWire))


@router.post(
    "/{name}/respond",
    response_model=AgentResponseWire,
    responses={**problem_responses(*_ERROR_STATUSES, 412), **_RESPOND_RESPONSES},
    openapi_extra=LONG_RUNNING,
)
async def respond(
    request: Request,
    caller: CallerDep,
    name: AgentNamePath,
    body: RespondTo,
    if_match: IfMatchHeader = None,
    accept: AcceptHeader = "",
) -> Response:
    """Say something to an agent with routes, in a new session or in `sessionId`.

    With `If-Match`, only if the session is still as its ETag says. If the connection ends early, the turn is cancelled.
    """
    if body.history is not None and caller.principal.role == "user":
        raise NotAllowedError("A credential of the role 'user' passes a message: the server has the history.")
    _reject_changed_inputs(caller, body)
    served = TenantAgents.for_app(request.app).agent(caller, name)
    session, status = await _resolve_session(served, body.session_id, if_match)
    arguments = with_idempotency_key(body.arguments(), request.headers.get(KEY_HEADER))
    if body.stream or MEDIA_TYPE in accept:
        chunks = served.agent.respond_stream(body.message_or_history, session, user=served.user, **arguments)
        return EventStream(_encode_frames(chunks, if_match is not None), caller.server.settings)
    if ShutdownSignal.for_app(request.app).is_set:
        return shutdown_response(get_request_id(request))
    try:
        work = served.agent.respond(body.message_or_history, session, user=served.user, **arguments)
        response = await cancel_on_disconnect(request, work)
    except SessionConflictError as error:
        raise _to_precondition_error(error, if_match is not None) from error
    return json_response(_encode_response(response), headers={"ETag": session_etag(response.session.version, status)})


@router.get("/{name}/diagram", response_class=Response, responses={**problem_responses(404), **_DIAGRAM_RESPONSE})
async def get_diagram(
    request: Request,
    caller: CallerDep,
    name: AgentNamePath,
    session_id: Annotated[str | None, Query(alias="sessionId", min_length=1, max_length=MAX_SESSION_ID_LENGTH)] = None,
) -> Response:
    """The routes of an agent as a Mermaid diagram, with the session's state lit."""
    if session_id is None:
        agent = caller.server.agents.get(name)
        if agent is None:
            raise NotFoundError("agent with routes", name)
        return Response(agent.to_mermaid(), media_type="text/plain")
    served = TenantAgents.for_app(request.app).agent(caller, name)
    found = await served.load_state(session_id)
    if found is None:
        raise NotFoundError("session", session_id)
    return Response(served.agent.to_mermaid(found[0]), media_type="text/plain")


def _agent_specs(caller: Caller) -> Agents:
    """The descriptions: they are the same for every user."""
    return caller.user_handle(caller.user_id or LOCAL_USER).agents


def _describe_agent(caller: Caller, spec: AgentSpec | None, name: str) -> AgentWire:
    return AgentWire.describe(spec, caller.server.agents.get(name), include_spec=caller.principal.role != "user")


def _resolve_model(caller: Caller, spec: AgentSpec, body: InvokeAgent) -> Any:
    """The model that was named, if callers may: by name, or by an argument that the description puts there."""
    spec_model: Any = spec.model
    if isinstance(spec_model, Parameter):
        named = (body.arguments_ or {}).get(spec_model.name)
        if isinstance(named, str):
            caller.resolve_model(named)
    return None if body.model is None or body.model == spec_model else caller.resolve_model(body.model)


def _reject_changed_inputs(caller: Caller, body: InvokeAgent | RespondTo) -> None:
    """A person decides whether a call is made for them; with what it is made is between the agent and its app."""
    decisions = (body.approvals or {}).values()
    if caller.principal.role == "user" and any(getattr(each, "input", None) is not None for each in decisions):
        raise NotAllowedError("A credential of the role 'user' says yes or no: a call's input is not theirs to change.")


async def _resolve_session(
    served: ServedAgent, session_id: str | None, if_match: list[str] | None
) -> tuple[SessionState | str | None, str]:
    """The session to respond in, and its status. By its id turns wait for each other; with a version they do not."""
    if session_id is None:
        if if_match is not None:
            raise InvalidArgumentError("If-Match is about a session: name it with sessionId.")
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
    return PreconditionFailedError("The session is not as If-Match says any more: read it again, and decide then.")


def _encode_response(response: AgentResponse) -> AgentResponseWire:
    wire = AgentResponseWire.from_value(response)
    wire.problems = encode_problems(response.problems)
    return wire


@sessions_router.post("", status_code=201, response_model=SessionWire, responses=problem_responses(404, 409))
async def create_session(
    request: Request, caller: CallerDep, name: RoutedAgentNamePath, body: CreateSession
) -> Response:
    """Begin a session. `respond` with a new id does so too. An id is taken once among all users of the app."""
    served = _served_agent(request, caller, name)
    try:
        created = await served.persistence.create_session(
            id=body.id,
            user_id=served.user.scope.user_id,
            agent_name=served.agent.name,
            initial_data=validation.validate_metadata(body.initial_data),
        )
    except SessionConflictError as error:
        raise SessionConflictError(error.id, 0, 0) from error  # it may be another user's: how far it is, is theirs
    return _session_response(created, 201)


@sessions_router.get("", response_model=Page[SessionWire], responses=problem_responses(404))
async def list_sessions(
    request: Request,
    caller: CallerDep,
    name: RoutedAgentNamePath,
    status: SessionStatus | None = None,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """The user's sessions with this agent, those created last first. A page may be short, with more to come."""
    served, page_size = _served_agent(request, caller, name), resolve_page_size(caller, limit)
    user_id, last = served.user.scope.user_id, _parse_session_cursor(cursor)
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
    next_cursor = None if not has_more or last is None else encode_cursor(f"{to_micros(last.created_at)} {last.id}")
    return json_response(Page[Any](items=[SessionWire.from_value(each) for each in sessions], next_cursor=next_cursor))


@sessions_router.get(
    "/{id}", response_model=SessionWire, responses={**problem_responses(404), **_NOT_MODIFIED_RESPONSE}
)
async def get_session(
    request: Request,
    caller: CallerDep,
    name: RoutedAgentNamePath,
    id: SessionIdPath,
    if_none_match: IfNoneMatchHeader = None,
) -> Response:
    """A session. Its `ETag` is for `If-None-Match` here, and for `If-Match` where it is changed."""
    found = await _served_agent(request, caller, name).get_session(id)
    etag = session_etag(found.version, found.status)
    if is_not_modified(if_none_match, etag):
        return Response(status_code=304, headers={"ETag": etag})
    return _session_response(found)


@sessions_router.patch("/{id}", response_model=SessionWire, responses=problem_responses(404, 412))
async def update_session(
    request: Request,
    caller: CallerDep,
    name: RoutedAgentNamePath,
    id: SessionIdPath,
    body: UpdateSession,
    if_match: IfMatchHeader = None,
) -> Response:
    """Change a session's status."""
    return await _set_status(_served_agent(request, caller, name), id, body.status, if_match)


@sessions_router.delete("/{id}", status_code=204, response_class=Response, responses=problem_responses(404, 412))
async def delete_session(
    request: Request, caller: CallerDep, name: RoutedAgentNamePath, id: SessionIdPath, if_match: IfMatchHeader = None
) -> Response:
    """Forget where a session stood. What was said in it stays in the user's log, if it is kept in the Tellback."""
    served = _served_agent(request, caller, name)
    await _require_match(served, id, if_match)
    if not await served.persistence.delete_session(id):
        raise NotFoundError("session", id)
    return no_content()


@sessions_router.post("/{id}/complete", response_model=SessionWire, responses=problem_responses(404, 412))
async def complete_session(
    request: Request, caller: CallerDep, name: RoutedAgentNamePath, id: SessionIdPath, if_match: IfMatchHeader = None
) -> Response:
    """Mark a session as completed."""
    return await _set_status(_served_agent(request, caller, name), id, "completed", if_match)


@sessions_router.post("/{id}/abandon", response_model=SessionWire, responses=problem_responses(404, 412))
async def abandon_session(
    request: Request, caller: CallerDep, name: RoutedAgentNamePath, id: SessionIdPath, if_match: IfMatchHeader = None
) -> Response:
    """Mark a session as abandoned."""
    return await _set_status(_served_agent(request, caller, name), id, "abandoned", if_match)


@sessions_router.get("/{id}/messages", response_model=Page[SessionMessageWire], responses=problem_responses(404))
async def get_session_messages(
    request: Request,
    caller: CallerDep,
    name: RoutedAgentNamePath,
    id: SessionIdPath,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """The newest messages of a session, oldest first. `nextCursor` leads to those before them."""
    served, page_size, position = (
        _served_agent(request, caller, name),
        resolve_page_size(caller, limit),
        decode_cursor(cursor),
    )
    if position is not None and not (position.isascii() and position.isdecimal()):
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.")
    await served.get_session(id)
    before = None if position is None else int(position[:18])
    found = await served.persistence.get_session_messages(id, page_size + 1, before=before)
    messages = found[-page_size:]
    next_cursor = encode_cursor(str(messages[0].position)) if len(found) > page_size else None
    return json_response(
        Page[Any](items=[SessionMessageWire.from_value(each) for each in messages], next_cursor=next_cursor)
    )


@sessions_router.get("/{id}/history", response_model=Page[SessionEventWire], responses=problem_responses(404))
async def load_session_history(
    request: Request, caller: CallerDep, name: RoutedAgentNamePath, id: SessionIdPath, limit: LimitParam = None
) -> Response:
    """What was said and done in a session, as events: of the last `limit` messages."""
    served, page_size = _served_agent(request, caller, name), resolve_page_size(caller, limit)
    await served.get_session(id)
    events = await served.persistence.load_session_history(id, page_size)
    return json_response(Page[Any](items=[SessionEventWire.from_value(each) for each in events]))


def _served_agent(request: Request, caller: Caller, name: str) -> ServedAgent:
    return TenantAgents.for_app(request.app).agent(caller, name)


def _session_response(session: SessionData, status: int = 200) -> Response:
    return json_response(
        SessionWire.from_value(session), status, {"ETag": session_etag(session.version, session.status)}
    )


async def _require_match(served: ServedAgent, id: str, if_match: list[str] | None) -> None:
    found = await served.get_session(id)
    require_match(if_match, session_etag(found.version, found.status))


async def _set_status(served: ServedAgent, id: str, status: SessionStatus, if_match: list[str] | None) -> Response:
    await _require_match(served, id, if_match)
    changed = await served.persistence.update_session_status(id, status)
    if changed is None:
        raise NotFoundError("session", id)
    return _session_response(changed)


def _parse_session_cursor(cursor: str | None) -> SessionData | None:
    """The session a page ended with, as far as its place in the list goes."""
    position = decode_cursor(cursor)
    if position is None:
        return None
    micros, _, id = position.partition(" ")
    try:
        return SessionData(validation.validate_name("cursor", id), created_at=from_micros(int(micros[:18])))
    except (ValueError, OverflowError):
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.") from None
