"""Approvals that outlive a process: which calls wait for a person, and which were begun, as the log tells it.

Before an approved call runs, a hidden message says so. If the process ends before the call's result is stored, nobody
knows whether it took effect: whoever goes on does not run it again, and the model is told.
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

APPROVED = "approved_calls"
LOOK_BACK = 100
"""How many messages a reply, the decisions on its calls and their results may take at the end of a log."""


def approval_note(calls: Sequence[ToolCall], now: datetime) -> MessageDraft:
    """The message that says that calls were approved and are about to run."""
    names = ", ".join(f"{call.name} ({call.id})" for call in calls)
    return MessageDraft(
        id=new_id("msg"),
        role="system",
        content=(TextBlock(f"Approved: {names}."),),
        created_at=now,
        visibility="hidden",
        metadata={APPROVED: [call.id for call in calls]},
    )


async def begun_calls(log: ConversationLog, scope: Scope, id: str) -> frozenset[str]:
    """The ids of calls near the end of the log that were approved and begun."""
    return _begun(await log.messages(scope, id, limit=LOOK_BACK, internal=True, hidden=True))


async def pending_calls(log: ConversationLog, scope: Scope, id: str) -> tuple[ToolCall, ...]:
    """The calls at the end of the log that have neither a result nor a decision."""
    stored = await log.messages(scope, id, limit=LOOK_BACK, internal=True, hidden=True)
    begun = _begun(stored)
    return tuple(call for call in open_calls(_shown(stored)) if call.id not in begun)


def _begun(stored: Sequence[StoredMessage]) -> frozenset[str]:
    notes = (message.metadata for message in stored if message.role == "system" and message.visibility == "hidden")
    return frozenset(id for note in notes if note for id in note.get(APPROVED, ()))


def _shown(stored: Sequence[StoredMessage]) -> list[Message]:
    return [message for kept in stored if kept.visibility != "hidden" for message in kept.messages]
