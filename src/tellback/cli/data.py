"""`tellback import`, `export` and `delete`: all data of one user."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tellback.cli.options import (
    DEFAULT_TARGET,
    DEFAULT_URL,
    AppOption,
    JsonOption,
    ModelOption,
    TenantOption,
    UrlOption,
    UserTarget,
    time_option,
)
from tellback.cli.output import create_console, escape_json, print_json, print_line, print_outcome, print_table
from tellback.cli.runner import (
    INTERRUPT_EXIT_CODE,
    fail,
    format_missing_data,
    open_app,
    report_errors,
    resolve_model,
    run_async,
    run_for_user,
    user_of_target,
)
from tellback.errors import ConfigurationError

if TYPE_CHECKING:
    from tellback.admin import ExportReport
    from tellback.importers import ImportProgress, ImportReport
    from tellback.importers.importer import ImportProgressCallback
    from tellback.user import User

IMPORT_STOPPED = "Stopped. What was imported is kept; the same command goes on where this one ended."
ImportFormat = Literal["auto", "chatgpt", "claude", "jsonl"]
_STAGES = {"reading": "Looking for chats", "importing": "Importing chats", "remembering": "Making memories"}


def import_command(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The zip that was downloaded, its folder, or a file of it; or .jsonl.")
    ],
    format: Annotated[ImportFormat, typer.Option("--format", help="Whose chats they are.")] = "auto",
    namespace: Annotated[str, typer.Option(help="What the conversations are called.")] = "imported",
    space: Annotated[str, typer.Option("--space", "-s", help="The memory space, by name.")] = "default",
    since: Annotated[
        datetime | None, time_option("--since", "Only chats in which something was said since then.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="So many chats that are not there yet, the oldest first.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; tell what would be done.")] = False,
    no_extract: Annotated[bool, typer.Option("--no-extract", help="Make no memories of them.")] = False,
    model: ModelOption = None,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Bring in chats from ChatGPT, Claude or JSON lines: they become conversations, and memories.

    Each message keeps its time. Doing it again adds only what is missing. Memories are made by the model, which costs
    a call or two for each chat; with --model offline, or none, every message is kept word for word.
    """
    with report_errors():
        options = _store_options(model, needs_model=not (no_extract or dry_run))
        url = target.url
        if dry_run and "://" not in url and not Path(url).exists():
            url = ":memory:"  # nothing may be changed: what is not there yet is as good as an empty store

    async def run_import() -> ImportReport:
        from tellback.importers import import_chats

        async with open_app(url, may_create=True, allow_in_memory=dry_run, **options) as tb:
            with _progress_bars(is_shown=not as_json) as on_progress:
                return await import_chats(
                    user_of_target(tb, target),
                    path,
                    format=format,
                    namespace=namespace,
                    space=space,
                    extract=not no_extract,
                    on_progress=on_progress,
                    since=since,
                    limit=limit,
                    dry_run=dry_run,
                )

    try:
        report = run_async(run_import)
    except typer.Exit as exit_error:
        if exit_error.exit_code == INTERRUPT_EXIT_CODE:
            print_line(IMPORT_STOPPED, stderr=True)
        raise
    if as_json:
        print_json(report)
    else:
        for sentence in str(report).removesuffix(".").split(". "):
            print_line(f"{sentence}.")
    if report.waiting_jobs:
        print_line("`tellback jobs list` tells what they wait for, and `tellback worker` does them.", stderr=True)
    if report.failed_jobs:
        print_line("`tellback jobs list --status failed` tells why jobs failed.", stderr=True)
        raise typer.Exit(1)


def _store_options(model: str | None, *, needs_model: bool) -> dict[str, Any]:
    """How to open Tellback: nobody goes on with these chats, so they get no rolling summaries."""
    if not needs_model:
        return {}
    choice = resolve_model(model)
    if choice.is_offline:
        print_line("No model reads the chats: every message is kept word for word.", stderr=True)
    else:
        print_line(f"Memories are made by {choice.name}.", stderr=True)
    extractor = "verbatim" if choice.is_offline else None
    return {"model": choice.name, "extractor": extractor, "worker": True, "summary_every": None}


@contextmanager
def _progress_bars(*, is_shown: bool) -> Iterator[ImportProgressCallback]:
    """A bar for each stage, on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = create_console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, disable=not (is_shown and screen.is_terminal)) as bars:
        tasks: dict[str, Any] = {}

        def on_progress(progress: ImportProgress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(_STAGES[progress.stage])
            bars.update(tasks[progress.stage], completed=progress.done, total=progress.total)

        yield on_progress


def export(
    to: Annotated[
        Path | None,
        typer.Option("--to", "-o", help="The file, .json or .zip; without one, JSON on standard output."),
    ] = None,
    format: Annotated[
        Literal["json", "zip"] | None, typer.Option("--format", help="Where the file's name does not say it.")
    ] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="Also the vectors of memories.")] = False,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Hand out all that is kept of a user: conversations, memories, jobs, costs, keys.

    A file appears only when it is complete, and only its owner may read it. With --json the counts are printed as
    JSON; the export itself is JSON on standard output anyway.
    """
    prints_to_terminal = to is None and _is_terminal()
    if prints_to_terminal and format == "zip":
        raise typer.BadParameter("a .zip is not for a terminal: name a file with --to.", param_hint="--format")
    buffer = io.BytesIO()

    async def run_export(handle: User) -> ExportReport:
        async with aclosing(handle.admin.export_stream()) as records:
            if await anext(records, None) is None:
                raise ConfigurationError(format_missing_data(handle, "data"))
        with create_console(stderr=True).status("Exporting…") as status:

            def progress(done: int) -> None:
                if done % 100 == 0:
                    status.update(f"Exporting: {done} records")

            return await handle.admin.export_user_data(
                to=to or (buffer if prints_to_terminal else sys.stdout.buffer),
                format=format,
                on_progress=progress,
                include_vectors=vectors,
            )

    report = run_for_user(target, run_export)
    if prints_to_terminal:
        typer.echo(escape_json(buffer.getvalue().decode()))
    if to is None:
        return
    counts = ", ".join(f"{count} {name}" for name, count in report.counts.items() if count) or "nothing"
    outcome = f"All that is kept of {target.user} is in {to}: {counts}."
    print_outcome(report, outcome, as_json=as_json)


def delete(
    user: Annotated[str, typer.Option("--user", "-u", help="Whose data to delete.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: UrlOption = DEFAULT_URL,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Delete all that is kept of a user, for good: conversations, memories, jobs, costs, keys.

    It asks for the user's id first. Nothing of it is left in any table or file of the store afterwards.
    """
    target = UserTarget(url, user, tenant, app_id)
    if not yes:
        typed = typer.prompt(f"Type the user's id ({user}) to delete all that is kept of them", default="", err=True)
        if typed.strip() != user:
            fail("Nothing was deleted: that was not the user's id.")
    erased = run_for_user(target, lambda handle: handle.admin.delete_user_data(confirm=True))
    if as_json:
        print_json(dict(erased))
    elif not any(erased.values()):
        print_line(f"There was nothing of user {user!r} there.")
    else:
        print_line(f"All that was kept of {user} is deleted:")
        print_table(("DELETED", "WHAT"), [(str(count), name) for name, count in erased.items() if count])


def _is_terminal() -> bool:
    return sys.stdout.isatty()
