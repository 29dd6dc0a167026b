"""The conversation log in SQL: `ConversationLog` on any engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from recollect.errors import ConversationClosedError, NotFoundError
from recollect.stores import rows
from recollect.stores.engine import FOREVER, Engine, Operation
from recollect.stores.ports import Appended, TurnBusy, TurnClaim, TurnDraft, TurnStarted
from recollect.types.conversations import Conversation, MessageDraft, StoredMessage
from recollect.types.scope import Scope
from recollect.types.times import to_micros

STALE_BATCH = 200
APPENDED = '{"message_id":"%s","seq":%d,"role":"%s","turn_id":"%s","visibility":"%s"}'
"""The data of `message.appended`: ids and fixed words only, so that the hottest path needs no encoder."""
RESUMED_LIMIT = 1_000
"""How much of a turn is looked at when it is run again."""


class SqlConversations:
    """`ConversationLog` on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(self, scope: Scope, conversation: Conversation) -> Conversation:
        await self._engine.write(scope, partial(_create, _conversation_values(conversation)))
        return conversation

    async def in_session(self, scope: Scope, namespace: str, session_id: str | None) -> Conversation | None:
        session = {"namespace": namespace, "session_id": session_id}
        return await self._engine.read(scope, partial(_in_session, session), brief=True)

    async def find_or_create(self, scope: Scope, conversation: Conversation) -> Conversation:
        found = await self.in_session(scope, conversation.namespace, conversation.session_id)
        if found is None:
            session = {"namespace": conversation.namespace, "session_id": conversation.session_id}
            values = _conversation_values(conversation)
            found = await self._engine.write(scope, partial(_find_or_create, scope, session, values))
        return conversation if found is None else found

    async def due(self, scope: Scope, *, now: datetime) -> list[str]:
        return await self._engine.read(scope, partial(_due, to_micros(now)), brief=True)

    async def get(self, scope: Scope, id: str) -> Conversation | None:
        return await self._engine.read(scope, partial(_get, id), brief=True)

    async def listed(
        self, scope: Scope, *, namespace: str | None, status: str | None, limit: int | None, before: str | None
    ) -> list[Conversation]:
        values = {"status": status, "before": before, "limit": FOREVER if limit is None else limit}
        name = "conversation_list"
        if namespace is not None:
            name, values["namespace"] = "conversation_list_in_namespace", namespace
        return await self._engine.read(scope, partial(_list, name, values))

    async def close(self, scope: Scope, id: str, *, now: datetime) -> Conversation:
        return await self._engine.write(scope, partial(_close, id, to_micros(now)))

    async def close_stale(
        self, scope: Scope | None, *, idle_since: datetime | None, now: datetime
    ) -> list[Conversation]:
        closed: list[Conversation] = []
        after = ""
        while True:
            # Claims are made by the machine's clock, not by one that a test may have set.
            idle, claims = None if idle_since is None else to_micros(idle_since), int(time.time() * 1_000_000)
            found = await self._engine.read(None, partial(_stale, scope, after, idle, claims, to_micros(now)))
            if not found:
                return closed
            for owner, id in found:
                closing = partial(_close_idle, id, to_micros(now), idle, claims)
                conversation = await self._engine.write(owner, closing)
                if conversation is not None:
                    closed.append(conversation)
            after = found[-1][1]

    async def append(
        self,
        scope: Scope,
        id: str,
        turns: Sequence[TurnDraft],
        *,
        now: datetime,
        release: str | None = None,
    ) -> Appended:
        encoded = [[rows.draft_values(draft) for draft in turn.messages] for turn in turns]
        return await self._engine.write(scope, partial(_append, id, turns, encoded, to_micros(now), release))

    async def message(self, scope: Scope, id: str) -> StoredMessage | None:
        return await self._engine.read(scope, partial(_message, id))

    async def messages(
        self,
        scope: Scope,
        id: str,
        *,
        limit: int | None = None,
        after: int = 0,
        before: int | None = None,
        internal: bool = False,
        hidden: bool = False,
        from_start: bool = False,
    ) -> list[StoredMessage]:
        values = {
            "conversation_id": id,
            "after": after,
            "before": FOREVER if before is None else before,
            "limit": FOREVER if limit is None else limit,
            "internal": int(internal),
            "hidden": int(hidden),
        }
        return await self._engine.read(scope, partial(_messages, id, values, from_start))

    async def begin_turn(
        self, scope: Scope, id: str, claim: TurnClaim, draft: MessageDraft | None, *, tail_limit: int, now: datetime
    ) -> TurnStarted | TurnBusy:
        await self._engine.show_alive()
        encoded = [] if draft is None else [[rows.draft_values(draft)]]
        begun = await self._engine.write(
            scope, partial(_begin_turn, id, claim, draft, encoded, tail_limit, to_micros(now))
        )
        if isinstance(begun, TurnBusy):
            return begun
        try:
            later = tuple([rows.message(row) for row in begun.later])
            return TurnStarted(begun.turn_id, begun.user_message, rows.history(begun.history), later)
        except BaseException:
            await self.end_turn(scope, id, claim.owner)
            raise

    async def end_turn(self, scope: Scope, id: str, owner: str) -> None:
        values = {"id": id, "owner": owner}
        await self._engine.write(scope, partial(_only, "turn_release", values))

    async def extend_turn(self, scope: Scope, id: str, owner: str, until: float) -> None:
        values = {"id": id, "owner": owner, "until": int(until * 1_000_000)}
        await self._engine.write(scope, partial(_only, "turn_extend", values))

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
        return await self._engine.write(scope, partial(_summarize, id, values, to_micros(now)))

    async def everyones(
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
        return await self._engine.read(None, partial(_everyones, values))


Encoded = list[list[dict[str, Any]]]


def _everyones(values: dict[str, Any]) -> Operation[list[tuple[Scope, str]]]:
    found = yield "platform_conversations", values
    return [(Scope(row[0], row[1], row[2]), row[3]) for row in found]


def _conversation_values(conversation: Conversation) -> dict[str, Any]:
    after = conversation.close_after
    return {
        "id": conversation.id,
        "namespace": conversation.namespace,
        "title": conversation.title,
        "session_id": conversation.session_id,
        "metadata": rows.to_json(dict(conversation.metadata)),
        "close_after": None if after is None else after // timedelta(microseconds=1),
        "now": to_micros(conversation.created_at),
    }


def _in_session(session: dict[str, str | None]) -> Operation[Conversation | None]:
    found = yield "conversation_in_session", session
    return rows.conversation(found[0]) if found else None


def _find_or_create(
    scope: Scope, session: dict[str, str | None], values: dict[str, Any]
) -> Operation[Conversation | None]:
    yield (
        "platform_mark_lock",
        {"name": rows.to_json(["session", scope.tenant_id, scope.app_id, scope.user_id, *session.values()])},
    )
    found = yield from _in_session(session)
    if found is None:
        yield from _create(values)
    return found


def _due(now: int) -> Operation[list[str]]:
    found = yield "conversations_due", {"now": now}
    return [row[0] for row in found]


def _create(values: dict[str, Any]) -> Operation[None]:
    yield "conversation_create", values
    data = {"namespace": values["namespace"]}
    yield _event("conversation.created", values["id"], data, values["now"])


def _get(id: str) -> Operation[Conversation | None]:
    found = yield "conversation_get", {"id": id}
    return rows.conversation(found[0]) if found else None


def _list(name: str, values: dict[str, Any]) -> Operation[list[Conversation]]:
    found = yield name, values
    return [rows.conversation(row) for row in found]


def _close(id: str, now: int) -> Operation[Conversation]:
    closed = yield from _close_idle(id, now, FOREVER, FOREVER)
    if closed is None:
        closed = yield from _get(id)
    if closed is None:
        raise NotFoundError("conversation", id)
    return closed


def _close_idle(id: str, now: int, idle_since: int | None, claims_before: int) -> Operation[Conversation | None]:
    values = {"id": id, "now": now, "idle_since": idle_since, "claims_before": claims_before}
    found = yield "conversation_close", values
    if not found:
        return None
    closed = rows.conversation(found[0])
    data = {"namespace": closed.namespace, "last_seq": closed.last_seq, "turns": closed.turns}
    yield _event("conversation.closed", id, data, now)
    return closed


def _stale(
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


@dataclass(slots=True)
class _Head:
    """The part of a conversation's row that its messages move."""

    id: str
    status: str
    last_seq: int
    turns: int
    summarized_turns: int
    turn_id: str | None
    running_turn: str | None
    running_owner: str | None
    running_until: int | None


def _locked(id: str) -> Operation[_Head]:
    """The head, which nobody else can move until the transaction ends."""
    found = yield "conversation_lock", {"id": id}
    if not found:
        raise NotFoundError("conversation", id)
    return _Head(id, *found[0])


def _written(head: _Head, now: int) -> Operation[None]:
    yield (
        "conversation_write",
        {
            "id": head.id,
            "last_seq": head.last_seq,
            "turns": head.turns,
            "turn_id": head.turn_id,
            "running_turn": head.running_turn,
            "running_owner": head.running_owner,
            "running_until": head.running_until,
            "now": now,
        },
    )


def _append(
    id: str, turns: Sequence[TurnDraft], encoded: Encoded, now: int, release: str | None
) -> Operation[Appended]:
    head = yield from _locked(id)
    before = head.last_seq
    stored = yield from _appended(head, turns, encoded, now)
    if release is not None and head.running_owner == release:
        head.running_turn = head.running_owner = head.running_until = None
    if head.last_seq != before or release is not None:
        yield from _written(head, now)
    if head.last_seq != before and head.status != "open":
        yield _event("conversation.continued", id, {"last_seq": head.last_seq}, now)
    return Appended(tuple(stored), head.turns, head.summarized_turns)


def _appended(head: _Head, turns: Sequence[TurnDraft], encoded: Encoded, now: int) -> Operation[list[StoredMessage]]:
    """Insert the messages and their events, and move the head; it is for the caller to write it."""
    stored: list[StoredMessage] = []
    for turn, values in zip(turns, encoded, strict=True):
        known = yield from _already_stored(head.id, turn)
        turn_id, starts = turn.turn_id, turn.starts
        if known:
            turn_id, starts = next(reversed(known.values())).turn_id, False
        elif turn.joins and head.turn_id is not None:
            turn_id = head.turn_id
        if any(draft.idempotency_key not in known for draft in turn.messages):
            # A turn that was running when the conversation was closed may still finish: its tools have run.
            if head.status != "open" and (turn.joins or turn.turn_id != head.running_turn):
                raise ConversationClosedError(head.id)
            head.turns += 1 if starts or head.turn_id is None else 0
            head.turn_id = turn_id
        for draft, row in zip(turn.messages, values, strict=True):
            if draft.idempotency_key in known:
                stored.append(known[draft.idempotency_key])
                continue
            seq = head.last_seq = head.last_seq + 1
            yield "message_insert", {**row, "conversation_id": head.id, "seq": seq, "turn_id": turn_id}
            data = APPENDED % (draft.id, seq, draft.role, turn_id, draft.visibility)
            yield "event_insert", {"type": "message.appended", "subject_id": head.id, "data": data, "now": now}
            stored.append(rows.placed(draft, head.id, seq, turn_id))
            if draft.idempotency_key is not None:
                known[draft.idempotency_key] = stored[-1]
    return stored


def _already_stored(id: str, turn: TurnDraft) -> Operation[dict[str | None, StoredMessage]]:
    """The messages whose idempotency key the conversation holds."""
    known: dict[str | None, StoredMessage] = {}
    for draft in turn.messages:
        key = draft.idempotency_key
        if key is not None:
            found = yield "message_by_key", {"conversation_id": id, "idempotency_key": key}
            if found:
                known[key] = rows.message(found[0])
    return known


def _message(id: str) -> Operation[StoredMessage | None]:
    found = yield "message_get", {"id": id}
    return rows.message(found[0]) if found else None


def _messages(id: str, values: dict[str, Any], from_start: bool) -> Operation[list[StoredMessage]]:
    found = yield "messages_after" if from_start else "messages_before", values
    if not found and not (yield "conversation_get", {"id": id}):
        raise NotFoundError("conversation", id)
    messages = [rows.message(row) for row in found]
    return messages if from_start else messages[::-1]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A turn that was begun. Its history is read into values where that keeps no other writer waiting."""

    turn_id: str
    user_message: StoredMessage | None
    history: list[Any]
    later: list[Any]


def _begin_turn(
    id: str, claim: TurnClaim, draft: MessageDraft | None, encoded: Encoded, tail_limit: int, now: int
) -> Operation[_Begun | TurnBusy]:
    head = yield from _locked(id)
    if head.status != "open" and draft is not None:
        raise ConversationClosedError(id)
    if head.running_owner not in (None, claim.evict) and (head.running_until or 0) > claim.now * 1_000_000:
        return TurnBusy(head.running_turn or "", head.running_owner or "")
    turn_id, user_message, before = claim.turn_id, None, FOREVER
    if draft is not None:
        turn = TurnDraft(claim.turn_id, [draft], starts=True)
        [user_message] = yield from _appended(head, [turn], encoded, now)
        turn_id, before = user_message.turn_id, user_message.seq + 1
    history = yield "history_before", {"conversation_id": id, "before": before, "limit": tail_limit}
    later: list[Any] = []
    if user_message is not None and draft is not None and user_message.id != draft.id:
        resumed = {"conversation_id": id, "after": user_message.seq, "before": FOREVER, "limit": RESUMED_LIMIT}
        later = yield "messages_after", {**resumed, "internal": 1, "hidden": 0}
    if user_message is None and history:
        turn_id = history[0][3]
    head.running_turn, head.running_owner, head.running_until = turn_id, claim.owner, int(claim.until * 1_000_000)
    yield from _written(head, now)
    return _Begun(turn_id, user_message, history, later)


def _summarize(id: str, values: dict[str, Any], now: int) -> Operation[Conversation | None]:
    found = yield "conversation_summarize", values
    if not found:
        return None
    data = {"rolling_summary_until_seq": values["until_seq"]}
    yield _event("conversation.summarized", id, data, now)
    return rows.conversation(found[0])


def _only(name: str, values: dict[str, Any]) -> Operation[None]:
    yield name, values


def _event(type: str, subject_id: str, data: dict[str, Any], now: int) -> tuple[str, dict[str, Any]]:
    return "event_insert", {"type": type, "subject_id": subject_id, "data": rows.to_json(data), "now": now}
