"""Events of a conversation: messages, tool results and status changes.

Create events, parse them from mappings and chat messages, and convert a history into messages for a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from tellback.errors import InvalidArgumentError
from tellback.types import Message, ToolCall, as_message, assistant_message, message_text, user_message
from tellback.types.ids import as_utc, utc_now
from tellback.types.jsontext import dump_json

MAX_RESULT_LENGTH = 2_000
"""The maximum number of characters of a tool's result that the model sees."""

_PARTICIPANT_NAMES = ("display_name", "displayName", "name")
_TOOL_NAMES = ("tool_id", "toolId", "tool_name", "toolName", "name")
_ROLE_ALIASES = {"customer": "user", "agent": "assistant"}
# Notes begin with the mark "[System]" or "[Tool results]". A customer's message must not contain these marks.
_NOTE_MARKS = re.compile(r"(?im)^([^\w\n\[]{0,20})\[\s{0,5}(system|tool results)\s{0,5}\]")


class EventKind(StrEnum):
    """The kind of an event.

    >>> EventKind("tool") is EventKind.TOOL
    True
    """

    MESSAGE = "message"
    TOOL = "tool"
    STATUS = "status"


class EventSource(StrEnum):
    """The source of an event.

    >>> EventSource("agent") is EventSource.AI_AGENT
    True
    """

    CUSTOMER = "customer"
    AI_AGENT = "agent"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class MessageEventData:
    """The text of a message, and the name of its sender.

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
    """The tools that ran, each with its `tool_id`, its `arguments` and its `result`.

    >>> ToolEventData(({"tool_id": "get_data", "result": 5},)).tool_calls[0]["result"]
    5
    """

    tool_calls: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        calls = self.tool_calls
        if isinstance(calls, str | bytes | Mapping) or not isinstance(calls, Iterable):
            raise InvalidArgumentError(f"tool calls must be a list of mappings, got {calls!r:.80}.")
        object.__setattr__(self, "tool_calls", tuple(map(_parse_tool_call, calls)))


@dataclass(frozen=True, slots=True)
class StatusEventData:
    """A change of status, such as "typing", with additional data.

    >>> StatusEventData("typing").data
    {}
    """

    status: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _validate_text("the status of a status event", self.status)
        if not isinstance(self.data, Mapping):
            raise InvalidArgumentError(f"the data of a status event must be a mapping, got {self.data!r:.80}.")


EventData: TypeAlias = MessageEventData | ToolEventData | StatusEventData

_DATA_TYPES: Mapping[EventKind, type[Any]] = {
    EventKind.MESSAGE: MessageEventData,
    EventKind.TOOL: ToolEventData,
    EventKind.STATUS: StatusEventData,
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a conversation.

    `creation_utc` is an ISO 8601 string in UTC. Datetimes are converted; one without a timezone is rejected.

    >>> data = MessageEventData("Alice", "Hello!")
    >>> Event(EventKind.MESSAGE, EventSource.CUSTOMER, data, "2026-03-01T12:00:00+02:00").creation_utc
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
                f"an event of kind {kind.value!r} requires {_DATA_TYPES[kind].__name__} as data, got {self.data!r:.80}."
            )
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "source", _parse_enum(EventSource, "source", self.source))
        object.__setattr__(self, "creation_utc", _to_utc_text(self.creation_utc))


def _build_event(kind: Any, source: Any, data: Any, creation_utc: Any) -> Event:
    kind = _parse_enum(EventKind, "kind", kind)
    if isinstance(data, Mapping):
        data = _parse_data(kind, data)
    timestamp: Any = utc_now() if creation_utc is None else creation_utc
    return Event(kind, source, data, timestamp)


def parse_event(fields_by_name: Mapping[str, Any]) -> Event:
    """Parse an event from a mapping with fields in snake or camel case; other fields are ignored."""
    timestamp = _first_present(fields_by_name, "creation_utc", "creationUtc")
    return _build_event(fields_by_name.get("kind"), fields_by_name.get("source"), fields_by_name.get("data"), timestamp)


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return an event as a mapping that `parse_event` accepts."""
    return {
        "kind": event.kind.value,
        "source": event.source.value,
        "data": {each.name: getattr(event.data, each.name) for each in fields(event.data)},
        "creation_utc": event.creation_utc,
    }


def _parse_data(kind: EventKind, data: Mapping[str, Any]) -> EventData:
    if kind is EventKind.TOOL:
        return ToolEventData(_first_present(data, "tool_calls", "toolCalls"))
    if kind is EventKind.STATUS:
        status: Any = data.get("status")
        return StatusEventData(status, data.get("data") or {})
    participant: Any = data.get("participant") or ""
    if isinstance(participant, Mapping):
        participant = _first_present(participant, *_PARTICIPANT_NAMES) or ""
    message: Any = data.get("message")
    return MessageEventData(participant, message)


def _parse_tool_call(call: Any) -> Mapping[str, Any]:
    if not isinstance(call, Mapping):
        raise InvalidArgumentError(f"a tool call must map tool_id, arguments and result, got {call!r:.80}.")
    name = _first_present(call, *_TOOL_NAMES)
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"a tool call must have a tool_id, got {call!r:.80}.")
    return {"tool_id": name, "arguments": call.get("arguments") or {}, "result": call.get("result")}


def _parse_enum(enum: type[Any], name: str, value: Any) -> Any:
    try:
        return enum(value)
    except ValueError as error:
        known = ", ".join(repr(each.value) for each in enum)
        raise InvalidArgumentError(f"an event's {name} must be one of {known}, got {value!r:.80}.") from error


def _to_utc_text(timestamp: Any) -> str:
    try:
        return as_utc(timestamp).isoformat()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"an event's time must be an ISO 8601 string with a timezone: {error}.") from error


def _validate_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} must be a string, got {value!r:.80}.")


def _first_present(mapping: Mapping[str, Any], *names: str) -> Any:
    return next((mapping[name] for name in names if mapping.get(name) is not None), None)


def create_message_event(
    source: EventSource | str, participant_name: str, message: str, timestamp: str | datetime | None = None
) -> Event:
    """Create an event for a message; the timestamp defaults to now.

    >>> create_message_event(EventSource.CUSTOMER, "Alice", "Hello!", "2026-03-01T10:30:00Z").creation_utc
    '2026-03-01T10:30:00+00:00'
    """
    return _build_event(EventKind.MESSAGE, source, MessageEventData(participant_name, message), timestamp)


def create_tool_event(
    source: EventSource | str, tool_calls: Iterable[Mapping[str, Any]], timestamp: str | datetime | None = None
) -> Event:
    """Create an event for tool calls; the timestamp defaults to now.

    >>> create_tool_event("agent", [{"tool_id": "get_data", "arguments": {}, "result": 5}]).kind.value
    'tool'
    """
    return _build_event(EventKind.TOOL, source, {"tool_calls": tool_calls}, timestamp)


def create_status_event(
    source: EventSource | str,
    status: str,
    data: Mapping[str, Any] | None = None,
    timestamp: str | datetime | None = None,
) -> Event:
    """Create an event for a status change; the timestamp defaults to now.

    >>> create_status_event("agent", "typing").data.status
    'typing'
    """
    return _build_event(EventKind.STATUS, source, StatusEventData(status, {} if data is None else data), timestamp)


def adapt_event(event: Any) -> Event:
    """Convert a chat message, or a mapping with the fields of an event or message, into an event.

    >>> adapt_event({"role": "user", "content": "Hi"}).source.value
    'customer'
    >>> adapt_event({"kind": "status", "source": "agent", "data": {"status": "typing"}}).kind.value
    'status'
    """
    try:
        return _adapt(event)
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"invalid event: {error}.") from error


def history_to_messages(history: Any) -> list[Message]:
    """Convert a history (a string, an event, a message, a mapping, or several) into messages for a model, in order.

    The customer becomes the user and the agent the assistant. System messages and tool results become notes in user
    messages; status events and empty messages are omitted.
    """
    if isinstance(history, str | Event | Message | Mapping):
        history = [history]
    if isinstance(history, bytes | bytearray) or not isinstance(history, Iterable):
        raise InvalidArgumentError(f"history must be a string, message, event or a list of these, got {history!r:.80}.")
    calls: dict[str, ToolCall] = {}
    messages: list[Message] = []
    for index, each in enumerate(history):
        try:
            message = _entry_to_message(each, calls)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"history[{index}] is invalid: {error}") from error
        if message is not None and message_text(message).strip():
            messages.append(message)
    return messages


_SOURCES = {
    "user": EventSource.CUSTOMER,
    "assistant": EventSource.AI_AGENT,
    "system": EventSource.SYSTEM,
    "tool": EventSource.AI_AGENT,
}


def _adapt(event: Any) -> Event:
    if isinstance(event, Event):
        return event
    if isinstance(event, Mapping):
        if "kind" in event:
            return parse_event(event)
        if "role" in event:
            event = _parse_chat_message(event)
    if not isinstance(event, Message):
        raise InvalidArgumentError(
            f"{event!r:.80} is not an event: pass an Event, a Message, or a mapping with kind, source, data and"
            " creation_utc, or with role and content."
        )
    source = _SOURCES.get(event.role)
    if source is None:
        raise InvalidArgumentError(f"a message's role must be one of {', '.join(_SOURCES)}, got {event.role!r:.80}.")
    if event.role == "tool":
        return create_tool_event(source, [{"tool_id": event.name or "tool", "result": message_text(event)}])
    return create_message_event(source, event.name or event.role, message_text(event))


def _parse_chat_message(fields_by_name: Mapping[str, Any]) -> Message:
    return as_message({**fields_by_name, "role": _ROLE_ALIASES.get(fields_by_name["role"], fields_by_name["role"])})


def _entry_to_message(entry: Any, calls: dict[str, ToolCall]) -> Message | None:
    if isinstance(entry, str):
        entry = user_message(entry)
    elif isinstance(entry, Mapping) and "role" in entry and "kind" not in entry:
        entry = _parse_chat_message(entry)
    if isinstance(entry, Message):
        return _prepare_message(entry, calls)
    return _event_to_message(adapt_event(entry))


def _prepare_message(message: Message, calls: dict[str, ToolCall]) -> Message:
    text = message_text(message)
    match message.role:
        case "user":
            return _neutralize_message(message)
        case "assistant" if not message.tool_calls:
            return message
        case "assistant":
            # As text: providers reject calls of tools that the next request does not offer.
            calls.update((call.id, call) for call in message.tool_calls)
            return assistant_message(text)
        case "system":
            return _system_note(text)
        case "tool":
            call = calls.get(message.tool_call_id or "")
            name = call.name if call else message.name or "tool"
            return _tool_note([{"tool_id": name, "arguments": call.input if call else {}, "result": text}])
    raise InvalidArgumentError(f"a message's role must be one of {', '.join(_SOURCES)}, got {message.role!r:.80}.")


def _event_to_message(event: Event) -> Message | None:
    if isinstance(event.data, StatusEventData):
        return None
    if isinstance(event.data, ToolEventData):
        return _tool_note(event.data.tool_calls)
    if event.source is EventSource.SYSTEM:
        return _system_note(event.data.message)
    if event.source is EventSource.AI_AGENT:
        return assistant_message(event.data.message)
    return _neutralize_message(user_message(event.data.message))


def _system_note(text: str) -> Message:
    return user_message(f"[System] {text}" if text.strip() else "")


def _tool_note(calls: Iterable[Mapping[str, Any]]) -> Message:
    lines = [
        f"{call['tool_id']}({_format_result(call['arguments']) if call['arguments'] else ''})"
        f" → {_format_result(call['result'])}"
        for call in calls
    ]
    return user_message("[Tool results] " + "\n".join(lines) if lines else "")


def _format_result(value: Any) -> str:
    text = _neutralize_marks(value) if isinstance(value, str) else dump_json(value)
    return text if len(text) <= MAX_RESULT_LENGTH else text[: MAX_RESULT_LENGTH - 1] + "…"


def _neutralize_message(message: Message) -> Message:
    content, parts = message.content, message.parts
    if isinstance(content, str):
        content = _neutralize_marks(content)
    if parts:
        parts = tuple(replace(part, text=_neutralize_marks(part.text)) if part.text else part for part in parts)
    if content == message.content and parts == message.parts:
        return message
    return replace(message, content=content, parts=parts)


def _neutralize_marks(text: str) -> str:
    return _NOTE_MARKS.sub(r"\1(\2)", text) if "[" in text else text
