"""`/ai-events` and job progress, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from fastapi import Request, Response

from tellback.errors import InvalidArgumentError
from tellback.server.auth import Caller
from tellback.server.lifecycle import ShutdownSignal
from tellback.server.routes.endpoint import Call, handle
from tellback.server.routes.memory import get_own_job, public_job
from tellback.server.streaming.change_feed import ChangeFeed, CredentialCheck
from tellback.server.streaming.sse import EventStream, encode_frame
from tellback.types.jobs import Job
from tellback.wire.base import MAX_SAFE_INTEGER
from tellback.wire.values import JobWire

FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 1.0
"""The interval of job polls, which grows while nothing changes."""
MAX_TYPES = 50


@handle("follow_events")
async def follow_events(call: Call) -> Response:
    """Stream the changes of a user, or of all users of an app."""
    request, caller, arguments = call.request, call.caller, call.arguments
    if arguments["everyone"]:
        caller.require_admin()
        user_id = None
    else:
        user_id = caller.user.scope.user_id
    frames = ChangeFeed.for_app(request.app).follow(
        (*caller.app, user_id),
        _parse_position(arguments["after"] if arguments["last"] is None else arguments["last"]),
        _parse_types(arguments["types"]),
        get_validity_check(request),
    )
    return EventStream(frames, caller.server.settings)


@handle("follow_job")
async def follow_job(call: Call) -> Response:
    """Stream a job of the user on each change."""
    request, caller = call.request, call.caller
    job = await get_own_job(caller, call.arguments["id"])
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
    """Return a function that checks whether the request's credential is still valid."""
    check: Callable[[], Awaitable[bool]] = request.scope["state"]["is_still_valid"]
    return check


def _parse_position(after: str | None) -> int | None:
    if after is None or after == "latest":
        return None
    if not (after.isascii() and after.isdecimal()) or len(after) > 16 or int(after) > MAX_SAFE_INTEGER:
        raise InvalidArgumentError("after (or Last-Event-ID) must be the position of an event, or 'latest'.")
    return int(after)


def _parse_types(types: str | None) -> list[str] | None:
    names = [name.strip() for name in (types or "").split(",") if name.strip()]
    if len(names) > MAX_TYPES:
        raise InvalidArgumentError(f"types has {len(names)} names; at most {MAX_TYPES} are allowed.")
    return names or None
