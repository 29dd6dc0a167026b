"""`/ai-admin`, for whoever runs an app: jobs and bindings of all its users, and work on all their conversations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.server.answers import (
    CursorIs,
    LimitIs,
    answer,
    nothing,
    page,
    page_limit,
    page_of_all,
    problems,
    read_cursor,
    write_cursor,
)
from tellback.server.callers import AdminIs, Caller
from tellback.server.idempotency import UNKEPT
from tellback.server.route import Route
from tellback.server.routes.bindings import BindingIs, known_version, version_of
from tellback.server.routes.jobs import JobIs
from tellback.types.bindings import Binding
from tellback.types.jobs import Job, JobStatus
from tellback.types.scope import Scope
from tellback.wire.admin import CloseEveryonesStale, ReplayConversations, Replayed, StaleClosed
from tellback.wire.base import Page
from tellback.wire.bindings import BindingWire, UpdateBinding
from tellback.wire.jobs import JobWire

router = APIRouter(prefix="/ai-admin", tags=["admin"], route_class=Route)


@router.get("/jobs", response_model=Page[JobWire], responses=problems())
async def list_everyones_jobs(
    admin: AdminIs,
    status: JobStatus | None = None,
    conversation_id: Annotated[str | None, Query(alias="conversationId", max_length=200)] = None,
    user_id: Annotated[str | None, Query(alias="userId", max_length=200)] = None,
    limit: LimitIs = None,
    cursor: CursorIs = None,
) -> Response:
    """Jobs of all users of the app, or of one, the newest first."""
    most = page_limit(admin, limit)
    found = await admin.home.rc.jobs.list(
        status,
        conversation_id=checks.optional_text("conversationId", conversation_id, checks.NAME_LENGTH),
        user_id=checks.optional_text("userId", user_id, checks.NAME_LENGTH),
        limit=most + 1,
        before=_place(cursor),
        tenant_id=admin.principal.tenant_id,
        app_id=admin.principal.app_id,
    )
    return page(JobWire, found, most, lambda each: str(each.id))


@router.get("/jobs/{id}", response_model=JobWire, responses=problems(404))
async def get_anyones_job(admin: AdminIs, id: JobIs) -> Response:
    """A job of any user of the app."""
    return answer(JobWire.of(await _job(admin, id)))


@router.post("/jobs/{id}/retry", response_model=JobWire, responses=problems(404), openapi_extra=UNKEPT)
async def retry_anyones_job(admin: AdminIs, id: JobIs) -> Response:
    """Queue a job that is over again, as if it were new."""
    job = await _job(admin, id)
    return answer(JobWire.of(await admin.home.rc.jobs.retry(job.id)))


@router.post("/jobs/{id}/cancel", response_model=JobWire, responses=problems(404), openapi_extra=UNKEPT)
async def cancel_anyones_job(admin: AdminIs, id: JobIs) -> Response:
    """End a job that has not ended yet."""
    job = await _job(admin, id)
    return answer(JobWire.of(await admin.home.rc.jobs.cancel(job.id)))


@router.get("/bindings", response_model=Page[BindingWire], responses=problems())
async def list_everyones_bindings(admin: AdminIs, limit: LimitIs = None, cursor: CursorIs = None) -> Response:
    """The bindings of the app, whoever made them, the oldest first."""
    found = await admin.home.rc.bindings.list(admin.principal.tenant_id, admin.principal.app_id)
    return page_of_all(BindingWire, found, page_limit(admin, limit), read_cursor(cursor))


@router.get("/bindings/{id}", response_model=BindingWire, responses=problems(404))
async def get_anyones_binding(admin: AdminIs, id: BindingIs) -> Response:
    """A binding of the app."""
    return answer(BindingWire.of(await _binding(admin, id)))


@router.patch("/bindings/{id}", response_model=BindingWire, responses=problems(404), openapi_extra=UNKEPT)
async def update_anyones_binding(admin: AdminIs, id: BindingIs, body: UpdateBinding) -> Response:
    """Change when a binding extracts, or pause it."""
    binding = await _binding(admin, id)
    with known_version(version_of(body)):
        changed = await admin.home.rc.bindings.update(binding.id, **body.arguments())
    return answer(BindingWire.of(changed))


@router.delete(
    "/bindings/{id}", status_code=204, response_class=Response, responses=problems(404), openapi_extra=UNKEPT
)
async def delete_anyones_binding(admin: AdminIs, id: BindingIs) -> Response:
    """End a binding; memories it made stay."""
    binding = await _binding(admin, id)
    await admin.home.rc.bindings.delete(binding.id)
    return nothing()


@router.post("/close-stale", response_model=StaleClosed, responses=problems(), openapi_extra=UNKEPT)
async def close_everyones_stale(admin: AdminIs, body: CloseEveryonesStale) -> Response:
    """Close the app's conversations in which nothing happened for so long. Ask again while there is a `nextCursor`."""
    found, following = await _conversations(admin, None, body.cursor, body.limit)
    closed: list[str] = []
    for user_id in dict.fromkeys(scope.user_id for scope, _ in found):
        closed += [each.id for each in await admin.user_of(user_id).conversations.close_stale(body.older_than)]
    return answer(StaleClosed(conversation_ids=closed, next_cursor=following))


@router.post("/replay", status_code=202, response_model=Replayed, responses=problems(), openapi_extra=UNKEPT)
async def replay_conversations(admin: AdminIs, body: ReplayConversations) -> Response:
    """Queue the app's conversations to be extracted again. Ask again while there is a `nextCursor`."""
    found, following = await _conversations(
        admin, checks.optional_text("namespace", body.namespace, checks.NAME_LENGTH), body.cursor, body.limit
    )
    jobs = skipped = 0
    for scope, id in found:
        try:
            memory = admin.user_of(scope.user_id).memory
            with known_version(body.extraction_version):
                jobs += len(await memory.run_extraction_for_conversation(id, body.extraction_version))
        except NotFoundError:  # no binding, or erased meanwhile
            skipped += 1
    return answer(Replayed(conversations=len(found), jobs=jobs, skipped=skipped, next_cursor=following), 202)


async def _conversations(
    admin: Caller, namespace: str | None, cursor: str | None, limit: int
) -> tuple[list[tuple[Scope, str]], str | None]:
    """Conversations of all users of the app, and the cursor of the next ones."""
    found = await admin.home.rc.store.conversations.everyones(
        tenant_id=admin.principal.tenant_id,
        app_id=admin.principal.app_id,
        user_id=None,
        namespace=namespace,
        after=_place(cursor) or "",
        limit=limit + 1,
    )
    shown = found[:limit]
    return shown, write_cursor(shown[-1][1]) if len(found) > limit else None


def _place(cursor: str | None) -> str | None:
    place = read_cursor(cursor)
    if place is not None and not checks.is_id(place):
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.")
    return place


async def _job(admin: Caller, id: str) -> Job:
    found = await admin.home.rc.jobs.get(checks.known_id("job", id))
    if found is None or not _is_here(admin, found):
        raise NotFoundError("job", id)
    return found


async def _binding(admin: Caller, id: str) -> Binding:
    found = await admin.home.rc.bindings.get(id)
    if found is None or not _is_here(admin, found):
        raise NotFoundError("binding", id)
    return found


def _is_here(admin: Caller, found: Job | Binding) -> bool:
    return (found.tenant_id, found.app_id) == (admin.principal.tenant_id, admin.principal.app_id)
