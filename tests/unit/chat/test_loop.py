"""The loop: tools, streams, limits, typed answers, approvals, budgets, events."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import threading
from typing import Annotated, Any

import pydantic
import pytest

from tellback import (
    Approval,
    ChatOptions,
    ChatReply,
    ChatUsage,
    ConfigurationError,
    LoopResult,
    StreamStop,
    TextDelta,
    ToolCall,
    ToolResult,
    assistant_message,
    events,
    run_loop,
    run_loop_messages,
    run_loop_stream,
    stream_loop,
    tool,
    tool_result_message,
    user_message,
)
from tellback.chat import (
    ProviderRegistration,
    dispatch_chat,
    dispatch_chat_stream,
    prefix_detector,
    run_loop_stream_messages,
    with_providers,
)
from tellback.errors import (
    BudgetExceededError,
    InvalidArgumentError,
    MaxIterationsError,
    OutputValidationError,
    UnknownModelError,
)
from tellback.testing import FunctionModel, ScriptedModel, answers, calls, raises, says
from tellback.types import ThinkingDelta, ToolUseStart
from tests.support.fake_http_server import joined_text


async def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


async def collect(opts: ChatOptions, messages: Any, **kwargs: Any) -> list[Any]:
    return [item async for item in stream_loop(opts, messages, **kwargs)]


async def test_the_loop_runs_two_rounds_of_tools_before_the_answer() -> None:
    usage = ChatUsage(input_tokens=10, output_tokens=1, total_tokens=11, model="m", provider="p")
    script = [
        calls("add", x=1, y=2, usage=usage),
        calls("add", x=3, y=4, usage=usage, expect="3"),
        says("It is 7.", usage=usage, expect="7"),
    ]
    with ScriptedModel(script) as model:
        result = await run_loop(ChatOptions(model=model, system="Be brief.", tools=[add]), "1 + 2 + 4?")
    assert str(result) == result.text == "It is 7."
    assert [message.role for message in result.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert result.usage == ChatUsage(input_tokens=30, output_tokens=3, total_tokens=33, model="m", provider="p")
    assert [step.iteration for step in result.steps] == [1, 2, 3]
    assert result.steps[0].tool_results[0].content == "3"
    assert {request.system for request in model.requests} == {"Be brief."}
    assert [len(request.messages) for request in model.requests] == [1, 3, 5]


async def test_the_messages_of_a_result_can_start_the_next_run() -> None:
    with ScriptedModel([says("Hello!"), says("Fine.")]) as model:
        opts = ChatOptions(model=model)
        first = await run_loop(opts, "Hi")
        await run_loop_messages(opts, [*first.messages, user_message("How are you?")])
    assert [message.content for message in model.requests[1].messages] == ["Hi", "Hello!", "How are you?"]


async def test_to_dict_returns_json_without_raw_replies() -> None:
    reply = ChatReply("Done.", usage=ChatUsage(input_tokens=3), raw=object())
    result = await run_loop(ChatOptions(model=ScriptedModel([reply])), "Go.")
    decoded = json.loads(json.dumps(result.to_dict()))
    assert (decoded["text"], decoded["usage"]["input_tokens"]) == ("Done.", 3)
    assert decoded["steps"][0]["reply"]["raw"] is None
    assert [message["role"] for message in decoded["messages"]] == ["user", "assistant"]


async def test_callback_and_iterator_receive_every_delta_of_every_call() -> None:
    script = [calls("add", x=1, y=2, saying="Let me see. "), says("It is 3.", chunks=3, thinking="Hmm.")]
    seen: list[Any] = []
    late: list[Any] = []

    async def slowly(delta: Any) -> None:
        await asyncio.sleep(0)
        late.append(delta)

    for on_delta in (seen.append, slowly, None):
        with ScriptedModel(script) as model:
            result = await run_loop_stream(ChatOptions(model=model, tools=[add]), "1 + 2?", on_delta)
            assert str(result) == "It is 3."
    with ScriptedModel(script) as model:
        *deltas, last = await collect(ChatOptions(model=model, tools=[add]), "1 + 2?")
    assert seen == late == deltas
    assert isinstance(last, LoopResult)
    assert last.text == "It is 3."
    assert joined_text(seen) == "Let me see. It is 3."
    assert ThinkingDelta("Hmm.") in seen
    assert [type(delta) for delta in seen].count(StreamStop) == 2


async def test_the_four_entry_points_return_equal_results() -> None:
    def script() -> ScriptedModel:
        return ScriptedModel([calls(ToolCall("c", "add", {"x": 1, "y": 2})), says("3")])

    opts = [ChatOptions(model=script(), tools=[add]) for _ in range(4)]
    results = [
        await run_loop(opts[0], "1 + 2?"),
        await run_loop_messages(opts[1], [user_message("1 + 2?")]),
        await run_loop_stream(opts[2], "1 + 2?"),
        await run_loop_stream_messages(opts[3], [user_message("1 + 2?")]),
    ]
    assert all(result == results[0] for result in results)


async def test_calls_of_one_reply_run_at_the_same_time() -> None:
    running, peak = 0, 0

    async def work(n: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.01)
        running -= 1
        return n

    many = [ToolCall(f"c{n}", "work", {"n": n}) for n in range(5)]
    with ScriptedModel([calls(*many), says("done")]) as model:
        result = await run_loop(ChatOptions(model=model, tools=[work]), "Go")
    assert peak == 5
    assert [message.content for message in result.messages[2:7]] == ["0", "1", "2", "3", "4"]


async def test_the_model_receives_tool_errors_and_can_recover() -> None:
    def fail() -> None:
        raise ValueError("no such order")

    script = [
        calls("fail"),
        calls("nothing_like_it", expect="no such order"),
        calls("add", x="one", y=2, expect="There is no tool called 'nothing_like_it'"),
        says("Sorry.", expect="Invalid arguments for add"),
    ]
    with ScriptedModel(script) as model:
        result = await run_loop(ChatOptions(model=model, tools=[fail, add]), "Go")
    assert result.text == "Sorry."
    assert all(message.is_error for message in result.messages if message.role == "tool")


async def test_the_iteration_limit_raises_an_error_with_the_messages_so_far() -> None:
    model = FunctionModel(lambda request: calls("add", x=1, y=1))
    with pytest.raises(MaxIterationsError, match="on_max_iterations='answer'") as caught:
        await run_loop(ChatOptions(model=model, tools=[add], max_iterations=3), "Go")
    assert [message.role for message in caught.value.messages] == ["user", *["assistant", "tool"] * 3]


@pytest.mark.parametrize("streaming", [False, True])
async def test_the_iteration_limit_can_end_in_an_answer_instead(streaming: bool) -> None:
    script = [calls("add", x=1, y=1), calls("add", x=2, y=2), says("As far as I know: 4.")]
    with ScriptedModel(script) as model:
        opts = ChatOptions(
            model=model, tools=[add], max_iterations=2, on_max_iterations="answer", tool_choice="required", system="S"
        )
        run = run_loop_stream if streaming else run_loop
        result = await run(opts, "Go")
    assert (result.text, result.stop_reason) == ("As far as I know: 4.", "max_iterations")
    last = model.requests[-1]
    assert (last.tools, last.tool_choice) == ((), None)
    assert last.system is not None
    assert last.system.startswith("S\n\n")


async def test_tool_calls_in_the_final_reply_are_removed() -> None:
    model = FunctionModel(lambda request: calls("add", x=1, y=1, saying="Hm."))
    opts = ChatOptions(model=model, tools=[add], max_iterations=1, on_max_iterations="answer")
    result = await run_loop(opts, "Go")
    assert result.text == "Hm."
    assert result.messages[-1] == assistant_message("Hm.")


class Ok(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str | None = None


class Bad(pydantic.BaseModel):
    code: int | None = None


class City(pydantic.BaseModel):
    name: str
    people: int = pydantic.Field(ge=0)


async def test_an_invalid_typed_answer_is_corrected() -> None:
    script = [
        answers({"name": "Rome", "people": -1}),
        says("Sorry:\n```json\n{}\n```", expect="people: Input should be greater than or equal to 0"),
        says('```json\n{"name": "Rome", "people": 3}\n```'),
    ]
    with ScriptedModel(script) as model:
        result = await run_loop(ChatOptions(model=model, output_type=City), "Which?")
    assert result.output == City(name="Rome", people=3)
    assert model.requests[0].output_schema is not None
    assert model.requests[0].output_schema["required"] == ["name", "people"]


async def test_output_type_can_be_set_for_one_run_and_be_any_type() -> None:
    with ScriptedModel([answers({"result": [1, 2]}), says("plain")]) as model:
        opts = ChatOptions(model=model)
        assert (await run_loop(opts, "Which?", output_type=list[int])).output == [1, 2]
        assert (await run_loop(opts, "Which?")).output is None


async def test_a_typed_answer_that_stays_invalid_raises_an_error_with_its_text() -> None:
    model = ScriptedModel([says("I think Rome.")] * 3)
    with pytest.raises(OutputValidationError, match="not a valid City") as caught:
        await run_loop(ChatOptions(model=model, output_type=City, max_iterations=1), "Which?")
    model.assert_done()
    assert caught.value.text == "I think Rome."
    model = ScriptedModel([says("I will not.", stop_reason="refusal")])
    with pytest.raises(OutputValidationError, match="refused"):
        await run_loop(ChatOptions(model=model, output_type=City), "Which?")


async def test_a_typed_answer_after_the_iteration_limit_can_be_corrected() -> None:
    script = [calls("add", x=1, y=1), says("Rome"), answers({"name": "Rome", "people": 2})]
    with ScriptedModel(script) as model:
        opts = ChatOptions(model=model, tools=[add], max_iterations=1, on_max_iterations="answer", output_type=City)
        assert (await run_loop(opts, "Which?")).output == City(name="Rome", people=2)
    assert model.requests[-1].system == model.requests[-2].system


async def test_broken_histories_are_repaired_before_the_model_sees_them() -> None:
    history = [user_message("Go"), assistant_message("", [ToolCall("c1", "add", {"x": 1, "y": 2})])]
    ran: list[int] = []

    async def add(x: int, y: int) -> int:
        ran.append(x)
        return x + y

    with ScriptedModel([says("ok", expect="interrupted")]) as model:
        result = await run_loop_messages(ChatOptions(model=model, tools=[add]), history)
    assert ran == []
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]


class Shop:
    """A tool that needs approval, one that does not, and a record of their calls."""

    def __init__(self) -> None:
        self.done: list[str] = []
        shop = self

        @tool(requires_approval=True)
        async def refund(order: str) -> str:
            """Give the money back."""
            shop.done.append(f"refund {order}")
            return "refunded"

        async def look(order: str) -> str:
            """Look at an order."""
            shop.done.append(f"look {order}")
            return "paid"

        self.tools: list[Any] = [refund, look]


CALLS = [
    ToolCall("a", "look", {"order": "7"}),
    ToolCall("b", "refund", {"order": "7"}),
    ToolCall("c", "refund", {"order": "8"}),
]


async def test_a_tool_that_needs_approval_stops_the_loop_and_runs_once() -> None:
    shop = Shop()
    with ScriptedModel([calls(*CALLS, saying="One moment."), says("Done.", expect="Too much")]) as model:
        opts = ChatOptions(model=model, tools=shop.tools)
        first = await run_loop(opts, "Refund 7 and 8")
        assert (first.stop_reason, first.pending, first.text) == ("approval", tuple(CALLS[1:]), "One moment.")
        assert shop.done == ["look 7"]

        # Still undecided: the model is not called, and no tool runs.
        repeated = await run_loop_messages(opts, first.messages)
        assert repeated.pending == first.pending

        half = await run_loop_messages(opts, first.messages, approvals={"b": True})
        assert half.pending == (CALLS[2],)
        assert shop.done == ["look 7", "refund 7"]

        finished = await run_loop_messages(opts, half.messages, approvals={"b": True, "c": Approval(False, "Too much")})
    assert finished.text == "Done."
    assert shop.done == ["look 7", "refund 7"]
    results = {message.tool_call_id: message for message in finished.messages if message.role == "tool"}
    assert (results["b"].content, results["b"].is_error) == ("refunded", False)
    assert results["c"].is_error


async def test_an_approval_works_while_streaming_and_can_change_the_input() -> None:
    shop = Shop()
    with ScriptedModel([calls(CALLS[1]), says("Done.")]) as model:
        opts = ChatOptions(model=model, tools=shop.tools)
        pending = (await collect(opts, "Refund 7"))[-1]
        assert pending.stop_reason == "approval"
        result = (await collect(opts, pending.messages, approvals={"b": Approval(True, input={"order": "9"})}))[-1]
    assert result.text == "Done."
    assert shop.done == ["refund 9"]


async def test_a_call_does_not_run_if_a_new_question_replaces_the_decision() -> None:
    shop = Shop()
    with ScriptedModel([calls(CALLS[1]), says("All right.")]) as model:
        opts = ChatOptions(model=model, tools=shop.tools)
        pending = await run_loop(opts, "Refund 7")
        result = await run_loop_messages(opts, [*pending.messages, user_message("Never mind")])
    assert result.text == "All right."
    assert shop.done == []


async def test_a_decision_on_an_unknown_call_raises_an_error() -> None:
    with ScriptedModel([]) as model, pytest.raises(InvalidArgumentError, match="not in the messages: zzz"):
        await run_loop_messages(ChatOptions(model=model), [user_message("Hi")], approvals={"zzz": True})


async def test_an_oversized_request_is_never_sent() -> None:
    with ScriptedModel([]) as model:
        opts = ChatOptions(model=model, max_context_tokens=50, tools=[add], system="Be brief.")
        with pytest.raises(BudgetExceededError) as caught:
            await run_loop(opts, "x" * 400)
    assert caught.value.limit == 50
    assert caught.value.total == sum(caught.value.breakdown.values())
    assert set(caught.value.breakdown) == {"messages", "system", "tools"}


async def test_the_budget_is_checked_before_every_call_and_logs_a_warning_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def read() -> str:
        return "y" * 1000

    with ScriptedModel([calls("read")]) as model, caplog.at_level(logging.WARNING):
        opts = ChatOptions(model=model, tools=[read], max_context_tokens=200, warn_context_pct=0.1)
        with pytest.raises(BudgetExceededError):
            await run_loop(opts, "x" * 40)
    assert "context is almost full" in caplog.text


async def test_a_custom_token_counter_and_the_context_window_set_the_limit() -> None:
    def count(messages: Any, model: str) -> int:
        return 60 * len(messages)

    with ScriptedModel([says("ok")]) as model:
        opts = ChatOptions(model=model, count_tokens_fn=count, model_context_window=100, max_output_tokens=30)
        await run_loop(opts, "Hi")
        with pytest.raises(BudgetExceededError, match="limit of 70"):
            await run_loop_messages(opts, [user_message("Hi"), user_message("Hi")])


async def test_steps_and_deltas_are_events_of_the_run() -> None:
    seen: list[events.RunEvent] = []
    for source in ("callback", "iterator"):
        with ScriptedModel([calls("add", x=1, y=2), says("3")]) as model, events.listen(seen.append):
            opts = ChatOptions(
                model=model, tools=[add], emit_steps=True, emit_stream_deltas=True, delta_data_type="my:delta"
            )
            if source == "callback":
                await run_loop_stream(opts, "1 + 2?")
            else:
                await collect(opts, "1 + 2?")
        kinds = [event.type for event in seen]
        assert kinds.count("ai:chat:step") == 2
        assert kinds.count("my:delta") == 6
        assert seen[-1].data.reply.text == "3"
        seen.clear()
    with ScriptedModel([says("ok")]) as model:
        await run_loop(ChatOptions(model=model, emit_steps=True), "Hi")
    assert seen == []


async def test_a_listener_that_fails_does_not_stop_the_run(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: events.RunEvent) -> None:
        raise RuntimeError("listener down")

    with ScriptedModel([says("ok")]) as model, events.listen(broken):
        assert str(await run_loop(ChatOptions(model=model, emit_steps=True), "Hi")) == "ok"
    assert "listener down" in caplog.text


async def test_cancelling_reaches_the_model_call_and_the_tools() -> None:
    stopped: list[str] = []
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(30)
        finally:
            stopped.append("tool")

    async def slow_model(request: Any) -> str:
        started.set()
        try:
            await asyncio.sleep(30)
        finally:
            stopped.append("model")
        return ""

    for opts in (
        ChatOptions(model=ScriptedModel([calls("wait")]), tools=[wait]),
        ChatOptions(model=FunctionModel(slow_model)),
    ):
        for run in (run_loop, run_loop_stream):
            started.clear()
            if opts.tools:
                opts = ChatOptions(model=ScriptedModel([calls("wait")]), tools=[wait])
            task = asyncio.create_task(run(opts, "Go"))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert stopped == ["tool", "tool", "model", "model"]


async def test_closing_the_iterator_stops_the_model() -> None:
    stopped = asyncio.Event()

    async def deltas(request: Any) -> Any:
        try:
            while True:
                yield TextDelta("x")
                await asyncio.sleep(0)
        finally:
            stopped.set()

    async def chat_stream_fn(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> None:
        async for delta in deltas(None):
            await on_delta(delta)

    for opts in (
        ChatOptions(model=FunctionModel(str, stream_fn=deltas)),
        ChatOptions(model="m", chat_stream_fn=chat_stream_fn),
    ):
        stopped.clear()
        iterator: Any = stream_loop(opts, "Go")
        assert await anext(iterator) == TextDelta("x")
        await iterator.aclose()
        await asyncio.wait_for(stopped.wait(), 5)


async def test_an_error_in_the_callback_ends_the_run_and_closes_the_stream() -> None:
    def refuse(delta: Any) -> None:
        raise RuntimeError("client gone")

    closed: list[bool] = []

    async def deltas(request: Any) -> Any:
        try:
            yield TextDelta("Hi")
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="client gone"):
        await run_loop_stream(ChatOptions(model=FunctionModel(str, stream_fn=deltas)), "Hi", refuse)
    assert closed == [True]


# Functions instead of models


async def test_a_chat_function_receives_model_messages_system_and_tools() -> None:
    seen: list[Any] = []

    async def chat_fn(model: str, messages: Any, system: str | None, tools: Any) -> ChatReply:
        seen.append((model, [m.content for m in messages], system, [t.name for t in tools]))
        return ChatReply(text="ok", usage={"prompt_tokens": 1, "completion_tokens": 2})  # type: ignore[arg-type]

    opts = ChatOptions(model="any", chat_fn=chat_fn, system="S", tools=[add], max_output_tokens=5)
    result = await run_loop(opts, "Hi")
    assert seen == [("any", ["Hi"], "S", ["add"])]
    assert result.usage.total_tokens == 3


async def test_a_chat_function_receives_only_the_settings_it_accepts() -> None:
    seen: dict[str, Any] = {}

    async def some(model: str, messages: Any, system: Any, tools: Any, *, max_output_tokens: int = 0) -> str:
        seen.update(max_output_tokens=max_output_tokens, system=system)
        return '{"name": "Rome", "people": 1}'

    async def every(model: str, messages: Any, system: Any, tools: Any, **settings: Any) -> str:
        seen.update(settings)
        return '{"name": "Rome", "people": 1}'

    opts = ChatOptions(chat_fn=some, max_output_tokens=5, output_type=City, config={"temperature": 0})
    assert (await run_loop(opts, "Which?")).output == City(name="Rome", people=1)
    assert seen["max_output_tokens"] == 5
    assert '"people"' in seen["system"]  # the function accepts no schema, so the prompt contains it
    await run_loop(opts, "Which?", chat_fn=every, tool_choice="auto")
    assert seen["tool_choice"] == "auto"
    assert seen["temperature"] == 0
    assert seen["output_schema"]["type"] == "object"


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_legacy_signature_works_for_plain_text(is_async: bool) -> None:
    def plain(model: str, prompt: str, system: str | None) -> str:
        return f"{model}|{prompt}|{system}"

    async def eventually(model: str, prompt: str, system: str | None) -> str:
        return plain(model, prompt, system)

    opts = ChatOptions(model="m", chat_fn=eventually if is_async else plain, system="S")
    assert str(await run_loop(opts, "Hi")) == "m|Hi|S"
    history = [user_message("Hi"), assistant_message("Hello."), user_message("And?")]
    assert str(await run_loop_messages(opts, history)) == "m|user: Hi\n\nassistant: Hello.\n\nuser: And?|S"
    assert str(await run_loop_stream(opts, "Hi")) == "m|Hi|S"
    with pytest.raises(ConfigurationError, match="cannot use tools"):
        await run_loop(opts, "Hi", tools=[add])


@pytest.mark.parametrize("awaits", [False, True])
@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("stops", [False, True])
async def test_a_stream_function_can_await_deltas_return_a_reply_and_send_a_stop(
    awaits: bool, returns: bool, stops: bool
) -> None:
    async def chat_stream_fn(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> ChatReply | None:
        if messages[-1].role == "tool":
            deltas: list[Any] = [TextDelta("It is "), TextDelta(messages[-1].content)]
        else:
            from tellback.types import ToolUseEnd, ToolUseInputDelta

            deltas = [ToolUseStart("c", "add"), ToolUseInputDelta("c", '{"x": 1, "y": 2}'), ToolUseEnd("c")]
        for delta in deltas:
            if awaits:
                await on_delta(delta)
            else:
                on_delta(delta)
        if stops:
            on_delta(StreamStop("end_turn"))
        if not returns:
            return None
        if messages[-1].role == "tool":
            return ChatReply(text="It is 3")
        return ChatReply(tool_calls=(ToolCall("c", "add", {"x": 1, "y": 2}),), stop_reason="tool_use")

    opts = ChatOptions(model="m", chat_stream_fn=chat_stream_fn, tools=[add])
    seen: list[Any] = []

    async def slowly(delta: Any) -> None:
        await asyncio.sleep(0)
        seen.append(delta)

    result = await run_loop_stream(opts, "1 + 2?", slowly)
    iterated = await collect(opts, "1 + 2?")
    assert result.text == iterated[-1].text == "It is 3"
    assert joined_text(seen) == joined_text(iterated) == "It is 3"
    assert [type(d) for d in seen] == [type(d) for d in iterated[:-1]]
    assert [type(d) for d in seen].count(StreamStop) == 2
    assert str(await run_loop(opts, "1 + 2?")) == "It is 3"


async def test_a_failing_stream_function_fails_the_run_with_both_entry_points() -> None:
    async def chat_stream_fn(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> None:
        on_delta(TextDelta("Hel"))
        raise OSError("wire down")

    opts = ChatOptions(model="m", chat_stream_fn=chat_stream_fn)
    with pytest.raises(OSError, match="wire down"):
        await run_loop_stream(opts, "Hi")
    with pytest.raises(OSError, match="wire down"):
        await collect(opts, "Hi")


async def test_dispatch_calls_the_model_once_and_runs_no_tool() -> None:
    with ScriptedModel([calls("add", x=1, y=2), says("Hi!", chunks=1)]) as model:
        opts = ChatOptions(model=model)
        assert (await dispatch_chat(opts, [user_message("1 + 2?")], [add])).tool_calls[0].name == "add"
        seen: list[Any] = []
        assert (await dispatch_chat_stream(opts, [user_message("Hi")], [], seen.append)).text == "Hi!"
    assert len(seen) == 4


async def test_an_async_callback_runs_immediately_even_if_not_awaited() -> None:
    seen: list[str] = []
    caught_up: list[int] = []

    async def on_delta(delta: Any) -> None:
        if isinstance(delta, TextDelta):
            seen.append(delta.text)

    async def chat_stream_fn(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> None:
        for text in ("a", "b", "c"):
            on_delta(TextDelta(text))
            await asyncio.sleep(0.01)
            caught_up.append(len(seen))
        if messages[-1].content == "fail":
            raise OSError("wire down")

    opts = ChatOptions(model="m", chat_stream_fn=chat_stream_fn)
    await run_loop_stream(opts, "Hi", on_delta)
    assert caught_up == [1, 2, 3]
    with pytest.raises(OSError, match="wire down"):
        await run_loop_stream(opts, "fail", on_delta)
    assert seen == ["a", "b", "c"] * 2


async def test_an_async_callback_that_fails_ends_the_run() -> None:
    async def refuse(delta: Any) -> None:
        raise RuntimeError("client gone")

    async def chat_stream_fn(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> None:
        for _ in range(3):
            on_delta(TextDelta("x"))
            await asyncio.sleep(0)

    for opts in (ChatOptions(model="m", chat_stream_fn=chat_stream_fn), ChatOptions(model=ScriptedModel([says("x")]))):
        with pytest.raises(RuntimeError, match="client gone"):
            await run_loop_stream(opts, "Hi", refuse)


async def test_a_stream_function_can_call_on_delta_from_a_thread() -> None:
    gate = threading.Event()

    async def chat_stream_fn(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> None:
        def work() -> None:
            on_delta(TextDelta("a"))
            assert gate.wait(10)

        await asyncio.to_thread(work)

    async for item in stream_loop(ChatOptions(model="m", chat_stream_fn=chat_stream_fn), "Hi"):
        gate.set()  # only after the first delta
        if isinstance(item, LoopResult):
            assert item.text == "a"


@pytest.mark.parametrize("streaming", [False, True])
async def test_usage_can_be_a_mapping_everywhere(streaming: bool) -> None:
    usage: Any = {"prompt_tokens": 1, "completion_tokens": 2}

    async def chat_stream_fn(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> None:
        if messages[-1].role == "user":
            on_delta(ToolUseStart("c", "look"))
        on_delta(StreamStop("end_turn", usage))

    async def look() -> str:
        return "ok"

    def answer(request: Any) -> ChatReply:
        tool_calls = () if request.messages[-1].role == "tool" else (ToolCall("c", "look"),)
        return ChatReply(text="x", tool_calls=tool_calls, usage=usage)

    run = run_loop_stream if streaming else run_loop
    for opts in (
        ChatOptions(model="m", chat_stream_fn=chat_stream_fn, tools=[look]),
        ChatOptions(model=FunctionModel(answer), tools=[look]),
    ):
        assert (await run(opts, "Hi")).usage.total_tokens == 6


@pytest.mark.parametrize(
    "shape",
    [
        lambda model, prompt, system=None, **options: f"{prompt}|{system}",
        lambda model, prompt, system=None, temperature=0: f"{prompt}|{system}",
        functools.partial(lambda prefix, model, prompt, system: f"{prompt}|{system}", "x"),
    ],
)
async def test_the_legacy_signature_is_recognised_by_its_prompt_parameter(shape: Any) -> None:
    assert str(await run_loop(ChatOptions(chat_fn=shape, system="S"), "Hi")) == "Hi|S"


async def test_messages_and_decisions_can_be_mappings() -> None:
    shop = Shop()
    with ScriptedModel([calls(CALLS[1]), says("No.", expect="Too much")]) as model:
        opts = ChatOptions(model=model, tools=shop.tools)
        pending = await run_loop_messages(opts, [{"role": "user", "content": "Refund 7"}])
        decision = {"approved": False, "reason": "Too much"}
        await run_loop_messages(opts, pending.messages, approvals={"b": decision})
    assert model.requests[0].messages == (user_message("Refund 7"),)
    assert str(await run_loop(ChatOptions(model=None, chat_fn=lambda m, p, s: p), "Hi")) == "Hi"  # type: ignore[arg-type]


async def test_a_decided_call_is_a_step_and_an_event() -> None:
    shop = Shop()
    seen: list[events.RunEvent] = []
    with ScriptedModel([calls(*CALLS[1:], saying="One moment."), says("Done.")]) as model:
        opts = ChatOptions(model=model, tools=shop.tools, emit_steps=True)
        pending = await run_loop(opts, "Refund")
        resumed = await run_loop_messages(opts, pending.messages)
        assert resumed.text == "One moment."
        with events.listen(seen.append):
            result = await run_loop_messages(opts, pending.messages, approvals={"b": True, "c": Approval(False, "No")})
    assert {r.id: r.is_error for r in result.steps[0].tool_results} == {"b": False, "c": True}
    assert [event.data.iteration for event in seen] == [1, 2]


async def test_a_call_with_invalid_arguments_needs_no_approval() -> None:
    shop = Shop()
    with ScriptedModel([calls("refund", wrong=1), says("Sorry.", expect="Invalid arguments")]) as model:
        result = await run_loop(ChatOptions(model=model, tools=shop.tools), "Refund")
    assert (result.text, result.pending) == ("Sorry.", ())


async def test_a_required_tool_that_needs_approval_is_required_only_once() -> None:
    shop = Shop()
    with ScriptedModel([calls(CALLS[1]), says("Done.")]) as model:
        opts = ChatOptions(model=model, tools=shop.tools, tool_choice="refund")
        pending = await run_loop(opts, "Refund 7")
        await run_loop_messages(opts, pending.messages, approvals={"b": True})
    assert [request.tool_choice for request in model.requests] == ["refund", None]


async def test_an_incomplete_call_of_a_broken_stream_does_not_run() -> None:
    ran: list[int] = []

    async def wipe(n: int = 0) -> str:
        ran.append(n)
        return "wiped"

    async def deltas(request: Any) -> Any:
        yield TextDelta("Hm.")
        if len(request.messages) == 1:
            yield ToolUseStart("c", "wipe")

    result = await run_loop_stream(ChatOptions(model=FunctionModel(str, stream_fn=deltas), tools=[wipe]), "Go")
    assert result.text == "Hm."
    assert ran == []


async def test_a_slow_callback_does_not_delay_cancellation() -> None:
    started = asyncio.Event()

    async def dawdle(delta: Any) -> None:
        started.set()
        await asyncio.sleep(30)

    async def chat_stream_fn(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> None:
        on_delta(TextDelta("x"))
        await asyncio.sleep(30)

    task = asyncio.create_task(run_loop_stream(ChatOptions(model="m", chat_stream_fn=chat_stream_fn), "Hi", dawdle))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)


async def test_an_async_callback_can_be_called_from_a_thread() -> None:
    seen: list[Any] = []

    async def on_delta(delta: Any) -> None:
        seen.append(delta)

    async def chat_stream_fn(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> None:
        await asyncio.to_thread(lambda: [on_delta(TextDelta(text)) for text in "abc"])

    await run_loop_stream(ChatOptions(model="m", chat_stream_fn=chat_stream_fn), "Hi", on_delta)
    assert joined_text(seen) == "abc"


async def test_the_stream_failure_is_raised_and_the_callback_failure_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(delta: Any) -> None:
        raise RuntimeError("callback")

    async def chat_stream_fn(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> None:
        on_delta(TextDelta("x"))
        raise OSError("wire down")

    with pytest.raises(OSError, match="wire down"):
        await run_loop_stream(ChatOptions(model="m", chat_stream_fn=chat_stream_fn), "Hi", fail)
    assert "callback" in caplog.text


async def test_an_exception_while_binding_arguments_does_not_end_the_run() -> None:
    @tool(requires_approval=True)
    async def pay(to: Annotated[str, pydantic.AfterValidator({}.__getitem__)]) -> str:
        return to

    with ScriptedModel([calls("pay", to="x"), says("Sorry.", expect="KeyError")]) as model:
        assert (await run_loop(ChatOptions(model=model, tools=[pay]), "Pay")).pending == ()


async def test_a_history_in_openai_format_is_accepted() -> None:
    history: list[Any] = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Add."}, {"type": "image_url", "image_url": {"url": "u"}}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"x": 1, "y": 2}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "3"},
    ]
    with ScriptedModel([says("3")]) as model:
        await run_loop_messages(ChatOptions(model=model), history)
    one, two, _ = model.requests[0].messages
    assert one.content == "Add.\n\n[image: u]"
    assert two.tool_calls == (ToolCall("c", "add", {"x": 1, "y": 2}),)


async def test_a_required_tool_is_required_only_once() -> None:
    with ScriptedModel([calls("add", x=1, y=2), says("3")]) as model:
        await run_loop(ChatOptions(model=model, tools=[add], tool_choice="required"), "1 + 2?")
    assert [request.tool_choice for request in model.requests] == ["required", None]


@pytest.mark.parametrize(
    ("output_type", "text", "value"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (list[int], '{"result": [1, 2]}', [1, 2]),
        (int, "42", 42),
        (City | None, '{"name": "Rome", "people": 1}', City(name="Rome", people=1)),
        (City | None, '{"result": null}', None),
        (Ok | Bad, '{"result": {"code": 7}}', Bad(code=7)),
        (Ok | None, '{"result": {"name": "x"}}', Ok(name="x")),
        (Any, '{"result": 5}', 5),
        (pydantic.RootModel[list[int]], "[1]", pydantic.RootModel[list[int]]([1])),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (str, '{"result": "x"}', "x"),
    ],
)
async def test_an_answer_can_be_of_any_type(output_type: Any, text: str, value: Any) -> None:
    with ScriptedModel([says(text)]) as model:
        assert (await run_loop(ChatOptions(model=model, output_type=output_type), "?")).output == value


async def test_dispatch_checks_the_budget() -> None:
    opts = ChatOptions(model=ScriptedModel([]), max_context_tokens=5)
    with pytest.raises(BudgetExceededError):
        await dispatch_chat(opts, [user_message("x" * 100)])
    with pytest.raises(BudgetExceededError):
        await dispatch_chat_stream(opts, [user_message("x" * 100)])


# Bad input


async def test_the_error_for_an_unknown_model_lists_known_providers() -> None:
    with pytest.raises(UnknownModelError, match=r"'llama-99'.*Anthropic \(claude-\.\.\.\)"):
        await run_loop(ChatOptions(model="llama-99"), "Hi")
    with pytest.raises(ConfigurationError, match="No model is set"):
        await run_loop(ChatOptions(), "Hi")


async def test_a_registration_without_a_function_raises_configuration_error() -> None:
    registry = with_providers([ProviderRegistration("mine", prefix_detector("mine-"), "Mine")])
    with pytest.raises(ConfigurationError, match="Mine is registered for 'mine-1' but has no chat_fn"):
        await run_loop(ChatOptions(model="mine-1", providers=registry), "Hi")


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"max_iterations": 0}, "at least 1"),
        ({"max_iterations": "5"}, "integer of at least 1"),
        ({"on_max_iterations": "explode"}, "'raise' or 'answer'"),
        ({"tools": add}, "tools=\\[...\\]"),
        ({"tools": [3]}, "not a tool"),
        ({"model": ScriptedModel}, "model object"),
        ({"model": 5}, "model object"),
    ],
)
def test_invalid_options_raise_configuration_error(bad: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        ChatOptions(**bad)


async def test_invalid_arguments_raise_configuration_error() -> None:
    opts = ChatOptions(model=ScriptedModel([]))
    with pytest.raises(ConfigurationError, match="run_loop_messages"):
        await run_loop(opts, [user_message("Hi")])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="first argument must be ChatOptions"):
        await run_loop("gpt-5", "Hi")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a message has no field text; known: role, content"):
        await run_loop_messages(opts, [{"role": "user", "text": "Hi"}])
    with pytest.raises(ConfigurationError, match="temprature"):
        await run_loop(opts, "Hi", temprature=0)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="at least one message"):
        await run_loop_messages(opts, [])
    with pytest.raises(ConfigurationError, match="Pass a type"):
        await run_loop(opts, "Hi", output_type={"type": "object"})
    with pytest.raises(ConfigurationError, match="ChatReply or a str"):
        await run_loop(ChatOptions(chat_fn=lambda *a: 42), "Hi")


async def test_a_model_failure_is_raised_after_the_earlier_deltas() -> None:
    seen: list[Any] = []
    with pytest.raises(ConnectionError):
        await run_loop_stream(
            ChatOptions(model=ScriptedModel([raises(ConnectionError(), after="Hel")])), "Hi", seen.append
        )
    assert joined_text(seen) == "Hel"


async def test_a_message_with_parts_is_sent_unchanged() -> None:
    from tellback import image_part

    question = user_message(["What is this?", image_part(url="https://example.com/a.png")])
    with ScriptedModel([says("A cat.")]) as model:
        await run_loop(ChatOptions(model=model), question)
    assert model.requests[0].messages == (question,)


async def test_concurrent_runs_do_not_mix() -> None:
    async def echo(request: Any) -> Any:
        await asyncio.sleep(0)
        question = request.messages[0].content
        if request.messages[-1].role == "tool":
            return f"{question} -> {request.messages[-1].content}"
        return calls("double", n=int(question))

    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    opts = ChatOptions(model=FunctionModel(echo), tools=[double])
    results = await asyncio.gather(*(run_loop(opts, str(n)) for n in range(50)))
    assert [str(result) for result in results] == [f"{n} -> {2 * n}" for n in range(50)]


async def test_a_tool_result_without_its_call_is_not_lost() -> None:
    history = [tool_result_message(ToolResult("gone", "42 apples")), user_message("How many?")]
    with ScriptedModel([says("42")]) as model:
        await run_loop_messages(ChatOptions(model=model), history)
    assert "42 apples" in model.requests[0].messages[0].content
