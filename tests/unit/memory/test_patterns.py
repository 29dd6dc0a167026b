"""Recurring episodes become one pattern, and a deleted pattern stays deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tellback.memory.patterns import PatternChanges, cluster_episodes, describe_regularity, find_patterns, remove_dates
from tellback.stores import AddedCitation, Replacement
from tellback.testing.stores.factories import make_entity
from tellback.types.ids import to_micros
from tellback.types.memory import TURN_CATEGORY, Atom, AtomStatus, Category, CategoryKind, Citation
from tests.unit.memory.space import EVENT, MAYA, NOON, Space, day, open_space

MONDAYS = [1, 8, 15, 22, 29, 36]
"""Days after 1 March 2026, which is a Sunday."""


WORDS = ["run", "swim", "park", "lake", "Anna", "Ben", "rome", "Rome", "tea", "dinner", "not"]


async def add_episodes(space: Space, text: str, days: Sequence[float], **fields: Any) -> list[Atom]:
    """Add episodes, each stated on its day."""
    return [
        await space.add(
            text,
            **{
                "category": EVENT,
                "valid_from": day(number),
                "source_conversation_id": f"conv_{number}",
                "source_message_ids": (f"m{number}",),
                **fields,
            },
        )
        for number in days
    ]


async def find_changes(space: Space, **options: Any) -> PatternChanges:
    """Return the changes that mining would make."""
    all_atoms = [atom for status in AtomStatus for atom in await space.atoms(status)]
    return find_patterns(all_atoms, all_atoms, **options)


async def apply_changes(space: Space, found: PatternChanges) -> None:
    """Apply the changes of mining."""
    await space.apply(found.reconciliation)
    for id in found.archived:
        await space.set_status(await space.atom(id), AtomStatus.ARCHIVED)
    for id in found.restored:
        await space.set_status(await space.atom(id), AtomStatus.ACTIVE)


async def list_patterns(space: Space) -> list[Atom]:
    """Mine the space, and return its current patterns."""
    await apply_changes(space, await find_changes(space))
    found = [atom for atom in await space.atoms() if atom.category.kind is CategoryKind.PATTERN]
    return [atom for atom in found if atom.superseded_by is None]


async def test_episodes_on_three_days_form_a_pattern_that_cites_them(space: Space) -> None:
    await add_episodes(space, "User went running in the park.", [3, 1, 2, 2.1], importance=4)
    [pattern] = await list_patterns(space)
    assert pattern.text == "Recurs: User went running in the park."
    assert pattern.category == Category("pattern", CategoryKind.PATTERN)
    assert (pattern.valid_from, pattern.importance, pattern.confidence) == (day(1), 4, 0.75)
    assert pattern.citations == tuple(Citation(f"conv_{n}", (f"m{n}",)) for n in (1, 2, 2.1, 3))


async def test_episodes_on_fewer_than_three_days_form_no_pattern(space: Space) -> None:
    await add_episodes(space, "User went running in the park.", [1, 2])
    await add_episodes(space, "User called Anna.", [1, 1.1, 1.2, 1.3])
    assert await list_patterns(space) == []
    assert len((await find_changes(space, at_least=2)).reconciliation.changes) == 1


async def test_a_regular_rhythm_is_part_of_the_pattern_text(space: Space) -> None:
    await add_episodes(space, "User had dinner with Anna.", MONDAYS[:3])
    [pattern] = await list_patterns(space)
    assert pattern.text == "Recurs on Mondays: User had dinner with Anna."


async def test_other_wordings_and_dates_belong_to_the_same_pattern(space: Space) -> None:
    await add_episodes(space, "User ran 5 km in the park on 2 March 2026.", [1])
    await add_episodes(space, "User ran in the park on Monday, 9 March 2026.", [8])
    await add_episodes(space, "User was running in the park for 30 minutes.", [15])
    await add_episodes(space, "On 2026-03-23, user ran in the park.", [22])
    [pattern] = await list_patterns(space)
    assert pattern.text == "Recurs on Mondays: User ran in the park."


NEAR_MISSES = [
    ("User had lunch with Anna.", "User had lunch with Ben."),
    ("User went running in the park.", "User went swimming in the lake."),
    ("User paid the rent.", "User did not pay the rent."),
    ("User flew to Rome for work.", "User flew to Oslo for work."),
]


@pytest.mark.parametrize(("one", "other"), NEAR_MISSES)
async def test_merely_similar_episodes_are_not_grouped(space: Space, one: str, other: str) -> None:
    await add_episodes(space, one, [1, 3])
    await add_episodes(space, other, [4, 6])
    assert await list_patterns(space) == []


async def test_episodes_with_different_people_are_not_grouped(space: Space) -> None:
    for number, name in enumerate(("Anna", "Bob", "Carl", "Dora"), 1):
        await add_episodes(space, f"User met {name} for coffee at Blue Bottle.", [number])
    assert await list_patterns(space) == []
    await add_episodes(space, "user met bob for coffee at blue bottle", [5, 7])
    [pattern] = await list_patterns(space)
    assert pattern.text.casefold().startswith("recurs: user met bob for coffee at blue bottle")


async def test_people_with_the_same_name_are_distinguished(space: Space) -> None:
    stored = await space.store.memories.space(MAYA, space.id)
    assert stored is not None
    one, other = [await make_entity(space.store, stored, name) for name in ("Anna Chen", "Anna Diaz")]
    nowhere = {"source_conversation_id": None, "source_message_ids": ()}
    await add_episodes(space, "User met Anna.", [1, 3], entity_ids=(one.id,))
    await add_episodes(space, "User met Anna.", [2, 4], entity_ids=(other.id,))
    assert await list_patterns(space) == []
    await add_episodes(space, "User met Anna.", MONDAYS, entity_ids=(one.id,), **nowhere)
    await add_episodes(space, "User met Anna.", [16, 18, 24], entity_ids=(other.id,), **nowhere)
    found = await list_patterns(space)
    assert {pattern.entity_ids for pattern in found} == {(one.id,), (other.id,)}
    assert await find_changes(space) == PatternChanges()


async def test_excluded_categories_and_turns_are_ignored(space: Space) -> None:
    await add_episodes(space, "User: I am tired.", [1, 2, 3], category=TURN_CATEGORY)
    await add_episodes(space, "User took pills.", [1, 2, 3], category=Category("health", CategoryKind.EPISODE))
    await add_episodes(space, "User likes tea.", [1, 2, 3], category=Category("taste", CategoryKind.FACT))
    for atom in (await add_episodes(space, "User saw a doctor.", [1, 2, 3]))[:1]:
        await space.set_status(atom, AtomStatus.DELETED)
    assert await find_changes(space, exclude=["HEALTH"]) == PatternChanges()
    [pattern] = await list_patterns(space)
    assert pattern.text == "Recurs: User took pills."


async def test_further_episodes_are_cited(space: Space) -> None:
    await add_episodes(space, "User had dinner with Anna.", MONDAYS[:3])
    [pattern] = await list_patterns(space)
    await add_episodes(space, "User had a nice dinner with Anna.", MONDAYS[3:4])
    changes = (await find_changes(space)).reconciliation.changes
    assert changes == (AddedCitation(pattern.id, Citation("conv_22", ("m22",))),)
    [found] = await list_patterns(space)
    assert (found.id, found.text) == (pattern.id, pattern.text)


async def test_a_pattern_whose_rule_changed_is_superseded(space: Space) -> None:
    await add_episodes(space, "User had dinner with Anna.", MONDAYS[:3])
    [pattern] = await list_patterns(space)
    await add_episodes(space, "User had dinner with Anna.", [16, 18, 24])
    [change] = (await find_changes(space)).reconciliation.changes
    assert isinstance(change, Replacement)
    [found] = await list_patterns(space)
    assert (found.text, found.supersedes) == ("Recurs: User had dinner with Anna.", pattern.id)
    assert len(found.citations) == 6


async def test_a_pattern_stops_quoting_a_deleted_episode(space: Space) -> None:
    secret = await add_episodes(space, "User ran by the secret lake.", [1, 2])
    await add_episodes(space, "User ran by the lake.", [4])
    [pattern] = await list_patterns(space)
    assert pattern.text == "Recurs: User ran by the secret lake."
    for atom in secret:
        await space.set_status(atom, AtomStatus.DELETED)
    await add_episodes(space, "User ran by the lake.", [5, 7])
    [found] = await list_patterns(space)
    assert (found.text, found.supersedes) == ("Recurs: User ran by the lake.", pattern.id)
    assert [each.conversation_id for each in found.citations] == ["conv_4", "conv_5", "conv_7"]


async def test_a_deleted_pattern_does_not_return_from_known_episodes(space: Space) -> None:
    await add_episodes(space, "User had dinner with Anna.", MONDAYS[:3])
    [pattern] = await list_patterns(space)
    await space.set_status(pattern, AtomStatus.DELETED)
    assert await find_changes(space) == PatternChanges()
    space.now += timedelta(hours=1)
    await add_episodes(space, "User had dinner with Anna.", MONDAYS[3:5])
    assert await find_changes(space) == PatternChanges()
    await add_episodes(space, "User had dinner with Anna.", MONDAYS[5:])
    [found] = await list_patterns(space)
    assert [each.conversation_id for each in found.citations] == ["conv_22", "conv_29", "conv_36"]
    assert await find_changes(space) == PatternChanges()


async def test_an_archived_pattern_gets_citations_and_stays_archived(space: Space) -> None:
    await add_episodes(space, "User had dinner with Anna.", MONDAYS[:3])
    [pattern] = await list_patterns(space)
    await space.set_status(pattern, AtomStatus.ARCHIVED)
    await add_episodes(space, "User had dinner with Anna.", [16, 18, 24])
    assert all(isinstance(change, AddedCitation) for change in (await find_changes(space)).reconciliation.changes)
    assert await list_patterns(space) == []
    assert await find_changes(space) == PatternChanges()


async def test_a_pattern_without_its_episodes_is_archived_and_restored_with_them(space: Space) -> None:
    episodes = await add_episodes(space, "User had dinner with Anna.", MONDAYS[:3])
    [pattern] = await list_patterns(space)
    await space.set_status(episodes[0], AtomStatus.ARCHIVED)
    assert (await find_changes(space)).archived == (pattern.id,)
    assert await list_patterns(space) == []
    assert await find_changes(space) == PatternChanges()
    space.now += timedelta(hours=1)
    await space.set_status(episodes[0], AtomStatus.ACTIVE)
    [found] = await list_patterns(space)
    assert found.id == pattern.id
    assert await find_changes(space) == PatternChanges()


async def test_a_pattern_that_returns_with_another_rule_is_superseded(space: Space) -> None:
    episodes = await add_episodes(space, "User had dinner with Anna.", MONDAYS[:3])
    [pattern] = await list_patterns(space)
    await space.set_status(episodes[0], AtomStatus.DELETED)
    assert await list_patterns(space) == []
    space.now += timedelta(hours=1)
    await add_episodes(space, "User had dinner with Anna.", [18])
    [found] = await list_patterns(space)
    assert (found.text, found.supersedes) == ("Recurs: User had dinner with Anna.", pattern.id)
    assert await find_changes(space) == PatternChanges()


async def test_a_pattern_of_the_same_messages_does_not_keep_another_alive(space: Space) -> None:
    await add_episodes(space, "User went running in the park.", [1, 2, 4])
    woods = await add_episodes(space, "User went running in the woods.", [1, 2, 4])
    park, _ = await list_patterns(space)
    for atom in woods:
        await space.set_status(atom, AtomStatus.DELETED)
    assert [each.id for each in await list_patterns(space)] == [park.id]


async def test_the_predecessor_of_a_deleted_pattern_stays_deleted(space: Space) -> None:
    await add_episodes(space, "User had dinner with Anna.", MONDAYS[:3])
    [first] = await list_patterns(space)
    await add_episodes(space, "User had dinner with Anna.", [16, 18, 24])
    [second] = await list_patterns(space)
    assert second.supersedes == first.id
    await space.set_status(second, AtomStatus.DELETED)
    assert await list_patterns(space) == []
    assert await find_changes(space) == PatternChanges()


async def test_an_atom_with_which_a_user_superseded_a_pattern_counts_as_the_pattern(space: Space) -> None:
    await add_episodes(space, "User had dinner with Anna.", MONDAYS[:3])
    [pattern] = await list_patterns(space)
    await space.supersede(pattern, "User is married to Anna.", day(30))
    assert await find_changes(space) == PatternChanges()
    await add_episodes(space, "User had dinner with Anna.", [16, 18, 24])
    assert await find_changes(space) == PatternChanges()


async def test_two_patterns_of_the_same_messages_are_distinguished(space: Space) -> None:
    await add_episodes(space, "User went running in the park.", [1, 2, 4])
    await add_episodes(space, "User drank coffee.", [1, 2, 4])
    running, coffee = await list_patterns(space)
    assert await find_changes(space) == PatternChanges()
    await space.set_status(coffee, AtomStatus.DELETED)
    await add_episodes(space, "User went running in the park.", [6])
    [found] = await list_patterns(space)
    assert found.id == running.id
    assert len(found.citations) == 4


async def test_episodes_without_citations_form_patterns(space: Space) -> None:
    nowhere = {"source_conversation_id": None, "source_message_ids": ()}
    await add_episodes(space, "User called Anna.", [1, 2, 4], **nowhere)
    [pattern] = await list_patterns(space)
    assert pattern.citations == ()
    await add_episodes(space, "User called Anna.", [5], **nowhere)
    assert await find_changes(space) == PatternChanges()


async def test_a_pattern_gets_the_entities_of_most_of_its_episodes(space: Space) -> None:
    stored = await space.store.memories.space(MAYA, space.id)
    assert stored is not None
    anna, ben = [await make_entity(space.store, stored, name) for name in ("Anna", "Ben")]
    await add_episodes(space, "User met Anna.", [1, 2], entity_ids=(anna.id,))
    await add_episodes(space, "User met Anna.", [4], entity_ids=(ben.id, anna.id))
    [pattern] = await list_patterns(space)
    assert pattern.entity_ids == (anna.id,)


@pytest.mark.parametrize(
    ("days", "when"),
    [
        (["2026-03-02", "2026-03-09", "2026-03-16"], "on Mondays"),
        (["2026-03-02", "2026-03-09", "2026-03-16", "2026-03-23", "2026-03-31"], "on Mondays"),
        (["2026-03-02", "2026-03-09", "2026-03-17"], ""),
        (["2026-01-15", "2026-02-15", "2026-03-15"], "on day 15 of the month"),
        (["2026-03-02", "2026-03-03", "2026-03-04"], ""),
        (["2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05", "2026-03-06"], "daily"),
        (["2026-03-07", "2026-03-08", "2026-03-14", "2026-03-22"], "on weekends"),
        (["2026-03-02", "2026-03-09"], ""),
    ],
)
def test_a_rule_is_described_only_if_the_days_follow_it(days: list[str], when: str) -> None:
    assert describe_regularity([date.fromisoformat(each) for each in days], at_least=3) == when


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("User went running on 4 March 2026.", "User went running."),
        ("On 2026-03-04, user paid the rent.", "User paid the rent."),
        ("User had lunch with Anna on Monday, 2 March 2026, in Lisbon.", "User had lunch with Anna, in Lisbon."),
        ("User runs every Monday.", "User runs every Monday."),
        ("User ran on 4 March 2026.", "User ran."),
        ("4 March 2026.", "4 March 2026."),
        ("User went running in the morning.", "User went running in the morning."),
    ],
)
def test_a_sentence_loses_its_date(text: str, sentence: str) -> None:
    assert remove_dates(text, to_micros(NOON)) == sentence


def make_episode(number: int, text: str) -> Atom:
    return Atom(f"atom_{number:06}", "ms_1", MAYA, text, EVENT, day(number / 10), NOON, NOON)


def test_ten_thousand_episodes_are_grouped_by_content() -> None:
    texts = [
        f"User went to the {kind} place{number % 2_500} with friend{number % 2_500}"
        for number in range(5_000)
        for kind in ("old", "new")
    ]
    found = cluster_episodes(make_episode(number, text) for number, text in enumerate(texts))
    assert [len(each.episodes) for each in found] == [2] * 5_000
    assert all(len({atom.text for atom in each.episodes}) == 1 for each in found)


words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)
no_deadline = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(no_deadline, max_examples=25)
@given(
    episodes=st.lists(st.tuples(words, st.integers(0, 30), st.integers(0, 12)), max_size=25),
    later_episodes=st.lists(st.tuples(words, st.integers(0, 60), st.integers(13, 20)), max_size=8),
    forgotten=st.sets(st.integers(0, 3)),
    deleted=st.sets(st.integers(0, 24)),
)
def test_mining_again_changes_nothing(
    episodes: list[tuple[list[str], int, int]],
    later_episodes: list[tuple[list[str], int, int]],
    forgotten: set[int],
    deleted: set[int],
) -> None:
    async def run() -> None:
        async with open_space() as space:
            for round in (episodes, later_episodes):
                for episode_words, number, message in round:
                    source = {"source_conversation_id": "conv_1", "source_message_ids": (f"m{message}",)}
                    await add_episodes(
                        space, f"User {' '.join(episode_words)}", [number], **(source if message % 5 else {})
                    )
                found = await list_patterns(space)
                assert await find_changes(space) == PatternChanges()
                for place, pattern in enumerate(found):
                    if place in forgotten:
                        await space.set_status(pattern, AtomStatus.DELETED if place % 2 else AtomStatus.ARCHIVED)
                for place, atom in enumerate(each for each in await space.atoms() if each.category == EVENT):
                    if place in deleted:
                        await space.set_status(atom, AtomStatus.DELETED if place % 2 else AtomStatus.ARCHIVED)
                await list_patterns(space)
                assert await find_changes(space) == PatternChanges()
                space.now += timedelta(hours=1)
            assert await find_changes(space) == PatternChanges()

    asyncio.run(run())
