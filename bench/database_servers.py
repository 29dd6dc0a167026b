"""Start the test suite's database servers for the duration of a benchmark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.support.servers.base import Server, ServerFailedError
from tests.support.servers.mongo import MongoServer
from tests.support.servers.opensearch import OpenSearchServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer

POSTGRES = "postgres"
SERVER_CLASSES: Mapping[str, type[Server]] = {
    "redis": RedisServer,
    "mongo": MongoServer,
    "opensearch": OpenSearchServer,
}


@contextmanager
def start_servers(
    names: set[str], report_progress: Callable[[str], None]
) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yield the URL of each server that started, and the reason for each that did not."""
    urls: dict[str, str] = {}
    unavailable: dict[str, str] = {}
    with ExitStack() as stack:
        if POSTGRES in names:
            report_progress("starting PostgreSQL")
            postgres = PostgresServer()
            stack.callback(postgres.remove)
            postgres.start()
            urls[POSTGRES] = postgres.url()
        for name in names & SERVER_CLASSES.keys():
            try:
                urls[name] = _start_server(SERVER_CLASSES[name], stack.callback, report_progress)
            except ServerFailedError as error:
                unavailable[name] = str(error)
        yield urls, unavailable


def _start_server(
    server_class: type[Server], add_cleanup: Callable[[Callable[[], None]], Any], report_progress: Callable[[str], None]
) -> str:
    reason = server_class.missing_reason()
    if reason is not None:
        raise ServerFailedError(reason)
    report_progress(f"starting {server_class.name}")
    server = server_class()
    add_cleanup(server.remove)
    server.start()
    return server.url
