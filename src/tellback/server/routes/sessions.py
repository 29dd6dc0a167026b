"""`/ai-agents/{name}/sessions`: where conversations with an agent with routes stand."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.server.answers import (
    CursorIs,
    LimitIs,
    answer,
    nothing,
    page_limit,
    problems,
    read_cursor,
    write_cursor,
)
from tellback.server.callers import Caller, CallerIs
from tellback.server.preconditions import IfMatchIs, IfNoneMatchIs, is_known, require_match
from tellback.server.route import Route
from tellback.server.serving import Served, Serving
from tellback.types.sessions import SessionData, SessionStatus
from tellback.types.times import from_micros, to_micros
from tellback.wire.base import Page
from tellback.wire.sessions import (
    ID_LENGTH,
    CreateSession,
    SessionEventWire,
    SessionMessageWire,
    SessionWire,
    UpdateSession,
    session_tag,
)

router = APIRouter(prefix="/ai-agents/{name}/sessions", tags=["agents"], route_class=Route)

NameIs = Annotated[str, Path(max_length=200, examples=["Wanda"])]
SessionIdIs = Annotated[str, Path(max_length=ID_LENGTH, examples=["web-42"])]

MOST_LOOKS = 20
"""How many pages of a user's sessions are looked through for those of one agent, in one request."""

_UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "You have it already."}}


@router.post("", status_code=201, response_model=SessionWire, responses=problems(404, 409))
async def create_session(request: Request, caller: CallerIs, name: NameIs, body: CreateSession) -> Response:
    """Begin a session. `respond` with a new id does so too. An id is taken once among all users of the app."""
    served = _served(request, caller, name)
    try:
        created = await served.persistence.create_session(
            id=body.id,
            user_id=served.user.scope.user_id,
            agent_name=served.agent.name,
            initial_data=checks.metadata(body.initial_data),
        )
    except SessionConflictError as error:
        raise SessionConflictError(error.id, 0, 0) from error  # it may be another user's: how far it is, is theirs
    return _answer(created, 201)


@router.get("", response_model=Page[SessionWire], responses=problems(404))
async def list_sessions(
    request: Request,
    caller: CallerIs,
    name: NameIs,
    status: SessionStatus | None = None,
    limit: LimitIs = None,
    cursor: CursorIs = None,
) -> Response:
    """The user's sessions with this agent, those created last first. A page may be short, with more to come."""
    served, most = _served(request, caller, name), page_limit(caller, limit)
    user_id, last = served.user.scope.user_id, _place(cursor)
    shown: list[SessionData] = []
    for _ in range(MOST_LOOKS):
        found = await served.persistence.get_user_sessions(user_id, most + 1, before=last)
        for each in found[:most]:
            last = each
            if served.has(each) and status in (None, each.status):
                shown.append(each)
            if len(shown) == most:
                break
        has_more = bool(found) and last is not found[-1]
        if len(shown) == most or not has_more:
            break
    following = None if not has_more or last is None else write_cursor(f"{to_micros(last.created_at)} {last.id}")
    return answer(Page[Any](items=[SessionWire.of(each) for each in shown], next_cursor=following))


@router.get("/{id}", response_model=SessionWire, responses={**problems(404), **_UNCHANGED})
async def get_session(
    request: Request, caller: CallerIs, name: NameIs, id: SessionIdIs, if_none_match: IfNoneMatchIs = None
) -> Response:
    """A session. Its `ETag` is for `If-None-Match` here, and for `If-Match` where it is changed."""
    found = await _served(request, caller, name).session(id)
    tag = session_tag(found.version, found.status)
    if is_known(if_none_match, tag):
        return Response(status_code=304, headers={"ETag": tag})
    return _answer(found)


@router.patch("/{id}", response_model=SessionWire, responses=problems(404, 412))
async def update_session(
    request: Request,
    caller: CallerIs,
    name: NameIs,
    id: SessionIdIs,
    body: UpdateSession,
    if_match: IfMatchIs = None,
) -> Response:
    """Change a session's status."""
    return await _set_status(_served(request, caller, name), id, body.status, if_match)


@router.delete("/{id}", status_code=204, response_class=Response, responses=problems(404, 412))
async def delete_session(
    request: Request, caller: CallerIs, name: NameIs, id: SessionIdIs, if_match: IfMatchIs = None
) -> Response:
    """Forget where a session stood. What was said in it stays in the user's log, if it is kept in the Tellback."""
    served = _served(request, caller, name)
    await _required(served, id, if_match)
    if not await served.persistence.delete_session(id):
        raise NotFoundError("session", id)
    return nothing()


@router.post("/{id}/complete", response_model=SessionWire, responses=problems(404, 412))
async def complete_session(
    request: Request, caller: CallerIs, name: NameIs, id: SessionIdIs, if_match: IfMatchIs = None
) -> Response:
    """Mark a session as completed."""
    return await _set_status(_served(request, caller, name), id, "completed", if_match)


@router.post("/{id}/abandon", response_model=SessionWire, responses=problems(404, 412))
async def abandon_session(
    request: Request, caller: CallerIs, name: NameIs, id: SessionIdIs, if_match: IfMatchIs = None
) -> Response:
    """Mark a session as abandoned."""
    return await _set_status(_served(request, caller, name), id, "abandoned", if_match)


@router.get("/{id}/messages", response_model=Page[SessionMessageWire], responses=problems(404))
async def get_session_messages(
    request: Request, caller: CallerIs, name: NameIs, id: SessionIdIs, limit: LimitIs = None, cursor: CursorIs = None
) -> Response:
    """The newest messages of a session, oldest first. `nextCursor` leads to those before them."""
    served, most, place = _served(request, caller, name), page_limit(caller, limit), read_cursor(cursor)
    if place is not None and not (place.isascii() and place.isdecimal()):
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.")
    await served.session(id)
    before = None if place is None else int(place[:18])
    found = await served.persistence.get_session_messages(id, most + 1, before=before)
    shown = found[-most:]
    following = write_cursor(str(shown[0].position)) if len(found) > most else None
    return answer(Page[Any](items=[SessionMessageWire.of(each) for each in shown], next_cursor=following))


@router.get("/{id}/history", response_model=Page[SessionEventWire], responses=problems(404))
async def load_session_history(
    request: Request, caller: CallerIs, name: NameIs, id: SessionIdIs, limit: LimitIs = None
) -> Response:
    """What was said and done in a session, as events: of the last `limit` messages."""
    served, most = _served(request, caller, name), page_limit(caller, limit)
    await served.session(id)
    events = await served.persistence.load_session_history(id, most)
    return answer(Page[Any](items=[SessionEventWire.of(each) for each in events]))


def _served(request: Request, caller: Caller, name: str) -> Served:
    return Serving.of(request.app).agent(caller, name)


def _answer(session: SessionData, status: int = 200) -> Response:
    return answer(SessionWire.of(session), status, {"ETag": session_tag(session.version, session.status)})


async def _required(served: Served, id: str, if_match: list[str] | None) -> None:
    found = await served.session(id)
    require_match(if_match, session_tag(found.version, found.status))


async def _set_status(served: Served, id: str, status: SessionStatus, if_match: list[str] | None) -> Response:
    await _required(served, id, if_match)
    changed = await served.persistence.update_session_status(id, status)
    if changed is None:
        raise NotFoundError("session", id)
    return _answer(changed)


def _place(cursor: str | None) -> SessionData | None:
    """The session a page ended with, as far as its place in the list goes."""
    place = read_cursor(cursor)
    if place is None:
        return None
    micros, _, id = place.partition(" ")
    try:
        return SessionData(checks.name("cursor", id), created_at=from_micros(int(micros[:18])))
    except (ValueError, OverflowError):
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.") from None
