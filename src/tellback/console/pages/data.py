"""The page Your data: export or delete everything stored about a user."""

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
    "spaces": "Memory spaces",
    "atoms": "Memories, including superseded ones",
    "entities": "Entities",
    "bindings": "Bindings (rules that select conversations for memory extraction)",
    "jobs": "Jobs",
    "usage": "Model calls",
    "api_keys": "API keys",
    "idempotent_responses": "Stored responses (returned if a request is sent again)",
    "events": "Events (change history)",
}


@app.get(EXPORT_PATH)
async def download_export(request: Request) -> Response:
    """Stream an export as a download, because it may be too large for a page."""
    try:
        ctx = PageContext.from_request(request)
        requested_format = ctx.query.get("format", "json")
        format: Literal["json", "zip"] = "zip" if requested_format == "zip" else "json"
        return await export_response(ctx.caller, ctx.user, format)
    except TellbackError as error:
        return error_response(error)


class DataPage:
    """Export and deletion of all data of a user."""

    def __init__(self, ctx: PageContext) -> None:
        self._ctx = ctx
        self._user_id = ctx.user.user_id

    async def build(self) -> None:
        ctx = self._ctx
        widgets.heading("Export")
        widgets.muted(
            f"Download all data of the user {self._user_id!r}, as one JSON file or as a zip file with one file per kind"
            " of data."
        )
        with widgets.box("line"):
            self._show_download("Download JSON", "json")
            self._show_download("Download zip", "zip")
        widgets.heading("Stored data")
        self._counts_box = widgets.box("stack")
        with self._counts_box:
            widgets.muted("Counting…").props("role=status")
        ui.timer(0.05, ctx.guard(self._show_counts), once=True)
        widgets.heading("Delete account data")
        with widgets.box("card", "stack"):
            ui.label(
                f"This permanently deletes all data of the user {self._user_id!r}: conversations, agent sessions,"
                " memories, entities, jobs, events, usage records, and the user's API keys of this server. After that,"
                " the files of the database contain no trace of the data. You cannot undo this. Export the data first"
                " if you may need it."
            ).classes("said")
            with widgets.box("line"):
                on_delete = ctx.guard(self._delete_everything)
                self._confirm_field = widgets.text_field("Type the user id to confirm", "", on_delete).classes("wide")
                self._confirm_field.props("autocomplete=off").on_value_change(self._on_confirm_typed)
                self._confirm_field.props["hint"] = f"User id: {self._user_id}"
                self._delete_button = widgets.button("Delete account data", "delete_forever", on_delete, "main")
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
                widgets.table(("Data", "Entries"), rows, frozenset({1}))
            else:
                widgets.muted("No data is stored for this user.")

    def _on_confirm_typed(self) -> None:
        self._delete_button.set_enabled(self._confirm_field.value == self._user_id)

    async def _delete_everything(self) -> None:
        if self._confirm_field.value != self._user_id:
            raise InvalidArgumentError(f"Type the user id, {self._user_id!r:.80}, to confirm the deletion.")
        erased = await self._ctx.user.admin.delete_user_data(confirm=True)
        self._confirm_field.value = ""
        self._result_box.clear()
        with self._result_box:
            if not any(erased.values()):
                ui.label("There was nothing to delete.")
            else:
                ui.label("All account data was deleted. Deleted entries:").classes("said")
                labelled: Counter[str] = Counter()
                for name, count in erased.items():
                    labelled[COLLECTION_LABELS.get(name, "Index and other internal entries")] += count
                rows = [(label, f"{count:,}") for label, count in labelled.items() if count]
                widgets.table(("Data", "Entries"), rows, frozenset({1}))
        await self._show_counts()


console_page(PATH, "Your data")(lambda ctx: DataPage(ctx).build())
