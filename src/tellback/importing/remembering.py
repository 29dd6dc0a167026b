"""From imported conversations to memories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tellback.importing.handles import ImportMemory
from tellback.importing.values import ImportProgress
from tellback.types.jobs import Job, JobStatus
from tellback.types.times import utc_now

LOOK_SECONDS = 0.5
"""How often to tell how far it is."""

PATIENCE = timedelta(seconds=30)
"""How long a job that failed may have to wait for its next attempt, and with it those behind it, which go in order.
Where it is longer, whoever makes memories is not there."""

MOST_JOBS = 1_000
_UNENDED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Remembered:
    """How many memories there are of what was imported, and how many jobs failed or are still to be done."""

    memories: int = 0
    failed: int = 0
    waiting: int = 0


async def bind(memory: ImportMemory, namespace: str, space: str) -> None:
    """Let conversations of the namespace become memories of the space, if nothing does so yet."""
    made = await memory.create_space(space, once=True)
    user_id = made.scope.user_id
    for binding in await memory.list_bindings():
        own = binding.created_by == user_id
        leads = made.id in binding.memory_space_ids if own else made.name in binding.memory_space_names
        if leads and binding.matches(namespace, user_id):
            return
    await memory.create_binding({"namespace": namespace, "user_id": user_id}, [made.id], once=True)


async def remember(memory: ImportMemory, ids: Sequence[str], tell: Callable[[ImportProgress], Any]) -> Remembered:
    """Wait until jobs have made memories of these conversations, and of those that were left from an earlier import.

    Jobs that wait long for another attempt are not waited for, nor are those behind them.
    """
    begun, wanted = utc_now(), dict.fromkeys(ids)
    if ids:
        tell(ImportProgress("remembering", 0, len(ids)))
    done = False
    while not done:
        done = await memory.wait_for_extraction(LOOK_SECONDS)
        now = utc_now()
        left = [job for status in _UNENDED for job in await memory.list_jobs(status=status, limit=MOST_JOBS)]
        held = {job.memory_space_id for job in left if job.attempts and job.due_at > now + PATIENCE}
        due = {job.conversation_id for job in left if job.due_at <= now and job.memory_space_id not in held}
        wanted.update(dict.fromkeys(job.conversation_id for job in left if job.due_at <= now))
        done = (done or bool(held)) and not due
        if wanted:
            tell(ImportProgress("remembering", len(wanted) - len(due), len(wanted)))
    return await _counted(memory, wanted, begun, set(ids))


async def _counted(memory: ImportMemory, ids: Iterable[str], begun: datetime, new: set[str]) -> Remembered:
    memories = failed = waiting = 0
    for id in ids:
        for job in await memory.list_jobs(conversation_id=id, limit=MOST_JOBS):
            if id in new or job.finished_at is None or job.finished_at >= begun:
                memories += _made(job)
                failed += job.status is JobStatus.FAILED
                waiting += not job.status.is_over
    return Remembered(memories, failed, waiting)


def _made(job: Job) -> int:
    return sum(count for name in ("added", "superseded") if isinstance(count := job.result.get(name), int))
