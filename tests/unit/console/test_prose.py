"""The marks that models write: read into values, with nothing lost and nothing run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.console.prose import LONGEST, MOST_PIECES, Block, Span, blocks_of, is_plain, spans_of

MARKS = set("`*#~-+[]()•") | set("0123456789.") | set("\r\n\t ")


def test_a_text_is_read_in_blocks() -> None:
    text = "Hello\nthere\n\n## Two ##\n- one\n  more of it\n  1) deep\n\n| a | b |\n|---|---|\n\n"
    text += "```\n# no *marks*\n```\nEnd"
    assert blocks_of(text) == [
        Block("text", "Hello\nthere"),
        Block("heading", "Two"),
        Block("item", "one\nmore of it", "-"),
        Block("item", "deep", "1)", 1),
        Block("code", "| a | b |\n|---|---|"),
        Block("code", "# no *marks*"),
        Block("text", "End"),
    ]
    assert blocks_of(text)[5].spans == [Span("# no *marks*")]


def test_code_that_is_not_closed_goes_to_the_end() -> None:
    assert blocks_of("```py\nx = 1\n``") == [Block("code", "x = 1\n``")]


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,<script>)",
        "[x](//evil.example)",
        "[x](./logout)",
        "javascript://example.com/%0aalert(1)",
        "2 * 3 * 4, snake_case_name, **",
        "<a href='https'>",
    ],
)
def test_what_is_no_mark_stays_as_it_was_written(text: str) -> None:
    assert spans_of(text) == [Span(text)]
    assert is_plain(text)


def test_links_lead_to_the_web_and_the_end_of_a_sentence_is_no_part_of_them() -> None:
    assert spans_of("[a](https://b.example/c) or https://d.example.") == [
        Span("a", "link", "https://b.example/c"),
        Span(" or "),
        Span("https://d.example", "link", "https://d.example"),
        Span("."),
    ]


@given(st.text(alphabet=st.sampled_from("ab1 \n`*#[]()-|~.:/h<>&\"'\u05d0"), max_size=200))
def test_nothing_is_lost_but_marks(text: str) -> None:
    shown = "".join(span.text + span.target for block in blocks_of(text) for span in block.spans)
    kept = [letter for letter in text if letter not in MARKS]
    left = iter(shown)
    for fence in ("```", "~~~"):
        if fence in text:
            return  # the language of a fence is left out
    assert all(letter in left for letter in kept)


def test_too_much_is_shown_as_it_is() -> None:
    assert is_plain("**a** " * LONGEST)
    assert is_plain("- a\n" * (MOST_PIECES + 1))
    assert not is_plain("- a\n" * 10)
