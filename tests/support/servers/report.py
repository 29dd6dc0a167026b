"""A table after the run: the tested backends, the versions of their servers, and the results.

A test declares its backend with `@pytest.mark.backend("Redis")`. The version is the one that the server reported; a
backend without a server passes it as second argument: `@pytest.mark.backend("SQLite", sqlite3.sqlite_version)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Final

import pytest

from tests.support.servers.base import SERVER_VERSIONS

_ORDER: Final = ("In memory", "SQLite", "PostgreSQL", "SQLAlchemy", "Redis", "MongoDB", "OpenSearch")
_HEADER: Final = ("backend", "server", "tests run", "skipped", "failed")
_BACKEND: Final = "backend"
_SERVER: Final = "backend's server"


class BackendTally:
    """The results of each backend in a run."""

    def __init__(self) -> None:
        self._servers: dict[str, set[str]] = {}
        self._outcomes: dict[tuple[str, str], str] = {}

    def __bool__(self) -> bool:
        return bool(self._outcomes)

    def add(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if _BACKEND not in properties:
            return
        backend = str(properties[_BACKEND])
        servers = self._servers.setdefault(backend, set())
        if properties.get(_SERVER):
            servers.add(str(properties[_SERVER]))
        test = backend, report.nodeid
        self._outcomes[test] = _worst_outcome(self._outcomes.get(test, "passed"), _outcome(report))

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row for each backend, known ones first."""
        return [self._row(backend) for backend in sorted(self._servers, key=_sort_key)]

    def _row(self, backend: str) -> tuple[str, ...]:
        counts = Counter(outcome for (name, _), outcome in self._outcomes.items() if name == backend)
        run = counts["passed"] + counts["failed"]
        server = ", ".join(sorted(self._servers[backend])) or "-"
        return backend, server, str(run), str(counts["skipped"]), str(counts["failed"])


class BackendReport:
    """A pytest plugin that marks reports in the workers, and sums them up in the main process."""

    def __init__(self) -> None:
        self._tally = BackendTally()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        mark = item.get_closest_marker("backend")
        if mark is not None:
            backend, *server = mark.args
            report.user_properties.append((_BACKEND, backend))
            report.user_properties.append((_SERVER, server[0] if server else SERVER_VERSIONS.get(backend, "")))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tally.add(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._tally:
            terminalreporter.section("backends")
            for line in align_rows([_HEADER, *self._tally.rows()]):
                terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(BackendReport())


def align_rows(rows: list[tuple[str, ...]]) -> list[str]:
    """Format rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [" | ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _sort_key(backend: str) -> tuple[int, str]:
    return (_ORDER.index(backend) if backend in _ORDER else len(_ORDER)), backend


def _outcome(report: pytest.TestReport) -> str:
    # An expected failure is reported as skipped, but it ran.
    return "passed" if hasattr(report, "wasxfail") and report.skipped else report.outcome


def _worst_outcome(first: str, second: str) -> str:
    return max(first, second, key=("passed", "skipped", "failed").index)
