"""`TellbackClient`: a server over HTTP, with the methods of a `Tellback`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

import httpx2

from tellback import validation
from tellback.client.admin import (
    ADMIN_PATH,
    RemoteBindings,
    RemoteEvents,
    RemoteJobs,
    RemoteKeys,
    list_usage,
    list_usage_totals,
)
from tellback.client.handle import encode_arguments, encode_duration
from tellback.client.transport import Transport, build_path
from tellback.client.user import RemoteUser
from tellback.sync import SyncTellback
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


class TellbackClient(AdminOperations):
    """A server over HTTP. `client.user("maya")` has what `rc.user("maya")` has: same methods, values and errors.

    `api_key` is an API key or a JWT; one that is of a single user needs no name: `client.user()`. What can be sent
    again without harm is, up to `retries` times, when there was no answer. `timeout` is in seconds. `http` is an
    `httpx2.AsyncClient` of your own.

    Use it with `async with`, or with a plain `with` from synchronous code: every method then waits by itself.

    >>> client = TellbackClient("https://memory.example.com", api_key="rk_...")
    >>> client.user("maya").user_id
    'maya'
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float = 120.0,
        retries: int = 2,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._transport = Transport(url, api_key, seconds=timeout, retries=retries, http=http)

    def user(self, user_id: str | None = None) -> RemoteUser:
        """The handle of a user of the credential's tenant and app."""
        return RemoteUser(
            self._transport, None if user_id is None else validation.validate_scope_id("user_id", user_id)
        )

    @property
    def events(self) -> RemoteEvents:
        """The feed of everyone's changes in the credential's tenant and app: for admins."""
        return RemoteEvents(self._transport, None, everyone=True)

    @property
    def jobs(self) -> RemoteJobs:
        """Everyone's jobs in the credential's tenant and app: for admins."""
        return RemoteJobs(self._transport, None)

    @property
    def bindings(self) -> RemoteBindings:
        """Everyone's bindings in the credential's tenant and app: for admins."""
        return RemoteBindings(self._transport, None)

    @property
    def keys(self) -> RemoteKeys:
        """The API keys of the credential's tenant and app: for admins."""
        return RemoteKeys(self._transport, None)

    async def open(self) -> Self:
        """Nothing to do: connections are made when they are needed."""
        return self

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __enter__(self) -> SyncTellback:
        self._sync = SyncTellback(self)
        return self._sync

    def __exit__(self, *exception: object) -> None:
        self._sync.close()
