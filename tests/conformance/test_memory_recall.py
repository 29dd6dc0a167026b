"""Recall on every store: three modes, one shape, and every option."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pytest

from tellback import Tellback
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.types.memory import RecallMode
from tests.integration.memory.helpers import DAY, NOON, Clock, assert_valid_result, texts

TRIP = {"name": "trip", "kind": "EPISODE"}
FACT = {"name": "fact", "kind": "FACT"}


async def test_every_recall_returns_the_same_shape_with_or_without_an_embedder(url: str) -> None:
    for embedder in ("static", None):
        async with Tellback(url, embedder=embedder) as tb:
            memory = tb.user(f"maya {embedder}").memory
            space = await memory.create_space()
            ann = await memory.create_entity(space.id, "PERSON", "Ann")
            for text in ("Ann adopted a puppy.", "The bank closes at noon.", "Ann plays the cello in an orchestra."):
                await memory.add_atom(space.id, text, entity_ids=[ann.id] if "Ann" in text else [])
            for limit in (0, 1, 2, 3, 10**12):
                topic = await memory.recall_by_topic(space.id, "Which instrument does Ann play?", limit)
                entity = await memory.recall_by_entity(space.id, "Ann", limit)
                time = await memory.recall_timeline(space.id, query="puppy", limit=limit)
                assert (topic.mode, entity.mode, time.mode) == tuple(RecallMode)
                assert (topic.total_candidates, entity.total_candidates, time.total_candidates) == (3, 2, 3)
                for result, max_hits in ((topic, 3), (entity, 2), (time, 1)):
                    assert_valid_result(result)
                    assert len(result) == min(limit, max_hits)
                    assert result.atoms == [hit.atom for hit in result]
            assert topic.hits[0].atom.text.startswith("Ann plays the cello")
            assert topic.hits[0].entity_match_bonus > topic.hits[-1].entity_match_bonus == 1
            empty = await memory.create_space("empty")
            for result in (
                await memory.recall_by_topic(empty.id, "Anything?"),
                await memory.recall_by_entity(empty.id, "Ann"),
                await memory.recall_timeline(empty.id),
                await memory.recall_timeline(empty.id, "Ann", "Anything?"),
            ):
                assert (result.hits, result.total_candidates) == ((), 0)


async def test_turns_without_a_conversation_are_neighbours_if_their_times_are_close(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    turn_texts = ["Ann: What is your dog called?", "Bob: Bruno.", "Ann: Lovely."]
    minutes = [NOON, NOON + DAY / 1440, NOON + 3 * DAY]
    await memory.add_atoms(
        space.id, [{"text": text, "valid_from": moment} for text, moment in zip(turn_texts, minutes, strict=True)]
    )
    await memory.add_atom(space.id, "Likes tea.", valid_from=NOON)
    result = await memory.recall_by_topic(space.id, "What is the name of Bob's dog?", neighbours=2)
    context = {hit.atom.text: [atom.text for atom in hit.context] for hit in result}
    assert context == {
        turn_texts[0]: [turn_texts[1]],
        turn_texts[1]: [turn_texts[0]],
        turn_texts[2]: [],
        "Likes tea.": [],
    }
    assert result.hits[0].atom.text == "Bob: Bruno."


async def test_a_topic_timeline_contains_only_the_chain_of_its_hits(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    first = await memory.add_atom(space.id, "Prefers morning meetings.", valid_from=NOON - 90 * DAY)
    await memory.add_atom(space.id, "Has a dog called Bruno.", valid_from=NOON - 60 * DAY)
    second = await memory.supersede_atom(first.id, "Takes calls after lunch only.", valid_from=NOON - 30 * DAY)
    third = await memory.supersede_atom(second.id, "Is free on Fridays.", valid_from=NOON - DAY)
    for query in ("meetings", "calls after lunch", "Fridays"):
        result = await memory.recall_timeline(space.id, query=query)
        assert [atom.id for atom in result.atoms] == [first.id, second.id, third.id]
    current_only = await memory.recall_timeline(space.id, query="meetings", include_superseded=False)
    assert first.id not in [atom.id for atom in current_only.atoms]


async def test_equal_texts_are_ordered_by_age_importance_and_entities(tb: Tellback) -> None:
    tb.clock = Clock(NOON)
    memory = tb.user("maya").memory
    space = await memory.create_space()
    cat = await memory.create_entity(space.id, "OBJECT", "Mitzi")
    text = "The cat sleeps on the sofa."
    old = await memory.add_atom(space.id, text, valid_from=NOON - 300 * DAY)
    new = await memory.add_atom(space.id, text, valid_from=NOON - DAY)
    older = await memory.add_atom(space.id, text, valid_from=NOON - 700 * DAY)
    result = await memory.recall_by_topic(space.id, "Where does the cat sleep?", now=NOON)
    assert result.atoms == [new, old, older]
    assert [hit.decay_weight for hit in result] == sorted((hit.decay_weight for hit in result), reverse=True)
    important_atom = await memory.add_atom(space.id, text, importance=5, valid_from=NOON - 700 * DAY)
    assert (await memory.recall_by_topic(space.id, "cat sleeps")).atoms[0] == important_atom
    linked = await memory.add_atom(space.id, text, importance=3, valid_from=NOON - 700 * DAY, entity_ids=[cat.id])
    result = await memory.recall_by_topic(space.id, "Where does Mitzi sleep?")
    assert result.atoms[:2] == [linked, important_atom]
    assert result.hits[0].entity_match_bonus > 1
    assert all(hit.entity_match_bonus == 1 for hit in result.hits[1:])
    assert_valid_result(result)


async def test_options_filter_hits(tb: Tellback) -> None:
    clock = Clock()
    tb.clock = clock
    memory = tb.user("maya").memory
    space = await memory.create_space()
    ann = await memory.create_entity(space.id, "PERSON", "Ann")
    atoms_by_number = {}
    for n, (text, category) in enumerate(
        [("Ann sailed to Malta.", TRIP), ("Ann sailed to Crete.", TRIP), ("Ann sails a red boat.", FACT)], 1
    ):
        clock.advance(DAY)
        atoms_by_number[n] = await memory.add_atom(
            space.id, text, category, importance=2 * n - 1, valid_from=NOON + n * DAY, entity_ids=[ann.id]
        )
    ended_atom = await memory.add_atom(
        space.id, "Ann rents a harbour berth.", FACT, valid_from=NOON, valid_to=NOON + 3 * DAY, entity_ids=[ann.id]
    )
    later = clock.advance(DAY)

    async def recalled_numbers(**kwargs: Any) -> set[int]:
        topic = await memory.recall_by_topic(space.id, "Ann sailing", 100, **kwargs)
        entity = await memory.recall_by_entity(space.id, "Ann", 100, **kwargs)
        assert set(texts(topic)) == set(texts(entity))
        for result in (topic, entity):
            assert result.total_candidates == len(result)
            assert_valid_result(result)
        return {key for key, atom in {**atoms_by_number, 0: ended_atom}.items() if atom in topic.atoms}

    assert await recalled_numbers() == {1, 2, 3}
    assert await recalled_numbers(now=NOON + 2 * DAY) == {0, 1, 2, 3}
    assert await recalled_numbers(valid_at=NOON + 2 * DAY) == {0, 1, 2}
    assert await recalled_numbers(valid_at=NOON + 3 * DAY) == {1, 2, 3}
    assert await recalled_numbers(valid_at=NOON - DAY) == set()
    assert await recalled_numbers(known_at=NOON + DAY) == {1}
    assert await recalled_numbers(known_at=NOON) == set()
    assert await recalled_numbers(valid_at="2026-03-05T00:00:00Z", known_at=later) == {1, 2, 3}
    assert await recalled_numbers(category_names=["trip"]) == {1, 2}
    assert await recalled_numbers(category_names=["trip", "fact", "other"]) == {1, 2, 3}
    assert await recalled_numbers(category_names=["other"]) == set()
    assert await recalled_numbers(category_names=[]) == {1, 2, 3}
    for least, expected in ((1, 3), (3, 2), (4, 1), (5, 1)):
        assert len(await memory.recall_by_topic(space.id, "Ann", min_importance=least)) == expected
    scores = [hit.score for hit in await memory.recall_by_topic(space.id, "Malta")]
    above_score = await memory.recall_by_topic(space.id, "Malta", min_score=scores[0])
    assert texts(above_score) == ["Ann sailed to Malta."]
    assert above_score.total_candidates == 3
    assert len(await memory.recall_by_topic(space.id, "Malta", min_score=1)) == 0

    wrong: list[tuple[dict[str, Any], str]] = [
        *(({"limit": value}, "limit") for value in (-1, 1.5, True, "3")),
        *(({"category_names": value}, "category_names") for value in ("trip", [5], [""], 5)),
        *(({"min_importance": value}, "importance") for value in (-1, 6, True, 2.5)),
        *(({"min_score": value}, "min_score") for value in (-0.1, 1.1, float("nan"), None)),
        *(({"neighbours": value}, "neighbours") for value in (-1, None, "2")),
        *(({name: datetime(2026, 1, 1)}, f"{name}.*timezone") for name in ("valid_at", "known_at", "now")),
        *(({"query": value}, "query") for value in ("", "  ", None, 5, b"x")),
    ]
    for invalid_options, names in wrong:
        with pytest.raises(InvalidArgumentError, match=names):
            await memory.recall_by_topic(space.id, **{"query": "Ann", **invalid_options})
    for value in ("", " ", None, 5, "x" * 501, "\x00", "\ud800"):
        with pytest.raises(InvalidArgumentError, match="entity_id_or_name"):
            await memory.recall_by_entity(space.id, value)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="ent_nobody"):
        await memory.recall_by_entity(space.id, "ent_nobody")
    for query in ("\ud800 Malta", "Mal\x00ta", "?", "' | & ! ( ) :*", "the of and", "x" * 60_000):
        assert len(await memory.recall_by_topic(space.id, query)) == 3


async def test_the_context_of_a_hit_contains_only_recallable_turns(tb: Tellback) -> None:
    clock = Clock()
    tb.clock = clock
    maya = tb.user("maya")
    memory = maya.memory
    space = await memory.create_space()
    conversations = [await maya.conversations.create("chat") for _ in range(2)]
    for n in range(8):  # two concurrent conversations, stored alternately
        for conversation, thing in zip(conversations, ("kite", "lamp"), strict=True):
            clock.advance()
            await maya.conversations.append_user_message(conversation.id, f"{thing} number{n}")
            await memory.remember_conversation(space.id, conversation.id)
    fact = await memory.add_atom(space.id, "Has a kite.", source_conversation_id=conversations[0].id)
    await memory.add_atom(space.id, "Has a lamp.")
    turns = {atom.text: atom for atom in await memory.list_atoms(space.id, "turn")}
    await memory.delete_atom(turns["User: kite number3"].id)
    await memory.archive_atom(turns["User: kite number5"].id)

    async def neighbour_texts(text: str, neighbours: int, **kwargs: Any) -> list[str]:
        result = await memory.recall_by_topic(space.id, text, 100, neighbours=neighbours, **kwargs)
        assert_valid_result(result)
        [hit] = [hit for hit in result if hit.atom.text == f"User: {text}"]
        return [atom.text.removeprefix("User: kite number") for atom in hit.context]

    assert await neighbour_texts("kite number4", 0) == []
    assert await neighbour_texts("kite number4", 2) == ["2", "6"]
    assert await neighbour_texts("kite number4", 2, include_archived=True) == ["2", "5", "6"]
    assert await neighbour_texts("kite number0", 3) == ["1", "2"]
    assert await neighbour_texts("kite number7", 10**12) == ["0", "1", "2", "4", "6"]
    result = await memory.recall_by_topic(space.id, "kite", 100, neighbours=3)
    for hit in result:
        assert all(atom.source_conversation_id == hit.atom.source_conversation_id for atom in hit.context)
        assert all(atom.status == "ACTIVE" for atom in hit.context)
    [fact_hit] = [hit for hit in result if hit.atom.id == fact.id]
    assert fact_hit.context == ()
    valid_at = turns["User: kite number4"].valid_from
    result = await memory.recall_by_topic(space.id, "kite", 100, neighbours=9, valid_at=valid_at)
    assert all(atom.valid_from <= valid_at for hit in result for atom in hit.context)


async def test_a_timeline_shows_changes_as_known_at_a_time(tb: Tellback) -> None:
    clock = Clock()
    tb.clock = clock
    memory = tb.user("maya").memory
    space = await memory.create_space()
    ann = await memory.create_entity(space.id, "PERSON", "Ann")
    rome = await memory.add_atom(space.id, "Lives in Rome.", valid_from=NOON, entity_ids=[ann.id])
    known_rome = clock.advance(DAY)
    oslo = await memory.supersede_atom(rome.id, "Lives in Oslo.", valid_from=NOON + 10 * DAY)
    known_oslo = clock.advance(DAY)
    bern = await memory.supersede_atom(oslo.id, "Lives in Bern.", valid_from=NOON + 20 * DAY)
    await memory.add_atom(space.id, "Ann has a kayak.", valid_from=NOON + 12 * DAY, valid_to=NOON + 14 * DAY)
    clock.advance(40 * DAY)

    async def line(*args: Any, **kwargs: Any) -> list[str]:
        result = await memory.recall_timeline(space.id, *args, **kwargs)
        assert_valid_result(result)
        moments = [atom.valid_from for atom in result.atoms]
        assert moments == sorted(moments)
        return [text.rstrip(".").rpartition(" ")[2] for text in texts(result)]

    assert await line() == ["Rome", "Oslo", "kayak", "Bern"]
    assert await line("Ann") == ["Rome", "Oslo", "kayak", "Bern"]
    assert await line(ann.id, include_superseded=False) == ["Bern"]
    assert await line(include_superseded=False) == ["Bern"]
    assert await line(from_=NOON + 10 * DAY) == ["Oslo", "kayak", "Bern"]
    assert await line(to=NOON + 10 * DAY) == ["Rome", "Oslo"]
    assert await line(from_=NOON + 13 * DAY, to=NOON + 13 * DAY) == ["Oslo", "kayak"]
    assert await line(from_=NOON + 15 * DAY, to=NOON + 16 * DAY) == ["Oslo"]
    assert await line(to=NOON - DAY) == []
    assert await line(limit=2) == ["kayak", "Bern"]
    assert await line(limit=1, query="Oslo") == ["Oslo"]
    assert await line("Ann", "kayak", limit=10) == ["kayak"]
    assert await line("nobody") == []
    assert await line("kayak") == ["kayak"]
    # Before it was superseded, Rome had no known end.
    assert await line(from_=NOON + 30 * DAY, known_at=NOON) == ["Rome"]
    assert await line(from_=NOON + 30 * DAY, known_at=known_rome) == ["Oslo"]
    assert await line(from_=NOON + 30 * DAY, known_at=known_oslo) == ["Bern"]
    assert await line(known_at=NOON - DAY) == []
    assert bern.supersedes == oslo.id
    with pytest.raises(InvalidArgumentError, match=r"from_ must not be after to"):
        await memory.recall_timeline(space.id, from_=NOON, to=NOON - DAY)
    wrong: list[dict[str, Any]] = [{"query": ""}, {"entity_id_or_name": ""}, {"from_": "x"}, {"to": 5}, {"limit": -1}]
    for invalid_options in wrong:
        with pytest.raises(InvalidArgumentError):
            await memory.recall_timeline(space.id, **invalid_options)


async def test_the_earliest_and_latest_dates_are_accepted(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    first, last = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
    first_atom = await memory.add_atom(space.id, "The world began.", valid_from=first)
    await memory.supersede_atom(first_atom.id, "The world goes on.", valid_from=NOON)
    await memory.add_atom(space.id, "The world ends.", valid_from=last)
    for now in (first, last, NOON):
        for query in ("last year", "in 10000 years", "99999999999 weeks ago", "next May", "the 31st of February"):
            assert_valid_result(await memory.recall_by_topic(space.id, query, now=now))
            assert_valid_result(await memory.recall_timeline(space.id, query=query, now=now))
    assert texts(await memory.recall_by_topic(space.id, "world", valid_at=first)) == ["The world began."]
    assert len(await memory.recall_by_topic(space.id, "world", valid_at=last)) == 2
    assert len(await memory.recall_timeline(space.id, from_=first, to=last)) == 3
    assert texts(await memory.list_atoms(space.id, valid_at=first)) == ["The world began."]


async def test_scores_never_increase_from_hit_to_hit() -> None:
    words = ["tea", "boat", "heron", "sofa", "cat", "sings", "Malta", "lamp", "kite", "bees", "figs", "rye"]
    rng = random.Random(4)
    async with Tellback(":memory:", clock=Clock()) as tb:
        memory = tb.user("maya").memory
        space = await memory.create_space()
        await memory.add_atoms(
            space.id,
            [
                {
                    "text": " ".join(rng.choices(words, k=rng.randint(1, 6))),
                    "importance": rng.randint(1, 5),
                    "valid_from": NOON - rng.choice([0, 0.001, 1, 5, 300]) * DAY,
                }
                for _ in range(3000)
            ],
        )
        for word in words[:6]:
            assert_valid_result(await memory.recall_by_topic(space.id, f"{word} boat", limit=5000))
