"""Work on everyone's data on a server, for admins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tellback.client.admin import HERE, usage_calls, usage_sums
from tellback.client.transport import Transport, path_of
from tellback.client.values import given, seconds_json
from tellback.types.jobs import UsageRecord, UsageTotal
from tellback.wire.admin import Replayed, StaleClosed

EVERYONE = {"everyone": "true"}


@dataclass(frozen=True, slots=True)
class Queued:
    """What a replay queued. `skipped` counts conversations that no binding matches."""

    conversations: int
    jobs: int
    skipped: int


class Operating:
    """What concerns all users of the credential's tenant and app. It needs the role "admin"."""

    _transport: Transport

    async def close_stale(self, older_than: timedelta | float) -> list[str]:
        """Close every user's open conversations in which nothing happened for that long; gives their ids."""
        body = given(older_than=seconds_json("older_than", older_than))
        closed: list[str] = []
        cursor: str | None = None
        while True:
            told = await self._transport.call(
                "POST", path_of(HERE, "close-stale"), body={**body, **given(cursor=cursor)}
            )
            page = StaleClosed.model_validate(told)
            closed += page.conversation_ids
            cursor = page.next_cursor
            if cursor is None:
                return closed

    async def replay(self, namespace: str | None = None, extraction_version: str | None = None) -> Queued:
        """Queue everyone's conversations of a namespace to be extracted again, the oldest first; gives how many.

        It does not wait until that is done: `jobs.list` tells.
        """
        body = given(namespace=namespace, extraction_version=extraction_version)
        queued, cursor = Queued(0, 0, 0), None
        while True:
            told = await self._transport.call("POST", path_of(HERE, "replay"), body={**body, **given(cursor=cursor)})
            page = Replayed.model_validate(told)
            queued = Queued(
                queued.conversations + page.conversations, queued.jobs + page.jobs, queued.skipped + page.skipped
            )
            cursor = page.next_cursor
            if cursor is None:
                return queued

    async def usage(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        *,
        job_id: str | None = None,
        limit: int = 1_000,
        before: str | None = None,
    ) -> list[UsageRecord]:
        """What model calls for memory cost, of all users, call by call and the newest first."""
        return await usage_calls(self._transport, None, EVERYONE, since, until, job_id, limit, before)

    async def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """What model calls for memory cost, added up by user, purpose and model."""
        return await usage_sums(self._transport, None, EVERYONE, since, until)
