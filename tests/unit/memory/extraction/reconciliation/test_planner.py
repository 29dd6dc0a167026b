"""An extraction meets what is known: it is cited, replaced, put in its place in time, or added."""

from __future__ import annotations

import pytest

from tellback.memory.extraction.values import Change
from tellback.types.memory import TURN_CATEGORY, AtomStatus, Citation
from tests.unit.memory.space import EVENT, Space, day, home_fact, make_fact, make_window


async def test_what_is_new_is_added_with_its_citation_and_dates(space: Space) -> None:
    plan = await space.learn_facts(home_fact("Lisbon", 3, importance=4, confidence=0.9))
    assert plan.counts == {"added": 1, "superseded": 0, "cited": 0, "unchanged": 0, "left_out": 0}
    [atom] = await space.atoms()
    assert (atom.text, atom.importance, atom.confidence) == ("User lives in Lisbon.", 4, 0.9)
    assert (atom.valid_from, atom.valid_to) == (day(3), None)
    assert atom.citations == (Citation("conv_1", ("conv_1:m3",)),)


async def test_a_fact_begins_when_its_first_message_was_said_unless_it_says_when(space: Space) -> None:
    await space.learn_facts(make_fact("User has a cat.", [7, 5]), make_fact("User has a dog.", 7, valid_from=day(-30)))
    assert [atom.valid_from for atom in await space.atoms()] == [day(-30), day(5)]


async def test_what_is_said_again_is_cited_not_added(space: Space) -> None:
    await space.learn_facts(make_fact("User has a cat.", 1))
    plan = await space.learn_facts(make_fact("user has a CAT", 9, "conv_2"), conversation_id="conv_2")
    assert plan.counts == {"added": 0, "superseded": 0, "cited": 1, "unchanged": 0, "left_out": 0}
    [atom] = await space.atoms()
    assert atom.citations == (Citation("conv_1", ("conv_1:m1",)), Citation("conv_2", ("conv_2:m9",)))


async def test_the_same_value_of_a_slot_is_said_again_in_other_words(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    plan = await space.learn_facts(home_fact("lisbon", 9, text="User's home is in Lisbon."))
    assert (plan.cited, plan.added) == (1, 0)


async def test_the_same_extraction_changes_nothing_again(space: Space) -> None:
    facts = [home_fact("Lisbon", 1), home_fact("Porto", 2, change=Change.CHANGED), make_fact("User has a cat.", 2)]
    await space.learn_facts(*facts)
    plan = await space.plan(make_window(1, 2), *facts)
    assert (plan.unchanged, plan.reconciliation.changes) == (3, ())


async def test_facts_of_one_extraction_that_say_the_same_are_one(space: Space) -> None:
    await space.learn_facts(make_fact("User has a cat.", 1), make_fact("User has a cat", 2))
    [atom] = await space.atoms()
    assert atom.source_message_ids == ("conv_1:m1", "conv_1:m2")


async def test_a_later_value_takes_the_place_of_the_one_before(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    plan = await space.learn_facts(home_fact("Porto", 9, change=Change.CHANGED))
    assert (plan.superseded, plan.added) == (1, 0)
    lisbon, porto = await space.atoms()
    assert (lisbon.valid_to, lisbon.superseded_by) == (day(9), porto.id)
    assert await space.texts_valid_at(day(8)) == ["User lives in Lisbon."]
    assert await space.texts_valid_at(day(9)) == ["User lives in Porto."]


async def test_a_change_that_is_to_come_leaves_what_is_so_until_then(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 2, valid_from=day(90), change=Change.CHANGED))
    assert await space.texts_valid_at(day(89)) == ["User lives in Lisbon."]
    assert await space.texts_valid_at(day(90)) == ["User lives in Porto."]


async def test_a_change_back_is_a_change(space: Space) -> None:
    for number, city in enumerate(["Lisbon", "Porto", "Lisbon"]):
        await space.learn_facts(home_fact(city, number))
    assert [await space.texts_valid_at(day(n)) for n in range(3)] == [
        ["User lives in Lisbon."],
        ["User lives in Porto."],
        ["User lives in Lisbon."],
    ]
    assert len(await space.atoms()) == 3


async def test_what_was_replaced_is_not_brought_back_by_reading_its_conversation_again(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 9))
    plan = await space.learn_facts(home_fact("Lisbon", 1))
    assert plan.unchanged == 1
    plan = await space.learn_facts(home_fact("Lisbon", 5, conversation_id="conv_2"), conversation_id="conv_2")
    assert plan.cited == 1
    lisbon, _ = await space.atoms()
    assert Citation("conv_2", ("conv_2:m5",)) in lisbon.citations
    assert await space.texts_valid_at(day(10)) == ["User lives in Porto."]


async def test_a_correction_was_so_all_the_time(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 9, change=Change.CORRECTED))
    assert await space.texts_valid_at(day(1)) == ["User lives in Porto."]
    wrong, right = await space.atoms()
    assert (right.valid_from, right.supersedes) == (day(1), wrong.id)
    for city, number, change in [("Lisbon", 1, Change.NONE), ("Porto", 9, Change.CORRECTED)]:
        assert (await space.plan(make_window(number), home_fact(city, number, change=change))).unchanged == 1


async def test_corrections_of_corrections_stay_corrected_when_read_again(space: Space) -> None:
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


async def test_a_correction_may_reach_further_back(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 5))
    await space.learn_facts(home_fact("Porto", 9, change=Change.CORRECTED, valid_from=day(2)))
    assert await space.texts_valid_at(day(2)) == ["User lives in Porto."]
    assert await space.texts_valid_at(day(6)) == ["User lives in Porto."]


async def test_what_was_so_earlier_is_put_before_what_is_so_now(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 9))
    plan = await space.learn_facts(home_fact("Paris", 3, conversation_id="conv_0"), conversation_id="conv_0")
    assert (plan.added, plan.superseded) == (1, 0)
    assert await space.texts_valid_at(day(4)) == ["User lives in Paris."]
    assert await space.texts_valid_at(day(9)) == ["User lives in Lisbon."]


async def test_what_was_so_in_between_is_put_in_between(space: Space) -> None:
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


async def test_nothing_that_was_put_aside_is_moved_to_make_room(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Porto", 9))
    await space.set_status((await space.atoms())[-1], AtomStatus.ARCHIVED)
    await space.learn_facts(home_fact("Paris", 5, conversation_id="conv_0"), conversation_id="conv_0")
    assert await space.texts_valid_at(day(9)) == []
    assert "User lives in Paris." in await space.texts_valid_at(day(5))


async def test_what_is_over_is_added_with_its_end(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 9), home_fact("Paris", 9, valid_from=day(-900), valid_to=day(-500)))
    assert await space.texts_valid_at(day(-600)) == ["User lives in Paris."]
    assert await space.texts_valid_at(day(-500)) == []
    assert await space.texts_valid_at(day(9)) == ["User lives in Lisbon."]


async def test_of_what_is_only_known_to_have_ended_nothing_is_said_of_long_before(space: Space) -> None:
    facts = [home_fact("Paris", 9, valid_to=day(-500))]
    await space.learn_facts(*facts)
    assert await space.texts_valid_at(day(-500.5)) == ["User lives in Paris."]
    assert await space.texts_valid_at(day(-502)) == []
    assert (await space.plan(make_window(9), *facts)).unchanged == 1


@pytest.mark.parametrize("change", Change)
async def test_what_was_over_when_it_was_said_changes_nothing_that_is_so(space: Space, change: Change) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.learn_facts(home_fact("Paris", 9, valid_to=day(-500), change=change))
    assert await space.texts_valid_at(day(9)) == ["User lives in Lisbon."]
    assert await space.texts_valid_at(day(-500.5)) == ["User lives in Paris."]


async def test_it_is_learned_when_something_known_ended(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    past_home = home_fact("Lisbon", 9, text="User lived in Lisbon until March 8.", valid_to=day(7))
    assert (await space.learn_facts(past_home)).superseded == 1
    assert await space.texts_valid_at(day(6)) == ["User lives in Lisbon."]
    assert await space.texts_valid_at(day(8)) == ["User lived in Lisbon until March 8."]
    assert (await space.plan(make_window(9), past_home)).unchanged == 1
    assert (await space.plan(make_window(1), home_fact("Lisbon", 1))).unchanged == 1


async def test_a_month_that_began_before_what_it_changed_does_not_undo_it(space: Space) -> None:
    await space.learn_facts(home_fact("Berlin", 10))
    moved_home = home_fact("Lisbon", 40, valid_from=day(1), change=Change.CHANGED)
    await space.learn_facts(moved_home)
    assert await space.texts_valid_at(day(20)) == ["User lives in Berlin."]
    assert await space.texts_valid_at(day(40)) == ["User lives in Lisbon."]
    assert (await space.plan(make_window(40), moved_home)).unchanged == 1


async def test_the_same_value_since_earlier_begins_earlier(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 9))
    await space.learn_facts(home_fact("Lisbon", 3, conversation_id="conv_0"), conversation_id="conv_0")
    assert await space.texts_valid_at(day(4)) == ["User lives in Lisbon."]
    *_, now = await space.atoms()
    assert {citation.conversation_id for citation in now.citations} == {"conv_0", "conv_1"}
    assert (await space.plan(make_window(9), home_fact("Lisbon", 9))).unchanged == 1


async def test_values_of_which_there_may_be_several_stand_side_by_side(space: Space) -> None:
    pets = {"subject": "user", "attribute": "pet"}
    await space.learn_facts(make_fact("User has a cat.", 1, value="cat", **pets))
    await space.learn_facts(make_fact("User has a dog.", 2, value="dog", **pets))
    assert await space.texts_valid_at(day(2)) == ["User has a cat.", "User has a dog."]


async def test_the_only_value_of_a_slot_is_what_changed(space: Space) -> None:
    job = {"subject": "user", "attribute": "job"}
    await space.learn_facts(make_fact("User is a nurse.", 1, value="nurse", **job))
    plan = await space.learn_facts(
        make_fact("User became a teacher.", 2, value="teacher", change=Change.CHANGED, **job)
    )
    assert plan.superseded == 1
    assert await space.texts_valid_at(day(2)) == ["User became a teacher."]


async def test_what_was_deleted_does_not_come_back_from_the_same_messages(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1), make_fact("User has a cat named Tom.", 1))
    for atom in await space.atoms():
        await space.set_status(atom, AtomStatus.DELETED)
    plan = await space.learn_facts(home_fact("Lisbon", 1), make_fact("User has one cat named Tom.", 1), days=[1, 5])
    assert plan.reconciliation.changes == ()
    assert [each.why for each in plan.left_out] == ["the user deleted it", "the user deleted it"]


async def test_what_was_deleted_may_be_said_again(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    await space.set_status((await space.atoms())[0], AtomStatus.DELETED)
    assert (await space.learn_facts(home_fact("Lisbon", 5))).added == 1
    assert (await space.plan(make_window(1), home_fact("Lisbon", 1))).left_out


async def test_what_was_put_aside_is_cited_and_stays_so(space: Space) -> None:
    await space.learn_facts(make_fact("User has a cat.", 1))
    await space.set_status((await space.atoms())[0], AtomStatus.ARCHIVED)
    assert (await space.learn_facts(make_fact("User has a cat.", 5))).cited == 1
    assert await space.atoms() == []


async def test_what_someone_wrote_in_place_of_a_value_is_what_changes(space: Space) -> None:
    await space.learn_facts(home_fact("Lisbon", 1))
    [lisbon] = await space.atoms()
    new_atom = await space.supersede(lisbon, "Lives in Porto now", day(3))
    await space.learn_facts(home_fact("Rome", 9))
    assert await space.texts_valid_at(day(9)) == ["User lives in Rome."]
    assert (await space.atom(new_atom.id)).valid_to == day(9)


async def test_what_happens_again_on_another_day_is_another_episode(space: Space) -> None:
    for number in (1, 8):
        await space.learn_facts(make_fact("User went running.", number, category=EVENT))
    assert len(await space.atoms()) == 2
    assert (await space.learn_facts(make_fact("User went running.", 8.1, category=EVENT))).cited == 1


async def test_an_episode_that_says_its_date_is_the_same_whenever_it_is_told(space: Space) -> None:
    for number in (1, 30):
        await space.learn_facts(make_fact("User ran a marathon on 3 May 2025.", number, category=EVENT))
    assert len(await space.atoms()) == 1


async def test_what_was_said_word_for_word_is_neither_repeated_nor_asked_about(space: Space) -> None:
    await space.add("User: lives in Lisbon", category=TURN_CATEGORY)
    plan = await space.plan(make_window(1), make_fact("User lives in Lisbon", 1, change=Change.CHANGED))
    assert (plan.added, dict(plan.questions)) == (1, {})


async def test_a_fact_that_cites_nothing_is_left_out(space: Space) -> None:
    plan = await space.plan(make_window(1), make_fact("User has a cat.", 7))
    assert [each.why for each in plan.left_out] == ["it cites no message of the window"]


@pytest.mark.parametrize("single", [True, False])
async def test_what_has_no_value_has_no_slot(space: Space, single: bool) -> None:
    await space.learn_facts(
        make_fact("User has no home.", 1, subject="user", attribute="home city", value=" ", single=single)
    )
    plan = await space.plan(make_window(2), home_fact("Lisbon", 2))
    assert plan.added == 1
