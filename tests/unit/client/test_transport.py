"""Events are parsed for any split of their bytes; arguments are encoded or raise as in process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from hypothesis import given, strategies

from tellback import InvalidArgumentError, NotFoundError, TellbackClient
from tellback.client import transport
from tellback.client.transport import ServerEvent, parse_events
from tellback.errors import RemoteError
from tellback.types.ids import new_id
from tellback.wire.arguments import encode_metadata, encode_value, is_server_id

LINES = strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12)
FRAMES = strategies.builds(
    ServerEvent,
    event=strategies.sampled_from(["message", "delta", "result"]),
    data=strategies.lists(LINES, min_size=1, max_size=3).map("\n".join),
    id=strategies.none() | strategies.integers(0, 99).map(str),
)


def encode_events(events: Iterable[ServerEvent], end: str) -> bytes:
    found = []
    for event in events:
        lines = [f"event: {event.event}", *(f"data: {line}" for line in event.data.split("\n"))]
        found.append([": a heartbeat", "", *([] if event.id is None else [f"id: {event.id}"]), *lines, "", ""])
    return "".join(end.join(lines) for lines in found).encode()


async def parse_chunks(*pieces: bytes) -> list[ServerEvent]:
    async def chunk_stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return [frame async for frame in parse_events(chunk_stream())]


@given(
    strategies.lists(FRAMES, max_size=4),
    strategies.sampled_from(["\n", "\r\n"]),
    strategies.lists(strategies.integers(0, 400), max_size=20),
)
async def test_any_split_gives_the_same_events(events: list[ServerEvent], end: str, cuts: list[int]) -> None:
    encoded = encode_events(events, end)
    places = [0, *sorted(min(cut, len(encoded)) for cut in cuts), len(encoded)]
    assert await parse_chunks(*(encoded[a:b] for a, b in pairwise(places))) == events
    assert await parse_chunks(*(encoded[start : start + 1] for start in range(len(encoded)))) == events


async def test_an_incomplete_event_is_not_yielded() -> None:
    assert await parse_chunks(b"data: a\n\ndata: b\n") == [ServerEvent("message", "a")]
    assert await parse_chunks(b"data: a\r\n\r") == []


@pytest.mark.parametrize("size", [1, 7, 1_000])
async def test_an_event_that_is_too_large_raises_for_any_split(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_FRAME_BYTES", 50)
    small, large = b"data: " + b"x" * 44 + b"\n\n", b"data: " + b"x" * 45 + b"\n\n"
    many = small * 20
    assert len(await parse_chunks(*(many[start : start + size] for start in range(0, len(many), size)))) == 20
    for wrong in (small + large, small + large[:-2]):
        with pytest.raises(RemoteError, match="more than 50 bytes"):
            await parse_chunks(*(wrong[start : start + size] for start in range(0, len(wrong), size)))


TEXTS = strategies.text(strategies.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | TEXTS | strategies.floats(allow_nan=False),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
).filter(lambda value: "Infinity" not in json.dumps(value))


@given(strategies.dictionaries(TEXTS, PLAIN, max_size=4))
def test_plain_data_is_sent_unchanged(data: dict[str, Any]) -> None:
    assert json.loads(json.dumps(encode_metadata(data))) == data
    assert json.loads(json.dumps(encode_value(data))) == data


@pytest.mark.parametrize(
    "data",
    [
        {"b": b"abc"},
        {"s": {1, 2}},
        {"d": datetime(2026, 1, 1, tzinfo=UTC)},
        {1: 2},
        {"n": float("nan")},
        {"i": float("inf")},
        ["a list"],
    ],
    ids=repr,
)
def test_metadata_that_is_not_json_raises(data: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="metadata"):
        encode_metadata(data)


@pytest.mark.parametrize(
    "value", [b"abc", {"x": bytearray(b"abc")}, {1: 2}, object()], ids=lambda value: type(value).__name__
)
def test_values_that_json_cannot_encode_raise(value: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        encode_value(value)


@given(strategies.sampled_from(["conv", "msg", "ms", "atom", "ent", "bind", "job", "key"]))
def test_every_generated_id_is_accepted(prefix: str) -> None:
    assert is_server_id(new_id(prefix))


@pytest.mark.parametrize(
    "id", ["", ".", "..", "open", "chat", "a/b", "conv_1/messages", "conv_1?x=1", "conv_\u00e9", None, 7]
)
def test_an_impossible_id_is_not_found_without_a_request(id: Any) -> None:
    assert not is_server_id(id)


def refuse_request(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError(f"nothing should be sent, but {request.method} {request.url}")


async def test_impossible_ids_are_not_found() -> None:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(refuse_request))
    async with http, TellbackClient("http://127.0.0.1", "tb_x", http=http) as client:
        maya = client.user("maya")
        for id in ("a/b", "..", "open", ""):
            for get in (
                *(maya.conversations.get, maya.conversations.message, maya.memory.get_space, maya.memory.get_atom),
                *(maya.memory.get_entity, maya.memory.get_binding, maya.memory.get_job),
                *(client.jobs.get, client.bindings.get, client.keys.get),
            ):
                assert await get(id) is None
            for act in (
                *(maya.conversations.close, maya.conversations.messages, maya.memory.delete_space),
                *(maya.memory.archive_atom, maya.memory.list_atoms, maya.memory.delete_binding, maya.memory.retry_job),
                *(client.jobs.cancel, client.bindings.delete, client.keys.revoke),
            ):
                with pytest.raises(NotFoundError) as caught:
                    await act(id)
                assert caught.value.id == id


async def test_text_that_cannot_be_encoded_raises() -> None:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(refuse_request))
    async with http, TellbackClient("http://127.0.0.1", "tb_x", http=http) as client:
        maya = client.user("maya")
        with pytest.raises(InvalidArgumentError, match="lone surrogate"):
            await maya.conversations.append_user_message("conv_1", "half \ud83d")
        with pytest.raises(InvalidArgumentError, match="lone surrogate"):
            await maya.chat("half \ud83d")
        with pytest.raises(InvalidArgumentError, match="namespace"):
            await maya.conversations.list(namespace="\ud800")
        with pytest.raises(InvalidArgumentError, match="JSON"):
            await maya.memory.add_atom("ms_1", "Maya", confidence=float("nan"))
        with pytest.raises(InvalidArgumentError, match="user_id"):
            client.user("\ud800")
        with pytest.raises(NotFoundError):
            await maya.agents.invoke("\ud800")
