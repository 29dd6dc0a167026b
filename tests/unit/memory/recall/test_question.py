from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.memory.recall.tokenizer import (
    ADDRESSES_SOMEONE,
    ENGLISH_QUESTIONS,
    HAS_NAME,
    HAS_PLACE,
    IS_QUESTION,
    QuestionIntent,
    detect_features,
    detect_question_language,
    parse_question,
)


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("When did she leave?", QuestionIntent(when=True)),
        ("What year was it?", QuestionIntent(when=True)),
        ("Where do they live?", QuestionIntent(where=True)),
        ("What small city is that?", QuestionIntent(where=True)),
        ("How many cats are there?", QuestionIntent(count=True)),
        ("Who called?", QuestionIntent(who=True)),
        ("What do Ana and Ben like?", QuestionIntent(both=True)),
        ("What does she like?", QuestionIntent()),
        ("Wo wohnt sie?", QuestionIntent()),
        ("何時?", QuestionIntent()),
        ("", QuestionIntent()),
    ],
)
def test_the_intent_of_a_question_is_detected(question: str, asks: QuestionIntent) -> None:
    assert parse_question(question) == asks


def test_a_question_in_an_unknown_language_has_no_intent() -> None:
    assert detect_question_language("Wann kommt ihr?") is None
    assert detect_question_language("How so?") is ENGLISH_QUESTIONS


@pytest.mark.parametrize(
    ("text", "signs"),
    [
        ("Nothing here", 0),
        ("Is it raining?", IS_QUESTION),
        ("Then came Olga", HAS_NAME),
        ("It rained. Then it stopped! Now it is dry", 0),
        ("We moved to Porto", HAS_NAME | HAS_PLACE),
        ("We hiked in the Alps", HAS_NAME | HAS_PLACE),
        ("I like your hat", ADDRESSES_SOMEONE),
        ("You are late", ADDRESSES_SOMEONE),
    ],
)
def test_features_of_a_text_are_detected(text: str, signs: int) -> None:
    assert detect_features(text) == signs


@given(st.text())
def test_detecting_features_accepts_any_text(text: str) -> None:
    assert 0 <= detect_features(text) < 256
    parse_question(text)
