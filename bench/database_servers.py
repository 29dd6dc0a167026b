"""Real databases for a benchmark: the servers of the tests, for as long as it runs."""

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
OTHERS: Mapping[str, type[Server]] = {"redis": RedisServer, "mongo": MongoServer, "opensearch": OpenSearchServer}


@contextmanager
def servers(names: set[str], say: Callable[[str], None]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The URLs of those of these names that run now, and why others do not."""
    urls: dict[str, str] = {}
    missing: dict[str, str] = {}
    with ExitStack() as running:
        if POSTGRES in names:
            say("starting PostgreSQL")
            postgres = PostgresServer()
            running.callback(postgres.remove)
            postgres.start()
            urls[POSTGRES] = postgres.url()
        for name in names & OTHERS.keys():
            try:
                urls[name] = _started(OTHERS[name], running.callback, say)
            except ServerFailedError as error:
                missing[name] = str(error)
        yield urls, missing


def _started(kind: type[Server], at_the_end: Callable[[Callable[[], None]], Any], say: Callable[[str], None]) -> str:
    reason = kind.missing()
    if reason is not None:
        raise ServerFailedError(reason)
    say(f"starting {kind.name}")
    server = kind()
    at_the_end(server.remove)
    server.start()
    return server.url
