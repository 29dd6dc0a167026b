"""Tellback: `recall_by_topic` on chat turns stored verbatim, and `add_atom`; with the default embedder."""

from __future__ import annotations

import gc
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import memory_batches
import protocol
from memory_batches import HITS, USER, Batch, MemoryData, Stores, check_recalls, load_data
from protocol import expect

from tellback import Tellback
from tellback.types.memory import RecallResult

SPACE = "bench"
FILE = "memory.db"
CONVERSATION = 20
"""Turns in one conversation."""
SPEAKERS = {"user": "Ann", "assistant": "Bob"}
CROWD_USER = "crowd"
CROWD_ATOMS = 2
CROWD_TABLES = ("spaces", "atoms", "atom_vectors")
CROWD_COLUMNS = ("user_id", "id", "space_id")


class MemoryLibrary:
    async def open(self, folder: Path, data: MemoryData) -> None:
        self.path = folder / FILE
        self._spaces: dict[str, str] = {}
        self._tb = Tellback(self.path)
        await self._tb.open()

    async def close(self) -> None:
        await self._tb.close()

    async def reopen(self) -> None:
        """Open the file again with empty caches, as in a new process."""
        await self._tb.close()
        self._tb = Tellback(self.path)
        await self._tb.open()

    async def fill(self, user: str, texts: Sequence[str]) -> None:
        """Store conversations and close them, so that they are remembered like chats."""
        handle = self._tb.user(user)
        space_id = await self.space(user)
        for start in range(0, len(texts), CONVERSATION):
            conversation = await handle.conversations.create("chat", metadata={"speakers": SPEAKERS})
            await handle.conversations.append_messages(conversation.id, _turns(texts[start : start + CONVERSATION]))
            await handle.conversations.close(conversation.id)
            await handle.memory.remember_conversation(space_id, conversation.id)
        await self._tb.jobs.drain()

    async def recall(self, user: str, question: str) -> RecallResult:
        return await self._tb.user(user).memory.recall_by_topic(self._spaces[user], question, limit=HITS)

    def hits(self, recalled: Any) -> list[tuple[str, str]]:
        return [(hit.atom.user_id, hit.atom.text) for hit in recalled.hits]

    async def add(self, user: str, text: str) -> None:
        await self._tb.user(user).memory.add_atom(self._spaces[user], text)

    async def space(self, user: str) -> str:
        """Return the user's space, and create it if it does not exist."""
        if user not in self._spaces:
            self._spaces[user] = (await self._tb.user(user).memory.create_space(SPACE, once=True)).id
        return self._spaces[user]


def build_extra_batches(stores: Stores) -> dict[str, Batch]:
    """Return the batches that are measured for Tellback alone."""

    async def first(request: dict[str, Any], count: int) -> dict[str, Any]:
        """Measure the first recall of a process. Importing and opening are not timed."""
        expect("number of first recalls", count, 1)
        library = MemoryLibrary()
        await library.open(Path(request["folder"]), load_data(request["data_folder"]))
        return await _first_recalls(library, _questions(request, request["index"], 1), reopen=False)

    async def dropped(request: dict[str, Any], count: int) -> dict[str, Any]:
        """Measure the first recall of a space in a warm process without cached data of it."""
        library = MemoryLibrary()
        await library.open(stores.library_for(request).path.parent, load_data(request["data_folder"]))  # type: ignore[attr-defined]
        return await _first_recalls(library, stores.next_questions(request, count), reopen=True)

    async def after_add(request: dict[str, Any], count: int) -> dict[str, Any]:
        """Measure a recall directly after an addition, which it has to include."""
        library = stores.library_for(request)
        questions = stores.next_questions(request, count)
        new_memories = stores.next_new_memories(load_data(request["data_folder"]), count)
        walls, cpus, results = [], [], []
        gc.collect()
        for (question, _), (text, _) in zip(questions, new_memories, strict=True):
            await library.add(USER, text)
            await protocol.settle()
            cpu, wall = time.process_time(), time.perf_counter()
            results.append(await library.recall(USER, question))
            walls.append(1000 * (time.perf_counter() - wall))
            cpus.append(1000 * (time.process_time() - cpu))
        return {"cpu_ms": sum(cpus) / count, "walls_ms": walls, "found": check_recalls(library, results, questions)}

    async def crowd(request: dict[str, Any], count: int) -> dict[str, Any]:
        """Add more users to the file."""
        library: Any = stores.library_for(request)
        await library.fill(CROWD_USER, load_data(request["data_folder"]).others[:CROWD_ATOMS])
        await library.close()
        _copy_users(library.path, request["start"], count)
        await library.reopen()
        return {"walls_ms": [0.0]}

    return {"first": first, "dropped": dropped, "after_add": after_add, "crowd": crowd}


async def _first_recalls(
    library: MemoryLibrary, questions: Sequence[tuple[str, str]], *, reopen: bool
) -> dict[str, Any]:
    walls, cpus, results = [], [], []
    for question, _ in questions:
        if reopen:
            await library.reopen()
        await library.space(USER)
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        results.append(await library.recall(USER, question))
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.process_time() - cpu))
    await library.close()
    return {"cpu_ms": sum(cpus) / len(cpus), "walls_ms": walls, "found": check_recalls(library, results, questions)}


def _questions(request: dict[str, Any], start: int, count: int) -> list[tuple[str, str]]:
    data = load_data(request["data_folder"])
    return [(question, data.memories[index]) for question, index in data.questions[request["size"]][start:][:count]]


def _turns(texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]


def _copy_users(path: Path, start: int, count: int) -> None:
    """Copy one user's space to other users by SQL: through the API, 100,000 copies would take minutes."""
    connection = sqlite3.connect(path)
    with connection:
        for table in CROWD_TABLES:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            values = [f"{name} || '-' || n" if name in CROWD_COLUMNS else name for name in columns]
            connection.execute(f"CREATE TEMP TABLE template AS SELECT * FROM {table} WHERE user_id = ?", (CROWD_USER,))
            connection.execute(
                f"WITH RECURSIVE numbers (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?) "
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM numbers, template",
                (start, start + count),
            )
            connection.execute("DROP TABLE template")
    cursor = connection.execute("SELECT count(DISTINCT user_id) FROM atoms WHERE user_id LIKE ?", (f"{CROWD_USER}-%",))
    expect("users in the crowd", cursor.fetchone()[0], start + count)
    connection.close()


if __name__ == "__main__":
    memory_batches.serve(MemoryLibrary, ["tellback"], build_extra_batches)
