"""Repeated messages, decisions and turns run each tool only once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tellback import Tellback
from tellback.agent import (
    END_ROUTE,
    Agent,
    Event,
    InMemorySessions,
    MemoryOptions,
    Response,
    SessionState,
    create_session,
)
from tellback.agent.runtime.state_tools import MAX_ATTEMPTS, TurnAttempts
from tellback.chat.approval import Approval
from tellback.errors import AlreadyAnsweredError, AlreadyDecidedError, InvalidArgumentError, SessionConflictError
from tellback.testing import FlowModel, ScriptedModel, raises, says, understands
from tellback.tools import tool
from tellback.user import User
from tests.unit.agent.order_shop import ORDER, build_order_agent, build_order_finder
from tests.unit.agent.travel_setup import reply_prompt, respond, wait_for_event

LOST = raises(RuntimeError("the connection was lost"))


@pytest.fixture
async def maya() -> AsyncIterator[User]:
    async with Tellback(":memory:", embedder=None, worker=False, summary_every=None) as tb:
        yield tb.user("maya")


def make_memory_agent(memory: User, **fields: Any) -> Agent:
    """Build an agent with a memory but without memory tools."""
    return Agent("Shop", memory=memory, memory_options=MemoryOptions(tools=False), **fields)


def make_refund_agent(paid: list[str], agent: Agent | None = None) -> Agent:
    @tool(requires_approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        paid.append(order)
        return "paid back"

    agent, route = build_order_agent(refund, agent=agent)
    state = next(each for each in route.states if each.tool is not None)
    state.transition_to(chat_state="Say why not", on_error=True)
    return agent


async def asks_for_approval(agent: Agent) -> Response:
    return await respond(agent, "A1", None, understands(order="A1"), says("I have asked"))


async def approve_then_fail(agent: Agent, paused: Response, decision: Any = True) -> None:
    """Approve the call in a turn that fails after the tool has run."""
    with pytest.raises(RuntimeError, match="lost"):
        await respond(agent, None, paused.session, LOST, approvals={paused.pending[0].id: decision})


async def test_an_approval_can_be_used_once_even_with_the_old_session() -> None:
    paid: list[str] = []
    agent = make_refund_agent(paid)
    paused = await asks_for_approval(agent)
    approvals = {paused.pending[0].id: True}
    await respond(agent, None, paused.session, says("Paid"), approvals=approvals)
    with pytest.raises(AlreadyDecidedError):
        await respond(agent, None, paused.session, approvals=approvals)
    assert paid == ["A1"]


async def test_an_approval_can_be_used_once_with_a_memory(maya: User) -> None:
    paid: list[str] = []
    agent = make_refund_agent(paid, make_memory_agent(maya))
    paused = await asks_for_approval(agent)
    approvals = {paused.pending[0].id: True}
    decided = await respond(agent, None, paused.session, says("Paid"), approvals=approvals)
    for session in (paused.session, decided.session):
        with pytest.raises(AlreadyDecidedError):
            await respond(agent, None, session, approvals=approvals)
    assert paid == ["A1"]


async def test_another_agent_with_the_same_log_does_not_start_an_approved_call_again(maya: User) -> None:
    paid: list[str] = []
    agent = make_refund_agent(paid, make_memory_agent(maya))
    paused = await asks_for_approval(agent)
    approvals = {paused.pending[0].id: True}
    await respond(agent, None, paused.session, says("Paid"), approvals=approvals)
    restarted = make_refund_agent(paid, make_memory_agent(maya))
    replayed = await respond(restarted, None, paused.session, says("I do not know"), approvals=approvals)
    assert paid == ["A1"]
    [call] = replayed.tool_calls
    assert call.is_error
    assert "its outcome is unknown" in (call.content or "")
    assert "its outcome is unknown" in reply_prompt(restarted)


async def test_the_next_message_uses_the_result_of_an_approved_call_whose_reply_failed() -> None:
    paid: list[str] = []
    agent = make_refund_agent(paid)
    paused = await asks_for_approval(agent)
    await approve_then_fail(agent, paused)
    answer = await respond(agent, "Did it work?", paused.session, understands(), says("It did"))
    assert paid == ["A1"]
    assert answer.pending == ()
    assert [(call.name, call.content) for call in answer.tool_calls] == [("refund", "paid back")]
    assert "waits for a person" not in reply_prompt(agent)


async def test_the_state_after_an_approved_call_speaks_after_a_failed_reply() -> None:
    agent = make_refund_agent([])
    paused = await asks_for_approval(agent)
    await approve_then_fail(agent, paused)
    answer = await respond(agent, "Did it work?", paused.session, understands(), says("It did"))
    assert not answer.completed
    assert answer.state is not None
    assert answer.state.description == "Tell the outcome"
    assert "paid back" in reply_prompt(agent)


async def test_a_denial_after_the_approved_call_ran_has_no_effect() -> None:
    paid: list[str] = []
    agent = make_refund_agent(paid)
    paused = await asks_for_approval(agent)
    await approve_then_fail(agent, paused)
    answer = await respond(agent, None, paused.session, says("Paid"), approvals={paused.pending[0].id: False})
    assert paid == ["A1"]
    assert answer.state is not None
    assert answer.state.description == "Tell the outcome"
    assert not answer.tool_calls[0].is_error


async def test_a_denial_after_the_result_was_reported_is_rejected() -> None:
    agent = make_refund_agent([])
    paused = await asks_for_approval(agent)
    await approve_then_fail(agent, paused)
    await respond(agent, "Did it work?", paused.session, understands(), says("It did"))
    with pytest.raises(AlreadyDecidedError):
        await respond(agent, None, paused.session, says("It was denied"), approvals={paused.pending[0].id: False})


async def test_a_call_that_ran_with_changed_arguments_does_not_run_with_the_original_ones() -> None:
    paid: list[str] = []
    agent = make_refund_agent(paid)
    paused = await asks_for_approval(agent)
    await approve_then_fail(agent, paused, Approval(True, input={"order": "B2"}))
    answer = await respond(agent, None, paused.session, says("Paid"), approvals={paused.pending[0].id: True})
    assert paid == ["B2"]
    assert answer.tool_calls[0].arguments == {"order": "B2"}


async def test_a_decision_that_cannot_be_carried_out_can_be_repeated() -> None:
    paid: list[str] = []
    agent = make_refund_agent(paid)
    paused = await asks_for_approval(agent)
    [call] = paused.pending
    with pytest.raises(InvalidArgumentError, match="cannot run with these arguments"):
        await respond(agent, None, paused.session, approvals={call.id: Approval(True, input={"number": "B2"})})
    assert paid == []
    await respond(agent, None, paused.session, says("Paid"), approvals={call.id: True})
    assert paid == ["A1"]


async def test_calls_of_two_routes_cannot_be_decided_together() -> None:
    moved: list[str] = []

    @tool(requires_approval=True)
    def ship(order: str) -> str:
        """Send it."""
        moved.append(order)
        return "sent"

    agent = make_refund_agent(moved)
    sell = agent.routes[0]
    send = agent.create_route(title="Send", conditions=["the user waits for a parcel"], gather_schema=ORDER)
    ask = send.initial_state.transition_to(chat_state="Ask which", gather=["order"])
    ask.transition_to(tool_state=ship).transition_to(chat_state="Tell when")
    first = await respond(agent, "Refund A1", None, understands(sell, order="A1"), says("I have asked"))
    response = await respond(agent, "Send B2", first.session, understands(send, order="B2"), says("I have asked"))
    ids = [call.id for call in response.pending]
    assert len(ids) == 2
    with pytest.raises(InvalidArgumentError, match="one route at a time") as caught:
        await respond(agent, None, response.session, approvals=dict.fromkeys(ids, True))
    assert all(id in str(caught.value) for id in ids)
    assert moved == []
    last = response
    for id in ids:
        last = await respond(agent, None, last.session, says("Done"), approvals={id: True})
    assert sorted(moved) == ["A1", "B2"]


async def test_a_correction_does_not_rerun_a_repeat_false_tool_of_a_failed_attempt() -> None:
    found: list[str] = []
    agent, _ = build_order_agent(build_order_finder(found), repeat=False)
    session = create_session()
    with pytest.raises(RuntimeError, match="lost"):
        await respond(agent, "A1", session, understands(order="A1"), LOST)
    answer = await respond(agent, "I mean B2", session, understands(order="B2"), says("It is on its way"))
    assert found == ["A1"]
    assert [call.arguments for call in answer.tool_calls] == [{"order": "A1"}]


@pytest.mark.parametrize("remembers", [False, True])
async def test_a_message_with_the_same_idempotency_key_is_answered_once(remembers: bool, maya: User) -> None:
    found: list[str] = []
    store = InMemorySessions()
    agent, _ = build_order_agent(
        build_order_finder(found),
        agent=make_memory_agent(maya, persistence=store) if remembers else Agent("Shop", persistence=store),
    )
    first = await respond(agent, "A1", "web", understands(order="A1"), says("On its way"), idempotency_key="k1")
    repeated = await respond(agent, "A1", "web", idempotency_key="k1")
    chunks = [chunk async for chunk in agent.respond_stream("A1", "web", idempotency_key="k1")]
    assert (repeated.message, "".join(chunk.delta for chunk in chunks)) == (first.message, first.message)
    assert found == ["A1"]
    assert repeated.session == first.session == await store.load("web")
    assert (chunks[-1].done, chunks[-1].session) == (True, first.session)
    assert len(await store.history("web", 10)) == 3
    later = await respond(agent, "Thanks", "web", understands(), says("Bye"), idempotency_key="k2")
    assert later.session.version == first.session.version + 1


async def test_a_repeated_message_with_the_old_session_is_rejected_by_the_log(maya: User) -> None:
    found: list[str] = []
    agent, _ = build_order_agent(build_order_finder(found), agent=make_memory_agent(maya))
    session = create_session()
    await respond(agent, "A1", session, understands(order="A1"), says("On its way"), idempotency_key="k1")
    with pytest.raises(AlreadyAnsweredError, match="On its way") as caught:
        await respond(agent, "A1", session, idempotency_key="k1")
    assert caught.value.text == "On its way"
    assert found == ["A1"]


async def test_an_idempotency_key_requires_persistence_or_memory() -> None:
    agent, _ = build_order_agent(build_order_finder([]), agent=Agent("Shop", model=ScriptedModel([])))
    with pytest.raises(InvalidArgumentError, match="persistence or memory"):
        await agent.respond("A1", idempotency_key="k1")


@dataclass
class PaymentTools:
    """A tool that blocks its thread until it may end, and a turn that is cancelled meanwhile."""

    started: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)
    paid: list[str] = field(default_factory=list)
    session: SessionState = field(default_factory=create_session)

    def pay(self, order: str) -> str:
        """Pay."""
        self.started.set()
        assert self.may_end.wait(10)
        self.paid.append(order)
        return "paid"

    async def cancelled(self) -> Agent:
        """Return an agent whose turn was cancelled while the tool runs."""
        agent, _ = build_order_agent(self.pay, agent=Agent("Shop", model=FlowModel()))
        turn = asyncio.create_task(agent.respond("order: A1", self.session))
        assert await asyncio.to_thread(self.started.wait, 10)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        self.started.clear()
        return agent


async def test_a_threaded_tool_is_not_run_again_after_its_turn_was_cancelled() -> None:
    payment_tools = PaymentTools()
    agent = await payment_tools.cancelled()
    payment_tools.may_end.set()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=10)
    answer = await agent.respond("order: A1", payment_tools.session)
    assert payment_tools.paid == ["A1"]
    assert [call.content for call in answer.tool_calls] == ["paid"]


async def test_a_retry_waits_for_the_threaded_tool_of_the_cancelled_turn() -> None:
    payment_tools = PaymentTools()
    agent = await payment_tools.cancelled()
    retry = asyncio.create_task(agent.respond("order: A1", payment_tools.session))
    await asyncio.to_thread(payment_tools.started.wait, 0.3)  # a second run would start within this time
    payment_tools.may_end.set()
    assert [call.content for call in (await retry).tool_calls] == ["paid"]
    assert payment_tools.paid == ["A1"]


async def test_a_tool_cannot_wait_for_its_own_session() -> None:
    conflicts: list[SessionConflictError] = []

    async def ask_itself(order: str) -> str:
        """Talk to itself."""
        try:
            return (await agent.respond("Hello?", "web")).message
        except SessionConflictError as error:
            conflicts.append(error)
            raise

    agent, _ = build_order_agent(ask_itself, agent=Agent("Shop", persistence=InMemorySessions()))
    async with asyncio.timeout(10):
        answer = await respond(agent, "A1", "web", understands(order="A1"), says("It failed"))
    assert [error.id for error in conflicts] == ["web"]
    assert answer.tool_calls[0].is_error
    assert answer.session.version == 1


class LoadedSessions:
    """A store that sets an event when a session is loaded."""

    def __init__(self, store: InMemorySessions) -> None:
        self.event = asyncio.Event()
        self._store = store

    async def load(self, session_id: str) -> SessionState | None:
        found = await self._store.load(session_id)
        self.event.set()
        return found

    async def save(self, session: SessionState, events: Sequence[Event], **owner: Any) -> None:
        await self._store.save(session, events)

    async def history(self, session_id: str, limit: int) -> Sequence[Event]:
        return await self._store.history(session_id, limit)


async def test_the_slower_of_two_processes_runs_no_tool(maya: User) -> None:
    ran: list[str] = []
    started, may_end = asyncio.Event(), asyncio.Event()

    def make_agent(name: str, store: Any) -> Agent:
        async def send(order: str) -> str:
            """Send it."""
            ran.append(name)
            started.set()
            await may_end.wait()
            return "sent"

        agent = make_memory_agent(maya, persistence=store, model=FlowModel())
        route = agent.create_route(title="Order", gather_schema=ORDER)
        confirm = route.initial_state.transition_to(chat_state="Ask which order", gather=["order"]).transition_to(
            chat_state="Ask whether it is right"
        )
        confirm.transition_to(tool_state=send).transition_to(chat_state="Thank").transition_to(state=END_ROUTE)
        return agent

    store = InMemorySessions()
    slower = LoadedSessions(store)
    one, two = make_agent("one", store), make_agent("two", slower)
    await one.respond("order: A1", "web")
    first = asyncio.create_task(one.respond("yes", "web"))
    await wait_for_event(started)
    second = asyncio.create_task(two.respond("yes", "web"))
    await wait_for_event(slower.event)
    may_end.set()
    assert (await first).session.version == 2
    with pytest.raises(SessionConflictError) as caught:
        await second
    assert (caught.value.version, caught.value.stored) == (1, 2)
    assert ran == ["one"]


def test_a_retry_keeps_its_earlier_tool_results_when_the_limit_is_reached() -> None:
    attempts = TurnAttempts()
    first = attempts.get_or_create(("web-0", 0))
    for number in range(1, MAX_ATTEMPTS):
        attempts.get_or_create((f"web-{number}", 0))
    assert attempts.get_or_create(("web-0", 0)) is first
    attempts.get_or_create(("web-new", 0))  # removes the oldest
    assert attempts.get_or_create(("web-0", 0)) is not first
