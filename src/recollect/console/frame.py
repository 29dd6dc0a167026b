"""What every page has around it: navigation, whose memory it is, light and dark, and how its errors are shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nicegui import ui
from starlette.requests import Request

from recollect.console.face import PATH
from recollect.console.seat import Seat
from recollect.errors import RecollectError

THEME_COOKIE = "recollect_theme"


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

_STYLE = """
:root { --edge: rgba(127, 127, 127, .3); --quiet: rgba(90, 90, 90, 1); --mine: #e3ecfb; --theirs: #f2f2f2; }
.body--dark { --quiet: rgba(175, 175, 175, 1); --mine: #24344f; --theirs: #2a2a2a; }
.nicegui-content { padding: 1rem; max-width: 60rem; margin: 0 auto; width: 100%; }
.said { white-space: pre-wrap; overflow-wrap: anywhere; }
.quiet { color: var(--quiet); font-size: .85rem; }
.card { border: 1px solid var(--edge); border-radius: .5rem; padding: .75rem 1rem; width: 100%; box-shadow: none; }
.place { display: flex; gap: .75rem; padding: .6rem 1rem; border-radius: .5rem; color: inherit; text-decoration: none; }
.place:hover, .place[aria-current] { background: rgba(127, 127, 127, .18); }
.skip { position: absolute; left: -100rem; } .skip:focus { left: 1rem; top: 1rem; z-index: 9999; background: #fff; }
:focus-visible { outline: 2px solid var(--q-primary); outline-offset: 2px; }
@media (max-width: 600px) { .nicegui-content { padding: .5rem; } }
"""


def console_page(path: str, title: str) -> Callable[[Build], Build]:
    """Make a page of the console of a function that builds it for a seat.

    A page that needs a user is shown once one is named. What a build raises of ours is told in its place.
    """

    def registered(build: Build) -> Build:
        @ui.page(path, title=f"{title} · Recollect")
        async def shown(request: Request) -> None:
            seat = Seat.of(request)
            _frame(seat, path, title, request.cookies.get(THEME_COOKIE))
            if seat.user_id is None:
                ask_for_user(seat, path)
                return
            try:
                await build(seat)
            except RecollectError as error:
                ui.label(str(error)).classes("said").props("role=alert")

        return build

    return registered


def ask_for_user(seat: Seat, path: str) -> None:
    """Have the person say whose memory to look at."""
    ui.label("Whose memory? This credential is for any user of its app.")
    _user_field(seat, path, "User id")


def _user_field(seat: Seat, path: str, label: str) -> None:
    field = ui.input(label).props("autofocus outlined dense")

    def go() -> None:
        if field.value:
            ui.navigate.to(seat.link(path, user=field.value))

    field.on("keydown.enter", go)
    ui.button("Show", on_click=go)


def _frame(seat: Seat, path: str, title: str, theme: str | None) -> None:
    ui.add_css(_STYLE)
    dark = ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
    ui.link("Skip to content", "#content").classes("skip")
    with ui.header().classes("items-center").props("bordered"):
        menu = ui.button(icon="menu").props("flat round color=white aria-label=Navigation")
        ui.label(title).classes("text-h6").props('role=heading aria-level="1"')
        ui.space()
        _user_button(seat, path)
        ui.button(icon="contrast", on_click=lambda: _turn(dark)).props(
            'flat round color=white aria-label="Light or dark"'
        )
        if not seat.is_open:
            with ui.element("form").props(f'method="post" action="{PATH}/logout"'):
                ui.button(icon="logout").props('flat round color=white type=submit aria-label="Log out"')
    drawer = ui.left_drawer().props("bordered breakpoint=900 width=220")
    with drawer, ui.element("nav").props('aria-label="Pages"').classes("column gap-1"):
        for place in PLACES:
            link = ui.link(target=seat.link(place.path)).classes("place")
            if place.path == path:
                link.props("aria-current=page")
            with link:
                ui.icon(place.icon, size="1.4rem")
                ui.label(place.title)
    menu.on_click(drawer.toggle)
    ui.element("div").props("id=content tabindex=-1")


def _user_button(seat: Seat, path: str) -> None:
    if not seat.may_choose:
        ui.label(seat.user_id or "")
        return
    button = ui.button(seat.user_id or "Whose?", icon="person").props("flat no-caps color=white")
    with button, ui.menu(), ui.column().classes("q-pa-md"):
        _user_field(seat, path, "Show another user")


async def _turn(dark: ui.dark_mode) -> None:
    """Light or dark, remembered by the browser."""
    is_dark = await ui.run_javascript("document.body.classList.contains('body--dark')")
    dark.set_value(not is_dark)
    theme = "light" if is_dark else "dark"
    ui.run_javascript(f"document.cookie = '{THEME_COOKIE}={theme}; path={PATH}; max-age=31536000; samesite=lax'")
