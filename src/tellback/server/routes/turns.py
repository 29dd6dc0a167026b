"""`/ai-conversations/chat` and `run-turn`: run turns, as JSON or as a stream of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import aclosing
from typing import Any

from fastapi import Request, Response

from tellback.chat import ChatOptions, resolve_registration
from tellback.errors import InvalidArgumentError, NotAllowedError, TellbackError
from tellback.server.auth import Caller
from tellback.server.client_tools import TurnContinuation, validate_appended
from tellback.server.idempotency import KEY_HEADER, mark_unfinished
from tellback.server.lifecycle import cancel_on_disconnect
from tellback.server.middleware.observability import parse_traceparent
from tellback.server.problems import public_message
from tellback.server.responses import json_response
from tellback.server.routes.endpoint import Call, handle, with_idempotency_key
from tellback.server.streaming.sse import MEDIA_TYPE, EventStream, encode_frame
from tellback.types import ReplyDelta
from tellback.types.conversations import TurnProblem, TurnResult
from tellback.user import User
from tellback.wire.turns import (
    MAX_CYCLES,
    BaseTurnInput,
    TurnOutcomeWire,
    TurnProblemWire,
    TurnResultWire,
    encode_delta,
)

DEFAULT_CYCLES = 10
"""The default limit of model calls per turn."""
MAX_LOOKBACK = 3 * MAX_CYCLES


@handle("chat")
async def chat(call: Call) -> Response:
    """Answer a message of a user's chat."""
    request, caller, body = call.request, call.caller, call.body
    arguments, continuation = _turn_arguments(call), TurnContinuation(body)
    if continuation.is_present and body.conversation_id is None:
        raise InvalidArgumentError("toolResults and approvals continue a conversation: send its conversationId.")
    if body.conversation_id is not None:
        await continuation.validate(caller.user, body.conversation_id)
    arguments.update(model=caller.resolve_model(body.model), tools=continuation.tools, approvals=continuation.approvals)
    arguments["options"] |= await _iteration_options(caller.user, body.conversation_id, body, continuation)
    if wants_stream(call):
        return stream_turn_response(caller, caller.user.chat_stream(**arguments), TurnResultWire)
    return await run_turn_to_end(request, caller.user.chat(**arguments), TurnResultWire)


@handle("run_turn")
async def run_turn(call: Call) -> Response:
    """Run a turn of a conversation."""
    request, caller, body, id = call.request, call.caller, call.body, call.arguments["id"]
    arguments, continuation = _turn_arguments(call), TurnContinuation(body)
    await continuation.validate(caller.user, id)
    await validate_appended(caller.user, id, body.content)
    arguments.update(
        model=_check_provider(caller.resolve_model(body.model), body.provider),
        tools=continuation.tools,
        approvals=continuation.approvals,
    )
    arguments["options"] |= await _iteration_options(caller.user, id, body, continuation)
    conversations = caller.user.conversations
    if wants_stream(call):
        return stream_turn_response(caller, conversations.stream_turn(id, **arguments), TurnOutcomeWire)
    return await run_turn_to_end(request, conversations.run_turn(id, **arguments), TurnOutcomeWire)


def stream_turn_response(
    caller: Caller, items: AsyncGenerator[ReplyDelta | TurnResult, None], model: type[TurnResultWire]
) -> EventStream:
    """Send the deltas of a turn as events, and its result as the last one."""
    return EventStream(_encode_frames(items, model), caller.server.settings)


async def _encode_frames(
    items: AsyncGenerator[ReplyDelta | TurnResult, None], model: type[TurnResultWire]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(items):
        async for item in items:
            if isinstance(item, TurnResult):
                yield encode_frame("result", encode_turn_result(item, model).to_json())
                continue
            encoded = encode_delta(item)
            if encoded is not None:
                yield b"event: %b\ndata: %b\n\n" % (encoded[0].encode(), encoded[1])


def encode_turn_result(value: TurnResult, model: type[TurnResultWire]) -> TurnResultWire:
    """Encode the result of a turn."""
    wire: TurnResultWire = model.from_value(value)
    wire.problems = encode_problems(value.problems)
    return wire


def encode_problems(problems: Iterable[TurnProblem]) -> list[TurnProblemWire]:
    """Encode the problems of a turn with messages that callers may see."""
    return [
        TurnProblemWire(
            step=each.step, error=public_message(each.error) if isinstance(each.error, TellbackError) else "failed"
        )
        for each in problems
    ]


async def run_turn_to_end(
    request: Request, work: Coroutine[Any, Any, TurnResult], model: type[TurnResultWire]
) -> Response:
    """Run a turn, and encode its result. A turn with pending calls can be continued with the same idempotency key."""
    result = await cancel_on_disconnect(request, work)
    response = json_response(encode_turn_result(result, model))
    return mark_unfinished(response) if result.pending else response


def _turn_arguments(call: Call) -> dict[str, Any]:
    arguments = with_idempotency_key(call.body.arguments(), call.request.headers.get(KEY_HEADER))
    arguments.setdefault("options", {})
    if "trace_id" not in arguments:
        parent = parse_traceparent((call.arguments["traceparent"] or "").lower())
        if parent is not None:
            arguments["trace_id"] = parent.trace_id
    return arguments


async def _iteration_options(
    user: User, id: str | None, body: BaseTurnInput, continuation: TurnContinuation
) -> dict[str, Any]:
    """Return the remaining model calls. A continued turn has used some; if none remain, it gets no tools."""
    max_cycles = DEFAULT_CYCLES if body.max_cycles is None else body.max_cycles
    if id is None or not continuation.is_present:
        return {"max_iterations": max_cycles}
    messages = await user.conversations.messages(id, MAX_LOOKBACK, include_internal=True)
    used = sum(message.role == "assistant" and message.turn_id == messages[-1].turn_id for message in messages)
    return {"max_iterations": max(1, max_cycles - used), **({} if used < max_cycles else {"tool_choice": "none"})}


def wants_stream(call: Call) -> bool:
    """Whether the client requests a stream of events."""
    return call.body.stream or MEDIA_TYPE in call.arguments["accept"]


def _check_provider(model: Any, provider: str | None) -> Any:
    """Return the model; raise if it is served by another provider than the requested one."""
    if provider is None:
        return model
    names = {"offline"} if model is None else {str(getattr(model, "provider", ""))}
    if isinstance(model, str):
        entry = resolve_registration(ChatOptions(model=model))
        names = {str(entry.variant), entry.display_name}
    if provider.lower() not in {name.lower() for name in names}:
        raise NotAllowedError(f"Provider {provider!r:.120} does not serve this model: omit the provider.")
    return model
