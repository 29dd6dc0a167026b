"""`/ai-memory/jobs` and `/ai-memory/extractions`: making memories of conversations."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from tellback.conversations import checks
from tellback.errors import NotFoundError
from tellback.server.answers import CursorIs, LimitIs, answer, page, page_limit, problems, read_cursor
from tellback.server.callers import Caller, CallerIs, UserIs
from tellback.server.disconnects import while_awaited
from tellback.server.idempotency import UNKEPT
from tellback.server.problems import told_of
from tellback.server.route import Route
from tellback.server.routes.bindings import known_version
from tellback.types.jobs import Job, JobStatus
from tellback.wire.base import Page
from tellback.wire.jobs import ExtractionRunWire, ExtractionWaited, JobWire, RunExtraction, WaitForExtraction

router = APIRouter(prefix="/ai-memory", tags=["jobs"], route_class=Route)

JobIs = Annotated[str, Path(max_length=200, examples=["job_018f3c0de0a17b2c4d5e6f708192"])]


@router.post("/extractions", status_code=202, response_model=ExtractionRunWire, responses=problems(404))
async def run_extraction(user: UserIs, body: RunExtraction) -> Response:
    """Extract a conversation now, open or closed, as often as you like: what is known already is not added again.

    Every enabled binding that matches gives its jobs; or name a space, and no binding is needed.
    """
    with known_version(body.extraction_version):
        run = await user.memory.run_extraction_for_conversation(**body.arguments())
    return answer(ExtractionRunWire.of(replace(run, jobs=tuple(map(shown, run.jobs)))), 202)


@router.post("/extractions/wait", response_model=ExtractionWaited, responses=problems(), openapi_extra=UNKEPT)
async def wait_for_extraction(request: Request, user: UserIs, body: WaitForExtraction) -> Response:
    """Wait until the user's conversations that were closed have become memories, or for so long."""
    done = await while_awaited(request, user.memory.wait_for_extraction(body.timeout))
    return answer(ExtractionWaited(done=done))


@router.get("/jobs", response_model=Page[JobWire], responses=problems())
async def list_jobs(
    caller: CallerIs,
    status: JobStatus | None = None,
    conversation_id: Annotated[str | None, Query(alias="conversationId", max_length=200)] = None,
    limit: LimitIs = None,
    cursor: CursorIs = None,
) -> Response:
    """The user's jobs, the newest first."""
    most, scope = page_limit(caller, limit), caller.user.scope
    found = await caller.home.rc.jobs.list(
        status,
        conversation_id=checks.optional_text("conversationId", conversation_id, checks.KEY_LENGTH),
        limit=most + 1,
        before=checks.optional_text("cursor", read_cursor(cursor), checks.KEY_LENGTH),
        user_id=scope.user_id,
        tenant_id=scope.tenant_id,
        app_id=scope.app_id,
    )
    return page(JobWire, [shown(job) for job in found], most, lambda job: str(job.id))


@router.get("/jobs/{id}", response_model=JobWire, responses=problems(404))
async def get_job(caller: CallerIs, id: JobIs) -> Response:
    """A job of the user, as it stands now."""
    return answer(JobWire.of(shown(await own_job(caller, id))))


@router.post("/jobs/{id}/retry", response_model=JobWire, responses=problems(404))
async def retry_job(caller: CallerIs, id: JobIs) -> Response:
    """Queue a job of the user that failed, was cancelled or is done again, as if it were new."""
    await own_job(caller, id)
    return answer(JobWire.of(shown(await caller.home.rc.jobs.retry(id))))


@router.post("/jobs/{id}/cancel", response_model=JobWire, responses=problems(404))
async def cancel_job(caller: CallerIs, id: JobIs) -> Response:
    """End a job of the user that has not ended yet."""
    await own_job(caller, id)
    return answer(JobWire.of(shown(await caller.home.rc.jobs.cancel(id))))


def shown(job: Job) -> Job:
    """A job as its user may see it: why it failed, but not what a provider or the store said. Admins see that."""
    return replace(job, error=told_of(job.error))


async def own_job(caller: Caller, id: str) -> Job:
    """A job of the user; another's is as good as unknown."""
    found = await caller.home.rc.jobs.get(checks.known_id("job", id))
    if found is None or found.scope != caller.user.scope:
        raise NotFoundError("job", id)
    return found
