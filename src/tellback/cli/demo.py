"""`tellback demo`: the server and its console with something to see, and nothing to set up."""

from __future__ import annotations

import asyncio
import logging
import socket
import webbrowser
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import ModelOption
from tellback.cli.running import fail
from tellback.errors import ConfigurationError, MissingExtraError, TellbackError

if TYPE_CHECKING:
    from tellback.server.serve_options import ServeOptions

DEMO_HOST = "127.0.0.1"
DEMO_PORT = 8765
PORT_ATTEMPTS = 20


def demo(
    url: Annotated[
        str, typer.Option("--url", help="Where what you say is kept: a file, or postgresql://…")
    ] = "tellback-demo.db",
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, help="The port: by default 8765, or the next that is free."),
    ] = None,
    model: ModelOption = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the console in a browser.")] = False,
) -> None:
    """See it work: the console in a browser, an agent with routes, and a made-up user's memory to look around in.

    Nothing needs to be set up. Without a model it answers from memory; a provider's key in the environment, an Ollama
    on this machine, or --model with a GGUF file makes it converse. What you say stays in the file.
    """
    from tellback.cli import serve

    try:
        options = _demo_options(url, port, model)
        has_sample = asyncio.run(_load_sample(url))
        logging.getLogger("tellback.server.access").setLevel(logging.WARNING)
        code = serve.run_server(options, lambda address: _guide_lines(address, url, open_browser, has_sample))
    except TellbackError as error:
        fail(str(error))
    raise typer.Exit(code)


def _demo_options(url: str, port: int | None, model: str | None) -> ServeOptions:
    if find_spec("nicegui") is None:  # its extra brings the server along
        raise MissingExtraError("nicegui", "console", "The demo")
    from tellback.console import create_console_ui
    from tellback.server.serve_options import ServeOptions

    return ServeOptions(
        url=url,
        host=DEMO_HOST,
        port=_find_free_port(DEMO_PORT) if port is None else port,
        model=model,
        agents=("tellback.demo.tables:tables",),
        web_uis=(create_console_ui,),
        log_format="text",
    )


async def _load_sample(url: str) -> bool:
    from tellback.app import Tellback
    from tellback.demo.sample import load_sample

    async with Tellback(url, worker=False) as rc:
        return await load_sample(rc)


def _find_free_port(port: int) -> int:
    """That port, or the next one that nobody has."""
    for candidate in range(port, port + PORT_ATTEMPTS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((DEMO_HOST, candidate))
            except OSError:
                continue
            return candidate
    raise ConfigurationError(f"The ports {port} to {port + PORT_ATTEMPTS - 1} are all taken: name another with --port.")


def _guide_lines(address: str, url: str, open_browser: bool, has_sample: bool) -> list[str]:
    console_url = f"{address}/console/"
    if open_browser:
        webbrowser.open(console_url)
    suggestions = [
        f'Open {console_url} and say something of yourself: "I moved to Lisbon in March, and I\'m vegetarian now."',
        'Press "New conversation", and ask: "What do I eat?" What you said is quoted, with where you said it.',
        'Choose the agent Tables in the chat, and say: "A table for two tomorrow". Routes shows where you are.',
    ]
    if has_sample:
        suggestions.append(f"Look around in the memory of Maya, whom we made up: {console_url}memory?user=maya")
    numbered = (f"  {number}. {each}" for number, each in enumerate(suggestions, 1))
    store_name = "that database" if "://" in url else url  # a URL may hold a password
    return ["", "Things to try:", *numbered, "", f"What you say stays in {store_name}. Ctrl-C stops."]
