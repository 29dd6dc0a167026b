"""`tellback mcp`: one user's memory, for a program that speaks the Model Context Protocol."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.logs import log_to_console
from tellback.errors import TellbackError

if TYPE_CHECKING:
    from tellback.app import Tellback

log = logging.getLogger("tellback.cli")


def mcp(
    url: Annotated[
        str, typer.Option(envvar="TELLBACK_URL", help="The store: a file, or postgresql://…", show_default=False)
    ],
    user: Annotated[str, typer.Option(envvar="TELLBACK_USER", help="Whose memory it is.", show_default=False)],
    tenant: Annotated[str, typer.Option(envvar="TELLBACK_TENANT", help="The user's tenant.")] = "default",
    app: Annotated[str, typer.Option(envvar="TELLBACK_APP", help="The user's app.")] = "default",
    read_only: Annotated[bool, typer.Option("--read-only", help="Leave out the tools that change something.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.")] = False,
) -> None:
    """Serve one user's memory over MCP, on standard input and output.

    For programs that start it themselves, such as desktop assistants and editors.
    """
    from tellback.app import Tellback

    log_to_console(verbose=verbose)
    try:
        rc = Tellback(url, worker=False)
        asyncio.run(serve_mcp(rc, user, tenant, app, read_only=read_only))
    except TellbackError as error:
        typer.secho(f"{error}", err=True, fg="red")
        raise typer.Exit(2) from error


async def serve_mcp(rc: Tellback, user: str, tenant: str, app: str, *, read_only: bool = False) -> None:
    """Serve until the input ends, or until told to stop; then close the store."""
    from tellback.cli.worker import stop_on_signals
    from tellback.mcp import serve_stdio

    with stop_on_signals() as stop:
        async with rc:
            log.info("serving the memory of %s in %s", user, rc.store.url)
            server_task = asyncio.ensure_future(serve_stdio(rc, user, tenant, app, read_only=read_only))
            stop_task = asyncio.ensure_future(stop.wait())
            try:
                await asyncio.wait({server_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (server_task, stop_task):
                    task.cancel()
                await asyncio.gather(server_task, stop_task, return_exceptions=True)
            if not server_task.cancelled():
                server_task.result()
            log.info("stopping")
