"""The feed of changes: the port."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from tellback.types.conversations import Event


class EventLog(Protocol):
    """Every change, in the order of commits.

    - `read` gives events after a position, oldest first, and the position to go on from, which is past those of other
      scopes. An event never appears before a position already given: whoever goes on misses none and gets none twice.
    - `latest` is the newest position, 0 when there is none.
    - `changes` yields whenever there may be something new, whichever process wrote it, and once at the start.
    """

    async def read(
        self,
        *,
        after: int,
        limit: int,
        tenant_id: str | None = None,
        app_id: str | None = None,
        user_id: str | None = None,
    ) -> tuple[list[Event], int]: ...

    async def latest(self) -> int: ...

    def changes(self) -> AsyncGenerator[None, None]: ...
