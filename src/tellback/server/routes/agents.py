"""`/ai-agents`: agents by their descriptions, which are invoked, and agents with routes, which respond."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from tellback.agent.response import Response as AgentResponse
from tellback.agent.response import StreamChunk
from tellback.agent.session import SessionState
from tellback.errors import (
    InvalidArgumentError,
    NotAllowedError,
    NotFoundError,
    PreconditionFailedError,
    SessionConflictError,
    TellbackError,
)
from tellback.server.answers import answer, problems
from tellback.server.callers import Caller, CallerIs
from tellback.server.disconnects import while_awaited
from tellback.server.external_tools import check_decisions
from tellback.server.idempotency import HEADER, TURN
from tellback.server.preconditions import IfMatchIs, require_match
from tellback.server.problems import request_id_of
from tellback.server.route import Route
from tellback.server.routes.conversations import with_key
from tellback.server.routes.turns import AcceptIs, ended, told_problems, turn_stream
from tellback.server.serving import Served, Serving
from tellback.server.settings import LOCAL_USER
from tellback.server.sse import MEDIA_TYPE, EventStream, frame
from tellback.server.stopping import Stopping, refusal
from tellback.server.stream_docs import DELTAS, streamed
from tellback.specs import AgentSpec
from tellback.specs.handle import Agents
from tellback.specs.parameters import Parameter
from tellback.wire.agents import AgentDelta, AgentResponseWire, AgentWire, InvokeAgent, RespondTo
from tellback.wire.base import Page
from tellback.wire.sessions import ID_LENGTH, session_tag
from tellback.wire.turns import TurnOutcomeWire

router = APIRouter(prefix="/ai-agents", tags=["agents"], route_class=Route)

NameIs = Annotated[str, Path(max_length=200, examples=["support"])]

_STATUSES = (404, 409, 502, 504)
_INVOKED = streamed(
    "How the turn ended; as a stream: its deltas, and at last result or error.", {**DELTAS, "result": TurnOutcomeWire}
)
_RESPONDED = streamed(
    "The answer; as a stream: the events delta, and at last result or error.",
    {"delta": AgentDelta, "result": AgentResponseWire},
)
_DRAWN: dict[int | str, dict[str, Any]] = {
    200: {"description": "A Mermaid diagram.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("", response_model=Page[AgentWire], responses=problems())
async def list_agents(caller: CallerIs) -> Response:
    """All agents there are: those by their descriptions first."""
    specs, agents = _specs(caller), caller.home.agents
    names = dict.fromkeys([*(spec.name for spec in specs.list()), *agents])
    return answer(Page[Any](items=[_described(caller, specs.get(name), name) for name in names]))


@router.get("/{name}", response_model=AgentWire, responses=problems(404))
async def get_agent(caller: CallerIs, name: NameIs) -> Response:
    """An agent."""
    spec = _specs(caller).get(name)
    if spec is None and name not in caller.home.agents:
        raise NotFoundError("agent", name)
    return answer(_described(caller, spec, name))


@router.post(
    "/{name}/invoke", response_model=TurnOutcomeWire, responses={**problems(*_STATUSES), **_INVOKED}, openapi_extra=TURN
)
async def invoke_agent(
    request: Request, caller: CallerIs, name: NameIs, body: InvokeAgent, accept: AcceptIs = ""
) -> Response:
    """Run one turn of an agent by its description, in a new conversation or in `conversationId`.

    If the connection ends early, the turn is cancelled; what was stored stays.
    """
    agents = caller.user.agents
    spec = agents.get(name)
    if spec is None:
        raise NotFoundError("agent", name)
    _check_inputs(caller, body)
    await check_decisions(caller.user, body.conversation_id, set(body.approvals or ()))
    given = with_key(body.arguments(), request.headers.get(HEADER))
    given["model"] = _model(caller, spec, body)
    if body.stream or MEDIA_TYPE in accept:
        return turn_stream(caller, agents.invoke_stream(name, **given))
    if Stopping.of(request.app).is_set:
        return refusal(request_id_of(request))
    return answer(ended(await while_awaited(request, agents.invoke(name, **given))))


@router.post(
    "/{name}/respond",
    response_model=AgentResponseWire,
    responses={**problems(*_STATUSES, 412), **_RESPONDED},
    openapi_extra=TURN,
)
async def respond(
    request: Request,
    caller: CallerIs,
    name: NameIs,
    body: RespondTo,
    if_match: IfMatchIs = None,
    accept: AcceptIs = "",
) -> Response:
    """Say something to an agent with routes, in a new session or in `sessionId`.

    With `If-Match`, only if the session is still as its ETag says. If the connection ends early, the turn is cancelled.
    """
    if body.history is not None and caller.principal.role == "user":
        raise NotAllowedError("A credential of the role 'user' passes a message: the server has the history.")
    _check_inputs(caller, body)
    served = Serving.of(request.app).agent(caller, name)
    session, status = await _session(served, body.session_id, if_match)
    given = with_key(body.arguments(), request.headers.get(HEADER))
    if body.stream or MEDIA_TYPE in accept:
        chunks = served.agent.respond_stream(body.said, session, user=served.user, **given)
        return EventStream(_frames(chunks, if_match is not None), caller.home.settings)
    if Stopping.of(request.app).is_set:
        return refusal(request_id_of(request))
    try:
        work = served.agent.respond(body.said, session, user=served.user, **given)
        response = await while_awaited(request, work)
    except SessionConflictError as error:
        raise _overtaken(error, if_match is not None) from error
    return answer(_answered(response), headers={"ETag": session_tag(response.session.version, status)})


@router.get("/{name}/diagram", response_class=Response, responses={**problems(404), **_DRAWN})
async def get_diagram(
    request: Request,
    caller: CallerIs,
    name: NameIs,
    session_id: Annotated[str | None, Query(alias="sessionId", min_length=1, max_length=ID_LENGTH)] = None,
) -> Response:
    """The routes of an agent as a Mermaid diagram, with the session's state lit."""
    if session_id is None:
        agent = caller.home.agents.get(name)
        if agent is None:
            raise NotFoundError("agent with routes", name)
        return Response(agent.to_mermaid(), media_type="text/plain")
    served = Serving.of(request.app).agent(caller, name)
    found = await served.state(session_id)
    if found is None:
        raise NotFoundError("session", session_id)
    return Response(served.agent.to_mermaid(found[0]), media_type="text/plain")


def _specs(caller: Caller) -> Agents:
    """The descriptions: they are the same for every user."""
    return caller.user_of(caller.user_id or LOCAL_USER).agents


def _described(caller: Caller, spec: AgentSpec | None, name: str) -> AgentWire:
    return AgentWire.described(spec, caller.home.agents.get(name), whole=caller.principal.role != "user")


def _model(caller: Caller, spec: AgentSpec, body: InvokeAgent) -> Any:
    """The model that was named, if callers may: by name, or by an argument that the description puts there."""
    own: Any = spec.model
    if isinstance(own, Parameter):
        named = (body.arguments_ or {}).get(own.name)
        if isinstance(named, str):
            caller.model(named)
    return None if body.model is None or body.model == own else caller.model(body.model)


def _check_inputs(caller: Caller, body: InvokeAgent | RespondTo) -> None:
    """A person decides whether a call is made for them; with what it is made is between the agent and its app."""
    decisions = (body.approvals or {}).values()
    if caller.principal.role == "user" and any(getattr(each, "input", None) is not None for each in decisions):
        raise NotAllowedError("A credential of the role 'user' says yes or no: a call's input is not theirs to change.")


async def _session(
    served: Served, session_id: str | None, if_match: list[str] | None
) -> tuple[SessionState | str | None, str]:
    """The session to respond in, and its status. By its id turns wait for each other; with a version they do not."""
    if session_id is None:
        if if_match is not None:
            raise InvalidArgumentError("If-Match is about a session: name it with sessionId.")
        return None, "active"
    found = await served.state(session_id)
    tag = None if found is None else session_tag(found[0].version, found[1])
    require_match(if_match, tag)
    if found is None:
        return session_id, "active"
    return (session_id if if_match is None else found[0]), found[1]


async def _frames(chunks: AsyncGenerator[StreamChunk, None], has_condition: bool) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                if chunk.response is not None:
                    yield frame("result", _answered(chunk.response).encoded())
                elif chunk.delta:
                    yield frame("delta", AgentDelta(delta=chunk.delta).encoded())
    except SessionConflictError as error:
        raise _overtaken(error, has_condition) from error


def _overtaken(error: SessionConflictError, has_condition: bool) -> TellbackError:
    if not has_condition:
        return error
    return PreconditionFailedError("The session is not as If-Match says any more: read it again, and decide then.")


def _answered(response: AgentResponse) -> AgentResponseWire:
    wire = AgentResponseWire.of(response)
    wire.problems = told_problems(response.problems)
    return wire
