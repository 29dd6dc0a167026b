"""The two indices: their names, what is in them, and how they come to be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opensearchpy import TransportError

from tellback.errors import ConfigurationError, StoreError
from tellback.stores.sessions.opensearch.documents import OURS
from tellback.stores.sessions.opensearch.failures import kind_of
from tellback.stores.sessions.opensearch.link import WORK_SECONDS, Link
from tellback.stores.sessions.records import EXPIRES, MESSAGE_FIELDS, SESSION_FIELDS, Fields

NAMES = {"sessions": "agent_sessions", "messages": "agent_messages"}

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")
_EXACT = {"type": "keyword"}
_NUMBER = {"type": "long", "ignore_malformed": True}
_MILLIS = {"type": "date", "format": "epoch_millis"}
_MOMENT = {"type": "keyword", "fields": {"date": {"type": "date", "ignore_malformed": True}}}
"""A text that sorts to the microsecond, and beside it a date for dashboards."""
_KEPT = {"type": "object", "enabled": False}
"""Stored as it is, and not searched."""

_TYPES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("collected_data", "tool_calls", "event"), _KEPT),
    **dict.fromkeys(("last_message_at", "completed_at", "created_at", "updated_at"), _MOMENT),
    **dict.fromkeys(("message_count", "version", "position"), _NUMBER),
    "content": {"type": "text"},
    EXPIRES: _MILLIS,
}
_SESSION_OURS = {
    **dict.fromkeys(("record",), _EXACT),
    **dict.fromkeys(("until", "pending_until", "written_at"), _MILLIS),
    "pending_count": {"type": "integer"},
    "pending": _KEPT,
}


def names(given: Any) -> dict[str, str]:
    """The names of the indices, with those that were given instead of the known ones.

    >>> names({"sessions": "shop-sessions"})["sessions"]
    'shop-sessions'
    """
    if not isinstance(given, Mapping | None):
        raise ConfigurationError(f"indices is a mapping of names, not {given!r:.80}.")
    unknown = (given or {}).keys() - NAMES.keys()
    if unknown:
        raise ConfigurationError(f"indices has {', '.join(NAMES)}, but not {', '.join(map(str, unknown))}.")
    found = {**NAMES, **(given or {})}
    for name, value in found.items():
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise ConfigurationError(
                f"indices[{name!r}] is a name of small letters, digits, '_', '-' and '.', not {value!r:.80}."
            )
    if found["sessions"] == found["messages"]:
        raise ConfigurationError(f"indices gives two things one name: {found['sessions']}.")
    return found


def fields(given: Any) -> tuple[Fields, Fields]:
    """The names of fields, of sessions and of messages."""
    if not isinstance(given, Mapping | None):
        raise ConfigurationError(f"field_mappings is a mapping of names, not {given!r:.80}.")
    unknown = (given or {}).keys() - NAMES.keys()
    if unknown:
        raise ConfigurationError(f"field_mappings has {', '.join(NAMES)}, but not {', '.join(map(str, unknown))}.")
    for what, mapping in (given or {}).items():
        for theirs in mapping.values() if isinstance(mapping, Mapping) else ():
            if theirs == OURS or str(theirs).startswith("_"):
                raise ConfigurationError(f"field_mappings[{what!r}]: {theirs!r} is taken; choose another name.")
    known = {"sessions": SESSION_FIELDS, "messages": MESSAGE_FIELDS}
    sessions, messages = (Fields(what, known[what], (given or {}).get(what)) for what in NAMES)
    return sessions, messages


def session_definition(fields: Fields) -> dict[str, Any]:
    """What an index of sessions is created with."""
    return _definition(fields, SESSION_FIELDS, _SESSION_OURS)


def message_definition(fields: Fields) -> dict[str, Any]:
    """What an index of messages is created with."""
    return _definition(fields, MESSAGE_FIELDS, {"owner": _EXACT})


async def prepare(link: Link, name: str, definition: Mapping[str, Any], *, create: bool) -> None:
    """Create an index unless it is there, and check that what is searched in it is as it must be."""
    if not await link.ask("HEAD", f"/{name}"):
        if not create:
            raise ConfigurationError(
                f"{link.place} has no index {name!r}, and auto_create_indices is False: create it with the mappings"
                " that index_definitions gives."
            )
        await _create(link, name, definition)
    found = await link.ask("GET", f"/{name}/_mapping")
    for index, each in found.items():
        _compare(index, definition["mappings"]["properties"], each.get("mappings", {}).get("properties", {}))


async def _create(link: Link, name: str, definition: Mapping[str, Any]) -> None:
    try:
        await link.ask("PUT", f"/{name}", body=definition, seconds=WORK_SECONDS)
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, TransportError) or kind_of(cause) != "resource_already_exists_exception":
            raise


def _compare(index: str, wanted: Mapping[str, Any], found: Mapping[str, Any], path: str = "") -> None:
    for name, each in wanted.items():
        there = found.get(name, {})
        if "properties" in each:
            _compare(index, each["properties"], there.get("properties", {}), f"{path}{name}.")
        elif each["type"] in ("keyword", "text", "date") and there.get("type") != each["type"]:
            raise ConfigurationError(
                f"Index {index!r} has {path}{name} as {there.get('type', 'nothing')}, and it must be {each['type']}:"
                " use another index, or create it anew with the mappings that index_definitions gives."
            )


def _definition(fields: Fields, known: tuple[str, ...], ours: Mapping[str, Any]) -> dict[str, Any]:
    properties = {fields[name]: _TYPES.get(name, _EXACT) for name in (*known, EXPIRES)}
    return {"mappings": {"dynamic": False, "properties": {**properties, OURS: {"properties": dict(ours)}}}}
