"""The commands and their options."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from recollect.cli import agents, atoms, conversations, entities, jobs, keys, spaces
from recollect.cli.bench import bench
from recollect.cli.chat import chat
from recollect.cli.demo import demo
from recollect.cli.doctor import doctor
from recollect.cli.exporting import delete, export
from recollect.cli.importing import EXAMPLES as IMPORTS
from recollect.cli.importing import import_command
from recollect.cli.logs import log_to_console
from recollect.cli.mcp import mcp
from recollect.cli.migrate import migrate
from recollect.cli.options import LOOK, MEMORY, RECORDS, RUN, TALK, command, examples, unfolded
from recollect.cli.recall import recall, timeline
from recollect.cli.serve import serve
from recollect.errors import RecollectError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=examples("recollect chat", "recollect serve", "recollect doctor"),
)

command(app, "recollect demo", "recollect demo --open --model ./model.gguf", panel=TALK)(demo)
command(
    app,
    "recollect chat --user maya",
    'recollect chat "Where should we eat tonight?" --user maya',
    "recollect chat --agent my_app.booking:agent",
    "cat questions.txt | recollect chat --json",
    panel=TALK,
)(chat)
app.command("import", help=unfolded(import_command.__doc__ or ""), epilog=IMPORTS, rich_help_panel=TALK)(import_command)
command(
    app,
    'recollect recall "where does she live?" --user maya',
    "recollect recall --entity Lena --explain --user maya",
    panel=MEMORY,
)(recall)
command(
    app, "recollect timeline --entity Lena --user maya", "recollect timeline job --from 2025 --to 2026-03", panel=MEMORY
)(timeline)
app.add_typer(atoms.app, name="atoms", rich_help_panel=MEMORY)
app.add_typer(entities.app, name="entities", rich_help_panel=MEMORY)
app.add_typer(spaces.app, name="spaces", rich_help_panel=MEMORY)
app.add_typer(conversations.app, name="conversations", rich_help_panel=RECORDS)
app.add_typer(jobs.app, name="jobs", rich_help_panel=RECORDS)
command(app, "recollect export --user maya --to maya.zip", "recollect export --user maya | jq .atoms", panel=RECORDS)(
    export
)
command(app, "recollect delete --user maya", panel=RECORDS)(delete)
command(app, "recollect serve", "recollect serve --url postgresql://db/app --port 9000 --agents agents/", panel=RUN)(
    serve
)
command(app, "recollect mcp --url recollect.db --user maya", panel=RUN)(mcp)
app.add_typer(keys.app, name="keys", rich_help_panel=RUN)
command(app, "recollect migrate --check", "recollect migrate --url postgresql://db/app", panel=RUN)(migrate)
command(app, "recollect doctor", "recollect doctor --json", panel=LOOK)(doctor)
app.add_typer(agents.app, name="agents", rich_help_panel=LOOK)
command(app, "recollect bench", "recollect bench --atoms 10000", panel=LOOK)(bench)


class ExtractorName(StrEnum):
    """What makes memories of conversations."""

    LLM = "llm"
    VERBATIM = "verbatim"


def _tell_version(asked: bool) -> None:
    if asked:
        from recollect import __version__

        typer.echo(f"recollect {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Recollect: conversational agents that remember.

    Begin with `recollect chat`. What is said is kept in recollect.db, here; --url names another place.
    """


@command(
    app,
    "recollect worker --url recollect.db --model claude-sonnet-5",
    "recollect worker --url recollect.db --extractor verbatim --once",
    panel=RUN,
)
def worker(
    url: Annotated[
        str, typer.Option(envvar="RECOLLECT_URL", help="The store: a file, or postgresql://…", show_default=False)
    ],
    model: Annotated[str | None, typer.Option(envvar="RECOLLECT_MODEL", help="The model that reads.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many jobs at once.")] = 2,
    extractor: Annotated[
        ExtractorName | None, typer.Option(help="How conversations are read: by the model if there is one.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(envvar="RECOLLECT_PROMPTS", help="A folder with prompts of your own.")
    ] = None,
    close_stale_after: Annotated[
        float | None, typer.Option(min=0, help="Close conversations after so many hours without a change.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when no job is due; 1 if jobs failed.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.")] = False,
) -> None:
    """Run jobs: make memories of conversations, refresh summaries, look for patterns.

    Any number of workers may run on the same store.
    """
    from recollect.app import Recollect
    from recollect.chat import ChatOptions, resolve_registration
    from recollect.cli.worker import work
    from recollect.jobs import WorkerOptions
    from recollect.memory.extraction.choice import ExtractorLike
    from recollect.memory.extraction.llm import LlmExtractor

    if model is None and (extractor is not ExtractorName.VERBATIM or prompts is not None):
        raise typer.BadParameter(
            "reading needs --model, or RECOLLECT_MODEL; --extractor verbatim keeps every message word for word."
        )
    log_to_console(verbose=verbose)
    options = WorkerOptions(concurrency=concurrency)
    hours = None if close_stale_after is None else timedelta(hours=close_stale_after)
    try:
        if model is not None:
            resolve_registration(ChatOptions(model=model))  # a mistake in its name should not fail every job
        reads: ExtractorLike = extractor and extractor.value
        if prompts is not None and reads != "verbatim":
            reads = LlmExtractor(prompts=prompts)
        rc = Recollect(url, model=model, extractor=reads, worker=options, close_stale_after=hours)
        code = asyncio.run(work(rc, once=once))
    except RecollectError as error:
        typer.secho(f"{error}", err=True, fg="red")
        raise typer.Exit(2) from error
    raise typer.Exit(code)
