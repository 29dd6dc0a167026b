"""The page Jobs: extraction jobs with their status, which users can retry or cancel."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from tellback.console import widgets
from tellback.console.context import PageContext, notify
from tellback.console.layout import console_page
from tellback.errors import NotFoundError, TellbackError
from tellback.server.routes.memory import public_job
from tellback.types.jobs import Job, JobStatus

PATH = "/jobs"
JOBS_PER_PAGE = 30
REFRESH_SECONDS = 2.0
IDLE_FACTOR = 5
"""The page refreshes every `REFRESH_SECONDS` while jobs run, and `IDLE_FACTOR` times less often otherwise."""

STATUS_LABELS = {"": "All", **{each.value: each.value.capitalize() for each in JobStatus}, "queued": "Waiting"}
RESULT_LABELS = {
    "added": "Memories added",
    "superseded": "Memories updated",
    "cited": "Confirmed by another message",
    "unchanged": "Already known",
    "left_out": "Left out",
}
STATUS_TONES = {JobStatus.DONE: "good", JobStatus.FAILED: "bad", JobStatus.RUNNING: "wait", JobStatus.QUEUED: "wait"}


class JobsPage:
    """The jobs of a user or, for admins, of all users. Other callers see job errors as the REST API returns them."""

    def __init__(self, ctx: PageContext) -> None:
        self._ctx = ctx
        self._ticks = 0

    async def build(self) -> None:
        ctx = self._ctx
        on_search = ctx.guard(self._search)
        requested_status = ctx.query.get("status", "")
        with widgets.box("line"):
            status = requested_status if requested_status in STATUS_LABELS else ""
            self._status_field = widgets.select_field(STATUS_LABELS, "Status", status, on_change=on_search)
            self._status_field.classes("some")
            self._everyone_switch = ui.switch("All users of this app", on_change=on_search)
            self._everyone_switch.set_visibility(ctx.caller.is_admin)
            self._summary_label = widgets.muted("").props("role=status")
        self._list = widgets.PagedList(ctx, JOBS_PER_PAGE, self._load_jobs, self._show_row, self._show_empty)
        self._list.root.props('role=region aria-label="Jobs"')
        await self._list.show()
        ui.timer(REFRESH_SECONDS, ctx.guard(self._refresh, is_background=True), immediate=False)

    async def _search(self) -> None:
        ui.navigate.history.replace(self._ctx.link(PATH, status=self._status_field.value or None))
        await self._list.restart()

    async def _refresh(self) -> None:
        self._ticks += 1
        if self._ticks % IDLE_FACTOR and all(job.status.is_finished for job in self._list.items or ()):
            return
        try:
            await self._list.show()
        except TellbackError as error:
            self._summary_label.text = self._ctx.error_text(error)  # a notification would repeat every few seconds

    async def _load_jobs(self, limit: int) -> list[Job]:
        ctx, scope = self._ctx, self._ctx.user.scope
        is_for_all_users = bool(self._everyone_switch.value)
        if is_for_all_users:
            ctx.caller.require_admin()
        found = await ctx.tb.jobs.list(
            self._status_field.value or None,
            limit=limit,
            user_id=None if is_for_all_users else scope.user_id,
            tenant_id=scope.tenant_id,
            app_id=scope.app_id,
        )
        waiting = sum(job.status is JobStatus.QUEUED for job in found)
        running = sum(job.status is JobStatus.RUNNING for job in found)
        self._summary_label.text = (
            f"{running} running, {waiting} waiting" if running or waiting else "No jobs running or waiting."
        )
        return found if ctx.caller.is_admin else [public_job(job) for job in found]

    def _show_row(self, job: Job) -> None:
        ctx = self._ctx
        with widgets.box("card", "stack", "tight", tag="article"):
            with widgets.box("line"):
                widgets.chip(STATUS_LABELS[job.status.value], STATUS_TONES.get(job.status, ""))
                ui.label("Memory extraction:").classes("said")
                is_single = job.from_seq == job.to_seq
                label = f"message {job.from_seq}" if is_single else f"messages {job.from_seq} to {job.to_seq}"
                if job.scope == ctx.user.scope:
                    widgets.page_link(label, ctx.link("/conversations", id=job.conversation_id))
                else:
                    widgets.muted(f"{label} of {job.user_id}")
                with widgets.box("actions"):
                    self._show_button(job)
            if job.status is JobStatus.RUNNING:
                ui.linear_progress(show_value=False).props("indeterminate rounded aria-label='Running'")
            with widgets.box("line"):
                widgets.muted(f"created {widgets.format_datetime(job.created_at)}")
                if job.finished_at is not None:
                    widgets.muted(f"finished {widgets.format_datetime(job.finished_at)}")
                elif job.status is JobStatus.QUEUED:
                    widgets.muted(f"scheduled for {widgets.format_datetime(job.due_at)}")
                if job.attempts:
                    widgets.muted(widgets.format_count(job.attempts, "attempt"))
                widgets.muted(f"extraction prompt: version {job.extraction_version}")
            if job.status is JobStatus.DONE and job.result:
                _show_result(job)
            if job.error:
                ui.label(job.error).classes("said").props("role=note")
            if job.raw_output:
                with ui.expansion("Model output").classes("full").props("dense"):
                    ui.label(job.raw_output).classes("said quiet")

    def _show_empty(self) -> None:
        if self._status_field.value:
            with widgets.empty_state(
                "pending_actions", "No jobs with this status.", "Clear the filter to see all jobs."
            ):
                widgets.link_button("Show all", "clear_all", self._ctx.link(PATH))
            return
        hint = "When a conversation closes, a job extracts memories from it. This page shows its progress."
        with widgets.empty_state("pending_actions", "No jobs yet.", hint):
            widgets.link_button("Start a chat", "chat", self._ctx.link("/"))

    def _show_button(self, job: Job) -> None:
        jobs = self._ctx.tb.jobs
        icon, name, change, notice = (
            ("replay", "Run again", jobs.retry, "The job will run again.")
            if job.status.is_finished
            else ("cancel", "Cancel", jobs.cancel, "The job was cancelled.")
        )

        async def change_job() -> None:
            await change((await self._load_own_job(job.id)).id)
            notify(notice)
            await self._list.show()

        widgets.icon_button(icon, name, self._ctx.guard(change_job))

    async def _load_own_job(self, id: str) -> Job:
        """Return a job of the page's user. Jobs of other users raise `NotFoundError`, except for admins of the app."""
        ctx = self._ctx
        found, scope = await ctx.tb.jobs.get(id), ctx.user.scope
        is_in_app = found is not None and (found.tenant_id, found.app_id) == (scope.tenant_id, scope.app_id)
        if found is None or not is_in_app or (found.scope != scope and not ctx.caller.is_admin):
            raise NotFoundError("job", id)
        return found


console_page(PATH, "Jobs")(lambda ctx: JobsPage(ctx).build())


def _show_result(job: Job) -> None:
    """Show the number of facts by outcome, and each fact that was not stored, with the reason."""
    counts = {name: value for name, value in job.result.items() if value and not isinstance(value, list | tuple)}
    labels = {name: RESULT_LABELS.get(name, widgets.format_field_name(str(name))) for name in counts}
    widgets.muted(", ".join(f"{labels[name]}: {value}" for name, value in counts.items()) or "No new memories.")
    for fact in job.result.get("left_out_facts") or ():
        if isinstance(fact, Mapping):
            widgets.muted(f"Left out: “{widgets.truncate(str(fact.get('text')), 200)}” ({fact.get('why')})")
