"""Run the `tellback` command in a separate process, without TELLBACK_ environment variables."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.fork_server import run_command

COMMAND = (sys.executable, "-m", "tellback.cli")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TELLBACK_")}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command and wait until it exits."""
    return run_command(*arguments, env={**ENVIRONMENT, **environment}, seconds=50)
