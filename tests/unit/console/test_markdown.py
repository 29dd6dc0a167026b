"""The marks that models write: read into values, with nothing lost and nothing run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.console.messages import (
    MAX_LENGTH,
    MAX_SPANS,
    MarkdownBlock,
    MarkdownSpan,
    is_plain_text,
    parse_blocks,
    parse_spans,
)

MARKS = set("`*#~-+[]()•") | set("0123456789.") | set("\r\n\t ")


def test_a_text_is_read_in_blocks() -> None:
    text = "Hello\nthere\n\n## Two ##\n- one\n  more of it\n  1) deep\n\n| a | b |\n|---|---|\n\n"
    text += "```\n# no *marks*\n```\nEnd"
    assert parse_blocks(text) == [
        MarkdownBlock("text", "Hello\nthere"),
        MarkdownBlock("heading", "Two"),
        MarkdownBlock("item", "one\nmore of it", "-"),
        MarkdownBlock("item", "deep", "1)", 1),
        MarkdownBlock("code", "| a | b |\n|---|---|"),
        MarkdownBlock("code", "# no *marks*"),
        MarkdownBlock("text", "End"),
    ]
    assert parse_blocks(text)[5].spans == [MarkdownSpan("# no *marks*")]


def test_code_that_is_not_closed_goes_to_the_end() -> None:
    assert parse_blocks("```py\nx = 1\n``") == [MarkdownBlock("code", "x = 1\n``")]


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
    assert parse_spans(text) == [MarkdownSpan(text)]
    assert is_plain_text(text)


def test_links_lead_to_the_web_and_the_end_of_a_sentence_is_no_part_of_them() -> None:
    assert parse_spans("[a](https://b.example/c) or https://d.example.") == [
        MarkdownSpan("a", "link", "https://b.example/c"),
        MarkdownSpan(" or "),
        MarkdownSpan("https://d.example", "link", "https://d.example"),
        MarkdownSpan("."),
    ]


@given(st.text(alphabet=st.sampled_from("ab1 \n`*#[]()-|~.:/h<>&\"'\u05d0"), max_size=200))
def test_nothing_is_lost_but_marks(text: str) -> None:
    rendered = "".join(span.text + span.target for block in parse_blocks(text) for span in block.spans)
    expected = [letter for letter in text if letter not in MARKS]
    remaining = iter(rendered)
    for fence in ("```", "~~~"):
        if fence in text:
            return  # the language of a fence is left out
    assert all(letter in remaining for letter in expected)


def test_too_much_is_shown_as_it_is() -> None:
    assert is_plain_text("**a** " * MAX_LENGTH)
    assert is_plain_text("- a\n" * (MAX_SPANS + 1))
    assert not is_plain_text("- a\n" * 10)
