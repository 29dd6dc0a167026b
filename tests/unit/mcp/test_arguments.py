"""Invalid arguments and errors: each one gets a sentence without internal details."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.shared.exceptions import MCPError

from tellback.errors import InvalidArgumentError, StoreUnavailableError
from tellback.mcp import build_server
from tellback.mcp.schemas import MessageItem, parse_arguments, take_fitting
from tellback.mcp.tools import ALL_TOOLS
from tellback.tools.schema import InvalidInput
from tellback.user import User
from tests.unit.mcp.support import call_refused, connect, open_app

NESTED: Any = []
for _ in range(200):
    NESTED = [NESTED]

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("recall", {}, "query: Field required"),
    ("recall", {"query": None}, "query: Field required"),
    ("recall", {"query": ""}, "query: String should have at least 1 character"),
    ("recall", {"query": "   "}, "query must be a non-empty string"),
    ("recall", {"query": "x" * 2_001}, "query: String should have at most 2000 characters"),
    ("recall", {"query": ["food"]}, "query: Input should be a valid string"),
    ("recall", {"query": NESTED}, "query: Input should be a valid string"),
    ("recall", {"query": "food", "limit": 0}, "limit: Input should be greater than or equal to 1"),
    ("recall", {"query": "food", "limit": 10**400}, "limit: "),
    ("recall", {"query": "food", "limit": "many"}, "limit: Input should be a valid integer"),
    ("recall", {"query": "food", "user": "tom"}, "user: unknown argument"),
    ("recall", {"query": "food", "tenant_id": "acme"}, "tenant_id: unknown argument"),
    ("recall", {"query": "food", "valid_at": "yesterday"}, "valid_at: 'yesterday' is not an ISO 8601 date"),
    ("recall", {"query": "food", "valid_at": "9999-99-99"}, "valid_at: "),
    ("recall", {"query": "food", "space": "a\x00b"}, "cannot be stored"),
    ("remember", {"text": "a\x00b"}, "cannot be stored"),
    ("remember", {"text": "x" * 100_000}, "text: String should have at most 2000 characters"),
    ("remember", {"text": " "}, "text: must not be empty"),
    ("remember", {"text": "x", "category": "PATTERN"}, "category: Input should be 'FACT'"),
    ("remember", {"text": "x", "importance": 6}, "importance: Input should be less than or equal to 5"),
    ("remember", {"text": "x", "replaces": "atom_0"}, "There is no atom 'atom_0' for this user."),
    ("forget", {"atom_id": "' OR 1=1 --"}, "There is no atom"),
    ("forget", {"atom_id": "a\x00b"}, "There is no atom"),
    ("entities", {"type": "GHOST"}, "type: Input should be 'PERSON'"),
    ("conversations", {"conversation_id": "conv_0"}, "There is no conversation 'conv_0' for this user."),
    ("conversations", {"conversation_id": "conv_0", "before_seq": -1}, "before_seq: "),
    ("timeline", {"from_": "2026-01-01"}, "from_: unknown argument"),
]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_invalid_arguments_are_reported_by_name(mode: str) -> None:
    async with open_app() as tb, connect(tb.user("maya"), mode) as client:
        await tb.user("maya").memory.create_space()
        for tool, arguments, reason in WRONG:
            assert reason in await call_refused(client, tool, **arguments), (tool, arguments)
        assert all(space.atom_count == 0 for space in await tb.user("maya").memory.list_spaces())


async def test_only_the_first_of_many_problems_are_reported() -> None:
    async with open_app() as tb, connect(tb.user("maya")) as client:
        error_text = await call_refused(client, "recall", **{f"x{number}" * 100: 1 for number in range(1_000)})
        assert len(error_text) < 1_000
        assert error_text.endswith("and 996 more")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_unknown_tool_is_an_error_that_lists_the_known_ones(mode: str) -> None:
    async with open_app() as tb, connect(tb.user("maya"), mode) as client:
        with pytest.raises(MCPError, match=r"There is no tool 'erase'. Available tools: recall, timeline, entities"):
            await client.call_tool("erase", {})


async def _call_with_error(error: Exception, caplog: pytest.LogCaptureFixture, mode: str = "legacy") -> str:
    def user_of(scope: object) -> User:
        raise error

    async with Client(build_server(user_of), mode=mode) as client:
        with caplog.at_level(logging.ERROR, "tellback.mcp"):
            return await call_refused(client, "recall", query="food")


@pytest.mark.parametrize("error", [StoreUnavailableError("db.internal:5432 is gone"), ZeroDivisionError("secret")])
async def test_internal_errors_are_logged_and_not_sent_to_the_client(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    error_text = await _call_with_error(error, caplog)
    assert error_text.startswith("The memory is temporarily unavailable.")
    assert str(error) in caplog.text


async def test_an_unauthenticated_client_gets_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    error = InvalidArgumentError("Name the user in X-Tellback-User.")
    assert await _call_with_error(error, caplog) == "Name the user in X-Tellback-User."
    assert not caplog.records


async def test_lone_surrogates_in_error_messages_are_replaced(caplog: pytest.LogCaptureFixture) -> None:
    assert await _call_with_error(InvalidArgumentError("not \ud800"), caplog, "auto") == "not ?"


async def test_a_call_that_exceeds_the_timeout_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    stopped = asyncio.Event()

    async def user_of(scope: object) -> User:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        raise AssertionError

    async with Client(build_server(user_of, timeout=0.05)) as client:
        assert "cancelled after 0.05 seconds" in await call_refused(client, "recall", query="food")
    assert stopped.is_set()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_cancelled_call_stops_and_the_next_one_works(mode: str) -> None:
    async with open_app() as tb:
        started, finished = asyncio.Event(), asyncio.Event()

        async def user_of(scope: object) -> User:
            if not started.is_set():
                started.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    finished.set()
            return tb.user("maya")

        async with Client(build_server(user_of), mode=mode) as client, asyncio.timeout(20):
            call = asyncio.create_task(client.call_tool("recall", {"query": "food"}))
            await started.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await finished.wait()
            assert not (await client.call_tool("recall", {"query": "food"})).is_error


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = sorted({name for tool in ALL_TOOLS for name in tool.input_model.model_fields} | {"from"})


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(ALL_TOOLS), st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), JSON, max_size=5))
def test_any_arguments_are_parsed_or_rejected_in_a_short_sentence(tool: Any, arguments: dict[str, Any]) -> None:
    try:
        text = repr(parse_arguments(tool.input_model, arguments))
    except InvalidInput as error:
        text = str(error)
    assert 0 < len(text.encode()) < 2_500


@given(st.lists(st.text(max_size=400), max_size=30), st.integers(min_value=0, max_value=3_000))
def test_take_fitting_returns_the_longest_prefix_within_the_limit(texts: list[str], max_characters: int) -> None:
    parts = [MessageItem(id="m", seq=1, role="user", text=text, created_at="") for text in texts]
    fitting = take_fitting(parts, max_characters)
    assert fitting == parts[: len(fitting)]
    assert bool(fitting) is bool(parts)
    sizes = [len(part.model_dump_json(by_alias=True)) for part in parts]
    assert len(fitting) <= 1 or sum(sizes[: len(fitting)]) <= max_characters
    assert len(fitting) == len(parts) or sum(sizes[: len(fitting) + 1]) > max_characters
