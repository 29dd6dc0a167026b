"""`tellback demo`: the server and its console with something to see, and nothing to set up."""

from __future__ import annotations

import asyncio
import logging
import socket
import webbrowser
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import Model
from tellback.cli.running import fail
from tellback.errors import ConfigurationError, MissingExtraError, TellbackError

if TYPE_CHECKING:
    from tellback.server.serve_options import ServeOptions

HOST = "127.0.0.1"
PORT = 8765
TRIES = 20


def demo(
    url: Annotated[
        str, typer.Option("--url", help="Where what you say is kept: a file, or postgresql://…")
    ] = "tellback-demo.db",
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, help="The port: by default 8765, or the next that is free."),
    ] = None,
    model: Model = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the console in a browser.")] = False,
) -> None:
    """See it work: the console in a browser, an agent with routes, and a made-up user's memory to look around in.

    Nothing needs to be set up. Without a model it answers from memory; a provider's key in the environment, an Ollama
    on this machine, or --model with a GGUF file makes it converse. What you say stays in the file.
    """
    from tellback.cli import serve

    try:
        options = _options(url, port, model)
        has_sample = asyncio.run(_put_sample(url))
        logging.getLogger("tellback.server.access").setLevel(logging.WARNING)
        code = serve.run(options, lambda address: _guide(address, url, open_browser, has_sample))
    except TellbackError as error:
        fail(str(error))
    raise typer.Exit(code)


def _options(url: str, port: int | None, model: str | None) -> ServeOptions:
    if find_spec("nicegui") is None:  # its extra brings the server along
        raise MissingExtraError("nicegui", "console", "The demo")
    from tellback.console import console_face
    from tellback.server.serve_options import ServeOptions

    return ServeOptions(
        url=url,
        host=HOST,
        port=_free(PORT) if port is None else port,
        model=model,
        agents=("tellback.demo.tables:tables",),
        faces=(console_face,),
        log_format="text",
    )


async def _put_sample(url: str) -> bool:
    from tellback.app import Tellback
    from tellback.demo.sample import put_sample

    async with Tellback(url, worker=False) as rc:
        return await put_sample(rc)


def _free(port: int) -> int:
    """That port, or the next one that nobody has."""
    for candidate in range(port, port + TRIES):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((HOST, candidate))
            except OSError:
                continue
            return candidate
    raise ConfigurationError(f"The ports {port} to {port + TRIES - 1} are all taken: name another with --port.")


def _guide(address: str, url: str, open_browser: bool, has_sample: bool) -> list[str]:
    console = f"{address}/console/"
    if open_browser:
        webbrowser.open(console)
    tries = [
        f'Open {console} and say something of yourself: "I moved to Lisbon in March, and I\'m vegetarian now."',
        'Press "New conversation", and ask: "What do I eat?" What you said is quoted, with where you said it.',
        'Choose the agent Tables in the chat, and say: "A table for two tomorrow". Routes shows where you are.',
    ]
    if has_sample:
        tries.append(f"Look around in the memory of Maya, whom we made up: {console}memory?user=maya")
    numbered = (f"  {number}. {each}" for number, each in enumerate(tries, 1))
    place = "that database" if "://" in url else url  # a URL may hold a password
    return ["", "Things to try:", *numbered, "", f"What you say stays in {place}. Ctrl-C stops."]
