"""The recall measures and their baselines."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bench.module_loader import import_bench_module

baselines = import_bench_module("baselines")
corpus = import_bench_module("corpus")
dialogues = import_bench_module("dialogues")
evidence = import_bench_module("evidence")

SESSIONS = {f"D{session}:{turn}": session for session in range(1, 13) for turn in range(1, 4)}


def build_question(*ids: str, category: str = "1") -> Any:
    return dialogues.Question("Which?", category, ids)


def test_recall_is_the_share_of_evidence_in_the_first_results() -> None:
    recall = evidence.Recall()
    ranking = [id for id in SESSIONS if id not in ("D1:1", "D9:9")]
    recall.add(build_question("D1:2", "D2:3", "D3:3", "D1:1"), [*ranking, "D1:1"], SESSIONS)
    # Ranks: D1:2 is 1st, D2:3 is 5th, D3:3 is 8th, and D1:1 is last of 36.
    assert recall.summary()["turn"] == {"r5": 0.5, "r10": 0.75, "r20": 0.75}


def test_a_session_has_the_rank_of_its_best_turn() -> None:
    recall = evidence.Recall()
    best_first = [f"D{session}:1" for session in range(12, 0, -1)]
    recall.add(build_question("D3:3", "D2:2", "D3:2"), [*best_first, "D2:2", "D3:3"], SESSIONS)
    # Session 3 has rank 10, session 2 has rank 11.
    assert recall.summary()["session"] == {"r10": 0.5}


def test_a_turn_ranked_twice_counts_at_its_first_rank() -> None:
    recall = evidence.Recall()
    recall.add(build_question("D2:1"), ["D1:1", "D1:1", "D1:1", "D1:1", "D1:1", "D2:1"], SESSIONS)
    assert recall.summary()["turn"]["r5"] == 1.0


def test_questions_have_equal_weight_and_categories_are_separate() -> None:
    recall = evidence.Recall()
    recall.add(build_question("D1:1", category="2"), ["D1:1"], SESSIONS)
    recall.add(build_question("D1:2", category="2"), ["D1:1"], SESSIONS)
    recall.add(build_question("D1:1", "D1:2", "D1:3", "D2:1", category="1"), ["D1:1"], SESSIONS)
    assert recall.summary()["turn"]["r10"] == pytest.approx((1 + 0 + 0.25) / 3, abs=1e-6)
    by_category = recall.by_category()
    assert [*by_category] == ["1", "2"]
    assert by_category["2"]["questions"] == 2
    assert by_category["2"]["turn"]["r10"] == 0.5
    assert by_category["2"]["session"]["r10"] == 1.0


@given(st.permutations([*SESSIONS]), st.sets(st.sampled_from([*SESSIONS]), min_size=1))
def test_rates_are_between_0_and_1_and_grow_with_depth(ranking: list[str], relevant: set[str]) -> None:
    recall = evidence.Recall()
    recall.add(build_question(*relevant), ranking, SESSIONS)
    turn = recall.summary()["turn"]
    assert 0 <= turn["r5"] <= turn["r10"] <= turn["r20"] <= 1
    assert 0 <= recall.summary()["session"]["r10"] <= 1


def test_no_questions_have_no_rates() -> None:
    assert evidence.Recall().summary()["turn"]["r10"] is None


def test_bm25_scores_follow_the_formula() -> None:
    texts = ["The heron fished, herons fishing.", "A canal", "Nothing of that"]
    scores = baselines.Bm25(texts).scores("Did the heron leave?")
    # "heron" is two of its four stems, and one text of three has it.
    lengths = [len(baselines.terms(text)) for text in texts]
    assert lengths == [4, 1, 1]
    norm = 0.9 * (1 - 0.4 + 0.4 * 4 / 2)
    assert scores[0] == pytest.approx(math.log(1 + 2.5 / 1.5) * 2 * 1.9 / (2 + norm))
    assert [*scores[1:]] == [0, 0]


def test_equal_scores_are_ranked_by_time() -> None:
    scores = baselines.Bm25(["a heron", "a canal", "a heron"]).scores("heron")
    assert baselines.rank_ids(scores, ["x", "y", "z"]) == ["x", "z", "y"]


@pytest.mark.parametrize("texts", [[""], ["the"], ["", "heron"]])
def test_empty_texts_have_score_zero(texts: list[str]) -> None:
    assert baselines.Bm25(texts).scores("the goose")[0] == 0


def test_generated_memories_are_reproducible_distinct_and_independent_of_their_number() -> None:
    few, many = corpus.build_memories(50), corpus.build_memories(500)
    assert many[:50] == few
    assert len({memory.text for memory in many}) == 500
    assert all(memory.question != memory.text for memory in many)
