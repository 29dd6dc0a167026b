"""Agents' sessions in SQL. Their messages are in the conversation log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from tellback.errors import NotFoundError, SessionConflictError
from tellback.stores import rows
from tellback.stores.engine import UNBOUNDED, Operation, StorePart, reads, reads_briefly, writes
from tellback.stores.operations.conversations import (
    append_turns,
    close_conversation,
    create_conversation,
    insert_session,
    save_session,
)
from tellback.stores.values import AppendResult, TurnDraft
from tellback.types.access import Scope
from tellback.types.conversations import Conversation, MessageData, SessionData, SessionStatus, StoredMessage
from tellback.types.ids import new_id, next_id, to_micros

PAGE_SIZE = 200
"""So many messages of the log are read at a time: some of them are not for users."""


class AgentSessions(StorePart):
    """Agents' sessions. What is said in them is in the log: in the user's conversations of that `session_id`.

    - `find_scope` gives the scope of the user whose session it is, or None. Session ids are unique in an app.
    - `create`, `get`, `find_active`, `list_sessions`, `set_status` are as in `SessionRepository`; completing and
      abandoning also closes the session's open conversations, in the same transaction. `delete` forgets where it stood
      and closes them; what was said stays in the log, and is no longer the session's.
    - `save` is as in `PersistenceAdapter`: the session and its messages in one transaction. They are appended to the
      session's open conversation, or to `conversation` if it has none. An id that is another user's raises
      `NotFoundError`. `add_messages` appends without a turn.
    - `messages` gives what was said: messages that users see, in the order of the log, and those that were added here.
    """

    @reads_briefly
    def find_scope(self, tenant_id: str, app_id: str, id: str) -> Operation[Scope | None]:
        found = yield "platform_session_get", {"tenant": tenant_id, "app": app_id, "id": id}
        return Scope(tenant_id, app_id, found[0]["user_id"] or "") if found else None

    @writes
    def create(self, scope: Scope, session: SessionData) -> Operation[None]:
        if not (yield from insert_session(rows.session_values(session))):
            stored = rows.SESSION.read_first((yield "session_get", {"id": session.id}))
            raise SessionConflictError(session.id, 0, stored.version if stored else 0)

    @reads_briefly
    def get(self, scope: Scope, id: str) -> Operation[SessionData | None]:
        return rows.SESSION.read_first((yield "session_get", {"id": id}))

    @reads
    def find_active(self, scope: Scope, agent_name: str | None) -> Operation[SessionData | None]:
        return rows.SESSION.read_first((yield "session_find_active", {"agent_name": agent_name}))

    @reads
    def list_sessions(self, scope: Scope, *, limit: int, before: SessionData | None) -> Operation[list[SessionData]]:
        values = {
            "created_at": UNBOUNDED if before is None else to_micros(before.created_at),
            "before": "" if before is None else before.id,
            "limit": limit,
        }
        return rows.SESSION.read_all((yield "sessions_of_user", values))

    @writes
    def set_status(
        self, scope: Scope, id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> Operation[SessionData | None]:
        values = {
            "id": id,
            "status": status,
            "updated_at": to_micros(at),
            "completed_at": None if completed_at is None else to_micros(completed_at),
        }
        found = yield "session_set_status", values
        if found and status != "active":
            yield from _close_conversations(id, found[0]["since"], to_micros(at))
        return rows.SESSION.read_first(found)

    @writes
    def delete(self, scope: Scope, id: str, *, now: datetime) -> Operation[bool]:
        found = yield "session_delete", {"id": id}
        if found:
            yield from _close_conversations(id, found[0]["since"], to_micros(now))
        return bool(found)

    @writes
    def save(
        self,
        scope: Scope,
        session: SessionData,
        messages: Sequence[MessageData],
        conversation: Conversation,
    ) -> Operation[SessionData]:
        row = yield from save_session(session, messages)
        saved = rows.SESSION.read(row)
        if messages:
            yield from _append_to_log(saved, row["since"], messages, conversation, to_micros(session.updated_at))
        return saved

    @writes
    def add_messages(
        self, scope: Scope, messages: Sequence[MessageData], conversation: Conversation, *, at: datetime
    ) -> Operation[list[MessageData]]:
        id, now = messages[0].session_id, to_micros(at)
        last = to_micros(messages[-1].created_at)
        counts = {"id": id, "message_count": len(messages), "last_message_at": last, "updated_at": now}
        found = yield "session_add_message_count", counts
        if not found:
            raise NotFoundError("session", id)
        since = found[0]["since"]
        appended = yield from _append_to_log(rows.SESSION.read(found[0]), since, messages, conversation, now)
        conversations = yield "conversations_of_session", {"session_id": id, "since": since}
        number = 1 + [row["id"] for row in conversations].index(appended.messages[0].conversation_id)
        return _session_messages(appended.messages, id, scope, number)

    @reads
    def messages(
        self, scope: Scope, id: str, *, limit: int, before: int | None, after: int | None
    ) -> Operation[list[MessageData]]:
        found = yield "session_get", {"id": id}
        if not found:
            return []
        conversations = yield "conversations_of_session", {"session_id": id, "since": found[0]["since"]}
        numbered = [(number, row["id"]) for number, row in enumerate(conversations, start=1)]
        first, first_seq = rows.split_position(after, (0, 0))
        last, last_seq = rows.split_position(before, (UNBOUNDED, UNBOUNDED))
        messages: list[MessageData] = []
        backwards = after is None
        for number, conversation_id in reversed(numbered) if backwards else numbered:
            if not first <= number <= last:
                continue
            since = first_seq if number == first else 0
            until = last_seq if number == last else UNBOUNDED
            while len(messages) < limit and since < until:
                values = {"conversation_id": conversation_id, "after": since, "before": until, "limit": PAGE_SIZE}
                name = "messages_before" if backwards else "messages_after"
                stored = rows.MESSAGE.read_all((yield name, {**values, "internal": 1, "hidden": 1}))
                messages += _session_messages(stored, id, scope, number)
                if len(stored) < PAGE_SIZE:
                    break
                since, until = (since, stored[-1].seq) if backwards else (stored[-1].seq, until)
        return messages[:limit][::-1] if backwards else messages[:limit]


def _session_messages(
    stored: Sequence[StoredMessage], session_id: str, scope: Scope, conversation_number: int
) -> list[MessageData]:
    """The messages of the log that users see, as their session's."""
    messages = [
        rows.session_message_from_stored(each, session_id, scope.user_id, conversation_number) for each in stored
    ]
    return [each for each in messages if each is not None]


def _append_to_log(
    session: SessionData, since: str, messages: Sequence[MessageData], conversation: Conversation, now: int
) -> Operation[AppendResult]:
    """Append messages to the log. The session's row is locked, so nobody else opens a conversation for it here."""
    id = yield from _lock_open_conversation(session.id, since, conversation.namespace)
    if id is None:
        conversations = yield "conversations_of_session", {"session_id": session.id, "since": ""}
        # Another machine's clock may be ahead: what comes later has the greater id all the same.
        id = max(conversation.id, next_id(max([since, *(row["id"] for row in conversations)])))
        yield from create_conversation(replace(conversation, id=id))
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


def _close_conversations(id: str, since: str, now: int) -> Operation[None]:
    conversations = yield "conversations_of_session", {"session_id": id, "since": since}
    for row in conversations:
        if row["status"] == "open":
            yield from close_conversation(row["id"], now)
