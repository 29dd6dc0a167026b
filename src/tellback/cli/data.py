"""The `tellback import`, `export` and `delete` commands: all data of one user."""

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
    format_scope,
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

IMPORT_STOPPED = "Import interrupted. Run the same command again to continue; imported conversations are kept."
ImportFormat = Literal["auto", "chatgpt", "claude", "jsonl"]
_STAGES = {"reading": "Reading chats", "importing": "Importing chats", "remembering": "Extracting memories"}


def import_command(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The downloaded zip, the unpacked folder, or a .json or .jsonl file.")
    ],
    format: Annotated[ImportFormat, typer.Option("--format", help="Format of the file to import.")] = "auto",
    namespace: Annotated[str, typer.Option(help="Namespace of the imported conversations.")] = "imported",
    space: Annotated[str, typer.Option("--space", "-s", help="Name of the memory space.")] = "default",
    since: Annotated[
        datetime | None, time_option("--since", "Only chats that have a message at this time or later.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of new chats, oldest first.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported, without changes.")] = False,
    no_extract: Annotated[bool, typer.Option("--no-extract", help="Do not extract memories.")] = False,
    model: ModelOption = None,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Import chats from ChatGPT, Claude or JSON Lines, and extract memories from them.

    Messages keep their original times. Importing again adds only new chats and messages. Extraction takes one or two
    model calls per chat; with --model offline, or without a model, every message becomes a memory, word for word.
    """
    with report_errors():
        options = _store_options(model, needs_model=not (no_extract or dry_run))
        url = target.url
        if dry_run and "://" not in url and not Path(url).exists():
            url = ":memory:"  # a dry run must not create the file

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
        print_line("Run `tellback jobs list` to see them, and `tellback worker` to run them.", stderr=True)
    if report.failed_jobs:
        print_line("Run `tellback jobs list --status failed` to see why jobs failed.", stderr=True)
        raise typer.Exit(1)


def _store_options(model: str | None, *, needs_model: bool) -> dict[str, Any]:
    """Return the options for opening Tellback. Imported chats are not continued, so they need no rolling summaries."""
    if not needs_model:
        return {}
    choice = resolve_model(model)
    if choice.is_offline:
        print_line("No model is set up: every message becomes a memory, word for word.", stderr=True)
    else:
        print_line(f"Extracting memories with {choice.name}.", stderr=True)
    extractor = "verbatim" if choice.is_offline else None
    return {"model": choice.name, "extractor": extractor, "worker": True, "summary_every": None}


@contextmanager
def _progress_bars(*, is_shown: bool) -> Iterator[ImportProgressCallback]:
    """Show a progress bar for each stage, on a terminal."""
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
        typer.Option("--to", "-o", help="Output file, .json or .zip. Without it, JSON goes to standard output."),
    ] = None,
    format: Annotated[
        Literal["json", "zip"] | None, typer.Option("--format", help="Output format, if the file name has no suffix.")
    ] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="Include the embedding vectors of memories.")] = False,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Export all data of a user: conversations, memories, jobs, usage records and API keys (without their secrets).

    The file appears only when it is complete, and only your operating-system account can read it. If you pass both --to
    and --json, the command prints how many records were exported, as JSON.
    """
    prints_to_terminal = to is None and _is_terminal()
    if prints_to_terminal and format == "zip":
        raise typer.BadParameter("A zip cannot be written to a terminal: pass --to FILE.", param_hint="--format")
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
    counts = ", ".join(f"{name}: {count}" for name, count in report.counts.items() if count) or "no records"
    outcome = f"Exported the data of {target.user} to {to} ({counts})."
    print_outcome(report, outcome, as_json=as_json)


def delete(
    user: Annotated[str, typer.Option("--user", "-u", help="Id of the user to delete.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    url: UrlOption = DEFAULT_URL,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Permanently delete all data of a user: conversations, memories, jobs, usage records and API keys.

    Asks for the user's id to confirm. Afterwards, no table or file of the store contains data of the user.
    """
    target = UserTarget(url, user, tenant, app_id)
    if not yes:
        question = (
            f"Type the user's id ({user}) to permanently delete all data of this user{format_scope(tenant, app_id)}"
        )
        typed = typer.prompt(question, default="", show_default=False, err=True)
        if typed.strip() != user:
            fail("Nothing was deleted: the typed id does not match.")
    erased = run_for_user(target, lambda handle: handle.admin.delete_user_data(confirm=True))
    if as_json:
        print_json(dict(erased))
    elif not any(erased.values()):
        print_line(f"User {user!r}{format_scope(tenant, app_id)} has no data. Check --user, --tenant, --app and --url.")
    else:
        print_line(f"Deleted all data of {user}{format_scope(tenant, app_id)}:")
        print_table(("DELETED", "RECORDS"), [(str(count), name) for name, count in erased.items() if count])


def _is_terminal() -> bool:
    return sys.stdout.isatty()
