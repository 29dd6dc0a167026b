"""Where an Ollama is: what its users write into `OLLAMA_HOST`, as an address."""

from __future__ import annotations

from urllib.parse import urlsplit

from tellback.errors import ConfigurationError

OLLAMA_PORT = 11_434
DEFAULT_OLLAMA_HOST = f"127.0.0.1:{OLLAMA_PORT}"


def build_ollama_url(host: str | None) -> str:
    """The address of an Ollama; `host` may lack the scheme, the port, or the name, as Ollama takes it.

    Raises `ConfigurationError` for what is no address.

    >>> build_ollama_url(None), build_ollama_url("0.0.0.0"), build_ollama_url(":8000"), build_ollama_url("https://ollama.example/here/")
    ('http://127.0.0.1:11434', 'http://0.0.0.0:11434', 'http://127.0.0.1:8000', 'https://ollama.example/here')
    """
    address = (host or "").strip().rstrip("/") or DEFAULT_OLLAMA_HOST
    url = (
        address
        if "://" in address
        else f"http://127.0.0.1{address}"
        if address.startswith(":")
        else f"http://{address}"
    )
    try:
        parts = urlsplit(url)
        netloc = parts.netloc if "://" in address or parts.port is not None else f"{parts.netloc}:{OLLAMA_PORT}"
    except ValueError as error:
        raise ConfigurationError(
            f"OLLAMA_HOST is no address of an Ollama, as {address!r:.80} is none: {error}."
        ) from error
    return f"{parts.scheme}://{netloc}{parts.path}"
