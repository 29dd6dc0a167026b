"""Agents whose conversations are stored and remembered, on every kind of store."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from tellback import ConfigurationError, Identity, InvalidArgumentError, Tellback, User, request
from tellback.agent import (
    Agent,
    EventSource,
    InMemorySessions,
    SessionState,
    ToolContext,
    ToolUpdate,
    create_message_event,
    create_session,
)
from tellback.skills import Skill
from tellback.testing import ScriptedModel, answers, calls, says, understands
from tests.integration.tools.mcp.support import friendly
from tests.support.travel_agents import (
    FULL_REQUEST,
    NOON,
    RECALL_TOOLS,
    Respond,
    TripSetup,
    read_messages,
    read_texts,
    respond_variants,
    script_full_trip,
    sent_texts,
)


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


@respond_variants
async def test_the_log_contains_messages_with_their_route_and_state(maya: User, ask: Respond) -> None:
    setup = TripSetup(maya)
    setup.script(setup.understands_trip(destination="Rome"), says("How many?", chunks=2))
    first = await ask(setup.agent, "To Rome", metadata={"lang": "en"}, trace_id="t-1")
    setup.script(setup.understands_trip(passengers=2), says("The night train?"))
    second = await ask(setup.agent, "Two", first.session)
    assert (first.problems, second.problems, setup.searched) == ((), (), [("Rome", 2)])
    assert first.conversation_id == second.conversation_id
    found = await read_messages(maya, first.conversation_id)
    assert [(each.role, each.text) for each in found] == [
        ("user", "To Rome"),
        ("assistant", "How many?"),
        ("user", "Two"),
        ("assistant", "The night train?"),
    ]
    assert (found[0].metadata, found[0].trace_id) == ({"lang": "en"}, "t-1")
    for response, stored in ((first, found[1]), (second, found[3])):
        assert stored.metadata == {"agent": "Wanda", "route": setup.book.id, "state": response.state.id}
    conversation = await maya.conversations.get(str(first.conversation_id))
    assert conversation is not None
    assert (conversation.namespace, conversation.session_id) == ("wanda", first.session.id)


@pytest.mark.parametrize("named", ["handle", "user id", "user handle", "metadata", "function", "async function"])
async def test_the_user_of_the_memory_can_be_specified_in_several_ways(tb: Tellback, maya: User, named: str) -> None:
    async def later(session: SessionState) -> User:
        return tb.user(str(session.metadata["who"]))

    memory: Any = {"handle": maya, "async function": later, "function": lambda s: tb.user(s.metadata["who"])}
    more: dict[str, Any] = {"user id": {"user": "maya"}, "user handle": {"user": maya}}
    session = create_session(metadata={"who": "maya", **({"user_id": "maya"} if named == "metadata" else {})})
    setup = TripSetup(memory.get(named, tb))
    script_full_trip(setup)
    response = await setup.agent.respond(FULL_REQUEST, session, **more.get(named, {}))
    assert await read_texts(maya, response.conversation_id) == [FULL_REQUEST, "The night train?"]
    assert response.session.metadata["who"] == "maya"


@respond_variants
async def test_invalid_arguments_store_no_conversation(tb: Tellback, maya: User, ask: Respond) -> None:
    user_id = {"user_id": "maya"}
    wrong: list[tuple[Any, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        (tb, ("Hi",), {}, InvalidArgumentError, "memory has many users"),
        (tb, ("Hi", create_session(metadata={"user_id": 7})), {}, InvalidArgumentError, "memory has many users"),
        (maya, ("Hi",), {"user": "omar"}, InvalidArgumentError, "belongs to one user"),
        (tb, ("Hi",), {"user": 7}, ConfigurationError, "handle"),
        (lambda _: None, ("Hi",), {}, ConfigurationError, "handle"),
        (tb, (None, create_session(metadata=user_id)), {}, InvalidArgumentError, "needs a user message"),
        (maya, ("Hi",), {"namespace": "x"}, InvalidArgumentError, "namespace"),
        (maya, ("Hi",), {"extras": 7}, InvalidArgumentError, "extras"),
        (maya, ("Hi",), {"sender": "maya"}, InvalidArgumentError, "sender"),
        (maya, ("Hi",), {"wait": -1}, InvalidArgumentError, "wait"),
        (maya, ("Hi",), {"approvals": {"c1": True}}, InvalidArgumentError, "without a history"),
        (maya, (), {"approvals": {"c1": True}}, InvalidArgumentError, "c1|pending calls"),
    ]
    for memory, args, kwargs, error, problem in wrong:
        with pytest.raises(error, match=problem):
            await ask(Agent("Wanda", model=ScriptedModel([]), memory=memory), *args, **kwargs)
    assert await maya.conversations.list() == []


def test_a_synchronous_handle_is_rejected(url: str) -> None:
    with Tellback(url) as tb:
        agent = Agent("Wanda", model=ScriptedModel([]), memory=tb.user("maya"))
        with pytest.raises(ConfigurationError, match="async with"):
            asyncio.run(agent.respond("Hi"))


async def test_the_tellbacks_model_is_used_unless_the_agent_has_one(url: str) -> None:
    async with Tellback(url, model=ScriptedModel(["Hello!"])) as tb:
        assert (await Agent("Wanda", memory=tb.user("maya")).respond("Hi")).message == "Hello!"
    async with Tellback(tb.store if url == ":memory:" else url) as tb:
        with pytest.raises(ConfigurationError, match="model"):
            await Agent("Vera", memory=tb.user("maya")).respond("Hi")
        assert await tb.user("maya").conversations.list("vera") == []


async def test_the_last_messages_of_the_log_are_sent_with_a_text(maya: User) -> None:
    setup = TripSetup(maya)
    setup.script(setup.understands_trip(destination="Rome"), "How many?")
    first = await setup.agent.respond("To Rome", create_session("web"))
    setup.script(setup.understands_trip(passengers=2), "The night train?")
    await setup.agent.respond("Two", first.session)
    assert sent_texts(setup.model) == ["To Rome", "How many?", "Two"]
    assert all(text in sent_texts(setup.model, 2)[0] for text in ("To Rome", "How many?", "Two"))


async def test_a_callers_history_is_sent_unchanged_and_its_last_message_stored(maya: User) -> None:
    setup = TripSetup(maya)
    script_full_trip(setup)
    history = [
        create_message_event(EventSource.CUSTOMER, "Maya", "Hello from the phone"),
        create_message_event(EventSource.AI_AGENT, "Wanda", "Where to?"),
        create_message_event(EventSource.CUSTOMER, "Maya", FULL_REQUEST),
    ]
    response = await setup.agent.respond(history)
    assert sent_texts(setup.model) == ["Hello from the phone", "Where to?", FULL_REQUEST]
    assert await read_texts(maya, response.conversation_id) == [FULL_REQUEST, "The night train?"]


async def test_a_separate_session_store_does_not_duplicate_the_log(maya: User) -> None:
    setup = TripSetup(maya, persistence=InMemorySessions())
    setup.script(setup.understands_trip(destination="Rome"), "How many?")
    await setup.agent.respond("To Rome", "web")
    setup.script(setup.understands_trip(passengers=2), "The night train?")
    response = await setup.agent.respond("Two", "web")
    assert sent_texts(setup.model) == ["To Rome", "How many?", "Two"]
    assert (response.session.version, dict(response.session.extracted)) == (2, {"destination": "Rome", "passengers": 2})


async def test_recalled_memories_are_in_the_reply_prompt(maya: User) -> None:
    space = await maya.memory.create_space("travel")
    atom = await maya.memory.add_atom(space.id, "Maya only travels by train.")
    setup = TripSetup(maya, memory_options={"space": "travel", "recall": {"recall_limit": 3}})
    setup.script(setup.understands_trip(), "Where to?")
    response = await setup.agent.respond("How should I travel: by train or by plane?")
    assert "Maya only travels by train." not in setup.prompts[0]
    assert "Maya only travels by train." in setup.prompts[1]
    assert [each.id for each in response.atoms_used] == [atom.id]
    assert response.trace.prompts == tuple(setup.prompts)


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ({}, RECALL_TOOLS),
        ({"write": True}, {*RECALL_TOOLS, "remember", "forget"}),
        ({"tools": False, "write": True}, {"remember", "forget"}),
        ({"tools": False}, set()),
    ],
)
async def test_the_model_is_offered_the_memory_tools(maya: User, options: dict[str, Any], offered: set[str]) -> None:
    model = ScriptedModel(["Hello!"])
    await Agent("Wanda", model=model, memory=maya, memory_options=options).respond("Hi")
    assert {each.name for each in model.requests[0].tools} == offered


async def test_the_model_can_search_the_memory_and_write_to_it(maya: User) -> None:
    space = await maya.memory.create_space("default")
    await maya.memory.add_atom(space.id, "Maya's cat is called Zorro.")
    script = [calls("recall_by_topic", query="the cat"), calls("remember", text="Maya has a parrot."), "Done."]
    agent = Agent("Wanda", model=ScriptedModel(script), memory=maya, memory_options={"write": True})
    response = await agent.respond("I have a parrot beside my pet. Which?")
    recalled, remembered = response.tool_calls
    assert "Zorro" in str(recalled.content)
    assert not remembered.is_error
    assert "Maya has a parrot." in [atom.text for atom in await maya.memory.list_atoms(space.id)]
    stored = await read_messages(maya, response.conversation_id)
    assert [each.role for each in stored] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert {json.dumps(each.metadata) for each in stored if each.role == "assistant"} == {'{"agent": "Wanda"}'}


async def test_a_deleted_space_is_replaced_for_the_tools(maya: User) -> None:
    script = ["Hello!", calls("recall_timeline"), "Nothing.", calls("recall_timeline"), "Nothing."]
    agent = Agent("Wanda", model=ScriptedModel(script), memory=maya)
    await agent.respond("Hi")
    [deleted_space] = await maya.memory.list_spaces()
    await maya.memory.delete_space(deleted_space.id)
    for _ in range(2):
        response = await agent.respond("What happened?")
        assert ([call.is_error for call in response.tool_calls], response.problems) == ([False], ())


@respond_variants
async def test_verbatim_memories_are_recalled_in_the_next_conversation(url: str, ask: Respond) -> None:
    async with Tellback(url, extractor="verbatim", clock=lambda: NOON) as tb:
        setup = TripSetup(tb.user("maya"))
        setup.script(setup.understands_trip(destination="Rome"), "How many?")
        first = await ask(setup.agent, "To Rome, but I am afraid of flying.")
        tb.clock = lambda: NOON + timedelta(days=20)
        setup.script(setup.understands_trip(), "By train, then.")
        later = await ask(setup.agent, "Am I afraid of flying?")
    assert any("afraid of flying" in atom.text for atom in later.atoms_used)
    assert "To Rome, but I am afraid of flying." in setup.prompts[-1]
    assert later.atoms_used[0].source_conversation_id == first.conversation_id != later.conversation_id


async def test_extracted_memories_are_recalled_in_the_next_conversation(url: str) -> None:
    fact: dict[str, Any] = {
        "text": "Maya is afraid of flying.",
        "messages": ["m1"],
        "kind": "FACT",
        "category": "travel",
    }
    fact |= {"importance": 4, "confidence": 0.9, "change": "none", "single": False, "entities": []}
    reader = ScriptedModel([answers({"facts": [fact], "entities": []})])
    async with Tellback(url, model=reader, extractor="llm") as tb:
        maya = tb.user("maya")
        setup = TripSetup(maya)
        script_full_trip(setup)
        first = await setup.agent.respond("Two of us to Rome. I am afraid of flying.")
        await maya.conversations.close(str(first.conversation_id))
        await tb.jobs.drain(timeout=30)
        setup.script(setup.understands_trip(), "By train, then.")
        later = await setup.agent.respond("Is Maya afraid of flying?")
    assert [atom.text for atom in later.atoms_used] == ["Maya is afraid of flying."]
    reader.assert_done()


async def test_a_session_continues_after_its_conversation_was_closed(tb: Tellback, maya: User) -> None:
    tb.clock = lambda: NOON
    setup = TripSetup(maya, memory_options={"close_after": 60})
    setup.script(setup.understands_trip(destination="Rome"), "How many?")
    first = await setup.agent.respond("To Rome")
    tb.clock = lambda: NOON + timedelta(hours=1)
    setup.script(setup.understands_trip(passengers=2), "The night train?")
    later = await setup.agent.respond("Two", first.session)
    assert first.conversation_id != later.conversation_id
    assert (setup.searched, sent_texts(setup.model)) == ([("Rome", 2)], ["Two"])


async def test_agents_of_one_user_have_separate_conversations_and_shared_memories(url: str) -> None:
    async with Tellback(url, extractor="verbatim", clock=lambda: NOON) as tb:
        maya = tb.user("maya")
        first = Agent("Wanda", model=ScriptedModel(["Noted."]), memory=maya)
        response = await first.respond("My code is Zanzibar.", create_session("web"))
        model = ScriptedModel(["Hm.", "Zanzibar."])
        second = Agent("Vera", model=model, memory=maya)
        await second.respond("What is my code?", create_session("web"))
        assert sent_texts(model) == ["What is my code?"]
        assert "Zanzibar" not in str(model.requests[0].system)
        await maya.conversations.close(str(response.conversation_id))
        await tb.jobs.drain(timeout=30)
        await second.respond("What is my code now?", create_session("web"))
        assert "My code is Zanzibar." in str(model.requests[1].system)


async def test_an_agent_with_a_memory_can_use_skills(maya: User) -> None:
    skill = Skill("refunds", "How refunds are made", body="Refunds take three days.")
    model = ScriptedModel([calls("read_skill", name="refunds"), "Three days."])
    agent = Agent("Wanda", model=model, memory=maya, skills=[skill])
    response = await agent.respond("When do I get my money?")
    assert "How refunds are made" in str(model.requests[0].system)
    assert "three days" in str(response.tool_calls[0].content)
    assert response.message == "Three days."


async def test_mcp_tools_can_be_called_by_the_model_and_by_states(maya: User) -> None:
    async with friendly(only=["add", "weather"]) as server:
        add, weather = sorted(await server.tools(), key=lambda each: each.name)
        model = ScriptedModel([])
        agent = Agent("Wanda", model=model, memory=maya, tools=[add])
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        route = agent.create_route("Tell the weather", gather_schema=schema)
        ask = route.initial_state.transition_to(chat_state="Ask where", gather=["city"])
        ask.transition_to(tool_state=weather).transition_to(chat_state="Tell it")
        model._script += [understands(city="Lisbon"), calls("add", x=20, y=1), "It is 21 degrees."]
        response = await agent.respond("The weather in Lisbon?")
    assert [(call.name, call.is_error) for call in response.tool_calls] == [("weather", False), ("add", False)]
    assert '"celsius"' in model.requests[1].instructions
    assert response.message == "It is 21 degrees."


async def test_state_tools_can_read_the_current_request(maya: User) -> None:
    seen: list[Any] = []

    def look() -> str:
        """Look."""
        now = request.current()
        seen.append((now.session and now.session.id, now.sender, dict(now.extras), now.conversation_id, now.message_id))
        return "seen"

    agent = Agent("Wanda", model=ScriptedModel([calls("look"), "Seen."]), memory=maya, tools=[look])
    route = agent.create_route("Look")
    route.initial_state.transition_to(tool_state=look).transition_to(chat_state="Tell")
    sender = Identity("maya", "Maya")
    response = await agent.respond("Look!", create_session("web"), sender=sender, extras={"plan": "pro"})
    [message, *_] = await read_messages(maya, response.conversation_id)
    assert seen == [("web", sender, {"plan": "pro"}, response.conversation_id, message.id)] * 2


async def test_context_added_by_a_state_tool_is_available_in_the_same_turn(maya: User) -> None:
    def greet(ctx: ToolContext) -> str:
        """Greet."""
        return f"Welcome, {ctx.context['tier']} member!"

    def look_up() -> ToolUpdate:
        """Look the member up."""
        return ToolUpdate("found", context={"tier": "gold"})

    model = ScriptedModel([calls("greet"), "Welcome!"])
    agent = Agent("Wanda", model=model, memory=maya, tools=[greet], context={"shop": "Lisbon"})
    agent.create_route("Greet").initial_state.transition_to(tool_state=look_up).transition_to(chat_state="Greet them")
    response = await agent.respond("Hi")
    assert dict(response.session.context) == {"tier": "gold"}
    assert str(response.tool_calls[-1].content) == "Welcome, gold member!"
    assert "gold" in str(model.requests[0].system)
