"""Events as values: messages, tool results and changes of status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeAlias

from tellback.errors import InvalidArgumentError
from tellback.types.times import as_utc, utc_now

_PARTICIPANT_NAMES = ("display_name", "displayName", "name")
_TOOL_NAMES = ("tool_id", "toolId", "tool_name", "toolName", "name")


class EventKind(StrEnum):
    """What an event tells.

    >>> EventKind("tool") is EventKind.TOOL
    True
    """

    MESSAGE = "message"
    TOOL = "tool"
    STATUS = "status"


class EventSource(StrEnum):
    """Who an event comes from.

    >>> EventSource("agent") is EventSource.AI_AGENT
    True
    """

    CUSTOMER = "customer"
    AI_AGENT = "agent"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class MessageEventData:
    """What was said, and the name of who said it.

    >>> MessageEventData("Alice", "Hello!").message
    'Hello!'
    """

    participant: str
    message: str

    def __post_init__(self) -> None:
        for name in ("participant", "message"):
            _validate_text(f"the {name} of a message event", getattr(self, name))


@dataclass(frozen=True, slots=True)
class ToolEventData:
    """The tools that ran: of each its `tool_id`, its `arguments` and its `result`.

    >>> ToolEventData(({"tool_id": "get_data", "result": 5},)).tool_calls[0]["result"]
    5
    """

    tool_calls: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        calls = self.tool_calls
        if isinstance(calls, str | bytes | Mapping) or not isinstance(calls, Iterable):
            raise InvalidArgumentError(f"tool calls are a list of mappings, not {calls!r:.80}.")
        object.__setattr__(self, "tool_calls", tuple(map(_parse_tool_call, calls)))


@dataclass(frozen=True, slots=True)
class StatusEventData:
    """A change of status, such as "typing", with what belongs to it.

    >>> StatusEventData("typing").data
    {}
    """

    status: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _validate_text("the status of a status event", self.status)
        if not isinstance(self.data, Mapping):
            raise InvalidArgumentError(f"the data of a status event is a mapping, not {self.data!r:.80}.")


EventData: TypeAlias = MessageEventData | ToolEventData | StatusEventData

_DATA_TYPES: Mapping[EventKind, type[Any]] = {
    EventKind.MESSAGE: MessageEventData,
    EventKind.TOOL: ToolEventData,
    EventKind.STATUS: StatusEventData,
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a conversation.

    `creation_utc` is ISO 8601 text in UTC. A datetime becomes that too; one without a timezone is refused.

    >>> said = MessageEventData("Alice", "Hello!")
    >>> Event(EventKind.MESSAGE, EventSource.CUSTOMER, said, "2026-03-01T12:00:00+02:00").creation_utc
    '2026-03-01T10:00:00+00:00'
    """

    kind: EventKind
    source: EventSource
    data: EventData
    creation_utc: str

    def __post_init__(self) -> None:
        kind = _parse_enum(EventKind, "kind", self.kind)
        if not isinstance(self.data, _DATA_TYPES[kind]):
            raise InvalidArgumentError(
                f"an event of kind {kind.value!r} has {_DATA_TYPES[kind].__name__} as data, not {self.data!r:.80}."
            )
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "source", _parse_enum(EventSource, "source", self.source))
        object.__setattr__(self, "creation_utc", _to_utc_text(self.creation_utc))


def build_event(kind: Any, source: Any, data: Any, creation_utc: Any = None) -> Event:
    """An event of plain values: names of enums, data as a mapping in snake or camel case, without a time now.

    >>> build_event("message", "customer", {"participant": "Alice", "message": "Hello!"}).data
    MessageEventData(participant='Alice', message='Hello!')
    """
    kind = _parse_enum(EventKind, "kind", kind)
    if isinstance(data, Mapping):
        data = _DATA_PARSERS[kind](data)
    timestamp: Any = utc_now() if creation_utc is None else creation_utc
    return Event(kind, source, data, timestamp)


def parse_event(fields_by_name: Mapping[str, Any]) -> Event:
    """An event from a mapping with its fields, in snake or camel case; other fields are passed over.

    >>> parse_event({"kind": "status", "source": "agent", "data": {"status": "typing"}}).source.value
    'agent'
    """
    timestamp = _first_present(fields_by_name, "creation_utc", "creationUtc")
    return build_event(fields_by_name.get("kind"), fields_by_name.get("source"), fields_by_name.get("data"), timestamp)


def event_to_dict(event: Event) -> dict[str, Any]:
    """An event as a mapping, which `event_of_mapping` reads.

    >>> event_to_dict(build_event("status", "agent", {"status": "typing"}))["data"]
    {'status': 'typing', 'data': {}}
    """
    return {
        "kind": event.kind.value,
        "source": event.source.value,
        "data": {each.name: getattr(event.data, each.name) for each in fields(event.data)},
        "creation_utc": event.creation_utc,
    }


def _parse_message_data(data: Mapping[str, Any]) -> MessageEventData:
    participant: Any = data.get("participant") or ""
    if isinstance(participant, Mapping):
        participant = _first_present(participant, *_PARTICIPANT_NAMES) or ""
    message: Any = data.get("message")
    return MessageEventData(participant, message)


def _parse_tool_data(data: Mapping[str, Any]) -> ToolEventData:
    return ToolEventData(_first_present(data, "tool_calls", "toolCalls"))


def _parse_status_data(data: Mapping[str, Any]) -> StatusEventData:
    status: Any = data.get("status")
    return StatusEventData(status, data.get("data") or {})


_DATA_PARSERS: Mapping[EventKind, Callable[[Mapping[str, Any]], EventData]] = {
    EventKind.MESSAGE: _parse_message_data,
    EventKind.TOOL: _parse_tool_data,
    EventKind.STATUS: _parse_status_data,
}


def _parse_tool_call(call: Any) -> Mapping[str, Any]:
    if not isinstance(call, Mapping):
        raise InvalidArgumentError(f"a tool call is a mapping with tool_id, arguments and result, not {call!r:.80}.")
    name = _first_present(call, *_TOOL_NAMES)
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"a tool call needs the tool_id of its tool; this one has none: {call!r:.80}.")
    return {"tool_id": name, "arguments": call.get("arguments") or {}, "result": call.get("result")}


def _parse_enum(enum: type[Any], name: str, value: Any) -> Any:
    try:
        return enum(value)
    except ValueError as error:
        known = ", ".join(repr(each.value) for each in enum)
        raise InvalidArgumentError(f"an event's {name} is one of {known}, not {value!r:.80}.") from error


def _to_utc_text(timestamp: Any) -> str:
    try:
        return as_utc(timestamp).isoformat()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"an event's time is ISO 8601 text with a timezone: {error}.") from error


def _validate_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} is a text, not {value!r:.80}.")


def _first_present(mapping: Mapping[str, Any], *names: str) -> Any:
    return next((mapping[name] for name in names if mapping.get(name) is not None), None)
