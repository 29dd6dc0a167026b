from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.servers.base import NotReadyError, Server, ServerFailedError
from tests.support.servers.fixtures import REQUIRED_VARIABLE, skip_or_fail
from tests.support.servers.mongo import MongoServer
from tests.support.servers.opensearch import OpenSearchServer
from tests.support.servers.redis import RedisServer
from tests.support.servers.registry import ServerRegistry

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]
_BACKENDS = """
import pytest

@pytest.mark.backend("Redis", "7.0")
@pytest.mark.parametrize("number", range(4))
def test_redis(number):
    assert number

@pytest.mark.backend("Elsewhere")
def test_elsewhere():
    pytest.skip("not here")

@pytest.mark.backend("In memory", "this process")
@pytest.mark.xfail(strict=True)
def test_memory():
    assert False

def test_nothing():
    pass
"""


class Silent(Server):
    """A server process that never responds, unless it is configured to count as ready."""

    name = "Silent"
    start_seconds = 0.2
    program = "import time; print('started', flush=True); time.sleep(60)"
    content = False
    url = "silent:"

    @staticmethod
    def missing_reason() -> str | None:
        return None

    @staticmethod
    def is_optional() -> bool:
        return False

    def command(self) -> list[str]:
        with (self.folder.parent / f"{self.name}.starts").open("a") as starts:
            starts.write("started\n")
        return [sys.executable, "-I", "-S", "-c", self.program]

    def probe(self) -> str:
        if not self.content:
            raise NotReadyError("it does not respond")
        return "1.0"


class Content(Silent):
    name = "Content"
    content = True


class Broken(Silent):
    name = "Broken"
    start_seconds = 30
    program = "raise SystemExit('no such luck')"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerRegistry]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = ServerRegistry.create()
    yield run
    run.close()


def _starts(tmp_path: Path, kind: type[Silent]) -> int:
    return len((tmp_path / f"{kind.name}.starts").read_text().splitlines())


def _is_gone(pid: int) -> bool:
    """Whether the process has ended, even if it is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_killed_redis_keeps_acknowledged_writes(own_redis: RedisServer) -> None:
    from redis import Redis

    with Redis.from_url(own_redis.url) as client:
        client.set("word", "kept")
    url, pid = own_redis.url, own_redis.pid
    own_redis.kill()
    own_redis.start()
    assert own_redis.url == url
    assert own_redis.pid != pid
    with Redis.from_url(own_redis.url, decode_responses=True) as client:
        assert client.get("word") == "kept"
        assert client.info("server")["redis_version"] == own_redis.version


def test_a_killed_mongodb_keeps_acknowledged_writes(own_mongo: MongoServer) -> None:
    from pymongo import MongoClient

    client: MongoClient[dict[str, object]] = MongoClient(own_mongo.url, w="majority", journal=True)
    with client:
        client["test"]["words"].insert_one({"word": "kept"})
    own_mongo.kill()
    own_mongo.start()
    client = MongoClient(own_mongo.url)
    with client:
        found = client["test"]["words"].find_one()
        assert found is not None
        assert found["word"] == "kept"
        with client.start_session() as session, session.start_transaction():
            client["test"]["words"].insert_one({"word": "more"}, session=session)


def test_a_killed_opensearch_keeps_acknowledged_writes(own_opensearch: OpenSearchServer) -> None:
    from opensearchpy import OpenSearch

    client = OpenSearch(own_opensearch.url)
    client.index(index="words", id="1", body={"word": "kept"})
    own_opensearch.kill()
    own_opensearch.start()
    assert client.get(index="words", id="1")["_source"] == {"word": "kept"}
    client.close()


def test_shared_servers_answer_at_their_address(redis_url: str, mongo_url: str) -> None:
    from pymongo import MongoClient
    from redis import Redis

    with Redis.from_url(redis_url) as redis:
        assert redis.ping()
    client: MongoClient[dict[str, object]] = MongoClient(mongo_url)
    with client:
        assert client.admin.command("hello")["isWritablePrimary"]


def test_the_shared_opensearch_answers_at_its_address(opensearch_url: str) -> None:
    from opensearchpy import OpenSearch

    client = OpenSearch(opensearch_url)
    assert client.info()["version"]["distribution"] == "opensearch"
    client.close()


def test_a_server_that_never_answers_is_stopped_and_its_log_shown() -> None:
    server = Silent()
    try:
        with pytest.raises(ServerFailedError, match=r"in 0 seconds: it does not respond(.|\n)*"):
            server.start()
        assert _is_gone(server.pid)
    finally:
        server.remove()


def test_a_server_that_exits_immediately_is_reported_without_waiting() -> None:
    server = Broken()
    try:
        with pytest.raises(ServerFailedError, match=r"and ended\nno such luck"):
            server.start()
    finally:
        server.remove()
    assert not server.folder.exists()


def test_all_workers_of_a_run_share_one_server(run: ServerRegistry, tmp_path: Path) -> None:
    workers = [run, *(ServerRegistry(run.folder, run.owner_pid) for _ in range(3))]
    with ThreadPoolExecutor(4) as threads:
        servers = list(threads.map(lambda worker: worker.server(Content), workers))
    assert len({server.pid for server in servers}) == 1
    assert servers[0].version == "1.0"
    assert _starts(tmp_path, Content) == 1
    for worker in workers:  # the process that started it must end it
        worker.close()


def test_a_failed_start_is_tried_once(run: ServerRegistry, tmp_path: Path) -> None:
    first = run.server(Broken)
    assert "no such luck" in first.failure
    assert ServerRegistry(run.folder, run.owner_pid).server(Broken) == first
    assert _starts(tmp_path, Broken) == 1


def test_a_finished_run_leaves_no_processes_or_files(run: ServerRegistry) -> None:
    server = run.server(Content)
    assert Path(server.folder).exists()
    run.close()
    assert not Path(server.folder).exists()
    assert not run.folder.exists()
    assert _is_gone(server.pid)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the watchdog of servers needs pidfd_open")
def test_a_server_does_not_outlive_a_killed_run(tmp_path: Path) -> None:
    program = (
        "import time; from tests.unit.test_server_fixtures import Content;"
        " s = Content(); s.start(); print(s.pid, flush=True)"
    )
    command = [sys.executable, "-c", f"{program}; time.sleep(60)"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=_ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert not _is_gone(pid)
        run.send_signal(signal.SIGKILL)
    while not _is_gone(pid) or any(tmp_path.glob("tellback-content-*")):
        time.sleep(0.05)


def test_a_missing_server_skips_the_test_unless_servers_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such server"):
        skip_or_fail("no such server")
    monkeypatch.setenv(REQUIRED_VARIABLE, "1")
    with pytest.raises(pytest.skip.Exception, match="no such platform"):
        skip_or_fail("no such platform", is_optional=True)
    with pytest.raises(pytest.fail.Exception, match="no such server"):
        skip_or_fail("no such server")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_table_counts_tests_by_backend_in_a_fixed_order(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_backends.py").write_text(_BACKENDS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = backend\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.servers.report", "-n", workers]
    process = subprocess.run(
        [*command, "-c", tmp_path / "pytest.ini", "--rootdir", tmp_path, tmp_path],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
        timeout=50,
    )
    rows = [re.split(r" *\| *", line) for line in process.stdout.splitlines() if " | " in line]
    assert rows == [
        ["backend", "server", "tests run", "skipped", "failed"],
        ["In memory", "this process", "1", "0", "0"],
        ["Redis", "7.0", "4", "0", "1"],
        ["Elsewhere", "-", "0", "1", "0"],
    ]
