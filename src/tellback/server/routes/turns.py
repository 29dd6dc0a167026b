"""Turns by HTTP, whole or as a stream of events."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from tellback.chat import ChatOptions, resolve_registration
from tellback.errors import InvalidArgumentError, NotAllowedError, TellbackError
from tellback.server.answers import answer, problems
from tellback.server.callers import Caller, CallerIs
from tellback.server.disconnects import while_awaited
from tellback.server.external_tools import Continuation, check_appended
from tellback.server.idempotency import HEADER, TURN, goes_on
from tellback.server.problems import request_id_of, told
from tellback.server.route import Route
from tellback.server.routes.conversations import IdIs, with_key
from tellback.server.sse import MEDIA_TYPE, EventStream, frame
from tellback.server.stopping import Stopping, refusal
from tellback.server.stream_docs import DELTAS, streamed
from tellback.turn.values import TurnResult
from tellback.types import ReplyDelta
from tellback.types.conversations import TurnOutcome
from tellback.types.turns import TurnProblem
from tellback.user import User
from tellback.wire.turn_inputs import MOST_CYCLES, ChatInput, RunTurn, TurnInput
from tellback.wire.turns import TurnOutcomeWire, TurnProblemWire, TurnResultWire, delta_event

router = APIRouter(prefix="/ai-conversations", tags=["turns"], route_class=Route)

_STREAMED = (
    "The answer. As a stream: the events `text`, `thinking`, `tool_use_start`, `tool_use_input`, `tool_use_end` and"
    " `stop` as they come; at last `result`, which is the same as the whole answer, or `error`, which is a problem."
)
_STATUSES = (404, 409, 502, 504)

CYCLES = 10
"""How often the model is asked in a turn, unless a caller says otherwise."""
LOOK_BACK = 3 * MOST_CYCLES
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

AcceptIs = Annotated[str, Header(alias="Accept", include_in_schema=False)]
TraceIs = Annotated[str | None, Header(alias="traceparent", max_length=200, description="W3C trace context.")]

Ended = TurnOutcome | TurnResult


@router.post(
    "/chat",
    response_model=TurnResultWire,
    responses={**problems(*_STATUSES), **streamed(_STREAMED, {**DELTAS, "result": TurnResultWire})},
    openapi_extra=TURN,
)
async def chat(
    request: Request,
    caller: CallerIs,
    body: ChatInput,
    traceparent: TraceIs = None,
    accept: AcceptIs = "",
) -> Response:
    """Say something, and be answered by a model that remembers.

    It goes on with the user's open conversation of the namespace, or opens one. `tools` are run by you: a reply whose
    status is `approval` names the calls in `pending`; post their `toolResults` with the same `tools` and the reply's
    `conversationId`. If the connection ends early, the turn is cancelled.
    """
    given, rest = _arguments(body, request.headers.get(HEADER), traceparent), Continuation(body)
    if rest.is_there and body.conversation_id is None:
        raise InvalidArgumentError("toolResults and approvals go on with a conversation: pass its conversationId.")
    if body.conversation_id is not None:
        await rest.check(caller.user, body.conversation_id)
    given.update(model=caller.model(body.model), tools=rest.tools, approvals=rest.approvals)
    given["options"] = {**given.get("options", {}), **await _bounds(caller.user, body.conversation_id, body, rest)}
    if _wants_stream(body, accept):
        return turn_stream(caller, caller.user.chat_stream(**given))
    return await _whole(request, caller.user.chat(**given))


@router.post(
    "/{id}/run-turn",
    response_model=TurnOutcomeWire,
    responses={**problems(*_STATUSES), **streamed(_STREAMED, {**DELTAS, "result": TurnOutcomeWire})},
    openapi_extra=TURN,
)
async def run_turn(
    request: Request,
    caller: CallerIs,
    id: IdIs,
    body: RunTurn,
    traceparent: TraceIs = None,
    accept: AcceptIs = "",
) -> Response:
    """Store what the user says, ask the model, and store what it answers.

    `tools` are run by you: an outcome whose status is `approval` names the calls in `pending`; post their `toolResults`
    with the same `tools`. If the connection ends early, the turn is cancelled; what was stored stays.
    """
    given, rest = _arguments(body, request.headers.get(HEADER), traceparent), Continuation(body)
    await rest.check(caller.user, id)
    await check_appended(caller.user, id, body.content)
    given.update(model=_served_by(caller.model(body.model), body.provider), tools=rest.tools, approvals=rest.approvals)
    given["options"] = {**given.get("options", {}), **await _bounds(caller.user, id, body, rest)}
    given.pop("max_cycles", None)
    talks = caller.user.conversations
    if _wants_stream(body, accept):
        return turn_stream(caller, talks.stream_turn(id, **given))
    return await _whole(request, talks.run_turn(id, **given))


def turn_stream(caller: Caller, items: AsyncGenerator[ReplyDelta | Any, None]) -> EventStream:
    """The deltas of a turn as events, and what came of it as the last one."""
    return EventStream(turn_frames(items), caller.home.settings)


async def turn_frames(items: AsyncGenerator[ReplyDelta | Any, None]) -> AsyncGenerator[bytes, None]:
    """The frames of a turn."""
    async with aclosing(items):
        async for item in items:
            if isinstance(item, TurnOutcome | TurnResult):
                yield frame("result", ended(item).encoded())
                continue
            found = delta_event(item)
            if found is not None:
                yield b"event: %b\ndata: %b\n\n" % (found[0].encode(), found[1])


def ended(value: Ended) -> TurnOutcomeWire | TurnResultWire:
    """How a turn ended."""
    wire: TurnOutcomeWire | TurnResultWire
    wire = TurnOutcomeWire.of(value) if isinstance(value, TurnOutcome) else TurnResultWire.of(value)
    wire.problems = told_problems(value.problems)
    return wire


def told_problems(problems: Iterable[TurnProblem]) -> list[TurnProblemWire]:
    """What failed without ending a turn, in words that are fit for callers."""
    return [
        TurnProblemWire(step=each.step, error=told(each.error) if isinstance(each.error, TellbackError) else "failed")
        for each in problems
    ]


async def _whole(request: Request, work: Any) -> Response:
    if Stopping.of(request.app).is_set:
        work.close()
        return refusal(request_id_of(request))
    value = await while_awaited(request, work)
    return goes_on(answer(ended(value))) if value.pending else answer(ended(value))


def _arguments(body: TurnInput, key: str | None, traceparent: str | None) -> dict[str, Any]:
    given = with_key(body.arguments(), key)
    if "trace_id" not in given:
        found = _TRACE.fullmatch((traceparent or "").strip().lower())
        if found is not None and found[1].strip("0"):
            given["trace_id"] = found[1]
    return given


async def _bounds(user: User, id: str | None, body: TurnInput, rest: Continuation) -> dict[str, Any]:
    """How often the model may be asked: a turn that goes on has used some of it, and at last gets no more tools."""
    most = CYCLES if body.max_cycles is None else body.max_cycles
    if id is None or not rest.is_there:
        return {"max_iterations": most}
    said = await user.conversations.messages(id, LOOK_BACK, include_internal=True)
    used = sum(message.role == "assistant" and message.turn_id == said[-1].turn_id for message in said)
    return {"max_iterations": max(1, most - used), **({} if used < most else {"tool_choice": "none"})}


def _wants_stream(body: TurnInput, accept: str) -> bool:
    return body.stream or MEDIA_TYPE in accept


def _served_by(model: Any, provider: str | None) -> Any:
    """The model, if that provider serves it: another would be asked with another key."""
    if provider is None:
        return model
    names = {"offline"} if model is None else {str(getattr(model, "provider", ""))}
    if isinstance(model, str):
        entry = resolve_registration(ChatOptions(model=model))
        names = {str(entry.variant), entry.display_name}
    if provider.lower() not in {name.lower() for name in names}:
        raise NotAllowedError(f"Provider {provider!r:.120} does not serve this model here: leave it out.")
    return model
