"""The ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from tellback import __version__
from tellback.app import Tellback
from tellback.errors import ConfigurationError, TellbackError
from tellback.server import health, metrics
from tellback.server.access import Access
from tellback.server.callers import Home
from tellback.server.cors import add_cors
from tellback.server.express import Express
from tellback.server.guard import Guard
from tellback.server.mcp_face import add_mcp
from tellback.server.observing import Observing
from tellback.server.openai.errors import OpenAIErrors
from tellback.server.openapi import describe, named
from tellback.server.problems import on_http_error, on_tellback_error, on_validation_error
from tellback.server.reception import Face
from tellback.server.routes import all_routers, conversations
from tellback.server.settings import ServerSettings
from tellback.server.stopping import Stopping

if TYPE_CHECKING:
    from tellback.agent import Agent

_UNOBSERVED: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)


def create_app(
    rc: Tellback,
    settings: ServerSettings | None = None,
    *,
    agents: Iterable[Agent] = (),
    opens: bool = True,
    faces: Iterable[Face] = (),
) -> FastAPI:
    """The server of a Tellback, as an ASGI application: `uvicorn.run(create_app(rc))`.

    It opens the Tellback when it starts and closes it when it ends, unless `opens` is False: then that is yours.
    `agents` are those with routes that are served under `/ai-agents`, besides what `rc.register_agent` knows. Without
    `ServerSettings(open=True)` every request needs a credential: `rc.keys.create(...)`, or `tellback keys create`.
    `faces` are pages for people: `tellback.console.ConsoleFace()`.
    """
    pages = tuple(faces)
    home = Home(rc, settings or ServerSettings(), _named(agents))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if opens:
                await stack.enter_async_context(rc)
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
        openapi_url=None,  # `describe` serves it
        # What it would note of requests holds what was said; `Observing` has spans and metrics without.
        telemetry=_UNOBSERVED,
    )
    for router in (*all_routers(), health.router, metrics.router):
        # As they are: including them would make each route anew, for every app, when it is first asked for.
        app.router.routes.extend(named(router))
    mcp = add_mcp(app, home.settings)
    describe(app)
    app.add_middleware(Express, route=conversations.append_route())
    app.add_middleware(Guard, home=home, access=Access(rc, home.settings), faces=pages)
    add_cors(app, home.settings)
    app.state.home = home
    app.state.stopping = Stopping()
    app.state.readiness = health.Readiness(rc)
    app.state.metrics = metrics.Metrics()
    app.add_middleware(OpenAIErrors)
    for face in pages:
        face.add_to(app)
    app.add_middleware(Observing, metrics=app.state.metrics)  # the last one added is the outermost
    return app


def _named(agents: Iterable[Agent]) -> dict[str, Agent]:
    found: dict[str, Agent] = {}
    for agent in agents:
        if agent.name in found:
            raise ConfigurationError(f"Two agents are called {agent.name!r}: clients name them by that.")
        found[agent.name] = agent
    return found
