"""Model calls of extraction: ask for JSON, return invalid answers for correction, and record the usage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from tellback.chat import ChatOptions
from tellback.chat.dispatch import call_settings, resolve_caller
from tellback.chat.output import InvalidOutput
from tellback.chat.usage import make_usage
from tellback.errors import ExtractionError
from tellback.runtime import Runtime
from tellback.types import ChatReply, ChatUsage, Message, user_message
from tellback.types.jobs import Job, UsageRecord

_TRACKED_USAGE: ContextVar[list[ChatUsage] | None] = ContextVar("tellback_tracked_usage", default=None)

T = TypeVar("T")

TRUNCATED = "it was cut off because it is too long; give only the most important, in fewer words"
REFUSED = "it refuses to answer"


@contextmanager
def track_usage() -> Iterator[list[ChatUsage]]:
    """A list that grows with each call made within, also in the tasks that are started there.

    >>> with track_usage() as tracked:
    ...     report_usage(ChatUsage(input_tokens=5))
    >>> tracked[0].input_tokens
    5
    """
    tracked: list[ChatUsage] = []
    token = _TRACKED_USAGE.set(tracked)
    try:
        yield tracked
    finally:
        _TRACKED_USAGE.reset(token)


def report_usage(usage: ChatUsage) -> None:
    """Note what a call cost, if anyone wants to know."""
    tracked = _TRACKED_USAGE.get()
    if tracked is not None:
        tracked.append(usage)


async def ask_model(
    opts: ChatOptions, prompt: str, schema: Mapping[str, Any], parse: Callable[[str], T], retries: int
) -> tuple[T, tuple[ChatUsage, ...]]:
    """What `parse` makes of the model's answer, and what each call cost.

    An answer that `parse` refuses with `InvalidOutput` goes back to the model with the reason, so many times; then
    `ExtractionError` is raised, with the last answer. What a provider raises is passed on; `track_usage` knows what
    the calls before it cost.
    """
    caller = resolve_caller(opts)
    settings = {**call_settings(opts), "output_schema": schema}
    messages: list[Message] = [user_message(prompt)]
    usage: list[ChatUsage] = []
    while True:
        reply = await caller.complete(messages, opts.system, (), settings)
        usage.append(_reply_usage(opts, reply))
        report_usage(usage[-1])  # also if the next call fails, or is never made
        try:
            return parse(_complete_text(reply)), tuple(usage)
        except InvalidOutput as problem:
            if len(usage) > retries:
                raise ExtractionError(
                    f"What {opts.model_name or 'the model'} answered cannot be used, after {len(usage)} calls:"
                    f" {problem}. Its last answer is in .raw; run the extraction again, or use another model.",
                    reply.text,
                    usage,
                ) from None
            messages += [
                (replace(reply, tool_calls=(), meta=None) if reply.tool_calls else reply).message,
                user_message(
                    f"That cannot be used: {problem}. Answer again, with the whole corrected JSON and nothing else."
                ),
            ]


def _complete_text(reply: ChatReply) -> str:
    if reply.stop_reason == "max_tokens":
        raise InvalidOutput(TRUNCATED)
    if reply.stop_reason == "refusal":
        raise InvalidOutput(REFUSED)
    return reply.text


def _reply_usage(opts: ChatOptions, reply: ChatReply) -> ChatUsage:
    provider = None if isinstance(opts.model, str) else opts.model.provider
    return make_usage(reply.usage or ChatUsage(), provider, opts.model_name or None)


class _Metered(Protocol):
    @property
    def usage(self) -> Sequence[ChatUsage]: ...


MeteredT = TypeVar("MeteredT", bound=_Metered)


async def record_usage(
    runtime: Runtime, job: Job, purpose: str, records: list[UsageRecord], call: Awaitable[MeteredT]
) -> MeteredT:
    """What a call gives. What it cost is added to `records`, also if it fails or is cancelled."""
    with track_usage() as tracked:
        try:
            result = await call
        except BaseException as error:  # also cancellation: what was used until then is paid for
            reported = error.usage if isinstance(error, ExtractionError) else ()
            records += _usage_records(runtime, job, purpose, max(tracked, reported, key=len))
            raise
    records += _usage_records(runtime, job, purpose, result.usage)
    return result


def _usage_records(runtime: Runtime, job: Job, purpose: str, usage: Sequence[ChatUsage]) -> list[UsageRecord]:
    now = runtime.clock()
    known = {"conversation_id": job.conversation_id, "job_id": job.id}
    return [UsageRecord.from_usage(each, job.scope, purpose, now, **known) for each in usage]
