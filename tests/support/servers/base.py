"""The base of test servers: processes that can be killed and restarted, and the versions they report."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from secrets import randbelow
from typing import ClassVar

from tests.support.servers.watchdog import start_watchdog

SERVER_VERSIONS: dict[str, str] = {}


_POLL_SECONDS = 0.05
_LOG_TAIL = 4_000


class ServerFailedError(RuntimeError):
    """A server did not start. The message ends with its log."""


class NotReadyError(Exception):
    """The server does not answer yet."""


class Server(ABC):
    """A process that serves one folder on one port, so that it can be killed and restarted."""

    name: ClassVar[str]
    start_seconds: ClassVar[float] = 30
    """How long it may take to start."""

    def __init__(self, owner_pid: int | None = None) -> None:
        """Create the server. It ends when the process `owner_pid` (by default this one) ends."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"tellback-{self.name.lower()}-"))
        self.port = free_port()
        self.version = ""
        self._owner_pid = owner_pid
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str: ...

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @staticmethod
    @abstractmethod
    def missing_reason() -> str | None:
        """Return why the server cannot run on this machine, or None."""

    @staticmethod
    @abstractmethod
    def is_optional() -> bool:
        """Whether tests may be skipped because this machine usually lacks the server."""

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def probe(self) -> str:
        """Return the running server's version, or raise NotReadyError."""

    def start(self) -> None:
        """Wait until the server answers; raise ServerFailedError if it takes too long."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        try:
            start_watchdog(self.pid, self.folder, self._owner_pid)
            self.version = self._wait_until_ready()
        except BaseException:  # stop the server even if the test times out
            self.kill()
            raise

    def kill(self) -> None:
        """Kill the server immediately, like a power loss."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def stop(self) -> None:
        """Stop the server in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def remove(self) -> None:
        """Kill the server, and delete its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _wait_until_ready(self) -> str:
        deadline = time.monotonic() + self.start_seconds
        while self._process is not None and self._process.poll() is None:
            try:
                return self.probe()
            except NotReadyError as error:
                if time.monotonic() > deadline:
                    raise self._start_error(f"in {self.start_seconds:.0f} seconds: {error}") from error
            time.sleep(_POLL_SECONDS)
        raise self._start_error("and ended")

    def _start_error(self, reason: str) -> ServerFailedError:
        return ServerFailedError(
            f"{self.name} did not start {reason}\n{self._log.read_text(errors='replace')[-_LOG_TAIL:]}"
        )


def free_port(second_offset: int = 0) -> int:
    """Return a port outside the ephemeral range, so that it stays free until a restart.

    With `second_offset`, the port at this distance is free, too, and below the ephemeral range.
    """
    while True:
        port = 20_000 + randbelow(12_000 - second_offset)
        if all(_is_free(each) for each in {port, port + second_offset}):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def find_packaged_program(package: str, program: str) -> Path | None:
    """Find a program in an installed package without importing it: the import has side effects."""
    try:
        path = Path(str(distribution(package).locate_file(program)))
    except PackageNotFoundError:
        return None
    return path if path.exists() else None
