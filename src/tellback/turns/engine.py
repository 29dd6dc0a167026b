"""The engine of every turn: recall, store the user's message, run the model loop, store the reply.

`run_turn`, `run_chat_turn`, `user.chat`, `user.agents.invoke` and `Agent.respond` all end here. Recall runs before the
message is stored, so a message never recalls itself."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from tellback import events
from tellback.chat import ChatOptions, LoopResult, run_loop_messages, stream_loop
from tellback.chat.history import build_interrupted_result, is_valid_history, pending_calls
from tellback.concurrency import iterate_in_context
from tellback.errors import AlreadyDecidedError, StoreClosedError, StoreError
from tellback.request import Request, bind_request
from tellback.runtime import Runtime
from tellback.stores import AppendResult, TurnStarted
from tellback.telemetry import TurnSpan, turn_span
from tellback.turns.claims import ConversationClaim, TurnClaims
from tellback.turns.request import RecalledContext, TurnRequest
from tellback.turns.writer import APPROVAL_LOOKBACK, TurnWriter, load_approval_state
from tellback.types import Message, ReplyDelta, StreamStop, TextDelta
from tellback.types.access import Scope
from tellback.types.blocks import chat_messages
from tellback.types.conversations import StoredMessage, TurnOutcome, TurnProblem

if TYPE_CHECKING:
    from tellback.jobs import Jobs
    from tellback.stores import Store

REPLY_START, REPLY_DELTA, REPLY_END, REPLY_ERROR = "reply:start", "reply:delta", "reply:end", "reply:error"


class ReplyEvents:
    """Tells whoever listens how a reply comes along, as a context manager around it.

    Every event carries the payload: the ids of the session and of the message that is answered. Set `text` to the whole
    answer before the block ends.
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
        """A piece of the answer has come."""
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
    """A turn that has begun: what the model is sent, and who keeps what it says."""

    options: ChatOptions
    history: list[Message]
    writer: TurnWriter
    approvals: Mapping[str, Any] | None
    request: Request
    event_payload: Mapping[str, Any]


class TurnEngine:
    """Runs turns. `on_turn_end` is called with the conversation's progress whenever a turn has ended."""

    def __init__(
        self, runtime: Runtime, claims: TurnClaims, on_turn_end: Callable[[Scope, str, AppendResult], None]
    ) -> None:
        self._runtime = runtime
        self._claims = claims
        self._on_turn_end = on_turn_end

    async def run(self, request: TurnRequest) -> TurnOutcome:
        """Run a turn to its end."""
        started_at = time.monotonic()
        with _start_span(request) as span:
            async with self._open(request) as turn:
                with bind_request(turn.request), ReplyEvents(turn.event_payload) as reply_events:
                    await _apply_plan(request, turn)
                    result = await run_loop_messages(
                        turn.options,
                        turn.history,
                        approvals=turn.approvals,
                        on_message=turn.writer.write,
                        on_approved=turn.writer.record_approved,
                    )
                    reply_events.text = result.text
                await turn.writer.finish(result)
                outcome = turn.writer.outcome(result, started_at)
            _record_outcome(request, span, outcome)
        return outcome

    def stream(self, request: TurnRequest) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        """The same as deltas, and the outcome last."""
        # Whoever iterates must not see what is bound for the tools, nor must another turn of the same task.
        return iterate_in_context(self._stream(request))

    async def _stream(self, request: TurnRequest) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        started_at = time.monotonic()
        with _start_span(request) as span:
            async with self._open(request) as turn:
                with bind_request(turn.request), ReplyEvents(turn.event_payload) as reply_events:
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
                                result = item
                                reply_events.text = item.text
                            elif isinstance(item, StreamStop):
                                stop = item  # held back until the reply is stored: some stop reading here
                            else:
                                if isinstance(item, TextDelta):
                                    reply_events.delta(item.text)
                                yield item
                await turn.writer.finish(result)
                outcome = turn.writer.outcome(result, started_at)
            _record_outcome(request, span, outcome)
        yield outcome

    @asynccontextmanager
    async def _open(self, request: TurnRequest) -> AsyncIterator[_OpenTurn]:
        """Recall, store the user's message, and hold the conversation for the block."""
        prepared = RecalledContext(request.options.system)
        claim: ConversationClaim | None = None

        async def before_claim() -> int:
            nonlocal prepared
            if request.prepare is not None:
                prepared = await request.prepare()
            if request.approvals is not None:
                return APPROVAL_LOOKBACK  # whatever the calls that wait lie behind
            return request.tail_limit if prepared.tail_limit is None else min(request.tail_limit, prepared.tail_limit)

        try:
            if request.conversation_id is None or not (request.store_user_message or request.store_reply):
                history = await self._read_history(request, await before_claim())
            else:
                draft = request.draft if request.store_user_message else None
                try:
                    claim = await self._claims.acquire(
                        request.scope, request.conversation_id, draft, before_claim, request.wait
                    )
                except StoreError as error:
                    if (
                        not request.tolerate_store_errors
                        or request.draft is None
                        or isinstance(error, StoreClosedError)
                    ):
                        raise
                    request.problems.append(TurnProblem("store_user", error))
                    history = []
                else:
                    history = build_history(claim.started)
            writer = TurnWriter(self._runtime, request, claim, prepared)
            if claim is not None and request.plan is not None:
                writer.previous_answer = _stored_answer(claim.started)
            if claim is not None and request.approvals is None and not is_valid_history(history):
                await self._add_interrupted_results(request, history)
            turn = _OpenTurn(
                options=_with_system(request.options, prepared.system),
                history=_append_user_message(request, claim, history),
                writer=writer,
                approvals=request.approvals,
                request=_build_tool_request(request, claim, prepared),
                event_payload=_build_event_payload(request, claim),
            )
            if request.approvals is not None and request.conversation_id is not None:
                turn.history = _trim_history(turn.history, request.tail_limit)
                await self._apply_decisions(request, turn)
            try:
                yield turn
            except Exception:
                await writer.finish(None)
                raise
            finally:
                if writer.progress is not None and request.conversation_id is not None:
                    self._on_turn_end(request.scope, request.conversation_id, writer.progress)
        finally:
            if claim is not None:
                await self._claims.release(claim)

    async def _read_history(self, request: TurnRequest, tail_limit: int) -> list[Message]:
        """The tail of the log, for a turn of which nothing is kept."""
        if request.conversation_id is None:
            return []
        log = self._runtime.store.conversations
        try:
            stored = await log.messages(request.scope, request.conversation_id, limit=tail_limit, include_internal=True)
        except StoreError as error:
            if not request.tolerate_store_errors:
                raise
            request.problems.append(TurnProblem("recall", error))
            return []
        return [message for message_row in stored for message in message_row.messages]

    async def _add_interrupted_results(self, request: TurnRequest, history: list[Message]) -> None:
        """Calls that were approved and begun, before the process ended, get the result that says so."""
        assert request.conversation_id is not None
        started = (
            await load_approval_state(self._runtime.store.conversations, request.scope, request.conversation_id)
        ).started
        for index in range(len(history) - 1, -1, -1):
            interrupted = [call for call in history[index].tool_calls if call.id in started]
            history[index + 1 : index + 1] = map(build_interrupted_result, interrupted)

    async def _apply_decisions(self, request: TurnRequest, turn: _OpenTurn) -> None:
        """Take decisions on calls that are still open. One that was begun gets its result: nobody knows which."""
        assert request.conversation_id is not None
        assert turn.approvals is not None
        waiting = {call.id: call for call in pending_calls(turn.history)}
        known_ids = {call.id for message in turn.history for call in message.tool_calls}
        if turn.history and turn.history[-1].role != "tool" and not waiting and known_ids.issuperset(turn.approvals):
            raise AlreadyDecidedError(request.conversation_id, [*turn.approvals])
        state = await load_approval_state(self._runtime.store.conversations, request.scope, request.conversation_id)
        for id in state.started & waiting.keys():
            turn.history.append(build_interrupted_result(waiting[id]))
            await turn.writer.write(turn.history[-1], None, False)
        interrupted = state.started & waiting.keys()
        turn.approvals = {id: decision for id, decision in turn.approvals.items() if id not in interrupted}
        turn.request = replace(turn.request, message_id=state.message_id)
        if state.open_skills:
            turn.options = replace(turn.options, open_skills=(*turn.options.open_skills, *state.open_skills))


def create_unlogged_engine(clock: Callable[[], datetime]) -> TurnEngine:
    """Turns of which nothing is kept: for an agent without a memory. Their requests name no conversation."""
    runtime = Runtime(cast("Store", None), cast("Jobs", None), clock=clock)
    return TurnEngine(runtime, TurnClaims(runtime), lambda *_: None)


async def _apply_plan(request: TurnRequest, turn: _OpenTurn) -> None:
    if request.plan is not None:
        turn.options, turn.history = await request.plan(turn.options, turn.history, turn.writer)


def _start_span(request: TurnRequest) -> TurnSpan:
    return turn_span(
        request.conversation_id,
        agent=request.agent,
        model=request.options.model_name,
        get_messages=lambda: _user_messages(request),
    )


def _user_messages(request: TurnRequest) -> Sequence[Message]:
    """What the user says, in the words that are meant for the model; nothing where a turn is resumed."""
    return request.user_messages or (
        () if request.draft is None else chat_messages("user", request.draft.content, None)
    )


def _record_outcome(request: TurnRequest, span: TurnSpan, outcome: TurnOutcome) -> None:
    usage = outcome.aggregate_usage
    span.set_outcome(
        outcome.status,
        usage if request.planning_usage is None else request.planning_usage() + usage,
        stop_reason=outcome.stop_reason,
        text=outcome.text,
        turn_id=outcome.turn_id,
    )


def _with_system(options: ChatOptions, system: str | None) -> ChatOptions:
    return options if system == options.system else replace(options, system=system)


def _append_user_message(
    request: TurnRequest, claim: ConversationClaim | None, history: list[Message]
) -> list[Message]:
    """The history as it ends with the user's message, in the words that are meant for the model."""
    if request.draft is None:
        return history
    stored = claim is not None and claim.started.user_message is not None
    message = _user_messages(request)
    if not stored:
        return [*history, *message]
    if not request.user_messages or history[-1].role != "user":
        return history
    return [*history[:-1], *message]


def _trim_history(history: list[Message], tail_limit: int) -> list[Message]:
    """The tail of a history, and as much more as the calls at its end lie behind."""
    last_reply = next((n for n in range(len(history) - 1, -1, -1) if history[n].role != "tool"), 0)
    tail = history[min(max(0, len(history) - tail_limit), last_reply) :]
    return list(itertools.dropwhile(lambda message: message.role == "tool", tail)) or tail


def _build_tool_request(request: TurnRequest, claim: ConversationClaim | None, recalled: RecalledContext) -> Request:
    if request.request is None:
        return Request(remembered=recalled.context)
    stored = None if claim is None else claim.started.user_message
    bound = request.request
    message_id = None if stored is None else stored.id
    return Request(
        bound.session, bound.sender, bound.extras, request.conversation_id, message_id, bound.agent, recalled.context
    )


def _build_event_payload(request: TurnRequest, claim: ConversationClaim | None) -> Mapping[str, Any]:
    stored = None if claim is None else claim.started.user_message
    id = stored.id if stored is not None else None if request.draft is None else request.draft.id
    return {"message_id": id, "conversation_id": request.conversation_id, **request.event_payload}


def build_history(started: TurnStarted) -> list[Message]:
    """What the model is sent: the tail of the log, without results whose call lies before it.

    When the user's message was already there, its turn is being run again. If it was cut off in the middle, it goes on
    from there; if it was complete, it is answered anew, as if nothing had followed.
    """
    messages = list(itertools.dropwhile(lambda message: message.role == "tool", started.history)) or list(
        started.history
    )
    if started.later_messages and _is_unfinished(started.later_messages, started.turn_id):
        messages.extend(message for stored in started.later_messages for message in stored.messages)
    return messages


def _stored_answer(started: TurnStarted) -> str | None:
    """What was said to the message, if it had been stored and answered before."""
    if not started.later_messages or _is_unfinished(started.later_messages, started.turn_id):
        return None
    texts = [
        message.text
        for message in started.later_messages
        if message.turn_id == started.turn_id and message.role == "assistant"
    ]
    return texts[-1] if texts else None


def _is_unfinished(later: Sequence[StoredMessage], turn_id: str) -> bool:
    if any(message.turn_id != turn_id for message in later):
        return False
    last = later[-1]
    return last.role != "assistant" or bool(last.tool_calls)
