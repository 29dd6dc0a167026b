"""`/ai-admin`, for whoever runs an app: jobs and bindings of all its users, and work on all their conversations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.server.answers import (
    CursorParam,
    LimitParam,
    decode_cursor,
    encode_cursor,
    json_response,
    list_page_response,
    no_content,
    page_response,
    problem_responses,
    resolve_page_size,
)
from tellback.server.callers import AdminDep, Caller
from tellback.server.idempotency import NOT_STORED
from tellback.server.route import StrictRoute
from tellback.server.routes.bindings import BindingIdPath, reject_unknown_version, requested_version
from tellback.server.routes.jobs import JobIdPath
from tellback.types.bindings import Binding
from tellback.types.jobs import Job, JobStatus
from tellback.types.scope import Scope
from tellback.wire.admin import CloseEveryonesStale, ReplayConversations, Replayed, StaleClosed
from tellback.wire.base import Page
from tellback.wire.bindings import BindingWire, UpdateBinding
from tellback.wire.jobs import JobWire

operators_router = APIRouter(prefix="/ai-admin", tags=["admin"], route_class=StrictRoute)


@operators_router.get("/jobs", response_model=Page[JobWire], responses=problem_responses())
async def list_everyones_jobs(
    admin: AdminDep,
    status: JobStatus | None = None,
    conversation_id: Annotated[str | None, Query(alias="conversationId", max_length=200)] = None,
    user_id: Annotated[str | None, Query(alias="userId", max_length=200)] = None,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """Jobs of all users of the app, or of one, the newest first."""
    page_size = resolve_page_size(admin, limit)
    found = await admin.server.rc.jobs.list(
        status,
        conversation_id=checks.validate_optional_text("conversationId", conversation_id, checks.NAME_LENGTH),
        user_id=checks.validate_optional_text("userId", user_id, checks.NAME_LENGTH),
        limit=page_size + 1,
        before=_parse_id_cursor(cursor),
        tenant_id=admin.principal.tenant_id,
        app_id=admin.principal.app_id,
    )
    return page_response(JobWire, found, page_size, lambda each: str(each.id))


@operators_router.get("/jobs/{id}", response_model=JobWire, responses=problem_responses(404))
async def get_anyones_job(admin: AdminDep, id: JobIdPath) -> Response:
    """A job of any user of the app."""
    return json_response(JobWire.of(await _get_job(admin, id)))


@operators_router.post(
    "/jobs/{id}/retry", response_model=JobWire, responses=problem_responses(404), openapi_extra=NOT_STORED
)
async def retry_anyones_job(admin: AdminDep, id: JobIdPath) -> Response:
    """Queue a job that is over again, as if it were new."""
    job = await _get_job(admin, id)
    return json_response(JobWire.of(await admin.server.rc.jobs.retry(job.id)))


@operators_router.post(
    "/jobs/{id}/cancel", response_model=JobWire, responses=problem_responses(404), openapi_extra=NOT_STORED
)
async def cancel_anyones_job(admin: AdminDep, id: JobIdPath) -> Response:
    """End a job that has not ended yet."""
    job = await _get_job(admin, id)
    return json_response(JobWire.of(await admin.server.rc.jobs.cancel(job.id)))


@operators_router.get("/bindings", response_model=Page[BindingWire], responses=problem_responses())
async def list_everyones_bindings(admin: AdminDep, limit: LimitParam = None, cursor: CursorParam = None) -> Response:
    """The bindings of the app, whoever made them, the oldest first."""
    found = await admin.server.rc.bindings.list(admin.principal.tenant_id, admin.principal.app_id)
    return list_page_response(BindingWire, found, resolve_page_size(admin, limit), decode_cursor(cursor))


@operators_router.get("/bindings/{id}", response_model=BindingWire, responses=problem_responses(404))
async def get_anyones_binding(admin: AdminDep, id: BindingIdPath) -> Response:
    """A binding of the app."""
    return json_response(BindingWire.of(await _get_binding(admin, id)))


@operators_router.patch(
    "/bindings/{id}", response_model=BindingWire, responses=problem_responses(404), openapi_extra=NOT_STORED
)
async def update_anyones_binding(admin: AdminDep, id: BindingIdPath, body: UpdateBinding) -> Response:
    """Change when a binding extracts, or pause it."""
    binding = await _get_binding(admin, id)
    with reject_unknown_version(requested_version(body)):
        changed = await admin.server.rc.bindings.update(binding.id, **body.arguments())
    return json_response(BindingWire.of(changed))


@operators_router.delete(
    "/bindings/{id}",
    status_code=204,
    response_class=Response,
    responses=problem_responses(404),
    openapi_extra=NOT_STORED,
)
async def delete_anyones_binding(admin: AdminDep, id: BindingIdPath) -> Response:
    """End a binding; memories it made stay."""
    binding = await _get_binding(admin, id)
    await admin.server.rc.bindings.delete(binding.id)
    return no_content()


@operators_router.post(
    "/close-stale", response_model=StaleClosed, responses=problem_responses(), openapi_extra=NOT_STORED
)
async def close_everyones_stale(admin: AdminDep, body: CloseEveryonesStale) -> Response:
    """Close the app's conversations in which nothing happened for so long. Ask again while there is a `nextCursor`."""
    found, next_cursor = await _list_conversations(admin, None, body.cursor, body.limit)
    closed: list[str] = []
    for user_id in dict.fromkeys(scope.user_id for scope, _ in found):
        closed += [each.id for each in await admin.user_handle(user_id).conversations.close_stale(body.older_than)]
    return json_response(StaleClosed(conversation_ids=closed, next_cursor=next_cursor))


@operators_router.post(
    "/replay", status_code=202, response_model=Replayed, responses=problem_responses(), openapi_extra=NOT_STORED
)
async def replay_conversations(admin: AdminDep, body: ReplayConversations) -> Response:
    """Queue the app's conversations to be extracted again. Ask again while there is a `nextCursor`."""
    found, next_cursor = await _list_conversations(
        admin, checks.validate_optional_text("namespace", body.namespace, checks.NAME_LENGTH), body.cursor, body.limit
    )
    jobs = skipped = 0
    for scope, id in found:
        try:
            memory = admin.user_handle(scope.user_id).memory
            with reject_unknown_version(body.extraction_version):
                jobs += len(await memory.run_extraction_for_conversation(id, body.extraction_version))
        except NotFoundError:  # no binding, or erased meanwhile
            skipped += 1
    return json_response(Replayed(conversations=len(found), jobs=jobs, skipped=skipped, next_cursor=next_cursor), 202)


async def _list_conversations(
    admin: Caller, namespace: str | None, cursor: str | None, limit: int
) -> tuple[list[tuple[Scope, str]], str | None]:
    """Conversations of all users of the app, and the cursor of the next ones."""
    found = await admin.server.rc.store.conversations.list_across_users(
        tenant_id=admin.principal.tenant_id,
        app_id=admin.principal.app_id,
        user_id=None,
        namespace=namespace,
        after=_parse_id_cursor(cursor) or "",
        limit=limit + 1,
    )
    page = found[:limit]
    return page, encode_cursor(page[-1][1]) if len(found) > limit else None


def _parse_id_cursor(cursor: str | None) -> str | None:
    position = decode_cursor(cursor)
    if position is not None and not checks.is_valid_id(position):
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.")
    return position


async def _get_job(admin: Caller, id: str) -> Job:
    found = await admin.server.rc.jobs.get(checks.validate_id("job", id))
    if found is None or not _is_in_app(admin, found):
        raise NotFoundError("job", id)
    return found


async def _get_binding(admin: Caller, id: str) -> Binding:
    found = await admin.server.rc.bindings.get(id)
    if found is None or not _is_in_app(admin, found):
        raise NotFoundError("binding", id)
    return found


def _is_in_app(admin: Caller, found: Job | Binding) -> bool:
    return (found.tenant_id, found.app_id) == (admin.principal.tenant_id, admin.principal.app_id)
