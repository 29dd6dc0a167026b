from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tellback.embed.static import StaticEmbedder
from tellback.memory.recall import ranker
from tellback.memory.recall.dates.parser import parse_time_spans
from tellback.memory.recall.index import IndexEntry, SpaceIndex
from tellback.memory.recall.ranker import (
    DEFAULT_WEIGHTS,
    SIGNALS,
    Query,
    RelevanceScores,
    Weights,
    parse_query,
    score_rows,
)
from tellback.memory.recall_service import SCORE_PART_LABELS
from tellback.types.ids import as_utc, to_micros

STATIC = StaticEmbedder()
PLACES = ("Porto", "Lima", "Oslo", "Cairo", "Quito", "Perth")
THINGS = ("kayak", "violin", "ladder", "camera", "blanket", "kettle", "mirror", "tent")
DONE = ("bought", "lost", "painted", "sold")
NOW = to_micros(as_utc("2024-06-01T12:00:00Z"))
DAY = 86_400_000_000

FACTS = ["User prefers morning meetings", "User is allergic to peanuts", "User's sister Clara lives in Porto"]


def make_index(entries: Sequence[str | IndexEntry], *, embedded: bool = True) -> SpaceIndex:
    index_entries = [entry if isinstance(entry, IndexEntry) else IndexEntry(entry, NOW) for entry in entries]
    index = SpaceIndex(STATIC if embedded else None)
    index.extend(index_entries)
    if embedded and index_entries:
        index.set_vectors(np.arange(len(index_entries)), STATIC.vectors([entry.text for entry in index_entries]))
    return index


def rank(index: SpaceIndex, text: str, *, vector: bool = True, now: int = NOW, **options: Any) -> RelevanceScores:
    reading = parse_time_spans(text, now)
    embedded = STATIC.vectors([parse_query(index, Query(text, now, None, reading)).topic])[0] if vector else None
    return score_rows(index, Query(text, now, embedded, reading), **options)


def best_row(index: SpaceIndex, text: str, **options: Any) -> int:
    return int(np.argmax(rank(index, text, **options).total))


def scores(found: RelevanceScores) -> npt.NDArray[np.float64]:
    return 1 / (1 + np.exp(-found.total.astype(np.float64)))


def make_entries(*lines: str, group: str = "g", start: int = NOW) -> list[IndexEntry]:
    return [IndexEntry(line, start + offset * 60_000_000, group) for offset, line in enumerate(lines)]


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize(
    ("question", "answer"),
    [("Where does Clara live?", 2), ("peanuts", 1), ("When does the user like to meet?", 0), ("Who is Clara?", 2)],
)
def test_a_good_match_in_a_small_space_scores_high_and_the_rest_low(question: str, answer: int, embedded: bool) -> None:
    found = scores(rank(make_index(FACTS, embedded=embedded), question, vector=embedded))
    assert int(np.argmax(found)) == answer
    assert found[answer] > 0.6
    assert np.delete(found, answer).max() < 0.3


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 60])
@pytest.mark.parametrize(
    "question", ["How tall is Mount Everest?", "quantum chromodynamics", "the of and", "", "👍", "?"]
)
def test_a_query_without_matches_scores_low(question: str, size: int, embedded: bool) -> None:
    texts = (FACTS + [f"User visited the {n}. market and bought a chair" for n in range(60)])[:size]
    assert scores(rank(make_index(texts, embedded=embedded), question, vector=embedded)).max() < 0.3


@pytest.mark.parametrize(
    ("texts", "question", "answer"),
    [
        (["Nutzer wohnt in München", "Nutzer isst kein Fleisch"], "Wer wohnt in Munchen?", 0),
        (["Vivo en Sevilla", "Mi hermana estudia química"], "¿Qué estudia mi hermana?", 1),
        (["Я живу в Казани", "Моя сестра любит кошек"], "кто любит кошек", 1),
        (["我喜欢喝绿茶", "我的妹妹住在上海"], "妹妹住在哪里", 1),
        (["東京に引っ越しました", "犬を飼っています"], "犬の名前は?", 1),
    ],
)
def test_other_languages_match_by_equal_words(texts: list[str], question: str, answer: int) -> None:
    assert best_row(make_index(texts, embedded=False), question, vector=False) == answer


def test_a_synonym_matches() -> None:
    index = SpaceIndex(STATIC)
    index.extend([IndexEntry("Rents a large automobile", NOW), IndexEntry("Rents a large apartment", NOW)])
    assert best_row(index, "car", vector=False) == 0


def test_the_answer_after_a_matching_question_is_found() -> None:
    index = make_index(
        make_entries("Ana: Which instrument do you play?", "Ben: The cello, since I was nine!", "Ana: Lovely.")
        + make_entries("Ana: The soup was cold.", "Ben: Mine was fine.", "Ana: Odd.", group="h")
    )
    order = np.argsort(-rank(index, "Which instrument does Ben play?").total)
    assert order[0] == 1


def test_neighbours_do_not_reach_into_another_conversation_or_session() -> None:
    separate = make_entries("Ana: We talked about the lighthouse") + make_entries("Ben: Sure", "Ana: Fine", group="h")
    later = [IndexEntry("Ben: Sure", NOW + 3 * DAY, "g")]
    index = make_index(separate + later, embedded=False)
    parts = rank(index, "lighthouse", vector=False).parts
    for part in ("same words", "words nearby", "same conversation"):
        assert parts[part][0] > 0
        assert not parts[part][1:].any(), part


def test_rows_of_the_person_in_the_question_are_preferred() -> None:
    index = make_index(make_entries("Ana: I adopted a cat", "Ben: I adopted a cat", "Ana: I adopted a cat"))
    assert best_row(index, "What did Ben adopt?") == 1
    parsed = parse_query(index, Query("What did Ben's boss and Ana adopt?", NOW))
    assert [index.speaker_names[number] for number in parsed.speakers] == ["Ben", "Ana"]


def test_the_topic_excludes_names_and_dates() -> None:
    index = make_index(make_entries("Ana: hello", "Ben: hello"))
    text = "What did Ana's sister buy in May 2023?"
    assert parse_query(index, Query(text, NOW, None, parse_time_spans(text, NOW))).topic.split() == [
        "What",
        "did",
        "sister",
        "buy",
        "in",
        "?",
    ]
    assert parse_query(index, Query("What was bought?", NOW)).topic == "What was bought?"


@pytest.mark.parametrize(
    ("question", "topic", "people"),
    [
        ("What did Maya say in May?", "What did say in ?", ("Maya",)),
        ("Did I use room 2023b in 2023?", "Did I use room 2023b in ?", ()),
        ("Did June call?", "Did call?", ("June",)),
        ("Who called in June?", "Who called in ?", ()),
    ],
)
def test_times_are_removed_from_the_topic_but_names_that_look_like_months_are_not(
    question: str, topic: str, people: tuple[str, ...]
) -> None:
    index = make_index([IndexEntry("Maya: hello", NOW), IndexEntry("June: hello", NOW)], embedded=False)
    parsed = parse_query(index, Query(question, NOW, None, parse_time_spans(question, NOW)))
    assert parsed.topic.split() == topic.split()
    assert tuple(index.speaker_names[number] for number in parsed.speakers) == people


def test_only_a_few_dates_of_a_long_text_are_parsed() -> None:
    log = " ".join(f"On {day} May 20{year:02d} it rained." for year in range(10, 40) for day in range(1, 29))
    index = make_index([IndexEntry(f"{n} {log}", NOW) for n in range(20)], embedded=False)
    query = Query(log, NOW, None, parse_time_spans(log, NOW))
    assert len(parse_query(index, query).spans) <= 8
    assert np.isfinite(score_rows(index, query).total).all()
    assert max(len(index.dates_in_row(row)) for row in range(20)) <= 16


def test_the_two_pass_comparison_ranks_like_the_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{place} is where the {thing} was {done}" for place in PLACES for thing in THINGS for done in DONE]
    index = SpaceIndex(STATIC, ordered=True)
    index.extend([IndexEntry(text, NOW, f"g{row // 20}") for row, text in enumerate(texts)])
    index.set_vectors(np.arange(len(texts)), STATIC.vectors(texts))
    questions = [f"Who bought a {thing} in {place}?" for place in PLACES[:4] for thing in THINGS[:4]]
    expected = [rank(index, question).total for question in questions]
    monkeypatch.setattr(ranker, "MAX_FULL_SCAN_ROWS", 100)
    monkeypatch.setattr(ranker, "RESCORED_ROWS", 40)
    for question, total in zip(questions, expected, strict=True):
        twice = rank(index, question).total
        assert np.isfinite(twice).all()
        assert len({*np.argsort(-twice)[:10].tolist()} & {*np.argsort(-total)[:10].tolist()}) >= 6
        eligible = np.arange(len(texts)) % 3 != 0
        some = score_rows(index, Query(question, NOW, STATIC.vectors([question])[0]), eligible).total
        assert np.isfinite(some).all()


def test_a_date_in_the_question_prefers_texts_from_that_time() -> None:
    texts = [IndexEntry("Went swimming", NOW - days * DAY) for days in (400, 30, 3)]
    index = make_index(texts, embedded=False)
    assert best_row(index, "Who went swimming in May 2024?", vector=False) == 1
    assert best_row(index, "Who went swimming in April 2023?", vector=False) == 0


def test_a_text_that_names_the_time_in_the_question_is_preferred() -> None:
    stated_at = to_micros(as_utc("2024-03-20T10:00:00Z"))
    index = make_index(
        [IndexEntry("Had the flu two months ago", stated_at), IndexEntry("Had the flu", stated_at)], embedded=False
    )
    found = rank(index, "Who had the flu in January 2024?", vector=False).parts["date"]
    assert found[0] > found[1]


def test_only_the_best_texts_are_searched_for_dates() -> None:
    stated_at = to_micros(as_utc("2024-03-20T10:00:00Z"))
    others = [IndexEntry(f"Sold {n} chairs last week", stated_at) for n in range(200)]
    index = make_index([*others, IndexEntry("Had the flu two months ago", stated_at)], embedded=False)
    assert rank(index, "Who had the flu in January 2024?", vector=False).parts["date"][-1] > 0
    assert len(index._dates_by_row) <= 64


def test_when_questions_prefer_texts_with_a_time() -> None:
    index = make_index(["Clara moved to Porto", "Clara moved to Porto last Friday"], embedded=False)
    found = rank(index, "When did Clara move to Porto?", vector=False)
    assert found.parts["form"][1] > found.parts["form"][0]


def test_rows_without_a_vector_are_neutral_in_meaning() -> None:
    index = make_index(FACTS)
    index.extend([IndexEntry("User has a canoe", NOW)])
    found = rank(index, "canoe trips")
    assert found.parts["meaning"][3] == 0
    assert int(np.argmax(found.total)) == 3


def test_only_words_count_without_matching_vectors() -> None:
    index = make_index(FACTS)
    query = Query("peanuts", NOW, np.ones(7, np.float32))
    assert "meaning" not in score_rows(index, query).parts
    assert int(np.argmax(score_rows(index, query).total)) == 1


def test_vectors_of_another_length_replace_all_vectors() -> None:
    index = make_index(FACTS)
    index.set_vectors(np.array([1]), np.array([[0.6, 0.8]], np.float32))
    found = score_rows(index, Query("x", NOW, np.array([0.6, 0.8], np.float32)))
    assert found.parts["meaning"][1] > 0
    assert found.parts["meaning"][0] == found.parts["meaning"][2] == 0


def test_ineligible_rows_do_not_change_the_scores_of_others() -> None:
    index = make_index([*FACTS, "Clara Clara Clara"] + ["Porto Porto"] * 30)
    eligible = np.zeros(len(index), np.bool_)
    eligible[:3] = True
    few = rank(index, "What food is dangerous?", eligible=eligible).parts["meaning"][:3]
    meaning_scores = rank(make_index(FACTS), "What food is dangerous?").parts["meaning"]
    assert np.allclose(few, meaning_scores, atol=1e-4)
    assert np.isfinite(rank(index, "Clara", eligible=np.zeros(len(index), np.bool_)).total).all()


def test_custom_weights_replace_the_defaults() -> None:
    index = make_index(FACTS)
    zero_weights = Weights(**dict.fromkeys(Weights.__dataclass_fields__, 0.0))
    assert not rank(index, "Where does Clara live?", weights=zero_weights).total.any()
    assert Weights() == DEFAULT_WEIGHTS


def test_each_signal_declares_its_name_label_and_weights_once() -> None:
    names = [signal.name for signal in SIGNALS]
    weights = [name for signal in SIGNALS for name in signal.weights]
    assert len(set(names)) == len(names)
    assert sorted(weights) == sorted(set(Weights.__dataclass_fields__) - {"base"})
    assert all(getattr(DEFAULT_WEIGHTS, name) == value for each in SIGNALS for name, value in each.weights.items())
    assert all(SCORE_PART_LABELS[signal.name] == signal.label for signal in SIGNALS)


def test_a_query_of_ten_thousand_words_is_ranked_by_its_rarest() -> None:
    common = ["river", "guitar", "lawyer", "bridge", "summer"]
    index = make_index([*FACTS, *(f"Talked about the {common[n % 5]} at length" for n in range(200))])
    text = " ".join(f"{common[n % 5]} zq{n}xv" for n in range(5_000)) + " peanuts"
    assert best_row(index, text, vector=False) == 1
    assert np.isfinite(rank(index, text).total).all()


def test_an_empty_space_ranks_nothing() -> None:
    found = score_rows(SpaceIndex(), Query("anything", NOW))
    assert len(found.total) == 0


ANY_TEXT = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(["Ana:", "tea", "river", "Porto", "two", "yesterday", "you", "?", "the", "茶", "é"])).map(
        " ".join
    ),
)
ENTRIES = st.lists(
    st.builds(
        IndexEntry,
        ANY_TEXT,
        st.integers(0, 4_000_000_000_000_000),
        st.sampled_from([None, "a", "b", "c"]),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(ENTRIES, ANY_TEXT, st.booleans(), st.booleans(), st.randoms())
@example([IndexEntry("", 0)], "", True, True, None)
def test_any_space_and_query_give_finite_parts_that_add_up(
    entries: list[IndexEntry], text: str, embedded: bool, masked: bool, random: Any
) -> None:
    index = make_index(entries, embedded=embedded)
    eligible = np.array([random.random() < 0.5 for _ in entries], np.bool_) if masked and random else None
    found = rank(index, text, vector=embedded, eligible=eligible)
    assert found.total.dtype == np.float32
    assert found.total.shape == (len(entries),)
    assert np.isfinite(found.total).all()
    if entries:
        added = sum(np.broadcast_to(part, len(entries)).astype(np.float64) for part in found.parts.values())
        assert np.allclose(added, found.total, atol=1e-4)
    assert index.nbytes > 0
    for name in ("Porto", "tea river", text):
        assert index.rows_mentioning(name).shape == (len(entries),)


@settings(deadline=None, max_examples=50)
@given(ENTRIES, ANY_TEXT, st.data())
def test_an_incrementally_built_index_ranks_like_one_built_in_one_step(
    entries: list[IndexEntry], text: str, data: Any
) -> None:
    grown = SpaceIndex(STATIC)
    start = 0
    while start < len(entries):
        step = data.draw(st.integers(1, len(entries) - start))
        grown.extend(entries[start : start + step])
        grown.set_vectors(
            np.arange(start, start + step), STATIC.vectors([entry.text for entry in entries[start : start + step]])
        )
        if data.draw(st.booleans()):
            rank(grown, text)
        start += step
    built_at_once = make_index(entries)
    assert np.allclose(rank(grown, text).total, rank(built_at_once, text).total, atol=1e-5)


@settings(deadline=None)
@given(ANY_TEXT, ANY_TEXT, st.integers(1, 70))
@example("yesterday", "yesterday", 65)
def test_equal_texts_score_equally(text: str, question: str, count: int) -> None:
    index = make_index([IndexEntry(text, NOW)] * count)
    assert len(set(rank(index, question).total.tolist())) == 1


@given(st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=20), st.integers(0, 6))
def test_neighbours_are_those_of_the_group_in_order(groups: list[str | None], around: int) -> None:
    index = SpaceIndex()
    index.extend([IndexEntry("x", NOW, group) for group in groups])
    for row, group in enumerate(groups):
        found = index.neighbour_rows(row, around)
        members = [other for other, other_group in enumerate(groups) if other_group == group] if group else [row]
        place = members.index(row)
        assert found == [*members[max(0, place - around) : place], *members[place + 1 : place + 1 + around]]


def test_a_row_mentions_a_name_as_speaker_or_in_its_text() -> None:
    index = SpaceIndex()
    index.extend(
        [
            IndexEntry("Ana Ruiz: hello", NOW),
            IndexEntry("I met Ana Ruiz", NOW),
            IndexEntry("Ruiz called", NOW),
            IndexEntry("She called", NOW),
        ]
    )
    assert index.rows_mentioning("ana ruiz").tolist() == [True, True, False, False]
    assert index.rows_mentioning("Ruiz").tolist() == [True, True, True, False]
    assert index.rows_mentioning("nobody").tolist() == [False] * 4
    assert index.rows_mentioning(" ").tolist() == [False] * 4


def test_nbytes_grows_with_the_index() -> None:
    index = make_index([])
    sizes = []
    for _ in range(4):
        index.extend([IndexEntry(f"A text about number {n}", NOW, "g") for n in range(500)])
        index.set_vectors(np.arange(len(index)), np.ones((len(index), 8), np.float32))
        rank(index, "number", vector=False)
        sizes.append(index.nbytes)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] > 2_000 * 60


def test_probabilities_are_between_zero_and_one() -> None:
    found = scores(rank(make_index(FACTS), "morning meetings"))
    assert all(0 < value < 1 and not math.isnan(value) for value in found)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("form", "The signals 'form' and 'form' both use form: rename one"),
        ("other", "The signals 'form' and 'other' both use count: rename one"),
        ("late", "Declare the signal 'late' above the class Weights"),
    ],
)
def test_a_signal_that_cannot_be_registered_is_reported(name: str, problem: str) -> None:
    def compute(scoring: Any, *, count: float = 1.0) -> None: ...

    def compute_late(scoring: Any, *, late: float = 1.0) -> None: ...

    with pytest.raises(TypeError, match=problem):
        ranker.signal(name, label="Other")(compute_late if name == "late" else compute)
    assert name not in [each.name for each in ranker.SIGNALS][1:]
