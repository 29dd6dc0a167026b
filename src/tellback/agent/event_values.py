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
            _check_text(f"the {name} of a message event", getattr(self, name))


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
        object.__setattr__(self, "tool_calls", tuple(map(_tool_call, calls)))


@dataclass(frozen=True, slots=True)
class StatusEventData:
    """A change of status, such as "typing", with what belongs to it.

    >>> StatusEventData("typing").data
    {}
    """

    status: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_text("the status of a status event", self.status)
        if not isinstance(self.data, Mapping):
            raise InvalidArgumentError(f"the data of a status event is a mapping, not {self.data!r:.80}.")


EventData: TypeAlias = MessageEventData | ToolEventData | StatusEventData

_DATA: Mapping[EventKind, type[Any]] = {
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
        kind = _one_of(EventKind, "kind", self.kind)
        if not isinstance(self.data, _DATA[kind]):
            raise InvalidArgumentError(
                f"an event of kind {kind.value!r} has {_DATA[kind].__name__} as data, not {self.data!r:.80}."
            )
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "source", _one_of(EventSource, "source", self.source))
        object.__setattr__(self, "creation_utc", _utc_text(self.creation_utc))


def event_of(kind: Any, source: Any, data: Any, creation_utc: Any = None) -> Event:
    """An event of plain values: names of enums, data as a mapping in snake or camel case, without a time now.

    >>> event_of("message", "customer", {"participant": "Alice", "message": "Hello!"}).data
    MessageEventData(participant='Alice', message='Hello!')
    """
    kind = _one_of(EventKind, "kind", kind)
    if isinstance(data, Mapping):
        data = _READERS[kind](data)
    moment: Any = utc_now() if creation_utc is None else creation_utc
    return Event(kind, source, data, moment)


def event_of_mapping(given: Mapping[str, Any]) -> Event:
    """An event from a mapping with its fields, in snake or camel case; other fields are passed over.

    >>> event_of_mapping({"kind": "status", "source": "agent", "data": {"status": "typing"}}).source.value
    'agent'
    """
    moment = _first(given, "creation_utc", "creationUtc")
    return event_of(given.get("kind"), given.get("source"), given.get("data"), moment)


def plain_event(event: Event) -> dict[str, Any]:
    """An event as a mapping, which `event_of_mapping` reads.

    >>> plain_event(event_of("status", "agent", {"status": "typing"}))["data"]
    {'status': 'typing', 'data': {}}
    """
    return {
        "kind": event.kind.value,
        "source": event.source.value,
        "data": {each.name: getattr(event.data, each.name) for each in fields(event.data)},
        "creation_utc": event.creation_utc,
    }


def _message_data(data: Mapping[str, Any]) -> MessageEventData:
    participant: Any = data.get("participant") or ""
    if isinstance(participant, Mapping):
        participant = _first(participant, *_PARTICIPANT_NAMES) or ""
    message: Any = data.get("message")
    return MessageEventData(participant, message)


def _tool_data(data: Mapping[str, Any]) -> ToolEventData:
    return ToolEventData(_first(data, "tool_calls", "toolCalls"))


def _status_data(data: Mapping[str, Any]) -> StatusEventData:
    status: Any = data.get("status")
    return StatusEventData(status, data.get("data") or {})


_READERS: Mapping[EventKind, Callable[[Mapping[str, Any]], EventData]] = {
    EventKind.MESSAGE: _message_data,
    EventKind.TOOL: _tool_data,
    EventKind.STATUS: _status_data,
}


def _tool_call(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"a tool call is a mapping with tool_id, arguments and result, not {given!r:.80}.")
    name = _first(given, *_TOOL_NAMES)
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"a tool call needs the tool_id of its tool; this one has none: {given!r:.80}.")
    return {"tool_id": name, "arguments": given.get("arguments") or {}, "result": given.get("result")}


def _one_of(kind: type[Any], what: str, given: Any) -> Any:
    try:
        return kind(given)
    except ValueError as error:
        known = ", ".join(repr(each.value) for each in kind)
        raise InvalidArgumentError(f"an event's {what} is one of {known}, not {given!r:.80}.") from error


def _utc_text(moment: Any) -> str:
    try:
        return as_utc(moment).isoformat()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"an event's time is ISO 8601 text with a timezone: {error}.") from error


def _check_text(what: str, given: Any) -> None:
    if not isinstance(given, str):
        raise InvalidArgumentError(f"{what} is a text, not {given!r:.80}.")


def _first(given: Mapping[str, Any], *names: str) -> Any:
    return next((given[name] for name in names if given.get(name) is not None), None)
