"""Concurrent turns of one session: they wait or raise a conflict, and no update is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.agent import (
    Agent,
    InMemorySessions,
    Response,
    ToolContext,
    ToolUpdate,
    create_message_event,
    create_session,
)
from tellback.agent.events import history_to_messages
from tellback.chat.model import ChatRequest
from tellback.errors import InvalidArgumentError, SessionConflictError, TurnConflictError
from tellback.testing import FunctionModel, ScriptedModel, says, understands
from tellback.tools import tool
from tellback.types import message_text, remove_instructions
from tests.unit.agent.travel_setup import make_travel_setup, respond, wait_for_event


class Gate:
    """A model whose answers wait until the gate is opened."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.open = asyncio.Event()
        self.model = FunctionModel(self._answer)

    async def _answer(self, request: ChatRequest) -> str:
        self.started.set()
        await self.open.wait()
        return f"You said {message_text(remove_instructions(request.messages)[-1])}"


async def test_two_turns_with_the_same_session_value_conflict() -> None:
    gate = Gate()
    agent = Agent("Wanda", model=gate.model)
    session = create_session("web-42")
    running = asyncio.create_task(agent.respond("one", session))
    await wait_for_event(gate.started)
    with pytest.raises(SessionConflictError, match="a turn of it is running") as caught:
        await agent.respond("two", session)
    assert (caught.value.id, caught.value.version, caught.value.stored) == ("web-42", 0, None)
    gate.open.set()
    assert (await running).message == "You said one"
    assert (await agent.respond("three", (await running).session)).session.version == 2


async def test_a_stream_locks_its_session() -> None:
    gate = Gate()
    agent = Agent("Wanda", model=gate.model)
    session = create_session()
    gate.open.set()
    chunks = agent.respond_stream("one", session)
    await anext(chunks)
    with pytest.raises(SessionConflictError):
        await agent.respond("two", session)
    await chunks.aclose()
    assert (await agent.respond("three", session)).message == "You said three"


async def test_turns_of_two_sessions_run_concurrently() -> None:
    gate = Gate()
    agent = Agent("Wanda", model=gate.model, persistence=InMemorySessions())
    running = asyncio.create_task(agent.respond("one", "first"))
    await wait_for_event(gate.started)
    agent.model = ScriptedModel([says("Hello!")])
    assert (await agent.respond("two", "second")).message == "Hello!"
    gate.open.set()
    await running


async def test_turns_by_session_id_run_one_after_another() -> None:
    gate = Gate()
    sessions = InMemorySessions()
    agent = Agent("Wanda", model=gate.model, persistence=sessions)
    tasks = []
    for text in ("one", "two", "three"):
        tasks.append(asyncio.create_task(agent.respond(text, "web-42")))
        await asyncio.sleep(0)
    gate.open.set()
    responses = await asyncio.gather(*tasks)
    assert [each.session.version for each in responses] == [1, 2, 3]
    texts = [message_text(each) for each in history_to_messages(await sessions.history("web-42", 10))]
    assert texts == ["one", "You said one", "two", "You said two", "three", "You said three"]


async def test_a_turn_waits_for_a_turn_that_waited_itself() -> None:
    first, second = Gate(), Gate()
    agent = Agent("Wanda", model=first.model, persistence=InMemorySessions())
    one = asyncio.create_task(agent.respond("one", "web-42"))
    await wait_for_event(first.started)
    two = asyncio.create_task(agent.respond("two", "web-42"))
    await asyncio.sleep(0)
    agent.model = second.model
    first.open.set()
    await wait_for_event(second.started)
    three = asyncio.create_task(agent.respond("three", "web-42"))
    await asyncio.sleep(0)
    second.open.set()
    responses = await asyncio.gather(one, two, three)
    assert [each.session.version for each in responses] == [1, 2, 3]


async def test_a_cancelled_waiting_turn_does_not_block_others() -> None:
    gate = Gate()
    agent = Agent("Wanda", model=gate.model, persistence=InMemorySessions())
    one = asyncio.create_task(agent.respond("one", "web-42"))
    await wait_for_event(gate.started)
    two = asyncio.create_task(agent.respond("two", "web-42"))
    await asyncio.sleep(0)
    two.cancel()
    gate.open.set()
    await one
    assert (await agent.respond("three", "web-42")).session.version == 2
    with pytest.raises(asyncio.CancelledError):
        await two


async def test_locks_are_released_when_unused() -> None:
    agent = Agent("Wanda", model=FunctionModel(lambda _: "Hello!"), persistence=InMemorySessions())
    await asyncio.gather(*(agent.respond("Hi", f"web-{number % 5}") for number in range(20)))
    assert not agent._responder._locks
    assert not agent._responder._running_keys


def test_turns_by_session_id_also_wait_in_a_new_event_loop() -> None:
    async def answer(_: Any) -> str:
        await asyncio.sleep(0.05)
        return "Hello!"

    agent = Agent("Wanda", model=FunctionModel(answer), persistence=InMemorySessions())

    async def respond_twice(wait: float) -> list[Any]:
        turns = agent.respond("one", "web-42"), agent.respond("two", "web-42", wait=wait)
        return list(await asyncio.gather(*turns, return_exceptions=True))

    _, conflict = asyncio.run(respond_twice(0))  # keeps the traceback, and with it the lock
    assert isinstance(conflict, TurnConflictError)
    assert str(conflict).startswith("Another turn of 'web-42' is still running after 0 seconds.")
    assert [getattr(each, "message", each) for each in asyncio.run(respond_twice(5))] == ["Hello!"] * 2


async def test_an_outdated_session_is_rejected_before_any_model_call() -> None:
    agent = Agent("Wanda", persistence=InMemorySessions())
    session = create_session("web-42")
    first = await respond(agent, "one", session, says("1"))
    await respond(agent, "two", first.session, says("2"))
    agent.model = model = ScriptedModel([])
    for stale in (session, first.session):
        with pytest.raises(SessionConflictError, match="the stored version is 2") as caught:
            await agent.respond("three", stale)
        assert caught.value.stored == 2
    assert model.requests == []


async def test_a_session_unknown_to_the_store_is_rejected_before_any_model_call() -> None:
    agent = Agent("Wanda", persistence=InMemorySessions())
    agent.model = model = ScriptedModel([says("Hello!")])
    with pytest.raises(SessionConflictError):
        await agent.respond("Hi", replace(create_session("web-42"), version=3))
    assert model.requests == []


async def test_a_new_session_is_stored_under_a_generated_id() -> None:
    sessions = InMemorySessions()
    agent = Agent("Wanda", persistence=sessions)
    response = await respond(agent, "Hi", None, says("Hello!"))
    assert await sessions.load(response.session.id) == response.session


async def test_a_session_id_continues_the_stored_session() -> None:
    setup = make_travel_setup(persistence=InMemorySessions())
    await respond(setup.agent, "Fly", "web-42", understands(route=setup.book), says("Where to?"))
    script = (understands(destination="Rome"), says("When?", expect=lambda request: len(request.messages) == 3))
    second = await respond(setup.agent, "Rome", "web-42", *script)
    assert second.session.id == "web-42"
    assert second.session.extracted == {"destination": "Rome"}


async def test_a_turn_by_session_id_without_a_message_includes_the_history() -> None:
    agent = Agent("Wanda", persistence=InMemorySessions())
    await respond(agent, "My name is Maya", "web-42", says("Hello Maya"))
    await respond(agent, None, "web-42", says("Still there?", expect=lambda request: "Maya" in str(request.messages)))


async def test_an_approval_by_session_id_includes_the_history() -> None:
    @tool(requires_approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        return "paid back"

    agent = Agent("Shop", persistence=InMemorySessions())
    schema = {"type": "object", "properties": {"order": {"type": "string"}}}
    route = agent.create_route(title="Refund", gather_schema=schema)
    (
        route.initial_state.transition_to(chat_state="Ask which order", gather=["order"])
        .transition_to(tool_state=refund)
        .transition_to(chat_state="Tell the outcome")
    )
    first = await respond(agent, "Pay A1 back, por favor", "web-42", understands(order="A1"), says("Asked"))
    knows = says("Pago", expect=lambda request: "por favor" in str(request.messages))
    second = await respond(agent, None, "web-42", knows, approvals={first.pending[0].id: True})
    assert second.message == "Pago"


async def test_messages_and_tool_calls_are_stored_with_the_session() -> None:
    sessions = InMemorySessions()
    setup = make_travel_setup(persistence=sessions)
    reading = understands(route=setup.book, destination="Rome", departure="2026-12-01", passengers=2)
    await respond(setup.agent, "To Rome…", "web-42", reading, says("One flight"))
    events = await sessions.history("web-42", 10)
    assert [(event.kind.value, event.source.value) for event in events] == [
        ("message", "customer"),
        ("tool", "agent"),
        ("message", "agent"),
    ]


async def test_a_failed_turn_stores_no_data() -> None:
    sessions = InMemorySessions()
    agent = Agent("Wanda", persistence=sessions, model=ScriptedModel([OSError("down")]))
    with pytest.raises(OSError, match="down"):
        await agent.respond("Hi", "web-42")
    assert await sessions.load("web-42") is None
    assert await sessions.history("web-42", 10) == ()
    assert (await respond(agent, "Hi", "web-42", says("Hello!"))).session.version == 1


async def test_concurrent_turns_of_two_agents_store_only_one() -> None:
    sessions = InMemorySessions()
    gates = [Gate(), Gate()]
    agents = [Agent("Wanda", model=gate.model, persistence=sessions) for gate in gates]
    tasks = [asyncio.create_task(agent.respond("Hi", "web-42")) for agent in agents]
    for gate in gates:
        await wait_for_event(gate.started)
        gate.open.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(type(each).__name__ for each in results) == ["Response", "SessionConflictError"]
    stored = await sessions.load("web-42")
    assert stored is not None
    assert stored.version == 1
    assert len(await sessions.history("web-42", 10)) == 2


def make_counting_agent(sessions: InMemorySessions, pauses: list[int]) -> Agent:
    """Build an agent that counts its turns in the session's data, with pauses."""

    async def count(ctx: ToolContext) -> ToolUpdate:
        """Count."""
        found = ctx.data.get("count", 0)
        for _ in range(pauses.pop() if pauses else 0):
            await asyncio.sleep(0)
        return ToolUpdate(found + 1, data={"count": found + 1})

    schema = {"type": "object", "properties": {"count": {"type": "integer"}}}

    def reply(request: ChatRequest) -> str:
        return "Counted" if request.output_schema is None else '{"answered": true}'

    agent = Agent("Counter", model=FunctionModel(reply), persistence=sessions)
    route = agent.create_route(title="Count", gather_schema=schema)
    route.initial_state.transition_to(tool_state=count).transition_to(chat_state="Say how often")
    chat_state = next(state for state in route.states if state.kind == "chat")
    chat_state.transition_to(state=route.initial_state.transitions[0].resolve_target())
    return agent


@settings(max_examples=25, deadline=None)
@given(
    tasks=st.integers(1, 8),
    agents=st.integers(1, 3),
    pauses=st.lists(st.integers(0, 5), max_size=40),
    by_id=st.lists(st.booleans(), min_size=8, max_size=8),
)
async def test_concurrent_turns_never_lose_an_update(
    tasks: int, agents: int, pauses: list[int], by_id: list[bool]
) -> None:
    sessions = InMemorySessions()
    desks = [make_counting_agent(sessions, pauses) for _ in range(agents)]

    async def until_it_counts(number: int) -> Response:
        agent = desks[number % agents]
        for _ in range(10_000):
            stored = await sessions.load("web-42")
            session = stored if stored is not None and not by_id[number] else "web-42"
            try:
                return await agent.respond(f"turn {number}", session)
            except SessionConflictError:
                await asyncio.sleep(0)
        raise AssertionError("the session is never free")

    responses = await asyncio.gather(*map(until_it_counts, range(tasks)))
    stored = await sessions.load("web-42")
    assert stored is not None
    assert stored.extracted["count"] == tasks
    assert sorted(each.session.version for each in responses) == list(range(1, tasks + 1))
    texts = [
        message_text(each) for each in history_to_messages(await sessions.history("web-42", 100)) if each.role == "user"
    ]
    assert sorted(each for each in texts if each.startswith("turn")) == sorted(f"turn {each}" for each in range(tasks))


async def test_in_memory_sessions_reject_any_but_the_next_version() -> None:
    sessions = InMemorySessions()
    session = replace(create_session("web-42"), version=1)
    event = create_message_event("customer", "Maya", "Hi")
    await sessions.save(session, [event])
    for version in (0, 1, 3):
        with pytest.raises(SessionConflictError):
            await sessions.save(replace(session, version=version), [event])
    await sessions.save(replace(session, version=2), [event])
    assert len(await sessions.history("web-42", 10)) == 2


@pytest.mark.parametrize(("limit", "found"), [(0, 0), (1, 1), (3, 3), (9, 5)])
async def test_in_memory_sessions_return_the_newest_messages(limit: int, found: int) -> None:
    sessions = InMemorySessions()
    events = [create_message_event("customer", "Maya", str(number)) for number in range(5)]
    await sessions.save(replace(create_session("web-42"), version=1), events)
    history = await sessions.history("web-42", limit)
    assert list(history) == events[len(events) - found :]


async def test_in_memory_sessions_can_be_cleared() -> None:
    sessions = InMemorySessions()
    await sessions.save(replace(create_session("web-42"), version=1), [create_message_event("customer", "Maya", "Hi")])
    sessions.clear()
    assert await sessions.load("web-42") is None
    assert await sessions.history("web-42", 10) == ()


async def test_a_session_id_requires_persistence() -> None:
    agent = Agent("Wanda", model=ScriptedModel([]))
    with pytest.raises(InvalidArgumentError, match="pass Agent"):
        await agent.respond("Hi", "web-42")


async def test_a_store_error_is_raised_and_unlocks_the_session() -> None:
    class Full(InMemorySessions):
        async def save(self, session: Any, events: Any, **owner: Any) -> None:
            raise OSError("disk full")

    agent = Agent("Wanda", persistence=Full())
    for _ in range(2):
        with pytest.raises(OSError, match="disk full"):
            await respond(agent, "Hi", "web-42", says("Hello!"))
