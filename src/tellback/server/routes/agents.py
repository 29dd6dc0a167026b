"""`/ai-agents`: invoke agents by their specs, and let agents with routes respond."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from tellback.agent.response import Response as AgentResponse
from tellback.agent.response import StreamChunk
from tellback.agent.sessions.session import SessionState
from tellback.errors import (
    InvalidArgumentError,
    NotAllowedError,
    NotFoundError,
    PreconditionFailedError,
    SessionConflictError,
    TellbackError,
)
from tellback.server.auth.caller import Caller, CallerDep
from tellback.server.client_tools import validate_decisions
from tellback.server.idempotency import KEY_HEADER, LONG_RUNNING
from tellback.server.lifecycle import ShutdownSignal, cancel_on_disconnect, shutdown_response
from tellback.server.openapi import DELTA_EVENTS, stream_responses
from tellback.server.problems import get_request_id
from tellback.server.requests import IfMatchHeader, StrictRoute, require_match
from tellback.server.responses import json_response, problem_responses
from tellback.server.routes.conversations import with_idempotency_key
from tellback.server.routes.turns import AcceptHeader, encode_problems, encode_turn_end, stream_turn_response
from tellback.server.settings import LOCAL_USER
from tellback.server.streaming.sse import MEDIA_TYPE, EventStream, encode_frame
from tellback.server.tenant_agents import ServedAgent, TenantAgents
from tellback.specs import AgentSpec
from tellback.specs.agents import Agents
from tellback.specs.model import Parameter
from tellback.wire.agent_sessions import MAX_SESSION_ID_LENGTH, session_etag
from tellback.wire.agents import AgentDelta, AgentResponseWire, AgentWire, InvokeAgent, RespondTo
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
        return stream_turn_response(caller, agents.invoke_stream(name, **arguments))
    if ShutdownSignal.for_app(request.app).is_set:
        return shutdown_response(get_request_id(request))
    return json_response(encode_turn_end(await cancel_on_disconnect(request, agents.invoke(name, **arguments))))


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
    wire = AgentResponseWire.of(response)
    wire.problems = encode_problems(response.problems)
    return wire
