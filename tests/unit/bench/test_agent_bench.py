"""bench/agent.py: its conversations have the expected outcomes, and its goal is evaluated."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bench.module_loader import BENCH, import_bench_module

pytestmark = pytest.mark.slow

report = import_bench_module("agent_report")


def import_worker_module(name: str) -> Any:
    """Import a worker module with its folder on the path, because workers import each other."""
    sys.path.insert(0, str(BENCH / "workers"))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(BENCH / "workers"))


agent_routes = import_worker_module("agent_routes")


async def run_batch(kind: str, routes: int, folder: Path) -> dict[str, Any]:
    agent = import_worker_module("tellback_agent").RouteAgent()
    request = {"kind": kind, "routes": routes, "folder": str(folder)}
    response: dict[str, Any] = await agent_routes.Batches(agent).run(request, 2)
    return response


def numbers(milliseconds: float) -> dict[str, Any]:
    return {"tellback": {"respond_50": {"cpu_ms": {"median": milliseconds, "min": milliseconds}}}}


def test_all_routes_are_different() -> None:
    assert len({spec.title for spec in agent_routes.build_routes(500)}) == 500


@given(st.integers(2, 500), st.integers(0, 10_000))
def test_a_detour_leads_to_another_route(count: int, number: int) -> None:
    entered, _, detour, back, *_ = agent_routes.build_turns(count, number)
    assert entered.route == back.route != detour.route


@pytest.mark.parametrize("kind", ["respond", "stream"])
@pytest.mark.parametrize("routes", [2, 5, 50])
async def test_a_conversation_reaches_the_expected_states_with_two_calls_per_turn(
    kind: str, routes: int, tmp_path: Path
) -> None:
    assert (await run_batch(kind, routes, tmp_path))["cpu_ms"] > 0


async def test_ten_times_the_routes_do_not_lengthen_the_prompts(tmp_path: Path) -> None:
    few_routes, many_routes = await run_batch("respond", 50, tmp_path), await run_batch("respond", 500, tmp_path)
    for part in report.PROMPTS:
        assert many_routes[f"{part}_chars"] <= 1.1 * few_routes[f"{part}_chars"]


@pytest.mark.parametrize(("milliseconds", "met"), [(2.9, True), (3.0, False), (4.0, False)])
def test_a_turn_is_cheap_enough_below_the_goal(milliseconds: float, met: bool) -> None:
    assert report.goal(numbers(milliseconds))["met"] is met


def test_missing_measurements_are_not_judged() -> None:
    assert report.goal({})["met"] is None


def test_a_failed_contender_is_reported_with_the_reason() -> None:
    result = {
        "python": "3.11",
        "rounds": 1,
        "sizes": [50],
        "memories": 1_000,
        "titles": {"tellback": "tellback 1", "peer": "peer 2"},
        "failed": {"peer": "it fell over"},
        "numbers": numbers(1.0),
        "goal": report.goal(numbers(1.0)),
    }
    text = report.table(result)
    assert "FAILED peer 2: it fell over" in text
    assert "under 3 ms CPU: met" in text
