"""Dialogues with questions about them, from files in LoCoMo's format, in REALTALK's, and in BEAM's (beam.py).

Files differ in details and have mistakes, so whatever can be understood is taken: one item or a list of them; sessions
under `conversation` or beside the questions; texts under several names; times of messages, of sessions, or none at all;
evidence as a list or in one text, misspelt or of turns that are not there.
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
"""Categories of questions that have no answer in the dialogue, and so nothing to recall."""
DEFAULT_START = datetime(2024, 1, 1, 12, tzinfo=UTC)
"""When a dialogue begins that does not say so."""

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
    """What was read holds no dialogue; the message says why."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one speaker said at a time, with the id by which questions cite it."""

    id: str
    speaker: str
    text: str
    timestamp: datetime


@dataclass(frozen=True, slots=True)
class Session:
    """Turns of one sitting."""

    number: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its category, and the ids of the turns that answer it: at least one, each of them once."""

    text: str
    category: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Sessions in their order, and the questions that count: those whose evidence is in them.

    `speakers` has who spoke in the order in which the file names them. `roles` says that they are a chat's own roles,
    `user` and `assistant`, and no names.
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
        """The number of the session each turn is in."""
        return {turn.id: session.number for session in reversed(self.sessions) for turn in session.turns}

    @property
    def question_time(self) -> datetime:
        """When the questions are asked: a day after the last turn."""
        return max(turn.timestamp for turn in self.turns) + timedelta(days=1)


def read_dialogues(path: Path, warn: Warn) -> list[Dialogue]:
    """The dialogues of a file, or of all JSON files of a folder. What is left out is told to `warn`."""
    files = sorted([*path.glob("*.json"), *path.glob("*.jsonl")]) if path.is_dir() else [path]
    dialogues: list[Dialogue] = []
    for file in files:
        try:
            items = _items(_load_json(file))
        except NotADialogue as reason:
            warn(f"left out: {reason}")
            continue
        for index, item in enumerate(items, start=1):
            name = str(_first_value(item, ("sample_id", "id", "conversation_id")) or f"{file.stem} {index}")
            try:
                dialogues.append(build_dialogue(item, name, warn))
            except NotADialogue as reason:
                warn(f"{file.name}, {name}: left out, {reason}")
    if not dialogues:
        raise NotADialogue(f"{path} holds no dialogue")
    return _with_unique_names(dialogues)


def build_dialogue(item: Mapping[str, Any], name: str, warn: Warn) -> Dialogue:
    """A dialogue from one item of a file."""
    conversation = item.get("conversation")
    conversation = conversation if isinstance(conversation, Mapping) else item
    names = _names({**item, **conversation})
    sessions = _sessions(conversation, names, name, warn)
    if not sessions:
        raise NotADialogue("it has no session with turns")
    active_speakers = list(dict.fromkeys(turn.speaker for session in sessions for turn in session.turns))
    # Whoever is named and never speaks has no role.
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
    """The ids of turns in some evidence, each once: those that are in `known_ids`."""
    known_ids = known_ids if isinstance(known_ids, set | frozenset | dict) else set(known_ids)
    ids = [id for text in _texts(evidence) for id in _ids(text, known_ids)]
    return tuple(dict.fromkeys(ids))


def canonical_id(id: Any) -> str:
    """A turn's id as all ways to write it are compared: `D30:05` and `D:30:5` are `D30:5`."""
    text = str(id).strip()
    match = _TURN_ID.fullmatch(text)
    return f"D{int(match[1])}:{int(match[2])}" if match else text


class Clock:
    """Times of sessions and turns, in their order; where none is understood, one is made up, a day after the last."""

    def __init__(self, name: str, warn: Warn) -> None:
        self._name = name
        self._warn = warn
        self._warned = False
        self._last: datetime | None = None

    def read(self, value: Any) -> datetime | None:
        """The time, or None if there is none, or none that is understood."""
        if value is None or value == "":
            return None
        moment = read_moment(value)
        if moment is None and not self._warned:
            self._warned = True
            self._warn(f"{self._name}: the time {value!r:.60} is not understood; such times are made up, in order")
        return moment

    def session(self, value: Any, turns: Sequence[Any]) -> datetime:
        """When a session began: as it says, as its first turn says, or a day after the one before."""
        start = self.read(value) or next((moment for turn in turns if (moment := self.turn(turn)) is not None), None)
        if start is None:
            start = DEFAULT_START if self._last is None else self._last + timedelta(days=1)
        self._last = start
        return start

    def turn(self, turn: Any) -> datetime | None:
        """When a turn was said, if it says so."""
        return self.read(_first_value(turn, TIMES)) if isinstance(turn, Mapping) else None

    def advance_to(self, until: datetime) -> None:
        """What is made up from now on is later than this."""
        self._last = until if self._last is None else max(self._last, until)


def text_of(turn: Mapping[str, Any]) -> str:
    """What was said, with the caption of an image that was shared; empty if there was nothing."""
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
    """A session's number, its turns and its time, in the order of the numbers."""
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
    """A session is its turns, or has them beside its time."""
    if isinstance(session, Mapping):
        turns = _first_value(session, TURNS)
        return (turns if isinstance(turns, list) else []), _first_value(session, TIMES)
    return (session if isinstance(session, list) else []), None


def _names(item: Mapping[str, Any]) -> dict[str, str]:
    """Who speaks, by what turns may call them, in the file's order."""
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
        # One item on each line is JSON, too, line by line.
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            return [json.loads(line) for line in lines]
        except json.JSONDecodeError:
            raise NotADialogue(f"{file} is not JSON: {error}") from None


def _items(loaded: Any) -> list[Mapping[str, Any]]:
    """A list of items; one alone; or one that holds the list, or items by their names."""
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
    """No two by the same name: a name becomes a user's id."""
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
    """The first of these that is there and says something."""
    if not isinstance(mapping, Mapping):
        return None
    return next((value for key in keys if (value := mapping.get(key)) not in (None, "", [], {})), None)
