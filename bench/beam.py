"""Read dialogues in BEAM's layout: a folder with `chat.json` and `probing_questions/probing_questions.json`.

A chat is a list of batches, each with `turns`: lists of messages with an `id`, a `role`, the `content` and sometimes a
`time_anchor`. The longest chats are lists of plans instead, where each plan maps its name to batches. Questions are
grouped by ability, and list the messages that answer them in `source_chat_ids`, either directly or grouped by purpose.

A batch is read as a session. If a folder also has a shortened chat (`chat_trunecated.json`, in BEAM's spelling), it is
read instead, as in BEAM's own runs. The mark at the end of generated messages (`->-> 1,2`) is removed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dialogues import Clock, Dialogue, NotADialogue, Question, Session, Turn, Warn, cited_ids, text_of

CHATS = ("chat_trunecated.json", "chat.json")
QUESTIONS = ("probing_questions/probing_questions.json", "probing_questions.json")
_TRAILING_MARK = re.compile(r"\s*->->\s*[\d,.\s]*$")


def is_beam(path: Path) -> bool:
    """Whether the path is a BEAM folder, contains one, or is the chat file of one."""
    return bool(find_folders(path))


def find_folders(path: Path) -> list[Path]:
    """Return the folders with a chat and questions, at any depth, in numeric order."""
    if path.is_file() and path.name in CHATS:
        path = path.parent
    candidates = {file.parent for name in CHATS for file in path.rglob(name)} if path.is_dir() else set()
    return sorted((folder for folder in candidates if _first_file(folder, QUESTIONS)), key=_sort_key)


def read_beam(path: Path, warn: Warn) -> list[Dialogue]:
    """Return the dialogues of a BEAM folder, or of all BEAM folders in it."""
    dialogues: list[Dialogue] = []
    base = path.parent if path.is_file() else path
    for folder in find_folders(path):
        name = str(folder.relative_to(base)) if folder != base else folder.resolve().name
        chat, questions = _first_file(folder, CHATS), _first_file(folder, QUESTIONS)
        if chat is None or questions is None:
            continue
        try:
            dialogues.append(build_dialogue(_load_json(chat), _load_json(questions), name, warn))
        except NotADialogue as reason:
            warn(f"{name} is skipped: {reason}")
    if not dialogues:
        raise NotADialogue(f"{path} contains no folder with chat.json and probing_questions")
    return dialogues


def build_dialogue(chat: Any, questions: Any, name: str, warn: Warn) -> Dialogue:
    """Build a dialogue from a chat and the questions about it."""
    clock = Clock(name, warn)
    sessions: list[Session] = []
    ids: set[str] = set()
    repeated = 0
    count = 0
    for number, batch in enumerate(_batches(chat), start=1):
        messages = [*_messages(batch.get("turns", []))]
        timestamp = clock.session(batch.get("time_anchor"), messages)
        turns: list[Turn] = []
        for message in messages:
            timestamp = clock.turn(message) or timestamp
            id = str(message.get("id", count))
            count += 1
            text = _TRAILING_MARK.sub("", text_of(message))
            if text:
                repeated += id in ids
                ids.add(id)
                turns.append(Turn(id, str(message.get("role") or "user"), text, timestamp))
        clock.advance_to(timestamp)
        if turns:
            sessions.append(Session(number, tuple(turns)))
    if not sessions:
        raise NotADialogue("its chat has no messages")
    if repeated:
        warn(f"{name}: {repeated} messages repeat an earlier id; any message with a cited id counts as evidence")
    return Dialogue(name, tuple(sessions), tuple(_questions(questions, ids)), ("user", "assistant"), roles=True)


def _batches(chat: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings with turns, from the chat itself or from its plans."""
    if isinstance(chat, Mapping):
        if "turns" in chat:
            yield chat
            return
        chat = [*chat.values()]
    if isinstance(chat, list):
        if chat and all(isinstance(item, Mapping) and "role" in item for item in chat):
            yield {"turns": [chat]}
            return
        for item in chat:
            yield from _batches(item)


def _messages(turns: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(turns, Mapping):
        if "content" in turns:
            yield turns
    elif isinstance(turns, list):
        for item in turns:
            yield from _messages(item)


def _questions(questions_by_ability: Any, ids: set[str]) -> Iterator[Question]:
    if not isinstance(questions_by_ability, Mapping):
        raise NotADialogue("its questions are not grouped by ability")
    for ability, questions in questions_by_ability.items():
        for item in questions if isinstance(questions, list) else []:
            if not isinstance(item, Mapping):
                continue
            text = str(item.get("question") or "").strip()
            evidence = cited_ids(item.get("source_chat_ids"), ids)
            if text and evidence:
                yield Question(text, str(ability), evidence)


def _first_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _load_json(file: Path) -> Any:
    text = file.read_text(encoding="utf-8-sig")
    try:
        loaded = json.loads(text)
        # The published dataset stores the questions as a string with a Python literal.
        return ast.literal_eval(loaded) if isinstance(loaded, str) else loaded
    except (ValueError, SyntaxError) as error:
        raise NotADialogue(f"{file.name} is not JSON: {error}") from None


def _sort_key(folder: Path) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in folder.parts]
