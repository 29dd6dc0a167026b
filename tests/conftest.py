"""Test isolation: no network, no provider keys from the environment, no real backoff, and generous time limits."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import settings

from tests.support.fake_http_server import FakeHttpServer
from tests.support.servers.postgres_fixtures import (
    postgres_admin,
    postgres_server,
    postgres_url,
    prepared_databases,
    ready_postgres_url,
)

__all__ = ["postgres_admin", "postgres_server", "postgres_url", "prepared_databases", "ready_postgres_url"]

pytest_plugins = ["tests.support.servers.fixtures", "tests.support.servers.report"]

settings.register_profile("tellback", deadline=None, max_examples=60)
settings.load_profile("tellback")

_KEYS = ("_API_KEY", "_AUTH_TOKEN", "_BASE_URL")


def pytest_configure() -> None:
    """Let Ctrl-C reach child processes, also in a run that was started in the background.

    A shell starts such a run with SIGINT ignored, and children inherit that. A handler, in contrast, is reset to the
    default when a child starts. This also runs in xdist workers.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first, so that no worker is left with them at the end of a run."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True)
def clean_provider_env(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.endswith(_KEYS) or name.startswith(("ANTHROPIC_", "GOOGLE_", "OLLAMA_")):
            monkeypatch.delenv(name)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def reset_loggers() -> Iterator[None]:
    """Undo what commands and servers do to our loggers; otherwise tests that read logs depend on the order."""
    yield
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("tellback") and isinstance(logger, logging.Logger):
            if logger.level:
                logger.setLevel(logging.NOTSET)
            logger.disabled, logger.propagate = False, True


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def guarded_connect(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = str(address[0]) if isinstance(address, tuple) else ""
            if host not in ("127.0.0.1", "::1", "localhost"):
                raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)


@pytest.fixture
def recorded_backoffs(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the waits between attempts instead of waiting."""
    from tellback.chat.providers import retry
    from tellback.chat.providers.retry import backoff

    recorded: list[float] = []

    def record(attempt: int, retry_after: float | None = None) -> float:
        recorded.append(backoff(attempt, retry_after))
        return 0.0

    monkeypatch.setattr(retry, "backoff", record)
    return recorded


@pytest.fixture
async def wire() -> AsyncIterator[FakeHttpServer]:
    async with FakeHttpServer() as server:
        yield server
