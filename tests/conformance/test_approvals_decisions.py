"""Decisions on tool calls: what may be decided, what is kept of it, and what never runs."""

from __future__ import annotations

from typing import Any

import pytest

from recollect import (
    ConfigurationError,
    InvalidArgumentError,
    Recollect,
    Remember,
    ToolCall,
    User,
    message_text,
)
from recollect.testing import ScriptedModel, calls, says
from tests.conformance.test_approvals_restart import FIVE, Till, asked, decide


@pytest.fixture
def maya(rc: Recollect) -> User:
    return rc.user("maya")


@pytest.fixture
def till() -> Till:
    return Till()


WRONG: list[Any] = [
    *("yes", "false", 1, 0, None, [], {}, {"approve": True}, {"approved": "false"}, {"approved": 1}),
    *({"approved": True, "input": "no"}, {"approved": True, "reason": 5}, {"approved": True, "more": 1}),
]


@pytest.mark.parametrize("decision", WRONG, ids=repr)
async def test_what_could_be_misread_is_refused_and_decides_nothing(maya: User, till: Till, decision: Any) -> None:
    id = await asked(maya, till, FIVE)
    with pytest.raises(InvalidArgumentError, match="c1"):
        await decide(maya, id, till, None, c1=decision)
    assert await maya.conversations.pending(id) == (FIVE,)
    assert till.paid == []


async def test_arguments_that_do_not_fit_decide_nothing(maya: User, till: Till) -> None:
    id = await asked(maya, till, FIVE)
    with pytest.raises(InvalidArgumentError, match="amount"):
        await decide(maya, id, till, None, c1={"approved": True, "input": {"amount": "much"}})
    assert await maya.conversations.pending(id) == (FIVE,)
    await decide(maya, id, till, c1=True)
    assert till.paid == [5]


async def test_a_call_whose_tool_is_not_there_stays_pending(maya: User, till: Till) -> None:
    id = await asked(maya, till, FIVE)
    with pytest.raises(ConfigurationError, match=r"no tool 'pay' here.*Nothing was run"):
        await maya.conversations.run_turn(id, ScriptedModel([]), approvals={"c1": True})
    assert await maya.conversations.pending(id) == (FIVE,)
    await decide(maya, id, till, c1=True)
    assert till.paid == [5]


async def test_an_id_that_the_provider_uses_again_is_another_call(maya: User, till: Till) -> None:
    id = await asked(maya, till, FIVE)
    await decide(maya, id, till, c1=True)
    again = ToolCall("c1", "pay", {"amount": 7})
    await maya.conversations.run_turn(id, ScriptedModel([calls(again)]), "And again.", tools=till.tools)
    assert await maya.conversations.pending(id) == (again,)
    outcome, _ = await decide(maya, id, till, c1=True)
    assert (outcome.text, till.paid) == ("Done.", [5, 7])


async def test_a_call_far_behind_can_still_be_decided(maya: User, till: Till) -> None:
    """Forty calls of one reply, decided but for one: its results fill the tail."""
    wanted = [ToolCall(f"c{n}", "pay", {"amount": n}) for n in range(40)]
    id = await asked(maya, till, *wanted)
    await decide(maya, id, till, None, **{call.id: call.id != "c7" for call in wanted if call.id != "c7"})
    assert [call.id for call in await maya.conversations.pending(id)] == ["c7"]
    outcome, _ = await decide(maya, id, till, c7=True)
    assert outcome.status == "completed"
    assert sorted(till.paid) == list(range(40))


async def test_arguments_that_were_changed_are_on_record_and_the_model_knows(maya: User, till: Till) -> None:
    id = await asked(maya, till, FIVE)
    outcome, model = await decide(maya, id, till, c1={"approved": True, "input": {"amount": 3}})
    assert till.paid == [3]
    assert [dict(ran.arguments) for ran in outcome.tool_invocations] == [{"amount": 3}]
    told = message_text(model.requests[0].messages[-1])
    assert told == '[The user approved it with other arguments: {"amount":3}]\npaid 3'
    notes = [m.metadata for m in await maya.conversations.messages(id, include_hidden=True) if m.metadata]
    assert notes[-1]["inputs"] == {"c1": {"amount": 3}}


async def test_what_is_remembered_by_an_approved_call_cites_the_message(rc: Recollect, maya: User) -> None:
    space = await maya.memory.create_space("home")
    talk = await maya.conversations.create("chat")
    tools = [Remember(maya, space.id, requires_approval=True)]
    asks = ScriptedModel([calls("remember", text="Likes tea.")])
    outcome = await maya.conversations.run_turn(talk.id, asks, "Remember that I like tea.", tools=tools)
    [call] = outcome.pending
    await maya.conversations.run_turn(talk.id, ScriptedModel([says("Noted.")]), tools=tools, approvals={call.id: True})
    [atom] = await maya.memory.list_atoms(space.id)
    assert atom.source_message_ids == (outcome.appended_messages[0].id,)
