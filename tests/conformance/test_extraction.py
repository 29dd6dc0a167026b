"""Conversations become memories, on every store: all steps from closing one to its facts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from tellback import ChatUsage, Tellback
from tellback.testing import ScriptedModel, answers
from tellback.testing.models import Step
from tellback.types.jobs import Job
from tellback.types.memory import Atom, Citation, MemorySpace
from tellback.user import User


def fact(text: str, messages: Sequence[str], **fields: Any) -> dict[str, Any]:
    """Build a fact of a model's output."""
    defaults = {"text": text, "messages": list(messages), "kind": "FACT", "category": "home", "importance": 3}
    return {**defaults, "confidence": 0.9, "change": "none", "single": False, "entities": [], **fields}


def slot_fields(subject: str, attribute: str, value: str, **fields: Any) -> dict[str, Any]:
    """Build the slot fields of a fact."""
    return {"subject": subject, "attribute": attribute, "value": value, "single": True, **fields}


def extraction_reply(
    *facts: dict[str, Any], entities: Sequence[dict[str, Any]] = (), usage: ChatUsage | None = None
) -> Step:
    """Build a model's reply for a window."""
    return answers({"facts": list(facts), "entities": list(entities)}, usage=usage)


def decisions_reply(*decisions: tuple[str, int | None]) -> Step:
    """Build a model's reply for open questions."""
    return answers(
        {
            "decisions": [
                {"fact": number, "verdict": verdict, "candidate": candidate}
                for number, (verdict, candidate) in enumerate(decisions, 1)
            ]
        }
    )


class ExtractionScenario:
    """A user with several conversations, and a binding to one space."""

    def __init__(self, tb: Tellback, model: ScriptedModel, user: User, space: MemorySpace) -> None:
        self.tb, self.model, self.user, self.space = tb, model, user, space
        self.citations: list[dict[str, str]] = []

    async def run_conversation(self, when: datetime, *turns: str) -> str:
        """Run one conversation until its facts are stored."""
        self.tb.clock = lambda: when
        conversation = await self.user.conversations.create("chat")
        for words in turns:
            await self.user.conversations.append_turn(conversation.id, words, {"content": "I see."})
        await self.user.conversations.close(conversation.id)
        await self.tb.jobs.drain(timeout=30)
        messages = await self.user.conversations.messages(conversation.id)
        self.citations.append({f"m{message.seq}": message.id for message in messages})
        return conversation.id

    async def jobs(self) -> list[Job]:
        return await self.user.memory.list_jobs()

    async def current(self) -> dict[str, Atom]:
        return {atom.text: atom for atom in await self.user.memory.list_atoms(self.space.id)}

    async def texts_valid_at(self, when: datetime) -> set[str]:
        return {atom.text for atom in await self.user.memory.list_atoms(self.space.id, valid_at=when)}


async def open_scenario(tb: Tellback, model: ScriptedModel, **policy: Any) -> ExtractionScenario:
    user = tb.user("maya")
    space = await user.memory.create_space("chat")
    await user.memory.create_binding({"namespace": "chat", "user_id": "*"}, [space.id], policy or None)
    return ExtractionScenario(tb, model, user, space)


JANUARY = datetime(2026, 1, 10, 18, tzinfo=UTC)
MARCH = datetime(2026, 3, 20, 18, tzinfo=UTC)
JUNE = datetime(2026, 6, 5, 18, tzinfo=UTC)
SISTER = {"name": "Anna", "type": "PERSON", "aliases": []}


async def test_facts_of_many_months_have_correct_histories(url: str) -> None:
    script = [
        extraction_reply(
            fact("User lives in Porto.", ["m1"], **slot_fields("user", "home city", "Porto")),
            fact("User eats everything.", ["m1"], category="diet", **slot_fields("user", "diet", "omnivore")),
            fact(
                "User's sister is called Anna.",
                ["m3"],
                category="family",
                entities=["Anna"],
                **slot_fields("user", "sister's name", "Anna"),
            ),
            entities=[SISTER],
        ),
        extraction_reply(
            fact("User lives in Lisbon.", ["m1"], since="2026-03-01", **slot_fields("user", "home city", "Lisbon")),
            fact(
                "User is vegetarian.",
                ["m3"],
                category="diet",
                change="changed",
                **slot_fields("user", "diet", "vegetarian"),
            ),
            fact("User eats no meat.", ["m3"], category="diet", kind="RULE"),
        ),
        decisions_reply(("new", None)),
        extraction_reply(
            fact("User lives in Berlin.", ["m1"], since="2026-06-01", **slot_fields("user", "home city", "Berlin")),
            fact(
                "User's sister is called Hanna.",
                ["m3"],
                category="family",
                change="corrected",
                entities=["Hanna"],
                **slot_fields("user", "sister's name", "Hanna"),
            ),
            fact("User is vegetarian.", ["m5"], category="diet", **slot_fields("user", "diet", "vegetarian")),
            entities=[{"name": "Hanna", "type": "PERSON", "aliases": []}],
        ),
    ]
    with ScriptedModel(script) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            first = await scenario.run_conversation(
                JANUARY, "I live in Porto and eat everything.", "My sister Anna says hello."
            )
            second = await scenario.run_conversation(
                MARCH, "I moved to Lisbon on 1 March.", "I've become a vegetarian: no meat."
            )
            third = await scenario.run_conversation(
                JUNE, "Since the 1st I live in Berlin.", "My sister is Hanna, not Anna!", "Still vegetarian."
            )
            assert [job.status.value for job in await scenario.jobs()] == ["done"] * 3, [
                job.error for job in await scenario.jobs()
            ]

            now = await scenario.current()
            assert set(now) == {
                "User lives in Berlin.",
                "User is vegetarian.",
                "User eats no meat.",
                "User's sister is called Hanna.",
            }
            # The times of validity.
            assert now["User lives in Berlin."].valid_from == datetime(2026, 6, 1, tzinfo=UTC)
            assert now["User is vegetarian."].valid_from == MARCH
            # A correction starts when the mistake started.
            assert now["User's sister is called Hanna."].valid_from == JANUARY
            assert await scenario.texts_valid_at(datetime(2026, 2, 1, tzinfo=UTC)) == {
                "User lives in Porto.",
                "User eats everything.",
                "User's sister is called Hanna.",
            }
            assert await scenario.texts_valid_at(datetime(2026, 4, 1, tzinfo=UTC)) == {
                "User lives in Lisbon.",
                "User is vegetarian.",
                "User eats no meat.",
                "User's sister is called Hanna.",
            }
            # The citations.
            m1, m2, m3 = scenario.citations
            assert now["User lives in Berlin."].citations == (Citation(third, (m3["m1"],)),)
            assert now["User is vegetarian."].citations == (
                Citation(second, (m2["m3"],)),
                Citation(third, (m3["m5"],)),
            )
            # The chain of homes.
            timeline = await scenario.user.memory.recall_timeline(scenario.space.id, query="home city lives in")
            homes = [atom for atom in timeline.atoms if "lives in" in atom.text]
            assert [atom.text for atom in homes] == [
                "User lives in Porto.",
                "User lives in Lisbon.",
                "User lives in Berlin.",
            ]
            assert [atom.superseded_by for atom in homes] == [homes[1].id, homes[2].id, None]
            assert [atom.supersedes for atom in homes] == [None, homes[0].id, homes[1].id]
            assert [atom.valid_to for atom in homes] == [homes[1].valid_from, homes[2].valid_from, None]
            assert homes[0].citations == (Citation(first, (m1["m1"],)),)
            # As known in April, the sister was still called Anna.
            april = await scenario.user.memory.list_atoms(
                scenario.space.id, valid_at=JANUARY, known_at=datetime(2026, 4, 1, tzinfo=UTC)
            )
            assert "User's sister is called Anna." in {atom.text for atom in april}
            hanna = await scenario.user.memory.find_entity_by_name(scenario.space.id, "PERSON", "Hanna")
            assert hanna is not None
            assert now["User's sister is called Hanna."].entity_ids == (hanna.id,)


async def test_a_window_costs_one_call_and_at_most_one_to_reconcile(url: str) -> None:
    usage = ChatUsage(input_tokens=100, output_tokens=20, total_tokens=120, cost_usd=0.01, model="m", provider="p")
    script = [
        extraction_reply(fact("User likes jazz.", ["m1"], kind="PREFERENCE"), usage=usage),
        extraction_reply(
            fact("User likes jazz music a lot.", ["m1"], kind="PREFERENCE"),
            fact("User plays jazz music on the piano.", ["m1"]),
            usage=usage,
        ),
        decisions_reply(("same", 1)),
        extraction_reply(usage=usage),
    ]
    with ScriptedModel(script) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            await scenario.run_conversation(JANUARY, "I like jazz.")
            assert len(model.requests) == 1  # nothing to compare with
            await scenario.run_conversation(MARCH, "I like jazz music a lot, and play it on the piano.")
            assert len(model.requests) == 3
            await scenario.run_conversation(JUNE, "How are you?")
            assert len(model.requests) == 4  # nothing to reconcile
            assert set(await scenario.current()) == {"User likes jazz.", "User plays jazz music on the piano."}
            cited = (await scenario.current())["User likes jazz."].citations
            assert [len(citation.message_ids) for citation in cited] == [1, 1]
            totals = {total.purpose: total for total in await scenario.user.admin.usage_totals()}
            assert totals["extraction"].calls == 3
            assert totals["extraction"].input_tokens == 300
            assert totals["extraction"].cost_usd == pytest.approx(0.03)
            assert totals["reconciliation"].calls == 1
            [last_job, *_] = await scenario.jobs()
            assert [each.purpose for each in await scenario.user.admin.usage(job_id=last_job.id)] == ["extraction"]


async def test_running_the_same_job_again_changes_nothing(url: str) -> None:
    def build_reply() -> Step:
        return extraction_reply(
            fact("User lives in Porto.", ["m1"], **slot_fields("user", "home city", "Porto")),
            fact("User has a dog called Rex.", ["m1"], entities=["Rex"]),
            entities=[{"name": "Rex", "type": "OBJECT", "aliases": []}],
        )

    with ScriptedModel([build_reply(), build_reply()]) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            conversation = await scenario.run_conversation(JANUARY, "I live in Porto with my dog Rex.")
            before = await scenario.user.memory.list_atoms(scenario.space.id)
            run = await scenario.user.memory.run_extraction_for_conversation(conversation)
            assert [job.status.value for job in run] == ["queued"]
            await tb.jobs.drain(timeout=30)
            [job] = await scenario.jobs()
            assert (job.status.value, job.result["unchanged"], job.result["added"]) == ("done", 2, 0)
            assert await scenario.user.memory.list_atoms(scenario.space.id) == before
            assert len(await scenario.user.memory.search_entities(scenario.space.id)) == 1


async def test_output_that_cannot_be_parsed_fails_the_job(url: str) -> None:
    valid_reply = extraction_reply(fact("User lives in Porto.", ["m1"]))
    with ScriptedModel(["I'd rather not.", "Sorry?", "No JSON today.", valid_reply]) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            await scenario.run_conversation(JANUARY, "I live in Porto.")
            [job] = await scenario.jobs()
            assert (job.status.value, job.raw_output, job.attempts) == ("failed", "No JSON today.", 1)
            assert job.error is not None
            assert job.error.startswith("ExtractionError")
            assert [event.subject_id for event in await tb.events.read(types=["extraction.failed"])] == [job.id]
            assert (await scenario.user.admin.usage_totals())[0].calls == 3
            assert (await tb.jobs.retry(job.id)).attempts == 0
            await tb.jobs.drain(timeout=30)
            assert set(await scenario.current()) == {"User lives in Porto."}
