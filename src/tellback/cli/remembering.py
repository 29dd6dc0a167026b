"""Waiting for memories: a conversation that was closed becomes some, or it is told why not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tellback.cli.printing import format_count, to_one_line

if TYPE_CHECKING:
    from tellback.types.jobs import Job
    from tellback.user import User

POLL_SECONDS = 0.25
MAX_WAIT_SECONDS = 300.0
MAX_ERROR_LENGTH = 160


async def wait_for_memories(user: User, conversation_id: str, max_seconds: float = MAX_WAIT_SECONDS) -> tuple[bool, str]:
    """Wait until a closed conversation has become memories; gives whether it has, and what came of it in words.

    Jobs that fail are tried again later: nobody is kept waiting for that.
    """
    deadline = time.monotonic() + max_seconds
    while not await user.memory.wait_for_extraction(POLL_SECONDS):
        if _failed_jobs(await user.memory.list_jobs(conversation_id)):
            break
        if time.monotonic() > deadline:
            return False, "its memories are still being made."
    jobs = await user.memory.list_jobs(conversation_id)
    if failed := _failed_jobs(jobs):
        reason = to_one_line(failed[0].error or "", MAX_ERROR_LENGTH).rstrip(".")
        return False, f"its memories could not be made yet ({reason}): see tellback jobs list."
    added = sum(int(job.result.get("added", 0)) for job in jobs)
    return True, f"{format_count(added, 'memory was', 'memories were')} made of it."


def _failed_jobs(jobs: list[Job]) -> list[Job]:
    return [job for job in jobs if job.error is not None and job.status.value != "done"]
