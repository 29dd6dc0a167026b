"""Several Tellbacks on one store: the changes of one are recalled by the others."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tellback import Tellback
from tests.integration.memory.helpers import NOON, Clock, assert_valid_result, texts

ROOT = Path(__file__).parents[3]
WORDS = ("added", "deleted", "deleting")
"""The actions that a writing process reports before or after it takes them."""


async def test_changes_of_one_process_are_recalled_by_another(url: str) -> None:
    async with Tellback(url) as first_tb, Tellback(url) as second_tb:
        writer, reader = first_tb.user("maya").memory, second_tb.user("maya").memory
        space = await writer.create_space()
        assert len(await reader.recall_by_topic(space.id, "tea")) == 0

        async def seen(query: str = "tea", **kwargs: Any) -> list[str]:
            return sorted(texts(await reader.recall_by_topic(space.id, query, **kwargs)))

        tea = await writer.add_atom(space.id, "Likes tea.")
        assert await seen() == ["Likes tea."]
        await writer.archive_atom(tea.id)
        assert await seen() == []
        assert await seen(include_archived=True) == ["Likes tea."]
        await writer.restore_atom(tea.id)
        assert await seen() == ["Likes tea."]
        coffee = await writer.supersede_atom(tea.id, "Likes coffee.")
        assert await seen() == ["Likes coffee."]
        ann, bob = [await writer.create_entity(space.id, "PERSON", name) for name in ("Ann", "Bob")]
        await writer.add_atom(space.id, "Sings.", entity_ids=[bob.id])
        assert texts(await reader.recall_by_entity(space.id, "Bob")) == ["Sings."]
        assert (await reader.recall_by_topic(space.id, "Bob")).hits[0].entity_match_bonus > 1
        await writer.merge_entities(ann.id, bob.id)
        assert texts(await reader.recall_by_entity(space.id, "Ann")) == ["Sings."]
        hit = (await reader.recall_by_topic(space.id, "Ann")).hits[0]
        assert (hit.atom.entity_ids, hit.entity_match_bonus) == ((ann.id,), 2.0)
        await writer.delete_atom(coffee.id)
        assert await seen() == ["Likes tea.", "Sings."]
        await reader.add_atom(space.id, "Plays chess.")
        assert len(await writer.recall_timeline(space.id)) == 3
        await writer.delete_space(space.id)
        for awaitable in (reader.recall_by_topic(space.id, "tea"), reader.recall_timeline(space.id)):
            with pytest.raises(Exception, match=space.id):
                await awaitable
        assert len(second_tb._memory.space_cache) == 0


async def test_concurrent_recalls_return_every_acknowledged_write(url: str) -> None:
    clock = Clock()  # the time never changes: new atoms start at the time of every recall
    async with Tellback(url, clock=clock) as first_tb, Tellback(url, clock=clock) as second_tb:
        memories = [first_tb.user("maya").memory, second_tb.user("maya").memory]
        space = await memories[0].create_space()
        home_atom = await memories[0].add_atom(space.id, "Lives at number 0.", {"name": "home", "kind": "FACT"})
        acknowledged: list[str] = []
        doomed: set[str] = set()
        forgotten: set[str] = set()
        home_lock = asyncio.Lock()
        is_running = True

        async def write(number: int) -> None:
            nonlocal home_atom
            memory = memories[number % 2]
            for n in range(12):
                atom = await memory.add_atom(space.id, f"Writer {number} saw heron {n}.")
                acknowledged.append(atom.id)
                if n % 3 == 1:
                    doomed.add(atom.id)
                    await memory.delete_atom(atom.id)
                    forgotten.add(atom.id)
                async with home_lock:
                    home_atom = await memory.supersede_atom(home_atom.id, f"Lives at number {number}{n}.")

        async def recall(number: int) -> None:
            memory = memories[number % 2]
            while is_running:
                expected, deleted = [*acknowledged], {*forgotten}
                result = await memory.recall_by_topic(space.id, "Who saw a heron?", 10_000)
                assert_valid_result(result)
                found = {hit.atom.id for hit in result}
                assert found.issuperset(set(expected) - doomed)
                assert not found & deleted
                homes = [hit.atom.text for hit in result if hit.atom.category.name == "home"]
                assert len(homes) == 1, homes
                listed = await memory.list_atoms(space.id, "home")
                assert len(listed) == 1
                await asyncio.sleep(0)

        readers = [asyncio.create_task(recall(n)) for n in range(3)]
        try:
            async with asyncio.timeout(50):
                await asyncio.gather(*(write(n) for n in range(4)))
                is_running = False
                await asyncio.gather(*readers)
        finally:
            is_running = False
            for task in readers:
                task.cancel()
        final_results = [await memory.recall_by_topic(space.id, "heron", 10_000) for memory in memories]
        assert [len(result) for result in final_results] == [4 * 8 + 1] * 2
        assert final_results[0].atoms[0].id == final_results[1].atoms[0].id


@pytest.mark.parametrize("atoms", [50_000, 3])
async def test_a_recall_sees_a_concurrent_supersede_completely_or_not_at_all(
    ready_postgres_url: str, monkeypatch: pytest.MonkeyPatch, atoms: int
) -> None:
    """Another Tellback commits between any two statements of a recall."""
    clock = Clock()
    async with (
        Tellback(ready_postgres_url, embedder=None, clock=clock, memory_atoms=atoms) as reading,
        Tellback(ready_postgres_url, embedder=None, clock=clock) as writing,
    ):
        memory, writer = reading.user("maya").memory, writing.user("maya").memory
        space = await memory.create_space()
        home_atom = await writer.add_atom(space.id, "Lives at number 0.")
        engine: Any = reading.store.memories._engine
        run = engine._run
        for number in range(1, 10):
            await memory.recall_by_topic(space.id, "Lives where?")
            await writer.add_atom(space.id, f"Saw heron {number}.")
            statements = 0

            async def supersede_meanwhile(number: int = number) -> None:
                nonlocal home_atom, statements
                statements += 1
                if statements == number:
                    home_atom = await writer.supersede_atom(home_atom.id, f"Lives at number {number}.")

            async def interrupted(connection: Any, *args: Any, supersede_meanwhile: Any = supersede_meanwhile) -> Any:
                return await run(_Interrupted(connection, supersede_meanwhile), *args)

            monkeypatch.setattr(engine, "_run", interrupted)
            result = await memory.recall_by_topic(space.id, "Lives where?", 1000)
            monkeypatch.undo()
            assert len([text for text in texts(result) if text.startswith("Lives")]) == 1, (number, texts(result))
        assert home_atom.text != "Lives at number 0."


class _Interrupted:
    """A connection that runs a function after each statement."""

    def __init__(self, connection: Any, on_fetch: Any) -> None:
        self._connection = connection
        self._on_fetch = on_fetch

    async def fetch(self, *args: Any, **options: Any) -> Any:
        rows = await self._connection.fetch(*args, **options)
        await self._on_fetch()
        return rows


async def _killed_writer(url: str, space_id: str, wait: float) -> list[dict[str, Any]]:
    """Run a process that writes until it is killed; return what it had acknowledged."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.memory.writer_process",
        url,
        space_id,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        limit=2**22,
    )
    assert process.stdout is not None
    outputs: list[dict[str, Any]] = []
    first = asyncio.Event()

    async def collect_outputs() -> None:
        assert process.stdout is not None
        while (line := await process.stdout.readline()).endswith(b"\n"):
            outputs.append(json.loads(line))
            first.set()

    listening = asyncio.create_task(collect_outputs())
    try:
        await asyncio.wait_for(first.wait(), 30)
        await asyncio.sleep(wait)
    finally:
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
        await listening
        await process.wait()
    return outputs


async def test_recall_is_correct_after_a_writer_is_killed(url: str) -> None:
    rng = random.Random()
    async with Tellback(url) as tb:
        memory = tb.user("maya").memory
        space = await memory.create_space()
        await memory.add_atom(space.id, "Lives at number 0.", {"name": "home", "kind": "FACT"}, valid_from=NOON)
        for _ in range(2):
            outputs = await _killed_writer(url, space.id, rng.uniform(0.0, 0.5))
            result = await memory.recall_by_topic(space.id, "heron", 100_000)
            assert_valid_result(result)
            found = {hit.atom.id for hit in result}
            added, deleted, deleting = ({each[key] for each in outputs if key in each} for key in WORDS)
            assert found.issuperset(added - deleting)
            assert not found & deleted
            assert len([hit for hit in result if hit.atom.category.name == "home"]) == 1
            async with Tellback(url) as other:
                fresh_result = await other.user("maya").memory.recall_by_topic(space.id, "heron", 100_000)
            assert {hit.atom.id for hit in fresh_result} == found
            await memory.add_atom(space.id, "Saw another heron.")
            assert len(await memory.recall_by_topic(space.id, "heron", 100_000)) == len(found) + 1
