"""Decisions on tool calls: valid decisions, their records, and calls that never run."""

from __future__ import annotations

from typing import Any

import pytest

from tellback import (
    ChatOptions,
    ConfigurationError,
    Identity,
    InvalidArgumentError,
    Session,
    Tellback,
    ToolCall,
    TurnConfig,
    TurnInput,
    User,
    message_text,
    request,
    run_chat_turn,
    skill,
    tool,
)
from tellback.chat.options import ChatOptionsDict
from tellback.errors import TurnConflictError
from tellback.memory import Remember
from tellback.testing import ScriptedModel, calls, says
from tellback.testing.stores.factories import make_claim
from tests.conformance.test_approvals_restart import PAY_FIVE, PaymentTools, decide, leave_pending


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


@pytest.fixture
def payment_tools() -> PaymentTools:
    return PaymentTools()


WRONG: list[Any] = [
    *("yes", "false", 1, 0, None, [], {}, {"approve": True}, {"approved": "false"}, {"approved": 1}),
    *({"approved": True, "input": "no"}, {"approved": True, "reason": 5}, {"approved": True, "more": 1}),
]


@pytest.mark.parametrize("decision", WRONG, ids=repr)
async def test_an_ambiguous_decision_is_rejected_and_decides_no_call(
    maya: User, payment_tools: PaymentTools, decision: Any
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    with pytest.raises(InvalidArgumentError, match="c1"):
        await decide(maya, id, payment_tools, None, c1=decision)
    assert await maya.conversations.pending(id) == (PAY_FIVE,)
    assert payment_tools.paid == []


async def test_invalid_arguments_decide_no_call(maya: User, payment_tools: PaymentTools) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    with pytest.raises(InvalidArgumentError, match="amount"):
        await decide(maya, id, payment_tools, None, c1={"approved": True, "input": {"amount": "much"}})
    assert await maya.conversations.pending(id) == (PAY_FIVE,)
    await decide(maya, id, payment_tools, c1=True)
    assert payment_tools.paid == [5]


async def test_a_call_of_a_missing_tool_stays_pending(maya: User, payment_tools: PaymentTools) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    with pytest.raises(ConfigurationError, match=r"no tool 'pay': .*No call was run"):
        await maya.conversations.run_turn(id, ScriptedModel([]), approvals={"c1": True})
    assert await maya.conversations.pending(id) == (PAY_FIVE,)
    await decide(maya, id, payment_tools, c1=True)
    assert payment_tools.paid == [5]


async def test_a_call_id_reused_by_the_provider_is_a_new_call(maya: User, payment_tools: PaymentTools) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    await decide(maya, id, payment_tools, c1=True)
    second_call = ToolCall("c1", "pay", {"amount": 7})
    await maya.conversations.run_turn(id, ScriptedModel([calls(second_call)]), "And again.", tools=payment_tools.tools)
    assert await maya.conversations.pending(id) == (second_call,)
    outcome, _ = await decide(maya, id, payment_tools, c1=True)
    assert (outcome.text, payment_tools.paid) == ("Done.", [5, 7])


async def test_an_old_call_can_still_be_decided(maya: User, payment_tools: PaymentTools) -> None:
    """All but one of forty calls are decided; their results fill the tail of the log."""
    tool_calls = [ToolCall(f"c{n}", "pay", {"amount": n}) for n in range(40)]
    id = await leave_pending(maya, payment_tools, *tool_calls)
    await decide(maya, id, payment_tools, None, **{call.id: call.id != "c7" for call in tool_calls if call.id != "c7"})
    assert [call.id for call in await maya.conversations.pending(id)] == ["c7"]
    outcome, _ = await decide(maya, id, payment_tools, c7=True)
    assert outcome.status == "completed"
    assert sorted(payment_tools.paid) == list(range(40))


async def test_changed_arguments_are_recorded_and_reported_to_the_model(
    maya: User, payment_tools: PaymentTools
) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    outcome, model = await decide(maya, id, payment_tools, c1={"approved": True, "input": {"amount": 3}})
    assert payment_tools.paid == [3]
    assert [dict(invocation.arguments) for invocation in outcome.tool_invocations] == [{"amount": 3}]
    result_text = message_text(model.requests[0].messages[-1])
    assert result_text == '[The user approved it with other arguments: {"amount":3}]\npaid 3'
    notes = [m.metadata for m in await maya.conversations.messages(id, include_hidden=True) if m.metadata]
    assert notes[-1]["inputs"] == {"c1": {"amount": 3}}


async def test_a_memory_of_an_approved_call_cites_the_message(tb: Tellback, maya: User) -> None:
    space = await maya.memory.create_space("home")
    conversation = await maya.conversations.create("chat")
    tools = [Remember(maya, space.id, requires_approval=True)]
    asks = ScriptedModel([calls("remember", text="Likes tea.")])
    outcome = await maya.conversations.run_turn(conversation.id, asks, "Remember that I like tea.", tools=tools)
    [call] = outcome.pending
    await maya.conversations.run_turn(
        conversation.id, ScriptedModel([says("Noted.")]), tools=tools, approvals={call.id: True}
    )
    [atom] = await maya.memory.list_atoms(space.id)
    assert atom.source_message_ids == (outcome.appended_messages[0].id,)


async def test_a_process_that_lost_its_claim_does_not_run_the_call(
    tb: Tellback, maya: User, payment_tools: PaymentTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes over the turn between this process's claim and the call."""
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    log, append = tb.store.conversations, tb.store.conversations.append

    async def append_after_takeover(scope: Any, conversation_id: str, turns: Any, **kwargs: Any) -> Any:
        if kwargs.get("required_claim_id") is not None:
            monkeypatch.setattr(log, "append", append)
            await log.end_turn(scope, conversation_id, kwargs["required_claim_id"])
            await log.begin_turn(scope, conversation_id, make_claim("other"), None, tail_limit=9, now=tb.clock())
        return await append(scope, conversation_id, turns, **kwargs)

    monkeypatch.setattr(log, "append", append_after_takeover)
    with pytest.raises(TurnConflictError):
        await decide(maya, id, payment_tools, None, c1=True)
    assert payment_tools.paid == []


async def test_a_system_message_does_not_hide_a_pending_call(maya: User, payment_tools: PaymentTools) -> None:
    id = await leave_pending(maya, payment_tools, PAY_FIVE)
    await maya.conversations.append_system_message(id, "The user opened the payments page.")
    assert await maya.conversations.pending(id) == (PAY_FIVE,)
    outcome, _ = await decide(maya, id, payment_tools, c1=True)
    assert (outcome.text, payment_tools.paid) == ("Done.", [5])


async def test_a_decided_chat_turn_keeps_its_context(maya: User) -> None:
    seen: list[Any] = []

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        current_request = request.current()
        seen.append(
            (
                current_request.session and current_request.session.id,
                dict(current_request.extras),
                current_request.message_id,
            )
        )
        return "paid"

    model = ScriptedModel([calls("pay", amount=5), says("Paid.")])
    options = ChatOptions(model=model, tools=[pay])
    cfg = TurnConfig(maya, "clerk", system_base="Never pay over 10.", chat_opts=options)
    session, sender = Session("web-42"), Identity("maya")
    first = await run_chat_turn(cfg, TurnInput(session, sender, "Pay!", ctx_extras={"plan": "pro"}))
    assert (first.ok, len(first.pending)) == (False, 1)
    decisions = {first.pending[0].id: True}
    last = await run_chat_turn(cfg, TurnInput(session, sender, approvals=decisions, ctx_extras={"plan": "pro"}))
    assert (last.ok, last.text, last.conversation_id) == (True, "Paid.", first.conversation_id)
    assert seen == [("web-42", {"plan": "pro"}, first.message_id)]
    assert str(model.requests[-1].system).startswith("Never pay over 10.")
    assert (last.messages[-1].metadata or {})["source"] == "clerk"
    with pytest.raises(InvalidArgumentError, match="no open conversation"):
        await run_chat_turn(cfg, TurnInput(Session("other"), sender, approvals=decisions))
    with pytest.raises(InvalidArgumentError, match="without text"):
        TurnInput(session, sender, "Pay!", approvals=decisions)


async def test_a_call_that_cannot_be_approved_later_is_reported(maya: User) -> None:
    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        return "paid"

    cfg = TurnConfig(maya, "clerk", chat_opts=ChatOptions(model=ScriptedModel([calls("pay", amount=5)]), tools=[pay]))
    turn_input = TurnInput(Session("s"), Identity("maya"), "Pay!", persist_assistant=False)
    result = await run_chat_turn(cfg, turn_input)
    assert result.status == "approval"
    assert "cannot be approved later" in str(result.problems[0])


async def test_a_call_of_a_skill_tool_can_be_decided_long_after_reading_the_skill(maya: User) -> None:
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    @skill(description="How we pay", tools=[pay])
    def paying() -> str:
        return "Pay at once."

    conversation = await maya.conversations.create("shop")
    script = [calls("read_skill", name="paying"), *[calls("list_skills")] * 20, calls("pay", amount=5)]
    options: ChatOptionsDict = {"skills": [paying], "max_iterations": 50}
    outcome = await maya.conversations.run_turn(conversation.id, ScriptedModel(script), "Pay!", options=options)
    assert outcome.status == "approval"
    decisions = {outcome.pending[0].id: True}
    second_model = ScriptedModel([says("Paid.")])
    assert (
        str(await maya.conversations.run_turn(conversation.id, second_model, approvals=decisions, options=options))
        == "Paid."
    )
    assert paid == [5]
