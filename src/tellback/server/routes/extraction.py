"""`/ai-memory/bindings`, `/extractions` and `/jobs`: who may bind whose conversations, and what users see of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tellback import validation
from tellback.errors import ConfigurationError, InvalidArgumentError, NotAllowedError, NotFoundError
from tellback.server.auth import Caller
from tellback.server.problems import public_job_error
from tellback.server.routes.endpoint import Call, check, handle
from tellback.types.jobs import ANY, ExtractionPolicy, ExtractionRun, Job


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
