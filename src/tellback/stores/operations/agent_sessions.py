"""Agents' sessions in SQL: `AgentSessions` on any engine. Their messages are in the conversation log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from tellback.errors import NotFoundError, SessionConflictError
from tellback.stores import rows
from tellback.stores.engine import UNBOUNDED, Operation, SqlEngine
from tellback.stores.operations.conversations import (
    append_turns,
    close_conversation,
    conversation_values,
    create_conversation,
    insert_session,
    save_session,
)
from tellback.stores.ports.conversations import AppendResult, TurnDraft
from tellback.types.access import Scope
from tellback.types.conversations import Conversation, MessageData, SessionData, SessionStatus
from tellback.types.ids import new_id, next_id, to_micros

PAGE_SIZE = 200
"""So many messages of the log are read at a time: some of them are not for users."""


class SqlAgentSessions:
    """`AgentSessions` on an engine."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    async def find_scope(self, tenant_id: str, app_id: str, id: str) -> Scope | None:
        key = {"tenant": tenant_id, "app": app_id, "id": id}
        found = await self._engine.read(None, partial(_fetch, "platform_session_get", key), brief=True)
        return Scope(tenant_id, app_id, rows.SESSION.read(found[0]).user_id or "") if found else None

    async def create(self, scope: Scope, session: SessionData) -> None:
        await self._engine.write(scope, partial(_create_session, session))

    async def get(self, scope: Scope, id: str) -> SessionData | None:
        found = await self._engine.read(scope, partial(_fetch, "session_get", {"id": id}), brief=True)
        return rows.SESSION.read_first(found)

    async def find_active(self, scope: Scope, agent_name: str | None) -> SessionData | None:
        found = await self._engine.read(scope, partial(_fetch, "session_find_active", {"agent_name": agent_name}))
        return rows.SESSION.read_first(found)

    async def list_sessions(self, scope: Scope, *, limit: int, before: SessionData | None) -> list[SessionData]:
        values = {
            "created_at": UNBOUNDED if before is None else to_micros(before.created_at),
            "before": "" if before is None else before.id,
            "limit": limit,
        }
        found = await self._engine.read(scope, partial(_fetch, "sessions_of_user", values))
        return rows.SESSION.read_all(found)

    async def set_status(
        self, scope: Scope, id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        values = {
            "id": id,
            "status": status,
            "updated_at": to_micros(at),
            "completed_at": None if completed_at is None else to_micros(completed_at),
        }
        return await self._engine.write(scope, partial(_set_session_status, values))

    async def delete(self, scope: Scope, id: str, *, now: datetime) -> bool:
        return await self._engine.write(scope, partial(_delete_session, id, to_micros(now)))

    async def save(
        self,
        scope: Scope,
        session: SessionData,
        messages: Sequence[MessageData],
        conversation: Conversation,
    ) -> SessionData:
        return await self._engine.write(scope, partial(_save_with_messages, session, messages, conversation))

    async def add_messages(
        self, scope: Scope, messages: Sequence[MessageData], conversation: Conversation, *, at: datetime
    ) -> list[MessageData]:
        return await self._engine.write(scope, partial(_add_messages, scope, messages, conversation, to_micros(at)))

    async def messages(
        self, scope: Scope, id: str, *, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        return await self._engine.read(scope, partial(_list_messages, scope.user_id, id, limit, before, after))


def _fetch(name: str, values: dict[str, Any]) -> Operation[list[Any]]:
    return (yield name, values)


def _create_session(session: SessionData) -> Operation[None]:
    if not (yield from insert_session(rows.session_values(session))):
        stored = yield "session_get", {"id": session.id}
        raise SessionConflictError(session.id, 0, rows.SESSION.read(stored[0]).version if stored else 0)


def _save_with_messages(
    session: SessionData, messages: Sequence[MessageData], conversation: Conversation
) -> Operation[SessionData]:
    row = yield from save_session(session, messages)
    saved = rows.SESSION.read(row)
    if messages:
        yield from _append_to_log(saved, row["since"], messages, conversation, to_micros(session.updated_at))
    return saved


def _add_messages(
    scope: Scope, messages: Sequence[MessageData], conversation: Conversation, at: int
) -> Operation[list[MessageData]]:
    id = messages[0].session_id
    last = to_micros(messages[-1].created_at)
    counts = {"id": id, "message_count": len(messages), "last_message_at": last, "updated_at": at}
    found = yield "session_add_message_count", counts
    if not found:
        raise NotFoundError("session", id)
    since = found[0]["since"]
    appended = yield from _append_to_log(rows.SESSION.read(found[0]), since, messages, conversation, at)
    conversations = yield "conversations_of_session", {"session_id": id, "since": since}
    conversation_number = 1 + [row["id"] for row in conversations].index(appended.messages[0].conversation_id)
    positioned = [
        rows.session_message_from_stored(each, id, scope.user_id, conversation_number) for each in appended.messages
    ]
    return [each for each in positioned if each is not None]


def _append_to_log(
    session: SessionData, since: str, messages: Sequence[MessageData], conversation: Conversation, now: int
) -> Operation[AppendResult]:
    """Append messages to the log. The session's row is locked, so nobody else opens a conversation for it here."""
    id = yield from _lock_open_conversation(session.id, since, conversation.namespace)
    if id is None:
        conversations = yield "conversations_of_session", {"session_id": session.id, "since": ""}
        # Another machine's clock may be ahead: what comes later has the greater id all the same.
        id = max(conversation.id, next_id(max([since, *(row["id"] for row in conversations)])))
        yield from create_conversation(conversation_values(replace(conversation, id=id)))
    drafts = [rows.draft_from_session_message(each, session.agent_name) for each in messages]
    starts = any(each.role == "user" for each in messages)
    turn = TurnDraft(new_id("turn"), drafts, starts=starts, joins=not starts)
    encoded = [[rows.draft_values(each) for each in drafts]]
    return (yield from append_turns(id, [turn], encoded, now))


def _lock_open_conversation(session_id: str, since: str, namespace: str) -> Operation[str | None]:
    """The conversation that the session goes on in, locked: of its own namespace rather than of another."""
    conversations = yield "conversations_of_session", {"session_id": session_id, "since": since}
    candidates = [(row["namespace"] == namespace, row["id"]) for row in conversations if row["status"] == "open"]
    for _, id in sorted(candidates, reverse=True):
        head = yield "conversation_lock", {"id": id}
        if head and head[0]["status"] == "open":
            return str(id)
    return None


def _set_session_status(values: dict[str, Any]) -> Operation[SessionData | None]:
    found = yield "session_set_status", values
    if not found:
        return None
    if values["status"] != "active":
        yield from _close_conversations(values["id"], found[0]["since"], values["updated_at"])
    return rows.SESSION.read(found[0])


def _delete_session(id: str, now: int) -> Operation[bool]:
    found = yield "session_delete", {"id": id}
    if found:
        yield from _close_conversations(id, found[0]["since"], now)
    return bool(found)


def _close_conversations(id: str, since: str, now: int) -> Operation[None]:
    conversations = yield "conversations_of_session", {"session_id": id, "since": since}
    for row in conversations:
        if row["status"] == "open":
            yield from close_conversation(row["id"], now)


def _list_messages(
    user_id: str, id: str, limit: int, before: int | None, after: int | None
) -> Operation[list[MessageData]]:
    found = yield "session_get", {"id": id}
    if not found:
        return []
    conversations = yield (
        "conversations_of_session",
        {"session_id": id, "since": found[0]["since"]},
    )
    numbered = [(number, row["id"]) for number, row in enumerate(conversations, start=1)]
    first, last = (
        rows.split_position(after, (0, 0)),
        rows.split_position(before, (UNBOUNDED, UNBOUNDED)),
    )
    messages: list[MessageData] = []
    backwards = after is None
    for conversation_number, conversation_id in reversed(numbered) if backwards else numbered:
        if not first[0] <= conversation_number <= last[0]:
            continue
        since, until = (
            first[1] if conversation_number == first[0] else 0,
            last[1] if conversation_number == last[0] else UNBOUNDED,
        )
        while len(messages) < limit and since < until:
            values = {"conversation_id": conversation_id, "after": since, "before": until, "limit": PAGE_SIZE}
            name = "messages_before" if backwards else "messages_after"
            page = yield name, {**values, "internal": 1, "hidden": 1}
            stored = rows.MESSAGE.read_all(page)
            converted = (rows.session_message_from_stored(each, id, user_id, conversation_number) for each in stored)
            messages.extend(each for each in converted if each is not None)
            if len(stored) < PAGE_SIZE:
                break
            since, until = (since, stored[-1].seq) if backwards else (stored[-1].seq, until)
    return messages[:limit][::-1] if backwards else messages[:limit]
