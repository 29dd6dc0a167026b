"""The command `tellback`, run as its users run it: in a process, without settings of the environment."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.fork_server import run_command

COMMAND = (sys.executable, "-m", "tellback.cli")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TELLBACK_")}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run_command(*arguments, env={**ENVIRONMENT, **environment}, seconds=50)
