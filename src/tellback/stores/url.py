"""`open_store`: create the store for a URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike, fspath
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from tellback.errors import ConfigurationError
from tellback.stores.store import Store


def open_store(url: str | PathLike[str]) -> Store:
    """Return the store for a URL, not yet opened.

    A path or `sqlite:///path` is a file, `:memory:` is a store in memory that exists while it is open, `postgresql://…`
    is a database. Settings follow a question mark. SQLite has `synchronous`, `busy_timeout` and `mode=ro`; PostgreSQL
    has `schema`, `pool_size`, `statement_cache_size` and those of asyncpg (`sslmode`, `passfile`, ...).

    >>> open_store("sqlite:///notes.db?synchronous=full").url
    'sqlite:///notes.db'
    """
    text = fspath(url)
    if not text:
        raise ConfigurationError("The store's URL is empty: pass a path such as 'tellback.db', or ':memory:'.")
    scheme, has_scheme, _ = text.partition("://")
    if not has_scheme:
        return _open_sqlite(text, {})
    if scheme == "sqlite":
        rest, _, query = text.removeprefix("sqlite://").partition("?")
        return _open_sqlite(unquote(rest.removeprefix("/")) or ":memory:", dict(parse_qsl(query)))
    if scheme in ("postgresql", "postgres"):
        return _open_postgres(text)
    raise ConfigurationError(
        f"Unknown store scheme {scheme}://: use a path, sqlite:///path, :memory:, or postgresql://..."
    )


def _open_sqlite(path: str, parameters: Mapping[str, str]) -> Store:
    from tellback.stores.sqlite import SqliteStore

    settings = _parse_settings("SQLite", parameters, _SQLITE_SETTINGS)
    read_only = settings.pop("mode", "rwc") == "ro"
    return SqliteStore(path, read_only=read_only, **settings)


def _open_postgres(url: str) -> Store:
    from tellback.stores.postgres import PostgresStore

    try:
        parts = urlsplit(url)
        if "," not in parts.netloc:  # the driver parses lists of hosts
            _ = parts.port
    except ValueError as error:
        raise ConfigurationError(f"Malformed store URL: {error}.") from None
    parameters = dict(parse_qsl(parts.query))
    own_parameters = {name: parameters.pop(name) for name in _POSTGRES_SETTINGS if name in parameters}
    settings = _parse_settings("PostgreSQL", own_parameters, _POSTGRES_SETTINGS)
    return PostgresStore(urlunsplit(parts._replace(query=urlencode(parameters))), **settings)


def _parse_settings(
    kind: str, parameters: Mapping[str, str], parsers: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    settings = {}
    for name, value in parameters.items():
        if name not in parsers:
            raise ConfigurationError(f"{kind} has no setting {name!r}: use one of {', '.join(parsers)}.")
        try:
            settings[name] = parsers[name](value)
        except ValueError as error:
            raise ConfigurationError(f"Invalid {kind} setting {name}={value}: {error}.") from None
    return settings


def _parse_seconds(value: str) -> float:
    if not 0 <= float(value) < 1e6:
        raise ValueError("it must be a number of seconds")
    return float(value)


def _parse_positive(value: str) -> int:
    if int(value) < 1:
        raise ValueError("it must be at least 1")
    return int(value)


def _choice_parser(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"use {' or '.join(choices)}")
        return value.lower()

    return parse


_SQLITE_SETTINGS: Mapping[str, Callable[[str], Any]] = {
    "synchronous": _choice_parser("normal", "full", "extra"),
    "busy_timeout": _parse_seconds,
    "mode": _choice_parser("ro", "rwc"),
}
_POSTGRES_SETTINGS: Mapping[str, Callable[[str], Any]] = {
    "schema": str,
    "pool_size": _parse_positive,
    "statement_cache_size": int,
}
