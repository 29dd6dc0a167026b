"""Entities on every store: found by any of their names, merged, and searched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tellback import Tellback
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.types.memory import EntityStatus, EntityType
from tests.integration.memory.helpers import DAY, NOON, texts


async def test_an_entity_is_found_by_any_name_however_it_is_written(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    jose = await memory.create_entity(
        space.id, "person", "  José  María ", "a baker", {"age": 40}, ["Pepe", "PEPE", "Σίσυφος", "Weiß"]
    )
    assert (jose.canonical_name, jose.aliases, jose.type) == (
        "José  María",
        ("Pepe", "Σίσυφος", "Weiß"),
        EntityType.PERSON,
    )
    assert (jose.description, jose.attributes, jose.atom_count) == ("a baker", {"age": 40}, 0)
    assert (jose.first_seen_at, jose.last_seen_at) == (None, None)
    assert await memory.get_entity(jose.id) == jose
    for name in ("jose maria", "JOSÉ\tMARÍA", "Jose\u0301 mari\u0301a", "\uff50\uff45\uff50\uff45", "σισυφοσ", "WEISS"):
        assert await memory.find_entity_by_name(space.id, "PERSON", name) == jose, name
        assert await memory.find_entity_by_name(space.id, None, name) == jose
        assert await memory.find_entity_by_name(space.id, "PLACE", name) is None
    for name in ("jose", "maria", "pep", "'", "%", "_____"):
        assert await memory.find_entity_by_name(space.id, None, name) is None
    bar = await memory.create_entity(space.id, EntityType.PLACE, "pepe")
    assert await memory.find_entity_by_name(space.id, None, "Pepe") == bar
    assert await memory.find_entity_by_name(space.id, "PERSON", "Pepe") == jose


@pytest.mark.parametrize(
    ("kwargs", "names"),
    [
        ({"type": "ROBOT"}, "type"),
        ({"type": None}, "type"),
        ({"canonical_name": ""}, "canonical_name"),
        ({"canonical_name": "x" * 501}, "canonical_name"),
        ({"canonical_name": "\ud800"}, "canonical_name"),
        ({"description": 5}, "description"),
        ({"attributes": {"x": object()}}, "JSON"),
        ({"aliases": "Pepe"}, "aliases"),
        ({"aliases": [""]}, "aliases"),
        ({"aliases": [None]}, "aliases"),
    ],
)
async def test_invalid_entities_raise_invalid_argument_error(kwargs: dict[str, Any], names: str) -> None:
    async with Tellback(":memory:") as tb:
        memory = tb.user("maya").memory
        space = await memory.create_space()
        with pytest.raises(InvalidArgumentError, match=names):
            await memory.create_entity(space.id, **{"type": "PERSON", "canonical_name": "Ann", **kwargs})
        with pytest.raises(InvalidArgumentError):
            await memory.find_entity_by_name(space.id, "PERSON", "")
        with pytest.raises(InvalidArgumentError):
            await memory.find_entity_by_name(space.id, "ROBOT", "Ann")
        with pytest.raises(InvalidArgumentError):
            await memory.search_entities(space.id, 5)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError):
            await memory.search_entities(space.id, "Ann", limit=-1)
        assert await memory.search_entities(space.id) == []


async def test_merged_entities_act_as_one(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    names = ["Robert", "Bob", "Bobby", "Rob"]
    entities = [await memory.create_entity(space.id, "PERSON", name) for name in names]
    for n, person in enumerate(entities):
        await memory.add_atom(space.id, f"Saw {n} herons.", valid_from=NOON + n * DAY, entity_ids=[person.id])
    await memory.add_atom(space.id, "Was with everyone.", valid_from=NOON, entity_ids=[p.id for p in entities])
    await memory.recall_by_entity(space.id, "Bob")
    robert, bob, bobby, rob = entities
    await memory.merge_entities(bobby.id, rob.id)
    await memory.merge_entities(bob.id, bobby.id)
    merged = await memory.merge_entities(robert.id, bob.id)
    assert (merged.id, merged.atom_count, set(merged.aliases)) == (robert.id, 5, {"Bob", "Bobby", "Rob"})
    assert (merged.first_seen_at, merged.last_seen_at) == (NOON, NOON + 3 * DAY)
    expected = [f"Saw {n} herons." for n in (3, 2, 1)] + ["Was with everyone.", "Saw 0 herons."]
    for name in (*names, *(person.id for person in entities), "ROB"):
        assert texts(await memory.recall_by_entity(space.id, name)) == expected, name
        assert len(await memory.recall_timeline(space.id, name)) == 5
        hits = await memory.recall_by_topic(space.id, f"What did {name} see?" if name in names else "herons")
        if name in names:
            assert all(hit.entity_match_bonus > 1 for hit in hits)
    for person in entities:
        found = await memory.get_entity(person.id)
        assert found is not None
        assert (found.status is EntityStatus.MERGED) == (person.id != robert.id)
        assert await memory.merge_entities(person.id, robert.id) == merged
        assert await memory.merge_entities(robert.id, person.id) == merged
    late = await memory.add_atom(space.id, "Saw nothing.", entity_ids=[rob.id, bob.id])
    assert late.entity_ids == (robert.id,)
    assert [entity.id for entity in await memory.search_entities(space.id)] == [robert.id]
    entity_of_other_space = await memory.create_entity((await memory.create_space("other")).id, "PERSON", "Rob")
    with pytest.raises(InvalidArgumentError, match="different spaces"):
        await memory.merge_entities(robert.id, entity_of_other_space.id)
    with pytest.raises(NotFoundError):
        await memory.recall_by_entity(space.id, entity_of_other_space.id)


async def test_concurrent_merges_in_both_directions_leave_one_entity(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    ids = [(await memory.create_entity(space.id, "PERSON", f"Ann {n}")).id for n in range(4)]
    for id in ids:
        await memory.add_atom(space.id, f"About {id}.", entity_ids=[id])
    await asyncio.gather(*(memory.merge_entities(a, b) for a in ids for b in ids if a != b))
    [remaining] = await memory.search_entities(space.id)
    assert remaining.atom_count == 4
    assert len(await memory.recall_by_entity(space.id, remaining.id)) == 4
    assert len(remaining.aliases) == 3
    merges = [event for event in await tb.events.read(limit=1000) if event.type == "entity.merged"]
    assert len(merges) == 3


async def test_entities_are_searched_by_parts_of_names_and_description(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    entities_by_name = {}
    for name, description in (
        ("Anna Karlsson", "our dentist"),
        ("Karl", None),
        ("Café Karlsplatz", "where we had cake"),
        ("Hannah", None),
    ):
        kind = "PLACE" if "Café" in name else "PERSON"
        entities_by_name[name] = await memory.create_entity(space.id, kind, name, description)
    await memory.add_atom(space.id, "Hannah sings.", entity_ids=[entities_by_name["Hannah"].id])

    async def found(query: str, **kwargs: Any) -> list[str]:
        return [entity.canonical_name for entity in await memory.search_entities(space.id, query, **kwargs)]

    assert (await found("karl"))[0] == "Karl"
    assert set(await found("karl")) == {"Karl", "Anna Karlsson", "Café Karlsplatz"}
    assert await found("CAFE") == ["Café Karlsplatz"]
    assert await found("dentist") == ["Anna Karlsson"]
    assert await found("Hanah") == ["Hannah"]
    assert await found("karl", type="place") == ["Café Karlsplatz"]
    assert await found("zzz") == []
    assert (await found(""))[0] == "Hannah"
    assert len(await found("")) == 4
    assert len(await found("", limit=2)) == 2
    assert await found("karl", limit=0) == []


async def test_names_with_dots_and_commas_are_recognised_in_a_question(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    names = ["Dr. Weber", "Acme, Inc.", "O'Neill", "St. Mary's", "The Museum of Modern Art of Oslo", "(nobody)"]
    for name in names:
        entity = await memory.create_entity(space.id, "CONCEPT", name)
        await memory.add_atom(space.id, "It opens at nine.", entity_ids=[entity.id])
        for question in (f"When does {name} open?", f"Tell me about {name}.", f"\u201c{name}\u201d, is it open?", name):
            hits = await memory.recall_by_topic(space.id, question)
            assert hits.hits[0].entity_match_bonus > 1, question
            assert hits.hits[0].atom.entity_ids == (entity.id,), question
