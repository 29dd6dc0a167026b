"""A process that has imported everything and forks children, so that each child starts quickly.

Importing Tellback is the slowest part of starting a process. `python -m tests.support.fork_server` reads orders from
the socket that is its standard input. An order contains what to run, the pipe ends for the child's standard input and
output, a file for its errors, and a socket that receives the child's process id and exit code.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
Order = dict[str, Any]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_ENDED_BY_ERROR = 1
_lock = threading.Lock()
_orders: socket.socket | None = None


class ForkedProcess:
    """A forked child, with the parts of `asyncio.subprocess.Process` that tests need."""

    def __init__(self, pid: int, stdin: int, stdout: asyncio.StreamReader, status: Streams) -> None:
        self.pid = pid
        """The process id; it is not reused before `close`."""
        self.stdout = stdout
        self.returncode: int | None = None
        self._stdin: int | None = stdin
        self._status, self._watcher = status

    async def write(self, data: bytes) -> None:
        """Write to the standard input."""
        assert self._stdin is not None, "the child's input is closed"
        while data:
            data = data[await asyncio.to_thread(os.write, self._stdin, data) :]

    def close(self) -> None:
        """Close the standard input, and release the process id after the process has ended."""
        stdin, self._stdin = self._stdin, None
        if stdin is not None:
            os.close(stdin)
        self._watcher.close()

    async def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(await self._status.readline())
        return self.returncode


async def fork(program: str, errors: int) -> ForkedProcess:
    """Start a process that runs a program (`tests.support.subprocess_programs.run`), with stderr in a file."""
    stdin, our_stdin = os.pipe()
    our_stdout, stdout = os.pipe()
    our_status, status = socket.socketpair()
    try:
        with status:
            _send_order({"program": program}, stdin, stdout, errors, status.fileno())
    finally:
        for end in (stdin, stdout):
            os.close(end)
    watcher = await asyncio.open_connection(sock=our_status)
    pid = int(await watcher[0].readline())
    return ForkedProcess(pid, our_stdin, await _reader(our_stdout), watcher)


def run_command(*arguments: str, env: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run `tellback` with these arguments and this environment, as `subprocess.run` would."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        code = _wait_for_exit({"command": ["tellback", *arguments], "env": dict(env)}, out, errors, seconds)
        return subprocess.CompletedProcess(arguments, code, _text(out), _text(errors))


def run_script(path: Path, *, env: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """Run a file in its folder like `python -W error`; return the exit code and the output."""
    with tempfile.TemporaryFile("w+") as out:
        code = _wait_for_exit({"script": str(path), "env": dict(env)}, out, out, seconds)
        return code, _text(out)


def _wait_for_exit(order: Order, out: IO[str], errors: IO[str], seconds: float) -> int:
    our_status, status = socket.socketpair()
    with our_status, open(os.devnull) as devnull:
        with status:
            _send_order(order, devnull.fileno(), out.fileno(), errors.fileno(), status.fileno())
        our_status.settimeout(seconds)
        with our_status.makefile() as lines:
            pid = int(lines.readline())
            try:
                return int(lines.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _send_order(order: Order, *ends: int) -> None:
    with _lock:
        socket.send_fds(_server_socket(), [json.dumps(order).encode()], ends)


async def _reader(end: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=2**22)
    pipe = os.fdopen(end, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


def _server_socket() -> socket.socket:
    """Return this process's socket to its fork server, which exits when the socket is closed."""
    global _orders
    if _orders is None:
        _orders, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_socket:
            command = [sys.executable, "-m", __name__]
            started = subprocess.Popen(command, stdin=child_socket.fileno(), stdout=subprocess.DEVNULL, cwd=ROOT)
        atexit.register(_stop_server, _orders, started)
    return _orders


def _stop_server(order: socket.socket, started: subprocess.Popen[bytes]) -> None:
    order.close()
    started.wait(10)


def main() -> None:
    import tellback.app
    import tellback.cli.app
    import tellback.stores.postgres  # imported once for all children
    from tests.support.subprocess_programs import run

    def run_order(order: Order) -> None:
        if "program" in order:
            return run(order["program"])
        os.environ.clear()
        os.environ.update(order["env"])
        if "script" in order:
            return _execute_script(Path(order["script"]))
        sys.argv = order["command"]
        return tellback.cli.main()

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # watchers exit without being waited for
    with socket.socket(fileno=0) as orders:
        while True:
            message, ends, _, _ = socket.recv_fds(orders, 2**16, 4)
            if not message:
                return
            if os.fork() == 0:
                orders.detach()
                _run_child(json.loads(message), *ends, run_order=run_order)
            for end in ends:
                os.close(end)


def _run_child(
    order: Order, stdin: int, stdout: int, errors: int, status: int, *, run_order: Callable[[Order], None]
) -> None:
    """Fork the child, send its id, wait for it, and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        os.close(status)
        for number, end in enumerate((stdin, stdout, errors)):
            os.dup2(end, number)
            os.close(end)
        _run_and_exit(order, run_order)
    for end in (0, stdin, stdout, errors):
        os.close(end)
    os.write(status, f"{child}\n".encode())
    exit_status = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # WNOWAIT: its id is not reused yet
    assert exit_status is not None
    code = exit_status.si_status if exit_status.si_code == os.CLD_EXITED else -exit_status.si_status
    with contextlib.suppress(OSError):  # the test may have closed the socket
        os.write(status, f"{code}\n".encode())
        os.read(status, 1)  # until the test no longer needs the id
    os._exit(0)


def _execute_script(path: Path) -> None:
    os.chdir(path.parent)
    sys.argv, sys.path[0] = [str(path)], str(path.parent)
    warnings.simplefilter("error")
    runpy.run_path(str(path), run_name="__main__")


def _run_and_exit(order: Order, run_order: Callable[[Order], None]) -> None:
    random.seed()  # otherwise all children would use the same random numbers
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - as long as the process
    code = _ENDED_BY_ERROR
    try:
        run_order(order)
        code = 0
    except SystemExit as exit_error:
        code = exit_error.code if isinstance(exit_error.code, int) else _ENDED_BY_ERROR if exit_error.code else 0
    except BaseException:  # noqa: BLE001 - like Python: print the error and set the exit code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
