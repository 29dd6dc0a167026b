"""Mount the console on a server."""

from __future__ import annotations

from html import escape

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tellback.errors import MissingExtraError
from tellback.server.middleware.browser_auth import accepts_html, render_plain_page
from tellback.server.problems import on_http_error

MOUNT_PATH = "/console"


class ConsoleUI:
    """The console's pages under `/console`. NiceGUI has one set of pages per process, so there is one console.

    >>> from tellback import Tellback
    >>> from tellback.server import create_app
    >>> app = create_app(Tellback(":memory:"), web_uis=[ConsoleUI()])
    >>> ConsoleUI.path in [route.path for route in app.routes]
    True
    """

    path = MOUNT_PATH

    def __init__(self) -> None:
        from nicegui import __version__

        # NiceGUI's static files are public. Its other paths serve content of pages and need a credential.
        self.assets: tuple[str, ...] = (f"{MOUNT_PATH}/_nicegui/{__version__}/",)

    def add_to(self, app: FastAPI) -> None:
        """Mount the pages on a server's app."""
        from nicegui import app as nicegui_app
        from nicegui import ui

        from tellback.console import pages  # the import registers the pages

        assert pages
        nicegui_app.add_exception_handler(404, _not_found)
        ui.run_with(
            app,
            mount_path=MOUNT_PATH,
            title="Tellback",
            favicon="💬",
            dark=None,
            tailwind=False,
            show_welcome_message=False,
            reconnect_timeout=30,
        )


def create_console_ui() -> ConsoleUI:
    """Create the console; raises `MissingExtraError` if NiceGUI is not installed.

    >>> create_console_ui().path
    '/console'
    """
    try:
        import nicegui  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "nicegui":
            raise
        raise MissingExtraError("nicegui", "console", "The console") from error
    return ConsoleUI()


async def _not_found(request: Request, error: Exception) -> Response:
    """Respond with 404. NiceGUI would create a page and keep it in memory for a minute, even without authentication."""
    if not accepts_html(request.scope):
        return await on_http_error(request, error)
    home = escape(f"{request.scope.get('root_path', '')}/")
    body = f'<p class="wrong" role="alert">Page not found.</p><p><a href="{home}">Go to the chat</a></p>'
    return HTMLResponse(render_plain_page("Page not found", body), 404)
