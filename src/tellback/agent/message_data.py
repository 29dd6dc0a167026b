"""Messages of a session as rows, and what a history has instead: events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from tellback.agent.event_values import Event, EventKind, EventSource, MessageEventData, ToolEventData, event_to_dict
from tellback.agent.events import adapt_event, create_message_event, create_tool_event
from tellback.agent.session import SessionState
from tellback.agent.session_data import plain_data
from tellback.errors import InvalidArgumentError
from tellback.types.ids import new_id
from tellback.types.jsontext import make_storable
from tellback.types.sessions import MessageData, MessageRole
from tellback.types.times import as_utc

_ROLES: Mapping[EventSource, MessageRole] = {
    EventSource.CUSTOMER: "user",
    EventSource.AI_AGENT: "agent",
    EventSource.SYSTEM: "system",
}
_SOURCES = {role: source for source, role in _ROLES.items()}
_FIELDS = tuple(each.name for each in fields(MessageData) if each.name != "position")


def events_to_messages(session: SessionState, events: Sequence[Event], user_id: str | None) -> list[MessageData]:
    """A turn's messages. Tools that ran go with what the agent said next."""
    messages: list[MessageData] = []
    tool_events: list[Event] = []
    for event in events:
        if event.kind is EventKind.TOOL:
            tool_events.append(event)
            continue
        if tool_events and event.source is not EventSource.AI_AGENT:
            messages.extend(_event_to_row(session, each, user_id) for each in tool_events)
            tool_events = []
        calls = [call for each in tool_events if isinstance(each.data, ToolEventData) for call in each.data.tool_calls]
        messages.append(_event_to_row(session, event, user_id, calls))
        tool_events = []
    return [*messages, *(_event_to_row(session, each, user_id) for each in tool_events)]


def message_to_events(message: MessageData) -> list[Event]:
    """A message as events: the tools that ran for it, and what was said."""
    event = None if message.event is None else adapt_event(message.event)
    if event is None:
        event = create_message_event(_SOURCES[message.role], message.role, message.content, message.created_at)
    if not message.tool_calls or event.kind is EventKind.TOOL:
        return [event]
    return [create_tool_event(EventSource.AI_AGENT, message.tool_calls, message.created_at), event]


def with_parsed_event(message: MessageData) -> MessageData:
    """A message with its event as a value."""
    return message if message.event is None else replace(message, event=adapt_event(message.event))


def build_message_row(
    source: MessageData | Mapping[str, Any] | None, overrides: Mapping[str, Any], now: datetime
) -> MessageData:
    """A message to be stored, from what is known of it."""
    if isinstance(source, MessageData):
        source = {name: getattr(source, name) for name in _FIELDS}
    if not isinstance(source, Mapping | None):
        raise InvalidArgumentError(f"a message is a MessageData or a mapping, not {source!r:.80}.")
    values = {**(source or {}), **overrides}
    unknown = values.keys() - set(_FIELDS)
    if unknown:
        raise InvalidArgumentError(f"save_message takes no {', '.join(sorted(map(str, unknown)))}.")
    event = None if values.get("event") is None else adapt_event(values["event"])
    content, role = values.get("content"), values.get("role")
    if event is not None:
        content = _event_text(event) if content is None else content
        role = role or _ROLES[event.source]
    if content is None or role is None:
        raise InvalidArgumentError("save_message needs session_id, role and content, or an event.")
    return MessageData(
        id=values.get("id") or new_id("msg"),
        session_id=values.get("session_id") or "",
        role=role,
        content=content,
        user_id=values.get("user_id"),
        route=values.get("route"),
        state=values.get("state"),
        tool_calls=_normalize_tool_calls(values.get("tool_calls") or ()),
        event=None if event is None else plain_data(event_to_dict(event)),
        created_at=_parse_created_at(values.get("created_at"), now),
    )


def _event_to_row(
    session: SessionState, event: Event, user_id: str | None, calls: Sequence[Mapping[str, Any]] = ()
) -> MessageData:
    data = event.data
    if isinstance(data, ToolEventData):
        calls = data.tool_calls
    route, state = session.current_route, session.current_state
    return MessageData(
        id=new_id("msg"),
        session_id=session.id,
        role=_ROLES[event.source],
        content=make_storable(_event_text(event)),
        user_id=user_id,
        route=None if route is None else route.id,
        state=None if state is None else state.id,
        tool_calls=_normalize_tool_calls(calls),
        event=plain_data(event_to_dict(event)),
        created_at=as_utc(event.creation_utc),
    )


def _event_text(event: Event) -> str:
    if isinstance(event.data, MessageEventData):
        return event.data.message
    return "" if isinstance(event.data, ToolEventData) else event.data.status


def _normalize_tool_calls(calls: Any) -> tuple[Mapping[str, Any], ...]:
    valid_calls = ToolEventData(calls).tool_calls
    return tuple(
        plain_data({"tool_name": call["tool_id"], "arguments": call["arguments"], "result": call["result"]})
        for call in valid_calls
    )


def _parse_created_at(value: Any, now: datetime) -> datetime:
    if value is None:
        return now
    try:
        return as_utc(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"created_at cannot be read: {error}.") from error
