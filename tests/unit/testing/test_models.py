"""A scripted model fails when the conversation differs from the script."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tellback import ChatOptions, ChatReply, ToolCall, run_loop, user_message
from tellback.testing import FunctionModel, ScriptedModel, ScriptError, answers, calls, raises, says
from tellback.types import TextDelta
from tests.support.fake_http_server import joined_text


async def test_a_call_after_the_end_of_the_script_fails() -> None:
    model = ScriptedModel([says("Hello!")])
    await model.complete("Hi")
    with pytest.raises(ScriptError, match=r"call 2 was not scripted.*'Again'"):
        await model.complete("Again")


async def test_unused_steps_fail() -> None:
    model = ScriptedModel([says("Hello!"), calls("add"), raises(OSError("x")), "plain"])
    await model.complete("Hi")
    with pytest.raises(ScriptError, match=r"3 of 4 .*: calls\(add\), raises\(OSError\('x'\)\), 'plain'"):
        model.assert_done()
    with pytest.raises(ScriptError), ScriptedModel([says("unused")]):
        pass


async def test_unused_steps_do_not_hide_the_failure_of_the_test() -> None:
    with pytest.raises(KeyError), ScriptedModel([says("unused")]):
        raise KeyError


async def test_expectations_are_checked() -> None:
    model = ScriptedModel([says("x", expect="Rome"), says("x", expect=lambda request: request.system == "S")])
    with pytest.raises(ScriptError, match="expected 'Rome' in the last message, got 'Paris'"):
        await model.complete("Paris")
    with pytest.raises(ScriptError, match="expect\\(request\\) returned false"):
        await model.complete("Hi", system="T")


async def test_strings_replies_errors_and_functions_are_accepted_as_steps() -> None:
    script: list[Any] = [
        "text",
        ChatReply(text="reply"),
        ToolCall("c", "f"),
        lambda request: f"made of {request.messages[-1].content}",
        answers([1]),
        OSError("down"),
    ]
    with ScriptedModel(script) as model:
        replies = [await model.complete("Hi") for _ in range(5)]
        with pytest.raises(OSError, match="down"):
            await model.complete("Hi")
    assert [reply.text for reply in replies] == ["text", "reply", "", "made of Hi", "[1]"]
    with pytest.raises(TypeError, match="42 is not a step"):
        await ScriptedModel([42]).complete("Hi")


async def test_a_step_streams_chunks_fails_midway_and_delays() -> None:
    model = ScriptedModel(
        [says("Hello!", chunks=["He", "llo", "!"]), raises(OSError(), after="Hel"), says("", delay=0.05)]
    )
    assert [d.text async for d in model.stream("Hi") if isinstance(d, TextDelta)] == ["He", "llo", "!"]
    stream: Any = model.stream("Hi")
    assert await anext(stream) == TextDelta("Hel")
    with pytest.raises(OSError):
        await anext(stream)
    started = time.monotonic()
    await model.complete("Hi")
    assert time.monotonic() - started >= 0.05


async def test_a_function_can_be_a_model() -> None:
    async def later(request: Any) -> str:
        return "later"

    async def deltas(request: Any) -> Any:
        yield TextDelta("own ")
        yield TextDelta("stream")

    assert (await FunctionModel(later).complete("Hi")).text == "later"
    assert joined_text([d async for d in FunctionModel(later).stream("Hi")]) == "later"
    assert joined_text([d async for d in FunctionModel(later, stream_fn=deltas).stream("Hi")]) == "own stream"
    with pytest.raises(OSError):
        await FunctionModel(lambda request: raises(OSError())).complete("Hi")


async def test_steps_returned_by_a_function_keep_chunks_delay_and_error() -> None:
    model = FunctionModel(lambda request: says("Hello!", chunks=3))
    assert [d.text async for d in model.stream("Hi") if isinstance(d, TextDelta)] == ["Hel", "lo!"]
    stream: Any = FunctionModel(lambda request: raises(OSError(), after="Hel")).stream("Hi")
    assert await anext(stream) == TextDelta("Hel")
    with pytest.raises(OSError):
        await anext(stream)


def test_a_tools_input_may_use_any_name() -> None:
    assert calls("shout", text="hi").reply.tool_calls[0].input == {"text": "hi"}
    assert calls("wait", {"delay": 3, "usage": "low"}).reply.tool_calls[0].input == {"delay": 3, "usage": "low"}
    assert calls("look", saying="One moment.").reply.text == "One moment."


async def test_models_are_chat_functions_too() -> None:
    with ScriptedModel([says("Hello!"), says("Hello!")]) as model:
        opts = ChatOptions(model="a-name", chat_fn=model.chat_fn, chat_stream_fn=model.chat_stream_fn)
        assert str(await run_loop(opts, "Hi")) == "Hello!"
        seen: list[Any] = []
        await model.chat_stream_fn("a-name", [user_message("Hi")], None, None, seen.append)
    assert joined_text(seen) == "Hello!"
