"""Embedders that change, fail and recover: nothing is lost, and vectors of different embedders are never compared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tellback import Tellback
from tellback.embed.vectors import Vectors
from tellback.errors import EmbeddingError, StoreError
from tests.integration.memory.helpers import (
    HashEmbedder,
    assert_same_result,
    assert_valid_result,
    embedding_error,
    texts,
)

TEXTS = [f"{name} saw {thing} by the lake." for name in ("Ann", "Bob", "Eve") for thing in ("herons", "boats", "swans")]


async def create_space_with_atoms(tb: Tellback, user: str = "maya") -> str:
    memory = tb.user(user).memory
    space = await memory.create_space()
    await memory.add_atoms(space.id, [{"text": text} for text in TEXTS])
    return space.id


async def assert_found_by_words(tb: Tellback, space: str) -> None:
    """Check that every atom is still the best answer to its own words."""
    memory = tb.user("maya").memory
    for text in TEXTS:
        result = await memory.recall_by_topic(space, text, 100)
        assert_valid_result(result)
        assert result.total_candidates == len(result)
        assert result.atoms[0].text == text


async def vector_counts(tb: Tellback, space: str) -> dict[str, int]:
    """Return how many atoms have vectors, by embedder."""
    scope = tb.user("maya").scope
    found = {}
    for name in ("old", "new", "newer"):
        changes = await tb.store.memories.changes(scope, space, after=-1, embedder=name)
        if changes.vectors:
            found[name] = len(changes.vectors)
    return found


@pytest.mark.parametrize("dimensions", [16, 5])
async def test_texts_are_embedded_again_in_the_background_after_a_change_of_embedder(url: str, dimensions: int) -> None:
    async with Tellback(url, embedder=HashEmbedder("old", 16)) as tb:
        space = await create_space_with_atoms(tb)
        await assert_found_by_words(tb, space)
        assert await vector_counts(tb, space) == {"old": 9}
    new = HashEmbedder("new", dimensions)
    async with Tellback(url, embedder=new) as tb:
        memory = tb.user("maya").memory
        await memory.add_atom(space, "Ann keeps bees.")
        assert await vector_counts(tb, space) == {"old": 9, "new": 1}
        new.gate = asyncio.Event()  # re-embedding waits, and so does every query
        recalls = [asyncio.create_task(memory.recall_by_topic(space, text, 100)) for text in TEXTS]
        await asyncio.sleep(0)
        new.gate.set()
        for text, result in zip(TEXTS, await asyncio.gather(*recalls), strict=True):
            assert result.atoms[0].text == text
            assert len(result) == 10
        await tb.jobs.drain()
        assert await vector_counts(tb, space) == {"old": 9, "new": 10}
        assert sorted(new.embedded) == sorted([*TEXTS, "Ann keeps bees."])  # each once
        warm = await memory.recall_by_topic(space, "herons", 100)
        async with Tellback(url, embedder=HashEmbedder("new", dimensions)) as other:
            cold = await other.user("maya").memory.recall_by_topic(space, "herons", 100, now=None)
        assert {hit.atom.id for hit in warm} == {hit.atom.id for hit in cold}
        assert any(hit.parts.get("meaning") for hit in warm)
        await tb.jobs.drain()
        assert len(new.embedded) == 10


async def test_two_embedders_on_one_store_embed_each_text_once(url: str) -> None:
    old_embedder, new_embedder = HashEmbedder("old", 16), HashEmbedder("new", 5)
    async with Tellback(url, embedder=old_embedder) as first, Tellback(url, embedder=new_embedder) as second:
        space = await create_space_with_atoms(first)
        expected_texts = list(TEXTS)
        for n in range(3):
            for writer, reader in ((first, second), (second, first)):
                expected_texts.append(f"{n} more boats, {'old' if writer is first else 'new'}.")
                await writer.user("maya").memory.add_atom(space, expected_texts[-1])
                for tb in (reader, writer):
                    await tb.user("maya").memory.recall_by_topic(space, "boats", 100)
                    await tb.jobs.drain()
        assert sorted(old_embedder.embedded) == sorted(new_embedder.embedded) == sorted(expected_texts)
        assert await vector_counts(first, space) == {"old": 15, "new": 15}
        for tb in (first, second):
            result = await tb.user("maya").memory.recall_by_topic(space, "swans", 100)
            assert any(hit.parts.get("meaning") for hit in result)


async def test_forget_others_deletes_other_vectors_once_all_texts_are_embedded(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "tellback")
    async with Tellback(url, embedder=HashEmbedder("old")) as tb:
        space = await create_space_with_atoms(tb)
        await create_space_with_atoms(tb, "ben")
    new = HashEmbedder("new")
    async with Tellback(url, embedder=new) as tb:
        new.error = embedding_error()
        with pytest.raises(EmbeddingError):
            await tb.reembed(forget_others=True)
        assert await vector_counts(tb, space) == {"old": 9}
        new.error = None
        assert await tb.reembed() == 18
        assert await vector_counts(tb, space) == {"old": 9, "new": 9}
        assert await tb.reembed(forget_others=True) == 0
        assert await vector_counts(tb, space) == {"new": 9}
        await assert_found_by_words(tb, space)
        assert len(new.embedded) == 18


async def test_vectors_of_another_embedder_are_never_compared(tmp_path: Path) -> None:
    """Old vectors are the opposite of the new ones: no score may contain a trace of them."""
    path = tmp_path / "tellback.db"

    class NegatingEmbedder(HashEmbedder):
        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
            return -(await super().embed(texts, query=query))

    async with Tellback(path, embedder=NegatingEmbedder("old")) as tb:
        space = await create_space_with_atoms(tb)
    async with Tellback(path, embedder=HashEmbedder("new"), worker=False) as mixed:
        result_before = await mixed.user("maya").memory.recall_by_topic(space, "Bob herons", 100)
        assert not any(hit.parts.get("meaning") for hit in result_before)
        assert await mixed.reembed() == 9
        after = await mixed.user("maya").memory.recall_by_topic(space, "Bob herons", 100)
        assert any(hit.parts.get("meaning") for hit in after)
        async with Tellback(path, embedder=HashEmbedder("new"), clock=mixed.clock) as reopened:
            result_after = await reopened.user("maya").memory.recall_by_topic(space, "Bob herons", 100)
        assert [hit.atom.id for hit in result_after] == [hit.atom.id for hit in after]


async def test_all_texts_can_be_embedded_in_one_call_with_progress(url: str) -> None:
    async with Tellback(url, embedder=HashEmbedder("old")) as tb:
        spaces = [await create_space_with_atoms(tb, f"user {n}") for n in range(3)]
        deleted_atoms = await tb.user("user 0").memory.list_atoms(spaces[0], limit=1)
        await tb.user("user 0").memory.delete_atom(deleted_atoms[0].id)
        await tb.user("user 2").memory.delete_space(spaces[2])
    new = HashEmbedder("new")
    async with Tellback(url, embedder=new) as tb:
        progress: list[int] = []
        assert await tb.reembed(progress.append) == 17
        assert progress == sorted(progress)
        assert progress[-1] == 17
        assert len(new.embedded) == 17
        assert deleted_atoms[0].text not in new.embedded[:8]
        assert await tb.reembed(progress.append) == 0
    async with Tellback(url, embedder=None) as tb:
        assert await tb.reembed() == 0


async def test_a_deleted_atom_without_a_vector_does_not_trigger_backfills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path, embedder=HashEmbedder("old")) as tb:
        space = await create_space_with_atoms(tb)
        memory = tb.user("maya").memory
        [last_atom] = await memory.list_atoms(space, limit=1)
        await memory.delete_atom(last_atom.id)
    async with Tellback(path, embedder=HashEmbedder("new")) as tb:
        memory = tb.user("maya").memory
        await memory.recall_by_topic(space, "herons")
        await tb.jobs.drain()
        started: list[str] = []
        start = tb.jobs.start

        def counting(function: Any, name: str) -> Any:
            started.append(name)
            return start(function, name)

        monkeypatch.setattr(tb.jobs, "start", counting)
        for _ in range(3):
            await memory.recall_by_topic(space, "herons")
            await tb.jobs.drain()
        assert started == []


async def test_without_a_worker_nothing_is_embedded_in_the_background(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path, embedder=HashEmbedder("old")) as tb:
        space = await create_space_with_atoms(tb)
    new = HashEmbedder("new")
    async with Tellback(path, embedder=new, worker=False) as tb:
        await assert_found_by_words(tb, space)
        await tb.jobs.drain()
        assert new.embedded == []
        assert await vector_counts(tb, space) == {"old": 9}


async def test_a_failing_embedder_loses_no_atoms(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "tellback")
    embedder = HashEmbedder("new")
    async with Tellback(url, embedder=embedder) as tb:
        memory = tb.user("maya").memory
        embedder.error = embedding_error()
        space = await create_space_with_atoms(tb)  # stored without vectors
        [first] = await memory.list_atoms(space, limit=1)
        moved = await memory.supersede_atom(first.id, "Eve saw nothing at all.")
        await memory.supersede_atom(moved.id, first.text)
        await assert_found_by_words(tb, space)  # queried without vectors; the backfill fails too
        await tb.jobs.drain()
        assert await vector_counts(tb, space) == {}
        embedder.error = None
        await assert_found_by_words(tb, space)
        assert await tb.reembed() == 11
        assert await vector_counts(tb, space) == {"new": 11}
        await assert_found_by_words(tb, space)
        result = await memory.recall_by_topic(space, "swans", 100)
        assert any(hit.parts.get("meaning") for hit in result)


async def test_a_failed_backfill_is_retried_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tellback.memory import embedding

    caplog.set_level(logging.CRITICAL, "tellback")
    embedder = HashEmbedder("new")
    async with Tellback(tmp_path / "tellback.db", embedder=embedder) as tb:
        embedder.error = embedding_error()
        space = await create_space_with_atoms(tb)
        memory = tb.user("maya").memory
        await memory.recall_by_topic(space, "herons")
        await tb.jobs.drain()
        embedder.error = None
        await memory.recall_by_topic(space, "herons")
        await tb.jobs.drain()
        assert embedder.embedded == []  # still pausing
        monkeypatch.setattr(embedding, "BACKOFF_SECONDS", -1.0)
        tb._memory.embedding._paused_until.clear()
        await memory.recall_by_topic(space, "herons")
        await tb.jobs.drain()
        assert sorted(embedder.embedded) == sorted(TEXTS)


async def test_an_unexpected_embedder_error_is_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    embedder = HashEmbedder("new")
    async with Tellback(tmp_path / "tellback.db", embedder=embedder) as tb:
        space = await create_space_with_atoms(tb)
        memory = tb.user("maya").memory
        [first] = await memory.list_atoms(space, limit=1)
        events = len(await tb.events.read(limit=1000))
        embedder.error = ZeroDivisionError("a bug")
        for awaitable in (
            memory.add_atom(space, "Likes tea."),
            memory.add_atoms(space, [{"text": "Likes tea."}]),
            memory.supersede_atom(first.id, "Likes tea."),
            memory.recall_by_topic(space, "tea"),
            memory.recall_timeline(space, query="tea"),
        ):
            with pytest.raises(ZeroDivisionError):
                await awaitable
        assert len(await memory.recall_by_entity(space, "Ann")) == 3  # needs no vectors
        assert len(await tb.events.read(limit=1000)) == events
        embedder.error = None
        assert await tb.reembed() == 0
        await assert_found_by_words(tb, space)
    other = HashEmbedder("newer")
    async with Tellback(tmp_path / "tellback.db", embedder=other) as tb:
        memory = tb.user("maya").memory
        other.error = ZeroDivisionError("a bug")
        with pytest.raises(ZeroDivisionError):
            await tb.reembed()
        tb._memory.embedding.schedule_backfill(tb.user("maya").scope, space)
        await tb.jobs.drain()
        assert "Background task failed" in caplog.text
        other.error = None
        await memory.recall_by_topic(space, "tea")
        await tb.jobs.drain()
        assert await vector_counts(tb, space) == {"new": 9}  # still pausing
        tb._memory.embedding._paused_until.clear()
        await memory.recall_by_topic(space, "tea")
        await tb.jobs.drain()
        assert await vector_counts(tb, space) == {"new": 9, "newer": 9}


class RejectingEmbedder(HashEmbedder):
    """Rejects texts with a given word, and all other texts of the same call."""

    calls = 0

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        self.calls += 1
        if any("rejected" in text for text in texts):
            raise EmbeddingError("I do not like this")
        return await super().embed(texts, query=query)


async def test_a_rejected_text_does_not_prevent_other_vectors(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tellback")
    many_texts = [f"Otters, {n} of them." for n in range(300)]
    many_texts[3] = many_texts[299] = many_texts[150] = "A rejected text."
    async with Tellback(url, embedder=None) as tb:
        memory = tb.user("maya").memory
        space = (await memory.create_space()).id
        await memory.add_atoms(space, [{"text": text} for text in many_texts])
    embedder = RejectingEmbedder("new")
    async with Tellback(url, embedder=embedder) as tb:
        memory = tb.user("maya").memory
        await memory.recall_by_topic(space, "otters")
        await tb.jobs.drain()
        assert await vector_counts(tb, space) == {"new": 297}
        assert len(embedder.embedded) == 297
        assert caplog.text.count("embedder rejected") == 3
        calls = embedder.calls
        for _ in range(3):
            await memory.recall_by_topic(space, "otters")
            await tb.jobs.drain()
        assert embedder.calls - calls == 3  # the queries
        tb._memory.embedding._paused_until.clear()
        await memory.recall_by_topic(space, "otters")
        await tb.jobs.drain()
        assert caplog.text.count("embedder rejected") == 3
        assert "Background task failed" not in caplog.text
        assert len(embedder.embedded) == 297


async def test_rejected_texts_are_reported_after_all_others_are_embedded(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "tellback")
    async with Tellback(url, embedder=HashEmbedder("old")) as tb:
        memory = tb.user("ann").memory
        await memory.add_atoms(
            (await memory.create_space()).id, [{"text": "A rejected text."}, {"text": "Another rejected text."}]
        )
        space = await create_space_with_atoms(tb)
    async with Tellback(url, embedder=RejectingEmbedder("new")) as tb:
        progress: list[int] = []
        with pytest.raises(EmbeddingError, match=r"rejected 2 texts.* 9 others"):
            await tb.reembed(progress.append, forget_others=True)
        assert progress == [9]
        assert await vector_counts(tb, space) == {"old": 9, "new": 9}


@pytest.mark.parametrize("retryable", [True, False])
async def test_an_unavailable_embedder_is_not_called_for_every_text(
    tmp_path: Path, retryable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "tellback")
    async with Tellback(tmp_path / "tellback.db", embedder=None) as tb:
        for user in range(40):
            memory = tb.user(f"{user}").memory
            await memory.add_atoms((await memory.create_space()).id, [{"text": f"{n}"} for n in range(40)])
    call_count = 0

    class UnavailableEmbedder(HashEmbedder):
        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
            nonlocal call_count
            call_count += 1
            raise EmbeddingError("down", retryable=retryable)

    async with Tellback(tmp_path / "tellback.db", embedder=UnavailableEmbedder("new")) as tb:
        with pytest.raises(EmbeddingError, match="down"):
            await tb.reembed()
        assert call_count == (1 if retryable else 16)


INVALID_OUTPUTS: list[Any] = [
    None,
    "text",
    [[1.0, 2.0]] * 3,
    [[1.0], [2.0, 3.0]],
    [["a", "b"]] * 2,
    [[float("nan"), 1.0]] * 2,
    [[float("inf"), 1.0]] * 2,
    [[], []],
    np.ones((2, 2, 2), np.float32),
    np.full((2, 3), np.nan, np.float32),
    np.ones(2, np.float32),
]


@pytest.mark.parametrize("embedder_output", INVALID_OUTPUTS, ids=repr)
async def test_results_that_are_not_vectors_count_as_failures(
    embedder_output: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class InvalidEmbedder(HashEmbedder):
        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
            return embedder_output  # type: ignore[no-any-return]

    async with Tellback(tmp_path / "tellback.db", embedder=InvalidEmbedder("new")) as tb:
        memory = tb.user("maya").memory
        space = (await memory.create_space()).id
        await memory.add_atoms(space, [{"text": "Likes tea."}, {"text": "Has a boat."}])
        assert (await memory.recall_by_topic(space, "tea")).atoms[0].text == "Likes tea."
        await tb.jobs.drain()
        assert await vector_counts(tb, space) == {}
        assert "without vectors" in caplog.text


async def test_lists_of_any_length_are_accepted_as_vectors(tmp_path: Path) -> None:
    class ListEmbedder(HashEmbedder):
        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
            rows = (await super().embed(texts, query=query)).tolist()
            return [[1e6 * number for number in row] for row in rows]  # type: ignore[return-value]

    async with Tellback(tmp_path / "tellback.db", embedder=ListEmbedder("new")) as tb:
        space = await create_space_with_atoms(tb)
        await assert_found_by_words(tb, space)
        changes = await tb.store.memories.changes(tb.user("maya").scope, space, after=-1, embedder="new")
        for _, vector in changes.vectors:
            assert np.linalg.norm(np.frombuffer(vector, "<f2").astype(np.float32)) == pytest.approx(1, abs=1e-2)
        result = await tb.user("maya").memory.recall_by_topic(space, "swans", 100)
        assert any(hit.parts.get("meaning") for hit in result)


async def test_a_read_only_store_does_not_start_a_backfill_at_every_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path, embedder=HashEmbedder("old")) as tb:
        space = await create_space_with_atoms(tb)
    new = HashEmbedder("new")
    async with Tellback(path, embedder=new) as tb:

        async def refuse_write(*args: Any, **kwargs: Any) -> None:
            raise StoreError("read-only")

        monkeypatch.setattr(tb.store.memories, "save_vectors", refuse_write)
        for _ in range(3):
            await assert_found_by_words(tb, space)
            await tb.jobs.drain()
        assert len(new.embedded) == 9
        assert caplog.text.count("Background task failed") == 1


async def test_a_space_deleted_during_backfill_does_not_stop_the_others(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Tellback(url, embedder=HashEmbedder("old")) as tb:
        spaces = [await create_space_with_atoms(tb) for _ in range(3)]

    doomed: list[str] = []

    class SpaceDeletingEmbedder(HashEmbedder):
        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
            while doomed:
                await tb.user("maya").memory.delete_space(doomed.pop())
            return await super().embed(texts, query=query)

    embedder = SpaceDeletingEmbedder("new")
    async with Tellback(url, embedder=embedder) as tb:
        doomed.append(spaces.pop(1))  # not the one being embedded
        assert await tb.reembed() == 18
        assert len(embedder.embedded) == 18
    async with Tellback(url, embedder=SpaceDeletingEmbedder("newer")) as tb:
        doomed.append(spaces.pop(0))  # the one being embedded
        assert await tb.reembed() == 9
    async with Tellback(url, embedder=HashEmbedder("newest")) as tb:
        memory = tb.user("maya").memory
        await memory.recall_by_topic(spaces[0], "herons")
        await memory.delete_space(spaces[0])
        await tb.jobs.drain()
    assert "Background task failed" not in caplog.text


async def test_other_dimensions_under_the_same_name_break_nothing(tmp_path: Path) -> None:
    """An embedder must not change its dimensions. If it does, its vectors cannot be compared, but texts are still found
    by their words."""
    path = tmp_path / "tellback.db"
    for dimensions in (4, 8, 2):
        async with Tellback(path, embedder=HashEmbedder("new", dimensions)) as tb:
            memory = tb.user("maya").memory
            if dimensions == 4:
                space = await create_space_with_atoms(tb)
            await memory.add_atom(space, f"Carl keeps {dimensions} bees.")
            await assert_found_by_words(tb, space)
            result = await memory.recall_by_topic(space, f"Carl keeps {dimensions} bees", 100)
            assert result.atoms[0].text == f"Carl keeps {dimensions} bees."
            # A query's vector is only compared with vectors of the same length.
            for hit in result:
                assert np.isfinite(hit.score)


async def test_results_without_an_embedder_have_the_same_shape(url: str) -> None:
    async with Tellback(url) as tb:
        space = await create_space_with_atoms(tb)
        with_vectors = await tb.user("maya").memory.recall_by_topic(space, "Who saw swans?", 4)
    async with Tellback(url, embedder=None) as tb:
        await assert_found_by_words(tb, space)
        without = await tb.user("maya").memory.recall_by_topic(space, "Who saw swans?", 4)
        assert (without.mode, without.total_candidates, len(without)) == (with_vectors.mode, 9, 4)
        assert set(texts(without)[:3]) == set(texts(with_vectors)[:3])
        assert not any(hit.parts.get("meaning") for hit in without)
        atom = await tb.user("maya").memory.add_atom(space, "Eve saw otters.")
    async with Tellback(url) as tb:
        memory = tb.user("maya").memory
        assert (await memory.recall_by_topic(space, "otters")).atoms[0] == atom
        await tb.jobs.drain()
        assert await tb.reembed() == 0
        now = tb.clock()
        warm = await memory.recall_by_topic(space, "otters", 100, now=now)
        async with Tellback(url) as other:
            assert_same_result(warm, await other.user("maya").memory.recall_by_topic(space, "otters", 100, now=now))


async def test_a_slow_embedder_does_not_delay_closing(tmp_path: Path, monkeypatch: Any) -> None:
    from tellback import concurrency

    monkeypatch.setattr(concurrency, "GRACE_SECONDS", 0.05)
    path = tmp_path / "tellback.db"
    async with Tellback(path, embedder=HashEmbedder("old")) as tb:
        space = await create_space_with_atoms(tb)
    slow = HashEmbedder("new")
    async with Tellback(path, embedder=slow) as tb:
        await tb.user("maya").memory.recall_by_entity(space, "Ann")
        slow.gate = asyncio.Event()
    async with Tellback(path, embedder=HashEmbedder("old")) as tb:
        assert await vector_counts(tb, space) in ({"old": 9}, {"old": 9, "new": 9})
        await assert_found_by_words(tb, space)


async def test_a_growing_conversation_is_embedded_once(tmp_path: Path) -> None:
    embedder = HashEmbedder()
    async with Tellback(tmp_path / "r.db", embedder=embedder) as tb:
        maya = tb.user("maya")
        space = await maya.memory.create_space()
        conversation = await maya.conversations.create("chat")
        for n in range(4):
            await maya.conversations.append_user_message(conversation.id, f"Herons, {n} of them.")
            assert len(await maya.memory.remember_conversation(space.id, conversation.id)) == n + 1
        assert len(await maya.memory.remember_conversation(space.id, conversation.id)) == 4
        assert len(embedder.embedded) == 4
