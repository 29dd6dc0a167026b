"""Choose the model when none is named, from API keys, a GGUF file, a local Ollama server or the offline model.

The first that is ready wins, in that order; the offline model needs nothing and comes last."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tellback.chat.model import Model
from tellback.chat.offline import OFFLINE, is_offline
from tellback.errors import ConfigurationError

OLLAMA_PORT = 11_434
DEFAULT_OLLAMA_HOST = f"127.0.0.1:{OLLAMA_PORT}"

AUTO = "auto"
MODEL_VARIABLE = "TELLBACK_MODEL"
GGUF_VARIABLE = "TELLBACK_GGUF"
OLLAMA_VARIABLE = "OLLAMA_HOST"
OLLAMA_TIMEOUT_SECONDS = 0.5
MAX_OLLAMA_RESPONSE_BYTES = 1_000_000


def build_ollama_url(host: str | None) -> str:
    """The address of an Ollama; `host` may lack the scheme, the port, or the name, as Ollama takes it.

    Raises `ConfigurationError` for what is no address.

    >>> build_ollama_url(None), build_ollama_url("0.0.0.0"), build_ollama_url(":8000"), build_ollama_url("https://ollama.example/here/")
    ('http://127.0.0.1:11434', 'http://0.0.0.0:11434', 'http://127.0.0.1:8000', 'https://ollama.example/here')
    """
    address = (host or "").strip().rstrip("/") or DEFAULT_OLLAMA_HOST
    url = address if "://" in address else f"http://{'127.0.0.1' if address.startswith(':') else ''}{address}"
    try:
        parts = urlsplit(url)
        netloc = parts.netloc if "://" in address or parts.port is not None else f"{parts.netloc}:{OLLAMA_PORT}"
    except ValueError as error:
        raise ConfigurationError(
            f"OLLAMA_HOST is no address of an Ollama, as {address!r:.80} is none: {error}."
        ) from error
    return f"{parts.scheme}://{netloc}{parts.path}"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that answers, by its name, and why it is that one.

    >>> choose_model("gpt-5").name
    'gpt-5'
    """

    name: str
    why: str

    @property
    def is_offline(self) -> bool:
        """Whether there is none, so that answers are quotations from memory."""
        return is_offline(self.name)


@dataclass(frozen=True, slots=True)
class ModelAtHand:
    """A way to get answers: whether it `is_ready`, which `model` it would be, and what is there or missing (`note`)."""

    provider: str
    model: str | None
    is_ready: bool
    note: str


class _KeyedProvider(NamedTuple):
    provider: str
    variables: tuple[str, ...]
    model: str
    package: str
    extra: str


_KEYED_PROVIDERS = (
    _KeyedProvider("Anthropic", ("ANTHROPIC_API_KEY",), "claude-sonnet-5", "anthropic", "anthropic"),
    _KeyedProvider("OpenAI", ("OPENAI_API_KEY",), "gpt-5", "openai", "openai"),
    _KeyedProvider("Gemini", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "gemini-2.5-flash", "google.genai", "gemini"),
    _KeyedProvider("OpenRouter", ("OPENROUTER_API_KEY",), "openrouter/auto", "openai", "openai"),
    _KeyedProvider("xAI", ("XAI_API_KEY",), "grok-4", "openai", "openai"),
)


def choose_model(name: str | None = None, env: Mapping[str, str] | None = None) -> ModelChoice:
    """The model to use: the one that is named, or by `TELLBACK_MODEL`, or the best that is at hand.

    "auto" is as good as no name. It looks for an Ollama on this machine, which takes half a second at most, only where
    no key is set.

    >>> choose_model(env={"OPENAI_API_KEY": "..."}).name
    'gpt-5'
    """
    env = os.environ if env is None else env
    named = ((name, "it was named"), (_read_variable(env, MODEL_VARIABLE), f"{MODEL_VARIABLE} names it"))
    for model_name, why in named:
        if model_name and model_name.lower() != AUTO:
            return ModelChoice(model_name, why)
    way = next(way for way in _find_ways(env) if way.is_ready and way.model is not None)
    if way.model == OFFLINE:
        return ModelChoice(OFFLINE, "no key is set, no Ollama answers, and no GGUF file is named")
    return ModelChoice(way.model or "", way.note)


def resolve_model(model: str | Model | None) -> str | Model | None:
    """The model that thinks, of what was set: "auto" is looked up, and the offline one is none.

    >>> resolve_model("gpt-5"), resolve_model("offline")
    ('gpt-5', None)
    """
    if isinstance(model, str) and model.lower() == AUTO:
        model = choose_model().name
    return None if is_offline(model) else model


def survey_models(env: Mapping[str, str] | None = None) -> list[ModelAtHand]:
    """Every way to get answers on this machine, with what is there and what is missing; keys are not told.

    >>> [each.provider for each in survey_models({}) if each.is_ready][-1]
    'offline'
    """
    env = os.environ if env is None else env
    return list(_find_ways(env))


def _find_ways(env: Mapping[str, str]) -> Iterator[ModelAtHand]:
    for keyed in _KEYED_PROVIDERS:
        variable = next((name for name in keyed.variables if _read_variable(env, name)), None)
        is_ready = variable is not None and _is_installed(keyed.package)
        if variable is None:
            note = f"{' or '.join(keyed.variables)} is not set"
        elif is_ready:
            note = f"{variable} is set"
        else:
            note = f"{variable} is set, but the package is missing: pip install 'tellback[{keyed.extra}]'"
        yield ModelAtHand(keyed.provider, keyed.model, is_ready, note)
    yield _find_gguf_file(env)
    yield _find_ollama(env)
    yield ModelAtHand(OFFLINE, OFFLINE, True, "quotes what is remembered; needs nothing")


def _find_gguf_file(env: Mapping[str, str]) -> ModelAtHand:
    path = _read_variable(env, GGUF_VARIABLE)
    if not path:
        return ModelAtHand("local", None, False, f"{GGUF_VARIABLE} names no GGUF file")
    if not Path(path).is_file():
        return ModelAtHand("local", path, False, f"{GGUF_VARIABLE} names {path!r}, which is no file")
    if not _is_installed("xllamacpp"):
        note = f"{GGUF_VARIABLE} is set, but the package is missing: pip install 'tellback[local]'"
        return ModelAtHand("local", path, False, note)
    name = path if path.lower().endswith(".gguf") else f"local/{path}"
    return ModelAtHand("local", name, True, f"{GGUF_VARIABLE} names it")


def _find_ollama(env: Mapping[str, str]) -> ModelAtHand:
    host = _read_variable(env, OLLAMA_VARIABLE)
    names, address = _list_ollama_models(host), host or DEFAULT_OLLAMA_HOST
    if names is None:
        note = f"nothing answers at {address}: start Ollama, or set {OLLAMA_VARIABLE}"
        return ModelAtHand("Ollama", None, False, note)
    if not names:
        return ModelAtHand("Ollama", None, False, "it runs, but has no model: `ollama pull llama3.2`")
    model = f"ollama/{names[0]}"
    if not _is_installed("openai"):
        note = "it runs, but the package is missing: pip install 'tellback[openai]'"
        return ModelAtHand("Ollama", model, False, note)
    return ModelAtHand("Ollama", model, True, f"Ollama runs at {address}")


def _list_ollama_models(host: str | None) -> list[str] | None:
    """The names of the models that an Ollama has, the newest first; None where none answers."""
    try:
        parts = urlsplit(build_ollama_url(host))
        connection_class = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = connection_class(parts.hostname or "", parts.port, timeout=OLLAMA_TIMEOUT_SECONDS)
        try:
            connection.request("GET", f"{parts.path}/api/tags")
            response = connection.getresponse()
            if response.status != 200:
                return None
            payload = json.loads(response.read(MAX_OLLAMA_RESPONSE_BYTES))
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException, ConfigurationError):
        return None
    models = payload.get("models") if isinstance(payload, dict) else None
    if not isinstance(models, list):
        return None
    names = [each.get("name") for each in models if isinstance(each, dict)]
    return [name for name in names if isinstance(name, str) and name and "embed" not in name]


def _read_variable(env: Mapping[str, str], variable: str) -> str | None:
    return env.get(variable, "").strip() or None


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of a package in a package
        return False
