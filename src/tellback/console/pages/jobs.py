"""Jobs: conversations on their way to memories."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from tellback.console import widgets
from tellback.console.frame import console_page
from tellback.console.seat import Seat, tell
from tellback.errors import NotFoundError, TellbackError
from tellback.server.routes.jobs import shown
from tellback.types.jobs import Job, JobStatus

PATH = "/jobs"
PAGE = 30
SECONDS = 2.0
IDLE = 5
"""How many seconds pass before the page looks again while something runs; otherwise it is so many times as long."""

STATUSES = {"": "All", **{each.value: each.value.capitalize() for each in JobStatus}}
TONES = {JobStatus.DONE: "good", JobStatus.FAILED: "bad", JobStatus.RUNNING: "wait", JobStatus.QUEUED: "wait"}


@console_page(PATH, "Jobs")
async def jobs(seat: Seat) -> None:
    """The jobs of a user or, for admins, of everyone."""
    await Jobs(seat).build()


class Jobs:
    """The page. Whoever is no admin sees a user's own jobs, and of their errors what REST tells of them."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._most = PAGE
        self._drawn: list[Job] | None = None
        self._ticks = 0

    async def build(self) -> None:
        """Show it."""
        seat = self._seat
        again = seat.doing(self._search)
        asked = seat.query.get("status", "")
        with widgets.box("line"):
            self._status = ui.select(
                STATUSES, label="Show", value=asked if asked in STATUSES else "", on_change=again
            ).classes("some")
            self._status.props("outlined dense options-dense")
            self._everyone = ui.switch("Of all users of this app", on_change=again)
            self._everyone.set_visibility(seat.caller.is_admin)
            self._head = widgets.quiet("").props("role=status")
        self._list = widgets.box("stack").props('role=region aria-label="Jobs"')
        await self._show()
        ui.timer(SECONDS, seat.doing(self._look, by_itself=True), immediate=False)

    async def _search(self) -> None:
        self._most = PAGE
        ui.navigate.history.replace(self._seat.link(PATH, status=self._status.value or None))
        self._drawn = None
        await self._show()

    async def _more(self) -> None:
        self._most += PAGE
        await self._show()

    async def _look(self) -> None:
        """What changed since."""
        self._ticks += 1
        if self._ticks % IDLE and all(job.status.is_over for job in self._drawn or ()):
            return
        try:
            await self._show()
        except TellbackError as error:
            self._head.text = self._seat.words(error)  # told once, however often it happens

    async def _found(self) -> list[Job]:
        seat, scope = self._seat, self._seat.user.scope
        is_everyones = bool(self._everyone.value)
        if is_everyones:
            seat.require_admin()
        found = await seat.rc.jobs.list(
            self._status.value or None,
            limit=self._most + 1,
            user_id=None if is_everyones else scope.user_id,
            tenant_id=scope.tenant_id,
            app_id=scope.app_id,
        )
        return found if seat.caller.is_admin else [shown(job) for job in found]

    async def _show(self) -> None:
        found = await self._found()
        if found == self._drawn:
            return  # whoever reads or has the keyboard in it is left alone
        self._drawn = found
        waiting = sum(job.status is JobStatus.QUEUED for job in found)
        running = sum(job.status is JobStatus.RUNNING for job in found)
        self._head.text = f"{running} running, {waiting} waiting" if running or waiting else "Nothing runs or waits."
        self._list.clear()
        with self._list:
            for job in found[: self._most]:
                self._row(job)
            if len(found) > self._most:
                ui.button("More", on_click=self._seat.doing(self._more)).props("outline no-caps")
            if not found:
                self._nothing()

    def _row(self, job: Job) -> None:
        seat = self._seat
        with widgets.box("card", "stack", "tight", tag="article"):
            with widgets.box("line"):
                widgets.chip(job.status.value.capitalize(), TONES.get(job.status, ""))
                ui.label("Memories from").classes("said")
                is_one = job.from_seq == job.to_seq
                what = f"message {job.from_seq}" if is_one else f"messages {job.from_seq} to {job.to_seq}"
                if job.scope == seat.user.scope:
                    widgets.go(what, seat.link("/conversations", id=job.conversation_id))
                else:
                    widgets.quiet(f"{what} of {job.user_id}")
                with widgets.box("actions"):
                    if job.status.is_over:
                        widgets.icon_button("replay", "Run it again", seat.doing(lambda: self._retry(job.id)))
                    else:
                        widgets.icon_button("cancel", "Cancel", seat.doing(lambda: self._cancel(job.id)))
            if job.status is JobStatus.RUNNING:
                ui.linear_progress(show_value=False).props("indeterminate rounded aria-label='It runs'")
            with widgets.box("line"):
                widgets.quiet(f"made {widgets.moment(job.created_at)}")
                if job.finished_at is not None:
                    widgets.quiet(f"ended {widgets.moment(job.finished_at)}")
                elif job.status is JobStatus.QUEUED:
                    widgets.quiet(f"due {widgets.moment(job.due_at)}")
                if job.attempts:
                    widgets.quiet(widgets.counted(job.attempts, "attempt"))
                widgets.quiet(f"extraction {job.extraction_version}")
            if job.status is JobStatus.DONE and job.result:
                widgets.quiet(_counts(job))
            if job.error:
                ui.label(job.error).classes("said").props("role=note")
            if job.raw_output:
                with ui.expansion("What the model had said").classes("full").props("dense"):
                    ui.label(job.raw_output).classes("said quiet")

    def _nothing(self) -> None:
        if self._status.value:
            with widgets.empty("pending_actions", "No job is in that state.", "Look at all of them instead."):
                widgets.link_button("Show all", "clear_all", self._seat.link(PATH))
            return
        how = (
            "When a conversation closes, a job reads it and keeps what is worth remembering. Here you see how it goes."
        )
        with widgets.empty("pending_actions", "There are no jobs.", how):
            widgets.link_button("Start a chat", "chat", self._seat.link("/"))

    async def _retry(self, id: str) -> None:
        await self._seat.rc.jobs.retry((await self._own(id)).id)
        tell("Queued again.")
        await self._show()

    async def _cancel(self, id: str) -> None:
        await self._seat.rc.jobs.cancel((await self._own(id)).id)
        tell("Cancelled.")
        await self._show()

    async def _own(self, id: str) -> Job:
        """A job that may be acted on; another's is as good as unknown, but to admins of the app."""
        seat = self._seat
        found, scope = await seat.rc.jobs.get(id), seat.user.scope
        is_here = found is not None and (found.tenant_id, found.app_id) == (scope.tenant_id, scope.app_id)
        if found is None or not is_here or (found.scope != scope and not seat.caller.is_admin):
            raise NotFoundError("job", id)
        return found


def _counts(job: Job) -> str:
    """What a job has changed, in words."""

    def told(value: Any) -> str:
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    return ", ".join(f"{str(name).replace('_', ' ')}: {told(value)}" for name, value in job.result.items() if value)
