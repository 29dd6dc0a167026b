from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tellback.memory.recall import tokenizer as module
from tellback.memory.recall.tokenizer import (
    HAS_NUMBER,
    HAS_PLACE,
    HAS_TIME,
    extract_all_words,
    extract_words,
    normalize_name,
    split_speaker,
)


def terms(text: str) -> list[str]:
    return [word.term for word in extract_words(text)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("She painted the fences", "painting a fence"),
        ("He went hiking", "they go on a hike"),
        ("three children", "3 kids"),
        ("I didn't sleep", "not sleeping"),
        ("Ana's café", "ana cafe"),
        ("my favourite colour", "favorite colors"),
        ("tmrw at uni", "tomorrow, university"),
        ("niiiice", "niiiiiiice"),
        ("we won\u2019t move", "moving"),
        ("MÜNCHEN", "münchen"),
        ("El niño comió", "el nino comio"),
        ("Ёлка", "ёлка"),
    ],
)
def test_different_wordings_have_the_same_terms(one: str, other: str) -> None:
    assert set(terms(one)) == set(terms(other)) != set()


@pytest.mark.parametrize("text", ["", "   ", "?!…", "the and of", "I'll, you're, it's", "👍🏽 🎉", "'", "''", "__"])
def test_texts_of_stopwords_and_symbols_have_no_terms(text: str) -> None:
    assert extract_words(text) == []


def test_a_text_of_stopwords_alone_still_has_words() -> None:
    assert [word.term for word in extract_all_words("To be, or not to be")] == ["to", "be", "or", "not", "to", "be"]


def test_scripts_without_spaces_are_split_into_pairs() -> None:
    assert terms("喜欢茶") == ["喜", "欢", "茶", "喜欢", "欢茶"]
    assert terms("茶") == ["茶"]
    assert terms("ぬこ") == ["ぬこ"]
    assert {"買", "買っ", "iphon"} <= set(terms("私はiPhoneを買った"))


def test_other_alphabets_keep_their_words() -> None:
    assert terms("Моя сестра любит кошек") == ["моя", "сестра", "любит", "кошек"]
    assert len(terms("मेरी बहन दिल्ली में रहती है")) == 6


def test_words_for_times_numbers_and_places_are_marked() -> None:
    assert [word.features & HAS_TIME for word in extract_words("yesterday river")] == [HAS_TIME, 0]
    assert extract_words("seven")[0].features & HAS_NUMBER
    assert extract_words("12th")[0].term == "12"
    assert extract_words("2021")[0].features & HAS_TIME
    assert extract_words("museum")[0].features & HAS_PLACE


def test_names_are_normalized() -> None:
    assert normalize_name("José O'Neil") == ("jose", "oneil")
    assert normalize_name("…") == ()


@given(st.text())
@example("\ud800 lone")
@example("a" * 10_000)
@example("i̇stanbul İSTANBUL")
def test_any_text_is_split_the_same_way_twice(text: str) -> None:
    first = extract_words(text)
    assert extract_words(text) == first
    assert all(word.term and word.form for word in first)
    extract_all_words(text)
    normalize_name(text)


def test_the_token_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CACHED_TOKENS", 10)
    module._TOKEN_CACHE.clear()
    for number in range(100):
        extract_words(f"made{number}up")
    assert len(module._TOKEN_CACHE) <= 10


@pytest.mark.parametrize(
    ("text", "speaker", "statement"),
    [
        ("Ana: I am home", "Ana", "I am home"),
        ("Ana Ruiz: I am home", "Ana Ruiz", "I am home"),
        ("Dr. O'Neil-Smith: rest", "Dr. O'Neil-Smith", "rest"),
        ("User: hello: world", "User", "hello: world"),
        ("user: hello", "user", "hello"),
        ("Łukasz: cześć", "Łukasz", "cześć"),
        ("李雷: 你好", "李雷", "你好"),
        ("Maria da Silva: olá", "Maria da Silva", "olá"),
        ("Speaker 2: fine", "Speaker 2", "fine"),
        ("Chapter 2: fine", None, "Chapter 2: fine"),
        ("My plan: sleep", None, "My plan: sleep"),
        ("user story: sleep", None, "user story: sleep"),
        ("Note: buy milk", None, "Note: buy milk"),
        ("http://example.org", None, "http://example.org"),
        ("https: not a name", None, "https: not a name"),
        ("Ana:", None, "Ana:"),
        ("Ana: ", None, "Ana: "),
        ("at 10:30 we left", None, "at 10:30 we left"),
        ("She said: come", None, "She said: come"),
        ("remember this: milk", None, "remember this: milk"),
        (": odd", None, ": odd"),
        ("", None, ""),
    ],
)
def test_a_leading_name_is_the_speaker(text: str, speaker: str | None, statement: str) -> None:
    assert split_speaker(text) == (speaker, statement)


@given(st.text())
def test_the_rest_after_the_speaker_is_the_end_of_the_text(text: str) -> None:
    _, statement = split_speaker(text)
    assert text.endswith(statement)
