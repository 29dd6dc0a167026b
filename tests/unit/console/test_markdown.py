"""Tests of the Markdown parser: it loses no text and creates no unsafe links."""

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


def test_a_text_is_split_into_blocks() -> None:
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


def test_an_unclosed_code_block_extends_to_the_end() -> None:
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
def test_unsafe_links_and_unmatched_marks_stay_plain_text(text: str) -> None:
    assert parse_spans(text) == [MarkdownSpan(text)]
    assert is_plain_text(text)


def test_links_are_http_only_and_exclude_the_final_full_stop() -> None:
    assert parse_spans("[a](https://b.example/c) or https://d.example.") == [
        MarkdownSpan("a", "link", "https://b.example/c"),
        MarkdownSpan(" or "),
        MarkdownSpan("https://d.example", "link", "https://d.example"),
        MarkdownSpan("."),
    ]


@given(st.text(alphabet=st.sampled_from("ab1 \n`*#[]()-|~.:/h<>&\"'\u05d0"), max_size=200))
def test_parsing_drops_only_markdown_syntax(text: str) -> None:
    rendered = "".join(span.text + span.target for block in parse_blocks(text) for span in block.spans)
    expected = [letter for letter in text if letter not in MARKS]
    remaining = iter(rendered)
    for fence in ("```", "~~~"):
        if fence in text:
            return  # the language of a code fence is dropped
    assert all(letter in remaining for letter in expected)


def test_text_over_the_limits_is_plain() -> None:
    assert is_plain_text("**a** " * MAX_LENGTH)
    assert is_plain_text("- a\n" * (MAX_SPANS + 1))
    assert not is_plain_text("- a\n" * 10)
