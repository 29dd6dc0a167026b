"""Where an Ollama is: what its users write into `OLLAMA_HOST`, as an address."""

from __future__ import annotations

from urllib.parse import urlsplit

from tellback.errors import ConfigurationError

PORT = 11_434
HOST = f"127.0.0.1:{PORT}"


def ollama_url(host: str | None) -> str:
    """The address of an Ollama; `host` may lack the scheme, the port, or the name, as Ollama takes it.

    Raises `ConfigurationError` for what is no address.

    >>> ollama_url(None), ollama_url("0.0.0.0"), ollama_url(":8000"), ollama_url("https://ollama.example/here/")
    ('http://127.0.0.1:11434', 'http://0.0.0.0:11434', 'http://127.0.0.1:8000', 'https://ollama.example/here')
    """
    told = (host or "").strip().rstrip("/") or HOST
    plain = told if "://" in told else f"http://127.0.0.1{told}" if told.startswith(":") else f"http://{told}"
    try:
        parts = urlsplit(plain)
        netloc = parts.netloc if "://" in told or parts.port is not None else f"{parts.netloc}:{PORT}"
    except ValueError as error:
        raise ConfigurationError(
            f"OLLAMA_HOST is no address of an Ollama, as {told!r:.80} is none: {error}."
        ) from error
    return f"{parts.scheme}://{netloc}{parts.path}"
