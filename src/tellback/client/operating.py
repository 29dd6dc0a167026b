"""Work on everyone's data on a server, for admins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tellback.client.admin import ADMIN_PATH, list_usage, list_usage_totals
from tellback.client.transport import Transport, build_path
from tellback.client.values import encode_arguments, encode_duration
from tellback.types.jobs import UsageRecord, UsageTotal
from tellback.wire.admin import Replayed, StaleClosed

EVERYONE_FILTER = {"everyone": "true"}


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay queued. `skipped` counts conversations that no binding matches."""

    conversations: int
    jobs: int
    skipped: int


class AdminOperations:
    """What concerns all users of the credential's tenant and app. It needs the role "admin"."""

    _transport: Transport

    async def close_stale(self, older_than: timedelta | float) -> list[str]:
        """Close every user's open conversations in which nothing happened for that long; gives their ids."""
        body = encode_arguments(older_than=encode_duration("older_than", older_than))
        closed: list[str] = []
        cursor: str | None = None
        while True:
            payload = await self._transport.call(
                "POST", build_path(ADMIN_PATH, "close-stale"), body={**body, **encode_arguments(cursor=cursor)}
            )
            page = StaleClosed.model_validate(payload)
            closed += page.conversation_ids
            cursor = page.next_cursor
            if cursor is None:
                return closed

    async def replay(self, namespace: str | None = None, extraction_version: str | None = None) -> ReplayResult:
        """Queue everyone's conversations of a namespace to be extracted again, the oldest first; gives how many.

        It does not wait until that is done: `jobs.list` tells.
        """
        body = encode_arguments(namespace=namespace, extraction_version=extraction_version)
        total, cursor = ReplayResult(0, 0, 0), None
        while True:
            payload = await self._transport.call(
                "POST", build_path(ADMIN_PATH, "replay"), body={**body, **encode_arguments(cursor=cursor)}
            )
            page = Replayed.model_validate(payload)
            total = ReplayResult(
                total.conversations + page.conversations, total.jobs + page.jobs, total.skipped + page.skipped
            )
            cursor = page.next_cursor
            if cursor is None:
                return total

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
        return await list_usage(self._transport, None, EVERYONE_FILTER, since, until, job_id, limit, before)

    async def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """What model calls for memory cost, added up by user, purpose and model."""
        return await list_usage_totals(self._transport, None, EVERYONE_FILTER, since, until)
