"""The two indices: their names, what is in them, and how they come to be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opensearchpy import TransportError

from tellback.errors import ConfigurationError, StoreError
from tellback.stores.sessions.opensearch.documents import INTERNAL
from tellback.stores.sessions.opensearch.failures import error_type
from tellback.stores.sessions.opensearch.link import WORK_SECONDS, OpenSearchConnection
from tellback.stores.sessions.records import EXPIRES_AT, MESSAGE_FIELDS, SESSION_FIELDS, FieldNames

DEFAULT_INDEX_NAMES = {"sessions": "agent_sessions", "messages": "agent_messages"}

_INDEX_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")
_KEYWORD = {"type": "keyword"}
_NUMBER = {"type": "long", "ignore_malformed": True}
_MILLIS = {"type": "date", "format": "epoch_millis"}
_TIME = {"type": "keyword", "fields": {"date": {"type": "date", "ignore_malformed": True}}}
"""A text that sorts to the microsecond, and beside it a date for dashboards."""
_STORED_ONLY = {"type": "object", "enabled": False}
"""Stored as it is, and not searched."""

_FIELD_TYPES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("collected_data", "tool_calls", "event"), _STORED_ONLY),
    **dict.fromkeys(("last_message_at", "completed_at", "created_at", "updated_at"), _TIME),
    **dict.fromkeys(("message_count", "version", "position"), _NUMBER),
    "content": {"type": "text"},
    EXPIRES_AT: _MILLIS,
}
_INTERNAL_SESSION_FIELDS = {
    **dict.fromkeys(("record",), _KEYWORD),
    **dict.fromkeys(("until", "pending_until", "written_at"), _MILLIS),
    "pending_count": {"type": "integer"},
    "pending": _STORED_ONLY,
}


def resolve_index_names(overrides: Any) -> dict[str, str]:
    """The names of the indices, with those that were given instead of the known ones.

    >>> resolve_index_names({"sessions": "shop-sessions"})["sessions"]
    'shop-sessions'
    """
    if not isinstance(overrides, Mapping | None):
        raise ConfigurationError(f"indices is a mapping of names, not {overrides!r:.80}.")
    unknown = (overrides or {}).keys() - DEFAULT_INDEX_NAMES.keys()
    if unknown:
        raise ConfigurationError(
            f"indices has {', '.join(DEFAULT_INDEX_NAMES)}, but not {', '.join(map(str, unknown))}."
        )
    resolved = {**DEFAULT_INDEX_NAMES, **(overrides or {})}
    for name, value in resolved.items():
        if not isinstance(value, str) or not _INDEX_NAME.fullmatch(value):
            raise ConfigurationError(
                f"indices[{name!r}] is a name of small letters, digits, '_', '-' and '.', not {value!r:.80}."
            )
    if resolved["sessions"] == resolved["messages"]:
        raise ConfigurationError(f"indices gives two things one name: {resolved['sessions']}.")
    return resolved


def resolve_field_names(field_mappings: Any) -> tuple[FieldNames, FieldNames]:
    """The names of fields, of sessions and of messages."""
    if not isinstance(field_mappings, Mapping | None):
        raise ConfigurationError(f"field_mappings is a mapping of names, not {field_mappings!r:.80}.")
    unknown = (field_mappings or {}).keys() - DEFAULT_INDEX_NAMES.keys()
    if unknown:
        raise ConfigurationError(
            f"field_mappings has {', '.join(DEFAULT_INDEX_NAMES)}, but not {', '.join(map(str, unknown))}."
        )
    for role, mapping in (field_mappings or {}).items():
        for name in mapping.values() if isinstance(mapping, Mapping) else ():
            if name == INTERNAL or str(name).startswith("_"):
                raise ConfigurationError(f"field_mappings[{role!r}]: {name!r} is taken; choose another name.")
    field_names = {"sessions": SESSION_FIELDS, "messages": MESSAGE_FIELDS}
    sessions, messages = (
        FieldNames(role, field_names[role], (field_mappings or {}).get(role)) for role in DEFAULT_INDEX_NAMES
    )
    return sessions, messages


def session_definition(fields: FieldNames) -> dict[str, Any]:
    """What an index of sessions is created with."""
    return _build_definition(fields, SESSION_FIELDS, _INTERNAL_SESSION_FIELDS)


def message_definition(fields: FieldNames) -> dict[str, Any]:
    """What an index of messages is created with."""
    return _build_definition(fields, MESSAGE_FIELDS, {"owner": _KEYWORD})


async def prepare_index(
    connection: OpenSearchConnection, name: str, definition: Mapping[str, Any], *, create: bool
) -> None:
    """Create an index unless it is there, and check that what is searched in it is as it must be."""
    if not await connection.request("HEAD", f"/{name}"):
        if not create:
            raise ConfigurationError(
                f"{connection.place} has no index {name!r}, and auto_create_indices is False: create it with the mappings"
                " that index_definitions gives."
            )
        await _create_index(connection, name, definition)
    found = await connection.request("GET", f"/{name}/_mapping")
    for index, each in found.items():
        _check_mapping(index, definition["mappings"]["properties"], each.get("mappings", {}).get("properties", {}))


async def _create_index(connection: OpenSearchConnection, name: str, definition: Mapping[str, Any]) -> None:
    try:
        await connection.request("PUT", f"/{name}", body=definition, seconds=WORK_SECONDS)
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, TransportError) or error_type(cause) != "resource_already_exists_exception":
            raise


def _check_mapping(index: str, expected: Mapping[str, Any], found: Mapping[str, Any], path: str = "") -> None:
    for name, each in expected.items():
        existing = found.get(name, {})
        if "properties" in each:
            _check_mapping(index, each["properties"], existing.get("properties", {}), f"{path}{name}.")
        elif each["type"] in ("keyword", "text", "date") and existing.get("type") != each["type"]:
            raise ConfigurationError(
                f"Index {index!r} has {path}{name} as {existing.get('type', 'nothing')}, and it must be {each['type']}:"
                " use another index, or create it anew with the mappings that index_definitions gives."
            )


def _build_definition(fields: FieldNames, names: tuple[str, ...], internal: Mapping[str, Any]) -> dict[str, Any]:
    properties = {fields[name]: _FIELD_TYPES.get(name, _KEYWORD) for name in (*names, EXPIRES_AT)}
    return {"mappings": {"dynamic": False, "properties": {**properties, INTERNAL: {"properties": dict(internal)}}}}
