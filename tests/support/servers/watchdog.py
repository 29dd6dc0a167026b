"""A process that ends a test server when the tests end, even if they are killed."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path


def start_watchdog(server: int, folder: Path, owner_pid: int | None = None) -> None:
    """Start a process that ends the server and removes its folder once its owner has ended."""
    if hasattr(os, "pidfd_open"):
        arguments = [str(server), str(folder), str(owner_pid or os.getpid())]
        command = [sys.executable, "-I", "-S", __file__, *arguments]
        quiet = subprocess.DEVNULL
        subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, check=True, timeout=30)


def _kill_after_owner(server: int, folder: Path, owner_pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        server_fd = os.pidfd_open(server)
        if _server_outlives_owner(server_fd, owner_pid):
            signal.pidfd_send_signal(server_fd, signal.SIGKILL)
            select.select([server_fd], [], [], 10)
            shutil.rmtree(folder, ignore_errors=True)


def _server_outlives_owner(server_fd: int, owner_pid: int) -> bool:
    """Wait until one of them ends, and return whether the server still runs."""
    try:
        owner_fd = os.pidfd_open(owner_pid)
    except ProcessLookupError:
        return True
    readable, _, _ = select.select([server_fd, owner_fd], [], [])
    return server_fd not in readable


# The double fork detaches the watcher, so that no process has to wait for it.
if __name__ == "__main__" and os.fork() == 0:
    os.setsid()
    _kill_after_owner(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
