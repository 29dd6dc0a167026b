"""Recall in spaces too large for the cache, on PostgreSQL: the server searches for candidates among the atoms that may
be recalled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from tellback import Tellback
from tellback.errors import NotFoundError
from tellback.memory import recall_service
from tellback.memory.memory import Memory
from tests.integration.memory.helpers import (
    DAY,
    NOON,
    Clock,
    HashEmbedder,
    assert_valid_result,
    recall_everywhere,
    texts,
)
from tests.support.servers.postgres import PostgresServer

SearchKind = Literal["words", "meaning"]

FEW = 30
ANIMALS = ["heron", "otter", "badger", "lynx", "falcon", "beaver", "marten", "osprey", "weasel", "plover"]
PLACES = ["harbour", "chapel", "quarry", "orchard", "viaduct", "lighthouse", "cinema", "bakery", "stadium", "museum"]
KINDS = ("FACT", "EPISODE")


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a search to a tenth of 200 atoms."""
    monkeypatch.setattr(recall_service, "MAX_CANDIDATES", 20)


@asynccontextmanager
async def large(url: str, **options: Any) -> AsyncIterator[Tellback]:
    async with Tellback(url, memory_atoms=FEW, clock=Clock(NOON + 400 * DAY), **options) as tb:
        yield tb


async def create_large_space(tb: Tellback) -> tuple[Memory, str]:
    """Create 200 atoms: each animal once at each place, on separate days; and the same for another user."""
    for user in ("ben", "maya"):
        memory = tb.user(user).memory
        space = await memory.create_space()
        names = {name: (await memory.create_entity(space.id, "OBJECT", name)).id for name in ("Rex", "Dr. Weber")}
        atom_drafts = [
            {
                "text": f"{user} saw a {ANIMALS[n % 10]} at the {PLACES[n // 10 % 10]} in week {n}.",
                "category": {"name": "ab"[n % 2], "kind": KINDS[n % 2]},
                "importance": 1 + n % 5,
                "valid_from": NOON + n * DAY,
                "entity_ids": [names["Rex"]] if n % 40 == 0 else [names["Dr. Weber"]] if n % 50 == 7 else [],
            }
            for n in range(200)
        ]
        await memory.add_atoms(space.id, atom_drafts)
    return memory, space.id


QUESTIONS = [
    "Which otter did maya see at the chapel?",
    "What was at the lighthouse with the lynx?",
    "week 137",
    "the plover, at the museum",
    "Did Rex see a heron in week 120?",
]


@pytest.mark.parametrize("search", ["meaning", "words"])
@pytest.mark.parametrize("embedder", ["static", None])
async def test_the_best_hit_of_a_search_is_the_best_of_the_whole_space(
    ready_postgres_url: str, search: SearchKind, embedder: str | None
) -> None:
    async with large(ready_postgres_url, embedder=embedder) as tb:
        memory, space = await create_large_space(tb)
        tb.store.memories._engine.search = search
        async with Tellback(ready_postgres_url, embedder=embedder, clock=tb.clock) as second_tb:
            cached = second_tb.user("maya").memory
            for question in QUESTIONS:
                found = await memory.recall_by_topic(space, question, 5)
                best = await cached.recall_by_topic(space, question, 5)
                assert_valid_result(found)
                assert len(found) == len(best) == 5
                assert found.atoms[0] == best.atoms[0], question
                assert 5 <= found.total_candidates <= best.total_candidates == 200
            for name in ("Rex", "dr. weber", "plover", "lighthouse"):
                assert texts(await memory.recall_by_entity(space, name, 100)) == texts(
                    await cached.recall_by_entity(space, name, 100)
                ), name
                assert texts(await memory.recall_timeline(space, name, limit=100)) == texts(
                    await cached.recall_timeline(space, name, limit=100)
                ), name
            spans: list[dict[str, Any]] = [
                {},
                {"limit": 3},
                {"from_": NOON + 50 * DAY, "to": NOON + 60 * DAY},
                {"to": NOON + 9 * DAY, "limit": 4},
                {"category_names": ["a"], "limit": 7},
                {"known_at": NOON},
            ]
            for span in spans:
                assert texts(await memory.recall_timeline(space, **span)) == texts(
                    await cached.recall_timeline(space, **span)
                ), span
            assert len(tb._memory.space_cache) == 0
            assert len(second_tb._memory.space_cache) == 1


@pytest.mark.parametrize("search", ["meaning", "words"])
async def test_every_filter_applies_to_a_search(ready_postgres_url: str, search: SearchKind) -> None:
    async with large(ready_postgres_url) as tb:
        memory, space = await create_large_space(tb)
        tb.store.memories._engine.search = search
        clock: Any = tb.clock
        known_at = clock.now
        clock.advance(DAY)
        question = "Which otter was at the chapel?"
        best = (await memory.recall_by_topic(space, question)).hits[0].atom
        assert best.text == "maya saw a otter at the chapel in week 11."

        async def first(query: str = question, **kwargs: Any) -> str:
            return texts(await memory.recall_by_topic(space, query, 50, **kwargs))[0]

        await memory.archive_atom(best.id)
        assert await first() != best.text
        assert await first(include_archived=True) == best.text
        await memory.restore_atom(best.id)
        later = clock.advance(DAY)
        new = await memory.supersede_atom(best.id, "maya saw an otter near the chapel after all.", valid_from=later)
        result = await memory.recall_by_topic(space, question, 50)
        assert (new in result.atoms, best.id in {atom.id for atom in result.atoms}) == (True, False)
        assert await first(known_at=known_at) == best.text
        assert new.text not in texts(await memory.recall_by_topic(space, question, 500, known_at=known_at))
        assert await first(valid_at=NOON + 12 * DAY) == best.text
        assert await first(valid_at=NOON + 12 * DAY, known_at=known_at) == best.text
        for atom in (await memory.recall_by_topic(space, question, 500, valid_at=NOON + 20 * DAY)).atoms:
            assert atom.valid_from <= NOON + 20 * DAY
        line = await memory.recall_timeline(space, query="otter chapel", limit=500)
        assert {best.text, new.text} <= set(texts(line))
        line = await memory.recall_timeline(space, query="otter chapel", limit=500, include_superseded=False)
        assert best.text not in texts(line)
        # At the earlier known time, the superseded atom had no end.
        line = await memory.recall_timeline(
            space, query="otter chapel", limit=500, from_=later + DAY, known_at=known_at
        )
        assert best.text in texts(line)
        assert new.text not in texts(line)
        for names in (["a"], ["b"], ["a", "b"], ["c"]):
            found = await memory.recall_by_topic(space, question, 500, names)
            assert {atom.category.name for atom in found.atoms} <= set(names)
            assert bool(found.hits) == bool(set(names) - {"c"})
            found = await memory.recall_by_entity(space, "Rex", 500, names)
            assert {atom.category.name for atom in found.atoms} <= set(names)
        for least in (2, 5):
            found = await memory.recall_by_topic(space, question, 500, min_importance=least)
            assert min(atom.importance for atom in found.atoms) >= least
        await memory.delete_atom(best.id)
        await memory.delete_atom(new.id)
        for options in ({}, {"known_at": known_at}, {"known_at": later}):
            recalled_texts = await recall_everywhere(memory, space, question, **options)
            assert not recalled_texts & {best.text, new.text}
        assert all(
            text.startswith("maya ") for text in await recall_everywhere(memory, space, "ben saw a heron", "heron")
        )
        with pytest.raises(NotFoundError):
            await tb.user("ben").memory.recall_by_topic(space, question)
        await memory.delete_space(space)
        with pytest.raises(NotFoundError):
            await memory.recall_by_topic(space, question)


ODD = [
    "the of and a",
    "?!… — '' \"\" «»",
    "' | & ! ( ) :* <-> \\",
    "otter & | ! <3> :A*",
    "((((",
    "%_%",
    "\x00 otter \ud800",
    "x" * 50_000,
    "é" * 3_000,
    "otter " * 9_000,
    " ".join(f"w{n}" for n in range(5_000)),
    "日本語の質問",
    "🦜🦜",
    "² ½ Ⅷ ٣",
    "o't'ter's",
]


@pytest.mark.parametrize("search", ["meaning", "words"])
async def test_no_query_breaks_the_server_search(ready_postgres_url: str, search: SearchKind) -> None:
    async with large(ready_postgres_url) as tb:
        memory, space = await create_large_space(tb)
        tb.store.memories._engine.search = search
        for question in ODD:
            result = await memory.recall_by_topic(space, question, 5)
            assert_valid_result(result)
            assert len(result) == 5, question[:40]
            if "otter" in question:
                assert "otter" in result.atoms[0].text
            await memory.recall_timeline(space, query=question)
            name = question[:500].encode(errors="replace").decode().replace("\x00", " ")
            await memory.recall_by_entity(space, name)
            await memory.recall_timeline(space, name, question)
            await memory.find_entity_by_name(space, None, name)


async def test_a_cached_space_that_grows_too_large_is_searched(ready_postgres_url: str) -> None:
    async with large(ready_postgres_url) as tb:
        memory = tb.user("maya").memory
        space = (await memory.create_space()).id
        for n in range(45):
            await memory.add_atom(space, f"maya saw a {ANIMALS[n % 10]} at the {PLACES[n // 10]} in week {n}.")
            result = await memory.recall_by_topic(space, f"week {n}", 3)
            assert result.atoms[0].text.endswith(f"week {n}.")
            assert len(tb._memory.space_cache) == (1 if n < FEW else 0)
        assert tb._memory.space_cache.nbytes == 0


async def test_neighbouring_turns_of_a_hit_are_included(ready_postgres_url: str) -> None:
    async with large(ready_postgres_url) as tb:
        maya = tb.user("maya")
        memory = maya.memory
        space = (await memory.create_space()).id
        conversation = await maya.conversations.create("chat")
        messages = [{"role": "user", "content": f"{ANIMALS[n % 10]} {PLACES[n // 10]} {n}"} for n in range(100)]
        await maya.conversations.append_messages(conversation.id, messages)
        stored = await memory.remember_conversation(space, conversation.id)
        hit = (await memory.recall_by_topic(space, "lynx lighthouse 53", neighbours=2)).hits[0]
        assert hit.atom.text == "User: lynx lighthouse 53"
        assert [atom.id for atom in hit.context] == [stored[n].id for n in (51, 52, 54, 55)]
        await memory.delete_atom(stored[52].id)
        hit = (await memory.recall_by_topic(space, "lynx lighthouse 53", neighbours=2)).hits[0]
        assert stored[52].id not in [atom.id for atom in hit.context]


async def test_recall_works_on_a_server_without_pgvector(
    postgres_server: PostgresServer, ready_postgres_url: str
) -> None:
    async with large(ready_postgres_url) as tb:
        memory, space = await create_large_space(tb)
    database = ready_postgres_url.rpartition("/")[2]
    postgres_server.psql("DROP EXTENSION IF EXISTS vector CASCADE", database)
    postgres_server.psql("CREATE ROLE plain_owner LOGIN", database)
    postgres_server.psql("GRANT tellback_app TO plain_owner", database)
    try:
        # A login that may not install the extension.
        async with large(ready_postgres_url.replace("//postgres@", "//plain_owner@")) as tb:
            assert tb.store.memories._engine.search == "words"
            memory = tb.user("maya").memory
            result = await memory.recall_by_topic(space, "Which otter did maya see at the chapel?", 3)
            assert result.atoms[0].text == "maya saw a otter at the chapel in week 11."
            await memory.add_atom(space, "maya bought a kayak.")
            assert (await memory.recall_by_topic(space, "kayak")).atoms[0].text == "maya bought a kayak."
    finally:
        postgres_server.psql("DROP OWNED BY plain_owner", database)
        postgres_server.psql("DROP ROLE plain_owner", database)


@pytest.mark.parametrize("search", ["meaning", "words"])
async def test_a_topic_about_a_frequent_entity_is_found(ready_postgres_url: str, search: SearchKind) -> None:
    """Far more atoms mention Rex than a search returns."""
    async with large(ready_postgres_url) as tb:
        memory = tb.user("maya").memory
        space = (await memory.create_space()).id
        rex = await memory.create_entity(space, "OBJECT", "Rex")
        atom_drafts: list[dict[str, Any]] = [
            {
                "text": f"Fido and Rex saw a {ANIMALS[n % 10]} at the {PLACES[n // 10 % 10]}.",
                "valid_from": NOON + n * DAY,
                "entity_ids": [rex.id],
            }
            for n in range(100)
        ]
        atom_drafts += [
            {"text": f"An otter at the chapel, number {n}.", "valid_from": NOON + n * DAY} for n in range(60)
        ]
        await memory.add_atoms(space, atom_drafts)
        tb.store.memories._engine.search = search
        for name in ("Rex", rex.id, "Fido"):
            result = await memory.recall_timeline(space, name, "otter chapel", limit=1)
            assert texts(result) == ["Fido and Rex saw a otter at the chapel."], name
            assert len(await memory.recall_by_entity(space, name, 15)) == 15


async def test_a_timeline_includes_the_chains_of_its_hits(ready_postgres_url: str) -> None:
    async with large(ready_postgres_url) as tb:
        memory, space = await create_large_space(tb)
        clock: Any = tb.clock
        chain_texts = [
            "Prefers morning meetings.",
            "Takes calls after lunch only.",
            "Is free on Fridays.",
            "Has a secretary.",
        ]
        now = clock.advance(DAY)
        atom = await memory.add_atom(space, chain_texts[0], valid_from=now)
        for text in chain_texts[1:]:
            await memory.add_atoms(space, [{"text": f"maya saw a gull, {text[:3]} {n}."} for n in range(15)])
            now = clock.advance(DAY)
            atom = await memory.supersede_atom(atom.id, text, valid_from=now)
        async with Tellback(ready_postgres_url, clock=clock) as second_tb:
            for topic in ("meetings", "calls after lunch", "Fridays", "secretary"):
                cached = await second_tb.user("maya").memory.recall_timeline(space, query=topic)
                found = await memory.recall_timeline(space, query=topic)
                assert [text for text in texts(found) if text in chain_texts] == chain_texts, topic
                assert [text for text in texts(cached) if text in chain_texts] == chain_texts, topic


async def test_vectors_of_another_length_under_one_name_are_left_out(ready_postgres_url: str) -> None:
    async with large(ready_postgres_url, embedder=HashEmbedder("same", 4)) as tb:
        _, space = await create_large_space(tb)
    async with large(ready_postgres_url, embedder=HashEmbedder("same", 8)) as tb:
        memory = tb.user("maya").memory
        await memory.add_atom(space, "maya saw a capybara at the sauna.")
        found = await memory.recall_by_topic(space, "Where was the capybara?", 5)
        assert_valid_result(found)
        assert found.atoms[0].text == "maya saw a capybara at the sauna."
