"""Agents with a memory: approvals, failures of stores and models, repeated messages and concurrent turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tellback import Approval, ChatUsage, Tellback, TellbackError, ToolCall, User, request, telemetry
from tellback.agent import Agent, Response, create_session, session_state_to_data
from tellback.agent.definitions.guidelines import GuidelineFields
from tellback.chat.history import is_valid_history
from tellback.errors import AlreadyAnsweredError, AlreadyDecidedError, ProviderOverloadedError, StoreUnavailableError
from tellback.telemetry import CAPTURE_VARIABLE
from tellback.testing import FunctionModel, ScriptedModel, calls, raises, says, understands
from tellback.types import find_instructions
from tests.support.travel_agents import (
    FULL_REQUEST,
    Respond,
    TripSetup,
    last_text,
    make_pay_tool,
    read_messages,
    read_texts,
    respond_variants,
    round_trip,
    script_full_trip,
    sent_texts,
)


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


async def waiting(setup: TripSetup) -> tuple[Response, str]:
    """Run a turn whose state call waits for approval."""
    script_full_trip(setup, "Someone must agree first.")
    paused = await setup.agent.respond(FULL_REQUEST)
    [call] = paused.pending
    assert (call.name, call.input, setup.searched) == ("search", {"destination": "Rome", "passengers": 2}, [])
    return paused, call.id


@respond_variants
async def test_a_state_call_can_be_approved_in_another_process(tb: Tellback, maya: User, ask: Respond) -> None:
    paused, id = await waiting(TripSetup(maya, approval=True))
    there = TripSetup(Tellback(tb.store).user("maya"), ["The night train?"], approval=True)
    done = await ask(there.agent, session=round_trip(paused.session), approvals={id: True})
    assert (done.message, done.pending, there.searched) == ("The night train?", (), [("Rome", 2)])
    assert done.conversation_id == paused.conversation_id
    assert "the night train to Rome" in there.prompts[0]
    with pytest.raises(TellbackError, match=id):
        await ask(there.agent, session=done.session, approvals={id: True})
    assert there.searched == [("Rome", 2)]


async def test_the_note_of_a_decision_is_only_visible_to_the_model(url: str) -> None:
    async with Tellback(url, extractor="verbatim") as tb:
        maya = tb.user("maya")
        setup = TripSetup(maya, approval=True)
        paused, id = await waiting(setup)
        setup.script("It cannot be.")
        denied = Approval(False, reason="too dear for us")
        response = await setup.agent.respond(session=paused.session, approvals={id: denied})
        expected = [FULL_REQUEST, "Someone must agree first.", "It cannot be."]
        assert await read_texts(maya, response.conversation_id) == expected
        [note] = [
            m
            for m in await read_messages(maya, response.conversation_id, include_internal=True)
            if m.visibility == "internal"
        ]
        assert (note.role, "search was denied (too dear for us)" in note.text) == ("user", True)
        assert note.text in sent_texts(setup.model)[-1]
        assert "too dear for us" in setup.prompts[-1]
        await maya.conversations.close(str(response.conversation_id))
        await tb.jobs.drain(timeout=30)
        [space] = await maya.memory.list_spaces()
        atoms = [atom.text for atom in await maya.memory.list_atoms(space.id)]
    assert len(atoms) == 3
    assert not any("dear" in text or "decided" in text for text in atoms)


@respond_variants
async def test_a_model_call_can_be_approved_in_another_process(url: str, tb: Tellback, ask: Respond) -> None:
    paid: list[int] = []
    here = TripSetup(tb.user("maya"), tools=[make_pay_tool(paid)])
    script_full_trip(here, calls(ToolCall("c1", "pay", {"amount": 5})))
    paused = await ask(here.agent, FULL_REQUEST)
    assert ([call.id for call in paused.pending], paid, here.searched) == (["c1"], [], [("Rome", 2)])
    store: Any = tb.store if url == ":memory:" else url
    there_tb = Tellback(store)
    if url != ":memory:":
        await there_tb.open()
    try:
        there = TripSetup(there_tb.user("maya"), ["Paid."], tools=[make_pay_tool(paid)])
        session = round_trip(paused.session)
        response = await ask(there.agent, session=session, approvals={"c1": True})
        assert (response.message, response.pending, paid, there.searched) == ("Paid.", (), [5], [])
        assert response.conversation_id == paused.conversation_id
        assert (response.route, response.state) == (paused.route, paused.state)
        assert "Offer what was found" in there.prompts[0]
        sent = there.model.requests[0].messages
        assert [each.role for each in sent] == ["user", "assistant", "tool"]
        assert find_instructions(sent[:1]) == there.model.requests[0].instructions
        with pytest.raises(AlreadyDecidedError):
            await ask(there.agent, session=response.session, approvals={"c1": True})
        found = await read_messages(there_tb.user("maya"), response.conversation_id)
    finally:
        if url != ":memory:":
            await there_tb.close()
    assert [each.role for each in found] == ["user", "assistant", "tool", "assistant"]
    assert "# Now" not in repr(found)
    assert (found[-1].metadata or {})["route"] == here.book.id
    assert paid == [5]


async def test_a_call_does_not_run_if_a_message_replaces_the_decision(maya: User) -> None:
    paid: list[int] = []
    setup = TripSetup(maya, tools=[make_pay_tool(paid)])
    script_full_trip(setup, calls(ToolCall("c1", "pay", {"amount": 5})))
    paused = await setup.agent.respond(FULL_REQUEST)
    setup.script(setup.understands_trip(), "Fine, nothing was paid.")
    response = await setup.agent.respond("Never mind.", paused.session)
    assert (response.pending, paid) == ((), [])
    assert is_valid_history(setup.model.requests[-1].messages)
    assert await maya.conversations.pending(str(response.conversation_id)) == ()


@pytest.mark.parametrize("by_the_model", [True, False])
async def test_a_decision_is_accepted_after_the_conversation_was_closed(maya: User, by_the_model: bool) -> None:
    paid: list[int] = []
    setup = TripSetup(maya, tools=[make_pay_tool(paid)] if by_the_model else [], approval=not by_the_model)
    script_full_trip(setup, calls(ToolCall("c1", "pay", {"amount": 5})) if by_the_model else "Someone must agree.")
    paused = await setup.agent.respond(FULL_REQUEST)
    await maya.conversations.close(str(paused.conversation_id))
    setup.script("Done.")
    response = await setup.agent.respond(session=paused.session, approvals={paused.pending[0].id: True})
    assert (response.message, paid, setup.searched) == ("Done.", [5] if by_the_model else [], [("Rome", 2)])


def failing(monkeypatch: pytest.MonkeyPatch, target: Any, *names: str) -> None:
    async def fails(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("The store is gone.")

    for name in names:
        monkeypatch.setattr(target, name, fails)


@respond_variants
async def test_a_failing_store_does_not_affect_the_answer(
    tb: Tellback, maya: User, monkeypatch: pytest.MonkeyPatch, ask: Respond
) -> None:
    setup = TripSetup(maya)
    setup.script(setup.understands_trip(destination="Rome"), "How many?")
    first = await ask(setup.agent, "To Rome")
    setup.script(setup.understands_trip(passengers=2), "The night train?", setup.understands_trip(), "Goodbye.")
    with monkeypatch.context() as patch:
        failing(patch, tb.store.conversations, "begin_turn", "append", "find_or_create")
        failing(patch, tb.store.memories, "spaces", "space")
        second = await ask(setup.agent, "Two", first.session)
    assert (second.message, setup.searched) == ("The night train?", [("Rome", 2)])
    assert "store_user" in {problem.step for problem in second.problems}
    assert all(isinstance(problem.error, StoreUnavailableError) for problem in second.problems)
    assert await read_texts(maya, first.conversation_id) == ["To Rome", "How many?"]
    third = await ask(setup.agent, "Take it", second.session)
    assert (third.message, third.problems, third.completed) == ("Goodbye.", (), True)


async def test_a_failing_memory_does_not_affect_the_turn(
    tb: Tellback, maya: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = TripSetup(maya)
    script_full_trip(setup)
    failing(monkeypatch, tb.store.memories, "spaces")
    response = await setup.agent.respond(FULL_REQUEST)
    assert (response.message, {problem.step for problem in response.problems}) == ("The night train?", {"recall"})
    assert setup.model.requests[-1].tools == ()
    assert await read_texts(maya, response.conversation_id) == [FULL_REQUEST, "The night train?"]


@respond_variants
@pytest.mark.parametrize("reading", [True, False])
async def test_a_failing_model_keeps_the_message_and_the_session(maya: User, ask: Respond, reading: bool) -> None:
    setup = TripSetup(maya)
    session = create_session("web")
    busy = raises(ProviderOverloadedError("too busy"))
    setup.script(*([busy] if reading else [setup.understands_trip(destination="Rome", passengers=2), busy]))
    with pytest.raises(ProviderOverloadedError):
        await ask(setup.agent, FULL_REQUEST, session)
    [conversation] = await maya.conversations.list()
    assert await read_texts(maya, conversation.id) == [FULL_REQUEST]
    assert session.version == 0
    script_full_trip(setup)
    retried = await ask(setup.agent, "Well?", session, wait=0)
    assert (retried.message, retried.session.version) == ("The night train?", 1)
    assert sent_texts(setup.model) == [FULL_REQUEST, "Well?"]
    assert setup.searched == [("Rome", 2)]


async def test_a_closed_stream_keeps_the_message_and_the_session(maya: User) -> None:
    setup = TripSetup(maya)
    session = create_session("web")
    before = session_state_to_data(session)
    script_full_trip(setup, says("A long story", chunks=1))
    stream = setup.agent.respond_stream(FULL_REQUEST, session)
    assert (await anext(stream)).delta == "A"
    await stream.aclose()
    [conversation] = await maya.conversations.list()
    assert await read_texts(maya, conversation.id) == [FULL_REQUEST]
    assert session_state_to_data(session) == before
    setup.script(understands(setup.book, destination="Oslo", passengers=1), "The ferry?")
    retried = await setup.agent.respond("Oslo, only me.", session, wait=0)
    assert (retried.message, dict(retried.session.extracted)) == (
        "The ferry?",
        {"destination": "Oslo", "passengers": 1},
    )
    assert is_valid_history(setup.model.requests[-1].messages)


@respond_variants
async def test_a_turn_can_follow_a_cancelled_one(maya: User, ask: Respond) -> None:
    entered = asyncio.Event()

    async def wait_here() -> str:
        """Wait."""
        entered.set()
        await asyncio.sleep(60)
        return "late"

    model = ScriptedModel([calls("wait_here"), "Here I am."])
    agent = Agent("Wanda", model=model, memory=maya, tools=[wait_here])
    session = create_session("web")
    task = asyncio.create_task(ask(agent, "Wait!", session))
    await asyncio.wait_for(entered.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    response = await ask(agent, "Hello?", session, wait=0)
    assert response.message == "Here I am."
    assert is_valid_history(model.requests[-1].messages)
    assert (await read_texts(maya, response.conversation_id))[0] == "Wait!"


@respond_variants
async def test_a_repeated_message_is_answered_once(maya: User, ask: Respond) -> None:
    setup = TripSetup(maya)
    session = create_session("web")
    script_full_trip(setup)
    first = await ask(setup.agent, FULL_REQUEST, session, idempotency_key="k")
    setup.script()
    with pytest.raises(AlreadyAnsweredError) as caught:
        await ask(setup.agent, FULL_REQUEST, session, idempotency_key="k")
    assert caught.value.text == first.message
    repeated = await ask(setup.agent, FULL_REQUEST, first.session, idempotency_key="k")
    assert (repeated.message, repeated.session) == (first.message, first.session)
    assert [each.role for each in await read_messages(maya, first.conversation_id)] == ["user", "assistant"]


async def test_a_repeated_message_of_an_interrupted_turn_is_understood(maya: User) -> None:
    setup = TripSetup(maya)
    session = create_session("web")
    busy = raises(ProviderOverloadedError("too busy"))
    setup.script(setup.understands_trip(destination="Rome", passengers=2), calls("recall_timeline"), busy)
    with pytest.raises(ProviderOverloadedError):
        await setup.agent.respond(FULL_REQUEST, session, idempotency_key="k")
    script_full_trip(setup)
    response = await setup.agent.respond(FULL_REQUEST, session, idempotency_key="k")
    assert dict(response.session.extracted) == {"destination": "Rome", "passengers": 2}
    assert response.message == "The night train?"
    assert is_valid_history(setup.model.requests[-1].messages)


async def test_turns_of_two_processes_run_one_after_another(tb: Tellback, maya: User) -> None:
    echo = FunctionModel(lambda request: f"re: {last_text(request)}")
    agents = [Agent("Wanda", model=echo, memory=user) for user in (maya, Tellback(tb.store).user("maya"))]
    session = create_session("web")
    responses = await asyncio.gather(*(agent.respond(f"from {n}", session) for n, agent in enumerate(agents)))
    assert len({response.conversation_id for response in responses}) == 1
    found = await read_texts(maya, responses[0].conversation_id)
    assert sorted((found[:2], found[2:])) == [["from 0", "re: from 0"], ["from 1", "re: from 1"]]


@respond_variants
async def test_equal_users_and_sessions_of_two_tenants_are_isolated(tb: Tellback, ask: Respond) -> None:
    first, second = (tb.user("maya", tenant_id=name) for name in ("acme", "globex"))
    space = await first.memory.create_space("default")
    await first.memory.add_atom(space.id, "The code is Zanzibar.")
    model = ScriptedModel(["Zanzibar.", calls("recall_by_topic", query="code"), "No idea."])
    agent = Agent("Wanda", model=model, memory=tb)
    session = create_session("web")
    first_response = await ask(agent, "What is the code?", session, user=first)
    second_response = await ask(agent, "What is the code?", session, user=second)
    assert "Zanzibar" in str(model.requests[0].system)
    assert not any("Zanzibar" in repr(request) for request in model.requests[1:])
    assert [atom.text for atom in first_response.atoms_used] == ["The code is Zanzibar."]
    assert second_response.atoms_used == ()
    assert first_response.conversation_id != second_response.conversation_id
    assert len(await second.conversations.list()) == 1


async def test_sessions_of_different_tenants_run_concurrently(tb: Tellback) -> None:
    echo = FunctionModel(lambda request: f"re: {last_text(request)}")
    agent = Agent("Wanda", model=echo, memory=tb)
    users = [tb.user("maya", tenant_id=name) for name in ("acme", "globex", "initech")]
    responses = await asyncio.gather(
        *(agent.respond(user.scope.tenant_id, create_session("web"), user=user) for user in users)
    )
    assert [response.message for response in responses] == ["re: acme", "re: globex", "re: initech"]


@pytest.mark.parametrize("tenants", [("acme", "globex"), ("acme", "acme")])
async def test_a_failed_turn_leaks_no_data_to_another_user(tb: Tellback, tenants: tuple[str, str]) -> None:
    def orders() -> str:
        """List the orders."""
        return f"ordered by {request.extras()['who']}"

    model = ScriptedModel([raises(ProviderOverloadedError("too busy")), "There you are."])
    agent = Agent("Wanda", model=model, memory=tb)
    route = agent.create_route("Tell what was ordered")
    route.initial_state.transition_to(tool_state=orders).transition_to(chat_state="Tell it")
    first_user, second_user = tb.user("maya", tenant_id=tenants[0]), tb.user("omar", tenant_id=tenants[1])
    with pytest.raises(ProviderOverloadedError):
        await agent.respond("What did I order?", create_session("web"), user=first_user, extras={"who": "maya"})
    response = await agent.respond("What did I order?", create_session("web"), user=second_user, extras={"who": "omar"})
    assert "ordered by omar" in model.requests[-1].instructions
    assert "maya" not in repr(response)


async def test_an_agents_data_is_exported_and_erased(url: str) -> None:
    async with Tellback(url, extractor="verbatim") as tb:
        maya = tb.user("maya")
        setup = TripSetup(maya, approval=True)
        paused, id = await waiting(setup)
        setup.script("The night train?")
        response = await setup.agent.respond(session=paused.session, approvals={id: True})
        await maya.conversations.close(str(response.conversation_id))
        await tb.jobs.drain(timeout=30)
        export = await maya.admin.export_user_data()
        [conversation] = export["conversations"]
        assert [each["visibility"] for each in conversation["messages"]] == [
            *("user", "user", "internal", "hidden", "user"),
        ]
        assert response.state is not None
        assert conversation["messages"][-1]["metadata"] == {
            "agent": "Wanda",
            "route": setup.book.id,
            "state": response.state.id,
        }
        assert len(export["atoms"]) == 3
        await maya.admin.delete_user_data(confirm=True)
        assert FULL_REQUEST not in json.dumps(await maya.admin.export_user_data())
        setup.script(setup.understands_trip(), "Hello!")
        new_response = await setup.agent.respond("Hi")
        assert (new_response.atoms_used, new_response.problems) == ((), ())
        assert FULL_REQUEST not in setup.prompts[-1]


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    monkeypatch.delenv(CAPTURE_VARIABLE, raising=False)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.configure(tracer_provider=provider)
    yield exporter
    telemetry.configure()


@respond_variants
async def test_a_turn_is_one_trace_with_its_model_and_tool_calls(
    url: str, exporter: InMemorySpanExporter, ask: Respond
) -> None:
    async with Tellback(url, worker=False) as tb:
        setup = TripSetup(tb.user("maya"))
        setup.script(
            setup.understands_trip(destination="Rome", passengers=2), calls("recall_timeline"), "The night train?"
        )
        response = await ask(setup.agent, FULL_REQUEST)
    spans = exporter.get_finished_spans()
    [turn] = [span for span in spans if span.name.startswith("invoke_agent")]
    assert turn.name == "invoke_agent Wanda"
    assert turn.context is not None
    child_spans = [span for span in spans if span.parent is not None and span.parent.span_id == turn.context.span_id]
    assert [span.name for span in child_spans] == [
        "recall BY_TOPIC",
        "chat scripted",
        "execute_tool search",
        "chat scripted",
        "execute_tool recall_timeline",
        "chat scripted",
    ]
    assert {span.context.trace_id for span in spans if span.context is not None} == {turn.context.trace_id}
    assert {(span.attributes or {})["gen_ai.conversation.id"] for span in (turn, *child_spans)} == {
        response.conversation_id
    }
    assert not any("Rome" in span.to_json() for span in spans)


@respond_variants
async def test_the_tokens_of_understanding_are_counted(url: str, exporter: InMemorySpanExporter, ask: Respond) -> None:
    async with Tellback(url, worker=False) as tb:
        setup = TripSetup(tb.user("maya"))
        usage = ChatUsage(input_tokens=10, output_tokens=1)
        setup.script(setup.understands_trip(destination="Rome", usage=usage), says("How many?", usage=usage))
        response = await ask(setup.agent, "To Rome")
    [turn] = [span for span in exporter.get_finished_spans() if span.name.startswith("invoke_agent")]
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 2)
    assert (turn.attributes or {})["gen_ai.usage.input_tokens"] == 20


@pytest.mark.parametrize("place", ["agent", "route"])
async def test_a_guideline_tool_call_can_be_decided_without_judging_the_condition_again(maya: User, place: str) -> None:
    paid: list[int] = []
    setup = TripSetup(maya)
    guideline: GuidelineFields = {
        "condition": "the user is angry",
        "action": "Pay them.",
        "tools": [make_pay_tool(paid)],
    }
    (setup.agent if place == "agent" else setup.book).create_guideline(guideline)
    setup.script(setup.understands_trip(holds=["the user is angry"]), calls("pay", amount=5))
    paused = await setup.agent.respond("Outrageous!", create_session("web"))
    [call] = paused.pending
    setup.script("Paid.")
    response = await setup.agent.respond(session=paused.session, approvals={call.id: True})
    assert (response.message, paid) == ("Paid.", [5])
