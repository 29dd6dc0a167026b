"""Jobs and usage in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from tellback.errors import JobLostError, NotFoundError
from tellback.stores import rows
from tellback.stores.engine import UNBOUNDED, Operation, StorePart, event_statement, reads, run_in_scope, writes
from tellback.stores.events import EventLog
from tellback.stores.operations import dispatch
from tellback.stores.values import DispatchResult, JobEnd
from tellback.types.access import Scope
from tellback.types.ids import to_micros
from tellback.types.jobs import Job, JobStatus, UsageRecord, UsageTotal
from tellback.types.jsontext import dump_stored_json

MAX_COUNTED = 100


class JobLog(StorePart):
    """Jobs, unique by (conversation, binding, space, version, window).

    Methods use a scope, or None across users, which `tenant_id` and `app_id` may narrow.

    Leases and delays are in seconds since 1970 of the machine's clock. `now` is the clock for timestamps in rows.

    - `dispatch` reads the events after the last dispatched one (by any process), and creates the jobs that bindings
      require: windows of whole turns, each of at most about `window_length` characters, that no job of that binding,
      space and version covers yet. It stores the jobs and its position in one transaction; one process at a time does
      so. `has_pending_events` returns whether there are undispatched events.
    - `plan` creates the jobs of one conversation for matching bindings, or for the space `space_id` alone, at `version`
      or the binding's version, ignoring triggers. It requeues finished jobs. Raises `NotFoundError` for the
      conversation, the space, or a binding if none matches.
    - `claim` leases the next due job, or the job `id`, to `instance_id`; it returns None if there is none. A job is due
      when its time has come, it is queued or its lease has expired, and no earlier job of its space is unfinished. A
      job started more than `max_attempts` times fails instead.
    - `extend` prolongs a lease, and returns whether it was still held.
    - `finish`, `fail` and `postpone` end an attempt if its lease is still held, and otherwise return None. `fail`
      requeues the job for `retry_at` or, with None, fails it with the event `extraction.failed`. `finish` writes
      `extraction.completed`. `postpone` does not count the attempt. Usage is stored in any case.
    - `release` requeues the running jobs of a dead instance. `running_instances` lists instances with running jobs.
    - `retry` requeues a finished job as new. `cancel` cancels a queued or running job, and leaves a finished one
      unchanged. Both raise `NotFoundError`.
    - `backlog` counts the jobs that are due or running, up to a hundred, and returns when the next delayed one is due.
    - `add_usage` stores each record once, even if passed again, unless its conversation was erased. `usage` lists
      calls, `usage_totals` sums them by scope, purpose and model; both newest first.
    """

    async def has_pending_events(self) -> bool:
        until = await EventLog(self._engine).latest()
        return await self._engine.read(None, partial(dispatch.has_pending_events, until))

    async def dispatch(self, *, window_length: int, limit: int, now: datetime) -> DispatchResult:
        until = await EventLog(self._engine).latest()
        operation = partial(dispatch.dispatch_jobs, window_length, limit, until, to_micros(now))
        return await self._engine.write(None, operation)

    @writes
    def plan(
        self,
        scope: Scope,
        conversation_id: str,
        *,
        version: str | None,
        space_id: str | None,
        window_length: int,
        now: datetime,
    ) -> Operation[list[Job]]:
        return dispatch.plan_jobs(conversation_id, version, space_id, window_length, to_micros(now))

    @reads
    def get(self, scope: Scope | None, id: str) -> Operation[Job | None]:
        return _get_job(scope, id)

    @reads
    def list_jobs(
        self,
        scope: Scope | None,
        *,
        status: JobStatus | None = None,
        conversation_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> Operation[list[Job]]:
        values = {
            "tenant": tenant_id,
            "app": app_id,
            "status": None if status is None else status.value,
            "conversation_id": conversation_id,
            "limit": UNBOUNDED if limit is None else limit,
            "before": before,
        }
        return rows.JOB.read_all((yield _statement_for(scope, "job_list"), values))

    async def claim(
        self, *, instance_id: str, at: float, until: float, max_attempts: int, now: datetime, id: str | None = None
    ) -> Job | None:
        await self._engine.announce_instance()
        times = {"at": _seconds_to_micros(at), "until": _seconds_to_micros(until), "now": to_micros(now)}
        values = {"instance_id": instance_id, "id": id, **times}
        return await self._engine.write(None, partial(_claim_job, values, max_attempts))

    @writes
    def extend(self, id: str, run: int, *, until: float) -> Operation[bool]:
        return bool((yield "platform_job_extend", {"id": id, "run": run, "until": _seconds_to_micros(until)}))

    @writes
    def finish(self, end: JobEnd, *, now: datetime) -> Operation[Job | None]:
        return _end_run_of_any_user(end, finish_job(end, to_micros(now)))

    @writes
    def fail(
        self, end: JobEnd, error: str, *, raw_output: str | None, retry_at: float | None, now: datetime
    ) -> Operation[Job | None]:
        due_at = None if retry_at is None else _seconds_to_micros(retry_at)
        return _end_run_of_any_user(end, _fail_job(end, error, raw_output, due_at, to_micros(now)))

    @writes
    def postpone(self, end: JobEnd, *, until: float, now: datetime) -> Operation[Job | None]:
        changes = {"status": JobStatus.QUEUED.value, "due_at": _seconds_to_micros(until), "uncounted": 1}
        return _end_run_of_any_user(end, _end_run(end, changes, to_micros(now)))

    @reads
    def running_instances(self) -> Operation[list[str]]:
        found = yield "platform_running_instances", {}
        return [row["instance_id"] for row in found]

    @writes
    def release(self, instance_id: str, *, now: datetime) -> Operation[list[Job]]:
        values = {"instance_id": instance_id, "now": to_micros(now)}
        return rows.JOB.read_all((yield "platform_job_release", values))

    @writes
    def retry(self, scope: Scope | None, id: str, *, now: datetime) -> Operation[Job]:
        return _change_job(scope, id, "job_requeue", "extraction.queued", to_micros(now))

    @writes
    def cancel(self, scope: Scope | None, id: str, *, now: datetime) -> Operation[Job]:
        return _change_job(scope, id, "job_cancel", "extraction.cancelled", to_micros(now))

    @reads
    def backlog(self, *, at: float) -> Operation[tuple[int, float | None]]:
        [row] = yield "platform_jobs_waiting", {"at": _seconds_to_micros(at), "limit": MAX_COUNTED}
        return int(row["waiting"]), None if row["next_due_at"] is None else row["next_due_at"] / 1_000_000

    async def add_usage(self, records: Sequence[UsageRecord]) -> None:
        for record in records:
            await self._engine.write(record.scope, partial(_add_usage, [record]))

    @reads
    def usage(
        self,
        scope: Scope | None,
        *,
        job_id: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        before: str | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> Operation[list[UsageRecord]]:
        filters = {"job_id": job_id, "limit": limit, "before": before, **_time_range(since, until)}
        values = {**filters, "tenant": tenant_id, "app": app_id}
        return rows.USAGE.read_all((yield _statement_for(scope, "usage_list"), values))

    @reads
    def usage_totals(
        self,
        scope: Scope | None,
        *,
        since: datetime | None,
        until: datetime | None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> Operation[list[UsageTotal]]:
        values = {"tenant": tenant_id, "app": app_id, **_time_range(since, until)}
        return rows.USAGE_TOTAL.read_all((yield _statement_for(scope, "usage_total"), values))

    @writes
    def claim_schedule(self, name: str, *, at: float, every: float) -> Operation[bool]:
        key, moment = {"name": f"schedule:{name}"}, _seconds_to_micros(at)
        yield "platform_named_lock", key
        found = yield "platform_state_get", key
        if found and abs(moment - int(found[0]["value"])) < _seconds_to_micros(every):
            # The stored time may be a little later than `at`, because clocks differ. A much later time comes from a
            # wrong clock, and is ignored.
            return False
        yield "platform_state_set", {**key, "value": moment}
        return True


def hold_job(end: JobEnd) -> Operation[None]:
    """Lock a job, so that nothing else ends or deletes it. Raise `JobLostError` if this run has lost its lease."""
    if not (yield "job_lock", {"id": end.job_id, "run": end.run}):
        raise JobLostError(end.job_id)


def finish_job(end: JobEnd, now: int) -> Operation[Job]:
    """Finish a job in its own scope. Raise `JobLostError` if this run has lost its lease."""
    changes = {"status": JobStatus.DONE.value, "result": dump_stored_json(dict(end.result)), "finished_at": now}
    job = yield from _end_run(end, changes, now)
    counts = {name: value for name, value in job.result.items() if isinstance(value, int)}
    data = {"conversation_id": job.conversation_id, "space_id": job.memory_space_id, **counts}
    yield event_statement("extraction.completed", job.id, data, now)
    return job


def _fail_job(end: JobEnd, error: str, raw_output: str | None, due_at: int | None, now: int) -> Operation[Job]:
    changes: dict[str, Any] = {"error": error, "raw_output": raw_output}
    if due_at is not None:
        return (yield from _end_run(end, {**changes, "status": JobStatus.QUEUED.value, "due_at": due_at}, now))
    job = yield from _end_run(end, {**changes, "status": JobStatus.FAILED.value, "finished_at": now}, now)
    # The error may quote the user's messages, so it is stored only in the job, not in the event.
    kind = error.partition(":")[0]
    data = {"conversation_id": job.conversation_id, "space_id": job.memory_space_id, "error": kind}
    yield event_statement("extraction.failed", job.id, data, now)
    return job


def _end_run(end: JobEnd, changes: dict[str, Any], now: int) -> Operation[Job]:
    defaults = {"due_at": now, "uncounted": 0, "finished_at": None, "error": None, "raw_output": None, "result": None}
    found = yield "job_end", {**defaults, **changes, "id": end.job_id, "run": end.run, "now": now}
    if not found:
        raise JobLostError(end.job_id)
    yield from _add_usage(end.usage)
    return rows.JOB.read(found[0])


def _end_run_of_any_user(end: JobEnd, operation: Operation[Job]) -> Operation[Job | None]:
    """End an attempt of any user's job. Its usage is stored even if the attempt has lost the job."""
    found = yield "platform_job_get", {"id": end.job_id}
    if not found:
        return None  # the job was erased
    scope = rows.JOB.read(found[0]).scope
    try:
        return (yield from run_in_scope(scope, operation))
    except JobLostError:
        yield from run_in_scope(scope, _add_usage(end.usage))
        return None


def _get_job(scope: Scope | None, id: str) -> Operation[Job | None]:
    found = yield _statement_for(scope, "job_get"), {"id": id}
    return rows.JOB.read_first(found)


def _claim_job(values: dict[str, Any], max_attempts: int) -> Operation[Job | None]:
    """Return the next due job. A job that was started too often has crashed its workers each time: it fails instead."""
    statement = "platform_job_next" if values["id"] is None else "platform_job_lock_by_id"
    while found := (yield statement, values):
        job = rows.JOB.read(found[0])
        [row] = yield "platform_job_claim", {**values, "id": job.id}
        if job.attempts < max_attempts:
            return rows.JOB.read(row)
        end, reason = JobEnd(job.id, row["runs"]), f"The worker stopped while it ran this job, {job.attempts} times."
        yield from run_in_scope(job.scope, _fail_job(end, reason, job.raw_output, None, values["now"]))
    return None


def _change_job(scope: Scope | None, id: str, statement: str, event_type: str, now: int) -> Operation[Job]:
    job = yield from _get_job(scope, id)
    if job is None:
        raise NotFoundError("job", id)
    return (yield from dispatch.change_job(job, statement, event_type, now))


def _add_usage(records: Sequence[UsageRecord]) -> Operation[None]:
    for record in records:
        id = record.conversation_id
        if id is None or (yield "conversation_lock_shared", {"id": id}):  # skipped if it was erased
            yield "usage_insert", rows.row_values(record)


def _statement_for(scope: Scope | None, statement: str) -> str:
    return statement if scope is not None else f"platform_{statement}"


def _time_range(since: datetime | None, until: datetime | None) -> dict[str, int]:
    return {
        "since": -UNBOUNDED if since is None else to_micros(since),
        "until": UNBOUNDED if until is None else to_micros(until),
    }


def _seconds_to_micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
