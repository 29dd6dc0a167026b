"""Operations on the end of a conversation: appending messages, and beginning turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tellback.errors import ConversationClosedError, NotFoundError, TurnConflictError
from tellback.stores import rows
from tellback.stores.engine import UNBOUNDED, Operation
from tellback.stores.ports import AppendResult, TurnBusy, TurnClaim, TurnDraft
from tellback.stores.ports.sessions import SessionTurn
from tellback.stores.session_saving import save_session
from tellback.types.conversations import MessageDraft, StoredMessage

APPENDED_DATA = '{"message_id":"%s","seq":%d,"role":"%s","turn_id":"%s","visibility":"%s"}'
"""The data of `message.appended`: ids and fixed words only, so that the hottest path needs no encoder."""
RESUMED_LIMIT = 1_000
"""How much of a turn is looked at when it is run again."""

EncodedTurns = list[list[dict[str, Any]]]


@dataclass(slots=True)
class _ConversationHead:
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


def _lock_head(id: str) -> Operation[_ConversationHead]:
    """The head, which nobody else can move until the transaction ends."""
    found = yield "conversation_lock", {"id": id}
    if not found:
        raise NotFoundError("conversation", id)
    return _ConversationHead(id, *found[0])


def _write_head(head: _ConversationHead, now: int) -> Operation[None]:
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


def append_turns(
    id: str,
    turns: Sequence[TurnDraft],
    encoded: EncodedTurns,
    now: int,
    release_owner: str | None = None,
    required_owner: str | None = None,
    session: SessionTurn | None = None,
) -> Operation[AppendResult]:
    """Append turns' messages; with `held_by`, only while that owner's turn runs."""
    if session is not None:  # first, as whoever adds to a session does: nobody waits for the other then
        yield from save_session(session.session, session.messages)
    head = yield from _lock_head(id)
    if required_owner is not None and head.running_owner != required_owner:
        raise TurnConflictError(id, head.running_turn or "", 0)
    before = head.last_seq
    stored = yield from _insert_messages(head, turns, encoded, now)
    if release_owner is not None and head.running_owner == release_owner:
        head.running_turn = head.running_owner = head.running_until = None
    if head.last_seq != before or release_owner is not None:
        yield from _write_head(head, now)
    if head.last_seq != before and head.status != "open":
        yield event_statement("conversation.continued", id, {"last_seq": head.last_seq}, now)
    return AppendResult(tuple(stored), head.turns, head.summarized_turns)


def _insert_messages(
    head: _ConversationHead, turns: Sequence[TurnDraft], encoded: EncodedTurns, now: int
) -> Operation[list[StoredMessage]]:
    """Insert the messages and their events, and move the head; it is for the caller to write it."""
    stored: list[StoredMessage] = []
    for turn, values in zip(turns, encoded, strict=True):
        by_key = yield from _find_by_idempotency_key(head.id, turn)
        turn_id, starts = turn.turn_id, turn.starts
        if by_key:
            turn_id, starts = next(reversed(by_key.values())).turn_id, False
        elif turn.joins and head.turn_id is not None:
            turn_id = head.turn_id
        if any(draft.idempotency_key not in by_key for draft in turn.messages):
            # A turn that was running when the conversation was closed may still finish: its tools have run.
            if head.status != "open" and (turn.joins or turn.turn_id != head.running_turn):
                raise ConversationClosedError(head.id)
            head.turns += 1 if starts or head.turn_id is None else 0
            head.turn_id = turn_id
        for draft, row in zip(turn.messages, values, strict=True):
            if draft.idempotency_key in by_key:
                stored.append(by_key[draft.idempotency_key])
                continue
            seq = head.last_seq = head.last_seq + 1
            yield "message_insert", {**row, "conversation_id": head.id, "seq": seq, "turn_id": turn_id}
            data = APPENDED_DATA % (draft.id, seq, draft.role, turn_id, draft.visibility)
            yield "event_insert", {"type": "message.appended", "subject_id": head.id, "data": data, "now": now}
            stored.append(rows.stored_message_from_draft(draft, head.id, seq, turn_id))
            if draft.idempotency_key is not None:
                by_key[draft.idempotency_key] = stored[-1]
    return stored


def _find_by_idempotency_key(id: str, turn: TurnDraft) -> Operation[dict[str | None, StoredMessage]]:
    """The messages whose idempotency key the conversation holds."""
    by_key: dict[str | None, StoredMessage] = {}
    for draft in turn.messages:
        key = draft.idempotency_key
        if key is not None:
            found = yield "message_by_key", {"conversation_id": id, "idempotency_key": key}
            if found:
                by_key[key] = rows.message_from_row(found[0])
    return by_key


@dataclass(frozen=True, slots=True)
class StartedTurnRows:
    """A turn that was begun. Its history is read into values where that keeps no other writer waiting."""

    turn_id: str
    user_message: StoredMessage | None
    history_rows: list[Any]
    later_rows: list[Any]


def claim_turn(
    id: str, claim: TurnClaim, draft: MessageDraft | None, encoded: EncodedTurns, tail_limit: int, now: int
) -> Operation[StartedTurnRows | TurnBusy]:
    """Claim the conversation, append the user\'s message and read the tail."""
    head = yield from _lock_head(id)
    if head.status != "open" and draft is not None:
        raise ConversationClosedError(id)
    if head.running_owner not in (None, claim.evict) and (head.running_until or 0) > claim.now * 1_000_000:
        return TurnBusy(head.running_turn or "", head.running_owner or "")
    turn_id, user_message, before = claim.turn_id, None, UNBOUNDED
    if draft is not None:
        turn = TurnDraft(claim.turn_id, [draft], starts=True)
        [user_message] = yield from _insert_messages(head, [turn], encoded, now)
        turn_id, before = user_message.turn_id, user_message.seq + 1
    history = yield "history_before", {"conversation_id": id, "before": before, "limit": tail_limit}
    later: list[Any] = []
    if user_message is not None and draft is not None and user_message.id != draft.id:
        resumed_range = {"conversation_id": id, "after": user_message.seq, "before": UNBOUNDED, "limit": RESUMED_LIMIT}
        later = yield "messages_after", {**resumed_range, "internal": 1, "hidden": 0}
    if user_message is None and history:
        turn_id = history[0][3]
    head.running_turn, head.running_owner, head.running_until = turn_id, claim.owner, int(claim.until * 1_000_000)
    yield from _write_head(head, now)
    return StartedTurnRows(turn_id, user_message, history, later)


def event_statement(type: str, subject_id: str, data: dict[str, Any], now: int) -> tuple[str, dict[str, Any]]:
    """The statement that tells of a change."""
    return "event_insert", {"type": type, "subject_id": subject_id, "data": rows.dump_stored_json(data), "now": now}
