"""Facts similar to known atoms become questions, and decisions are applied."""

from __future__ import annotations

from typing import Any

import pytest

from tellback.memory.extraction.values import Change, Decision, ExtractedEntity, ExtractedFact, Question, Verdict
from tellback.types.memory import Atom, AtomStatus, EntityType
from tests.unit.memory.space import DAY, EVENT, Space, day, home_fact, make_fact, make_window

SIMILAR_FACTS = [
    ("User works as a nurse at St. Mary's hospital", "User works at St. Mary's hospital as a head nurse", False),
    ("User likes coffee", "User does not like coffee", False),
    ("Anna's birthday is on 3 May", "Anna's birthday is on 4 May", False),
    ("User is allergic to peanuts", "User is allergic to peanuts and cashews", False),
    ("User lives in Lisbon", "User lives in Porto", True),
    ("User's favourite team is Benfica", "User's favourite team is Porto", False),
]
DIFFERENT_FACTS = [
    ("User likes sushi", "User likes hiking", False),
    ("User lives in Lisbon", "Anna lives in Porto", False),
    ("User has a dog named Rex", "User has a cat named Tom", False),
    ("User works as a nurse", "User wants to learn Portuguese", True),
    ("User met Anna in Rome", "User plans a trip to Japan with Anna", False),
]


@pytest.mark.parametrize(("known", "statement", "single"), SIMILAR_FACTS)
async def test_a_fact_that_shares_half_of_its_words_is_a_question(
    space: Space, known: str, statement: str, single: bool
) -> None:
    atom = await space.add(known)
    plan = await space.plan(make_window(1), make_fact(statement, 1, single=single))
    assert [each.candidates for each in plan.questions.values()] == [(atom,)]
    assert plan.added == 1


@pytest.mark.parametrize(("known", "statement", "single"), DIFFERENT_FACTS)
async def test_a_fact_that_shares_fewer_words_is_new(space: Space, known: str, statement: str, single: bool) -> None:
    await space.add(known)
    plan = await space.plan(make_window(1), make_fact(statement, 1, single=single))
    assert (dict(plan.questions), plan.added) == ({}, 1)


def sport_fact(game: str, stated_day: float, *, slotted: bool = True, **fields: Any) -> ExtractedFact:
    """Build a fact with a slot that may have several values."""
    slot_fields = {"subject": "user", "attribute": "sport", "value": game} if slotted else {}
    return make_fact(fields.pop("text", f"User plays {game}."), stated_day, **{**slot_fields, **fields})


async def test_an_ambiguous_change_is_a_question_about_all_candidates(space: Space) -> None:
    steak = await space.add("User loves steak")
    for number in range(9):
        await space.add(f"User owns a boat with {number} sails")
    plan = await space.plan(
        make_window(1), make_fact("User stopped eating steak", 1, change=Change.CHANGED), make_fact("User is tall", 1)
    )
    [question] = plan.questions.values()
    assert question.candidates[0] == steak
    assert len(question.candidates) == 6


async def test_possible_synonyms_of_a_value_are_a_question_before_replacing(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    [lisbon] = await space.atoms()
    same_home = home_fact("Lisbon, Portugal", 5)
    plan = await space.plan(make_window(5), same_home)
    assert plan.questions[0].candidates == (lisbon,)
    assert plan.superseded == 1
    plan = await space.plan(make_window(5), same_home, decisions={0: Decision(Verdict.SAME, lisbon.id)})
    assert plan.cited == 1
    plan = await space.plan(make_window(5), same_home, decisions={0: Decision(Verdict.NEW)})
    assert (plan.added, plan.superseded) == (1, 0)
    await space.plan_and_apply(make_window(5), same_home, decisions={0: Decision(Verdict.CORRECTS, lisbon.id)})
    assert await space.texts_valid_at(day(1)) == ["User lives in Lisbon, Portugal."]


async def apply_decision(space: Space, verdict: Verdict, atom: Atom | None, stated_day: float = 5) -> str:
    """Apply a decision on a fact, and check that extracting again changes nothing."""
    other = make_fact("User eats fish these days", stated_day, change=Change.CHANGED)
    decisions = {0: Decision(verdict, None if atom is None else atom.id)}
    plan = await space.plan_and_apply(make_window(stated_day), other, decisions=decisions)
    repeated = await space.plan(make_window(stated_day), other, decisions=decisions)
    assert repeated.reconciliation.changes == () or verdict is Verdict.SAME
    return next(name for name, count in plan.counts.items() if count)


async def test_the_verdict_same_adds_a_citation(space: Space) -> None:
    atom = await space.add("User eats fish now")
    assert await apply_decision(space, Verdict.SAME, atom) == "cited"
    assert (await space.atom(atom.id)).citations[0].message_ids == ("conv_1:m5",)


async def test_the_verdict_replaces_supersedes_from_the_facts_start(space: Space) -> None:
    atom = await space.add("User is vegan")
    assert await apply_decision(space, Verdict.REPLACES, atom) == "superseded"
    assert await space.texts_valid_at(day(4)) == ["User is vegan"]
    assert await space.texts_valid_at(day(5)) == ["User eats fish these days"]


async def test_the_verdict_corrects_supersedes_from_the_atoms_start(space: Space) -> None:
    atom = await space.add("User is vegan")
    assert await apply_decision(space, Verdict.CORRECTS, atom) == "superseded"
    assert await space.texts_valid_at(day(0)) == ["User eats fish these days"]


async def test_the_verdict_new_adds_the_fact(space: Space) -> None:
    await space.add("User is vegan")
    assert await apply_decision(space, Verdict.NEW, None) == "added"


async def test_replacing_a_superseded_atom_supersedes_the_last_of_its_chain(space: Space) -> None:
    vegan = await space.add("User is vegan")
    meat = await space.supersede(vegan, "User eats meat", day(3))
    assert await apply_decision(space, Verdict.REPLACES, vegan) == "superseded"
    assert (await space.atom(meat.id)).valid_to == day(5)
    assert await space.texts_valid_at(day(5)) == ["User eats fish these days"]


async def test_a_fact_that_equals_an_ended_atom_becomes_valid_again(space: Space) -> None:
    fish = await space.add("User eats fish")
    await space.supersede(fish, "User is vegan", day(3))
    assert await apply_decision(space, Verdict.SAME, fish) == "superseded"
    assert await space.texts_valid_at(day(4)) == ["User is vegan"]
    assert await space.texts_valid_at(day(5)) == ["User eats fish these days"]


async def test_an_earlier_value_is_placed_before_its_replacement(space: Space) -> None:
    vegan = await space.add("User is vegan", valid_from=day(9))
    assert await apply_decision(space, Verdict.REPLACES, vegan) == "added"
    assert await space.texts_valid_at(day(8)) == ["User eats fish these days"]
    assert await space.texts_valid_at(day(9)) == ["User is vegan"]


async def test_a_correction_in_the_middle_of_a_chain_keeps_later_atoms(space: Space) -> None:
    vegan = await space.add("User is vegan")
    await space.supersede(vegan, "User eats meat", day(3))
    assert await apply_decision(space, Verdict.CORRECTS, vegan) == "added"
    assert await space.texts_valid_at(day(2)) == ["User eats fish these days"]
    assert await space.texts_valid_at(day(3)) == ["User eats meat"]


async def test_equal_facts_share_a_decision(space: Space) -> None:
    atom = await space.add("User is an early riser")
    facts = [make_fact("User gets up at dawn", 1, change=Change.CHANGED), make_fact("User gets up at dawn.", 2)]
    plan = await space.plan(make_window(1, 2), *facts, decisions={0: Decision(Verdict.SAME, atom.id)})
    assert (plan.cited, plan.added) == (2, 0)


async def test_a_decision_applies_even_if_the_candidate_has_changed(space: Space) -> None:
    vegan = await space.add("User is vegan")
    other = await space.add("User is tall")
    for status, expected in ((AtomStatus.ARCHIVED, {"superseded", "cited"}), (AtomStatus.DELETED, {"added"})):
        await space.set_status(vegan, status)
        for verdict in (Verdict.SAME, Verdict.REPLACES, Verdict.CORRECTS):
            plan = await space.plan(
                make_window(5),
                make_fact("User eats fish", 5, change=Change.CHANGED),
                candidates={0: [await space.atom(vegan.id), other]},
                decisions={0: Decision(verdict, vegan.id)},
            )
            assert {name for name, count in plan.counts.items() if count} <= expected


async def test_replacing_a_deleted_atom_adds_a_new_one(space: Space) -> None:
    await space.add("User is vegan")
    plan = await space.plan(
        make_window(1),
        make_fact("User eats fish", 1, change=Change.CHANGED),
        decisions={0: Decision(Verdict.SAME, "atom_x")},
    )
    assert (plan.added, dict(plan.questions)) == (1, {})


@pytest.mark.parametrize("verdict", [Verdict.REPLACES, Verdict.CORRECTS])
@pytest.mark.parametrize("slotted", [True, False])
async def test_two_facts_can_replace_one_atom_together(space: Space, verdict: Verdict, slotted: bool) -> None:
    for game, number in (("tennis", 1), ("golf", 2)):
        await space.learn_facts(sport_fact(game, number, slotted=slotted))
    tennis, _ = await space.atoms()
    facts = [sport_fact(game, 5, slotted=slotted, change=Change.CORRECTED) for game in ("squash", "badminton")]
    decisions = {number: Decision(verdict, tennis.id) for number in (0, 1)}
    await space.plan_and_apply(make_window(5), *facts, decisions=decisions)
    assert sorted(await space.texts_valid_at(day(5))) == [
        f"User plays {game}." for game in ("badminton", "golf", "squash")
    ]
    assert (await space.plan(make_window(5), *facts, decisions=decisions)).reconciliation.changes == ()


async def test_of_two_changes_of_a_single_value_the_later_wins(space: Space) -> None:
    lisbon = await space.add("User lives in Lisbon")
    facts = [make_fact(f"User lives in {city}", number, single=True) for number, city in ((3, "Porto"), (5, "Rome"))]
    await space.plan_and_apply(
        make_window(3, 5), *facts, decisions=dict.fromkeys((0, 1), Decision(Verdict.REPLACES, lisbon.id))
    )
    assert await space.texts_valid_at(day(4)) == ["User lives in Porto"]
    assert await space.texts_valid_at(day(5)) == ["User lives in Rome"]


async def test_atoms_in_the_slot_are_candidates_before_similar_ones(space: Space) -> None:
    for game, number in (("tennis", 1), ("golf", 2)):
        await space.learn_facts(sport_fact(game, number, text=f"Often out for {game}."))
    slot_mates = await space.atoms()
    for number in range(9):
        await space.add(f"User plays chess at club {number}")
    plan = await space.plan(
        make_window(5), sport_fact("squash", 5, text="User plays chess no more", change=Change.CHANGED)
    )
    assert plan.questions[0].candidates[:2] == tuple(slot_mates)


async def test_a_common_entity_lowers_the_threshold_for_a_question(space: Space) -> None:
    ben = ExtractedEntity("Ben", EntityType.PERSON)
    await space.plan_and_apply(
        make_window(1), make_fact("User is married to Ben.", 1, entities=("Ben",)), entities=[ben]
    )
    plan = await space.plan(
        make_window(2), make_fact("User is divorced from Ben.", 2, entities=("Ben",)), entities=[ben]
    )
    assert [len(each.candidates) for each in plan.questions.values()] == [1]


async def test_a_single_value_in_a_slot_with_several_values_is_a_question(
    space: Space,
) -> None:
    pets = {"subject": "user", "attribute": "pet"}
    for number, pet in enumerate(["dog", "cat"]):
        await space.learn_facts(make_fact(f"User has a {pet}.", number, value=pet, **pets))
    dog, cat = await space.atoms()
    parrot = make_fact("User has a parrot.", 5, value="parrot", single=True, **pets)
    plan = await space.plan(make_window(5), parrot)
    assert (plan.questions[0].candidates, plan.added) == ((dog, cat), 1)
    await space.plan_and_apply(make_window(5), parrot, decisions={0: Decision(Verdict.REPLACES, cat.id)})
    assert await space.texts_valid_at(day(5)) == ["User has a dog.", "User has a parrot."]


async def test_a_denied_value_is_not_treated_as_the_new_value(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 3))
    *_, porto = await space.atoms()
    denial = home_fact("Lisbon", 5, text="User no longer lives in Lisbon.", change=Change.CHANGED)
    assert (await space.plan(make_window(5), denial)).questions[0].candidates == (porto,)
    await space.plan_and_apply(make_window(5), denial, decisions={0: Decision(Verdict.NEW)})
    assert await space.texts_valid_at(day(5)) == ["User lives in Porto.", "User no longer lives in Lisbon."]
    await space.learn_facts(home_fact("Rome", 9))
    assert await space.texts_valid_at(day(9)) == ["User no longer lives in Lisbon.", "User lives in Rome."]


async def test_an_episode_on_another_day_is_not_a_question(space: Space) -> None:
    for number in (1, 8):
        plan = await space.learn_facts(make_fact("User went running in the park.", number, category=EVENT))
        assert dict(plan.questions) == {}
    same_day = make_fact("User went running in a park.", 8.1, category=EVENT)
    plan = await space.plan(make_window(8.1), same_day)
    others = (await space.atoms())[1:]
    assert (dict(plan.questions), plan.added) == ({0: Question(same_day, tuple(others), day(8.1))}, 1)


async def test_archived_and_later_atoms_are_not_candidates(space: Space) -> None:
    atom = await space.add("User is vegan")
    await space.set_status(atom, AtomStatus.ARCHIVED)
    plan = await space.plan(
        make_window(1),
        make_fact("User is mostly vegan", 1, valid_from=day(0) - DAY),
        make_fact("User is a strict vegan", 1),
        candidates={0: [await space.atom(atom.id)]},
    )
    assert (dict(plan.questions), plan.added) == ({}, 2)
