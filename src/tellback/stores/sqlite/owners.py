"""Who holds a claim in the file, and whether that process still runs.

An owner is named by machine, process namespace, process and its start, so that a number used again, or the same number
in another container, is not taken for it.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path


def new_owner() -> str:
    """A name for this process and this opening of the store."""
    return "|".join((*_host_and_namespace(), str(os.getpid()), _process_start(os.getpid()) or "", secrets.token_hex(4)))


def is_owner_alive(owner: str) -> bool | None:
    """False when the owner's process is certainly gone, None when that cannot be told from here."""
    try:
        host, namespace, pid, started, _ = owner.split("|")
    except ValueError:
        return None
    if (host, namespace) != _host_and_namespace() or os.name != "posix":
        return None
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        pass  # it is there, under another user
    return not started or _process_start(int(pid)) == started


def _host_and_namespace() -> tuple[str, str]:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return socket.gethostname(), namespace


def _process_start(pid: int) -> str | None:
    try:
        stat_fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if stat_fields[0] == "Z" else stat_fields[19]
