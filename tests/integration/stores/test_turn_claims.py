"""Claims on PostgreSQL when connections break: live instances keep theirs, and finished ones do not block."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from tellback import Tellback
from tellback.errors import StoreUnavailableError, TurnConflictError
from tellback.stores import TurnBusy
from tellback.stores.postgres.connection import INSTANCE_LOCK
from tellback.testing import FunctionModel
from tellback.testing.stores.factories import make_claim
from tellback.turns import claims
from tests.integration.stores.assertions import (
    assert_not_interleaved,
    assert_turn_runs_at_once,
    conversations_of,
    load_messages,
)
from tests.support.fault_proxy import FaultProxy

HELLO = FunctionModel(lambda _: "Hello.")


async def test_a_claim_in_doubt_does_not_block_the_next_turn(ready_postgres_url: str) -> None:
    async with FaultProxy(ready_postgres_url) as proxy, Tellback(proxy.url, worker=False) as tb:
        conversation = await conversations_of(tb).create("chat")
        proxy.trap(b"COMMIT", "pass and cut")
        with pytest.raises(StoreUnavailableError):
            await conversations_of(tb).run_turn(conversation.id, HELLO, "Perhaps.")
        await assert_turn_runs_at_once(tb, conversation.id)


async def test_an_instance_keeps_its_turn_when_its_listener_connection_breaks(ready_postgres_url: str) -> None:
    """The instance is alive: only its listener connection broke, and it reconnects."""
    async with Tellback(ready_postgres_url) as first_tb, Tellback(ready_postgres_url) as second_tb:
        conversation = await conversations_of(first_tb).create("chat")
        started, release = asyncio.Event(), asyncio.Event()

        async def slow(_: object) -> str:
            started.set()
            await release.wait()
            return "Slow."

        turn = asyncio.create_task(
            conversations_of(first_tb).run_turn(conversation.id, FunctionModel(slow), "Take your time.")
        )
        async with asyncio.timeout(5):
            await started.wait()
        admin = await asyncpg.connect(ready_postgres_url)
        try:
            terminated = await admin.fetch(
                "SELECT pg_terminate_backend(pid, 2000) FROM pg_locks"
                " WHERE locktype = 'advisory' AND classid = (hashtext($1)::bigint & 4294967295)::oid",
                INSTANCE_LOCK,
            )
            assert len(terminated) == 1
        finally:
            await admin.close()
        deadline = time.monotonic() + 1.5
        try:
            while time.monotonic() < deadline:
                with pytest.raises(TurnConflictError):
                    await conversations_of(second_tb).run_turn(conversation.id, HELLO, "Is it mine?", wait=0)
                await asyncio.sleep(0.05)
        finally:
            release.set()
            await turn
        assert_not_interleaved(await load_messages(second_tb, conversation.id))


async def test_an_instance_is_alive_again_after_several_reconnection_attempts(
    ready_postgres_url: str,
) -> None:
    async with (
        FaultProxy(ready_postgres_url) as proxy,
        Tellback(proxy.url, worker=False) as first_tb,
        Tellback(ready_postgres_url) as second_tb,
    ):

        async def wait_until_seen(alive: bool, description: str) -> None:
            deadline = time.monotonic() + 8
            while await second_tb.store.is_instance_alive(first_tb.store.instance_id) is not alive:
                assert time.monotonic() < deadline, description
                await asyncio.sleep(0.05)

        conversation = await conversations_of(first_tb).create("chat")
        await assert_turn_runs_at_once(first_tb, conversation.id)
        await wait_until_seen(True, "the instance never counted as alive")
        proxy.refuse()
        await wait_until_seen(False, "the server did not notice that its client is gone")
        proxy.trap(b"SET ROLE", "cut")
        proxy.accept()
        await wait_until_seen(True, "the live instance still counts as dead")
        assert proxy.triggered == 1


async def test_a_long_turn_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "CLAIM_SECONDS", 3.0)
    model_called = asyncio.Event()

    async def slow_answer(request: Any) -> str:
        model_called.set()
        await asyncio.sleep(7.0)  # more than twice the lease of a claim
        return "Done."

    async with Tellback(":memory:", worker=False) as tb:
        maya = tb.user("maya")
        conversation = await maya.conversations.create("chat")
        turn = asyncio.create_task(maya.conversations.run_turn(conversation.id, FunctionModel(slow_answer), "Hello?"))
        await model_called.wait()
        for _ in range(5):
            await asyncio.sleep(1.2)
            answer = await tb.store.conversations.begin_turn(
                maya.scope, conversation.id, make_claim("other"), None, tail_limit=5, now=tb.clock()
            )
            assert isinstance(answer, TurnBusy)
        assert (await turn).text == "Done."
