"""Asking a model for a value, and telling it what is wrong with it until it is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tellback.chat import ChatOptions
from tellback.chat.dispatch import call_settings, caller_for
from tellback.chat.output import InvalidOutput
from tellback.chat.usage import make_usage
from tellback.errors import ExtractionError
from tellback.memory.extraction.spending import spend
from tellback.types import ChatReply, ChatUsage, Message, user_message

T = TypeVar("T")

CUT_OFF = "it was cut off because it is too long; give only the most important, in fewer words"
REFUSED = "it refuses to answer"


async def ask(
    opts: ChatOptions, question: str, schema: Mapping[str, Any], read: Callable[[str], T], retries: int
) -> tuple[T, tuple[ChatUsage, ...]]:
    """What `read` makes of the model's answer, and what each call cost.

    An answer that `read` refuses with `InvalidOutput` goes back to the model with the reason, so many times; then
    `ExtractionError` is raised, with the last answer. What a provider raises is passed on; `spending` knows what
    the calls before it cost.
    """
    caller = caller_for(opts)
    settings = {**call_settings(opts), "output_schema": schema}
    messages: list[Message] = [user_message(question)]
    usage: list[ChatUsage] = []
    while True:
        reply = await caller.complete(messages, opts.system, (), settings)
        usage.append(_usage(opts, reply))
        spend(usage[-1])  # also if the next call fails, or is never made
        try:
            return read(_whole(reply)), tuple(usage)
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


def _whole(reply: ChatReply) -> str:
    if reply.stop_reason == "max_tokens":
        raise InvalidOutput(CUT_OFF)
    if reply.stop_reason == "refusal":
        raise InvalidOutput(REFUSED)
    return reply.text


def _usage(opts: ChatOptions, reply: ChatReply) -> ChatUsage:
    provider = None if isinstance(opts.model, str) else opts.model.provider
    return make_usage(reply.usage or ChatUsage(), provider, opts.model_name or None)
