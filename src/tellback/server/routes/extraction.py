"""`/ai-memory/bindings`, `/extractions` and `/jobs`: which conversations become memories, and the jobs that do it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from tellback import validation
from tellback.errors import ConfigurationError, InvalidArgumentError, NotAllowedError, NotFoundError
from tellback.server.auth import Caller, CallerDep, UserDep
from tellback.server.idempotency import NOT_STORED
from tellback.server.lifecycle import cancel_on_disconnect
from tellback.server.problems import public_job_error
from tellback.server.requests import StrictRoute
from tellback.server.responses import (
    CursorParam,
    LimitParam,
    decode_cursor,
    json_response,
    list_page_response,
    no_content,
    page_response,
    problem_responses,
    resolve_page_size,
)
from tellback.types.jobs import Job, JobStatus
from tellback.wire.base import Page
from tellback.wire.extraction import CreateBinding, ExtractionWaited, RunExtraction, UpdateBinding, WaitForExtraction
from tellback.wire.values import BindingWire, ExtractionRunWire, JobWire

bindings_router = APIRouter(prefix="/ai-memory/bindings", tags=["bindings"], route_class=StrictRoute)

BindingIdPath = Annotated[str, Path(max_length=200, examples=["bind_018f3c0de0a17b2c4d5e6f708192"])]

jobs_router = APIRouter(prefix="/ai-memory", tags=["jobs"], route_class=StrictRoute)

JobIdPath = Annotated[str, Path(max_length=200, examples=["job_018f3c0de0a17b2c4d5e6f708192"])]


@bindings_router.post("", status_code=201, response_model=BindingWire, responses=problem_responses(404))
async def create_binding(caller: CallerDep, body: CreateBinding) -> Response:
    """From now on, let conversations become memories.

    Conversations of every user (`*`) or of another one need the role "app" or "admin": they go to those users' own
    spaces of the same names, made when missing.
    """
    scopes = body.conversation_scope
    _require_own_users(caller, [scope.user_id for scope in (scopes if isinstance(scopes, list) else [scopes])])
    with reject_unknown_version(requested_version(body)):
        created = await caller.user.memory.create_binding(**body.arguments())
    return json_response(BindingWire.from_value(created), 201)


@bindings_router.get("", response_model=Page[BindingWire], responses=problem_responses())
async def list_bindings(caller: CallerDep, limit: LimitParam = None, cursor: CursorParam = None) -> Response:
    """The bindings this user made, and those that are about this user's conversations."""
    found = await caller.user.memory.list_bindings()
    return list_page_response(BindingWire, found, resolve_page_size(caller, limit), decode_cursor(cursor))


@bindings_router.get("/{id}", response_model=BindingWire, responses=problem_responses(404))
async def get_binding(user: UserDep, id: BindingIdPath) -> Response:
    """A binding that this user made, or that is about this user's conversations."""
    found = await user.memory.get_binding(id)
    if found is None:
        raise NotFoundError("binding", id)
    return json_response(BindingWire.from_value(found))


@bindings_router.patch("/{id}", response_model=BindingWire, responses=problem_responses(404))
async def update_binding(caller: CallerDep, id: BindingIdPath, body: UpdateBinding) -> Response:
    """Change when a binding of this user extracts, or pause it; what it is about never changes."""
    await _require_own_binding(caller, id)
    with reject_unknown_version(requested_version(body)):
        changed = await caller.user.memory.update_binding(id, **body.arguments())
    return json_response(BindingWire.from_value(changed))


@bindings_router.delete("/{id}", status_code=204, responses=problem_responses(404))
async def delete_binding(caller: CallerDep, id: BindingIdPath) -> Response:
    """End a binding of this user, for everyone it is about; memories it made stay."""
    await _require_own_binding(caller, id)
    await caller.user.memory.delete_binding(id)
    return no_content()


@contextmanager
def reject_unknown_version(version: str | None) -> Iterator[None]:
    """A version of the prompt that a client names and nobody has written is the client's mistake, not the server's."""
    try:
        yield
    except ConfigurationError as error:
        if version is None:
            raise
        raise InvalidArgumentError(f"This server has no extraction prompt of version {version!r:.80}.") from error


def requested_version(body: CreateBinding | UpdateBinding) -> str | None:
    """The version of the prompt that a client names."""
    return None if body.extraction_policy is None else body.extraction_policy.extraction_version


def _require_own_users(caller: Caller, user_ids: Iterable[str]) -> None:
    """Refuse a user's own credential what is about others."""
    own = caller.user.scope.user_id
    if caller.principal.role == "user" and any(user_id != own for user_id in user_ids):
        raise NotAllowedError(
            f"This credential may bind conversations of its own user only: say userId {own!r} in conversationScope."
        )


async def _require_own_binding(caller: Caller, id: str) -> None:
    found = await caller.user.memory.get_binding(id)
    if found is None or found.created_by != caller.user.scope.user_id:
        raise NotFoundError("binding", id)
    _require_own_users(caller, [scope.user_id for scope in found.conversation_scope])


@jobs_router.post("/extractions", status_code=202, response_model=ExtractionRunWire, responses=problem_responses(404))
async def run_extraction(user: UserDep, body: RunExtraction) -> Response:
    """Extract a conversation now, open or closed, as often as you like: what is known already is not added again.

    Every enabled binding that matches gives its jobs; or name a space, and no binding is needed.
    """
    with reject_unknown_version(body.extraction_version):
        run = await user.memory.run_extraction_for_conversation(**body.arguments())
    return json_response(ExtractionRunWire.from_value(replace(run, jobs=tuple(map(public_job, run.jobs)))), 202)


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
        conversation_id=validation.validate_optional_text("conversationId", conversation_id, validation.KEY_LENGTH),
        limit=page_size + 1,
        before=validation.validate_optional_text("cursor", decode_cursor(cursor), validation.KEY_LENGTH),
        user_id=scope.user_id,
        tenant_id=scope.tenant_id,
        app_id=scope.app_id,
    )
    return page_response(JobWire, [public_job(job) for job in found], page_size, lambda job: str(job.id))


@jobs_router.get("/jobs/{id}", response_model=JobWire, responses=problem_responses(404))
async def get_job(caller: CallerDep, id: JobIdPath) -> Response:
    """A job of the user, as it stands now."""
    return json_response(JobWire.from_value(public_job(await get_own_job(caller, id))))


@jobs_router.post("/jobs/{id}/retry", response_model=JobWire, responses=problem_responses(404))
async def retry_job(caller: CallerDep, id: JobIdPath) -> Response:
    """Queue a job of the user that failed, was cancelled or is done again, as if it were new."""
    await get_own_job(caller, id)
    return json_response(JobWire.from_value(public_job(await caller.server.rc.jobs.retry(id))))


@jobs_router.post("/jobs/{id}/cancel", response_model=JobWire, responses=problem_responses(404))
async def cancel_job(caller: CallerDep, id: JobIdPath) -> Response:
    """End a job of the user that has not ended yet."""
    await get_own_job(caller, id)
    return json_response(JobWire.from_value(public_job(await caller.server.rc.jobs.cancel(id))))


def public_job(job: Job) -> Job:
    """A job as its user may see it: why it failed, but not what a provider or the store said. Admins see that."""
    return replace(job, error=public_job_error(job.error))


async def get_own_job(caller: Caller, id: str) -> Job:
    """A job of the user; another's is as good as unknown."""
    found = await caller.server.rc.jobs.get(validation.validate_id("job", id))
    if found is None or found.scope != caller.user.scope:
        raise NotFoundError("job", id)
    return found
