"""The turn writer: stores each message of a running turn as soon as it is complete, and the state of approvals.

A hidden message lists the tool calls that a turn left pending. Another one is written before approved calls run. If the
process ends before the result of such a call is stored, its outcome is unknown: the call is not run again, and the
model receives a result that says so."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tellback.chat import LoopResult
from tellback.chat.history import pending_calls
from tellback.errors import ConfigurationError, ConversationClosedError, NotFoundError, SessionConflictError, StoreError
from tellback.runtime import Runtime
from tellback.stores import SESSION_NOTE, AppendResult, ConversationLog, SessionTurn, TurnDraft
from tellback.turns.claims import ConversationClaim
from tellback.turns.request import SessionSave, TurnRequest
from tellback.types import ChatReply, Message, ToolCall, ToolResult
from tellback.types.access import Scope
from tellback.types.blocks import TextBlock, ToolResultBlock, ToolUseBlock, blocks_text, message_blocks
from tellback.types.conversations import MessageDraft, StoredMessage, ToolInvocation, TurnProblem, TurnResult
from tellback.types.ids import new_id
from tellback.types.memory import WorkingContext

log = logging.getLogger("tellback.conversations")

APPROVED, WAITING, SKILLS = "approved_calls", "waiting_calls", "open_skills"
APPROVAL_LOOKBACK = 500
"""How many messages at the end of the log are searched for pending calls, decisions and results."""


_STATUS = {"approval": "approval", "max_iterations": "max_cycles", "max_tokens": "truncated"}


def approval_note(kind: str, calls: Sequence[ToolCall], now: datetime, open_skills: Sequence[str] = ()) -> MessageDraft:
    """Build the hidden message that lists calls as pending (with the open skills) or as about to run."""
    names = ", ".join(f"{call.name} ({call.id})" for call in calls)
    more: dict[str, Any] = {SKILLS: [*open_skills]} if open_skills else {}
    if kind == APPROVED:
        more["inputs"] = {call.id: dict(call.input) for call in calls}  # the approver may have changed them
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
    """The state of approvals at the end of a log: pending calls, calls that began, and the user's message."""

    waiting: tuple[ToolCall, ...]
    started: frozenset[str]
    message_id: str | None
    open_skills: tuple[str, ...] = ()


async def load_approval_state(conversation_log: ConversationLog, scope: Scope, id: str) -> ApprovalState:
    """Read the state of approvals from the end of the log.

    Providers may reuse the id of a call: older notes about that id do not apply to the new call.
    """
    noted: dict[str, set[str]] = {APPROVED: set(), WAITING: set()}
    message_id, open_skills = None, ()
    messages: list[Message] = []
    recent = await conversation_log.messages(
        scope, id, limit=APPROVAL_LOOKBACK, include_internal=True, include_hidden=True
    )
    for stored in recent:
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


class TurnWriter:
    """Stores the messages of a turn, each in its own transaction; the last one also releases the claim.

    With `tolerate_store_errors` the turn continues when the store fails: unsaved messages are stored in order with the
    model's next message. If that fails too, the turn's result contains the problem.
    """

    def __init__(
        self,
        runtime: Runtime | None,
        request: TurnRequest,
        claim: ConversationClaim | None,
        context: WorkingContext | None,
        event_payload: Mapping[str, Any],
    ) -> None:
        self._runtime = runtime
        self._request = request
        self._claim = claim
        self._context = context
        self.event_payload = event_payload
        self._stored: list[StoredMessage] = []
        self._unsaved: list[MessageDraft] = []
        self._write_lock = asyncio.Lock()
        self._store_failed = claim is None
        self._in_doubt = any(_is_in_doubt(problem.error) for problem in request.problems)
        started = None if claim is None else claim.started
        self._starts = started is None or (request.draft is not None and not request.store_user_message)
        self.turn_id = new_id("turn") if started is None or self._starts else started.turn_id
        self._session_message_id: str | None = None
        self.progress: AppendResult | None = None
        self.previous_answer: str | None = None
        if started is not None and started.user_message is not None:
            self._stored.append(started.user_message)
        elif started is None and request.draft is not None and request.store_user_message:
            self._unsaved.append(request.draft)

    async def write(self, message: Message, reply: ChatReply | None, last: bool) -> None:
        """Store a message. This is `on_message` of the loop."""
        if self._request.store_reply:
            await self._save(self._draft(message, reply), last)

    async def record_approved(self, calls: Sequence[ToolCall]) -> None:
        """Store a note before approved calls run. This is `on_approved` of the loop."""
        if self._request.store_reply and self._claim is not None:
            # If another process took over the turn, it may run these calls, and this process must not.
            await self._append([approval_note(APPROVED, calls, self._now())], last=False, require_claim=True)

    async def begin_call(self, call: ToolCall) -> bool:
        """Store a note that an approved call is about to run; return False if a note already exists."""
        id = self._request.conversation_id
        if self._claim is None or id is None:
            return True
        if call.id in (await load_approval_state(self._log, self._request.scope, id)).started:
            return False
        await self.record_approved([call])
        return True

    async def finish(self, loop_result: LoopResult, started_at: float) -> TurnResult:
        """Store a note about pending calls, store unsaved messages, and return the turn's result."""
        if loop_result.pending:
            if self._request.conversation_id is not None and self._request.store_reply:
                note = approval_note(WAITING, loop_result.pending, self._now(), loop_result.open_skills)
                await self._save(note, last=True)
            else:
                error = ConfigurationError("pending calls cannot be approved later: the turn is not stored")
                self._request.problems.append(TurnProblem("store_reply", error))
        await self.flush_unsaved(last=True)
        return self._build_result(loop_result, started_at)

    async def flush_unsaved(self, *, last: bool = False) -> None:
        """Try again to store the unsaved messages."""
        if self._unsaved and self._request.conversation_id is not None:
            async with self._write_lock:
                await self._flush(last)

    async def _save(self, draft: MessageDraft, last: bool) -> None:
        if not self._request.tolerate_store_errors:
            await self._append([draft], last)
            return
        async with self._write_lock:  # tool results arrive concurrently
            self._unsaved.append(draft)
            if self._request.conversation_id is None or (self._store_failed and draft.role != "assistant"):
                return  # the store failed: retry with the model's next message
            await self._flush(last)

    async def _flush(self, last: bool) -> None:
        try:
            await self._append(await self._unsaved_drafts(), last)
        except (StoreError, ConversationClosedError, NotFoundError) as error:  # closed or erased during the turn
            self._store_failed = True
            self._in_doubt = self._in_doubt or _is_in_doubt(error)
            self._request.problems.append(TurnProblem("store_reply", error))
            log.warning("The turn of %s continues without being stored", self._request.conversation_id, exc_info=error)
        except SessionConflictError:
            self._unsaved.clear()  # another turn changed the session: this turn is discarded
            raise
        else:
            self._store_failed = False
            self._unsaved.clear()

    async def _unsaved_drafts(self) -> list[MessageDraft]:
        """Return the drafts that are not stored. After a failed commit, check which ones were stored."""
        if not self._in_doubt:
            return [*self._unsaved]
        conversation_log, scope = self._log, self._request.scope
        stored = [await conversation_log.message(scope, draft.id) for draft in self._unsaved]
        missing = [draft for draft, found in zip(self._unsaved, stored, strict=True) if found is None]
        for found in filter(None, stored):
            self._stored.append(found)
            self.turn_id, self._starts = found.turn_id, False
            if found.id == self._session_message_id and self._session_save is not None:
                self._session_save.saved = True  # they are stored in one transaction
        self._unsaved, self._in_doubt = missing, False
        return missing

    async def _append(self, drafts: Sequence[MessageDraft], last: bool, *, require_claim: bool = False) -> None:
        if not drafts:
            return
        claim, id = self._claim, self._request.conversation_id
        assert id is not None
        session_save, turn = self._session_save if last else None, None
        if session_save is not None and not session_save.saved:
            messages: list[MessageDraft | StoredMessage] = [*self._stored, *drafts]
            replies = [message.content for message in messages if message.role == "assistant"]
            turn = session_save.after(blocks_text(replies[-1]) if replies else "", _find_invocations(messages))
            drafts, self._session_message_id = _with_session_tool_calls(drafts, turn), drafts[-1].id
        self.progress = await self._log.append(
            self._request.scope,
            id,
            [TurnDraft(self.turn_id, drafts, starts=self._starts)],
            now=self._now(),
            release_claim_id=claim.claim_id if last and claim is not None else None,
            required_claim_id=claim.claim_id if require_claim and claim is not None else None,
            session=turn,
        )
        if session_save is not None:
            session_save.saved = True
        self._starts = False
        self._stored.extend(self.progress.messages)
        if claim is not None:
            claim.released = claim.released or last

    def _draft(self, message: Message, reply: ChatReply | None) -> MessageDraft:
        usage = None if reply is None else reply.usage
        planner = self._request.planner
        metadata = self._request.reply_metadata if planner is None else planner.reply_metadata()
        return MessageDraft(
            id=new_id("msg"),
            role=message.role,
            content=message_blocks(message),
            created_at=self._now(),
            # The loop's request to correct an invalid answer is for the model only.
            visibility="internal" if message.role == "user" else "user",
            stop_reason=None if reply is None else reply.stop_reason,
            model=None if reply is None else (usage and usage.model) or self._request.options.model_name or None,
            provider=None if usage is None else usage.provider,
            usage=usage,
            trace_id=self._request.trace_id,
            meta=message.meta,
            metadata=metadata if message.role == "assistant" else None,
        )

    @property
    def _session_save(self) -> SessionSave | None:
        return None if self._request.planner is None else self._request.planner.session_save

    @property
    def _log(self) -> ConversationLog:
        assert self._runtime is not None, "a turn without a store stores nothing"
        return self._runtime.store.conversations

    def _now(self) -> datetime:
        assert self._runtime is not None, "a turn without a store stores nothing"
        return self._runtime.clock()

    def _user_message_id(self) -> str | None:
        """Return the client's id of the user's message, otherwise the id of the stored message."""
        first = self._stored[0] if self._stored else None
        if "message_id" not in self._request.event_payload and first is not None and first.role == "user":
            return first.id
        return self.event_payload.get("message_id")

    def _build_result(self, loop_result: LoopResult, started_at: float) -> TurnResult:
        status = _STATUS.get(loop_result.stop_reason, "completed")
        return TurnResult(
            ok=status != "approval",
            text=loop_result.text,
            status=status,
            session_id=self.event_payload.get("session_id"),
            message_id=self._user_message_id(),
            conversation_id=self._request.conversation_id,
            turn_id=self.turn_id,
            usage=loop_result.usage,
            context=self._context,
            tool_invocations=_tool_invocations(loop_result),
            pending=loop_result.pending,
            problems=tuple(self._request.problems),
            messages=tuple([message for message in self._stored if message.visibility != "hidden"]),
            output=loop_result.output,
            model_calls=len(loop_result.steps),
            stop_reason=loop_result.stop_reason,
            total_latency_ms=round((time.monotonic() - started_at) * 1000),
        )


def _with_session_tool_calls(drafts: Sequence[MessageDraft], turn: SessionTurn) -> list[MessageDraft]:
    """Add the tool calls of the turn to the metadata of the last message, where a session's history reads them."""
    if not turn.tool_calls:
        return [*drafts]
    *before, last = drafts
    note = {SESSION_NOTE: {"tool_calls": list(turn.tool_calls)}}
    return [*before, replace(last, metadata={**(last.metadata or {}), **note})]


def _is_in_doubt(error: Exception) -> bool:
    """Whether the store may have committed a write that it did not acknowledge."""
    return isinstance(error, StoreError) and error.in_doubt


def _find_invocations(messages: Sequence[MessageDraft | StoredMessage]) -> list[ToolInvocation]:
    """Return the tool calls in these messages with their results."""
    blocks = [block for message in messages for block in message.content]
    results = {block.tool_use_id: block for block in blocks if isinstance(block, ToolResultBlock)}
    uses = [block for block in blocks if isinstance(block, ToolUseBlock)]
    return [_build_invocation(use.id, use.name, use.arguments, results.get(use.id)) for use in uses]


def _tool_invocations(result: LoopResult) -> tuple[ToolInvocation, ...]:
    invocations: list[ToolInvocation] = []
    for step in result.steps:
        results = {tool_result.id: tool_result for tool_result in step.tool_results}
        calls = step.reply.tool_calls
        invocations += [_build_invocation(call.id, call.name, call.input, results.get(call.id)) for call in calls]
    return tuple(invocations)


def _build_invocation(
    id: str, name: str, arguments: Mapping[str, Any], result: ToolResult | ToolResultBlock | None
) -> ToolInvocation:
    if result is None:
        return ToolInvocation(id, name, arguments)
    return ToolInvocation(id, name, arguments, result.content, result.is_error)
