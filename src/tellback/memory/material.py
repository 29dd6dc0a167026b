"""What could go into a working context, and drafts of it with so many turns and hits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tellback.chat.history import repair_history
from tellback.memory.neutral import sanitize_block, sanitize_line
from tellback.memory.templates import Template
from tellback.types import Message, MessagePart, ToolCall, message_text, system_message
from tellback.types.conversations import StoredMessage
from tellback.types.jsontext import dump_json
from tellback.types.memory import Atom, RecallHit

MAX_TOOL_TEXT = 2_000
"""How much of a tool's result or arguments a transcript and its messages show; a template of messages has all of it."""

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_TemplateValues = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """The messages of one turn, oldest first."""

    id: str
    messages: tuple[StoredMessage, ...]


@dataclass(frozen=True, slots=True)
class ContextDraft:
    """The newest `turns` turns and these hits, as a text."""

    turns: int
    hits: tuple[RecallHit, ...]
    block: str


@dataclass(slots=True)
class ContextSources:
    """Everything that could go in. `candidates` are the recalled hits, the best first, some of them to be left out."""

    template: Template
    now: datetime
    summary: str | None
    always_on: tuple[Atom, ...]
    candidates: tuple[RecallHit, ...]
    recall_limit: int
    turns: tuple[Turn, ...]
    _values_by_atom: dict[str, _TemplateValues] = field(default_factory=dict)
    _messages_by_id: dict[str, tuple[Message, ...]] = field(default_factory=dict)
    _lines_by_turn: dict[str, tuple[tuple[int, _TemplateValues], ...]] = field(default_factory=dict)
    _last_messages: tuple[ContextDraft, tuple[Message, ...]] | None = None
    _summary: str = ""
    _always_on: list[_TemplateValues] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = {atom.id for atom in self.always_on}
        self.candidates = tuple(hit for hit in self.candidates if hit.atom.id not in known)
        self._summary = sanitize_block(self.summary or "").strip()
        self._always_on = [_atom_values(atom) for atom in self.always_on]

    def hits_for(self, turns: int) -> tuple[RecallHit, ...]:
        """The hits to show with the newest `turns` turns: not those that say only what these say."""
        message_ids = {message.id for turn in self._newest_turns(turns) for message in turn.messages}
        fresh = [hit for hit in self.candidates if not message_ids or not _is_covered(hit.atom, message_ids)]
        return tuple(fresh[: self.recall_limit])

    def draft(self, turns: int, hits: int) -> ContextDraft:
        """The context with the newest `turns` turns and the best `hits` hits."""
        chosen_hits = self.hits_for(turns)[:hits]
        lines: list[_TemplateValues] = []
        if self.template.kind == "block":
            numbered = [line for turn in self._newest_turns(turns) for line in self._lines_for(turn)]
            lines = [view for _, view in sorted(numbered, key=lambda line: line[0])]
        return ContextDraft(turns, chosen_hits, self._render(chosen_hits, lines))

    def messages(self, draft: ContextDraft) -> tuple[Message, ...]:
        """The same as messages: a system message without the turns, then the turns, their tools' texts cut as there."""
        if self._last_messages is not None and self._last_messages[0] is draft:
            return self._last_messages[1]
        stored = sorted((message for turn in self._newest_turns(draft.turns) for message in turn.messages), key=_seq)
        history = repair_history([message for each in stored for message in self._messages_for(each)])
        has_turns = self.template.kind == "block" and draft.turns > 0
        system = self._render(draft.hits, []) if has_turns else draft.block
        found = (*((system_message(system),) if system.strip() else ()), *history)
        self._last_messages = (draft, found)
        return found

    def _messages_for(self, stored: StoredMessage) -> tuple[Message, ...]:
        found = self._messages_by_id.get(stored.id)
        if found is None:
            messages = stored.messages
            found = tuple(map(_truncate_message, messages) if self.template.kind == "block" else messages)
            self._messages_by_id[stored.id] = found
        return found

    def _lines_for(self, turn: Turn) -> tuple[tuple[int, _TemplateValues], ...]:
        """The lines of a transcript that a turn makes, each with its `seq`."""
        found = self._lines_by_turn.get(turn.id)
        if found is None:
            found = self._lines_by_turn[turn.id] = tuple(_transcript_lines(turn.messages))
        return found

    def _newest_turns(self, turns: int) -> Sequence[Turn]:
        return self.turns[len(self.turns) - turns :]

    def _render(self, hits: Sequence[RecallHit], lines: Sequence[_TemplateValues]) -> str:
        has_memory = bool(self._summary or self._always_on or hits)
        return self.template.render(
            {
                "now": self.now.date().isoformat(),
                "weekday": _WEEKDAYS[self.now.weekday()],
                "summary": self._summary,
                "always_on": self._always_on,
                "recalled": [self._hit_values(hit) for hit in hits],
                "turns": lines,
                "has_summary": bool(self._summary),
                "has_always_on": bool(self._always_on),
                "has_recalled": bool(hits),
                "has_turns": bool(lines),
                "has_memory": has_memory,
                "has_record": has_memory or bool(lines),
            }
        )

    def _hit_values(self, hit: RecallHit) -> _TemplateValues:
        view = self._values_by_atom.get(hit.atom.id)
        if view is None:
            view = self._values_by_atom[hit.atom.id] = {
                **_atom_values(hit.atom),
                "score": f"{hit.score:.2f}",
                "source": hit.atom.source_conversation_id or "",
                "context": [
                    {"text": sanitize_line(atom.text), "date": _format_date(atom.valid_from)} for atom in hit.context
                ],
            }
        return view


def group_turns(messages: Sequence[StoredMessage], limit: int) -> list[Turn]:
    """The newest turns among messages, oldest first."""
    by_turn: dict[str, list[StoredMessage]] = {}
    for message in messages:
        by_turn.setdefault(message.turn_id, []).append(message)
    newest = [*by_turn.items()][max(len(by_turn) - limit, 0) :]
    return [Turn(id, tuple(found)) for id, found in newest]


def _seq(message: StoredMessage) -> int:
    return message.seq


def _is_covered(atom: Atom, message_ids: set[str]) -> bool:
    return bool(atom.source_message_ids) and message_ids.issuperset(atom.source_message_ids)


def _atom_values(atom: Atom) -> _TemplateValues:
    return {
        "id": atom.id,
        "text": sanitize_line(atom.text),
        "date": _format_date(atom.valid_from),
        "until": "" if atom.valid_to is None else _format_date(atom.valid_to),
        "category": sanitize_line(atom.category.name),
    }


def _transcript_lines(stored: Iterable[StoredMessage]) -> Iterable[tuple[int, _TemplateValues]]:
    for record in stored:
        for message in record.messages:
            text = _render_text(message)
            if text:
                name = f" {sanitize_line(message.name)}" if message.role == "tool" and message.name else ""
                speaker = f"{sanitize_line(message.role)}{name}"
                date = _format_date(record.created_at)
                yield record.seq, {"role": message.role, "speaker": speaker, "text": text, "date": date}


def _render_text(message: Message) -> str:
    text = message_text(message)
    if message.role == "tool":
        text = _truncate(text) or "(nothing)"
        text = f"(failed) {text}" if message.is_error else text
    calls = [
        f"[calls {call.name}({_truncate(call.invalid_input or dump_json(call.input))})]" for call in message.tool_calls
    ]
    return sanitize_block("\n".join(filter(None, [text, *calls])))


def _truncate_message(message: Message) -> Message:
    """The message with what a tool was given or gave cut; without the provider's state then, which holds it whole."""
    if message.role == "tool":
        content = message.content if isinstance(message.content, str) else message_text(message)
        cut = replace(message, content=_truncate(content), parts=message.parts and _truncate_parts(message.parts))
        return message if cut == message else replace(cut, meta=None)
    calls = tuple(map(_truncate_call, message.tool_calls))
    return message if calls == message.tool_calls else replace(message, tool_calls=calls, meta=None)


def _truncate_parts(parts: Iterable[MessagePart]) -> tuple[MessagePart, ...]:
    remaining = MAX_TOOL_TEXT
    found: list[MessagePart] = []
    for part in parts:
        text = part.text or ""
        found.append(part if len(text) <= remaining else replace(part, text=_truncate(text, remaining)))
        remaining = max(remaining - len(text), 0)
    return tuple(found)


def _truncate_call(call: ToolCall) -> ToolCall:
    """Every argument has its share, so that the short ones stay; a long one becomes the beginning of its JSON."""
    if len(dump_json(call.input)) <= MAX_TOOL_TEXT:
        return call
    limit = MAX_TOOL_TEXT // len(call.input)
    cut: dict[str, Any] = {}
    for name, value in call.input.items():
        text = value if isinstance(value, str) else dump_json(value)
        cut[name] = value if len(text) <= limit else _truncate(text, limit)
    return replace(call, input=cut, meta=None)


def _truncate(text: str, limit: int = MAX_TOOL_TEXT) -> str:
    omitted = len(text) - limit
    return text if omitted <= 0 else f"{text[:limit]}… ({omitted} more characters)"


def _format_date(moment: datetime) -> str:
    return moment.date().isoformat()
