"""The Typer application: every command, its examples and its help panel."""

from __future__ import annotations

from typing import Annotated

import typer

from tellback.cli import agents, conversations, jobs, keys, memory
from tellback.cli.chat import chat
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
)
from tellback.cli.runner import register_command
from tellback.cli.serve import demo, mcp, serve

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
register_command(
    app,
    "tellback import chatgpt-export.zip --user maya --dry-run",
    "tellback import chatgpt-export.zip --user maya",
    "tellback import chats.jsonl --since 2025 --model offline",
    name="import",
    panel=CHAT_PANEL,
)(import_command)
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
app.add_typer(memory.atoms_app, name="atoms", rich_help_panel=MEMORY_PANEL)
for _alias in ("memory", "memories"):  # words that newcomers try
    app.add_typer(memory.atoms_app, name=_alias, hidden=True)
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
register_command(
    app,
    "tellback worker --url tellback.db --model claude-sonnet-5",
    "tellback worker --url tellback.db --extractor verbatim --once",
    panel=RUN_PANEL,
)(jobs.worker)
app.add_typer(keys.keys_app, name="keys", rich_help_panel=RUN_PANEL)
register_command(app, "tellback migrate --check", "tellback migrate --url postgresql://db/app", panel=RUN_PANEL)(
    migrate
)
register_command(app, "tellback doctor", "tellback doctor --json", panel=CHECK_PANEL)(doctor)
app.add_typer(agents.agents_app, name="agents", rich_help_panel=CHECK_PANEL)
register_command(app, "tellback bench", "tellback bench --atoms 10000", panel=CHECK_PANEL)(bench)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from tellback import __version__

        typer.echo(f"tellback {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Tellback: conversational agents with memory.

    Start with `tellback chat`. Data is stored in tellback.db in the current directory; use --url for another store.
    """
