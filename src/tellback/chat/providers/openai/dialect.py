"""How hosts that speak OpenAI's chat API differ: facts, apart from the code that acts on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenAIDialect:
    """What one host takes and gives."""

    max_tokens_field: str = "max_tokens"
    stream_usage: bool = True
    """Whether usage must be asked for in a stream, and may be."""
    json_schema: bool = True
    """Whether the host holds the model to a JSON schema; if not, the prompt asks for it."""
    think_tags: bool = True
    """Whether models behind it may write their thinking as <think>...</think> into the text."""
    cache_control: bool = False
    """Whether parts may carry Anthropic's cache marks."""
    call_extras: bool = True
    """Whether fields that the host itself added to a tool call may be sent back with it."""
    reasoning_details: bool = False
    """Whether reasoning comes in blocks that must be sent back."""


OPENAI_DIALECT = OpenAIDialect(max_tokens_field="max_completion_tokens", think_tags=False, call_extras=False)
OPENROUTER_DIALECT = OpenAIDialect(cache_control=True, reasoning_details=True)
COMPATIBLE_DIALECT = OpenAIDialect()
