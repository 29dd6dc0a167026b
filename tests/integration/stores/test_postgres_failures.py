"""A PostgreSQL server that stops, dies, rejects or does not answer: correct errors that say what may be stored."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import asyncpg
import pytest

from tellback import Tellback
from tellback.errors import SchemaVersionError, StoreBusyError, StoreError, StoreReadOnlyError, StoreUnavailableError
from tellback.stores.postgres import PostgresStore
from tellback.testing import FunctionModel
from tellback.types.conversations import Event
from tests.integration.stores.assertions import EventRecorder, assert_turn_runs_at_once, conversations_of, load_messages
from tests.support.fault_proxy import FaultProxy
from tests.support.servers.postgres import PostgresServer

HELLO = FunctionModel(lambda _: "Hello.")


def store_with_short_timeouts(url: str, **options: Any) -> PostgresStore:
    """Return a store with very short timeouts."""
    store = PostgresStore(url)
    engine = cast("Any", store)._engine
    engine._options = dataclasses.replace(engine._options, **options)
    return store


async def create_tables(url: str) -> None:
    """Open the store once with the default timeouts: migrating on a busy machine takes longer than the short ones."""
    async with Tellback(url, worker=False):
        pass


async def test_a_stopped_server_is_unavailable_until_it_is_restarted(
    own_server: PostgresServer,
) -> None:
    async with Tellback(own_server.url(), worker=False) as tb:
        log = conversations_of(tb)
        conversation = await log.create("chat")
        before = await log.append_user_message(conversation.id, "before")
        await assert_turn_runs_at_once(tb, conversation.id)
        await asyncio.to_thread(own_server.stop)
        for attempt in (
            lambda: log.append_user_message(conversation.id, "while it is down"),
            lambda: log.messages(conversation.id),
            lambda: log.get(conversation.id),
            lambda: log.list(),
            lambda: log.create("chat"),
            lambda: log.close(conversation.id),
            lambda: log.run_turn(conversation.id, HELLO, "Anyone?"),
            lambda: tb.events.read(),
            lambda: tb.events.latest(),
        ):
            with pytest.raises(StoreUnavailableError) as failed:
                await cast("Any", attempt)()
            assert not failed.value.in_doubt
        await asyncio.to_thread(own_server.start)
        after = await log.append_user_message(conversation.id, "after")
        await assert_turn_runs_at_once(tb, conversation.id)
        messages = await load_messages(tb, conversation.id)
        assert [message.text for message in messages if message.role == "user"] == [
            "before",
            "Are you there?",
            "after",
            "Are you there?",
        ]
        assert {before.id, after.id} <= {message.id for message in messages}


async def test_closing_while_the_server_is_down_is_quick_and_raises_no_error(own_server: PostgresServer) -> None:
    tb = await Tellback(own_server.url(), worker=False).open()
    conversation = await conversations_of(tb).create("chat")
    await assert_turn_runs_at_once(tb, conversation.id)
    await asyncio.to_thread(own_server.stop)
    async with asyncio.timeout(5):
        await tb.close()


@dataclass
class AppendAttempt:
    """One append under load, and its result."""

    text: str
    id: str = ""
    error: StoreError | None = None


@pytest.mark.slow
async def test_appends_around_a_server_kill_are_stored_rejected_or_in_doubt(own_server: PostgresServer) -> None:
    attempts: list[AppendAttempt] = []
    raw: list[Exception] = []
    acknowledgements = asyncio.Semaphore(0)
    stop = asyncio.Event()
    async with Tellback(own_server.url(), worker=False) as tb:
        log = conversations_of(tb)
        conversations = [await log.create("chat") for _ in range(3)]

        async def write(name: str) -> None:
            for number in itertools.count():
                entry = AppendAttempt(f"{name} {number}")
                attempts.append(entry)
                try:
                    entry.id = (await log.append_user_message(conversations[number % 3].id, entry.text)).id
                    acknowledgements.release()
                except StoreError as error:
                    entry.error = error
                    await asyncio.sleep(0.02)
                except Exception as error:  # noqa: BLE001 - any other type than StoreError is a failure
                    raw.append(error)
                if stop.is_set():
                    return

        async def wait_for_acknowledged(count: int) -> None:
            async with asyncio.timeout(20):
                for _ in range(count):
                    await acknowledgements.acquire()

        async with asyncio.TaskGroup() as tasks:
            for index in range(12):
                tasks.create_task(write(f"task {index}"))
            for _ in range(3):
                await wait_for_acknowledged(60)
                await asyncio.to_thread(own_server.kill)
                await asyncio.to_thread(own_server.start)
            await wait_for_acknowledged(60)
            stop.set()
        assert raw == []

        event_recorder = EventRecorder()
        await event_recorder.read_new(tb)
        found: dict[str, str] = {}
        for conversation in conversations:
            messages = await load_messages(tb, conversation.id)
            event_recorder.assert_covers(conversation.id, messages)
            for message in messages:
                assert message.text not in found, f"stored twice: {message.text}"
                found[message.text] = message.id
        for entry in attempts:
            if entry.error is None:
                assert found.get(entry.text) == entry.id, f"lost: {entry}"
            elif not entry.error.in_doubt:
                assert entry.text not in found, f"rejected, but stored: {entry}"
        failures = [entry.error for entry in attempts if entry.error is not None]
        assert failures
        assert {type(error) for error in failures} == {StoreUnavailableError}


async def test_a_subscriber_survives_a_restart_of_the_server(own_server: PostgresServer) -> None:
    async with Tellback(own_server.url(), worker=False) as tb:
        conversation = await conversations_of(tb).create("chat")
        event_recorder, seen = EventRecorder(), asyncio.Semaphore(0)

        async def subscribe() -> None:
            events = cast("Any", tb.events.subscribe())
            async with aclosing(events):
                async for event in events:
                    event_recorder.record(event)
                    seen.release()

        listener = asyncio.create_task(subscribe())
        try:
            async with asyncio.timeout(20):
                await conversations_of(tb).append_user_message(conversation.id, "before")
                await seen.acquire()
                await seen.acquire()
                await asyncio.to_thread(own_server.stop)
                # Longer than the subscriber's polling interval.
                await asyncio.wait([listener], timeout=3)
                await asyncio.to_thread(own_server.start)
                assert not listener.done(), listener.exception()
                await conversations_of(tb).append_user_message(conversation.id, "after")
                await seen.acquire()
            event_recorder.assert_covers(conversation.id, await load_messages(tb, conversation.id))
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)


async def test_a_subscriber_can_resume_from_its_cursor_after_an_error(own_server: PostgresServer) -> None:
    async with Tellback(own_server.url(), worker=False) as tb:
        conversation = await conversations_of(tb).create("chat")
        event_recorder = EventRecorder()
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)
        await conversations_of(tb).append_user_message(conversation.id, "after")
        events = cast("Any", tb.events.subscribe())
        async with aclosing(events), asyncio.timeout(10):
            while len(event_recorder.seqs.get(conversation.id, {})) < 1:
                event: Event = await anext(events)
                event_recorder.record(event)


async def test_a_server_that_does_not_answer_times_out(postgres_url: str) -> None:
    await create_tables(postgres_url)
    async with FaultProxy(postgres_url) as proxy:
        store = store_with_short_timeouts(proxy.url, connect_timeout=1.0, acquire_timeout=2.0, command_timeout=0.5)
        async with Tellback(store) as tb:
            conversation = await conversations_of(tb).create("chat")
            stored_texts: list[str] = []
            doubts: list[bool] = []
            for marker in (b"tellback.tenant_id", b"INSERT INTO messages"):
                proxy.trap(marker, "pass and say nothing")
                text = f"after {marker.decode()}"
                async with asyncio.timeout(10):
                    try:
                        await conversations_of(tb).append_user_message(conversation.id, text)
                    except StoreError as error:  # on another connection it may have succeeded
                        doubts.append(error.in_doubt)
                    else:
                        stored_texts.append(text)
            assert proxy.triggered
            assert not any(doubts)
            assert [message.text for message in await load_messages(tb, conversation.id)] == stored_texts


async def test_a_connection_that_breaks_before_the_commit_is_replaced(postgres_url: str) -> None:
    async with FaultProxy(postgres_url) as proxy, Tellback(proxy.url, worker=False) as tb:
        conversation = await conversations_of(tb).create("chat")
        proxy.trap(b"tellback.tenant_id", "pass and cut")
        await conversations_of(tb).append_user_message(conversation.id, "once")
        assert proxy.triggered == 1
        assert [message.text for message in await load_messages(tb, conversation.id)] == ["once"]


async def test_a_connection_that_the_server_is_terminating_is_replaced(postgres_url: str) -> None:
    """Between the server's termination message on an idle connection and its end, as during a restart."""
    fields = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
    async with FaultProxy(postgres_url) as proxy, Tellback(proxy.url, worker=False) as tb:
        conversation = await conversations_of(tb).create("chat")
        await tb.store.conversations.get(conversation.scope, conversation.id)
        await proxy.inject(b"E" + (len(fields) + 4).to_bytes(4) + fields)
        await asyncio.sleep(0.1)  # the client is idle, so it has not read it yet
        await conversations_of(tb).append_user_message(conversation.id, "once")
        assert [message.text for message in await load_messages(tb, conversation.id)] == ["once"]


async def test_a_cancellation_during_a_rollback_is_not_lost(postgres_url: str) -> None:
    async with FaultProxy(postgres_url) as proxy, Tellback(proxy.url, worker=False) as tb:
        await conversations_of(tb).create("chat")
        proxy.trap(b"ROLLBACK", "pass and say nothing")
        append_task = asyncio.create_task(conversations_of(tb).append_user_message("conv_unknown", "to nobody"))
        deadline = time.monotonic() + 5
        while not proxy.triggered:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        append_task.cancel()
        done, _ = await asyncio.wait([append_task], timeout=5)
        assert done
        assert append_task.cancelled()


@pytest.mark.parametrize("fault", ["cut", "pass and cut"])
async def test_a_commit_whose_connection_breaks_is_in_doubt_until_retried(postgres_url: str, fault: Any) -> None:
    async with FaultProxy(postgres_url) as proxy, Tellback(proxy.url, worker=False) as tb:
        conversation = await conversations_of(tb).create("chat")
        proxy.trap(b"COMMIT", fault)
        with pytest.raises(StoreUnavailableError) as failed:
            await conversations_of(tb).append_user_message(conversation.id, "perhaps", "key")
        assert proxy.triggered == 1
        assert failed.value.in_doubt
        stored = await load_messages(tb, conversation.id)
        assert [message.text for message in stored] == ([] if fault == "cut" else ["perhaps"])
        retried = await conversations_of(tb).append_user_message(conversation.id, "perhaps", "key")
        assert [message.id for message in await load_messages(tb, conversation.id)] == [retried.id]


@pytest.mark.parametrize("fault", ["pass and say nothing", "pass and answer late"])
async def test_a_commit_without_an_answer_is_in_doubt(postgres_url: str, fault: Any) -> None:
    await create_tables(postgres_url)
    async with (
        FaultProxy(postgres_url) as proxy,
        Tellback(store_with_short_timeouts(proxy.url, command_timeout=0.5), worker=False) as tb,
    ):
        conversation = await conversations_of(tb).create("chat")
        proxy.trap(b"COMMIT", fault)
        with pytest.raises(StoreUnavailableError) as failed:
            await conversations_of(tb).append_user_message(conversation.id, "perhaps")
        assert proxy.triggered == 1
        [message] = await load_messages(tb, conversation.id)
        assert message.text == "perhaps"
        assert failed.value.in_doubt


async def test_a_read_only_database_can_be_read(postgres_server: PostgresServer, postgres_url: str) -> None:
    async with Tellback(postgres_url) as tb:
        conversation = await conversations_of(tb).create("chat")
        await conversations_of(tb).append_user_message(conversation.id, "before")
    name = postgres_url.rpartition("/")[2]
    postgres_server.psql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with Tellback(postgres_url) as tb:
        assert [message.text for message in await load_messages(tb, conversation.id)] == ["before"]
        for attempt in (
            lambda: conversations_of(tb).append_user_message(conversation.id, "no"),
            lambda: conversations_of(tb).create("chat"),
            lambda: conversations_of(tb).run_turn(conversation.id, HELLO, "no"),
        ):
            with pytest.raises(StoreReadOnlyError) as caught_error:
                await cast("Any", attempt)()
            assert not caught_error.value.in_doubt
    postgres_server.psql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    async with Tellback(postgres_url) as tb:
        await assert_turn_runs_at_once(tb, conversation.id)
        assert len(await load_messages(tb, conversation.id)) == 3


async def test_the_event_feed_of_a_read_only_database_can_be_read(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with Tellback(postgres_url) as tb:
        conversation = await conversations_of(tb).create("chat")
        await conversations_of(tb).append_user_message(conversation.id, "before")
        events = await tb.events.read()
    postgres_server.psql(f"ALTER DATABASE {postgres_url.rpartition('/')[2]} SET default_transaction_read_only = on")
    async with Tellback(postgres_url) as tb:
        assert await tb.events.latest() == events[-1].position
        assert await tb.events.read() == events


async def test_wrong_database_or_user_names_are_reported_immediately(postgres_server: PostgresServer) -> None:
    for url, expected_text in (
        (postgres_server.url("no_such_database"), "no_such_database"),
        (postgres_server.url(user="no_such_user"), "no_such_user"),
    ):
        with pytest.raises(StoreUnavailableError, match=expected_text):
            await Tellback(url).open()


async def test_an_address_without_a_server_is_reported_immediately(unused_tcp_port: int) -> None:
    with pytest.raises(StoreUnavailableError, match=str(unused_tcp_port)):
        await Tellback(f"postgresql://postgres@127.0.0.1:{unused_tcp_port}/postgres").open()


async def test_missing_privileges_are_reported_with_advice(postgres_server: PostgresServer, postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    postgres_server.psql("DROP ROLE IF EXISTS poor; CREATE ROLE poor LOGIN")
    try:
        with pytest.raises(StoreError, match="may not change it"):
            await Tellback(postgres_server.url(name, "poor")).open()
        async with Tellback(postgres_url):
            pass
        with pytest.raises(StoreError, match=r"GRANT tellback_app|its privileges"):
            async with Tellback(postgres_server.url(name, "poor")) as tb:
                await conversations_of(tb).create("chat")
        postgres_server.psql("GRANT tellback_app TO poor")
        async with Tellback(postgres_server.url(name, "poor")) as tb:
            conversation = await conversations_of(tb).create("chat")
            await assert_turn_runs_at_once(tb, conversation.id)
            assert len(await tb.events.read()) == 3
    finally:
        postgres_server.psql("DROP ROLE poor")


async def test_a_schema_of_a_later_release_is_rejected_unchanged(postgres_url: str) -> None:
    async with Tellback(postgres_url):
        pass
    admin = await asyncpg.connect(postgres_url)
    try:
        await admin.execute("INSERT INTO tellback.tellback_migrations VALUES (999, 'from the future', 0)")
    finally:
        await admin.close()
    with pytest.raises(SchemaVersionError, match="999"):
        await Tellback(postgres_url).open()


async def test_requests_wait_for_a_free_connection_or_raise_store_busy_error(postgres_url: str) -> None:
    async with Tellback(f"{postgres_url}?pool_size=2") as tb:
        conversation = await conversations_of(tb).create("chat")
        await asyncio.gather(
            *(conversations_of(tb).append_user_message(conversation.id, str(number)) for number in range(100))
        )
        assert len(await load_messages(tb, conversation.id)) == 100


async def test_a_row_locked_for_too_long_raises_store_busy_error(postgres_url: str) -> None:
    await create_tables(postgres_url)
    async with Tellback(store_with_short_timeouts(postgres_url, command_timeout=1.0)) as tb:
        conversation = await conversations_of(tb).create("chat")
        other = await asyncpg.connect(postgres_url)
        try:
            async with other.transaction():
                await other.execute("SELECT 1 FROM tellback.conversations FOR UPDATE")
                with pytest.raises((StoreBusyError, StoreUnavailableError)) as failed:
                    await conversations_of(tb).append_user_message(conversation.id, "blocked")
                assert not failed.value.in_doubt
        finally:
            await other.close()
        await conversations_of(tb).append_user_message(conversation.id, "free")
        assert [message.text for message in await load_messages(tb, conversation.id)] == ["free"]
