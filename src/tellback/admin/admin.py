"""`user.admin`: export and erasure of a user's data, and the cost of model calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from datetime import datetime
from os import PathLike
from typing import Any, BinaryIO, overload

from tellback import validation
from tellback.admin.export import (
    ExportFormat,
    ExportProgressCallback,
    ExportReport,
    UserDataExport,
    collect_export,
    write_export,
)
from tellback.errors import InvalidArgumentError, StoreClosedError, StoreError
from tellback.runtime import Runtime
from tellback.stores.ports.store import Erasure, erasure_subject
from tellback.types.access import Scope
from tellback.types.ids import clear_text_caches
from tellback.types.jobs import UsageRecord, UsageTotal

TimeLike = datetime | str | None

log = logging.getLogger("tellback.admin")

ERASURE_POLL_SECONDS = 5.0
"""How long a process may hold what another one has erased."""

ForgetUsers = Callable[[Collection[str]], None]
"""Drops what this process holds of users who were erased, named as in the events that tell of it."""


class ErasureReport(dict[str, int]):
    """How many rows of each table were deleted. `job_ids` are those of the jobs among them.

    >>> ErasureReport({"messages": 2}).deleted["messages"]
    2
    """

    def __init__(self, counts: Any = (), job_ids: tuple[str, ...] = ()) -> None:
        super().__init__(counts)
        self.job_ids = job_ids

    @property
    def deleted(self) -> ErasureReport:
        """The same, for whoever reads better so."""
        return self


async def list_usage(
    runtime: Runtime,
    scope: Scope | None,
    since: TimeLike,
    until: TimeLike,
    job_id: str | None,
    limit: int,
    before: str | None,
    **filters: str | None,
) -> list[UsageRecord]:
    """Call by call, the newest first; of one user or, with None, of all, or with `filters` of a tenant and app."""
    start, end = _parse_period(since, until)
    valid_job_id = validation.validate_optional_text("job_id", job_id, validation.KEY_LENGTH)
    max_records, before_id = (
        validation.validate_count("limit", limit),
        validation.validate_optional_text("before", before, validation.KEY_LENGTH),
    )
    return await runtime.store.jobs.usage(
        scope, job_id=valid_job_id, since=start, until=end, limit=max_records, before=before_id, **filters
    )


async def total_usage(
    runtime: Runtime, scope: Scope | None, since: TimeLike, until: TimeLike, **filters: str | None
) -> list[UsageTotal]:
    """Added up by user, purpose and model."""
    start, end = _parse_period(since, until)
    return await runtime.store.jobs.usage_totals(scope, since=start, until=end, **filters)


def _parse_period(since: TimeLike, until: TimeLike) -> tuple[datetime | None, datetime | None]:
    start = None if since is None else validation.parse_datetime("since", since)
    return start, None if until is None else validation.parse_datetime("until", until)


class Admin:
    """Export and erasure of a user's data: of the handle's own user, or of another one of the same tenant and app."""

    def __init__(self, runtime: Runtime, scope: Scope, forget: ForgetUsers) -> None:
        self._runtime = runtime
        self._scope = scope
        self._forget = forget

    @overload
    async def export_user_data(
        self,
        user_id: str | None = None,
        *,
        to: None = None,
        format: ExportFormat | None = None,
        on_progress: ExportProgressCallback | None = None,
        include_vectors: bool = False,
    ) -> dict[str, Any]: ...
    @overload
    async def export_user_data(
        self,
        user_id: str | None = None,
        *,
        to: str | PathLike[str] | BinaryIO,
        format: ExportFormat | None = None,
        on_progress: ExportProgressCallback | None = None,
        include_vectors: bool = False,
    ) -> ExportReport: ...
    async def export_user_data(
        self,
        user_id: str | None = None,
        *,
        to: str | PathLike[str] | BinaryIO | None = None,
        format: ExportFormat | None = None,
        on_progress: ExportProgressCallback | None = None,
        include_vectors: bool = False,
    ) -> dict[str, Any] | ExportReport:
        """All that is kept of a user, as one JSON-able dict; with `to`, into a file of any size, and a report of it.

        `to` is a path or an opened binary file. `format` is "json" or "zip" (a JSON-lines file for each collection,
        and a manifest), by default as the path ends. A file appears only when it is complete, and only its owner may
        read it. `on_progress` is called with the number of records so far.
        """
        export = self._open_export(user_id, include_vectors, on_progress)
        if to is not None:
            return await write_export(export, to, format)
        if format is not None:
            raise InvalidArgumentError("format is that of a file: say where to write it with to=... .")
        return await collect_export(export)

    async def export_stream(
        self, user_id: str | None = None, *, include_vectors: bool = False
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Every record with the collection it belongs to, one by one. Messages follow their conversation."""
        export = self._open_export(user_id, include_vectors, None)
        async for collection, record in export.records():
            yield collection, record

    async def delete_user_data(self, user_id: str | None = None, *, confirm: bool = False) -> ErasureReport:
        """Delete all that is kept of a user, for good; gives how much there was. Nothing happens without `confirm`.

        When it returns, nothing of it is left in any table or file of the store. Deleting again is harmless. If it
        raises `StoreBusyError` or `StoreFullError`, the message says what is left to be done.
        """
        scope = self._resolve_scope(user_id)
        if confirm is not True:
            raise InvalidArgumentError(
                f"All data of user {scope.user_id!r} would be deleted for good: pass confirm=True if that is meant."
            )
        try:
            erasure: Erasure = await self._runtime.store.user_data.erase(scope, now=self._runtime.clock())
        finally:
            # Also if it failed: the rows may be gone, and whatever is still there is read again.
            self._forget({erasure_subject(scope)})
            clear_text_caches()
        return ErasureReport(erasure.counts, erasure.job_ids)

    async def usage(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        *,
        job_id: str | None = None,
        limit: int = 1_000,
        before: str | None = None,
    ) -> list[UsageRecord]:
        """What model calls for this user's memory cost, call by call and the newest first.

        For the next page, pass the last record's id as `before`.
        """
        return await list_usage(self._runtime, self._scope, since, until, job_id, limit, before)

    async def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """What they cost, added up by purpose and model."""
        return await total_usage(self._runtime, self._scope, since, until)

    def _open_export(
        self, user_id: str | None, include_vectors: bool, on_progress: ExportProgressCallback | None
    ) -> UserDataExport:
        data, now = self._runtime.store.user_data, self._runtime.clock()
        return UserDataExport(data, self._resolve_scope(user_id), now, include_vectors, on_progress)

    def _resolve_scope(self, user_id: str | None) -> Scope:
        if user_id is None:
            return self._scope
        return Scope(self._scope.tenant_id, self._scope.app_id, validation.validate_scope_id("user_id", user_id))


async def follow_erasures(runtime: Runtime, has_cached_data: Callable[[], bool], forget: ForgetUsers) -> None:
    """Forget whom any process erases, soon after, until cancelled; nothing is asked while nothing is held."""
    position = 0
    while True:
        await asyncio.sleep(ERASURE_POLL_SECONDS)
        if not has_cached_data():
            continue
        try:
            subjects, position = await runtime.store.user_data.erasures_after(after=position)
        except StoreClosedError:
            return
        except StoreError:
            log.debug("could not look for erasures", exc_info=True)
            continue
        if subjects:
            forget(frozenset(subjects))
            clear_text_caches()
