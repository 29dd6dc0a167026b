"""Approvals that outlive a process: which calls wait for a person, and which were begun, as the log tells it.

A hidden message says which calls a turn left waiting, and another, before approved calls run, which these are. If the
process ends before a call's result is stored, nobody knows whether it took effect: whoever goes on does not run it
again, and the model is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from recollect.chat.history import open_calls
from recollect.stores import ConversationLog
from recollect.types import Message, ToolCall
from recollect.types.blocks import TextBlock
from recollect.types.conversations import MessageDraft, StoredMessage
from recollect.types.ids import new_id
from recollect.types.scope import Scope

APPROVED, WAITING = "approved_calls", "waiting_calls"
LOOK_BACK = 100
"""How many messages a reply, the decisions on its calls and their results may take at the end of a log."""


def approval_note(kind: str, calls: Sequence[ToolCall], now: datetime) -> MessageDraft:
    """The message that says that calls wait, or that they were approved and are about to run."""
    names = ", ".join(f"{call.name} ({call.id})" for call in calls)
    return MessageDraft(
        id=new_id("msg"),
        role="system",
        content=(TextBlock(f"{'Approved' if kind == APPROVED else 'Waiting for approval'}: {names}."),),
        created_at=now,
        visibility="hidden",
        metadata={kind: [call.id for call in calls]},
    )


async def begun_calls(log: ConversationLog, scope: Scope, id: str) -> frozenset[str]:
    """The ids of calls near the end of the log that were approved and begun."""
    return _noted(APPROVED, await log.messages(scope, id, limit=LOOK_BACK, internal=True, hidden=True))


async def pending_calls(log: ConversationLog, scope: Scope, id: str) -> tuple[ToolCall, ...]:
    """The calls at the end of the log that were left waiting, and have neither a result nor a decision."""
    stored = await log.messages(scope, id, limit=LOOK_BACK, internal=True, hidden=True)
    undecided = _noted(WAITING, stored) - _noted(APPROVED, stored)
    return tuple(call for call in open_calls(_shown(stored)) if call.id in undecided)


def _noted(kind: str, stored: Sequence[StoredMessage]) -> frozenset[str]:
    notes = (message.metadata for message in stored if message.role == "system" and message.visibility == "hidden")
    return frozenset(id for note in notes if note for id in note.get(kind, ()))


def _shown(stored: Sequence[StoredMessage]) -> list[Message]:
    return [message for kept in stored if kept.visibility != "hidden" for message in kept.messages]
