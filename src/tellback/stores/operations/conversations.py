"""The conversation log in SQL, and agents' sessions, whose messages are stored in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from tellback.errors import ConversationClosedError, NotFoundError, SessionConflictError, TurnConflictError
from tellback.stores import rows
from tellback.stores.engine import (
    EVENT_STATEMENT,
    UNBOUNDED,
    Operation,
    StorePart,
    event_statement,
    reads,
    reads_briefly,
    writes,
)
from tellback.stores.values import AppendResult, SessionTurn, TurnBusy, TurnClaim, TurnDraft, TurnStarted
from tellback.types.access import Scope
from tellback.types.conversations import (
    Conversation,
    MessageData,
    MessageDraft,
    SessionData,
    SessionStatus,
    StoredMessage,
)
from tellback.types.ids import new_id, next_id, now_micros, to_micros
from tellback.types.jsontext import dump_stored_json

APPENDED_DATA = '{"message_id":"%s","seq":%d,"role":"%s","turn_id":"%s","visibility":"%s"}'
"""The data of `message.appended`. All values are ids or fixed words, so this hot path needs no JSON encoder."""

RESUMED_LIMIT = 1_000
"""How many messages of a turn are read when it is run again."""

STALE_BATCH = 200

PAGE_SIZE = 200
"""How many log messages are read at a time for a session. Some of them are not visible to users."""

EncodedTurns = list[list[dict[str, Any]]]


def insert_session(values: dict[str, Any]) -> Operation[bool]:
    """Insert a session. The user's open conversations with its id, and all later ones, belong to it."""
    conversations = yield "conversations_of_session", {"session_id": values["id"], "since": ""}
    since = ""
    for row in conversations:
        if row["status"] == "open":
            break
        since = row["id"]
    return bool((yield "session_insert", {**values, "since": since}))


def save_session(session: SessionData, messages: Sequence[MessageData]) -> Operation[Any]:
    """Store a session after a turn, and count its messages. Return its row."""
    values = rows.session_values(session)
    counts = {
        "message_count": len(messages),
        "last_message_at": to_micros(messages[-1].created_at) if messages else None,
    }
    saved = yield "session_save", {**values, **counts}
    if not saved and session.version == 1 and (yield from insert_session({**values, **counts})):
        saved = yield "session_get", {"id": session.id}
    if not saved:
        stored = yield "session_get", {"id": session.id}
        if not stored and session.version == 1:  # not inserted: another user has this id
            raise NotFoundError("session", session.id, "Another user has this id.")
        version = rows.SESSION.read(stored[0]).version if stored else 0
        raise SessionConflictError(session.id, session.version - 1, version)
    return saved[0]


@dataclass(slots=True)
class _TurnState:
    """The columns of a conversation's row that turns change: counters, and the claim of the running turn."""

    id: str
    status: str
    last_seq: int
    turns: int
    summarized_turns: int
    turn_id: str | None
    running_turn: str | None
    running_claim_id: str | None
    running_until: int | None


_TURN_STATE = rows.RowReader(_TurnState)


def _lock_turn_state(id: str) -> Operation[_TurnState]:
    """Lock a conversation's row until the transaction ends, and read the columns that turns change."""
    found = yield "conversation_lock", {"id": id}
    if not found:
        raise NotFoundError("conversation", id)
    return _TURN_STATE.read(found[0])


def append_turns(
    id: str,
    turns: Sequence[TurnDraft],
    encoded: EncodedTurns,
    now: int,
    release_claim_id: str | None = None,
    required_claim_id: str | None = None,
    session: SessionTurn | None = None,
) -> Operation[AppendResult]:
    """Append turns' messages. With `required_claim_id`, only if the turn of that claim is running."""
    if session is not None:  # lock the session first, as every writer does, to avoid deadlocks
        yield from save_session(session.session, session.messages)
    state = yield from _lock_turn_state(id)
    if required_claim_id is not None and state.running_claim_id != required_claim_id:
        raise TurnConflictError(id, state.running_turn or "", 0)
    before = state.last_seq
    stored = yield from _insert_messages(state, turns, encoded, now)
    if release_claim_id is not None and state.running_claim_id == release_claim_id:
        state.running_turn = state.running_claim_id = state.running_until = None
    if state.last_seq != before or release_claim_id is not None:
        yield "conversation_write", rows.row_values(state, now=now)
    if state.last_seq != before and state.status != "open":
        yield event_statement("conversation.continued", id, {"last_seq": state.last_seq}, now)
    return AppendResult(tuple(stored), state.turns, state.summarized_turns)


def _insert_messages(
    state: _TurnState, turns: Sequence[TurnDraft], encoded: EncodedTurns, now: int
) -> Operation[list[StoredMessage]]:
    """Insert the messages and their events, and update `state`, which the caller writes."""
    stored: list[StoredMessage] = []
    for turn, values in zip(turns, encoded, strict=True):
        by_key = yield from _find_by_idempotency_key(state.id, turn)
        turn_id, starts = turn.turn_id, turn.starts
        if by_key:
            turn_id, starts = next(reversed(by_key.values())).turn_id, False
        elif turn.joins and state.turn_id is not None:
            turn_id = state.turn_id
        if any(draft.idempotency_key not in by_key for draft in turn.messages):
            # A turn that was running when the conversation was closed may still finish: its tools have already run.
            if state.status != "open" and (turn.joins or turn.turn_id != state.running_turn):
                raise ConversationClosedError(state.id)
            state.turns += 1 if starts or state.turn_id is None else 0
            state.turn_id = turn_id
        for draft, row in zip(turn.messages, values, strict=True):
            if draft.idempotency_key in by_key:
                stored.append(by_key[draft.idempotency_key])
                continue
            seq = state.last_seq = state.last_seq + 1
            place = {"conversation_id": state.id, "seq": seq, "turn_id": turn_id}
            yield "message_insert", {**row, **place}
            data = APPENDED_DATA % (draft.id, seq, draft.role, turn_id, draft.visibility)
            yield EVENT_STATEMENT, {"type": "message.appended", "subject_id": state.id, "data": data, "now": now}
            stored.append(rows.value_from_draft(StoredMessage, draft, **place))
            if draft.idempotency_key is not None:
                by_key[draft.idempotency_key] = stored[-1]
    return stored


def _find_by_idempotency_key(id: str, turn: TurnDraft) -> Operation[dict[str | None, StoredMessage]]:
    """Return the conversation's messages with the drafts' idempotency keys, by key."""
    by_key: dict[str | None, StoredMessage] = {}
    for draft in turn.messages:
        key = draft.idempotency_key
        if key is not None:
            found = yield "message_by_idempotency_key", {"conversation_id": id, "idempotency_key": key}
            if found:
                by_key[key] = rows.MESSAGE.read(found[0])
    return by_key


@dataclass(frozen=True, slots=True)
class StartedTurnRows:
    """The rows of a started turn. They are decoded after the transaction, so that other writers do not wait."""

    turn_id: str
    user_message: StoredMessage | None
    history_rows: list[Any]
    later_rows: list[Any]


def claim_turn(
    id: str, claim: TurnClaim, draft: MessageDraft | None, encoded: EncodedTurns, tail_limit: int, now: int
) -> Operation[StartedTurnRows | TurnBusy]:
    """Claim the conversation, append the user's message and read the latest messages."""
    state = yield from _lock_turn_state(id)
    if state.status != "open" and draft is not None:
        raise ConversationClosedError(id)
    if state.running_claim_id not in (None, claim.evict) and (state.running_until or 0) > claim.now * 1_000_000:
        return TurnBusy(state.running_turn or "", state.running_claim_id or "")
    turn_id, user_message, before = claim.turn_id, None, UNBOUNDED
    if draft is not None:
        turn = TurnDraft(claim.turn_id, [draft], starts=True)
        [user_message] = yield from _insert_messages(state, [turn], encoded, now)
        turn_id, before = user_message.turn_id, user_message.seq + 1
    history = yield "history_before", {"conversation_id": id, "before": before, "limit": tail_limit}
    later: list[Any] = []
    if user_message is not None and draft is not None and user_message.id != draft.id:
        resumed_range = {"conversation_id": id, "after": user_message.seq, "before": UNBOUNDED, "limit": RESUMED_LIMIT}
        later = yield "messages_after", {**resumed_range, "internal": 1, "hidden": 0}
    if user_message is None and history:
        turn_id = history[0]["turn_id"]
    state.running_turn, state.running_claim_id = turn_id, claim.claim_id
    state.running_until = int(claim.until * 1_000_000)
    yield "conversation_write", rows.row_values(state, now=now)
    return StartedTurnRows(turn_id, user_message, history, later)


class ConversationLog(StorePart):
    """Conversations and their messages: append-only, in scope. Each change writes its event in the same transaction.

    - `create` stores a conversation (open, empty); its id must be new.
    - `find_in_session` returns the newest open conversation of a namespace and session id, or None. `find_or_create`
      returns it or creates one; of several concurrent calls, only one creates. `list_due` returns the ids of a user's
      open conversations whose `close_after` has passed.
    - `get` returns None for an unknown id. `list_conversations` returns the newest first, starting below the id
      `before`.
    - `close` closes an open conversation and writes one event `conversation.closed`. Closing again changes nothing and
      returns the conversation. `close_stale` closes conversations without a change since `idle_since` and without a
      running turn, for one scope or, with None, for all. Without `idle_since` it closes those that are due. It returns
      those it closed.
    - `append` stores all drafts or none, in order, at consecutive `seq`s from 1 on, even with concurrent writers. It
      writes one event `message.appended` for each. A draft whose idempotency key the conversation already has is not
      stored again: the stored message replaces it, and the other drafts join its turn. With `release_claim_id`, that
      claim ends in the same transaction. With `required_claim_id`, it stores messages only if the turn of that claim is
      running. With `session`, it also saves the state of the agent's session, which owns these messages
      (`AgentSessions.save`). Raises `NotFoundError`, `ConversationClosedError`, `TurnConflictError`,
      `SessionConflictError`.
    - `messages` returns messages between the seqs `after` and `before` (exclusive), oldest first: the last `limit` of
      them, or the first ones with `from_start`. Raises `NotFoundError`.
    - `begin_turn` claims the conversation, appends the user's message and reads the latest messages, all in one
      transaction. If another turn is running, it returns `TurnBusy` and changes nothing. Without a message it resumes
      the last turn, even in a closed conversation. It takes over a claim that has expired or has the id `evict`.
      `end_turn` releases a claim and `extend_turn` prolongs it, if it is still held.
    - `list_across_users` returns conversations across users in the order of ids, after an id; with `unsummarized`, only
      those that have at least that many turns after their summary.
    - `save_summary` replaces the rolling summary if it still ends at `expected_seq`, and otherwise returns None.
    """

    @writes
    def create(self, scope: Scope, conversation: Conversation) -> Operation[Conversation]:
        return create_conversation(conversation)

    @reads_briefly
    def find_in_session(self, scope: Scope, namespace: str, session_id: str | None) -> Operation[Conversation | None]:
        return _find_in_session(namespace, session_id)

    async def find_or_create(self, scope: Scope, conversation: Conversation) -> Conversation:
        found = await self.find_in_session(scope, conversation.namespace, conversation.session_id)
        if found is None:
            found = await self._find_or_create(scope, conversation)
        return found

    @writes
    def _find_or_create(self, scope: Scope, conversation: Conversation) -> Operation[Conversation]:
        session = (conversation.namespace, conversation.session_id)
        lock_name = dump_stored_json(["session", scope.tenant_id, scope.app_id, scope.user_id, *session])
        yield "platform_named_lock", {"name": lock_name}
        found = yield from _find_in_session(*session)
        if found is None:
            found = yield from create_conversation(conversation)
        return found

    @reads_briefly
    def list_due(self, scope: Scope, *, now: datetime) -> Operation[list[str]]:
        found = yield "conversations_due", {"now": to_micros(now)}
        return [row["id"] for row in found]

    @reads_briefly
    def get(self, scope: Scope, id: str) -> Operation[Conversation | None]:
        return _get_conversation(id)

    @reads
    def list_conversations(
        self, scope: Scope, *, namespace: str | None, status: str | None, limit: int | None, before: str | None
    ) -> Operation[list[Conversation]]:
        values = {"status": status, "before": before, "limit": UNBOUNDED if limit is None else limit}
        name = "conversation_list"
        if namespace is not None:
            name, values["namespace"] = "conversation_list_in_namespace", namespace
        return rows.CONVERSATION.read_all((yield name, values))

    @writes
    def close(self, scope: Scope, id: str, *, now: datetime) -> Operation[Conversation]:
        return close_conversation(id, to_micros(now))

    async def close_stale(
        self, scope: Scope | None, *, idle_since: datetime | None, now: datetime
    ) -> list[Conversation]:
        filters = {
            "tenant": None if scope is None else scope.tenant_id,
            "app": None if scope is None else scope.app_id,
            "user": None if scope is None else scope.user_id,
            "idle_since": None if idle_since is None else to_micros(idle_since),
            "now": to_micros(now),
        }
        closed: list[Conversation] = []
        after = ""
        while True:
            # Claims use the machine's clock, not one that a test may have set.
            values = {**filters, "claims_before": now_micros(), "after": after, "limit": STALE_BATCH}
            stale = await self._engine.read(None, partial(_list_stale, values))
            if not stale:
                return closed
            for conversation_scope, id in stale:
                operation = partial(_close_if_idle, {**values, "id": id})
                conversation = await self._engine.write(conversation_scope, operation)
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
        release_claim_id: str | None = None,
        required_claim_id: str | None = None,
        session: SessionTurn | None = None,
    ) -> AppendResult:
        encoded = [[rows.draft_values(draft) for draft in turn.messages] for turn in turns]
        operation = partial(
            append_turns, id, turns, encoded, to_micros(now), release_claim_id, required_claim_id, session
        )
        return await self._engine.write(scope, operation)

    @reads
    def message(self, scope: Scope, id: str) -> Operation[StoredMessage | None]:
        return rows.MESSAGE.read_first((yield "message_get", {"id": id}))

    @reads
    def messages(
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
    ) -> Operation[list[StoredMessage]]:
        values = {
            "conversation_id": id,
            "after": after,
            "before": UNBOUNDED if before is None else before,
            "limit": UNBOUNDED if limit is None else limit,
            "internal": int(include_internal),
            "hidden": int(include_hidden),
        }
        found = yield "messages_after" if from_start else "messages_before", values
        if not found and not (yield "conversation_get", {"id": id}):
            raise NotFoundError("conversation", id)
        messages = rows.MESSAGE.read_all(found)
        return messages if from_start else messages[::-1]

    async def begin_turn(
        self, scope: Scope, id: str, claim: TurnClaim, draft: MessageDraft | None, *, tail_limit: int, now: datetime
    ) -> TurnStarted | TurnBusy:
        await self._engine.announce_instance()
        encoded = [] if draft is None else [[rows.draft_values(draft)]]
        started = await self._engine.write(
            scope, partial(claim_turn, id, claim, draft, encoded, tail_limit, to_micros(now))
        )
        if isinstance(started, TurnBusy):
            return started
        try:
            later = tuple(rows.MESSAGE.read_all(started.later_rows))
            return TurnStarted(
                started.turn_id, started.user_message, rows.history_from_rows(started.history_rows), later
            )
        except BaseException:
            await self.end_turn(scope, id, claim.claim_id)
            raise

    @writes
    def end_turn(self, scope: Scope, id: str, claim_id: str) -> Operation[None]:
        yield "turn_release", {"id": id, "claim_id": claim_id}

    @writes
    def extend_turn(self, scope: Scope, id: str, claim_id: str, until: float) -> Operation[None]:
        yield "turn_extend", {"id": id, "claim_id": claim_id, "until": int(until * 1_000_000)}

    @writes
    def save_summary(
        self, scope: Scope, id: str, summary: str, *, until_seq: int, turns: int, expected_seq: int, now: datetime
    ) -> Operation[Conversation | None]:
        values = {"id": id, "summary": summary, "until_seq": until_seq, "turns": turns, "expected_seq": expected_seq}
        found = yield "conversation_summarize", values
        if found:
            data = {"rolling_summary_until_seq": until_seq}
            yield event_statement("conversation.summarized", id, data, to_micros(now))
        return rows.CONVERSATION.read_first(found)

    @reads
    def list_across_users(
        self,
        *,
        tenant_id: str | None,
        app_id: str | None,
        user_id: str | None,
        namespace: str | None,
        after: str,
        limit: int,
        unsummarized: int | None = None,
    ) -> Operation[list[tuple[Scope, str]]]:
        owner = {"tenant": tenant_id, "app": app_id, "user": user_id}
        filters = {"namespace": namespace, "after": after, "limit": limit, "unsummarized": unsummarized}
        return rows.scoped_ids((yield "platform_conversations", {**owner, **filters}))


def _find_in_session(namespace: str, session_id: str | None) -> Operation[Conversation | None]:
    found = yield "conversation_in_session", {"namespace": namespace, "session_id": session_id}
    return rows.CONVERSATION.read_first(found)


def create_conversation(conversation: Conversation) -> Operation[Conversation]:
    """Insert a conversation, and write its event."""
    now = to_micros(conversation.created_at)
    yield "conversation_create", rows.row_values(conversation, now=now)
    yield event_statement("conversation.created", conversation.id, {"namespace": conversation.namespace}, now)
    return conversation


def _get_conversation(id: str) -> Operation[Conversation | None]:
    found = yield "conversation_get", {"id": id}
    return rows.CONVERSATION.read_first(found)


def close_conversation(id: str, now: int) -> Operation[Conversation]:
    """Close a conversation. Return a closed one unchanged."""
    closed = yield from _close_if_idle({"id": id, "now": now, "idle_since": UNBOUNDED, "claims_before": UNBOUNDED})
    if closed is None:
        closed = yield from _get_conversation(id)
    if closed is None:
        raise NotFoundError("conversation", id)
    return closed


def _close_if_idle(values: dict[str, Any]) -> Operation[Conversation | None]:
    closed = rows.CONVERSATION.read_first((yield "conversation_close", values))
    if closed is not None:
        data = {"namespace": closed.namespace, "last_seq": closed.last_seq, "turns": closed.turns}
        yield event_statement("conversation.closed", closed.id, data, values["now"])
    return closed


def _list_stale(values: dict[str, Any]) -> Operation[list[tuple[Scope, str]]]:
    name = "platform_due_conversations" if values["idle_since"] is None else "platform_stale_conversations"
    return rows.scoped_ids((yield name, values))


class AgentSessions(StorePart):
    """Agents' sessions. Their messages are in the log: in the user's conversations with that `session_id`.

    - `find_scope` returns the scope of the session's user, or None. Session ids are unique in an app.
    - `create`, `get`, `find_active`, `list_sessions`, `set_status` work like those of `SessionRepository`. Completing
      or abandoning a session also closes its open conversations, in the same transaction. `delete` deletes the
      session's state and closes them; their messages stay in the log without a session.
    - `save` works like `PersistenceAdapter.save`: the session and its messages in one transaction. They are appended to
      the session's open conversation, or to `conversation` if there is none. An id of another user raises
      `NotFoundError`. `add_messages` appends without a turn.
    - `messages` returns the messages that users see, in the order of the log, and those added by `add_messages`.
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
    """Convert the log messages that users see to their session's messages."""
    messages = [
        rows.session_message_from_stored(each, session_id, scope.user_id, conversation_number) for each in stored
    ]
    return [each for each in messages if each is not None]


def _append_to_log(
    session: SessionData, since: str, messages: Sequence[MessageData], conversation: Conversation, now: int
) -> Operation[AppendResult]:
    """Append messages to the log. The session's row is locked, so no other call opens a conversation for it now."""
    id = yield from _lock_open_conversation(session.id, since, conversation.namespace)
    if id is None:
        conversations = yield "conversations_of_session", {"session_id": session.id, "since": ""}
        # Another machine's clock may be ahead: later messages must still have greater ids.
        id = max(conversation.id, next_id(max([since, *(row["id"] for row in conversations)])))
        yield from create_conversation(replace(conversation, id=id))
    drafts = [rows.draft_from_session_message(each, session.agent_name) for each in messages]
    starts = any(each.role == "user" for each in messages)
    turn = TurnDraft(new_id("turn"), drafts, starts=starts, joins=not starts)
    encoded = [[rows.draft_values(each) for each in drafts]]
    return (yield from append_turns(id, [turn], encoded, now))


def _lock_open_conversation(session_id: str, since: str, namespace: str) -> Operation[str | None]:
    """Lock and return the session's open conversation. Prefer one in its own namespace."""
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
