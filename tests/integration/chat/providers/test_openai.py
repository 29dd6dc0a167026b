"""The features of OpenAI's API, and the peculiarities of hosts with the same API."""

from __future__ import annotations

import base64
from typing import Any, Literal

import openai
import pydantic
import pytest

from tellback import (
    ChatOptions,
    CompatibleModel,
    ConfigurationError,
    OllamaModel,
    OpenAIModel,
    OpenRouterModel,
    ToolCall,
    ToolResult,
    assistant_message,
    file_part,
    image_part,
    run_loop,
    tool_result_message,
    user_message,
)
from tellback.chat import XaiModel, close_models
from tellback.errors import MissingKeyError, ProviderConnectionError, ProviderOverloadedError, ProviderRateLimitError
from tellback.types import (
    ChatReply,
    MessagePart,
    ThinkingDelta,
    ToolUseInputDelta,
    ToolUseStart,
    audio_part,
    instructions_part,
)
from tests.integration.chat.providers.vendors import OpenAI, chunk, completion, openai_call
from tests.support.fake_http_server import FakeHttpServer, data_event, joined_text, json_reply, sse_reply

vendor = OpenAI()
DONE = "data: [DONE]\n\n"


def host(wire: FakeHttpServer, **kwargs: Any) -> CompatibleModel:
    return CompatibleModel("llama", base_url=wire.url, retries=0, **kwargs)


async def complete_reply(wire: FakeHttpServer, body: Any, **kwargs: Any) -> ChatReply:
    wire.reply_with(json_reply(body))
    async with host(wire, **kwargs) as model:
        return await model.complete("Hi")


async def streamed_reply(wire: FakeHttpServer, *events: str, **kwargs: Any) -> tuple[list[Any], ChatReply]:
    wire.reply_with(sse_reply(*events))
    async with host(wire, **kwargs) as model:
        deltas: list[Any] = [delta async for delta in model.stream("Hi")]
    return deltas, deltas[-1].reply


async def test_the_request_has_openais_documented_form(wire: FakeHttpServer) -> None:
    wire.reply_with(sse_reply(*vendor.text_chunks("ok"), *vendor.final_chunks()))
    history = [
        user_message("Look up Ada."),
        assistant_message("", [ToolCall("t1", "find", {"name": "Ada"})]),
        tool_result_message(ToolResult("t1", "Ada Lovelace")),
        user_message("Thanks."),
    ]
    async with vendor.model(wire) as model:
        [_ async for _ in model.stream(history, system="Be brief.", max_output_tokens=9)]
    assert wire.last.path == "/v1/chat/completions"
    assert wire.last.headers["authorization"] == "Bearer key"
    assert wire.last.body == {
        "model": "gpt-5",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look up Ada."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "find", "arguments": '{"name":"Ada"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "t1", "content": "Ada Lovelace"},
            {"role": "user", "content": "Thanks."},
        ],
        "max_completion_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_images_audio_and_files_become_parts(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"))
    parts: list[Any] = [
        "See:",
        image_part(data=b"png", mime="image/png", meta={"detail": "low"}),
        image_part(url="https://example.com/cat.jpg"),
        audio_part(data=b"mp3", mime="audio/mpeg"),
        audio_part(url="https://example.com/a.mp3"),
        MessagePart("image", url="data:image/gif;base64,R0lG"),
        file_part(data=b"%PDF", mime="application/pdf", name="bill.pdf"),
        file_part(data=b"a,b", mime="text/csv", name="t.csv"),
    ]
    async with vendor.model(wire) as model:
        await model.complete(user_message(parts))
    assert wire.last.body["messages"][0]["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64(b'png')}", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.jpg"}},
        {"type": "input_audio", "input_audio": {"data": b64(b"mp3"), "format": "mp3"}},
        {"type": "text", "text": "[audio: https://example.com/a.mp3]"},
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}},
        {
            "type": "file",
            "file": {"filename": "bill.pdf", "file_data": f"data:application/pdf;base64,{b64(b'%PDF')}"},
        },
        {"type": "text", "text": "t.csv:\na,b"},
    ]


class City(pydantic.BaseModel):
    name: str
    mayor: str


class Trip(pydantic.BaseModel):
    city: City
    days: int = 3


@pytest.mark.parametrize(("output_type", "strict"), [(City, True), (Trip, False)])
async def test_a_schema_is_strict_if_openai_supports_it(wire: FakeHttpServer, output_type: Any, strict: bool) -> None:
    wire.reply_with(vendor.response('{"name": "Rome", "mayor": "x", "city": {"name": "Rome", "mayor": "x"}}'))
    async with vendor.model(wire) as model:
        await model.complete("Which?", output_schema=output_type)
    sent = wire.last.body["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["strict"] is strict
    assert sent["json_schema"]["schema"]["additionalProperties"] is False


async def test_a_host_without_schemas_gets_the_schema_in_the_prompt(wire: FakeHttpServer) -> None:
    wire.reply_with(json_reply(completion({"content": '```json\n{"name": "Rome", "mayor": "x"}\n```'}, "stop")))
    async with host(wire, json_schema=False) as model:
        result = await run_loop(ChatOptions(model=model, output_type=City, system="Be brief."), "Which?")
    assert result.output == City(name="Rome", mayor="x")
    assert "response_format" not in wire.last.body
    system = wire.last.body["messages"][0]["content"]
    assert system.startswith("Be brief.")
    assert '"mayor"' in system


async def test_the_usage_has_cached_and_reasoning_tokens(wire: FakeHttpServer) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    wire.reply_with(json_reply(completion({"content": "x"}, "stop", usage=usage)))
    async with vendor.model(wire) as model:
        found = (await model.complete("Hi")).usage
    assert found is not None
    assert (found.input_tokens, found.cached_tokens, found.reasoning_tokens) == (100, 64, 30)
    assert found.cost_usd == pytest.approx(36 * 1.25e-6 + 64 * 0.125e-6 + 50 * 10e-6)


async def test_a_refusal_has_its_text(wire: FakeHttpServer) -> None:
    reply = await complete_reply(wire, completion({"content": None, "refusal": "I cannot."}, "stop"))
    assert (reply.text, reply.stop_reason) == ("I cannot.", "refusal")
    _, reply = await streamed_reply(
        wire, chunk({"refusal": "I "}), chunk({"refusal": "cannot."}), chunk({}, "stop"), DONE
    )
    assert (reply.text, reply.stop_reason) == ("I cannot.", "refusal")


async def test_chunks_without_choices_and_usage_in_any_chunk_are_read(wire: FakeHttpServer) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 99}
    deltas, reply = await streamed_reply(
        wire,
        ": OPENROUTER PROCESSING\n\n",
        chunk(None),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}, usage=usage),
        chunk({}, "stop"),
        chunk({}, "stop"),
        DONE,
    )
    assert joined_text(deltas) == "Hello"
    assert reply.usage is not None
    assert reply.usage.total_tokens == 99
    assert reply.usage.cost_usd is None


async def test_usage_in_x_groq_is_read(wire: FakeHttpServer) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    _, reply = await streamed_reply(wire, chunk({"content": "x"}), chunk({}, "stop", x_groq={"usage": usage}), DONE)
    assert reply.usage is not None
    assert reply.usage.total_tokens == 7


@pytest.mark.parametrize("finish", [None, ""])
async def test_a_missing_finish_reason_is_not_an_error(wire: FakeHttpServer, finish: str | None) -> None:
    _, reply = await streamed_reply(wire, chunk({"content": "Hello"}, finish), DONE)
    assert (reply.text, reply.stop_reason) == ("Hello", "end_turn")
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    _, reply = await streamed_reply(wire, chunk({"tool_calls": [call]}, finish), DONE)
    assert reply.stop_reason == "tool_use"
    assert (await complete_reply(wire, completion({"content": "Hello"}, finish))).stop_reason == "end_turn"


@pytest.mark.parametrize("body", [{"id": "x"}, {"choices": []}, {"choices": None}])
async def test_a_200_without_choices_is_an_empty_reply(wire: FakeHttpServer, body: Any) -> None:
    reply = await complete_reply(wire, body)
    assert (reply.text, reply.tool_calls) == ("", ())


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Slow down", "code": 429}},
        {"choices": [{"error": {"message": "Slow down", "code": 429}, "message": {"content": ""}}]},
    ],
)
async def test_an_error_body_with_status_200_raises_an_error(wire: FakeHttpServer, body: Any) -> None:
    with pytest.raises(ProviderRateLimitError, match="Slow down"):
        await complete_reply(wire, body)


async def test_an_error_within_a_stream_raises_an_error(wire: FakeHttpServer) -> None:
    with pytest.raises(ProviderOverloadedError, match="upstream"):
        await streamed_reply(wire, chunk({"content": "x"}), data_event({"error": {"message": "upstream", "code": 502}}))
    with pytest.raises(ProviderOverloadedError):
        await streamed_reply(wire, chunk({"content": "x"}), chunk({"content": ""}, "error"), DONE)


async def test_content_can_be_a_list_of_parts(wire: FakeHttpServer) -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]},
        {"type": "text", "text": "Hel"},
        {"type": "text", "text": "lo"},
    ]
    reply = await complete_reply(wire, completion({"content": parts}, "stop"))
    assert (reply.text, reply.thinking) == ("Hello", "Hmm.")
    deltas, reply = await streamed_reply(
        wire, chunk({"content": parts[:2]}), chunk({"content": parts[2:]}, "stop"), DONE
    )
    assert (joined_text(deltas), reply.text, reply.thinking) == ("Hello", "Hello", "Hmm.")


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_thinking_in_a_separate_field_is_read(wire: FakeHttpServer, field: str) -> None:
    reply = await complete_reply(wire, completion({"content": "Yes.", field: "Hmm."}, "stop"))
    assert (reply.text, reply.thinking) == ("Yes.", "Hmm.")
    deltas, reply = await streamed_reply(wire, chunk({field: "Hmm."}), chunk({"content": "Yes."}, "stop"), DONE)
    assert deltas[0] == ThinkingDelta("Hmm.")
    assert (reply.text, reply.thinking) == ("Yes.", "Hmm.")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
async def test_thinking_between_tags_is_read(wire: FakeHttpServer, size: int) -> None:
    text = "\n<think>a < b </thin k></think>\n\nYes <think> stays."
    text_chunks = [chunk({"content": text[i : i + size]}) for i in range(0, len(text), size)]
    deltas, reply = await streamed_reply(wire, *text_chunks, chunk({}, "stop"), DONE)
    assert joined_text(deltas) == reply.text == "Yes <think> stays."
    assert reply.thinking == "a < b </thin k>"
    assert (await complete_reply(wire, completion({"content": text}, "stop"))).text == "Yes <think> stays."


@pytest.mark.parametrize("text", ["<", "<thin", "<think>open", " <b>"])
async def test_text_that_resembles_a_tag_is_not_lost(wire: FakeHttpServer, text: str) -> None:
    _, reply = await streamed_reply(wire, chunk({"content": text}), chunk({}, "stop"), DONE)
    assert (reply.text + reply.thinking) in (text, "open")


async def test_calls_without_type_id_or_arguments_are_read(wire: FakeHttpServer) -> None:
    calls = [
        {"id": "", "function": {"name": "now"}},
        {"function": {"name": "now", "arguments": None}},
        {"id": "c3", "function": {"name": "add", "arguments": {"x": 1}}},
    ]
    reply = await complete_reply(wire, completion({"content": None, "tool_calls": calls}, "tool_calls"))
    assert [call.input for call in reply.tool_calls] == [{}, {}, {"x": 1}]
    assert len({call.id for call in reply.tool_calls}) == 3
    assert all(call.id for call in reply.tool_calls)


async def test_streamed_calls_with_equal_or_missing_indexes_are_separate(wire: FakeHttpServer) -> None:
    def call_chunk(index: int | None, id: str | None, name: str | None, arguments: str | None) -> str:
        call: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
        if index is not None:
            call["index"] = index
        if id is not None:
            call["id"] = id
        return chunk({"tool_calls": [call]})

    _, reply = await streamed_reply(
        *(wire, call_chunk(0, "a", "add", '{"x":1}'), call_chunk(0, "b", "add", '{"x":'), call_chunk(0, "", "", "2}")),
        *(chunk({}, "tool_calls"), DONE),
    )
    assert [(call.id, call.input) for call in reply.tool_calls] == [("a", {"x": 1}), ("b", {"x": 2})]
    deltas, reply = await streamed_reply(wire, call_chunk(None, "a", "now", None), chunk({}, "stop"), DONE)
    assert [(call.id, call.input) for call in reply.tool_calls] == [("a", {})]
    assert reply.stop_reason == "tool_use"
    assert ToolUseStart("a", "now") in deltas
    assert not any(isinstance(delta, ToolUseInputDelta) for delta in deltas)


async def test_streamed_calls_without_ids_are_separate(wire: FakeHttpServer) -> None:
    def call_chunk(*calls: dict[str, Any]) -> str:
        return chunk({"tool_calls": list(calls)})

    first_call = {"function": {"name": "add", "arguments": '{"x":1}'}}
    second_call = {"function": {"name": "add", "arguments": '{"x":2}'}}
    for events in (
        [call_chunk(first_call, second_call)],
        [call_chunk(first_call), call_chunk(second_call)],
        [call_chunk({"index": 0, "id": "", **first_call}), call_chunk({"index": 0, "id": "", **second_call})],
        [call_chunk({"index": 0, "id": "same", **first_call}), call_chunk({"index": 1, "id": "same", **second_call})],
    ):
        _, reply = await streamed_reply(wire, *events, chunk({}, "tool_calls"), DONE)
        assert [call.input for call in reply.tool_calls] == [{"x": 1}, {"x": 2}]
        assert len({call.id for call in reply.tool_calls}) == 2
    repeated = [{"index": 0, "function": {"name": "add", "arguments": text}} for text in ('{"x"', ":1}", "")]
    _, reply = await streamed_reply(wire, *map(call_chunk, repeated), chunk({}, "tool_calls"), DONE)
    assert [call.input for call in reply.tool_calls] == [{"x": 1}]


async def test_two_complete_calls_with_equal_ids_are_two_calls(wire: FakeHttpServer) -> None:
    calls = [openai_call("same", "add", {"x": n}) for n in (1, 2)]
    reply = await complete_reply(wire, completion({"content": None, "tool_calls": calls}, "tool_calls"))
    assert len({call.id for call in reply.tool_calls}) == 2


async def test_complete_calls_are_separate_and_sent_back_without_their_index(wire: FakeHttpServer) -> None:
    calls = [{"index": 0, **openai_call("", name, {})} for name in ("now", "add")]
    reply = await complete_reply(wire, completion({"content": None, "tool_calls": calls}, "tool_calls"))
    assert [(call.name, call.input) for call in reply.tool_calls] == [("now", {}), ("add", {})]
    wire.reply_with(vendor.response("ok"))
    results = [tool_result_message(ToolResult(call.id, "1")) for call in reply.tool_calls]
    async with host(wire) as model:
        await model.complete([user_message("Hi"), reply.message, *results])
    assert all("index" not in call for call in wire.last.body["messages"][1]["tool_calls"])


async def test_a_complete_call_without_a_name_is_returned(wire: FakeHttpServer) -> None:
    calls = [openai_call("c1", "", {})]
    reply = await complete_reply(wire, completion({"content": None, "tool_calls": calls}, "tool_calls"))
    assert [(call.id, call.name) for call in reply.tool_calls] == [("c1", "")]


async def test_a_whole_message_at_the_end_of_a_stream_is_not_repeated(wire: FakeHttpServer) -> None:
    whole = completion({"role": "assistant", "content": "Hello!"}, "stop")
    _, reply = await streamed_reply(wire, chunk({"content": "Hello!"}), data_event(whole), DONE)
    assert reply.text == "Hello!"


async def test_the_older_function_call_is_read_with_and_without_streaming(wire: FakeHttpServer) -> None:
    call = {"name": "add", "arguments": '{"x":1}'}
    reply = await complete_reply(wire, completion({"content": None, "function_call": call}, "function_call"))
    assert [(c.name, c.input) for c in reply.tool_calls] == [("add", {"x": 1})]
    call_deltas = [{"name": "add", "arguments": ""}, {"arguments": '{"x"'}, {"arguments": ":1}"}]
    events = [chunk({"function_call": call_delta}) for call_delta in call_deltas]
    _, reply = await streamed_reply(wire, *events, chunk({}, "function_call"), DONE)
    assert [(c.name, c.input) for c in reply.tool_calls] == [("add", {"x": 1})]
    assert reply.stop_reason == "tool_use"


async def test_a_broken_stream_with_usage_in_every_chunk_is_incomplete(wire: FakeHttpServer) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    with pytest.raises(ProviderConnectionError):
        await streamed_reply(wire, chunk({"content": "Hel"}, usage=usage))
    _, reply = await streamed_reply(wire, chunk({"content": "Hello"}), chunk(None, usage=usage))
    assert reply.text == "Hello"


async def test_reasoning_streamed_in_pieces_is_sent_back_complete(wire: FakeHttpServer) -> None:
    def text_chunk(text: str) -> dict[str, Any]:
        return {"type": "reasoning.text", "index": 0, "text": text, "signature": None}

    signature_chunk = {"type": "reasoning.text", "index": 0, "signature": "sig"}
    events = [
        chunk({"reasoning_details": [item]}) for item in (text_chunk("Let me "), text_chunk("think."), signature_chunk)
    ]
    wire.reply_with(sse_reply(*events, chunk({"content": "Yes."}, "stop"), DONE), vendor.response("ok"))
    async with OpenRouterModel("x/y", api_key="k", base_url=wire.url) as model:
        [*_, stop] = [delta async for delta in model.stream("Hi")]
        await model.complete([user_message("Hi"), stop.reply.message])  # type: ignore[union-attr]
    [detail] = wire.last.body["messages"][1]["reasoning_details"]
    assert (detail["text"], detail["signature"]) == ("Let me think.", "sig")


async def test_an_insufficient_quota_is_not_retried(wire: FakeHttpServer, recorded_backoffs: list[float]) -> None:
    error = {
        "error": {"message": "You exceeded your quota", "type": "insufficient_quota", "code": "insufficient_quota"}
    }
    wire.reply_with(json_reply(error, 429))
    async with vendor.model(wire) as model:
        with pytest.raises(ProviderRateLimitError, match="quota"):
            await model.complete("Hi")
    assert recorded_backoffs == []


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Pet(pydantic.BaseModel):
    pet: Cat | Dog = pydantic.Field(discriminator="kind")


class Described(pydantic.BaseModel):
    city: City = pydantic.Field(description="Where.")


class Loose(pydantic.BaseModel):
    scores: dict[str, int]


@pytest.mark.parametrize(("output_type", "strict"), [(Pet, True), (Described, False), (Loose, False)])
async def test_strict_mode_is_off_for_schemas_that_it_rejects(
    wire: FakeHttpServer, output_type: Any, strict: bool
) -> None:
    wire.reply_with(vendor.response("{}"))
    async with vendor.model(wire) as model:
        await model.complete("Which?", output_schema=output_type)
    sent = wire.last.body["response_format"]["json_schema"]
    assert sent["strict"] is strict
    assert "oneOf" not in str(sent)
    assert "discriminator" not in str(sent)


async def test_extra_fields_of_a_call_are_sent_back(wire: FakeHttpServer) -> None:
    extra = {"extra_content": {"google": {"thought_signature": "sig"}}}
    call = {**openai_call("c1", "add", {"x": 1}), **extra}
    reply = await complete_reply(wire, completion({"content": None, "tool_calls": [call]}, "tool_calls"))
    _, streamed_again = await streamed_reply(wire, chunk({"tool_calls": [{"index": 0, **call}]}, "tool_calls"), DONE)
    for found in (reply, streamed_again):
        wire.reply_with(vendor.response("ok"))
        async with host(wire) as model:
            await model.complete([user_message("Hi"), found.message, tool_result_message(ToolResult("c1", "1"))])
        sent = wire.last.body["messages"][1]["tool_calls"][0]
        assert sent["extra_content"] == extra["extra_content"]
        assert sent["function"] == {"name": "add", "arguments": '{"x":1}'}


@pytest.mark.parametrize(
    ("vendor_reason", "stop_reason"),
    [("length", "max_tokens"), ("content_filter", "refusal"), ("function_call", "tool_use"), ("eos", "eos")],
)
async def test_stop_reasons_are_normalised(wire: FakeHttpServer, vendor_reason: str, stop_reason: str) -> None:
    reply = await complete_reply(wire, completion({"content": "x"}, vendor_reason))
    assert reply.stop_reason == stop_reason


async def test_a_message_of_text_parts_is_sent_as_one_text(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"))
    async with vendor.model(wire) as model:
        await model.complete([user_message(["Hi", instructions_part("Be brief.")])])
    assert wire.last.body["messages"] == [{"role": "user", "content": "Hi\n\nBe brief."}]


async def test_openrouter_requests_have_site_headers_reasoning_and_cache_marks(wire: FakeHttpServer) -> None:
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.0042}
    first = completion({"content": "Hello", "reasoning_details": details}, "stop", usage=usage)
    wire.reply_with(json_reply(first), vendor.response("ok"))
    model = OpenRouterModel(
        "anthropic/claude-sonnet-5", api_key="k", base_url=wire.url, site_url="https://me.example", site_name="Me"
    )
    marked = MessagePart("text", text="Long.", meta={"cache_control": {"type": "ephemeral"}})
    async with model:
        reply = await model.complete("Hi", max_output_tokens=5)
        await model.complete([user_message("Hi"), reply.message, user_message([marked])])
    assert reply.usage is not None
    assert reply.usage.cost_usd == 0.0042
    first_request, second_request = wire.requests
    assert first_request.headers["http-referer"] == "https://me.example"
    assert first_request.headers["x-title"] == "Me"
    assert first_request.body["max_tokens"] == 5
    assert second_request.body["messages"][1]["reasoning_details"] == details
    assert second_request.body["messages"][2]["content"] == [
        {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}
    ]


async def test_stream_usage_false_omits_stream_options(wire: FakeHttpServer) -> None:
    await streamed_reply(wire, chunk({"content": "x"}, "stop"), DONE, stream_usage=False)
    assert "stream_options" not in wire.last.body


async def test_a_custom_client_is_used_without_its_retries(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.failure(500))
    async with openai.AsyncOpenAI(api_key="mine", base_url=wire.url) as client:
        with pytest.raises(ProviderOverloadedError):
            await OpenAIModel("gpt-5", client=client, retries=0).complete("Hi")
    assert wire.last.headers["authorization"] == "Bearer mine"
    assert len(wire.requests) == 1


async def test_a_sync_client_raises_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="AsyncOpenAI"):
        await OpenAIModel("gpt-5", client=openai.OpenAI(api_key="x")).complete("Hi")


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        (OpenAIModel("gpt-5"), "OPENAI_API_KEY"),
        (OpenRouterModel("openai/gpt-5"), "OPENROUTER_API_KEY"),
        (XaiModel("grok-4"), "XAI_API_KEY"),
    ],
)
async def test_the_error_without_a_key_contains_the_variable(model: OpenAIModel, variable: str) -> None:
    with pytest.raises(MissingKeyError, match=variable):
        await model.complete("Hi")


async def test_ollama_needs_no_key_and_uses_its_host_variable(
    wire: FakeHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", wire.url.removeprefix("http://"))
    wire.reply_with(vendor.response("Hi."), vendor.response("Again."))
    async with OllamaModel("llama3.3") as model:
        assert (await model.complete("Hi")).text == "Hi."
    assert str(await run_loop(ChatOptions(model="ollama/llama3.3"), "Hi")) == "Again."
    await close_models()
    assert [request.path for request in wire.requests] == ["/v1/chat/completions"] * 2
    assert [request.body["model"] for request in wire.requests] == ["llama3.3"] * 2


def test_a_compatible_model_needs_a_base_url() -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        CompatibleModel("llama")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
