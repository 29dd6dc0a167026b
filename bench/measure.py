"""Numbers from other processes: a worker that runs operations on request, and fresh interpreters that import."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
import time
from typing import Any

from contenders import Contender, Failed, last_line

ANSWER_SECONDS = 120.0


class Worker:
    """A contender's process. Every request is answered by one line, or the contender has failed."""

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
            raise Failed(f"its worker does not start: {error}") from error
        try:
            hello = self._answer()
        except Failed:
            self.close()
            raise
        self.kinds: list[str] = hello["kinds"]
        self.versions: dict[str, str] = hello["versions"]

    def warm_up(self, kind: str) -> float:
        """Milliseconds of CPU that one operation takes, roughly."""
        estimate: float = self.ask(kind, None)["estimate_ms"]
        return estimate

    def run(self, kind: str, count: int) -> tuple[float, float]:
        """CPU and wall milliseconds of one operation, over `count` of them."""
        answer = self.ask(kind, count)
        return answer["cpu_ms"], answer["wall_ms"]

    def ask(self, kind: str, count: int | None, **more: Any) -> dict[str, Any]:
        """Whatever the worker answers; `count` is None for a warm-up."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"kind": kind, "count": count, **more}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Failed(f"{kind}: its worker is gone: {self._last_words()}") from error
        answer = self._answer()
        if "error" in answer:
            raise Failed(f"{kind}: {answer['error']}")
        return answer

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a worker that is gone does not read
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

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        guard = threading.Timer(ANSWER_SECONDS, self._process.kill)
        guard.start()
        try:
            line = self._process.stdout.readline()
        finally:
            guard.cancel()
        if not line:
            self._process.wait()
            raise Failed(f"its worker ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        self._log.seek(0)
        return last_line(self._log.read()) or f"exit code {self._process.returncode}"


def time_import(contender: Contender, statements: str) -> tuple[float, float]:
    """Wall milliseconds of a fresh interpreter that runs `statements`: all of it, and the statements alone."""
    code = f"import time\nstart = time.perf_counter()\n{statements}\nprint(time.perf_counter() - start)"
    start = time.perf_counter()
    output = _interpret(contender, code)
    whole = time.perf_counter() - start
    return 1000 * whole, 1000 * float(last_line(output))


def loaded_modules(contender: Contender, statements: str, suspects: tuple[str, ...]) -> list[str]:
    """Which of `suspects` are loaded once `statements` have run."""
    code = f"{statements}\nimport sys, json; print(json.dumps([name for name in {suspects!r} if name in sys.modules]))"
    found: list[str] = json.loads(last_line(_interpret(contender, code)))
    return found


def _interpret(contender: Contender, code: str) -> str:
    try:
        return subprocess.run(
            [str(contender.python), "-P", "-c", code],
            check=True,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            env=contender.environment,
        ).stdout
    except subprocess.CalledProcessError as error:
        raise Failed(f"import: {last_line(error.stderr)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"import: {error}") from error
