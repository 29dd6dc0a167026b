"""The registry of providers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from tellback import ChatOptions, OpenAIModel, open_model, run_loop
from tellback.chat import (
    Provider,
    ProviderRegistration,
    builtin_providers,
    detect_provider,
    detect_provider_from,
    prefix_detector,
    provider_name,
    registry,
    resolve_registration,
    with_providers,
)
from tellback.chat.registry import (
    BUILTIN_MODULES,
    BuiltinAdapter,
    BuiltinProvider,
    load_builtin_providers,
    strip_prefix,
)
from tellback.errors import MissingExtraError, UnknownModelError


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-sonnet-4-5", "anthropic"),
        ("CLAUDE-OPUS-5", "anthropic"),
        ("gpt-5", "openai"),
        ("o4-mini", "openai"),
        ("gemini-2.5-flash", "gemini"),
        ("models/gemini-2.5-flash", "gemini"),
        ("grok-4", "xai"),
        ("ollama/llama3", "ollama"),
        ("openai/gpt-5", "openrouter"),
        ("anthropic/claude-sonnet-4-5", "openrouter"),
        ("openrouter/auto", "openrouter"),
        ("qwen/model.gguf", "local"),
        ("ollama/model.gguf", "local"),
    ],
)
def test_names_find_their_provider(model: str, provider: str) -> None:
    assert detect_provider(model) == provider
    assert resolve_registration(ChatOptions(model=model)).variant == provider


def test_an_unknown_name_raises_unknown_model_error_or_returns_none() -> None:
    with pytest.raises(UnknownModelError) as caught:
        detect_provider("llama-99")
    assert caught.value.model == "llama-99"
    assert any("OpenAI" in known for known in caught.value.known)
    assert detect_provider_from(builtin_providers(), "llama-99") is None
    assert detect_provider_from([], "gpt-5") is None


def test_provider_name_returns_the_display_name() -> None:
    assert provider_name(Provider.OPENAI) == "OpenAI"
    assert provider_name("gemini") == "Gemini"
    assert provider_name("someone-else") == "someone-else"


async def shout(model: str, messages: Any, system: Any, tools: Any) -> str:
    return f"{model}: {messages[-1].content.upper()}"


OWN_PROVIDER = ProviderRegistration("mine", prefix_detector("gpt-", "mine-"), "Mine", chat_fn=shout)


async def test_later_entries_win_over_earlier_ones() -> None:
    opts = ChatOptions(model="gpt-5", providers=with_providers([OWN_PROVIDER]))
    assert resolve_registration(opts) is OWN_PROVIDER
    assert str(await run_loop(opts, "hi")) == "gpt-5: HI"
    assert resolve_registration(ChatOptions(model="gpt-5")).variant == "openai"


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(*values: str) -> None:
        found = [EntryPoint(f"plugin{i}", value, registry.ENTRY_POINT_GROUP) for i, value in enumerate(values)]
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)
        registry._all_registrations.cache_clear()

    yield install
    monkeypatch.undo()
    registry._all_registrations.cache_clear()
    registry._failed_plugins.clear()


def several() -> list[ProviderRegistration]:
    return [ProviderRegistration("other", prefix_detector("other-"), "Other", chat_fn=shout)]


async def test_other_packages_register_by_entry_point(plugins: Any) -> None:
    plugins(f"{__name__}:OWN_PROVIDER", f"{__name__}:several")
    assert detect_provider("mine-1") == "mine"
    assert detect_provider("other-1") == "other"
    assert provider_name("other") == "Other"
    assert str(await run_loop(ChatOptions(model="other-1"), "hi")) == "other-1: HI"


def test_a_broken_plugin_does_not_affect_others_and_is_reported(plugins: Any, caplog: pytest.LogCaptureFixture) -> None:
    plugins("no_such_module_anywhere:thing", f"{__name__}:OWN_PROVIDER")
    assert detect_provider("mine-1") == "mine"
    assert "plugin0" in caplog.text
    with pytest.raises(UnknownModelError, match="failed to load: plugin0"):
        detect_provider("llama-99")


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("openrouter/auto", "openrouter/auto"),
        ("openrouter/minimax/m2", "minimax/m2"),
        ("Ollama/llama3", "llama3"),
        ("gpt-5", "gpt-5"),
    ],
)
def test_the_prefix_of_the_provider_is_not_sent(name: str, sent: str) -> None:
    assert open_model(name).model == sent


async def test_replacing_one_function_of_a_provider_is_respected() -> None:
    entry = resolve_registration(ChatOptions(model="gpt-5"))
    opts = ChatOptions(model="gpt-5", providers=[replace(entry, chat_fn=shout)])
    assert str(await run_loop(opts, "hi")) == "gpt-5: HI"
    provider = ProviderRegistration("mine", prefix_detector("mine-"), "Mine", meta=None)  # type: ignore[arg-type]
    with pytest.raises(UnknownModelError, match="Mine"):
        resolve_registration(ChatOptions(model="llama-99", providers=[provider]))


def test_open_model_creates_a_model_by_name() -> None:
    model: Any = open_model("ollama/llama3", timeout=5, retries=0)
    assert (type(model).__name__, model.model, model.timeout) == ("OllamaModel", "llama3", 5)
    with pytest.raises(UnknownModelError):
        open_model("llama-99")


@pytest.mark.parametrize(
    ("model", "package", "extra"),
    [("claude-x", "anthropic", "anthropic"), ("gpt-5", "openai", "openai"), ("gemini-x", "google-genai", "gemini")],
)
async def test_the_error_for_a_missing_extra_says_what_to_install(
    model: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google" if extra == "gemini" else package, None)
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    variants: list[dict[str, Any]] = [{}, {"output_schema": schema}]
    for options in variants:
        with pytest.raises(MissingExtraError, match=rf"'{package}': pip install 'tellback\[{extra}\]'"):
            await open_model(model, api_key="x").complete("Hi", **options)


HOST = BuiltinProvider(
    "acme", "Acme AI", prefix_detector("acme/"), "acme/...", model_name=strip_prefix("acme/"), base_url="http://acme/v1"
)


def test_a_declared_host_without_a_model_class_is_called_with_the_openai_api() -> None:
    model: Any = BuiltinAdapter(HOST).open("Acme/small", api_key="key", timeout=5)
    assert isinstance(model, OpenAIModel)
    assert (repr(model), model.provider, model.timeout) == ("AcmeAIModel('small')", "Acme AI", 5)


def test_every_declaration_belongs_to_its_model_class() -> None:
    for provider in load_builtin_providers():
        model: Any = BuiltinAdapter(provider).open(provider.default_model or provider.examples)
        if provider.variant != "offline":
            assert type(model).declaration is provider


def test_reading_all_declarations_loads_no_adapter() -> None:
    code = """
import json, sys
from tellback.chat import choose_model, detect_provider, make_usage
from tellback.embed import resolve_embedder

detect_provider("gpt-5"), choose_model("gpt-5"), make_usage({"input_tokens": 1}, "OpenAI", "gpt-5")
print(json.dumps([name for name in sys.modules if name.startswith("tellback.chat.providers")]))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert set(json.loads(out)) <= {"tellback.chat.providers", *BUILTIN_MODULES}
