"""`choose_model`: the choice of a model if the application sets none."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tellback import Agent, ChatOptions, OllamaModel, Tellback, TellbackError
from tellback.chat import choose_model, discovery, survey_models
from tellback.chat.providers.ollama import build_ollama_url
from tellback.errors import ConfigurationError
from tellback.server.operations import http_server
from tellback.server.settings import ServeOptions
from tellback.testing import ScriptedModel
from tests.support.fake_http_server import FakeHttpServer, Reply, json_reply


def closed_port() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture
def env_without_models() -> dict[str, str]:
    """An environment without keys, in which no Ollama answers."""
    return {"OLLAMA_HOST": closed_port()}


@pytest.fixture
async def ollama() -> AsyncIterator[FakeHttpServer]:
    models = {"models": [{"name": "nomic-embed-text"}, {"name": "llama3.2:latest"}, {"name": "qwen3"}]}
    async with FakeHttpServer(lambda request: json_reply(models)) as server:
        yield server


async def chosen_model_name(env: dict[str, str], name: str | None = None) -> str:
    import asyncio

    return (await asyncio.to_thread(choose_model, name, env)).name


async def test_without_any_model_the_offline_model_is_chosen(env_without_models: dict[str, str]) -> None:
    found = choose_model(env=env_without_models)
    assert found.is_offline
    assert "no key is set" in found.why


def test_a_key_without_its_package_is_reported_instead_of_ignored(
    env_without_models: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(discovery, "is_installed", lambda package: package != "openai")
    found = choose_model(env={**env_without_models, "OPENAI_API_KEY": "x"})
    assert found.is_offline
    assert found.why == "OPENAI_API_KEY is set, but the package is missing: pip install 'tellback[openai]'"
    assert caplog.messages == [found.why]
    caplog.clear()
    ready = choose_model(env={**env_without_models, "OPENAI_API_KEY": "x", "GEMINI_API_KEY": "y"})
    assert (ready.is_offline, caplog.messages) == (False, [])


@pytest.mark.parametrize(
    ("variable", "model"),
    [
        ("ANTHROPIC_API_KEY", "claude-sonnet-5"),
        ("OPENAI_API_KEY", "gpt-5"),
        ("GEMINI_API_KEY", "gemini-2.5-flash"),
        ("GOOGLE_API_KEY", "gemini-2.5-flash"),
        ("OPENROUTER_API_KEY", "openrouter/auto"),
        ("XAI_API_KEY", "grok-4"),
    ],
)
async def test_a_provider_key_in_the_environment_selects_its_model(
    env_without_models: dict[str, str], variable: str, model: str
) -> None:
    found = choose_model(env={**env_without_models, variable: "secret-key"})
    assert (found.name, found.is_offline) == (model, False)
    assert variable in found.why
    assert "secret-key" not in found.why


@pytest.mark.parametrize("blank", ["", "  "])
async def test_a_blank_variable_counts_as_not_set(env_without_models: dict[str, str], blank: str) -> None:
    for variable in ("OPENAI_API_KEY", "TELLBACK_MODEL", "TELLBACK_GGUF"):
        assert choose_model(env={**env_without_models, variable: blank}).is_offline


def test_the_name_offline_is_case_insensitive() -> None:
    assert choose_model("Offline").is_offline


@pytest.mark.parametrize("host", ["[::1", "127.0.0.1:99999", "http://[", "a b"])
async def test_an_invalid_ollama_host_means_that_no_ollama_answers(host: str) -> None:
    assert choose_model(env={"OLLAMA_HOST": host}).is_offline
    [ollama] = [each for each in survey_models({"OLLAMA_HOST": host}) if each.provider == "Ollama"]
    assert host in ollama.note


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1/"),
        ("0.0.0.0", "http://0.0.0.0:11434/v1/"),
        ("[::1]", "http://[::1]:11434/v1/"),
        (":8000", "http://127.0.0.1:8000/v1/"),
        ("box:8000/ollama/", "http://box:8000/ollama/v1/"),
        ("https://ollama.example", "https://ollama.example/v1/"),
    ],
)
async def test_ollama_models_use_the_address_of_the_discovery(
    monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    async with OllamaModel("qwen3") as model:
        assert str(model.client.base_url) == url
    assert f"{build_ollama_url(host)}/v1/" == url


def test_an_invalid_ollama_host_raises_when_a_model_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "box:99999")
    with pytest.raises(ConfigurationError, match="OLLAMA_HOST must be an address"):
        OllamaModel("qwen3")


async def test_the_argument_wins_over_the_variable_and_the_variable_over_keys(
    env_without_models: dict[str, str],
) -> None:
    env = {**env_without_models, "TELLBACK_MODEL": "gpt-5-mini", "ANTHROPIC_API_KEY": "key"}
    assert choose_model("grok-4", env).name == "grok-4"
    assert choose_model(None, env).name == "gpt-5-mini"
    assert choose_model("auto", env).name == "gpt-5-mini"
    assert choose_model("auto", {**env, "TELLBACK_MODEL": "auto"}).name == "claude-sonnet-5"


async def test_a_key_without_its_package_is_skipped_with_an_install_hint(
    env_without_models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(discovery, "find_spec", lambda name: None if name == "anthropic" else real(name))
    env = {**env_without_models, "ANTHROPIC_API_KEY": "key", "OPENAI_API_KEY": "key"}
    assert choose_model(env=env).name == "gpt-5"
    [anthropic] = [each for each in survey_models(env) if each.provider == "Anthropic"]
    assert not anthropic.is_ready
    assert "pip install 'tellback[anthropic]'" in anthropic.note


async def test_the_first_chat_model_of_an_ollama_is_chosen(ollama: FakeHttpServer) -> None:
    assert await chosen_model_name({"OLLAMA_HOST": ollama.url}) == "ollama/llama3.2:latest"
    assert await chosen_model_name({"OLLAMA_HOST": ollama.url, "OPENAI_API_KEY": "key"}) == "gpt-5"


@pytest.mark.parametrize("answer", [{"models": []}, {"models": [{"name": "nomic-embed-text"}]}, {}, [], "no"])
async def test_an_ollama_without_a_chat_model_is_not_chosen(answer: Any) -> None:
    async with FakeHttpServer(lambda request: json_reply(answer)) as server:
        assert await chosen_model_name({"OLLAMA_HOST": server.url}) == "offline"


async def test_another_server_on_the_port_is_not_an_ollama() -> None:
    async with FakeHttpServer(lambda request: Reply(500)) as server:
        assert await chosen_model_name({"OLLAMA_HOST": server.url}) == "offline"


async def test_an_existing_gguf_file_is_chosen(env_without_models: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "small.gguf"
    env = {**env_without_models, "TELLBACK_GGUF": str(file)}
    assert choose_model(env=env).is_offline
    [local] = [each for each in survey_models(env) if each.provider == "local"]
    assert "not a file" in local.note
    file.write_bytes(b"GGUF")
    assert choose_model(env=env).name == str(file)
    bare = file.rename(tmp_path / "small")
    assert choose_model(env={**env_without_models, "TELLBACK_GGUF": str(bare)}).name == f"local/{bare}"


async def test_tellback_resolves_auto_when_it_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLBACK_MODEL", "gpt-5-nano")
    assert Tellback(":memory:", model="auto").model == "gpt-5-nano"
    monkeypatch.setenv("TELLBACK_MODEL", "offline")
    assert Tellback(":memory:", model="auto").model is None


async def test_auto_is_accepted_wherever_a_model_name_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLBACK_MODEL", "gpt-5-nano")
    assert ChatOptions(model="auto").model == "gpt-5-nano"
    monkeypatch.setenv("TELLBACK_MODEL", "offline")
    async with Tellback(":memory:", model=ScriptedModel([])) as tb:
        assert "No model is set up" in (await tb.user("maya").chat("Hello", model="Auto")).text
    assert "No model is set up" in (await Agent("Wanda", model="auto").respond("Hello")).message
    assert (await http_server.check_options(ServeOptions(url=":memory:", model="auto"))).model == "offline"


async def test_warm_up_loads_an_in_process_model() -> None:
    class InProcessModel(ScriptedModel):
        loaded = 0

        async def load(self) -> None:
            self.loaded += 1

    model = InProcessModel([])
    async with Tellback(":memory:", model=model) as tb:
        await tb.warm_up()
    assert model.loaded == 1


async def test_warm_up_raises_an_error_for_a_missing_gguf_file(tmp_path: Path) -> None:
    async with Tellback(":memory:", model=str(tmp_path / "none.gguf")) as tb:
        with pytest.raises(TellbackError, match=r"none\.gguf"):
            await tb.warm_up()
