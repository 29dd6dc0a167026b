"""The loop: ask the model, run the tools it calls, ask again, until it answers.

Four doors and an iterator, one engine (`_drive`). The engine is an async generator: deltas, then the result. Without
a queue between the model's stream and the caller, a delta costs what its hand-over costs, and closing the iterator
or cancelling the task reaches the provider call and the running tools at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from recollect import events
from recollect.chat.approval import Decision, check_decisions, decided
from recollect.chat.budget import check_budget
from recollect.chat.dispatch import call_settings, caller_for
from recollect.chat.history import open_calls, repair_history
from recollect.chat.model import Messages, as_messages
from recollect.chat.options import ChatOptions
from recollect.chat.output import InvalidOutput, OutputSpec
from recollect.chat.sink import DeltaSink, OnDelta
from recollect.errors import ConfigurationError, MaxIterationsError, OutputValidationError
from recollect.tools import Tool, dispatch_all, tools_by_name
from recollect.types import (
    ChatReply,
    ChatUsage,
    Message,
    ReplyDelta,
    ToolCall,
    ToolResult,
    message_text,
    tool_result_message,
    user_message,
)

OnMessage = Callable[[Message, ChatReply | None, bool], Awaitable[None]]

LAST_CALL = "You cannot call any more tools in this turn. Answer now with what you have, and say what is missing."


@dataclass(frozen=True, slots=True)
class LoopStep:
    """One round of the loop: the model's reply, and the results of the tools it called."""

    iteration: int
    reply: ChatReply
    tool_results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopResult:
    """How a run ended. `str(result)` is the answer.

    `messages` is the whole history, ready for the next run. `output` is the checked value when `output_type` was given.
    `pending` holds calls that wait for approval: pass `approvals={call.id: True}` with `messages` to go on.
    `stop_reason` is the last reply's, or "approval" or "max_iterations".
    """

    text: str
    messages: tuple[Message, ...]
    usage: ChatUsage
    steps: tuple[LoopStep, ...]
    stop_reason: str = "end_turn"
    output: Any = None
    pending: tuple[ToolCall, ...] = ()

    def __str__(self) -> str:
        return self.text


async def run_loop(opts: ChatOptions, user_msg: str | Message, **changes: Any) -> LoopResult:
    """Ask one question and follow it through any number of tool calls.

    `changes` are options that differ for this run, such as `output_type=Invoice`.

    >>> import asyncio
    >>> from recollect.testing import ScriptedModel, calls, says
    >>> def add(x: int, y: int) -> int: return x + y
    >>> model = ScriptedModel([calls("add", x=17, y=25), says("17 + 25 is 42.")])
    >>> str(asyncio.run(run_loop(ChatOptions(model=model, tools=[add]), "What is 17 + 25?")))
    '17 + 25 is 42.'
    """
    return await run_loop_messages(opts, _question(user_msg), **changes)


async def run_loop_messages(
    opts: ChatOptions,
    messages: Messages,
    *,
    approvals: Mapping[str, Decision] | None = None,
    on_message: OnMessage | None = None,
    **changes: Any,
) -> LoopResult:
    """The same from an explicit history; `approvals` decides calls that an earlier run left pending.

    `on_message(message, reply, last)` is awaited with every message the run adds, as soon as it is complete and before
    the run goes on: `reply` is the model's reply behind it, if any, and `last` says that the run ends with it.

    >>> import asyncio
    >>> from recollect.testing import ScriptedModel, says
    >>> from recollect.types import assistant_message
    >>> history = [user_message("Hi"), assistant_message("Hello!"), user_message("How are you?")]
    >>> len(asyncio.run(run_loop_messages(ChatOptions(model=ScriptedModel([says("Fine.")])), history)).messages)
    4
    """
    given = as_messages(messages)
    return await _finish(_drive(_with(opts, changes), given, approvals, on_message, streaming=False))


async def run_loop_stream(
    opts: ChatOptions, user_msg: str | Message, on_delta: OnDelta | None = None, **changes: Any
) -> LoopResult:
    """`run_loop`, with every delta of every model call given to `on_delta` (sync or async) as it comes.

    >>> import asyncio
    >>> from recollect.testing import ScriptedModel, says
    >>> seen = []
    >>> result = asyncio.run(run_loop_stream(ChatOptions(model=ScriptedModel([says("Hi!")])), "Hello", seen.append))
    >>> seen[0]
    TextDelta(text='Hi!')
    """
    return await run_loop_stream_messages(opts, _question(user_msg), on_delta, **changes)


async def run_loop_stream_messages(
    opts: ChatOptions,
    messages: Messages,
    on_delta: OnDelta | None = None,
    *,
    approvals: Mapping[str, Decision] | None = None,
    on_message: OnMessage | None = None,
    **changes: Any,
) -> LoopResult:
    """`run_loop_messages`, streaming.

    >>> import asyncio
    >>> from recollect.testing import ScriptedModel, says
    >>> str(asyncio.run(run_loop_stream_messages(ChatOptions(model=ScriptedModel([says("Hi!")])), "Hello")))
    'Hi!'
    """
    opts = _with(opts, changes)
    sink = DeltaSink(opts, on_delta)
    return await _finish(_drive(opts, as_messages(messages), approvals, on_message, streaming=True, sink=sink))


async def stream_loop(
    opts: ChatOptions,
    messages: Messages,
    *,
    approvals: Mapping[str, Decision] | None = None,
    on_message: OnMessage | None = None,
    **changes: Any,
) -> AsyncGenerator[ReplyDelta | LoopResult, None]:
    """An iterator over the deltas, whose last item is the `LoopResult`. Closing it cancels the run.

    >>> import asyncio
    >>> from recollect.testing import ScriptedModel, says
    >>> async def main():
    ...     async for item in stream_loop(ChatOptions(model=ScriptedModel([says("Hi!")])), "Hello"):
    ...         print(type(item).__name__)
    >>> asyncio.run(main())
    TextDelta
    StreamStop
    LoopResult
    """
    opts = _with(opts, changes)
    run = _drive(opts, as_messages(messages), approvals, on_message, streaming=True)
    label = opts.delta_data_type if opts.emit_stream_deltas else None
    try:
        async for item in run:
            if label is not None and not isinstance(item, LoopResult):
                events.emit(label, item)
            yield item
    finally:
        await run.aclose()


async def _finish(run: AsyncGenerator[ReplyDelta | LoopResult, None]) -> LoopResult:
    """The engine's result. It is run to its end: an abandoned generator would cost more than the rest of a turn."""
    async for item in run:
        result = item
    assert isinstance(result, LoopResult)
    return result


async def _drive(
    opts: ChatOptions,
    given: tuple[Message, ...],
    approvals: Mapping[str, Decision] | None,
    on_message: OnMessage | None,
    *,
    streaming: bool,
    sink: DeltaSink | None = None,
) -> AsyncGenerator[ReplyDelta | LoopResult, None]:
    """The engine. Deltas go to `sink` when there is one, and are yielded otherwise."""
    run = _Run(opts, given, on_message)
    waiting = await run.settle_open_calls(approvals or {})
    if waiting:
        yield run.result(message_text(run.last_reply), "approval", pending=waiting)
        return
    iteration = 0
    paused = ""
    while True:
        iteration += 1
        last_call = iteration > opts.max_iterations
        if last_call:
            if opts.on_max_iterations == "raise":
                raise MaxIterationsError(opts.max_iterations, run.messages, run.usage)
            run.withdraw_tools()

        run.check_budget()
        request = (tuple(run.messages), run.system, run.tools, run.settings)
        if sink is not None:
            reply = await run.caller.stream_to(*request, sink)
        elif streaming:
            items = run.caller.stream(*request)
            try:
                async for item in items:
                    if isinstance(item, ChatReply):
                        reply = item
                    else:
                        yield item
            finally:
                await items.aclose()
        else:
            reply = await run.caller.complete(*request)
        if last_call and reply.tool_calls:
            reply = replace(reply, tool_calls=(), meta=None)
        elif reply.tool_calls and reply.stop_reason == "max_tokens":
            reply = replace(reply, tool_calls=tuple(map(_cut_off, reply.tool_calls)))
        run.add(reply)

        if reply.tool_calls:
            await run.keep(reply)
            waiting = await run.use_tools(reply)
            if waiting:
                yield run.result(reply.text, "approval", pending=waiting)
                return
            continue
        run.note_step(reply)
        if reply.stop_reason == "pause_turn" and not last_call:
            await run.keep(reply)
            paused += reply.text
            continue  # the provider paused a long turn: sent back as it is, it goes on
        if await run.accept(reply):
            yield run.result(paused + reply.text, "max_iterations" if last_call else reply.stop_reason)
            return
        iteration -= 1  # a correction has a cap of its own


class _Run:
    """What one run of the loop knows and has gathered so far."""

    def __init__(self, opts: ChatOptions, given: tuple[Message, ...], on_message: OnMessage | None) -> None:
        if opts.skills or opts.skill_resolver is not None:
            raise ConfigurationError("ChatOptions.skills and skill_resolver are not supported by this version yet.")
        if not given:
            raise ConfigurationError("There is nothing to answer: pass at least one message.")
        self._opts = opts
        self._spec = OutputSpec.of(opts.output_type) if opts.output_type is not None else None
        self._steps: list[LoopStep] = []
        self._failures = 0
        self._withdrawn = False
        self._on_message = on_message
        self.caller = caller_for(opts)
        self.known: dict[str, Tool] = tools_by_name(opts.tools) if opts.tools else {}
        self.tools = tuple(self.known.values())
        self.system = opts.system
        self.settings = call_settings(opts)
        self.messages = list(given)
        self.usage = ChatUsage()
        self.output: Any = None

    async def settle_open_calls(self, approvals: Mapping[str, Decision]) -> tuple[ToolCall, ...]:
        """Bring the given history in order; gives the calls that still wait for a decision.

        A call at its end that needs approval is run, denied or left pending. Any other call without a result was
        interrupted: it is not run again, since nobody knows whether it took effect.
        """
        if approvals:
            check_decisions(approvals, self.messages)
        ready: list[ToolCall] = []
        denied: list[ToolResult] = []
        waiting: list[ToolCall] = []
        for call in open_calls(self.messages):
            tool = self.known.get(call.name)
            decision = approvals.get(call.id)
            if decision is not None:
                outcome = decided(call, decision)
                if isinstance(outcome, ToolCall):
                    ready.append(outcome)
                else:
                    denied.append(outcome)
            elif tool is not None and tool.requires_approval:
                waiting.append(call)
        for result in denied:
            await self._keep_result(result)
        results = denied + (await dispatch_all(ready, self.known, self._keep_result) if ready else [])
        if results:
            asked = self.last_reply
            self.messages.extend(map(tool_result_message, results))
            reply = ChatReply(message_text(asked), asked.tool_calls, "tool_use", meta=asked.meta)
            self.note_step(reply, tuple(results))
            self._free_tool_choice()
        if not waiting:
            self.messages = repair_history(self.messages)
        return tuple(waiting)

    @property
    def last_reply(self) -> Message:
        """The last thing the model said."""
        return next(message for message in reversed(self.messages) if message.role == "assistant")

    def check_budget(self) -> None:
        check_budget(self._opts, self.messages, self.tools)

    def add(self, reply: ChatReply) -> None:
        self.messages.append(reply.message)
        if reply.usage is not None:
            self.usage = reply.usage if not self._steps else self.usage + reply.usage

    async def keep(self, reply: ChatReply, *, last: bool = False) -> None:
        """Hand the newest message, the reply's, to whoever wants to keep it."""
        if self._on_message is not None:
            await self._on_message(self.messages[-1], reply, last)

    async def _keep_result(self, result: ToolResult) -> None:
        if self._on_message is not None:
            await self._on_message(tool_result_message(result), None, False)

    async def use_tools(self, reply: ChatReply) -> tuple[ToolCall, ...]:
        """Run the reply's calls at the same time; gives those that need approval, which are not run."""
        ready: list[ToolCall] = []
        waiting: list[ToolCall] = []
        for call in reply.tool_calls:
            (waiting if self._needs_approval(call) else ready).append(call)
        on_result = None if self._on_message is None else self._keep_result
        results = await dispatch_all(ready, self.known, on_result) if ready else []
        for result in results:
            self.messages.append(tool_result_message(result))
        self.note_step(reply, tuple(results))
        self._free_tool_choice()
        return tuple(waiting)

    def _free_tool_choice(self) -> None:
        """Once a tool has been called: held to it, the model could never answer."""
        if self.settings.get("tool_choice") not in (None, "auto", "none"):
            del self.settings["tool_choice"]

    def _needs_approval(self, call: ToolCall) -> bool:
        """Whether a person must decide. Arguments that do not fit go back to the model instead."""
        tool = self.known.get(call.name)
        if tool is None or not tool.requires_approval or call.invalid_input is not None:
            return False
        try:
            tool.bind(call.input)
        except Exception:  # noqa: BLE001
            return False  # whatever is wrong with them, dispatch will tell the model
        return True

    def note_step(self, reply: ChatReply, results: tuple[ToolResult, ...] = ()) -> None:
        step = LoopStep(len(self._steps) + 1, reply, results)
        self._steps.append(step)
        if self._opts.emit_steps:
            events.emit(self._opts.step_data_type, step)

    def withdraw_tools(self) -> None:
        """Prepare for the one call that must be an answer."""
        if self._withdrawn:
            return
        self._withdrawn = True
        self.tools = ()
        self.settings.pop("tool_choice", None)
        self.system = f"{self.system}\n\n{LAST_CALL}" if self.system else LAST_CALL

    async def accept(self, reply: ChatReply) -> bool:
        """Whether the reply ends the run; if it should be a value and is not, the model is told why."""
        await self.keep(reply, last=self._spec is None)
        if self._spec is None:
            return True
        if reply.stop_reason == "refusal":
            raise OutputValidationError(self._spec.name, "the model refused to answer", reply.text, self.messages)
        try:
            self.output = self._spec.parse(reply.text)
        except InvalidOutput as problem:
            self._failures += 1
            if self._failures > self._opts.output_retries:
                raise OutputValidationError(self._spec.name, str(problem), reply.text, self.messages) from None
            self.messages.append(
                user_message(f"That is not valid: {problem}. Answer again, with the corrected JSON and nothing else.")
            )
            if self._on_message is not None:
                await self._on_message(self.messages[-1], None, False)
            return False
        return True

    def result(self, text: str, stop_reason: str, *, pending: tuple[ToolCall, ...] = ()) -> LoopResult:
        return LoopResult(text, tuple(self.messages), self.usage, tuple(self._steps), stop_reason, self.output, pending)


def _cut_off(call: ToolCall) -> ToolCall:
    """A call of a reply that reached the output cap: with no arguments at all, they were most likely not reached."""
    return call if call.input or call.invalid_input is not None else replace(call, invalid_input="")


def _question(user_msg: str | Message) -> tuple[Message, ...]:
    if isinstance(user_msg, str | Message | Mapping):
        return as_messages(user_msg)
    raise ConfigurationError(
        f"user_msg is a str or a Message, not {type(user_msg).__name__}; for a history use run_loop_messages."
    )


def _with(opts: ChatOptions, changes: Mapping[str, Any]) -> ChatOptions:
    if not isinstance(opts, ChatOptions):
        raise ConfigurationError(f"The first argument is ChatOptions(model=...), not {opts!r:.80}.")
    if not changes:
        return opts
    unknown = [name for name in changes if name not in ChatOptions.__dataclass_fields__]
    if unknown:
        raise ConfigurationError(f"{', '.join(unknown)}: not an option of ChatOptions.")
    return replace(opts, **changes)
