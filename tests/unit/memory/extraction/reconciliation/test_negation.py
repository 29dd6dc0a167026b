"""Denied, ended and withdrawn facts."""

from __future__ import annotations

from typing import Any

import pytest

from tellback.memory.extraction.values import Change, Decision, ExtractedFact, Verdict
from tellback.memory.text_similarity import denies
from tellback.types.memory import AtomStatus
from tests.unit.memory.space import Space, day, home_fact, make_fact, make_window

IS, IS_NOT = "User is allergic to peanuts.", "User is not allergic to peanuts."


def allergy_fact(text: str, stated_day: float = 0, **fields: Any) -> ExtractedFact:
    slot_fields = {"subject": "user", "attribute": "allergy", "value": "peanuts"}
    return make_fact(text, stated_day, **{**slot_fields, **fields})


def job_fact(text: str, stated_day: float = 0, **fields: Any) -> ExtractedFact:
    slot_fields = {"subject": "user", "attribute": "employer", "value": "Acme", "single": True}
    return make_fact(text, stated_day, **{**slot_fields, **fields})


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("change", Change)
@pytest.mark.parametrize("texts", [(IS, IS_NOT), (IS_NOT, IS)])
async def test_a_denial_supersedes_the_value(
    space: Space, texts: tuple[str, str], change: Change, single: bool
) -> None:
    facts = [allergy_fact(texts[0], 1, single=single), allergy_fact(texts[1], 5, single=single, change=change)]
    for each in facts:
        await space.learn_facts(each)
    assert await space.texts_valid_at(day(5)) == [texts[1]]
    assert await space.texts_valid_at(day(4)) == [texts[1] if change is Change.CORRECTED else texts[0]]
    for number, each in zip((1, 5), facts, strict=True):
        assert (await space.plan(make_window(number), each)).reconciliation.changes == ()


async def test_a_denial_can_be_decided_to_be_new(space: Space) -> None:
    await space.learn_facts(allergy_fact(IS, 1))
    [atom] = await space.atoms()
    denial = allergy_fact(IS_NOT, 5)
    assert (await space.plan(make_window(5), denial)).questions[0].candidates == (atom,)
    for verdict, expected in ((Verdict.SAME, "cited"), (Verdict.NEW, "added"), (Verdict.CORRECTS, "superseded")):
        decisions = {0: Decision(verdict, None if verdict is Verdict.NEW else atom.id)}
        assert (await space.plan(make_window(5), denial, decisions=decisions)).counts[expected] == 1


@pytest.mark.parametrize("ends", [-20, 3])
async def test_an_earlier_value_does_not_change_the_denial(space: Space, ends: int) -> None:
    await space.learn_facts(allergy_fact(IS_NOT, 1))
    earlier = allergy_fact("User was allergic to peanuts as a child.", 5, valid_to=day(ends))
    assert (await space.learn_facts(earlier)).added == 1
    assert await space.texts_valid_at(day(5)) == [IS_NOT]
    assert (await space.plan(make_window(5), earlier)).reconciliation.changes == ()


async def test_a_denial_in_other_words_is_cited(space: Space) -> None:
    await space.learn_facts(allergy_fact(IS, 1))
    await space.learn_facts(allergy_fact(IS_NOT, 5, change=Change.CHANGED))
    assert (await space.learn_facts(allergy_fact("User never had a peanut allergy.", 7))).cited == 1
    await space.learn_facts(allergy_fact(IS, 9))
    assert [await space.texts_valid_at(day(number)) for number in (4, 8, 9)] == [[IS], [IS_NOT], [IS]]


async def test_an_earlier_denial_is_placed_before_the_value(space: Space) -> None:
    await space.learn_facts(allergy_fact(IS, 5))
    await space.learn_facts(allergy_fact(IS_NOT, 1, conversation_id="conv_0"), conversation_id="conv_0")
    assert [await space.texts_valid_at(day(number)) for number in (1, 5)] == [[IS_NOT], [IS]]


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("text", ["User stopped working at Acme in March.", "User left Acme in March."])
async def test_an_ended_atom_keeps_its_text_and_the_fact_follows_it(space: Space, text: str, single: bool) -> None:
    works, past_job = (
        job_fact("User works at Acme.", 1, single=single),
        job_fact(text, 9, valid_to=day(5), single=single),
    )
    await space.learn_facts(works)
    assert (await space.learn_facts(past_job)).superseded == 1
    assert await space.texts_valid_at(day(4)) == ["User works at Acme."]
    assert await space.texts_valid_at(day(9)) == [text]
    for number, each in ((1, works), (9, past_job)):
        assert (await space.plan(make_window(number), each)).reconciliation.changes == ()
    await space.learn_facts(job_fact("User works at Acme.", 20, single=single, change=Change.CHANGED))
    assert "User works at Acme." in await space.texts_valid_at(day(20))
    assert (await space.plan(make_window(9), past_job)).reconciliation.changes == ()


async def test_an_ended_fact_can_have_an_earlier_start(space: Space) -> None:
    await space.learn_facts(job_fact("User works at Acme.", 3))
    past_job = job_fact("User worked at Acme for a week.", 9, valid_from=day(-2), valid_to=day(5))
    await space.learn_facts(past_job)
    assert [await space.texts_valid_at(day(number)) for number in (-2, 4)] == [["User works at Acme."]] * 2
    assert (await space.plan(make_window(9), past_job)).reconciliation.changes == ()


async def test_a_fact_with_a_future_end_is_valid_until_then(space: Space) -> None:
    await space.learn_facts(job_fact("User works at Acme.", 1))
    await space.learn_facts(job_fact("User works at Acme until May.", 3, valid_to=day(60)))
    assert await space.texts_valid_at(day(4)) == ["User works at Acme until May."]
    assert await space.texts_valid_at(day(60)) == []


async def test_an_older_conversation_does_not_end_a_restated_fact(space: Space) -> None:
    for number in (1, 20):
        await space.learn_facts(job_fact("User works at Acme.", number))
    await space.learn_facts(
        job_fact("User left Acme.", 9, conversation_id="conv_0", valid_to=day(5)), conversation_id="conv_0"
    )
    assert [await space.texts_valid_at(day(number)) for number in (4, 9, 20)] == [
        ["User works at Acme."],
        ["User left Acme."],
        ["User works at Acme."],
    ]


async def test_a_dropped_plan_is_cancelled(space: Space) -> None:
    same_job = job_fact("User stays at Acme.", 5, change=Change.CHANGED)
    await space.learn_facts(job_fact("User works at Acme.", 1))
    await space.learn_facts(
        job_fact("User starts at Globex.", 3, value="Globex", valid_from=day(30), change=Change.CHANGED)
    )
    await space.learn_facts(same_job)
    assert await space.texts_valid_at(day(6)) == ["User works at Acme."]
    assert await space.texts_valid_at(day(30)) == ["User stays at Acme."]
    assert (await space.plan(make_window(5), same_job)).reconciliation.changes == ()


async def test_a_plan_stated_later_is_not_cancelled_by_an_older_conversation(space: Space) -> None:
    await space.learn_facts(job_fact("User works at Acme.", 1))
    await space.learn_facts(
        job_fact("User starts at Globex.", 7, value="Globex", valid_from=day(30), change=Change.CHANGED)
    )
    same_job = job_fact("User stays at Acme.", 5, conversation_id="conv_0", change=Change.CHANGED)
    await space.learn_facts(same_job, conversation_id="conv_0")
    assert await space.texts_valid_at(day(30)) == ["User starts at Globex."]


async def test_an_earlier_start_moves_the_atoms_start(space: Space) -> None:
    slot_fields: dict[str, Any] = {"subject": "user", "attribute": "instrument", "value": "piano"}
    since = make_fact("User has played the piano for a year.", 5, valid_from=day(-365), **slot_fields)
    await space.learn_facts(make_fact("User plays the piano.", 1, **slot_fields))
    assert (await space.learn_facts(since)).superseded == 1
    assert (
        await space.texts_valid_at(day(-300))
        == await space.texts_valid_at(day(9))
        == ["User has played the piano for a year."]
    )
    for number, each in ((1, make_fact("User plays the piano.", 1, **slot_fields)), (5, since)):
        assert (await space.plan(make_window(number), each)).reconciliation.changes == ()


@pytest.mark.parametrize("change", [Change.CHANGED, Change.CORRECTED])
async def test_two_facts_can_replace_a_single_value_together(space: Space, change: Change) -> None:
    slot_fields = {"subject": "user", "attribute": "sport"}
    facts = [
        make_fact(f"User plays {game}.", 5, value=game, change=change, **slot_fields)
        for game in ("squash", "badminton", "polo")
    ]
    await space.learn_facts(make_fact("User plays tennis.", 1, value="tennis", **slot_fields))
    assert (await space.learn_facts(*facts)).counts["added"] == 2
    assert sorted(await space.texts_valid_at(day(5))) == [
        "User plays badminton.",
        "User plays polo.",
        "User plays squash.",
    ]
    assert len(await space.texts_valid_at(day(2))) == (3 if change is Change.CORRECTED else 1)
    assert (await space.plan(make_window(5), *facts)).reconciliation.changes == ()


@pytest.mark.parametrize("text", ["User is HIV positive.", "User has HIV."])
@pytest.mark.parametrize("cited_days", [[1], [1, 3]])
async def test_a_deleted_fact_does_not_return_in_other_words(space: Space, text: str, cited_days: list[float]) -> None:
    await space.learn_facts(make_fact("User is HIV positive.", 1), make_fact("User likes tea.", 1))
    hiv, _ = await space.atoms()
    await space.set_status(hiv, AtomStatus.DELETED)
    facts = [make_fact(text, cited_days), make_fact("User likes tea.", 1), make_fact("User is not HIV positive.", 1)]
    plan = await space.learn_facts(*facts, days=[1, 3])
    assert [each.text for each in plan.left_out] == [text]
    assert (plan.unchanged, plan.added) == (1, 1)


async def test_a_deleted_fact_can_be_stated_again_in_the_old_words(space: Space) -> None:
    await space.learn_facts(make_fact("User likes tea.", 1))
    [tea] = await space.atoms()
    await space.set_status(tea, AtomStatus.DELETED)
    assert (await space.learn_facts(make_fact("User likes tea.", [1, 2000]))).added == 1


@pytest.mark.parametrize(
    ("text", "value", "denied"),
    [
        ("User isn't vegetarian", "vegetarian", True),
        ("User stopped playing the piano.", "Piano", True),
        ("User does not eat meat", "vegetarian", False),
        ("User has no car", "no car", False),
        ("User lives in Rome", "Rome", False),
    ],
)
def test_a_value_is_denied_only_after_a_negation(text: str, value: str, denied: bool) -> None:
    assert denies(text, value) is denied


async def test_an_older_conversation_does_not_undo_a_restated_fact(space: Space) -> None:
    for number in (1, 9):
        await space.learn_facts(home_fact("Quito", number))
    rome = home_fact("Rome", 5, conversation_id="conv_0")
    await space.learn_facts(rome, conversation_id="conv_0")
    assert [(await space.texts_valid_at(day(number)))[0] for number in (4, 5, 9)] == [
        "User lives in Quito.",
        "User lives in Rome.",
        "User lives in Quito.",
    ]
    for number in (1, 9):
        assert (await space.plan(make_window(number), home_fact("Quito", number))).reconciliation.changes == ()
    assert (await space.plan(make_window(5, conversation_id="conv_0"), rome)).reconciliation.changes == ()
