"""The wire formats of the vendors behind one interface, for the tests of every adapter."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from tellback.chat import AnthropicModel, GeminiModel, OpenAIModel
from tellback.chat.providers.base import ProviderModel
from tests.support.fake_http_server import FakeHttpServer, Reply, data_event, json_reply, sse_reply

GUIDE = Path(__file__).parents[4] / "docs" / "contributing" / "add-a-provider.md"

Call = tuple[str, str, Mapping[str, Any]]
"""id, name, input"""


class Vendor(Protocol):
    name: str
    has_tools: bool
    has_prices: bool
    limit_reason: str
    """The vendor's stop reason of a reply that the output limit cut off."""

    server_tool: Mapping[str, Any]
    """A tool that the vendor runs, for `config["tools"]`."""

    limit_option: str
    """The output limit's name in `config`."""

    tool_choices: Sequence[Any]
    """The encoded tool choices auto, none, required and the tool "add"."""

    def model(self, wire: FakeHttpServer, model: str = ..., **kwargs: Any) -> ProviderModel: ...
    def response(self, text: str = "", calls: Sequence[Call] = ()) -> Reply: ...
    def text_chunks(self, *texts: str) -> list[str]:
        """Return the beginning of a stream: its opening and these pieces of text."""
        ...

    def final_chunks(self) -> list[str]:
        """Return the end of a stream that begins with `text_chunks`."""
        ...

    def streamed_calls(self, calls: Sequence[Call], text: str = "") -> Reply: ...
    def truncated_call(self, name: str, streaming: bool) -> Reply:
        """Return a call that the output limit truncated before its arguments."""
        ...

    def failure(self, status: int, message: str = "no", **headers: str) -> Reply: ...
    def mid_stream_error(self) -> str:
        """Return an event within a stream that reports an overloaded server."""
        ...

    def is_streaming(self, wire: FakeHttpServer) -> bool: ...
    def sent_texts(self, body: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the role and text of each message in a request."""
        ...

    def sent_settings(self, body: Mapping[str, Any]) -> tuple[float, int]:
        """Return the temperature and the output limit in a request."""
        ...

    def tool_definition(self, definition: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the encoded definition of a tool."""
        ...


class WithTools:
    """A vendor with tools and known prices."""

    has_tools = True
    has_prices = True


class Anthropic(WithTools):
    name = "anthropic"
    limit_reason = "max_tokens"
    limit_option = "max_tokens"
    server_tool: Mapping[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
    tool_choices: Sequence[Any] = ({"type": "auto"}, {"type": "none"}, {"type": "any"}, {"type": "tool", "name": "add"})

    def model(self, wire: FakeHttpServer, model: str = "claude-sonnet-5", **kwargs: Any) -> ProviderModel:
        return AnthropicModel(model, api_key="key", base_url=wire.url, **kwargs)

    def response(self, text: str = "", calls: Sequence[Call] = ()) -> Reply:
        content: list[Any] = [{"type": "text", "text": text}] if text else []
        content += [{"type": "tool_use", "id": id, "name": name, "input": input} for id, name, input in calls]
        stop = "tool_use" if calls else "end_turn"
        return json_reply(message(content, stop))

    def text_chunks(self, *texts: str) -> list[str]:
        start = {"type": "message_start", "message": message([], None)}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        deltas = [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts
        ]
        events: list[Any] = [start, block, *deltas]
        return [anthropic_event(data) for data in events]

    def final_chunks(self) -> list[str]:
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        events: list[Any] = [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}},
            {"type": "message_stop"},
        ]
        return [anthropic_event(data) for data in events]

    def streamed_calls(self, calls: Sequence[Call], text: str = "") -> Reply:
        events: list[Any] = [{"type": "message_start", "message": message([], None)}]
        blocks: list[Any] = [({"type": "text", "text": ""}, {"type": "text_delta", "text": text})] if text else []
        for id, name, input in calls:
            block = {"type": "tool_use", "id": id, "name": name, "input": {}}
            blocks.append((block, {"type": "input_json_delta", "partial_json": json.dumps(input)}))
        for index, (block, delta) in enumerate(blocks):
            events.append({"type": "content_block_start", "index": index, "content_block": block})
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
            events.append({"type": "content_block_stop", "index": index})
        events.append(
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        )
        return sse_reply(*map(anthropic_event, [*events, {"type": "message_stop"}]))

    def truncated_call(self, name: str, streaming: bool) -> Reply:
        call = {"type": "tool_use", "id": "t1", "name": name, "input": {}}
        if not streaming:
            return json_reply(message([call], "max_tokens"))
        events: list[Any] = [
            {"type": "message_start", "message": message([], None)},
            {"type": "content_block_start", "index": 0, "content_block": call},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]
        return sse_reply(*map(anthropic_event, events))

    def failure(self, status: int, message: str = "no", **headers: str) -> Reply:
        kinds = {401: "authentication_error", 400: "invalid_request_error", 429: "rate_limit_error"}
        error = {"type": kinds.get(status, "api_error"), "message": message}
        return json_reply({"type": "error", "error": error}, status, **headers)

    def mid_stream_error(self) -> str:
        return anthropic_event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})

    def is_streaming(self, wire: FakeHttpServer) -> bool:
        return bool(wire.last.body.get("stream"))

    def sent_texts(self, body: Mapping[str, Any]) -> list[tuple[str, str]]:
        return [
            (sent["role"], "".join(block.get("text", "") for block in sent["content"])) for sent in body["messages"]
        ]

    def sent_settings(self, body: Mapping[str, Any]) -> tuple[float, int]:
        return body["temperature"], body["max_tokens"]

    def tool_definition(self, definition: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**definition, "input_schema": schema}


def message(content: Any, stop_reason: str | None, **fields: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
        **fields,
    }


def anthropic_event(data: Mapping[str, Any]) -> str:
    return data_event(data, data["type"])


class OpenAI(WithTools):
    name = "openai"
    limit_reason = "length"
    limit_option = "max_completion_tokens"
    server_tool: Mapping[str, Any] = {"type": "custom", "custom": {"name": "web_search"}}
    tool_choices: Sequence[Any] = ("auto", "none", "required", {"type": "function", "function": {"name": "add"}})

    def model(self, wire: FakeHttpServer, model: str = "gpt-5", **kwargs: Any) -> ProviderModel:
        return OpenAIModel(model, api_key="key", base_url=wire.url + "/v1", **kwargs)

    def response(self, text: str = "", calls: Sequence[Call] = ()) -> Reply:
        sent: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            sent["tool_calls"] = [openai_call(*call) for call in calls]
        return json_reply(completion(sent, "tool_calls" if calls else "stop"))

    def text_chunks(self, *texts: str) -> list[str]:
        return [chunk({"role": "assistant", "content": ""}), *(chunk({"content": text}) for text in texts)]

    def final_chunks(self) -> list[str]:
        usage = {"prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17}
        return [chunk({}, "stop"), chunk(None, usage=usage), "data: [DONE]\n\n"]

    def streamed_calls(self, calls: Sequence[Call], text: str = "") -> Reply:
        events = [chunk({"role": "assistant", "content": text or None})]
        for index, (id, name, input) in enumerate(calls):
            opening = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
            events.append(chunk({"tool_calls": [opening]}))
            text_input = json.dumps(input)
            call_deltas = [
                {"index": index, "function": {"arguments": text}} for text in (text_input[:3], text_input[3:])
            ]
            events += [chunk({"tool_calls": [call_delta]}) for call_delta in call_deltas]
        return sse_reply(*events, chunk({}, "tool_calls"), "data: [DONE]\n\n")

    def truncated_call(self, name: str, streaming: bool) -> Reply:
        call = {"index": 0, "id": "t1", "type": "function", "function": {"name": name, "arguments": ""}}
        if not streaming:
            return json_reply(completion({"content": None, "tool_calls": [call]}, "length"))
        return sse_reply(chunk({"tool_calls": [call]}), chunk({}, "length"), "data: [DONE]\n\n")

    def failure(self, status: int, message: str = "no", **headers: str) -> Reply:
        return json_reply({"error": {"message": message, "type": "error", "code": None}}, status, **headers)

    def mid_stream_error(self) -> str:
        return data_event({"error": {"message": "Overloaded", "code": 503}})

    def is_streaming(self, wire: FakeHttpServer) -> bool:
        return bool(wire.last.body.get("stream"))

    def sent_texts(self, body: Mapping[str, Any]) -> list[tuple[str, str]]:
        return [(sent["role"], sent["content"] or "") for sent in body["messages"]]

    def sent_settings(self, body: Mapping[str, Any]) -> tuple[float, int]:
        return body["temperature"], body["max_completion_tokens"]

    def tool_definition(self, definition: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"type": "function", "function": {**definition, "parameters": schema}}


def completion(message: Mapping[str, Any], finish_reason: str | None, **fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5-2025-08-07",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        **fields,
    }


def chunk(delta: Mapping[str, Any] | None, finish_reason: str | None = None, **fields: Any) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5-2025-08-07"}
    return data_event({**body, "choices": choices, **fields})


def openai_call(id: str, name: str, input: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(input)}}


class Gemini(WithTools):
    name = "gemini"
    limit_reason = "MAX_TOKENS"
    limit_option = "max_output_tokens"
    server_tool: Mapping[str, Any] = {"google_search": {}}
    tool_choices: Sequence[Any] = (
        {"functionCallingConfig": {"mode": "AUTO"}},
        {"functionCallingConfig": {"mode": "NONE"}},
        {"functionCallingConfig": {"mode": "ANY"}},
        {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}},
    )

    def model(self, wire: FakeHttpServer, model: str = "gemini-2.5-flash", **kwargs: Any) -> ProviderModel:
        return GeminiModel(model, api_key="key", base_url=wire.url, **kwargs)

    def response(self, text: str = "", calls: Sequence[Call] = ()) -> Reply:
        parts: list[Any] = [{"text": text}] if text else []
        parts += [{"functionCall": {"name": name, "args": input}} for _, name, input in calls]
        return json_reply(response(parts, "STOP"))

    def text_chunks(self, *texts: str) -> list[str]:
        return [data_event(response([{"text": text}], None)) for text in texts]

    def final_chunks(self) -> list[str]:
        return [data_event(response([{"text": ""}], "STOP"))]

    def streamed_calls(self, calls: Sequence[Call], text: str = "") -> Reply:
        events = [response([{"text": text}], None)] if text else []
        events += [response([{"functionCall": {"name": name, "args": input}}], None) for _, name, input in calls]
        return sse_reply(*map(data_event, events), *self.final_chunks())

    def truncated_call(self, name: str, streaming: bool) -> Reply:
        body = response([{"functionCall": {"name": name}}], "MAX_TOKENS")
        return sse_reply(data_event(body)) if streaming else json_reply(body)

    def failure(self, status: int, message: str = "no", **headers: str) -> Reply:
        return json_reply({"error": {"code": status, "message": message, "status": "FAILED"}}, status, **headers)

    def mid_stream_error(self) -> str:
        return data_event({"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}})

    def is_streaming(self, wire: FakeHttpServer) -> bool:
        return "streamGenerateContent" in wire.last.path

    def sent_texts(self, body: Mapping[str, Any]) -> list[tuple[str, str]]:
        roles = {"model": "assistant"}
        return [
            (roles.get(sent["role"], sent["role"]), "".join(part.get("text", "") for part in sent["parts"]))
            for sent in body["contents"]
        ]

    def sent_settings(self, body: Mapping[str, Any]) -> tuple[float, int]:
        return body["generationConfig"]["temperature"], body["generationConfig"]["maxOutputTokens"]

    def tool_definition(self, definition: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"functionDeclarations": [{**definition, "parameters_json_schema": schema}]}


def response(parts: Any, finish_reason: str | None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish_reason:
        candidate["finishReason"] = finish_reason
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 7, "totalTokenCount": 17}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash", **fields}


class Parrot:
    """The example of `docs/contributing/add-a-provider.md`: a provider without tools and prices."""

    name = "parrot"
    has_tools = False
    has_prices = False
    limit_reason = "length"
    limit_option = "limit"
    server_tool: Mapping[str, Any] = {}
    tool_choices: Sequence[Any] = ()

    def model(self, wire: FakeHttpServer, model: str = "grey-1", **kwargs: Any) -> ProviderModel:
        model_class: type[ProviderModel] = _load_guide_modules()["model"].ParrotModel
        return model_class(model, api_key="key", base_url=wire.url, **kwargs)

    def response(self, text: str = "", calls: Sequence[Call] = ()) -> Reply:
        return sse_reply(*self.text_chunks(text), *self.final_chunks())

    def text_chunks(self, *texts: str) -> list[str]:
        return [json_line({"text": text}) for text in texts]

    def final_chunks(self) -> list[str]:
        return [json_line({"done": "stop", "usage": {"input_tokens": 10, "output_tokens": 7}})]

    def streamed_calls(self, calls: Sequence[Call], text: str = "") -> Reply:
        raise NotImplementedError("Parrot has no tools")

    def truncated_call(self, name: str, streaming: bool) -> Reply:
        raise NotImplementedError("Parrot has no tools")

    def failure(self, status: int, message: str = "no", **headers: str) -> Reply:
        return json_reply({"error": message}, status, **headers)

    def mid_stream_error(self) -> str:
        return json_line({"error": {"message": "Overloaded", "code": 503}})

    def is_streaming(self, wire: FakeHttpServer) -> bool:
        return True

    def sent_texts(self, body: Mapping[str, Any]) -> list[tuple[str, str]]:
        return [(line["from"], line["text"]) for line in body["lines"]]

    def sent_settings(self, body: Mapping[str, Any]) -> tuple[float, int]:
        return body["temperature"], body["limit"]

    def tool_definition(self, definition: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError("Parrot has no tools")


def json_line(data: Any) -> str:
    return json.dumps(data) + "\n"


@functools.cache
def _load_guide_modules() -> dict[str, ModuleType]:
    """Load the two modules in the guide's code blocks as the package `tellback.chat.providers.parrot`."""
    declaration, model = re.findall(r"```py\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    package = "tellback.chat.providers.parrot"
    modules = {"": ModuleType(package), "model": ModuleType(f"{package}.model")}
    for module, source in zip(modules.values(), (declaration, model), strict=True):
        sys.modules[module.__name__] = module
        exec(compile(source, str(GUIDE), "exec", dont_inherit=True), module.__dict__)
    return modules


VENDORS: list[Vendor] = [Anthropic(), OpenAI(), Gemini(), Parrot()]
