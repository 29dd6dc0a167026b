"""The loop: ask the model, run the tools it calls, ask again, until it answers.

Four doors and an iterator, one engine (`_drive`). The engine is an async generator: deltas, then the result. Without
a queue between the model's stream and the caller, a delta costs what its hand-over costs, and closing the iterator
or cancelling the task reaches the provider call and the running tools at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

from tellback import events
from tellback.chat.approval import Decision, as_approvals
from tellback.chat.model import Messages, as_messages
from tellback.chat.options import ChatOptions
from tellback.chat.run import LoopResult, LoopRun, OnApproved, OnMessage
from tellback.chat.sink import DeltaSink, OnDelta
from tellback.errors import ConfigurationError, MaxIterationsError
from tellback.types import ChatReply, Message, ReplyDelta, ToolCall, message_text


async def run_loop(opts: ChatOptions, user_msg: str | Message, **changes: Any) -> LoopResult:
    """Ask one question and follow it through any number of tool calls.

    `changes` are options that differ for this run, such as `output_type=Invoice`.

    >>> import asyncio
    >>> from tellback.testing import ScriptedModel, calls, says
    >>> def add(x: int, y: int) -> int: return x + y
    >>> model = ScriptedModel([calls("add", x=17, y=25), says("17 + 25 is 42.")])
    >>> str(asyncio.run(run_loop(ChatOptions(model=model, tools=[add]), "What is 17 + 25?")))
    '17 + 25 is 42.'
    """
    return await run_loop_messages(opts, _as_user_messages(user_msg), **changes)


async def run_loop_messages(
    opts: ChatOptions,
    messages: Messages,
    *,
    approvals: Mapping[str, Decision] | None = None,
    on_message: OnMessage | None = None,
    on_approved: OnApproved | None = None,
    **changes: Any,
) -> LoopResult:
    """The same from an explicit history; `approvals` decides calls that an earlier run left pending.

    `on_message(message, reply, last)` is awaited with every message the run adds, as soon as it is complete and before
    the run goes on: `reply` is the model's reply behind it, if any, and `last` says that the run ends with it.
    `on_approved(calls)` is awaited before calls that were approved run, to note that they may have taken effect.

    >>> import asyncio
    >>> from tellback.testing import ScriptedModel, says
    >>> from tellback.types import assistant_message, user_message
    >>> history = [user_message("Hi"), assistant_message("Hello!"), user_message("How are you?")]
    >>> len(asyncio.run(run_loop_messages(ChatOptions(model=ScriptedModel([says("Fine.")])), history)).messages)
    4
    """
    history = as_messages(messages)
    return await _collect_result(
        _iterate_run(_apply_changes(opts, changes), history, approvals, on_message, on_approved, streaming=False)
    )


async def run_loop_stream(
    opts: ChatOptions, user_msg: str | Message, on_delta: OnDelta | None = None, **changes: Any
) -> LoopResult:
    """`run_loop`, with every delta of every model call given to `on_delta` (sync or async) as it comes.

    >>> import asyncio
    >>> from tellback.testing import ScriptedModel, says
    >>> seen = []
    >>> result = asyncio.run(run_loop_stream(ChatOptions(model=ScriptedModel([says("Hi!")])), "Hello", seen.append))
    >>> seen[0]
    TextDelta(text='Hi!')
    """
    return await run_loop_stream_messages(opts, _as_user_messages(user_msg), on_delta, **changes)


async def run_loop_stream_messages(
    opts: ChatOptions,
    messages: Messages,
    on_delta: OnDelta | None = None,
    *,
    approvals: Mapping[str, Decision] | None = None,
    on_message: OnMessage | None = None,
    on_approved: OnApproved | None = None,
    **changes: Any,
) -> LoopResult:
    """`run_loop_messages`, streaming.

    >>> import asyncio
    >>> from tellback.testing import ScriptedModel, says
    >>> str(asyncio.run(run_loop_stream_messages(ChatOptions(model=ScriptedModel([says("Hi!")])), "Hello")))
    'Hi!'
    """
    opts = _apply_changes(opts, changes)
    sink = DeltaSink(opts, on_delta)
    return await _collect_result(
        _iterate_run(opts, as_messages(messages), approvals, on_message, on_approved, streaming=True, sink=sink)
    )


async def stream_loop(
    opts: ChatOptions,
    messages: Messages,
    *,
    approvals: Mapping[str, Decision] | None = None,
    on_message: OnMessage | None = None,
    on_approved: OnApproved | None = None,
    **changes: Any,
) -> AsyncGenerator[ReplyDelta | LoopResult, None]:
    """An iterator over the deltas, whose last item is the `LoopResult`. Closing it cancels the run.

    >>> import asyncio
    >>> from tellback.testing import ScriptedModel, says
    >>> async def main():
    ...     async for item in stream_loop(ChatOptions(model=ScriptedModel([says("Hi!")])), "Hello"):
    ...         print(type(item).__name__)
    >>> asyncio.run(main())
    TextDelta
    StreamStop
    LoopResult
    """
    opts = _apply_changes(opts, changes)
    run = _iterate_run(opts, as_messages(messages), approvals, on_message, on_approved, streaming=True)
    label = opts.delta_data_type if opts.emit_stream_deltas else None
    try:
        async for item in run:
            if label is not None and not isinstance(item, LoopResult):
                events.emit(label, item)
            yield item
    finally:
        await run.aclose()


async def _collect_result(run: AsyncGenerator[ReplyDelta | LoopResult, None]) -> LoopResult:
    """The engine's result. It is run to its end: an abandoned generator would cost more than the rest of a turn."""
    async for item in run:
        result = item
    assert isinstance(result, LoopResult)
    return result


async def _iterate_run(
    opts: ChatOptions,
    messages: tuple[Message, ...],
    approvals: Mapping[str, Decision] | None,
    on_message: OnMessage | None,
    on_approved: OnApproved | None,
    *,
    streaming: bool,
    sink: DeltaSink | None = None,
) -> AsyncGenerator[ReplyDelta | LoopResult, None]:
    """The engine. Deltas go to `sink` when there is one, and are yielded otherwise."""
    run = LoopRun(opts, messages, on_message, on_approved)
    if opts.skills or opts.skill_resolver is not None:
        await run.offer_skills()
    pending = await run.resolve_pending_calls(as_approvals(approvals) if approvals else {})
    if pending:
        yield run.build_result(message_text(run.last_assistant_message), "approval", pending=pending)
        return
    iteration = 0
    paused_text = ""
    while True:
        iteration += 1
        is_final_call = iteration > opts.max_iterations
        if is_final_call:
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
        if is_final_call and reply.tool_calls:
            reply = replace(reply, tool_calls=(), meta=None)
        elif reply.tool_calls and reply.stop_reason == "max_tokens":
            reply = replace(reply, tool_calls=tuple(map(_mark_truncated, reply.tool_calls)))
        run.add_reply(reply)

        if reply.tool_calls:
            await run.notify_reply(reply)
            pending = await run.run_tools(reply)
            if pending:
                yield run.build_result(reply.text, "approval", pending=pending)
                return
            continue
        run.record_step(reply)
        if reply.stop_reason == "pause_turn" and not is_final_call:
            await run.notify_reply(reply)
            paused_text += reply.text
            continue  # the provider paused a long turn: sent back as it is, it goes on
        if await run.accept_reply(reply):
            yield run.build_result(paused_text + reply.text, "max_iterations" if is_final_call else reply.stop_reason)
            return
        iteration -= 1  # a correction has a cap of its own


def _mark_truncated(call: ToolCall) -> ToolCall:
    """A call of a reply that reached the output cap: with no arguments at all, they were most likely not reached."""
    return call if call.input or call.invalid_input is not None else replace(call, invalid_input="")


def _as_user_messages(user_msg: str | Message) -> tuple[Message, ...]:
    if isinstance(user_msg, str | Message | Mapping):
        return as_messages(user_msg)
    raise ConfigurationError(
        f"user_msg is a str or a Message, not {type(user_msg).__name__}; for a history use run_loop_messages."
    )


def _apply_changes(opts: ChatOptions, changes: Mapping[str, Any]) -> ChatOptions:
    if not isinstance(opts, ChatOptions):
        raise ConfigurationError(f"The first argument is ChatOptions(model=...), not {opts!r:.80}.")
    if not changes:
        return opts
    unknown = [name for name in changes if name not in ChatOptions.__dataclass_fields__]
    if unknown:
        raise ConfigurationError(f"{', '.join(unknown)}: not an option of ChatOptions.")
    return replace(opts, **changes)
