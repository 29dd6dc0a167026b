"""The commands and their options."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from recollect.cli import keys
from recollect.cli.logs import log_to_console
from recollect.cli.mcp import mcp
from recollect.cli.serve import serve
from recollect.errors import RecollectError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(keys.app, name="keys")
app.command()(serve)
app.command()(mcp)


class ExtractorName(StrEnum):
    """What makes memories of conversations."""

    LLM = "llm"
    VERBATIM = "verbatim"


@app.callback()
def about() -> None:
    """Recollect: conversational agents that remember."""


@app.command()
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
