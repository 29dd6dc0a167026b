"""Agents' sessions in SQL: `AgentSessions` on any engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from tellback.errors import NotFoundError, SessionConflictError
from tellback.stores import rows, session_rows
from tellback.stores.appending import append
from tellback.stores.conversations import close_conversation, conversation_values, create_conversation
from tellback.stores.engine import FOREVER, Engine, Operation
from tellback.stores.ports.conversations import Appended, TurnDraft
from tellback.stores.session_saving import inserted, save_session
from tellback.types.conversations import Conversation
from tellback.types.ids import id_after, new_id
from tellback.types.scope import Scope
from tellback.types.sessions import MessageData, SessionData, SessionStatus
from tellback.types.times import to_micros

PAGE = 200
"""So many messages of the log are read at a time: some of them are not for users."""


class SqlAgentSessions:
    """`AgentSessions` on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def owner(self, tenant_id: str, app_id: str, id: str) -> Scope | None:
        named = {"tenant": tenant_id, "app": app_id, "id": id}
        found = await self._engine.read(None, partial(_rows, "platform_session_get", named), brief=True)
        return Scope(tenant_id, app_id, session_rows.session(found[0]).user_id or "") if found else None

    async def create(self, scope: Scope, session: SessionData) -> None:
        await self._engine.write(scope, partial(_create, session))

    async def get(self, scope: Scope, id: str) -> SessionData | None:
        found = await self._engine.read(scope, partial(_rows, "session_get", {"id": id}), brief=True)
        return session_rows.session(found[0]) if found else None

    async def active(self, scope: Scope, agent_name: str | None) -> SessionData | None:
        found = await self._engine.read(scope, partial(_rows, "session_active", {"agent_name": agent_name}))
        return session_rows.session(found[0]) if found else None

    async def listed(self, scope: Scope, *, limit: int, before: SessionData | None) -> list[SessionData]:
        values = {
            "created_at": FOREVER if before is None else to_micros(before.created_at),
            "before": "" if before is None else before.id,
            "limit": limit,
        }
        found = await self._engine.read(scope, partial(_rows, "sessions_of_user", values))
        return [session_rows.session(row) for row in found]

    async def set_status(
        self, scope: Scope, id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        values = {
            "id": id,
            "status": status,
            "updated_at": to_micros(at),
            "completed_at": None if completed_at is None else to_micros(completed_at),
        }
        return await self._engine.write(scope, partial(_set_status, values))

    async def delete(self, scope: Scope, id: str, *, now: datetime) -> bool:
        return await self._engine.write(scope, partial(_delete, id, to_micros(now)))

    async def save(
        self,
        scope: Scope,
        session: SessionData,
        messages: Sequence[MessageData],
        conversation: Conversation,
    ) -> SessionData:
        return await self._engine.write(scope, partial(_save, session, messages, conversation))

    async def add(
        self, scope: Scope, messages: Sequence[MessageData], conversation: Conversation, *, at: datetime
    ) -> list[MessageData]:
        return await self._engine.write(scope, partial(_add, scope, messages, conversation, to_micros(at)))

    async def messages(
        self, scope: Scope, id: str, *, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        return await self._engine.read(scope, partial(_messages, scope.user_id, id, limit, before, after))


def _rows(name: str, values: dict[str, Any]) -> Operation[list[Any]]:
    return (yield name, values)


def _create(session: SessionData) -> Operation[None]:
    if not (yield from inserted(session_rows.values(session))):
        stored = yield "session_get", {"id": session.id}
        raise SessionConflictError(session.id, 0, session_rows.session(stored[0]).version if stored else 0)


def _save(session: SessionData, messages: Sequence[MessageData], conversation: Conversation) -> Operation[SessionData]:
    row = yield from save_session(session, messages)
    saved = session_rows.session(row)
    if messages:
        yield from _said(saved, row[session_rows.SINCE], messages, conversation, to_micros(session.updated_at))
    return saved


def _add(
    scope: Scope, messages: Sequence[MessageData], conversation: Conversation, at: int
) -> Operation[list[MessageData]]:
    id = messages[0].session_id
    last = to_micros(messages[-1].created_at)
    counts = {"id": id, "message_count": len(messages), "last_message_at": last, "updated_at": at}
    found = yield "session_count", counts
    if not found:
        raise NotFoundError("session", id)
    since = found[0][session_rows.SINCE]
    said = yield from _said(session_rows.session(found[0]), since, messages, conversation, at)
    known = yield "conversations_of_session", {"session_id": id, "since": since}
    part = 1 + [row[0] for row in known].index(said.messages[0].conversation_id)
    placed = [session_rows.message(each, id, scope.user_id, part) for each in said.messages]
    return [each for each in placed if each is not None]


def _said(
    session: SessionData, since: str, messages: Sequence[MessageData], conversation: Conversation, now: int
) -> Operation[Appended]:
    """Append messages to the log. The session's row is locked, so nobody else opens a conversation for it here."""
    id = yield from _open_conversation(session.id, since, conversation.namespace)
    if id is None:
        known = yield "conversations_of_session", {"session_id": session.id, "since": ""}
        # Another machine's clock may be ahead: what comes later has the greater id all the same.
        id = max(conversation.id, id_after(max([since, *(row[0] for row in known)])))
        yield from create_conversation(conversation_values(replace(conversation, id=id)))
    drafts = [session_rows.draft(each, session.agent_name) for each in messages]
    starts = any(each.role == "user" for each in messages)
    turn = TurnDraft(new_id("turn"), drafts, starts=starts, joins=not starts)
    encoded = [[rows.draft_values(each) for each in drafts]]
    return (yield from append(id, [turn], encoded, now))


def _open_conversation(session_id: str, since: str, namespace: str) -> Operation[str | None]:
    """The conversation that the session goes on in, locked: of its own namespace rather than of another."""
    known = yield "conversations_of_session", {"session_id": session_id, "since": since}
    found = [(row[2] == namespace, row[0]) for row in known if row[1] == "open"]
    for _, id in sorted(found, reverse=True):
        head = yield "conversation_lock", {"id": id}
        if head and head[0][0] == "open":
            return str(id)
    return None


def _set_status(values: dict[str, Any]) -> Operation[SessionData | None]:
    found = yield "session_status", values
    if not found:
        return None
    if values["status"] != "active":
        yield from _closed(values["id"], found[0][session_rows.SINCE], values["updated_at"])
    return session_rows.session(found[0])


def _delete(id: str, now: int) -> Operation[bool]:
    found = yield "session_delete", {"id": id}
    if found:
        yield from _closed(id, found[0][session_rows.SINCE], now)
    return bool(found)


def _closed(id: str, since: str, now: int) -> Operation[None]:
    known = yield "conversations_of_session", {"session_id": id, "since": since}
    for conversation_id, status in [(row[0], row[1]) for row in known]:
        if status == "open":
            yield from close_conversation(conversation_id, now)


def _messages(user_id: str, id: str, limit: int, before: int | None, after: int | None) -> Operation[list[MessageData]]:
    found = yield "session_get", {"id": id}
    if not found:
        return []
    known = yield "conversations_of_session", {"session_id": id, "since": found[0][session_rows.SINCE]}
    parts = [(number, row[0]) for number, row in enumerate(known, start=1)]
    first, last = session_rows.place(after, (0, 0)), session_rows.place(before, (FOREVER, FOREVER))
    said: list[MessageData] = []
    backwards = after is None
    for part, conversation_id in reversed(parts) if backwards else parts:
        if not first[0] <= part <= last[0]:
            continue
        since, until = first[1] if part == first[0] else 0, last[1] if part == last[0] else FOREVER
        while len(said) < limit and since < until:
            values = {"conversation_id": conversation_id, "after": since, "before": until, "limit": PAGE}
            name = "messages_before" if backwards else "messages_after"
            page = yield name, {**values, "internal": 1, "hidden": 1}
            stored = [rows.message(row) for row in page]
            read = (session_rows.message(each, id, user_id, part) for each in stored)
            said.extend(each for each in read if each is not None)
            if len(stored) < PAGE:
                break
            since, until = (since, stored[-1].seq) if backwards else (stored[-1].seq, until)
    return said[:limit][::-1] if backwards else said[:limit]
