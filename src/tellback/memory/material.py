"""What could go into a working context, and drafts of it with so many turns and hits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tellback.chat.history import repair_history
from tellback.memory.neutral import indented, one_line
from tellback.memory.templates import Template
from tellback.types import Message, MessagePart, ToolCall, message_text, system_message
from tellback.types.conversations import StoredMessage
from tellback.types.jsontext import dump_json
from tellback.types.memory import Atom, RecallHit

TOOL_TEXT_LENGTH = 2_000
"""How much of a tool's result or arguments a transcript and its messages show; a template of messages has all of it."""

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_View = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """The messages of one turn, oldest first."""

    id: str
    messages: tuple[StoredMessage, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """The newest `turns` turns and these hits, as a text."""

    turns: int
    hits: tuple[RecallHit, ...]
    block: str


@dataclass(slots=True)
class Material:
    """Everything that could go in. `candidates` are the recalled hits, the best first, some of them to be left out."""

    template: Template
    now: datetime
    summary: str | None
    always_on: tuple[Atom, ...]
    candidates: tuple[RecallHit, ...]
    recall_limit: int
    turns: tuple[Turn, ...]
    _shown: dict[str, _View] = field(default_factory=dict)
    _said: dict[str, tuple[Message, ...]] = field(default_factory=dict)
    _transcript: dict[str, tuple[tuple[int, _View], ...]] = field(default_factory=dict)
    _latest: tuple[Draft, tuple[Message, ...]] | None = None
    _summary: str = ""
    _always_on: list[_View] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = {atom.id for atom in self.always_on}
        self.candidates = tuple(hit for hit in self.candidates if hit.atom.id not in known)
        self._summary = indented(self.summary or "").strip()
        self._always_on = [_memory(atom) for atom in self.always_on]

    def hits_beside(self, turns: int) -> tuple[RecallHit, ...]:
        """The hits to show with the newest `turns` turns: not those that say only what these say."""
        said = {message.id for turn in self._newest(turns) for message in turn.messages}
        fresh = [hit for hit in self.candidates if not said or not _is_said(hit.atom, said)]
        return tuple(fresh[: self.recall_limit])

    def draft(self, turns: int, hits: int) -> Draft:
        """The context with the newest `turns` turns and the best `hits` hits."""
        shown = self.hits_beside(turns)[:hits]
        lines: list[_View] = []
        if self.template.kind == "block":
            numbered = [line for turn in self._newest(turns) for line in self._lines_of(turn)]
            lines = [view for _, view in sorted(numbered, key=lambda line: line[0])]
        return Draft(turns, shown, self._rendered(shown, lines))

    def messages(self, draft: Draft) -> tuple[Message, ...]:
        """The same as messages: a system message without the turns, then the turns, their tools' texts cut as there."""
        if self._latest is not None and self._latest[0] is draft:
            return self._latest[1]
        stored = sorted((message for turn in self._newest(draft.turns) for message in turn.messages), key=_seq)
        history = repair_history([message for each in stored for message in self._messages_of(each)])
        has_turns = self.template.kind == "block" and draft.turns > 0
        system = self._rendered(draft.hits, []) if has_turns else draft.block
        found = (*((system_message(system),) if system.strip() else ()), *history)
        self._latest = (draft, found)
        return found

    def _messages_of(self, stored: StoredMessage) -> tuple[Message, ...]:
        found = self._said.get(stored.id)
        if found is None:
            whole = stored.messages
            found = tuple(map(_shortened, whole) if self.template.kind == "block" else whole)
            self._said[stored.id] = found
        return found

    def _lines_of(self, turn: Turn) -> tuple[tuple[int, _View], ...]:
        """The lines of a transcript that a turn makes, each with its `seq`."""
        found = self._transcript.get(turn.id)
        if found is None:
            found = self._transcript[turn.id] = tuple(_lines(turn.messages))
        return found

    def _newest(self, turns: int) -> Sequence[Turn]:
        return self.turns[len(self.turns) - turns :]

    def _rendered(self, hits: Sequence[RecallHit], lines: Sequence[_View]) -> str:
        has_memory = bool(self._summary or self._always_on or hits)
        return self.template.render(
            {
                "now": self.now.date().isoformat(),
                "weekday": _WEEKDAYS[self.now.weekday()],
                "summary": self._summary,
                "always_on": self._always_on,
                "recalled": [self._recalled(hit) for hit in hits],
                "turns": lines,
                "has_summary": bool(self._summary),
                "has_always_on": bool(self._always_on),
                "has_recalled": bool(hits),
                "has_turns": bool(lines),
                "has_memory": has_memory,
                "has_record": has_memory or bool(lines),
            }
        )

    def _recalled(self, hit: RecallHit) -> _View:
        view = self._shown.get(hit.atom.id)
        if view is None:
            view = self._shown[hit.atom.id] = {
                **_memory(hit.atom),
                "score": f"{hit.score:.2f}",
                "source": hit.atom.source_conversation_id or "",
                "context": [{"text": one_line(atom.text), "date": _date(atom.valid_from)} for atom in hit.context],
            }
        return view


def turns_of(messages: Sequence[StoredMessage], most: int) -> list[Turn]:
    """The newest turns among messages, oldest first."""
    by_turn: dict[str, list[StoredMessage]] = {}
    for message in messages:
        by_turn.setdefault(message.turn_id, []).append(message)
    newest = [*by_turn.items()][max(len(by_turn) - most, 0) :]
    return [Turn(id, tuple(found)) for id, found in newest]


def _seq(message: StoredMessage) -> int:
    return message.seq


def _is_said(atom: Atom, said: set[str]) -> bool:
    return bool(atom.source_message_ids) and said.issuperset(atom.source_message_ids)


def _memory(atom: Atom) -> _View:
    return {
        "id": atom.id,
        "text": one_line(atom.text),
        "date": _date(atom.valid_from),
        "until": "" if atom.valid_to is None else _date(atom.valid_to),
        "category": one_line(atom.category.name),
    }


def _lines(stored: Iterable[StoredMessage]) -> Iterable[tuple[int, _View]]:
    for kept in stored:
        for message in kept.messages:
            text = _shown_text(message)
            if text:
                name = f" {one_line(message.name)}" if message.role == "tool" and message.name else ""
                speaker = f"{one_line(message.role)}{name}"
                date = _date(kept.created_at)
                yield kept.seq, {"role": message.role, "speaker": speaker, "text": text, "date": date}


def _shown_text(message: Message) -> str:
    said = message_text(message)
    if message.role == "tool":
        said = _cut(said) or "(nothing)"
        said = f"(failed) {said}" if message.is_error else said
    calls = [f"[calls {call.name}({_cut(call.invalid_input or dump_json(call.input))})]" for call in message.tool_calls]
    return indented("\n".join(filter(None, [said, *calls])))


def _shortened(message: Message) -> Message:
    """The message with what a tool was given or gave cut; without the provider's state then, which holds it whole."""
    if message.role == "tool":
        content = message.content if isinstance(message.content, str) else message_text(message)
        cut = replace(message, content=_cut(content), parts=message.parts and _cut_parts(message.parts))
        return message if cut == message else replace(cut, meta=None)
    calls = tuple(map(_cut_call, message.tool_calls))
    return message if calls == message.tool_calls else replace(message, tool_calls=calls, meta=None)


def _cut_parts(parts: Iterable[MessagePart]) -> tuple[MessagePart, ...]:
    left = TOOL_TEXT_LENGTH
    found: list[MessagePart] = []
    for part in parts:
        text = part.text or ""
        found.append(part if len(text) <= left else replace(part, text=_cut(text, left)))
        left = max(left - len(text), 0)
    return tuple(found)


def _cut_call(call: ToolCall) -> ToolCall:
    """Every argument has its share, so that the short ones stay; a long one becomes the beginning of its JSON."""
    if len(dump_json(call.input)) <= TOOL_TEXT_LENGTH:
        return call
    most = TOOL_TEXT_LENGTH // len(call.input)
    cut: dict[str, Any] = {}
    for name, value in call.input.items():
        text = value if isinstance(value, str) else dump_json(value)
        cut[name] = value if len(text) <= most else _cut(text, most)
    return replace(call, input=cut, meta=None)


def _cut(text: str, most: int = TOOL_TEXT_LENGTH) -> str:
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]}… ({more} more characters)"


def _date(moment: datetime) -> str:
    return moment.date().isoformat()
