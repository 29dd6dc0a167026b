"""Where a session with an agent stands: its route, its state, and what was gathered."""

from __future__ import annotations

import json

from nicegui import ui

from tellback.agent.session import SessionState
from tellback.console import widgets
from tellback.console.seat import PageContext


class SessionCard:
    """A card that is shown anew after each answer."""

    def __init__(self, ctx: PageContext, agent: str) -> None:
        self._ctx = ctx
        self._agent = agent
        self._root = widgets.box("card", "stack", "tight", tag="section").props('aria-label="Where it stands"')

    def show(self, session: SessionState | None) -> None:
        """Show a session; None is one that has not begun."""
        self._root.clear()
        with self._root:
            with widgets.box("line"):
                route = None if session is None else session.current_route
                state = None if session is None else session.current_state
                widgets.chip(route.title if route is not None else "no route yet", "good" if route else "")
                if state is not None:
                    widgets.muted(widgets.truncate(state.description or state.id, 120))
                with widgets.box("actions"):
                    ui.link("Show the routes", self._ctx.link("/routes", agent=self._agent)).classes("go quiet")
            if session is not None:
                show_gathered(session)


def show_gathered(session: SessionState) -> None:
    """What the user has said so far, by field."""
    if session.extracted:
        widgets.pairs(
            *((name, widgets.truncate(_format_value(value), 300)) for name, value in session.extracted.items())
        )


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
