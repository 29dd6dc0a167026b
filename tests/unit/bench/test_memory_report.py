"""The goals of bench/memory.py: which are met, and which peers are compared."""

from __future__ import annotations

from typing import Any

from tests.unit.bench.module_loader import import_bench_module

report = import_bench_module("memory_report")


def numbers(**milliseconds: float) -> dict[str, Any]:
    return {name: {"recall_10000": {"wall_p50_ms": time, "cpu_ms": time}} for name, time in milliseconds.items()}


def peer_check(name: str, others: dict[str, float], **milliseconds: float) -> dict[str, Any]:
    checks = report.checks(numbers(**milliseconds), others, 1_000, 10)
    [peer_result] = [check for check in checks if name in check["title"]]
    return dict(peer_result)


def test_a_faster_peer_means_a_missed_goal() -> None:
    check = peer_check("quick", {"quick": 10.0}, tellback=2.0, quick=1.0)
    assert (check["value"], check["met"]) == (2.0, False)


def test_a_slower_peer_means_a_met_goal() -> None:
    check = peer_check("slow", {"slow": 10.0}, tellback=2.0, slow=4.0)
    assert (check["value"], check["met"]) == (0.5, True)


def test_a_peer_with_missing_hits_is_shown_but_not_judged() -> None:
    check = peer_check("loose", {"loose": 4.0}, tellback=2.0, loose=1.0)
    assert (check["value"], check["met"]) == (2.0, None)
    assert check["why"] == "4.0 of 10 hits for the user with few memories"
