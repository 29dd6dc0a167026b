"""One server of each kind for the whole run: the first worker that needs it starts it, the others read its address."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.servers.base import Server, ServerFailedError


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The address of a server, or why there is none."""

    url: str = ""
    version: str = ""
    pid: int = 0
    folder: str = ""
    failure: str = ""


class ServerRegistry:
    """The folder through which the processes of one test run share their servers."""

    def __init__(self, folder: Path, owner_pid: int) -> None:
        self.folder = folder
        self.owner_pid = owner_pid
        # Keeps references to the processes: Python warns about running processes without one.
        self._started: list[Server] = []

    @classmethod
    def create(cls) -> ServerRegistry:
        """Create the registry, in the process that lives as long as the run."""
        return cls(Path(tempfile.mkdtemp(prefix="tellback-run-")), os.getpid())

    def server(self, kind: type[Server]) -> ServerInfo:
        """Return the server of this kind, starting it if needed. A failure is remembered."""
        with self._locked(kind.name):
            info = self._read(kind.name)
            if info is None:
                info = self._start(kind)
                self._write(kind.name, info)
            return info

    def close(self) -> None:
        """End every server that was started, and remove its data."""
        for file in self.folder.glob("*.json"):
            info = self._read(file.stem)
            if info is not None and info.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(info.pid, signal.SIGKILL)
                shutil.rmtree(info.folder, ignore_errors=True)
        for server in self._started:
            server.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, kind: type[Server]) -> ServerInfo:
        server = kind(self.owner_pid)
        try:
            server.start()
        except ServerFailedError as error:
            server.remove()
            return ServerInfo(failure=str(error))
        except BaseException:
            server.remove()
            raise
        self._started.append(server)
        return ServerInfo(server.url, server.version, server.pid, str(server.folder))

    def _read(self, name: str) -> ServerInfo | None:
        file = self.folder / f"{name}.json"
        return ServerInfo(**json.loads(file.read_text())) if file.exists() else None

    def _write(self, name: str, info: ServerInfo) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps(asdict(info)))

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with (self.folder / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
