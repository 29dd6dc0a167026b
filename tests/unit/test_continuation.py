"""A caller's text only ever grows, whatever the next attempt says."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tellback.chat.model import build_request
from tellback.chat.providers.continuation import StreamContinuation
from tellback.types import ChatReply, ReplyDelta, StreamStop, TextDelta, ThinkingDelta, ToolUseStart

texts = st.text("ab ", min_size=1, max_size=8)


def chunked(text: str, sizes: list[int]) -> list[str]:
    pieces = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [*pieces, text]


def attempt(said: StreamContinuation, deltas: Iterable[ReplyDelta]) -> str:
    said.start_attempt()
    seen = [fresh for delta in deltas for fresh in said.filter_delta(delta)]
    return "".join(delta.text for delta in seen if isinstance(delta, TextDelta))


def spoken(text: str, sizes: list[int]) -> list[ReplyDelta]:
    return [TextDelta(piece) for piece in chunked(text, sizes)]


@given(texts, texts, st.lists(st.integers(0, 3), max_size=6), st.booleans())
def test_starting_over_is_recognised_however_it_is_cut(before: str, rest: str, sizes: list[int], thinks: bool) -> None:
    said = StreamContinuation()
    assert attempt(said, [TextDelta(before)]) == before
    thinking: list[ReplyDelta] = [ThinkingDelta("Hm.")] if thinks else []
    assert attempt(said, [*thinking, *spoken(before + rest, sizes), StreamStop("end_turn")]) == rest
    assert said.build_stop(ChatReply(text=before + rest)).reply == ChatReply(text=before + rest)


@given(texts, texts, st.lists(st.integers(0, 3), max_size=6), st.sampled_from(["stop", "call"]))
def test_going_on_loses_nothing(before: str, rest: str, sizes: list[int], end: str) -> None:
    said = StreamContinuation()
    attempt(said, [TextDelta(before)])
    last: ReplyDelta = StreamStop("end_turn") if end == "stop" else ToolUseStart("c", "f")
    emitted = attempt(said, [*spoken(rest, sizes), last])
    assert emitted == rest.removeprefix(before)
    assert said.text == before + emitted


def test_the_next_attempt_is_shown_what_was_said() -> None:
    said = StreamContinuation()
    request = build_request("Hi", None, None, {})
    said.start_attempt()
    assert said.build_request(request) is request
    list(said.filter_delta(TextDelta("Hel")))
    said.start_attempt()
    assert [(m.role, m.content) for m in said.build_request(request).messages[:2]] == [
        ("user", "Hi"),
        ("assistant", "Hel"),
    ]
    assert said.build_request(request).messages[2].role == "user"
