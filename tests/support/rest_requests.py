"""A valid request for every operation of the REST API, about any objects.

In a template, `$conversation` is replaced by the id of a conversation; the kinds are those of `SampleData.ids`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.rest_data import path_kinds

ATOM: dict[str, Any] = {
    "text": "Likes Rome",
    "sourceConversationId": "$conversation",
    "sourceMessageIds": ["$message"],
    "entityIds": ["$entity"],
}
CONTENT = {"content": "Hello"}

BODIES: dict[str, Any] = {
    "create_conversation": {"namespace": "chat", "sessionId": "$session"},
    "find_or_create_conversation": {"namespace": "chat", "sessionId": "$session"},
    "close_stale_conversations": {"olderThan": 1_000_000},
    "append_messages": {"messages": [{"role": "user", **CONTENT}]},
    "chat": {
        "text": "Hello",
        "conversationId": "$conversation",
        "sessionId": "$session",
        "recall": {"memorySpaceId": "$space"},
    },
    "run_turn": {"userText": "Hello", "memorySpaceId": "$space"},
    "append_user_message": CONTENT,
    "append_assistant_turn": CONTENT,
    "append_tool_result": {"toolUseId": "tu_1", **CONTENT},
    "append_system_message": CONTENT,
    "append_turn": {"userContent": "Hello", "assistant": CONTENT},
    "refresh_rolling_summary": {},
    "create_space": {"name": "goals"},
    "add_atom": ATOM,
    "add_atoms": {"atoms": [ATOM]},
    "supersede_atom": ATOM,
    "remember_conversation": {"conversationId": "$conversation"},
    "create_entity": {"type": "PERSON", "canonicalName": "Ana"},
    "merge_entities": {"aliasId": "$alias"},
    "recall_by_topic": {"query": "Rome"},
    "recall_by_entity": {"entityIdOrName": "$entity"},
    "recall_timeline": {"entityIdOrName": "$entity"},
    "create_binding": {
        "conversationScope": {"namespace": "chat", "userId": "$user"},
        "memorySpaceIds": ["$space"],
    },
    "update_binding": {"enabled": False},
    "run_extraction": {"conversationId": "$closed", "memorySpaceId": "$space"},
    "wait_for_extraction": {"timeout": 0},
    "build_working_context": {"conversationId": "$conversation", "memorySpaceId": "$space"},
    "invoke_agent": {
        "arguments": {"userMessage": "Hello"},
        "conversationId": "$conversation",
        "memorySpaceId": "$space",
    },
    "respond": {"message": "Hello", "sessionId": "$session"},
    "create_session": {"id": "web-43"},
    "update_session": {"status": "active"},
    "delete_user_data": {"confirm": True},
    "update_anyones_binding": {"enabled": False},
    "close_everyones_stale": {"olderThan": 1_000_000},
    "replay_conversations": {},
    "create_key": {"role": "app"},
    "create_chat_completion": {"model": "tellback", "messages": [{"role": "user", "content": "Hello"}]},
}
QUERIES: dict[str, dict[str, str]] = {
    "find_conversation": {"namespace": "support", "sessionId": "$talk"},
    "find_entity_by_name": {"name": "$word Ann"},
    "list_jobs": {"conversationId": "$closed"},
    "list_everyones_jobs": {"conversationId": "$closed"},
    "get_usage": {"jobId": "$job"},
    "get_diagram": {"sessionId": "$session"},
}
HEADERS: dict[str, dict[str, str]] = {"create_chat_completion": {"X-Tellback-Conversation": "$conversation"}}
ENDLESS_OPERATIONS = frozenset({"follow_events"})
"""Operations that never end, tested with a real connection."""

_ID = re.compile(r"(^id|Id|Ids|IdOrName)$")
NOT_IDS = frozenset({"traceId", "templateId", "toolUseId", "toolUseIds", "userId"})
"""Fields that look like ids of objects but are not, and users, which have their own tests."""

CHOSEN_IDS = frozenset({("create_session", "id")})

_KIND = re.compile(r"\$([a-z]+)")


@dataclass(frozen=True, slots=True)
class IdPlace:
    """The place of an id in a request."""

    part: str
    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the OpenAPI document, and the places of ids in its request."""

    id: str
    method: str
    path: str
    description: dict[str, Any]
    places: tuple[IdPlace, ...]

    def request(self, choose: Callable[[IdPlace, str], str]) -> dict[str, Any]:
        """Return the arguments of a client's `request`; `choose` returns the id of a kind for a place."""
        path = self.path
        for name, kind in path_kinds(self.path).items():
            path = path.replace(f"{{{name}}}", choose(IdPlace("path", name), kind))
        arguments: dict[str, Any] = {"method": self.method, "url": path}
        for part, templates in (("params", QUERIES), ("headers", HEADERS), ("json", BODIES)):
            if self.id in templates:
                arguments[part] = _fill_template(templates[self.id], part, "", choose)
        return arguments


def operations(document: dict[str, Any]) -> list[Operation]:
    """Return all operations of a document. Those that delete or rename come last."""
    found = [
        Operation(each["operationId"], method.upper(), path, each, tuple(_find_places(path, each["operationId"])))
        for path, methods in document["paths"].items()
        for method, each in methods.items()
    ]
    return sorted(
        found, key=lambda each: (each.id == "delete_user_data", each.id == "respond", each.method == "DELETE")
    )


def missing_places(document: dict[str, Any], operation: Operation) -> list[str]:
    """Return places of ids in the document that the requests here lack."""
    known_names = {place.name for place in operation.places}
    parameters = [each for each in operation.description["parameters"] if "$ref" not in each and each["in"] != "path"]
    parameter_names = [each["name"] for each in parameters]
    body = operation.description.get("requestBody")
    if body is not None:
        if operation.id not in BODIES:
            return ["a body"]
        parameter_names += _properties(document, body["content"]["application/json"]["schema"], set())
    id_names = {name for name in parameter_names if _ID.search(name) or name == "X-Tellback-Conversation"}
    chosen_names = {name for operation_id, name in CHOSEN_IDS if operation_id == operation.id}
    return sorted(id_names - known_names - NOT_IDS - chosen_names)


def _find_places(path: str, id: str) -> Iterator[IdPlace]:
    for name, kind in path_kinds(path).items():
        if kind not in ("spec", "desk", "model"):
            yield IdPlace("path", name)
    seen: list[IdPlace] = []

    def note(place: IdPlace, kind: str) -> str:
        if kind not in ("user", "word"):
            seen.append(place)
        return ""

    for part, templates in (("params", QUERIES), ("headers", HEADERS), ("json", BODIES)):
        _fill_template(templates.get(id), part, "", note)
    yield from dict.fromkeys(seen)


def _fill_template(template: Any, part: str, name: str, choose: Callable[[IdPlace, str], str]) -> Any:
    if isinstance(template, dict):
        return {each: _fill_template(value, part, each, choose) for each, value in template.items()}
    if isinstance(template, list):
        return [_fill_template(value, part, name, choose) for value in template]
    if isinstance(template, str):
        return _KIND.sub(lambda found: choose(IdPlace(part, name), found[1]), template)
    return template


def _properties(document: dict[str, Any], schema: dict[str, Any], seen: set[str]) -> Iterator[str]:
    """Yield the names of all fields of a body, at any depth."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from _properties(document, document["components"]["schemas"][name], {*seen, name})
        return
    if schema.get("title") == "ContentBlock":  # defined by the provider
        return
    for name, each in schema.get("properties", {}).items():
        yield name
        yield from _properties(document, each, seen)
    for each in (*schema.get("anyOf", ()), *schema.get("allOf", ()), schema.get("items")):
        if each is not None:
            yield from _properties(document, each, seen)
