"""The tool loop: call the model, run the tools it calls, and call it again until it answers.

Every public function uses one engine (`_iterate_run`), an async generator of deltas that ends with the `LoopResult`.
There is no queue between the model's stream and the caller. So closing the iterator or cancelling the task immediately
stops the provider call and running tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from tellback import events
from tellback.chat.approval import (
    Decision,
    apply_decision,
    as_approvals,
    note_changed_input,
    validate_decisions,
    validate_runnable,
)
from tellback.chat.dispatch import CallRequest, DeltaSink, OnDelta, call_settings, resolve_caller
from tellback.chat.history import INTERRUPTED, UNDECIDED, pending_calls, repair_history
from tellback.chat.model import Messages, as_messages
from tellback.chat.options import ChatOptions, ChatOptionsDict, check_budget
from tellback.chat.output import InvalidOutput, OutputSpec
from tellback.errors import ConfigurationError, MaxIterationsError, OutputValidationError
from tellback.tools import Tool, dispatch_all, tools_by_name
from tellback.types import (
    ChatReply,
    ChatUsage,
    Message,
    ReplyDelta,
    TextDelta,
    ToolCall,
    ToolResult,
    message_text,
    tool_result_message,
    user_message,
)
from tellback.types.jsontext import to_json_value

if TYPE_CHECKING:
    from tellback.skills.toolset import SkillOffer

OnMessage = Callable[[Message, ChatReply | None, bool], Awaitable[None]]
OnApproved = Callable[[Sequence[ToolCall]], Awaitable[None]]

FINAL_CALL_INSTRUCTION = (
    "You cannot call any more tools in this turn. Answer now with what you have, and say what is missing."
)


@dataclass(frozen=True, slots=True)
class LoopStep:
    """One round of the loop: the model's reply, and the results of the tools it called.

    >>> import asyncio
    >>> from tellback.testing import ScriptedModel, calls, says
    >>> def add(x: int, y: int) -> int: return x + y
    >>> model = ScriptedModel([calls("add", x=17, y=25), says("17 + 25 is 42.")])
    >>> result = asyncio.run(run_loop(ChatOptions(model=model, tools=[add]), "What is 17 + 25?"))
    >>> [(step.iteration, step.reply.text, [each.content for each in step.tool_results]) for step in result.steps]
    [(1, '', ['42']), (2, '17 + 25 is 42.', [])]
    """

    iteration: int
    reply: ChatReply
    tool_results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopResult:
    """The result of a run. `str(result)` is the answer.

    `messages` is the whole history, ready for the next run. `output` is the validated value if `output_type` was set.
    `pending` has the calls that wait for approval: to continue, pass `approvals={call.id: True}` with `messages`.
    `stop_reason` is that of the last reply, or "approval" or "max_iterations". `open_skills` are the skills whose tools
    were available at the end.

    >>> import asyncio
    >>> from tellback.chat import ChatOptions, run_loop
    >>> from tellback.testing import ScriptedModel, says
    >>> result = asyncio.run(run_loop(ChatOptions(model=ScriptedModel([says("Hello!")])), "Hi"))
    >>> result.text, result.stop_reason, len(result.messages)
    ('Hello!', 'end_turn', 2)
    """

    text: str
    messages: tuple[Message, ...]
    usage: ChatUsage
    steps: tuple[LoopStep, ...]
    stop_reason: str = "end_turn"
    output: Any = None
    pending: tuple[ToolCall, ...] = ()
    open_skills: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, without the providers' raw answers."""
        steps = tuple(replace(step, reply=replace(step.reply, raw=None)) for step in self.steps)
        result: dict[str, Any] = to_json_value(replace(self, steps=steps))
        return result

    def __str__(self) -> str:
        return self.text


class LoopRun:
    """The state of one run of the loop."""

    def __init__(
        self,
        opts: ChatOptions,
        messages: tuple[Message, ...],
        approvals: Mapping[str, Decision] | None,
        on_message: OnMessage | None,
        on_approved: OnApproved | None,
    ) -> None:
        if not messages:
            raise ConfigurationError("messages is empty: pass at least one message.")
        self._opts = opts
        self._output_spec = OutputSpec.from_type(opts.output_type) if opts.output_type is not None else None
        self._steps: list[LoopStep] = []
        self._output_failures = 0
        self._tools_withdrawn = False
        self.has_asked_again = False
        self._approvals = as_approvals(approvals) if approvals else {}
        self._on_message = on_message
        self._on_approved = on_approved
        self._skill_offer: SkillOffer | None = None
        self.caller = resolve_caller(opts)
        self._own_tools: dict[str, Tool] = tools_by_name(opts.tools) if opts.tools else {}
        self.callable_tools = self._own_tools
        self.tools = tuple(self._own_tools.values())
        self.system = opts.system
        self.settings = call_settings(opts)
        self.messages = list(messages)
        self.usage = ChatUsage()
        self.output: Any = None

    async def offer_skills(self) -> None:
        """Add the index of skills to the system prompt, and their tools to the tools."""
        from tellback.skills import effective_resolver  # loaded only if there are skills
        from tellback.skills.toolset import SkillOffer

        resolver = effective_resolver(self._opts.skill_resolver, self._opts.skills)
        if resolver is None:
            return
        self._skill_offer = await SkillOffer.build(
            resolver,
            messages=tuple(self.messages),
            system=self._opts.system,
            model=self._opts.model_name,
            skill_context=self._opts.skill_context,
            taken=self._own_tools,
        )
        await self._skill_offer.reopen(self.messages, self._opts.open_skills)
        self.system = "\n\n".join(filter(None, (self.system, self._skill_offer.index))) or None
        self._opts = replace(self._opts, system=self.system)  # its tokens count as well
        self._refresh_tools()

    def _refresh_tools(self) -> None:
        """Update the tools, since reading a skill adds its tools."""
        if self._skill_offer is not None:
            self.callable_tools = {**self._own_tools, **self._skill_offer.tools}
            self.tools = () if self._tools_withdrawn else tuple(self.callable_tools.values())

    async def resolve_pending_calls(self) -> tuple[ToolCall, ...]:
        """Run or deny the decided calls at the end of the history, and return the calls without a decision.

        Other calls without a result were interrupted. They are not run again, since they may have taken effect.
        """
        approvals = self._approvals
        if approvals:
            validate_decisions(approvals, self.messages)
        approved_calls: dict[str, ToolCall] = {}
        denied_results: list[ToolResult] = []
        pending: list[ToolCall] = []
        tools = self.callable_tools
        for call in pending_calls(self.messages):
            tool = tools.get(call.name)
            approval = approvals.get(call.id)
            if tool is not None and not tool.requires_approval:
                continue
            if approval is None:
                pending += [call] if tool is not None or approvals else []
                continue
            outcome = apply_decision(call, approval)
            if isinstance(outcome, ToolCall):
                validate_runnable(outcome, tool)
                approved_calls[call.id] = outcome
            else:
                denied_results.append(outcome)
        for result in denied_results:
            await self._notify_result(result)
        results = denied_results + (await self._run_approved(approved_calls, tools) if approved_calls else [])
        if results:
            last_message = self.last_assistant_message
            self.messages.extend(map(tool_result_message, results))
            calls = tuple(approved_calls.get(call.id, call) for call in last_message.tool_calls)
            self.record_step(
                ChatReply(message_text(last_message), calls, "tool_use", meta=last_message.meta), tuple(results)
            )
            self._release_tool_choice()
        if not pending:
            self.messages = repair_history(self.messages, self._missing_result_text)
        return tuple(pending)

    async def _run_approved(
        self, approved_calls: Mapping[str, ToolCall], tools: Mapping[str, Tool]
    ) -> list[ToolResult]:
        if self._on_approved is not None:
            await self._on_approved(tuple(approved_calls.values()))
        original_calls = {call.id: call for call in self.last_assistant_message.tool_calls}
        results: dict[str, ToolResult] = {}

        async def notify(result: ToolResult) -> None:
            results[result.id] = note_changed_input(result, original_calls[result.id], approved_calls[result.id])
            await self._notify_result(results[result.id])

        await dispatch_all(tuple(approved_calls.values()), tools, notify)
        return [results[id] for id in approved_calls]

    def _missing_result_text(self, call: ToolCall) -> str:
        """Return the text for the model about a call without a result."""
        tool = self.callable_tools.get(call.name)
        return UNDECIDED if tool is not None and tool.requires_approval else INTERRUPTED

    @property
    def last_assistant_message(self) -> Message:
        """The model's last message."""
        return next(message for message in reversed(self.messages) if message.role == "assistant")

    def check_budget(self) -> None:
        check_budget(self._opts, self.messages, self.tools)

    def add_reply(self, reply: ChatReply) -> None:
        self.messages.append(reply.message)
        if reply.usage is not None:
            self.usage = reply.usage if not self._steps else self.usage + reply.usage

    def drop_empty_reply(self, reply: ChatReply) -> None:
        """Count an empty reply, and let the model answer once more."""
        self.has_asked_again = True
        if reply.usage is not None:
            self.usage = reply.usage if not self._steps else self.usage + reply.usage
        self.record_step(reply)

    async def notify_reply(self, reply: ChatReply, *, is_last: bool = False) -> None:
        """Pass the newest message, the reply's, to `on_message`."""
        await self._notify(self.messages[-1], reply, is_last)

    async def _notify_result(self, result: ToolResult) -> None:
        await self._notify(tool_result_message(result))

    async def _notify(self, message: Message, reply: ChatReply | None = None, is_last: bool = False) -> None:
        if self._on_message is not None:
            await self._on_message(message, reply, is_last)

    async def run_tools(self, reply: ChatReply) -> tuple[ToolCall, ...]:
        """Run the reply's calls concurrently, and return the calls that need approval, which do not run."""
        ready: list[ToolCall] = []
        pending: list[ToolCall] = []
        tools = self.callable_tools
        for call in reply.tool_calls:
            (pending if _needs_approval(tools.get(call.name), call) else ready).append(call)
        on_result = None if self._on_message is None else self._notify_result
        results = await dispatch_all(ready, tools, on_result) if ready else []
        for result in results:
            self.messages.append(tool_result_message(result))
        self.record_step(reply, tuple(results))
        self._release_tool_choice()
        self._refresh_tools()
        return tuple(pending)

    def _release_tool_choice(self) -> None:
        """Remove a forced tool choice after the first call, so that the model can answer."""
        if self.settings.get("tool_choice") not in (None, "auto", "none"):
            del self.settings["tool_choice"]

    def record_step(self, reply: ChatReply, results: tuple[ToolResult, ...] = ()) -> None:
        step = LoopStep(len(self._steps) + 1, reply, results)
        self._steps.append(step)
        if self._opts.emit_steps:
            events.emit(self._opts.step_data_type, step)

    def withdraw_tools(self) -> None:
        """Prepare the final call, in which the model must answer."""
        if self._tools_withdrawn:
            return
        self._tools_withdrawn = True
        self.tools = ()
        self.settings.pop("tool_choice", None)
        self.system = f"{self.system}\n\n{FINAL_CALL_INSTRUCTION}" if self.system else FINAL_CALL_INSTRUCTION

    async def accept_reply(self, reply: ChatReply) -> bool:
        """Return whether the reply ends the run. If its value is invalid, add a message to the model with the error."""
        await self.notify_reply(reply, is_last=self._output_spec is None)
        if self._output_spec is None:
            return True
        if reply.stop_reason == "refusal":
            raise OutputValidationError(
                self._output_spec.name, "the model refused to answer", reply.text, self.messages
            )
        try:
            self.output = self._output_spec.parse(reply.text)
        except InvalidOutput as problem:
            self._output_failures += 1
            if self._output_failures > self._opts.output_retries:
                raise OutputValidationError(self._output_spec.name, str(problem), reply.text, self.messages) from None
            self.messages.append(
                user_message(f"That is not valid: {problem}. Answer again, with the corrected JSON and nothing else.")
            )
            await self._notify(self.messages[-1])
            return False
        return True

    def build_result(self, text: str, stop_reason: str, *, pending: tuple[ToolCall, ...] = ()) -> LoopResult:
        open_skills = () if self._skill_offer is None else self._skill_offer.opened
        return LoopResult(
            text, tuple(self.messages), self.usage, tuple(self._steps), stop_reason, self.output, pending, open_skills
        )


def _needs_approval(tool: Tool | None, call: ToolCall) -> bool:
    """Whether the call needs a person's approval; one with invalid arguments gives the model an error instead."""
    if tool is None or not tool.requires_approval or call.invalid_input is not None:
        return False
    try:
        tool.bind(call.input)
    except Exception:  # noqa: BLE001
        return False  # dispatch reports the error to the model
    return True


async def run_loop(opts: ChatOptions, user_msg: str | Message, **changes: Unpack[ChatOptionsDict]) -> LoopResult:
    """Send one message to the model, and run tools until the model answers.

    `changes` replace options for this run, such as `output_type=Invoice`.

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
    **changes: Unpack[ChatOptionsDict],
) -> LoopResult:
    """Run the loop on a history; `approvals` decides on calls that an earlier run left pending.

    `on_message(message, reply, last)` is awaited for each message that the run adds, before the run continues. `reply`
    is the model's reply if the message is one. `last` is true for the reply that ends the run; with `output_type` it is
    always false, because the reply is validated afterwards. `on_approved(calls)` is awaited before approved calls run,
    for example to record that they may have taken effect.

    >>> import asyncio
    >>> from tellback.testing import ScriptedModel, says
    >>> from tellback.types import assistant_message, user_message
    >>> history = [user_message("Hi"), assistant_message("Hello!"), user_message("How are you?")]
    >>> len(asyncio.run(run_loop_messages(ChatOptions(model=ScriptedModel([says("Fine.")])), history)).messages)
    4
    """
    opts = _apply_changes(opts, changes)
    run = LoopRun(opts, as_messages(messages), approvals, on_message, on_approved)
    return await _collect_result(_iterate_run(run, opts, streaming=False))


async def run_loop_stream(
    opts: ChatOptions, user_msg: str | Message, on_delta: OnDelta | None = None, **changes: Unpack[ChatOptionsDict]
) -> LoopResult:
    """Run `run_loop` and pass each delta of each model call to `on_delta` (sync or async) immediately.

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
    **changes: Unpack[ChatOptionsDict],
) -> LoopResult:
    """Run `run_loop_messages` and pass each delta to `on_delta`.

    >>> import asyncio
    >>> from tellback.testing import ScriptedModel, says
    >>> str(asyncio.run(run_loop_stream_messages(ChatOptions(model=ScriptedModel([says("Hi!")])), "Hello")))
    'Hi!'
    """
    opts = _apply_changes(opts, changes)
    run = LoopRun(opts, as_messages(messages), approvals, on_message, on_approved)
    return await _collect_result(_iterate_run(run, opts, streaming=True, sink=DeltaSink(opts, on_delta)))


async def stream_loop(
    opts: ChatOptions,
    messages: Messages,
    *,
    approvals: Mapping[str, Decision] | None = None,
    on_message: OnMessage | None = None,
    on_approved: OnApproved | None = None,
    **changes: Unpack[ChatOptionsDict],
) -> AsyncGenerator[ReplyDelta | LoopResult, None]:
    """Iterate over the deltas; the last item is the `LoopResult`. Closing the iterator cancels the run.

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
    run = LoopRun(opts, as_messages(messages), approvals, on_message, on_approved)
    label = opts.delta_data_type if opts.emit_stream_deltas else None
    async with aclosing(_iterate_run(run, opts, streaming=True)) as items:
        async for item in items:
            if label is not None and not isinstance(item, LoopResult):
                events.emit(label, item)
            yield item


async def _collect_result(run: AsyncGenerator[ReplyDelta | LoopResult, None]) -> LoopResult:
    """Run the engine to its end and return the result."""
    async for item in run:
        result = item
    assert isinstance(result, LoopResult)
    return result


async def _iterate_run(
    run: LoopRun, opts: ChatOptions, *, streaming: bool, sink: DeltaSink | None = None
) -> AsyncGenerator[ReplyDelta | LoopResult, None]:
    """Run the loop. Deltas go to `sink` if there is one; otherwise they are yielded."""
    if opts.skills or opts.skill_resolver is not None:
        await run.offer_skills()
    pending = await run.resolve_pending_calls()
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
        call = CallRequest(tuple(run.messages), run.system, run.tools, run.settings)
        if sink is not None:
            reply = await run.caller.stream_to(call, sink)
        elif streaming:
            async with aclosing(run.caller.stream(call)) as items:
                async for item in items:
                    if isinstance(item, ChatReply):
                        reply = item
                    else:
                        yield item
        else:
            reply = await run.caller.complete(call)
        if is_final_call and reply.tool_calls:
            reply = replace(reply, tool_calls=(), meta=None)
        elif reply.tool_calls and reply.stop_reason == "max_tokens":
            reply = replace(reply, tool_calls=tuple(map(_mark_truncated, reply.tool_calls)))
        if opts.empty_reply_text is not None and not paused_text and _is_empty(reply):
            if not run.has_asked_again:
                run.drop_empty_reply(reply)
                iteration -= 1
                continue
            reply = replace(reply, text=opts.empty_reply_text)
            if sink is not None:
                await sink(TextDelta(reply.text))
            elif streaming:
                yield TextDelta(reply.text)
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
            continue  # the provider paused a long turn and continues it when it gets the reply back
        if await run.accept_reply(reply):
            yield run.build_result(paused_text + reply.text, "max_iterations" if is_final_call else reply.stop_reason)
            return
        iteration -= 1  # corrections are limited by output_retries


def _is_empty(reply: ChatReply) -> bool:
    return not reply.tool_calls and not reply.text.strip() and reply.stop_reason != "pause_turn"


def _mark_truncated(call: ToolCall) -> ToolCall:
    """Mark a call without arguments as invalid: the reply reached the output limit before them."""
    return call if call.input or call.invalid_input is not None else replace(call, invalid_input="")


def _as_user_messages(user_msg: str | Message) -> tuple[Message, ...]:
    if isinstance(user_msg, str | Message | Mapping):
        return as_messages(user_msg)
    raise ConfigurationError(
        f"user_msg must be a str or a Message, got {type(user_msg).__name__}; for a history use run_loop_messages."
    )


def _apply_changes(opts: ChatOptions, changes: Mapping[str, Any]) -> ChatOptions:
    if not isinstance(opts, ChatOptions):
        raise ConfigurationError(f"The first argument must be ChatOptions(model=...), got {opts!r:.80}.")
    if not changes:
        return opts
    unknown = [name for name in changes if name not in ChatOptions.__dataclass_fields__]
    if unknown:
        raise ConfigurationError(f"ChatOptions has no option {', '.join(unknown)}.")
    return replace(opts, **changes)
