"""Waiting for memories: a conversation that was closed becomes some, or it is told why not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tellback.cli.printing import counted, one_line

if TYPE_CHECKING:
    from tellback.types.jobs import Job
    from tellback.user import User

LOOK_SECONDS = 0.25
LONGEST_SECONDS = 300.0
SHOWN = 160


async def made_of(user: User, conversation_id: str, seconds: float = LONGEST_SECONDS) -> tuple[bool, str]:
    """Wait until a closed conversation has become memories; gives whether it has, and what came of it in words.

    Jobs that fail are tried again later: nobody is kept waiting for that.
    """
    deadline = time.monotonic() + seconds
    while not await user.memory.wait_for_extraction(LOOK_SECONDS):
        if _failed(await user.memory.list_jobs(conversation_id)):
            break
        if time.monotonic() > deadline:
            return False, "its memories are still being made."
    jobs = await user.memory.list_jobs(conversation_id)
    if failed := _failed(jobs):
        why = one_line(failed[0].error or "", SHOWN).rstrip(".")
        return False, f"its memories could not be made yet ({why}): see tellback jobs list."
    added = sum(int(job.result.get("added", 0)) for job in jobs)
    return True, f"{counted(added, 'memory was', 'memories were')} made of it."


def _failed(jobs: list[Job]) -> list[Job]:
    return [job for job in jobs if job.error is not None and job.status.value != "done"]
