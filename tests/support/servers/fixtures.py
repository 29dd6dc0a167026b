"""Fixtures for tests that need a real server: the URL of a shared one, or a separate one to kill and restart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from tests.support.servers.base import SERVER_VERSIONS, Server, ServerFailedError
from tests.support.servers.mongo import MongoServer
from tests.support.servers.opensearch import OpenSearchServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.servers.registry import ServerRegistry

REQUIRED_VARIABLE = "TELLBACK_REQUIRE_SERVERS"
_Kind = TypeVar("_Kind", bound=Server)
_REGISTRY = pytest.StashKey[ServerRegistry]()
_SLOW_STARTERS = {"opensearch_url", "own_opensearch"}


def pytest_configure(config: pytest.Config) -> None:
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is None:
        config.stash[_REGISTRY] = ServerRegistry.create()
    else:
        config.stash[_REGISTRY] = ServerRegistry(Path(worker_input["servers_folder"]), worker_input["servers_owner"])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker which run it belongs to."""
    run = node.config.stash[_REGISTRY]
    node.workerinput["servers_folder"] = str(run.folder)
    node.workerinput["servers_owner"] = run.owner_pid


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(_REGISTRY, None)
    if run is not None and run.owner_pid == os.getpid():
        run.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Extend the time limit of tests that wait for a slow server."""
    for item in items:
        backends = {mark.args[0] for mark in item.iter_markers("backend")}
        slow = _SLOW_STARTERS.intersection(getattr(item, "fixturenames", ())) or OpenSearchServer.name in backends
        if slow and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(3 * OpenSearchServer.start_seconds))


@pytest.fixture(scope="session")
def redis_url(pytestconfig: pytest.Config) -> str:
    """The URL of a Redis server shared by all tests."""
    return _shared_url(pytestconfig, RedisServer)


@pytest.fixture(scope="session")
def mongo_url(pytestconfig: pytest.Config) -> str:
    """The URL of a MongoDB server shared by all tests."""
    return _shared_url(pytestconfig, MongoServer)


@pytest.fixture(scope="session")
def opensearch_url(pytestconfig: pytest.Config) -> str:
    """The URL of an OpenSearch server shared by all tests."""
    return _shared_url(pytestconfig, OpenSearchServer)


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A running server used by this test alone."""
    yield from _run_own_server(RedisServer)


@pytest.fixture
def own_mongo() -> Iterator[MongoServer]:
    """A running server used by this test alone."""
    yield from _run_own_server(MongoServer)


@pytest.fixture
def own_opensearch() -> Iterator[OpenSearchServer]:
    """A running server used by this test alone."""
    yield from _run_own_server(OpenSearchServer)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A running server used by this test alone."""
    server = PostgresServer()
    try:
        server.start()
        SERVER_VERSIONS[server.name] = server.version
        yield server
    finally:
        server.remove()


def _shared_url(config: pytest.Config, kind: type[Server]) -> str:
    _require_available(kind)
    running = config.stash[_REGISTRY].server(kind)
    if running.failure:
        skip_or_fail(running.failure)
    SERVER_VERSIONS[kind.name] = running.version
    return running.url


def _run_own_server(kind: type[_Kind]) -> Iterator[_Kind]:
    _require_available(kind)
    server = kind()
    try:
        try:
            server.start()
        except ServerFailedError as error:
            skip_or_fail(str(error))
        SERVER_VERSIONS[kind.name] = server.version
        yield server
    finally:
        server.remove()


def _require_available(kind: type[Server]) -> None:
    reason = kind.missing_reason()
    if reason is not None:
        skip_or_fail(reason, is_optional=kind.is_optional())


def skip_or_fail(reason: str, *, is_optional: bool = False) -> NoReturn:
    """Skip the test, or fail it if servers are required."""
    if os.environ.get(REQUIRED_VARIABLE) == "1" and not is_optional:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
