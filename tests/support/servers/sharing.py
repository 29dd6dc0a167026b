"""One server of each kind for the whole run: the first worker that needs it starts it, the others read where it is."""

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

from tests.support.servers.process import Server, ServerFailedError


@dataclass(frozen=True, slots=True)
class Running:
    """Where a server is, or why there is none."""

    url: str = ""
    version: str = ""
    pid: int = 0
    folder: str = ""
    failure: str = ""


class Run:
    """The folder through which the processes of one test run agree on their servers."""

    def __init__(self, folder: Path, owner: int) -> None:
        self.folder = folder
        self.owner = owner
        # Python complains about a running process that nobody holds any more.
        self._started: list[Server] = []

    @classmethod
    def begin(cls) -> Run:
        """For the process that lives as long as the run."""
        return cls(Path(tempfile.mkdtemp(prefix="tellback-run-")), os.getpid())

    def server(self, kind: type[Server]) -> Running:
        """The one server of this kind, started now if need be; a failure is found out once."""
        with self._locked(kind.name):
            written = self._read(kind.name)
            if written is None:
                written = self._start(kind)
                self._write(kind.name, written)
            return written

    def end(self) -> None:
        """End every server that was started, and remove what it kept."""
        for file in self.folder.glob("*.json"):
            running = self._read(file.stem)
            if running is not None and running.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(running.pid, signal.SIGKILL)
                shutil.rmtree(running.folder, ignore_errors=True)
        for server in self._started:
            server.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, kind: type[Server]) -> Running:
        server = kind(self.owner)
        try:
            server.start()
        except ServerFailedError as error:
            server.remove()
            return Running(failure=str(error))
        except BaseException:
            server.remove()
            raise
        self._started.append(server)
        return Running(server.url, server.version, server.pid, str(server.folder))

    def _read(self, name: str) -> Running | None:
        file = self.folder / f"{name}.json"
        return Running(**json.loads(file.read_text())) if file.exists() else None

    def _write(self, name: str, running: Running) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps(asdict(running)))

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with (self.folder / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
