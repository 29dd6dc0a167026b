"""`SqliteAdapter`: sessions in a SQLite file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Unpack
from urllib.parse import unquote

from tellback.errors import ConfigurationError
from tellback.stores.sessions.kept import HasStore, StoreBackendOptions, resolve_store_backend
from tellback.stores.sessions.sql.adapter import SqlAdapter
from tellback.stores.sessions.sql.backend import TableBackend
from tellback.stores.sessions.sql.columns import resolve_tables
from tellback.stores.sessions.sql.sqlite import SqliteRunner


class SqliteAdapter(SqlAdapter):
    """Sessions in a SQLite file: for one machine, any number of processes, and nothing to install.

    `database` is a path, `sqlite:///path`, or `:memory:`, which lives until `disconnect`. `tables` gives the tables
    other names than `agent_sessions` and `agent_messages`, and `field_mappings` their columns:
    `{"sessions": {"user_id": "customer"}}`. Tables that are there already are completed, and nothing in them is
    dropped. What expires does so `session_ttl` after a session's last change and `message_ttl` after a message was
    stored, in seconds or as a timedelta. `busy_timeout` is how many seconds to wait while another process writes.

    What was acknowledged outlives the death of the process at any moment. A power cut may cost the last turns, each as
    a whole; the file stays sound.

    With a `Tellback` on SQLite as `database` the sessions are in its own file: what is said in them is also a
    conversation there, in one step with where the session stands, to be remembered, exported and erased with all that
    is the user's. It takes `tenant_id`, `app_id`, `namespace` and `close_after` instead of what names tables.

    >>> adapter = SqliteAdapter("sessions.db", session_ttl=timedelta(days=30))
    >>> adapter.session_repository is not None
    True
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | HasStore,
        *,
        tables: Mapping[str, str] | None = None,
        field_mappings: Mapping[str, Mapping[str, str]] | None = None,
        session_ttl: timedelta | float | None = None,
        message_ttl: timedelta | float | None = None,
        busy_timeout: float = 10.0,
        **store_options: Unpack[StoreBackendOptions],
    ) -> None:
        table_options: dict[str, Any] = {"tables": tables, "field_mappings": field_mappings}
        table_options |= {"session_ttl": session_ttl, "message_ttl": message_ttl}
        store_backend = resolve_store_backend(database, "SqliteAdapter", "sqlite:", table_options, store_options)
        if store_backend is not None:
            super().__init__(store_backend)
            return
        runner = SqliteRunner(_resolve_path(database), _validate_busy_timeout(busy_timeout))
        super().__init__(TableBackend(runner, resolve_tables(tables, field_mappings), session_ttl, message_ttl))


def _resolve_path(database: Any) -> str:
    """The file, as it is called from any folder."""
    path = os.fspath(database) if isinstance(database, str | os.PathLike) else None
    if not isinstance(path, str) or not path.strip() or "\x00" in path:
        raise ConfigurationError(
            f"SqliteAdapter takes the path of a file, sqlite:///path, or ':memory:', not {database!r:.80}."
        )
    scheme, separator, rest = path.partition("://")
    if separator:
        path = unquote(rest.removeprefix("/")) or ":memory:"
    if (separator and scheme != "sqlite") or path.startswith("file:") or (separator and "?" in rest):
        raise ConfigurationError(
            "SqliteAdapter takes the path of a file, sqlite:///path without settings behind it, or ':memory:';"
            f" it does not take a URL of {scheme.partition(':')[0]!r:.20} like this."
        )
    return path if path == ":memory:" else os.path.abspath(path)


def _validate_busy_timeout(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
        raise ConfigurationError(f"busy_timeout is a number of seconds, not {value!r:.80}.")
    return float(value)
