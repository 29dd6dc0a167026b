"""Your data: all that is kept of a user, to be taken away or deleted."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from nicegui import app, ui
from starlette.requests import Request
from starlette.responses import Response

from tellback.console import widgets
from tellback.console.frame import console_page
from tellback.console.seat import Seat
from tellback.errors import InvalidArgumentError, TellbackError
from tellback.server.problems import problem_of
from tellback.server.routes.admin import exported
from tellback.stores.ports.admin import COLLECTIONS

PATH = "/data"
EXPORT = f"{PATH}/export"

NAMES = {
    "conversations": "Conversations",
    "messages": "Messages",
    "sessions": "Agent sessions",
    "spaces": "Spaces of memory",
    "atoms": "Memories, also those that are over",
    "entities": "Entities",
    "bindings": "Bindings: which conversations become memories",
    "jobs": "Jobs",
    "usage": "Model calls that were counted",
    "api_keys": "API keys",
    "kept_answers": "Answers kept for repeated requests",
    "events": "Events: what changed when",
}


@app.get(EXPORT)
async def export(request: Request) -> Response:
    """An export as a download: it may be too large for a page to hold."""
    try:
        seat = Seat.of(request)
        wanted = seat.query.get("format", "json")
        format: Literal["json", "zip"] = "zip" if wanted == "zip" else "json"
        return await exported(seat.caller, seat.user, format)
    except TellbackError as error:
        return problem_of(error)


@console_page(PATH, "Your data")
async def data(seat: Seat) -> None:
    """What is kept, as files, and how to be rid of it."""
    await Data(seat).build()


class Data:
    """The page of one user."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._user_id = seat.user.user_id

    async def build(self) -> None:
        """Show it."""
        seat = self._seat
        widgets.title("Take it with you")
        widgets.quiet(
            f"Everything that is kept of {self._user_id}: as one JSON file, or a zip with a file for each collection."
        )
        with widgets.box("line"):
            self._download("Download JSON", "json")
            self._download("Download zip", "zip")
        widgets.title("What is kept")
        self._counts = widgets.box("stack")
        with self._counts:
            widgets.quiet("Counting…").props("role=status")
        ui.timer(0.05, seat.doing(self._count), once=True)
        widgets.title("Delete everything")
        with widgets.box("card", "stack"):
            ui.label(
                "Conversations, memories, entities, jobs and keys are deleted for good, also from the files of the"
                " store. Nobody can bring them back. Download them first if you may need them."
            ).classes("said")
            with widgets.box("line"):
                self._typed = ui.input("Type the user id to confirm", on_change=self._typing).classes("wide")
                self._typed.props("outlined dense autocomplete=off")
                self._typed.props["hint"] = f"The user id is {self._user_id}"
                self._button = ui.button("Delete everything", icon="delete_forever", on_click=seat.doing(self._delete))
                self._button.props("no-caps unelevated color=negative")
                self._button.disable()
            self._typed.on("keydown.enter", seat.doing(self._delete))
            self._deleted = widgets.box("stack").props("role=status")

    def _download(self, text: str, format: str) -> None:
        button = ui.button(text, icon="download").props("outline no-caps")
        button.props["href"] = self._seat.link(EXPORT, format=format)
        button.props["download"] = f"tellback.{format}"

    async def _count(self) -> None:
        counts: Counter[str] = Counter()
        async for collection, _ in self._seat.user.admin.export_stream():
            counts[collection] += 1
        self._counts.clear()
        with self._counts:
            rows = [(NAMES.get(name, name), f"{counts[name]:,}") for name in COLLECTIONS if counts[name]]
            if rows:
                widgets.table(("What", "How many"), rows, frozenset({1}))
            else:
                widgets.quiet("Nothing is kept of this user.")

    def _typing(self) -> None:
        self._button.set_enabled(self._typed.value == self._user_id)

    async def _delete(self) -> None:
        if self._typed.value != self._user_id:
            raise InvalidArgumentError(f"Type the user id, {self._user_id!r:.80}, to have everything deleted.")
        erased = await self._seat.user.admin.delete_user_data(confirm=True)
        self._typed.value = ""
        self._deleted.clear()
        with self._deleted:
            if not any(erased.values()):
                ui.label("There was nothing to delete.")
            else:
                ui.label("Everything is deleted. These were the rows of the store:").classes("said")
                rows = [(name.replace("_", " "), f"{count:,}") for name, count in erased.items() if count]
                widgets.table(("What", "How many"), rows, frozenset({1}))
        await self._count()
