"""`user.admin`: export, erasure and usage of a user's data."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
import zipfile
from collections import Counter, abc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, get_args, overload

from tellback import validation
from tellback.concurrency import finish_in_thread
from tellback.errors import InvalidArgumentError, StoreClosedError, StoreError
from tellback.portal import Handle
from tellback.runtime import Runtime
from tellback.stores.operations.user_data import UserData
from tellback.stores.values import COLLECTIONS, Collection, Erasure, erasure_subject
from tellback.types.access import Scope
from tellback.types.ids import clear_text_caches
from tellback.types.jobs import UsageRecord, UsageTotal
from tellback.types.jsontext import dump_stored_json
from tellback.validation import DatetimeLike

__all__ = ["Admin", "ErasureReport", "ExportReport"]

FORMAT_VERSION = 1
"""Increased when a reader of the previous format would misread an export."""

ExportProgressCallback = Callable[[int], Any]
Record = dict[str, Any]

NESTED_COLLECTION: Collection = "messages"
TOP_COLLECTIONS: tuple[Collection, ...] = tuple(name for name in COLLECTIONS if name != NESTED_COLLECTION)
"""The top-level collections; messages are nested in their conversations."""

ExportFormat = Literal["json", "zip"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
CHUNK_LENGTH = 500_000
"""The approximate number of characters per write."""


@dataclass(frozen=True, slots=True)
class ExportReport:
    """A written export: its path (None for an open file), format, and number of records by collection.

    >>> import io
    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     maya = tb.user("maya")
    ...     reply = maya.chat("I keep bees.")
    ...     report = maya.admin.export_user_data(to=io.BytesIO(), format="json")
    >>> report.format, report.counts["conversations"]
    ('json', 1)
    """

    path: str | None
    format: str
    counts: Mapping[str, int] = field(hash=False)


@dataclass(slots=True)
class UserDataExport:
    """Reads one user's data for an export, and counts the records."""

    data: UserData
    scope: Scope
    now: datetime
    include_vectors: bool = False
    on_progress: ExportProgressCallback | None = None
    record_counts: Counter[str] = field(default_factory=Counter)

    @property
    def header(self) -> Record:
        """The format version, the user and the time of the export."""
        return {"format_version": FORMAT_VERSION, "user": asdict(self.scope), "exported_at": self.now.isoformat()}

    @property
    def counts(self) -> dict[str, int]:
        """The number of records read, by collection."""
        return {name: self.record_counts[name] for name in COLLECTIONS}

    async def collection(self, name: Collection, parent_id: str | None = None) -> AsyncGenerator[Record, None]:
        """Yield the records of one collection, or those of one conversation or space."""
        async for record in self.data.records(
            self.scope, name, parent_id=parent_id, include_vectors=self.include_vectors
        ):
            self.record_counts[name] += 1
            if self.on_progress is not None:
                self.on_progress(self.record_counts.total())
            yield record

    async def records(self) -> AsyncGenerator[tuple[Collection, Record], None]:
        """Yield all records with their collection; messages follow their conversation."""
        for name in TOP_COLLECTIONS:
            async for record in self.collection(name):
                yield name, record
                if name == "conversations":
                    async for message in self.collection(NESTED_COLLECTION, record["id"]):
                        yield NESTED_COLLECTION, message


async def collect_export(export: UserDataExport) -> Record:
    """Return the export as a dict."""
    collections: dict[str, list[Record]] = {name: [] for name in TOP_COLLECTIONS}
    async for name, record in export.records():
        if name == NESTED_COLLECTION:
            collections["conversations"][-1][NESTED_COLLECTION].append(record)
        else:
            collections[name].append({**record, NESTED_COLLECTION: []} if name == "conversations" else record)
    return {**export.header, **collections}


async def write_export(
    export: UserDataExport, to: str | PathLike[str] | BinaryIO, format: ExportFormat | None
) -> ExportReport:
    """Write an export to a path, or to an open file, which stays open."""
    file_type = resolve_format(to, format)
    if isinstance(to, str | PathLike):
        async with atomic_write(Path(to)) as file:
            await _WRITERS[file_type](export, file)
        return ExportReport(str(Path(to)), file_type, export.counts)
    await _WRITERS[file_type](export, to)
    return ExportReport(None, file_type, export.counts)


def resolve_format(to: str | PathLike[str] | BinaryIO, format: ExportFormat | None) -> ExportFormat:
    """Return the passed format, or the one of the path's extension."""
    path = Path(to) if isinstance(to, str | PathLike) else None
    if path is None and not hasattr(to, "write"):
        raise InvalidArgumentError(f"to must be a path or an open binary file, got {to!r:.80}.")
    ending = "json" if path is None else path.suffix.lower().removeprefix(".")
    for known in EXPORT_FORMATS:
        if known == (ending if format is None else format):
            return known
    if format is not None or path is None:
        raise InvalidArgumentError(f"format must be 'json' or 'zip', got {format!r:.80}.")
    raise InvalidArgumentError(f"{path.name!r} does not end in .json or .zip: rename it, or pass format=....")


@asynccontextmanager
async def atomic_write(path: Path) -> AsyncGenerator[BinaryIO, None]:
    """Write a temporary file and move it to the path, so that readers never see an incomplete file."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            await finish_in_thread(partial(_flush_to_disk, file))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _flush_to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


async def _write_json(export: UserDataExport, file: BinaryIO) -> None:
    await _write_chunks(file, _json_chunks(export))


async def _json_chunks(export: UserDataExport) -> AsyncGenerator[str, None]:
    """Yield the JSON text of the export in pieces."""
    yield dump_stored_json(export.header)[:-1]
    for name in TOP_COLLECTIONS:
        yield f',\n"{name}":'
        async for chunk in _array_chunks(export, name):
            yield chunk
    yield "}\n"


async def _array_chunks(
    export: UserDataExport, name: Collection, parent_id: str | None = None
) -> AsyncGenerator[str, None]:
    separator = "[\n"
    async for record in export.collection(name, parent_id):
        text = dump_stored_json(record)
        if name == "conversations":
            yield f'{separator}{text[:-1]},"{NESTED_COLLECTION}":'
            async for chunk in _array_chunks(export, NESTED_COLLECTION, record["id"]):
                yield chunk
            yield "}"
        else:
            yield separator + text
        separator = ",\n"
    yield "[]" if separator == "[\n" else "]"


async def _write_zip(export: UserDataExport, file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name in COLLECTIONS:
            with archive.open(_zip_member(export, f"{name}.jsonl"), "w", force_zip64=True) as member:
                lines = (dump_stored_json(record) + "\n" async for record in export.collection(name))
                await _write_chunks(member, lines)
        manifest = json.dumps({**export.header, "counts": export.counts}, indent=2)
        archive.writestr(_zip_member(export, "manifest.json"), manifest + "\n")


def _zip_member(export: UserDataExport, name: str) -> zipfile.ZipInfo:
    now = export.now
    member = zipfile.ZipInfo(name, (max(now.year, 1980), now.month, now.day, now.hour, now.minute, now.second))
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o600 << 16
    return member


async def _write_chunks(file: IO[bytes], chunks: AsyncIterator[str]) -> None:
    """Write text in large chunks, each in a thread."""
    buffer: list[str] = []
    length = 0
    async for chunk in chunks:
        buffer.append(chunk)
        length += len(chunk)
        if length >= CHUNK_LENGTH:
            await finish_in_thread(partial(file.write, "".join(buffer).encode()))
            buffer, length = [], 0
    await finish_in_thread(partial(file.write, "".join(buffer).encode()))


_WRITERS = {"json": _write_json, "zip": _write_zip}


log = logging.getLogger("tellback.admin")

ERASURE_POLL_SECONDS = 5.0
"""How often a process checks for erasures by other processes."""

ForgetUsers = Callable[[abc.Collection[str]], None]
"""Removes cached data of erased users, identified by the subjects of erasure events."""


class ErasureReport(dict[str, int]):
    """The number of deleted rows by table. `job_ids` are the ids of deleted jobs.

    >>> ErasureReport({"messages": 2}).deleted["messages"]
    2
    """

    def __init__(self, counts: Any = (), job_ids: tuple[str, ...] = ()) -> None:
        super().__init__(counts)
        self.job_ids = job_ids

    @property
    def deleted(self) -> ErasureReport:
        """The counts themselves: `report.deleted["messages"]` is `report["messages"]`."""
        return self


async def list_usage(
    runtime: Runtime,
    scope: Scope | None,
    since: DatetimeLike,
    until: DatetimeLike,
    job_id: str | None,
    limit: int,
    before: str | None,
    **filters: str | None,
) -> list[UsageRecord]:
    """List model calls, newest first: of one user, of all users (None), or of a tenant and app (`filters`)."""
    return await runtime.store.jobs.usage(
        scope,
        since=validation.parse_optional_datetime("since", since),
        until=validation.parse_optional_datetime("until", until),
        job_id=validation.validate_optional_text("job_id", job_id, validation.KEY_LENGTH),
        limit=validation.validate_count("limit", limit),
        before=validation.validate_optional_text("before", before, validation.KEY_LENGTH),
        **filters,
    )


async def total_usage(
    runtime: Runtime,
    scope: Scope | None,
    since: DatetimeLike,
    until: DatetimeLike,
    **filters: str | None,
) -> list[UsageTotal]:
    """Return total usage by user, purpose and model."""
    start = validation.parse_optional_datetime("since", since)
    end = validation.parse_optional_datetime("until", until)
    return await runtime.store.jobs.usage_totals(scope, since=start, until=end, **filters)


class Admin(Handle):
    """Export, erasure and usage of the handle's user, or of another user of the same tenant and app.

    >>> import io
    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     maya = tb.user("maya")
    ...     conversation = maya.conversations.create("chat", title="Dinner")
    ...     export = maya.admin.export_user_data(to=io.BytesIO(), format="zip")
    ...     erasure = maya.admin.delete_user_data(confirm=True)
    >>> export.counts["conversations"], erasure["conversations"]
    (1, 1)
    """

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
        """Export all data of a user as a JSON-compatible dict. With `to`, write a file of any size and return a report.

        `to` is a path or an open binary file. `format` is "json" or "zip" (a JSON-lines file per collection, and a
        manifest); the default is the extension of the path. The file only appears when it is complete, and only its
        owner may read it. `on_progress` is called with the number of records so far.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     maya = tb.user("maya")
        ...     conversation = maya.conversations.create("chat", title="Dinner")
        ...     export = maya.admin.export_user_data()
        >>> [each["title"] for each in export["conversations"]]
        ['Dinner']
        """
        export = self._open_export(user_id, include_vectors, on_progress)
        if to is not None:
            return await write_export(export, to, format)
        if format is not None:
            raise InvalidArgumentError("format needs a file: pass its path or an open file as to=....")
        return await collect_export(export)

    async def export_stream(
        self, user_id: str | None = None, *, include_vectors: bool = False
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yield all records with their collection. Messages follow their conversation.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     maya = tb.user("maya")
        ...     conversation = maya.conversations.create("chat", title="Dinner")
        ...     message = maya.conversations.append_user_message(conversation.id, "A table for two")
        ...     collections = [collection for collection, record in maya.admin.export_stream()]
        >>> collections[:2]
        ['conversations', 'messages']
        """
        export = self._open_export(user_id, include_vectors, None)
        async for collection, record in export.records():
            yield collection, record

    async def delete_user_data(self, user_id: str | None = None, *, confirm: bool = False) -> ErasureReport:
        """Permanently delete all data of a user, and return the number of deleted rows. Requires `confirm=True`.

        When it returns, no table or file of the store contains the data. Deleting again is harmless. If it raises
        `StoreBusyError` or `StoreFullError`, the message says what remains to be done.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     maya = tb.user("maya")
        ...     conversation = maya.conversations.create("chat")
        ...     report = maya.admin.delete_user_data(confirm=True)
        ...     remaining = maya.conversations.list()
        >>> report["conversations"], remaining
        (1, [])
        """
        scope = self._resolve_scope(user_id)
        if confirm is not True:
            raise InvalidArgumentError(
                f"This permanently deletes all data of user {scope.user_id!r}: pass confirm=True to confirm."
            )
        try:
            erasure: Erasure = await self._runtime.store.user_data.erase(scope, now=self._runtime.clock())
        finally:
            # Also after an error: rows may be deleted, and remaining data is read again.
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
        """List the model calls for this user's memory (extraction, comparison, summaries), newest first.

        For the next page, pass the last record's id as `before`.

        >>> from tellback import ChatUsage, Tellback
        >>> from tellback.testing import ScriptedModel, says
        >>> summary = says("Maya asks for a table.", usage=ChatUsage(900, 60))
        >>> with Tellback(":memory:", model=ScriptedModel([summary])) as tb:
        ...     maya = tb.user("maya")
        ...     conversation = maya.conversations.create("chat")
        ...     message = maya.conversations.append_user_message(conversation.id, "A table for two")
        ...     refreshed = maya.conversations.refresh_rolling_summary(conversation.id)
        ...     [call] = maya.admin.usage()
        >>> call.purpose, call.input_tokens, call.output_tokens
        ('summary', 900, 60)
        """
        return await list_usage(self._runtime, self._scope, since, until, job_id, limit, before)

    async def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """Return the total usage of these calls by purpose and model.

        >>> from tellback import ChatUsage, Tellback
        >>> from tellback.testing import ScriptedModel, says
        >>> summary = says("Maya asks for a table.", usage=ChatUsage(900, 60))
        >>> with Tellback(":memory:", model=ScriptedModel([summary])) as tb:
        ...     maya = tb.user("maya")
        ...     conversation = maya.conversations.create("chat")
        ...     message = maya.conversations.append_user_message(conversation.id, "A table for two")
        ...     refreshed = maya.conversations.refresh_rolling_summary(conversation.id)
        ...     [total] = maya.admin.usage_totals()
        >>> total.purpose, total.calls, total.input_tokens
        ('summary', 1, 900)
        """
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
    """Remove cached data of users erased by other processes, until cancelled. An empty cache causes no queries."""
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
            log.debug("Could not check for erasures", exc_info=True)
            continue
        if subjects:
            forget(frozenset(subjects))
            clear_text_caches()
