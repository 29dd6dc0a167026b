"""The Typer application: every command, its examples and its help panel."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tellback.cli import agents, atoms, conversations, jobs, keys, memory
from tellback.cli.chat import chat
from tellback.cli.data import IMPORT_EXAMPLES as IMPORTS
from tellback.cli.data import delete, export, import_command
from tellback.cli.maintenance import bench, doctor, migrate
from tellback.cli.memory import recall, timeline
from tellback.cli.options import (
    CHAT_PANEL,
    CHECK_PANEL,
    DATA_PANEL,
    MEMORY_PANEL,
    RUN_PANEL,
    format_examples,
    register_command,
    unwrap_paragraphs,
)
from tellback.cli.output import log_to_console
from tellback.cli.serve import demo, mcp, serve
from tellback.errors import TellbackError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=format_examples("tellback chat", "tellback serve", "tellback doctor"),
)

register_command(app, "tellback demo", "tellback demo --open --model ./model.gguf", panel=CHAT_PANEL)(demo)
register_command(
    app,
    "tellback chat --user maya",
    'tellback chat "Where should we eat tonight?" --user maya',
    "tellback chat --agent my_app.booking:agent",
    "cat questions.txt | tellback chat --json",
    panel=CHAT_PANEL,
)(chat)
app.command("import", help=unwrap_paragraphs(import_command.__doc__ or ""), epilog=IMPORTS, rich_help_panel=CHAT_PANEL)(
    import_command
)
register_command(
    app,
    'tellback recall "where does she live?" --user maya',
    "tellback recall --entity Lena --explain --user maya",
    panel=MEMORY_PANEL,
)(recall)
register_command(
    app,
    "tellback timeline --entity Lena --user maya",
    "tellback timeline job --from 2025 --to 2026-03",
    panel=MEMORY_PANEL,
)(timeline)
app.add_typer(atoms.atoms_app, name="atoms", rich_help_panel=MEMORY_PANEL)
app.add_typer(memory.entities_app, name="entities", rich_help_panel=MEMORY_PANEL)
app.add_typer(memory.spaces_app, name="spaces", rich_help_panel=MEMORY_PANEL)
app.add_typer(conversations.conversations_app, name="conversations", rich_help_panel=DATA_PANEL)
app.add_typer(jobs.jobs_app, name="jobs", rich_help_panel=DATA_PANEL)
register_command(
    app, "tellback export --user maya --to maya.zip", "tellback export --user maya | jq .atoms", panel=DATA_PANEL
)(export)
register_command(app, "tellback delete --user maya", panel=DATA_PANEL)(delete)
register_command(
    app, "tellback serve", "tellback serve --url postgresql://db/app --port 9000 --agents agents/", panel=RUN_PANEL
)(serve)
register_command(app, "tellback mcp --url tellback.db --user maya", panel=RUN_PANEL)(mcp)
app.add_typer(keys.keys_app, name="keys", rich_help_panel=RUN_PANEL)
register_command(app, "tellback migrate --check", "tellback migrate --url postgresql://db/app", panel=RUN_PANEL)(
    migrate
)
register_command(app, "tellback doctor", "tellback doctor --json", panel=CHECK_PANEL)(doctor)
app.add_typer(agents.agents_app, name="agents", rich_help_panel=CHECK_PANEL)
register_command(app, "tellback bench", "tellback bench --atoms 10000", panel=CHECK_PANEL)(bench)


class ExtractorName(StrEnum):
    """What makes memories of conversations."""

    LLM = "llm"
    VERBATIM = "verbatim"


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from tellback import __version__

        typer.echo(f"tellback {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Tellback: conversational agents that remember.

    Begin with `tellback chat`. What is said is kept in tellback.db, here; --url names another place.
    """


@register_command(
    app,
    "tellback worker --url tellback.db --model claude-sonnet-5",
    "tellback worker --url tellback.db --extractor verbatim --once",
    panel=RUN_PANEL,
)
def worker(
    url: Annotated[
        str, typer.Option(envvar="TELLBACK_URL", help="The store: a file, or postgresql://…", show_default=False)
    ],
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
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.")] = False,
) -> None:
    """Run jobs: make memories of conversations, refresh summaries, look for patterns.

    Any number of workers may run on the same store.
    """
    from tellback.app import Tellback
    from tellback.chat import ChatOptions, resolve_registration
    from tellback.cli.jobs import run_worker
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
