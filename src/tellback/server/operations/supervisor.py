"""Run several worker processes on one port, with a supervisor that starts and restarts them.

Uvicorn's `Multiprocess` is not used: it waits for workers without a limit on shutdown, restarts dying workers without a
delay, does not report when all are ready, and its workers survive a killed supervisor.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType

from tellback.errors import TellbackError
from tellback.server.operations.logs import log_to_stderr
from tellback.server.operations.metrics import MULTIPROCESS_DIR_VARIABLE
from tellback.server.settings import ServeOptions

log = logging.getLogger("tellback.server")

STARTUP_FAILED = 3
POLL_SECONDS = 0.2
GRACE_SECONDS = 10.0
"""Additional seconds that a worker has to close its store after its requests, before it is killed."""

MAX_BACKOFF_SECONDS = 30.0
"""The longest delay before a worker that keeps dying is restarted."""


def supervise(options: ServeOptions, sock: socket.socket, on_ready: Callable[[], None]) -> int:
    """Run `options.workers` server processes until stopped, and return the exit code.

    `on_ready` is called when all workers accept requests. Dead workers are restarted.
    """
    with tempfile.TemporaryDirectory(prefix="tellback-metrics-") as folder:
        os.environ[MULTIPROCESS_DIR_VARIABLE] = (
            folder  # inherited by the workers, which load prometheus-client after it is set
        )
        try:
            return Supervisor(options, sock, on_ready).run()
        finally:
            del os.environ[MULTIPROCESS_DIR_VARIABLE]


def run_worker(options: ServeOptions, sock: socket.socket, ready: Connection) -> None:
    """Run a worker process."""
    from tellback.server.operations.http_server import run_server

    log_to_stderr(options.log_format, verbose=options.verbose)
    grace_seconds = options.shutdown_seconds + GRACE_SECONDS
    threading.Thread(target=_exit_with_parent, args=(grace_seconds,), daemon=True).start()
    try:
        run_server(options, sock, lambda: ready.send(True), is_supervised=True)
    except TellbackError as error:
        log.error("A worker cannot start: %s", error)
        raise SystemExit(STARTUP_FAILED) from None


def _exit_with_parent(grace_seconds: float) -> None:
    """Stop this process if the supervisor dies, and kill it if it does not stop."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_seconds)
        os.kill(os.getpid(), signal.SIGKILL)


class _WorkerProcess:
    """A worker process and its state."""

    def __init__(self, options: ServeOptions, sock: socket.socket) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready_pipe, child_pipe = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(
            target=run_worker, args=(options, sock, child_pipe), name="tellback worker"
        )
        self.process.start()
        child_pipe.close()
        self.started_at = time.monotonic()
        self.is_ready = False

    def poll(self) -> None:
        """Update `is_ready`."""
        if not self.is_ready and self._ready_pipe.poll():
            try:
                self.is_ready = bool(self._ready_pipe.recv())
            except EOFError:
                return

    def signal(self, number: int) -> None:
        """Send a signal to the process if it is alive."""
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)


class Supervisor:
    """Starts workers, restarts dead ones, and stops all on a signal."""

    def __init__(self, options: ServeOptions, sock: socket.socket, on_ready: Callable[[], None]) -> None:
        self._options = options
        self._sock = sock
        self._on_ready = on_ready
        self._workers: list[_WorkerProcess] = []
        self._signals = 0
        self._was_ready = False
        self._backoff = 0.5
        self._next_start = 0.0

    def run(self) -> int:
        """Run until stopped, and return the exit code."""
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._on_signal) for number in handled}
        try:
            self._start_missing()
            while not self._signals:
                wait([worker.process.sentinel for worker in self._workers], timeout=POLL_SECONDS)
                if not self._check_workers():
                    self._stop_workers()
                    return 2
            self._stop_workers()
            return 0
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _check_workers(self) -> bool:
        """Check and restart workers. Return False if they cannot start."""
        for worker in list(self._workers):
            worker.poll()
            if worker.process.is_alive():
                continue
            if not worker.is_ready and not self._was_ready:
                return False  # a restart would fail in the same way; the worker has logged why
            log.error("Worker %s died with exit code %s; restarting it", worker.process.pid, worker.process.exitcode)
            self._workers.remove(worker)
            self._delay_restart(worker)
        self._start_missing()
        if not self._was_ready and all(worker.is_ready for worker in self._workers):
            self._was_ready = True
            self._on_ready()
        return True

    def _delay_restart(self, worker: _WorkerProcess) -> None:
        uptime = time.monotonic() - worker.started_at
        self._backoff = 0.5 if uptime > 60 else min(self._backoff * 2, MAX_BACKOFF_SECONDS)
        self._next_start = time.monotonic() + self._backoff

    def _start_missing(self) -> None:
        if time.monotonic() >= self._next_start:
            for _ in range(self._options.workers - len(self._workers)):
                self._workers.append(_WorkerProcess(self._options, self._sock))

    def _stop_workers(self) -> None:
        """Ask all workers to stop and wait; kill them after a second signal or the timeout."""
        self._sock.close()  # clients can connect until all copies of the socket are closed
        signals_before, deadline = self._signals, time.monotonic() + self._options.shutdown_seconds + GRACE_SECONDS
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        while any(worker.process.is_alive() for worker in self._workers):
            if self._signals > max(signals_before, 1) or time.monotonic() > deadline:
                for worker in self._workers:
                    worker.signal(signal.SIGKILL)
            alive = [worker.process.sentinel for worker in self._workers if worker.process.is_alive()]
            wait(alive, timeout=POLL_SECONDS)
        for worker in self._workers:
            worker.process.join()
