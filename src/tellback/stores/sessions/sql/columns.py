"""The columns of the two tables, and the names that a user gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tellback.errors import ConfigurationError
from tellback.stores.sessions import checks
from tellback.stores.sessions.records import EXPIRES, MESSAGE_FIELDS, SESSION_FIELDS, Fields

Kind: TypeAlias = Literal["text", "count", "moment", "json", "expiry"]
Role: TypeAlias = Literal["sessions", "messages"]

LATEST = 2
TABLES = {"sessions": "agent_sessions", "messages": "agent_messages"}
NAME_LENGTH = 50
"""The names of indexes begin with the table's, and PostgreSQL cuts what is longer than 63 characters."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `needed` is in every row, `fallback` is what a row without it has, as SQL."""

    name: str
    kind: Kind
    needed: bool = False
    fallback: str | None = None


COLUMNS: Mapping[Role, tuple[Column, ...]] = {
    "sessions": (
        Column("id", "text", needed=True),
        Column("user_id", "text"),
        Column("agent_name", "text"),
        Column("status", "text", fallback="'active'"),
        Column("current_route", "text"),
        Column("current_state", "text"),
        Column("collected_data", "json", fallback="'{}'"),
        Column("message_count", "count", fallback="0"),
        Column("last_message_at", "moment"),
        Column("completed_at", "moment"),
        Column("created_at", "moment"),
        Column("updated_at", "moment"),
        Column("version", "count", fallback="0"),
        Column(EXPIRES, "expiry"),
    ),
    "messages": (
        Column("id", "text", needed=True),
        Column("session_id", "text", needed=True),
        Column("user_id", "text"),
        Column("role", "text", needed=True),
        Column("content", "text", needed=True),
        Column("route", "text"),
        Column("state", "text"),
        Column("tool_calls", "json", fallback="'[]'"),
        Column("event", "json"),
        Column("created_at", "moment"),
        Column("position", "count"),
        Column(EXPIRES, "expiry"),
    ),
}
KEYS: Mapping[Role, tuple[str, ...]] = {"sessions": ("id",), "messages": ("session_id", "position")}
"""What no two rows of a table have in common."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table under its own name, and its columns under theirs."""

    role: Role
    name: str
    fields: Fields

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns, in order."""
        return COLUMNS[self.role]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one adapter."""

    sessions: Table
    messages: Table

    @property
    def migrations(self) -> str:
        """The name of the table that says which version the others have."""
        return f"{self.sessions.name}_migrations"


def tables_of(tables: Mapping[str, str] | None, field_mappings: Mapping[str, Mapping[str, str]] | None) -> Tables:
    """The tables that an adapter's options name.

    >>> tables_of({"sessions": "chats"}, {"sessions": {"user_id": "customer"}}).sessions.fields["user_id"]
    'customer'
    """
    names = checks.names("tables", tables, TABLES)
    for role, name in names.items():
        if len(name) > NAME_LENGTH:
            raise ConfigurationError(f"tables[{role!r}] has at most {NAME_LENGTH} characters, not {len(name)}.")
    mappings = _mappings(field_mappings)
    found = Tables(
        Table("sessions", names["sessions"], Fields("sessions", SESSION_FIELDS, mappings.get("sessions"))),
        Table("messages", names["messages"], Fields("messages", MESSAGE_FIELDS, mappings.get("messages"))),
    )
    _differ("tables", [*names.values(), found.migrations])
    for table in (found.sessions, found.messages):
        _differ(f"field_mappings[{table.role!r}]", [table.fields[column.name] for column in table.columns])
    return found


def _mappings(given: Any) -> Mapping[str, Mapping[str, str]]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"field_mappings is a mapping of mappings, not {given!r:.80}.")
    unknown = [str(name) for name in given if name not in TABLES]
    if unknown:
        raise ConfigurationError(f"field_mappings has {' and '.join(TABLES)}, but not {', '.join(unknown)}.")
    return given


def _differ(what: str, names: list[str]) -> None:
    """SQLite takes names that differ only in case for one."""
    if len({name.lower() for name in names}) < len(names):
        raise ConfigurationError(f"{what} gives two things one name: {', '.join(names)}.")
