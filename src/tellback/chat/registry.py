"""The registry of providers: find the provider of a model's name.

The registry is a plain list of `ProviderRegistration`s; later entries win. The modules in `BUILTIN_MODULES` declare the
built-in ones. Other packages add theirs with `with_providers([...])`, or for all programs with the entry-point group
`tellback.providers`. An entry point is a registration, a list of them, or a function that returns either.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Unpack

from tellback import telemetry
from tellback.errors import ConfigurationError, UnknownModelError
from tellback.types import ChatReply

if TYPE_CHECKING:
    from tellback.chat.model import Model, ModelBase, OpenModelOptions
    from tellback.chat.options import ChatOptions

log = logging.getLogger("tellback.chat")

ENTRY_POINT_GROUP = "tellback.providers"

_failed_plugins: list[str] = []

BUILTIN_MODULES = (
    "tellback.chat.providers.anthropic",
    "tellback.chat.providers.openai",
    "tellback.chat.providers.gemini",
    "tellback.chat.providers.openrouter",
    "tellback.chat.providers.xai",
    "tellback.chat.providers.local",
    "tellback.chat.providers.ollama",
    "tellback.chat.offline",
)
"""The modules that declare the built-in providers as `PROVIDER`, in the order in which `choose_model` tries them."""

OPEN_MODEL_DIMENSIONS = {
    "all-minilm": 384,
    "bge-m3": 1024,
    "embeddinggemma": 768,
    "mxbai-embed-large": 1024,
    "nomic-embed-text": 768,
}


class Provider(StrEnum):
    """Constants for built-in providers. They are not the only providers: a `variant` may be any string.

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
    """A provider in the registry: how to recognise its models and how to call them.

    `detect(model)` receives the lower-cased name. `chat_fn(model, messages, system, tools)` returns a `ChatReply`;
    `chat_stream_fn` also receives `on_delta`. Both may have parameters such as `tool_choice`, `max_output_tokens` and
    `output_schema`, which are then passed. `embed_fn(model, texts)` returns one vector per text and makes the
    provider's models embedders; `meta["embed_batch_size"]` is the largest number of texts per call (default: 100).

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
    """Return a `detect` function that matches names with one of the prefixes, in any case.

    >>> prefix_detector("claude-")("Claude-Sonnet-4-5")
    True
    """
    lowered = tuple(prefix.lower() for prefix in prefixes)
    return lambda model: model.lower().startswith(lowered)


def strip_prefix(prefix: str) -> Callable[[str], str]:
    """Return a function that removes `prefix`, in any case, from a model's name.

    >>> strip_prefix("ollama/")("Ollama/llama3")
    'llama3'
    """
    return lambda model: model[len(prefix) :] if model.lower().startswith(prefix) else model


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that may be usable here: whether it `is_ready`, its name, and what was found or is missing (`note`).

    With `is_package_missing`, everything else is set up.

    >>> from tellback.chat import survey_models
    >>> [openai] = [each for each in survey_models({}) if each.provider == "OpenAI"]
    >>> openai.is_ready, openai.note
    (False, 'OPENAI_API_KEY is not set')
    """

    provider: str
    model: str | None
    is_ready: bool
    note: str
    is_package_missing: bool = False


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The embedding models of a provider, and how much one request may contain.

    `dimensions` has the vector length of each known model. Names that start with one of `prefixes` belong to this
    provider; the longest matching prefix wins. Models that start with one of `shortenable` can make shorter vectors.
    """

    dimensions: Mapping[str, int] = field(default_factory=lambda: OPEN_MODEL_DIMENSIONS)
    default_model: str = ""
    prefixes: tuple[str, ...] = ()
    shortenable: tuple[str, ...] = ()
    max_texts: int = 128
    max_bytes: int = 100_000
    max_text_bytes: int = 2_000


@dataclass(frozen=True, slots=True)
class BuiltinProvider:
    """The declaration of a built-in provider: data only, so that reading it loads neither the model class nor an SDK.

    `detect(model)` receives the lower-cased name. `model_class` is "module:Class"; without it, models are called with
    OpenAI's chat API at `base_url`. `model_name` returns the provider's own name of a model. `choose_model` offers
    `default_model` if one of `key_variables` is set and the package `sdk` is installed (by the extra `extra`); `find`
    replaces this check. `settings` maps OpenAI's names of request settings to the provider's; None means that they are
    equal. `price_id` is the provider's id in genai-prices, `otel_name` its name in OpenTelemetry where that differs.
    """

    variant: Provider | str
    display_name: str
    detect: Callable[[str], bool]
    examples: str
    model_class: str = ""
    model_name: Callable[[str], str] = str
    base_url: str | None = None
    key_variables: tuple[str, ...] = ()
    default_model: str = ""
    sdk: str = ""
    extra: str = ""
    find: Callable[[Mapping[str, str]], FoundModel] | None = None
    vision: bool = True
    audio: bool = False
    tool_choice: bool = True
    settings: Mapping[str, str] | None = None
    max_temperature: float = 2.0
    price_id: str | None = None
    otel_name: str | None = None
    embeddings: Embeddings | None = None


@functools.cache
def load_builtin_providers() -> tuple[BuiltinProvider, ...]:
    """Load the declarations of the built-in providers, in the order of `BUILTIN_MODULES`."""
    return tuple([importlib.import_module(module).PROVIDER for module in BUILTIN_MODULES])


@functools.lru_cache(maxsize=256)  # called for the cost and the spans of each reply
def find_builtin_provider(name: str | None) -> BuiltinProvider | None:
    """Return the built-in provider with this variant, display name or price id, in any case.

    >>> find_builtin_provider("Google").display_name
    'Gemini'
    """
    wanted = (name or "").lower().replace(" ", "")
    for provider in load_builtin_providers():
        if wanted in (provider.variant, provider.display_name.lower().replace(" ", ""), provider.price_id):
            return provider
    return None


def _find_otel_name(name: str) -> str | None:
    provider = find_builtin_provider(name)
    return None if provider is None else provider.otel_name


telemetry.set_provider_names(_find_otel_name)


def builtin_providers() -> list[ProviderRegistration]:
    """List the built-in providers, then those that other packages registered.

    >>> [p.display_name for p in builtin_providers()][:3]
    ['Anthropic', 'OpenAI', 'Gemini']
    """
    return list(_all_registrations())


def with_providers(extras: Sequence[ProviderRegistration]) -> list[ProviderRegistration]:
    """Return the built-in registry with `extras` at the end, so that `extras` win.

    >>> len(with_providers([])) == len(builtin_providers())
    True
    """
    return [*_all_registrations(), *extras]


def detect_provider(model: str) -> Provider | str:
    """Return the provider of a model's name; raises `UnknownModelError`.

    >>> detect_provider("claude-sonnet-5")
    <Provider.ANTHROPIC: 'anthropic'>
    """
    return _require_registration(_all_registrations(), model).variant


def detect_provider_from(registry: Sequence[ProviderRegistration], model: str) -> ProviderRegistration | None:
    """Return the last entry that recognises the name, or None.

    >>> detect_provider_from(builtin_providers(), "gpt-5").display_name
    'OpenAI'
    """
    lowered = model.lower()
    for entry in reversed(registry):
        if entry.detect(lowered):
            return entry
    return None


def provider_name(provider: Provider | str) -> str:
    """Return a provider's display name, or the given name if the provider is unknown.

    >>> provider_name(Provider.XAI), provider_name("my-host")
    ('xAI', 'my-host')
    """
    for entry in reversed(_all_registrations()):
        if entry.variant == provider:
            return entry.display_name
    return str(provider)


def resolve_registration(opts: ChatOptions) -> ProviderRegistration:
    """Return the registration for `opts.model`, from `opts.providers` or the built-in ones.

    Raises `UnknownModelError`.

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
    builtin = [BuiltinAdapter(provider).register() for provider in load_builtin_providers()]
    return (*builtin, *_load_entry_points())


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
            # A broken plugin must not affect other providers; the error for an unknown model lists it.
            _failed_plugins.append(entry.name)
            log.exception("Provider plugin %s (%s) could not be loaded", entry.name, entry.value)
    return found


class BuiltinAdapter:
    """The models of a built-in provider: loads the model class when first used, and has one model object per name.

    `chat_fn` and `chat_stream_fn` are those of its registration.
    """

    def __init__(self, provider: BuiltinProvider) -> None:
        self.provider = provider
        self._models: dict[str, ModelBase] = {}

    def register(self) -> ProviderRegistration:
        provider = self.provider
        meta = {name: getattr(provider, name) for name in ("examples", "vision", "audio", "tool_choice")}
        return ProviderRegistration(
            provider.variant, provider.detect, provider.display_name, self.chat_fn, self.chat_stream_fn, meta=meta
        )

    def open(self, model: str, **options: Any) -> ModelBase:
        if self.provider.model_class:
            module, name = self.provider.model_class.split(":")
            model_class = getattr(importlib.import_module(module), name)
        else:
            chat_completions = importlib.import_module("tellback.chat.providers.chat_completions")
            model_class = chat_completions.create_model_class(self.provider)
        opened: ModelBase = model_class(self.provider.model_name(model), **options)
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
        """Close the models' connections on this event loop."""
        for model in self._models.values():
            await model.aclose()


def get_builtin_adapter(entry: ProviderRegistration) -> BuiltinAdapter | None:
    """Return the adapter of a built-in registration, or None if one of its functions was replaced."""
    owner = getattr(entry.chat_fn, "__self__", None)
    if isinstance(owner, BuiltinAdapter) and getattr(entry.chat_stream_fn, "__self__", None) is owner:
        return owner
    return None


def open_model(model: str, **options: Unpack[OpenModelOptions]) -> ModelBase:
    """Create a model object by name from the built-in registry: `open_model("gpt-5", timeout=20)`.

    >>> open_model("claude-sonnet-5", api_key="...").provider
    'Anthropic'
    """
    found = _require_registration(_all_registrations(), model)
    adapter = get_builtin_adapter(found)
    if adapter is None:
        raise ConfigurationError(
            f"{found.display_name} is registered with functions, so it has no model object: pass the name {model!r} as"
            " the model instead."
        )
    return adapter.open(model, **options)


async def load_model(model: str | Model | None) -> None:
    """Load a model that runs in this process; for other models, do nothing.

    >>> import asyncio
    >>> asyncio.run(load_model("gpt-5"))
    """
    if isinstance(model, str):
        found = detect_provider_from(_all_registrations(), model)
        adapter = None if found is None else get_builtin_adapter(found)
        model = None if adapter is None else adapter.model(model)
    load = getattr(model, "load", None)
    if load is not None:
        await load()


async def close_models() -> None:
    """Close the connections of all models that were used by name on this event loop, for a clean shutdown.

    >>> import asyncio
    >>> asyncio.run(close_models())
    """
    for entry in _all_registrations():
        adapter = get_builtin_adapter(entry)
        if adapter is not None:
            await adapter.close()
