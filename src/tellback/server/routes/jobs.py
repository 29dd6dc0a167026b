"""`/ai-memory/jobs` and `/ai-memory/extractions`: making memories of conversations."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from tellback.conversations import checks
from tellback.errors import NotFoundError
from tellback.server.answers import (
    CursorParam,
    LimitParam,
    decode_cursor,
    json_response,
    page_response,
    problem_responses,
    resolve_page_size,
)
from tellback.server.callers import Caller, CallerDep, UserDep
from tellback.server.disconnects import cancel_on_disconnect
from tellback.server.idempotency import NOT_STORED
from tellback.server.problems import public_job_error
from tellback.server.route import StrictRoute
from tellback.server.routes.bindings import reject_unknown_version
from tellback.types.jobs import Job, JobStatus
from tellback.wire.base import Page
from tellback.wire.jobs import ExtractionRunWire, ExtractionWaited, JobWire, RunExtraction, WaitForExtraction

jobs_router = APIRouter(prefix="/ai-memory", tags=["jobs"], route_class=StrictRoute)

JobIdPath = Annotated[str, Path(max_length=200, examples=["job_018f3c0de0a17b2c4d5e6f708192"])]


@jobs_router.post("/extractions", status_code=202, response_model=ExtractionRunWire, responses=problem_responses(404))
async def run_extraction(user: UserDep, body: RunExtraction) -> Response:
    """Extract a conversation now, open or closed, as often as you like: what is known already is not added again.

    Every enabled binding that matches gives its jobs; or name a space, and no binding is needed.
    """
    with reject_unknown_version(body.extraction_version):
        run = await user.memory.run_extraction_for_conversation(**body.arguments())
    return json_response(ExtractionRunWire.of(replace(run, jobs=tuple(map(public_job, run.jobs)))), 202)


@jobs_router.post(
    "/extractions/wait", response_model=ExtractionWaited, responses=problem_responses(), openapi_extra=NOT_STORED
)
async def wait_for_extraction(request: Request, user: UserDep, body: WaitForExtraction) -> Response:
    """Wait until the user's conversations that were closed have become memories, or for so long."""
    done = await cancel_on_disconnect(request, user.memory.wait_for_extraction(body.timeout))
    return json_response(ExtractionWaited(done=done))


@jobs_router.get("/jobs", response_model=Page[JobWire], responses=problem_responses())
async def list_jobs(
    caller: CallerDep,
    status: JobStatus | None = None,
    conversation_id: Annotated[str | None, Query(alias="conversationId", max_length=200)] = None,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """The user's jobs, the newest first."""
    page_size, scope = resolve_page_size(caller, limit), caller.user.scope
    found = await caller.server.rc.jobs.list(
        status,
        conversation_id=checks.validate_optional_text("conversationId", conversation_id, checks.KEY_LENGTH),
        limit=page_size + 1,
        before=checks.validate_optional_text("cursor", decode_cursor(cursor), checks.KEY_LENGTH),
        user_id=scope.user_id,
        tenant_id=scope.tenant_id,
        app_id=scope.app_id,
    )
    return page_response(JobWire, [public_job(job) for job in found], page_size, lambda job: str(job.id))


@jobs_router.get("/jobs/{id}", response_model=JobWire, responses=problem_responses(404))
async def get_job(caller: CallerDep, id: JobIdPath) -> Response:
    """A job of the user, as it stands now."""
    return json_response(JobWire.of(public_job(await get_own_job(caller, id))))


@jobs_router.post("/jobs/{id}/retry", response_model=JobWire, responses=problem_responses(404))
async def retry_job(caller: CallerDep, id: JobIdPath) -> Response:
    """Queue a job of the user that failed, was cancelled or is done again, as if it were new."""
    await get_own_job(caller, id)
    return json_response(JobWire.of(public_job(await caller.server.rc.jobs.retry(id))))


@jobs_router.post("/jobs/{id}/cancel", response_model=JobWire, responses=problem_responses(404))
async def cancel_job(caller: CallerDep, id: JobIdPath) -> Response:
    """End a job of the user that has not ended yet."""
    await get_own_job(caller, id)
    return json_response(JobWire.of(public_job(await caller.server.rc.jobs.cancel(id))))


def public_job(job: Job) -> Job:
    """A job as its user may see it: why it failed, but not what a provider or the store said. Admins see that."""
    return replace(job, error=public_job_error(job.error))


async def get_own_job(caller: Caller, id: str) -> Job:
    """A job of the user; another's is as good as unknown."""
    found = await caller.server.rc.jobs.get(checks.validate_id("job", id))
    if found is None or found.scope != caller.user.scope:
        raise NotFoundError("job", id)
    return found
