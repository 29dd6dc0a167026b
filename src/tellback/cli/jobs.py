"""`tellback jobs`: conversations on their way to becoming memories."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tellback.cli.options import (
    DEFAULT_URL,
    DEFAULT_USER,
    App,
    AsJson,
    Limit,
    Model,
    Tenant,
    Url,
    User,
    command,
    examples,
)
from tellback.cli.printing import SHORT, counted, minute, one_line, say, show_json, show_table
from tellback.cli.running import Whose, ask, opened, run
from tellback.errors import NotFoundError
from tellback.types.jobs import Job

app = typer.Typer(
    no_args_is_help=True,
    help="List, retry and run jobs: conversations on their way to becoming memories.",
    epilog=examples("tellback jobs list --user maya", "tellback jobs drain"),
)


class Status(StrEnum):
    """How far a job has come."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@command(app, "tellback jobs list --user maya --status failed", "tellback jobs list --everyone", name="list")
def list_jobs(
    status: Annotated[Status | None, typer.Option("--status", help="Those that have come so far.")] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="Those of all users of the store.")] = False,
    limit: Limit = 20,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first."""

    async def work() -> list[Job]:
        whose = {} if everyone else {"user_id": user, "tenant_id": tenant, "app_id": app_id}
        async with opened(url) as rc:
            return await rc.jobs.list(None if status is None else status.value, limit=limit, **whose)

    found = run(work)
    if as_json:
        show_json(found)
    elif not found:
        say("There are no such jobs.", stderr=True)
    else:
        rows = [
            (
                each.id,
                each.status.value,
                each.scope.user_id,
                each.conversation_id,
                f"{each.from_seq}-{each.to_seq}",
                str(each.runs),
                minute(each.updated_at),
                one_line(each.error or "", SHORT),
            )
            for each in found
        ]
        show_table(("ID", "STATUS", "USER", "CONVERSATION", "MESSAGES", "RUNS", "CHANGED", "ERROR"), rows, head="ID")


@command(app, "tellback jobs retry job_01J9 --user maya")
def retry(
    id: Annotated[str, typer.Argument(help="The job's id, as `tellback jobs list` shows it.", show_default=False)],
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Queue a job again. A worker, or `tellback jobs drain`, runs it."""
    whose = Whose(url, user, tenant, app_id)

    async def work() -> Job:
        async with opened(url) as rc:
            found = await rc.jobs.get(id)
            scope = rc.user(whose.user, whose.tenant, whose.app).scope
            if found is None or found.scope != scope:
                raise NotFoundError("job", id)
            return await rc.jobs.retry(id)

    job = run(work)
    if as_json:
        show_json(job)
    else:
        say(f"{job.id} is {job.status.value}: tellback jobs drain runs it now.")


@command(app, "tellback jobs drain", "tellback jobs drain --model claude-sonnet-5 --timeout 600")
def drain(
    model: Model = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds after which to give up.")] = 300.0,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Run the jobs that are due, of everyone, and end; exits with 1 if some of this user's have failed.

    The model reads the conversations. Without one they are remembered word for word.
    """
    from tellback.cli.models import reading

    async def work() -> None:
        async with opened(url, worker=True, **reading(model)) as rc:
            await rc.jobs.drain(timeout)

    run(work)
    whose = Whose(url, user, tenant, app_id)
    failed = ask(whose, lambda handle: handle.memory.list_jobs(status="failed"))
    if as_json:
        show_json({"failed": len(failed)})
    else:
        say(
            "Nothing is left to do." if not failed else f"{counted(len(failed), 'job')} failed: see tellback jobs list."
        )
    raise typer.Exit(1 if failed else 0)
