from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.memory.text_similarity import negates, overlap, same_value, same_words, slot_name, stems


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("User lives in São Paulo.", "user lives in Sao  Paulo"),
        ("User's cat: Tom!", "Users cat Tom"),
        ("Straße", "STRASSE"),
        ("\uff21\uff22\uff23", "abc"),
        ("ユーザーは東京に住んでいる。", "ユーザーは東京に住んでいる"),
    ],
)
def test_case_accents_and_punctuation_are_ignored(a: str, b: str) -> None:
    assert same_words(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("User likes tea", "User does not like tea"),
        ("User likes C", "User likes C++"),
        ("User likes C", "User likes C#"),
        ("It is -5 degrees", "It is 5 degrees"),
        ("User likes 🍕", "User likes 🍔"),
        ("User earns 100 $", "User earns 100 €"),
        ("User has 12 cats", "User has 1 2 cats"),
        ("мой", "мои"),
        ("?", "!"),
        ("User met Ann", "Ann met User"),
    ],
)
def test_different_statements_do_not_have_the_same_words(a: str, b: str) -> None:
    assert not same_words(a, b)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("Lisbon", "lisbon ", True),
        ("the Lisbon area", "Lisbon area", True),
        ("two cats", "2 cats", True),
        ("A", "a", True),
        ("York", "New York", False),
        ("Lisbon", "Lisbon, Portugal", False),
        ("vegetarian", "not vegetarian", False),
        ("Rome to Paris", "Paris to Rome", False),
        ("The The", "Who", False),
    ],
)
def test_values_are_compared_strictly(a: str, b: str, same: bool) -> None:
    assert same_value(a, b) is same


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [
        ("User lives in Lisbon", "User lived in Lisbon", 1),
        ("User likes tea", "User does not like tea", 1),
        ("User lives in Lisbon", "User lives in Porto", 1 / 3),
        ("User lives in Lisbon", "Anna plays chess", 0),
        ("ユーザーは東京に住む", "ユーザーは東京に住む", 1),
        ("to be", "to be", 1),
        ("", "", 0),
        ("User", "User", 1),
    ],
)
def test_overlap_is_the_share_of_words_in_common(a: str, b: str, share: float) -> None:
    assert overlap(a, b) == pytest.approx(share)


@given(st.text(max_size=40), st.text(max_size=40))
def test_overlap_is_symmetric_and_between_zero_and_one(a: str, b: str) -> None:
    assert overlap(a, b) == overlap(b, a)
    assert 0 <= overlap(a, b) <= 1
    assert overlap(a, a) == bool(stems(a))
    assert same_words(a, b) is same_words(b, a)
    assert same_words(a, f" {a} ")
    assert same_value(a, a)


@pytest.mark.parametrize("text", ["User doesn't smoke", "User no longer smokes", "Kein Kaffee", "User isn\u2019t here"])
def test_negations_are_detected(text: str) -> None:
    assert negates(text)
    assert not negates("User smokes")


@pytest.mark.parametrize(
    ("subject", "attribute", "expected"),
    [
        ("User", "Home City", "user: home city"),
        ("the user", "home city", "user: home city"),
        ("José", "job: title", "jose: job title"),
        ("a: b", "c", "a b: c"),
        (None, "job", None),
        ("user", "", None),
        (" ", "job", None),
        ("user", None, None),
    ],
)
def test_spellings_of_a_slot_have_the_same_name(subject: str, attribute: str, expected: str | None) -> None:
    assert slot_name(subject, attribute) == expected
