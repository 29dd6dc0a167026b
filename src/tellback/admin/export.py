"""Export of a user's data: the records, in memory or written to a JSON or zip file."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, ParamSpec, TypeVar, get_args

from tellback.errors import InvalidArgumentError
from tellback.stores.ports.store import COLLECTIONS, Collection, UserData
from tellback.types.access import Scope
from tellback.types.jsontext import dump_stored_json

FORMAT_VERSION = 1
"""Grows when a reader of earlier exports would misread a new one."""

ExportProgressCallback = Callable[[int], Any]
Record = dict[str, Any]

NESTED_COLLECTION: Collection = "messages"
TOP_COLLECTIONS: tuple[Collection, ...] = tuple(name for name in COLLECTIONS if name != NESTED_COLLECTION)
"""The collections that stand for themselves: messages are part of their conversations."""

ExportFormat = Literal["json", "zip"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
CHUNK_LENGTH = 500_000
"""About so many characters are written at once."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written: where (None for an opened file), in which format, and how many records of each collection."""

    path: str | None
    format: str
    counts: Mapping[str, int] = field(hash=False)


@dataclass(slots=True)
class UserDataExport:
    """One user's data on their way out, counted as they pass."""

    data: UserData
    scope: Scope
    now: datetime
    include_vectors: bool = False
    on_progress: ExportProgressCallback | None = None
    record_counts: Counter[str] = field(default_factory=Counter)

    @property
    def header(self) -> Record:
        """Whose data it is, and when they were exported."""
        scope = self.scope
        user = {"tenant_id": scope.tenant_id, "app_id": scope.app_id, "user_id": scope.user_id}
        return {"format_version": FORMAT_VERSION, "user": user, "exported_at": self.now.isoformat()}

    @property
    def counts(self) -> dict[str, int]:
        """How many records of each collection have passed."""
        return {name: self.record_counts[name] for name in COLLECTIONS}

    async def collection(self, name: Collection, parent_id: str | None = None) -> AsyncGenerator[Record, None]:
        """The records of one collection, or those that belong to one conversation or space."""
        async for record in self.data.records(
            self.scope, name, parent_id=parent_id, include_vectors=self.include_vectors
        ):
            self.record_counts[name] += 1
            if self.on_progress is not None:
                self.on_progress(self.record_counts.total())
            yield record

    async def records(self) -> AsyncGenerator[tuple[Collection, Record], None]:
        """Every record with its collection; messages follow their conversation."""
        for name in TOP_COLLECTIONS:
            async for record in self.collection(name):
                yield name, record
                if name == "conversations":
                    async for message in self.collection(NESTED_COLLECTION, record["id"]):
                        yield NESTED_COLLECTION, message


async def collect_export(export: UserDataExport) -> Record:
    """All of it, in memory."""
    collections: dict[str, list[Record]] = {name: [] for name in TOP_COLLECTIONS}
    async for name, record in export.records():
        if name == NESTED_COLLECTION:
            collections["conversations"][-1][NESTED_COLLECTION].append(record)
        else:
            collections[name].append({**record, NESTED_COLLECTION: []} if name == "conversations" else record)
    return {**export.header, **collections}


async def write_export(
    export: UserDataExport, to: str | os.PathLike[str] | BinaryIO, format: ExportFormat | None
) -> ExportReport:
    """Write an export to a path, or into an opened file, which stays open."""
    file_type = resolve_format(to, format)
    if not isinstance(to, str | os.PathLike):
        await _WRITERS[file_type](export, to)
        return ExportReport(None, file_type, export.counts)
    async with atomic_write(Path(to)) as file:
        await _WRITERS[file_type](export, file)
    return ExportReport(str(Path(to)), file_type, export.counts)


def resolve_format(to: str | os.PathLike[str] | BinaryIO, format: ExportFormat | None) -> ExportFormat:
    """The format of a file: the one that was asked for, or as its path ends."""
    if isinstance(to, str | os.PathLike):
        return _format_from_path(Path(to), format)
    if not hasattr(to, "write"):
        raise InvalidArgumentError(f"to is a path or an opened binary file, not {to!r:.80}.")
    return _validate_format(format or "json")


def _format_from_path(path: Path, format: ExportFormat | None) -> ExportFormat:
    if format is not None:
        return _validate_format(format)
    ending = path.suffix.lower().removeprefix(".")
    if ending not in EXPORT_FORMATS:
        raise InvalidArgumentError(f"{path.name!r} ends neither in .json nor in .zip: name it so, or pass format=... .")
    return _validate_format(ending)


def _validate_format(format: Any) -> ExportFormat:
    for known in EXPORT_FORMATS:
        if format == known:
            return known
    raise InvalidArgumentError(f"format is 'json' or 'zip', not {format!r:.80}.")


@asynccontextmanager
async def atomic_write(path: Path) -> AsyncGenerator[BinaryIO, None]:
    """A file beside the path first, and then in its place: whoever looks sees the whole file or none."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            await _run_in_thread(_flush_to_disk, file)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _flush_to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


async def _write_json(export: UserDataExport, file: BinaryIO) -> None:
    async for chunk in _merge_chunks(_json_chunks(export)):
        await _run_in_thread(file.write, chunk.encode())


async def _json_chunks(export: UserDataExport) -> AsyncGenerator[str, None]:
    """One JSON object, as `export_user_data` gives it, in pieces."""
    yield _open_object(export.header)
    for name in TOP_COLLECTIONS:
        yield f',\n"{name}":['
        separator = "\n"
        async for record in export.collection(name):
            yield separator + (_open_object(record) if name == "conversations" else dump_stored_json(record))
            separator = ",\n"
            if name == "conversations":
                async for chunk in _message_chunks(export, record["id"]):
                    yield chunk
        yield "]"
    yield "}\n"


async def _message_chunks(export: UserDataExport, conversation_id: str) -> AsyncGenerator[str, None]:
    yield f',"{NESTED_COLLECTION}":['
    separator = "\n"
    async for message in export.collection(NESTED_COLLECTION, conversation_id):
        yield separator + dump_stored_json(message)
        separator = ",\n"
    yield "]}"


def _open_object(record: dict[str, Any]) -> str:
    """An object to which more is added."""
    return dump_stored_json(record)[:-1]


async def _write_zip(export: UserDataExport, file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name in COLLECTIONS:
            with archive.open(_zip_member(export, f"{name}.jsonl"), "w", force_zip64=True) as member:
                async for chunk in _merge_chunks(_json_lines(export, name)):
                    await _run_in_thread(member.write, chunk.encode())
        manifest = json.dumps({**export.header, "counts": export.counts}, indent=2)
        archive.writestr(_zip_member(export, "manifest.json"), manifest + "\n")


async def _json_lines(export: UserDataExport, name: Collection) -> AsyncGenerator[str, None]:
    async for record in export.collection(name):
        yield dump_stored_json(record) + "\n"


def _zip_member(export: UserDataExport, name: str) -> zipfile.ZipInfo:
    now = export.now
    member = zipfile.ZipInfo(name, (max(now.year, 1980), now.month, now.day, now.hour, now.minute, now.second))
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o600 << 16
    return member


async def _merge_chunks(chunks: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The same text in fewer pieces."""
    buffer: list[str] = []
    length = 0
    async for chunk in chunks:
        buffer.append(chunk)
        length += len(chunk)
        if length >= CHUNK_LENGTH:
            yield "".join(buffer)
            buffer, length = [], 0
    yield "".join(buffer)


async def _run_in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do it without keeping others waiting. Cancelled, it is waited for: the file must not be closed under it."""
    future = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


_WRITERS = {"json": _write_json, "zip": _write_zip}
