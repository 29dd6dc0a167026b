"""Which provider answers for which model name.

The registry is a plain list of `ProviderRegistration`s; later entries win. Third parties add theirs with
`with_providers([...])`, or for everyone by the entry-point group `tellback.providers`, whose entries are a
registration, a list of them, or a function that gives either.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Unpack

from tellback.errors import ConfigurationError, UnknownModelError
from tellback.types import ChatReply

if TYPE_CHECKING:
    from tellback.chat.model import Model, ModelBase, OpenModelOptions
    from tellback.chat.options import ChatOptions

log = logging.getLogger("tellback.chat")

ENTRY_POINT_GROUP = "tellback.providers"

_failed_plugins: list[str] = []

OPENROUTER_PREFIXES = (
    *("openrouter/", "ai21/", "amazon/", "anthropic/", "cohere/", "deepseek/", "google/", "meta-llama/", "microsoft/"),
    *("minimax/", "mistralai/", "moonshotai/", "nousresearch/", "nvidia/", "openai/", "perplexity/", "qwen/", "x-ai/"),
    "z-ai/",
)
"""OpenRouter's own names begin with the vendor's; those of other vendors are written `openrouter/vendor/model`."""


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
    LOCAL = "local"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class ProviderRegistration:
    """How to recognise a provider's models and how to call them.

    `detect(model)` is given the lower-cased name. `chat_fn(model, messages, system, tools)` gives a `ChatReply`;
    `chat_stream_fn` takes `on_delta` as well. Both may also accept `tool_choice`, `max_output_tokens`,
    `output_schema` and other keywords, and get them when they do. `embed_fn(model, texts)` gives a vector for each
    text, and makes the provider's models embedders; `meta["embed_batch_size"]` is how many texts it takes at once
    (100).

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

    def __post_init__(self) -> None:
        if self.meta is None:
            object.__setattr__(self, "meta", {})


def prefix_detector(*prefixes: str) -> Callable[[str], bool]:
    """A `detect` that matches names starting with one of `prefixes`, whatever their case.

    >>> prefix_detector("claude-")("Claude-Sonnet-4-5")
    True
    """
    lowered = tuple(prefix.lower() for prefix in prefixes)
    return lambda model: model.lower().startswith(lowered)


def builtin_providers() -> list[ProviderRegistration]:
    """The providers Tellback ships, then those other packages registered.

    >>> [p.display_name for p in builtin_providers()][:3]
    ['OpenRouter', 'OpenAI', 'Anthropic']
    """
    return list(_all_registrations())


def with_providers(extras: Sequence[ProviderRegistration]) -> list[ProviderRegistration]:
    """The built-in registry with `extras` after it, so that they win.

    >>> len(with_providers([])) == len(builtin_providers())
    True
    """
    return [*_all_registrations(), *extras]


def detect_provider(model: str) -> Provider | str:
    """The provider of a model's name; raises `UnknownModelError`.

    >>> detect_provider("claude-sonnet-5")
    <Provider.ANTHROPIC: 'anthropic'>
    """
    return _require_registration(_all_registrations(), model).variant


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
    for entry in reversed(_all_registrations()):
        if entry.variant == provider:
            return entry.display_name
    return str(provider)


def resolve_registration(opts: ChatOptions) -> ProviderRegistration:
    """The registration for `opts.model`, from `opts.providers` or the built-in ones; raises `UnknownModelError`.

    >>> from tellback.chat import ChatOptions
    >>> resolve_registration(ChatOptions(model="gemini-2.5-flash")).display_name
    'Gemini'
    """
    if not opts.model_name:
        raise ConfigurationError("No model is set: pass ChatOptions(model='...'), a model object, or chat_fn.")
    registry = _all_registrations() if opts.providers is None else opts.providers
    return _require_registration(registry, opts.model_name)


def _require_registration(registry: Sequence[ProviderRegistration], model: str) -> ProviderRegistration:
    found = detect_provider_from(registry, model)
    if found is not None:
        return found
    known = [
        f"{entry.display_name} ({entry.meta['examples']})" if "examples" in entry.meta else entry.display_name
        for entry in registry
    ]
    note = f"Plugins that failed to load: {', '.join(_failed_plugins)}." if _failed_plugins else ""
    raise UnknownModelError(model, known, note)


@functools.cache
def _all_registrations() -> tuple[ProviderRegistration, ...]:
    return (*_builtin_registrations(), *_load_entry_points())


def _load_entry_points() -> list[ProviderRegistration]:
    from importlib.metadata import entry_points

    found: list[ProviderRegistration] = []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = entry.load()
            if callable(loaded) and not isinstance(loaded, ProviderRegistration):
                loaded = loaded()
            found.extend([loaded] if isinstance(loaded, ProviderRegistration) else loaded)
        except Exception:
            # One broken plugin must not take every other provider down; it is named when a model is not found.
            _failed_plugins.append(entry.name)
            log.exception("provider plugin %s (%s) could not be loaded", entry.name, entry.value)
    return found


def _builtin_registrations() -> tuple[ProviderRegistration, ...]:
    def register(
        variant: Provider, name: str, location: str, detect: Callable[[str], bool], examples: str, **meta: Any
    ) -> ProviderRegistration:
        prefix = f"{variant}/" if variant in (Provider.OPENROUTER, Provider.OLLAMA) else ""
        adapter = BuiltinAdapter(location, prefix)
        capabilities = {"examples": examples, "vision": True, "tool_choice": True, **meta}
        return ProviderRegistration(variant, detect, name, adapter.chat_fn, adapter.chat_stream_fn, meta=capabilities)

    named = prefix_detector
    openai_names = named("gpt-", "chatgpt-", "o1", "o3", "o4")
    gemini_names = named("gemini", "models/gemini", "gemma")
    offline_path = "tellback.chat.offline:OfflineModel"

    def is_local(model: str) -> bool:
        return model.endswith(".gguf") or model.startswith("local/")

    def is_offline(model: str) -> bool:
        return model == Provider.OFFLINE

    return (
        register(
            Provider.OPENROUTER, "OpenRouter", "openai:OpenRouterModel", named(*OPENROUTER_PREFIXES), "vendor/model"
        ),
        register(Provider.OPENAI, "OpenAI", "openai:OpenAIModel", openai_names, "gpt-..., o4-mini", audio=True),
        register(Provider.ANTHROPIC, "Anthropic", "anthropic:AnthropicModel", named("claude"), "claude-..."),
        register(Provider.GEMINI, "Gemini", "gemini:GeminiModel", gemini_names, "gemini-...", audio=True),
        register(Provider.XAI, "xAI", "openai:XaiModel", named("grok"), "grok-..."),
        register(Provider.OLLAMA, "Ollama", "openai:OllamaModel", named("ollama/"), "ollama/..."),
        register(Provider.LOCAL, "GGUF file", "local:LocalModel", is_local, "path/to/model.gguf", vision=False),
        register(Provider.OFFLINE, "offline", offline_path, is_offline, "offline", vision=False, tool_choice=False),
    )


class BuiltinAdapter:
    """A provider's adapter, loaded when first used; one model object for each name.

    `chat_fn` and `chat_stream_fn` are those of its registration.
    """

    def __init__(self, location: str, prefix: str = "") -> None:
        self._location = location
        self._prefix = prefix
        self._models: dict[str, ModelBase] = {}

    def open(self, model: str, **options: Any) -> ModelBase:
        module, name = self._location.split(":")
        path = module if "." in module else f"tellback.chat.providers.{module}"
        model_class = getattr(importlib.import_module(path), name)
        opened: ModelBase = model_class(self._vendor_model_name(model), **options)
        return opened

    def model(self, model: str) -> ModelBase:
        found = self._models.get(model)
        if found is None:
            found = self._models[model] = self.open(model)
        return found

    async def chat_fn(self, model: str, messages: Any, system: Any, tools: Any, **options: Any) -> ChatReply:
        return await self.model(model).complete(messages, system, tools, **options)

    async def chat_stream_fn(
        self, model: str, messages: Any, system: Any, tools: Any, on_delta: Any, **options: Any
    ) -> ChatReply:
        return await self.model(model).chat_stream_fn(model, messages, system, tools, on_delta, **options)

    async def close(self) -> None:
        """Close what the models hold open on this event loop."""
        for model in self._models.values():
            await model.aclose()

    def _vendor_model_name(self, model: str) -> str:
        # `openrouter/vendor/model` is `vendor/model` there, but `openrouter/auto` is that name in full.
        if self._prefix and model.lower().startswith(self._prefix):
            rest = model[len(self._prefix) :]
            if self._prefix != "openrouter/" or "/" in rest:
                return rest
        return model


def get_builtin_adapter(entry: ProviderRegistration) -> BuiltinAdapter | None:
    """The adapter behind a registration, unless one of its functions has been replaced."""
    owner = getattr(entry.chat_fn, "__self__", None)
    if isinstance(owner, BuiltinAdapter) and getattr(entry.chat_stream_fn, "__self__", None) is owner:
        return owner
    return None


def open_model(model: str, **options: Unpack[OpenModelOptions]) -> ModelBase:
    """A model object for a name, by the built-in registry: `open_model("gpt-5", timeout=20)`.

    >>> open_model("claude-sonnet-5", api_key="...").provider
    'Anthropic'
    """
    found = _require_registration(_all_registrations(), model)
    adapter = get_builtin_adapter(found)
    if adapter is None:
        raise ConfigurationError(f"{found.display_name} is registered by its chat_fn only; it has no model object.")
    return adapter.open(model, **options)


async def load_model(model: str | Model | None) -> None:
    """Load a model that runs in this process before it is first asked; of others there is nothing to load.

    >>> import asyncio
    >>> asyncio.run(load_model("gpt-5"))
    """
    if isinstance(model, str):
        found = detect_provider_from(_all_registrations(), model)
        if found is None or found.variant != Provider.LOCAL:
            return
        adapter = get_builtin_adapter(found)
        model = None if adapter is None else adapter.model(model)
    load = getattr(model, "load", None)
    if load is not None:
        await load()


async def close_models() -> None:
    """Close the connections that models used by name have left open on this event loop, for a clean shutdown.

    >>> import asyncio
    >>> asyncio.run(close_models())
    """
    for entry in _all_registrations():
        adapter = get_builtin_adapter(entry)
        if adapter is not None:
            await adapter.close()
