"""Which provider answers for which model name.

The registry is a plain list of `ProviderRegistration`s; later entries win. Third parties add theirs with
`with_providers([...])`, or for everyone by the entry-point group `recollect.providers`, whose entries are a
registration, a list of them, or a function that gives either.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from recollect.errors import ConfigurationError, UnknownModelError
from recollect.types import ChatReply

if TYPE_CHECKING:
    from recollect.chat.model import BaseModel
    from recollect.chat.options import ChatOptions

log = logging.getLogger("recollect.chat")

ENTRY_POINTS = "recollect.providers"


class Provider(StrEnum):
    """The providers known by name. Open: a registration's `variant` may be any string.

    >>> Provider.ANTHROPIC
    <Provider.ANTHROPIC: 'anthropic'>
    """

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    GEMINI = "gemini"
    OPENROUTER = "openrouter"
    XAI = "xai"
    OLLAMA = "ollama"


@dataclass(frozen=True, slots=True)
class ProviderRegistration:
    """How to recognise a provider's models and how to call them.

    `detect(model)` is given the lower-cased name. `chat_fn(model, messages, system, tools)` gives a `ChatReply`;
    `chat_stream_fn` takes `on_delta` as well. Both may also accept `tool_choice`, `max_output_tokens`,
    `output_schema` and other keywords, and get them when they do.

    >>> async def echo(model, messages, system, tools):
    ...     return "You said: " + messages[-1].content
    >>> entry = ProviderRegistration("echo", prefix_detector("echo-"), "Echo", chat_fn=echo)
    >>> detect_provider_from(with_providers([entry]), "echo-1").display_name
    'Echo'
    """

    variant: Provider | str
    detect: Callable[[str], bool]
    display_name: str
    chat_fn: Callable[..., Any] | None = None
    chat_stream_fn: Callable[..., Any] | None = None
    embed_fn: Callable[..., Any] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


def prefix_detector(*prefixes: str) -> Callable[[str], bool]:
    """A `detect` that matches names starting with one of `prefixes`, whatever their case.

    >>> prefix_detector("claude-")("Claude-Sonnet-4-5")
    True
    """
    lowered = tuple(prefix.lower() for prefix in prefixes)
    return lambda model: model.lower().startswith(lowered)


def builtin_providers() -> list[ProviderRegistration]:
    """The providers Recollect ships, then those other packages registered.

    >>> [p.display_name for p in builtin_providers()][:3]
    ['OpenRouter', 'OpenAI', 'Anthropic']
    """
    return list(_installed())


def with_providers(extras: Sequence[ProviderRegistration]) -> list[ProviderRegistration]:
    """The built-in registry with `extras` after it, so that they win.

    >>> len(with_providers([])) == len(builtin_providers())
    True
    """
    return [*_installed(), *extras]


def detect_provider(model: str) -> Provider | str:
    """The provider of a model's name; raises `UnknownModelError`.

    >>> detect_provider("claude-sonnet-5")
    <Provider.ANTHROPIC: 'anthropic'>
    """
    found = detect_provider_from(_installed(), model)
    if found is None:
        raise _unknown(model, _installed())
    return found.variant


def detect_provider_from(registry: Sequence[ProviderRegistration], model: str) -> ProviderRegistration | None:
    """The last entry that recognises the name, or None.

    >>> detect_provider_from(builtin_providers(), "gpt-5").display_name
    'OpenAI'
    """
    lowered = model.lower()
    for entry in reversed(registry):
        if entry.detect(lowered):
            return entry
    return None


def provider_name(provider: Provider | str) -> str:
    """A provider's name for people; an unknown one is its own name.

    >>> provider_name(Provider.XAI), provider_name("my-host")
    ('xAI', 'my-host')
    """
    for entry in reversed(_installed()):
        if entry.variant == provider:
            return entry.display_name
    return str(provider)


def resolve_registration(opts: ChatOptions) -> ProviderRegistration:
    """The registration for `opts.model`, from `opts.providers` or the built-in ones; raises `UnknownModelError`.

    >>> from recollect.chat import ChatOptions
    >>> resolve_registration(ChatOptions(model="gemini-2.5-flash")).display_name
    'Gemini'
    """
    if not opts.model_name:
        raise ConfigurationError("No model is set: pass ChatOptions(model='...'), a model object, or chat_fn.")
    registry = _installed() if opts.providers is None else opts.providers
    found = detect_provider_from(registry, opts.model_name)
    if found is None:
        raise _unknown(opts.model_name, registry)
    return found


def _unknown(model: str, registry: Sequence[ProviderRegistration]) -> UnknownModelError:
    known = [
        f"{entry.display_name} ({entry.meta['examples']})" if "examples" in entry.meta else entry.display_name
        for entry in registry
    ]
    note = f"Plugins that failed to load: {', '.join(_broken)}." if _broken else ""
    return UnknownModelError(model, known, note)


_broken: list[str] = []


@functools.cache
def _installed() -> tuple[ProviderRegistration, ...]:
    return (*_shipped(), *_from_entry_points())


def _from_entry_points() -> list[ProviderRegistration]:
    from importlib.metadata import entry_points

    found: list[ProviderRegistration] = []
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            loaded = entry.load()
            if callable(loaded) and not isinstance(loaded, ProviderRegistration):
                loaded = loaded()
            found.extend([loaded] if isinstance(loaded, ProviderRegistration) else loaded)
        except Exception:
            # One broken plugin must not take every other provider down; it is named when a model is not found.
            _broken.append(entry.name)
            log.exception("provider plugin %s (%s) could not be loaded", entry.name, entry.value)
    return found


def _shipped() -> tuple[ProviderRegistration, ...]:
    openrouter_vendors = (
        *("openrouter/", "openai/", "anthropic/", "google/", "meta-llama/", "mistralai/", "deepseek/", "x-ai/"),
        *("qwen/", "cohere/", "moonshotai/", "z-ai/", "nvidia/", "amazon/", "microsoft/", "perplexity/"),
    )
    vision = {"vision": True, "tool_choice": True}
    return (
        _entry(
            *(Provider.OPENROUTER, "OpenRouter", "openai:OpenRouterModel", openrouter_vendors),
            {**vision, "examples": "vendor/model", "strip": "openrouter/"},
        ),
        _entry(
            *(Provider.OPENAI, "OpenAI", "openai:OpenAIModel", ("gpt-", "chatgpt-", "o1", "o3", "o4")),
            {**vision, "audio": True, "examples": "gpt-..., o3, o4-mini"},
        ),
        _entry(
            *(Provider.ANTHROPIC, "Anthropic", "anthropic:AnthropicModel", ("claude",)),
            {**vision, "examples": "claude-..."},
        ),
        _entry(
            *(Provider.GEMINI, "Gemini", "gemini:GeminiModel", ("gemini", "models/gemini", "gemma", "models/gemma")),
            {**vision, "audio": True, "examples": "gemini-..."},
        ),
        _entry(*(Provider.XAI, "xAI", "openai:XaiModel", ("grok",)), {**vision, "examples": "grok-..."}),
        _entry(
            *(Provider.OLLAMA, "Ollama", "openai:OllamaModel", ("ollama/",)),
            {**vision, "examples": "ollama/...", "strip": "ollama/"},
        ),
    )


def _entry(
    variant: Provider, display_name: str, location: str, prefixes: tuple[str, ...], meta: Mapping[str, Any]
) -> ProviderRegistration:
    strip = meta.get("strip", "")

    async def chat_fn(model: str, messages: Any, system: Any, tools: Any, **options: Any) -> ChatReply:
        return await _model(location, model.removeprefix(strip)).complete(messages, system, tools, **options)

    async def chat_stream_fn(
        model: str, messages: Any, system: Any, tools: Any, on_delta: Any, **options: Any
    ) -> ChatReply:
        adapter = _model(location, model.removeprefix(strip))
        return await adapter.chat_stream_fn(model, messages, system, tools, on_delta, **options)

    def open_model(model: str, **kwargs: Any) -> BaseModel:
        return _model_class(location)(model.removeprefix(strip), **kwargs)

    return ProviderRegistration(
        variant, prefix_detector(*prefixes), display_name, chat_fn, chat_stream_fn, None, {**meta, "open": open_model}
    )


# A vendor's client holds connections of the loop it was used on, so adapters are kept per event loop.
_models: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], BaseModel]] = WeakKeyDictionary()


def _model(location: str, model: str) -> BaseModel:
    kept = _models.setdefault(asyncio.get_running_loop(), {})
    found = kept.get((location, model))
    if found is None:
        found = kept[location, model] = _model_class(location)(model)
    return found


def _model_class(location: str) -> Callable[..., BaseModel]:
    module, name = location.split(":")
    loaded: Callable[..., BaseModel] = getattr(importlib.import_module(f"recollect.chat.providers.{module}"), name)
    return loaded


def open_model(model: str, **kwargs: Any) -> BaseModel:
    """A model object for a name, by the built-in registry: `open_model("gpt-5", timeout=20)`.

    >>> open_model("claude-sonnet-5", api_key="...").provider
    'Anthropic'
    """
    found = detect_provider_from(_installed(), model)
    if found is None:
        raise _unknown(model, _installed())
    opener = found.meta.get("open")
    if opener is None:
        raise ConfigurationError(f"{found.display_name} is registered by its chat_fn only; it has no model object.")
    opened: BaseModel = opener(model, **kwargs)
    return opened
