"""Extraction never stores facts that nobody stated, restores deleted ones, or stores duplicates."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from tellback import Category, ChatRequest, Tellback, WorkerOptions, message_text
from tellback.errors import ProviderOverloadedError
from tellback.memory import ExtractedFact, Extraction, Window
from tellback.memory.extraction.values import Decision, FactDecisions, Question, Verdict
from tellback.testing import FunctionModel, ScriptedModel, answers
from tellback.testing.models import Step
from tellback.types import ChatReply
from tellback.types.jsontext import dump_json
from tellback.types.memory import CategoryKind, MemorySpace
from tellback.user import User
from tests.conformance.test_extraction import (
    JANUARY,
    JUNE,
    MARCH,
    decisions_reply,
    extraction_reply,
    fact,
    open_scenario,
    slot_fields,
)


async def create_bound_space(tb: Tellback, name: str = "maya", namespace: str = "chat") -> tuple[User, MemorySpace]:
    user = tb.user(name)
    space = await user.memory.create_space("chat")
    await user.memory.create_binding({"namespace": namespace, "user_id": "*"}, [space.id])
    return user, space


async def test_only_messages_visible_to_the_user_reach_the_model(url: str) -> None:
    with ScriptedModel([extraction_reply()]) as model:
        async with Tellback(url, model=model) as tb:
            user, _ = await create_bound_space(tb)
            conversations = user.conversations
            id = (await conversations.create("chat")).id
            await conversations.append_system_message(id, "RECALLED: user lives in Oslo")
            await conversations.append_user_message(id, "INTERNAL PROMPT with memories", visibility="internal")
            await conversations.append_system_message(id, "HIDDEN NOTE", visibility="hidden")
            await conversations.append_user_message(id, "Do you know where I live?")
            await conversations.append_assistant_turn(
                id, [{"type": "tool_use", "id": "t1", "name": "recall", "arguments": {"query": "TOOL CALL"}}]
            )
            await conversations.append_tool_result(id, "t1", "TOOL RESULT: Oslo", tool_name="recall")
            await conversations.append_assistant_turn(id, "Perhaps in Oslo?")
            await conversations.close(id)
            await tb.jobs.drain(timeout=30)
            [request] = model.requests
            sent = "\n".join(map(message_text, request.messages))
            assert "Do you know where I live?" in sent
            assert "Perhaps in Oslo?" in sent
            for secret in ("RECALLED", "INTERNAL", "HIDDEN", "TOOL"):
                assert secret not in sent


async def test_facts_stated_only_by_the_assistant_are_reported_but_not_stored(url: str) -> None:
    with ScriptedModel(
        [extraction_reply(fact("User lives in Oslo.", ["m2"]), fact("User likes tea.", ["m1"]))]
    ) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            await scenario.run_conversation(JANUARY, "I like tea.")
            assert set(await scenario.current()) == {"User likes tea."}
            [job] = await scenario.jobs()
            assert job.result["left_out"] == 1
            [left_out_fact] = job.result["left_out_facts"]
            assert left_out_fact["text"] == "User lives in Oslo."
            assert "assistant" in left_out_fact["why"]
            [event] = await tb.events.read(types=["extraction.completed"])
            assert "Oslo" not in dump_json(dict(event.data))  # events contain no texts


async def test_a_fact_with_an_invented_quote_is_left_out(url: str) -> None:
    quoted = [
        fact("User likes tea.", ["m1"], quote="I like TEA"),
        fact("User hates coffee.", ["m1"], quote="I hate coffee"),
    ]
    with ScriptedModel([extraction_reply(*quoted)]) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model, extraction_version="v2")
            await scenario.run_conversation(JANUARY, "I like tea.")
            assert set(await scenario.current()) == {"User likes tea."}


async def test_a_deleted_fact_stays_deleted_until_it_is_stated_again(url: str) -> None:
    same_fact_reply = extraction_reply(fact("User's ex is called Tom.", ["m1"]))
    reworded_reply = extraction_reply(fact("User's former partner is called Tom.", ["m1", "m2"]))
    with ScriptedModel([same_fact_reply, same_fact_reply, reworded_reply, same_fact_reply]) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            conversation = await scenario.run_conversation(JANUARY, "My ex is called Tom.")
            [atom] = (await scenario.current()).values()
            await scenario.user.memory.delete_atom(atom.id)
            for _ in range(2):
                await scenario.user.memory.run_extraction_for_conversation(conversation)
                await tb.jobs.drain(timeout=30)
                assert await scenario.current() == {}
            [job] = await scenario.jobs()
            assert "deleted" in job.result["left_out_facts"][0]["why"]
            await scenario.run_conversation(MARCH, "By the way, my ex is called Tom.")
            assert set(await scenario.current()) == {"User's ex is called Tom."}


async def test_a_new_statement_supersedes_a_manual_change(url: str) -> None:
    def home_reply(city: str) -> Step:
        return extraction_reply(fact(f"User lives in {city}.", ["m1"], **slot_fields("user", "home city", city)))

    with ScriptedModel([home_reply("Porto"), home_reply("Berlin")]) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            await scenario.run_conversation(JANUARY, "I live in Porto.")
            [porto] = (await scenario.current()).values()
            tb.clock = lambda: MARCH
            await scenario.user.memory.supersede_atom(porto.id, "Maya has settled at the seaside, near Faro.")
            await scenario.run_conversation(JUNE, "I live in Berlin.")
            assert set(await scenario.current()) == {"User lives in Berlin."}


async def test_an_older_conversation_does_not_restore_a_corrected_mistake(url: str) -> None:
    def sister_reply(name: str, **fields: str) -> Step:
        text = f"User's sister is called {name}."
        return extraction_reply(fact(text, ["m1"], **slot_fields("user", "sister's name", name), **fields))

    with ScriptedModel(
        [sister_reply("Anna"), sister_reply("Hanna", change="corrected"), sister_reply("Anna")]
    ) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            await scenario.run_conversation(JANUARY, "My sister Anna says hello.")
            await scenario.run_conversation(JUNE, "She is called Hanna, not Anna.")
            await scenario.run_conversation(MARCH, "Anna called.")
            assert set(await scenario.current()) == {"User's sister is called Hanna."}
            assert await scenario.texts_valid_at(MARCH) == {"User's sister is called Hanna."}


async def test_an_ended_fact_is_not_treated_as_a_repetition(url: str) -> None:
    drinks = slot_fields("user", "drink", "coffee", single=False)
    script = [
        extraction_reply(fact("User drinks coffee.", ["m1"], **drinks)),
        extraction_reply(fact("User no longer drinks coffee.", ["m1"], change="changed", **drinks)),
    ]
    with ScriptedModel(script) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            await scenario.run_conversation(JANUARY, "I love coffee.")
            await scenario.run_conversation(MARCH, "I quit coffee.")
            assert set(await scenario.current()) == {"User no longer drinks coffee."}
            assert await scenario.texts_valid_at(JANUARY) == {"User drinks coffee."}


async def test_extracting_an_older_conversation_later_does_not_undo_a_restated_fact(url: str) -> None:
    def home_reply(city: str) -> Step:
        return extraction_reply(fact(f"User lives in {city}.", ["m1"], **slot_fields("user", "home city", city)))

    with ScriptedModel([home_reply("Quito"), home_reply("Quito"), home_reply("Rome"), home_reply("Quito")]) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            await scenario.run_conversation(JANUARY, "I live in Quito.")
            second_conversation = await scenario.run_conversation(JUNE, "Here in Quito it rains.")
            await scenario.run_conversation(MARCH, "Here in Rome it is hot.")
            assert "User lives in Rome." in await scenario.texts_valid_at(MARCH)
            assert await scenario.texts_valid_at(JUNE) == {"User lives in Quito."}
            await scenario.user.memory.run_extraction_for_conversation(second_conversation)
            await tb.jobs.drain(timeout=30)
            assert await scenario.texts_valid_at(JUNE) == {"User lives in Quito."}
            [job] = await scenario.user.memory.list_jobs(conversation_id=second_conversation)
            assert job.result["unchanged"] == 1


async def test_two_facts_that_replace_one_atom_are_both_valid(url: str) -> None:
    def sport(game: str, **fields: str) -> dict[str, object]:
        return fact(f"User plays {game}.", ["m1"], **slot_fields("user", "sport", game, single=False), **fields)

    sports_reply = extraction_reply(sport("squash", change="corrected"), sport("badminton", change="corrected"))
    script = [
        extraction_reply(sport("tennis"), sport("golf")),
        sports_reply,
        decisions_reply(("corrects", 1), ("corrects", 1)),
    ]
    with ScriptedModel(script) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            await scenario.run_conversation(JANUARY, "I play tennis and golf.")
            await scenario.run_conversation(MARCH, "Not tennis: squash and badminton.")
            assert set(await scenario.current()) == {"User plays golf.", "User plays squash.", "User plays badminton."}
            assert all(job.error is None for job in await scenario.jobs())


async def test_weekly_events_are_separate_episodes(url: str) -> None:
    run_reply = extraction_reply(fact("User went running in the park.", ["m1"], kind="EPISODE", category="sport"))
    with ScriptedModel([run_reply, run_reply, run_reply]) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            for weeks in range(3):
                await scenario.run_conversation(JANUARY + timedelta(weeks=weeks), "I went running in the park today.")
            assert len(await scenario.user.memory.list_atoms(scenario.space.id)) == 3
            assert await tb.mine_patterns() == 1


async def test_two_people_with_the_same_nickname_stay_separate(url: str) -> None:
    def birthday_reply(name: str, birthday: str) -> Step:
        birthday_fact = fact(
            f"{name}'s birthday is {birthday}.", ["m1"], **slot_fields(name, "birthday", birthday), entities=[name]
        )
        return extraction_reply(
            birthday_fact, entities=[{"name": name, "type": "PERSON", "aliases": ["my boss", "the chief", "Boss"]}]
        )

    with ScriptedModel([birthday_reply("Alice Chen", "3 May"), birthday_reply("Carol Diaz", "9 July")]) as model:
        async with Tellback(url, model=model) as tb:
            scenario = await open_scenario(tb, model)
            await scenario.run_conversation(JANUARY, "My boss Alice Chen was born on 3 May.")
            await scenario.run_conversation(MARCH, "My new boss Carol Diaz was born on 9 July.")
            assert len(await scenario.current()) == 2
            carol = await scenario.user.memory.find_entity_by_name(scenario.space.id, "PERSON", "Carol Diaz")
            assert carol is not None
            assert (carol.canonical_name, carol.aliases) == ("Carol Diaz", ())


async def test_a_decision_for_an_unknown_candidate_fails_the_job(url: str) -> None:
    class UnknownCandidateModel:
        """Decides on a candidate that it was not offered."""

        async def extract(self, window: Window) -> Extraction:
            [first, *_] = window.messages
            return Extraction((ExtractedFact(first.text, Category("home", CategoryKind.FACT), (first.id,)),))

        async def decide(self, questions: Sequence[Question]) -> FactDecisions:
            return FactDecisions(tuple(Decision(Verdict.SAME, "atom_x") for _ in questions))

    async with Tellback(url, extractor=UnknownCandidateModel()) as tb:
        user, space = await create_bound_space(tb)
        await user.memory.add_atom(space.id, "User likes green tea")
        conversation = await user.conversations.create("chat")
        await user.conversations.append_turn(conversation.id, "User likes tea", {"content": "Yes."})
        await user.conversations.close(conversation.id)
        await tb.jobs.drain(timeout=30)
        [job] = await user.memory.list_jobs()
        assert (job.status.value, job.attempts) == ("failed", 1)
        assert "'atom_x'" in str(job.error)


async def test_a_long_conversation_is_extracted_in_windows_with_one_call_each(url: str) -> None:
    calls: list[str] = []

    def read_window(request: ChatRequest) -> ChatReply:
        calls.append(message_text(request.messages[-1]))
        return ChatReply(text=dump_json({"facts": [], "entities": []}))

    async with Tellback(url, model=FunctionModel(read_window)) as tb:
        user, _ = await create_bound_space(tb)
        conversation = await user.conversations.create("chat")
        for number in range(12):
            await user.conversations.append_turn(
                conversation.id, f"Turn {number}: {'word ' * 1_000}", {"content": "Yes."}
            )
        await user.conversations.close(conversation.id)
        await tb.jobs.drain(timeout=30)
        jobs = await user.memory.list_jobs(conversation_id=conversation.id)
        assert {job.status.value for job in jobs} == {"done"}
        windows = sorted((job.from_seq, job.to_seq) for job in jobs)
        assert len(calls) == len(windows) > 1
        assert [first for first, _ in windows] == [1, *(last + 1 for _, last in windows[:-1])]
        assert windows[-1][1] == 24
        for number in range(12):
            assert sum(f'"Turn {number}: ' in call.split("<before>")[-1] for call in calls) >= 1


async def test_the_same_fact_in_concurrent_conversations_is_one_atom(url: str) -> None:
    def read_window(request: ChatRequest) -> ChatReply:
        facts = [fact("User lives in Porto.", ["m1"], **slot_fields("user", "home city", "Porto"))]
        return ChatReply(text=dump_json({"facts": facts, "entities": []}))

    async with Tellback(url, model=FunctionModel(read_window), worker=WorkerOptions(concurrency=8)) as tb:
        user, space = await create_bound_space(tb, namespace="*")

        async def run_conversation(number: int) -> str:
            conversation = await user.conversations.create(f"chat-{number}")
            await user.conversations.append_turn(conversation.id, "I live in Porto.", {"content": "Yes."})
            await user.conversations.close(conversation.id)
            return conversation.id

        async def write() -> None:
            for number in range(10):
                await user.memory.add_atom(space.id, f"Something else, number {number}.")

        *ids, _ = await asyncio.gather(*(run_conversation(number) for number in range(8)), write())
        await tb.jobs.drain(timeout=40)
        atoms = [atom for atom in await user.memory.list_atoms(space.id) if "Porto" in atom.text]
        assert len(atoms) == 1
        assert sorted(citation.conversation_id for citation in atoms[0].citations) == sorted(map(str, ids))


async def test_a_failing_provider_is_retried_and_nothing_is_lost(url: str) -> None:
    script = [ProviderOverloadedError("busy"), extraction_reply(fact("User likes tea.", ["m1"]))]
    options = WorkerOptions(first_delay=0.05, poll=0.2)
    with ScriptedModel(script) as model:
        async with Tellback(url, model=model, worker=options) as tb:
            user, _ = await create_bound_space(tb)
            conversation = await user.conversations.create("chat")
            await user.conversations.append_turn(conversation.id, "I like tea.", {"content": "Yes."})
            await user.conversations.close(conversation.id)
            async with asyncio.timeout(30):
                async for _ in tb.events.subscribe(types=["extraction.completed"]):
                    break
            [job] = await user.memory.list_jobs()
            assert (job.status.value, job.attempts) == ("done", 2)


async def test_another_process_runs_unfinished_jobs(url: str, tmp_path: Path) -> None:
    if url == ":memory:":
        pytest.skip("only one process can open an in-memory store")
    async with Tellback(url, worker=False) as tb:
        user, space = await create_bound_space(tb)
        conversation = await user.conversations.create("chat")
        await user.conversations.append_turn(conversation.id, "I like tea.", {"content": "Yes."})
        await user.conversations.close(conversation.id)
        with pytest.raises(TimeoutError, match="worker"):
            await tb.jobs.drain(timeout=0.3)
        assert await user.memory.list_atoms(space.id) == []
        async with Tellback(url) as other:
            await other.jobs.drain(timeout=30)
        texts = [atom.text for atom in await user.memory.list_atoms(space.id)]
        assert texts == ["Assistant: Yes.", "User: I like tea."]


async def test_messages_added_after_closing_are_extracted(url: str) -> None:
    async with Tellback(url, extractor="verbatim") as tb:
        user, space = await create_bound_space(tb)
        conversation = await user.conversations.create("chat")
        model_called = asyncio.Event()
        closed = asyncio.Event()

        async def slow(request: ChatRequest) -> ChatReply:
            model_called.set()
            await closed.wait()
            return ChatReply(text="Late answer.")

        turn = asyncio.create_task(user.conversations.run_turn(conversation.id, FunctionModel(slow), "Question?"))
        await model_called.wait()
        await user.conversations.close(conversation.id)
        await tb.jobs.drain(timeout=30)
        closed.set()
        await turn
        await tb.jobs.drain(timeout=30)
        assert [atom.text for atom in await user.memory.list_atoms(space.id)] == [
            "Assistant: Late answer.",
            "User: Question?",
        ]


async def test_the_usage_of_summaries_is_recorded(url: str) -> None:
    with ScriptedModel([answers("A summary.")]) as model:
        async with Tellback(url, model=model) as tb:
            user = tb.user("maya")
            conversation = await user.conversations.create("chat")
            await user.conversations.append_turn(conversation.id, "Hello.", {"content": "Hi."})
            await user.conversations.refresh_rolling_summary(conversation.id)
            [record] = await tb.usage()
            assert (record.purpose, record.conversation_id, record.scope) == ("summary", conversation.id, user.scope)
            assert await tb.user("omar").admin.usage() == []
            [total] = await tb.usage_totals()
            assert (total.calls, total.unpriced_calls, total.scope) == (1, 1, user.scope)
