"""The layout around every page: navigation, user menu, theme switch and error handling."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from nicegui import ui
from starlette.requests import Request

from tellback.console import widgets
from tellback.console.context import SERVER_FAILED, PageContext
from tellback.console.theme import CSS
from tellback.console.widgets import note
from tellback.errors import TellbackError

log = logging.getLogger("tellback.console")

THEME_COOKIE = "tellback_theme"
CREDENTIAL_CHECK_SECONDS = 20.0
"""How often an open page checks that its credential is still valid."""
RESPONSE_TIMEOUT = 15.0

NAVIGATION = (  # of each page: path, title and icon
    ("/", "Chat", "chat"),
    ("/conversations", "Conversations", "forum"),
    ("/memory", "Memory", "psychology"),
    ("/timeline", "Timeline", "timeline"),
    ("/entities", "Entities", "hub"),
    ("/routes", "Routes", "account_tree"),
    ("/jobs", "Jobs", "pending_actions"),
    ("/usage", "Usage", "query_stats"),
    ("/data", "Your data", "folder_shared"),
)

PageBuilder = Callable[[PageContext], Awaitable[None]]


def console_page(path: str, title: str) -> Callable[[PageBuilder], PageBuilder]:
    """Register a function that builds a page for a `PageContext` as a page of the console.

    Without a user, the page asks for a user id. A `TellbackError` of the build is shown in place of the page.
    """

    def decorate(build: PageBuilder) -> PageBuilder:
        @ui.page(path, title=f"{title} · Tellback", response_timeout=RESPONSE_TIMEOUT)
        async def handle_request(request: Request) -> None:
            ctx = PageContext.from_request(request)
            _build_layout(ctx, path, title, request.cookies.get(THEME_COOKIE))
            with widgets.box("main").props("id=content tabindex=-1"):  # Quasar has already added <main>
                if ctx.user_id is None:
                    _show_user_prompt(ctx, path)
                    return
                try:
                    await build(ctx)
                except TellbackError as error:
                    note(ctx.error_text(error), is_error=True)
                except Exception:
                    log.exception("the page %s failed", path)
                    note(SERVER_FAILED, is_error=True)

        return build

    return decorate


def _show_user_prompt(ctx: PageContext, path: str) -> None:
    hint = "With your key, you can see the data of all users of this application. Enter a user id."
    with widgets.empty_state("person_search", "Choose a user", hint):
        _show_user_field(ctx, path, "User id")


def _show_user_field(ctx: PageContext, path: str, label: str) -> None:
    field = ui.input(label).props("autofocus outlined dense maxlength=200")

    def show_user() -> None:
        if field.value.strip():
            ui.navigate.to(ctx.link(path, user=field.value.strip()))

    field.on("keydown.enter", show_user)
    widgets.button("Open", None, show_user, "main")


def _build_layout(ctx: PageContext, path: str, title: str, theme: str | None) -> None:
    ui.add_css(CSS)
    dark = ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
    with ui.header().classes("items-center"):
        ui.link("Skip to content", "#content").classes("skip")
        widgets.icon_button("menu", "Menu", lambda: drawer.toggle())
        ui.label(title).classes("title").props('role=heading aria-level="1"')
        ui.space()
        _show_user_button(ctx, path)
        widgets.icon_button("contrast", "Switch between light and dark", lambda: _toggle_theme(dark))
        if not ctx.caller.server.settings.open:  # an open server has no sign-in
            with ui.element("form").props('method="post" action="./logout"'):
                widgets.icon_button("logout", "Sign out", lambda: None).props("type=submit")
    drawer = ui.left_drawer().props("bordered breakpoint=900 width=220")
    with drawer, ui.element("nav").props('aria-label="Pages"').classes("column gap-1"):
        for entry_path, entry_title, icon in NAVIGATION:
            link = ui.link(target=ctx.link(entry_path)).classes("place")
            if entry_path == ("/memory" if path == "/atom" else path):
                link.props("aria-current=page")
            with link:
                ui.icon(icon, size="1.3rem").props("aria-hidden=true")
                ui.label(entry_title)
    ui.timer(CREDENTIAL_CHECK_SECONDS, ctx.check_credential)


def _show_user_button(ctx: PageContext, path: str) -> None:
    if ctx.caller.principal.user_id is not None:
        widgets.set_accessible_name(ui.label(ctx.user_id or "").classes("whose quiet"), f"User {ctx.user_id}")
        return
    button = ui.button(ctx.user_id or "Choose user", icon="person").props("flat no-caps dense color=inherit")
    widgets.set_accessible_name(
        button.classes("whose"), f"User {ctx.user_id}: switch user" if ctx.user_id else "Choose a user"
    )
    with button, ui.menu(), ui.column().classes("q-pa-md"):
        _show_user_field(ctx, path, "Id of another user")


async def _toggle_theme(dark: ui.dark_mode) -> None:
    """Switch between light and dark; the browser stores the choice in a cookie."""
    is_dark = await ui.run_javascript("document.body.classList.contains('body--dark')")
    dark.set_value(not is_dark)
    theme = "light" if is_dark else "dark"
    ui.run_javascript(f"document.cookie = '{THEME_COOKIE}={theme}; max-age=31536000; samesite=lax'")
