"""Jobs in SQL: `JobLog` on any engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from tellback.errors import JobLostError, NotFoundError
from tellback.stores import job_rows, planning, rows
from tellback.stores.atoms import event
from tellback.stores.engine import FOREVER, Engine, Operation, within
from tellback.stores.ports import Dispatched, EventLog, JobEnd
from tellback.types.jobs import Job, JobStatus, UsageRecord, UsageTotal
from tellback.types.scope import Scope
from tellback.types.times import to_micros

COUNTED = 100


class SqlJobs:
    """`JobLog` on an engine."""

    def __init__(self, engine: Engine, events: EventLog) -> None:
        self._engine = engine
        self._events = events

    async def pending(self) -> bool:
        until = await self._events.latest()
        return await self._engine.read(None, partial(planning.pending, until))

    async def dispatch(self, *, window_length: int, limit: int, now: datetime) -> Dispatched:
        until = await self._events.latest()
        making = partial(planning.dispatch, window_length, limit, until, to_micros(now))
        jobs, more = await self._engine.write(None, making)
        return Dispatched(tuple(jobs), more)

    async def plan(
        self,
        scope: Scope,
        conversation_id: str,
        *,
        version: str | None,
        space_id: str | None,
        window_length: int,
        now: datetime,
    ) -> list[Job]:
        making = partial(planning.plan, scope, conversation_id, version, space_id, window_length, to_micros(now))
        return await self._engine.write(scope, making)

    async def get(self, scope: Scope | None, id: str) -> Job | None:
        return await self._engine.read(scope, partial(_get, scope, id))

    async def listed(
        self,
        scope: Scope | None,
        *,
        status: JobStatus | None = None,
        conversation_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> list[Job]:
        values = {
            "tenant": tenant_id,
            "app": app_id,
            "status": None if status is None else status.value,
            "conversation_id": conversation_id,
            "limit": FOREVER if limit is None else limit,
            "before": before,
        }
        return await self._engine.read(scope, partial(_list, _named(scope, "job_list"), values))

    async def claim(
        self, *, owner: str, at: float, until: float, most: int, now: datetime, id: str | None = None
    ) -> Job | None:
        await self._engine.show_alive()
        values = {"owner": owner, "at": _micros(at), "until": _micros(until), "now": to_micros(now), "id": id}
        return await self._engine.write(None, partial(_claim, values, most))

    async def extend(self, id: str, run: int, *, until: float) -> bool:
        values = {"id": id, "run": run, "until": _micros(until)}
        return await self._engine.write(None, partial(_extend, values))

    async def finish(self, end: JobEnd, *, now: datetime) -> Job | None:
        return await self._engine.write(None, partial(_ended, end, partial(finish, end, to_micros(now))))

    async def fail(
        self, end: JobEnd, error: str, *, raw: str | None, retry_at: float | None, now: datetime
    ) -> Job | None:
        due = None if retry_at is None else _micros(retry_at)
        return await self._engine.write(
            None, partial(_ended, end, partial(_fail, end, error, raw, due, to_micros(now)))
        )

    async def postpone(self, end: JobEnd, *, until: float, now: datetime) -> Job | None:
        ending = partial(_postpone, end, _micros(until), to_micros(now))
        return await self._engine.write(None, partial(_ended, end, ending))

    async def owners(self) -> list[str]:
        return await self._engine.read(None, _owners)

    async def release(self, owner: str, *, now: datetime) -> list[Job]:
        return await self._engine.write(None, partial(_list, "platform_job_release", _owner(owner, now)))

    async def retry(self, scope: Scope | None, id: str, *, now: datetime) -> Job:
        values = {"id": id, "due_at": planning.now_micros(), "now": to_micros(now)}
        return await self._engine.write(scope, partial(_moved, scope, "job_requeue", "extraction.queued", values))

    async def cancel(self, scope: Scope | None, id: str, *, now: datetime) -> Job:
        values = {"id": id, "now": to_micros(now)}
        return await self._engine.write(scope, partial(_moved, scope, "job_cancel", "extraction.cancelled", values))

    async def waiting(self, *, at: float) -> tuple[int, float | None]:
        return await self._engine.read(None, partial(_waiting, _micros(at)))

    async def add_usage(self, records: Sequence[UsageRecord]) -> None:
        for record in records:
            await self._engine.write(record.scope, partial(_add_usage, [record]))

    async def usage(
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
    ) -> list[UsageRecord]:
        asked = {"job_id": job_id, "limit": limit, "before": before, **_stretch(since, until)}
        values = {**asked, "tenant": tenant_id, "app": app_id}
        return await self._engine.read(scope, partial(_usage, _named(scope, "usage_list"), values))

    async def usage_totals(
        self,
        scope: Scope | None,
        *,
        since: datetime | None,
        until: datetime | None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> list[UsageTotal]:
        values = {"tenant": tenant_id, "app": app_id, **_stretch(since, until)}
        return await self._engine.read(scope, partial(_totals, _named(scope, "usage_total"), values))

    async def take_schedule(self, name: str, *, at: float, every: float) -> bool:
        values = (f"schedule:{name}", _micros(at), _micros(every))
        return await self._engine.write(None, partial(_take, *values))


def held(end: JobEnd) -> Operation[None]:
    """A job that nobody else ends or deletes from here on; raises `JobLostError` if another run has it."""
    if not (yield "job_hold", {"id": end.job_id, "run": end.run}):
        raise JobLostError(end.job_id)


def finish(end: JobEnd, now: int) -> Operation[Job]:
    """End a job that is done, in its own scope; raises `JobLostError` if another attempt has it."""
    ended = {"status": JobStatus.DONE.value, "result": rows.to_json(dict(end.result)), "finished_at": now}
    job = yield from _end(end, ended, now)
    counts = {name: value for name, value in job.result.items() if isinstance(value, int)}
    data = {"conversation_id": job.conversation_id, "space_id": job.memory_space_id, **counts}
    yield event("extraction.completed", job.id, data, now)
    return job


def _fail(end: JobEnd, error: str, raw: str | None, due: int | None, now: int) -> Operation[Job]:
    ended: dict[str, Any] = {"status": JobStatus.QUEUED.value, "error": error, "raw_output": raw, "due_at": due}
    if due is None:
        ended |= {"status": JobStatus.FAILED.value, "finished_at": now, "due_at": now}
    job = yield from _end(end, ended, now)
    if due is None:
        yield _failed(job, now)
    return job


def _postpone(end: JobEnd, until: int, now: int) -> Operation[Job]:
    return (yield from _end(end, {"status": JobStatus.QUEUED.value, "due_at": until, "uncounted": 1}, now))


def _end(end: JobEnd, ended: dict[str, Any], now: int) -> Operation[Job]:
    unset = {"due_at": now, "uncounted": 0, "finished_at": None, "error": None, "raw_output": None, "result": None}
    found = yield "job_end", {**unset, **ended, "id": end.job_id, "run": end.run, "now": now}
    if not found:
        raise JobLostError(end.job_id)
    yield from _add_usage(end.usage)
    return job_rows.job(found[0])


def _ended(end: JobEnd, make: Any) -> Operation[Job | None]:
    """End an attempt, whoever's job it is. What it used is kept also if it no longer has the job."""
    found = yield "platform_job_get", {"id": end.job_id}
    if not found:
        return None  # erased
    scope = job_rows.job(found[0]).scope
    try:
        job: Job = yield from within(scope, make())
    except JobLostError:
        yield from within(scope, _add_usage(end.usage))
        return None
    return job


def _failed(job: Job, now: int) -> tuple[str, dict[str, Any]]:
    # The error may quote what was said: it is the user's, and stays with the job.
    kind = (job.error or "").partition(":")[0]
    data = {"conversation_id": job.conversation_id, "space_id": job.memory_space_id, "error": kind}
    return event("extraction.failed", job.id, data, now)


def _get(scope: Scope | None, id: str) -> Operation[Job | None]:
    found = yield _named(scope, "job_get"), {"id": id}
    return job_rows.job(found[0]) if found else None


def _list(name: str, values: dict[str, Any]) -> Operation[list[Job]]:
    found = yield name, values
    return [job_rows.job(row) for row in found]


def _claim(values: dict[str, Any], most: int) -> Operation[Job | None]:
    """The next job that is due. One that was begun too often has stopped its workers each time: it is not run again."""
    wanted = "platform_job_next" if values["id"] is None else "platform_job_this"
    while found := (yield wanted, values):
        job = job_rows.job(found[0])
        [row] = yield "platform_job_claim", {**values, "id": job.id}
        if job.attempts < most:
            return job_rows.job(row)
        why = f"The worker stopped while it ran this job, {job.attempts} times."
        yield from within(job.scope, _fail(JobEnd(job.id, job.runs + 1), why, job.raw_output, None, values["now"]))
    return None


def _extend(values: dict[str, Any]) -> Operation[bool]:
    return bool((yield "platform_job_extend", values))


def _owners() -> Operation[list[str]]:
    found = yield "platform_job_owners", {}
    return [row[0] for row in found]


def _owner(owner: str, now: datetime) -> dict[str, Any]:
    return {"owner": owner, "now": to_micros(now)}


def _moved(scope: Scope | None, statement: str, told: str, values: dict[str, Any]) -> Operation[Job]:
    """Queue a job again, or cancel it; one that it does not apply to is left as it is."""
    job = yield from _get(scope, values["id"])
    if job is None:
        raise NotFoundError("job", values["id"])
    return (yield from within(job.scope, _move(job, statement, told, values)))


def _move(job: Job, statement: str, told: str, values: dict[str, Any]) -> Operation[Job]:
    found = yield statement, values
    if not found:
        return job
    yield event(told, job.id, {"conversation_id": job.conversation_id}, values["now"])
    return job_rows.job(found[0])


def _waiting(at: int) -> Operation[tuple[int, float | None]]:
    [row] = yield "platform_jobs_waiting", {"at": at, "limit": COUNTED}
    return int(row[0]), None if row[1] is None else row[1] / 1_000_000


def _add_usage(records: Sequence[UsageRecord]) -> Operation[None]:
    for record in records:
        id = record.conversation_id
        if id is None or (yield "conversation_hold", {"id": id}):  # or it was erased meanwhile
            yield "usage_insert", job_rows.usage_values(record)


def _usage(name: str, values: dict[str, Any]) -> Operation[list[UsageRecord]]:
    found = yield name, values
    return [job_rows.usage(row) for row in found]


def _totals(name: str, values: dict[str, Any]) -> Operation[list[UsageTotal]]:
    found = yield name, values
    return [job_rows.usage_total(row) for row in found]


def _take(name: str, at: int, every: int) -> Operation[bool]:
    yield "platform_mark_lock", {"name": name}
    found = yield "platform_mark_get", {"name": name}
    if found and abs(at - int(found[0][0])) < every:
        return False  # a mark of the next moments is of whoever was faster; one far ahead is of a clock that was wrong
    yield "platform_mark_set", {"name": name, "value": at}
    return True


def _named(scope: Scope | None, statement: str) -> str:
    return statement if scope is not None else f"platform_{statement}"


def _stretch(since: datetime | None, until: datetime | None) -> dict[str, int]:
    return {
        "since": -FOREVER if since is None else to_micros(since),
        "until": FOREVER if until is None else to_micros(until),
    }


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
