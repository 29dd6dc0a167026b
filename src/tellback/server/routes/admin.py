"""`/ai-admin`: all that is kept of a user, handed out, erased, or counted."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, StoreFullError
from tellback.server.answers import (
    CursorParam,
    LimitParam,
    decode_cursor,
    json_response,
    page_response,
    problem_responses,
    resolve_page_size,
)
from tellback.server.callers import Caller, CallerDep
from tellback.server.files import FileDownload
from tellback.server.idempotency import NOT_STORED
from tellback.server.route import StrictRoute
from tellback.user import User
from tellback.wire.admin import DeleteUserData, ErasedWire, UsageRecordWire, UsageTotalWire
from tellback.wire.base import Page
from tellback.wire.bounds import DatetimeIn

user_data_router = APIRouter(prefix="/ai-admin", tags=["admin"], route_class=StrictRoute)

UserIdParam = Annotated[
    str | None, Query(alias="userId", max_length=200, description="Another user's: that needs the role 'admin'.")
]
SinceParam = Annotated[DatetimeIn | None, Query(description="From this moment on.")]
UntilParam = Annotated[DatetimeIn | None, Query(description="Before this moment.")]
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


@user_data_router.get("/export", response_class=Response, responses={**problem_responses(507), **_EXPORT_RESPONSE})
async def export_user_data(
    caller: CallerDep,
    user_id: UserIdParam = None,
    format: Literal["json", "zip"] = "json",
    include_vectors: Annotated[bool, Query(alias="includeVectors")] = False,
) -> Response:
    """All that is kept of a user. Its fields are named as in the store."""
    return await export_response(caller, _resolve_user(caller, user_id), format, include_vectors=include_vectors)


@user_data_router.post("/delete", response_model=ErasedWire, responses=problem_responses(507), openapi_extra=NOT_STORED)
async def delete_user_data(caller: CallerDep, body: DeleteUserData) -> Response:
    """Delete all that is kept of a user, for good. Deleting again is harmless."""
    erased = await _resolve_user(caller, body.user_id).admin.delete_user_data(confirm=body.confirm)
    return json_response(ErasedWire.of(erased))


@user_data_router.get("/usage", response_model=Page[UsageRecordWire], responses=problem_responses())
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
        checks.validate_optional_text("cursor", decode_cursor(cursor), checks.KEY_LENGTH),
    )
    filters: dict[str, Any] = {"job_id": job_id, "limit": page_size + 1, "before": before}
    if everyone:
        found = await caller.server.rc.usage(since, until, **{**filters, **_app_filters(caller, user_id)})
    else:
        found = await _resolve_user(caller, user_id).admin.usage(since, until, **filters)
    return page_response(UsageRecordWire, found, page_size, lambda each: str(each.id))


@user_data_router.get("/usage/totals", response_model=Page[UsageTotalWire], responses=problem_responses())
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
    return json_response(Page[Any](items=[UsageTotalWire.of(each) for each in found]))


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
