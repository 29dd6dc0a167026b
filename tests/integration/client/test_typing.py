"""The client's types are checked: arguments, results and missing attributes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(300)  # slow without a cache
def test_a_type_checker_knows_the_clients_methods(tmp_path: Path) -> None:
    program = Path(__file__).parent / "typed_program.py"
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=290, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
