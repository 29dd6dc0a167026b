"""`user.chat` and `user.chat_stream`, on every kind of store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tellback import (
    ChatOptions,
    InvalidArgumentError,
    NotFoundError,
    Tellback,
    TextDelta,
    ToolCall,
    message_text,
    request,
    tool,
)
from tellback.chat.history import is_valid_history
from tellback.errors import ConversationClosedError, StoreUnavailableError
from tellback.testing import FunctionModel, ScriptedModel, answers, calls, says
from tellback.turn import TurnConfig, TurnInput, TurnResult, run_chat_turn
from tellback.turns.attachments import Attachment
from tellback.types.conversations import Identity, Session
from tellback.user import User

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ECHO = FunctionModel(lambda request: f"re: {message_text(request.messages[-1])}")


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


async def texts(user: User, id: str | None) -> list[str]:
    assert id is not None
    return [message.text for message in await user.conversations.raw_turns(id)]


async def test_a_chat_continues_its_conversation(maya: User) -> None:
    first = await maya.chat("Hi", model=ECHO)
    second = await maya.chat("Well?", model=ECHO)
    assert (first.ok, first.text, str(second)) == (True, "re: Hi", "re: Well?")
    assert first.conversation_id == second.conversation_id
    assert await texts(maya, first.conversation_id) == ["Hi", "re: Hi", "Well?", "re: Well?"]
    assert first.message_id == first.messages[0].id
    other = await maya.chat("Hi", "dinner", model=ECHO)
    tab = await maya.chat("Hi", model=ECHO, session_id="tab-2")
    assert len({first.conversation_id, other.conversation_id, tab.conversation_id}) == 3
    by_id = await maya.chat("Back", model=ECHO, conversation_id=first.conversation_id)
    assert by_id.conversation_id == first.conversation_id


@pytest.mark.parametrize("text", ["cut in half: \ud83d", "a\x00b", "\x00", "tea " * 20_000])
async def test_any_pasted_text_is_answered_and_stored(maya: User, text: str) -> None:
    space = await maya.memory.create_space("default")
    await maya.memory.add_atom(space.id, "Maya likes tea.")
    model = ScriptedModel([says("ok"), says("ok")])
    reply = await maya.chat(text, model=model)
    turn = TurnInput(Session("s"), Identity("maya"), text)
    result = await run_chat_turn(TurnConfig(maya, "helper", chat_opts=ChatOptions(model=model)), turn)
    assert (reply.problems, result.problems) == ((), ())
    assert reply.messages[0].text == result.messages[0].text == text


async def test_a_stream_yields_deltas_and_then_the_result(maya: User) -> None:
    with ScriptedModel([says("Hello!", chunks=2)]) as model:
        items = [item async for item in maya.chat_stream("Hi", model=model)]
    assert [item.text for item in items if isinstance(item, TextDelta)] == ["He", "ll", "o!"]
    result = items[-1]
    assert isinstance(result, TurnResult)
    assert (result.text, result.message_id) == ("Hello!", result.messages[0].id)


async def test_a_closed_stream_leaves_a_valid_log(maya: User) -> None:
    stream = maya.chat_stream("Tell me", model=ScriptedModel([says("A long story", chunks=1)]))
    assert await anext(stream) == TextDelta("A")
    await stream.aclose()
    with ScriptedModel([says("ok", expect=lambda request: is_valid_history(request.messages))]) as model:
        result = await maya.chat("Stop.", model=model, wait=0)
    assert await texts(maya, result.conversation_id) == ["Tell me", "Stop.", "ok"]


@pytest.mark.parametrize("space", ["default", None])
async def test_an_idle_chat_is_closed_and_a_new_one_created(tb: Tellback, maya: User, space: str | None) -> None:
    tb.clock = lambda: NOON
    first = await maya.chat("I moved to Lisbon.", model=ECHO, space=space)
    tb.clock = lambda: NOON + timedelta(minutes=59)
    same_conversation = await maya.chat("In March.", model=ECHO, space=space)
    tb.clock = lambda: NOON + timedelta(minutes=59 + 61)
    later = await maya.chat("Where do I live?", model=ECHO, space=space)
    assert first.conversation_id == same_conversation.conversation_id != later.conversation_id
    closed_conversation = await maya.conversations.get(str(first.conversation_id))
    assert closed_conversation is not None
    assert closed_conversation.status == "closed"


@pytest.mark.parametrize("close_after", [60, timedelta(minutes=1), None])
async def test_close_after_sets_how_long_an_idle_chat_stays_open(tb: Tellback, maya: User, close_after: Any) -> None:
    tb.clock = lambda: NOON
    first = await maya.chat("Hi", model=ECHO, close_after=close_after)
    tb.clock = lambda: NOON + timedelta(days=2)
    later = await maya.chat("Hi", model=ECHO, close_after=close_after)
    assert (first.conversation_id == later.conversation_id) is (close_after is None)


async def test_verbatim_memories_are_available_in_the_next_chat(url: str) -> None:
    async with Tellback(url, extractor="verbatim") as tb:
        tb.clock = lambda: NOON
        maya = tb.user("maya")
        await maya.chat("I moved to Lisbon in March, and I'm vegetarian now.", model=ECHO)
        tb.clock = lambda: NOON + timedelta(days=20)
        with ScriptedModel([says("Try the tofu place.")]) as model:
            reply = await maya.chat("What is a good vegetarian place in Lisbon?", model=model)
    assert any("vegetarian now" in atom.text for atom in reply.atoms_used)
    assert "vegetarian now" in str(model.requests[0].system)
    assert reply.atoms_used[0].citations


async def test_extracted_facts_are_available_in_the_next_chat(url: str) -> None:
    fact = {"text": "Maya lives in Lisbon.", "messages": ["m1"], "kind": "FACT", "category": "home", "importance": 4}
    fact |= {"confidence": 0.9, "change": "none", "single": False, "entities": []}
    script = [says("Lovely."), answers({"facts": [fact], "entities": []}), says("In Lisbon.")]
    with ScriptedModel(script) as model:
        async with Tellback(url, model=model, extractor="llm") as tb:
            tb.clock = lambda: NOON
            maya = tb.user("maya")
            await maya.chat("I moved to Lisbon.")
            tb.clock = lambda: NOON + timedelta(days=2)
            reply = await maya.chat("Where does Maya live?")
    assert (reply.text, [atom.text for atom in reply.atoms_used]) == ("In Lisbon.", ["Maya lives in Lisbon."])


async def test_another_process_continues_the_chat(url: str) -> None:
    if url == ":memory:":
        pytest.skip("an in-memory store can be opened only once")
    async with Tellback(url, extractor="verbatim", clock=lambda: NOON) as first_tb:
        first = await first_tb.user("maya").chat("I am allergic to nuts.", model=ECHO)
    async with Tellback(url, extractor="verbatim", clock=lambda: NOON + timedelta(minutes=5)) as second_tb:
        second = await second_tb.user("maya").chat("And to milk.", model=ECHO)
        assert second.conversation_id == first.conversation_id
        second_tb.clock = lambda: NOON + timedelta(days=5)
        third = await second_tb.user("maya").chat("What am I allergic to?", model=ECHO)
        assert third.conversation_id != first.conversation_id
        assert any("nuts" in atom.text for atom in third.atoms_used)
        assert len(await second_tb.user("maya").memory.list_bindings()) == 1


async def test_space_and_binding_are_created_once(tb: Tellback, maya: User) -> None:
    other = Tellback(tb.store).user("maya")
    await asyncio.gather(*(user.chat(str(n), model=ECHO) for n, user in enumerate([maya, other] * 3)))
    await Tellback(tb.store).user("maya").chat("Later.", model=ECHO)
    [space] = await maya.memory.list_spaces()
    [binding] = await maya.memory.list_bindings()
    assert (space.name, binding.memory_space_ids, binding.enabled) == ("default", (space.id,), True)
    assert binding.matches("chat", "maya")
    assert not binding.matches("chat", "omar")
    assert not binding.matches("dinner", "maya")
    [conversation] = await maya.conversations.list()
    assert conversation.turns == 7


async def test_a_chat_creates_no_binding_if_one_for_all_users_matches(tb: Tellback, maya: User) -> None:
    admin = tb.user("admin")
    space = await admin.memory.create_space("default")
    await admin.memory.create_binding({"namespace": "*", "user_id": "*"}, [space.id])
    await maya.chat("Hi", model=ECHO)
    assert [binding.created_by for binding in await maya.memory.list_bindings()] == [None]
    await maya.chat("Hi", model=ECHO, space="diary")
    assert [binding.created_by for binding in await tb.user("maya").memory.list_bindings()] == [None, "maya"]


async def test_a_paused_binding_stays_paused(url: str) -> None:
    async with Tellback(url, extractor="verbatim") as tb:
        tb.clock = lambda: NOON
        maya = tb.user("maya")
        await maya.chat("Hi", model=ECHO)
        [binding] = await maya.memory.list_bindings()
        await maya.memory.update_binding(binding.id, enabled=False)
        later_user = Tellback(tb.store, extractor="verbatim", clock=lambda: NOON + timedelta(days=1)).user("maya")
        await later_user.chat("Still there?", model=ECHO)
        [stored] = await maya.memory.list_bindings()
        assert (stored.id, stored.enabled) == (binding.id, False)
        [space] = await maya.memory.list_spaces()
        assert await maya.memory.list_atoms(space.id) == []


async def test_a_deleted_space_is_replaced(url: str) -> None:
    async with Tellback(url, extractor="verbatim") as tb:
        tb.clock = lambda: NOON
        maya = tb.user("maya")
        await maya.chat("I like tea.", model=ECHO)
        [deleted_space] = await maya.memory.list_spaces()
        await maya.memory.delete_space(deleted_space.id)
        reply = await maya.chat("I like coffee.", model=ECHO)
        assert (reply.text, reply.problems) == ("re: I like coffee.", ())
        [space] = await maya.memory.list_spaces()
        assert space.id != deleted_space.id
        tb.clock = lambda: NOON + timedelta(days=1)
        later = await maya.chat("What coffee do I like?", model=ECHO)
        assert any("coffee" in atom.text for atom in later.atoms_used)


async def test_without_a_space_there_are_no_memories(maya: User) -> None:
    reply = await maya.chat("Hi", model=ECHO, space=None)
    assert (reply.text, reply.atoms_used) == ("re: Hi", ())
    assert await maya.memory.list_spaces() == []
    assert await maya.memory.list_bindings() == []


async def test_system_tools_and_options_reach_the_model(maya: User) -> None:
    def add(x: int, y: int) -> int:
        """Add."""
        return x + y

    from tellback.skills import Skill

    with ScriptedModel([calls("add", x=1, y=2), says("Three."), says("Yes."), says("ok")]) as model:
        reply = await maya.chat(
            "1 + 2?", model=model, tools=[add], system="Be brief.", options={"config": {"top_p": 1}}
        )
        poet = Skill("verse", "Write in verse", body="Rhyme.")
        await maya.chat("Sure?", options=ChatOptions(model=model, system="Old."), system="New.", skills=[poet])
        files = [Attachment("cat.png", mime="image/png", data=b"cat")]
        await maya.chat("Look!", model=model, attachments=files, recall={"recent_turns": 1}, trace_id="t-1")
    assert (reply.text, [call.content for call in reply.tool_invocations]) == ("Three.", ["3"])
    first, _, second, third = model.requests
    assert (str(first.system).startswith("Be brief."), first.config["top_p"]) == (True, 1)
    assert str(second.system).startswith("New.")
    assert "Write in verse" in str(second.system)
    assert third.messages[-1].parts is not None
    assert third.messages[-1].parts[-1].kind == "image"
    stored = await maya.conversations.raw_turns(str(reply.conversation_id))
    assert (stored[-2].text, stored[-2].trace_id) == ("Look!\n[attachment: cat.png (image/png, 3 bytes)]", "t-1")


async def test_tools_know_the_sender(maya: User) -> None:
    seen: list[Any] = []

    async def whoami() -> str:
        """Who am I?"""
        now = request.current()
        seen.append((now.session and now.session.id, now.sender, dict(now.extras), now.conversation_id, now.message_id))
        return "you"

    model = ScriptedModel([calls("whoami"), says("1"), calls("whoami"), says("2")])
    first = await maya.chat("Who?", model=model, tools=[whoami])
    sender = Identity("maya", "Maya")
    second = await maya.chat(
        "Who?",
        model=model,
        tools=[whoami],
        session_id="tab",
        sender=sender,
        extras={"plan": "pro"},
        metadata={"lang": "pt"},
    )
    id = first.conversation_id
    assert seen == [
        (id, Identity("maya"), {}, id, first.message_id),
        ("tab", sender, {"plan": "pro"}, second.conversation_id, second.message_id),
    ]
    assert second.messages[0].metadata == {"lang": "pt"}
    assert (first.session_id, second.session_id) == (id, "tab")
    conversation = await maya.conversations.get(str(second.conversation_id))
    assert conversation is not None
    assert conversation.metadata == {"speakers": {"user": "Maya"}}


async def test_a_retry_with_the_same_key_stores_the_message_once(maya: User) -> None:
    first = await maya.chat("Hi", model=ECHO, idempotency_key="k")
    second = await maya.chat("Hi", model=ECHO, idempotency_key="k")
    assert await texts(maya, first.conversation_id) == ["Hi", "re: Hi", "re: Hi"]
    assert first.message_id == second.message_id == first.messages[0].id


def make_pay_tool(paid: list[int]) -> Any:
    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    return pay


async def test_a_call_is_approved_in_the_chat(tb: Tellback, maya: User) -> None:
    paid: list[int] = []
    model = ScriptedModel([calls(ToolCall("c1", "pay", {"amount": 5})), says("Paid.")])
    request = await maya.chat("Pay 5", model=model, tools=[make_pay_tool(paid)])
    assert (request.ok, request.status, paid) == (False, "approval", [])
    result = (
        await Tellback(tb.store).user("maya").chat(model=model, tools=[make_pay_tool(paid)], approvals={"c1": True})
    )
    assert (result.ok, result.text, paid) == (True, "Paid.", [5])
    assert result.conversation_id == request.conversation_id
    assert result.message_id is None


async def test_a_late_approval_finds_its_conversation(tb: Tellback, maya: User) -> None:
    tb.clock = lambda: NOON
    paid: list[int] = []
    model = ScriptedModel([calls(ToolCall("c1", "pay", {"amount": 5})), says("Paid.")])
    await maya.chat("Pay 5", model=model, tools=[make_pay_tool(paid)])
    tb.clock = lambda: NOON + timedelta(hours=3)
    result = await maya.chat(model=model, tools=[make_pay_tool(paid)], approvals={"c1": True})
    assert (result.text, paid) == ("Paid.", [5])


async def test_an_approval_without_pending_calls_is_rejected_and_creates_nothing(maya: User) -> None:
    with pytest.raises(InvalidArgumentError, match="conversation_id"):
        await maya.chat(model=ECHO, approvals={"c1": True})
    assert await maya.conversations.list() == []


async def test_the_reply_is_returned_if_the_store_fails(
    tb: Tellback, maya: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("The store is gone.")

    await maya.chat("Hi", model=ECHO)
    for name, steps in (
        ("list_due", {"recall"}),
        ("begin_turn", {"store_user"}),
        ("append", {"store_reply"}),
        ("find_or_create", {"store_user"}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(tb.store.conversations, name, fails)
            reply = await maya.chat(name, model=ECHO)
        assert (reply.ok, reply.text) == (True, f"re: {name}")
        assert {problem.step for problem in reply.problems} == steps
    last_result = await maya.chat("End.", model=ECHO)
    assert await texts(maya, last_result.conversation_id) == [
        *("Hi", "re: Hi", "list_due", "re: list_due", "begin_turn", "re: begin_turn", "append", "End.", "re: End."),
    ]


async def test_errors_name_invalid_arguments_before_anything_is_stored(maya: User) -> None:
    wrong: list[dict[str, Any]] = [
        {"sytem": "Be kind."},
        {"namespace": ""},
        {"space": ""},
        {"memory_wait": -1},
        {"attachments": "cat.png"},
        {"options": 7},
        {"close_after": -1},
    ]
    for kwargs in wrong:
        with pytest.raises(Exception, match=next(iter(kwargs))):
            await maya.chat("Hi", **{"model": ECHO, **kwargs})
    with pytest.raises(InvalidArgumentError, match="text is missing"):
        await maya.chat(model=ECHO)
    with pytest.raises(InvalidArgumentError, match="sytem"):
        maya.chat_stream("Hi", sytem="Be kind.")  # type: ignore[call-arg]
    with pytest.raises(NotFoundError):
        await maya.chat("Hi", model=ECHO, conversation_id="conv_nothing")
    closed = await maya.conversations.create("chat")
    await maya.conversations.close(closed.id)
    with pytest.raises(ConversationClosedError):
        await maya.chat("Hi", model=ECHO, conversation_id=closed.id)
    assert all(conversation.last_seq == 0 for conversation in await maya.conversations.list())


async def test_chats_of_different_users_are_separate(tb: Tellback, maya: User) -> None:
    mayas_result = await maya.chat("My code is 1234.", model=ECHO)
    omars_result = await tb.user("omar").chat("What is the code?", model=ECHO)
    assert mayas_result.conversation_id != omars_result.conversation_id
    with pytest.raises(NotFoundError):
        await tb.user("omar").chat("Hi", model=ECHO, conversation_id=mayas_result.conversation_id)


def test_chats_work_in_synchronous_code(url: str) -> None:
    with Tellback(url, model=ECHO) as tb:
        maya = tb.user("maya")
        assert maya.chat("Hi").text == "re: Hi"
        items = list(maya.chat_stream("Well?"))
        assert (items[0], str(items[-1])) == (TextDelta("re: Well?"), "re: Well?")
        assert isinstance(items[-1], TurnResult)
        assert items[-1].messages[-1].seq == 4
