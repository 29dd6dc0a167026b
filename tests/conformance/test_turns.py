"""`run_turn` and `stream_turn`, on every kind of store."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from tellback import (
    ChatOptions,
    ChatRequest,
    ChatUsage,
    ConfigurationError,
    InvalidArgumentError,
    MessagePart,
    NotFoundError,
    StoredMessage,
    StreamStop,
    Tellback,
    TextDelta,
    ToolCall,
    TurnResult,
    message_text,
    tool,
)
from tellback.chat.history import is_valid_history
from tellback.errors import ConversationClosedError, ProviderOverloadedError, TurnConflictError
from tellback.testing import FunctionModel, ScriptedModel, answers, calls, raises, says
from tellback.types import ChatReply
from tellback.user import User


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


def roles(messages: Any) -> list[str]:
    return [message.role for message in messages]


async def test_a_turn_stores_everything_under_one_id(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    usage = ChatUsage(10, 5, 15, provider="scripted", model="scripted")
    with ScriptedModel([calls("add", x=17, y=25, usage=usage), says("It is 42.", usage=usage)]) as model:
        outcome = await conversations.run_turn(conversation.id, model=model, user_text="17 + 25?", tools=[add])
    assert (outcome.status, outcome.text, str(outcome)) == ("completed", "It is 42.", "It is 42.")
    assert roles(outcome.appended_messages) == ["user", "assistant", "tool", "assistant"]
    assert {m.turn_id for m in outcome.appended_messages} == {outcome.turn_id}
    assert [m.seq for m in outcome.appended_messages] == [1, 2, 3, 4]
    assert outcome.aggregate_usage.total_tokens == 30
    [invocation] = outcome.tool_invocations
    assert (invocation.name, invocation.arguments, invocation.content) == ("add", {"x": 17, "y": 25}, "42")
    assert outcome.total_latency_ms >= 0
    assert list(outcome.appended_messages) == await conversations.raw_turns(conversation.id)
    answer = outcome.appended_messages[-1]
    assert (answer.usage, answer.model, answer.provider, answer.stop_reason) == (
        *(usage, "scripted", "scripted", "end_turn"),
    )


async def test_the_history_is_the_tail_of_the_log(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    await conversations.append_system_message(conversation.id, "The user is a pilot.")
    await conversations.append_user_message(conversation.id, "I fly.")
    await conversations.append_system_message(conversation.id, "audit", visibility="hidden")
    await conversations.append_assistant_turn(conversation.id, "Nice.")
    with ScriptedModel([says("ok"), says("ok")]) as model:
        await conversations.run_turn(conversation.id, model=model, user_text="What do I do?")
        await conversations.run_turn(conversation.id, model=model, user_text="And now?", tail_limit=3)
    first = [(m.role, message_text(m)) for m in model.requests[0].messages]
    assert first == [
        ("system", "The user is a pilot."),
        ("user", "I fly."),
        ("assistant", "Nice."),
        ("user", "What do I do?"),
    ]
    second = [message_text(m) for m in model.requests[1].messages]
    assert second == ["What do I do?", "ok", "And now?"]


async def test_a_history_never_begins_with_tool_results(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    with ScriptedModel([calls("add", x=1, y=1), says("2"), says("end")]) as model:
        await conversations.run_turn(conversation.id, model=model, user_text="1 + 1?", tools=[add])
        await conversations.run_turn(conversation.id, model=model, user_text="Thanks", tail_limit=3)
    assert [message_text(m) for m in model.requests[2].messages] == ["2", "Thanks"]


async def test_provider_state_is_sent_back(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    signed = ChatReply("Hm.", meta={"anthropic": {"thinking": ["signed"]}})
    with ScriptedModel([signed, says("ok")]) as model:
        await conversations.run_turn(conversation.id, model=model, user_text="Think.")
        await conversations.run_turn(conversation.id, model=model, user_text="Again.")
    assert model.requests[1].messages[1].meta == {"anthropic": {"thinking": ["signed"]}}


async def test_content_may_contain_images_and_files(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    content = ["What is this?", {"type": "image", "url": "https://example.com/cat.png", "mimeType": "image/png"}]
    with ScriptedModel([says("A cat.")]) as model:
        outcome = await conversations.run_turn(conversation.id, model=model, content=content)
    assert model.requests[0].messages[0].parts is not None
    assert outcome.appended_messages[0].content[1]["mime_type"] == "image/png"


@pytest.mark.parametrize("is_async", [True, False])
async def test_tools_with_only_a_description_call_the_handler(maya: User, is_async: bool) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    seen: list[Any] = []

    def handler(name: str, arguments: dict[str, Any]) -> str:
        seen.append((name, arguments))
        return "shipped"

    async def async_handler(name: str, arguments: dict[str, Any]) -> str:
        return handler(name, arguments)

    lookup = {
        "name": "lookup",
        "description": "Find an order.",
        "parameters": {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]},
    }
    openai_style = {"type": "function", "function": {**lookup, "name": "lookup2"}}
    with ScriptedModel([calls("lookup", order=7), says("It shipped.")]) as model:
        outcome = await conversations.run_turn(
            conversation.id,
            model=model,
            user_text="Where is it?",
            tools=[lookup, openai_style],
            tool_handler=async_handler if is_async else handler,
        )
    assert seen == [("lookup", {"order": 7})]
    assert outcome.tool_invocations[0].content == "shipped"
    assert [t.name for t in model.requests[0].tools] == ["lookup", "lookup2"]


async def test_the_iteration_limit_ends_with_an_answer(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    with ScriptedModel([calls("add", x=1, y=1), calls("add", x=2, y=2), says("I got as far as 4.")]) as model:
        outcome = await conversations.run_turn(
            conversation.id, model=model, user_text="Go on", tools=[add], max_cycles=2
        )
    assert (outcome.status, outcome.text) == ("max_cycles", "I got as far as 4.")
    assert model.requests[2].tools == ()


async def test_options_reach_the_model(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    with ScriptedModel([says("a"), says("b"), answers({"city": "Rome"})]) as model:
        by_alias: Any = {"systemPrompt": "Be brief."}
        await conversations.run_turn(conversation.id, model=model, user_text="1", options=by_alias)
        await conversations.run_turn(
            conversation.id, user_text="2", options=ChatOptions(model=model, system="Be long.")
        )
        typed = await conversations.run_turn(
            conversation.id,
            model=model,
            user_text="3",
            options={"output_type": dict[str, str], "config": {"temperature": 0}},
        )
    assert [request.system for request in model.requests] == ["Be brief.", "Be long.", None]
    assert model.requests[2].config == {"temperature": 0}
    assert typed.output == {"city": "Rome"}


async def test_an_invalid_typed_answer_is_stored_with_its_correction(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    with ScriptedModel([says("not json"), answers([1])]) as model:
        outcome = await conversations.run_turn(
            conversation.id, model=model, user_text="?", options={"output_type": list[int]}
        )
    assert outcome.output == [1]
    messages = await conversations.raw_turns(conversation.id)
    assert [(m.role, m.visibility) for m in messages] == [
        *(("user", "user"), ("assistant", "user"), ("user", "internal"), ("assistant", "user")),
    ]
    with ScriptedModel([says("next")]) as model:
        await conversations.run_turn(conversation.id, model=model, user_text="go on", wait=0)


async def test_streaming_yields_deltas_and_then_the_result(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    with ScriptedModel([calls("add", x=1, y=2), says("Three.", chunks=2)]) as model:
        items = [
            item
            async for item in conversations.stream_turn(conversation.id, model=model, user_text="1 + 2?", tools=[add])
        ]
    assert "".join(item.text for item in items if isinstance(item, TextDelta)) == "Three."
    outcome = items[-1]
    assert isinstance(outcome, TurnResult)
    assert list(outcome.appended_messages) == await conversations.raw_turns(conversation.id)


async def test_messages_are_stored_as_they_complete(tb: Tellback, maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    seen: list[list[str]] = []
    release = asyncio.Event()

    async def quick() -> str:
        return "quick"

    async def slow() -> str:
        await release.wait()
        return "slow"

    async def look() -> None:
        async for event in tb.events.subscribe(types=["message.appended"]):
            if event.data["role"] == "tool":
                seen.append(roles(await conversations.raw_turns(conversation.id)))
                release.set()
                return

    tool_calls = calls(ToolCall("a", "slow"), ToolCall("b", "quick"))
    with ScriptedModel([tool_calls, says("done")]) as model:
        watch_task = asyncio.create_task(look())
        outcome = await conversations.run_turn(conversation.id, model=model, user_text="go", tools=[quick, slow])
        await watch_task
    assert seen == [["user", "assistant", "tool"]]
    stored = await conversations.raw_turns(conversation.id)
    assert [m.text for m in stored] == ["go", "", "quick", "slow", "done"]
    assert [i.content for i in outcome.tool_invocations] == ["slow", "quick"]
    assert is_valid_history([message for entry in stored for message in entry.messages])


async def test_a_conversation_continues_after_a_failing_provider(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    failing = ScriptedModel([calls("add", x=1, y=2), raises(ProviderOverloadedError("too busy"))])
    with pytest.raises(ProviderOverloadedError):
        await conversations.run_turn(conversation.id, model=failing, user_text="1 + 2?", tools=[add])
    assert roles(await conversations.raw_turns(conversation.id)) == ["user", "assistant", "tool"]
    with ScriptedModel([says("Three, as I said.")]) as model:
        await conversations.run_turn(conversation.id, model=model, user_text="Well?", wait=0)
    assert roles(model.requests[0].messages) == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize("streaming", [False, True])
async def test_cancelling_ends_the_turn_immediately_and_the_next_one_runs(maya: User, streaming: bool) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    turn_started = asyncio.Event()

    async def hang() -> str:
        turn_started.set()
        await asyncio.sleep(60)
        return "never"

    async def turn() -> None:
        model = ScriptedModel([calls("hang"), says("never")])
        if streaming:
            async for _ in conversations.stream_turn(conversation.id, model=model, user_text="wait", tools=[hang]):
                pass
        else:
            await conversations.run_turn(conversation.id, model=model, user_text="wait", tools=[hang])

    running = asyncio.create_task(turn())
    await asyncio.wait_for(turn_started.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with ScriptedModel([says("Here I am.")]) as model:
        await conversations.run_turn(conversation.id, model=model, user_text="Still there?", wait=5)
    assert is_valid_history(model.requests[0].messages)
    assert roles(model.requests[0].messages) == ["user", "assistant", "tool", "user"]
    assert "interrupted" in message_text(model.requests[0].messages[2])


async def test_closing_a_stream_ends_the_turn(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    stream = conversations.stream_turn(
        conversation.id, model=ScriptedModel([says("A long story", chunks=1)]), user_text="Tell me"
    )
    assert await anext(stream) == TextDelta("A")
    await stream.aclose()
    assert roles(await conversations.raw_turns(conversation.id)) == ["user"]
    await conversations.run_turn(conversation.id, model=ScriptedModel([says("ok")]), user_text="Stop.", wait=0)


async def test_concurrent_turns_run_in_order(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")

    async def echo(request: ChatRequest) -> str:
        await asyncio.sleep(0.005)
        return f"re: {message_text(request.messages[-1])}"

    model = FunctionModel(echo)
    outcomes = await asyncio.gather(
        *(conversations.run_turn(conversation.id, model=model, user_text=str(n)) for n in range(8)),
    )
    texts = [m.text for m in await conversations.raw_turns(conversation.id)]
    assert texts == [text for n in range(8) for text in (str(n), f"re: {n}")]
    assert [str(outcome) for outcome in outcomes] == [f"re: {n}" for n in range(8)]


async def test_a_turn_with_wait_zero_raises_a_conflict(tb: Tellback, maya: User) -> None:
    conversations = maya.conversations
    conversation, other = await conversations.create("chat"), await conversations.create("chat")
    release, turn_started = asyncio.Event(), asyncio.Event()

    async def answer(request: ChatRequest) -> str:
        turn_started.set()
        await release.wait()
        return "done"

    model = FunctionModel(answer)
    first = asyncio.create_task(conversations.run_turn(conversation.id, model=model, user_text="first"))
    await asyncio.wait_for(turn_started.wait(), 10)
    [chat_request] = await conversations.raw_turns(conversation.id)
    with pytest.raises(TurnConflictError, match=chat_request.turn_id) as caught:
        await conversations.run_turn(conversation.id, model=model, user_text="second", wait=0)
    assert caught.value.turn_id == chat_request.turn_id
    with pytest.raises(TurnConflictError):
        await tb.user("maya").conversations.run_turn(conversation.id, model=model, user_text="third", wait=0.05)
    release.set()
    await conversations.run_turn(other.id, model=model, user_text="elsewhere", wait=0)
    await first
    assert [m.text for m in await conversations.raw_turns(conversation.id)] == ["first", "done"]


async def test_a_turn_of_another_store_object_waits_too(url: str, tb: Tellback, maya: User) -> None:
    if url == ":memory:":
        pytest.skip("an in-memory store can be opened only once")
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    release, turn_started = asyncio.Event(), asyncio.Event()

    async def answer(request: ChatRequest) -> str:
        turn_started.set()
        await release.wait()
        return f"re: {message_text(request.messages[-1])}"

    model = FunctionModel(answer)
    async with Tellback(url) as second:
        other_conversations = second.user("maya").conversations
        first = asyncio.create_task(conversations.run_turn(conversation.id, model=model, user_text="here"))
        await asyncio.wait_for(turn_started.wait(), 10)
        with pytest.raises(TurnConflictError):
            await other_conversations.run_turn(conversation.id, model=model, user_text="there", wait=0.1)
        waiting = asyncio.create_task(other_conversations.run_turn(conversation.id, model=model, user_text="there"))
        await asyncio.sleep(0.05)
        release.set()
        await asyncio.gather(first, waiting)
    assert [m.text for m in await conversations.raw_turns(conversation.id)] == [
        "here",
        "re: here",
        "there",
        "re: there",
    ]


async def test_two_tellbacks_on_one_store_take_turns(tb: Tellback, maya: User) -> None:
    conversation = await maya.conversations.create("chat")
    other = Tellback(tb.store).user("maya").conversations
    running = max_running = 0

    async def answer(request: ChatRequest) -> str:
        nonlocal running, max_running
        running += 1
        max_running = max(max_running, running)
        await asyncio.sleep(0.02)
        running -= 1
        return "ok"

    model = FunctionModel(answer)
    handles = (maya.conversations, other)
    await asyncio.gather(*(handles[n % 2].run_turn(conversation.id, model=model, user_text=str(n)) for n in range(6)))
    assert max_running == 1


async def test_a_cancelled_turn_that_ends_late_does_not_end_its_retry(
    tb: Tellback, maya: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    log = tb.store.conversations
    end_turn, release, turn_started = log.end_turn, asyncio.Event(), asyncio.Event()

    async def end_turn_late(*args: Any) -> None:
        await release.wait()
        await end_turn(*args)

    async def answer(request: ChatRequest) -> str:
        turn_started.set()
        await asyncio.sleep(60)
        return "never"

    async def quick(request: ChatRequest) -> str:
        release.set()
        await drain_jobs()
        with pytest.raises(TurnConflictError):
            await Tellback(tb.store).user("maya").conversations.run_turn(conversation.id, "m", "third", wait=0)
        return "done"

    async def drain_jobs() -> None:
        await tb.jobs.drain()

    monkeypatch.setattr(log, "end_turn", end_turn_late)
    first = asyncio.create_task(
        conversations.run_turn(conversation.id, FunctionModel(answer), "Hi", idempotency_key="k")
    )
    await asyncio.wait_for(turn_started.wait(), 10)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    # The retry belongs to the same turn and takes over its claim, so the first attempt no longer owns it.
    assert (
        str(await conversations.run_turn(conversation.id, FunctionModel(quick), "Hi", idempotency_key="k", wait=5))
        == "done"
    )


async def test_closing_during_a_turn_releases_its_claim(url: str, tb: Tellback, maya: User) -> None:
    if url == ":memory:":
        pytest.skip("an in-memory store loses its data when it is closed")
    conversation = await maya.conversations.create("chat")
    turn_started = asyncio.Event()

    async def answer(request: ChatRequest) -> str:
        turn_started.set()
        await asyncio.sleep(60)
        return "never"

    second_tb = await Tellback(url).open()
    turn = asyncio.create_task(
        second_tb.user("maya").conversations.run_turn(conversation.id, FunctionModel(answer), "Hi")
    )
    await asyncio.wait_for(turn_started.wait(), 10)
    await second_tb.close()
    assert str(await maya.conversations.run_turn(conversation.id, ScriptedModel([says("ok")]), "Well?", wait=0)) == "ok"
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)


async def test_a_turn_finishes_in_a_conversation_closed_in_the_meantime(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")

    async def close() -> str:
        await conversations.close(conversation.id)
        return "closed"

    outcome = await conversations.run_turn(
        conversation.id, ScriptedModel([calls("close"), says("Done.")]), "Close it", tools=[close]
    )
    assert [m.text for m in await conversations.raw_turns(conversation.id)] == ["Close it", "", "closed", "Done."]
    assert outcome.status == "completed"
    with pytest.raises(ConversationClosedError):
        await conversations.append_user_message(conversation.id, "more")


async def test_the_reply_is_stored_before_the_stream_stops(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    stream = conversations.stream_turn(conversation.id, ScriptedModel([says("Hello!")]), "Hi")
    async for item in stream:
        if isinstance(item, StreamStop):
            break
    await stream.aclose()
    assert [m.text for m in await conversations.raw_turns(conversation.id)] == ["Hi", "Hello!"]


async def test_a_tool_may_return_unknown_content_types(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")

    async def film() -> MessagePart:
        return MessagePart("video", url="https://example.com/v.mp4")

    with ScriptedModel([calls("film"), says("Seen."), says("ok")]) as model:
        await conversations.run_turn(conversation.id, model, "Film it", tools=[film])
        await conversations.run_turn(conversation.id, model, "And?")
    assert model.requests[2].messages[2].parts == (MessagePart("video", url="https://example.com/v.mp4"),)
    assert (await conversations.refresh_rolling_summary(conversation.id)).outcome == "refreshed"


async def test_a_retry_with_the_same_key_answers_the_stored_message_again(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    with ScriptedModel([says("first"), says("second")]) as model:
        first = await conversations.run_turn(conversation.id, model=model, user_text="Hi", idempotency_key="k")
        second = await conversations.run_turn(conversation.id, model=model, user_text="Hi", idempotency_key="k")
    assert first.appended_messages[0] == second.appended_messages[0]
    assert first.turn_id == second.turn_id
    assert [m.text for m in await conversations.raw_turns(conversation.id)] == ["Hi", "first", "second"]
    assert [message_text(m) for m in model.requests[1].messages] == ["Hi"]


async def test_a_retry_of_an_interrupted_turn_continues_after_its_tools(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    runs: list[int] = []

    def book(flight: int) -> str:
        runs.append(flight)
        return "booked"

    failing = ScriptedModel([calls("book", flight=7), raises(ProviderOverloadedError("too busy"))])
    with pytest.raises(ProviderOverloadedError):
        await conversations.run_turn(
            conversation.id, model=failing, user_text="Book 7", tools=[book], idempotency_key="k"
        )
    with ScriptedModel([says("Booked.")]) as model:
        await conversations.run_turn(
            conversation.id, model=model, user_text="Book 7", tools=[book], idempotency_key="k"
        )
    assert runs == [7]
    assert roles(model.requests[0].messages) == ["user", "assistant", "tool"]
    assert roles(await conversations.raw_turns(conversation.id)) == ["user", "assistant", "tool", "assistant"]


async def test_a_late_retry_does_not_see_later_messages(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    with ScriptedModel([says("a"), says("b"), says("c")]) as model:
        await conversations.run_turn(conversation.id, model=model, user_text="one", idempotency_key="k")
        await conversations.run_turn(conversation.id, model=model, user_text="two")
        await conversations.run_turn(conversation.id, model=model, user_text="one", idempotency_key="k")
    assert [message_text(m) for m in model.requests[2].messages] == ["one"]


async def test_a_call_that_needs_approval_is_stored_as_pending(tb: Tellback, maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    outcome = await conversations.run_turn(
        conversation.id, model=ScriptedModel([calls("pay", amount=5)]), user_text="Pay 5", tools=[pay]
    )
    assert outcome.status == "approval"
    [pending] = outcome.pending
    assert outcome.tool_invocations[0].content is None
    assert paid == []
    with ScriptedModel([says("Paid.")]) as model:
        approved_outcome = await tb.user("maya").conversations.run_turn(
            conversation.id, model=model, tools=[pay], approvals={pending.id: True}
        )
    assert (approved_outcome.status, approved_outcome.text, paid) == ("completed", "Paid.", [5])
    assert approved_outcome.turn_id == outcome.turn_id
    stored = await conversations.raw_turns(conversation.id)
    assert roles(stored) == ["user", "assistant", "tool", "assistant"]
    assert len({m.turn_id for m in stored}) == 1


async def test_the_default_model_is_used_without_a_model_argument(url: str) -> None:
    async with Tellback(url, model=ScriptedModel([says("Hello!")])) as tb:
        conversations = tb.user("maya").conversations
        conversation = await conversations.create("chat")
        assert str(await conversations.run_turn(conversation.id, user_text="Hi")) == "Hello!"


async def test_without_a_model_the_offline_model_answers_and_is_recorded(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    outcome = await conversations.run_turn(conversation.id, user_text="Where do I live?")
    assert outcome.text.startswith("I found nothing about that in your memory.")
    [_, reply] = await conversations.raw_turns(conversation.id)
    assert (reply.model, reply.provider) == ("offline", "offline")


@pytest.mark.parametrize(
    ("kwargs", "error", "problem"),
    [
        ({"model": "m", "user_text": "Hi", "content": "Hi"}, InvalidArgumentError, "not both"),
        ({"model": "m"}, InvalidArgumentError, "the message is missing"),
        ({"model": "m", "user_text": "Hi", "approvals": {}}, InvalidArgumentError, "without user_text"),
        ({"model": "m", "user_text": "Hi", "provider": "nobody"}, ConfigurationError, "Unknown provider 'nobody'"),
        ({"model": "m", "user_text": "Hi", "options": {"temprature": 0}}, InvalidArgumentError, "temprature"),
        ({"model": "m", "user_text": "Hi", "tools": [{"name": "x"}]}, InvalidArgumentError, "tool_handler"),
        ({"model": "m", "user_text": "Hi", "tools": [{}]}, InvalidArgumentError, "needs a name"),
        ({"model": "m", "user_text": "Hi", "max_cycles": 0}, InvalidArgumentError, "max_cycles"),
        ({"model": "m", "user_text": "Hi", "tail_limit": 0}, InvalidArgumentError, "tail_limit"),
    ],
)
async def test_invalid_arguments_are_rejected_before_anything_is_stored(
    maya: User, kwargs: dict[str, Any], error: type[Exception], problem: str
) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    with pytest.raises(error, match=problem):
        await conversations.run_turn(conversation.id, **kwargs)
    assert await conversations.raw_turns(conversation.id) == []


async def test_the_provider_argument_serves_any_model_name(maya: User) -> None:
    from tellback.chat import ProviderRegistration, with_providers

    async def chat(model: str, messages: Any, system: Any, tools: Any) -> str:
        return f"{model} here"

    entry = ProviderRegistration("house", lambda name: False, "House", chat_fn=chat)
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    outcome = await conversations.run_turn(
        conversation.id, "claude-lookalike", "Hi", provider="house", options={"providers": with_providers([entry])}
    )
    assert str(outcome) == "claude-lookalike here"


async def test_turns_on_closed_or_unknown_conversations_are_rejected(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    await conversations.close(conversation.id)
    model = ScriptedModel([])
    with pytest.raises(ConversationClosedError):
        await conversations.run_turn(conversation.id, model=model, user_text="Hi")
    with pytest.raises(NotFoundError):
        await conversations.run_turn("conv_nothing", model=model, user_text="Hi")


async def test_a_result_that_cannot_be_stored_does_not_stop_the_other_tools(
    tb: Tellback, maya: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    finished: list[str] = []

    async def first() -> str:
        return "first"

    async def second() -> str:
        await asyncio.sleep(0.05)
        finished.append("second")
        return "second"

    from tellback.errors import StoreUnavailableError

    store = tb.store.conversations
    append = store.append

    async def failing(scope: Any, id: str, turns: Any, **kwargs: Any) -> Any:
        if turns[0].messages[0].role == "tool" and not finished:
            raise StoreUnavailableError("gone")
        return await append(scope, id, turns, **kwargs)

    monkeypatch.setattr(store, "append", failing)
    model = ScriptedModel([calls(ToolCall("a", "first"), ToolCall("b", "second"))])
    with pytest.raises(StoreUnavailableError):
        await conversations.run_turn(conversation.id, model=model, user_text="go", tools=[first, second])
    assert finished == ["second"]
    assert [m.text for m in await conversations.raw_turns(conversation.id)] == ["go", "", "second"]


async def test_many_concurrent_turns_and_cancellations_leave_a_valid_log(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")

    async def answer(request: ChatRequest) -> Any:
        assert is_valid_history(request.messages)
        await asyncio.sleep(0.002)
        if request.messages[-1].role == "user":
            return calls("add", x=1, y=1)
        return says("2")

    model = FunctionModel(answer)
    turns = [
        asyncio.create_task(conversations.run_turn(conversation.id, model=model, user_text=str(n), tools=[add]))
        for n in range(12)
    ]
    for n, turn in enumerate(turns):
        if n % 3 == 0:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(turn), 0.01)
            turn.cancel()
    await asyncio.gather(*turns, return_exceptions=True)
    stored: list[StoredMessage] = await conversations.raw_turns(conversation.id)
    assert [m.seq for m in stored] == list(range(1, len(stored) + 1))
    order = [m.turn_id for m in stored]
    assert [id for n, id in enumerate(order) if n == 0 or order[n - 1] != id] == list(dict.fromkeys(order))
    await conversations.run_turn(conversation.id, model=model, user_text="last", tools=[add], wait=5)
