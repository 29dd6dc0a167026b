"""Facts of an extraction are cited, supersede atoms, are placed in time, or are added."""

from __future__ import annotations

import pytest

from tellback.memory.extraction.values import Change
from tellback.types.memory import TURN_CATEGORY, AtomStatus, Citation
from tests.unit.memory.space import EVENT, Space, day, home_fact, make_fact, make_window


async def test_a_new_fact_is_added_with_citation_and_dates(space: Space) -> None:
    plan = await space.learn_facts(home_fact("Lisbon", 3, importance=4, confidence=0.9))
    assert plan.counts == {"added": 1, "superseded": 0, "cited": 0, "unchanged": 0, "left_out": 0}
    [atom] = await space.atoms()
    assert (atom.text, atom.importance, atom.confidence) == ("User lives in Lisbon.", 4, 0.9)
    assert (atom.valid_from, atom.valid_to) == (day(3), None)
    assert atom.citations == (Citation("conv_1", ("conv_1:m3",)),)


async def test_a_fact_starts_with_its_first_message_by_default(space: Space) -> None:
    await space.learn_facts(make_fact("User has a cat.", [7, 5]), make_fact("User has a dog.", 7, valid_from=day(-30)))
    assert [atom.valid_from for atom in await space.atoms()] == [day(-30), day(5)]


async def test_a_repeated_fact_is_cited_not_added(space: Space) -> None:
    await space.learn_facts(make_fact("User has a cat.", 1))
    plan = await space.learn_facts(make_fact("user has a CAT", 9, "conv_2"), conversation_id="conv_2")
    assert plan.counts == {"added": 0, "superseded": 0, "cited": 1, "unchanged": 0, "left_out": 0}
    [atom] = await space.atoms()
    assert atom.citations == (Citation("conv_1", ("conv_1:m1",)), Citation("conv_2", ("conv_2:m9",)))


async def test_the_same_slot_value_in_other_words_is_cited(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    plan = await space.learn_facts(home_fact("lisbon", 9, text="User's home is in Lisbon."))
    assert (plan.cited, plan.added) == (1, 0)


async def test_planning_the_same_extraction_again_changes_nothing(space: Space) -> None:
    facts = [home_fact("Lisbon", 1), home_fact("Porto", 2, change=Change.CHANGED), make_fact("User has a cat.", 2)]
    await space.learn_facts(*facts)
    plan = await space.plan(make_window(1, 2), *facts)
    assert (plan.unchanged, plan.reconciliation.changes) == (3, ())


async def test_equal_facts_of_one_extraction_are_merged(space: Space) -> None:
    await space.learn_facts(make_fact("User has a cat.", 1), make_fact("User has a cat", 2))
    [atom] = await space.atoms()
    assert atom.source_message_ids == ("conv_1:m1", "conv_1:m2")


async def test_a_later_value_supersedes_the_earlier_one(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    plan = await space.learn_facts(home_fact("Porto", 9, change=Change.CHANGED))
    assert (plan.superseded, plan.added) == (1, 0)
    lisbon, porto = await space.atoms()
    assert (lisbon.valid_to, lisbon.superseded_by) == (day(9), porto.id)
    assert await space.texts_valid_at(day(8)) == ["User lives in Lisbon."]
    assert await space.texts_valid_at(day(9)) == ["User lives in Porto."]


async def test_a_future_change_keeps_the_current_value_until_then(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 2, valid_from=day(90), change=Change.CHANGED))
    assert await space.texts_valid_at(day(89)) == ["User lives in Lisbon."]
    assert await space.texts_valid_at(day(90)) == ["User lives in Porto."]


async def test_changing_back_to_an_old_value_is_a_change(space: Space) -> None:
    for number, city in enumerate(["Lisbon", "Porto", "Lisbon"]):
        await space.learn_facts(home_fact(city, number))
    assert [await space.texts_valid_at(day(n)) for n in range(3)] == [
        ["User lives in Lisbon."],
        ["User lives in Porto."],
        ["User lives in Lisbon."],
    ]
    assert len(await space.atoms()) == 3


async def test_extracting_again_does_not_restore_a_superseded_value(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 9))
    plan = await space.learn_facts(home_fact("Lisbon", 1))
    assert plan.unchanged == 1
    plan = await space.learn_facts(home_fact("Lisbon", 5, conversation_id="conv_2"), conversation_id="conv_2")
    assert plan.cited == 1
    lisbon, _ = await space.atoms()
    assert Citation("conv_2", ("conv_2:m5",)) in lisbon.citations
    assert await space.texts_valid_at(day(10)) == ["User lives in Porto."]


async def test_a_correction_is_valid_from_the_start_of_the_corrected_atom(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 9, change=Change.CORRECTED))
    assert await space.texts_valid_at(day(1)) == ["User lives in Porto."]
    wrong, right = await space.atoms()
    assert (right.valid_from, right.supersedes) == (day(1), wrong.id)
    for city, number, change in [("Lisbon", 1, Change.NONE), ("Porto", 9, Change.CORRECTED)]:
        assert (await space.plan(make_window(number), home_fact(city, number, change=change))).unchanged == 1


async def test_repeated_corrections_survive_another_extraction(space: Space) -> None:
    facts = [
        home_fact("Lisbon", 1),
        home_fact("Porto", 2, change=Change.CORRECTED),
        home_fact("Rome", 3, change=Change.CORRECTED),
    ]
    for each in facts:
        await space.learn_facts(each)
    for number, each in enumerate(facts, 1):
        assert (await space.plan(make_window(number), each)).reconciliation.changes == ()
    assert await space.texts_valid_at(day(1)) == ["User lives in Rome."]


async def test_a_correction_can_have_an_earlier_start(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 5))
    await space.learn_facts(home_fact("Porto", 9, change=Change.CORRECTED, valid_from=day(2)))
    assert await space.texts_valid_at(day(2)) == ["User lives in Porto."]
    assert await space.texts_valid_at(day(6)) == ["User lives in Porto."]


async def test_an_earlier_value_is_placed_before_the_current_one(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 9))
    plan = await space.learn_facts(home_fact("Paris", 3, conversation_id="conv_0"), conversation_id="conv_0")
    assert (plan.added, plan.superseded) == (1, 0)
    assert await space.texts_valid_at(day(4)) == ["User lives in Paris."]
    assert await space.texts_valid_at(day(9)) == ["User lives in Lisbon."]


async def test_a_value_that_starts_between_two_atoms_is_placed_between_them(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 9))
    await space.learn_facts(home_fact("Paris", 5, conversation_id="conv_0"), conversation_id="conv_0")
    assert [(await space.texts_valid_at(day(n)))[0][14:-1] for n in (1, 5, 9)] == ["Lisbon", "Paris", "Porto"]
    porto = (await space.atoms())[-1]
    assert porto.citations == (Citation("conv_1", ("conv_1:m9",)),)
    for number, city in [(1, "Lisbon"), (9, "Porto")]:
        assert (await space.plan(make_window(number), home_fact(city, number))).unchanged == 1
    await space.set_status(porto, AtomStatus.DELETED)
    assert await space.texts_valid_at(day(9)) == ["User lives in Paris."]


async def test_archived_atoms_are_not_moved(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 9))
    await space.set_status((await space.atoms())[-1], AtomStatus.ARCHIVED)
    await space.learn_facts(home_fact("Paris", 5, conversation_id="conv_0"), conversation_id="conv_0")
    assert await space.texts_valid_at(day(9)) == []
    assert "User lives in Paris." in await space.texts_valid_at(day(5))


async def test_an_ended_fact_is_added_with_its_end(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 9), home_fact("Paris", 9, valid_from=day(-900), valid_to=day(-500)))
    assert await space.texts_valid_at(day(-600)) == ["User lives in Paris."]
    assert await space.texts_valid_at(day(-500)) == []
    assert await space.texts_valid_at(day(9)) == ["User lives in Lisbon."]


async def test_a_fact_with_only_an_end_starts_just_before_it(space: Space) -> None:
    facts = [home_fact("Paris", 9, valid_to=day(-500))]
    await space.learn_facts(*facts)
    assert await space.texts_valid_at(day(-500.5)) == ["User lives in Paris."]
    assert await space.texts_valid_at(day(-502)) == []
    assert (await space.plan(make_window(9), *facts)).unchanged == 1


@pytest.mark.parametrize("change", Change)
async def test_an_ended_fact_does_not_change_current_atoms(space: Space, change: Change) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Paris", 9, valid_to=day(-500), change=change))
    assert await space.texts_valid_at(day(9)) == ["User lives in Lisbon."]
    assert await space.texts_valid_at(day(-500.5)) == ["User lives in Paris."]


async def test_a_fact_can_set_the_end_of_an_atom(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    past_home = home_fact("Lisbon", 9, text="User lived in Lisbon until March 8.", valid_to=day(7))
    assert (await space.learn_facts(past_home)).superseded == 1
    assert await space.texts_valid_at(day(6)) == ["User lives in Lisbon."]
    assert await space.texts_valid_at(day(8)) == ["User lived in Lisbon until March 8."]
    assert (await space.plan(make_window(9), past_home)).unchanged == 1
    assert (await space.plan(make_window(1), home_fact("Lisbon", 1))).unchanged == 1


async def test_a_change_dated_by_month_does_not_undo_an_atom_that_started_in_it(space: Space) -> None:
    await space.learn_facts(home_fact("Berlin", 10))
    moved_home = home_fact("Lisbon", 40, valid_from=day(1), change=Change.CHANGED)
    await space.learn_facts(moved_home)
    assert await space.texts_valid_at(day(20)) == ["User lives in Berlin."]
    assert await space.texts_valid_at(day(40)) == ["User lives in Lisbon."]
    assert (await space.plan(make_window(40), moved_home)).unchanged == 1


async def test_the_same_value_with_an_earlier_start_moves_the_start(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 9))
    await space.learn_facts(home_fact("Lisbon", 3, conversation_id="conv_0"), conversation_id="conv_0")
    assert await space.texts_valid_at(day(4)) == ["User lives in Lisbon."]
    *_, now = await space.atoms()
    assert {citation.conversation_id for citation in now.citations} == {"conv_0", "conv_1"}
    assert (await space.plan(make_window(9), home_fact("Lisbon", 9))).unchanged == 1


async def test_a_slot_with_several_values_keeps_them_all(space: Space) -> None:
    pets = {"subject": "user", "attribute": "pet"}
    await space.learn_facts(make_fact("User has a cat.", 1, value="cat", **pets))
    await space.learn_facts(make_fact("User has a dog.", 2, value="dog", **pets))
    assert await space.texts_valid_at(day(2)) == ["User has a cat.", "User has a dog."]


async def test_a_change_supersedes_the_only_value_of_a_slot(space: Space) -> None:
    job = {"subject": "user", "attribute": "job"}
    await space.learn_facts(make_fact("User is a nurse.", 1, value="nurse", **job))
    plan = await space.learn_facts(
        make_fact("User became a teacher.", 2, value="teacher", change=Change.CHANGED, **job)
    )
    assert plan.superseded == 1
    assert await space.texts_valid_at(day(2)) == ["User became a teacher."]


async def test_a_deleted_fact_does_not_return_from_the_same_messages(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1), make_fact("User has a cat named Tom.", 1))
    for atom in await space.atoms():
        await space.set_status(atom, AtomStatus.DELETED)
    plan = await space.learn_facts(home_fact("Lisbon", 1), make_fact("User has one cat named Tom.", 1), days=[1, 5])
    assert plan.reconciliation.changes == ()
    assert [each.why for each in plan.left_out] == ["the user deleted it", "the user deleted it"]


async def test_a_deleted_fact_can_be_stated_again(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.set_status((await space.atoms())[0], AtomStatus.DELETED)
    assert (await space.learn_facts(home_fact("Lisbon", 5))).added == 1
    assert (await space.plan(make_window(1), home_fact("Lisbon", 1))).left_out


async def test_an_archived_atom_is_cited_and_stays_archived(space: Space) -> None:
    await space.learn_facts(make_fact("User has a cat.", 1))
    await space.set_status((await space.atoms())[0], AtomStatus.ARCHIVED)
    assert (await space.learn_facts(make_fact("User has a cat.", 5))).cited == 1
    assert await space.atoms() == []


async def test_a_change_supersedes_a_manually_written_replacement(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    [lisbon] = await space.atoms()
    new_atom = await space.supersede(lisbon, "Lives in Porto now", day(3))
    await space.learn_facts(home_fact("Rome", 9))
    assert await space.texts_valid_at(day(9)) == ["User lives in Rome."]
    assert (await space.atom(new_atom.id)).valid_to == day(9)


async def test_the_same_event_on_another_day_is_another_episode(space: Space) -> None:
    for number in (1, 8):
        await space.learn_facts(make_fact("User went running.", number, category=EVENT))
    assert len(await space.atoms()) == 2
    assert (await space.learn_facts(make_fact("User went running.", 8.1, category=EVENT))).cited == 1


async def test_an_episode_with_a_date_is_the_same_on_any_day(space: Space) -> None:
    for number in (1, 30):
        await space.learn_facts(make_fact("User ran a marathon on 3 May 2025.", number, category=EVENT))
    assert len(await space.atoms()) == 1


async def test_verbatim_atoms_are_neither_cited_nor_candidates(space: Space) -> None:
    await space.add("User: lives in Lisbon", category=TURN_CATEGORY)
    plan = await space.plan(make_window(1), make_fact("User lives in Lisbon", 1, change=Change.CHANGED))
    assert (plan.added, dict(plan.questions)) == (1, {})


async def test_a_fact_without_citations_is_left_out(space: Space) -> None:
    plan = await space.plan(make_window(1), make_fact("User has a cat.", 7))
    assert [each.why for each in plan.left_out] == ["it cites no message of the window"]


@pytest.mark.parametrize("single", [True, False])
async def test_a_fact_without_a_value_has_no_slot(space: Space, single: bool) -> None:
    await space.learn_facts(
        make_fact("User has no home.", 1, subject="user", attribute="home city", value=" ", single=single)
    )
    plan = await space.plan(make_window(2), home_fact("Lisbon", 2))
    assert plan.added == 1
