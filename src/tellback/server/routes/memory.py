"""`/ai-memory` and `/ai-working-context`: checks of memory operations and bindings, and the view of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fastapi import Response

from tellback import validation
from tellback.errors import ConfigurationError, InvalidArgumentError, NotAllowedError, NotFoundError
from tellback.server.auth import Caller
from tellback.server.problems import public_job_error
from tellback.server.responses import invalid_cursor_error, parse_position
from tellback.server.routes.endpoint import Call, check, handle
from tellback.types.jobs import ANY, ExtractionPolicy, ExtractionRun, Job

MAX_OFFSET = 10**9 - 1
MAX_CITED = 1_000
"""Limit on the messages that one request may cite; each needs a query."""


@check("add_atom", "add_atoms", "supersede_atom")
async def validate_sources(call: Call) -> None:
    """Raise for atoms that cite a conversation or message of another user, or a message of another conversation."""
    user = call.caller.user
    conversations: set[str] = set()
    messages: dict[str, set[str | None]] = {}
    for atom in call.arguments.get("atoms", [call.arguments]):
        source = atom.get("source_conversation_id")
        if source is not None:
            conversations.add(source)
        for id in atom.get("source_message_ids") or ():
            messages.setdefault(id, set()).add(source)
    if len(messages) > MAX_CITED:
        raise InvalidArgumentError(f"{len(messages)} messages are cited; at most {MAX_CITED} are allowed per request.")
    for id in conversations:
        if await user.conversations.get(id) is None:
            raise NotFoundError("conversation", id)
    for id, sources in messages.items():
        message = await user.conversations.message(id)
        if message is None or sources - {None, message.conversation_id}:
            raise NotFoundError("message", id)


@check("remember_conversation")
async def require_space(call: Call) -> None:
    """Raise if the space does not exist, even if nothing would be added to it."""
    space_id = call.arguments["space_id"]
    if await call.caller.user.memory.get_space(space_id) is None:
        raise NotFoundError("space", space_id)


@handle("search_entities")
async def search_entities(call: Call) -> Response:
    """List all entities, or search them with a query. Search results use their offset as cursor."""
    memory, arguments, size = call.caller.user.memory, call.arguments, call.page_size
    if arguments["query"] is None:
        after = validation.validate_optional_text("cursor", call.position, validation.KEY_LENGTH)
        return call.page(await memory.list_entities(arguments["space_id"], arguments["type"], size + 1, after=after))
    offset = parse_position(call.position) or 0
    if offset > MAX_OFFSET:
        raise invalid_cursor_error()
    ranked = await memory.search_entities(**arguments, limit=offset + size + 1)
    return call.page(ranked[offset:], str(offset + size))


@check("build_working_context")
async def allow_no_conversation(call: Call) -> None:
    """Allow a missing conversation id, for a conversation that has not started."""
    call.arguments.setdefault("conversation_id", None)


@check("create_binding")
async def require_own_scopes(call: Call) -> None:
    """Raise if a user's credential would bind conversations of other users."""
    scopes = call.arguments["conversation_scope"]
    _require_own_users(
        call.caller, [each.get("user_id", ANY) for each in ([scopes] if isinstance(scopes, dict) else scopes)]
    )


@check("update_binding", "delete_binding")
async def require_own_binding(call: Call) -> None:
    """Raise if another user created the binding."""
    caller, id = call.caller, call.arguments["id"]
    found = await caller.user.memory.get_binding(id)
    if found is None or found.created_by != caller.user.scope.user_id:
        raise NotFoundError("binding", id)
    _require_own_users(caller, [scope.user_id for scope in found.conversation_scope])


def _require_own_users(caller: Caller, user_ids: Iterable[str]) -> None:
    own = caller.user.scope.user_id
    if caller.principal.role == "user" and any(user_id != own for user_id in user_ids):
        raise NotAllowedError(
            f"This credential may only bind conversations of its own user: set userId {own!r} in conversationScope."
        )


@handle("create_binding", "update_binding", "update_anyones_binding", "run_extraction")
async def reject_unknown_version(call: Call) -> Any:
    """Raise `InvalidArgumentError` for an unknown prompt version, which is the client's mistake."""
    policy, version = call.arguments.get("extraction_policy"), call.arguments.get("extraction_version")
    if policy is not None:
        version = policy.get("extraction_version", ExtractionPolicy().extraction_version)
    try:
        return show_jobs(await call.run())
    except ConfigurationError as error:
        if version is None:
            raise
        raise unknown_version_error(version) from error


def unknown_version_error(version: str) -> InvalidArgumentError:
    """Return the error for an unknown prompt version."""
    return InvalidArgumentError(f"This server has no extraction prompt of version {version!r:.80}.")


@handle("list_jobs", "get_job", "retry_job", "cancel_job")
async def show_own_jobs(call: Call) -> Any:
    """Return the user's jobs, without the details that only admins may see."""
    return show_jobs(await call.run())


def show_jobs(value: Any) -> Any:
    """Hide the details of jobs that only admins may see; return other values unchanged."""
    if isinstance(value, Job):
        return public_job(value)
    if isinstance(value, ExtractionRun):
        return replace(value, jobs=tuple(map(public_job, value.jobs)))
    return [public_job(each) for each in value] if isinstance(value, list) else value


def public_job(job: Job) -> Job:
    """Hide a job's internal error text (of a provider or the store), which only admins may see."""
    return replace(job, error=public_job_error(job.error))


@check("list_everyones_jobs")
async def validate_filters(call: Call) -> None:
    """Raise for filters that are too long or contain characters that no database can store."""
    for name in ("conversation_id", "user_id"):
        validation.validate_optional_text(name, call.arguments[name], validation.NAME_LENGTH)


async def get_own_job(caller: Caller, id: str) -> Job:
    """Return a job of the user, or raise `NotFoundError`."""
    found = await caller.user.memory.get_job(id)
    if found is None:
        raise NotFoundError("job", id)
    return found
