"""`/ai-agents/{name}/sessions`: sessions of a user with an agent with routes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from tellback import validation
from tellback.errors import InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.server.auth.caller import Caller, CallerDep
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
from tellback.server.tenant_agents import ServedAgent, TenantAgents
from tellback.types.ids import from_micros, to_micros
from tellback.types.sessions import SessionData, SessionStatus
from tellback.wire.agent_sessions import (
    MAX_SESSION_ID_LENGTH,
    CreateSession,
    SessionEventWire,
    SessionMessageWire,
    SessionWire,
    UpdateSession,
    session_etag,
)
from tellback.wire.base import Page

router = APIRouter(prefix="/ai-agents/{name}/sessions", tags=["agents"], route_class=StrictRoute)

RoutedAgentNamePath = Annotated[str, Path(max_length=200, examples=["Wanda"])]
SessionIdPath = Annotated[str, Path(max_length=MAX_SESSION_ID_LENGTH, examples=["web-42"])]

MAX_PAGES_READ = 20
"""How many pages of a user's sessions are looked through for those of one agent, in one request."""

_NOT_MODIFIED_RESPONSE: dict[int | str, dict[str, Any]] = {304: {"description": "You have it already."}}


@router.post("", status_code=201, response_model=SessionWire, responses=problem_responses(404, 409))
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


@router.get("", response_model=Page[SessionWire], responses=problem_responses(404))
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
    return json_response(Page[Any](items=[SessionWire.of(each) for each in sessions], next_cursor=next_cursor))


@router.get("/{id}", response_model=SessionWire, responses={**problem_responses(404), **_NOT_MODIFIED_RESPONSE})
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


@router.patch("/{id}", response_model=SessionWire, responses=problem_responses(404, 412))
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


@router.delete("/{id}", status_code=204, response_class=Response, responses=problem_responses(404, 412))
async def delete_session(
    request: Request, caller: CallerDep, name: RoutedAgentNamePath, id: SessionIdPath, if_match: IfMatchHeader = None
) -> Response:
    """Forget where a session stood. What was said in it stays in the user's log, if it is kept in the Tellback."""
    served = _served_agent(request, caller, name)
    await _require_match(served, id, if_match)
    if not await served.persistence.delete_session(id):
        raise NotFoundError("session", id)
    return no_content()


@router.post("/{id}/complete", response_model=SessionWire, responses=problem_responses(404, 412))
async def complete_session(
    request: Request, caller: CallerDep, name: RoutedAgentNamePath, id: SessionIdPath, if_match: IfMatchHeader = None
) -> Response:
    """Mark a session as completed."""
    return await _set_status(_served_agent(request, caller, name), id, "completed", if_match)


@router.post("/{id}/abandon", response_model=SessionWire, responses=problem_responses(404, 412))
async def abandon_session(
    request: Request, caller: CallerDep, name: RoutedAgentNamePath, id: SessionIdPath, if_match: IfMatchHeader = None
) -> Response:
    """Mark a session as abandoned."""
    return await _set_status(_served_agent(request, caller, name), id, "abandoned", if_match)


@router.get("/{id}/messages", response_model=Page[SessionMessageWire], responses=problem_responses(404))
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
    return json_response(Page[Any](items=[SessionMessageWire.of(each) for each in messages], next_cursor=next_cursor))


@router.get("/{id}/history", response_model=Page[SessionEventWire], responses=problem_responses(404))
async def load_session_history(
    request: Request, caller: CallerDep, name: RoutedAgentNamePath, id: SessionIdPath, limit: LimitParam = None
) -> Response:
    """What was said and done in a session, as events: of the last `limit` messages."""
    served, page_size = _served_agent(request, caller, name), resolve_page_size(caller, limit)
    await served.get_session(id)
    events = await served.persistence.load_session_history(id, page_size)
    return json_response(Page[Any](items=[SessionEventWire.of(each) for each in events]))


def _served_agent(request: Request, caller: Caller, name: str) -> ServedAgent:
    return TenantAgents.for_app(request.app).agent(caller, name)


def _session_response(session: SessionData, status: int = 200) -> Response:
    return json_response(SessionWire.of(session), status, {"ETag": session_etag(session.version, session.status)})


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
