"""Turns with client tools: they end, run tools once, and merge their results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tellback import ChatReply, Tellback, ToolCall, TurnResult, image_part, text_part, tool
from tellback.chat.options import ChatOptionsDict
from tellback.client import TellbackClient
from tellback.conversations import Conversations
from tellback.errors import RemoteUnavailableError
from tellback.testing import FunctionModel, ScriptedModel, calls, says
from tests.integration.client.server_apps import DroppedResponses, running_client

PICTURE = "iVBORw0KGgo="


class AlwaysCallingModel:
    """A model that calls a tool whenever it can, and counts its calls."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, request: Any) -> ChatReply:
        self.asked += 1
        if request.tool_choice == "none" or not request.tools:
            return ChatReply("Enough.")
        call = ToolCall(f"call_{self.asked}", "look", {"again": self.asked})
        return ChatReply("", tool_calls=(call,), stop_reason="tool_use")


@tool
def look(again: int) -> str:
    """Look once more."""
    return f"nothing ({again})"


async def turn(client: TellbackClient, method: str, **kwargs: Any) -> TurnResult:
    maya = client.user("maya")
    outcome: Any
    if method.startswith("chat"):
        cycles = kwargs.pop("max_cycles", None)
        options: ChatOptionsDict = {} if cycles is None else {"max_iterations": cycles}
        if method == "chat":
            return await maya.chat("Look!", space=None, tools=[look], options=options, **kwargs)
        [*_, outcome] = [
            item async for item in maya.chat_stream("Look!", space=None, tools=[look], options=options, **kwargs)
        ]
    else:
        conversation = await maya.conversations.create("tools")
        if method == "run_turn":
            return await maya.conversations.run_turn(conversation.id, None, "Look!", tools=[look], **kwargs)
        [*_, outcome] = [
            item
            async for item in maya.conversations.stream_turn(conversation.id, None, "Look!", tools=[look], **kwargs)
        ]
    assert isinstance(outcome, TurnResult)
    return outcome


@pytest.mark.parametrize("method", ["run_turn", "stream_turn", "chat", "chat_stream"])
@pytest.mark.parametrize("cycles", [1, 3, None])
async def test_a_model_that_keeps_calling_tools_must_answer_at_the_limit(method: str, cycles: int | None) -> None:
    model = AlwaysCallingModel()
    async with running_client(Tellback(":memory:", model=FunctionModel(model))) as (client, _):
        outcome = await turn(client, method, max_cycles=cycles)
    max_cycles = 10 if cycles is None else cycles
    assert (outcome.status, outcome.text, outcome.pending) == ("max_cycles", "Enough.", ())
    assert outcome.model_calls == model.asked == max_cycles + 1
    assert len(outcome.tool_invocations) == max_cycles


async def test_a_model_that_keeps_calling_tools_must_answer_at_the_limit_in_process() -> None:
    model = AlwaysCallingModel()
    async with Tellback(":memory:", model=FunctionModel(model)) as tb:
        maya = tb.user("maya")
        conversation = await maya.conversations.create("tools")
        outcome = await maya.conversations.run_turn(conversation.id, None, "Look!", tools=[look], max_cycles=3)
    assert (outcome.status, outcome.text, outcome.pending) == ("max_cycles", "Enough.", ())
    assert (outcome.model_calls, outcome.stop_reason, len(outcome.tool_invocations)) == (4, "max_iterations", 3)


async def test_a_turn_ends_even_if_the_model_never_answers() -> None:
    async def always_call(request: Any) -> ChatReply:
        call = ToolCall(f"call_{len(request.messages)}", "look", {"again": 1})
        return ChatReply("Wait.", tool_calls=(call,), stop_reason="tool_use")

    async with running_client(Tellback(":memory:", model=FunctionModel(always_call))) as (client, _):
        outcome = await turn(client, "run_turn", max_cycles=2)
        assert (outcome.status, outcome.text, outcome.pending, outcome.model_calls) == ("max_cycles", "Wait.", (), 3)
        answer = await client.user("maya").chat("Look!", space=None, options={"max_iterations": 2}, tools=[look])
        assert (answer.status, answer.ok, answer.pending) == ("max_cycles", True, ())


async def test_images_returned_by_tools_reach_the_model() -> None:
    @tool
    def camera() -> list[Any]:
        """Take a picture."""
        return [text_part("Here:"), image_part(data=PICTURE, mime="image/png")]

    model = ScriptedModel([calls("camera"), says("A cat.")] * 2)
    tb = Tellback(":memory:", model=model)
    async with running_client(tb) as (client, _):
        local, remote = tb.user("maya"), client.user("maya")
        seen = []
        for maya in (local, remote):
            conversation = await maya.conversations.create("pictures")
            await maya.conversations.run_turn(conversation.id, None, "What is there?", tools=[camera])
            [result] = [message for message in model.requests[-1].messages if message.role == "tool"]
            seen.append((result.content, result.parts))
        assert seen[0] == seen[1]
        assert seen[1][1] is not None
        assert [part.kind for part in seen[1][1]] == ["text", "image"]


async def test_an_appended_turn_is_stored_once_if_the_response_is_lost() -> None:
    async with running_client(Tellback(":memory:"), lambda app: DroppedResponses(app, 0)) as (client, cuts):
        conversations = client.user("maya").conversations
        conversation = await conversations.create("chat")
        cuts.left = 1
        turn = await conversations.append_turn(conversation.id, "Hello?", {"content": "Hello!"}, idempotency_key="one")
        log = await conversations.messages(conversation.id)
        assert [message.text for message in log] == ["Hello?", "Hello!"]
        assert [turn.user_message, turn.assistant_message] == log


@pytest.mark.parametrize("method", ["run_turn", "chat"])
@pytest.mark.parametrize("lost_answer", [1, 2])
async def test_a_tool_runs_once_whichever_response_is_lost(method: str, lost_answer: int) -> None:
    runs: list[str] = []

    @tool
    def book() -> str:
        """Book a table."""
        runs.append("booked")
        cuts.left = 1 if lost_answer == 2 else 0
        return "booked"

    async def model(request: Any) -> ChatReply:
        if request.messages[-1].role == "tool":
            return ChatReply("Done.")
        return ChatReply("", tool_calls=(ToolCall("call_1", "book", {}),), stop_reason="tool_use")

    tb = Tellback(":memory:", model=FunctionModel(model))
    async with running_client(tb, lambda app: DroppedResponses(app, 0)) as (client, cuts):
        maya = client.user("maya")
        conversation = await maya.conversations.create("tables")
        cuts.left = 1 if lost_answer == 1 else 0
        outcome: TurnResult
        if method == "run_turn":
            outcome = await maya.conversations.run_turn(
                conversation.id, None, "Book!", tools=[book], idempotency_key="k"
            )
        else:
            outcome = await maya.chat(
                "Book!", space=None, conversation_id=conversation.id, tools=[book], idempotency_key="k"
            )
        assert (outcome.text, runs) == ("Done.", ["booked"])
        log = await maya.conversations.messages(conversation.id)
        assert [message.text for message in log if message.role == "user"] == ["Book!"]
        assert [message.text for message in log if message.text and message.role == "assistant"] == ["Done."]


@pytest.mark.parametrize("method", ["run_turn", "chat"])
async def test_a_repeated_turn_with_a_key_returns_the_same_as_in_process(method: str) -> None:
    async def model(request: Any) -> ChatReply:
        if request.messages[-1].role == "tool":
            return ChatReply("Done.")
        return ChatReply("", tool_calls=(ToolCall("call_1", "look", {"again": 1}),), stop_reason="tool_use")

    tb = Tellback(":memory:", model=FunctionModel(model))
    async with running_client(tb) as (client, _):
        results: list[Any] = []
        for maya in (tb.user("maya"), client.user("tom")):
            conversation = await maya.conversations.create("tables")
            found: list[Any] = []
            for _again in range(2):
                outcome: Any
                if method == "run_turn":
                    outcome = await maya.conversations.run_turn(
                        conversation.id, None, "Book!", tools=[look], idempotency_key="k"
                    )
                else:
                    outcome = await maya.chat(
                        "Book!", space=None, conversation_id=conversation.id, tools=[look], idempotency_key="k"
                    )
                found.append((outcome.status, outcome.text))
            log = await maya.conversations.messages(conversation.id)
            results.append((found, [(message.role, message.text) for message in log]))
        assert results[0] == results[1]
        assert results[1][0] == [("completed", "Done.")] * 2
        assert [role for role, _ in results[1][1]].count("user") == 1


async def test_the_client_waits_for_an_equal_running_request(monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[str] = []
    create = Conversations.create

    async def slow(self: Conversations, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0.8)
        created.append("one")
        return await create(self, *args, **kwargs)

    monkeypatch.setattr(Conversations, "create", slow)
    async with running_client(Tellback(":memory:")) as (client, _):
        async with TellbackClient(client._transport.url, timeout=0.3) as short_timeout_client:
            conversation = await short_timeout_client.user("maya").conversations.create("chat")
        assert (await client.user("maya").conversations.list()) == [conversation]
    assert created == ["one"]


async def test_creating_an_api_key_is_not_retried() -> None:
    async with running_client(Tellback(":memory:"), lambda app: DroppedResponses(app, 1)) as (client, cuts):
        with pytest.raises(RemoteUnavailableError):
            await client.keys.create("app")
        assert cuts.seen == 1
