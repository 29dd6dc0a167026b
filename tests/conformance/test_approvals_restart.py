"""Calls that wait for approval are decided later and by other processes, on every kind of store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tellback import Approval, InvalidArgumentError, NotFoundError, Tellback, ToolCall, message_text, tool
from tellback.chat.history import is_valid_history
from tellback.errors import AlreadyDecidedError, ConversationClosedError, ProviderOverloadedError, StoreUnavailableError
from tellback.stores import TurnDraft
from tellback.testing import ScriptedModel, calls, raises, says
from tellback.turns.writer import APPROVED, approval_note
from tellback.types.blocks import ToolUseBlock
from tellback.user import User

PAY_FIVE = ToolCall("c1", "pay", {"amount": 5})
PAY_NINE = ToolCall("c2", "pay", {"amount": 9})
LOOK_CALL = ToolCall("c3", "look")


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


@pytest.fixture
def other(tb: Tellback) -> User:
    """The same user opened by another Tellback on the store, without shared state in memory."""
    return Tellback(tb.store).user("maya")


class PaymentTools:
    """A tool that needs approval, and its recorded payments."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    @property
    def tools(self) -> list[Any]:
        @tool(requires_approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        def look() -> str:
            """Look."""
            return "seen"

        return [pay, look]


@pytest.fixture
def payment_tools() -> PaymentTools:
    return PaymentTools()


async def leave_pending(user: User, payment_tools: PaymentTools, *tool_calls: ToolCall) -> str:
    """Create a conversation whose last turn waits for a decision on these calls."""
    conversation = await user.conversations.create("chat")
    outcome = await user.conversations.run_turn(
        conversation.id, ScriptedModel([calls(*tool_calls)]), "Pay", tools=payment_tools.tools
    )
    assert outcome.status == "approval"
    return conversation.id


async def decide(
    user: User, id: str, payment_tools: PaymentTools, answer: Any = "Done.", **decisions: Any
) -> tuple[Any, ScriptedModel]:
    """Decide the calls; return the outcome and the model."""
    model = ScriptedModel([answer] if answer is not None else [])
    outcome = await user.conversations.run_turn(id, model, tools=payment_tools.tools, approvals=decisions)
    assert all(is_valid_history(sent.messages) for sent in model.requests)
    return outcome, model


async def log(user: User, id: str) -> list[tuple[str, str]]:
    return [(m.role, message_text(m.messages[0])) for m in await user.conversations.raw_turns(id)]


async def test_a_pending_call_can_be_found_and_approved_by_another_tellback(
    maya: User, other: User, payment_tools: PaymentTools
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    assert await other.conversations.pending(id) == (PAY_FIVE,)
    outcome, model = await decide(other, id, payment_tools, c1=True)
    assert (outcome.status, outcome.text, payment_tools.paid) == ("completed", "Done.", [5])
    assert await maya.conversations.pending(id) == ()
    assert await log(maya, id) == [("user", "Pay"), ("assistant", ""), ("tool", "paid 5"), ("assistant", "Done.")]
    assert message_text(model.requests[0].messages[-1]) == "paid 5"
    assert len({m.turn_id for m in await maya.conversations.raw_turns(id)}) == 1


async def test_a_pending_call_can_be_approved_after_reopening_the_store(
    url: str, tb: Tellback, maya: User, payment_tools: PaymentTools
) -> None:
    if url == ":memory:":
        pytest.skip("an in-memory store cannot be reopened")
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    async with Tellback(url) as second:
        assert [call.id for call in await second.user("maya").conversations.pending(id)] == ["c1"]
        await decide(second.user("maya"), id, payment_tools, c1=True)
    assert payment_tools.paid == [5]


async def test_a_denied_call_does_not_run_and_the_model_gets_the_reason(
    maya: User, other: User, payment_tools: PaymentTools
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    outcome, model = await decide(other, id, payment_tools, "As you wish.", c1=Approval(False, reason="too much"))
    assert (outcome.text, payment_tools.paid) == ("As you wish.", [])
    assert "too much" in message_text(model.requests[0].messages[-1])
    assert await maya.conversations.pending(id) == ()


async def test_a_call_can_be_approved_with_changed_input(maya: User, other: User, payment_tools: PaymentTools) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    await decide(other, id, payment_tools, c1={"approved": True, "input": {"amount": 3}})
    assert payment_tools.paid == [3]


async def test_a_second_decision_is_rejected_and_runs_no_tool(
    maya: User, other: User, payment_tools: PaymentTools
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    await decide(maya, id, payment_tools, c1=True)
    for user, decision in ((maya, True), (other, True), (other, False)):
        with pytest.raises(AlreadyDecidedError, match="c1") as caught:
            await decide(user, id, payment_tools, None, c1=decision)
        assert (caught.value.id, caught.value.call_ids) == (id, ("c1",))
    assert payment_tools.paid == [5]
    assert len(await maya.conversations.raw_turns(id)) == 4


async def test_concurrent_decisions_run_the_call_once(maya: User, other: User, payment_tools: PaymentTools) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    results = await asyncio.gather(
        *(decide(user, id, payment_tools, c1=True) for user in (maya, other) * 3), return_exceptions=True
    )
    assert sum(isinstance(result, AlreadyDecidedError) for result in results) == 5
    assert payment_tools.paid == [5]
    assert len(await maya.conversations.raw_turns(id)) == 4


async def test_a_new_message_instead_of_a_decision_is_reported_to_the_model(
    maya: User, other: User, payment_tools: PaymentTools
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    with ScriptedModel([says("Fine, I did not pay.")]) as model:
        await other.conversations.run_turn(id, model, "Never mind.", tools=payment_tools.tools)
    assert [m.role for m in model.requests[0].messages] == ["user", "assistant", "tool", "user"]
    assert "not run" in message_text(model.requests[0].messages[2])
    assert await maya.conversations.pending(id) == ()
    with pytest.raises(AlreadyDecidedError):
        await decide(maya, id, payment_tools, None, c1=True)
    assert payment_tools.paid == []


async def test_calls_can_be_decided_one_by_one(maya: User, other: User, payment_tools: PaymentTools) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE, PAY_NINE, LOOK_CALL)
    assert await other.conversations.pending(id) == (PAY_FIVE, PAY_NINE)
    first, _ = await decide(other, id, payment_tools, None, c2=True)
    assert (first.status, [call.id for call in first.pending], payment_tools.paid) == ("approval", ["c1"], [9])
    assert await maya.conversations.pending(id) == (PAY_FIVE,)
    repeated, _ = await decide(other, id, payment_tools, None, c2=True)
    assert (repeated.status, payment_tools.paid) == ("approval", [9])
    last, model = await decide(maya, id, payment_tools, c1=False)
    assert (last.text, payment_tools.paid) == ("Done.", [9])
    results = {m.tool_call_id: message_text(m) for m in model.requests[0].messages if m.role == "tool"}
    assert results["c2"] == "paid 9"
    assert results["c3"] == "seen"
    assert "did not allow" in results["c1"]


@pytest.mark.parametrize("decision", [True, False])
async def test_a_call_that_was_started_is_not_run_again(
    tb: Tellback, maya: User, other: User, payment_tools: PaymentTools, decision: bool
) -> None:
    """The process ended between storing the approval and storing the result, so the outcome is unknown."""
    id = await leave_pending(maya, payment_tools, PAY_FIVE, PAY_NINE)
    turn_id = (await maya.conversations.raw_turns(id))[-1].turn_id
    note = approval_note(APPROVED, [PAY_FIVE], tb.clock())
    await tb.store.conversations.append(maya.scope, id, [TurnDraft(turn_id, [note])], now=tb.clock())
    assert await other.conversations.pending(id) == (PAY_NINE,)
    outcome, model = await decide(other, id, payment_tools, c1=decision, c2=False)
    assert (outcome.text, payment_tools.paid) == ("Done.", [])
    results = {m.tool_call_id: message_text(m) for m in model.requests[0].messages if m.role == "tool"}
    assert "may or may not have taken effect" in results["c1"]
    assert "did not allow" in results["c2"]
    with pytest.raises(AlreadyDecidedError):
        await decide(maya, id, payment_tools, None, c1=True)
    with ScriptedModel([says("ok", expect=lambda sent: is_valid_history(sent.messages))]) as model:
        await maya.conversations.run_turn(id, model, "Well?", tools=payment_tools.tools)


async def test_a_message_after_a_started_call_reports_the_unknown_outcome(
    tb: Tellback, maya: User, payment_tools: PaymentTools
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    turn_id = (await maya.conversations.raw_turns(id))[-1].turn_id
    note = approval_note(APPROVED, [PAY_FIVE], tb.clock())
    await tb.store.conversations.append(maya.scope, id, [TurnDraft(turn_id, [note])], now=tb.clock())
    with ScriptedModel([says("I will check.")]) as model:
        await maya.conversations.run_turn(id, model, "Did you pay?", tools=payment_tools.tools)
    sent = model.requests[0].messages
    assert is_valid_history(sent)
    assert "may or may not have taken effect" in message_text(sent[2])
    assert payment_tools.paid == []


async def test_an_interrupted_call_without_approval_is_not_run_by_an_approval(
    maya: User, payment_tools: PaymentTools
) -> None:
    """An interrupted call does not wait for approval, and may have taken effect."""
    conversation = await maya.conversations.create("shop")
    await maya.conversations.append_user_message(conversation.id, "Look!")
    seen = ToolUseBlock("c1", "look", {})
    await maya.conversations.append_assistant_turn(conversation.id, [seen], stop_reason="tool_use")
    assert await maya.conversations.pending(conversation.id) == ()
    runs: list[str] = []

    def look() -> str:
        runs.append("looked")
        return "seen"

    with ScriptedModel([says("Hm.")]) as model:
        await maya.conversations.run_turn(conversation.id, model, tools=[look], approvals={"c1": True})
    assert runs == []
    assert "may or may not have taken effect" in message_text(model.requests[0].messages[-1])


async def test_a_decision_is_accepted_after_the_conversation_was_closed(
    maya: User, other: User, payment_tools: PaymentTools
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    await maya.conversations.close(id)
    assert await other.conversations.pending(id) == (PAY_FIVE,)
    outcome, _ = await decide(other, id, payment_tools, c1=True)
    assert (outcome.text, payment_tools.paid) == ("Done.", [5])
    with pytest.raises(ConversationClosedError):
        await maya.conversations.run_turn(id, ScriptedModel([]), "And now?")


async def test_a_turn_interrupted_after_the_result_continues_with_the_answer(
    maya: User, other: User, payment_tools: PaymentTools
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    with pytest.raises(ProviderOverloadedError):
        await decide(maya, id, payment_tools, raises(ProviderOverloadedError("too busy")), c1=True)
    outcome, model = await decide(other, id, payment_tools, "Paid, as I said.", c1=True)
    assert (outcome.text, payment_tools.paid) == ("Paid, as I said.", [5])
    assert [m.role for m in model.requests[0].messages] == ["user", "assistant", "tool"]


async def test_a_call_does_not_run_if_its_approval_cannot_be_stored(
    tb: Tellback, maya: User, payment_tools: PaymentTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)

    async def fails(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(tb.store.conversations, "append", fails)
        with pytest.raises(StoreUnavailableError):
            await decide(maya, id, payment_tools, None, c1=True)
    assert payment_tools.paid == []
    await decide(maya, id, payment_tools, c1=True)
    assert payment_tools.paid == [5]


async def test_the_approval_note_is_hidden_from_user_and_model(maya: User, payment_tools: PaymentTools) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    _, model = await decide(maya, id, payment_tools, c1=True)
    assert [m.role for m in model.requests[0].messages] == ["user", "assistant", "tool"]
    assert "system" not in [m.role for m in await maya.conversations.messages(id, include_internal=True)]
    hidden = [m for m in await maya.conversations.messages(id, include_hidden=True) if m.visibility == "hidden"]
    approved = {"approved_calls": ["c1"], "inputs": {"c1": {"amount": 5}}}
    assert [m.metadata for m in hidden] == [{"waiting_calls": ["c1"]}, approved]


async def test_a_stream_accepts_decisions(maya: User, other: User, payment_tools: PaymentTools) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    model = ScriptedModel([says("Done.", chunks=2)])
    items = [
        item
        async for item in other.conversations.stream_turn(id, model, tools=payment_tools.tools, approvals={"c1": True})
    ]
    assert (str(items[-1]), payment_tools.paid) == ("Done.", [5])


async def test_unknown_calls_and_other_users_conversations_are_rejected(
    tb: Tellback, maya: User, payment_tools: PaymentTools
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    with pytest.raises(InvalidArgumentError, match="c99"):
        await decide(maya, id, payment_tools, None, c99=True)
    omar = tb.user("omar")
    with pytest.raises(NotFoundError):
        await omar.conversations.pending(id)
    with pytest.raises(NotFoundError):
        await decide(omar, id, payment_tools, None, c1=True)
    assert await maya.conversations.pending(id) == (PAY_FIVE,)
    assert payment_tools.paid == []


async def test_a_manually_stored_result_is_used(maya: User, payment_tools: PaymentTools) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    await maya.conversations.append_tool_result(id, "c1", "paid manually", "pay")
    assert await maya.conversations.pending(id) == ()
    outcome, model = await decide(maya, id, payment_tools, c1=True)
    assert (outcome.text, payment_tools.paid) == ("Done.", [])
    assert message_text(model.requests[0].messages[-1]) == "paid manually"
