"""The features of Gemini's API: calls without ids, signatures, blocked prompts, separate counts of thoughts."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from typing import Any

import pydantic
import pytest
from google import genai

from tellback import (
    ChatOptions,
    ConfigurationError,
    GeminiModel,
    ToolCall,
    ToolResult,
    assistant_message,
    file_part,
    image_part,
    run_loop,
    run_loop_stream,
    tool_result_message,
    user_message,
)
from tellback.errors import MissingKeyError, ProviderRateLimitError, ProviderResponseError
from tellback.types import ChatReply, ThinkingDelta, audio_part
from tests.integration.chat.providers.vendors import Gemini, response
from tests.support.fake_http_server import (
    DropConnection,
    FakeHttpServer,
    data_event,
    joined_text,
    json_reply,
    sse_reply,
)

vendor = Gemini()


async def find(q: str) -> str:
    """Find something."""
    return "found"


async def complete_reply(wire: FakeHttpServer, body: Any, *args: Any, **kwargs: Any) -> ChatReply:
    wire.reply_with(json_reply(body))
    async with vendor.model(wire, retries=0) as model:
        return await model.complete("Hi", *args, **kwargs)


async def streamed_reply(wire: FakeHttpServer, *bodies: Any) -> tuple[list[Any], ChatReply]:
    wire.reply_with(sse_reply(*map(data_event, bodies)))
    async with vendor.model(wire, retries=0) as model:
        deltas: list[Any] = [delta async for delta in model.stream("Hi")]
    return deltas, deltas[-1].reply


async def test_the_request_has_googles_documented_form(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"))
    history = [
        user_message("Look up Ada."),
        assistant_message("I will.", [ToolCall("t1", "find", {"q": "Ada"}), ToolCall("t2", "find", {"q": "Bo"})]),
        tool_result_message(ToolResult("t1", "Ada Lovelace")),
        tool_result_message(ToolResult("t2", "nobody", is_error=True)),
        user_message("Thanks."),
    ]
    async with vendor.model(wire) as model:
        await model.complete(history, system="Be brief.")
    assert wire.last.path.endswith("/models/gemini-2.5-flash:generateContent")
    assert wire.last.headers["x-goog-api-key"] == "key"
    assert wire.last.body["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    assert wire.last.body["contents"] == [
        {"role": "user", "parts": [{"text": "Look up Ada."}]},
        {
            "role": "model",
            "parts": [
                {"text": "I will."},
                {"functionCall": {"name": "find", "args": {"q": "Ada"}}},
                {"functionCall": {"name": "find", "args": {"q": "Bo"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "find", "response": {"result": "Ada Lovelace"}}},
                {"functionResponse": {"name": "find", "response": {"error": "nobody"}}},
                {"text": "Thanks."},
            ],
        },
    ]


async def test_calls_without_ids_get_stable_ids_that_are_not_sent(wire: FakeHttpServer) -> None:
    wire.reply_with(
        vendor.response(calls=[("", "find", {"q": "a"}), ("", "find", {"q": "b"})]), vendor.response("Done.")
    )
    async with vendor.model(wire) as model:
        result = await run_loop(ChatOptions(model=model, tools=[find]), "Go")
    calls = result.messages[1].tool_calls
    assert len({call.id for call in calls}) == 2
    assert [message.tool_call_id for message in result.messages[2:4]] == [call.id for call in calls]
    assert calls[0].id not in json.dumps(wire.last.body)


async def test_ids_of_gemini_are_sent_back(wire: FakeHttpServer) -> None:
    part = {"functionCall": {"id": "g1", "name": "find", "args": {"q": "a"}}}
    wire.reply_with(json_reply(response([part], "STOP")), vendor.response("Done."))
    async with vendor.model(wire) as model:
        await run_loop(ChatOptions(model=model, tools=[find]), "Go")
    _, request, answered = wire.last.body["contents"]
    assert request["parts"] == [part]
    assert answered["parts"][0]["functionResponse"]["id"] == "g1"


async def test_arguments_can_be_missing(wire: FakeHttpServer) -> None:
    reply = await complete_reply(wire, response([{"functionCall": {"name": "now"}}], "STOP"))
    assert [(call.name, call.input) for call in reply.tool_calls] == [("now", {})]
    assert reply.stop_reason == "tool_use"


SIGNED = {"functionCall": {"name": "find", "args": {"q": "a"}}, "thoughtSignature": base64.b64encode(b"sig").decode()}


@pytest.mark.parametrize("streaming", [False, True])
async def test_thought_signatures_are_sent_back_even_after_storage(wire: FakeHttpServer, streaming: bool) -> None:
    parts = [{"text": "Hmm.", "thought": True}, {"text": "Let me look."}, SIGNED]
    if streaming:
        bodies = [response([part], None) for part in parts]
        deltas, reply = await streamed_reply(wire, *bodies, response([], "STOP"))
        assert deltas[0] == ThinkingDelta("Hmm.")
    else:
        reply = await complete_reply(wire, response(parts, "STOP"))
    assert (reply.thinking, reply.text) == ("Hmm.", "Let me look.")
    message = reply.message
    stored = replace(message, meta=json.loads(json.dumps(message.meta)))
    wire.reply_with(vendor.response("Done."))
    async with vendor.model(wire) as model:
        result = tool_result_message(ToolResult(reply.tool_calls[0].id, "found"))
        await model.complete([user_message("Hi"), stored, result])
    assert wire.last.body["contents"][1]["parts"] == [{"text": "Let me look."}, SIGNED]


async def test_another_models_call_gets_a_placeholder_signature_for_gemini_3(wire: FakeHttpServer) -> None:
    history = [user_message("Hi"), assistant_message("", [ToolCall("t1", "find", {"q": "a"})])]
    history.append(tool_result_message(ToolResult("t1", "found")))
    wire.reply_with(vendor.response("ok"), vendor.response("ok"))
    async with vendor.model(wire, "gemini-3.8-flash") as model:
        await model.complete(history)
    async with vendor.model(wire, "gemini-2.5-flash") as model:
        await model.complete(history)
    new, old = (request.body["contents"][1]["parts"][0] for request in wire.requests)
    assert base64.urlsafe_b64decode(new["thoughtSignature"]) == b"skip_thought_signature_validator"
    assert "thoughtSignature" not in old


async def test_a_continued_reply_keeps_its_signatures(wire: FakeHttpServer, recorded_backoffs: list[float]) -> None:
    wire.reply_with(
        sse_reply(*vendor.text_chunks("Let me "), DropConnection()),
        sse_reply(data_event(response([{"text": "look."}, SIGNED], "STOP"))),
        sse_reply(*vendor.text_chunks("Found."), *vendor.final_chunks()),
    )
    async with vendor.model(wire, retries=1) as model:
        result = await run_loop_stream(ChatOptions(model=model, tools=[find]), "Find a")
    assert result.messages[1].content == "Let me look."
    assert wire.last.body["contents"][1]["parts"] == [{"text": "Let me "}, {"text": "look."}, SIGNED]


async def test_a_signature_in_an_empty_last_part_is_sent_back(wire: FakeHttpServer) -> None:
    last_part = {"text": "", "thoughtSignature": base64.b64encode(b"end").decode()}
    _, reply = await streamed_reply(
        wire, response([{"text": "Hel"}], None), response([{"text": "lo"}, last_part], "STOP")
    )
    assert reply.text == "Hello"
    wire.reply_with(vendor.response("ok"))
    async with vendor.model(wire) as model:
        await model.complete([user_message("Hi"), reply.message, user_message("?")])
    [part] = wire.last.body["contents"][1]["parts"]
    assert part == {"text": "Hello", "thoughtSignature": last_part["thoughtSignature"]}


async def test_a_blocked_prompt_is_a_refusal(wire: FakeHttpServer) -> None:
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 3}}
    assert (await complete_reply(wire, blocked)).stop_reason == "refusal"
    _, reply = await streamed_reply(wire, blocked)
    assert (reply.text, reply.stop_reason) == ("", "refusal")


@pytest.mark.parametrize(
    ("vendor_reason", "stop_reason"),
    [("STOP", "end_turn"), ("MAX_TOKENS", "max_tokens"), ("SAFETY", "refusal"), ("MALFORMED_FUNCTION_CALL",) * 2],
)
async def test_stop_reasons_are_normalised_and_parts_can_be_missing(
    wire: FakeHttpServer, vendor_reason: str, stop_reason: str
) -> None:
    assert (await complete_reply(wire, {"candidates": [{"finishReason": vendor_reason}]})).stop_reason == stop_reason
    assert (
        await complete_reply(wire, {"candidates": [{"content": {"role": "model"}, "finishReason": vendor_reason}]})
    ).text == ""


async def test_output_tokens_include_thoughts(wire: FakeHttpServer) -> None:
    usage = {
        "promptTokenCount": 10,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 30,
        "cachedContentTokenCount": 4,
        "totalTokenCount": 47,
    }
    found = (await complete_reply(wire, response([{"text": "x"}], "STOP", usageMetadata=usage))).usage
    assert found is not None
    assert (found.input_tokens, found.output_tokens, found.total_tokens) == (10, 37, 47)
    assert (found.reasoning_tokens, found.cached_tokens) == (30, 4)


async def test_images_audio_and_files_are_sent_as_data_or_url(wire: FakeHttpServer) -> None:
    wire.reply_with(vendor.response("ok"))
    parts: list[Any] = [
        "See:",
        image_part(data=b"png", mime="image/png"),
        audio_part(data=b"mp3", mime="audio/mpeg"),
        file_part(url="gs://bucket/a.pdf", mime="application/pdf"),
    ]
    async with vendor.model(wire) as model:
        await model.complete(user_message(parts))
    assert wire.last.body["contents"][0]["parts"] == [
        {"text": "See:"},
        {"inlineData": {"mime_type": "image/png", "data": base64.b64encode(b"png").decode()}},
        {"inlineData": {"mime_type": "audio/mpeg", "data": base64.b64encode(b"mp3").decode()}},
        {"fileData": {"file_uri": "gs://bucket/a.pdf", "mime_type": "application/pdf"}},
    ]


class City(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize(
    ("model_name", "tools", "native"),
    [("gemini-2.5-flash", [], True), ("gemini-2.5-flash", [find], False), ("gemini-3.8-flash", [find], True)],
)
async def test_a_schema_with_tools_is_native_only_if_the_model_supports_it(
    wire: FakeHttpServer, model_name: str, tools: Any, native: bool
) -> None:
    wire.reply_with(vendor.response('{"name": "Rome"}'))
    async with vendor.model(wire, model_name) as model:
        result = await run_loop(ChatOptions(model=model, tools=tools, output_type=City), "Which?")
    assert result.output == City(name="Rome")
    config = wire.last.body.get("generationConfig", {})
    assert (config.get("responseMimeType") == "application/json") is native
    assert ("JSON schema" in str(wire.last.body.get("systemInstruction"))) is not native


async def test_a_response_without_candidates_and_reason_raises_an_error(wire: FakeHttpServer) -> None:
    with pytest.raises(ProviderResponseError, match="no candidates"):
        await complete_reply(wire, {"usageMetadata": {"promptTokenCount": 3}})


async def test_data_that_is_not_base64_raises_configuration_error(wire: FakeHttpServer) -> None:
    async with vendor.model(wire) as model:
        with pytest.raises(ConfigurationError, match="base64"):
            await model.complete(user_message([image_part(data="not base64!", mime="image/png")]))


async def test_googles_retry_info_is_respected(wire: FakeHttpServer, recorded_backoffs: list[float]) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12s"}]
    error = {"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED", "details": details}}
    wire.reply_with(json_reply(error, 429), vendor.response("ok"))
    async with vendor.model(wire) as model:
        await model.complete("Hi")
    assert recorded_backoffs == [12.0]


async def test_an_error_within_a_stream_has_its_status(wire: FakeHttpServer) -> None:
    error = {"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED"}}
    with pytest.raises(ProviderRateLimitError, match="Slow down"):
        await streamed_reply(wire, response([{"text": "x"}], None), error)


async def test_unknown_config_raises_configuration_error(wire: FakeHttpServer) -> None:
    async with vendor.model(wire, config={"temprature": 0}) as model:
        with pytest.raises(ConfigurationError, match="temprature"):
            await model.complete("Hi")
    assert wire.requests == []


@pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")  # google-genai on aiohttp
@pytest.mark.parametrize("transport", ["aiohttp", "httpx"])
async def test_a_custom_client_is_used_without_its_retries(wire: FakeHttpServer, transport: str) -> None:
    import httpx2

    own_client = httpx2.AsyncClient() if transport == "httpx" else None
    options = genai.types.HttpOptions(
        base_url=wire.url, httpx_async_client=own_client, retry_options=genai.types.HttpRetryOptions(attempts=4)
    )
    client = genai.Client(api_key="mine", http_options=options)
    model = GeminiModel("gemini-2.5-flash", client=client, retries=0)
    wire.reply_with(
        vendor.failure(429),
        vendor.response("Hello!"),
        sse_reply(*vendor.text_chunks("Hel", "lo!"), *vendor.final_chunks()),
        sse_reply(*vendor.text_chunks("Hel")),
    )
    with pytest.raises(ProviderRateLimitError):
        await model.complete("Hi")
    assert (await model.complete("Hi")).text == "Hello!"
    assert joined_text([delta async for delta in model.stream("Hi")]) == "Hello!"
    stream: Any = model.stream("Hi")
    assert (await anext(stream)).text == "Hel"
    await stream.aclose()
    assert wire.last.headers["x-goog-api-key"] == "mine"
    assert len(wire.requests) == 4
    await client.aio.aclose()
    client.close()
    if own_client is not None:
        await own_client.aclose()


async def test_the_error_without_a_key_contains_the_variables() -> None:
    with pytest.raises(MissingKeyError, match="GEMINI_API_KEY or GOOGLE_API_KEY"):
        await GeminiModel().complete("Hi")


def test_closing_a_model_in_one_event_loop_leaves_the_client_of_another_open() -> None:
    model = GeminiModel("gemini-2.5-flash", api_key="k")

    async def open_client() -> Any:
        return model.client._api_client._http_options.httpx_async_client

    async def close_model() -> None:
        await model.aclose()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first_client, second_client = first.run(open_client()), second.run(open_client())
        first.run(close_model())
        assert (first_client.is_closed, second_client.is_closed) == (True, False)
        second.run(close_model())
        assert second_client.is_closed
