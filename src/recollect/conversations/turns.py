"""Turns: a user's message, the model, its tools, and every message kept as soon as it is complete."""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from recollect.chat import (
    ChatOptions,
    LoopResult,
    Model,
    ProviderRegistration,
    builtin_providers,
    run_loop_messages,
    stream_loop,
)
from recollect.conversations.claims import Claim, TurnClaims
from recollect.conversations.runtime import Runtime
from recollect.errors import ConfigurationError, InvalidArgumentError
from recollect.stores import Appended, TurnDraft, TurnStarted
from recollect.tools import Tool
from recollect.types import ChatReply, Message, ReplyDelta, StreamStop
from recollect.types.blocks import message_blocks
from recollect.types.conversations import MessageDraft, StoredMessage, ToolInvocation, TurnOutcome
from recollect.types.ids import new_id
from recollect.types.scope import Scope

TAIL_LIMIT = 30
WAIT_SECONDS = 60.0

_STATUS = {"approval": "approval", "max_iterations": "max_cycles", "max_tokens": "truncated"}

ToolHandler = Callable[[str, dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A turn to run: the options with everything resolved, and the user's message, unless a turn is resumed."""

    scope: Scope
    conversation_id: str
    options: ChatOptions
    draft: MessageDraft | None
    approvals: Mapping[str, Any] | None = None
    tail_limit: int = TAIL_LIMIT
    wait: float = WAIT_SECONDS
    trace_id: str | None = None


class Turns:
    """Runs turns. `after` is told how far the conversation has come whenever a turn has ended."""

    def __init__(self, runtime: Runtime, claims: TurnClaims, after: Callable[[Scope, str, Appended], None]) -> None:
        self._runtime = runtime
        self._claims = claims
        self._after = after

    async def run(self, request: TurnRequest) -> TurnOutcome:
        """Run a turn to its end."""
        began = time.monotonic()
        async with self._claimed(request) as claim:
            keeper = _Keeper(self._runtime, request, claim)
            try:
                result = await run_loop_messages(
                    request.options, history_of(claim.started), approvals=request.approvals, on_message=keeper.keep
                )
            finally:
                self._ended(request, keeper)
            return keeper.outcome(result, began)

    async def stream(self, request: TurnRequest) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        """The same as deltas, and the outcome last."""
        began = time.monotonic()
        async with self._claimed(request) as claim:
            keeper = _Keeper(self._runtime, request, claim)
            items = stream_loop(
                request.options, history_of(claim.started), approvals=request.approvals, on_message=keeper.keep
            )
            stop: StreamStop | None = None
            try:
                async for item in items:
                    if stop is not None:
                        yield stop
                        stop = None
                    if isinstance(item, LoopResult):
                        outcome = keeper.outcome(item, began)
                    elif isinstance(item, StreamStop):
                        stop = item  # held back until the reply is stored: some stop reading here
                    else:
                        yield item
            finally:
                self._ended(request, keeper)
                await items.aclose()
        yield outcome

    def _claimed(self, request: TurnRequest) -> Any:
        return self._claims.claimed(
            request.scope,
            request.conversation_id,
            request.draft,
            tail_limit=request.tail_limit,
            wait=request.wait,
        )

    def _ended(self, request: TurnRequest, keeper: _Keeper) -> None:
        if keeper.progress is not None:
            self._after(request.scope, request.conversation_id, keeper.progress)


class _Keeper:
    """Puts a run's messages into the log, each in a transaction of its own; the last one also ends the claim."""

    def __init__(self, runtime: Runtime, request: TurnRequest, claim: Claim) -> None:
        self._runtime = runtime
        self._request = request
        self._claim = claim
        self._kept: list[StoredMessage] = []
        self.progress: Appended | None = None
        if claim.started.user_message is not None:
            self._kept.append(claim.started.user_message)

    async def keep(self, message: Message, reply: ChatReply | None, last: bool) -> None:
        """`on_message` of the loop."""
        usage = None if reply is None else reply.usage
        now = self._runtime.clock()
        draft = MessageDraft(
            id=new_id("msg"),
            role=message.role,
            content=message_blocks(message),
            created_at=now,
            # The loop's own remark on an answer that does not fit is for the model only.
            visibility="internal" if message.role == "user" else "user",
            stop_reason=None if reply is None else reply.stop_reason,
            model=None if reply is None else (usage and usage.model) or self._request.options.model_name or None,
            provider=None if usage is None else usage.provider,
            usage=usage,
            trace_id=self._request.trace_id,
            meta=message.meta,
        )
        claim = self._claim
        self.progress = await self._runtime.store.conversations.append(
            claim.scope,
            claim.conversation_id,
            [TurnDraft(claim.turn_id, [draft])],
            now=now,
            release=claim.owner if last else None,
        )
        claim.released = claim.released or last
        self._kept.extend(self.progress.messages)

    def outcome(self, result: LoopResult, began: float) -> TurnOutcome:
        """The turn as it stands in the log."""
        return TurnOutcome(
            status=_STATUS.get(result.stop_reason, "completed"),
            text=result.text,
            turn_id=self._claim.turn_id,
            conversation_id=self._claim.conversation_id,
            appended_messages=tuple(self._kept),
            aggregate_usage=result.usage,
            tool_invocations=_invocations(result),
            total_latency_ms=round((time.monotonic() - began) * 1000),
            stop_reason=result.stop_reason,
            pending=result.pending,
            output=result.output,
        )


def _invocations(result: LoopResult) -> tuple[ToolInvocation, ...]:
    found = []
    for step in result.steps:
        results = {given.id: given for given in step.tool_results}
        for call in step.reply.tool_calls:
            given = results.get(call.id)
            if given is None:
                found.append(ToolInvocation(call.id, call.name, call.input))
            else:
                found.append(ToolInvocation(call.id, call.name, call.input, given.content, given.is_error))
    return tuple(found)


def history_of(started: TurnStarted) -> list[Message]:
    """What the model is sent: the tail of the log, without results whose call lies before it.

    When the user's message was already there, its turn is being run again. If it was cut off in the middle, it goes on
    from there; if it was complete, it is answered anew, as if nothing had followed.
    """
    kept = list(itertools.dropwhile(lambda message: message.role == "tool", started.history)) or list(started.history)
    if started.later and _is_unfinished(started.later, started.turn_id):
        kept.extend(message for stored in started.later for message in stored.messages)
    return kept


def _is_unfinished(later: Sequence[StoredMessage], turn_id: str) -> bool:
    if any(message.turn_id != turn_id for message in later):
        return False
    last = later[-1]
    return last.role != "assistant" or bool(last.tool_calls)


def resolve_options(
    given: ChatOptions | Mapping[str, Any] | None,
    *,
    model: str | Model | None,
    provider: str | None,
    tools: Sequence[Any] | None,
    tool_handler: ToolHandler | None,
    max_cycles: int | None,
    default_model: str | Model | None,
) -> ChatOptions:
    """What a caller passed to `run_turn`, as options for the loop; whatever is wrong with it is found here."""
    changes: dict[str, Any] = {}
    if not isinstance(given, ChatOptions | Mapping | None):
        raise InvalidArgumentError(f"options is a ChatOptions or a mapping, not {given!r:.80}.")
    if not isinstance(given, ChatOptions):
        changes = {"on_max_iterations": "answer", **_option_fields(given or {})}
        given = _NO_OPTIONS
    if model is not None:
        changes["model"] = model
    elif not (changes.get("model") or given.model or _has_function(given) or changes.keys() & _FUNCTIONS):
        if default_model is None:
            raise ConfigurationError(
                "No model is set: pass run_turn(model=...), or Recollect(..., model=...) for all turns."
            )
        changes["model"] = default_model
    tools = changes.get("tools") if tools is None else tools
    if tools is not None:
        if callable(tools) or isinstance(tools, str | Mapping):
            raise InvalidArgumentError(f"tools is a list, not {tools!r:.80}: write tools=[...].")
        changes["tools"] = [_as_tool(entry, tool_handler) for entry in tools]
    if max_cycles is not None:
        changes["max_iterations"] = max_cycles
    if provider is not None:
        changes["providers"] = [_named_provider(provider, changes.get("providers", given.providers))]
    return ChatOptions(**changes) if given is _NO_OPTIONS else replace(given, **changes)


_NO_OPTIONS = ChatOptions()
_OPTIONS = frozenset(field.name for field in fields(ChatOptions))
_FUNCTIONS = frozenset(("chat_fn", "chat_stream_fn"))


def _has_function(options: ChatOptions) -> bool:
    return options.chat_fn is not None or options.chat_stream_fn is not None


def _option_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in given.items():
        name = {"system_prompt": "system", "systemPrompt": "system"}.get(name, name)
        if name not in _OPTIONS:
            raise InvalidArgumentError(
                f"options has no {name!r}: it takes system_prompt and the fields of ChatOptions;"
                " settings for the provider go into config={...}."
            )
        found[name] = value
    return found


def _as_tool(entry: Any, handler: ToolHandler | None) -> Any:
    """A tool, a function, or a description whose calls go to the handler."""
    if not isinstance(entry, Mapping):
        return entry
    described: Mapping[str, Any] = entry["function"] if isinstance(entry.get("function"), Mapping) else entry
    name = described.get("name")
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a tool's description needs a name: {entry!r:.120}.")
    if handler is None:
        raise InvalidArgumentError(f"tool {name!r} is only described: pass tool_handler=..., or a function instead.")
    schema = next(
        (described[key] for key in ("parameters", "input_schema", "inputSchema") if described.get(key) is not None),
        {"type": "object", "properties": {}},
    )
    return Tool(name, str(described.get("description") or ""), schema, _handled(name, handler))


def _handled(name: str, handler: ToolHandler) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(handler):

        async def call(**arguments: Any) -> Any:
            return await handler(name, arguments)

        return call
    return lambda **arguments: handler(name, arguments)


def _named_provider(provider: str, registry: Sequence[ProviderRegistration] | None) -> ProviderRegistration:
    """The registration of that name, for whatever model it is asked."""
    entries = builtin_providers() if registry is None else list(registry)
    for entry in reversed(entries):
        if str(provider).lower() in (str(entry.variant).lower(), entry.display_name.lower()):
            return replace(entry, detect=lambda _: True)
    known = ", ".join(dict.fromkeys(str(entry.variant) for entry in entries))
    raise ConfigurationError(f"No provider is called {provider!r}. Known: {known}.")
