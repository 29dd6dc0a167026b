"""Tests for every adapter, with the vendor's own SDK against a server with the vendor's wire format."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from tellback import ChatOptions, StreamStop, assistant_message, run_loop, run_loop_stream, tool, user_message
from tellback.chat.providers.base import ProviderModel
from tellback.errors import (
    ProviderAuthError,
    ProviderConnectionError,
    ProviderError,
    ProviderOverloadedError,
    ProviderRateLimitError,
    ProviderRequestError,
    ProviderResponseError,
    ProviderTimeoutError,
)
from tellback.testing import ScriptedModel, says
from tellback.types import TextDelta, ToolCall, ToolUseEnd, ToolUseInputDelta, ToolUseStart
from tests.integration.chat.providers.vendors import VENDORS, Vendor
from tests.support.fake_http_server import Delay, DropConnection, FakeHttpServer, Reply, joined_text, sse_reply


@pytest.fixture(params=VENDORS, ids=lambda vendor: vendor.name)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    return request.param  # type: ignore[no-any-return]


needs_tools = pytest.mark.parametrize(
    "vendor", [vendor for vendor in VENDORS if vendor.has_tools], ids=lambda vendor: vendor.name
)
"""Runs a test only with the vendors that have tools."""


@tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


async def collect(model: ProviderModel, *args: Any, **kwargs: Any) -> list[Any]:
    return [delta async for delta in model.stream(*args, **kwargs)]


async def collect_into(seen: list[Any], model: ProviderModel, *args: Any) -> None:
    async for delta in model.stream(*args):
        seen.append(delta)  # noqa: PERF401 - deltas before a failure must stay in the list


async def test_a_reply_is_read_without_streaming(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("Hello!"))
    async with vendor.model(wire) as model:
        reply = await model.complete("Hi", system="Be brief.")
    assert reply.text == "Hello!"
    assert reply.stop_reason == "end_turn"
    assert reply.usage is not None
    assert reply.usage.input_tokens == 10
    assert reply.usage.provider == model.provider
    assert reply.usage.latency_ms is not None
    if vendor.has_prices:
        assert reply.usage.cost_usd is not None
        assert reply.usage.cost_usd > 0
    assert reply.raw is not None
    assert vendor.sent_texts(wire.last.body)[-1] == ("user", "Hi")
    assert "Be brief." in str(wire.last.body)


async def test_a_reply_is_read_from_a_stream(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(sse_reply(*vendor.text_chunks("Hel", "", "lo!"), *vendor.final_chunks()))
    async with vendor.model(wire) as model:
        deltas = await collect(model, "Hi")
    assert vendor.is_streaming(wire)
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["Hel", "lo!"]
    stop = deltas[-1]
    assert isinstance(stop, StreamStop)
    assert stop.reason == "end_turn"
    assert stop.usage is not None
    assert stop.usage.output_tokens == 7
    assert stop.reply is not None
    assert stop.reply.text == "Hello!"


@needs_tools
async def test_parallel_tool_calls_are_equal_with_and_without_streaming(vendor: Vendor, wire: FakeHttpServer) -> None:
    tool_calls = [("c1", "add", {"x": 1, "y": 2}), ("c2", "add", {"x": 3, "y": 4})]
    wire.reply_with(vendor.response("Let me see.", tool_calls), vendor.streamed_calls(tool_calls, "Let me see."))
    async with vendor.model(wire) as model:
        complete_reply = await model.complete("1+2 and 3+4?", tools=[add])
        deltas = await collect(model, "1+2 and 3+4?", tools=[add])
    streamed_reply = deltas[-1].reply
    for reply in (complete_reply, streamed_reply):
        assert reply.text == "Let me see."
        assert reply.stop_reason == "tool_use"
        assert [(call.name, call.input) for call in reply.tool_calls] == [(n, i) for _, n, i in tool_calls]
        assert len({call.id for call in reply.tool_calls}) == 2
    kinds = [type(d) for d in deltas if not isinstance(d, TextDelta | StreamStop)]
    assert kinds.count(ToolUseStart) == kinds.count(ToolUseEnd) == 2
    first = streamed_reply.tool_calls[0].id
    partial_inputs = [d.partial_input_json for d in deltas if isinstance(d, ToolUseInputDelta) and d.id == first]
    assert "".join(partial_inputs).replace(" ", "") == '{"x":1,"y":2}'


@needs_tools
async def test_text_before_a_tool_call_is_streamed_before_the_answer(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(
        vendor.streamed_calls([("c1", "add", {"x": 17, "y": 25})], "Let me add."),
        sse_reply(*vendor.text_chunks("It is ", "42."), *vendor.final_chunks()),
    )
    seen: list[Any] = []
    async with vendor.model(wire) as model:
        result = await run_loop_stream(ChatOptions(model=model, tools=[add]), "What is 17 + 25?", seen.append)
    assert str(result) == "It is 42."
    assert joined_text(seen) == "Let me add.It is 42."
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert "42" in str(wire.last.body)
    assert len(wire.requests) == 2


@needs_tools
async def test_the_request_contains_the_tool_definition(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.always_reply_with(vendor.response("ok"))
    async with vendor.model(wire) as model:
        for choice in ("auto", "none", "required", "add"):
            await model.complete("Hi", tools=[add], tool_choice=choice)
    sent = [request.body for request in wire.requests]
    tool_choices = [body.get("tool_choice") or body.get("toolConfig") for body in sent]
    assert tool_choices == list(vendor.tool_choices)
    schema = {
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
        "required": ["x", "y"],
        "additionalProperties": False,
        "type": "object",
    }
    definition = {"name": "add", "description": "Add two numbers."}
    assert sent[0]["tools"] == [vendor.tool_definition(definition, schema)]


async def test_the_request_contains_the_output_limit_and_config(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"))
    async with vendor.model(wire, config={"temperature": 0.25}) as model:
        await run_loop(ChatOptions(model=model, max_output_tokens=123), "Hi")
    assert vendor.sent_settings(wire.last.body) == (0.25, 123)


@needs_tools
async def test_the_request_contains_a_result_for_every_call(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("Fine."))
    history = [user_message("Go"), assistant_message("", [ToolCall("c1", "add", {"x": 1, "y": 2})]), user_message("?")]
    from tellback import run_loop_messages

    async with vendor.model(wire) as model:
        result = await run_loop_messages(ChatOptions(model=model, tools=[add]), history)
    assert result.text == "Fine."
    assert "interrupted" in str(wire.last.body)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ProviderAuthError),
        (403, ProviderAuthError),
        (400, ProviderRequestError),
        (404, ProviderRequestError),
        (413, ProviderRequestError),
    ],
)
async def test_a_rejected_request_is_not_retried(
    vendor: Vendor, wire: FakeHttpServer, status: int, kind: type[ProviderError], recorded_backoffs: list[float]
) -> None:
    wire.always_reply_with(vendor.failure(status, "said no"))
    async with vendor.model(wire) as model:
        with pytest.raises(kind, match="said no") as caught:
            await model.complete("Hi")
        assert caught.value.status == status
        assert not caught.value.retryable
        with pytest.raises(kind):
            await collect(model, "Hi")
    assert len(wire.requests) == 2
    assert recorded_backoffs == []


@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
async def test_a_temporary_failure_is_retried(
    vendor: Vendor, wire: FakeHttpServer, status: int, recorded_backoffs: list[float]
) -> None:
    wire.reply_with(vendor.failure(status), vendor.failure(status), vendor.response("Hello!"))
    async with vendor.model(wire) as model:
        assert (await model.complete("Hi")).text == "Hello!"
    assert len(wire.requests) == 3
    assert len(recorded_backoffs) == 2


async def test_retry_after_is_respected(vendor: Vendor, wire: FakeHttpServer, recorded_backoffs: list[float]) -> None:
    wire.reply_with(
        vendor.failure(429, retry_after="7"),
        vendor.failure(429, retry_after_ms="9000"),
        vendor.response("Hello!"),
    )
    async with vendor.model(wire) as model:
        await model.complete("Hi")
    assert recorded_backoffs == [7.0, 9.0]


async def test_a_retry_after_of_more_than_a_minute_is_raised(
    vendor: Vendor, wire: FakeHttpServer, recorded_backoffs: list[float]
) -> None:
    wire.always_reply_with(vendor.failure(429, retry_after="3600"))
    async with vendor.model(wire) as model:
        with pytest.raises(ProviderRateLimitError) as caught:
            await model.complete("Hi")
    assert caught.value.retry_after == 3600
    assert recorded_backoffs == []


@pytest.mark.parametrize("streaming", [False, True])
async def test_without_retries_there_is_one_request(vendor: Vendor, wire: FakeHttpServer, streaming: bool) -> None:
    wire.always_reply_with(vendor.failure(529))
    async with vendor.model(wire, retries=0) as model:
        with pytest.raises(ProviderOverloadedError):
            await (collect(model, "Hi") if streaming else model.complete("Hi"))
    assert len(wire.requests) == 1


async def test_the_final_error_lists_every_attempt(
    vendor: Vendor, wire: FakeHttpServer, recorded_backoffs: list[float]
) -> None:
    wire.always_reply_with(vendor.failure(500))
    async with vendor.model(wire, retries=2) as model:
        with pytest.raises(ProviderOverloadedError) as caught:
            await model.complete("Hi")
    assert [attempt.status for attempt in caught.value.attempts] == [500, 500, 500]
    assert len(recorded_backoffs) == 2


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_backup_model_of_the_same_provider_takes_over(
    vendor: Vendor, wire: FakeHttpServer, streaming: bool, recorded_backoffs: list[float]
) -> None:
    good = sse_reply(*vendor.text_chunks("Hello!"), *vendor.final_chunks()) if streaming else vendor.response("Hello!")
    wire.reply_with(vendor.failure(529), vendor.failure(529), good)
    async with vendor.model(wire, "first-model", retries=1, backup_models=["second-model"]) as model:
        if streaming:
            assert joined_text(await collect(model, "Hi")) == "Hello!"
        else:
            assert (await model.complete("Hi")).text == "Hello!"
    chat_request = [str(request.body.get("model", request.path)) for request in wire.requests]
    assert ["first" in name for name in chat_request] == [True, True, False]
    assert "second" in chat_request[-1]


async def test_a_backup_of_another_provider_takes_over(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.always_reply_with(vendor.failure(401))
    with ScriptedModel([says("From elsewhere."), says("Again.")]) as other:
        async with vendor.model(wire, retries=0, backup_models=[other], config={"temperature": 0.5}) as model:
            assert (await model.complete("Hi", system="S", max_output_tokens=9)).text == "From elsewhere."
            assert joined_text(await collect(model, "Hi")) == "Again."
    assert other.requests[0].system == "S"
    assert other.requests[0].max_output_tokens == 9
    assert other.requests[0].config == {}


BROKEN: dict[str, list[Any]] = {"cut": [DropConnection()], "ended early": [], "error inside": ["inside"]}


@pytest.mark.parametrize("breakage", BROKEN)
async def test_the_error_of_a_broken_stream_has_its_partial_text(
    vendor: Vendor, wire: FakeHttpServer, breakage: str
) -> None:
    wire.reply_with(broken_reply(vendor, breakage, "Hello wor"))
    seen: list[Any] = []
    async with vendor.model(wire, retries=0) as model:
        with pytest.raises((ProviderConnectionError, ProviderOverloadedError, ProviderResponseError)) as caught:
            await collect_into(seen, model, "Hi")
    assert joined_text(seen) == "Hello wor"
    assert caught.value.partial_text == "Hello wor"
    assert caught.value.retryable


def broken_reply(vendor: Vendor, breakage: str, text: str) -> Reply:
    tail = [vendor.mid_stream_error() if item == "inside" else item for item in BROKEN[breakage]]
    return sse_reply(*vendor.text_chunks(text), *tail)


@pytest.mark.parametrize("breakage", BROKEN)
@pytest.mark.parametrize("continuation", ["ld!", "Hello world!"], ids=["continues", "starts again"])
async def test_a_backup_after_partial_output_never_repeats_text(
    vendor: Vendor, wire: FakeHttpServer, breakage: str, continuation: str
) -> None:
    chunk_texts = [continuation[i : i + 2] for i in range(0, len(continuation), 2)]
    wire.reply_with(
        broken_reply(vendor, breakage, "Hello wor"),
        sse_reply(*vendor.text_chunks(*chunk_texts), *vendor.final_chunks()),
    )
    async with vendor.model(wire, retries=0, backup_models=["backup-model"]) as model:
        deltas = await collect(model, "Hi")
    assert joined_text(deltas) == "Hello world!"
    assert deltas[-1].reply.text == "Hello world!"
    request = vendor.sent_texts(wire.last.body)
    assert request[1] == ("assistant", "Hello wor")
    assert request[2][0] == "user"


@needs_tools
@pytest.mark.parametrize("continuation_kind", ["text", "call"])
async def test_a_continuation_that_begins_like_the_earlier_text_is_not_lost(
    vendor: Vendor, wire: FakeHttpServer, continuation_kind: str, recorded_backoffs: list[float]
) -> None:
    if continuation_kind == "text":
        continuation = sse_reply(*vendor.text_chunks("na"), *vendor.final_chunks())
    else:
        continuation = vendor.streamed_calls([("c", "add", {"x": 1, "y": 2})], "na")
    wire.reply_with(sse_reply(*vendor.text_chunks("na na "), DropConnection()), continuation)
    async with vendor.model(wire, retries=1) as model:
        deltas = await collect(model, "Sing", tools=[add])
    assert joined_text(deltas) == deltas[-1].reply.text == "na na na"
    assert len(deltas[-1].reply.tool_calls) == (continuation_kind == "call")


@needs_tools
async def test_an_incomplete_call_never_runs(
    vendor: Vendor, wire: FakeHttpServer, recorded_backoffs: list[float]
) -> None:
    payments: list[int] = []

    async def pay(euros: int = 0) -> str:
        """Pay."""
        payments.append(euros)
        return "paid"

    class Backup:
        model = provider = "backup"

        async def complete(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

        async def stream(self, *args: Any, **options: Any) -> Any:
            yield TextDelta("Never mind.")
            yield StreamStop("end_turn")

    full_reply = vendor.streamed_calls([("c", "pay", {"euros": 500})], "One moment. ")
    for size in range(1, len(full_reply.body) - 1):
        wire.reply_with(Reply(200, full_reply.headers, (*full_reply.body[:size], DropConnection())))
        async with vendor.model(wire, retries=0, backup_models=[Backup()]) as model:
            result = await run_loop_stream(ChatOptions(model=model, tools=[pay]), "Pay")
        assert result.text.endswith("Never mind.")
        assert result.messages[-1].tool_calls == ()
    assert payments == []


# Connections of a closed event loop cannot be closed any more.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_model_object_serves_one_event_loop_after_another(vendor: Vendor) -> None:
    models: list[ProviderModel] = []

    async def ask() -> str:
        async with FakeHttpServer() as wire:
            if not models:
                models.append(vendor.model(wire, retries=0))
            model = models[0]
            model._base_url = vendor.model(wire)._base_url
            wire.reply_with(vendor.response("Hello!"), sse_reply(*vendor.text_chunks("Hello!"), *vendor.final_chunks()))
            reply = await model.complete("Hi")
            assert joined_text(await collect(model, "Hi")) == "Hello!"
            return reply.text

    assert [asyncio.run(ask()) for _ in range(3)] == ["Hello!"] * 3
    assert len(models[0]._clients) == 1
    models.clear()
    gc.collect()


@needs_tools
async def test_the_request_wins_over_config_and_tools_are_combined(vendor: Vendor, wire: FakeHttpServer) -> None:
    options = {"tools": [vendor.server_tool], vendor.limit_option: 1000}
    wire.reply_with(vendor.response("ok"))
    async with vendor.model(wire, config=options) as model:
        await model.complete("Hi", tools=[add], max_output_tokens=50)
    assert len(wire.last.body["tools"]) == 2
    assert "50" in str(wire.last.body)
    assert "1000" not in str(wire.last.body)


async def test_a_forbidden_model_is_replaced_by_its_backup(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.failure(403), vendor.response("Hello!"))
    async with vendor.model(wire, "first-model", backup_models="second-model") as model:
        assert (await model.complete("Hi")).text == "Hello!"


async def test_the_error_of_a_backup_without_a_key_mentions_the_first_failure(
    vendor: Vendor, wire: FakeHttpServer
) -> None:
    from tellback import OpenAIModel
    from tellback.errors import MissingKeyError

    wire.always_reply_with(vendor.failure(529))
    async with vendor.model(wire, retries=0, backup_models=[OpenAIModel("gpt-5")]) as model:
        for call in (model.complete("Hi"), collect(model, "Hi")):
            with pytest.raises(MissingKeyError) as caught:
                await call
            assert "An earlier attempt with" in caught.value.__notes__[0]


async def test_cancelling_a_stream_closes_the_connection(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(sse_reply(*vendor.text_chunks("Hello"), Delay(30)))
    started = asyncio.Event()

    async def read(model: ProviderModel) -> None:
        async for delta in model.stream("Hi"):
            if isinstance(delta, TextDelta):
                started.set()

    async with vendor.model(wire) as model:
        task = asyncio.create_task(read(model))
        await asyncio.wait_for(started.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(wire.client_left.wait(), 5)


async def test_leaving_a_stream_early_closes_the_connection(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(sse_reply(*vendor.text_chunks("Hello"), Delay(30)))
    async with vendor.model(wire) as model:
        stream: Any = model.stream("Hi")
        async for delta in stream:
            if isinstance(delta, TextDelta):
                break
        await stream.aclose()
        await asyncio.wait_for(wire.client_left.wait(), 5)


async def test_cancelling_a_call_without_a_stream_closes_the_connection(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(Reply(200, {"content-type": "application/json"}, (b" ", Delay(30))))
    async with vendor.model(wire) as model:
        task = asyncio.create_task(model.complete("Hi"))
        await asyncio.wait_for(wire.request_received.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(wire.client_left.wait(), 5)


@pytest.mark.parametrize("texts", [(), ("Hello",)], ids=["before the first chunk", "between chunks"])
async def test_silence_in_a_stream_times_out(vendor: Vendor, wire: FakeHttpServer, texts: tuple[str, ...]) -> None:
    wire.reply_with(sse_reply(*(vendor.text_chunks(*texts) if texts else ()), Delay(30)))
    async with vendor.model(wire, timeout=0.3, retries=0) as model:
        with pytest.raises(ProviderTimeoutError, match=r"for 0\.3 seconds"):
            await collect(model, "Hi")
        await asyncio.wait_for(wire.client_left.wait(), 5)


async def test_a_server_that_sends_no_headers_times_out(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(*[Reply(200, {"content-type": "text/event-stream"}, (), header_delay=30)] * 2)
    async with vendor.model(wire, timeout=0.3, retries=0) as model:
        for call in (collect, ProviderModel.complete):
            with pytest.raises(ProviderTimeoutError, match=r"for 0\.3 seconds"):
                await call(model, "Hi")


async def test_a_failure_after_a_complete_reply_is_ignored(vendor: Vendor, wire: FakeHttpServer) -> None:
    complete = [*vendor.text_chunks("Hello!"), *vendor.final_chunks()]
    wire.reply_with(sse_reply(*complete, DropConnection()), sse_reply(*complete, Delay(20)))
    async with vendor.model(wire, retries=0, timeout=0.5) as model:
        for _ in range(2):
            deltas = await collect(model, "Hi")
            assert joined_text(deltas) == deltas[-1].reply.text == "Hello!"


@needs_tools
async def test_the_request_contains_the_config_of_the_options_and_its_tools(
    vendor: Vendor, wire: FakeHttpServer
) -> None:
    wire.reply_with(vendor.response("ok"))
    async with vendor.model(wire) as model:
        config = {"tools": [vendor.server_tool], "temperature": 0.25}
        await run_loop(ChatOptions(model=model, tools=[add], config=config), "Hi")
    assert len(wire.last.body["tools"]) == 2
    assert "0.25" in str(wire.last.body)


@needs_tools
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_call_truncated_by_the_output_limit_does_not_run(
    vendor: Vendor, wire: FakeHttpServer, streaming: bool
) -> None:
    wiped: list[bool] = []

    async def wipe(all: bool = True) -> str:
        """Wipe."""
        wiped.append(all)
        return "wiped"

    after = sse_reply(*vendor.text_chunks("Sorry."), *vendor.final_chunks()) if streaming else vendor.response("Sorry.")
    wire.reply_with(vendor.truncated_call("wipe", streaming), after)
    run = run_loop_stream if streaming else run_loop
    async with vendor.model(wire) as model:
        result = await run(ChatOptions(model=model, tools=[wipe]), "Wipe")
    assert result.steps[0].reply.stop_reason == "max_tokens"
    assert [call.name for call in result.steps[0].reply.tool_calls] == ["wipe"]
    assert wiped == []
    assert "not a valid JSON object" in str(wire.last.body)
    assert result.text == "Sorry."


@needs_tools
@pytest.mark.parametrize("streaming", [False, True])
async def test_the_stop_reason_is_normalised_and_raw_has_the_vendors(
    vendor: Vendor, wire: FakeHttpServer, streaming: bool
) -> None:
    wire.reply_with(vendor.truncated_call("wipe", streaming))
    async with vendor.model(wire) as model:
        reply = (await collect(model, "Hi"))[-1].reply if streaming else await model.complete("Hi")
    assert reply.stop_reason == "max_tokens"
    raw = reply.raw if isinstance(reply.raw, dict) else reply.raw.model_dump(mode="json")
    assert f"'{vendor.limit_reason}'" in str(raw)


async def test_a_connection_is_reused_after_a_stream(vendor: Vendor, wire: FakeHttpServer) -> None:
    full_reply = sse_reply(*vendor.text_chunks("Hello!"), *vendor.final_chunks())
    wire.reply_with(full_reply, full_reply, full_reply)
    async with vendor.model(wire) as model:
        for _ in range(3):
            await collect(model, "Hi")
        assert [task for task in asyncio.all_tasks() if "athrow" in repr(task)] == []
    assert wire.connections == 1


async def test_a_slow_stream_does_not_time_out(vendor: Vendor, wire: FakeHttpServer) -> None:
    chunks = vendor.text_chunks("a", "b", "c", "d", "e")
    slow = [item for chunk in chunks for item in (Delay(0.15), chunk)]
    wire.reply_with(sse_reply(*slow, *vendor.final_chunks()))
    async with vendor.model(wire, timeout=0.5, retries=0) as model:
        assert joined_text(await collect(model, "Hi")) == "abcde"


async def test_silence_in_a_call_without_a_stream_times_out(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(Reply(200, {"content-type": "application/json"}, (Delay(30),)))
    async with vendor.model(wire, timeout=0.3, retries=0) as model:
        with pytest.raises(ProviderTimeoutError):
            await model.complete("Hi")


async def test_a_body_that_is_not_json_raises_provider_response_error(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(Reply(200, {"content-type": "application/json"}, (b"<html>gateway</html>",)))
    async with vendor.model(wire, retries=0) as model:
        with pytest.raises(ProviderResponseError):
            await model.complete("Hi")


async def test_a_closed_port_raises_provider_connection_error(vendor: Vendor) -> None:
    async with FakeHttpServer() as closed_server:
        model = vendor.model(closed_server, retries=0)
    async with model:
        with pytest.raises(ProviderConnectionError):
            await model.complete("Hi")
        with pytest.raises(ProviderConnectionError):
            await collect(model, "Hi")
