"""An export, opened: which chats it has, the oldest first, each read when it is wanted."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from types import TracebackType
from typing import Any, Self

from tellback.errors import ImportFormatError, InvalidArgumentError
from tellback.importing import chatgpt, claude, jsonl
from tellback.importing.fields import as_mapping
from tellback.importing.json_values import JsonValue, UnreadableLine, iter_json_values, read_value_at
from tellback.importing.sources import ChatFile, open_chat_files
from tellback.importing.values import FORMATS, Format, ImportedChat

SKIPPED_EMPTY = "nothing was said in it"
SKIPPED_NOT_REMEMBERED = "it was marked not to be remembered"
SKIPPED_DUPLICATE = "it stands in the export twice"
SKIPPED_UNKNOWN_SHAPE = "it is none that this format knows"

_PARSERS: Mapping[str, tuple[Callable[[Any], bool], Callable[[Mapping[str, Any]], ImportedChat]]] = {
    chatgpt.SOURCE: (chatgpt.is_chat, chatgpt.parse_chat),
    claude.SOURCE: (claude.is_chat, claude.parse_chat),
    jsonl.SOURCE: (jsonl.is_chat, jsonl.parse_chat),
}
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ChatPiece:
    """What of a chat stands in one file: `spans` are the places, each where it begins and how long it is."""

    file: ChatFile
    spans: array[int] = field(default_factory=lambda: array("Q"), repr=False)

    def read(self) -> list[Any]:
        """The values that stand there."""
        spans = self.spans
        return [read_value_at(self.file, spans[i], spans[i + 1]) for i in range(0, len(spans), 2)]


@dataclass(frozen=True, slots=True)
class ExportEntry:
    """A chat of an export, without its words. One that `is_lines` may stand in several files."""

    id: str
    pieces: Sequence[ChatPiece]
    is_message_lines: bool
    messages: int
    began_at: datetime | None
    ended_at: datetime | None


class ChatExport:
    """The chats of an export. Its files stay open until it is closed.

    They are gone through once to find the chats and their dates, and each is read again when it is asked for, so an
    export may be larger than memory; a single chat may not. `skipped` counts what is not among `entries`, by reason.
    `goes_on` is asked now and then, and ends the search by raising.
    """

    def __init__(
        self,
        source: str | PathLike[str],
        format: Format = "auto",
        on_chat_found: Callable[[int], Any] = lambda count: None,
    ) -> None:
        if format not in FORMATS:
            raise InvalidArgumentError(f"format is {' or '.join(map(repr, FORMATS))}, not {format!r:.80}.")
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its files, and remove what was unpacked."""
        self._stack.close()

    def read(self, entry: ExportEntry) -> ImportedChat:
        """A chat with its messages."""
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
        if unnamed_piece.spans:  # files of other chats may have the same name
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
                "there are no chats in it that are known: ChatGPT's have 'mapping', Claude's 'chat_messages', and plain"
                " ones 'messages', or 'role' and 'content' on each line."
            )
        return f"there are no chats of the format {self.format!r} in it. Leave the format out, and it is detected."


def read_chats(source: str | PathLike[str], format: Format = "auto") -> Iterator[ImportedChat]:
    """The chats of an export, the oldest first, one at a time: to look at, or to import in a way of your own.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "chats.jsonl")
    >>> _ = file.write_text('{"conversation": "a", "role": "user", "content": "I moved to Lisbon."}')
    >>> [chat.messages[0].text for chat in read_chats(file)]
    ['I moved to Lisbon.']
    >>> folder.cleanup()
    """
    with ChatExport(source, format) as export:
        yield from export
