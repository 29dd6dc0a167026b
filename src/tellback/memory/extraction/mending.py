"""Asking a model for a value, and telling it what is wrong with it until it is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tellback.chat import ChatOptions
from tellback.chat.dispatch import call_settings, resolve_caller
from tellback.chat.output import InvalidOutput
from tellback.chat.usage import make_usage
from tellback.errors import ExtractionError
from tellback.memory.extraction.spending import report_usage
from tellback.types import ChatReply, ChatUsage, Message, user_message

T = TypeVar("T")

TRUNCATED = "it was cut off because it is too long; give only the most important, in fewer words"
REFUSED = "it refuses to answer"


async def ask_model(
    opts: ChatOptions, prompt: str, schema: Mapping[str, Any], parse: Callable[[str], T], retries: int
) -> tuple[T, tuple[ChatUsage, ...]]:
    """What `read` makes of the model's answer, and what each call cost.

    An answer that `read` refuses with `InvalidOutput` goes back to the model with the reason, so many times; then
    `ExtractionError` is raised, with the last answer. What a provider raises is passed on; `spending` knows what
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
