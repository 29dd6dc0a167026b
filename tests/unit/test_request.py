"""The request data that tools can read, for every kind of tool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tellback import ChatOptions, Tellback, TextDelta, request
from tellback.testing import FunctionModel, ScriptedModel, calls, says
from tellback.turn import TurnConfig, TurnInput, run_chat_turn
from tellback.types import ToolCall
from tellback.types.conversations import Identity, Session
from tellback.user import User

MAYA = Identity("maya", "Maya", {"role": "admin"})


@pytest.fixture
async def maya() -> AsyncIterator[User]:
    async with Tellback(":memory:", embedder=None, worker=False, summary_every=None) as tb:
        yield tb.user("maya")


def current_request() -> tuple[Any, ...]:
    now = request.current()
    return request.session(), request.sender(), dict(request.extras()), now.conversation_id, now.message_id


NO_REQUEST: tuple[Any, ...] = (None, None, {}, None, None)


def make_config(user: User, *steps: Any, tools: list[Any]) -> TurnConfig:
    return TurnConfig(user, "helper", chat_opts=ChatOptions(model=ScriptedModel(steps), tools=tools))


def turn_input(session: str = "web", **fields: Any) -> TurnInput:
    return TurnInput(Session(session), MAYA, "Hi", ctx_extras={"plan": "pro"}, **fields)


def test_outside_a_turn_everything_is_empty() -> None:
    assert current_request() == NO_REQUEST
    assert request.current() == request.Request()


def test_a_binding_applies_to_its_block() -> None:
    with request.bind(Session("a"), MAYA, {"n": 1}, conversation_id="conv_1", message_id="msg_1"):
        assert current_request() == (Session("a"), MAYA, {"n": 1}, "conv_1", "msg_1")
        with request.bind(Session("b")):
            assert current_request() == (Session("b"), None, {}, None, None)
        assert request.session() == Session("a")
    assert current_request() == NO_REQUEST


def test_a_binding_ends_with_an_error() -> None:
    with pytest.raises(LookupError), request.bind(Session("a")):
        raise LookupError
    assert current_request() == NO_REQUEST


def test_extras_cannot_be_changed() -> None:
    extras = {"plan": "pro"}
    with request.bind(extras=extras):
        with pytest.raises(TypeError):
            request.extras()["plan"] = "free"  # type: ignore[index]
        extras["plan"] = "free"
        assert request.extras()["plan"] == "pro"
    with pytest.raises(TypeError):
        request.extras()["plan"] = "free"  # type: ignore[index]


async def test_tools_of_every_kind_see_the_request(maya: User) -> None:
    found: dict[str, Any] = {}

    async def waits() -> str:
        """Async."""
        await asyncio.sleep(0)
        found["async"] = current_request()
        return "ok"

    def blocks() -> str:
        """Sync, in a thread."""
        found["thread"] = current_request()
        return "ok"

    async def spawns() -> str:
        """In tasks."""

        async def child() -> None:
            found["task"] = current_request()

        async with asyncio.TaskGroup() as group:
            group.create_task(child())
        return "ok"

    tool_calls = [ToolCall(name, name) for name in ("waits", "blocks", "spawns")]
    result = await run_chat_turn(
        make_config(maya, calls(*tool_calls), says("ok"), tools=[waits, blocks, spawns]), turn_input()
    )
    expected = (Session("web"), MAYA, {"plan": "pro"}, result.conversation_id, result.messages[0].id)
    assert found == {"async": expected, "thread": expected, "task": expected}
    assert current_request() == NO_REQUEST


async def test_arguments_of_the_model_do_not_change_the_request(maya: User) -> None:
    found: list[Any] = []

    async def act(session: str, sender: str, extras: dict[str, Any]) -> str:
        """Act."""
        found.append((request.session(), request.sender(), dict(request.extras())))
        return f"{session} {sender} {extras}"

    forged_call = calls("act", session="admin", sender="root", extras={"plan": "gold"})
    await run_chat_turn(make_config(maya, forged_call, says("ok"), tools=[act]), turn_input())
    assert found == [(Session("web"), MAYA, {"plan": "pro"})]


async def test_bind_tools_false_binds_nothing(maya: User) -> None:
    found: list[Any] = []

    async def act() -> str:
        """Act."""
        found.append(current_request())
        return "ok"

    await run_chat_turn(make_config(maya, calls("act"), says("ok"), tools=[act]), turn_input(bind_tool_ctx=False))
    assert found == [NO_REQUEST]


async def test_a_turn_that_stores_nothing_binds_no_message_id(maya: User) -> None:
    found: list[Any] = []

    async def act() -> str:
        """Act."""
        found.append(current_request())
        return "ok"

    cfg = make_config(maya, calls("act"), says("ok"), tools=[act])
    await run_chat_turn(cfg, turn_input(persist_user=False, persist_assistant=False))
    assert found == [(Session("web"), MAYA, {"plan": "pro"}, None, None)]


async def test_concurrent_turns_have_separate_requests(maya: User) -> None:
    async def act(number: int) -> str:
        """Act."""
        await asyncio.sleep(0.001 * (number % 3))
        bound = request.session()
        return bound.id if bound else "nobody"

    def answer(question: Any) -> Any:
        last = question.messages[-1]
        return calls("act", number=int(last.content)) if last.role == "user" else last.content

    async def turn(number: int) -> str:
        cfg = TurnConfig(maya, "helper", chat_opts=ChatOptions(model=FunctionModel(answer), tools=[act]))
        return str(await run_chat_turn(cfg, TurnInput(Session(f"s{number}"), MAYA, str(number))))

    assert await asyncio.gather(*map(turn, range(8))) == [f"s{number}" for number in range(8)]


async def test_the_reader_of_a_stream_does_not_see_its_request(maya: User) -> None:
    found: list[Any] = []

    async def act() -> str:
        """Act."""
        found.append(request.session())
        return "ok"

    with request.bind(Session("mine")):
        script = [calls("act", saying="Well"), says("ok", chunks=1)]
        async for item in maya.chat_stream("Hi", model=ScriptedModel(script), tools=[act], session_id="theirs"):
            assert request.session() == Session("mine"), item
        assert request.session() == Session("mine")
    assert [session.id for session in found] == ["theirs"]


async def test_interleaved_streams_in_one_task_have_separate_requests(maya: User) -> None:
    found: list[tuple[str, Any]] = []

    async def act(who: str) -> str:
        """Act."""
        session = request.session()
        found.append((who, session and session.id))
        return "ok"

    def stream(who: str) -> Any:
        script = [calls("act", who=who, saying="a"), calls("act", who=who, saying="b"), says("end", chunks=1)]
        return maya.chat_stream("Hi", model=ScriptedModel(script), tools=[act], session_id=who)

    streams = [stream("one"), stream("two")]
    deltas = 0
    while streams:
        for each in list(streams):
            item = await anext(each, None)
            deltas += isinstance(item, TextDelta)
            assert current_request() == NO_REQUEST
            if item is None:
                streams.remove(each)
    assert sorted(found) == [("one", "one"), ("one", "one"), ("two", "two"), ("two", "two")]
    assert deltas == 10


async def test_a_stream_may_be_read_by_one_task_and_closed_by_another(maya: User) -> None:
    stream = maya.chat_stream("Hi", model=ScriptedModel([says("A long story", chunks=1)]))
    assert await asyncio.create_task(_first(stream)) == TextDelta("A")
    await asyncio.create_task(_close(stream))
    assert current_request() == NO_REQUEST
    assert str(await maya.chat("Again", model=ScriptedModel([says("ok")]), wait=0)) == "ok"


async def _first(stream: Any) -> Any:
    return await anext(stream)


async def _close(stream: Any) -> None:
    await stream.aclose()
