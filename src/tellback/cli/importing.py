"""`tellback import`: chats that took place elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellback.cli.options import DEFAULT_URL, DEFAULT_USER, App, AsJson, Model, Tenant, Url, User, examples
from tellback.cli.printing import console, say, show_json
from tellback.cli.running import INTERRUPTED, Whose, handle, opened, run, told
from tellback.cli.times import METAVAR, beginning

if TYPE_CHECKING:
    from tellback.importing import ImportProgress, ImportReport
    from tellback.importing.importer import Told

STOPPED = "Stopped. What was imported is kept; the same command goes on where this one ended."
_STAGES = {"reading": "Looking for chats", "importing": "Importing chats", "remembering": "Making memories"}


class FormatName(StrEnum):
    """Whose chats they are."""

    AUTO = "auto"
    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    JSONL = "jsonl"


EXAMPLES = examples(
    "tellback import chatgpt-export.zip --user maya --dry-run",
    "tellback import chatgpt-export.zip --user maya",
    "tellback import chats.jsonl --since 2025 --model offline",
)


def import_command(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The zip that was downloaded, its folder, or a file of it; or .jsonl.")
    ],
    format: Annotated[FormatName, typer.Option("--format", help="Whose chats they are.")] = FormatName.AUTO,
    namespace: Annotated[str, typer.Option(help="What the conversations are called.")] = "imported",
    space: Annotated[str, typer.Option("--space", "-s", help="The memory space, by name.")] = "default",
    since: Annotated[
        datetime | None,
        typer.Option(parser=beginning, metavar=METAVAR, help="Only chats in which something was said since then."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="So many chats that are not there yet, the oldest first.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; tell what would be done.")] = False,
    no_extract: Annotated[bool, typer.Option("--no-extract", help="Make no memories of them.")] = False,
    model: Model = None,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Bring in chats from ChatGPT, Claude or JSON lines: they become conversations, and memories.

    Each message keeps its time. Doing it again adds only what is missing. Memories are made by the model, which costs
    a call or two for each chat; with --model offline, or none, every message is kept word for word.
    """
    whose = Whose(url, user, tenant, app_id)
    with told():
        options = _opening(model, wanted=not (no_extract or dry_run))

    async def work() -> ImportReport:
        from tellback.importing import import_chats

        async with opened(_looked_at(url) if dry_run else url, new=True, in_memory=dry_run, **options) as rc:
            with _progress(shown=not as_json) as tell:
                return await import_chats(
                    handle(rc, whose),
                    path,
                    format=format.value,
                    namespace=namespace,
                    space=space,
                    extract=not no_extract,
                    on_progress=tell,
                    since=since,
                    limit=limit,
                    dry_run=dry_run,
                )

    try:
        report = run(work)
    except typer.Exit as ending:
        if ending.exit_code == INTERRUPTED:
            say(STOPPED, stderr=True)
        raise
    _show(report, as_json=as_json)
    if report.waiting_jobs:
        say("`tellback jobs list` tells what they wait for, and `tellback worker` does them.", stderr=True)
    if report.failed_jobs:
        say("`tellback jobs list --status failed` tells why jobs failed.", stderr=True)
        raise typer.Exit(1)


def _opening(model: str | None, *, wanted: bool) -> dict[str, Any]:
    """How to open Tellback: nobody goes on with these chats, so they get no rolling summaries."""
    if not wanted:
        return {}
    from tellback.cli.models import chosen

    choice = chosen(model)
    if choice.is_offline:
        say("No model reads the chats: every message is kept word for word.", stderr=True)
    else:
        say(f"Memories are made by {choice.name}.", stderr=True)
    extractor = "verbatim" if choice.is_offline else None
    return {"model": choice.name, "extractor": extractor, "worker": True, "summary_every": None}


def _looked_at(url: str) -> str:
    """The store to compare with when nothing may be changed: an empty one for a file that is not there yet."""
    return url if "://" in url or Path(url).exists() else ":memory:"


def _show(report: ImportReport, *, as_json: bool) -> None:
    if as_json:
        show_json(report)
        return
    for sentence in str(report).removesuffix(".").split(". "):
        say(f"{sentence}.")


@contextmanager
def _progress(*, shown: bool) -> Iterator[Told]:
    """A bar for each stage, on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, disable=not (shown and screen.is_terminal)) as bars:
        tasks: dict[str, Any] = {}

        def tell(now: ImportProgress) -> None:
            if now.stage not in tasks:
                tasks[now.stage] = bars.add_task(_STAGES[now.stage])
            bars.update(tasks[now.stage], completed=now.done, total=now.total)

        yield tell
