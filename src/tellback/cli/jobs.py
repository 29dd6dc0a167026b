"""The `tellback jobs` and `tellback worker` commands: list, retry and run extraction jobs."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tellback.cli.options import (
    DEFAULT_TARGET,
    JsonOption,
    LimitOption,
    ModelOption,
    RequiredUrlOption,
    UserTarget,
    VerboseOption,
)
from tellback.cli.output import (
    SHORT_LENGTH,
    format_count,
    format_minute,
    log_to_console,
    print_outcome,
    print_rows,
    to_one_line,
)
from tellback.cli.runner import (
    command_group,
    fail,
    open_app,
    register_command,
    resolve_model,
    run_async,
    run_for_user,
    run_or_stop,
    stop_on_signals,
    user_of_target,
)
from tellback.errors import NotFoundError, TellbackError

if TYPE_CHECKING:
    from tellback.app import Tellback
    from tellback.types.jobs import Job

log = logging.getLogger("tellback.cli")

jobs_app = command_group(
    "List, retry and run background jobs, which extract memories from conversations.",
    "tellback jobs list --user maya",
    "tellback jobs drain",
)


@register_command(
    jobs_app, "tellback jobs list --user maya --status failed", "tellback jobs list --everyone", name="list"
)
def list_jobs(
    status: Annotated[
        Literal["queued", "running", "done", "failed", "cancelled"] | None,
        typer.Option("--status", help="Only jobs with this status."),
    ] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="List the jobs of all users.")] = False,
    limit: LimitOption = 20,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """List a user's jobs, newest first."""

    async def load() -> list[Job]:
        filters = {} if everyone else {"user_id": target.user, "tenant_id": target.tenant, "app_id": target.app}
        async with open_app(target.url) as tb:
            return await tb.jobs.list(status, limit=limit, **filters)

    print_rows(
        run_async(load),
        ("ID", "STATUS", "USER", "CONVERSATION", "MESSAGES", "RUNS", "UPDATED", "ERROR"),
        _job_row,
        as_json=as_json,
        if_empty="No matching jobs.",
        title_column="ID",
    )


def _job_row(job: Job) -> tuple[str, ...]:
    messages, error = f"{job.from_seq}-{job.to_seq}", to_one_line(job.error or "", SHORT_LENGTH)
    owner = (job.scope.user_id, job.conversation_id)
    return job.id, job.status.value, *owner, messages, str(job.runs), format_minute(job.updated_at), error


@register_command(jobs_app, "tellback jobs retry job_01J9 --user maya")
def retry(
    id: Annotated[str, typer.Argument(help="Job id, as shown by `tellback jobs list`.", show_default=False)],
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Queue a job again. A worker or `tellback jobs drain` then runs it."""

    async def queue_again() -> Job:
        async with open_app(target.url) as tb:
            found = await tb.jobs.get(id)
            if found is None or found.scope != user_of_target(tb, target).scope:
                raise NotFoundError("job", id)
            return await tb.jobs.retry(id)

    job = run_async(queue_again)
    print_outcome(job, f"{job.id} is {job.status.value}. Run `tellback jobs drain` to run it now.", as_json=as_json)


@register_command(jobs_app, "tellback jobs drain", "tellback jobs drain --model claude-sonnet-5 --timeout 600")
def drain(
    model: ModelOption = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Maximum time to wait, in seconds.")] = 300.0,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Run all waiting jobs of all users, and exit.

    The exit code is about one user only: it is 1 if a job of that user (--user) failed.

    The model extracts the memories. Without a model, every message becomes a memory, word for word.
    """

    async def run_due_jobs() -> None:
        async with open_app(target.url, worker=True, model=resolve_model(model).name) as tb:
            await tb.jobs.drain(timeout)

    run_async(run_due_jobs)
    failed = run_for_user(target, lambda handle: handle.memory.list_jobs(status="failed"))
    failures = f"{format_count(len(failed), 'job')} failed. Run `tellback jobs list --status failed` for details."
    print_outcome({"failed": len(failed)}, failures if failed else "All due jobs are done.", as_json=as_json)
    raise typer.Exit(1 if failed else 0)


def worker(
    url: RequiredUrlOption,
    model: Annotated[
        str | None,
        typer.Option(
            envvar="TELLBACK_MODEL", help="Model that extracts memories. Required unless --extractor is verbatim."
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Number of jobs to run at the same time.")] = 2,
    extractor: Annotated[
        Literal["llm", "verbatim"] | None,
        typer.Option(
            help="llm: the model extracts memories; verbatim: every message becomes a memory, word for"
            " word. Default: llm."
        ),
    ] = None,
    prompts: Annotated[Path | None, typer.Option(envvar="TELLBACK_PROMPTS", help="Folder with custom prompts.")] = None,
    close_stale_after: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Also close other conversations after this many hours without a message. Default: only those of"
            " `chat` are closed, after one hour.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Exit when no job is due. The exit code is 1 if jobs failed.")
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """Run background jobs: extract memories, refresh summaries and find recurring events.

    Several workers can run on the same store.
    """
    from tellback.app import Tellback
    from tellback.chat import ChatOptions, resolve_registration
    from tellback.jobs import WorkerOptions
    from tellback.memory.extraction.extractors import ExtractorLike, LlmExtractor

    if model is None and (extractor != "verbatim" or prompts is not None):
        raise typer.BadParameter(
            "Extraction needs --model or TELLBACK_MODEL. To store messages verbatim instead, use --extractor verbatim."
        )
    log_to_console(verbose=verbose)
    options = WorkerOptions(concurrency=concurrency)
    hours = None if close_stale_after is None else timedelta(hours=close_stale_after)
    try:
        if model is not None:
            resolve_registration(ChatOptions(model=model))  # fail now if the name is unknown, not in every job
        reader: ExtractorLike = extractor
        if prompts is not None and reader != "verbatim":
            reader = LlmExtractor(prompts=prompts)
        tb = Tellback(url, model=model, extractor=reader, worker=options, close_stale_after=hours)
        code = asyncio.run(run_worker(tb, once=once))
    except TellbackError as error:
        fail(str(error))
    raise typer.Exit(code)


async def run_worker(tb: Tellback, *, once: bool) -> int:
    """Run jobs until a stop signal or, with `once`, until no job is due; return the exit code, 1 if jobs failed."""
    with stop_on_signals() as stop:
        started_at = tb.clock()
        async with tb:
            tb.jobs.wake()
            log.info("Worker started on %s. Press Ctrl-C to stop.", tb.store.url)
            if not once:
                await stop.wait()
            elif not await run_or_stop(tb.jobs.drain(), stop):
                log.warning("Worker stopped before all jobs were done")
                return 1
            log.info("Worker stopping")
            return await _exit_code(tb, started_at) if once else 0


async def _exit_code(tb: Tellback, since: datetime) -> int:
    """Return 1 if jobs have failed since that time, or if failed jobs wait for their next attempt."""
    failed = [job for job in await tb.jobs.list("failed", limit=None) if job.updated_at >= since]
    retrying = [job for job in await tb.jobs.list("queued", limit=None) if job.error is not None]
    if failed or retrying:
        log.error("%d jobs failed, %d jobs will be retried", len(failed), len(retrying))
    return 1 if failed or retrying else 0
