"""Where an export is: a file, a folder it was unpacked to, or the zip that was downloaded. All become plain files."""

from __future__ import annotations

import codecs
import io
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from tellback.errors import ImportFormatError, InvalidArgumentError

MAX_EXPORT_BYTES = 8 * 1024**3
"""How many bytes a zip may unpack to."""

MAX_COMPRESSION_RATIO, SMALL_FILE_BYTES = 500, 64 * 1024**2
"""Chats shrink to a tenth. What shrinks to a five hundredth, and is not small, is there to fill the disk."""

CHUNK_BYTES = 1 << 20
MAX_ZIP_DEPTH = 2
"""A zip may be in a zip: that is how OpenAI's privacy portal hands chats out."""

_CHAT_FILE_NAME = re.compile(r"conversations(-\d+)?\.json|.*\.(jsonl|ndjson)", re.IGNORECASE)
_MAX_LISTED_NAMES = 8
_ZIP_MAGIC = b"PK\x03\x04"
"""How every zip begins; whether it is whole only its end tells."""


@dataclass(frozen=True, slots=True)
class ChatFile:
    """A file with chats in it, as UTF-8 that can be read from any place; `start` is behind its byte order mark."""

    name: str
    file: BinaryIO
    start: int = 0

    @property
    def is_json_lines(self) -> bool:
        """Whether it is called what files are called that have a value on each line."""
        return self.name.lower().endswith((".jsonl", ".ndjson"))


def open_chat_files(source: str | PathLike[str], stack: ExitStack) -> list[ChatFile]:
    """The files with chats of an export, which the stack closes."""
    path = Path(source)
    try:
        if path.is_dir():
            return _open_folder(path, stack)
        file = stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        raise InvalidArgumentError(f"There is no file or folder {str(path)!r}.") from None
    except OSError as error:
        raise InvalidArgumentError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    if not zipfile.is_zipfile(file):
        file.seek(0)
        if file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC:
            raise ImportFormatError(path.name, "the zip is damaged, or cut off. Download it again.")
        return [_open_plain(path.name, file, stack)]
    files = list(_open_zip(path.name, file, stack, MAX_EXPORT_BYTES))
    if not files:
        raise ImportFormatError(path.name, "there is no conversations.json in it, nor any .jsonl.")
    return files


def _open_folder(folder: Path, stack: ExitStack) -> list[ChatFile]:
    paths = [path for path in sorted(folder.rglob("*")) if _CHAT_FILE_NAME.fullmatch(path.name) and path.is_file()]
    if not paths:
        names = ", ".join(sorted(path.name for path in folder.iterdir())[:_MAX_LISTED_NAMES]) or "nothing"
        raise ImportFormatError(str(folder), f"there is no conversations.json in it, nor any .jsonl, but {names}.")
    files = []
    for path in paths:
        file = stack.enter_context(path.open("rb"))
        files.append(_open_plain(str(path.relative_to(folder)), file, stack))
    return files


def _open_zip(name: str, file: IO[bytes], stack: ExitStack, max_bytes: int, depth: int = 1) -> Iterator[ChatFile]:
    """The chats of a zip. Its names are never those of files here: what is in it goes to nameless temporary ones."""
    try:
        archive = stack.enter_context(zipfile.ZipFile(file))
        members = [info for info in archive.infolist() if not info.is_dir()]
        wanted = [info for info in members if _CHAT_FILE_NAME.fullmatch(PurePosixPath(info.filename).name)]
        is_nested = not wanted
        if is_nested and depth < MAX_ZIP_DEPTH:
            wanted = [info for info in members if info.filename.lower().endswith(".zip")]
            wanted = [info for info in wanted if "conversation" in info.filename.lower()] or wanted
        for info in sorted(wanted, key=lambda info: info.filename):
            unpacked = _open_temporary(stack)
            max_bytes -= _unpack(name, archive, info, unpacked, max_bytes)
            if is_nested and zipfile.is_zipfile(unpacked):
                yield from _open_zip(f"{name}/{info.filename}", unpacked, stack, max_bytes, depth + 1)
            elif not is_nested:
                yield _open_plain(info.filename, unpacked, stack)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ImportFormatError(name, f"the zip is damaged, or cut off: {error}. Download it again.") from error


def _unpack(name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: IO[bytes], max_bytes: int) -> int:
    if info.flag_bits & 1:
        raise ImportFormatError(name, f"{info.filename!r} in it has a password. Unpack it, and give the folder.")
    max_bytes = min(max_bytes, max(SMALL_FILE_BYTES, info.compress_size * MAX_COMPRESSION_RATIO))
    size = 0
    with archive.open(info) as packed:
        # Sizes that a zip tells of itself may be wrong, so what comes out is counted.
        while chunk := packed.read(CHUNK_BYTES):
            size += len(chunk)
            if size > max_bytes:
                raise ImportFormatError(
                    name, f"{info.filename!r} in it unpacks to more than {max_bytes:,} bytes: is it an export of chats?"
                )
            target.write(chunk)
    target.flush()
    target.seek(0)
    return size


def _open_plain(name: str, file: IO[bytes], stack: ExitStack) -> ChatFile:
    file.seek(0)
    head = file.read(4)
    file.seek(0)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        copy = _open_temporary(stack)
        try:
            _transcode_utf16(file, copy)
        except UnicodeError as error:
            raise ImportFormatError(name, f"it begins like UTF-16, and is not: {error}.") from error
        return ChatFile(name, _as_binary(copy))
    return ChatFile(name, _as_binary(file), len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0)


def _transcode_utf16(file: IO[bytes], copy: IO[bytes]) -> None:
    """UTF-16, which PowerShell writes, as UTF-8."""
    text = io.TextIOWrapper(_as_binary(file), encoding="utf-16", newline="")
    try:
        shutil.copyfileobj(text, codecs.getwriter("utf-8")(copy), CHUNK_BYTES)
    finally:
        text.detach()
    copy.flush()
    copy.seek(0)


def _open_temporary(stack: ExitStack) -> IO[bytes]:
    return stack.enter_context(tempfile.TemporaryFile())


def _as_binary(file: IO[bytes]) -> BinaryIO:
    return file  # type: ignore[return-value]  # what `open` and `TemporaryFile` give is one
