"""Measure in other processes: a worker that runs operations on request, and fresh interpreters that import."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
import time
from typing import Any

from contenders import Contender, ContenderError, last_line

RESPONSE_SECONDS = 120.0


class Worker:
    """A contender's process. It answers every request with one line; otherwise the contender has failed."""

    def __init__(self, contender: Contender) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        try:
            self._process = subprocess.Popen(
                [str(contender.python), str(contender.worker), *contender.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=contender.environment,
            )
        except OSError as error:
            raise ContenderError(f"its worker did not start: {error}") from error
        try:
            greeting = self._read_response()
        except ContenderError:
            self.close()
            raise
        self.kinds: list[str] = greeting["kinds"]
        self.versions: dict[str, str] = greeting["versions"]

    def warm_up(self, kind: str) -> float:
        """Return a rough estimate of the CPU milliseconds of one operation."""
        estimate: float = self.ask(kind, None)["estimate_ms"]
        return estimate

    def run(self, kind: str, count: int) -> tuple[float, float]:
        """Return the CPU and wall milliseconds of one operation, averaged over `count`."""
        response = self.ask(kind, count)
        return response["cpu_ms"], response["wall_ms"]

    def ask(self, kind: str, count: int | None, **params: Any) -> dict[str, Any]:
        """Send a request and return the worker's answer; `count` is None for a warm-up."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"kind": kind, "count": count, **params}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ContenderError(f"{kind}: its worker has exited: {self._last_output()}") from error
        response = self._read_response()
        if "error" in response:
            raise ContenderError(f"{kind}: {response['error']}")
        return response

    def close(self) -> None:
        with contextlib.suppress(OSError):  # A worker that has exited no longer reads.
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _read_response(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        timer = threading.Timer(RESPONSE_SECONDS, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self._process.wait()
            raise ContenderError(f"its worker ended: {self._last_output()}")
        response: dict[str, Any] = json.loads(line)
        return response

    def _last_output(self) -> str:
        self._log.seek(0)
        return last_line(self._log.read()) or f"exit code {self._process.returncode}"


def time_import(contender: Contender, statements: str) -> tuple[float, float]:
    """Return the wall milliseconds of a fresh interpreter: in total, and for `statements` alone."""
    code = f"import time\nstart = time.perf_counter()\n{statements}\nprint(time.perf_counter() - start)"
    start = time.perf_counter()
    output = _run_python(contender, code)
    whole = time.perf_counter() - start
    return 1000 * whole, 1000 * float(last_line(output))


def loaded_modules(contender: Contender, statements: str, names: tuple[str, ...]) -> list[str]:
    """Return those of `names` that are loaded after `statements` have run."""
    code = f"{statements}\nimport sys, json; print(json.dumps([name for name in {names!r} if name in sys.modules]))"
    loaded: list[str] = json.loads(last_line(_run_python(contender, code)))
    return loaded


def _run_python(contender: Contender, code: str) -> str:
    try:
        return subprocess.run(
            [str(contender.python), "-P", "-c", code],
            check=True,
            capture_output=True,
            text=True,
            timeout=RESPONSE_SECONDS,
            env=contender.environment,
        ).stdout
    except subprocess.CalledProcessError as error:
        raise ContenderError(f"import: {last_line(error.stderr)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ContenderError(f"import: {error}") from error
