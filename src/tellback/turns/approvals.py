"""Approvals that outlive a process: which tool calls wait for a decision, and which were started.

A hidden message lists the calls that a turn left pending, and another one is written before approved calls run. If the
process ends before a call's result is stored, nobody knows whether it took effect: the call is not run again, and the
model is told so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tellback.chat.history import pending_calls
from tellback.stores import ConversationLog
from tellback.types import Message, ToolCall
from tellback.types.access import Scope
from tellback.types.blocks import TextBlock
from tellback.types.conversations import MessageDraft
from tellback.types.ids import new_id

APPROVED, WAITING, SKILLS = "approved_calls", "waiting_calls", "open_skills"
APPROVAL_LOOKBACK = 500
"""How many messages a reply, the decisions on its calls and their results may take at the end of a log."""


def approval_note(kind: str, calls: Sequence[ToolCall], now: datetime, open_skills: Sequence[str] = ()) -> MessageDraft:
    """The message that says that calls wait (and which skills' tools they may be), or that they are about to run."""
    names = ", ".join(f"{call.name} ({call.id})" for call in calls)
    more: dict[str, Any] = {SKILLS: [*open_skills]} if open_skills else {}
    if kind == APPROVED:
        more["inputs"] = {call.id: dict(call.input) for call in calls}  # which may not be what the model asked for
    return MessageDraft(
        id=new_id("msg"),
        role="system",
        content=(TextBlock(f"{'Approved' if kind == APPROVED else 'Waiting for approval'}: {names}."),),
        created_at=now,
        visibility="hidden",
        metadata={kind: [call.id for call in calls], **more},
    )


@dataclass(frozen=True, slots=True)
class ApprovalState:
    """The end of a log, as far as approvals go: calls that wait, calls that were begun, whose turn it is."""

    waiting: tuple[ToolCall, ...]
    started: frozenset[str]
    message_id: str | None
    open_skills: tuple[str, ...] = ()


async def load_approval_state(log: ConversationLog, scope: Scope, id: str) -> ApprovalState:
    """What the end of the log says. A provider may use a call's id again: what was noted before is not meant then."""
    noted: dict[str, set[str]] = {APPROVED: set(), WAITING: set()}
    message_id, open_skills = None, ()
    messages: list[Message] = []
    for stored in await log.messages(scope, id, limit=APPROVAL_LOOKBACK, include_internal=True, include_hidden=True):
        if stored.visibility == "hidden":
            open_skills = (stored.metadata or {}).get(SKILLS, open_skills)
            for kind, calls in noted.items():
                calls.update((stored.metadata or {}).get(kind, ()) if stored.role == "system" else ())
            continue
        if stored.role == "user" and stored.visibility == "user":
            message_id = stored.id
        for message in stored.messages:
            settled = {call.id for call in message.tool_calls} or {message.tool_call_id or ""}
            for calls in noted.values():
                calls -= settled
            messages.append(message)
    waiting = [call for call in pending_calls(messages) if call.id in noted[WAITING] - noted[APPROVED]]
    return ApprovalState(tuple(waiting), frozenset(noted[APPROVED]), message_id, tuple(open_skills))
