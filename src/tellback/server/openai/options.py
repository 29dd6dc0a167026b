"""How a client wants to be answered: its tools, the shape of the answer, and settings in the provider's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tellback.chat.registry import builtin_providers, detect_provider_from
from tellback.errors import InvalidArgumentError
from tellback.server.external_tools import build_client_tools
from tellback.server.openai.body import CompletionRequest
from tellback.server.openai.errors import InvalidFieldError, unsupported_field
from tellback.tools import Tool
from tellback.wire.turn_inputs import ToolIn

MAX_MODEL_CALLS = 4
"""How often the model is asked in a turn: again only when it calls a tool that is not there, or not in JSON."""

_PROVIDER_NAMES = {"anthropic": {"stop": "stop_sequences"}, "gemini": {"stop": "stop_sequences"}}
_SUPPORTED_SETTINGS = {
    "anthropic": ("temperature", "top_p", "stop"),
    "gemini": ("temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty"),
}
_HINTS = ("seed", "parallel_tool_calls", "reasoning_effort")
"""What may be left out where a provider does not know it: none of them is a promise."""
_SETTINGS = ("temperature", "top_p", "stop", "presence_penalty", "frequency_penalty", "logit_bias", *_HINTS)


def parse_options(body: CompletionRequest, model: Any) -> dict[str, Any]:
    """The options of the turn, as `ChatOptions` names them, but for system prompt and tools."""
    _refuse_unsupported(body)
    options: dict[str, Any] = {
        "max_iterations": MAX_MODEL_CALLS,
        "config": _parse_settings(body, provider_family(model)),
    }
    limit = body.max_completion_tokens or body.max_tokens
    if limit is not None:
        options["max_output_tokens"] = limit
    choice = _parse_tool_choice(body)
    if choice is not None:
        options["tool_choice"] = choice
    return options


def parse_tools(body: CompletionRequest) -> list[Tool]:
    """The client's tools: it runs them itself, so that a call of one ends the turn."""
    by_name: dict[str, ToolIn] = {}
    for number, tool in enumerate(body.tools or ()):
        description = _parse_tool(tool, f"tools.{number}")
        if description.name in by_name:
            raise InvalidFieldError(f"tools.{number}", f"Two tools are called {description.name!r}.")
        by_name[description.name] = description
    try:
        return build_client_tools([*by_name.values()])
    except InvalidArgumentError as error:
        raise InvalidFieldError("tools", str(error)) from None


def provider_family(model: Any) -> str:
    """Whose words a model's settings are in: those of OpenAI, unless it is another provider's that we know."""
    if isinstance(model, str):
        entry = detect_provider_from(builtin_providers(), model)
        name = "" if entry is None else str(entry.variant)
    else:
        name = str(getattr(model, "provider", ""))
    return name.lower() if name.lower() in _SUPPORTED_SETTINGS else "openai"


def _parse_tool(tool: Mapping[str, Any], at: str) -> ToolIn:
    if tool.get("type", "function") != "function":
        raise unsupported_field(f"{at}.type", "tools are functions.")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise InvalidFieldError(f"{at}.function", "A tool has a function with a name.")
    fields = {name: function[name] for name in ("name", "description", "parameters") if function.get(name) is not None}
    try:
        return ToolIn(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidFieldError(f"{at}.function.{'.'.join(map(str, first['loc']))}", f"{first['msg']}.") from None


def _parse_tool_choice(body: CompletionRequest) -> str | None:
    names = {str((tool.get("function") or {}).get("name")) for tool in body.tools or ()}
    match body.tool_choice:
        case None:
            return None
        case "none" | "auto" | "required" as choice:
            if not names and choice == "required":
                raise InvalidFieldError("tool_choice", "`tool_choice` is required, but there are no `tools`.")
            return choice if names else None
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in names:
                raise InvalidFieldError("tool_choice", f"`tool_choice` names {name!r:.80}, which is not in `tools`.")
            return name
    raise unsupported_field("tool_choice", "it is none, auto, required, or names a function.")


def _parse_settings(body: CompletionRequest, family: str) -> dict[str, Any]:
    settings = {name: value for name in _SETTINGS if (value := getattr(body, name)) not in (None, [], {})}
    if not body.tools:
        settings.pop("parallel_tool_calls", None)
    if family in _SUPPORTED_SETTINGS:
        for name in [name for name in settings if name not in _SUPPORTED_SETTINGS[family]]:
            if name not in _HINTS and settings[name]:
                raise unsupported_field(name, "the model's provider does not know it.")
            del settings[name]
    if family == "anthropic" and "temperature" in settings:
        settings["temperature"] = min(1.0, settings["temperature"])  # as far as its scale goes
    if family in _SUPPORTED_SETTINGS and isinstance(settings.get("stop"), str):
        settings["stop"] = [settings["stop"]]
    renamed = {_PROVIDER_NAMES.get(family, {}).get(name, name): value for name, value in settings.items()}
    schema = _parse_response_format(body.response_format)
    return renamed if schema is None else {**renamed, "output_schema": schema}


def _parse_response_format(format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    match format:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    raise InvalidFieldError("response_format", "`response_format` is text, json_object, or json_schema with a schema.")


def _refuse_unsupported(body: CompletionRequest) -> None:
    if body.n is not None and body.n != 1:
        raise unsupported_field("n", "a conversation goes on with one answer, so `n` is 1.")
    if body.logprobs or body.top_logprobs:
        raise unsupported_field("logprobs", "not all providers give them.")
    if body.audio is not None or set(body.modalities or ()) - {"text"}:
        raise unsupported_field("modalities", "answers are text.")
    if body.functions or body.function_call is not None:
        raise unsupported_field("functions", "use `tools`.")
    if body.web_search_options is not None:
        raise unsupported_field("web_search_options", "the server does not search the web.")
