"""The conversation log in SQL: `ConversationLog` on any engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from tellback.errors import NotFoundError
from tellback.stores import rows
from tellback.stores.appending import append_turns, claim_turn, event_statement
from tellback.stores.engine import UNBOUNDED, Operation, SqlEngine
from tellback.stores.ports import AppendResult, SessionTurn, TurnBusy, TurnClaim, TurnDraft, TurnStarted
from tellback.types.conversations import Conversation, MessageDraft, StoredMessage
from tellback.types.scope import Scope
from tellback.types.times import to_micros

STALE_BATCH = 200


class SqlConversationLog:
    """`ConversationLog` on an engine."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    async def create(self, scope: Scope, conversation: Conversation) -> Conversation:
        await self._engine.write(scope, partial(create_conversation, conversation_values(conversation)))
        return conversation

    async def find_in_session(self, scope: Scope, namespace: str, session_id: str | None) -> Conversation | None:
        session = {"namespace": namespace, "session_id": session_id}
        return await self._engine.read(scope, partial(_find_in_session, session), brief=True)

    async def find_or_create(self, scope: Scope, conversation: Conversation) -> Conversation:
        found = await self.find_in_session(scope, conversation.namespace, conversation.session_id)
        if found is None:
            session = {"namespace": conversation.namespace, "session_id": conversation.session_id}
            values = conversation_values(conversation)
            found = await self._engine.write(scope, partial(_find_or_create, scope, session, values))
        return conversation if found is None else found

    async def list_due(self, scope: Scope, *, now: datetime) -> list[str]:
        return await self._engine.read(scope, partial(_list_due, to_micros(now)), brief=True)

    async def get(self, scope: Scope, id: str) -> Conversation | None:
        return await self._engine.read(scope, partial(_get_conversation, id), brief=True)

    async def list_conversations(
        self, scope: Scope, *, namespace: str | None, status: str | None, limit: int | None, before: str | None
    ) -> list[Conversation]:
        values = {"status": status, "before": before, "limit": UNBOUNDED if limit is None else limit}
        name = "conversation_list"
        if namespace is not None:
            name, values["namespace"] = "conversation_list_in_namespace", namespace
        return await self._engine.read(scope, partial(_list_conversations, name, values))

    async def close(self, scope: Scope, id: str, *, now: datetime) -> Conversation:
        return await self._engine.write(scope, partial(close_conversation, id, to_micros(now)))

    async def close_stale(
        self, scope: Scope | None, *, idle_since: datetime | None, now: datetime
    ) -> list[Conversation]:
        closed: list[Conversation] = []
        after = ""
        while True:
            # Claims are made by the machine's clock, not by one that a test may have set.
            idle_micros, claims_before = (
                None if idle_since is None else to_micros(idle_since),
                int(time.time() * 1_000_000),
            )
            stale = await self._engine.read(
                None, partial(_list_stale, scope, after, idle_micros, claims_before, to_micros(now))
            )
            if not stale:
                return closed
            for owner, id in stale:
                operation = partial(_close_idle, id, to_micros(now), idle_micros, claims_before)
                conversation = await self._engine.write(owner, operation)
                if conversation is not None:
                    closed.append(conversation)
            after = stale[-1][1]

    async def append(
        self,
        scope: Scope,
        id: str,
        turns: Sequence[TurnDraft],
        *,
        now: datetime,
        release_owner: str | None = None,
        required_owner: str | None = None,
        session: SessionTurn | None = None,
    ) -> AppendResult:
        encoded = [[rows.draft_values(draft) for draft in turn.messages] for turn in turns]
        operation = partial(append_turns, id, turns, encoded, to_micros(now), release_owner, required_owner, session)
        return await self._engine.write(scope, operation)

    async def message(self, scope: Scope, id: str) -> StoredMessage | None:
        return await self._engine.read(scope, partial(_get_message, id))

    async def messages(
        self,
        scope: Scope,
        id: str,
        *,
        limit: int | None = None,
        after: int = 0,
        before: int | None = None,
        include_internal: bool = False,
        include_hidden: bool = False,
        from_start: bool = False,
    ) -> list[StoredMessage]:
        values = {
            "conversation_id": id,
            "after": after,
            "before": UNBOUNDED if before is None else before,
            "limit": UNBOUNDED if limit is None else limit,
            "internal": int(include_internal),
            "hidden": int(include_hidden),
        }
        return await self._engine.read(scope, partial(_list_messages, id, values, from_start))

    async def begin_turn(
        self, scope: Scope, id: str, claim: TurnClaim, draft: MessageDraft | None, *, tail_limit: int, now: datetime
    ) -> TurnStarted | TurnBusy:
        await self._engine.announce_owner()
        encoded = [] if draft is None else [[rows.draft_values(draft)]]
        started = await self._engine.write(
            scope, partial(claim_turn, id, claim, draft, encoded, tail_limit, to_micros(now))
        )
        if isinstance(started, TurnBusy):
            return started
        try:
            later = tuple([rows.message_from_row(row) for row in started.later_rows])
            return TurnStarted(
                started.turn_id, started.user_message, rows.history_from_rows(started.history_rows), later
            )
        except BaseException:
            await self.end_turn(scope, id, claim.owner)
            raise

    async def end_turn(self, scope: Scope, id: str, owner: str) -> None:
        values = {"id": id, "owner": owner}
        await self._engine.write(scope, partial(_run_statement, "turn_release", values))

    async def extend_turn(self, scope: Scope, id: str, owner: str, until: float) -> None:
        values = {"id": id, "owner": owner, "until": int(until * 1_000_000)}
        await self._engine.write(scope, partial(_run_statement, "turn_extend", values))

    async def save_summary(
        self, scope: Scope, id: str, summary: str, *, until_seq: int, turns: int, expected_seq: int, now: datetime
    ) -> Conversation | None:
        values = {
            "id": id,
            "summary": summary,
            "until_seq": until_seq,
            "turns": turns,
            "expected_seq": expected_seq,
        }
        return await self._engine.write(scope, partial(_save_summary, id, values, to_micros(now)))

    async def list_across_users(
        self,
        *,
        tenant_id: str | None,
        app_id: str | None,
        user_id: str | None,
        namespace: str | None,
        after: str,
        limit: int,
        unsummarized: int | None = None,
    ) -> list[tuple[Scope, str]]:
        values = {
            "tenant": tenant_id,
            "app": app_id,
            "user": user_id,
            "namespace": namespace,
            "after": after,
            "limit": limit,
            "unsummarized": unsummarized,
        }
        return await self._engine.read(None, partial(_list_across_users, values))


def _list_across_users(values: dict[str, Any]) -> Operation[list[tuple[Scope, str]]]:
    found = yield "platform_conversations", values
    return [(Scope(row[0], row[1], row[2]), row[3]) for row in found]


def conversation_values(conversation: Conversation) -> dict[str, Any]:
    """The values a conversation binds."""
    after = conversation.close_after
    return {
        "id": conversation.id,
        "namespace": conversation.namespace,
        "title": conversation.title,
        "session_id": conversation.session_id,
        "metadata": rows.dump_stored_json(dict(conversation.metadata)),
        "close_after": None if after is None else after // timedelta(microseconds=1),
        "now": to_micros(conversation.created_at),
    }


def _find_in_session(session: dict[str, str | None]) -> Operation[Conversation | None]:
    found = yield "conversation_in_session", session
    return rows.conversation_from_row(found[0]) if found else None


def _find_or_create(
    scope: Scope, session: dict[str, str | None], values: dict[str, Any]
) -> Operation[Conversation | None]:
    yield (
        "platform_mark_lock",
        {"name": rows.dump_stored_json(["session", scope.tenant_id, scope.app_id, scope.user_id, *session.values()])},
    )
    found = yield from _find_in_session(session)
    if found is None:
        yield from create_conversation(values)
    return found


def _list_due(now: int) -> Operation[list[str]]:
    found = yield "conversations_due", {"now": now}
    return [row[0] for row in found]


def create_conversation(values: dict[str, Any]) -> Operation[None]:
    """Insert a conversation, and tell of it."""
    yield "conversation_create", values
    data = {"namespace": values["namespace"]}
    yield event_statement("conversation.created", values["id"], data, values["now"])


def _get_conversation(id: str) -> Operation[Conversation | None]:
    found = yield "conversation_get", {"id": id}
    return rows.conversation_from_row(found[0]) if found else None


def _list_conversations(name: str, values: dict[str, Any]) -> Operation[list[Conversation]]:
    found = yield name, values
    return [rows.conversation_from_row(row) for row in found]


def close_conversation(id: str, now: int) -> Operation[Conversation]:
    """Close a conversation; one that is closed is given as it is."""
    closed = yield from _close_idle(id, now, UNBOUNDED, UNBOUNDED)
    if closed is None:
        closed = yield from _get_conversation(id)
    if closed is None:
        raise NotFoundError("conversation", id)
    return closed


def _close_idle(id: str, now: int, idle_since: int | None, claims_before: int) -> Operation[Conversation | None]:
    values = {"id": id, "now": now, "idle_since": idle_since, "claims_before": claims_before}
    found = yield "conversation_close", values
    if not found:
        return None
    closed = rows.conversation_from_row(found[0])
    data = {"namespace": closed.namespace, "last_seq": closed.last_seq, "turns": closed.turns}
    yield event_statement("conversation.closed", id, data, now)
    return closed


def _list_stale(
    scope: Scope | None, after: str, idle_since: int | None, claims_before: int, now: int
) -> Operation[list[tuple[Scope, str]]]:
    values = {
        "tenant": None if scope is None else scope.tenant_id,
        "app": None if scope is None else scope.app_id,
        "user": None if scope is None else scope.user_id,
        "after": after,
        "claims_before": claims_before,
        "limit": STALE_BATCH,
    }
    if idle_since is None:
        found = yield "platform_due_conversations", {**values, "now": now}
    else:
        found = yield "platform_stale_conversations", {**values, "idle_since": idle_since}
    return [(Scope(row[0], row[1], row[2]), row[3]) for row in found]


def _get_message(id: str) -> Operation[StoredMessage | None]:
    found = yield "message_get", {"id": id}
    return rows.message_from_row(found[0]) if found else None


def _list_messages(id: str, values: dict[str, Any], from_start: bool) -> Operation[list[StoredMessage]]:
    found = yield "messages_after" if from_start else "messages_before", values
    if not found and not (yield "conversation_get", {"id": id}):
        raise NotFoundError("conversation", id)
    messages = [rows.message_from_row(row) for row in found]
    return messages if from_start else messages[::-1]


def _save_summary(id: str, values: dict[str, Any], now: int) -> Operation[Conversation | None]:
    found = yield "conversation_summarize", values
    if not found:
        return None
    data = {"rolling_summary_until_seq": values["until_seq"]}
    yield event_statement("conversation.summarized", id, data, now)
    return rows.conversation_from_row(found[0])


def _run_statement(name: str, values: dict[str, Any]) -> Operation[None]:
    yield name, values
