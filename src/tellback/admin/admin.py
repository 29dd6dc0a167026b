"""`user.admin`: all that is kept of a user, handed out or erased."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from datetime import datetime
from os import PathLike
from typing import Any, BinaryIO, overload

from tellback.admin import usage
from tellback.admin.erased import ErasureReport
from tellback.admin.export import ExportProgressCallback, ExportReport, UserDataExport, collect_export
from tellback.admin.files import ExportFormat, write_export
from tellback.conversations import checks
from tellback.conversations.runtime import Runtime
from tellback.errors import InvalidArgumentError, StoreClosedError, StoreError
from tellback.stores.ports.admin import Erasure, erasure_subject
from tellback.types.caches import clear_text_caches
from tellback.types.jobs import UsageRecord, UsageTotal
from tellback.types.scope import Scope

log = logging.getLogger("tellback.admin")

ERASURE_POLL_SECONDS = 5.0
"""How long a process may hold what another one has erased."""

ForgetUsers = Callable[[Collection[str]], None]
"""Drops what this process holds of users who were erased, named as in the events that tell of it."""


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
        return await usage.list_usage(self._runtime, self._scope, since, until, job_id, limit, before)

    async def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """What they cost, added up by purpose and model."""
        return await usage.total_usage(self._runtime, self._scope, since, until)

    def _open_export(
        self, user_id: str | None, include_vectors: bool, on_progress: ExportProgressCallback | None
    ) -> UserDataExport:
        data, now = self._runtime.store.user_data, self._runtime.clock()
        return UserDataExport(data, self._resolve_scope(user_id), now, include_vectors, on_progress)

    def _resolve_scope(self, user_id: str | None) -> Scope:
        if user_id is None:
            return self._scope
        return Scope(self._scope.tenant_id, self._scope.app_id, checks.validate_scope_id("user_id", user_id))


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
