"""Closing a store: later calls raise errors, earlier changes are stored, and nothing keeps running."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from tellback import Tellback
from tellback.errors import StoreClosedError, StoreError
from tellback.testing import FunctionModel
from tellback.types.conversations import StoredMessage
from tests.integration.stores.assertions import assert_turn_runs_at_once, conversations_of, load_messages
from tests.support.servers.postgres import PostgresServer

HELLO = FunctionModel(lambda _: "Hello.")


async def test_every_call_on_a_closed_store_raises_store_closed_error(url: str) -> None:
    tb = Tellback(url)
    log = conversations_of(tb)

    async def subscribe() -> None:
        async for _ in tb.events.subscribe():
            pass

    async def assert_closed(id: str) -> None:
        for attempt in (
            lambda: log.create("chat"),
            lambda: log.get(id),
            lambda: log.list(),
            lambda: log.messages(id),
            lambda: log.append_user_message(id, "no"),
            lambda: log.run_turn(id, HELLO, "no"),
            lambda: log.close(id),
            lambda: tb.close_stale(10),
            lambda: tb.events.read(),
            lambda: tb.events.latest(),
            subscribe,
        ):
            async with asyncio.timeout(5):
                with pytest.raises(StoreClosedError):
                    await cast("Any", attempt)()

    await assert_closed("conv_before")
    await tb.open()
    conversation = await log.create("chat")
    await log.append_user_message(conversation.id, "kept")
    await tb.close()
    await tb.close()
    await assert_closed(conversation.id)
    await tb.open()
    assert [message.text for message in await load_messages(tb, conversation.id)] == ["kept"]
    await assert_turn_runs_at_once(tb, conversation.id)
    await tb.close()


@pytest.mark.parametrize("head_start", [0.0, 0.002, 0.005, 0.02])
async def test_calls_during_close_succeed_or_raise_store_closed_error(url: str, head_start: float) -> None:
    tb = await Tellback(url).open()
    conversation = await conversations_of(tb).create("chat")
    tasks = [
        asyncio.create_task(conversations_of(tb).append_user_message(conversation.id, str(number)))
        for number in range(50)
    ]
    await asyncio.sleep(head_start)
    async with asyncio.timeout(10):
        await tb.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    stored_ids = {result.id for result in results if isinstance(result, StoredMessage)}
    errors = [result for result in results if not isinstance(result, StoredMessage)]
    assert all(isinstance(error, StoreError) for error in errors), errors
    async with Tellback(url) as tb:
        messages = await load_messages(tb, conversation.id)
        assert stored_ids <= {message.id for message in messages}
        texts = {message.text for message in messages}
        for number, result in enumerate(results):
            if isinstance(result, StoreError) and not result.in_doubt:
                assert str(number) not in texts


async def test_calls_on_a_closed_store_open_no_connection(
    postgres_server: PostgresServer, ready_postgres_url: str
) -> None:
    tb = await Tellback(ready_postgres_url).open()
    conversation = await conversations_of(tb).create("chat")
    await assert_turn_runs_at_once(tb, conversation.id)
    await tb.close()
    with pytest.raises(StoreClosedError):
        await conversations_of(tb).run_turn(conversation.id, HELLO, "no")
    name = ready_postgres_url.rpartition("/")[2]
    question = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND application_name = 'tellback'"
    deadline = time.monotonic() + 5
    while open_connections := int(await asyncio.to_thread(postgres_server.psql, question)):
        assert time.monotonic() < deadline, f"{open_connections} connections are still open"
        await asyncio.sleep(0.1)
