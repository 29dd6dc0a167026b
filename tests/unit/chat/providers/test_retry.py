"""Delays between retries, and continued streams."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.chat.model import build_request
from tellback.chat.providers.retry import MAX_DELAY, RetryAttempts, StreamContinuation, backoff, parse_retry_after
from tellback.errors import ProviderOverloadedError
from tellback.types import ChatReply, ReplyDelta, StreamStop, TextDelta, ThinkingDelta, ToolUseStart


@given(st.integers(0, 100))
def test_delays_grow_with_jitter_up_to_a_limit(attempt: int) -> None:
    full = min(0.5 * 2.0 ** min(attempt, 10), MAX_DELAY)
    assert full / 2 <= backoff(attempt) <= full


def test_delays_are_random_so_that_clients_do_not_retry_together() -> None:
    assert len({backoff(3) for _ in range(20)}) > 1


def test_retry_after_is_the_minimum_delay() -> None:
    assert backoff(0, 30) == 30
    assert backoff(5, 0.001) >= 4


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (None, None),
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_retry_headers_are_parsed(headers: dict[str, str] | None, seconds: float | None) -> None:
    assert parse_retry_after(headers) == seconds


def test_a_date_in_retry_after_is_parsed() -> None:
    found = parse_retry_after({"retry-after": email.utils.formatdate(time.time() + 30, usegmt=True)})
    assert found == pytest.approx(30, abs=2)


@pytest.mark.parametrize(("retry_after", "is_retried"), [(None, True), (20, True), (3600, False)])
async def test_a_long_retry_after_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, retry_after: float | None, is_retried: bool
) -> None:
    async def skip_wait(seconds: float) -> None:
        pass

    monkeypatch.setattr("tellback.chat.providers.retry.asyncio.sleep", skip_wait)
    attempts = RetryAttempts(("m",), 1, lambda error, model: None)
    await attempts.next_target()
    attempts.record_failure(ProviderOverloadedError("busy", retryable=True, retry_after=retry_after))
    assert (await attempts.next_target() is not None) == is_retried


texts = st.text("ab ", min_size=1, max_size=8)


def split_text(text: str, sizes: list[int]) -> list[str]:
    pieces = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [*pieces, text]


def attempt(continuation: StreamContinuation, deltas: Iterable[ReplyDelta]) -> str:
    continuation.start_attempt()
    seen = [fresh for delta in deltas for fresh in continuation.filter_delta(delta)]
    return "".join(delta.text for delta in seen if isinstance(delta, TextDelta))


def text_deltas(text: str, sizes: list[int]) -> list[ReplyDelta]:
    return [TextDelta(piece) for piece in split_text(text, sizes)]


@given(texts, texts, st.lists(st.integers(0, 3), max_size=6), st.booleans())
def test_repeated_text_is_recognised_in_any_pieces(spoken_text: str, rest: str, sizes: list[int], thinks: bool) -> None:
    continuation = StreamContinuation()
    assert attempt(continuation, [TextDelta(spoken_text)]) == spoken_text
    thinking: list[ReplyDelta] = [ThinkingDelta("Hm.")] if thinks else []
    assert attempt(continuation, [*thinking, *text_deltas(spoken_text + rest, sizes), StreamStop("end_turn")]) == rest
    assert continuation.build_stop(ChatReply(text=spoken_text + rest)).reply == ChatReply(text=spoken_text + rest)


@given(texts, texts, st.lists(st.integers(0, 3), max_size=6), st.sampled_from(["stop", "call"]))
def test_a_continuation_loses_no_text(spoken_text: str, rest: str, sizes: list[int], end: str) -> None:
    continuation = StreamContinuation()
    attempt(continuation, [TextDelta(spoken_text)])
    last: ReplyDelta = StreamStop("end_turn") if end == "stop" else ToolUseStart("c", "f")
    emitted = attempt(continuation, [*text_deltas(rest, sizes), last])
    assert emitted == rest.removeprefix(spoken_text)
    assert continuation.text == spoken_text + emitted


def test_the_next_attempt_contains_the_earlier_text() -> None:
    continuation = StreamContinuation()
    request = build_request("Hi", None, None, {})
    continuation.start_attempt()
    assert continuation.build_request(request) is request
    list(continuation.filter_delta(TextDelta("Hel")))
    continuation.start_attempt()
    assert [(m.role, m.content) for m in continuation.build_request(request).messages[:2]] == [
        ("user", "Hi"),
        ("assistant", "Hel"),
    ]
    assert continuation.build_request(request).messages[2].role == "user"
