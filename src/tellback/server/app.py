"""Build the ASGI application: routes, middleware, CORS, error handlers and lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from tellback import __version__
from tellback.app import Tellback
from tellback.errors import ConfigurationError, TellbackError
from tellback.server.auth import Authenticator, ServerContext
from tellback.server.lifecycle import ShutdownSignal
from tellback.server.mcp_endpoint import add_mcp
from tellback.server.middleware.auth import AuthMiddleware
from tellback.server.middleware.browser_auth import WebUI
from tellback.server.middleware.fast_path import FastPathMiddleware
from tellback.server.middleware.observability import ObservabilityMiddleware
from tellback.server.openai.errors import OpenAIErrorMiddleware
from tellback.server.openapi import add_openapi
from tellback.server.operations import health, metrics
from tellback.server.problems import on_http_error, on_tellback_error, on_validation_error
from tellback.server.routes import all_routers
from tellback.server.settings import ServerSettings

if TYPE_CHECKING:
    from tellback.agent import Agent

_ALLOWED_HEADERS = (
    *("Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "traceparent"),
    *("X-Request-Id", "X-Tellback-Conversation", "X-Tellback-Namespace", "X-Tellback-Session"),
    *("X-Tellback-Space", "X-Tellback-User"),
)
_EXPOSED_HEADERS = (
    *("ETag", "Idempotency-Replayed", "Retry-After"),
    *("X-Tellback-Conversation", "X-Tellback-Session", "X-Request-Id"),
)

_TELEMETRY_OFF: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)


def add_cors(app: FastAPI, settings: ServerSettings) -> None:
    """Allow pages of `cors_origins` to call the API. Call this after adding `AuthMiddleware`, so that CORS wraps it."""
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "PATCH", "DELETE"),
            allow_headers=_ALLOWED_HEADERS,
            expose_headers=_EXPOSED_HEADERS,
            max_age=600,
        )


def create_app(
    tb: Tellback,
    settings: ServerSettings | None = None,
    *,
    agents: Iterable[Agent] = (),
    opens: bool = True,
    web_uis: Iterable[WebUI] = (),
) -> FastAPI:
    """Build the ASGI application that serves a Tellback: `uvicorn.run(create_app(tb))`.

    It opens the Tellback on startup and closes it on shutdown, unless `opens` is False: then you do both. `agents` are
    agents with routes to serve under `/ai-agents`, in addition to those of `tb.register_agent`. Unless
    `ServerSettings(open=True)` is set, every request needs a credential: `tb.keys.create(...)`, or `tellback keys
    create`. `web_uis` are web pages to mount: `tellback.console.ConsoleUI()`.

    >>> import asyncio
    >>> import httpx2
    >>> async def main():
    ...     async with Tellback(":memory:") as tb:
    ...         transport = httpx2.ASGITransport(create_app(tb, opens=False))
    ...         async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as http:
    ...             print((await http.get("/ai-conversations")).json()["code"])
    >>> asyncio.run(main())  # the request has no key
    not-authenticated
    """
    mounted_uis = tuple(web_uis)
    server_context = ServerContext(tb, settings or ServerSettings(), _agents_by_name(agents))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if opens:
                await stack.enter_async_context(tb)
            if mcp is not None:
                await stack.enter_async_context(mcp.running())
            yield

    handlers: dict[Any, Any] = {
        TellbackError: on_tellback_error,
        RequestValidationError: on_validation_error,
        HTTPException: on_http_error,
    }
    app = FastAPI(
        title="Tellback",
        version=__version__,
        summary="Conversational agents that remember.",
        lifespan=lifespan,
        exception_handlers=handlers,
        redirect_slashes=False,
        openapi_url=None,  # `add_openapi` serves it
        # Its spans would contain message texts; those of `ObservabilityMiddleware` do not.
        telemetry=_TELEMETRY_OFF,
    )
    for router in (*all_routers(), health.router, metrics.router):
        # Appended directly: `include_router` would rebuild each route for every app.
        app.router.routes.extend(router.routes)
    mcp = add_mcp(app, server_context.settings)
    add_openapi(app)
    append_route = next(each for each in app.router.routes if getattr(each, "name", "") == "append_user_message")
    app.add_middleware(FastPathMiddleware, route=append_route)
    app.add_middleware(
        AuthMiddleware,
        server_context=server_context,
        authenticator=Authenticator(tb, server_context.settings),
        web_uis=mounted_uis,
    )
    add_cors(app, server_context.settings)
    app.state.server_context = server_context
    app.state.stopping = ShutdownSignal()
    app.state.readiness = health.Readiness(tb)
    app.state.metrics = metrics.Metrics()
    app.add_middleware(OpenAIErrorMiddleware)
    for web_ui in mounted_uis:
        web_ui.add_to(app)
    app.add_middleware(ObservabilityMiddleware, metrics=app.state.metrics)  # the last one added is the outermost
    return app


def _agents_by_name(agents: Iterable[Agent]) -> dict[str, Agent]:
    by_name: dict[str, Agent] = {}
    for agent in agents:
        if agent.name in by_name:
            raise ConfigurationError(f"Two agents are called {agent.name!r}: agent names must be unique.")
        by_name[agent.name] = agent
    return by_name
