from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.memory.recall import hints
from tellback.memory.recall.hints import Asks, language_of, read_question, text_signs
from tellback.memory.recall.words import PLACE


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("When did she leave?", Asks(when=True)),
        ("What year was it?", Asks(when=True)),
        ("Where do they live?", Asks(where=True)),
        ("What small city is that?", Asks(where=True)),
        ("How many cats are there?", Asks(count=True)),
        ("Who called?", Asks(who=True)),
        ("What do Ana and Ben like?", Asks(both=True)),
        ("What does she like?", Asks()),
        ("Wo wohnt sie?", Asks()),
        ("何時?", Asks()),
        ("", Asks()),
    ],
)
def test_a_question_tells_what_it_asks_for(question: str, asks: Asks) -> None:
    assert read_question(question) == asks


def test_a_question_of_no_known_language_asks_for_nothing() -> None:
    assert language_of("Wann kommt ihr?") is None
    assert language_of("How so?") is hints.ENGLISH


@pytest.mark.parametrize(
    ("text", "signs"),
    [
        ("Nothing here", 0),
        ("Is it raining?", hints.QUESTION),
        ("Then came Olga", hints.NAMED),
        ("It rained. Then it stopped! Now it is dry", 0),
        ("We moved to Porto", hints.NAMED | PLACE),
        ("We hiked in the Alps", hints.NAMED | PLACE),
        ("I like your hat", hints.ADDRESS),
        ("You are late", hints.ADDRESS),
    ],
)
def test_a_text_shows_what_it_may_answer(text: str, signs: int) -> None:
    assert text_signs(text) == signs


@given(st.text())
def test_any_text_has_signs(text: str) -> None:
    assert 0 <= text_signs(text) < 256
    read_question(text)
