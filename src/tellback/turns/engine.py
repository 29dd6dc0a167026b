"""The engine of every turn: recall, store the user's message, run the model loop, store the reply.

`run_turn`, `run_chat_turn`, `user.chat`, `user.agents.invoke` and `Agent.respond` all use it. Recall runs before the
message is stored, so a message never recalls itself."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from tellback import events
from tellback.chat import ChatOptions, LoopResult, run_loop_messages, stream_loop
from tellback.chat.history import build_interrupted_result, is_valid_history, pending_calls
from tellback.concurrency import iterate_in_context
from tellback.errors import AlreadyDecidedError, ConfigurationError, StoreClosedError, StoreError
from tellback.request import Request, bind_request
from tellback.runtime import Runtime
from tellback.stores import AppendResult, ConversationLog, TurnStarted
from tellback.telemetry import TurnSpan, turn_span
from tellback.turns.claims import ConversationClaim, TurnClaims
from tellback.turns.request import RecalledContext, RecallRequest, TurnRequest, group_by_turn
from tellback.turns.writer import APPROVAL_LOOKBACK, TurnWriter, load_approval_state
from tellback.types import Message, ReplyDelta, StreamStop, TextDelta
from tellback.types.access import Scope
from tellback.types.blocks import chat_messages
from tellback.types.conversations import Identity, Session, StoredMessage, TurnProblem, TurnResult

REPLY_START, REPLY_DELTA, REPLY_END, REPLY_ERROR = "reply:start", "reply:delta", "reply:end", "reply:error"


class ReplyEvents:
    """A context manager that emits the events of a reply to listeners.

    Every event contains the payload: the ids of the session and of the user's message. Set `text` to the whole reply
    before the block ends.
    """

    __slots__ = ("_payload", "text")

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self._payload = payload if events.has_listeners() else None
        self.text = ""

    def __enter__(self) -> ReplyEvents:
        if self._payload is not None:
            events.emit(REPLY_START, dict(self._payload))
        return self

    def delta(self, text: str) -> None:
        """Emit a piece of the reply."""
        if self._payload is not None:
            events.emit(REPLY_DELTA, {**self._payload, "text": text})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._payload is None:
            return
        if error is None:
            events.emit(REPLY_END, {**self._payload, "text": self.text})
        else:
            name = type(error).__name__
            events.emit(REPLY_ERROR, {**self._payload, "error": str(error) or name, "error_type": name})


@dataclass(slots=True)
class _OpenTurn:
    """A turn that has begun: the options and the history for the model, and the writer of its messages."""

    options: ChatOptions
    history: list[Message]
    writer: TurnWriter
    approvals: Mapping[str, Any] | None
    request: Request


class TurnEngine:
    """Runs turns. `refresh_summary` is called when a conversation's rolling summary is due.

    Without a `runtime` there is no store, and requests must not have a conversation id.
    """

    def __init__(
        self,
        runtime: Runtime | None = None,
        refresh_summary: Callable[[Scope, str], None] | None = None,
    ) -> None:
        self._runtime = runtime
        self._claims = None if runtime is None else TurnClaims(runtime)
        self._refresh_summary = refresh_summary

    async def close(self) -> None:
        """Release all claims before the store closes."""
        if self._claims is not None:
            await self._claims.close()

    def refresh_summary_if_due(self, scope: Scope, id: str, progress: AppendResult) -> None:
        """Refresh the rolling summary in the background if enough turns have passed since the last refresh."""
        every = None if self._runtime is None else self._runtime.summary_every
        is_due = every is not None and progress.turns - progress.summarized_turns >= every
        if is_due and self._refresh_summary is not None:
            self._refresh_summary(scope, id)

    async def run(self, request: TurnRequest) -> TurnResult:
        """Run a turn and return its result."""
        started_at = time.monotonic()
        with _start_span(request) as span:
            async with self._open(request) as turn:
                with bind_request(turn.request), ReplyEvents(turn.writer.event_payload) as reply_events:
                    await _apply_plan(request, turn)
                    loop_result = await run_loop_messages(
                        turn.options,
                        turn.history,
                        approvals=turn.approvals,
                        on_message=turn.writer.write,
                        on_approved=turn.writer.record_approved,
                    )
                    reply_events.text = loop_result.text
                result = await turn.writer.finish(loop_result, started_at)
            _record_result(request, span, result)
        return result

    def stream(self, request: TurnRequest) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """Run a turn; yield the deltas of the reply, then the result."""
        # The request is bound for the tools only: the consumer of the stream and other turns must not see it.
        return iterate_in_context(self._stream(request))

    async def _stream(self, request: TurnRequest) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        started_at = time.monotonic()
        with _start_span(request) as span:
            async with self._open(request) as turn:
                with bind_request(turn.request), ReplyEvents(turn.writer.event_payload) as reply_events:
                    await _apply_plan(request, turn)
                    items = stream_loop(
                        turn.options,
                        turn.history,
                        approvals=turn.approvals,
                        on_message=turn.writer.write,
                        on_approved=turn.writer.record_approved,
                    )
                    stop: StreamStop | None = None
                    async with aclosing(items):
                        async for item in items:
                            if stop is not None:
                                yield stop
                                stop = None
                            if isinstance(item, LoopResult):
                                loop_result = item
                                reply_events.text = item.text
                            elif isinstance(item, StreamStop):
                                stop = item  # yielded after the reply is stored: consumers may stop there
                            else:
                                if isinstance(item, TextDelta):
                                    reply_events.delta(item.text)
                                yield item
                result = await turn.writer.finish(loop_result, started_at)
            _record_result(request, span, result)
        yield result

    @asynccontextmanager
    async def _open(self, request: TurnRequest) -> AsyncIterator[_OpenTurn]:
        """Recall, claim the conversation until the block ends, and store the user's message."""
        claims, claim = self._claims, None
        if request.is_stored:
            if claims is None:
                raise ConfigurationError("The turn has a conversation_id, but there is no store: use a Tellback.")
            claim = await claims.enter(request.scope, request.conversation_id or "", request.wait)
        try:
            if request.earlier_messages:
                await self._store_earlier_messages(request)
            system = request.options.system
            recalled = RecalledContext(system) if request.recall is None else await _recall(request, request.recall)
            if claim is None:
                started, history = None, await self._read_history(request, recalled)
            else:
                started = await self._begin(request, claim, recalled)
                history = [] if started is None else build_history(started)
                if started is None and claims is not None:  # there is no claim in the store: let other turns start
                    await claims.leave(claim)
                    claim = None
            turn = await self._build_turn(request, claim, started, recalled, history)
            try:
                yield turn
            except Exception:
                await turn.writer.flush_unsaved()
                raise
            finally:
                if turn.writer.progress is not None:
                    self.refresh_summary_if_due(request.scope, request.conversation_id or "", turn.writer.progress)
        finally:
            if claim is not None and claims is not None:
                await claims.leave(claim)

    async def _begin(
        self, request: TurnRequest, claim: ConversationClaim, recalled: RecalledContext
    ) -> TurnStarted | None:
        """Claim the conversation and store the user's message; return None if the store fails and that is tolerated."""
        assert self._claims is not None
        draft = request.draft if request.store_user_message else None
        try:
            return await self._claims.begin(claim, draft, _tail_limit(request, recalled))
        except StoreError as error:
            if not request.tolerate_store_errors or request.draft is None or isinstance(error, StoreClosedError):
                raise
            request.problems.append(TurnProblem("store_user", error))
            return None

    async def _build_turn(
        self,
        request: TurnRequest,
        claim: ConversationClaim | None,
        started: TurnStarted | None,
        recalled: RecalledContext,
        history: list[Message],
    ) -> _OpenTurn:
        session = request.session
        if session is None and request.conversation_id is not None:
            session = Session(request.conversation_id, conversation_id=request.conversation_id)
        stored = None if started is None else started.user_message
        message_id = stored.id if stored is not None else None if request.draft is None else request.draft.id
        payload = {"message_id": message_id, "conversation_id": request.conversation_id}
        if session is not None:
            payload["session_id"] = session.id
        writer = TurnWriter(
            self._runtime,
            request,
            None if started is None else claim,
            recalled.context,
            {**payload, **request.event_payload},
        )
        if started is not None and request.planner is not None:
            writer.previous_answer = _stored_answer(started)
        if started is not None and request.approvals is None and not is_valid_history(history):
            await self._add_interrupted_results(request, history)
        options = request.options
        turn = _OpenTurn(
            options=options if recalled.system == options.system else replace(options, system=recalled.system),
            history=_append_user_message(request, stored, history),
            writer=writer,
            approvals=request.approvals,
            request=_build_tool_request(request, session, stored, recalled),
        )
        if request.approvals is not None and request.conversation_id is not None:
            turn.history = _trim_history(turn.history, request.tail_limit)
            await self._apply_decisions(request, turn)
        return turn

    async def _store_earlier_messages(self, request: TurnRequest) -> None:
        if request.conversation_id is None:
            return
        turns, now = group_by_turn(request.earlier_messages), self._require_runtime().clock()
        await request.attempt(self._log.append(request.scope, request.conversation_id, turns, now=now), "store_user")

    async def _read_history(self, request: TurnRequest, recalled: RecalledContext) -> list[Message]:
        """Read the tail of the log for a turn that stores nothing."""
        if request.conversation_id is None:
            return []
        reading = self._log.messages(
            request.scope, request.conversation_id, limit=_tail_limit(request, recalled), include_internal=True
        )
        stored = await request.attempt(reading, "recall") or ()
        return [message for message_row in stored for message in message_row.messages]

    async def _add_interrupted_results(self, request: TurnRequest, history: list[Message]) -> None:
        """Add error results to the history for approved calls that were running when the process ended."""
        assert request.conversation_id is not None
        started = (await load_approval_state(self._log, request.scope, request.conversation_id)).started
        for index in range(len(history) - 1, -1, -1):
            interrupted = [call for call in history[index].tool_calls if call.id in started]
            history[index + 1 : index + 1] = map(build_interrupted_result, interrupted)

    async def _apply_decisions(self, request: TurnRequest, turn: _OpenTurn) -> None:
        """Validate and apply the decisions on pending calls. A call that had started gets an error result instead."""
        assert request.conversation_id is not None
        assert turn.approvals is not None
        waiting = {call.id: call for call in pending_calls(turn.history)}
        known_ids = {call.id for message in turn.history for call in message.tool_calls}
        if turn.history and turn.history[-1].role != "tool" and not waiting and known_ids.issuperset(turn.approvals):
            raise AlreadyDecidedError(request.conversation_id, [*turn.approvals])
        state = await load_approval_state(self._log, request.scope, request.conversation_id)
        interrupted = state.started & waiting.keys()
        for id in interrupted:
            turn.history.append(build_interrupted_result(waiting[id]))
            await turn.writer.write(turn.history[-1], None, False)
        turn.approvals = {id: decision for id, decision in turn.approvals.items() if id not in interrupted}
        turn.request = replace(turn.request, message_id=state.message_id)
        if state.open_skills:
            turn.options = replace(turn.options, open_skills=(*turn.options.open_skills, *state.open_skills))

    @property
    def _log(self) -> ConversationLog:
        return self._require_runtime().store.conversations

    def _require_runtime(self) -> Runtime:
        if self._runtime is None:
            raise ConfigurationError("The turn has a conversation_id, but there is no store: use a Tellback.")
        return self._runtime


async def _recall(request: TurnRequest, recall: RecallRequest) -> RecalledContext:
    """Build the working context and append it to the system prompt."""
    system = request.options.system
    if request.user is None:
        return RecalledContext(system)
    context = await request.attempt(recall.build_context(request.user, request.conversation_id), "recall")
    if context is None:
        return RecalledContext(system)
    # The recent turns of the context are sent as history messages, not as text.
    fitting = max(1, len(context.messages) - 1) + (request.draft is not None) if context.turns_dropped else None
    return RecalledContext(recall.extend_prompt(system, context), context, fitting)


def _tail_limit(request: TurnRequest, recalled: RecalledContext) -> int:
    if request.approvals is not None:
        return APPROVAL_LOOKBACK  # far enough back to include the pending calls
    return request.tail_limit if recalled.tail_limit is None else min(request.tail_limit, recalled.tail_limit)


async def _apply_plan(request: TurnRequest, turn: _OpenTurn) -> None:
    if request.planner is not None:
        turn.options, turn.history = await request.planner.plan(turn.options, turn.history, turn.writer)


def _start_span(request: TurnRequest) -> TurnSpan:
    return turn_span(
        request.conversation_id,
        agent=request.agent if request.planner is None else request.planner.name,
        model=request.options.model_name,
        get_messages=lambda: _user_messages(request),
    )


def _user_messages(request: TurnRequest) -> Sequence[Message]:
    """Return the user's messages for the model; nothing if a turn is resumed."""
    return request.user_messages or (
        () if request.draft is None else chat_messages("user", request.draft.content, None)
    )


def _record_result(request: TurnRequest, span: TurnSpan, result: TurnResult) -> None:
    span.set_outcome(
        result.status,
        result.usage if request.planner is None else request.planner.planning_usage() + result.usage,
        stop_reason=result.stop_reason,
        text=result.text,
        turn_id=result.turn_id or "",
    )


def _append_user_message(request: TurnRequest, stored: StoredMessage | None, history: list[Message]) -> list[Message]:
    """Return the history with the user's message replaced by the messages for the model."""
    if request.draft is None:
        return history
    message = _user_messages(request)
    if stored is None:
        return [*history, *message]
    if not request.user_messages or history[-1].role != "user":
        return history
    return [*history[:-1], *message]


def _trim_history(history: list[Message], tail_limit: int) -> list[Message]:
    """Return the tail of a history, extended so that it includes the pending calls at its end."""
    last_reply = next((n for n in range(len(history) - 1, -1, -1) if history[n].role != "tool"), 0)
    tail = history[min(max(0, len(history) - tail_limit), last_reply) :]
    return _drop_leading_results(tail)


def _drop_leading_results(messages: Sequence[Message]) -> list[Message]:
    """Remove tool results whose calls are missing, unless nothing else is left."""
    return list(itertools.dropwhile(lambda message: message.role == "tool", messages)) or list(messages)


def _build_tool_request(
    request: TurnRequest, session: Session | None, stored: StoredMessage | None, recalled: RecalledContext
) -> Request:
    if not request.bind_tools:
        return Request(remembered=recalled.context)
    sender = request.sender
    if sender is None and request.user is not None:
        sender = Identity(request.user.scope.user_id)
    return Request(
        session,
        sender,
        request.extras,
        request.conversation_id,
        None if stored is None else stored.id,
        None if request.planner is None else request.planner.tool_host,
        recalled.context,
    )


def build_history(started: TurnStarted) -> list[Message]:
    """Return the history for the model: the tail of the log, without results whose call lies before it.

    If the user's message was already stored, its turn runs again: an interrupted turn continues where it stopped, a
    complete turn is answered again, without the messages that followed.
    """
    messages = _drop_leading_results(started.history)
    if started.later_messages and _is_unfinished(started.later_messages, started.turn_id):
        messages.extend(message for stored in started.later_messages for message in stored.messages)
    return messages


def _stored_answer(started: TurnStarted) -> str | None:
    """Return the earlier reply to the message, if it was already answered."""
    if not started.later_messages or _is_unfinished(started.later_messages, started.turn_id):
        return None
    answers = (
        message.text
        for message in reversed(started.later_messages)
        if message.turn_id == started.turn_id and message.role == "assistant"
    )
    return next(answers, None)


def _is_unfinished(later: Sequence[StoredMessage], turn_id: str) -> bool:
    if any(message.turn_id != turn_id for message in later):
        return False
    last = later[-1]
    return last.role != "assistant" or bool(last.tool_calls)
