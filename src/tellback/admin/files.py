"""Exports as files: written piece by piece, and there only when they are complete."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import zipfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, ParamSpec, TypeVar, get_args

from tellback.admin.export import NESTED, TOP, Export, ExportReport
from tellback.errors import InvalidArgumentError
from tellback.stores.ports.admin import COLLECTIONS, Collection
from tellback.stores.rows import to_json

Format = Literal["json", "zip"]
FORMATS: tuple[Format, ...] = get_args(Format)
PIECE = 500_000
"""About so many characters are written at once."""

P = ParamSpec("P")
T = TypeVar("T")


async def write_export(export: Export, to: str | os.PathLike[str] | BinaryIO, format: Format | None) -> ExportReport:
    """Write an export to a path, or into an opened file, which stays open."""
    chosen = file_format(to, format)
    if not isinstance(to, str | os.PathLike):
        await _WRITING[chosen](export, to)
        return ExportReport(None, chosen, export.counts)
    async with in_place(Path(to)) as file:
        await _WRITING[chosen](export, file)
    return ExportReport(str(Path(to)), chosen, export.counts)


def file_format(to: str | os.PathLike[str] | BinaryIO, format: Format | None) -> Format:
    """The format of a file: the one that was asked for, or as its path ends."""
    if isinstance(to, str | os.PathLike):
        return _format(Path(to), format)
    if not hasattr(to, "write"):
        raise InvalidArgumentError(f"to is a path or an opened binary file, not {to!r:.80}.")
    return _checked(format or "json")


def _format(path: Path, format: Format | None) -> Format:
    if format is not None:
        return _checked(format)
    ending = path.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise InvalidArgumentError(f"{path.name!r} ends neither in .json nor in .zip: name it so, or pass format=... .")
    return _checked(ending)


def _checked(format: Any) -> Format:
    for known in FORMATS:
        if format == known:
            return known
    raise InvalidArgumentError(f"format is 'json' or 'zip', not {format!r:.80}.")


@asynccontextmanager
async def in_place(path: Path) -> AsyncGenerator[BinaryIO, None]:
    """A file beside the path first, and then in its place: whoever looks sees the whole file or none."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            await _in_thread(_settled, file)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _settled(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


async def _write_json(export: Export, file: BinaryIO) -> None:
    async for piece in _gathered(_json_pieces(export)):
        await _in_thread(file.write, piece.encode())


async def _json_pieces(export: Export) -> AsyncGenerator[str, None]:
    """One JSON object, as `export_user_data` gives it, in pieces."""
    yield _opened(export.header)
    for name in TOP:
        yield f',\n"{name}":['
        between = "\n"
        async for record in export.collection(name):
            yield between + (_opened(record) if name == "conversations" else to_json(record))
            between = ",\n"
            if name == "conversations":
                async for piece in _messages(export, record["id"]):
                    yield piece
        yield "]"
    yield "}\n"


async def _messages(export: Export, conversation_id: str) -> AsyncGenerator[str, None]:
    yield f',"{NESTED}":['
    between = "\n"
    async for message in export.collection(NESTED, conversation_id):
        yield between + to_json(message)
        between = ",\n"
    yield "]}"


def _opened(record: dict[str, Any]) -> str:
    """An object to which more is added."""
    return to_json(record)[:-1]


async def _write_zip(export: Export, file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name in COLLECTIONS:
            with archive.open(_member(export, f"{name}.jsonl"), "w", force_zip64=True) as member:
                async for piece in _gathered(_lines(export, name)):
                    await _in_thread(member.write, piece.encode())
        manifest = json.dumps({**export.header, "counts": export.counts}, indent=2)
        archive.writestr(_member(export, "manifest.json"), manifest + "\n")


async def _lines(export: Export, name: Collection) -> AsyncGenerator[str, None]:
    async for record in export.collection(name):
        yield to_json(record) + "\n"


def _member(export: Export, name: str) -> zipfile.ZipInfo:
    now = export.now
    member = zipfile.ZipInfo(name, (max(now.year, 1980), now.month, now.day, now.hour, now.minute, now.second))
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o600 << 16
    return member


async def _gathered(pieces: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The same text in fewer pieces."""
    gathered: list[str] = []
    length = 0
    async for piece in pieces:
        gathered.append(piece)
        length += len(piece)
        if length >= PIECE:
            yield "".join(gathered)
            gathered, length = [], 0
    yield "".join(gathered)


async def _in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do it without keeping others waiting. Cancelled, it is waited for: the file must not be closed under it."""
    doing = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise


_WRITING = {"json": _write_json, "zip": _write_zip}
