"""Token budgets: an estimate before every call, so that an oversized request is never sent."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tellback.errors import BudgetExceededError
from tellback.tools import as_tool
from tellback.types import Message
from tellback.types.jsontext import dump_json

if TYPE_CHECKING:
    from tellback.chat.model import ToolEntry
    from tellback.chat.options import ChatOptions

log = logging.getLogger("tellback.chat")

CHARS_PER_TOKEN = 4
MESSAGE_OVERHEAD_CHARS = 16
"""Role and separators cost every provider three to five tokens a message."""
TOOL_OVERHEAD_TOKENS = 10
MEDIA_TOKENS = {"image": 1_100, "audio": 1_000, "file": 2_000}
"""Flat guesses: what a provider charges depends on pixels, seconds and pages, not on bytes."""


def check_budget(
    opts: ChatOptions, messages: Sequence[Message], tools: Sequence[ToolEntry] | None = None
) -> Mapping[str, int] | None:
    """Estimate the request; raise `BudgetExceededError` if it is too large, warn if it comes close.

    Gives the estimate by part, or None when no limit is set.

    >>> from tellback.chat import ChatOptions
    >>> from tellback.types import user_message
    >>> check_budget(ChatOptions(max_context_tokens=100), [user_message("Hello there!")])
    {'messages': 7, 'system': 0, 'tools': 0}
    """
    limit = _resolve_limit(opts)
    if limit is None:
        return None
    model = opts.model_name
    count = opts.count_tokens_fn or count_tokens_heuristic
    breakdown = {
        "messages": count(messages, model),
        "system": estimate_system_tokens(opts.system),
        "tools": estimate_tools_tokens(tools),
    }
    total = sum(breakdown.values())
    if total > limit:
        raise BudgetExceededError(breakdown, total, limit)
    if opts.warn_context_pct is not None:
        threshold = opts.warn_context_pct / 100 if opts.warn_context_pct > 1 else opts.warn_context_pct
        if total > threshold * limit:
            log.warning("context is filling up: %s", format_budget_breakdown(breakdown, total, limit))
    return breakdown


def count_tokens_heuristic(messages: Sequence[Message], model: str = "") -> int:
    """About four characters a token; within ten per cent on English prose, too low for code and other scripts.

    >>> from tellback.types import user_message
    >>> count_tokens_heuristic([user_message("x" * 384)], "any-model")
    100
    """
    chars = 0
    media = 0
    for message in messages:
        chars += MESSAGE_OVERHEAD_CHARS
        if message.parts:
            for part in message.parts:
                chars += len(part.text or "")
                media += MEDIA_TOKENS.get(part.kind, 0)
        elif isinstance(message.content, str):
            chars += len(message.content)
        elif message.content is not None:
            chars += len(json.dumps(message.content, default=str))
        for call in message.tool_calls:
            chars += len(call.name) + len(dump_json(call.input))
    return _chars_to_tokens(chars) + media


def estimate_system_tokens(system: str | None) -> int:
    """The system prompt's share.

    >>> estimate_system_tokens("Be brief.")
    3
    """
    return _chars_to_tokens(len(system)) if system else 0


def estimate_tools_tokens(tools: Sequence[ToolEntry] | None) -> int:
    """The tool definitions' share: their JSON, and some overhead for each.

    >>> estimate_tools_tokens(None)
    0
    """
    if not tools:
        return 0
    total = 0
    for entry in tools:
        tool = as_tool(entry)
        total += TOOL_OVERHEAD_TOKENS
        total += _chars_to_tokens(len(tool.name) + len(tool.description) + len(dump_json(tool.parameters)))
    return total


def format_budget_breakdown(parts: Mapping[str, int], total: int, limit: int) -> str:
    """The estimate for a person.

    >>> format_budget_breakdown({"messages": 60, "system": 20}, 80, 100)
    'about 80 of 100 tokens (80%): messages 60, system 20'
    """
    items = ", ".join(f"{name} {count}" for name, count in parts.items())
    return f"about {total} of {limit} tokens ({100 * total / limit:.0f}%): {items}"


def _resolve_limit(opts: ChatOptions) -> int | None:
    window = opts.model_context_window
    if window is not None and opts.max_output_tokens is not None:
        window = max(window - opts.max_output_tokens, 0)
    limits = [limit for limit in (opts.max_context_tokens, window) if limit is not None]
    return min(limits) if limits else None


def _chars_to_tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)
