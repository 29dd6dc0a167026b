"""The contenders of the benchmarks and the environments that they run in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
WORKERS = BENCH / "workers"
ENVIRONMENTS = BENCH.parent / ".bench"
INSTALL_SECONDS = 900

WORKER_ENVIRONMENT = {
    # One thread each: with more, times depend on the load of the machine.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "AGNO_TELEMETRY": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "ANONYMIZED_TELEMETRY": "False",
    "MEM0_TELEMETRY": "False",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
}


class ContenderError(Exception):
    """A contender cannot be measured; the message gives the reason."""


@dataclass(frozen=True)
class Contender:
    """One library: its environment's folder, its worker script, and its import statements.

    `label` is its name in tables, where the names of its packages are not enough.
    """

    name: str
    home: Path | None
    worker: Path
    imports: str
    packages: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    label: str | None = None

    @property
    def python(self) -> Path:
        return Path(sys.executable) if self.home is None else _python_in(self.home)

    @property
    def environment(self) -> dict[str, str]:
        # Variables such as PYTHONDONTWRITEBYTECODE would change what an import costs.
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        if self.home is None and "PYTHONPATH" in os.environ:
            variables["PYTHONPATH"] = os.environ["PYTHONPATH"]
        return variables | WORKER_ENVIRONMENT


def all_contenders() -> list[Contender]:
    """Return Tellback in this interpreter, and each peer in its own."""
    contenders = [Contender("tellback", None, WORKERS / "tellback_worker.py", "import tellback")]
    for name, peer in _peers().items():
        if "worker" in peer:
            worker = WORKERS / peer["worker"]
            contenders.append(Contender(name, ENVIRONMENTS / name, worker, peer["imports"], tuple(peer["packages"])))
    return contenders


def persistence_contenders() -> list[Contender]:
    """Return the contenders that store conversations in SQLite.

    Each peer gets a separate environment for this, because installed packages change what an import costs.
    """
    contenders = [Contender("tellback", None, WORKERS / "tellback_persist.py", "import tellback")]
    for name, peer in _peers().items():
        persist = peer.get("persist")
        if persist is None:
            continue
        home = ENVIRONMENTS / (f"{name}-persist" if persist["packages"] else name)
        packages = (*peer["packages"], *persist["packages"])
        contenders.append(Contender(name, home, WORKERS / persist["worker"], peer["imports"], packages))
    return contenders


def memory_contenders() -> list[Contender]:
    """Return the contenders that store memories and search them by meaning, one for each store."""
    contenders = [Contender("tellback", None, WORKERS / "tellback_memory.py", "import tellback")]
    for name, peer in _peers().items():
        memory = peer.get("memory")
        if memory is None:
            continue
        packages = tuple(memory["packages"])
        contenders.extend(
            Contender(
                f"{name}-{store}".lower(),
                ENVIRONMENTS / f"{name}-memory",
                WORKERS / memory["worker"],
                memory["imports"],
                packages,
                arguments=(store,),
                label=f"{packages[0].replace('==', ' ')}, {store}",
            )
            for store in memory["stores"]
        )
    return contenders


def prepare(contender: Contender, report_progress: Callable[[str], None], *, install: bool = True) -> None:
    """Create the contender's environment, unless it exists with the same packages."""
    home = contender.home
    if home is None:
        return
    marker = home / ".ready"
    requirements = json.dumps({"packages": contender.packages, "python": sys.version})
    if marker.exists() and marker.read_text() == requirements:
        return
    if not install:
        raise ContenderError("its environment does not exist: run once without --skip-install")
    report_progress(f"installing {', '.join(contender.packages)}")
    shutil.rmtree(home, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(home)])
    _run([str(contender.python), "-m", "pip", "install", "--quiet", "--no-input", *contender.packages])
    marker.write_text(requirements)


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.CalledProcessError as error:
        raise ContenderError(f"installation failed: {last_line(error.stderr) or last_line(error.stdout)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ContenderError(f"installation failed: {error}") from error


def last_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _peers() -> dict[str, Any]:
    return tomllib.loads((BENCH / "peers.toml").read_text())


def _python_in(home: Path) -> Path:
    return home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
