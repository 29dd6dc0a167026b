"""bench/prompt_cache.py: consecutive requests of an agent share the system prompt and the history."""

from __future__ import annotations

import pytest

from tests.unit.bench.module_loader import import_bench_module

prompt_cache = import_bench_module("prompt_cache")


@pytest.mark.parametrize("history", ["passed", "stored"])
async def test_every_reply_shares_its_system_prompt_with_the_previous_one(history: str) -> None:
    found = [each for each in await prompt_cache.play(history) if each.kind == "reply"]
    assert len(found) == len(prompt_cache.DIALOGUE) - 1
    assert min(each.shared for each in found) > 1_500


async def test_replies_share_most_of_their_request_with_the_previous_one() -> None:
    found = [each for each in await prompt_cache.play("passed") if each.kind == "reply"]
    assert sum(each.shared for each in found) > 0.75 * sum(each.length for each in found)
    assert "all  reply" in prompt_cache.format_report(found, with_turns=False)
