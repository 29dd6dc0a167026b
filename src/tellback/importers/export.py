"""`ChatExport`: an opened export (zip, folder or file) with its chats, oldest first.

Its JSON is read value by value, with offsets, so an export may be larger than memory: each chat is read again on
demand. `ijson` is not used: it returns no offsets, rejects NaN and changes lone surrogates. On 56 MB, it took equally
long with its C library, and twelve times as long without."""

from __future__ import annotations

import codecs
import io
import json
import re
import shutil
import tempfile
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import IO, Any

from tellback.errors import ImportFormatError, InvalidArgumentError
from tellback.importers import chatgpt, claude, jsonl
from tellback.importers.chats import FORMATS, Format, ImportedChat, as_mapping

MAX_EXPORT_BYTES = 8 * 1024**3
"""Maximum number of bytes that a zip may unpack to."""

MAX_COMPRESSION_RATIO, SMALL_FILE_BYTES = 500, 64 * 1024**2
"""A protection against zip bombs: a file that unpacks to more than `SMALL_FILE_BYTES` must not have a higher
compression ratio than this. Real chats have a ratio of about 10."""

CHUNK_BYTES = 1 << 20
MAX_ZIP_DEPTH = 2
"""OpenAI's privacy portal exports a zip inside a zip."""

_CHAT_FILE_NAME = re.compile(r"conversations(-\d+)?\.json|.*\.(jsonl|ndjson)", re.IGNORECASE)
_MAX_LISTED_NAMES = 8
_ZIP_MAGIC = b"PK\x03\x04"
"""The first bytes of a zip; a truncated zip also begins with them."""

MAX_VALUE_LENGTH = 256 * 1024**2
"""Maximum number of characters of one chat."""

TRUNCATION_MARGIN = 32
"""A parse error this close to the end of the buffer may vanish when more is read."""

TRUNCATED_FILE = "the file is truncated: download it again"

_VALUE_END = tuple(" \t\r\n,]")
_WHITESPACE = re.compile(r"[ \t\r\n]*")

SKIPPED_EMPTY = "no messages"
SKIPPED_NOT_REMEMBERED = "marked as do not remember"
SKIPPED_DUPLICATE = "duplicate in the export"
SKIPPED_UNKNOWN_SHAPE = "not a chat of this format"

_PARSERS: Mapping[str, tuple[Callable[[Any], bool], Callable[[Mapping[str, Any]], ImportedChat]]] = {
    chatgpt.SOURCE: (chatgpt.is_chat, chatgpt.parse_chat),
    claude.SOURCE: (claude.is_chat, claude.parse_chat),
    jsonl.SOURCE: (jsonl.is_chat, jsonl.parse_chat),
}
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ChatFile:
    """A seekable UTF-8 file with chats; `start` is the offset after the byte order mark."""

    name: str
    file: IO[bytes]
    start: int = 0

    @property
    def is_json_lines(self) -> bool:
        """Whether the file name has a suffix of JSON Lines files."""
        return self.name.lower().endswith((".jsonl", ".ndjson"))


def open_chat_files(source: str | PathLike[str], stack: ExitStack) -> list[ChatFile]:
    """Return the files with chats of an export; the stack closes them."""
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
            raise ImportFormatError(path.name, "the zip is damaged or truncated. Download it again.")
        return [_open_plain(path.name, file, stack)]
    files = list(_open_zip(path.name, file, stack, MAX_EXPORT_BYTES))
    if not files:
        raise ImportFormatError(path.name, "it contains no conversations.json and no .jsonl file.")
    return files


def _open_folder(folder: Path, stack: ExitStack) -> list[ChatFile]:
    paths = [path for path in sorted(folder.rglob("*")) if _CHAT_FILE_NAME.fullmatch(path.name) and path.is_file()]
    if not paths:
        names = sorted(path.name for path in folder.iterdir())
        listed = ", ".join(names[:_MAX_LISTED_NAMES]) + (" …" if len(names) > _MAX_LISTED_NAMES else "")
        found = f"it contains {listed}" if names else "it is empty"
        raise ImportFormatError(str(folder), f"the folder has no conversations.json and no .jsonl file: {found}.")
    files = []
    for path in paths:
        file = stack.enter_context(path.open("rb"))
        files.append(_open_plain(str(path.relative_to(folder)), file, stack))
    return files


def _open_zip(name: str, file: IO[bytes], stack: ExitStack, max_bytes: int, depth: int = 1) -> Iterator[ChatFile]:
    """Yield the chat files of a zip. Members are unpacked to anonymous temporary files, so their names are harmless."""
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
        raise ImportFormatError(name, f"the zip is damaged or truncated: {error}. Download it again.") from error


def _unpack(name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: IO[bytes], max_bytes: int) -> int:
    if info.flag_bits & 1:
        raise ImportFormatError(name, f"its file {info.filename!r} has a password. Unpack it and import the folder.")
    max_bytes = min(max_bytes, max(SMALL_FILE_BYTES, info.compress_size * MAX_COMPRESSION_RATIO))
    size = 0
    with archive.open(info) as packed:
        # The sizes in a zip's directory may be wrong, so count the unpacked bytes.
        while chunk := packed.read(CHUNK_BYTES):
            size += len(chunk)
            if size > max_bytes:
                raise ImportFormatError(
                    name, f"its file {info.filename!r} unpacks to more than {max_bytes:,} bytes. Is it a chat export?"
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
        copy = _open_temporary(stack)  # PowerShell writes UTF-16
        try:
            _transcode_utf16(file, copy)
        except UnicodeError as error:
            raise ImportFormatError(name, f"it has a UTF-16 byte order mark, but is not UTF-16: {error}.") from error
        return ChatFile(name, copy)
    return ChatFile(name, file, len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0)


def _transcode_utf16(file: IO[bytes], copy: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-16", newline="")
    try:
        shutil.copyfileobj(text, codecs.getwriter("utf-8")(copy), CHUNK_BYTES)
    finally:
        text.detach()
    copy.flush()
    copy.seek(0)


def _open_temporary(stack: ExitStack) -> IO[bytes]:
    return stack.enter_context(tempfile.TemporaryFile())


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A JSON value and its position in the file."""

    value: Any
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class UnreadableLine:
    """A line that is not JSON."""

    line: int
    problem: str


def iter_json_values(file: ChatFile) -> Iterator[JsonValue | UnreadableLine]:
    """Yield the values of a file: the elements of an array, or values on separate lines or in sequence."""
    file.file.seek(file.start)
    head = file.file.read(CHUNK_BYTES)
    if not head.strip():
        raise ImportFormatError(file.name, "the file is empty.")
    if not file.is_json_lines and head.lstrip()[:1] == b"[":
        return _JsonStreamReader(file, in_array=True).read()
    if file.is_json_lines or _is_json(head.lstrip().partition(b"\n")[0]):
        return _iter_lines(file)
    return _JsonStreamReader(file, in_array=False).read()


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _iter_lines(file: ChatFile) -> Iterator[JsonValue | UnreadableLine]:
    file.file.seek(file.start)
    offset, number = file.start, 0
    while line := file.file.readline(MAX_VALUE_LENGTH):
        number += 1
        if len(line) >= MAX_VALUE_LENGTH:
            raise ImportFormatError(file.name, f"line {number} has more than {MAX_VALUE_LENGTH:,} bytes.")
        line_offset, offset = offset, offset + len(line)
        if not line.strip():
            continue
        try:
            yield JsonValue(json.loads(line.decode()), line_offset, len(line))
        except UnicodeDecodeError:
            yield UnreadableLine(number, "line is not UTF-8")
        except (ValueError, RecursionError):
            yield UnreadableLine(number, "line is not JSON")
        file.file.seek(offset)  # the consumer may have moved the file position


class _JsonStreamReader:
    """Reads the elements of an array, or consecutive values, with little more than one of them in memory."""

    def __init__(self, file: ChatFile, *, in_array: bool) -> None:
        self._file = file
        self._in_array = in_array
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._parse = json.JSONDecoder().raw_decode
        self._read_offset = self._offset = file.start
        self._text, self._position = "", 0
        self._at_end = False

    def read(self) -> Iterator[JsonValue]:
        if self._in_array:
            self._next_character()
            self._advance(1)
        while (char := self._next_character()) and not (self._in_array and char == "]"):
            value, end = self._read_value()
            offset, length = self._offset, self._advance(end - self._position)
            yield JsonValue(value, offset, length)
            if self._in_array:
                self._read_separator()
        if self._in_array and not char:
            raise self._format_error(TRUNCATED_FILE)

    def _read_separator(self) -> None:
        char = self._next_character()
        if char == ",":
            self._advance(1)
        elif char != "]":
            raise self._format_error(f"expected a comma, got {char!r}" if char else TRUNCATED_FILE)

    def _next_character(self) -> str:
        """Return the next character that is not whitespace, or an empty text at the end."""
        while True:
            match = _WHITESPACE.match(self._text, self._position)
            assert match is not None
            self._advance(match.end() - self._position)
            if self._position < len(self._text) or self._at_end:
                return self._text[self._position : self._position + 1]
            self._read_more()

    def _read_value(self) -> tuple[Any, int]:
        while True:
            try:
                value, end = self._parse(self._text, self._position)
                # A number at the end of the buffer may continue in the next chunk.
                if self._at_end or not isinstance(value, int | float) or self._text[end : end + 1] in _VALUE_END:
                    return value, end
            except json.JSONDecodeError as error:
                is_unfinished = error.pos >= len(self._text) - TRUNCATION_MARGIN or error.msg.startswith(
                    "Unterminated string"
                )
                if self._at_end or not is_unfinished:
                    problem = (
                        TRUNCATED_FILE
                        if is_unfinished and error.pos > self._position
                        else f"it is not JSON: {error.msg}"
                    )
                    raise self._format_error(problem, error.pos) from None
            except (ValueError, RecursionError) as error:
                raise self._format_error(f"it cannot be read: {error}") from None
            if len(self._text) - self._position > MAX_VALUE_LENGTH:
                raise self._format_error(f"a chat has more than {MAX_VALUE_LENGTH:,} characters")
            self._read_more()

    def _read_more(self) -> None:
        rest = self._text[self._position :]
        self._file.file.seek(self._read_offset)  # the consumer may have moved the file position
        # Double the buffer: parsing a long value again after every fixed-size chunk would take quadratic time.
        chunk = self._file.file.read(max(CHUNK_BYTES, len(rest)))
        self._at_end = not chunk
        try:
            self._text, self._position = rest + self._decode(chunk, self._at_end), 0
        except UnicodeDecodeError as error:
            byte_offset = max(self._read_offset + error.start, 0)
            raise ImportFormatError(
                self._file.name, f"it is not UTF-8 (at byte {byte_offset}). Save it as UTF-8 and try again."
            ) from None
        self._read_offset += len(chunk)

    def _advance(self, count: int) -> int:
        """Skip `count` characters and return their length in bytes."""
        length = len(self._text[self._position : self._position + count].encode())
        self._position += count
        self._offset += length
        return length

    def _format_error(self, problem: str, position: int | None = None) -> ImportFormatError:
        byte_offset = self._offset + len(
            self._text[self._position : self._position if position is None else position].encode()
        )
        return ImportFormatError(self._file.name, f"{problem} (at byte {byte_offset}).")


@dataclass(frozen=True, slots=True)
class ChatPiece:
    """The parts of a chat in one file; `spans` contains their offsets and lengths, alternating."""

    file: ChatFile
    spans: array[int] = field(default_factory=lambda: array("Q"), repr=False)

    def read(self) -> list[Any]:
        file, values = self.file.file, []
        for offset, length in zip(self.spans[::2], self.spans[1::2], strict=True):
            file.seek(offset)
            values.append(json.loads(file.read(length).decode()))
        return values


@dataclass(frozen=True, slots=True)
class ExportEntry:
    """A chat of an export, without its text. With `is_message_lines`, its messages are lines of one or more files."""

    id: str
    pieces: Sequence[ChatPiece]
    is_message_lines: bool
    messages: int
    began_at: datetime | None
    ended_at: datetime | None


class ChatExport:
    """The chats of an export. Its files stay open until `close`.

    A first scan finds the chats and their dates; each chat is read again on demand. So an export may be larger than
    memory, but a single chat may not. `skipped` counts the chats and lines that are not in `entries`, by reason.
    `on_chat_found` is called during the scan, and can raise an error to stop it.
    """

    def __init__(
        self,
        source: str | PathLike[str],
        format: Format = "auto",
        on_chat_found: Callable[[int], Any] = lambda count: None,
    ) -> None:
        if format not in FORMATS:
            raise InvalidArgumentError(f"format must be {' or '.join(map(repr, FORMATS))}, got {format!r:.80}.")
        self.format: str = format
        self.skipped: Counter[str] = Counter()
        self._stack = ExitStack()
        self._entries_by_id: dict[str, ExportEntry] = {}
        self._pieces_by_id: dict[str, list[ChatPiece]] = {}
        self._on_chat_found = on_chat_found
        try:
            for file in open_chat_files(source, self._stack):
                self._scan_file(file)
            for id, pieces in self._pieces_by_id.items():
                self._add_entry(jsonl.join_messages(id, map(ChatPiece.read, pieces)), pieces, is_message_lines=True)
        except BaseException:
            self._stack.close()
            raise
        self.entries = sorted(self._entries_by_id.values(), key=lambda entry: entry.began_at or _EARLIEST)

    def close(self) -> None:
        """Close the files and remove the unpacked ones."""
        self._stack.close()

    def read(self, entry: ExportEntry) -> ImportedChat:
        if entry.is_message_lines:
            return jsonl.join_messages(entry.id, map(ChatPiece.read, entry.pieces))
        [[chat]] = map(ChatPiece.read, entry.pieces)
        return self._parse(chat)

    def __iter__(self) -> Iterator[ImportedChat]:
        return map(self.read, self.entries)

    def _scan_file(self, file: ChatFile) -> None:
        pieces_by_id: dict[str, ChatPiece] = {}
        unnamed_piece = ChatPiece(file)
        known_count = unknown_count = 0
        for item in iter_json_values(file):
            if isinstance(item, UnreadableLine):
                self.skipped[item.problem] += 1
                unknown_count += 1
                continue
            self._detect_format(item.value)
            if self.format in ("auto", jsonl.SOURCE) and jsonl.is_message(item.value):
                id = jsonl.find_conversation_id(item.value)
                piece = unnamed_piece if id is None else pieces_by_id.setdefault(id, ChatPiece(file))
                piece.spans.extend((item.offset, item.length))
                known_count += 1
            elif self._add_chat(item, file):
                known_count += 1
            else:
                unknown_count += 1
            self._on_chat_found(len(self._entries_by_id) + len(self._pieces_by_id) + len(pieces_by_id))
        if unnamed_piece.spans:  # other imports may have files with the same name
            pieces_by_id[f"{file.name}:{jsonl.opening_digest(unnamed_piece.read())}"] = unnamed_piece
        for id, piece in pieces_by_id.items():
            self._pieces_by_id.setdefault(id, []).append(piece)
        if unknown_count and not known_count:
            raise ImportFormatError(file.name, self._unknown_format_message())

    def _add_chat(self, item: JsonValue, file: ChatFile) -> bool:
        is_chat, _ = _PARSERS.get(self.format, (None, None))
        if is_chat is None or not is_chat(item.value):
            self.skipped[SKIPPED_UNKNOWN_SHAPE] += 1
            return False
        if as_mapping(item.value).get("is_do_not_remember") is True:
            self.skipped[SKIPPED_NOT_REMEMBERED] += 1
            return True
        self._add_entry(
            self._parse(item.value), [ChatPiece(file, array("Q", (item.offset, item.length)))], is_message_lines=False
        )
        return True

    def _add_entry(self, chat: ImportedChat, pieces: Sequence[ChatPiece], *, is_message_lines: bool) -> None:
        if not any(message.role != "system" for message in chat.messages):
            self.skipped[SKIPPED_EMPTY] += 1
            return
        entry = ExportEntry(chat.id, pieces, is_message_lines, len(chat.messages), chat.began_at, chat.ended_at)
        existing = self._entries_by_id.get(chat.id)
        if existing is not None:
            self.skipped[SKIPPED_DUPLICATE] += 1
        if existing is None or existing.messages < entry.messages:
            self._entries_by_id[chat.id] = entry

    def _parse(self, raw: Mapping[str, Any]) -> ImportedChat:
        return _PARSERS[self.format][1](raw)

    def _detect_format(self, value: Any) -> None:
        if self.format == "auto":
            by_shape = (name for name, (is_chat, _) in _PARSERS.items() if is_chat(value))
            self.format = next(by_shape, jsonl.SOURCE if jsonl.is_message(value) else "auto")

    def _unknown_format_message(self) -> str:
        if self.format == "auto":
            return (
                "it contains no chats of a known format. Chats of ChatGPT have 'mapping', chats of Claude have"
                " 'chat_messages', and JSON Lines have 'messages', or 'role' and 'content' on each line."
            )
        return f"it contains no chats of the format {self.format!r}. Omit the format to detect it."


def read_chats(source: str | PathLike[str], format: Format = "auto") -> Iterator[ImportedChat]:
    """Yield the chats of an export, oldest first, without importing them.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "chats.jsonl")
    >>> _ = file.write_text('{"conversation": "a", "role": "user", "content": "I moved to Lisbon."}')
    >>> [chat.messages[0].text for chat in read_chats(file)]
    ['I moved to Lisbon.']
    >>> folder.cleanup()
    """
    with closing(ChatExport(source, format)) as export:
        yield from export
