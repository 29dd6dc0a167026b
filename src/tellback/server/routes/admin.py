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
from tellback.server.answers import CursorIs, LimitIs, answer, page, page_limit, problems, read_cursor
from tellback.server.callers import Caller, CallerIs
from tellback.server.files import FileAnswer
from tellback.server.idempotency import UNKEPT
from tellback.server.route import Route
from tellback.user import User
from tellback.wire.admin import DeleteUserData, ErasedWire, UsageRecordWire, UsageTotalWire
from tellback.wire.base import Page
from tellback.wire.bounds import MomentIn

router = APIRouter(prefix="/ai-admin", tags=["admin"], route_class=Route)

UserIdIs = Annotated[
    str | None, Query(alias="userId", max_length=200, description="Another user's: that needs the role 'admin'.")
]
SinceIs = Annotated[MomentIn | None, Query(description="From this moment on.")]
UntilIs = Annotated[MomentIn | None, Query(description="Before this moment.")]
EveryoneIs = Annotated[bool, Query(description="Of all users of the app: that needs the role 'admin'.")]

_MEDIA = {"json": "application/json", "zip": "application/zip"}
_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One JSON object, or a zip with a JSON-lines file for each collection and a manifest.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.get("/export", response_class=Response, responses={**problems(507), **_EXPORT})
async def export_user_data(
    caller: CallerIs,
    user_id: UserIdIs = None,
    format: Literal["json", "zip"] = "json",
    include_vectors: Annotated[bool, Query(alias="includeVectors")] = False,
) -> Response:
    """All that is kept of a user. Its fields are named as in the store."""
    return await exported(caller, _meant(caller, user_id), format, include_vectors=include_vectors)


@router.post("/delete", response_model=ErasedWire, responses=problems(507), openapi_extra=UNKEPT)
async def delete_user_data(caller: CallerIs, body: DeleteUserData) -> Response:
    """Delete all that is kept of a user, for good. Deleting again is harmless."""
    erased = await _meant(caller, body.user_id).admin.delete_user_data(confirm=body.confirm)
    return answer(ErasedWire.of(erased))


@router.get("/usage", response_model=Page[UsageRecordWire], responses=problems())
async def get_usage(
    caller: CallerIs,
    user_id: UserIdIs = None,
    everyone: EveryoneIs = False,
    since: SinceIs = None,
    until: UntilIs = None,
    job_id: Annotated[str | None, Query(alias="jobId", max_length=200)] = None,
    limit: LimitIs = None,
    cursor: CursorIs = None,
) -> Response:
    """What model calls for memory cost, call by call and the newest first."""
    most, before = page_limit(caller, limit), checks.optional_text("cursor", read_cursor(cursor), checks.KEY_LENGTH)
    asked: dict[str, Any] = {"job_id": job_id, "limit": most + 1, "before": before}
    if everyone:
        found = await caller.home.rc.usage(since, until, **{**asked, **_of_app(caller, user_id)})
    else:
        found = await _meant(caller, user_id).admin.usage(since, until, **asked)
    return page(UsageRecordWire, found, most, lambda each: str(each.id))


@router.get("/usage/totals", response_model=Page[UsageTotalWire], responses=problems())
async def get_usage_totals(
    caller: CallerIs,
    user_id: UserIdIs = None,
    everyone: EveryoneIs = False,
    since: SinceIs = None,
    until: UntilIs = None,
) -> Response:
    """What model calls for memory cost, added up by user, purpose and model."""
    if everyone:
        found = await caller.home.rc.usage_totals(since, until, **_of_app(caller, user_id))
    else:
        found = await _meant(caller, user_id).admin.usage_totals(since, until)
    return answer(Page[Any](items=[UsageTotalWire.of(each) for each in found]))


async def exported(
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
    return FileAnswer(file, size, f"export.{format}", _MEDIA[format], caller.home.settings.stalled_seconds)


def _meant(caller: Caller, user_id: str | None) -> User:
    """The user it is about: the caller's own, or another one if the caller is an admin."""
    if user_id is None or user_id == caller.user_id:
        return caller.user
    caller.require_admin()
    return caller.user_of(user_id)


def _of_app(caller: Caller, user_id: str | None) -> dict[str, str]:
    caller.require_admin()
    if user_id is not None:
        raise InvalidArgumentError("everyone is for all users: leave out userId, or everyone.")
    return {"tenant_id": caller.principal.tenant_id, "app_id": caller.principal.app_id}
