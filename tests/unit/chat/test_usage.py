"""Usage of all providers as `ChatUsage`."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any

import pytest

from tellback import ChatUsage
from tellback.chat import make_usage


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"input_tokens": 10, "output_tokens": 5}, (10, 5, 15, None, None)),
        (
            {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7},
            (107, 5, 112, 90, None),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5}, (10, 5, 15, None, None)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            (10, 5, 15, 4, 3),
        ),
        (
            {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 18},
            (10, 8, 18, None, 3),
        ),
        ({"prompt_token_count": 10, "total_token_count": 10}, (10, None, 10, None, None)),
        ({"output_tokens": 5}, (None, 5, None, None, None)),
        ({}, (None,) * 5),
        (None, (None,) * 5),
    ],
)
def test_the_keys_of_every_vendor_are_read(raw: Any, expected: Any) -> None:
    usage = make_usage(raw)
    assert (
        *(usage.input_tokens, usage.output_tokens, usage.total_tokens),
        *(usage.cached_tokens, usage.reasoning_tokens),
    ) == expected


def test_names_latency_and_a_reported_cost_are_in_the_usage() -> None:
    usage = make_usage({"input_tokens": 1, "output_tokens": 1, "latency_ms": 1280.4, "cost": 0.5}, "OpenRouter", "x/y")
    assert (usage.provider, usage.model, usage.latency_ms, usage.cost_usd) == ("OpenRouter", "x/y", 1280, 0.5)


def test_cost_comes_from_the_price_list_and_cached_tokens_are_cheaper() -> None:
    plain = make_usage({"input_tokens": 1000, "output_tokens": 0}, "Anthropic", "claude-opus-5")
    cached = make_usage(
        {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 1000}, "Anthropic", "claude-opus-5"
    )
    assert plain.cost_usd is not None
    assert cached.cost_usd is not None
    assert 0 < cached.cost_usd < plain.cost_usd


@pytest.mark.parametrize(("provider", "model"), [("Anthropic", "claude-99"), ("my own host", "gpt-5"), (None, "zzz")])
def test_an_unknown_price_is_none(provider: str | None, model: str) -> None:
    assert make_usage({"input_tokens": 1, "output_tokens": 1}, provider, model).cost_usd is None


def test_without_the_price_list_cost_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert make_usage({"input_tokens": 1, "output_tokens": 1}, "OpenAI", "gpt-5").cost_usd is None


def test_a_sum_of_usages_has_only_common_names() -> None:
    one = ChatUsage(input_tokens=1, output_tokens=2, total_tokens=3, cost_usd=0.5, provider="p", model="a")
    two = ChatUsage(input_tokens=10, output_tokens=20, total_tokens=30, provider="p", model="b", cached_tokens=4)
    assert one + two == ChatUsage(
        input_tokens=11, output_tokens=22, total_tokens=33, cost_usd=0.5, provider="p", cached_tokens=4
    )


def test_a_usage_gets_only_missing_names_and_decimals_are_numbers() -> None:
    usage = ChatUsage(input_tokens=1, cache_write_tokens=2, provider="p")
    assert make_usage(usage, "other", "m") == ChatUsage(input_tokens=1, cache_write_tokens=2, provider="p", model="m")
    assert make_usage({"cost": Decimal("0.5")}).cost_usd == 0.5


def test_adding_a_usage_without_names_keeps_the_names() -> None:
    assert (ChatUsage() + ChatUsage(provider="p", model="m")).provider == "p"


def test_other_types_raise_type_error() -> None:
    with pytest.raises(TypeError, match="got list"):
        make_usage([1, 2])
