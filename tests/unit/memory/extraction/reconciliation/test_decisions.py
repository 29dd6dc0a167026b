"""Facts that look like something known are asked about, and what is decided is done."""

from __future__ import annotations

from typing import Any

import pytest

from tellback.memory.extraction.values import Change, Decision, ExtractedEntity, ExtractedFact, Question, Verdict
from tellback.types.memory import Atom, AtomStatus, EntityType
from tests.unit.memory.space import DAY, EVENT, Space, day, home_fact, make_fact, make_window

ASKED_ABOUT = [
    ("User works as a nurse at St. Mary's hospital", "User works at St. Mary's hospital as a head nurse", False),
    ("User likes coffee", "User does not like coffee", False),
    ("Anna's birthday is on 3 May", "Anna's birthday is on 4 May", False),
    ("User is allergic to peanuts", "User is allergic to peanuts and cashews", False),
    ("User lives in Lisbon", "User lives in Porto", True),
    ("User's favourite team is Benfica", "User's favourite team is Porto", False),
]
NOT_ASKED = [
    ("User likes sushi", "User likes hiking", False),
    ("User lives in Lisbon", "Anna lives in Porto", False),
    ("User has a dog named Rex", "User has a cat named Tom", False),
    ("User works as a nurse", "User wants to learn Portuguese", True),
    ("User met Anna in Rome", "User plans a trip to Japan with Anna", False),
]


@pytest.mark.parametrize(("known", "statement", "single"), ASKED_ABOUT)
async def test_what_shares_half_of_its_words_is_asked_about(
    space: Space, known: str, statement: str, single: bool
) -> None:
    atom = await space.add(known)
    plan = await space.plan(make_window(1), make_fact(statement, 1, single=single))
    assert [each.candidates for each in plan.questions.values()] == [(atom,)]
    assert plan.added == 1


@pytest.mark.parametrize(("known", "statement", "single"), NOT_ASKED)
async def test_what_shares_less_is_new(space: Space, known: str, statement: str, single: bool) -> None:
    await space.add(known)
    plan = await space.plan(make_window(1), make_fact(statement, 1, single=single))
    assert (dict(plan.questions), plan.added) == ({}, 1)


def sport_fact(game: str, stated_day: float, *, slotted: bool = True, **fields: Any) -> ExtractedFact:
    """Something of which there may be several."""
    slot_fields = {"subject": "user", "attribute": "sport", "value": game} if slotted else {}
    return make_fact(fields.pop("text", f"User plays {game}."), stated_day, **{**slot_fields, **fields})


async def test_a_change_of_something_unnamed_is_asked_of_all_that_may_be_meant(space: Space) -> None:
    steak = await space.add("User loves steak")
    for number in range(9):
        await space.add(f"User owns a boat with {number} sails")
    plan = await space.plan(
        make_window(1), make_fact("User stopped eating steak", 1, change=Change.CHANGED), make_fact("User is tall", 1)
    )
    [question] = plan.questions.values()
    assert question.candidates[0] == steak
    assert len(question.candidates) == 6


async def test_two_names_of_a_value_are_asked_about_before_one_replaces_the_other(space: Space) -> None:
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
    """What a fact becomes by a decision; that it stays so when it is read again."""
    other = make_fact("User eats fish these days", stated_day, change=Change.CHANGED)
    decisions = {0: Decision(verdict, None if atom is None else atom.id)}
    plan = await space.plan_and_apply(make_window(stated_day), other, decisions=decisions)
    repeated = await space.plan(make_window(stated_day), other, decisions=decisions)
    assert repeated.reconciliation.changes == () or verdict is Verdict.SAME
    return next(name for name, count in plan.counts.items() if count)


async def test_what_is_the_same_is_cited(space: Space) -> None:
    atom = await space.add("User eats fish now")
    assert await apply_decision(space, Verdict.SAME, atom) == "cited"
    assert (await space.atom(atom.id)).citations[0].message_ids == ("conv_1:m5",)


async def test_what_replaces_something_does_so_from_then_on(space: Space) -> None:
    atom = await space.add("User is vegan")
    assert await apply_decision(space, Verdict.REPLACES, atom) == "superseded"
    assert await space.texts_valid_at(day(4)) == ["User is vegan"]
    assert await space.texts_valid_at(day(5)) == ["User eats fish these days"]


async def test_what_corrects_something_does_so_from_its_beginning(space: Space) -> None:
    atom = await space.add("User is vegan")
    assert await apply_decision(space, Verdict.CORRECTS, atom) == "superseded"
    assert await space.texts_valid_at(day(0)) == ["User eats fish these days"]


async def test_what_is_new_is_added(space: Space) -> None:
    await space.add("User is vegan")
    assert await apply_decision(space, Verdict.NEW, None) == "added"


async def test_what_replaces_something_that_was_replaced_takes_the_last_ones_place(space: Space) -> None:
    vegan = await space.add("User is vegan")
    meat = await space.supersede(vegan, "User eats meat", day(3))
    assert await apply_decision(space, Verdict.REPLACES, vegan) == "superseded"
    assert (await space.atom(meat.id)).valid_to == day(5)
    assert await space.texts_valid_at(day(5)) == ["User eats fish these days"]


async def test_what_is_the_same_as_something_that_is_over_is_so_again(space: Space) -> None:
    fish = await space.add("User eats fish")
    await space.supersede(fish, "User is vegan", day(3))
    assert await apply_decision(space, Verdict.SAME, fish) == "superseded"
    assert await space.texts_valid_at(day(4)) == ["User is vegan"]
    assert await space.texts_valid_at(day(5)) == ["User eats fish these days"]


async def test_what_was_so_before_it_was_replaced_is_put_before(space: Space) -> None:
    vegan = await space.add("User is vegan", valid_from=day(9))
    assert await apply_decision(space, Verdict.REPLACES, vegan) == "added"
    assert await space.texts_valid_at(day(8)) == ["User eats fish these days"]
    assert await space.texts_valid_at(day(9)) == ["User is vegan"]


async def test_a_correction_in_the_middle_of_a_chain_leaves_what_came_after(space: Space) -> None:
    vegan = await space.add("User is vegan")
    await space.supersede(vegan, "User eats meat", day(3))
    assert await apply_decision(space, Verdict.CORRECTS, vegan) == "added"
    assert await space.texts_valid_at(day(2)) == ["User eats fish these days"]
    assert await space.texts_valid_at(day(3)) == ["User eats meat"]


async def test_facts_that_say_the_same_share_a_decision(space: Space) -> None:
    atom = await space.add("User is an early riser")
    facts = [make_fact("User gets up at dawn", 1, change=Change.CHANGED), make_fact("User gets up at dawn.", 2)]
    plan = await space.plan(make_window(1, 2), *facts, decisions={0: Decision(Verdict.SAME, atom.id)})
    assert (plan.cited, plan.added) == (2, 0)


async def test_what_became_of_a_candidate_since_it_was_offered_does_not_matter(space: Space) -> None:
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


async def test_what_replaces_something_that_is_gone_is_new(space: Space) -> None:
    await space.add("User is vegan")
    plan = await space.plan(
        make_window(1),
        make_fact("User eats fish", 1, change=Change.CHANGED),
        decisions={0: Decision(Verdict.SAME, "atom_x")},
    )
    assert (plan.added, dict(plan.questions)) == (1, {})


@pytest.mark.parametrize("verdict", [Verdict.REPLACES, Verdict.CORRECTS])
@pytest.mark.parametrize("slotted", [True, False])
async def test_what_takes_the_place_of_one_thing_together_does_not_undo_each_other(
    space: Space, verdict: Verdict, slotted: bool
) -> None:
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


async def test_of_two_changes_of_what_there_is_one_of_the_later_counts(space: Space) -> None:
    lisbon = await space.add("User lives in Lisbon")
    facts = [make_fact(f"User lives in {city}", number, single=True) for number, city in ((3, "Porto"), (5, "Rome"))]
    await space.plan_and_apply(
        make_window(3, 5), *facts, decisions=dict.fromkeys((0, 1), Decision(Verdict.REPLACES, lisbon.id))
    )
    assert await space.texts_valid_at(day(4)) == ["User lives in Porto"]
    assert await space.texts_valid_at(day(5)) == ["User lives in Rome"]


async def test_what_is_in_the_slot_is_offered_before_what_only_sounds_alike(space: Space) -> None:
    for game, number in (("tennis", 1), ("golf", 2)):
        await space.learn_facts(sport_fact(game, number, text=f"Often out for {game}."))
    slot_mates = await space.atoms()
    for number in range(9):
        await space.add(f"User plays chess at club {number}")
    plan = await space.plan(
        make_window(5), sport_fact("squash", 5, text="User plays chess no more", change=Change.CHANGED)
    )
    assert plan.questions[0].candidates[:2] == tuple(slot_mates)


async def test_what_is_about_the_same_person_is_asked_about_sooner(space: Space) -> None:
    ben = ExtractedEntity("Ben", EntityType.PERSON)
    await space.plan_and_apply(
        make_window(1), make_fact("User is married to Ben.", 1, entities=("Ben",)), entities=[ben]
    )
    plan = await space.plan(
        make_window(2), make_fact("User is divorced from Ben.", 2, entities=("Ben",)), entities=[ben]
    )
    assert [len(each.candidates) for each in plan.questions.values()] == [1]


async def test_where_there_are_several_values_one_more_is_asked_about_though_it_is_said_to_be_the_only_one(
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


async def test_what_is_denied_is_not_taken_for_what_is_so_instead(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 3))
    *_, porto = await space.atoms()
    denial = home_fact("Lisbon", 5, text="User no longer lives in Lisbon.", change=Change.CHANGED)
    assert (await space.plan(make_window(5), denial)).questions[0].candidates == (porto,)
    await space.plan_and_apply(make_window(5), denial, decisions={0: Decision(Verdict.NEW)})
    assert await space.texts_valid_at(day(5)) == ["User lives in Porto.", "User no longer lives in Lisbon."]
    await space.learn_facts(home_fact("Rome", 9))
    assert await space.texts_valid_at(day(9)) == ["User no longer lives in Lisbon.", "User lives in Rome."]


async def test_what_happened_on_another_day_is_not_asked_about(space: Space) -> None:
    for number in (1, 8):
        plan = await space.learn_facts(make_fact("User went running in the park.", number, category=EVENT))
        assert dict(plan.questions) == {}
    same_day = make_fact("User went running in a park.", 8.1, category=EVENT)
    plan = await space.plan(make_window(8.1), same_day)
    others = (await space.atoms())[1:]
    assert (dict(plan.questions), plan.added) == ({0: Question(same_day, tuple(others), day(8.1))}, 1)


async def test_what_was_put_aside_or_is_not_yet_known_is_not_asked_about(space: Space) -> None:
    atom = await space.add("User is vegan")
    await space.set_status(atom, AtomStatus.ARCHIVED)
    plan = await space.plan(
        make_window(1),
        make_fact("User is mostly vegan", 1, valid_from=day(0) - DAY),
        make_fact("User is a strict vegan", 1),
        candidates={0: [await space.atom(atom.id)]},
    )
    assert (dict(plan.questions), plan.added) == ({}, 2)
