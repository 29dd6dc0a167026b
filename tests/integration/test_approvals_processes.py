"""Approvals by processes that are killed or decide concurrently. The child processes run this file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tellback import Tellback, ToolCall, message_text, tool
from tellback.chat.history import is_valid_history
from tellback.errors import AlreadyDecidedError
from tellback.testing import FunctionModel, ScriptedModel, calls, says
from tests.support.subprocess_programs import USER, emit, read_line
from tests.support.subprocesses import ChildProcess

PAY_FIVE = ToolCall("c1", "pay", {"amount": 5})


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "tellback.db")
    found: str = request.getfixturevalue("ready_postgres_url")
    return found


def make_pay_tool(ledger: str, holds: bool) -> Any:
    """Return a tool that records its payments in a file, and then may block until its process is killed."""

    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        with Path(ledger).open("a") as ledger_file:  # noqa: ASYNC230 - one line, in a test
            ledger_file.write(f"{amount}\n")
        emit(paying=amount)
        if holds:
            await read_line()
        return f"paid {amount}"

    return pay


async def decide(job: dict[str, Any]) -> None:
    """Approve a call in this process."""
    async with Tellback(job["url"], summary_every=None, worker=False) as tb:
        log = tb.user(USER).conversations
        emit(pending=[call.id for call in await log.pending(job["conversation"])])
        if job.get("waits"):
            await read_line()
        try:
            outcome = await log.run_turn(
                job["conversation"],
                FunctionModel(lambda _: "Done."),
                tools=[make_pay_tool(job["ledger"], job["holds"])],
                approvals={"c1": True},
            )
        except AlreadyDecidedError:
            emit(ended="decided before")
        else:
            emit(ended=outcome.text)


async def chat(job: dict[str, Any]) -> None:
    """Start a chat with `user.chat` whose tool call waits for approval."""
    async with Tellback(job["url"], summary_every=None, worker=False) as tb:
        model = ScriptedModel([calls(PAY_FIVE)])
        reply = await tb.user(USER).chat("Pay 5", model=model, tools=[make_pay_tool(job["ledger"], False)])
        emit(status=reply.status, conversation=reply.conversation_id)


@asynccontextmanager
async def process(program: str) -> AsyncIterator[ChildProcess]:
    """Start a child process that runs a function of this file."""
    started = await ChildProcess.start(f"{__name__}:{program}")
    try:
        await started.wait_for("ready")
        yield started
    finally:
        await started.close()


async def request_payment(tb: Tellback, ledger: Path) -> str:
    log = tb.user(USER).conversations
    conversation = await log.create("chat")
    outcome = await log.run_turn(
        conversation.id, ScriptedModel([calls(PAY_FIVE)]), "Pay 5", tools=[make_pay_tool(str(ledger), False)]
    )
    assert outcome.status == "approval"
    return conversation.id


def read_payments(ledger: Path) -> list[str]:
    return ledger.read_text().split() if ledger.exists() else []


async def test_a_call_interrupted_by_a_kill_is_not_run_twice(url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with Tellback(url, summary_every=None, worker=False) as tb:
        log = tb.user(USER).conversations
        id = await request_payment(tb, ledger)
        async with process("decide") as child:
            await child.send(url=url, conversation=id, ledger=str(ledger), holds=True)
            await child.wait_for("paying")
            await child.kill()
            assert child.outputs[1] == {"pending": ["c1"]}
        assert await log.pending(id) == ()
        tools = [make_pay_tool(str(ledger), False)]
        with ScriptedModel([says("I am not sure whether I paid.")]) as model:
            outcome = await log.run_turn(id, model, tools=tools, approvals={"c1": True}, wait=40)
        assert outcome.status == "completed"
        [sent] = model.requests
        assert is_valid_history(sent.messages)
        assert "may or may not have taken effect" in message_text(sent.messages[-1])
        assert read_payments(ledger) == ["5"]
        with pytest.raises(AlreadyDecidedError):
            await log.run_turn(id, ScriptedModel([]), tools=tools, approvals={"c1": True})
        with ScriptedModel([says("ok", expect=lambda sent: is_valid_history(sent.messages))]) as model:
            await log.run_turn(id, model, "Please check.", tools=tools)
        roles = [message.role for message in await log.raw_turns(id)]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert read_payments(ledger) == ["5"]


async def test_concurrent_approvals_of_two_processes_run_the_call_once(url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with Tellback(url, summary_every=None, worker=False) as tb:
        id = await request_payment(tb, ledger)
        async with process("decide") as first_child, process("decide") as second_child:
            children = (first_child, second_child)
            for child in children:
                await child.send(url=url, conversation=id, ledger=str(ledger), holds=False, waits=True)
            for child in children:
                await child.wait_for("pending")
            for child in children:
                await child.send()
            outcomes = [(await child.wait_for("ended"))["ended"] for child in children]
        assert sorted(outcomes) == ["Done.", "decided before"]
        assert read_payments(ledger) == ["5"]
        messages = await tb.user(USER).conversations.raw_turns(id)
        assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_chat_can_be_approved_in_another_process(url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with process("chat") as first:
        await first.send(url=url, ledger=str(ledger))
        output = await first.wait_for("status")
        await first.wait()
    assert output["status"] == "approval"
    async with process("decide") as second:
        await second.send(url=url, conversation=output["conversation"], ledger=str(ledger), holds=False)
        assert (await second.wait_for("ended"))["ended"] == "Done."
    assert read_payments(ledger) == ["5"]
