"""A caller's text only ever grows, whatever the next attempt says."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tellback.chat.model import make_request
from tellback.chat.providers.continuation import Continuation
from tellback.types import ChatReply, ReplyDelta, StreamStop, TextDelta, ThinkingDelta, ToolUseStart

texts = st.text("ab ", min_size=1, max_size=8)


def chunked(text: str, sizes: list[int]) -> list[str]:
    pieces = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [*pieces, text]


def attempt(said: Continuation, deltas: Iterable[ReplyDelta]) -> str:
    said.begin()
    seen = [fresh for delta in deltas for fresh in said.sift(delta)]
    return "".join(delta.text for delta in seen if isinstance(delta, TextDelta))


def spoken(text: str, sizes: list[int]) -> list[ReplyDelta]:
    return [TextDelta(piece) for piece in chunked(text, sizes)]


@given(texts, texts, st.lists(st.integers(0, 3), max_size=6), st.booleans())
def test_starting_over_is_recognised_however_it_is_cut(before: str, rest: str, sizes: list[int], thinks: bool) -> None:
    said = Continuation()
    assert attempt(said, [TextDelta(before)]) == before
    thinking: list[ReplyDelta] = [ThinkingDelta("Hm.")] if thinks else []
    assert attempt(said, [*thinking, *spoken(before + rest, sizes), StreamStop("end_turn")]) == rest
    assert said.whole(ChatReply(text=before + rest)).reply == ChatReply(text=before + rest)


@given(texts, texts, st.lists(st.integers(0, 3), max_size=6), st.sampled_from(["stop", "call"]))
def test_going_on_loses_nothing(before: str, rest: str, sizes: list[int], end: str) -> None:
    said = Continuation()
    attempt(said, [TextDelta(before)])
    last: ReplyDelta = StreamStop("end_turn") if end == "stop" else ToolUseStart("c", "f")
    emitted = attempt(said, [*spoken(rest, sizes), last])
    assert emitted == rest.removeprefix(before)
    assert said.text == before + emitted


def test_the_next_attempt_is_shown_what_was_said() -> None:
    said = Continuation()
    request = make_request("Hi", None, None, {})
    said.begin()
    assert said.request(request) is request
    list(said.sift(TextDelta("Hel")))
    said.begin()
    assert [(m.role, m.content) for m in said.request(request).messages[:2]] == [("user", "Hi"), ("assistant", "Hel")]
    assert said.request(request).messages[2].role == "user"
