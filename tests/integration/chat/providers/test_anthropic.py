"""The features of Anthropic's API: blocks, usage, limits."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Any

import anthropic
import pydantic
import pytest

from tellback import (
    AnthropicModel,
    ChatOptions,
    ConfigurationError,
    ToolCall,
    ToolResult,
    assistant_message,
    file_part,
    image_part,
    run_loop,
    run_loop_messages,
    run_loop_stream,
    system_message,
    tool_result_message,
    user_message,
)
from tellback.chat import close_models
from tellback.errors import MissingKeyError, ProviderOverloadedError, ProviderResponseError
from tellback.types import Message, MessagePart, ThinkingDelta, audio_part, instructions_part, text_part
from tests.integration.chat.providers.vendors import Anthropic, anthropic_event, message
from tests.support.fake_http_server import Delay, DropConnection, FakeHttpServer, joined_text, json_reply, sse_reply

vendor = Anthropic()


class Open(pydantic.BaseModel):
    anything: Any


async def find(q: str) -> str:
    """Find something."""
    return "found"


def stream_of(*events: dict[str, Any]) -> Any:
    return sse_reply(*map(anthropic_event, events))


def start(**usage: Any) -> dict[str, Any]:
    return {
        "type": "message_start",
        "message": message([], None, usage={"input_tokens": 3, "output_tokens": 1, **usage}),
    }


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(reason: str = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9, **usage}},
        {"type": "message_stop"},
    ]


async def test_the_request_has_anthropics_documented_form(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"))
    history = [
        system_message("And kind."),
        user_message("Look up Ada."),
        assistant_message("I will.", [ToolCall("t1", "find", {"name": "Ada"}), ToolCall("t2", "find", {"name": "Bo"})]),
        tool_result_message(ToolResult("t1", "Ada Lovelace")),
        tool_result_message(ToolResult("t2", "nobody", is_error=True)),
        user_message("Thanks."),
    ]
    async with vendor.model(wire) as model:
        await model.complete(history, system="Be brief.")
    body = wire.last.body
    assert wire.last.path == "/v1/messages"
    assert "key" in credentials(wire)
    assert body["system"] == "Be brief.\n\nAnd kind."
    assert body["max_tokens"] == 8192
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Look up Ada."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I will."},
                {"type": "tool_use", "id": "t1", "name": "find", "input": {"name": "Ada"}},
                {"type": "tool_use", "id": "t2", "name": "find", "input": {"name": "Bo"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "Ada Lovelace"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "nobody", "is_error": True},
                {"type": "text", "text": "Thanks."},
            ],
        },
    ]
    # The tools of the history are in the request, but cannot be called.
    assert body["tools"] == [{"name": "find", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


async def test_empty_messages_and_a_history_that_starts_with_the_assistant_are_encoded(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"))
    async with vendor.model(wire) as model:
        await model.complete([assistant_message("Hello."), user_message("  "), user_message("Hi")])
    roles = [sent["role"] for sent in wire.last.body["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert wire.last.body["messages"][-1]["content"] == [{"type": "text", "text": "Hi"}]


async def test_images_and_files_become_blocks_and_audio_a_placeholder(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"))
    parts: list[Any] = [
        "What is this?",
        image_part(data=b"png", mime="image/png"),
        image_part(url="https://example.com/cat.jpg"),
        image_part(url="data:image/gif;base64,R0lG"),
        file_part(data=b"%PDF", mime="application/pdf", name="bill.pdf"),
        file_part(url="https://example.com/a.pdf"),
        file_part(data=b"a,b\n1,2", mime="text/csv", name="t.csv"),
        audio_part(data=b"x", mime="audio/mp3", name="note.mp3"),
        MessagePart("text", text="The end.", meta={"cache_control": {"type": "ephemeral"}}),
    ]
    async with vendor.model(wire) as model:
        await model.complete(user_message(parts))
    assert wire.last.body["messages"][0]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(b"png")}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.jpg"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lG"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": b64(b"%PDF")},
            "title": "bill.pdf",
        },
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "a,b\n1,2"},
            "title": "t.csv",
        },
        {"type": "text", "text": "[audio: note.mp3]"},
        {"type": "text", "text": "The end.", "cache_control": {"type": "ephemeral"}},
    ]


async def test_a_tool_result_can_contain_an_image(wire: FakeHttpServer) -> None:
    async def shoot() -> list[MessagePart]:
        """Take a picture."""
        return [text_part("Here:"), image_part(data=b"png", mime="image/png")]

    wire.reply_with(vendor.response(calls=[("t1", "shoot", {})]), vendor.response("A cat."))
    async with vendor.model(wire) as model:
        await run_loop(ChatOptions(model=model, tools=[shoot]), "Shoot")
    result = wire.last.body["messages"][-1]["content"][0]
    assert [item["type"] for item in result["content"]] == ["text", "image"]


async def test_the_option_cache_marks_the_system_prompt_and_the_conversation(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"), vendor.response("ok"))
    async with vendor.model(wire, cache=True) as model:
        await model.complete("Hi", system="Long.")
    async with vendor.model(wire, cache="1h") as model:
        await model.complete("Hi")
    first, second = (request.body for request in wire.requests)
    assert first["system"] == [{"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}]
    assert first["cache_control"] == {"type": "ephemeral"}
    assert second["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


async def test_the_cache_ends_before_instructions_for_one_request(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"), vendor.response("ok"), vendor.response("ok"), vendor.response("ok"))
    mark = {"type": "ephemeral"}
    newest = user_message(["Two", instructions_part("Be brief.")])
    history = [user_message("One"), assistant_message("Hm")]
    own = user_message([MessagePart("text", text="Long.", meta={"cache_control": mark})])
    async with vendor.model(wire, cache=True) as model:
        await model.complete([*history, newest])
        await model.complete([own, newest])
        await model.complete([*history, user_message([instructions_part("Be brief.")])])
    async with vendor.model(wire) as model:
        await model.complete([*history, newest])
    first, with_own_mark, without_text, uncached = (request.body["messages"] for request in wire.requests)
    assert first[-1]["content"] == [
        {"type": "text", "text": "Two", "cache_control": mark},
        {"type": "text", "text": "Be brief."},
    ]
    assert str(with_own_mark).count("cache_control") == 1
    assert "cache_control" not in f"{without_text}{uncached}"


async def test_the_last_usage_counts_and_input_tokens_include_cached_tokens(wire: FakeHttpServer) -> None:
    wire.reply_with(
        stream_of(
            start(cache_read_input_tokens=100),
            *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "ok"}),
            *end(input_tokens=20, cache_read_input_tokens=100, cache_creation_input_tokens=30),
        )
    )
    async with vendor.model(wire) as model:
        [*_, stop] = [delta async for delta in model.stream("Hi")]
    usage = stop.usage  # type: ignore[union-attr]
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (150, 9, 159)
    assert (usage.cached_tokens, usage.cache_write_tokens) == (100, 30)


async def test_text_blocks_are_joined_without_a_separator(wire: FakeHttpServer) -> None:
    blocks = [{"type": "text", "text": "One, "}, {"type": "text", "text": "two."}]
    wire.reply_with(json_reply(message(blocks, "end_turn")))
    async with vendor.model(wire) as model:
        assert (await model.complete("Hi")).text == "One, two."


UNUSUAL: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "", "signature": "sig=="},
    {"type": "redacted_thinking", "data": "secret"},
    {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "x"}},
    {"type": "mcp_tool_use", "id": "mcp1", "name": "look", "server_name": "s", "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "mcp1", "is_error": False, "content": [{"type": "text", "text": "no"}]},
    {"type": "compaction", "content": "Earlier: ..."},
    {"type": "something_new", "payload": {"a": 1}},
    {"type": "text", "text": "Found it."},
    {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": "x"}},
]


@pytest.mark.parametrize("streaming", [False, True])
async def test_other_blocks_are_sent_back_unchanged(wire: FakeHttpServer, streaming: bool) -> None:
    if streaming:
        events = [event for index, content in enumerate(UNUSUAL) for event in block(index, content)]
        wire.reply_with(
            stream_of(start(), *events, *end("tool_use")),
            sse_reply(*vendor.text_chunks("Done."), *vendor.final_chunks()),
        )
    else:
        wire.reply_with(json_reply(message(UNUSUAL, "tool_use")), vendor.response("Done."))
    async with vendor.model(wire) as model:
        run = run_loop_stream if streaming else run_loop
        result = await run(ChatOptions(model=model, tools=[find]), "Find x")
    first = result.steps[0].reply
    assert first.text == "Found it."
    assert first.tool_calls == (ToolCall("t1", "find", {"q": "x"}),)
    assert wire.last.body["messages"][1]["content"] == UNUSUAL


async def test_signed_thinking_is_streamed_and_sent_back_unchanged(wire: FakeHttpServer) -> None:
    wire.reply_with(
        stream_of(
            start(),
            *block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "Let me "},
                {"type": "thinking_delta", "thinking": "think."},
                {"type": "signature_delta", "signature": "abc"},
            ),
            *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Yes."}),
            *end(),
        ),
        vendor.response("ok"),
    )
    async with vendor.model(wire) as model:
        deltas = [delta async for delta in model.stream("Hi")]
        reply = deltas[-1].reply  # type: ignore[union-attr]
        assert reply is not None
        await model.complete([user_message("Hi"), reply.message, user_message("Sure?")])
    assert [d.text for d in deltas if isinstance(d, ThinkingDelta)] == ["Let me ", "think."]
    assert joined_text(deltas) == reply.text == "Yes."
    assert reply.thinking == "Let me think."
    assert wire.last.body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Let me think.", "signature": "abc"},
        {"type": "text", "text": "Yes."},
    ]


async def test_stored_blocks_are_dropped_if_the_message_was_edited(wire: FakeHttpServer) -> None:
    wire.reply_with(json_reply(message([UNUSUAL[0], UNUSUAL[-2]], "end_turn")), vendor.response("ok"))
    async with vendor.model(wire) as model:
        reply = await model.complete("Hi")
        edited: Message = replace(reply.message, content="Something else.")
        await model.complete([user_message("Hi"), edited, user_message("?")])
    assert wire.last.body["messages"][1]["content"] == [{"type": "text", "text": "Something else."}]


async def test_unknown_events_pings_and_unknown_deltas_are_ignored(wire: FakeHttpServer) -> None:
    wire.reply_with(
        sse_reply(
            ": a comment\n\n",
            *map(anthropic_event, [start(), {"type": "ping"}, {"type": "brand_new_event", "x": 1}]),
            *map(
                anthropic_event,
                block(
                    0,
                    {"type": "text", "text": ""},
                    {"type": "text_delta", "text": "a"},
                    {"type": "brand_new_delta", "y": "z"},
                    {"type": "text_delta", "text": "b"},
                ),
            ),
            *map(anthropic_event, end()),
        )
    )
    async with vendor.model(wire) as model:
        assert joined_text([delta async for delta in model.stream("Hi")]) == "ab"


async def test_invalid_tool_arguments_become_an_error_result(wire: FakeHttpServer) -> None:
    truncated_block = block(
        0,
        {"type": "tool_use", "id": "t1", "name": "find", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"q": "x'},
    )
    wire.reply_with(
        stream_of(start(), *truncated_block, *end("max_tokens")),
        sse_reply(*vendor.text_chunks("Sorry."), *vendor.final_chunks()),
    )
    async with vendor.model(wire) as model:
        result = await run_loop_stream(ChatOptions(model=model, tools=[find]), "Go")
    sent = wire.last.body["messages"][-1]["content"][0]
    assert sent["is_error"] is True
    assert "not a valid JSON object" in sent["content"]
    assert result.text == "Sorry."


async def test_a_continued_reply_keeps_its_signed_thinking(
    wire: FakeHttpServer, recorded_backoffs: list[float]
) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    call = {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": "x"}}
    wire.reply_with(
        sse_reply(*vendor.text_chunks("Let me "), DropConnection()),
        stream_of(
            start(),
            *block(0, thinking),
            *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "look."}),
            *block(2, call),
            *end("tool_use"),
        ),
        sse_reply(*vendor.text_chunks("Found."), *vendor.final_chunks()),
    )
    async with vendor.model(wire, retries=1) as model:
        result = await run_loop_stream(ChatOptions(model=model, tools=[find]), "Find x")
    assert result.messages[1].content == "Let me look."
    sent = wire.last.body["messages"][1]["content"]
    assert sent == [thinking, {"type": "text", "text": "Let me "}, {"type": "text", "text": "look."}, call]


@pytest.mark.parametrize("body", [[], "x", None, 5])
async def test_a_body_of_another_shape_raises_provider_response_error(wire: FakeHttpServer, body: Any) -> None:
    wire.reply_with(json_reply(body))
    async with vendor.model(wire, retries=0) as model:
        with pytest.raises(ProviderResponseError):
            await model.complete("Hi")


async def test_a_paused_turn_is_continued(wire: FakeHttpServer) -> None:
    wire.reply_with(
        json_reply(message([*UNUSUAL[2:3], {"type": "text", "text": "Well. "}], "pause_turn")), vendor.response("Done.")
    )
    async with vendor.model(wire) as model:
        result = await run_loop(ChatOptions(model=model), "Search")
    assert result.text == "Well. Done."
    assert wire.last.body["messages"][-1]["content"][0] == UNUSUAL[2]


@pytest.mark.parametrize(
    ("vendor_reason", "stop_reason"),
    [("refusal", "refusal"), ("stop_sequence", "stop_sequence"), ("brand_new", "brand_new")],
)
async def test_stop_reasons_are_passed_on(wire: FakeHttpServer, vendor_reason: str, stop_reason: str) -> None:
    wire.reply_with(json_reply(message([{"type": "text", "text": "x"}], vendor_reason)))
    async with vendor.model(wire) as model:
        assert (await model.complete("Hi")).stop_reason == stop_reason


async def test_a_request_with_a_large_output_limit_is_streamed_internally(wire: FakeHttpServer) -> None:
    wire.reply_with(sse_reply(*vendor.text_chunks("Hello!"), *vendor.final_chunks()))
    async with vendor.model(wire) as model:
        reply = await model.complete("Hi", max_output_tokens=32_000)
    assert wire.last.body["stream"] is True
    assert reply.text == "Hello!"


async def test_a_schema_is_sent_as_output_format(wire: FakeHttpServer) -> None:
    class City(pydantic.BaseModel):
        name: str
        people: int = pydantic.Field(ge=0)

    wire.reply_with(vendor.response('{"name": "Rome", "people": 3}'))
    async with vendor.model(wire, config={"output_config": {"effort": "low"}}) as model:
        result = await run_loop(ChatOptions(model=model, output_type=City), "Which?")
    assert result.output == City(name="Rome", people=3)
    sent = wire.last.body["output_config"]
    assert sent["effort"] == "low"
    assert sent["format"]["type"] == "json_schema"
    assert sent["format"]["schema"]["required"] == ["name", "people"]
    assert sent["format"]["schema"]["additionalProperties"] is False


@pytest.mark.parametrize("output_type", [dict[str, int], list[dict[str, int]], Open])
async def test_an_inexact_schema_is_part_of_the_prompt(wire: FakeHttpServer, output_type: Any) -> None:
    wire.reply_with(vendor.response("{}"))
    async with vendor.model(wire) as model:
        await model.complete("Which?", output_schema=output_type, system="S")
    assert "output_config" not in wire.last.body
    assert "JSON schema" in wire.last.body["system"]


async def test_unusual_events_do_not_break_a_stream(wire: FakeHttpServer) -> None:
    empty_message = message([], None)
    del empty_message["usage"]
    wire.reply_with(
        stream_of(
            {"type": "message_start", "message": empty_message},
            *block(0, {"type": "thinking", "thinking": None}, {"type": "thinking_delta", "thinking": None}),
            *block(1, {"type": "tool_use", "name": "find", "input": {"q": "x"}}),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            {"type": "message_stop"},
        )
    )
    async with vendor.model(wire) as model:
        [*_, stop] = [delta async for delta in model.stream("Hi")]
    [call] = stop.reply.tool_calls  # type: ignore[union-attr]
    assert call.id
    assert call.input == {"q": "x"}


async def test_an_error_body_with_status_200_raises_an_error(wire: FakeHttpServer) -> None:
    wire.reply_with(json_reply({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}))
    async with vendor.model(wire, retries=0) as model:
        with pytest.raises(ProviderOverloadedError, match="Overloaded"):
            await model.complete("Hi")


async def test_events_after_the_end_do_not_delay_the_reply(wire: FakeHttpServer) -> None:
    pings = [item for _ in range(100) for item in (": ping\n\n", Delay(0.2))]
    wire.reply_with(sse_reply(*vendor.text_chunks("Hello!"), *vendor.final_chunks(), *pings))
    async with vendor.model(wire, retries=0) as model:
        assert joined_text([delta async for delta in model.stream("Hi")]) == "Hello!"
        await asyncio.wait_for(wire.client_left.wait(), 5)  # long before the server is finished


async def test_an_overload_within_a_stream_raises_provider_overloaded_error(wire: FakeHttpServer) -> None:
    wire.reply_with(sse_reply(vendor.mid_stream_error()))
    async with vendor.model(wire, retries=0) as model:
        with pytest.raises(ProviderOverloadedError) as caught:
            [delta async for delta in model.stream("Hi")]
    assert caught.value.status == 529


async def test_the_error_has_the_request_id(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.failure(400, request_id="req_42"))
    async with vendor.model(wire) as model:
        with pytest.raises(Exception, match="no") as caught:
            await model.complete("Hi")
    assert caught.value.request_id == "req_42"  # type: ignore[attr-defined]


async def test_a_custom_client_is_used_without_its_retries(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.failure(500))
    async with anthropic.AsyncAnthropic(api_key="mine", base_url=wire.url) as client:
        model = AnthropicModel("claude-sonnet-5", client=client, retries=0)
        with pytest.raises(ProviderOverloadedError):
            await model.complete("Hi")
        await model.aclose()
        assert not client.is_closed()
    assert "mine" in credentials(wire)
    assert len(wire.requests) == 1


async def test_a_sync_client_raises_configuration_error() -> None:
    model = AnthropicModel("claude-sonnet-5", client=anthropic.Anthropic(api_key="x"))
    with pytest.raises(ConfigurationError, match="AsyncAnthropic"):
        await model.complete("Hi")


async def test_the_error_without_a_key_contains_the_variable() -> None:
    with pytest.raises(MissingKeyError, match="ANTHROPIC_API_KEY"):
        await AnthropicModel("claude-sonnet-5").complete("Hi")


async def test_an_async_callback_runs_immediately_with_a_model_name(
    wire: FakeHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-env")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", wire.url)
    wire.reply_with(
        sse_reply(*vendor.text_chunks("a"), Delay(0.3), *vendor.text_chunks("b")[2:], *vendor.final_chunks())
    )
    times: list[float] = []

    async def on_delta(delta: Any) -> None:
        times.append(asyncio.get_running_loop().time())

    assert str(await run_loop_stream(ChatOptions(model="claude-sonnet-5"), "Hi", on_delta)) == "ab"
    assert times[1] - times[0] > 0.2
    await close_models()


async def test_the_model_name_selects_the_adapter(wire: FakeHttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-env")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", wire.url)
    wire.reply_with(vendor.response("Hello!"), sse_reply(*vendor.text_chunks("Hel", "lo!"), *vendor.final_chunks()))
    opts = ChatOptions(model="claude-sonnet-5", max_output_tokens=50)
    assert str(await run_loop(opts, "Hi")) == "Hello!"
    seen: list[Any] = []
    assert str(await run_loop_stream(opts, "Hi", seen.append)) == "Hello!"
    assert joined_text(seen) == "Hello!"
    assert "from-env" in credentials(wire)
    assert [request.body["max_tokens"] for request in wire.requests] == [50, 50]
    await close_models()


async def test_a_repaired_history_contains_the_thinking(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"))
    blocks = [UNUSUAL[0], UNUSUAL[-1]]
    stored = assistant_message("", [ToolCall("t1", "find", {"q": "x"})], meta={"anthropic": {"content": blocks}})
    async with vendor.model(wire) as model:
        await run_loop_messages(ChatOptions(model=model), [user_message("Go"), stored, user_message("?")])
    assert wire.last.body["messages"][1]["content"] == blocks
    assert wire.last.body["messages"][2]["content"][0]["type"] == "tool_result"


def credentials(wire: FakeHttpServer) -> str:
    return f"{wire.last.headers.get('x-api-key')} {wire.last.headers.get('authorization')}"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
