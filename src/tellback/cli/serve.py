"""`tellback serve`, `demo` and `mcp`: the HTTP server, a server with sample data, and MCP over stdio."""

from __future__ import annotations

import asyncio
import logging
import socket
import webbrowser
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tellback.cli.options import ExtractorName, ModelOption, RequiredUrlOption, VerboseOption
from tellback.cli.output import log_to_console
from tellback.cli.runner import fail, run_or_stop, stop_on_signals
from tellback.errors import ConfigurationError, MissingExtraError, TellbackError

if TYPE_CHECKING:
    from tellback.app import Tellback
    from tellback.server.middleware.browser_auth import WebUI
    from tellback.server.settings import JwtSettings, ServeOptions

log = logging.getLogger("tellback.cli")

ENV_PREFIX = "TELLBACK_"
DEMO_HOST = "127.0.0.1"
DEMO_PORT = 8765
PORT_ATTEMPTS = 20


def env_option(name: str, help: str, **settings: Any) -> Any:
    """An option that is also read from the environment: `--log-format` from `TELLBACK_LOG_FORMAT`."""
    return typer.Option(f"--{name}", envvar=ENV_PREFIX + name.replace("-", "_").upper(), help=help, **settings)


def serve(
    url: Annotated[str, env_option("url", "The store: a file, or postgresql://…")] = "tellback.db",
    host: Annotated[str, env_option("host", "The address to serve on.")] = "127.0.0.1",
    port: Annotated[int, env_option("port", "The port to serve on.", min=0, max=65_535)] = 8765,
    workers: Annotated[int, env_option("workers", "Processes that serve; several need PostgreSQL.", min=1, max=64)] = 1,
    model: Annotated[
        str | None, env_option("model", "The model that answers where none is named: by default the best at hand.")
    ] = None,
    allow_model: Annotated[list[str] | None, env_option("allow-model", "Another that callers may name.")] = None,
    agents: Annotated[
        list[str] | None, env_option("agents", "Agents: a file, a folder, or module:attribute for those with routes.")
    ] = None,
    extractor: Annotated[
        ExtractorName | None, env_option("extractor", "How conversations are read: by the model if there is one.")
    ] = None,
    prompts: Annotated[str | None, env_option("prompts", "A folder with prompts of your own.")] = None,
    worker: Annotated[
        bool,
        typer.Option("--worker/--no-worker", envvar="TELLBACK_WORKER", help="Run jobs in this process as well."),
    ] = True,
    jwt_issuer: Annotated[str | None, env_option("jwt-issuer", "Take tokens of this issuer.")] = None,
    jwt_audience: Annotated[str | None, env_option("jwt-audience", "Whom tokens must be for.")] = None,
    jwks_url: Annotated[str | None, env_option("jwks-url", "Where the issuer's keys are.")] = None,
    jwt_tenant: Annotated[str | None, env_option("jwt-tenant", "The tenant of tokens that name none.")] = None,
    jwt_app: Annotated[str, env_option("jwt-app", "The app of tokens that name none.")] = "default",
    jwt_role: Annotated[str, env_option("jwt-role", "The role of tokens that name none.")] = "user",
    jwt_tenant_claim: Annotated[str, env_option("jwt-tenant-claim", "The claim with the tenant.")] = "tenant_id",
    jwt_app_claim: Annotated[str, env_option("jwt-app-claim", "The claim with the app.")] = "app_id",
    jwt_role_claim: Annotated[str, env_option("jwt-role-claim", "The claim with the role.")] = "role",
    jwt_user_claim: Annotated[str, env_option("jwt-user-claim", "The claim with the user.")] = "sub",
    cors_origin: Annotated[list[str] | None, env_option("cors-origin", "A web page's origin that may call.")] = None,
    allowed_host: Annotated[list[str] | None, env_option("allowed-host", "A name this server goes by.")] = None,
    rate_limit: Annotated[
        int, env_option("rate-limit", "Requests a minute for each credential; 0 is no limit.", min=0)
    ] = 600,
    failure_limit: Annotated[
        int, env_option("failure-limit", "Failed attempts a minute to get in, from each address; 0 is no limit.", min=0)
    ] = 60,
    concurrency: Annotated[
        int,
        env_option("concurrency", "Requests and streams at once of each credential, in each process; 0: any.", min=0),
    ] = 100,
    body_bytes: Annotated[int, env_option("body-bytes", "The bytes that a body may have.", min=1)] = 4_000_000,
    text_length: Annotated[int, env_option("text-length", "The characters that a text may have.", min=1)] = 200_000,
    page_size: Annotated[int, env_option("page-size", "How many a page has if nobody says.", min=1)] = 50,
    largest_page: Annotated[int, env_option("largest-page", "How many a page has at most.", min=1)] = 200,
    heartbeat_seconds: Annotated[
        float, env_option("heartbeat-seconds", "How long a stream is silent at most.", min=0.1, max=3_600)
    ] = 15.0,
    shutdown_seconds: Annotated[
        float, env_option("shutdown-seconds", "How long turns may take to end on shutdown.", min=0, max=3_600)
    ] = 30.0,
    metrics_token: Annotated[
        str | None, env_option("metrics-token", "What /metrics asks for; better given by the environment.")
    ] = None,
    trust_proxy: Annotated[
        list[str] | None, env_option("trust-proxy", "The address of a proxy that says who calls.")
    ] = None,
    log_format: Annotated[
        Literal["auto", "json", "text"], env_option("log-format", "JSON, or text for people.")
    ] = "auto",
    console: Annotated[
        bool | None,
        typer.Option(
            "--console/--no-console",
            envvar="TELLBACK_CONSOLE",
            help="Pages for people at /console: by default if its extra is installed and one process serves.",
            show_default=False,
        ),
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Serve conversations, memory and agents over HTTP: REST, streams, an OpenAI-compatible API, MCP, and a console.

    Every option can be given in the environment as well: TELLBACK_URL, TELLBACK_PORT and so on. Lists are separated
    by spaces there.
    """
    try:
        from tellback.server.settings import ServeOptions

        options = ServeOptions(
            url=url,
            host=host,
            port=port,
            workers=workers,
            model=model,
            models=tuple(allow_model or ()),
            agents=tuple(agents or ()),
            extractor=extractor,
            prompts=prompts,
            runs_jobs=worker,
            jwt=_jwt_settings(
                jwt_issuer,
                jwt_audience,
                jwks_url,
                tenant_id=jwt_tenant,
                app_id=jwt_app,
                role=jwt_role,
                tenant_claim=jwt_tenant_claim,
                app_claim=jwt_app_claim,
                role_claim=jwt_role_claim,
                user_claim=jwt_user_claim,
            ),
            cors_origins=tuple(cors_origin or ()),
            allowed_hosts=tuple(allowed_host or ()),
            rate_limit=rate_limit or None,
            failure_limit=failure_limit or None,
            concurrency=concurrency or None,
            body_bytes=body_bytes,
            text_length=text_length,
            page_size=page_size,
            largest_page=largest_page,
            heartbeat_seconds=heartbeat_seconds,
            shutdown_seconds=shutdown_seconds,
            metrics_token=metrics_token or None,
            trust_proxy=tuple(trust_proxy or ()),
            log_format=log_format,
            verbose=verbose,
            web_uis=_web_uis(console, workers),
        )
        code = run_server(options)
    except TellbackError as error:
        fail(str(error))
    raise typer.Exit(code)


def run_server(options: ServeOptions, extra_lines: Callable[[str], list[str]] = lambda address: []) -> int:
    """Serve by these options until told to stop, and return the exit code.

    `extra_lines` builds more lines to print at the start, from the server's address.
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
    _ = options.settings  # what is wrong with them is told before anything is opened
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
    """What is said once the server answers."""
    from tellback.chat.offline import SETUP_HINT, is_offline
    from tellback.server.operations.http_server import key_creation_command

    mcp_note = ", MCP at /mcp" if find_spec("mcp") else ""
    lines = [f"Tellback serves {address}: its paths are described at /docs{mcp_note}."]
    if options.web_uis:
        lines.append(f"Open {address}/console/ in a browser.")
    if options.model is None or is_offline(options.model):
        lines.append(f"No model is set up: answers are quotations from memory. {SETUP_HINT}")
    else:
        lines.append(f"{options.model} answers.")
    if options.open:
        key_hint = f"make a key with {key_creation_command(options.url)} and start again."
        advice = "a store in memory has none." if options.url == ":memory:" else key_hint
        lines.append(
            f"There is no API key, so everyone on this machine may do everything, and nobody else anything: {advice}"
        )
    return lines


def _web_uis(console: bool | None, workers: int) -> tuple[Callable[[], WebUI], ...]:
    """The console, if it is wanted, or could be had and nobody said otherwise."""
    if console is None:
        console = workers == 1 and find_spec("nicegui") is not None
    if not console:
        return ()
    if find_spec("nicegui") is None:
        raise MissingExtraError("nicegui", "console", "The console")
    from tellback.console import create_console_ui

    return (create_console_ui,)


def _jwt_settings(issuer: str | None, audience: str | None, jwks_url: str | None, **claims: Any) -> JwtSettings | None:
    from tellback.server.settings import JwtSettings

    if issuer is None and audience is None and jwks_url is None:
        return None
    if issuer is None or audience is None or jwks_url is None:
        raise ConfigurationError("Tokens need all of --jwt-issuer, --jwt-audience and --jwks-url.")
    return JwtSettings(issuer=issuer, audience=audience, jwks_url=jwks_url, **claims)


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
    try:
        options = _demo_options(url, port, model)
        has_sample = asyncio.run(_load_sample(url))
        logging.getLogger("tellback.server.access").setLevel(logging.WARNING)
        code = run_server(options, lambda address: _guide_lines(address, url, open_browser, has_sample))
    except TellbackError as error:
        fail(str(error))
    raise typer.Exit(code)


def _demo_options(url: str, port: int | None, model: str | None) -> ServeOptions:
    if find_spec("nicegui") is None:  # its extra brings the server along
        raise MissingExtraError("nicegui", "console", "The demo")
    from tellback.console import create_console_ui
    from tellback.server.settings import ServeOptions

    return ServeOptions(
        url=url,
        host=DEMO_HOST,
        port=_find_free_port(DEMO_PORT) if port is None else port,
        model=model,
        agents=("tellback.demo:build_tables_agent",),
        web_uis=(create_console_ui,),
        log_format="text",
    )


async def _load_sample(url: str) -> bool:
    from tellback.app import Tellback
    from tellback.demo import load_sample

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


def mcp(
    url: RequiredUrlOption,
    user: Annotated[str, typer.Option(envvar="TELLBACK_USER", help="Whose memory it is.", show_default=False)],
    tenant: Annotated[str, typer.Option(envvar="TELLBACK_TENANT", help="The user's tenant.")] = "default",
    app: Annotated[str, typer.Option(envvar="TELLBACK_APP", help="The user's app.")] = "default",
    read_only: Annotated[bool, typer.Option("--read-only", help="Leave out the tools that change something.")] = False,
    verbose: VerboseOption = False,
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
        fail(str(error))


async def serve_mcp(rc: Tellback, user: str, tenant: str, app: str, *, read_only: bool = False) -> None:
    """Serve until the input ends, or until told to stop; then close the store."""
    from tellback.mcp import serve_stdio

    with stop_on_signals() as stop:
        async with rc:
            log.info("serving the memory of %s in %s", user, rc.store.url)
            await run_or_stop(serve_stdio(rc, user, tenant, app, read_only=read_only), stop)
            log.info("stopping")
