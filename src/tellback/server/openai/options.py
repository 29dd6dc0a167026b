"""How a client wants to be answered: its tools, the shape of the answer, and settings in the provider's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tellback.chat.registry import builtin_providers, detect_provider_from
from tellback.errors import InvalidArgumentError
from tellback.server.external_tools import external_tools
from tellback.server.openai.body import CompletionRequest
from tellback.server.openai.errors import FieldRefusedError, unsupported
from tellback.tools import Tool
from tellback.wire.turn_inputs import ToolIn

MOST_CALLS = 4
"""How often the model is asked in a turn: again only when it calls a tool that is not there, or not in JSON."""

_LATER_NAMES = {"anthropic": {"stop": "stop_sequences"}, "gemini": {"stop": "stop_sequences"}}
_TAKEN = {
    "anthropic": ("temperature", "top_p", "stop"),
    "gemini": ("temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty"),
}
_HINTS = ("seed", "parallel_tool_calls", "reasoning_effort")
"""What may be left out where a provider does not know it: none of them is a promise."""
_SETTINGS = ("temperature", "top_p", "stop", "presence_penalty", "frequency_penalty", "logit_bias", *_HINTS)


def chat_options(body: CompletionRequest, model: Any) -> dict[str, Any]:
    """The options of the turn, as `ChatOptions` names them, but for system prompt and tools."""
    _refuse_unsupported(body)
    options: dict[str, Any] = {"max_iterations": MOST_CALLS, "config": _config(body, family_of(model))}
    limit = body.max_completion_tokens or body.max_tokens
    if limit is not None:
        options["max_output_tokens"] = limit
    choice = _tool_choice(body)
    if choice is not None:
        options["tool_choice"] = choice
    return options


def client_tools(body: CompletionRequest) -> list[Tool]:
    """The client's tools: it runs them itself, so that a call of one ends the turn."""
    found: dict[str, ToolIn] = {}
    for number, given in enumerate(body.tools or ()):
        described = _described(given, f"tools.{number}")
        if described.name in found:
            raise FieldRefusedError(f"tools.{number}", f"Two tools are called {described.name!r}.")
        found[described.name] = described
    try:
        return external_tools([*found.values()])
    except InvalidArgumentError as error:
        raise FieldRefusedError("tools", str(error)) from None


def family_of(model: Any) -> str:
    """Whose words a model's settings are in: those of OpenAI, unless it is another provider's that we know."""
    if isinstance(model, str):
        entry = detect_provider_from(builtin_providers(), model)
        name = "" if entry is None else str(entry.variant)
    else:
        name = str(getattr(model, "provider", ""))
    return name.lower() if name.lower() in _TAKEN else "openai"


def _described(given: Mapping[str, Any], at: str) -> ToolIn:
    if given.get("type", "function") != "function":
        raise unsupported(f"{at}.type", "tools are functions.")
    function = given.get("function")
    if not isinstance(function, Mapping):
        raise FieldRefusedError(f"{at}.function", "A tool has a function with a name.")
    known = {name: function[name] for name in ("name", "description", "parameters") if function.get(name) is not None}
    try:
        return ToolIn(**known)
    except ValidationError as error:
        first = error.errors()[0]
        raise FieldRefusedError(f"{at}.function.{'.'.join(map(str, first['loc']))}", f"{first['msg']}.") from None


def _tool_choice(body: CompletionRequest) -> str | None:
    names = {str((tool.get("function") or {}).get("name")) for tool in body.tools or ()}
    match body.tool_choice:
        case None:
            return None
        case "none" | "auto" | "required" as choice:
            if not names and choice == "required":
                raise FieldRefusedError("tool_choice", "`tool_choice` is required, but there are no `tools`.")
            return choice if names else None
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in names:
                raise FieldRefusedError("tool_choice", f"`tool_choice` names {name!r:.80}, which is not in `tools`.")
            return name
    raise unsupported("tool_choice", "it is none, auto, required, or names a function.")


def _config(body: CompletionRequest, family: str) -> dict[str, Any]:
    given = {name: value for name in _SETTINGS if (value := getattr(body, name)) not in (None, [], {})}
    if not body.tools:
        given.pop("parallel_tool_calls", None)
    if family in _TAKEN:
        for name in [name for name in given if name not in _TAKEN[family]]:
            if name not in _HINTS and given[name]:
                raise unsupported(name, "the model's provider does not know it.")
            del given[name]
    if family == "anthropic" and "temperature" in given:
        given["temperature"] = min(1.0, given["temperature"])  # as far as its scale goes
    if family in _TAKEN and isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    renamed = {_LATER_NAMES.get(family, {}).get(name, name): value for name, value in given.items()}
    schema = _schema(body.response_format)
    return renamed if schema is None else {**renamed, "output_schema": schema}


def _schema(format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    match format:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    raise FieldRefusedError("response_format", "`response_format` is text, json_object, or json_schema with a schema.")


def _refuse_unsupported(body: CompletionRequest) -> None:
    if body.n is not None and body.n != 1:
        raise unsupported("n", "a conversation goes on with one answer, so `n` is 1.")
    if body.logprobs or body.top_logprobs:
        raise unsupported("logprobs", "not all providers give them.")
    if body.audio is not None or set(body.modalities or ()) - {"text"}:
        raise unsupported("modalities", "answers are text.")
    if body.functions or body.function_call is not None:
        raise unsupported("functions", "use `tools`.")
    if body.web_search_options is not None:
        raise unsupported("web_search_options", "the server does not search the web.")
