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

PROGRESS_SECONDS = 0.5
"""How often to tell how far it is."""

MAX_RETRY_WAIT = timedelta(seconds=30)
"""How long a job that failed may have to wait for its next attempt, and with it those behind it, which go in order.
Where it is longer, whoever makes memories is not there."""

MAX_JOBS = 1_000
_UNFINISHED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class ExtractionCounts:
    """How many memories there are of what was imported, and how many jobs failed or are still to be done."""

    memories: int = 0
    failed: int = 0
    waiting: int = 0


async def ensure_binding(memory: ImportMemory, namespace: str, space: str) -> None:
    """Let conversations of the namespace become memories of the space, if nothing does so yet."""
    memory_space = await memory.create_space(space, once=True)
    user_id = memory_space.scope.user_id
    for binding in await memory.list_bindings():
        is_own = binding.created_by == user_id
        covers_space = (
            memory_space.id in binding.memory_space_ids if is_own else memory_space.name in binding.memory_space_names
        )
        if covers_space and binding.matches(namespace, user_id):
            return
    await memory.create_binding({"namespace": namespace, "user_id": user_id}, [memory_space.id], once=True)


async def wait_for_memories(
    memory: ImportMemory, conversation_ids: Sequence[str], on_progress: Callable[[ImportProgress], Any]
) -> ExtractionCounts:
    """Wait until jobs have made memories of these conversations, and of those that were left from an earlier import.

    Jobs that wait long for another attempt are not waited for, nor are those behind them.
    """
    started, awaited = utc_now(), dict.fromkeys(conversation_ids)
    if conversation_ids:
        on_progress(ImportProgress("remembering", 0, len(conversation_ids)))
    done = False
    while not done:
        done = await memory.wait_for_extraction(PROGRESS_SECONDS)
        now = utc_now()
        unfinished = [job for status in _UNFINISHED for job in await memory.list_jobs(status=status, limit=MAX_JOBS)]
        blocked_spaces = {
            job.memory_space_id for job in unfinished if job.attempts and job.due_at > now + MAX_RETRY_WAIT
        }
        due = {
            job.conversation_id for job in unfinished if job.due_at <= now and job.memory_space_id not in blocked_spaces
        }
        awaited.update(dict.fromkeys(job.conversation_id for job in unfinished if job.due_at <= now))
        done = (done or bool(blocked_spaces)) and not due
        if awaited:
            on_progress(ImportProgress("remembering", len(awaited) - len(due), len(awaited)))
    return await _count_results(memory, awaited, started, set(conversation_ids))


async def _count_results(
    memory: ImportMemory, ids: Iterable[str], started: datetime, new_ids: set[str]
) -> ExtractionCounts:
    memories = failed = waiting = 0
    for id in ids:
        for job in await memory.list_jobs(conversation_id=id, limit=MAX_JOBS):
            if id in new_ids or job.finished_at is None or job.finished_at >= started:
                memories += _count_memories(job)
                failed += job.status is JobStatus.FAILED
                waiting += not job.status.is_finished
    return ExtractionCounts(memories, failed, waiting)


def _count_memories(job: Job) -> int:
    return sum(count for name in ("added", "superseded") if isinstance(count := job.result.get(name), int))
