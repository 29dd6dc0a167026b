"""What an agent asks its model when it reads a message, read back from the prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tellback.chat.model import ChatRequest
from tellback.types import message_text

_FIELD_LINE = re.compile(r"^- (\w+)\.(.+?): (\{.*\})$|^  where \$defs is (\{.*\})$", re.MULTILINE)
_ROUTE_LINE = re.compile(r"^- (\w+): (.*)$", re.MULTILINE)
_AFTER_TITLE = re.compile(r"(\. .*)?( When: .*)?( \(completed\))?", re.IGNORECASE)
"""What may follow a route's title: its description, its conditions, and that it is completed."""
_CURRENT_ROUTE = re.compile(r"^Current route: (\w+)", re.MULTILINE)
_CONDITION_LINE = re.compile(r"^(c\d+): (.*)$", re.MULTILINE)
_ANSWER_PARTS = frozenset(("routes", "data", "conditions"))


@dataclass(frozen=True, slots=True)
class UnderstandingRequest:
    """What may be understood: routes with what is said of them, fields with their schemas by route, and conditions by
    their keys. `parts` are those that an answer may have, `current` is the key of the current route."""

    parts: frozenset[str] = frozenset()
    routes: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    current_route: str | None = None

    @property
    def field_names(self) -> list[str]:
        """The fields as the model calls them."""
        return [f"{key}.{name}" for key, each in self.fields.items() for name in each]


def parse_understanding_request(request: ChatRequest) -> UnderstandingRequest | None:
    """What a request asks to be understood, or None if it asks for something else."""
    parts = frozenset((request.output_schema or {}).get("properties", {}))
    if not parts & _ANSWER_PARTS:
        return None
    system = request.system or ""
    routes = system.partition("\n\nroutes: ")[2].partition("\n\ndata: ")[0] if "routes" in parts else ""
    return UnderstandingRequest(
        parts,
        dict(_ROUTE_LINE.findall(routes)),
        _parse_schemas(system) if "data" in parts else {},
        dict(_CONDITION_LINE.findall(system)),
        _parse_current_route(request),
    )


def has_title(description: str, title: str) -> bool:
    """Whether what is said of a route begins with that title, and not with a longer one.

    >>> has_title("Book. Flights only. When: the user flies.", "Book"), has_title("Book a flight", "Book")
    (True, False)
    """
    return description.startswith(title) and _AFTER_TITLE.fullmatch(description, len(title)) is not None


def _parse_current_route(request: ChatRequest) -> str | None:
    match = _CURRENT_ROUTE.search(message_text(request.messages[0])) if request.messages else None
    return None if match is None else match.group(1)


def _parse_schemas(system: str) -> dict[str, dict[str, Any]]:
    schemas: dict[str, dict[str, Any]] = {}
    for key, name, schema, definitions in _FIELD_LINE.findall(system.partition("\n\ndata: ")[2]):
        if definitions:
            last = list(schemas)[-1]
            schemas[last] = {
                each: _resolve_schema(schemas[last][each], json.loads(definitions)) for each in schemas[last]
            }
        else:
            schemas.setdefault(key, {})[name] = json.loads(schema)
    return {key: {name: _resolve_schema(schema, {}) for name, schema in each.items()} for key, each in schemas.items()}


def _resolve_schema(schema: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """A field's schema without the reference or the null beside it."""
    if "$ref" in schema:
        target: dict[str, Any] = definitions.get(schema["$ref"].removeprefix("#/$defs/"), schema)
        return target
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return _resolve_schema(options[0], definitions) if len(options) == 1 else schema
