"""Ollama: a local or remote server with OpenAI's chat API. This module finds the server and its models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from tellback.chat.discovery import is_installed, read_variable
from tellback.chat.registry import BuiltinProvider, Embeddings, FoundModel, Provider, strip_prefix
from tellback.errors import ConfigurationError

OLLAMA_PORT = 11_434
DEFAULT_OLLAMA_HOST = f"127.0.0.1:{OLLAMA_PORT}"
OLLAMA_VARIABLE = "OLLAMA_HOST"
OLLAMA_TIMEOUT_SECONDS = 0.5
MAX_OLLAMA_RESPONSE_BYTES = 1_000_000


def build_ollama_url(host: str | None) -> str:
    """Return the URL of an Ollama server. As in Ollama, `host` may lack the scheme, the port or the host name.

    Raises `ConfigurationError` if `host` is not an address.

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
            f"OLLAMA_HOST must be an address such as 127.0.0.1:11434, got {address!r:.80}: {error}."
        ) from error
    return f"{parts.scheme}://{netloc}{parts.path}"


def find_ollama(env: Mapping[str, str]) -> FoundModel:
    """Ask the Ollama server for its models; without one, this takes half a second at most."""
    host = read_variable(env, OLLAMA_VARIABLE)
    names, address = _list_models(host), host or DEFAULT_OLLAMA_HOST
    if names is None:
        note = f"no Ollama answers at {address}: start it, or set {OLLAMA_VARIABLE}"
        return FoundModel("Ollama", None, False, note)
    if not names:
        return FoundModel("Ollama", None, False, "Ollama runs, but has no model: run `ollama pull llama3.2`")
    model = f"ollama/{names[0]}"
    if not is_installed("openai"):
        note = "Ollama runs, but the package is missing: pip install 'tellback[openai]'"
        return FoundModel("Ollama", model, False, note, is_package_missing=True)
    return FoundModel("Ollama", model, True, f"Ollama runs at {address}")


def _list_models(host: str | None) -> list[str] | None:
    """Return the names of the server's chat models, newest first, or None if no Ollama answers."""
    import http.client

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


PROVIDER = BuiltinProvider(
    Provider.OLLAMA,
    "Ollama",
    lambda model: model.startswith("ollama/") and not model.endswith(".gguf"),
    "ollama/...",
    "tellback.chat.providers.ollama.model:OllamaModel",
    strip_prefix("ollama/"),
    base_url=f"http://{DEFAULT_OLLAMA_HOST}/v1",
    find=find_ollama,
    embeddings=Embeddings(prefixes=("ollama/",)),
)
