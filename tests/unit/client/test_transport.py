"""Events are the same however their bytes come in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

import pytest
from hypothesis import given, strategies

from tellback import RemoteError
from tellback.client import transport
from tellback.client.transport import ServerEvent, parse_events

LINES = strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12)
FRAMES = strategies.builds(
    ServerEvent,
    event=strategies.sampled_from(["message", "delta", "result"]),
    data=strategies.lists(LINES, min_size=1, max_size=3).map("\n".join),
    id=strategies.none() | strategies.integers(0, 99).map(str),
)


def written(events: Iterable[ServerEvent], end: str) -> bytes:
    found = []
    for event in events:
        lines = [f"event: {event.event}", *(f"data: {line}" for line in event.data.split("\n"))]
        found.append([": a heartbeat", "", *([] if event.id is None else [f"id: {event.id}"]), *lines, "", ""])
    return "".join(end.join(lines) for lines in found).encode()


async def read(*pieces: bytes) -> list[ServerEvent]:
    async def given() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return [frame async for frame in parse_events(given())]


@given(
    strategies.lists(FRAMES, max_size=4),
    strategies.sampled_from(["\n", "\r\n"]),
    strategies.lists(strategies.integers(0, 400), max_size=20),
)
async def test_any_split_gives_the_same_events(events: list[ServerEvent], end: str, cuts: list[int]) -> None:
    whole = written(events, end)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    assert await read(*(whole[a:b] for a, b in pairwise(places))) == events
    assert await read(*(whole[at : at + 1] for at in range(len(whole)))) == events


async def test_an_event_that_is_not_whole_is_none() -> None:
    assert await read(b"data: a\n\ndata: b\n") == [ServerEvent("message", "a")]
    assert await read(b"data: a\r\n\r") == []


@pytest.mark.parametrize("size", [1, 7, 1_000])
async def test_an_event_that_is_too_large_is_refused_however_it_comes(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_FRAME_BYTES", 50)
    small, large = b"data: " + b"x" * 44 + b"\n\n", b"data: " + b"x" * 45 + b"\n\n"
    many = small * 20
    assert len(await read(*(many[at : at + size] for at in range(0, len(many), size)))) == 20
    for wrong in (small + large, small + large[:-2]):
        with pytest.raises(RemoteError, match="more than 50 bytes"):
            await read(*(wrong[at : at + size] for at in range(0, len(wrong), size)))
