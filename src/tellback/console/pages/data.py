"""The page Your data: download or delete everything stored of a user."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from nicegui import app, ui
from starlette.requests import Request
from starlette.responses import Response

from tellback.console import widgets
from tellback.console.context import PageContext
from tellback.console.layout import console_page
from tellback.errors import InvalidArgumentError, TellbackError
from tellback.server.problems import error_response
from tellback.server.routes.admin import export_response
from tellback.stores.values import COLLECTIONS

PATH = "/data"
EXPORT_PATH = f"{PATH}/export"

COLLECTION_LABELS = {
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
    "idempotent_responses": "Answers kept for repeated requests",
    "events": "Events: what changed when",
}


@app.get(EXPORT_PATH)
async def download_export(request: Request) -> Response:
    """An export as a download: it may be too large for a page to hold."""
    try:
        ctx = PageContext.from_request(request)
        requested_format = ctx.query.get("format", "json")
        format: Literal["json", "zip"] = "zip" if requested_format == "zip" else "json"
        return await export_response(ctx.caller, ctx.user, format)
    except TellbackError as error:
        return error_response(error)


class DataPage:
    """All that is kept of a user: as files, and how to be rid of it."""

    def __init__(self, ctx: PageContext) -> None:
        self._ctx = ctx
        self._user_id = ctx.user.user_id

    async def build(self) -> None:
        ctx = self._ctx
        widgets.heading("Take it with you")
        widgets.muted(
            f"Everything that is kept of {self._user_id}: as one JSON file, or a zip with a file for each collection."
        )
        with widgets.box("line"):
            self._show_download("Download JSON", "json")
            self._show_download("Download zip", "zip")
        widgets.heading("What is kept")
        self._counts_box = widgets.box("stack")
        with self._counts_box:
            widgets.muted("Counting…").props("role=status")
        ui.timer(0.05, ctx.guard(self._show_counts), once=True)
        widgets.heading("Delete everything")
        with widgets.box("card", "stack"):
            ui.label(
                "Conversations, memories, entities, jobs and keys are deleted for good, also from the files of the"
                " store. Nobody can bring them back. Download them first if you may need them."
            ).classes("said")
            with widgets.box("line"):
                on_delete = ctx.guard(self._delete_everything)
                self._confirm_field = widgets.text_field("Type the user id to confirm", "", on_delete).classes("wide")
                self._confirm_field.props("autocomplete=off").on_value_change(self._on_confirm_typed)
                self._confirm_field.props["hint"] = f"The user id is {self._user_id}"
                self._delete_button = widgets.button("Delete everything", "delete_forever", on_delete, "main")
                self._delete_button.props("color=negative").disable()
            self._result_box = widgets.box("stack").props("role=status")

    def _show_download(self, text: str, format: str) -> None:
        button = widgets.button(text, "download", None, "outline")
        button.props["href"] = self._ctx.link(EXPORT_PATH, format=format)
        button.props["download"] = f"tellback.{format}"

    async def _show_counts(self) -> None:
        counts: Counter[str] = Counter()
        async for collection, _ in self._ctx.user.admin.export_stream():
            counts[collection] += 1
        self._counts_box.clear()
        with self._counts_box:
            rows = [(COLLECTION_LABELS.get(name, name), f"{counts[name]:,}") for name in COLLECTIONS if counts[name]]
            if rows:
                widgets.table(("What", "How many"), rows, frozenset({1}))
            else:
                widgets.muted("Nothing is kept of this user.")

    def _on_confirm_typed(self) -> None:
        self._delete_button.set_enabled(self._confirm_field.value == self._user_id)

    async def _delete_everything(self) -> None:
        if self._confirm_field.value != self._user_id:
            raise InvalidArgumentError(f"Type the user id, {self._user_id!r:.80}, to have everything deleted.")
        erased = await self._ctx.user.admin.delete_user_data(confirm=True)
        self._confirm_field.value = ""
        self._result_box.clear()
        with self._result_box:
            if not any(erased.values()):
                ui.label("There was nothing to delete.")
            else:
                ui.label("Everything is deleted. These were the rows of the store:").classes("said")
                rows = [(name.replace("_", " "), f"{count:,}") for name, count in erased.items() if count]
                widgets.table(("What", "How many"), rows, frozenset({1}))
        await self._show_counts()


console_page(PATH, "Your data")(lambda ctx: DataPage(ctx).build())
