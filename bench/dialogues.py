"""Read dialogues with questions about them, from files in the formats of LoCoMo, REALTALK and BEAM (beam.py).

The files differ in details and contain mistakes, so the reader is tolerant. It accepts one item or a list; sessions
under `conversation` or beside the questions; texts under several names; times of messages, of sessions, or no times;
evidence as a list or as one string, misspelt or citing turns that do not exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from date_parser import read_moment

Warn = Callable[[str], None]

ADVERSARIAL = {"5", "adversarial"}
"""Categories of questions without an answer in the dialogue; recall cannot be measured for them."""
DEFAULT_START = datetime(2024, 1, 1, 12, tzinfo=UTC)
"""The assumed start of a dialogue without times."""

TEXTS = ("text", "clean_text", "content", "message", "utterance")
CAPTIONS = ("blip_caption", "caption", "image_caption")
IMAGES = ("img_url", "img_file", "image", "image_url", "images")
TIMES = ("date_time", "created_at", "timestamp", "datetime", "time_anchor", "time", "date")
SESSION_TIMES = ("_date_time", "_datetime", "_date", "_time")
SPEAKERS = ("speaker", "speaker_name", "sender", "name", "role")
IDS = ("dia_id", "id", "message_id")
TURNS = ("turns", "dialogue", "dialog", "messages", "utterances")
QUESTIONS = ("qa", "qas", "questions", "question_answers")
_SESSION = re.compile(r"session[_ -]?(\d+)", re.IGNORECASE)
_TURN_ID = re.compile(r"D\s*:?\s*(\d+)\s*[:.]\s*(\d+)", re.IGNORECASE)


class NotADialogue(ValueError):
    """The data contains no dialogue; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a speaker, with its time and the id by which questions cite it."""

    id: str
    speaker: str
    text: str
    timestamp: datetime


@dataclass(frozen=True, slots=True)
class Session:
    """The turns of one session."""

    number: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its category, and the unique ids of the turns that answer it (at least one)."""

    text: str
    category: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Sessions in order, and the questions whose evidence is in them.

    `speakers` lists the speakers in the order of the file. If `roles` is true, they are the roles `user` and
    `assistant` instead of names.
    """

    name: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]
    speakers: tuple[str, ...]
    roles: bool = False

    @property
    def turns(self) -> list[Turn]:
        """All turns, in order."""
        return [turn for session in self.sessions for turn in session.turns]

    @property
    def session_by_turn(self) -> dict[str, int]:
        """The number of each turn's session, by turn id."""
        return {turn.id: session.number for session in reversed(self.sessions) for turn in session.turns}

    @property
    def question_time(self) -> datetime:
        """The time at which the questions are asked: a day after the last turn."""
        return max(turn.timestamp for turn in self.turns) + timedelta(days=1)


def read_dialogues(path: Path, warn: Warn) -> list[Dialogue]:
    """Return the dialogues of a file, or of all JSON files in a folder; call `warn` for each skipped item."""
    files = sorted([*path.glob("*.json"), *path.glob("*.jsonl")]) if path.is_dir() else [path]
    dialogues: list[Dialogue] = []
    for file in files:
        try:
            items = _items(_load_json(file))
        except NotADialogue as reason:
            warn(f"skipped: {reason}")
            continue
        for index, item in enumerate(items, start=1):
            name = str(_first_value(item, ("sample_id", "id", "conversation_id")) or f"{file.stem} {index}")
            try:
                dialogues.append(build_dialogue(item, name, warn))
            except NotADialogue as reason:
                warn(f"{file.name}, {name} is skipped: {reason}")
    if not dialogues:
        raise NotADialogue(f"{path} contains no dialogue")
    return _with_unique_names(dialogues)


def build_dialogue(item: Mapping[str, Any], name: str, warn: Warn) -> Dialogue:
    """Build a dialogue from one item of a file."""
    conversation = item.get("conversation")
    conversation = conversation if isinstance(conversation, Mapping) else item
    names = _names({**item, **conversation})
    sessions = _sessions(conversation, names, name, warn)
    if not sessions:
        raise NotADialogue("it has no session with turns")
    active_speakers = list(dict.fromkeys(turn.speaker for session in sessions for turn in session.turns))
    # A speaker who is listed but has no turns gets no role.
    speakers = [speaker for speaker in names.values() if speaker in active_speakers]
    speakers += [speaker for speaker in active_speakers if speaker not in speakers]
    known_ids = {turn.id for session in sessions for turn in session.turns}
    question_items: Any = next(
        (value for source in (item, conversation) for key in QUESTIONS if (value := source.get(key))), []
    )
    questions = [
        question for value in _as_list(question_items) if (question := _question(value, known_ids)) is not None
    ]
    roles = {*speakers} <= {"user", "assistant"}
    return Dialogue(name, tuple(sessions), tuple(questions), tuple(dict.fromkeys(speakers)), roles)


def cited_ids(evidence: Any, known_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the unique turn ids in the evidence that are in `known_ids`."""
    known_ids = known_ids if isinstance(known_ids, set | frozenset | dict) else set(known_ids)
    ids = [id for text in _texts(evidence) for id in _ids(text, known_ids)]
    return tuple(dict.fromkeys(ids))


def canonical_id(id: Any) -> str:
    """Normalize a turn's id, so that spellings compare equal: `D30:05` and `D:30:5` become `D30:5`."""
    text = str(id).strip()
    match = _TURN_ID.fullmatch(text)
    return f"D{int(match[1])}:{int(match[2])}" if match else text


class Clock:
    """The times of sessions and turns, in order. A time that cannot be parsed becomes a day after the last one."""

    def __init__(self, name: str, warn: Warn) -> None:
        self._name = name
        self._warn = warn
        self._warned = False
        self._last: datetime | None = None

    def read(self, value: Any) -> datetime | None:
        """Return the time, or None if it is missing or cannot be parsed."""
        if value is None or value == "":
            return None
        moment = read_moment(value)
        if moment is None and not self._warned:
            self._warned = True
            self._warn(f"{self._name}: the time {value!r:.60} cannot be parsed; such times are invented, in order")
        return moment

    def session(self, value: Any, turns: Sequence[Any]) -> datetime:
        """Return the start of a session: its own time, that of its first turn, or a day after the previous session."""
        start = self.read(value) or next((moment for turn in turns if (moment := self.turn(turn)) is not None), None)
        if start is None:
            start = DEFAULT_START if self._last is None else self._last + timedelta(days=1)
        self._last = start
        return start

    def turn(self, turn: Any) -> datetime | None:
        """Return the time of a turn, or None if it has none."""
        return self.read(_first_value(turn, TIMES)) if isinstance(turn, Mapping) else None

    def advance_to(self, until: datetime) -> None:
        """Make all invented times later than this one."""
        self._last = until if self._last is None else max(self._last, until)


def text_of(turn: Mapping[str, Any]) -> str:
    """Return the text of a turn, with the caption of a shared image; empty if it has neither."""
    text = _first_value(turn, TEXTS)
    text = text.strip() if isinstance(text, str) else ""
    caption = _first_value(turn, CAPTIONS)
    if isinstance(caption, list | tuple):
        caption = "; ".join(str(part) for part in caption)
    if caption:
        return f"{text} [shares an image: {str(caption).strip()}]".strip()
    if not text and _first_value(turn, IMAGES):
        return "[shares an image]"
    return text


def _sessions(conversation: Mapping[str, Any], names: Mapping[str, str], name: str, warn: Warn) -> list[Session]:
    clock = Clock(name, warn)
    sessions: list[Session] = []
    for number, raw_turns, time in _session_lists(conversation):
        start = clock.session(time, raw_turns)
        turns: list[Turn] = []
        timestamp = start
        for index, turn in enumerate(raw_turns, start=1):
            if isinstance(turn, str):
                turn = {"text": turn}
            if not isinstance(turn, Mapping):
                continue
            timestamp = clock.turn(turn) or timestamp
            text = text_of(turn)
            if text:
                id = _first_value(turn, IDS)
                speaker = str(_first_value(turn, SPEAKERS) or "").strip()
                id = f"D{number}:{index}" if id is None else canonical_id(id)
                turns.append(Turn(id, names.get(speaker, speaker), text, timestamp))
        clock.advance_to(timestamp)
        if turns:
            sessions.append(Session(number, tuple(turns)))
    return sessions


def _session_lists(conversation: Mapping[str, Any]) -> Iterator[tuple[int, list[Any], Any]]:
    """Yield each session's number, turns and time, in numeric order."""
    numbered = {int(match[1]): key for key in conversation if (match := _SESSION.fullmatch(str(key)))}
    for number, key in sorted(numbered.items()):
        turns, time = _turns(conversation[key])
        yield number, turns, time or _first_value(conversation, [f"{key}{end}" for end in SESSION_TIMES])
    if not numbered:
        sessions: Any = next(
            (value for key in ("sessions", "haystack_sessions") if (value := conversation.get(key))), []
        )
        if isinstance(sessions, Mapping):
            sessions = [*sessions.values()]
        if not sessions and (turns := _turns(conversation)[0]):
            sessions = [turns]
        for number, session in enumerate(_as_list(sessions), start=1):
            turns, time = _turns(session)
            yield number, turns, time


def _turns(session: Any) -> tuple[list[Any], Any]:
    """Return the turns of a session, which is a list of turns or a mapping with turns and a time."""
    if isinstance(session, Mapping):
        turns = _first_value(session, TURNS)
        return (turns if isinstance(turns, list) else []), _first_value(session, TIMES)
    return (session if isinstance(session, list) else []), None


def _names(item: Mapping[str, Any]) -> dict[str, str]:
    """Map the labels of speakers in the turns to their names, in the file's order."""
    names = {key: item[key] for key in ("speaker_a", "speaker_b", "speaker_1", "speaker_2") if key in item}
    for key in ("name", "names", "speakers"):
        if isinstance(value := item.get(key), Mapping):
            names |= value
        elif isinstance(value, list):
            names |= {str(name): name for name in value}
    return {str(key): name.strip() for key, name in names.items() if isinstance(name, str) and name.strip()}


def _question(item: Any, known_ids: set[str]) -> Question | None:
    if not isinstance(item, Mapping):
        return None
    text = str(item.get("question") or "").strip()
    category = str(item.get("category") or "").strip().removesuffix(".0")
    evidence = cited_ids(_first_value(item, ("evidence", "evidences", "evidence_ids")), known_ids)
    if not text or not evidence or category.lower() in ADVERSARIAL:
        return None
    return Question(text, category or "none", evidence)


def _ids(text: str, known_ids: Iterable[str]) -> Iterator[str]:
    whole_id = canonical_id(text)
    if whole_id in known_ids:
        yield whole_id
        return
    matched_ids = [f"D{int(match[1])}:{int(match[2])}" for match in _TURN_ID.finditer(text)]
    yield from (id for id in matched_ids or map(canonical_id, re.split(r"[;,\s]+", text)) if id in known_ids)


def _texts(evidence: Any) -> Iterator[str]:
    if isinstance(evidence, str | int):
        yield str(evidence)
    elif isinstance(evidence, Mapping):
        for value in evidence.values():
            yield from _texts(value)
    elif isinstance(evidence, Iterable):
        for value in evidence:
            yield from _texts(value)


def _load_json(file: Path) -> Any:
    text = file.read_text(encoding="utf-8-sig")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # The file may be JSON Lines: one item per line.
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            return [json.loads(line) for line in lines]
        except json.JSONDecodeError:
            raise NotADialogue(f"{file} is not JSON: {error}") from None


def _items(loaded: Any) -> list[Mapping[str, Any]]:
    """Return the items of a file: a list, one item, a mapping with the list, or a mapping of names to items."""
    if isinstance(loaded, list):
        return [item for item in loaded if isinstance(item, Mapping)]
    if not isinstance(loaded, Mapping):
        return []
    if isinstance(listed := loaded.get("data"), list):
        return [item for item in listed if isinstance(item, Mapping)]
    nested = [
        value for value in loaded.values() if isinstance(value, Mapping) and any(key in value for key in QUESTIONS)
    ]
    return nested if nested and not any(key in loaded for key in QUESTIONS) else [loaded]


def _with_unique_names(dialogues: Sequence[Dialogue]) -> list[Dialogue]:
    """Make the names unique, because a name becomes a user's id."""
    by_name: dict[str, Dialogue] = {}
    for dialogue in dialogues:
        name, copy_number = dialogue.name, 1
        while name in by_name:
            copy_number += 1
            name = f"{dialogue.name} ({copy_number})"
        by_name[name] = replace(dialogue, name=name)
    return [*by_name.values()]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [*value.values()] if isinstance(value, Mapping) else []


def _first_value(mapping: Any, keys: Sequence[str]) -> Any:
    """Return the first of these values that is present and not empty."""
    if not isinstance(mapping, Mapping):
        return None
    return next((value for key in keys if (value := mapping.get(key)) not in (None, "", [], {})), None)
