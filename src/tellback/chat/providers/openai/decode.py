"""Chat completions, whole or streamed, in our values, with the quirks of the many hosts that speak them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tellback.chat.providers.failures import error_from_status, parse_error_body, status_from_error
from tellback.chat.providers.openai.dialect import OpenAIDialect
from tellback.chat.providers.openai.encode import META_KEY
from tellback.chat.providers.openai.thinktags import split_thinking
from tellback.chat.providers.stainless import as_dict
from tellback.chat.usage import make_usage
from tellback.types import (
    ChatReply,
    ToolCall,
)
from tellback.types.jsontext import dump_json, parse_arguments

log = logging.getLogger("tellback.chat")

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def decode(completion: Any, provider: str, model: str, dialect: OpenAIDialect) -> ChatReply:
    """A whole completion."""
    body = as_dict(completion)
    if body.get("error"):
        raise error_from_body(body, provider, model)
    choice = next(iter(body.get("choices") or ()), None) or {}
    if choice.get("error") or choice.get("finish_reason") == "error":
        raise error_from_body(choice, provider, model)
    message = choice.get("message") or {}
    text, thought = _decode_content(message.get("content"), dialect)
    calls = [_decode_call(call) for call in message.get("tool_calls") or ()]
    if message.get("function_call"):
        calls.append(_decode_call({"function": message["function_call"]}))
    calls = _with_unique_ids(calls)
    refusal = message.get("refusal")
    reason = "refusal" if refusal else normalize_stop_reason(choice.get("finish_reason"), bool(calls))
    text += refusal or ""
    return ChatReply(
        text=text,
        tool_calls=tuple(calls),
        stop_reason=reason,
        usage=_decode_usage(body, provider, body.get("model") or model),
        raw=completion,
        thinking=(_find_reasoning(message) or "") + thought,
        meta=reasoning_to_meta(message.get("reasoning_details"), dialect),
    )


def _with_unique_ids(calls: list[ToolCall]) -> list[ToolCall]:
    seen: set[str] = set()
    for index, call in enumerate(calls):
        if call.id in seen:
            calls[index] = replace(call, id=generate_call_id())
        seen.add(calls[index].id)
    return calls


def _decode_call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function") or {}
    value, invalid = parse_arguments(arguments_text(function.get("arguments")))
    extras = {name: item for name, item in call.items() if name not in ("id", "type", "function", "index")}
    return ToolCall(
        call.get("id") or generate_call_id(),
        function.get("name") or "",
        value,
        invalid,
        {META_KEY: extras} if extras else None,
    )


def arguments_text(arguments: Any) -> str:
    """A call's arguments as JSON text, whether the host sent text, an object or nothing."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return dump_json(arguments)


def _decode_content(content: Any, dialect: OpenAIDialect) -> tuple[str, str]:
    if content is None:
        return "", ""
    if isinstance(content, str):
        return split_thinking(content, dialect.think_tags)
    text: list[str] = []
    thinking: list[str] = []
    for part in content:
        (thinking if is_thinking_part(part) else text).append(part_text(part))
    return "".join(text), "".join(thinking)


def is_thinking_part(part: Any) -> bool:
    """Whether a part of the content is thinking."""
    return isinstance(part, Mapping) and part.get("type") == "thinking"


def part_text(part: Any) -> str:
    """The text of a part of the content."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        part = as_dict(part) if hasattr(part, "model_dump") else {}
    inner = part.get("text") or part.get("thinking") or ""
    return inner if isinstance(inner, str) else "".join(map(part_text, inner))


def _find_reasoning(message: Mapping[str, Any]) -> str | None:
    for name in ("reasoning_content", "reasoning"):
        value = message.get(name)
        if value and isinstance(value, str):
            return value
    return None


def normalize_stop_reason(finish: str | None, has_calls: bool) -> str:
    """The reason in our words; some hosts say "stop", or nothing, beside calls."""
    if has_calls and finish in (None, "", "stop", "tool_calls", "function_call"):
        return "tool_use"
    if not finish:
        return "end_turn"
    return STOP_REASONS.get(finish, finish)


def _decode_usage(body: Mapping[str, Any], provider: str, model: str) -> Any:
    usage = body.get("usage") or (body.get("x_groq") or {}).get("usage")
    return make_usage(usage, provider, model) if usage else None


def reasoning_to_meta(details: Any, dialect: OpenAIDialect) -> Mapping[str, Any] | None:
    """A message's `meta` for reasoning that must be sent back."""
    if not details or not dialect.reasoning_details:
        return None
    merged: list[dict[str, Any]] = []
    for detail in map(as_dict, details):
        last = merged[-1] if merged else None
        if last is None or (last.get("type"), last.get("index")) != (detail.get("type"), detail.get("index")):
            merged.append(detail)
            continue
        for name, value in detail.items():  # a stream gives each block in pieces
            is_piece = name in ("text", "summary", "data") and isinstance(last.get(name), str)
            last[name] = last[name] + value if is_piece and isinstance(value, str) else value or last.get(name)
    return {META_KEY: {"reasoning_details": merged}}


def error_from_body(body: Mapping[str, Any], provider: str, model: str) -> Exception:
    """The error that a host reports inside an answer that began well."""
    message, error_type, code = parse_error_body(body)
    return error_from_status(
        provider, model, status_from_error(error_type, code), message or "it reported an error", body=dict(body)
    )


def generate_call_id() -> str:
    """An id for a call that came without one."""
    return f"call_{uuid.uuid4().hex[:24]}"
