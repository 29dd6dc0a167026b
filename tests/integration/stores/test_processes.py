"""Several processes on one store: one common order, no lost changes, one turn at a time."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from tellback import Tellback
from tellback.errors import TurnConflictError
from tellback.stores.postgres.schema import APP_ROLE
from tellback.testing import FunctionModel
from tests.integration.stores.assertions import (
    PROMPT_SECONDS,
    acknowledged_outputs,
    assert_in_order,
    assert_not_interleaved,
    assert_stored,
    assert_turn_runs_at_once,
    conversations_of,
    load_messages,
)
from tests.support.migrations import fetch_rows, write_migrations
from tests.support.servers.postgres import PostgresServer
from tests.support.subprocesses import ChildProcess, child_process, child_processes

HELLO = FunctionModel(lambda _: "Hello.")


async def test_processes_writing_one_conversation_use_consecutive_seqs(url: str) -> None:
    async with Tellback(url) as tb, child_processes("append", 4) as writers:
        conversation = await conversations_of(tb).create("chat")
        for index, writer in enumerate(writers):
            await writer.send(url=url, conversations=[conversation.id], tag=f"process {index}", count=60)
        outputs = [await writer.wait() for writer in writers]
        messages = await load_messages(tb, conversation.id)
        assert len(messages) == 240
        for lines in outputs:
            assert len(acknowledged_outputs(lines)) == 60
            assert_stored(messages, lines)
            assert_in_order(lines)


async def test_an_idempotency_key_used_by_several_processes_stores_one_message(url: str) -> None:
    keys = [f"key {number}" for number in range(30)]
    async with Tellback(url) as tb, child_processes("append_keyed", 3) as writers:
        conversation = await conversations_of(tb).create("chat")
        for index, writer in enumerate(writers):
            await writer.send(url=url, conversation=conversation.id, tag=f"process {index}", keys=keys)
        for writer in writers:
            await writer.wait_for("opened")
        await asyncio.gather(*(writer.send() for writer in writers))
        outputs = [line for writer in writers for line in acknowledged_outputs(await writer.wait())]
        messages = await load_messages(tb, conversation.id)
        assert_stored(messages, outputs)
        assert sorted(message.idempotency_key or "" for message in messages) == sorted(keys)
        assert len({(line["key"], line["id"]) for line in outputs}) == len(keys)


async def test_turns_of_several_processes_do_not_overlap(url: str) -> None:
    async with Tellback(url) as tb, child_processes("run_turns", 3) as runners:
        conversation = await conversations_of(tb).create("chat")
        for index, runner in enumerate(runners):
            await runner.send(url=url, conversation=conversation.id, tag=f"process{index}", count=6)
        outputs = [await runner.wait() for runner in runners]
        messages = await load_messages(tb, conversation.id)
        assert_not_interleaved(messages)
        assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"] * 18
        for lines in outputs:
            assert_stored(messages, lines)
            assert_in_order(lines)


async def test_a_turn_without_waiting_reports_the_running_turn(url: str) -> None:
    async with Tellback(url) as tb, child_processes("hold_turn", 1) as [holder]:
        conversation = await conversations_of(tb).create("chat")
        await holder.send(url=url, conversation=conversation.id)
        running = (await holder.wait_for("running"))["running"]
        with pytest.raises(TurnConflictError) as caught_error:
            await conversations_of(tb).run_turn(conversation.id, HELLO, "Me too.", wait=0)
        assert caught_error.value.turn_id == running
        assert len(await load_messages(tb, conversation.id)) == 2  # the rejected turn has stored nothing
        await holder.send()
        await holder.wait()
        await assert_turn_runs_at_once(tb, conversation.id)
        assert_not_interleaved(await load_messages(tb, conversation.id))


async def test_a_queued_task_reports_the_turn_running_in_another_process(url: str) -> None:
    async with Tellback(url) as tb, child_processes("hold_turn", 1) as [holder]:
        conversation = await conversations_of(tb).create("chat")
        await holder.send(url=url, conversation=conversation.id)
        running = (await holder.wait_for("running"))["running"]
        first = asyncio.create_task(conversations_of(tb).run_turn(conversation.id, HELLO, "First."))
        await asyncio.sleep(0)
        with pytest.raises(TurnConflictError) as caught_error:
            await conversations_of(tb).run_turn(conversation.id, HELLO, "Second.", wait=0.2)
        assert caught_error.value.turn_id == running
        await holder.send()
        assert (await first).status == "completed"


async def test_a_waiting_turn_starts_as_soon_as_the_running_process_dies(url: str) -> None:
    async with Tellback(url) as tb, child_processes("hold_turn", 1) as [holder]:
        conversation = await conversations_of(tb).create("chat")
        await holder.send(url=url, conversation=conversation.id)
        await holder.wait_for("running")
        waiting = asyncio.create_task(assert_turn_runs_at_once(tb, conversation.id))
        await asyncio.sleep(0.1)  # let it check the claim while the owner lives
        await holder.kill()
        await waiting
        assert [message.role for message in await load_messages(tb, conversation.id)] == [
            "user",
            "assistant",
            "user",
            "assistant",
        ]


async def test_a_suspended_process_does_not_count_as_dead(url: str) -> None:
    async with Tellback(url) as tb, child_processes("hold_turn", 1) as [holder]:
        conversation = await conversations_of(tb).create("chat")
        await holder.send(url=url, conversation=conversation.id)
        running = (await holder.wait_for("running"))["running"]
        holder.signal(signal.SIGSTOP)
        try:
            with pytest.raises(TurnConflictError) as caught_error:
                await conversations_of(tb).run_turn(conversation.id, HELLO, "Are you dead?", wait=1)
        finally:
            holder.signal(signal.SIGCONT)
        assert caught_error.value.turn_id == running
        await holder.send()
        assert (await holder.wait())[-1] == {"done": "completed"}
        await assert_turn_runs_at_once(tb, conversation.id)
        assert_not_interleaved(await load_messages(tb, conversation.id))


async def test_many_processes_can_open_an_empty_store_at_the_same_time(new_url: str) -> None:
    async with child_processes("open_once", 6) as openers:
        await asyncio.gather(*(opener.send(url=new_url) for opener in openers))
        outputs = [line for opener in openers for line in acknowledged_outputs(await opener.wait())]
        assert len(outputs) == 6
        async with Tellback(new_url) as tb:
            for line in outputs:
                assert_stored(await load_messages(tb, line["conversation"]), [line])


async def test_many_processes_can_upgrade_a_store_at_the_same_time(new_url: str, tmp_path: Path) -> None:
    async with Tellback(new_url) as tb:
        before = await conversations_of(tb).create("chat")
    folder = str(write_migrations(tmp_path / "migrations"))
    async with child_processes("open_once", 6) as openers:
        await asyncio.gather(*(opener.send(url=new_url, migrations=folder) for opener in openers))
        outputs = [line for opener in openers for line in acknowledged_outputs(await opener.wait())]
    assert len(outputs) == 6
    assert await fetch_rows(new_url, "SELECT version FROM tellback_migrations ORDER BY version") == [(1,), (2,), (3,)]
    assert await fetch_rows(new_url, "SELECT id, conversations FROM upgrades") == [(1, 1)]  # before any of them wrote
    found = await fetch_rows(new_url, "SELECT id FROM conversations ORDER BY id")
    assert [id for (id,) in found] == sorted([before.id, *(line["conversation"] for line in outputs)])


async def test_databases_of_one_new_server_can_be_opened_at_the_same_time(own_server: PostgresServer) -> None:
    """Roles belong to the server, advisory locks to a database: the locks do not serialize these openings."""
    names = [f"tenant_{number}" for number in range(6)]
    for name in names:
        own_server.psql(f"CREATE DATABASE {name}")
    # Another opening has created the role and not committed yet: the others wait for it.
    first = await asyncpg.connect(own_server.url("postgres"))
    try:
        async with child_processes("open_once", len(names)) as openers:
            await first.execute(f"BEGIN; CREATE ROLE {APP_ROLE} NOLOGIN NOSUPERUSER NOBYPASSRLS")
            for opener, name in zip(openers, names, strict=True):
                await opener.send(url=own_server.url(name))
            await _until_waiting(own_server, len(names))
            await first.execute("COMMIT")
            for opener in openers:
                assert len(acknowledged_outputs(await opener.wait())) == 1
    finally:
        await first.close()


async def _until_waiting(server: PostgresServer, count: int) -> None:
    """Wait until `count` transactions wait for another one, or had enough time to."""
    question = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        if int(await asyncio.to_thread(server.psql, question)) >= count:
            return
        await asyncio.sleep(0.05)


async def test_processes_share_a_file_under_different_paths(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    async with Tellback(tmp_path / "tellback.db") as tb, AsyncExitStack() as stack:
        conversation = await conversations_of(tb).create("chat")
        writers: list[ChildProcess] = []
        for folder in (tmp_path, link):
            job = {
                "url": f"sqlite:///{folder}/tellback.db",
                "conversations": [conversation.id],
                "tag": "x",
                "count": 20,
            }
            writers.append(await stack.enter_async_context(child_process("append", **job)))
        outputs = [await writer.wait() for writer in writers]  # wait for both before reading
        for output in outputs:
            assert_stored(await load_messages(tb, conversation.id), output)
        assert len(await load_messages(tb, conversation.id)) == 40


async def test_one_process_can_open_a_store_twice(url: str) -> None:
    async with Tellback(url) as first_tb, Tellback(url) as second_tb:
        conversation = await conversations_of(first_tb).create("chat")
        started, release = asyncio.Event(), asyncio.Event()

        async def slow(_: object) -> str:
            started.set()
            await release.wait()
            return "Slow."

        turn = asyncio.create_task(
            conversations_of(first_tb).run_turn(conversation.id, FunctionModel(slow), "Take your time.")
        )
        async with asyncio.timeout(PROMPT_SECONDS):
            await started.wait()
        with pytest.raises(TurnConflictError):
            await conversations_of(second_tb).run_turn(conversation.id, HELLO, "Quick.", wait=0)
        release.set()
        await turn
        await assert_turn_runs_at_once(second_tb, conversation.id)
        assert_not_interleaved(await load_messages(second_tb, conversation.id))
