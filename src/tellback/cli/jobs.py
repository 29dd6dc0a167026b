"""`tellback jobs` and the worker process: list, retry and run extraction jobs."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import (
    DEFAULT_URL,
    DEFAULT_USER,
    AppOption,
    ExtractorName,
    JsonOption,
    LimitOption,
    ModelOption,
    RequiredUrlOption,
    TenantOption,
    UrlOption,
    UserOption,
    VerboseOption,
    format_examples,
    register_command,
)
from tellback.cli.output import (
    SHORT_LENGTH,
    format_count,
    format_minute,
    log_to_console,
    print_json,
    print_line,
    print_table,
    to_one_line,
)
from tellback.cli.runner import UserTarget, extraction_options, open_app, run_async, run_for_user, stop_on_signals
from tellback.errors import NotFoundError, TellbackError

if TYPE_CHECKING:
    from tellback.app import Tellback
    from tellback.types.jobs import Job

log = logging.getLogger("tellback.cli")

jobs_app = typer.Typer(
    no_args_is_help=True,
    help="List, retry and run jobs: conversations on their way to becoming memories.",
    epilog=format_examples("tellback jobs list --user maya", "tellback jobs drain"),
)


class JobStatusName(StrEnum):
    """How far a job has come."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@register_command(
    jobs_app, "tellback jobs list --user maya --status failed", "tellback jobs list --everyone", name="list"
)
def list_jobs(
    status: Annotated[JobStatusName | None, typer.Option("--status", help="Those that have come so far.")] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="Those of all users of the store.")] = False,
    limit: LimitOption = 20,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List jobs, the newest first."""

    async def load() -> list[Job]:
        filters = {} if everyone else {"user_id": user, "tenant_id": tenant, "app_id": app_id}
        async with open_app(url) as rc:
            return await rc.jobs.list(None if status is None else status.value, limit=limit, **filters)

    found = run_async(load)
    if as_json:
        print_json(found)
    elif not found:
        print_line("There are no such jobs.", stderr=True)
    else:
        rows = [
            (
                each.id,
                each.status.value,
                each.scope.user_id,
                each.conversation_id,
                f"{each.from_seq}-{each.to_seq}",
                str(each.runs),
                format_minute(each.updated_at),
                to_one_line(each.error or "", SHORT_LENGTH),
            )
            for each in found
        ]
        print_table(
            ("ID", "STATUS", "USER", "CONVERSATION", "MESSAGES", "RUNS", "CHANGED", "ERROR"), rows, title_column="ID"
        )


@register_command(jobs_app, "tellback jobs retry job_01J9 --user maya")
def retry(
    id: Annotated[str, typer.Argument(help="The job's id, as `tellback jobs list` shows it.", show_default=False)],
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Queue a job again. A worker, or `tellback jobs drain`, runs it."""
    target = UserTarget(url, user, tenant, app_id)

    async def queue_again() -> Job:
        async with open_app(url) as rc:
            found = await rc.jobs.get(id)
            scope = rc.user(target.user, target.tenant, target.app).scope
            if found is None or found.scope != scope:
                raise NotFoundError("job", id)
            return await rc.jobs.retry(id)

    job = run_async(queue_again)
    if as_json:
        print_json(job)
    else:
        print_line(f"{job.id} is {job.status.value}: tellback jobs drain runs it now.")


@register_command(jobs_app, "tellback jobs drain", "tellback jobs drain --model claude-sonnet-5 --timeout 600")
def drain(
    model: ModelOption = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds after which to give up.")] = 300.0,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Run the jobs that are due, of everyone, and end; exits with 1 if some of this user's have failed.

    The model reads the conversations. Without one they are remembered word for word.
    """

    async def run_due_jobs() -> None:
        async with open_app(url, worker=True, **extraction_options(model)) as rc:
            await rc.jobs.drain(timeout)

    run_async(run_due_jobs)
    target = UserTarget(url, user, tenant, app_id)
    failed = run_for_user(target, lambda handle: handle.memory.list_jobs(status="failed"))
    if as_json:
        print_json({"failed": len(failed)})
    else:
        print_line(
            "Nothing is left to do."
            if not failed
            else f"{format_count(len(failed), 'job')} failed: see tellback jobs list."
        )
    raise typer.Exit(1 if failed else 0)


def worker(
    url: RequiredUrlOption,
    model: Annotated[str | None, typer.Option(envvar="TELLBACK_MODEL", help="The model that reads.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many jobs at once.")] = 2,
    extractor: Annotated[
        ExtractorName | None, typer.Option(help="How conversations are read: by the model if there is one.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(envvar="TELLBACK_PROMPTS", help="A folder with prompts of your own.")
    ] = None,
    close_stale_after: Annotated[
        float | None, typer.Option(min=0, help="Close conversations after so many hours without a change.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when no job is due; 1 if jobs failed.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Run jobs: make memories of conversations, refresh summaries, look for patterns.

    Any number of workers may run on the same store.
    """
    from tellback.app import Tellback
    from tellback.chat import ChatOptions, resolve_registration
    from tellback.jobs import WorkerOptions
    from tellback.memory.extraction.extractors import ExtractorLike, LlmExtractor

    if model is None and (extractor is not ExtractorName.VERBATIM or prompts is not None):
        raise typer.BadParameter(
            "reading needs --model, or TELLBACK_MODEL; --extractor verbatim keeps every message word for word."
        )
    log_to_console(verbose=verbose)
    options = WorkerOptions(concurrency=concurrency)
    hours = None if close_stale_after is None else timedelta(hours=close_stale_after)
    try:
        if model is not None:
            resolve_registration(ChatOptions(model=model))  # a mistake in its name should not fail every job
        reader: ExtractorLike = extractor and extractor.value
        if prompts is not None and reader != "verbatim":
            reader = LlmExtractor(prompts=prompts)
        rc = Tellback(url, model=model, extractor=reader, worker=options, close_stale_after=hours)
        code = asyncio.run(run_worker(rc, once=once))
    except TellbackError as error:
        typer.secho(f"{error}", err=True, fg="red")
        raise typer.Exit(2) from error
    raise typer.Exit(code)


async def run_worker(rc: Tellback, *, once: bool) -> int:
    """Run jobs until told to stop or, with `once`, until none is due; gives the exit code, 1 if jobs failed."""
    with stop_on_signals() as stop:
        started_at = rc.clock()
        async with rc:
            rc.jobs.wake()
            log.info("working on %s; Ctrl-C stops", rc.store.url)
            if not once:
                await stop.wait()
            elif not await _drain_or_stop(rc, stop):
                log.warning("stopped before all jobs were done")
                return 1
            log.info("stopping")
            return await _exit_code(rc, started_at) if once else 0


async def _exit_code(rc: Tellback, since: datetime) -> int:
    """1 if jobs have failed since then, for good or until their next attempt."""
    failed = [job for job in await rc.jobs.list("failed", limit=None) if job.updated_at >= since]
    retrying = [job for job in await rc.jobs.list("queued", limit=None) if job.error is not None]
    if failed or retrying:
        log.error("%d jobs failed, %d wait for their next attempt", len(failed), len(retrying))
    return 1 if failed or retrying else 0


async def _drain_or_stop(rc: Tellback, stop: asyncio.Event) -> bool:
    drain_task, stop_task = asyncio.ensure_future(rc.jobs.drain()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({drain_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
        return drain_task.done()
    finally:
        for task in (drain_task, stop_task):
            task.cancel()
        await asyncio.gather(drain_task, stop_task, return_exceptions=True)
