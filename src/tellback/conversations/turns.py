"""The one way of a turn: recall, store the user's message, bind the request, ask the model, store what it says.

Every door leads here: `run_turn`, `run_chat_turn`, `user.chat`, `user.agents.invoke`, `Agent.respond`. The order is the
point. What is recalled is what was known before the message, so that nobody is reminded of what they have just said.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from tellback.chat import ChatOptions, LoopResult, run_loop_messages, stream_loop
from tellback.chat.history import interrupted_result, is_sound, open_calls
from tellback.contexts import iterate_apart
from tellback.conversations.approvals import LOOK_BACK, undecided
from tellback.conversations.claims import Claim, TurnClaims
from tellback.conversations.keeping import Keeper
from tellback.conversations.runtime import Runtime
from tellback.conversations.telling import ReplyEvents
from tellback.conversations.turn_requests import Prepared, TurnRequest
from tellback.errors import AlreadyDecidedError, StoreClosedError, StoreError
from tellback.request import Request, bound
from tellback.stores import Appended, TurnStarted
from tellback.telemetry import TurnSpan, turn_span
from tellback.types import Message, ReplyDelta, StreamStop, TextDelta
from tellback.types.blocks import chat_messages
from tellback.types.conversations import StoredMessage, TurnOutcome
from tellback.types.scope import Scope
from tellback.types.turns import TurnProblem

if TYPE_CHECKING:
    from tellback.jobs import Jobs
    from tellback.stores import Store


@dataclass(slots=True)
class _Opened:
    """A turn that has begun: what the model is sent, and who keeps what it says."""

    options: ChatOptions
    history: list[Message]
    keeper: Keeper
    approvals: Mapping[str, Any] | None
    bound: Request
    reply_to: Mapping[str, Any]


class Turns:
    """Runs turns. `after` is told how far the conversation has come whenever a turn has ended."""

    def __init__(self, runtime: Runtime, claims: TurnClaims, after: Callable[[Scope, str, Appended], None]) -> None:
        self._runtime = runtime
        self._claims = claims
        self._after = after

    async def run(self, asked: TurnRequest) -> TurnOutcome:
        """Run a turn to its end."""
        began = time.monotonic()
        with _span(asked) as span:
            async with self._opened(asked) as turn:
                with bound(turn.bound), ReplyEvents(turn.reply_to) as told:
                    await _planned(asked, turn)
                    result = await run_loop_messages(
                        turn.options,
                        turn.history,
                        approvals=turn.approvals,
                        on_message=turn.keeper.keep,
                        on_approved=turn.keeper.note_approved,
                    )
                    told.text = result.text
                await turn.keeper.finish(result)
                outcome = turn.keeper.outcome(result, began)
            _note(asked, span, outcome)
        return outcome

    def stream(self, asked: TurnRequest) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        """The same as deltas, and the outcome last."""
        # Whoever iterates must not see what is bound for the tools, nor must another turn of the same task.
        return iterate_apart(self._streamed(asked))

    async def _streamed(self, asked: TurnRequest) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        began = time.monotonic()
        with _span(asked) as span:
            async with self._opened(asked) as turn:
                with bound(turn.bound), ReplyEvents(turn.reply_to) as told:
                    await _planned(asked, turn)
                    items = stream_loop(
                        turn.options,
                        turn.history,
                        approvals=turn.approvals,
                        on_message=turn.keeper.keep,
                        on_approved=turn.keeper.note_approved,
                    )
                    stop: StreamStop | None = None
                    async with aclosing(items):
                        async for item in items:
                            if stop is not None:
                                yield stop
                                stop = None
                            if isinstance(item, LoopResult):
                                result = item
                                told.text = item.text
                            elif isinstance(item, StreamStop):
                                stop = item  # held back until the reply is stored: some stop reading here
                            else:
                                if isinstance(item, TextDelta):
                                    told.delta(item.text)
                                yield item
                await turn.keeper.finish(result)
                outcome = turn.keeper.outcome(result, began)
            _note(asked, span, outcome)
        yield outcome

    @asynccontextmanager
    async def _opened(self, asked: TurnRequest) -> AsyncIterator[_Opened]:
        """Recall, store the user's message, and hold the conversation for the block."""
        prepared = Prepared(asked.options.system)
        claim: Claim | None = None

        async def before() -> int:
            nonlocal prepared
            if asked.prepare is not None:
                prepared = await asked.prepare()
            if asked.approvals is not None:
                return LOOK_BACK  # whatever the calls that wait lie behind
            return asked.tail_limit if prepared.tail_limit is None else min(asked.tail_limit, prepared.tail_limit)

        try:
            if asked.conversation_id is None or not (asked.keeps_user or asked.keeps_reply):
                history = await self._unclaimed(asked, await before())
            else:
                draft = asked.draft if asked.keeps_user else None
                try:
                    claim = await self._claims.take(asked.scope, asked.conversation_id, draft, before, asked.wait)
                except StoreError as error:
                    if not asked.lenient or asked.draft is None or isinstance(error, StoreClosedError):
                        raise
                    asked.problems.append(TurnProblem("store_user", error))
                    history = []
                else:
                    history = history_of(claim.started)
            keeper = Keeper(self._runtime, asked, claim, prepared)
            if claim is not None and asked.plan is not None:
                keeper.answered = _answer(claim.started)
            if claim is not None and asked.approvals is None and not is_sound(history):
                await self._tell_of_begun(asked, history)
            turn = _Opened(
                options=_with_system(asked.options, prepared.system),
                history=_with_message(asked, claim, history),
                keeper=keeper,
                approvals=asked.approvals,
                bound=_bound(asked, claim, prepared),
                reply_to=_reply_to(asked, claim),
            )
            if asked.approvals is not None and asked.conversation_id is not None:
                turn.history = _since_open_calls(turn.history, asked.tail_limit)
                await self._decide(asked, turn)
            try:
                yield turn
            except Exception:
                await keeper.finish(None)
                raise
            finally:
                if keeper.progress is not None and asked.conversation_id is not None:
                    self._after(asked.scope, asked.conversation_id, keeper.progress)
        finally:
            if claim is not None:
                await self._claims.give_back(claim)

    async def _unclaimed(self, asked: TurnRequest, tail_limit: int) -> list[Message]:
        """The tail of the log, for a turn of which nothing is kept."""
        if asked.conversation_id is None:
            return []
        log = self._runtime.store.conversations
        try:
            stored = await log.messages(asked.scope, asked.conversation_id, limit=tail_limit, internal=True)
        except StoreError as error:
            if not asked.lenient:
                raise
            asked.problems.append(TurnProblem("recall", error))
            return []
        return [message for kept in stored for message in kept.messages]

    async def _tell_of_begun(self, asked: TurnRequest, history: list[Message]) -> None:
        """Calls that were approved and begun, before the process ended, get the result that says so."""
        assert asked.conversation_id is not None
        begun = (await undecided(self._runtime.store.conversations, asked.scope, asked.conversation_id)).begun
        for index in range(len(history) - 1, -1, -1):
            lost = [call for call in history[index].tool_calls if call.id in begun]
            history[index + 1 : index + 1] = map(interrupted_result, lost)

    async def _decide(self, asked: TurnRequest, turn: _Opened) -> None:
        """Take decisions on calls that are still open. One that was begun gets its result: nobody knows which."""
        assert asked.conversation_id is not None
        assert turn.approvals is not None
        waiting = {call.id: call for call in open_calls(turn.history)}
        known = {call.id for message in turn.history for call in message.tool_calls}
        if turn.history and turn.history[-1].role != "tool" and not waiting and known.issuperset(turn.approvals):
            raise AlreadyDecidedError(asked.conversation_id, [*turn.approvals])
        end = await undecided(self._runtime.store.conversations, asked.scope, asked.conversation_id)
        for id in end.begun & waiting.keys():
            turn.history.append(interrupted_result(waiting[id]))
            await turn.keeper.keep(turn.history[-1], None, False)
        gone = end.begun & waiting.keys()
        turn.approvals = {id: decision for id, decision in turn.approvals.items() if id not in gone}
        turn.bound = replace(turn.bound, message_id=end.message_id)
        if end.open_skills:
            turn.options = replace(turn.options, open_skills=(*turn.options.open_skills, *end.open_skills))


def unkept_turns(clock: Callable[[], datetime]) -> Turns:
    """Turns of which nothing is kept: for an agent without a memory. Their requests name no conversation."""
    runtime = Runtime(cast("Store", None), cast("Jobs", None), clock=clock)
    return Turns(runtime, TurnClaims(runtime), lambda *_: None)


async def _planned(asked: TurnRequest, turn: _Opened) -> None:
    if asked.plan is not None:
        turn.options, turn.history = await asked.plan(turn.options, turn.history, turn.keeper)


def _span(asked: TurnRequest) -> TurnSpan:
    return turn_span(
        asked.conversation_id, agent=asked.agent, model=asked.options.model_name, said=lambda: _user_messages(asked)
    )


def _user_messages(asked: TurnRequest) -> Sequence[Message]:
    """What the user says, in the words that are meant for the model; nothing where a turn is resumed."""
    return asked.said or (() if asked.draft is None else chat_messages("user", asked.draft.content, None))


def _note(asked: TurnRequest, span: TurnSpan, outcome: TurnOutcome) -> None:
    usage = outcome.aggregate_usage
    span.set_outcome(
        outcome.status,
        usage if asked.planning_usage is None else asked.planning_usage() + usage,
        stop_reason=outcome.stop_reason,
        text=outcome.text,
        turn_id=outcome.turn_id,
    )


def _with_system(options: ChatOptions, system: str | None) -> ChatOptions:
    return options if system == options.system else replace(options, system=system)


def _with_message(asked: TurnRequest, claim: Claim | None, history: list[Message]) -> list[Message]:
    """The history as it ends with the user's message, in the words that are meant for the model."""
    if asked.draft is None:
        return history
    stored = claim is not None and claim.started.user_message is not None
    message = _user_messages(asked)
    if not stored:
        return [*history, *message]
    if not asked.said or history[-1].role != "user":
        return history
    return [*history[:-1], *message]


def _since_open_calls(history: list[Message], tail_limit: int) -> list[Message]:
    """The tail of a history, and as much more as the calls at its end lie behind."""
    asked = next((n for n in range(len(history) - 1, -1, -1) if history[n].role != "tool"), 0)
    kept = history[min(max(0, len(history) - tail_limit), asked) :]
    return list(itertools.dropwhile(lambda message: message.role == "tool", kept)) or kept


def _bound(asked: TurnRequest, claim: Claim | None, prepared: Prepared) -> Request:
    if asked.request is None:
        return Request(remembered=prepared.context)
    stored = None if claim is None else claim.started.user_message
    given = asked.request
    message_id = None if stored is None else stored.id
    where = asked.conversation_id, message_id
    return Request(given.session, given.sender, given.extras, *where, given.agent, prepared.context)


def _reply_to(asked: TurnRequest, claim: Claim | None) -> Mapping[str, Any]:
    stored = None if claim is None else claim.started.user_message
    id = stored.id if stored is not None else None if asked.draft is None else asked.draft.id
    return {"message_id": id, "conversation_id": asked.conversation_id, **asked.reply_to}


def history_of(started: TurnStarted) -> list[Message]:
    """What the model is sent: the tail of the log, without results whose call lies before it.

    When the user's message was already there, its turn is being run again. If it was cut off in the middle, it goes on
    from there; if it was complete, it is answered anew, as if nothing had followed.
    """
    kept = list(itertools.dropwhile(lambda message: message.role == "tool", started.history)) or list(started.history)
    if started.later and _is_unfinished(started.later, started.turn_id):
        kept.extend(message for stored in started.later for message in stored.messages)
    return kept


def _answer(started: TurnStarted) -> str | None:
    """What was said to the message, if it had been stored and answered before."""
    if not started.later or _is_unfinished(started.later, started.turn_id):
        return None
    said = [kept.text for kept in started.later if kept.turn_id == started.turn_id and kept.role == "assistant"]
    return said[-1] if said else None


def _is_unfinished(later: Sequence[StoredMessage], turn_id: str) -> bool:
    if any(message.turn_id != turn_id for message in later):
        return False
    last = later[-1]
    return last.role != "assistant" or bool(last.tool_calls)
