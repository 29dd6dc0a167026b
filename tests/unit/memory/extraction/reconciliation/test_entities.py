"""Names are resolved to known or new entities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.memory.extraction.reconciliation.entities import ResolvedEntities, entity_names, resolve_entities
from tellback.memory.extraction.reconciliation.planner import slots_to_load
from tellback.memory.extraction.values import ExtractedEntity, Extraction
from tellback.types.memory import Entity, EntityStatus, EntityType
from tests.unit.memory.space import MAYA, NOON, Space, day, make_fact, make_window

PERSON, PLACE = EntityType.PERSON, EntityType.PLACE


def make_entity(id: str, name: str, *aliases: str, type: EntityType = PERSON, merged_into: str | None = None) -> Entity:
    status = EntityStatus.ACTIVE if merged_into is None else EntityStatus.MERGED
    fields: dict[str, Any] = {"aliases": aliases, "status": status, "merged_into": merged_into}
    return Entity(id, "ms_1", MAYA, type, name, NOON, NOON, **fields)


def extracted_person(name: str, *aliases: str) -> ExtractedEntity:
    return ExtractedEntity(name, PERSON, aliases)


def drafted_names(resolved: ResolvedEntities) -> list[tuple[str, tuple[str, ...]]]:
    """Return the new entities, each with its aliases."""
    return [(draft.canonical_name, draft.aliases) for draft in resolved.drafts.values()]


def test_a_name_resolves_to_the_entity_with_that_name() -> None:
    resolved = resolve_entities(
        [extracted_person("ANN"), extracted_person("Bobby")],
        [make_entity("e1", "Ann"), make_entity("e2", "Robert", "Bobby")],
    )
    assert (resolved.id_of("ann"), resolved.id_of("Bobby"), resolved.id_of("robert")) == ("e1", "e2", "e2")
    assert (drafted_names(resolved), dict(resolved.aliases)) == ([], {})


def test_a_main_name_has_priority_over_an_alias() -> None:
    people = [make_entity("e1", "Robert", "Sam"), make_entity("e2", "Sam")]
    assert resolve_entities([extracted_person("Sam")], people).id_of("Sam") == "e2"


def test_a_matched_entity_gets_the_new_alias() -> None:
    resolved = resolve_entities([extracted_person("Bob", "Robert", "Bobby")], [make_entity("e1", "Robert")])
    assert resolved.id_of("Bob") == "e1"
    assert dict(resolved.aliases) == {"e1": ("Bob", "Bobby")}


def test_an_alias_of_another_entity_is_not_added() -> None:
    resolved = resolve_entities(
        [extracted_person("Bob", "Robert")], [make_entity("e1", "Bob"), make_entity("e2", "Robert")]
    )
    assert (resolved.id_of("Bob"), dict(resolved.aliases)) == ("e1", {})


def test_a_merged_entity_resolves_to_its_target() -> None:
    people = [
        make_entity("e1", "Bob", merged_into="e2"),
        make_entity("e2", "Robert", merged_into="e3"),
        make_entity("e3", "Robert Smith"),
    ]
    assert resolve_entities([extracted_person("Bob")], people).id_of("Bob") == "e3"
    assert drafted_names(resolve_entities([extracted_person("Bob")], people[:1])) == [("Bob", ())]


def test_the_same_name_with_another_type_is_a_different_entity() -> None:
    resolved = resolve_entities([ExtractedEntity("Paris", PLACE)], [make_entity("e1", "Paris")])
    assert drafted_names(resolved) == [("Paris", ())]
    assert resolved.id_of("Paris") != "e1"


def test_extracted_entities_are_merged_if_an_alias_equals_a_main_name() -> None:
    entities = [
        extracted_person("Annie", "Ann"),
        extracted_person("Zoe"),
        extracted_person("Ann", "Anna Lee", "Lee"),
        extracted_person("LEE", "Mrs Lee"),
    ]
    resolved = resolve_entities(entities, [])
    assert drafted_names(resolved) == [("Annie", ("Ann", "LEE", "Anna Lee", "Mrs Lee")), ("Zoe", ())]
    assert resolved.ids_of(["Ann", "Mrs Lee", "Zoe", "nobody"]) == tuple(resolved.drafts)


def test_a_common_alias_does_not_merge_entities() -> None:
    resolved = resolve_entities(
        [extracted_person("John Smith", "John", "Johnny"), extracted_person("John Doe", "John")], []
    )
    assert drafted_names(resolved) == [("John Smith", ("Johnny",)), ("John Doe", ())]
    assert resolved.id_of("John") is None


def test_a_common_alias_does_not_match_a_known_entity() -> None:
    resolved = resolve_entities(
        [extracted_person("Carol Diaz", "Boss", "Caz")], [make_entity("e1", "Alice Chen", "Boss")]
    )
    assert drafted_names(resolved) == [("Carol Diaz", ("Caz",))]
    assert resolved.id_of("Boss") == "e1"


@pytest.mark.parametrize("role", ["my boss", "The landlord", "her sister"])
def test_a_role_is_not_a_name(role: str) -> None:
    assert drafted_names(resolve_entities([extracted_person("Alice Chen", role)], [])) == [("Alice Chen", ())]
    assert drafted_names(resolve_entities([ExtractedEntity("The Beatles", EntityType.ORGANIZATION)], [])) == [
        ("The Beatles", ())
    ]


async def test_a_fact_with_an_ambiguous_name_gets_both_namesakes(space: Space) -> None:
    jordans = [extracted_person("Jordan"), ExtractedEntity("Jordan", PLACE)]
    facts = [
        make_fact("User met Jordan.", 1, entities=("Jordan",)),
        make_fact("User went to Jordan.", 1, entities=("Jordan",)),
    ]
    plan = await space.plan_and_apply(make_window(1), *facts, entities=jordans)
    assert [draft.type for draft in plan.reconciliation.entities] == [PERSON, PLACE]
    assert {len(atom.entity_ids) for atom in await space.atoms()} == {2}
    assert (await space.plan(make_window(1), *facts, entities=jordans)).reconciliation.changes == ()


async def test_the_birthday_of_a_new_boss_is_not_that_of_the_old_one(space: Space) -> None:
    for number, name in enumerate(["Alice Chen", "Carol Diaz"]):
        born = make_fact(
            f"{name} was born in May {number}.", number, subject=name, attribute="birthday", value=f"May {number}"
        )
        await space.plan_and_apply(
            make_window(number),
            replace(born, single=True, entities=(name,)),
            entities=[extracted_person(name, "my boss")],
        )
    assert len(await space.texts_valid_at(day(1))) == 2


def test_a_pronoun_is_not_an_entity() -> None:
    resolved = resolve_entities(
        [
            extracted_person("User"),
            extracted_person("she", "her"),
            extracted_person("I", "Maya"),
            extracted_person("  "),
        ],
        [],
    )
    assert drafted_names(resolved) == [("Maya", ())]
    assert resolved.id_of("user") is None


def test_the_names_to_look_up_include_entities_and_subjects() -> None:
    extraction = Extraction(
        (make_fact("…", subject="Zoe"), make_fact("…", subject="user")), (extracted_person("Ann", "Annie"),)
    )
    assert entity_names(extraction) == ("Ann", "Annie", "Zoe")


@given(
    st.lists(
        st.builds(
            ExtractedEntity,
            st.sampled_from(["a", "b", "c", "d", "user"]),
            st.sampled_from([PERSON, PLACE]),
            st.lists(st.sampled_from(["a", "b", "e", "f", "he"]), max_size=2).map(tuple),
        )
    )
)
def test_each_name_of_a_type_resolves_to_one_entity(extracted: list[ExtractedEntity]) -> None:
    resolved = resolve_entities(extracted, [])
    names = [
        (draft.type, name) for draft in resolved.drafts.values() for name in (draft.canonical_name, *draft.aliases)
    ]
    assert len(names) == len(set(names))
    entities = [
        Entity(draft.id, "ms_1", MAYA, draft.type, draft.canonical_name, NOON, NOON, aliases=draft.aliases)
        for draft in resolved.drafts.values()
    ]
    repeated = resolve_entities(extracted, entities)
    assert (dict(repeated.drafts), dict(repeated.aliases), dict(repeated.ids)) == ({}, {}, dict(resolved.ids))


async def test_entities_are_created_only_with_facts_about_them(space: Space) -> None:
    entities = [extracted_person("Ann", "Annie"), extracted_person("Zoe"), ExtractedEntity("Rome", PLACE)]
    plan = await space.plan_and_apply(
        make_window(1), make_fact("User met Annie in Rome.", 1, entities=("Annie", "Rome", "user")), entities=entities
    )
    assert [draft.canonical_name for draft in plan.reconciliation.entities] == ["Ann", "Rome"]
    [atom] = await space.atoms()
    assert len(atom.entity_ids) == 2
    repeated = await space.plan_and_apply(
        make_window(2),
        make_fact("Ann, who is Nan, likes tea.", 2, entities=("Nan",)),
        entities=[extracted_person("Nan", "Ann")],
    )
    assert dict(repeated.reconciliation.aliases) == {atom.entity_ids[0]: ("Nan",)}
    *_, later = await space.atoms()
    assert later.entity_ids == atom.entity_ids[:1]


async def test_a_slot_is_the_same_under_every_name_of_its_subject(space: Space) -> None:
    job: dict[str, Any] = {"attribute": "job", "single": True}
    await space.plan_and_apply(
        make_window(1),
        make_fact("Bob is a nurse.", 1, subject="Bob", value="nurse", **job, entities=("Bob",)),
        entities=[extracted_person("Bob")],
    )
    fact = make_fact("Robert is a cook.", 2, subject="Robert", value="cook", **job, entities=("Robert",))
    plan = await space.plan_and_apply(make_window(2), fact, entities=[extracted_person("Robert", "Bob")])
    assert plan.superseded == 1
    assert await space.texts_valid_at(day(2)) == ["Robert is a cook."]
    third = make_fact("Robert is a pilot.", 3, subject="robert", value="pilot", **job)
    assert slots_to_load(Extraction((third,)), ResolvedEntities()) == ("robert: job",)
    plan = await space.plan_and_apply(make_window(3), third)
    assert plan.superseded == 1
