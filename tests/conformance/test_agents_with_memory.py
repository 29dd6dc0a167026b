"""Agents whose conversations are kept and remembered, on every kind of store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, Field

from recollect import (
    AlreadyDecidedError,
    Approval,
    ChatUsage,
    ConfigurationError,
    Identity,
    InvalidArgumentError,
    ProviderOverloadedError,
    Recollect,
    RecollectError,
    StoreUnavailableError,
    ToolCall,
    User,
    message_text,
    request,
    telemetry,
    tool,
)
from recollect.agent import (
    END_ROUTE,
    Agent,
    EventSource,
    InMemorySessions,
    Response,
    Route,
    SessionState,
    ToolContext,
    ToolUpdate,
    create_message_event,
    create_session,
    session_data_to_state,
    session_state_to_data,
)
from recollect.chat.history import is_sound
from recollect.skills import Skill
from recollect.telemetry.source import CAPTURE_VARIABLE
from recollect.testing import FunctionModel, ScriptedModel, answers, calls, raises, says, understands
from recollect.types.conversations import StoredMessage
from tests.integration.mcp.support import friendly

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
WHOLE = "Two of us to Rome, please."
RECALLING = {"recall_by_topic", "recall_by_entity", "recall_timeline"}


class Trip(BaseModel):
    destination: str
    passengers: int = Field(ge=1)


class Desk:
    """A travel agent and what it has done."""

    def __init__(self, memory: Any, script: Any = (), *, approval: bool = False, **more: Any) -> None:
        self.model = ScriptedModel(script)
        self.searched: list[tuple[str, int]] = []
        self.paid: list[int] = []
        self.agent = Agent("Wanda", goal="Book trips", model=self.model, memory=memory, **more)
        self.book: Route = self.agent.create_route(
            "Book a trip", conditions=["the user wants to travel"], gather_schema=Trip
        )
        ask = self.book.initial_state.transition_to(
            chat_state="Ask where to and how many", gather=["destination", "passengers"]
        )
        search = ask.transition_to(tool_state=tool(requires_approval=approval)(self.search))
        search.transition_to(chat_state="Offer what was found").transition_to(state=END_ROUTE)

    def search(self, destination: str, passengers: int) -> list[str]:
        """Find trips."""
        self.searched.append((destination, passengers))
        return [f"the night train to {destination}"]

    def script(self, *steps: Any) -> None:
        """What the model says next."""
        self.model._script[len(self.model.requests) :] = steps

    def reads(self, **stated: Any) -> Any:
        """The model reads a message about the trip."""
        return understands(self.book, **stated)

    @property
    def systems(self) -> list[str]:
        return [str(asked.system) for asked in self.model.requests]


def whole(desk: Desk, answer: Any = "The night train?") -> None:
    """One message that says everything is read and answered."""
    desk.script(desk.reads(destination="Rome", passengers=2), answer)


def paying(paid: list[int]) -> Any:
    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    return pay


def stored_away(session: SessionState) -> SessionState:
    """The session as another process reads it."""
    return session_data_to_state(session.id, json.loads(json.dumps(session_state_to_data(session))))


async def log(user: User, id: str | None, **more: Any) -> list[StoredMessage]:
    assert id is not None
    return await user.conversations.messages(id, **more)


async def texts(user: User, id: str | None, **more: Any) -> list[str]:
    return [message.text for message in await log(user, id, **more)]


def sent(model: ScriptedModel, number: int = -1) -> list[str]:
    """The messages of a request."""
    return [message_text(message) for message in model.requests[number].messages]


async def to_the_end(agent: Agent, *given: Any, **more: Any) -> Response:
    """The response of a stream."""
    chunks = [chunk async for chunk in agent.respond_stream(*given, **more)]
    assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert "".join(chunk.delta for chunk in chunks) == chunks[-1].accumulated
    response = chunks[-1].response
    assert response is not None
    return response


async def at_once(agent: Agent, *given: Any, **more: Any) -> Response:
    return await agent.respond(*given, **more)


ways = pytest.mark.parametrize("ask", [at_once, to_the_end], ids=["respond", "respond_stream"])
Ask = Callable[..., Any]


@pytest.fixture
def maya(rc: Recollect) -> User:
    return rc.user("maya")


# What is kept


@ways
async def test_the_log_holds_what_was_said_and_where(maya: User, ask: Ask) -> None:
    desk = Desk(maya)
    desk.script(desk.reads(destination="Rome"), says("How many?", chunks=2))
    first = await ask(desk.agent, "To Rome", metadata={"lang": "en"}, trace_id="t-1")
    desk.script(desk.reads(passengers=2), says("The night train?"))
    second = await ask(desk.agent, "Two", first.session)
    assert (first.problems, second.problems, desk.searched) == ((), (), [("Rome", 2)])
    assert first.conversation_id == second.conversation_id
    found = await log(maya, first.conversation_id)
    assert [(each.role, each.text) for each in found] == [
        ("user", "To Rome"),
        ("assistant", "How many?"),
        ("user", "Two"),
        ("assistant", "The night train?"),
    ]
    assert (found[0].metadata, found[0].trace_id) == ({"lang": "en"}, "t-1")
    for response, kept in ((first, found[1]), (second, found[3])):
        assert kept.metadata == {"agent": "Wanda", "route": desk.book.id, "state": response.state.id}
    talk = await maya.conversations.get(str(first.conversation_id))
    assert talk is not None
    assert (talk.namespace, talk.session_id) == ("wanda", first.session.id)


@pytest.mark.parametrize("named", ["handle", "user id", "user handle", "metadata", "function", "async function"])
async def test_whose_memory_it_is_can_be_said_in_many_ways(rc: Recollect, maya: User, named: str) -> None:
    async def later(session: SessionState) -> User:
        return rc.user(str(session.metadata["who"]))

    memory: Any = {"handle": maya, "async function": later, "function": lambda s: rc.user(s.metadata["who"])}
    more: dict[str, Any] = {"user id": {"user": "maya"}, "user handle": {"user": maya}}
    session = create_session(metadata={"who": "maya", **({"user_id": "maya"} if named == "metadata" else {})})
    desk = Desk(memory.get(named, rc))
    whole(desk)
    response = await desk.agent.respond(WHOLE, session, **more.get(named, {}))
    assert await texts(maya, response.conversation_id) == [WHOLE, "The night train?"]
    assert response.session.metadata["who"] == "maya"


@ways
async def test_nothing_is_kept_for_a_mistake(rc: Recollect, maya: User, ask: Ask) -> None:
    user_id = {"user_id": "maya"}
    wrong: list[tuple[Any, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        (rc, ("Hi",), {}, InvalidArgumentError, "whose memory"),
        (rc, ("Hi", create_session(metadata={"user_id": 7})), {}, InvalidArgumentError, "whose memory"),
        (maya, ("Hi",), {"user": "omar"}, InvalidArgumentError, "one user's"),
        (rc, ("Hi",), {"user": 7}, ConfigurationError, "handle"),
        (lambda _: None, ("Hi",), {}, ConfigurationError, "handle"),
        (rc, (None, create_session(metadata=user_id)), {}, InvalidArgumentError, "speaks first"),
        (maya, ("Hi",), {"namespace": "x"}, InvalidArgumentError, "namespace"),
        (maya, ("Hi",), {"extras": 7}, InvalidArgumentError, "extras"),
        (maya, ("Hi",), {"sender": "maya"}, InvalidArgumentError, "sender"),
        (maya, ("Hi",), {"wait": -1}, InvalidArgumentError, "wait"),
        (maya, ("Hi",), {"approvals": {"c1": True}}, InvalidArgumentError, "without a history"),
        (maya, (), {"approvals": {"c1": True}}, InvalidArgumentError, "c1|decided"),
    ]
    for memory, given, more, error, problem in wrong:
        with pytest.raises(error, match=problem):
            await ask(Agent("Wanda", model=ScriptedModel([]), memory=memory), *given, **more)
    assert await maya.conversations.list() == []


def test_a_synchronous_handle_is_refused(url: str) -> None:
    with Recollect(url) as rc:
        agent = Agent("Wanda", model=ScriptedModel([]), memory=rc.user("maya"))
        with pytest.raises(ConfigurationError, match="async with"):
            asyncio.run(agent.respond("Hi"))


async def test_the_model_of_the_memory_answers_unless_the_agent_has_its_own(url: str) -> None:
    async with Recollect(url, model=ScriptedModel(["Hello!"])) as rc:
        assert (await Agent("Wanda", memory=rc.user("maya")).respond("Hi")).message == "Hello!"
    async with Recollect(rc.store if url == ":memory:" else url) as rc:
        with pytest.raises(ConfigurationError, match="model"):
            await Agent("Vera", memory=rc.user("maya")).respond("Hi")
        assert await rc.user("maya").conversations.list("vera") == []


# What the model is given


async def test_a_text_is_answered_after_the_tail_of_the_log(maya: User) -> None:
    desk = Desk(maya)
    desk.script(desk.reads(destination="Rome"), "How many?")
    first = await desk.agent.respond("To Rome", create_session("web"))
    desk.script(desk.reads(passengers=2), "The night train?")
    await desk.agent.respond("Two", first.session)
    assert sent(desk.model) == ["To Rome", "How many?", "Two"]
    assert all(said in sent(desk.model, 2)[0] for said in ("To Rome", "How many?", "Two"))


async def test_a_history_of_the_callers_own_is_sent_as_it_is_and_its_end_kept(maya: User) -> None:
    desk = Desk(maya)
    whole(desk)
    history = [
        create_message_event(EventSource.CUSTOMER, "Maya", "Hello from the phone"),
        create_message_event(EventSource.AI_AGENT, "Wanda", "Where to?"),
        create_message_event(EventSource.CUSTOMER, "Maya", WHOLE),
    ]
    response = await desk.agent.respond(history)
    assert sent(desk.model) == ["Hello from the phone", "Where to?", WHOLE]
    assert await texts(maya, response.conversation_id) == [WHOLE, "The night train?"]


async def test_sessions_kept_elsewhere_do_not_double_the_log(maya: User) -> None:
    desk = Desk(maya, persistence=InMemorySessions())
    desk.script(desk.reads(destination="Rome"), "How many?")
    await desk.agent.respond("To Rome", "web")
    desk.script(desk.reads(passengers=2), "The night train?")
    response = await desk.agent.respond("Two", "web")
    assert sent(desk.model) == ["To Rome", "How many?", "Two"]
    assert (response.session.version, dict(response.session.extracted)) == (2, {"destination": "Rome", "passengers": 2})


async def test_what_is_known_of_the_user_is_in_the_prompt(maya: User) -> None:
    space = await maya.memory.create_space("travel")
    atom = await maya.memory.add_atom(space.id, "Maya only travels by train.")
    desk = Desk(maya, memory_options={"space": "travel", "recall": {"recall_limit": 3}})
    desk.script(desk.reads(), "Where to?")
    response = await desk.agent.respond("How should I travel: by train or by plane?")
    assert "Maya only travels by train." not in desk.systems[0]
    assert "Maya only travels by train." in desk.systems[1]
    assert [each.id for each in response.atoms_used] == [atom.id]
    assert response.trace.prompts == tuple(desk.systems)


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ({}, RECALLING),
        ({"write": True}, {*RECALLING, "remember", "forget"}),
        ({"tools": False, "write": True}, {"remember", "forget"}),
        ({"tools": False}, set()),
    ],
)
async def test_the_model_is_offered_the_tools_of_the_memory(
    maya: User, options: dict[str, Any], offered: set[str]
) -> None:
    model = ScriptedModel(["Hello!"])
    await Agent("Wanda", model=model, memory=maya, memory_options=options).respond("Hi")
    assert {each.name for each in model.requests[0].tools} == offered


async def test_the_model_looks_into_the_memory_and_writes_into_it(maya: User) -> None:
    space = await maya.memory.create_space("default")
    await maya.memory.add_atom(space.id, "Maya's cat is called Zorro.")
    script = [calls("recall_by_topic", query="the cat"), calls("remember", text="Maya has a parrot."), "Done."]
    agent = Agent("Wanda", model=ScriptedModel(script), memory=maya, memory_options={"write": True})
    response = await agent.respond("I have a parrot beside my pet. Which?")
    recalled, remembered = response.tool_calls
    assert "Zorro" in str(recalled.content)
    assert not remembered.is_error
    assert "Maya has a parrot." in [atom.text for atom in await maya.memory.list_atoms(space.id)]
    kept = await log(maya, response.conversation_id)
    assert [each.role for each in kept] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert {json.dumps(each.metadata) for each in kept if each.role == "assistant"} == {'{"agent": "Wanda"}'}


async def test_a_space_that_was_deleted_is_replaced_for_the_tools_too(maya: User) -> None:
    script = ["Hello!", calls("recall_timeline"), "Nothing.", calls("recall_timeline"), "Nothing."]
    agent = Agent("Wanda", model=ScriptedModel(script), memory=maya)
    await agent.respond("Hi")
    [gone] = await maya.memory.list_spaces()
    await maya.memory.delete_space(gone.id)
    for _ in range(2):
        response = await agent.respond("What happened?")
        assert ([call.is_error for call in response.tool_calls], response.problems) == ([False], ())


# What is remembered


@ways
async def test_what_was_said_to_an_agent_is_there_in_its_next_conversation(url: str, ask: Ask) -> None:
    async with Recollect(url, extractor="verbatim", clock=lambda: NOON) as rc:
        desk = Desk(rc.user("maya"))
        desk.script(desk.reads(destination="Rome"), "How many?")
        first = await ask(desk.agent, "To Rome, but I am afraid of flying.")
        rc.clock = lambda: NOON + timedelta(days=20)
        desk.script(desk.reads(), "By train, then.")
        later = await ask(desk.agent, "Am I afraid of flying?")
    assert any("afraid of flying" in atom.text for atom in later.atoms_used)
    assert "To Rome, but I am afraid of flying." in desk.systems[-1]
    assert later.atoms_used[0].source_conversation_id == first.conversation_id != later.conversation_id


async def test_what_a_model_extracted_is_there_in_the_next_conversation(url: str) -> None:
    fact: dict[str, Any] = {
        "text": "Maya is afraid of flying.",
        "messages": ["m1"],
        "kind": "FACT",
        "category": "travel",
    }
    fact |= {"importance": 4, "confidence": 0.9, "change": "none", "single": False, "entities": []}
    reader = ScriptedModel([answers({"facts": [fact], "entities": []})])
    async with Recollect(url, model=reader, extractor="llm") as rc:
        maya = rc.user("maya")
        desk = Desk(maya)
        whole(desk)
        first = await desk.agent.respond("Two of us to Rome. I am afraid of flying.")
        await maya.conversations.close(str(first.conversation_id))
        await rc.jobs.drain(timeout=30)
        desk.script(desk.reads(), "By train, then.")
        later = await desk.agent.respond("Is Maya afraid of flying?")
    assert [atom.text for atom in later.atoms_used] == ["Maya is afraid of flying."]
    reader.assert_done()


async def test_a_session_outlives_the_conversation_that_closed_under_it(rc: Recollect, maya: User) -> None:
    rc.clock = lambda: NOON
    desk = Desk(maya, memory_options={"close_after": 60})
    desk.script(desk.reads(destination="Rome"), "How many?")
    first = await desk.agent.respond("To Rome")
    rc.clock = lambda: NOON + timedelta(hours=1)
    desk.script(desk.reads(passengers=2), "The night train?")
    later = await desk.agent.respond("Two", first.session)
    assert first.conversation_id != later.conversation_id
    assert (desk.searched, sent(desk.model)) == ([("Rome", 2)], ["Two"])


async def test_agents_of_one_user_keep_apart_what_is_said_and_share_what_is_known(url: str) -> None:
    async with Recollect(url, extractor="verbatim", clock=lambda: NOON) as rc:
        maya = rc.user("maya")
        first = Agent("Wanda", model=ScriptedModel(["Noted."]), memory=maya)
        said = await first.respond("My code is Zanzibar.", create_session("web"))
        model = ScriptedModel(["Hm.", "Zanzibar."])
        second = Agent("Vera", model=model, memory=maya)
        await second.respond("What is my code?", create_session("web"))
        assert sent(model) == ["What is my code?"]
        assert "Zanzibar" not in str(model.requests[0].system)
        await maya.conversations.close(str(said.conversation_id))
        await rc.jobs.drain(timeout=30)
        await second.respond("What is my code now?", create_session("web"))
        assert "My code is Zanzibar." in str(model.requests[1].system)


# Tools from elsewhere


async def test_an_agent_with_a_memory_has_skills(maya: User) -> None:
    skill = Skill("refunds", "How refunds are made", body="Refunds take three days.")
    model = ScriptedModel([calls("read_skill", name="refunds"), "Three days."])
    agent = Agent("Wanda", model=model, memory=maya, skills=[skill])
    response = await agent.respond("When do I get my money?")
    assert "How refunds are made" in str(model.requests[0].system)
    assert "three days" in str(response.tool_calls[0].content)
    assert response.message == "Three days."


async def test_tools_of_an_mcp_server_are_called_by_the_model_and_run_by_states(maya: User) -> None:
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
    assert '"celsius"' in str(model.requests[1].system)
    assert response.message == "It is 21 degrees."


async def test_tools_of_states_know_whose_turn_it_is(maya: User) -> None:
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
    [said, *_] = await log(maya, response.conversation_id)
    assert seen == [("web", sender, {"plan": "pro"}, response.conversation_id, said.id)] * 2


async def test_what_a_states_tool_adds_to_the_context_is_there_in_the_same_turn(maya: User) -> None:
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


# Calls that wait for a person


async def waiting(desk: Desk) -> tuple[Response, str]:
    """A state's call waits."""
    whole(desk, "Someone must agree first.")
    asked = await desk.agent.respond(WHOLE)
    [call] = asked.pending
    assert (call.name, call.input, desk.searched) == ("search", {"destination": "Rome", "passengers": 2}, [])
    return asked, call.id


@ways
async def test_a_states_call_is_approved_elsewhere(rc: Recollect, maya: User, ask: Ask) -> None:
    asked, id = await waiting(Desk(maya, approval=True))
    there = Desk(Recollect(rc.store).user("maya"), ["The night train?"], approval=True)
    done = await ask(there.agent, session=stored_away(asked.session), approvals={id: True})
    assert (done.message, done.pending, there.searched) == ("The night train?", (), [("Rome", 2)])
    assert done.conversation_id == asked.conversation_id
    assert "the night train to Rome" in there.systems[0]
    with pytest.raises(RecollectError, match=id):
        await ask(there.agent, session=done.session, approvals={id: True})
    assert there.searched == [("Rome", 2)]


async def test_the_note_of_a_decision_is_for_the_model_only(url: str) -> None:
    async with Recollect(url, extractor="verbatim") as rc:
        maya = rc.user("maya")
        desk = Desk(maya, approval=True)
        asked, id = await waiting(desk)
        desk.script("It cannot be.")
        denied = Approval(False, reason="too dear for us")
        done = await desk.agent.respond(session=asked.session, approvals={id: denied})
        shown = [WHOLE, "Someone must agree first.", "It cannot be."]
        assert await texts(maya, done.conversation_id) == shown
        [note] = [m for m in await log(maya, done.conversation_id, include_internal=True) if m.visibility == "internal"]
        assert (note.role, "search was denied (too dear for us)" in note.text) == ("user", True)
        assert note.text in sent(desk.model)[-1]
        assert "too dear for us" in desk.systems[-1]
        await maya.conversations.close(str(done.conversation_id))
        await rc.jobs.drain(timeout=30)
        [space] = await maya.memory.list_spaces()
        atoms = [atom.text for atom in await maya.memory.list_atoms(space.id)]
    assert len(atoms) == 3
    assert not any("dear" in text or "decided" in text for text in atoms)


@ways
async def test_a_call_of_the_models_is_approved_by_another_opening(url: str, rc: Recollect, ask: Ask) -> None:
    paid: list[int] = []
    here = Desk(rc.user("maya"), tools=[paying(paid)])
    whole(here, calls(ToolCall("c1", "pay", {"amount": 5})))
    asked = await ask(here.agent, WHOLE)
    assert ([call.id for call in asked.pending], paid, here.searched) == (["c1"], [], [("Rome", 2)])
    store: Any = rc.store if url == ":memory:" else url
    there_rc = Recollect(store)
    if url != ":memory:":
        await there_rc.open()
    try:
        there = Desk(there_rc.user("maya"), ["Paid."], tools=[paying(paid)])
        session = stored_away(asked.session)
        done = await ask(there.agent, session=session, approvals={"c1": True})
        assert (done.message, done.pending, paid, there.searched) == ("Paid.", (), [5], [])
        assert done.conversation_id == asked.conversation_id
        assert (done.route, done.state) == (asked.route, asked.state)
        assert "Offer what was found" in there.systems[0]
        with pytest.raises(AlreadyDecidedError):
            await ask(there.agent, session=done.session, approvals={"c1": True})
        found = await log(there_rc.user("maya"), done.conversation_id)
    finally:
        if url != ":memory:":
            await there_rc.close()
    assert [each.role for each in found] == ["user", "assistant", "tool", "assistant"]
    assert (found[-1].metadata or {})["route"] == here.book.id
    assert paid == [5]


async def test_a_message_instead_of_a_decision_leaves_the_call_undone(maya: User) -> None:
    paid: list[int] = []
    desk = Desk(maya, tools=[paying(paid)])
    whole(desk, calls(ToolCall("c1", "pay", {"amount": 5})))
    asked = await desk.agent.respond(WHOLE)
    desk.script(desk.reads(), "Fine, nothing was paid.")
    response = await desk.agent.respond("Never mind.", asked.session)
    assert (response.pending, paid) == ((), [])
    assert is_sound(desk.model.requests[-1].messages)
    assert await maya.conversations.pending(str(response.conversation_id)) == ()


@pytest.mark.parametrize("by_the_model", [True, False])
async def test_a_decision_may_come_after_the_conversation_was_closed(maya: User, by_the_model: bool) -> None:
    paid: list[int] = []
    desk = Desk(maya, tools=[paying(paid)] if by_the_model else [], approval=not by_the_model)
    whole(desk, calls(ToolCall("c1", "pay", {"amount": 5})) if by_the_model else "Someone must agree.")
    asked = await desk.agent.respond(WHOLE)
    await maya.conversations.close(str(asked.conversation_id))
    desk.script("Done.")
    done = await desk.agent.respond(session=asked.session, approvals={asked.pending[0].id: True})
    assert (done.message, paid, desk.searched) == ("Done.", [5] if by_the_model else [], [("Rome", 2)])


# Failures


def failing(monkeypatch: pytest.MonkeyPatch, target: Any, *names: str) -> None:
    async def fails(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("The store is gone.")

    for name in names:
        monkeypatch.setattr(target, name, fails)


@ways
async def test_a_store_that_fails_leaves_the_answer(
    rc: Recollect, maya: User, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    desk = Desk(maya)
    desk.script(desk.reads(destination="Rome"), "How many?")
    first = await ask(desk.agent, "To Rome")
    desk.script(desk.reads(passengers=2), "The night train?", desk.reads(), "Goodbye.")
    with monkeypatch.context() as patch:
        failing(patch, rc.store.conversations, "begin_turn", "append", "find_or_create")
        failing(patch, rc.store.memories, "spaces", "space")
        second = await ask(desk.agent, "Two", first.session)
    assert (second.message, desk.searched) == ("The night train?", [("Rome", 2)])
    assert "store_user" in {problem.step for problem in second.problems}
    assert all(isinstance(problem.error, StoreUnavailableError) for problem in second.problems)
    assert await texts(maya, first.conversation_id) == ["To Rome", "How many?"]
    third = await ask(desk.agent, "Take it", second.session)
    assert (third.message, third.problems, third.completed) == ("Goodbye.", (), True)


async def test_a_memory_that_cannot_be_asked_leaves_the_turn(
    rc: Recollect, maya: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(maya)
    whole(desk)
    failing(monkeypatch, rc.store.memories, "spaces")
    response = await desk.agent.respond(WHOLE)
    assert (response.message, {problem.step for problem in response.problems}) == ("The night train?", {"recall"})
    assert desk.model.requests[-1].tools == ()
    assert await texts(maya, response.conversation_id) == [WHOLE, "The night train?"]


@ways
@pytest.mark.parametrize("reading", [True, False])
async def test_a_model_that_fails_leaves_the_message_and_the_session(maya: User, ask: Ask, reading: bool) -> None:
    desk = Desk(maya)
    session = create_session("web")
    busy = raises(ProviderOverloadedError("too busy"))
    desk.script(*([busy] if reading else [desk.reads(destination="Rome", passengers=2), busy]))
    with pytest.raises(ProviderOverloadedError):
        await ask(desk.agent, WHOLE, session)
    [talk] = await maya.conversations.list()
    assert await texts(maya, talk.id) == [WHOLE]
    assert session.version == 0
    whole(desk)
    again = await ask(desk.agent, "Well?", session, wait=0)
    assert (again.message, again.session.version) == ("The night train?", 1)
    assert sent(desk.model) == [WHOLE, "Well?"]
    assert desk.searched == [("Rome", 2)]


async def test_a_stream_that_is_closed_keeps_the_message_and_leaves_the_session(maya: User) -> None:
    desk = Desk(maya)
    session = create_session("web")
    before = session_state_to_data(session)
    whole(desk, says("A long story", chunks=1))
    stream = desk.agent.respond_stream(WHOLE, session)
    assert (await anext(stream)).delta == "A"
    await stream.aclose()
    [talk] = await maya.conversations.list()
    assert await texts(maya, talk.id) == [WHOLE]
    assert session_state_to_data(session) == before
    desk.script(understands(desk.book, destination="Oslo", passengers=1), "The ferry?")
    again = await desk.agent.respond("Oslo, only me.", session, wait=0)
    assert (again.message, dict(again.session.extracted)) == ("The ferry?", {"destination": "Oslo", "passengers": 1})
    assert is_sound(desk.model.requests[-1].messages)


@ways
async def test_a_cancelled_turn_can_be_followed_by_another(maya: User, ask: Ask) -> None:
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
    assert is_sound(model.requests[-1].messages)
    assert (await texts(maya, response.conversation_id))[0] == "Wait!"


# Once, in order, and apart


@ways
async def test_a_message_sent_again_is_stored_once(maya: User, ask: Ask) -> None:
    desk = Desk(maya)
    session = create_session("web")
    for _ in range(2):
        whole(desk)
        response = await ask(desk.agent, WHOLE, session, idempotency_key="k")
        assert dict(response.session.extracted) == {"destination": "Rome", "passengers": 2}
    found = await log(maya, response.conversation_id)
    assert [each.role for each in found] == ["user", "assistant", "assistant"]
    assert sent(desk.model) == [WHOLE]


async def test_a_message_sent_again_after_its_turn_was_cut_off_is_understood(maya: User) -> None:
    desk = Desk(maya)
    session = create_session("web")
    busy = raises(ProviderOverloadedError("too busy"))
    desk.script(desk.reads(destination="Rome", passengers=2), calls("recall_timeline"), busy)
    with pytest.raises(ProviderOverloadedError):
        await desk.agent.respond(WHOLE, session, idempotency_key="k")
    whole(desk)
    response = await desk.agent.respond(WHOLE, session, idempotency_key="k")
    assert dict(response.session.extracted) == {"destination": "Rome", "passengers": 2}
    assert response.message == "The night train?"
    assert is_sound(desk.model.requests[-1].messages)


async def test_turns_of_one_session_by_two_processes_follow_each_other(rc: Recollect, maya: User) -> None:
    echo = FunctionModel(lambda asked: f"re: {message_text(asked.messages[-1])}")
    agents = [Agent("Wanda", model=echo, memory=user) for user in (maya, Recollect(rc.store).user("maya"))]
    session = create_session("web")
    done = await asyncio.gather(*(agent.respond(f"from {n}", session) for n, agent in enumerate(agents)))
    assert len({response.conversation_id for response in done}) == 1
    found = await texts(maya, done[0].conversation_id)
    assert sorted((found[:2], found[2:])) == [["from 0", "re: from 0"], ["from 1", "re: from 1"]]


@ways
async def test_tenants_with_users_and_sessions_of_the_same_name_are_apart(rc: Recollect, ask: Ask) -> None:
    first, second = (rc.user("maya", tenant_id=name) for name in ("acme", "globex"))
    space = await first.memory.create_space("default")
    await first.memory.add_atom(space.id, "The code is Zanzibar.")
    model = ScriptedModel(["Zanzibar.", calls("recall_by_topic", query="code"), "No idea."])
    agent = Agent("Wanda", model=model, memory=rc)
    session = create_session("web")
    mine = await ask(agent, "What is the code?", session, user=first)
    theirs = await ask(agent, "What is the code?", session, user=second)
    assert "Zanzibar" in str(model.requests[0].system)
    assert not any("Zanzibar" in repr(asked) for asked in model.requests[1:])
    assert [atom.text for atom in mine.atoms_used] == ["The code is Zanzibar."]
    assert theirs.atoms_used == ()
    assert mine.conversation_id != theirs.conversation_id
    assert len(await second.conversations.list()) == 1


async def test_tenants_with_sessions_of_the_same_name_talk_at_the_same_time(rc: Recollect) -> None:
    echo = FunctionModel(lambda asked: f"re: {message_text(asked.messages[-1])}")
    agent = Agent("Wanda", model=echo, memory=rc)
    users = [rc.user("maya", tenant_id=name) for name in ("acme", "globex", "initech")]
    done = await asyncio.gather(
        *(agent.respond(user.scope.tenant_id, create_session("web"), user=user) for user in users)
    )
    assert [response.message for response in done] == ["re: acme", "re: globex", "re: initech"]


@pytest.mark.parametrize("tenants", [("acme", "globex"), ("acme", "acme")])
async def test_a_turn_that_failed_leaves_nothing_to_another_user(rc: Recollect, tenants: tuple[str, str]) -> None:
    def orders() -> str:
        """What was ordered."""
        return f"ordered by {request.extras()['who']}"

    model = ScriptedModel([raises(ProviderOverloadedError("too busy")), "There you are."])
    agent = Agent("Wanda", model=model, memory=rc)
    route = agent.create_route("Tell what was ordered")
    route.initial_state.transition_to(tool_state=orders).transition_to(chat_state="Tell it")
    mine, theirs = rc.user("maya", tenant_id=tenants[0]), rc.user("omar", tenant_id=tenants[1])
    with pytest.raises(ProviderOverloadedError):
        await agent.respond("What did I order?", create_session("web"), user=mine, extras={"who": "maya"})
    response = await agent.respond("What did I order?", create_session("web"), user=theirs, extras={"who": "omar"})
    assert "ordered by omar" in str(model.requests[-1].system)
    assert "maya" not in repr(response)


async def test_what_an_agent_was_told_comes_out_and_goes(url: str) -> None:
    async with Recollect(url, extractor="verbatim") as rc:
        maya = rc.user("maya")
        desk = Desk(maya, approval=True)
        asked, id = await waiting(desk)
        desk.script("The night train?")
        done = await desk.agent.respond(session=asked.session, approvals={id: True})
        await maya.conversations.close(str(done.conversation_id))
        await rc.jobs.drain(timeout=30)
        export = await maya.admin.export_user_data()
        [talk] = export["conversations"]
        assert [each["visibility"] for each in talk["messages"]] == ["user", "user", "internal", "user"]
        assert done.state is not None
        assert talk["messages"][-1]["metadata"] == {"agent": "Wanda", "route": desk.book.id, "state": done.state.id}
        assert len(export["atoms"]) == 3
        await maya.admin.delete_user_data(confirm=True)
        assert WHOLE not in json.dumps(await maya.admin.export_user_data())
        desk.script(desk.reads(), "Hello!")
        anew = await desk.agent.respond("Hi")
        assert (anew.atoms_used, anew.problems) == ((), ())
        assert WHOLE not in desk.systems[-1]


# Seen from outside


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    monkeypatch.delenv(CAPTURE_VARIABLE, raising=False)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.configure(tracer_provider=provider)
    yield exporter
    telemetry.configure()


@ways
async def test_a_turn_is_one_trace_with_what_was_understood_run_and_said(
    url: str, exporter: InMemorySpanExporter, ask: Ask
) -> None:
    async with Recollect(url, worker=False) as rc:
        desk = Desk(rc.user("maya"))
        desk.script(desk.reads(destination="Rome", passengers=2), calls("recall_timeline"), "The night train?")
        response = await ask(desk.agent, WHOLE)
    spans = exporter.get_finished_spans()
    [turn] = [span for span in spans if span.name.startswith("invoke_agent")]
    assert turn.name == "invoke_agent Wanda"
    assert turn.context is not None
    below = [span for span in spans if span.parent is not None and span.parent.span_id == turn.context.span_id]
    assert [span.name for span in below] == [
        "recall BY_TOPIC",
        "chat scripted",
        "execute_tool search",
        "chat scripted",
        "execute_tool recall_timeline",
        "chat scripted",
    ]
    assert {span.context.trace_id for span in spans if span.context is not None} == {turn.context.trace_id}
    assert {(span.attributes or {})["gen_ai.conversation.id"] for span in (turn, *below)} == {response.conversation_id}
    assert not any("Rome" in span.to_json() for span in spans)


@ways
async def test_the_tokens_of_reading_a_message_count(url: str, exporter: InMemorySpanExporter, ask: Ask) -> None:
    async with Recollect(url, worker=False) as rc:
        desk = Desk(rc.user("maya"))
        usage = ChatUsage(input_tokens=10, output_tokens=1)
        desk.script(desk.reads(destination="Rome", usage=usage), says("How many?", usage=usage))
        response = await ask(desk.agent, "To Rome")
    [turn] = [span for span in exporter.get_finished_spans() if span.name.startswith("invoke_agent")]
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 2)
    assert (turn.attributes or {})["gen_ai.usage.input_tokens"] == 20
