"""Reading dialogue files with many kinds of mistakes; all texts here are invented."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bench.module_loader import import_bench_module

dialogues = import_bench_module("dialogues")
date_parser = import_bench_module("date_parser")


def locomo(**more: Any) -> dict[str, Any]:
    return {
        "sample_id": "talk-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_2_date_time": "9:05 am on 3 June, 2023",
            "session_2": [
                {"speaker": "Bob", "dia_id": "D2:1", "text": "The heron came back."},
                {"speaker": "Ann", "dia_id": "D2:2", "text": "Look!", "blip_caption": "a photo of a grey bird"},
            ],
            "session_1_date_time": "1:30 pm on 1 June, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "I saw a heron by the canal."},
                {"speaker": "Bob", "dia_id": "D1:2", "text": "Which canal?"},
            ],
            "session_3_date_time": "9:05 am on 4 June, 2023",
            "session_3": [],
        },
        "qa": [
            {"question": "Where was the heron?", "answer": "by the canal", "evidence": ["D1:1"], "category": 4},
            {"question": "What colour was it?", "answer": "grey", "evidence": ["D1:1; D2:02"], "category": "1"},
            {"question": "Who sold the heron?", "adversarial_answer": "Bob", "evidence": ["D1:2"], "category": 5},
            {"question": "Is it a goose?", "evidence": ["D1:2"], "category": "adversarial"},
            {"question": "Does Ann like birds?", "evidence": [], "category": 3},
            {"question": "When did it leave?", "evidence": ["D9:9", "D"], "category": 2},
        ],
        **more,
    }


def realtalk() -> dict[str, Any]:
    def turn(id: str, speaker: str, text: str, time: str, **more: Any) -> dict[str, Any]:
        return {"dia_id": id, "speaker": speaker, "clean_text": text, "date_time": time, **more}

    return {
        "name": {"speaker_1": "Cleo", "speaker_2": "Dan"},
        "session_1": [
            turn("D1:1", "Dan", "hey", "29.12.2023, 01:37:25"),
            turn("D1:2", "Dan", "", "29.12.2023, 01:37:50"),
            turn("D1:3", "Cleo", "", "29.12.2023, 01:38:00", img_url=["one.jpg"]),
            turn("D1:4", "Cleo", "my loaf", "29.12.2023, 01:39:00", blip_caption="bread on a table"),
        ],
        "session_1_date_time": "29.12.2023, 01:37:25",
        "session_10": [turn("D10:1", "Dan", "new year!", "01.01.2024, 00:00:01")],
        "session_2": [turn("D2:1", "Cleo", "baked again", "30.12.2023, 08:00:00")],
        "events_session_1": {"Cleo": []},
        "qa": [
            {"question": "What did Cleo bake?", "answer": "bread", "evidence": ["D1:4", "D2:1"], "category": 1},
            {"question": "What did Dan say then?", "answer": "?", "evidence": ["D1:2"], "category": 2},
        ],
    }


class WarningLog(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


def read_item(item: Any, tmp_path: Path, warnings: WarningLog | None = None) -> Any:
    file = tmp_path / "talks.json"
    file.write_text(json.dumps(item), encoding="utf-8")
    return dialogues.read_dialogues(file, WarningLog() if warnings is None else warnings)


def test_sessions_are_in_numeric_order_without_empty_ones(tmp_path: Path) -> None:
    [conversation] = read_item([locomo()], tmp_path)
    assert [session.number for session in conversation.sessions] == [1, 2]
    assert [turn.id for turn in conversation.turns] == ["D1:1", "D1:2", "D2:1", "D2:2"]
    assert conversation.session_by_turn == {"D1:1": 1, "D1:2": 1, "D2:1": 2, "D2:2": 2}
    assert conversation.speakers == ("Ann", "Bob")
    assert not conversation.roles


def test_turns_have_their_sessions_time_and_questions_follow_a_day_after_the_last(tmp_path: Path) -> None:
    [conversation] = read_item(locomo(), tmp_path)
    assert conversation.turns[0].timestamp == datetime(2023, 6, 1, 13, 30, tzinfo=UTC)
    assert conversation.turns[3].timestamp == datetime(2023, 6, 3, 9, 5, tzinfo=UTC)
    assert conversation.question_time == datetime(2023, 6, 4, 9, 5, tzinfo=UTC)


def test_an_image_is_replaced_by_its_caption(tmp_path: Path) -> None:
    [conversation] = read_item(locomo(), tmp_path)
    assert conversation.turns[3].text == "Look! [shares an image: a photo of a grey bird]"


def test_questions_count_if_they_have_an_answer_and_existing_evidence(tmp_path: Path) -> None:
    [conversation] = read_item(locomo(), tmp_path)
    assert [(question.category, question.evidence) for question in conversation.questions] == [
        ("4", ("D1:1",)),
        ("1", ("D1:1", "D2:2")),
    ]


def test_message_times_are_read_and_empty_messages_skipped(tmp_path: Path) -> None:
    [conversation] = read_item(realtalk(), tmp_path)
    assert [turn.id for turn in conversation.turns] == ["D1:1", "D1:3", "D1:4", "D2:1", "D10:1"]
    assert [turn.text for turn in conversation.turns][1:3] == [
        "[shares an image]",
        "my loaf [shares an image: bread on a table]",
    ]
    assert conversation.turns[2].timestamp == datetime(2023, 12, 29, 1, 39, tzinfo=UTC)
    assert conversation.speakers == ("Cleo", "Dan")
    assert [question.evidence for question in conversation.questions] == [("D1:4", "D2:1")]


def test_turns_without_ids_are_numbered_including_skipped_ones(tmp_path: Path) -> None:
    item = {
        "session_1": [
            {"speaker": "A", "text": "one"},
            {"speaker": "B", "text": " "},
            {"speaker": "A", "text": "three"},
        ],
        "qa": [{"question": "Which?", "evidence": "D1:3", "category": 4}],
    }
    [conversation] = read_item(item, tmp_path)
    assert [turn.id for turn in conversation.turns] == ["D1:1", "D1:3"]
    assert conversation.questions[0].evidence == ("D1:3",)


def test_speaker_aliases_are_resolved(tmp_path: Path) -> None:
    item = {
        "name": {"speaker_1": "Eve", "speaker_2": "Finn"},
        "session_1": [{"speaker": "speaker_2", "content": "hello"}, {"speaker": "speaker_1", "content": "hi"}],
    }
    [conversation] = read_item(item, tmp_path)
    assert [turn.speaker for turn in conversation.turns] == ["Finn", "Eve"]
    assert conversation.speakers == ("Eve", "Finn")


def test_chats_with_an_assistant_are_detected(tmp_path: Path) -> None:
    [conversation] = read_item(
        {"session_1": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]}, tmp_path
    )
    assert conversation.roles


def test_unreadable_times_are_reported_once_and_replaced_in_order(tmp_path: Path) -> None:
    warnings = WarningLog()
    item = locomo()
    item["conversation"] |= {"session_1_date_time": "the day of the flood", "session_2_date_time": "a week after"}
    [conversation] = read_item(item, tmp_path, warnings)
    assert [line for line in warnings if "the day of the flood" in line]
    assert len(warnings) == 1
    first, second = (session.turns[0].timestamp for session in conversation.sessions)
    assert first < second


def test_a_replaced_time_is_later_than_the_previous_message(tmp_path: Path) -> None:
    item = {
        "session_1": [{"speaker": "A", "text": "one", "date_time": "29.12.2030, 01:37:25"}],
        "session_2": [{"speaker": "A", "text": "two"}],
    }
    [conversation] = read_item(item, tmp_path)
    assert conversation.turns[1].timestamp == conversation.turns[0].timestamp + timedelta(days=1)


def test_a_folder_yields_the_dialogues_of_all_files_and_reports_skipped_files(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps([locomo(), locomo()]))
    (tmp_path / "a.json").write_text(json.dumps(realtalk()))
    (tmp_path / "c.jsonl").write_text("\n".join(json.dumps(locomo(sample_id=name)) for name in ("x", "y")))
    (tmp_path / "topics.json").write_text(json.dumps({"topic": "birds"}))
    (tmp_path / "broken.json").write_text('{"qa": [')
    warnings = WarningLog()
    conversations = dialogues.read_dialogues(tmp_path, warnings)
    assert [conversation.name for conversation in conversations] == ["a 1", "talk-1", "talk-1 (2)", "x", "y"]
    assert len(warnings) == 2
    assert "broken.json" in warnings[0]
    assert "topics.json" in warnings[1]


@pytest.mark.parametrize(
    "text", ["", "not json", "[]", "{}", '"talk"', "3", '[{"session_1": 5}]', '[{"session_1": [7]}]']
)
def test_a_file_without_a_dialogue_is_rejected_with_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "nothing.json"
    file.write_text(text)
    with pytest.raises(dialogues.NotADialogue, match=r"nothing\.json"):
        dialogues.read_dialogues(file, WarningLog())


@pytest.mark.parametrize(
    ("evidence", "ids"),
    [
        (["D1:1", "D2:3"], ("D1:1", "D2:3")),
        ("D1:1", ("D1:1",)),
        ("D1:1; D2:3", ("D1:1", "D2:3")),
        (["D1:1 D2:3", "D1:1"], ("D1:1", "D2:3")),
        ("D1:1,D2:3", ("D1:1", "D2:3")),
        (["D:1:1"], ("D1:1",)),
        (["D01:01"], ("D1:1",)),
        (["d2:3 "], ("D2:3",)),
        (["D2: 3"], ("D2:3",)),
        (["D2:33"], ()),
        (["D", "", None, {}], ()),
        (None, ()),
        ([["D1:1"], ["D2:3"]], ("D1:1", "D2:3")),
        ({"first": ["17"], "second": 4}, ("17", "4")),
        (["chat_id: 17"], ("17",)),
        (17, ("17",)),
    ],
)
def test_misspelled_evidence_ids_are_repaired(evidence: Any, ids: tuple[str, ...]) -> None:
    assert dialogues.cited_ids(evidence, {"D1:1", "D2:3", "17", "4"}) == ids


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("D:0123456789;, x", max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(_json, st.sets(st.sampled_from(["D1:1", "D1:2", "D2:1", "5"])))
def test_any_evidence_yields_known_ids_without_duplicates(evidence: Any, known_ids: set[str]) -> None:
    ids = dialogues.cited_ids(evidence, known_ids)
    assert len(set(ids)) == len(ids)
    assert set(ids) <= known_ids


@given(
    st.dictionaries(
        st.sampled_from(["session_1", "session_1_date_time", "qa", "name", "conversation", "sessions"]), _json
    )
)
def test_any_item_is_parsed_or_rejected(item: dict[str, Any]) -> None:
    try:
        conversation = dialogues.build_dialogue(item, "any", WarningLog())
    except dialogues.NotADialogue:
        return
    assert conversation.turns
    assert all(set(question.evidence) <= set(conversation.session_by_turn) for question in conversation.questions)


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56:00+00:00"),
        ("12:09 am on 13 September, 2023", "2023-09-13T00:09:00+00:00"),
        ("29.12.2023, 01:37:25", "2023-12-29T01:37:25+00:00"),
        ("01.02.2024 09:05", "2024-02-01T09:05:00+00:00"),
        ("2023-05-08T13:56:00", "2023-05-08T13:56:00+00:00"),
        ("2023-05-08T13:56:00Z", "2023-05-08T13:56:00+00:00"),
        ("2023-05-08 13:56:00+02:00", "2023-05-08T11:56:00+00:00"),
        ("2023/05/20 (Sat) 02:21", "2023-05-20T02:21:00+00:00"),
        ("March-15-2024", "2024-03-15T00:00:00+00:00"),
        ("15-March-2024", "2024-03-15T00:00:00+00:00"),
        ("Friday, March 15th, 2024", "2024-03-15T00:00:00+00:00"),
        ("15 Mar 2024 7:05 PM", "2024-03-15T19:05:00+00:00"),
        ("12/29/23, 7:05 PM", "2023-12-29T19:05:00+00:00"),
        ("29/12/2023, 19:05", "2023-12-29T19:05:00+00:00"),
        (1703813845, "2023-12-29T01:37:25+00:00"),
        ("1703813845000", "2023-12-29T01:37:25+00:00"),
        ("the day after", None),
        ("", None),
        (None, None),
        (True, None),
        (float("inf"), None),
        ([2023], None),
    ],
)
def test_times_are_read_in_many_formats(text: Any, iso: str | None) -> None:
    moment = date_parser.read_moment(text)
    assert (moment and moment.isoformat()) == iso


@given(st.text() | st.floats() | st.integers() | st.text("0123456789-/.:, apm"))
def test_no_text_breaks_the_time_parser(text: Any) -> None:
    moment = date_parser.read_moment(text)
    assert moment is None or moment.tzinfo is UTC
