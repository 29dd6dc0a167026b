"""`tellback serve`: the HTTP server."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellback.errors import ConfigurationError, MissingExtraError, TellbackError

if TYPE_CHECKING:
    from tellback.server.reception import WebUI
    from tellback.server.serve_options import ServeOptions
    from tellback.server.settings import JwtSettings

ENV_PREFIX = "TELLBACK_"


class LogFormat(StrEnum):
    """How the log is written."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


class ServeExtractorName(StrEnum):
    """What makes memories of conversations."""

    LLM = "llm"
    VERBATIM = "verbatim"


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
        ServeExtractorName | None, env_option("extractor", "How conversations are read: by the model if there is one.")
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
    log_format: Annotated[LogFormat, env_option("log-format", "JSON, or text for people.")] = LogFormat.AUTO,
    console: Annotated[
        bool | None,
        typer.Option(
            "--console/--no-console",
            envvar="TELLBACK_CONSOLE",
            help="Pages for people at /console: by default if its extra is installed and one process serves.",
            show_default=False,
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.")] = False,
) -> None:
    """Serve conversations, memory and agents over HTTP: REST, streams, an OpenAI-compatible API, MCP, and a console.

    Every option can be given in the environment as well: TELLBACK_URL, TELLBACK_PORT and so on. Lists are separated
    by spaces there.
    """
    try:
        from tellback.server.serve_options import ServeOptions

        options = ServeOptions(
            url=url,
            host=host,
            port=port,
            workers=workers,
            model=model,
            models=tuple(allow_model or ()),
            agents=tuple(agents or ()),
            extractor=None if extractor is None else extractor.value,
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
            log_format=log_format.value,
            verbose=verbose,
            web_uis=_web_uis(console, workers),
        )
        code = run_server(options)
    except TellbackError as error:
        typer.secho(f"{error}", err=True, fg="red")
        raise typer.Exit(2) from error
    raise typer.Exit(code)


def run_server(options: ServeOptions, extra_lines: Callable[[str], list[str]] = lambda address: []) -> int:
    """Serve by these options until told to stop; gives the exit code. `guide` gives more to say of the address."""
    from tellback.server.logs import log_to_stderr
    from tellback.server.supervising import supervise

    try:
        from tellback.server import running
    except ModuleNotFoundError as error:
        if error.name not in ("uvicorn", "httptools"):
            raise
        raise MissingExtraError(error.name, "server", "The server") from error
    log_to_stderr(options.log_format, verbose=options.verbose)
    _ = options.settings  # what is wrong with them is told before anything is opened
    with running.bind_socket(options.host, options.port) as server_socket:
        checked_options = asyncio.run(running.check_options(options))

        def print_startup() -> None:
            address = running.server_url(server_socket)
            for line in (*startup_lines(checked_options, address), *extra_lines(address)):
                typer.echo(line)

        if options.workers > 1:
            return supervise(checked_options, server_socket, print_startup)
        running.run_server(checked_options, server_socket, print_startup)
    return 0


def startup_lines(options: ServeOptions, address: str) -> list[str]:
    """What is said once the server answers."""
    from tellback.chat.offline import SETUP_HINT, is_offline
    from tellback.server.running import key_creation_command

    mcp_note = ", MCP at /mcp" if importlib.util.find_spec("mcp") else ""
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
        console = workers == 1 and importlib.util.find_spec("nicegui") is not None
    if not console:
        return ()
    if importlib.util.find_spec("nicegui") is None:
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
