"""The space cache of a process: bounded, loaded once, and correct after any failure."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tellback import Tellback
from tellback.errors import NotFoundError, StoreUnavailableError
from tellback.memory import recall_service
from tellback.memory import space_view as views_module
from tellback.memory.space_view import SpaceView
from tellback.stores import SpaceChanges
from tests.integration.memory.helpers import assert_valid_result, texts


async def create_filled_space(tb: Tellback, count: int, name: str = "maya") -> tuple[Any, str]:
    memory = tb.user(name).memory
    space = await memory.create_space()
    await memory.add_atoms(space.id, [{"text": f"{name} saw heron {n} by lake {n % 7}."} for n in range(count)])
    return memory, space.id


def count_reads(tb: Tellback, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the versions from which changes are loaded."""
    refreshes: list[int] = []
    memories: Any = tb.store.memories
    changes = memories.changes

    async def counting(*args: Any, **kwargs: Any) -> Any:
        refreshes.append(kwargs["after"])
        return await changes(*args, **kwargs)

    monkeypatch.setattr(memories, "changes", counting)
    return refreshes


async def test_the_cache_stays_within_its_bound_and_evicted_spaces_still_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path) as tb:
        memory, space = await create_filled_space(tb, 50)
        await memory.recall_by_topic(space, "heron")
        space_bytes = tb._memory.space_cache.nbytes
        assert space_bytes > 50 * 256 * 2  # the size of the vectors alone
    max_bytes = 4 * space_bytes
    async with Tellback(path, memory_bytes=max_bytes) as tb:
        spaces = [await create_filled_space(tb, 50, f"user {n}") for n in range(12)]
        space_cache = tb._memory.space_cache
        for _ in range(2):
            for n, (memory, space) in enumerate(spaces):
                result = await memory.recall_by_topic(space, "heron 7", 100)
                assert_valid_result(result)
                assert len(result) == 50
                assert all(text.startswith(f"user {n} ") for text in texts(result))
                assert space_cache.nbytes <= max_bytes
        assert 1 <= len(space_cache) <= 5
        refreshes = count_reads(tb, monkeypatch)
        for memory, space in spaces[-2:]:  # the spaces used last are cached
            await memory.recall_by_topic(space, "heron 7")
        assert refreshes == []
        memory, space = spaces[0]
        await memory.recall_by_topic(space, "heron 7")
        assert refreshes == [-1]
        for memory, space in (spaces[-1], spaces[0]):  # a used space stays, and others are evicted first
            await memory.recall_by_topic(space, "heron 7")
        assert refreshes == [-1]
    for bytes in (0, 1):
        async with Tellback(path, memory_bytes=bytes) as tb:
            for memory, space in [await create_filled_space(tb, 20, f"{bytes} {n}") for n in range(3)]:
                assert len(await memory.recall_by_topic(space, "heron", 100)) == 20
            assert len(tb._memory.space_cache) <= 1


async def test_the_size_of_a_growing_space_is_updated(tmp_path: Path) -> None:
    async with Tellback(tmp_path / "tellback.db") as tb:
        memory, space = await create_filled_space(tb, 10)
        sizes = []
        for _ in range(4):
            await memory.recall_by_topic(space, "heron")
            sizes.append(tb._memory.space_cache.nbytes)
            await memory.add_atoms(space, [{"text": "word " * 200}] * 100)
        assert sizes == sorted(sizes)
        assert sizes[-1] > sizes[0] + 300 * 1000
        await memory.delete_space(space)
        with pytest.raises(NotFoundError):
            await memory.recall_by_topic(space, "heron")
        assert (tb._memory.space_cache.nbytes, len(tb._memory.space_cache)) == (0, 0)
        for n in range(20):
            with pytest.raises(NotFoundError):
                await memory.recall_by_topic(f"ms_{n}", "heron")
        assert len(tb._memory.space_cache) == 0


async def test_concurrent_first_recalls_load_a_space_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Tellback(tmp_path / "tellback.db") as tb:
        memory, space = await create_filled_space(tb, 400)
        refreshes = count_reads(tb, monkeypatch)
        results = await asyncio.gather(*(memory.recall_by_topic(space, f"heron {n}", 3) for n in range(50)))
        assert refreshes == [-1]
        assert all(len(result) == 3 and result.total_candidates == 400 for result in results)
        for n, result in enumerate(results):
            assert f"heron {n} " in result.atoms[0].text


async def test_a_space_is_usable_after_a_recall_is_cancelled_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path) as tb:
        _, space = await create_filled_space(tb, 600)
    for wait in (0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.03):
        async with Tellback(path) as tb:
            memory = tb.user("maya").memory
            tasks = [asyncio.create_task(memory.recall_by_topic(space, "heron 5")) for _ in range(3)]
            await asyncio.sleep(wait)
            tasks[0].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results[1:]:
                assert not isinstance(result, BaseException)
                assert result.total_candidates == 600
            assert len(await memory.recall_by_topic(space, "heron 5", 1000)) == 600
            assert len(tb._memory.space_cache) == 1


async def test_waiting_recalls_load_the_space_again_after_a_failed_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = SpaceView.apply
    failures = 2

    def failing(self: SpaceView, changes: SpaceChanges) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            # Half of the changes are applied, as if memory had run out.
            apply(self, SpaceChanges(-1, changes.last_seq, changes.atoms[: len(changes.atoms) // 2]))
            self.rows.pop()
            raise MemoryError("no more")
        apply(self, changes)

    monkeypatch.setattr(SpaceView, "apply", failing)
    async with Tellback(tmp_path / "tellback.db") as tb:
        memory, space = await create_filled_space(tb, 20)
        results = await asyncio.gather(
            *(memory.recall_by_topic(space, "heron 5", 100) for _ in range(5)), return_exceptions=True
        )
        assert [type(result) for result in results[:2]] == [MemoryError, MemoryError]
        for result in results[2:]:
            assert not isinstance(result, BaseException), result
            assert len(result) == 20
            assert_valid_result(result)
        assert len(await memory.recall_by_topic(space, "heron 5", 100)) == 20


async def test_a_store_error_is_raised_and_the_next_recall_is_correct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Tellback(tmp_path / "tellback.db") as tb:
        memory, space = await create_filled_space(tb, 30)
        await memory.recall_by_topic(space, "heron")
        memories: Any = tb.store.memories

        async def unavailable(*args: Any, **kwargs: Any) -> Any:
            raise StoreUnavailableError("gone for lunch")

        for method in ("version", "changes"):
            await memory.add_atom(space, "Saw a swan.")
            with monkeypatch.context() as broken:
                broken.setattr(memories, method, unavailable)
                for awaitable in (
                    memory.recall_by_topic(space, "heron"),
                    memory.recall_by_entity(space, "heron"),
                    memory.recall_timeline(space),
                ):
                    with pytest.raises(StoreUnavailableError):
                        await awaitable
            result = await memory.recall_by_topic(space, "swan", 100)
            assert result.atoms[0].text == "Saw a swan."
        assert result.total_candidates == 32


async def test_a_cancelled_recall_does_not_evict_the_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Tellback(tmp_path / "tellback.db") as tb:
        memory, space = await create_filled_space(tb, 30)
        await memory.recall_by_topic(space, "heron")
        memories: Any = tb.store.memories
        changes = memories.changes
        release = asyncio.Event()

        async def slow(*args: Any, **kwargs: Any) -> Any:
            await release.wait()
            return await changes(*args, **kwargs)

        await memory.add_atom(space, "Saw a swan.")
        with monkeypatch.context() as slowed:
            slowed.setattr(memories, "changes", slow)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(memory.recall_by_topic(space, "swan"), 0.01)
        refreshes = count_reads(tb, monkeypatch)
        assert (await memory.recall_by_topic(space, "swan")).atoms[0].text == "Saw a swan."
        assert len(refreshes) == 1
        assert refreshes[0] > 0


async def test_a_large_change_does_not_block_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views_module, "INLINE_ATOMS", 10)
    async with Tellback(tmp_path / "tellback.db") as tb:
        memory, space = await create_filled_space(tb, 300)
        other, small = await create_filled_space(tb, 3, "ben")
        large_result, small_result = await asyncio.gather(
            memory.recall_by_topic(space, "heron 9", 1000), other.recall_by_topic(small, "heron")
        )
        assert (len(large_result), len(small_result)) == (300, 3)
        await tb.close()
        assert tb._memory.space_cache.nbytes == 0
        await tb.open()
        assert len(await memory.recall_by_topic(space, "heron 9", 1000)) == 300


async def test_the_size_is_updated_even_if_ranking_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Tellback(tmp_path / "tellback.db") as tb:
        memory, space = await create_filled_space(tb, 30)

        def failing(*args: Any) -> Any:
            raise ZeroDivisionError

        with monkeypatch.context() as broken:
            broken.setattr(recall_service, "_top_rows", failing)
            with pytest.raises(ZeroDivisionError):
                await memory.recall_by_topic(space, "heron")
        assert len(tb._memory.space_cache) == 1
        assert tb._memory.space_cache.nbytes > 30 * 256 * 2
        assert len(await memory.recall_by_topic(space, "heron", 100)) == 30


async def test_several_event_loops_share_one_tellback(tmp_path: Path) -> None:
    async with Tellback(tmp_path / "r.db") as tb:
        memory = tb.user("maya").memory
        space = await memory.create_space()
        await memory.add_atoms(space.id, [{"text": f"Saw {n} herons by the lake."} for n in range(50)])

        async def recalls(name: str) -> list[str]:
            loop_memory = tb.user("maya").memory
            for n in range(15):
                await loop_memory.add_atom(space.id, f"{name} swam {n} miles.")
                await asyncio.gather(*(loop_memory.recall_by_topic(space.id, "herons") for _ in range(4)))
            return texts(await loop_memory.recall_by_topic(space.id, f"{name} swam", limit=100))

        found = await asyncio.gather(*(asyncio.to_thread(asyncio.run, recalls(name)) for name in ("Ann", "Bob", "Eve")))
        for name, recalled_texts in zip(("Ann", "Bob", "Eve"), found, strict=True):
            assert {f"{name} swam {n} miles." for n in range(15)} <= set(recalled_texts)
        assert len(await memory.recall_by_topic(space.id, "swam", limit=1_000)) == 95
