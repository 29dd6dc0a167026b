"""What every page has around it: navigation, whose memory it is, light and dark, and how its errors are shown."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nicegui import ui
from starlette.requests import Request

from tellback.console import widgets
from tellback.console.parts import note
from tellback.console.seat import FAILED, Seat
from tellback.console.style import STYLE
from tellback.errors import TellbackError

log = logging.getLogger("tellback.console")

THEME_COOKIE = "tellback_theme"
CHECK_SECONDS = 20.0
"""How often a page that is left open looks whether its credential still holds."""
RESPONSE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the navigation."""

    path: str
    title: str
    icon: str
    for_admins: bool = False


PLACES = (
    Place("/", "Chat", "chat"),
    Place("/conversations", "Conversations", "forum"),
    Place("/memory", "Memory", "psychology"),
    Place("/timeline", "Timeline", "timeline"),
    Place("/entities", "Entities", "hub"),
    Place("/routes", "Routes", "account_tree"),
    Place("/jobs", "Jobs", "pending_actions"),
    Place("/usage", "Usage", "query_stats"),
    Place("/data", "Your data", "folder_shared"),
)

Build = Callable[[Seat], Awaitable[None]]


def console_page(path: str, title: str) -> Callable[[Build], Build]:
    """Make a page of the console of a function that builds it for a seat.

    A page that needs a user is shown once one is named. What a build raises of ours is told in its place.
    """

    def registered(build: Build) -> Build:
        @ui.page(path, title=f"{title} · Tellback", response_timeout=RESPONSE_SECONDS)
        async def shown(request: Request) -> None:
            seat = Seat.of(request)
            _frame(seat, path, title, request.cookies.get(THEME_COOKIE))
            with widgets.box("main").props("id=content tabindex=-1"):  # Quasar has put <main> around it
                if seat.user_id is None:
                    ask_for_user(seat, path)
                    return
                try:
                    await build(seat)
                except TellbackError as error:
                    note(seat.words(error), is_wrong=True)
                except Exception:
                    log.exception("the page %s failed", path)
                    note(FAILED, is_wrong=True)

        return build

    return registered


def ask_for_user(seat: Seat, path: str) -> None:
    """Have the person say whose memory to look at."""
    with widgets.empty("person_search", "Whose memory?", "This credential is for any user of its app: name one."):
        _user_field(seat, path, "User id")


def _user_field(seat: Seat, path: str, label: str) -> None:
    field = ui.input(label).props("autofocus outlined dense maxlength=200")

    def go() -> None:
        if field.value.strip():
            ui.navigate.to(seat.link(path, user=field.value.strip()))

    field.on("keydown.enter", go)
    ui.button("Show", on_click=go).props("no-caps unelevated")


def _frame(seat: Seat, path: str, title: str, theme: str | None) -> None:
    ui.add_css(STYLE)
    widgets.styled()
    dark = ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
    with ui.header().classes("items-center"):
        ui.link("Skip to content", "#content").classes("skip")
        widgets.icon_button("menu", "Pages", lambda: drawer.toggle())
        ui.label(title).classes("title").props('role=heading aria-level="1"')
        ui.space()
        _user_button(seat, path)
        widgets.icon_button("contrast", "Light or dark", lambda: _turn(dark))
        if not seat.is_open:
            with ui.element("form").props('method="post" action="./logout"'):
                widgets.icon_button("logout", "Log out", lambda: None).props("type=submit")
    drawer = ui.left_drawer().props("bordered breakpoint=900 width=220")
    with drawer, ui.element("nav").props('aria-label="Pages"').classes("column gap-1"):
        for place in PLACES:
            if place.for_admins and not seat.caller.is_admin:
                continue
            link = ui.link(target=seat.link(place.path)).classes("place")
            if place.path == path:
                link.props("aria-current=page")
            with link:
                ui.icon(place.icon, size="1.3rem").props("aria-hidden=true")
                ui.label(place.title)
    ui.timer(CHECK_SECONDS, seat.check)


def _user_button(seat: Seat, path: str) -> None:
    if not seat.may_choose:
        widgets.named(ui.label(seat.user_id or "").classes("whose quiet"), f"User {seat.user_id}")
        return
    button = ui.button(seat.user_id or "Whose?", icon="person").props("flat no-caps dense color=inherit")
    widgets.named(button.classes("whose"), f"User {seat.user_id}: show another" if seat.user_id else "Choose a user")
    with button, ui.menu(), ui.column().classes("q-pa-md"):
        _user_field(seat, path, "Show another user")


async def _turn(dark: ui.dark_mode) -> None:
    """Light or dark, remembered by the browser."""
    is_dark = await ui.run_javascript("document.body.classList.contains('body--dark')")
    dark.set_value(not is_dark)
    theme = "light" if is_dark else "dark"
    ui.run_javascript(f"document.cookie = '{THEME_COOKIE}={theme}; max-age=31536000; samesite=lax'")
