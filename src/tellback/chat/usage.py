"""Convert the usage numbers of all providers to `ChatUsage`, and calculate costs."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

from tellback.chat.registry import find_builtin_provider
from tellback.errors import InvalidArgumentError
from tellback.types import ChatUsage

N = TypeVar("N", int, float)

log = logging.getLogger("tellback.chat")

_INPUT_KEYS = ("input_tokens", "prompt_tokens", "prompt_token_count", "prompt_eval_count")
_OUTPUT_KEYS = ("output_tokens", "completion_tokens", "candidates_token_count", "eval_count")
_CACHED_KEYS = ("cached_tokens", "cached_content_token_count", "prompt_cache_hit_tokens")


def parse_usage(
    value: ChatUsage | Mapping[str, Any] | None, provider: str | None, model: str | None
) -> ChatUsage | None:
    """Parse usage numbers that a user passes, with our names, in camelCase or with a provider's names."""
    if value is None or isinstance(value, ChatUsage):
        return value
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"usage must be a ChatUsage or a mapping, got {value!r:.80}.")
    return make_usage(value, provider, model)


def _to_snake_case(key: str) -> str:
    if key.islower():
        return key
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in key)


def make_usage(raw: Any, provider: str | None = None, model: str | None = None) -> ChatUsage:
    """Convert a provider's usage numbers to a `ChatUsage`.

    Accepts the keys of Anthropic, OpenAI and Gemini, as a mapping or an SDK object. Anthropic counts cached prompt
    tokens separately, and Gemini counts thoughts separately; here `input_tokens` and `output_tokens` always include
    them.

    >>> make_usage({"prompt_tokens": 120, "completion_tokens": 84, "latency_ms": 1280}).total_tokens
    204
    """
    if isinstance(raw, ChatUsage):
        return replace(raw, provider=raw.provider or provider, model=raw.model or model)
    data = _to_mapping(raw)
    prompt_details = data.get("prompt_tokens_details") or data.get("input_tokens_details")
    output_details = data.get("completion_tokens_details") or data.get("output_tokens_details")
    cache_read = _first_count(data, "cache_read_input_tokens")
    cache_write = _first_count(data, "cache_creation_input_tokens")
    tool_prompt = _first_count(data, "tool_use_prompt_token_count")
    input_tokens = _sum_known(_first_count(data, *_INPUT_KEYS), cache_read, cache_write, tool_prompt)
    if cache_write is None:
        cache_write = _first_count(data, "cache_write_tokens")  # our own name: already counted in the input tokens
    cached = _first_known(cache_read, _first_count(data, *_CACHED_KEYS), _first_count(prompt_details, "cached_tokens"))
    thoughts = _first_count(data, "thoughts_token_count")
    output_tokens = _sum_known(_first_count(data, *_OUTPUT_KEYS), thoughts)
    reasoning = _first_known(
        thoughts,
        _first_count(output_details, "reasoning_tokens", "thinking_tokens"),
        _first_count(data, "reasoning_tokens"),
    )
    total = _first_count(data, "total_tokens", "total_token_count")
    if total is None and input_tokens is not None and output_tokens is not None:
        total = input_tokens + output_tokens
    cost = _to_number(data.get("cost_usd", data.get("cost")))
    if cost is None and model and (input_tokens is not None or output_tokens is not None):
        cost = calculate_cost(provider, model, input_tokens or 0, output_tokens or 0, cached or 0, cache_write or 0)
    latency = _to_number(data.get("latency_ms"))
    return ChatUsage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=total,
        cost_usd=cost,
        latency_ms=None if latency is None else round(latency),
        provider=provider,
        model=model,
        cached_tokens=cached,
        cache_write_tokens=cache_write,
        reasoning_tokens=reasoning,
    )


def calculate_cost(
    provider: str | None, model: str, input_tokens: int, output_tokens: int, cached: int = 0, cache_write: int = 0
) -> float | None:
    """Return the cost in US dollars, or None if genai-prices is not installed or has no price."""
    price_module = load_price_list()
    if price_module is None:
        return None
    declared = find_builtin_provider(provider)
    provider_id = None if declared is None else declared.price_id
    if provider and provider_id is None:
        return None  # the price list does not have this host, and the price of the model's vendor may not apply
    usage = price_module.Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cached or None,
        cache_write_tokens=cache_write or None,
    )
    try:
        return float(price_module.calc_price(usage, model_ref=model, provider_id=provider_id).total_price)
    except LookupError:
        return None
    except ValueError as error:  # genai-prices rejects the numbers, such as more cached tokens than input tokens
        log.warning("The cost of %s cannot be calculated: %s", model, error)
        return None


def load_price_list() -> Any:
    """Return the module genai_prices, or None. Importing it is slow, so adapters do it when they open a client."""
    try:
        import genai_prices
    except ImportError:
        return None
    return genai_prices


def _to_mapping(raw: Any) -> Mapping[str, Any]:
    if raw is None:
        return {}
    if hasattr(raw, "model_dump"):
        raw = raw.model_dump()
    if not isinstance(raw, Mapping):
        raise TypeError(f"usage must be a mapping or an SDK's usage object, got {type(raw).__name__}")
    return {_to_snake_case(str(key)): value for key, value in raw.items()}


def _first_count(data: Any, *keys: str) -> int | None:
    """Return the first of these values that is a number."""
    numbers = (_to_number(data.get(key)) for key in keys) if isinstance(data, Mapping) else ()
    found = _first_known(*numbers)
    return None if found is None else int(found)


def _first_known(*values: N | None) -> N | None:
    return next((value for value in values if value is not None), None)


def _to_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    number = float(value) if isinstance(value, Decimal) else value
    return number if math.isfinite(number) else None


def _sum_known(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
