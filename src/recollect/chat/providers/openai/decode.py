"""Chat completions, whole or streamed, in our values, with the quirks of the many hosts that speak them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from recollect.chat.providers.failures import error_fields, status_failure, status_of
from recollect.chat.providers.openai.dialect import Dialect
from recollect.chat.providers.openai.encode import KEY
from recollect.chat.providers.openai.thinktags import ThinkSplitter, split_thinking
from recollect.chat.providers.stainless import as_dict
from recollect.chat.usage import make_usage
from recollect.errors import ProviderError
from recollect.types import (
    ChatReply,
    ReplyDelta,
    StreamStop,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from recollect.types.jsontext import dump_json, parse_arguments

log = logging.getLogger("recollect.chat")

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def decode(completion: Any, provider: str, model: str, dialect: Dialect) -> ChatReply:
    """A whole completion."""
    body = as_dict(completion)
    if body.get("error"):
        raise _error(body, provider, model)
    choice = next(iter(body.get("choices") or ()), None) or {}
    if choice.get("error") or choice.get("finish_reason") == "error":
        raise _error(choice, provider, model)
    message = choice.get("message") or {}
    text, thought = _content(message.get("content"), dialect)
    calls = [_whole_call(call) for call in message.get("tool_calls") or ()]
    if message.get("function_call"):
        calls.append(_whole_call({"function": message["function_call"]}))
    calls = _with_ids_of_their_own(calls)
    refusal = message.get("refusal")
    reason = "refusal" if refusal else _stop_reason(choice.get("finish_reason"), bool(calls))
    text += refusal or ""
    return ChatReply(
        text=text,
        tool_calls=tuple(calls),
        stop_reason=reason,
        usage=_usage(body, provider, body.get("model") or model),
        raw=completion,
        thinking=(_reasoning(message) or "") + thought,
        meta=_meta(message.get("reasoning_details"), dialect),
    )


async def decode_stream(
    chunks: AsyncIterator[Any], provider: str, model: str, dialect: Dialect, is_complete: Callable[[], bool]
) -> AsyncIterator[ReplyDelta]:
    """A stream's chunks as deltas. Ends without a `StreamStop` if the stream broke off.

    Some hosts never say why they stop, so a stream counts as complete when it gave a reason, a last chunk of usage and
    nothing else, or `is_complete`.
    """
    text: list[str] = []
    thinking: list[str] = []
    calls = _Calls()
    splitter = ThinkSplitter(dialect.think_tags)
    details: list[Any] = []
    refusal = False
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    has_closing_usage = False
    seen_model = model
    try:
        async for chunk in chunks:
            seen_model = getattr(chunk, "model", None) or seen_model
            counted = _chunk_usage(chunk)
            if counted is not None:
                usage = counted
                has_closing_usage = not getattr(chunk, "choices", None)
            for choice in getattr(chunk, "choices", None) or ():
                finish = getattr(choice, "finish_reason", None) or finish
                if finish == "error":
                    raise _error(as_dict(choice), provider, model)
                delta = getattr(choice, "delta", None)
                if delta is None:
                    continue
                reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
                if reasoning and isinstance(reasoning, str):
                    thinking.append(reasoning)
                    yield ThinkingDelta(reasoning)
                details.extend(getattr(delta, "reasoning_details", None) or ())
                content: Any = getattr(delta, "content", None)
                if content:
                    for piece in _pieces(content, splitter):
                        (text if isinstance(piece, TextDelta) else thinking).append(piece.text)
                        yield piece
                refused = getattr(delta, "refusal", None)
                if refused:
                    refusal = True
                    text.append(refused)
                    yield TextDelta(refused)
                for position, call in enumerate(getattr(delta, "tool_calls", None) or ()):
                    for event in calls.add(call, position):
                        yield event
                legacy = getattr(delta, "function_call", None)
                if legacy is not None:
                    for event in calls.add_function(legacy):
                        yield event
    except ProviderError:
        raise
    except Exception as error:
        if not finish:
            raise
        log.debug("%s failed after the end of its reply", model, exc_info=error)
    for piece in splitter.finish():
        (text if isinstance(piece, TextDelta) else thinking).append(piece.text)
        yield piece
    for event in calls.finish():
        yield event
    if finish is None and not has_closing_usage and not is_complete():
        return
    made = calls.calls()
    reason = "refusal" if refusal else _stop_reason(finish, bool(made))
    reply = ChatReply(
        text="".join(text),
        tool_calls=made,
        stop_reason=reason,
        usage=make_usage(usage, provider, seen_model) if usage else None,
        raw={"model": seen_model, "finish_reason": finish, "usage": usage},
        thinking="".join(thinking),
        meta=_meta(details, dialect),
    )
    yield StreamStop(reply.stop_reason, reply.usage, reply)


class _Calls:
    """Tool calls put together from pieces that hosts number and name as they like."""

    def __init__(self) -> None:
        self._open: dict[Any, dict[str, Any]] = {}
        self._all: list[dict[str, Any]] = []

    def add(self, piece: Any, position: int) -> Iterator[ReplyDelta]:
        """A piece, and where it stands in its chunk, for hosts that give it no index."""
        index = getattr(piece, "index", None)
        key = ("position", position) if index is None else index
        yield from self._add(key, getattr(piece, "function", None), getattr(piece, "id", None) or "", _kept(piece))

    def add_function(self, function: Any) -> Iterator[ReplyDelta]:
        """A piece of the one call that the API knew before it knew tools."""
        yield from self._add("function_call", function, "", None)

    def _add(self, key: Any, function: Any, given_id: str, kept: Mapping[str, Any] | None) -> Iterator[ReplyDelta]:
        name = getattr(function, "name", None) or ""
        arguments = _arguments_text(getattr(function, "arguments", None))
        call = self._open.get(key)
        if call is None or (name and call["started"] and _is_another(call, given_id, arguments)):
            used = {other["id"] for other in self._all}
            id = given_id if given_id and given_id not in used else _make_id()
            call = {"id": id, "given_id": given_id, "name": "", "pieces": [], "started": False, "kept": kept}
            self._open[key] = call
            self._all.append(call)
        if name and not call["started"]:
            call["name"] = name
            call["started"] = True
            yield ToolUseStart(call["id"], name)
            arguments = "".join(call["pieces"]) + arguments
            call["pieces"] = []
        if arguments:
            call["pieces"].append(arguments)
            if call["started"]:
                yield ToolUseInputDelta(call["id"], arguments)

    def finish(self) -> Iterator[ReplyDelta]:
        for call in self._all:
            if call["started"]:
                yield ToolUseEnd(call["id"])

    def calls(self) -> tuple[ToolCall, ...]:
        made = []
        for call in self._all:
            if call["name"]:
                value, invalid = parse_arguments("".join(call["pieces"]))
                made.append(ToolCall(call["id"], call["name"], value, invalid, call["kept"]))
        return tuple(made)


def _is_another(call: Mapping[str, Any], given_id: str, arguments: str) -> bool:
    """Whether a piece with a name begins a new call, though its index is that of one under way."""
    if given_id:
        return bool(given_id != call["given_id"])
    # Without ids: some hosts repeat the name with every piece, so the call before must be whole.
    value, invalid = parse_arguments("".join(call["pieces"]))
    return bool(arguments) and bool(value) and invalid is None


def _with_ids_of_their_own(calls: list[ToolCall]) -> list[ToolCall]:
    seen: set[str] = set()
    for index, call in enumerate(calls):
        if call.id in seen:
            calls[index] = replace(call, id=_make_id())
        seen.add(calls[index].id)
    return calls


def _whole_call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function") or {}
    value, invalid = parse_arguments(_arguments_text(function.get("arguments")))
    kept = {name: item for name, item in call.items() if name not in ("id", "type", "function", "index")}
    return ToolCall(
        call.get("id") or _make_id(), function.get("name") or "", value, invalid, {KEY: kept} if kept else None
    )


def _kept(piece: Any) -> Mapping[str, Any] | None:
    extra = getattr(piece, "model_extra", None)
    return {KEY: dict(extra)} if extra else None


def _arguments_text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return dump_json(arguments)


def _content(content: Any, dialect: Dialect) -> tuple[str, str]:
    if content is None:
        return "", ""
    if isinstance(content, str):
        return split_thinking(content, dialect.think_tags)
    text: list[str] = []
    thinking: list[str] = []
    for part in content:
        (thinking if _is_thinking(part) else text).append(_part_text(part))
    return "".join(text), "".join(thinking)


def _pieces(content: Any, splitter: ThinkSplitter) -> Iterator[TextDelta | ThinkingDelta]:
    if isinstance(content, str):
        yield from splitter.feed(content)
        return
    for part in content:
        piece = _part_text(part)
        if piece:
            yield ThinkingDelta(piece) if _is_thinking(part) else TextDelta(piece)


def _is_thinking(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "thinking"


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        part = as_dict(part) if hasattr(part, "model_dump") else {}
    inner = part.get("text") or part.get("thinking") or ""
    return inner if isinstance(inner, str) else "".join(map(_part_text, inner))


def _reasoning(message: Mapping[str, Any]) -> str | None:
    for name in ("reasoning_content", "reasoning"):
        value = message.get(name)
        if value and isinstance(value, str):
            return value
    return None


def _stop_reason(finish: str | None, has_calls: bool) -> str:
    if has_calls and finish in (None, "", "stop", "tool_calls", "function_call"):
        return "tool_use"
    if not finish:
        return "end_turn"
    return STOP_REASONS.get(finish, finish)


def _usage(body: Mapping[str, Any], provider: str, model: str) -> Any:
    usage = body.get("usage") or (body.get("x_groq") or {}).get("usage")
    return make_usage(usage, provider, model) if usage else None


def _chunk_usage(chunk: Any) -> Mapping[str, Any] | None:
    usage = getattr(chunk, "usage", None)
    if usage is None:
        groq = getattr(chunk, "x_groq", None)
        usage = groq.get("usage") if isinstance(groq, Mapping) else getattr(groq, "usage", None)
    return as_dict(usage) if usage else None


def _meta(details: Any, dialect: Dialect) -> Mapping[str, Any] | None:
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
    return {KEY: {"reasoning_details": merged}}


def _error(body: Mapping[str, Any], provider: str, model: str) -> Exception:
    message, kind, code = error_fields(body)
    return status_failure(provider, model, status_of(kind, code), message or "it reported an error", body=dict(body))


def _make_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
