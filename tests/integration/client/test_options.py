"""Options of a turn have the same effect as in process, or raise with a reason."""

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

METHODS = ["chat", "chat_stream", "run_turn", "stream_turn"]


class RecordingModel:
    """A model that records its requests."""

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    async def __call__(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        return ChatReply("Yes.")


@tool
def look() -> str:
    """Look."""
    return "nothing"


async def turn(maya: Any, method: str, **kwargs: Any) -> Any:
    if method == "chat":
        return await maya.chat("Hi", space=None, **kwargs)
    if method == "chat_stream":
        return [item async for item in maya.chat_stream("Hi", space=None, **kwargs)][-1]
    conversation = await maya.conversations.create("options")
    if method == "run_turn":
        return await maya.conversations.run_turn(conversation.id, None, "Hi", **kwargs)
    return [item async for item in maya.conversations.stream_turn(conversation.id, None, "Hi", **kwargs)][-1]


ACCEPTED_OPTIONS: list[ChatOptions | Mapping[str, Any]] = [
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


@pytest.mark.parametrize("options", ACCEPTED_OPTIONS, ids=lambda each: repr(each)[:60])
async def test_options_reach_the_model_as_in_process(options: Any) -> None:
    model = RecordingModel()
    tb = Tellback(":memory:", model=FunctionModel(model))
    async with running_client(tb) as (client, _):
        for method in METHODS:
            sent_requests: list[Any] = []
            for maya in (tb.user(f"maya {method}"), client.user(f"tom {method}")):
                assert (await turn(maya, method, options=options)).text == "Yes."
                request = model.requests[-1]
                tools = [(each.name, each.description, each.parameters) for each in request.tools]
                sent_requests.append(
                    (request.system, tools, request.tool_choice, request.max_output_tokens, request.config)
                )
            assert sent_requests[0] == sent_requests[1]


MISSPELT_OPTIONS: list[Any] = [
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


@pytest.mark.parametrize("options", MISSPELT_OPTIONS, ids=str)
async def test_invalid_options_raise_the_same_error_as_in_process(options: Any) -> None:
    tb = Tellback(":memory:", model=FunctionModel(RecordingModel()))
    async with running_client(tb) as (client, _):
        for method in METHODS:
            messages = []
            for maya in (tb.user("maya"), client.user("tom")):
                with pytest.raises(TellbackError) as caught:
                    await turn(maya, method, options=options)
                messages.append((type(caught.value), str(caught.value)))
            assert messages[0] == messages[1]


UNSENDABLE_OPTIONS: list[tuple[Any, str]] = [
    ({"config": {"temperature": 0.1, "seed": 7, "thinking": {}}}, "config.*seed, thinking"),
    (ChatOptions(config={"seed": 7}), "config.*seed"),
    ({"config": 7}, "config must be a mapping"),
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
    ({"model": FunctionModel(RecordingModel())}, "name of a model"),
]


@pytest.mark.parametrize(
    ("options", "reason"), UNSENDABLE_OPTIONS, ids=lambda each: each if isinstance(each, str) else ""
)
async def test_unsupported_options_raise_with_a_reason(options: Any, reason: str) -> None:
    async with running_client(Tellback(":memory:", model=FunctionModel(RecordingModel()))) as (client, _):
        for method in METHODS:
            with pytest.raises(InvalidArgumentError, match=reason) as caught:
                await turn(client.user("maya"), method, options=options)
            assert "Extra inputs" not in str(caught.value)


async def test_the_model_may_be_in_the_options() -> None:
    tb = Tellback(":memory:", model=FunctionModel(RecordingModel()))
    async with running_client(tb) as (client, _):
        for method in METHODS:
            with pytest.raises(TellbackError, match="gpt-nobody"):
                await turn(client.user("maya"), method, options={"model": "gpt-nobody"})


async def test_tools_may_be_in_the_options() -> None:
    handled: list[str] = []

    def handle(name: str, arguments: dict[str, Any]) -> str:
        handled.append(name)
        return "nothing"

    definition = {"name": "look", "description": "Look.", "parameters": Tool.from_fn(look.fn).parameters}

    async def model(request: ChatRequest) -> ChatReply:
        if request.messages[-1].role == "tool":
            return ChatReply("Yes.")
        return ChatReply("", tool_calls=(ToolCall("call_1", "look", {}),), stop_reason="tool_use")

    async with running_client(Tellback(":memory:", model=FunctionModel(model))) as (client, _):
        outcome = await turn(client.user("maya"), "run_turn", options={"tools": [definition]}, tool_handler=handle)
    assert (outcome.text, handled) == ("Yes.", ["look"])
