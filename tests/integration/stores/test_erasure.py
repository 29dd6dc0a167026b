"""After an erasure no data of the user is left: in no table of any store, and in no byte of SQLite's files."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tellback import Tellback
from tellback.errors import StoreBusyError
from tellback.stores.values import COLLECTIONS
from tellback.types.jobs import ANY, ConversationScope
from tellback.user import User
from tests.support.user_data import count_in_files, create_binding, create_user_data, read_rows

ROOT = Path(__file__).parents[3]
WORD = "Qwyzzyx"
MAYA = "maya-the-erased-one"

USERS = [f"person{number:02}x" for number in range(6)]


class RandomUsers:
    """Users who write random texts of all lengths that contain their names."""

    def __init__(self, tb: Tellback, seed: int) -> None:
        self.tb = tb
        self.names = list(USERS)
        self.rng = random.Random(seed)
        self.conversation_ids: dict[str, list[str]] = {name: [] for name in USERS}
        self.spaces: dict[str, list[str]] = {name: [] for name in USERS}
        self.atoms: dict[str, list[str]] = {name: [] for name in USERS}

    def text(self, name: str) -> str:
        length = self.rng.choice([1, 2, 5, 20, 60, 250, 900])
        return " ".join(f"{name}-{self.rng.getrandbits(32):08x}" for _ in range(length))

    async def run_random_action(self) -> None:
        name = self.rng.choice(self.names)
        user = self.tb.user(name)
        conversations, spaces, atoms = self.conversation_ids[name], self.spaces[name], self.atoms[name]
        if not conversations or not spaces or self.rng.random() < 0.04:
            conversations.append((await user.conversations.create(name, self.text(name)[:200])).id)
            spaces.append((await user.memory.create_space(self.text(name)[:60])).id)
            return
        actions: list[Callable[[], Awaitable[Any]]] = [
            lambda: self.append_message(user, self.rng.choice(conversations)),
            lambda: self.save_summary(user, self.rng.choice(conversations)),
            lambda: self.add_atom(user, self.rng.choice(spaces)),
            lambda: user.memory.create_entity(self.rng.choice(spaces), "PERSON", self.text(name)[:80]),
        ]
        if atoms:
            actions += [lambda: self.supersede_atom(user), lambda: user.memory.archive_atom(self.rng.choice(atoms))]
        await self.rng.choice(actions)()

    async def append_message(self, user: User, conversation: str) -> None:
        text = self.text(user.scope.user_id)
        await user.conversations.append_user_message(conversation, text, idempotency_key=text[:40])

    async def save_summary(self, user: User, id: str) -> None:
        conversation = await user.conversations.get(id)
        assert conversation is not None
        await self.tb.store.conversations.save_summary(
            user.scope,
            id,
            self.text(user.scope.user_id),
            until_seq=conversation.rolling_summary_until_seq + 1,
            turns=1,
            expected_seq=conversation.rolling_summary_until_seq,
            now=self.tb.clock(),
        )

    async def add_atom(self, user: User, space: str) -> None:
        name = user.scope.user_id
        atom = await user.memory.add_atom(space, self.text(name), (self.text(name)[:30], "FACT"))
        self.atoms[name].append(atom.id)

    async def supersede_atom(self, user: User) -> None:
        atoms = self.atoms[user.scope.user_id]
        old = atoms.pop(self.rng.randrange(len(atoms)))
        atoms.append((await user.memory.supersede_atom(old, self.text(user.scope.user_id))).id)


@pytest.mark.parametrize("seed", range(3))
async def test_no_byte_of_an_erased_user_is_left_in_the_files(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path, embedder=None, worker=False) as tb:
        random_users = RandomUsers(tb, seed)
        for _ in range(80):
            await asyncio.gather(*(random_users.run_random_action() for _ in range(15)))
        erased, *others = USERS
        assert count_in_files(path, erased)
        exports_before = [await tb.user(name).admin.export_user_data() for name in others]
        await tb.user(erased).admin.delete_user_data(confirm=True)
        assert count_in_files(path, erased) == {}
        random_users.names.remove(erased)
        for _ in range(5):  # and it does not reappear from a cache
            await asyncio.gather(*(random_users.run_random_action() for _ in range(15)))
        await tb.user(others[0]).admin.delete_user_data(confirm=True)
        assert count_in_files(path, erased, others[0]) == {}
        remaining = await tb.user(others[-1]).admin.export_user_data()
        assert len(remaining["events"]) >= len(exports_before[-1]["events"]) > 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


async def everything(url: str) -> dict[str, str]:
    """Return every table of a store as text."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        return {table: repr(rows) for table, rows in read_rows(path).items()}
    connection = await asyncpg.connect(url)
    try:
        tables_query = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = 'tellback'"
        found = {}
        for schema, table in await connection.fetch(tables_query):
            rows = await connection.fetch(f'SELECT t::text FROM "{schema}"."{table}" AS t')
            found[table] = repr([row[0] for row in rows])
        return found
    finally:
        await connection.close()


async def test_no_table_contains_data_of_an_erased_user(url: str) -> None:
    async with Tellback(url, worker=False) as tb:
        maya, omar = tb.user(MAYA), tb.user("omar")
        await create_user_data(tb, maya, WORD)
        await create_user_data(tb, omar, "Oslo")
        await create_binding(tb.store, omar.scope, ConversationScope("chat", MAYA), ConversationScope("chat", "omar"))
        await create_binding(tb.store, maya.scope, ConversationScope("chat", ANY))
        tables = await everything(url)
        assert {table for table, rows in tables.items() if MAYA in rows or WORD in rows} >= {
            *(
                "conversations",
                "messages",
                "events",
                "spaces",
                "atoms",
                "atom_validity_ends",
                "atom_vectors",
                "entities",
            ),
            *("entity_names", "atom_entities", "bindings", "jobs", "usage", "api_keys", "idempotent_responses"),
        }
        await maya.admin.delete_user_data(confirm=True)
        tables = await everything(url)
    assert [table for table, rows in tables.items() if MAYA in rows or WORD.lower() in rows.lower()] == []
    assert all("omar" in tables[table] for table in ("conversations", "messages", "events", "atoms", "bindings"))


CRASHING_PROGRAM = """
import asyncio, os, sys
from tellback import Tellback
from tellback.stores.engine import run_in_scope
from tellback.stores.operations.user_data import erase_user

async def main(path, name):
    tb = await Tellback(path, worker=False).open()
    scope = tb.user(name).scope
    await tb.store._engine.write(None, lambda: run_in_scope(scope, erase_user(scope, 1, True)))
    os._exit(7)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_the_next_opening_wipes_the_file_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path, worker=False) as tb:
        await create_user_data(tb, tb.user(MAYA), WORD)
        await create_user_data(tb, tb.user("omar"), "Oslo")
    command = [sys.executable, "-c", CRASHING_PROGRAM, str(path), MAYA]
    completed = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, timeout=40, check=False)
    assert completed.returncode == 7
    assert count_in_files(path, MAYA, WORD)
    async with Tellback(path, worker=False) as tb:
        await tb.user("omar").conversations.create("chat")  # runs after the writer's startup work
        assert count_in_files(path, MAYA, WORD) == {}
        assert set((await tb.user(MAYA).admin.delete_user_data(confirm=True)).values()) == {0}


async def test_a_reader_that_blocks_wiping_is_reported_and_erasing_again_finishes(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(f"sqlite:///{path}?busy_timeout=0.5", worker=False) as tb:
        maya = tb.user(MAYA)
        await create_user_data(tb, maya, WORD)
        await create_user_data(tb, tb.user("omar"), "Oslo")
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT COUNT(*) FROM messages").fetchall()
            with pytest.raises(StoreBusyError, match=r"rows are deleted.*bytes"):
                await maya.admin.delete_user_data(confirm=True)
            export = await maya.admin.export_user_data()
            assert not any(export[name] for name in COLLECTIONS if name != "messages")
            assert count_in_files(path, MAYA, WORD)
            await tb.user("omar").conversations.create("chat")  # other writers are not blocked
            reader.execute("COMMIT")
        assert set((await maya.admin.delete_user_data(confirm=True)).values()) == {0}
        assert count_in_files(path, MAYA, WORD) == {}
    assert dict(read_rows(path)["platform_state"])["wipe"] % 3 == 0


async def test_other_users_read_and_write_during_an_erasure(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path, worker=False) as tb, Tellback(path, worker=False) as other:
        await create_user_data(tb, tb.user(MAYA), WORD)
        conversation = await tb.user("omar").conversations.create("chat")
        erased_event = asyncio.Event()

        async def write(writer_tb: Tellback) -> int:
            write_count = 0
            while not erased_event.is_set() or not write_count:
                await writer_tb.user("omar").conversations.append_user_message(conversation.id, "Hello " * 50)
                assert await writer_tb.user("omar").conversations.messages(conversation.id, limit=1)
                write_count += 1
            return write_count

        writers = [asyncio.create_task(write(writer_tb)) for writer_tb in (tb, tb, other)]
        await asyncio.sleep(0.1)
        await tb.user(MAYA).admin.delete_user_data(confirm=True)
        erased_event.set()
        write_counts = await asyncio.gather(*writers)
        assert count_in_files(path, MAYA, WORD) == {}
        messages = await tb.user("omar").conversations.messages(conversation.id, limit=None)
        assert [message.seq for message in messages] == list(range(1, sum(write_counts) + 1))


async def test_two_processes_can_erase_concurrently(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path, worker=False) as tb, Tellback(path, worker=False) as other:
        names = [f"{MAYA}-{number}" for number in range(6)]
        for name in names:
            await create_user_data(tb, tb.user(name), WORD)
        await asyncio.gather(
            *(
                tellback.user(name).admin.delete_user_data(confirm=True)
                for tellback, name in zip([tb, other] * 3, names, strict=True)
            )
        )
        assert count_in_files(path, MAYA, WORD) == {}
        assert len(await tb.events.read(types=["user.erased"])) == 6
    assert dict(read_rows(path)["platform_state"])["wipe"] % 3 == 0


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["json", "zip"])
async def test_a_large_export_takes_little_memory(tmp_path: Path, suffix: str) -> None:
    async with Tellback(tmp_path / "tellback.db", embedder=None, worker=False) as tb:
        maya = tb.user(MAYA)
        conversation = await maya.conversations.create("chat")
        words = " ".join(str(number) for number in range(500))
        for start in range(0, 8_000, 1_000):
            texts = [{"role": "user", "content": f"{number} {words}"} for number in range(start, start + 1_000)]
            await maya.conversations.append_messages(conversation.id, texts)
        path = tmp_path / f"maya.{suffix}"
        tracemalloc.start()
        report = await maya.admin.export_user_data(to=path)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert report.counts["messages"] == 8_000
    assert peak_bytes < 8_000_000, f"{peak_bytes:,} bytes for {path.stat().st_size:,}"
    if suffix == "json":
        assert path.stat().st_size > 15_000_000
        with path.open(encoding="utf-8") as file:
            assert len(json.load(file)["conversations"][0]["messages"]) == 8_000
