"""The options of a turn mean by the client what they mean in process, or are refused with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tellback import ChatOptions, ChatReply, InvalidArgumentError, Tellback, ToolCall, tool
from tellback.chat import ChatRequest
from tellback.errors import TellbackError
from tellback.testing import FunctionModel
from tellback.tools import Tool
from tests.integration.client.server_apps import running_client

WAYS = ["chat", "chat_stream", "run_turn", "stream_turn"]


class Hearing:
    """A model that keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    async def __call__(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        return ChatReply("Yes.")


@tool
def look() -> str:
    """Look."""
    return "nothing"


async def turn(maya: Any, way: str, **kwargs: Any) -> Any:
    if way == "chat":
        return await maya.chat("Hi", space=None, **kwargs)
    if way == "chat_stream":
        return [item async for item in maya.chat_stream("Hi", space=None, **kwargs)][-1]
    conversation = await maya.conversations.create("options")
    if way == "run_turn":
        return await maya.conversations.run_turn(conversation.id, None, "Hi", **kwargs)
    return [item async for item in maya.conversations.stream_turn(conversation.id, None, "Hi", **kwargs)][-1]


TAKEN: list[ChatOptions | Mapping[str, Any]] = [
    {"config": {"temperature": 0.1}},
    {"config": {"temperature": 0, "top_p": 0.5}},
    {"config": {}},
    ChatOptions(config={"top_p": 1.0}),
    ChatOptions(system="Be brief.", max_output_tokens=100, max_context_tokens=9_000, tool_choice="none"),
    {"system": "Be brief."},
    {"system_prompt": "Be brief."},
    {"systemPrompt": "Be brief.", "max_iterations": 3, "max_output_tokens": 100, "on_max_iterations": "answer"},
    {"tools": [look]},
    ChatOptions(tools=[look], tool_choice="look"),
    {"output_retries": 2, "emit_steps": False, "skills": None, "output_type": None},
]


@pytest.mark.parametrize("options", TAKEN, ids=lambda each: repr(each)[:60])
async def test_options_reach_the_model_as_in_process(options: Any) -> None:
    model = Hearing()
    rc = Tellback(":memory:", model=FunctionModel(model))
    async with running_client(rc) as (client, _):
        for way in WAYS:
            asked: list[Any] = []
            for maya in (rc.user(f"maya {way}"), client.user(f"tom {way}")):
                assert (await turn(maya, way, options=options)).text == "Yes."
                request = model.requests[-1]
                tools = [(each.name, each.description, each.parameters) for each in request.tools]
                asked.append((request.system, tools, request.tool_choice, request.max_output_tokens, request.config))
            assert asked[0] == asked[1]


SPELT_WRONG: list[Any] = [
    {"temperature": 0.1},
    {"top_p": 0.5},
    {"maxOutputTokens": 5},
    {"maxIterations": 5},
    {"nope": 1},
    {"max_iterations": 0},
    {"on_max_iterations": "stop"},
    {"tools": "look"},
    {"tools": [{"name": "look"}]},
]


@pytest.mark.parametrize("options", SPELT_WRONG, ids=str)
async def test_options_that_are_wrong_are_refused_alike(options: Any) -> None:
    rc = Tellback(":memory:", model=FunctionModel(Hearing()))
    async with running_client(rc) as (client, _):
        for way in WAYS:
            told = []
            for maya in (rc.user("maya"), client.user("tom")):
                with pytest.raises(TellbackError) as caught:
                    await turn(maya, way, options=options)
                told.append((type(caught.value), str(caught.value)))
            assert told[0] == told[1]


NOT_SENT: list[tuple[Any, str]] = [
    ({"config": {"temperature": 0.1, "seed": 7, "thinking": {}}}, "config.*seed, thinking"),
    (ChatOptions(config={"seed": 7}), "config.*seed"),
    ({"config": 7}, "config is a mapping"),
    ({"output_type": int}, "output_type"),
    ({"output_retries": 5}, "output_retries"),
    ({"chat_fn": print}, "chat_fn"),
    ({"chat_stream_fn": print}, "chat_stream_fn"),
    ({"count_tokens_fn": len}, "count_tokens_fn"),
    ({"model_context_window": 9_000}, "model_context_window"),
    (ChatOptions(warn_context_pct=0.8), "warn_context_pct"),
    ({"emit_steps": True}, "emit_steps"),
    ({"emit_stream_deltas": True}, "emit_stream_deltas"),
    ({"skill_context": {"a": 1}}, "skill_context"),
    ({"skills": []}, "skills"),
    ({"open_skills": ["a"]}, "open_skills"),
    ({"providers": []}, "providers"),
    ({"on_max_iterations": "raise"}, "on_max_iterations"),
    ({"model": FunctionModel(Hearing())}, "name of a model"),
]


@pytest.mark.parametrize(("options", "why"), NOT_SENT, ids=lambda each: each if isinstance(each, str) else "")
async def test_options_that_a_server_does_not_take_are_refused_with_a_reason(options: Any, why: str) -> None:
    async with running_client(Tellback(":memory:", model=FunctionModel(Hearing()))) as (client, _):
        for way in WAYS:
            with pytest.raises(InvalidArgumentError, match=why) as caught:
                await turn(client.user("maya"), way, options=options)
            assert "Extra inputs" not in str(caught.value)


async def test_a_model_may_be_named_among_the_options() -> None:
    rc = Tellback(":memory:", model=FunctionModel(Hearing()))
    async with running_client(rc) as (client, _):
        for way in WAYS:
            with pytest.raises(TellbackError, match="gpt-nobody"):
                await turn(client.user("maya"), way, options={"model": "gpt-nobody"})


async def test_described_tools_may_be_among_the_options() -> None:
    asked: list[str] = []

    def handle(name: str, arguments: dict[str, Any]) -> str:
        asked.append(name)
        return "nothing"

    described = {"name": "look", "description": "Look.", "parameters": Tool.from_fn(look.fn).parameters}

    async def model(request: ChatRequest) -> ChatReply:
        if request.messages[-1].role == "tool":
            return ChatReply("Yes.")
        return ChatReply("", tool_calls=(ToolCall("call_1", "look", {}),), stop_reason="tool_use")

    async with running_client(Tellback(":memory:", model=FunctionModel(model))) as (client, _):
        ended = await turn(client.user("maya"), "run_turn", options={"tools": [described]}, tool_handler=handle)
    assert (ended.text, asked) == ("Yes.", ["look"])
