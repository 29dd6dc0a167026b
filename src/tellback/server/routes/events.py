"""`/ai-events` and the progress of jobs: what happens, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from tellback.errors import InvalidArgumentError
from tellback.server.answers import problems
from tellback.server.callers import Caller, CallerIs
from tellback.server.feed import Feed, Validity
from tellback.server.route import Route
from tellback.server.routes.jobs import JobIs, own_job, shown
from tellback.server.sse import EventStream, frame
from tellback.server.stopping import Stopping
from tellback.server.stream_docs import FEED, streamed
from tellback.types.jobs import Job
from tellback.wire.bounds import LARGEST
from tellback.wire.jobs import JobWire

router = APIRouter(tags=["events"], route_class=Route)

FIRST_LOOK, LONGEST_LOOK = 0.05, 1.0
"""How often a job is looked at: seldom once it takes long."""
MOST_TYPES = 50

LastIs = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=100, description="The position of the last event one has.")
]
AfterIs = Annotated[
    str | None, Query(max_length=100, examples=["latest"], description="The position of an event, or 'latest'.")
]
TypesIs = Annotated[
    str | None, Query(max_length=5_000, examples=["message.appended,atom.added"], description="With commas between.")
]


@router.get(
    "/ai-events",
    response_class=Response,
    responses={**problems(), **streamed("Changes, each named by its type, after `ready`.", FEED)},
)
async def follow_events(
    request: Request,
    caller: CallerIs,
    after: AfterIs = None,
    types: TypesIs = None,
    everyone: Annotated[bool, Query(description="Of all users of the app: that needs the role 'admin'.")] = False,
    last: LastIs = None,
) -> Response:
    """The user's changes as server-sent events, from now on or after a position.

    An event's name is its type, its id the position. Whoever connects again with `Last-Event-ID`, as browsers do, or
    with `after`, goes on from there: none is lost and none comes twice. The first event is `ready`. Admins can follow
    everyone of their tenant and app.
    """
    whose = caller.principal
    if everyone:
        caller.require_admin()
        user_id = None
    else:
        user_id = caller.user.scope.user_id
    frames = Feed.of(request.app).follow(
        (whose.tenant_id, whose.app_id, user_id),
        _position(after if last is None else last),
        _types(types),
        still_valid(request),
    )
    return EventStream(frames, caller.home.settings)


@router.get(
    "/ai-memory/jobs/{id}/events",
    response_class=Response,
    responses={**problems(404), **streamed("The job at each change.", {"job": JobWire})},
)
async def follow_job(request: Request, caller: CallerIs, id: JobIs) -> Response:
    """The job at each change, as the event `job`, until it is over."""
    job = await own_job(caller, id)
    frames = _changes(caller, job, Stopping.of(request.app), still_valid(request))
    return EventStream(frames, caller.home.settings)


async def _changes(
    caller: Caller, job: Job, stopping: Stopping, is_still_valid: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[bytes, None]:
    yield _job_frame(job)
    look, validity = FIRST_LOOK, Validity(is_still_valid)
    while not job.status.is_over and not stopping.is_set:
        await asyncio.sleep(look)
        look = min(look * 1.2, LONGEST_LOOK)
        await validity.check()
        found = await own_job(caller, job.id)
        if found != job:
            job, look = found, FIRST_LOOK
            yield _job_frame(job)


def _job_frame(job: Job) -> bytes:
    return frame("job", JobWire.of(shown(job)).encoded())


def still_valid(request: Request) -> Callable[[], Awaitable[bool]]:
    """What tells whether the credential of a request still holds."""
    found: Callable[[], Awaitable[bool]] = request.scope["state"]["is_still_valid"]
    return found


def _position(after: str | None) -> int | None:
    if after is None or after == "latest":
        return None
    if not (after.isascii() and after.isdecimal()) or len(after) > 16 or int(after) > LARGEST:
        raise InvalidArgumentError("after, or Last-Event-ID, is the position of an event, or 'latest'.")
    return int(after)


def _types(types: str | None) -> list[str] | None:
    found = [name.strip() for name in (types or "").split(",") if name.strip()]
    if len(found) > MOST_TYPES:
        raise InvalidArgumentError(f"types has {len(found)} names; {MOST_TYPES} is the limit.")
    return found or None
