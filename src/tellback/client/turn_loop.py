"""Run a turn whose tools run in the client: send requests until no call is pending for a local tool."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from tellback import validation
from tellback.chat import ChatOptions, Model
from tellback.chat.approval import Approval, apply_decision, as_approvals, note_changed_input, validate_runnable
from tellback.chat.model import ToolEntry
from tellback.client.transport import RemoteHandle, key_header
from tellback.errors import InvalidArgumentError
from tellback.tools import Tool, tools_by_name
from tellback.tools.dispatch import dispatch_all
from tellback.turns.request import resolve_options
from tellback.types import ReplyDelta, ToolCall, ToolResult
from tellback.types.conversations import TurnResult
from tellback.wire.arguments import encode_arguments, encode_content, encode_mapping, encode_metadata, encode_model
from tellback.wire.turns import TurnResultWire, decode_delta

LOCAL_ARGUMENTS = ("sender", "session", "extras")
"""Arguments for `tellback.request`, which cannot be sent to a server."""

SAMPLING_SETTINGS = ("temperature", "top_p")
"""Settings of `config` that a server forwards to its provider."""

_RUNS_LOCALLY = "it would have to run on the server"
_SKILLS = "configure skills for an agent on the server"
_EVENTS = "the server does not send these events; stream the turn instead"
_MODEL_SPECIFIC = "the server knows its models; send max_context_tokens instead"
_TYPED = "the server returns text; request JSON and validate reply.text here"
UNSUPPORTED_OPTIONS = {
    "skills": _SKILLS,
    "skill_resolver": _SKILLS,
    "skill_context": _SKILLS,
    "open_skills": _SKILLS,
    "providers": "the server chooses the provider",
    "chat_fn": _RUNS_LOCALLY,
    "chat_stream_fn": _RUNS_LOCALLY,
    "count_tokens_fn": _RUNS_LOCALLY,
    "warn_context_pct": _MODEL_SPECIFIC,
    "model_context_window": _MODEL_SPECIFIC,
    "emit_steps": _EVENTS,
    "step_data_type": _EVENTS,
    "emit_stream_deltas": _EVENTS,
    "delta_data_type": _EVENTS,
    "output_type": _TYPED,
    "output_retries": _TYPED,
    "empty_reply_text": "the server's agents have their own",
}
"""Options that cannot be sent to a server, with the reason."""
_DEFAULT_OPTIONS = ChatOptions()

DEFAULT_CYCLES = ChatOptions().max_iterations


def resolve_turn_options(model: str | Model | None, arguments: Mapping[str, Any]) -> ChatOptions:
    """Return the caller's options as one value. Raises an error for options that cannot be sent to a server."""
    options, max_cycles = arguments.get("options"), arguments.get("max_cycles")
    if isinstance(options, Mapping) and options.get("on_max_iterations") == "raise":
        raise InvalidArgumentError("options.on_max_iterations must be 'answer' for turns on a server.")
    resolved = resolve_options(
        options,
        model=model,
        tools=arguments.get("tools"),
        tool_handler=arguments.get("tool_handler"),
        max_cycles=None if max_cycles is None else validation.validate_count("max_cycles", max_cycles, 1),
        default_model="",
    )
    for name, why in UNSUPPORTED_OPTIONS.items():
        if getattr(resolved, name) not in (None, getattr(_DEFAULT_OPTIONS, name)):
            raise InvalidArgumentError(f"options.{name} cannot be sent to a server: {why}.")
    return resolved


def encode_options(options: ChatOptions) -> dict[str, Any] | None:
    """Encode the options that are sent unchanged."""
    encoded = encode_arguments(
        system_prompt=options.system,
        max_context_tokens=options.max_context_tokens,
        max_output_tokens=options.max_output_tokens,
        tool_choice=options.tool_choice,
        **_sampling_settings(options.config),
    )
    return encoded or None


def _sampling_settings(config: Any) -> dict[str, Any]:
    if not isinstance(config, Mapping | None):
        raise InvalidArgumentError(f"options.config must be a mapping, got {config!r:.80}.")
    others = [str(name) for name in config or () if name not in SAMPLING_SETTINGS]
    if others:
        raise InvalidArgumentError(
            f"options.config: {', '.join(others)} cannot be sent to a server, which accepts only"
            f" {' and '.join(SAMPLING_SETTINGS)}."
        )
    return dict(config or {})


def reject_local_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise an error for arguments that only work in the process that runs the turn."""
    local_names = [name for name in LOCAL_ARGUMENTS if arguments.get(name) is not None]
    if local_names:
        raise InvalidArgumentError(f"{', '.join(local_names)} cannot be sent to a server.")


def reject_unknown_arguments(method: str, arguments: Mapping[str, Any], known: type[Any]) -> None:
    """Raise an error for keyword arguments that are not in the `TypedDict` `known`."""
    unknown = arguments.keys() - known.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"{method}() got unexpected arguments: {', '.join(sorted(unknown))}.")


def encode_approvals(approvals: Mapping[str, Any]) -> dict[str, Any]:
    """Encode decisions on calls, by call id."""
    return {
        id: {"approved": each.approved, "reason": each.reason, "input": each.input}
        for id, each in as_approvals(approvals).items()
    }


class LocalTools:
    """The client's tools of a turn, and the decisions on their calls."""

    def __init__(self, tools: Sequence[ToolEntry] | None, approvals: Mapping[str, Any] | None) -> None:
        self._tools = tools_by_name(tools or ())
        self.decisions = {} if approvals is None else as_approvals(approvals)

    def encode_descriptions(self) -> list[dict[str, Any]] | None:
        """Encode the tools' descriptions for the server."""
        descriptions = [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            for tool in self._tools.values()
        ]
        return descriptions or None

    async def run_pending(self, pending: Sequence[ToolCall]) -> list[dict[str, Any]]:
        """Run the calls of local tools that are approved or need no approval; return their results and the denials."""
        ready = [call for call in pending if self._may_run(call)]
        approved: list[ToolCall] = []
        refused: list[ToolResult] = []
        for call in ready:
            decision = apply_decision(call, self.decisions.pop(call.id, Approval(True)))
            if isinstance(decision, ToolResult):
                refused.append(decision)
            else:
                if decision is not call:
                    validate_runnable(decision, self._tools.get(call.name))
                approved.append(decision)
        dispatched = await dispatch_all(approved, self._tools)
        originals = {call.id: call for call in ready}
        completed = [
            note_changed_input(result, originals[call.id], call)
            for call, result in zip(approved, dispatched, strict=True)
        ]
        return [_encode_result(result) for result in (*completed, *refused)]

    def _may_run(self, call: ToolCall) -> bool:
        tool: Tool | None = self._tools.get(call.name)
        return tool is not None and (call.id in self.decisions or not tool.requires_approval)


def _encode_result(result: ToolResult) -> dict[str, Any]:
    """Encode a tool's result: its text, or all its parts."""
    content = result.content if result.parts is None else encode_content(result.parts)
    return {"toolUseId": result.id, "content": content, "isError": result.is_error}


class TurnLoop:
    """Decides which request to send next, until no call is pending for a local tool.

    `arguments` are the caller's keyword arguments, and `model_class` decodes the responses. `common_fields` are sent in
    each request, `first_fields` only in the first. With `names_conversation`, later requests contain the conversation
    id in the body.

    `max_cycles` limits the model calls of all requests of a turn together; the server counts them too. At the limit,
    the tools' results are sent once more for an answer without tools, as in a turn that runs in this process.
    """

    def __init__(
        self,
        model_class: type[TurnResultWire],
        model: str | Model | None,
        arguments: Mapping[str, Any],
        *,
        common_fields: Mapping[str, Any],
        first_fields: Mapping[str, Any],
        names_conversation: bool = False,
    ) -> None:
        self._names_conversation = names_conversation
        reject_local_arguments(arguments)
        options = resolve_turn_options(model, arguments)
        self._local_tools = LocalTools(options.tools, arguments.get("approvals"))
        self._model_class = model_class
        self._max_cycles = options.max_iterations
        self._common_fields = {
            **common_fields,
            **encode_arguments(
                model=encode_model(options.model or None),
                tools=self._local_tools.encode_descriptions(),
                options=encode_options(options),
                max_cycles=None if self._max_cycles == DEFAULT_CYCLES else self._max_cycles,
                recall=encode_mapping(arguments.get("recall")),
                trace_id=arguments.get("trace_id"),
                wait=arguments.get("wait"),
            ),
        }
        self._result: TurnResult | None = None
        self._calls_before = 0
        self._calls_at_limit: int | None = None
        self.key: str | None = arguments.get("idempotency_key")
        self.body: dict[str, Any] | None = {
            **self._common_fields,
            **encode_arguments(metadata=encode_metadata(arguments.get("metadata"))),
            **first_fields,
        }

    @property
    def is_first(self) -> bool:
        """Whether no response has arrived yet."""
        return self._result is None

    @property
    def result(self) -> TurnResult:
        """The merged result of all requests."""
        assert self._result is not None
        return self._result

    async def resume(self, pending: tuple[ToolCall, ...]) -> None:
        """Start with the decisions on pending calls."""
        results = await self._local_tools.run_pending(pending)
        # Decisions on other calls are sent as well, so that the server reports the error.
        undecidable = encode_approvals(self._local_tools.decisions)
        assert self.body is not None
        self._calls_before = 1  # the server counts the reply with these calls again
        if results:
            self.body["toolResults"] = results
        if undecidable or not results:
            self.body["approvals"] = undecidable

    async def advance(self, payload: Any) -> None:
        """Process a response: run the pending calls of local tools, and prepare the next request."""
        after: TurnResult = self._model_class.model_validate(payload).value()
        result = self._result = after if self._result is None else merge_results(self._result, after)
        self.key, self.body = None, None
        if self._calls_at_limit is not None:
            if result.model_calls > self._calls_at_limit:  # otherwise some calls wait for a decision
                self._result = mark_max_cycles(result)
            return
        results = await self._local_tools.run_pending(result.pending)
        if not results:
            return
        self.body = {**self._common_fields, "toolResults": results}
        if self._names_conversation:
            self.body["conversationId"] = result.conversation_id
        if result.model_calls - self._calls_before >= self._max_cycles:
            self._calls_at_limit = result.model_calls
            self.body["options"] = {**self._common_fields.get("options", {}), "toolChoice": "none"}


class TurnRunner(RemoteHandle):
    """Base class of handles that run turns."""

    async def _run(self, path: str, loop: TurnLoop) -> TurnResult:
        while (body := loop.body) is not None:
            await loop.advance(await self._post(path, body, key_header(loop.key), has_own_key=loop.is_first))
        return loop.result

    async def _run_streamed(self, path: str, loop: TurnLoop) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        while (body := loop.body) is not None:
            result: Any = None
            async with aclosing(self._stream_turn(path, body, key_header(loop.key))) as events:
                async for event, data in events:
                    if event == "result":
                        result = data
                    elif (delta := decode_delta(event, data)) is not None:
                        yield delta
            await loop.advance(result)
        yield loop.result


def merge_results(before: TurnResult, after: TurnResult) -> TurnResult:
    """Merge the results of two requests of one turn."""
    known = {message.id for message in before.messages}
    done = {call.id: call for call in (*before.tool_invocations, *after.tool_invocations)}
    return replace(
        after,
        tool_invocations=tuple(done.values()),
        context=after.context or before.context,
        problems=(*before.problems, *after.problems),
        model_calls=before.model_calls + after.model_calls - 1,  # the model call with the tool calls is in both
        messages=(*before.messages, *(message for message in after.messages if message.id not in known)),
        usage=before.usage + after.usage,
        total_latency_ms=before.total_latency_ms + after.total_latency_ms,
    )


def mark_max_cycles(result: TurnResult) -> TurnResult:
    """Mark a turn that reached `max_cycles`; the calls of its last reply are not run."""
    return replace(result, ok=True, status="max_cycles", stop_reason="max_iterations", pending=())
