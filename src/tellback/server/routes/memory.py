"""`/ai-memory` and `/ai-working-context`: what memory operations check, who may bind whose conversations, and jobs."""

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
"""How many messages one request may cite: each is looked up."""


@check("add_atom", "add_atoms", "supersede_atom")
async def validate_sources(call: Call) -> None:
    """Refuse atoms that cite a conversation or a message which is not the user's, or not of that conversation."""
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
        raise InvalidArgumentError(f"{len(messages)} messages are cited; {MAX_CITED} in one request is the limit.")
    for id in conversations:
        if await user.conversations.get(id) is None:
            raise NotFoundError("conversation", id)
    for id, sources in messages.items():
        message = await user.conversations.message(id)
        if message is None or sources - {None, message.conversation_id}:
            raise NotFoundError("message", id)


@check("remember_conversation")
async def require_space(call: Call) -> None:
    """Refuse a space that is not there, also if nothing is added to it."""
    space_id = call.arguments["space_id"]
    if await call.caller.user.memory.get_space(space_id) is None:
        raise NotFoundError("space", space_id)


@handle("search_entities")
async def search_entities(call: Call) -> Response:
    """All entities or, with a query, those that match; ranked ones have their place in the list as their cursor."""
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
    """A conversation that is yet to begin has no id."""
    call.arguments.setdefault("conversation_id", None)


@check("create_binding")
async def require_own_scopes(call: Call) -> None:
    """Refuse a user's own credential to bind conversations of others."""
    scopes = call.arguments["conversation_scope"]
    _require_own_users(
        call.caller, [each.get("user_id", ANY) for each in ([scopes] if isinstance(scopes, dict) else scopes)]
    )


@check("update_binding", "delete_binding")
async def require_own_binding(call: Call) -> None:
    """Refuse a binding that another user made."""
    caller, id = call.caller, call.arguments["id"]
    found = await caller.user.memory.get_binding(id)
    if found is None or found.created_by != caller.user.scope.user_id:
        raise NotFoundError("binding", id)
    _require_own_users(caller, [scope.user_id for scope in found.conversation_scope])


def _require_own_users(caller: Caller, user_ids: Iterable[str]) -> None:
    own = caller.user.scope.user_id
    if caller.principal.role == "user" and any(user_id != own for user_id in user_ids):
        raise NotAllowedError(
            f"This credential may bind conversations of its own user only: say userId {own!r} in conversationScope."
        )


@handle("create_binding", "update_binding", "update_anyones_binding", "run_extraction")
async def reject_unknown_version(call: Call) -> Any:
    """A version of the prompt that a client names and nobody has written is the client's mistake, not the server's."""
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
    """The error for a version of the prompt that there is not."""
    return InvalidArgumentError(f"This server has no extraction prompt of version {version!r:.80}.")


@handle("list_jobs", "get_job", "retry_job", "cancel_job")
async def show_own_jobs(call: Call) -> Any:
    """Jobs of the user, without what is for admins."""
    return show_jobs(await call.run())


def show_jobs(value: Any) -> Any:
    """Jobs, or a run of them, as their user may see them; other values as they are."""
    if isinstance(value, Job):
        return public_job(value)
    if isinstance(value, ExtractionRun):
        return replace(value, jobs=tuple(map(public_job, value.jobs)))
    return [public_job(each) for each in value] if isinstance(value, list) else value


def public_job(job: Job) -> Job:
    """A job as its user may see it: why it failed, but not what a provider or the store said. Admins see that."""
    return replace(job, error=public_job_error(job.error))


@check("list_everyones_jobs")
async def validate_filters(call: Call) -> None:
    """Refuse what no database can look for."""
    for name in ("conversation_id", "user_id"):
        validation.validate_optional_text(name, call.arguments[name], validation.NAME_LENGTH)


async def get_own_job(caller: Caller, id: str) -> Job:
    """A job of the user; another's is as good as unknown."""
    found = await caller.user.memory.get_job(id)
    if found is None:
        raise NotFoundError("job", id)
    return found
