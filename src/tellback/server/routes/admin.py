"""`/ai-admin`: export, erasure and usage of a user, API keys, and operations on all users of an app."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from typing import Any, Literal

from fastapi import Response

from tellback import validation
from tellback.errors import ConfigurationError, InvalidArgumentError, NotAllowedError, NotFoundError, StoreFullError
from tellback.server.auth import Caller
from tellback.server.responses import (
    FileDownload,
    decode_cursor,
    encode_cursor,
    invalid_cursor_error,
    json_response,
)
from tellback.server.routes.endpoint import Call, check, handle
from tellback.server.routes.memory import unknown_version_error
from tellback.types.access import Scope
from tellback.user import User
from tellback.wire.values import NewApiKeyWire, Replayed, StaleClosed

_EXPORT_MEDIA_TYPES = {"json": "application/json", "zip": "application/zip"}
_EXPORT_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A JSON object, or a zip with one JSON-lines file per collection and a manifest.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@handle("export_user_data", responses=_EXPORT_RESPONSE)
async def export_user_data(call: Call) -> Response:
    """Return a user's data as a download."""
    user = _resolve_user(call.caller, call.arguments.pop("user_id"))
    return await export_response(call.caller, user, **call.arguments)


@handle("delete_user_data")
async def delete_user_data(call: Call) -> Any:
    """Erase a user's data."""
    user = _resolve_user(call.caller, call.arguments.pop("user_id", None))
    return await user.admin.delete_user_data(**call.arguments)


@handle("get_usage", "get_usage_totals")
async def get_usage(call: Call) -> Any:
    """Return the usage of one user, or of all users of the app."""
    arguments = call.arguments
    user_id, everyone = arguments.pop("user_id"), arguments.pop("everyone")
    if not everyone:
        return await getattr(_resolve_user(call.caller, user_id).admin, call.operation.attribute)(**arguments)
    call.caller.require_admin()
    if user_id is not None:
        raise InvalidArgumentError("everyone selects all users: send either userId or everyone.")
    tenant_id, app_id = call.caller.app
    return await getattr(call.caller.server.tb, call.operation.attribute)(
        **arguments, tenant_id=tenant_id, app_id=app_id
    )


async def export_response(
    caller: Caller, user: User, format: Literal["json", "zip"], *, include_vectors: bool = False
) -> Response:
    """Return an export of any size as a download."""
    file = await asyncio.to_thread(tempfile.TemporaryFile)
    try:
        await user.admin.export_user_data(to=file, format=format, include_vectors=include_vectors)
        size = await asyncio.to_thread(file.seek, 0, os.SEEK_END)
        await asyncio.to_thread(file.seek, 0)
    except BaseException as error:
        file.close()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise StoreFullError(
                "No disk space for the export: free space in the folder for temporary files."
            ) from error
        raise
    return FileDownload(
        file, size, f"export.{format}", _EXPORT_MEDIA_TYPES[format], caller.server.settings.stalled_seconds
    )


def _resolve_user(caller: Caller, user_id: str | None) -> User:
    """Return the caller's user, or another user if the caller is an admin."""
    if user_id is None or user_id == caller.user_id:
        return caller.user
    caller.require_admin()
    return caller.user_handle(user_id)


@handle("close_everyones_stale")
async def close_everyones_stale(call: Call) -> Response:
    """Close the stale conversations of the users on one page of conversations."""
    body = call.body
    found, next_cursor = await _list_conversations(call.caller, None, body.cursor, body.limit)
    closed: list[str] = []
    for user_id in dict.fromkeys(scope.user_id for scope, _ in found):
        conversations = call.caller.user_handle(user_id).conversations
        closed += [each.id for each in await conversations.close_stale(body.older_than)]
    return json_response(StaleClosed(conversation_ids=closed, next_cursor=next_cursor))


@handle("replay_conversations")
async def replay_conversations(call: Call) -> Response:
    """Queue one page of conversations for extraction."""
    body = call.body
    namespace = validation.validate_optional_text("namespace", body.namespace, validation.NAME_LENGTH)
    found, next_cursor = await _list_conversations(call.caller, namespace, body.cursor, body.limit)
    jobs = skipped = 0
    for scope, id in found:
        memory = call.caller.user_handle(scope.user_id).memory
        try:
            jobs += len(await memory.run_extraction_for_conversation(id, body.extraction_version))
        except NotFoundError:  # no binding, or erased meanwhile
            skipped += 1
        except ConfigurationError as error:
            if body.extraction_version is None:
                raise
            raise unknown_version_error(body.extraction_version) from error
    return json_response(Replayed(conversations=len(found), jobs=jobs, skipped=skipped, next_cursor=next_cursor), 202)


async def _list_conversations(
    admin: Caller, namespace: str | None, cursor: str | None, limit: int
) -> tuple[list[tuple[Scope, str]], str | None]:
    """Return conversations of all users of the app, and the next cursor."""
    position = decode_cursor(cursor)
    if position is not None and not validation.is_valid_id(position):
        raise invalid_cursor_error()
    tenant_id, app_id = admin.app
    found = await admin.server.tb.store.conversations.list_across_users(
        tenant_id=tenant_id, app_id=app_id, user_id=None, namespace=namespace, after=position or "", limit=limit + 1
    )
    page = found[:limit]
    return page, encode_cursor(page[-1][1]) if len(found) > limit else None


@handle("create_key")
async def create_key(call: Call) -> Response:
    """Create a key. The response must not be stored, because it contains the secret."""
    created = await call.run()
    return json_response(NewApiKeyWire.from_value(created), 201, {"Cache-Control": "no-store"})


@check("create_key")
async def limit_new_key(call: Call) -> None:
    """Raise for keys with a higher rate limit or a later expiry than the caller's credential."""
    principal, arguments = call.caller.principal, call.arguments
    limit, end = arguments.get("rate_limit"), arguments.get("expires_at")
    if principal.rate_limit is not None and limit is not None and limit > principal.rate_limit:
        raise NotAllowedError(f"rateLimit must be at most {principal.rate_limit}, the limit of your own credential.")
    if principal.expires_at is not None and end is not None and end > principal.expires_at:
        raise NotAllowedError(
            f"expiresAt must not be after {principal.expires_at.isoformat()}, when your own credential expires."
        )
    arguments["rate_limit"] = principal.rate_limit if limit is None else limit
    arguments["expires_at"] = principal.expires_at if end is None else end
