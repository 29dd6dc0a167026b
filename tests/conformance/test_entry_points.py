"""Every entry point runs the same turn: recall returns only what was stored before the message."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from tellback import ChatOptions, ChatRequest, Identity, Session, Tellback, Tool, TurnConfig, TurnInput, User, request
from tellback.agent import Agent, ToolContext, ToolUpdate, create_session, define_tool
from tellback.errors import StoreBusyError
from tellback.stores import ConversationLog
from tellback.testing import FunctionModel, ScriptedModel, calls, says, understands
from tellback.turn import run_chat_turn
from tellback.turns.engine import TurnEngine
from tellback.types.conversations import TurnResult

STATEMENT = "My passport is in the blue suitcase."

EntryPoint = Callable[[User, str, ScriptedModel, str], Awaitable[Any]]


async def by_run_turn(user: User, space_id: str, model: ScriptedModel, text: str) -> None:
    conversation = await user.conversations.find_or_create("entry")
    await user.conversations.run_turn(conversation.id, model, text, memory_space_id=space_id)


async def by_stream_turn(user: User, space_id: str, model: ScriptedModel, text: str) -> None:
    conversation = await user.conversations.find_or_create("entry")
    async for _ in user.conversations.stream_turn(conversation.id, model, text, memory_space_id=space_id):
        pass


async def by_run_chat_turn(user: User, space_id: str, model: ScriptedModel, text: str) -> None:
    cfg = TurnConfig(user, "entry", chat_opts=ChatOptions(model=model))
    turn_input = TurnInput(Session("s"), Identity("maya"), text, recall_opts={"space_id": space_id, "min_score": 0})
    await run_chat_turn(cfg, turn_input)


async def by_chat(user: User, space_id: str, model: ScriptedModel, text: str) -> None:
    await user.chat(text, namespace="entry", space="notes", model=model)


async def by_chat_stream(user: User, space_id: str, model: ScriptedModel, text: str) -> None:
    async for _ in user.chat_stream(text, namespace="entry", space="notes", model=model):
        pass


async def by_agent(user: User, space_id: str, model: ScriptedModel, text: str) -> None:
    conversation = await user.conversations.find_or_create("entry")
    agent_input = {"userMessage": text}
    await user.agents.invoke(
        "entry", agent_input, conversation_id=conversation.id, model=model, memory_space_id=space_id
    )


async def by_respond(user: User, space_id: str, model: ScriptedModel, text: str) -> None:
    agent = Agent("entry", model=model, memory=user, memory_options={"space": "notes"})
    await agent.respond(text, create_session("s"))


async def by_respond_stream(user: User, space_id: str, model: ScriptedModel, text: str) -> None:
    agent = Agent("entry", model=model, memory=user, memory_options={"space": "notes"})
    async for _ in agent.respond_stream(text, create_session("s")):
        pass


AGENTS: list[EntryPoint] = [by_respond, by_respond_stream]
ENTRY_POINTS: list[EntryPoint] = [
    by_run_turn,
    by_stream_turn,
    by_run_chat_turn,
    by_chat,
    by_chat_stream,
    by_agent,
    *AGENTS,
]
IN_A_SESSION: list[EntryPoint] = [by_run_chat_turn, *AGENTS]


@pytest.fixture
def instant_memory(tb: Tellback, monkeypatch: pytest.MonkeyPatch) -> Callable[[User, str], None]:
    """Remember each stored message immediately, so that a recall after storing would return the message itself."""

    def remember_at_once(user: User, space_id: str) -> None:
        log: ConversationLog = tb.store.conversations
        original_begin_turn = log.begin_turn

        async def begin_turn(scope: Any, id: str, *args: Any, **kwargs: Any) -> Any:
            result = await original_begin_turn(scope, id, *args, **kwargs)
            await user.memory.remember_conversation(space_id, id)
            return result

        monkeypatch.setattr(log, "begin_turn", begin_turn)

    return remember_at_once


@pytest.mark.parametrize("entry_point", ENTRY_POINTS, ids=lambda entry_point: entry_point.__name__)
async def test_a_message_never_recalls_itself(
    tb: Tellback, entry_point: EntryPoint, instant_memory: Callable[[User, str], None]
) -> None:
    user = tb.user("maya")
    tb.register_agent({"name": "entry"})
    space = await user.memory.create_space("notes")
    instant_memory(user, space.id)
    model = ScriptedModel([says("Noted."), says("Fine."), says("In the blue suitcase.")])
    await entry_point(user, space.id, model, STATEMENT)
    assert STATEMENT not in (model.requests[0].system or "")
    assert str(model.requests[0].messages[-1].content) == STATEMENT

    # Check that the memory exists: it is recalled in a conversation whose history does not contain the turn.
    conversation = await user.conversations.find("entry", "s" if entry_point in IN_A_SESSION else None)
    assert conversation is not None
    await user.conversations.close(conversation.id)
    await entry_point(user, space.id, model, "What colour is the suitcase with my passport?")
    assert STATEMENT in (model.requests[1].system or "")


@pytest.mark.parametrize("ask", AGENTS, ids=lambda entry_point: entry_point.__name__)
async def test_the_current_message_is_not_in_the_routing_prompt_twice(
    tb: Tellback, ask: EntryPoint, instant_memory: Callable[[User, str], None]
) -> None:
    """The message is only the last message of each request; it is not recalled for understanding or for the reply."""
    user = tb.user("maya")
    space = await user.memory.create_space("notes")
    instant_memory(user, space.id)
    model = ScriptedModel([understands(), says("Noted.")])
    agent = Agent("entry", model=model, memory=user, memory_options={"space": "notes"})
    agent.create_route("Travel", conditions=["the user wants to travel"]).initial_state.transition_to(chat_state="Ask")
    if ask is by_respond:
        await agent.respond(STATEMENT)
    else:
        assert [chunk.done async for chunk in agent.respond_stream(STATEMENT)][-1]
    reading, reply = model.requests
    assert STATEMENT not in f"{reading.system}{reply.system}"
    assert [str(message.content).count(STATEMENT) for message in reading.messages] == [1]
    assert [str(message.content) for message in reply.messages] == [STATEMENT]


async def test_all_entry_points_use_one_engine(tb: Tellback, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation_ids: list[str | None] = []
    original_open = TurnEngine._open

    def counting_open(self: TurnEngine, request: Any) -> Any:
        conversation_ids.append(request.conversation_id)
        return original_open(self, request)

    monkeypatch.setattr(TurnEngine, "_open", counting_open)
    user = tb.user("maya")
    tb.register_agent({"name": "entry"})
    space = await user.memory.create_space("notes")
    for count, entry_point in enumerate(ENTRY_POINTS, start=1):
        await entry_point(user, space.id, ScriptedModel([says("Yes.")]), "Is it on?")
        assert len(conversation_ids) == count


def test_two_hundred_concurrent_turns_have_separate_requests() -> None:
    """Two hundred users, all entry points, and tools on the event loop, in threads and in separate tasks."""
    asyncio.run(_run_concurrent_turns())


async def _run_concurrent_turns() -> None:
    seen: Counter[str] = Counter()

    def found() -> dict[str, Any]:
        current_request = request.current()
        assert current_request.session is not None
        assert current_request.sender is not None
        name = current_request.sender.user_id
        seen[name] += 1
        return {"session": current_request.session.id, "sender": name, "extras": dict(current_request.extras)}

    async def on_the_loop(session: str, sender: str) -> dict[str, Any]:
        """Return the sender after a while; the arguments from the model are ignored."""
        await asyncio.sleep(random.random() / 50)
        return found()

    def in_a_thread(session: str, sender: str) -> dict[str, Any]:
        time.sleep(random.random() / 100)
        return found()

    async def in_a_task(session: str, sender: str) -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(on_the_loop(session, sender))
        return task.result()

    def answer(chat_request: ChatRequest) -> Any:
        if chat_request.messages[-1].role == "tool":
            return says("\n".join(str(message.content) for message in chat_request.messages if message.role == "tool"))
        return combine_calls(*(calls(each.name, session="spoofed", sender="mallory") for each in chat_request.tools))

    tools = [Tool.from_fn(each) for each in (on_the_loop, in_a_thread, in_a_task)]
    model = FunctionModel(answer)
    async with Tellback(":memory:", model=model, embedder=None, worker=False) as tb:
        agent = Agent("crowd", memory=tb, tools=tools, memory_options={"tools": False})

        async def turn(number: int) -> str:
            name = f"user-{number}"
            user, sender, extras = tb.user(name), Identity(name), {"number": number}
            session = Session(f"session-{number}")
            if number % 6 == 0:
                conversation = await user.conversations.create("crowd")
                kwargs: dict[str, Any] = {"session": session, "sender": sender, "extras": extras}
                outcome = await user.conversations.run_turn(conversation.id, user_text="Who?", tools=tools, **kwargs)
                return outcome.text
            if number % 6 == 1:
                conversation = await user.conversations.create("crowd")
                kwargs = {"session": session, "sender": sender, "extras": extras}
                async for item in user.conversations.stream_turn(
                    conversation.id, user_text="Who?", tools=tools, **kwargs
                ):
                    await asyncio.sleep(0)
                    assert request.sender() is None
                    last = item
                assert isinstance(last, TurnResult)
                return last.text
            if number % 6 == 2:
                cfg = TurnConfig(user, "crowd", chat_opts=ChatOptions(model=model, tools=tools))
                return (await run_chat_turn(cfg, TurnInput(session, sender, "Who?", ctx_extras=extras))).text
            if number % 6 == 3:
                kwargs = {"user": user, "sender": sender, "extras": extras}
                return (await agent.respond("Who?", create_session(session.id), **kwargs)).message
            if number % 6 == 4:
                kwargs = {"user": name, "sender": sender, "extras": extras}
                async for chunk in agent.respond_stream("Who?", create_session(session.id), **kwargs):
                    await asyncio.sleep(0)
                    assert request.sender() is None
                    reply_text = chunk.accumulated
                return reply_text
            return (await user.chat("Who?", tools=tools, session_id=session.id, sender=sender, extras=extras)).text

        answers = await asyncio.gather(*map(turn, range(200)))
    for number, text in enumerate(answers):
        expected = f'{{"session":"session-{number}","sender":"user-{number}","extras":{{"number":{number}}}}}'
        assert [line.replace(" ", "") for line in text.splitlines()] == [expected] * 3
    assert seen == Counter({f"user-{number}": 3 for number in range(200)})


def test_two_hundred_concurrent_turns_of_one_agent_have_separate_contexts() -> None:
    """Two hundred users, with tools run by states and called by the model, and a flow that gathers data."""
    asyncio.run(_run_concurrent_agent_turns())


async def _run_concurrent_agent_turns() -> None:
    def found(ctx: ToolContext, *numbers: int) -> str:
        sender, session = request.sender(), request.session()
        assert sender is not None
        assert session is not None
        names = {sender.user_id, ctx.context["name"], ctx.session.metadata["user_id"]}
        sessions = {session.id, ctx.session.id}
        return f"{sorted(names)} {sorted(sessions)} {sorted({*numbers, ctx.data['number']})}"

    async def state_tool(ctx: ToolContext, number: int) -> ToolUpdate:
        """Return the sender after a while."""
        await asyncio.sleep(random.random() / 50)
        value = found(ctx, number)
        return ToolUpdate(value, context={"seen": value})

    def model_tool(ctx: ToolContext) -> str:
        """Return the sender in a thread."""
        time.sleep(random.random() / 100)
        return f"{found(ctx)} {ctx.session.context['seen']}"

    def answer(chat_request: ChatRequest) -> Any:
        if chat_request.output_schema is not None:
            [number] = re.findall(r"I am number (\d+)\.", str(chat_request.messages[-1].content))
            return understands(number=int(number))(chat_request)
        if chat_request.messages[-1].role == "tool":
            return says(str(chat_request.messages[-1].content), chunks=5)
        return calls("by_the_model")

    async with Tellback(":memory:", embedder=None, worker=False) as tb:
        agent = Agent(
            "crowd",
            model=FunctionModel(answer),
            context=lambda session: {"name": session.metadata["user_id"]},
            memory=tb,
            memory_options={"tools": False},
            tools=[define_tool("by_the_model", model_tool)],
        )
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
        ask = agent.create_route("Tell", gather_schema=schema).initial_state.transition_to(
            chat_state="Ask who it is", gather=["number"]
        )
        ask.transition_to(tool_state=define_tool("by_a_state", state_tool)).transition_to(chat_state="Tell")

        async def turn(number: int) -> tuple[str, Any]:
            session = create_session(f"session-{number}", {"user_id": f"user-{number}"})
            if number % 2:
                response = await agent.respond(f"I am number {number}.", session)
                return response.message, response.session
            async for chunk in agent.respond_stream(f"I am number {number}.", session):
                await asyncio.sleep(0)
                assert request.current().agent is None
                last = chunk
            return last.accumulated, last.session

        answers = await asyncio.gather(*map(turn, range(200)))
    for number, (text, session) in enumerate(answers):
        expected = f"['user-{number}'] ['session-{number}'] [{number}]"
        assert text == f"{expected} {expected}"
        assert (session.id, dict(session.extracted)) == (f"session-{number}", {"number": number})
        assert dict(session.context) == {"seen": expected}


def combine_calls(*steps: Any) -> Any:
    from tellback import ChatReply

    tool_calls = [call for step in steps for call in step.reply.tool_calls]
    return ChatReply("", tool_calls=tuple(tool_calls), stop_reason="tool_use")


async def test_results_of_every_entry_point_can_be_converted_to_json(tb: Tellback) -> None:
    user = tb.user("maya")
    conversation = await user.conversations.create("entry")
    tb.register_agent({"name": "entry"})

    def look_up(order: int) -> str:
        return f"order {order} was sent"

    def model() -> ScriptedModel:
        return ScriptedModel([calls("look_up", order=7), says("It was sent.")])

    agent = Agent("entry", model=model(), memory=user, tools=[Tool.from_fn(look_up)])
    results = [
        await user.conversations.run_turn(conversation.id, model(), "My order?", tools=[look_up]),
        await user.chat("My order?", model=model(), tools=[look_up]),
        await run_chat_turn(
            TurnConfig(user, "entry", chat_opts=ChatOptions(model=model(), tools=[look_up])),
            TurnInput(Session("s"), Identity("maya"), "My order?"),
        ),
        (await agent.respond("My order?", create_session("s2"))).result,
    ]
    for result in results:
        assert isinstance(result, TurnResult)
        decoded = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert (decoded["ok"], decoded["text"], decoded["status"]) == (True, "It was sent.", "completed")
        assert decoded["conversation_id"].startswith("conv_")
        assert decoded["tool_invocations"][0]["arguments"] == {"order": 7}
        assert decoded["model_calls"] == 2
        assert decoded["problems"] == []
        assert decoded["atoms_used"] == []
        assert decoded["usage"]["total_tokens"] == result.usage.total_tokens
    stored = [message["role"] for message in results[0].to_dict()["messages"]]
    assert stored == ["user", "assistant", "tool", "assistant"]
    assert results[0].message_id == results[0].messages[0].id
    assert results[3].trace is not None


async def test_problems_of_a_turn_can_be_converted_to_json(tb: Tellback, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise StoreBusyError("the store is busy")

    monkeypatch.setattr(tb.store.conversations, "append", fail)
    result = await tb.user("maya").chat("Hi!", model=ScriptedModel(["Hello."]))
    assert result.to_dict()["problems"][0] == {"step": "store_reply", "error": "StoreBusyError: the store is busy"}


class Order(BaseModel):
    number: int


async def test_a_typed_output_is_converted_to_a_json_object_of_its_fields(tb: Tellback) -> None:
    result = await tb.user("maya").chat(
        "My order?", model=ScriptedModel(['{"number": 7}']), options={"output_type": Order}
    )
    assert result.output == Order(number=7)
    assert result.to_dict()["output"] == {"number": 7}


async def test_the_response_of_an_agent_contains_the_result_of_its_turn(tb: Tellback) -> None:
    user = tb.user("maya")
    cut = says("This is where it", stop_reason="max_tokens")
    agent = Agent("entry", model=ScriptedModel([cut]), memory=user)
    result = (await agent.respond("Tell me all.", create_session("s"))).result
    assert (result.status, result.stop_reason) == ("truncated", "max_tokens")
    assert [message.role for message in result.messages] == ["user", "assistant"]
    assert result.message_id == result.messages[0].id
    assert result.turn_id == result.messages[0].turn_id


async def test_invoke_creates_the_conversation_before_the_turn(tb: Tellback) -> None:
    start, ticks = tb.clock(), itertools.count()
    tb.clock = lambda: start + timedelta(seconds=next(ticks))
    tb.register_agent({"name": "entry"})
    user = tb.user("maya")
    result = await user.agents.invoke("entry", {"userMessage": "Hi."}, model=ScriptedModel(["Hello."]))
    conversation = await user.conversations.get(result.conversation_id or "")
    assert conversation is not None
    assert conversation.created_at < result.messages[0].created_at
