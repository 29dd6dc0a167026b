"""Imports modules of the benchmarks, which are scripts and not a package."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[3] / "bench"


def import_bench_module(name: str) -> Any:
    sys.path.insert(0, str(BENCH))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(BENCH))
