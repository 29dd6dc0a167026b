"""`/ai-admin`: export, erasure, usage, API keys, and the jobs, bindings and conversations of all users of an app."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response

from tellback import validation
from tellback.errors import InvalidArgumentError, NotAllowedError, NotFoundError, StoreFullError
from tellback.server.auth import AdminDep, Caller, CallerDep, Principal
from tellback.server.idempotency import NOT_STORED
from tellback.server.requests import StrictRoute
from tellback.server.responses import (
    CursorParam,
    FileDownload,
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
from tellback.server.routes.extraction import BindingIdPath, JobIdPath, reject_unknown_version, requested_version
from tellback.types.access import ApiKey, Scope
from tellback.types.jobs import Binding, Job, JobStatus
from tellback.user import User
from tellback.wire.admin import (
    CloseEveryonesStale,
    CreateKey,
    DeleteUserData,
    ReplayConversations,
    Replayed,
    StaleClosed,
)
from tellback.wire.base import DatetimeIn, Page
from tellback.wire.extraction import UpdateBinding
from tellback.wire.values import (
    ApiKeyWire,
    BindingWire,
    ErasedWire,
    JobWire,
    NewApiKeyWire,
    UsageRecordWire,
    UsageTotalWire,
)

router = APIRouter(prefix="/ai-admin", tags=["admin"], route_class=StrictRoute)
keys_router = APIRouter(prefix="/ai-admin/keys", tags=["admin"], route_class=StrictRoute)

UserIdParam = Annotated[
    str | None, Query(alias="userId", max_length=200, description="Another user's: that needs the role 'admin'.")
]
SinceParam = Annotated[DatetimeIn | None, Query(description="From this moment on.")]
UntilParam = Annotated[DatetimeIn | None, Query(description="Before this moment.")]
ApiKeyIdPath = Annotated[str, Path(max_length=200, examples=["key_018f3c0de0a17b2c4d5e6f708192"])]
EveryoneParam = Annotated[bool, Query(description="Of all users of the app: that needs the role 'admin'.")]

_EXPORT_MEDIA_TYPES = {"json": "application/json", "zip": "application/zip"}
_EXPORT_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One JSON object, or a zip with a JSON-lines file for each collection and a manifest.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.get("/export", response_class=Response, responses={**problem_responses(507), **_EXPORT_RESPONSE})
async def export_user_data(
    caller: CallerDep,
    user_id: UserIdParam = None,
    format: Literal["json", "zip"] = "json",
    include_vectors: Annotated[bool, Query(alias="includeVectors")] = False,
) -> Response:
    """All that is kept of a user. Its fields are named as in the store."""
    return await export_response(caller, _resolve_user(caller, user_id), format, include_vectors=include_vectors)


@router.post("/delete", response_model=ErasedWire, responses=problem_responses(507), openapi_extra=NOT_STORED)
async def delete_user_data(caller: CallerDep, body: DeleteUserData) -> Response:
    """Delete all that is kept of a user, for good. Deleting again is harmless."""
    erased = await _resolve_user(caller, body.user_id).admin.delete_user_data(confirm=body.confirm)
    return json_response(ErasedWire.from_value(erased))


@router.get("/usage", response_model=Page[UsageRecordWire], responses=problem_responses())
async def get_usage(
    caller: CallerDep,
    user_id: UserIdParam = None,
    everyone: EveryoneParam = False,
    since: SinceParam = None,
    until: UntilParam = None,
    job_id: Annotated[str | None, Query(alias="jobId", max_length=200)] = None,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """What model calls for memory cost, call by call and the newest first."""
    page_size, before = (
        resolve_page_size(caller, limit),
        validation.validate_optional_text("cursor", decode_cursor(cursor), validation.KEY_LENGTH),
    )
    filters: dict[str, Any] = {"job_id": job_id, "limit": page_size + 1, "before": before}
    if everyone:
        found = await caller.server.rc.usage(since, until, **{**filters, **_app_filters(caller, user_id)})
    else:
        found = await _resolve_user(caller, user_id).admin.usage(since, until, **filters)
    return page_response(UsageRecordWire, found, page_size, lambda each: str(each.id))


@router.get("/usage/totals", response_model=Page[UsageTotalWire], responses=problem_responses())
async def get_usage_totals(
    caller: CallerDep,
    user_id: UserIdParam = None,
    everyone: EveryoneParam = False,
    since: SinceParam = None,
    until: UntilParam = None,
) -> Response:
    """What model calls for memory cost, added up by user, purpose and model."""
    if everyone:
        found = await caller.server.rc.usage_totals(since, until, **_app_filters(caller, user_id))
    else:
        found = await _resolve_user(caller, user_id).admin.usage_totals(since, until)
    return json_response(Page[Any](items=[UsageTotalWire.from_value(each) for each in found]))


async def export_response(
    caller: Caller, user: User, format: Literal["json", "zip"], *, include_vectors: bool = False
) -> Response:
    """An export as a download, of any size."""
    file = await asyncio.to_thread(tempfile.TemporaryFile)
    try:
        await user.admin.export_user_data(to=file, format=format, include_vectors=include_vectors)
        size = await asyncio.to_thread(file.seek, 0, os.SEEK_END)
        await asyncio.to_thread(file.seek, 0)
    except BaseException as error:
        file.close()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise StoreFullError("There is no room for the export: free some where temporary files are.") from error
        raise
    return FileDownload(
        file, size, f"export.{format}", _EXPORT_MEDIA_TYPES[format], caller.server.settings.stalled_seconds
    )


def _resolve_user(caller: Caller, user_id: str | None) -> User:
    """The user it is about: the caller's own, or another one if the caller is an admin."""
    if user_id is None or user_id == caller.user_id:
        return caller.user
    caller.require_admin()
    return caller.user_handle(user_id)


def _app_filters(caller: Caller, user_id: str | None) -> dict[str, str]:
    caller.require_admin()
    if user_id is not None:
        raise InvalidArgumentError("everyone is for all users: leave out userId, or everyone.")
    return {"tenant_id": caller.principal.tenant_id, "app_id": caller.principal.app_id}


@router.get("/jobs", response_model=Page[JobWire], responses=problem_responses())
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
        conversation_id=validation.validate_optional_text("conversationId", conversation_id, validation.NAME_LENGTH),
        user_id=validation.validate_optional_text("userId", user_id, validation.NAME_LENGTH),
        limit=page_size + 1,
        before=_parse_id_cursor(cursor),
        tenant_id=admin.principal.tenant_id,
        app_id=admin.principal.app_id,
    )
    return page_response(JobWire, found, page_size, lambda each: str(each.id))


@router.get("/jobs/{id}", response_model=JobWire, responses=problem_responses(404))
async def get_anyones_job(admin: AdminDep, id: JobIdPath) -> Response:
    """A job of any user of the app."""
    return json_response(JobWire.from_value(await _get_job(admin, id)))


@router.post("/jobs/{id}/retry", response_model=JobWire, responses=problem_responses(404), openapi_extra=NOT_STORED)
async def retry_anyones_job(admin: AdminDep, id: JobIdPath) -> Response:
    """Queue a job that is over again, as if it were new."""
    job = await _get_job(admin, id)
    return json_response(JobWire.from_value(await admin.server.rc.jobs.retry(job.id)))


@router.post("/jobs/{id}/cancel", response_model=JobWire, responses=problem_responses(404), openapi_extra=NOT_STORED)
async def cancel_anyones_job(admin: AdminDep, id: JobIdPath) -> Response:
    """End a job that has not ended yet."""
    job = await _get_job(admin, id)
    return json_response(JobWire.from_value(await admin.server.rc.jobs.cancel(job.id)))


@router.get("/bindings", response_model=Page[BindingWire], responses=problem_responses())
async def list_everyones_bindings(admin: AdminDep, limit: LimitParam = None, cursor: CursorParam = None) -> Response:
    """The bindings of the app, whoever made them, the oldest first."""
    found = await admin.server.rc.bindings.list(admin.principal.tenant_id, admin.principal.app_id)
    return list_page_response(BindingWire, found, resolve_page_size(admin, limit), decode_cursor(cursor))


@router.get("/bindings/{id}", response_model=BindingWire, responses=problem_responses(404))
async def get_anyones_binding(admin: AdminDep, id: BindingIdPath) -> Response:
    """A binding of the app."""
    return json_response(BindingWire.from_value(await _get_binding(admin, id)))


@router.patch("/bindings/{id}", response_model=BindingWire, responses=problem_responses(404), openapi_extra=NOT_STORED)
async def update_anyones_binding(admin: AdminDep, id: BindingIdPath, body: UpdateBinding) -> Response:
    """Change when a binding extracts, or pause it."""
    binding = await _get_binding(admin, id)
    with reject_unknown_version(requested_version(body)):
        changed = await admin.server.rc.bindings.update(binding.id, **body.arguments())
    return json_response(BindingWire.from_value(changed))


@router.delete(
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


@router.post("/close-stale", response_model=StaleClosed, responses=problem_responses(), openapi_extra=NOT_STORED)
async def close_everyones_stale(admin: AdminDep, body: CloseEveryonesStale) -> Response:
    """Close the app's conversations in which nothing happened for so long. Ask again while there is a `nextCursor`."""
    found, next_cursor = await _list_conversations(admin, None, body.cursor, body.limit)
    closed: list[str] = []
    for user_id in dict.fromkeys(scope.user_id for scope, _ in found):
        closed += [each.id for each in await admin.user_handle(user_id).conversations.close_stale(body.older_than)]
    return json_response(StaleClosed(conversation_ids=closed, next_cursor=next_cursor))


@router.post(
    "/replay", status_code=202, response_model=Replayed, responses=problem_responses(), openapi_extra=NOT_STORED
)
async def replay_conversations(admin: AdminDep, body: ReplayConversations) -> Response:
    """Queue the app's conversations to be extracted again. Ask again while there is a `nextCursor`."""
    found, next_cursor = await _list_conversations(
        admin,
        validation.validate_optional_text("namespace", body.namespace, validation.NAME_LENGTH),
        body.cursor,
        body.limit,
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
    if position is not None and not validation.is_valid_id(position):
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.")
    return position


async def _get_job(admin: Caller, id: str) -> Job:
    found = await admin.server.rc.jobs.get(validation.validate_id("job", id))
    if found is None or not _is_in_app(admin, found):
        raise NotFoundError("job", id)
    return found


async def _get_binding(admin: Caller, id: str) -> Binding:
    found = await admin.server.rc.bindings.get(id)
    if found is None or not _is_in_app(admin, found):
        raise NotFoundError("binding", id)
    return found


def _is_in_app(admin: Caller, found: Job | Binding | ApiKey) -> bool:
    return (found.tenant_id, found.app_id) == (admin.principal.tenant_id, admin.principal.app_id)


# Its answer is not kept for a retry: nobody can show a secret again.
@keys_router.post(
    "", status_code=201, response_model=NewApiKeyWire, responses=problem_responses(), openapi_extra=NOT_STORED
)
async def create_key(admin: AdminDep, body: CreateKey) -> Response:
    """Make an API key for your tenant and app. Its secret is in the answer, and nowhere else.

    A credential that ends, or has a limit of its own, makes keys that end with it, and have its limit at most.
    """
    principal = admin.principal
    arguments = _limit_new_key(principal, body.arguments())
    created = await admin.server.rc.keys.create(**arguments, tenant_id=principal.tenant_id, app_id=principal.app_id)
    return json_response(NewApiKeyWire.from_value(created), 201, {"Cache-Control": "no-store"})


@keys_router.get("", response_model=Page[ApiKeyWire], responses=problem_responses())
async def list_keys(admin: AdminDep, limit: LimitParam = None, cursor: CursorParam = None) -> Response:
    """The keys of your tenant and app, also revoked and expired ones, the oldest first."""
    found = await admin.server.rc.keys.list(admin.principal.tenant_id, admin.principal.app_id)
    return list_page_response(ApiKeyWire, found, resolve_page_size(admin, limit), decode_cursor(cursor))


@keys_router.get("/{id}", response_model=ApiKeyWire, responses=problem_responses(404))
async def get_key(admin: AdminDep, id: ApiKeyIdPath) -> Response:
    """A key of your tenant and app."""
    found = await admin.server.rc.keys.get(id)
    if found is None or not _is_in_app(admin, found):
        raise NotFoundError("API key", id)
    return json_response(ApiKeyWire.from_value(found))


@keys_router.delete("/{id}", response_model=ApiKeyWire, responses=problem_responses(404), openapi_extra=NOT_STORED)
async def revoke_key(admin: AdminDep, id: ApiKeyIdPath) -> Response:
    """End a key for good. It stays in the list, with the moment it was revoked."""
    principal = admin.principal
    revoked = await admin.server.rc.keys.revoke(id, tenant_id=principal.tenant_id, app_id=principal.app_id)
    return json_response(ApiKeyWire.from_value(revoked))


def _limit_new_key(principal: Principal, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a new key is made of: no more than the one it is made with may do, nor for longer."""
    limit, end = arguments.get("rate_limit"), arguments.get("expires_at")
    if principal.rate_limit is not None and limit is not None and limit > principal.rate_limit:
        raise NotAllowedError(f"rateLimit is at most {principal.rate_limit} here: your own credential has no more.")
    if principal.expires_at is not None and end is not None and end > principal.expires_at:
        raise NotAllowedError(
            f"expiresAt is at most {principal.expires_at.isoformat()} here: your own credential ends then."
        )
    return {
        **arguments,
        "rate_limit": principal.rate_limit if limit is None else limit,
        "expires_at": principal.expires_at if end is None else end,
    }
