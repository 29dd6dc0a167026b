"""Decoding the streamed answers of a local model."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tellback.chat.providers.local.codec import AnswerReader, LocalStreamReader
from tellback.types import ReplyDelta, TextDelta, ToolUseEnd, ToolUseInputDelta, ToolUseStart

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def split_at(text: str, cuts: list[int]) -> list[str]:
    marks = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(marks)]


def read_parts(reader: AnswerReader, parts: list[str]) -> list[ReplyDelta]:
    return [*(delta for part in parts for delta in reader.feed(part)), *reader.close()]


def text_of(deltas: list[ReplyDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@given(TEXTS, st.booleans(), st.sampled_from([None, 0, 4]), st.lists(st.integers(0, 10_000)))
@example("\x00", True, None, [])
def test_text_is_decoded_from_any_pieces(text: str, ascii_only: bool, indent: int | None, cuts: list[int]) -> None:
    reader = AnswerReader()
    encoded = json.dumps({"say": text}, ensure_ascii=ascii_only, indent=indent)
    assert text_of(read_parts(reader, split_at(encoded, cuts))) == text
    assert reader.call is None


@given(
    st.dictionaries(TEXTS, VALUES, max_size=4),
    st.booleans(),
    st.sampled_from([None, 2]),
    st.lists(st.integers(0, 10_000)),
)
def test_a_call_is_decoded_from_any_pieces(
    value: dict[str, Any], ascii_only: bool, indent: int | None, cuts: list[int]
) -> None:
    reader = AnswerReader()
    encoded = json.dumps({"tool": "look_up", "input": value}, ensure_ascii=ascii_only, indent=indent)
    deltas = read_parts(reader, split_at(encoded, cuts))
    assert isinstance(deltas[0], ToolUseStart)
    assert isinstance(deltas[-1], ToolUseEnd)
    inputs = [delta for delta in deltas[1:-1] if isinstance(delta, ToolUseInputDelta)]
    assert len(inputs) == len(deltas) - 2
    assert json.loads("".join(delta.partial_input_json for delta in inputs)) == value
    call = reader.call
    assert call is not None
    assert (call.name, call.input, call.invalid_input) == ("look_up", value, None)
    assert {deltas[0].id, deltas[-1].id, call.id, *(delta.id for delta in inputs)} == {call.id}


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4), st.integers(0, 10_000))
def test_an_incomplete_call_is_marked_as_invalid(value: dict[str, Any], cut: int) -> None:
    encoded = json.dumps({"tool": "wipe", "input": value})
    reader = AnswerReader()
    read_parts(reader, [encoded[: cut % (len(encoded) - 2)]])
    assert reader.call is None or reader.call.invalid_input is not None


@given(st.dictionaries(TEXTS, VALUES, max_size=3), st.lists(st.integers(0, 10_000)))
def test_an_answer_with_a_schema_is_returned_as_json(value: dict[str, Any], cuts: list[int]) -> None:
    encoded = json.dumps(value)
    reader = AnswerReader(expects_json=True)
    assert text_of(read_parts(reader, split_at(f'{{"say": {encoded}}}', cuts))) == encoded


@given(TEXTS.filter(lambda text: not text.lstrip(" \t\r\n").startswith("{")))
def test_free_text_is_returned_unchanged(text: str) -> None:
    assert text_of(read_parts(AnswerReader(), list(text))) == text.lstrip(" \t\r\n")


@given(st.text())
def test_arbitrary_text_is_decoded_without_errors(text: str) -> None:
    read_parts(AnswerReader(), ['{"', text])


def test_text_is_yielded_with_its_piece() -> None:
    reader = AnswerReader()
    deltas = [list(reader.feed(piece)) for piece in ('{"say"', ':"', "Hel", "lo \\", "ud83d\\u", 'de00!"', "}")]
    assert deltas == [[], [], [TextDelta("Hel")], [TextDelta("lo ")], [], [TextDelta("\N{GRINNING FACE}!")], []]


def test_an_unpaired_surrogate_becomes_a_replacement_character() -> None:
    assert (
        text_of(read_parts(AnswerReader(), [r'{"say": "a\ud83d b\ude00 \uzzzz \ud83d"}']))
        == "a\ufffd b\ufffd \ufffd \ufffd"
    )


def chunk(content: str | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}


def collect_reply(reader: AnswerReader | None, *chunks: dict[str, Any]) -> LocalStreamReader:
    stream_reader = LocalStreamReader("local", "tiny", reader)
    for each in chunks:
        list(stream_reader.add(each))
    return stream_reader


def test_a_reply_has_its_usage_and_costs_nothing() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}
    reply = collect_reply(None, chunk("Hi"), chunk(finish="stop"), {"choices": [], "usage": usage}).reply()
    assert (reply.text, reply.stop_reason) == ("Hi", "end_turn")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (9, 2, 8)
    assert (reply.usage.cost_usd, reply.usage.provider, reply.usage.model) == (0.0, "local", "tiny")


def test_thinking_is_separate_from_text() -> None:
    thinking_chunk = {"choices": [{"delta": {"reasoning_content": "Hm."}, "finish_reason": None}]}
    reply = collect_reply(None, thinking_chunk, chunk("Hi"), chunk(finish="stop")).reply()
    assert (reply.thinking, reply.text) == ("Hm.", "Hi")


def test_a_truncated_call_has_the_stop_reason_max_tokens() -> None:
    stream_reader = collect_reply(AnswerReader(), chunk('{"tool":"wipe","input":'), chunk(finish="length"))
    reply = stream_reader.reply()
    assert reply.stop_reason == "max_tokens"
    assert [call.invalid_input for call in reply.tool_calls] == [""]


def test_a_stream_is_complete_only_with_a_finish_reason() -> None:
    assert not collect_reply(None, chunk("Hi")).is_complete
    assert collect_reply(None, chunk("Hi"), chunk(finish="stop")).is_complete
