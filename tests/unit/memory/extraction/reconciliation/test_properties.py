"""Properties of any history: extracting again changes nothing, and the order of extraction does not matter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tellback.memory.extraction.values import Change, Decision, ExtractedEntity, ExtractedFact, Verdict
from tellback.stores import AddedCitation, Reconciliation, Replacement
from tellback.types.memory import AtomStatus, EntityType
from tests.unit.memory.space import EVENT, PROFILE, Space, day, home_fact, make_fact, make_window, open_space

pytestmark = pytest.mark.slow

CITIES = ["Lisbon", "Porto", "Paris", "Rome", "Oslo", "New York", "Lisbon, Portugal"]
no_deadline = settings(deadline=None, suppress_health_check=list(HealthCheck))


def in_a_space(run: Callable[[Space], Awaitable[None]]) -> None:
    """Run a function in a new space."""

    async def main() -> None:
        async with open_space() as space:
            await run(space)

    asyncio.run(main())


def some_day(least: int = -20) -> st.SearchStrategy[datetime | None]:
    return st.none() | st.integers(least, 20).map(day)


@st.composite
def facts(draw: st.DrawFn) -> ExtractedFact:
    stated_days = draw(st.lists(st.integers(0, 9), min_size=1, max_size=2))
    begins, ends = draw(some_day()), draw(st.none() | some_day())
    if begins is not None and ends is not None and ends <= begins:
        ends = None
    value = draw(st.sampled_from(CITIES))
    slotted = draw(st.booleans())
    return make_fact(
        f"User {draw(st.sampled_from(['lives in', 'moved to', 'does not live in']))} {value}",
        stated_days,
        category=draw(st.sampled_from([PROFILE, PROFILE, EVENT])),
        valid_from=begins,
        valid_to=ends,
        subject="user" if slotted else None,
        attribute=draw(st.sampled_from(["home city", "work city"])) if slotted else None,
        value=value if slotted else None,
        single=draw(st.booleans()),
        change=draw(st.sampled_from(Change)),
        entities=(value,) if draw(st.booleans()) else (),
    )


extractions = st.lists(facts(), max_size=6)
places = [ExtractedEntity(city, EntityType.PLACE, (city.upper(), "the city")) for city in CITIES]


@settings(no_deadline, max_examples=40)
@given(known_facts=extractions, new_facts=extractions, forgotten=st.sets(st.integers(0, 5)))
def test_extracting_the_same_facts_again_changes_nothing(
    known_facts: list[ExtractedFact], new_facts: list[ExtractedFact], forgotten: set[int]
) -> None:
    async def run(space: Space) -> None:
        await space.plan_and_apply(
            make_window(*range(10), conversation_id="conv_0"), *_cite_conversation("conv_0", known_facts)
        )
        for number, atom in enumerate(await space.atoms()):
            if number in forgotten:
                await space.set_status(atom, AtomStatus.DELETED if number % 2 else AtomStatus.ARCHIVED)
        learned = await space.plan_and_apply(make_window(*range(10)), *new_facts, entities=places)
        assert_sound(learned.reconciliation)
        repeated = await space.plan(make_window(*range(10)), *new_facts, entities=places)
        assert repeated.reconciliation.changes == ()
        assert repeated.reconciliation.entities == ()
        assert not repeated.reconciliation.aliases
        assert repeated.unchanged + len(repeated.left_out) == len(new_facts)

    in_a_space(run)


@settings(no_deadline, max_examples=40)
@given(
    known_facts=extractions,
    new_facts=extractions,
    verdicts=st.lists(st.sampled_from(Verdict), min_size=6, max_size=6),
    chosen=st.integers(0, 5),
)
def test_any_decision_is_applied_once(
    known_facts: list[ExtractedFact], new_facts: list[ExtractedFact], verdicts: list[Verdict], chosen: int
) -> None:
    async def run(space: Space) -> None:
        await space.plan_and_apply(
            make_window(*range(10), conversation_id="conv_0"), *_cite_conversation("conv_0", known_facts)
        )
        window = make_window(*range(10))
        first_plan = await space.plan(window, *new_facts)
        decisions = {
            number: Decision(verdicts[number], question.candidates[chosen % len(question.candidates)].id)
            for number, question in first_plan.questions.items()
        }
        plan = await space.plan_and_apply(window, *new_facts, decisions=decisions)
        assert_sound(plan.reconciliation)
        total = plan.added + plan.superseded + plan.cited + plan.unchanged
        assert total + len(plan.left_out) == len(new_facts)

    in_a_space(run)


@settings(no_deadline, max_examples=60)
@given(
    moves=st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from(["Lisbon", "Porto", "Rome"])),
        min_size=1,
        max_size=7,
        unique_by=lambda each: each[0],
    ),
    dated=st.booleans(),
)
def test_the_latest_value_wins_in_any_order_of_extraction(moves: list[tuple[int, str]], dated: bool) -> None:
    async def run(space: Space) -> None:
        for number, city in moves:
            name = f"conv_{number}"
            fact = home_fact(city, number, conversation_id=name, valid_from=day(number) if dated else None)
            await space.learn_facts(fact, conversation_id=name)
            repeated = await space.plan(make_window(number, conversation_id=name), fact)
            assert repeated.reconciliation.changes == ()
        for moment in range(-1, 22):
            started = [city for number, city in sorted(moves) if number <= moment]
            expected = [f"User lives in {started[-1]}."] if started else []
            assert await space.texts_valid_at(day(moment)) == expected, moment

    in_a_space(run)


@settings(no_deadline, max_examples=40)
@given(
    homes=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(CITIES[:3])), max_size=7, unique_by=lambda each: each[0]
    ),
    at_once=st.booleans(),
)
def test_extracted_in_order_the_latest_value_wins_even_if_it_is_an_old_one(
    homes: list[tuple[int, str]], at_once: bool
) -> None:
    async def run(space: Space) -> None:
        in_order = [home_fact(city, number) for number, city in sorted(homes)]
        for each in [in_order] if at_once else [[one] for one in in_order]:
            await space.plan_and_apply(make_window(*range(10)), *each)
        for moment in range(10):
            started = [city for number, city in sorted(homes) if number <= moment]
            assert await space.texts_valid_at(day(moment)) == [f"User lives in {city}." for city in started[-1:]]

    in_a_space(run)


def assert_sound(reconciliation: Reconciliation) -> None:
    """Check that no planned atom ends before it starts, and that every draft has citations without duplicates."""
    for change in reconciliation.changes:
        if not isinstance(change, AddedCitation):
            draft = change.draft if isinstance(change, Replacement) else change
            assert draft.valid_to is None or draft.valid_from < draft.valid_to
            cited_ids = [id for other in draft.other_sources for id in other.message_ids]
            cited_ids += draft.source_message_ids
            assert cited_ids
            assert len(cited_ids) == len(set(cited_ids))


def _cite_conversation(conversation_id: str, facts: list[ExtractedFact]) -> list[ExtractedFact]:
    """Return the same extraction from another conversation."""
    return [
        replace(each, message_ids=tuple(id.replace("conv_1", conversation_id) for id in each.message_ids))
        for each in facts
    ]
