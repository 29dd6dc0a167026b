"""BEAM's layout, on small invented chats."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bench.module_loader import import_bench_module

beam = import_bench_module("beam")
dialogues = import_bench_module("dialogues")


def message(id: int | None, role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **({} if id is None else {"id": id}), **more}


def batch(number: int, *turns: list[dict[str, Any]]) -> dict[str, Any]:
    return {"batch_number": number, "turns": [*turns]}


CHAT = [
    batch(
        1,
        [
            message(0, "user", "I plan a boat shed. ->-> 1,1", time_anchor="March-15-2024", index="1,1"),
            message(1, "assistant", "How long is the boat?"),
            message(2, "user", "Six metres."),
            message(3, "assistant", ""),
        ],
        [message(4, "user", "Add a workbench ->-> 1,2"), message(5, "assistant", "Done.")],
    ),
    batch(2, [message(6, "user", "The boat is seven metres after all.", time_anchor="April-02-2024")]),
]
QUESTIONS = {
    "abstention": [{"question": "Which colour is the shed?", "ideal_response": "not said"}],
    "knowledge_update": [
        {"question": "How long is the boat?", "source_chat_ids": {"original_info": [2], "updated_info": [6]}}
    ],
    "event_ordering": [{"question": "In which order did I ask?", "source_chat_ids": [0, 4, 4, "6", 99]}],
    "information_extraction": [{"question": "What did you say to nothing?", "source_chat_ids": [3]}],
}


def write_chat_folder(path: Path, chat: Any = CHAT, questions: Any = QUESTIONS, name: str = "chat.json") -> Path:
    (path / "probing_questions").mkdir(parents=True, exist_ok=True)
    (path / name).write_text(json.dumps(chat))
    (path / "probing_questions" / "probing_questions.json").write_text(json.dumps(questions))
    return path


def ignore(text: str) -> None:
    pass


def test_batches_become_sessions_and_messages_become_turns(tmp_path: Path) -> None:
    assert beam.is_beam(write_chat_folder(tmp_path / "7"))
    [conversation] = beam.read_beam(tmp_path / "7", ignore)
    assert conversation.name == "7"
    assert conversation.roles
    assert [[turn.id for turn in session.turns] for session in conversation.sessions] == [
        ["0", "1", "2", "4", "5"],
        ["6"],
    ]
    assert [turn.speaker for turn in conversation.sessions[0].turns] == [
        "user",
        "assistant",
        "user",
        "user",
        "assistant",
    ]
    assert conversation.turns[0].text == "I plan a boat shed."
    assert conversation.turns[4].timestamp == datetime(2024, 3, 15, tzinfo=UTC)
    assert conversation.turns[5].timestamp == datetime(2024, 4, 2, tzinfo=UTC)


def test_abilities_become_categories_and_questions_without_evidence_are_skipped(tmp_path: Path) -> None:
    [conversation] = beam.read_beam(write_chat_folder(tmp_path), ignore)
    assert [(question.category, question.evidence) for question in conversation.questions] == [
        ("knowledge_update", ("2", "6")),
        ("event_ordering", ("0", "4", "6")),
    ]


def test_chats_below_a_folder_are_read_in_numeric_order(tmp_path: Path) -> None:
    for name in ("10", "9", "notes"):
        write_chat_folder(tmp_path / "100K" / name)
    (tmp_path / "100K" / "11").mkdir()
    (tmp_path / "100K" / "11" / "chat.json").write_text("[]")
    assert [conversation.name for conversation in beam.read_beam(tmp_path, ignore)] == [
        "100K/9",
        "100K/10",
        "100K/notes",
    ]


def test_the_shortened_chat_is_preferred(tmp_path: Path) -> None:
    write_chat_folder(tmp_path)
    write_chat_folder(tmp_path, chat=CHAT[:1], name="chat_trunecated.json")
    [conversation] = beam.read_beam(tmp_path, ignore)
    assert len(conversation.sessions) == 1
    assert [question.evidence for question in conversation.questions] == [("2",), ("0", "4")]


def test_a_chat_with_plans_joins_their_batches_and_reports_repeated_ids(tmp_path: Path) -> None:
    warnings: list[str] = []
    plans = [{"plan-1": CHAT, "plan-2": None}, {"plan-1": None, "plan-2": [batch(1, [message(6, "user", "Roof on.")])]}]
    [conversation] = beam.read_beam(write_chat_folder(tmp_path, chat=plans), warnings.append)
    assert [session.number for session in conversation.sessions] == [1, 2, 3]
    assert len(warnings) == 1
    assert conversation.session_by_turn["6"] == 2


def test_messages_without_ids_get_numbers(tmp_path: Path) -> None:
    chat = [batch(1, [message(None, "user", "One."), message(None, "assistant", "Two.")])]
    [conversation] = beam.read_beam(write_chat_folder(tmp_path, chat=chat), ignore)
    assert [turn.id for turn in conversation.turns] == ["0", "1"]


def test_questions_may_be_python_literals(tmp_path: Path) -> None:
    [conversation] = beam.read_beam(write_chat_folder(tmp_path, questions=repr(QUESTIONS)), ignore)
    assert len(conversation.questions) == 2


@pytest.mark.parametrize("chat", [[], {}, "chat", [{"turns": []}], [[]]])
def test_a_chat_without_messages_is_rejected(tmp_path: Path, chat: Any) -> None:
    warnings: list[str] = []
    with pytest.raises(dialogues.NotADialogue):
        beam.read_beam(write_chat_folder(tmp_path, chat=chat), warnings.append)
    assert len(warnings) == 1


def test_other_files_beside_the_folders_are_ignored(tmp_path: Path) -> None:
    write_chat_folder(tmp_path / "1")
    (tmp_path / "talks.json").write_text("[]")
    assert not beam.is_beam(tmp_path / "talks.json")
    assert beam.is_beam(tmp_path / "1" / "chat.json")
