"""What a caller passed to a turn, as options for the loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tellback.chat import ChatOptions, Model, ProviderRegistration, builtin_providers
from tellback.chat.offline import OFFLINE
from tellback.errors import ConfigurationError, InvalidArgumentError
from tellback.tools import Tool

ToolHandler = Callable[[str, dict[str, Any]], Any]


def resolve_options(
    options: ChatOptions | Mapping[str, Any] | None,
    *,
    model: str | Model | None,
    provider: str | None,
    tools: Sequence[Any] | None,
    tool_handler: ToolHandler | None,
    max_cycles: int | None,
    default_model: str | Model | None,
) -> ChatOptions:
    """What a caller passed to `run_turn`, as options for the loop; whatever is wrong with it is found here."""
    changes: dict[str, Any] = {}
    if not isinstance(options, ChatOptions | Mapping | None):
        raise InvalidArgumentError(f"options is a ChatOptions or a mapping, not {options!r:.80}.")
    if not isinstance(options, ChatOptions):
        changes = {"on_max_iterations": "answer", **_option_fields(options or {})}
        options = _NO_OPTIONS
    if model is not None:
        changes["model"] = model
    elif not (changes.get("model") or options.model or _has_function(options) or changes.keys() & _FUNCTIONS):
        changes["model"] = OFFLINE if default_model is None else default_model
    tools = changes.get("tools") if tools is None else tools
    if tools is not None:
        if callable(tools) or isinstance(tools, str | Mapping):
            raise InvalidArgumentError(f"tools is a list, not {tools!r:.80}: write tools=[...].")
        changes["tools"] = [tool_from_description(entry, tool_handler) for entry in tools]
    if max_cycles is not None:
        changes["max_iterations"] = max_cycles
    if provider is not None:
        changes["providers"] = [_find_provider(provider, changes.get("providers", options.providers))]
    return ChatOptions(**changes) if options is _NO_OPTIONS else replace(options, **changes)


_NO_OPTIONS = ChatOptions()
_OPTIONS = frozenset(field.name for field in fields(ChatOptions))
_FUNCTIONS = frozenset(("chat_fn", "chat_stream_fn"))


def _has_function(options: ChatOptions) -> bool:
    return options.chat_fn is not None or options.chat_stream_fn is not None


def _option_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        name = {"system_prompt": "system", "systemPrompt": "system"}.get(name, name)
        if name not in _OPTIONS:
            raise InvalidArgumentError(
                f"options has no {name!r}: it takes system_prompt and the fields of ChatOptions;"
                " settings for the provider go into config={...}."
            )
        found[name] = value
    return found


def tool_from_description(entry: Any, handler: ToolHandler | None) -> Any:
    """A tool, a function, or a description whose calls go to the handler."""
    if not isinstance(entry, Mapping):
        return entry
    described: Mapping[str, Any] = entry["function"] if isinstance(entry.get("function"), Mapping) else entry
    name = described.get("name")
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a tool's description needs a name: {entry!r:.120}.")
    if handler is None:
        raise InvalidArgumentError(f"tool {name!r} is only described: pass tool_handler=..., or a function instead.")
    schema = next(
        (described[key] for key in ("parameters", "input_schema", "inputSchema") if described.get(key) is not None),
        {"type": "object", "properties": {}},
    )
    return Tool(name, str(described.get("description") or ""), schema, _wrap_handler(name, handler))


def _wrap_handler(name: str, handler: ToolHandler) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(handler):

        async def call(**arguments: Any) -> Any:
            return await handler(name, arguments)

        return call
    return lambda **arguments: handler(name, arguments)


def _find_provider(provider: str, registry: Sequence[ProviderRegistration] | None) -> ProviderRegistration:
    """The registration of that name, for whatever model it is asked."""
    entries = builtin_providers() if registry is None else list(registry)
    for entry in reversed(entries):
        if str(provider).lower() in (str(entry.variant).lower(), entry.display_name.lower()):
            return replace(entry, detect=lambda _: True)
    known = ", ".join(dict.fromkeys(str(entry.variant) for entry in entries))
    raise ConfigurationError(f"No provider is called {provider!r}. Known: {known}.")
