"""`/ai-events` and the progress of jobs, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response

from tellback.errors import InvalidArgumentError
from tellback.server.auth import Caller, CallerDep
from tellback.server.lifecycle import ShutdownSignal
from tellback.server.openapi import FEED_EVENTS, stream_responses
from tellback.server.requests import StrictRoute
from tellback.server.responses import problem_responses
from tellback.server.routes.extraction import get_own_job, public_job
from tellback.server.streaming.change_feed import ChangeFeed, CredentialCheck
from tellback.server.streaming.sse import EventStream, encode_frame
from tellback.types.jobs import Job
from tellback.wire.base import MAX_SAFE_INTEGER
from tellback.wire.values import JobWire

router = APIRouter(tags=["events"], route_class=StrictRoute)

FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 1.0
"""How often a job is looked at: seldom once it takes long."""
MAX_TYPES = 50

JobIdPath = Annotated[str, Path(max_length=200, examples=["job_018f3c0de0a17b2c4d5e6f708192"])]
LastEventIdHeader = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=100, description="The position of the last event one has.")
]
AfterParam = Annotated[
    str | None, Query(max_length=100, examples=["latest"], description="The position of an event, or 'latest'.")
]
EventTypesParam = Annotated[
    str | None, Query(max_length=5_000, examples=["message.appended,atom.added"], description="With commas between.")
]


@router.get(
    "/ai-events",
    response_class=Response,
    responses={
        **problem_responses(),
        **stream_responses("Changes, each named by its type, after `ready`.", FEED_EVENTS),
    },
)
async def follow_events(
    request: Request,
    caller: CallerDep,
    after: AfterParam = None,
    types: EventTypesParam = None,
    everyone: Annotated[bool, Query(description="Of all users of the app: that needs the role 'admin'.")] = False,
    last: LastEventIdHeader = None,
) -> Response:
    """The user's changes as server-sent events, from now on or after a position.

    An event's name is its type, its id the position. Whoever connects again with `Last-Event-ID`, as browsers do, or
    with `after`, goes on from there: none is lost and none comes twice. The first event is `ready`. Admins can follow
    everyone of their tenant and app.
    """
    principal = caller.principal
    if everyone:
        caller.require_admin()
        user_id = None
    else:
        user_id = caller.user.scope.user_id
    frames = ChangeFeed.for_app(request.app).follow(
        (principal.tenant_id, principal.app_id, user_id),
        _parse_position(after if last is None else last),
        _parse_types(types),
        get_validity_check(request),
    )
    return EventStream(frames, caller.server.settings)


@router.get(
    "/ai-memory/jobs/{id}/events",
    response_class=Response,
    responses={**problem_responses(404), **stream_responses("The job at each change.", {"job": JobWire})},
)
async def follow_job(request: Request, caller: CallerDep, id: JobIdPath) -> Response:
    """The job at each change, as the event `job`, until it is over."""
    job = await get_own_job(caller, id)
    frames = _job_frames(caller, job, ShutdownSignal.for_app(request.app), get_validity_check(request))
    return EventStream(frames, caller.server.settings)


async def _job_frames(
    caller: Caller, job: Job, shutdown: ShutdownSignal, is_still_valid: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[bytes, None]:
    yield _encode_job_frame(job)
    interval, credential_check = FIRST_POLL_SECONDS, CredentialCheck(is_still_valid)
    while not job.status.is_finished and not shutdown.is_set:
        await asyncio.sleep(interval)
        interval = min(interval * 1.2, MAX_POLL_SECONDS)
        await credential_check.check()
        found = await get_own_job(caller, job.id)
        if found != job:
            job, interval = found, FIRST_POLL_SECONDS
            yield _encode_job_frame(job)


def _encode_job_frame(job: Job) -> bytes:
    return encode_frame("job", JobWire.from_value(public_job(job)).to_json())


def get_validity_check(request: Request) -> Callable[[], Awaitable[bool]]:
    """What tells whether the credential of a request still holds."""
    check: Callable[[], Awaitable[bool]] = request.scope["state"]["is_still_valid"]
    return check


def _parse_position(after: str | None) -> int | None:
    if after is None or after == "latest":
        return None
    if not (after.isascii() and after.isdecimal()) or len(after) > 16 or int(after) > MAX_SAFE_INTEGER:
        raise InvalidArgumentError("after, or Last-Event-ID, is the position of an event, or 'latest'.")
    return int(after)


def _parse_types(types: str | None) -> list[str] | None:
    names = [name.strip() for name in (types or "").split(",") if name.strip()]
    if len(names) > MAX_TYPES:
        raise InvalidArgumentError(f"types has {len(names)} names; {MAX_TYPES} is the limit.")
    return names or None
