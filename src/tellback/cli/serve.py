"""The `tellback serve`, `demo` and `mcp` commands: the HTTP server, a demo server, and MCP over stdio."""

from __future__ import annotations

import asyncio
import inspect
import logging
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from importlib.util import find_spec
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from tellback.cli.options import ModelOption, RequiredUrlOption, VerboseOption
from tellback.cli.output import log_to_console
from tellback.cli.runner import LOCAL_HOST, fail, probe_port, run_or_stop, stop_on_signals
from tellback.errors import ConfigurationError, MissingExtraError, TellbackError
from tellback.server.settings import JwtSettings, ServeOptions

if TYPE_CHECKING:
    from tellback.app import Tellback
    from tellback.server.middleware.browser_auth import WebUI

log = logging.getLogger("tellback.cli")

ENV_PREFIX = "TELLBACK_"
JWT_PREFIX = "jwt_"
DEMO_PORT = 8765
PORT_ATTEMPTS = 20


def _settings_of(kind: type[Any]) -> Iterator[tuple[Field[Any], Any, bool]]:
    """Yield the configurable fields, their types without None, and whether they are optional; inherited ones last."""
    hints = get_type_hints(kind, localns={"WebUI": Any})
    inherited = getattr(kind.__base__, "__dataclass_fields__", {})
    for setting in sorted(fields(kind), key=lambda each: each.name in inherited):
        hint = hints[setting.name]
        is_optional = NoneType in get_args(hint)
        if setting.metadata:
            yield setting, get_args(hint)[0] if is_optional else hint, is_optional


def _option_parameters(kind: type[Any], prefix: str = "") -> Iterator[inspect.Parameter]:
    """Yield a command parameter for each field, also read from the environment: `log_format` becomes
    `--log-format` and `TELLBACK_LOG_FORMAT`."""
    for setting, kind_of_value, _ in _settings_of(kind):
        name, metadata = prefix + setting.name, setting.metadata
        option = metadata["option"] or name.replace("_", "-")
        default = None if setting.default is MISSING else setting.default or None
        hint: Any = list[str] if get_origin(kind_of_value) is tuple else kind_of_value
        typer_option = typer.Option(
            f"--{option}/--no-{option}" if hint is bool else f"--{option}",
            envvar=ENV_PREFIX + option.replace("-", "_").upper(),
            help=metadata["help"],
            **metadata["bounds"],
        )
        annotation = Annotated[hint if default is not None else hint | None, typer_option]  # type: ignore[valid-type]
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _setting_values(kind: type[Any], values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the value of each setting. For an optional number, 0 means None."""
    found = {}
    for setting, hint, is_optional in _settings_of(kind):
        value = values[prefix + setting.name]
        value = tuple(value or ()) if get_origin(hint) is tuple else value
        found[setting.name] = None if is_optional and isinstance(value, int | float) and not value else value
    return found


def _takes_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all server settings to a command, before its own options."""
    own = [each for each in inspect.signature(function, eval_str=True).parameters.values() if each.name != "values"]
    parameters = [*_option_parameters(ServeOptions), *_option_parameters(JwtSettings, JWT_PREFIX), *own]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    return function


@_takes_settings
def serve(
    *,
    console: Annotated[
        bool | None,
        typer.Option(
            "--console/--no-console",
            envvar="TELLBACK_CONSOLE",
            help="Serve the web console at /console. On by default if tellback\\[console] is installed and"
            " --workers is 1.",
            show_default=False,
        ),
    ] = None,
    verbose: VerboseOption = False,
    **values: Any,
) -> None:
    """Start the HTTP server: REST, streaming, an OpenAI-compatible API, MCP and a web console.

    Every option except --verbose can also be set in the environment: TELLBACK_URL, TELLBACK_PORT and so on. Separate
    several values of one variable with spaces.
    """
    try:
        options = ServeOptions(
            **_setting_values(ServeOptions, values),
            jwt=_jwt_settings(_setting_values(JwtSettings, values, JWT_PREFIX)),
            verbose=verbose,
            web_uis=_web_uis(console, values["workers"]),
        )
        code = run_server(options)
    except TellbackError as error:
        fail(str(error))
    raise typer.Exit(code)


def run_server(options: ServeOptions, extra_lines: Callable[[str], list[str]] = lambda address: []) -> int:
    """Run the server until a stop signal, and return the exit code.

    `extra_lines` returns more lines to print at startup, from the server's address.
    """
    from tellback.server.operations.logs import log_to_stderr
    from tellback.server.operations.supervisor import supervise

    try:
        from tellback.server.operations import http_server
    except ModuleNotFoundError as error:
        if error.name not in ("uvicorn", "httptools"):
            raise
        raise MissingExtraError(error.name, "server", "The server") from error
    log_to_stderr(options.log_format, verbose=options.verbose)
    with http_server.bind_socket(options.host, options.port) as server_socket:
        checked_options = asyncio.run(http_server.check_options(options))

        def print_startup() -> None:
            address = http_server.server_url(server_socket)
            for line in (*startup_lines(checked_options, address), *extra_lines(address)):
                typer.echo(line)

        if options.workers > 1:
            return supervise(checked_options, server_socket, print_startup)
        http_server.run_server(checked_options, server_socket, print_startup)
    return 0


def startup_lines(options: ServeOptions, address: str) -> list[str]:
    """Return the lines to print once the server accepts requests."""
    from tellback.chat.offline import SETUP_HINT, is_offline
    from tellback.server.operations.http_server import key_creation_command

    mcp_note = f", MCP: {address}/mcp" if find_spec("mcp") else ""
    lines = [f"Tellback is running at {address} (API docs: {address}/docs{mcp_note})."]
    if options.web_uis:
        lines.append(f"Console: {address}/console/")
    if options.model is None or is_offline(options.model):
        lines.append(f"No model is set up: answers only quote memory. {SETUP_HINT}")
    else:
        lines.append(f"Model: {options.model}")
    if options.open:
        key_hint = f"To allow remote access, create a key with {key_creation_command(options.url)} and restart."
        advice = "An in-memory store cannot have API keys." if options.url == ":memory:" else key_hint
        lines.append(
            f"There is no API key, so only this machine has access, and every local user has full access. {advice}"
        )
    return lines


def _web_uis(console: bool | None, workers: int) -> tuple[Callable[[], WebUI], ...]:
    """Return the console if it is requested, or by default if it can run."""
    if console is None:
        console = workers == 1 and find_spec("nicegui") is not None
    if not console:
        return ()
    if find_spec("nicegui") is None:
        raise MissingExtraError("nicegui", "console", "The console")
    from tellback import server

    _ = server.create_app  # raises MissingExtraError, unlike the import of the console
    from tellback.console import create_console_ui

    return (create_console_ui,)


def _jwt_settings(values: dict[str, Any]) -> JwtSettings | None:
    given = [values[name] is not None for name in ("issuer", "audience", "jwks_url")]
    if not any(given):
        return None
    if not all(given):
        raise ConfigurationError("JWT authentication requires all of --jwt-issuer, --jwt-audience and --jwks-url.")
    return JwtSettings(**values)


def demo(
    url: Annotated[str, typer.Option("--url", help="Store: a file or postgresql://…")] = "tellback-demo.db",
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, help="Port to listen on. Default: 8765, or the next free port."),
    ] = None,
    model: ModelOption = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the console in the browser.")] = False,
) -> None:
    """Start a demo server: the web console, an agent with routes, and a fictional user with memories.

    Works without any setup. Without a model, answers only quote memory. To use a model, set a provider's API key,
    start Ollama, or pass --model with a GGUF file. Your messages are stored only in the demo file.
    """
    try:
        options = _demo_options(url, port, model)
        has_sample = asyncio.run(_load_sample(url))
        logging.getLogger("tellback.server.access").setLevel(logging.WARNING)
        code = run_server(options, lambda address: _guide_lines(address, url, open_browser, has_sample))
    except TellbackError as error:
        fail(str(error))
    raise typer.Exit(code)


def _demo_options(url: str, port: int | None, model: str | None) -> ServeOptions:
    if find_spec("nicegui") is None:  # the console extra includes the server
        raise MissingExtraError("nicegui", "console", "The demo")
    from tellback.console import create_console_ui

    return ServeOptions(
        url=url,
        host=LOCAL_HOST,
        port=_find_free_port(DEMO_PORT) if port is None else port,
        model=model,
        agents=("tellback.demo:build_tables_agent",),
        web_uis=(create_console_ui,),
        log_format="text",
    )


async def _load_sample(url: str) -> bool:
    from tellback.app import Tellback
    from tellback.demo import load_sample

    async with Tellback(url, worker=False) as tb:
        return await load_sample(tb)


def _find_free_port(port: int) -> int:
    found = next((each for each in range(port, port + PORT_ATTEMPTS) if probe_port(each) is None), None)
    if found is None:
        last = port + PORT_ATTEMPTS - 1
        raise ConfigurationError(f"The ports {port} to {last} are all in use: pass another one with --port.")
    return found


def _guide_lines(address: str, url: str, open_browser: bool, has_sample: bool) -> list[str]:
    console_url = f"{address}/console/"
    if open_browser:
        webbrowser.open(console_url)
    suggestions = [
        f'Open {console_url} and write about yourself: "I moved to Lisbon in March, and I\'m vegetarian now."',
        'Click "New conversation" and ask: "Where did I move?" The answer cites your message.',
        'Select the agent Restaurant and write: "A table for two tomorrow". "Routes" shows the current state.',
    ]
    if has_sample:
        suggestions.append(f"Browse the memory of Maya, a fictional user: {console_url}memory?user=maya")
    numbered = (f"  {number}. {each}" for number, each in enumerate(suggestions, 1))
    store_name = "your database" if "://" in url else url  # a URL can contain a password
    return ["", "Things to try:", *numbered, "", f"Your messages are stored in {store_name}. Press Ctrl-C to stop."]


def mcp(
    url: RequiredUrlOption,
    user: Annotated[
        str,
        typer.Option(
            envvar="TELLBACK_USER", help="Id of the user whose memory MCP clients can use.", show_default=False
        ),
    ],
    tenant: Annotated[
        str, typer.Option(envvar="TELLBACK_TENANT", help="Tenant: the organization that the user belongs to.")
    ] = "default",
    app: Annotated[
        str, typer.Option(envvar="TELLBACK_APP", help="App: your application, if several share the store.")
    ] = "default",
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only tools that change nothing.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Start an MCP server for the memory of one user, on standard input and output.

    For MCP clients that start the server themselves, such as desktop assistants and editors.
    """
    from tellback.app import Tellback

    log_to_console(verbose=verbose)
    try:
        tb = Tellback(url, worker=False)
        asyncio.run(serve_mcp(tb, user, tenant, app, read_only=read_only))
    except TellbackError as error:
        fail(str(error))


async def serve_mcp(tb: Tellback, user: str, tenant: str, app: str, *, read_only: bool = False) -> None:
    """Serve until the input ends or a stop signal arrives; then close the store."""
    from tellback.mcp import serve_stdio

    with stop_on_signals() as stop:
        async with tb:
            log.info("Serving the memory of %s from %s", user, tb.store.url)
            await run_or_stop(serve_stdio(tb, user, tenant, app, read_only=read_only), stop)
            log.info("MCP server stopping")
