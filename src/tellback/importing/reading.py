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
from tellback.importing.fields import mapping
from tellback.importing.json_values import Unreadable, Value, value_at, values
from tellback.importing.sources import ChatFile, open_files
from tellback.importing.values import FORMATS, Format, ImportedChat

NOTHING_SAID = "nothing was said in it"
NOT_REMEMBERED = "it was marked not to be remembered"
TWICE = "it stands in the export twice"
UNKNOWN_SHAPE = "it is none that this format knows"

_READERS: Mapping[str, tuple[Callable[[Any], bool], Callable[[Mapping[str, Any]], ImportedChat]]] = {
    chatgpt.SOURCE: (chatgpt.is_chat, chatgpt.read_chat),
    claude.SOURCE: (claude.is_chat, claude.read_chat),
    jsonl.SOURCE: (jsonl.is_chat, jsonl.read_chat),
}
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Piece:
    """What of a chat stands in one file: `spans` are the places, each where it begins and how long it is."""

    file: ChatFile
    spans: array[int] = field(default_factory=lambda: array("Q"), repr=False)

    def read(self) -> list[Any]:
        """The values that stand there."""
        spans = self.spans
        return [value_at(self.file, spans[i], spans[i + 1]) for i in range(0, len(spans), 2)]


@dataclass(frozen=True, slots=True)
class Entry:
    """A chat of an export, without its words. One that `is_lines` may stand in several files."""

    id: str
    pieces: Sequence[Piece]
    is_lines: bool
    messages: int
    began_at: datetime | None
    ended_at: datetime | None


class Export:
    """The chats of an export. Its files stay open until it is closed.

    They are gone through once to find the chats and their dates, and each is read again when it is asked for, so an
    export may be larger than memory; a single chat may not. `skipped` counts what is not among `entries`, by reason.
    `goes_on` is asked now and then, and ends the search by raising.
    """

    def __init__(
        self,
        source: str | PathLike[str],
        format: Format = "auto",
        goes_on: Callable[[int], Any] = lambda count: None,
    ) -> None:
        if format not in FORMATS:
            raise InvalidArgumentError(f"format is {' or '.join(map(repr, FORMATS))}, not {format!r:.80}.")
        self.format: str = format
        self.skipped: Counter[str] = Counter()
        self._stack = ExitStack()
        self._found: dict[str, Entry] = {}
        self._lines: dict[str, list[Piece]] = {}
        self._goes_on = goes_on
        try:
            for file in open_files(source, self._stack):
                self._search(file)
            for id, pieces in self._lines.items():
                self._keep(jsonl.join_messages(id, map(Piece.read, pieces)), pieces, is_lines=True)
        except BaseException:
            self._stack.close()
            raise
        self.entries = sorted(self._found.values(), key=lambda entry: entry.began_at or _LONG_AGO)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its files, and remove what was unpacked."""
        self._stack.close()

    def read(self, entry: Entry) -> ImportedChat:
        """A chat with its messages."""
        if entry.is_lines:
            return jsonl.join_messages(entry.id, map(Piece.read, entry.pieces))
        [[chat]] = map(Piece.read, entry.pieces)
        return self._reader(chat)

    def __iter__(self) -> Iterator[ImportedChat]:
        return map(self.read, self.entries)

    def _search(self, file: ChatFile) -> None:
        named: dict[str, Piece] = {}
        unnamed = Piece(file)
        known = unknown = 0
        for found in values(file):
            if isinstance(found, Unreadable):
                self.skipped[found.problem] += 1
                unknown += 1
                continue
            self._detect(found.value)
            if self.format in ("auto", jsonl.SOURCE) and jsonl.is_message(found.value):
                id = jsonl.conversation_of(found.value)
                piece = unnamed if id is None else named.setdefault(id, Piece(file))
                piece.spans.extend((found.offset, found.length))
                known += 1
            elif self._take(found, file):
                known += 1
            else:
                unknown += 1
            self._goes_on(len(self._found) + len(self._lines) + len(named))
        if unnamed.spans:  # files of other chats may have the same name
            named[f"{file.name}:{jsonl.opening(unnamed.read())}"] = unnamed
        for id, piece in named.items():
            self._lines.setdefault(id, []).append(piece)
        if unknown and not known:
            raise ImportFormatError(file.name, self._unknown())

    def _take(self, found: Value, file: ChatFile) -> bool:
        is_chat, _ = _READERS.get(self.format, (None, None))
        if is_chat is None or not is_chat(found.value):
            self.skipped[UNKNOWN_SHAPE] += 1
            return False
        if mapping(found.value).get("is_do_not_remember") is True:
            self.skipped[NOT_REMEMBERED] += 1
            return True
        self._keep(self._reader(found.value), [Piece(file, array("Q", (found.offset, found.length)))], is_lines=False)
        return True

    def _keep(self, chat: ImportedChat, pieces: Sequence[Piece], *, is_lines: bool) -> None:
        if not any(message.role != "system" for message in chat.messages):
            self.skipped[NOTHING_SAID] += 1
            return
        entry = Entry(chat.id, pieces, is_lines, len(chat.messages), chat.began_at, chat.ended_at)
        other = self._found.get(chat.id)
        if other is not None:
            self.skipped[TWICE] += 1
        if other is None or other.messages < entry.messages:
            self._found[chat.id] = entry

    def _reader(self, raw: Mapping[str, Any]) -> ImportedChat:
        return _READERS[self.format][1](raw)

    def _detect(self, value: Any) -> None:
        if self.format == "auto":
            by_shape = (name for name, (is_chat, _) in _READERS.items() if is_chat(value))
            self.format = next(by_shape, jsonl.SOURCE if jsonl.is_message(value) else "auto")

    def _unknown(self) -> str:
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
    with Export(source, format) as export:
        yield from export
