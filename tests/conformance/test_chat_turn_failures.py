"""A chat turn whose store fails: the reply is returned, failed steps are listed, and the log stays in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback import ChatOptions, Tellback, ToolCall, message_text, tool
from tellback.chat.history import is_valid_history
from tellback.errors import StoreUnavailableError
from tellback.testing import FunctionModel, ScriptedModel, calls, says
from tellback.turn import TurnConfig, TurnInput, run_chat_turn
from tellback.types.conversations import Identity, Session, StoredMessage
from tellback.user import User

MAYA = Identity("maya")
OK, FAILS, LOST, LATE = "ok", "fails", "lost", "late"
"""Outcomes of a call: done; failed; in doubt and not stored; in doubt but stored."""


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


@contextmanager
def failing(target: Any, plans: dict[str, Iterator[str]]) -> Iterator[None]:
    """Let methods of a store fail as planned."""

    def planned(method: Callable[..., Awaitable[Any]], plan: Iterator[str]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            failure = next(plan, OK)
            if failure in (FAILS, LOST):
                raise StoreUnavailableError("The store is gone.", in_doubt=failure == LOST)
            found = await method(*args, **kwargs)
            if failure == LATE:
                raise StoreUnavailableError("The store is gone.", in_doubt=True)
            return found

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name, plan in plans.items():
            patch.setattr(target, name, planned(getattr(target, name), plan))
        yield


async def look() -> str:
    """Look."""
    return "seen"


def config_with_tool(user: User, *, after: str = "Done.") -> TurnConfig:
    model = ScriptedModel([calls("look"), says(after)])
    return TurnConfig(user, "helper", chat_opts=ChatOptions(model=model, tools=[look]))


def turn_input(text: str = "Hi", **kwargs: Any) -> TurnInput:
    return TurnInput(Session("web"), MAYA, text, **kwargs)


async def stored(user: User) -> list[StoredMessage]:
    conversations = await user.conversations.list("helper")
    return [
        message for conversation in conversations for message in await user.conversations.raw_turns(conversation.id)
    ]


def roles(messages: list[StoredMessage]) -> list[str]:
    return [message.role for message in messages]


WHOLE = ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("failure", [FAILS, LOST, LATE])
async def test_a_message_that_fails_to_store_is_stored_with_the_reply(tb: Tellback, maya: User, failure: str) -> None:
    await maya.conversations.create("helper", session_id="web")
    with failing(tb.store.conversations, {"begin_turn": iter([failure])}):
        result = await run_chat_turn(config_with_tool(maya), turn_input())
    assert (result.ok, result.text) == (True, "Done.")
    assert [problem.step for problem in result.problems] == ["store_user"]
    found = await stored(maya)
    assert roles(found) == WHOLE
    assert len({message.turn_id for message in found}) == 1
    assert [m.id for m in result.messages] == [m.id for m in found]
    [conversation] = await maya.conversations.list()
    assert conversation.turns == 1
    await tb.jobs.drain(timeout=20)
    assert str(await run_chat_turn(config_with_tool(maya, after="Again."), turn_input("And?"))) == "Again."


@pytest.mark.parametrize("failure", [FAILS, LOST, LATE])
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_unsaved_messages_of_a_reply_are_stored_later_in_order(
    tb: Tellback, maya: User, failure: str, number: int
) -> None:
    plan = [OK] * number + [failure]
    with failing(tb.store.conversations, {"append": iter(plan)}):
        result = await run_chat_turn(config_with_tool(maya), turn_input())
    assert (result.text, [problem.step for problem in result.problems]) == ("Done.", ["store_reply"])
    found = await stored(maya)
    assert roles(found) == WHOLE
    assert len({message.turn_id for message in found}) == 1
    assert str(await run_chat_turn(config_with_tool(maya, after="Again."), turn_input("And?"))) == "Again."


async def test_a_repeated_message_stored_late_gets_the_id_of_the_stored_message(tb: Tellback, maya: User) -> None:
    model = FunctionModel(lambda request: "Noted.")
    first = await maya.chat("I moved.", model=model, idempotency_key="k1")
    with failing(tb.store.conversations, {"begin_turn": iter([FAILS])}):
        again = await maya.chat("I moved.", model=model, idempotency_key="k1")
    assert again.message_id == first.message_id
    assert await maya.conversations.message(again.message_id or "") is not None


async def test_a_turn_that_fails_to_begin_does_not_block_others(tb: Tellback, maya: User) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def answer(request: Any) -> str:
        if message_text(request.messages[-1]) == "slow":
            asked.set()
            await release.wait()
        return "Here."

    model = FunctionModel(answer)
    await maya.chat("Hi.", model=model)
    with failing(tb.store.conversations, {"begin_turn": iter([FAILS])}):
        slow = asyncio.create_task(maya.chat("slow", model=model))
        await asked.wait()
        quick = await maya.chat("quick", model=model, wait=5.0)
    assert quick.text == "Here."
    release.set()
    assert (await slow).problems[0].step == "store_user"


async def test_the_reply_is_returned_if_the_store_stays_down(tb: Tellback, maya: User) -> None:
    await run_chat_turn(config_with_tool(maya), turn_input())
    with failing(tb.store.conversations, {"begin_turn": iter([FAILS] * 9), "append": iter([FAILS] * 9)}):
        result = await run_chat_turn(config_with_tool(maya), turn_input("And?"))
    assert (result.ok, result.text) == (True, "Done.")
    assert {problem.step for problem in result.problems} == {"store_user", "store_reply"}
    assert all(isinstance(problem.error, StoreUnavailableError) for problem in result.problems)
    assert "The store is gone." in str(result.problems[0])
    assert roles(await stored(maya)) == WHOLE


@pytest.mark.parametrize("failure", [FAILS, LOST, LATE])
async def test_the_reply_is_returned_if_the_conversation_lookup_fails(tb: Tellback, maya: User, failure: str) -> None:
    with failing(tb.store.conversations, {"find_or_create": iter([failure])}):
        result = await run_chat_turn(config_with_tool(maya), turn_input())
    assert (result.ok, result.text, result.conversation_id) == (True, "Done.", None)
    assert "store_user" in {problem.step for problem in result.problems}
    assert await stored(maya) == []
    assert str(await run_chat_turn(config_with_tool(maya), turn_input())) == "Done."
    assert len(await maya.conversations.list()) == 1


async def test_the_turn_continues_if_recall_fails(tb: Tellback, maya: User) -> None:
    space = await maya.memory.create_space("default")
    await maya.memory.add_atom(space.id, "Maya is vegetarian.")
    cfg = TurnConfig(
        maya, "helper", chat_opts=ChatOptions(model=ScriptedModel([says("Hello!")])), system_base="Be kind."
    )
    with failing(tb.store.memories, {"spaces": iter([FAILS] * 9)}):
        result = await run_chat_turn(cfg, turn_input())
    assert (result.text, [problem.step for problem in result.problems]) == ("Hello!", ["recall"])
    assert isinstance(cfg.chat_opts.model, ScriptedModel)
    assert cfg.chat_opts.model.requests[0].system == "Be kind."
    assert roles(await stored(maya)) == ["user", "assistant"]


async def test_pending_calls_are_stored_after_a_store_failure(tb: Tellback, maya: User) -> None:
    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    await maya.conversations.create("helper", session_id="web")
    model = ScriptedModel([calls(ToolCall("c1", "pay", {"amount": 5})), says("Paid.")])
    cfg = TurnConfig(maya, "helper", chat_opts=ChatOptions(model=model, tools=[pay]))
    with failing(tb.store.conversations, {"begin_turn": iter([FAILS])}):
        result = await run_chat_turn(cfg, turn_input("Pay 5"))
    assert (result.ok, result.status) == (False, "approval")
    assert result.conversation_id is not None
    assert roles(await stored(maya)) == ["user", "assistant"]
    outcome = await maya.conversations.run_turn(result.conversation_id, model, tools=[pay], approvals={"c1": True})
    assert outcome.text == "Paid."


async def test_a_typed_reply_is_stored_after_a_store_failure(tb: Tellback, maya: User) -> None:
    await maya.conversations.create("helper", session_id="web")
    opts = ChatOptions(model=ScriptedModel(['{"city": "Rome"}']), output_type=dict[str, str])
    with failing(tb.store.conversations, {"begin_turn": iter([FAILS])}):
        result = await run_chat_turn(TurnConfig(maya, "helper", chat_opts=opts), turn_input())
    assert result.output == {"city": "Rome"}
    assert roles(await stored(maya)) == ["user", "assistant"]


@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(
        st.tuples(
            st.lists(st.sampled_from([OK, FAILS, LOST, LATE]), max_size=2),
            st.lists(st.sampled_from([OK, FAILS, LOST, LATE]), max_size=6),
            st.lists(st.sampled_from([OK, FAILS]), max_size=3),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_the_log_stays_in_order_for_any_store_failures(turns: list[tuple[list[str], list[str], list[str]]]) -> None:
    asyncio.run(_check(turns))


async def _check(turns: list[tuple[list[str], list[str], list[str]]]) -> None:
    async with Tellback(":memory:", embedder=None, worker=False, summary_every=None) as tb:
        user = tb.user("maya")
        conversation = await user.conversations.create("helper", session_id="web")

        def answer(request: Any) -> Any:
            assert is_valid_history(request.messages)
            number = next(message_text(m) for m in reversed(request.messages) if m.role == "user")
            last_message = request.messages[-1]
            if last_message.role == "user":
                return calls(ToolCall(f"{number}a", "look"), ToolCall(f"{number}b", "look"), saying=f"{number}: wait")
            return f"{number}: done"

        opts = ChatOptions(model=FunctionModel(answer), tools=[look])
        cfg = TurnConfig(user, "helper", chat_opts=opts)
        for number, (begin_plan, append_plan, read_plan) in enumerate(turns):
            plans = {"begin_turn": iter(begin_plan), "append": iter(append_plan), "message": iter(read_plan)}
            with failing(tb.store.conversations, plans):
                result = await run_chat_turn(cfg, turn_input(str(number)))
            assert result.text == f"{number}: done"
            await tb.jobs.drain(timeout=20)
        found = await user.conversations.raw_turns(conversation.id)
        assert len({message.id for message in found}) == len(found)
        assert [message.seq for message in found] == list(range(1, len(found) + 1))
        all_entries = [entry for number in range(len(turns)) for entry in _entries(str(number))]
        stored = [_entry(message) for message in found]
        assert len(set(stored)) == len(stored)
        assert stored == [entry for entry in all_entries if entry in stored]
        for number, (_, append_plan, read_plan) in enumerate(turns):
            if {*append_plan, *read_plan} <= {OK}:
                assert {*_entries(str(number))} <= {*stored}
        texts_by_turn = {
            message.turn_id: message.text.partition(":")[0] for message in found if message.role == "assistant"
        }
        assert len(set(texts_by_turn.values())) == len(texts_by_turn)
        with ScriptedModel([says("End.", expect=lambda request: is_valid_history(request.messages))]) as model:
            await user.conversations.run_turn(conversation.id, model, "Well?", wait=0)


def _entries(number: str) -> list[tuple[str, str]]:
    return [
        ("user", number),
        ("assistant", f"{number}: wait"),
        ("tool", f"{number}a"),
        ("tool", f"{number}b"),
        ("assistant", f"{number}: done"),
    ]


def _entry(message: StoredMessage) -> tuple[str, str]:
    [sent] = message.messages
    return message.role, sent.tool_call_id or message.text
