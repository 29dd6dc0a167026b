"""Several worker processes on one port, with PostgreSQL, behave like one server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import pytest_asyncio

from tellback import Tellback
from tellback.types.access import NewApiKey
from tests.integration.server.server_process import SLOW_MODEL, ServerProcess, running_process
from tests.support.served_models import TIMINGS_VARIABLE
from tests.support.servers.database_pool import DatabasePool
from tests.support.subprocesses import paused_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


async def create_key(url: str, role: Any = "admin", **kwargs: Any) -> NewApiKey:
    async with Tellback(url, worker=False) as tb:
        return await tb.keys.create(role, **kwargs)


@asynccontextmanager
async def three_workers(url: str, *arguments: str, **environment: str) -> AsyncIterator[ServerProcess]:
    async with running_process("--url", url, "--workers", "3", *arguments, **environment) as server:
        assert len(workers(server)) == 3
        yield server


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """Three workers shared by several tests, the URL of their store, and the folder with their model call times."""

    server: ServerProcess
    url: str
    timings_folder: Path


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def shared(
    prepared_databases: DatabasePool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[WorkerSetup]:
    folder = tmp_path_factory.mktemp("marks")
    with prepared_databases.lend() as url:
        await create_key(url)
        async with three_workers(url, *SLOW_MODEL, **{TIMINGS_VARIABLE: str(folder)}) as server:
            yield WorkerSetup(server, url, folder)


def workers(server: ServerProcess) -> list[int]:
    """Return the process ids of a server's workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, command = (folder / "stat").read_text(), (folder / "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = status.rpartition(")")[2].split()[:2]
        if int(parent) == server.process.pid and "spawn_main" in command and state != "Z":
            found.append(int(folder.name))
    return sorted(found)


@contextmanager
def only_worker(server: ServerProcess, worker_pid: int) -> Iterator[None]:
    """Stop all workers but one, so that it answers new connections."""
    with ExitStack() as stack:
        for pid in workers(server):
            if pid != worker_pid:
                stack.enter_context(paused_process(pid))
        yield


async def ask(server: ServerProcess, secret: str, method: str, path: str, **kwargs: Any) -> httpx2.Response:
    """Send a request on a new connection."""
    async with server.client(secret, "maya") as client:
        return await client.request(method, path, **kwargs)


async def _up_to(lines: AsyncIterator[str], last_line: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line == last_line:
            return


async def user_message_count(server: ServerProcess, secret: str) -> float:
    """Return the number of user messages that all workers received."""
    text = (await ask(server, secret, "GET", "/metrics")).text
    lines = [line for line in text.splitlines() if "requests_total" in line and "/user-messages" in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def model_call_timings(folder: Path) -> list[tuple[float, ...]]:
    """Return start, end and process of the model calls, in order."""
    return sorted(tuple(map(float, each.read_text().split())) for each in folder.iterdir())


@pytest.mark.asyncio(loop_scope="class")
class TestThreeWorkers:
    """All tests of this class share one server, because it starts slowly."""

    async def test_all_workers_see_the_data_and_events_of_each_other(self, shared: WorkerSetup) -> None:
        server = shared.server
        secret = (await create_key(shared.url)).secret
        first_pid, second_pid, third_pid = workers(server)
        with only_worker(server, first_pid):
            conversation = (await ask(server, secret, "POST", "/ai-conversations", json={"namespace": "chat"})).json()
        for pid in (second_pid, third_pid):
            with only_worker(server, pid):
                found = await ask(server, secret, "GET", f"/ai-conversations/{conversation['id']}")
                assert found.json() == conversation
        async with server.client(secret, "maya") as client:
            with only_worker(server, second_pid):
                feed = await client.send(client.build_request("GET", "/ai-events"), stream=True)
                lines = feed.aiter_lines()
                async with asyncio.timeout(20):
                    assert [line async for line in _up_to(lines, "event: ready")]
            with only_worker(server, third_pid):
                response = await ask(
                    server,
                    secret,
                    "POST",
                    f"/ai-conversations/{conversation['id']}/user-messages",
                    json={"content": "Hello."},
                )
            assert response.status_code == 201
            async with asyncio.timeout(20):
                assert [line async for line in _up_to(lines, "event: message.appended")]
            await feed.aclose()

    async def test_idempotency_keys_and_api_keys_work_on_all_workers(self, shared: WorkerSetup) -> None:
        server = shared.server
        admin, app_key = await create_key(shared.url), await create_key(shared.url, "app")
        conversation = (
            await ask(server, app_key.secret, "POST", "/ai-conversations", json={"namespace": "chat"})
        ).json()["id"]
        path, ids, before = (
            f"/ai-conversations/{conversation}/user-messages",
            set(),
            await user_message_count(server, app_key.secret),
        )
        for pid in workers(server):
            with only_worker(server, pid):
                headers = {"Idempotency-Key": "once"}
                answer = await ask(server, app_key.secret, "POST", path, json={"content": "Hello."}, headers=headers)
                assert answer.status_code == 201, answer.text
                ids.add(answer.json()["id"])
        assert len(ids) == 1
        assert await user_message_count(server, app_key.secret) - before == 3, (
            "each worker counts one of the three requests"
        )
        stored = (await ask(server, app_key.secret, "GET", f"/ai-conversations/{conversation}/messages")).json()[
            "items"
        ]
        assert len(stored) == 1

        revoked = await ask(server, admin.secret, "DELETE", f"/ai-admin/keys/{app_key.key.id}")
        assert revoked.status_code in (200, 204), revoked.text
        async with asyncio.timeout(30):
            for pid in workers(server):
                with only_worker(server, pid):
                    while (await ask(server, app_key.secret, "GET", "/ai-conversations")).status_code != 401:  # noqa: ASYNC110
                        await asyncio.sleep(0.2)

    async def test_a_rate_limit_is_shared(self, shared: WorkerSetup) -> None:
        server = shared.server
        limit = 30
        secret = (await create_key(shared.url, rate_limit=limit)).secret
        accepted_count = 0
        for pid in workers(server):
            with only_worker(server, pid):
                async with server.client(secret, "maya") as client:
                    answers = [await client.get("/ai-conversations") for _ in range(limit)]
                accepted_count += sum(answer.status_code == 200 for answer in answers)
        last_response = await ask(server, secret, "GET", "/ai-conversations")
        metrics = await ask(server, secret, "GET", "/metrics")
        # A new minute may have begun, and requests reserved by a worker are not returned.
        assert limit / 2 <= accepted_count <= 2 * limit
        if accepted_count < limit:
            assert last_response.status_code == 429
            assert int(last_response.headers["retry-after"]) >= 1
        assert "tellback_rate_limited_total" in metrics.text

    async def test_turns_of_one_conversation_never_overlap(self, shared: WorkerSetup) -> None:
        server = shared.server
        secret = (await create_key(shared.url)).secret
        conversation = (await ask(server, secret, "POST", "/ai-conversations", json={"namespace": "chat"})).json()["id"]
        path = f"/ai-conversations/{conversation}/run-turn"
        waiting = []
        for pid in [*workers(server), *workers(server)]:
            with only_worker(server, pid):
                request_task = asyncio.create_task(
                    ask(server, secret, "POST", path, json={"userText": "Say 6", "wait": 60})
                )
                waiting.append(request_task)
                await asyncio.sleep(0.5)  # so that this worker gets the connection
        answers = await asyncio.gather(*waiting)
        assert [answer.status_code for answer in answers] == [200] * 6, [answer.text for answer in answers]
        runs = model_call_timings(shared.timings_folder)
        assert len(runs) == 6
        assert len({pid for _, _, pid in runs}) > 1
        for (_, ended, _), (started, _, _) in pairwise(runs):
            assert started >= ended


async def test_a_dead_worker_is_restarted(ready_postgres_url: str) -> None:
    secret = (await create_key(ready_postgres_url)).secret
    async with three_workers(ready_postgres_url) as server:
        before = workers(server)
        os.kill(before[0], signal.SIGKILL)
        async with asyncio.timeout(60):
            while len(after := workers(server)) < 3 or set(after) == set(before):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert (await ask(server, secret, "GET", "/ai-conversations")).status_code == 200
        server.signal(signal.SIGTERM)
        assert await server.wait_for_exit() == 0
    assert "restarting it" in server.output


async def test_a_running_turn_finishes_when_the_workers_stop(ready_postgres_url: str) -> None:
    secret = (await create_key(ready_postgres_url)).secret
    async with three_workers(ready_postgres_url, *SLOW_MODEL) as server, server.client(secret, "maya") as client:
        conversation = (await client.post("/ai-conversations", json={"namespace": "chat"})).json()["id"]
        turn = {"userText": "Say 10", "stream": True}
        async with client.stream("POST", f"/ai-conversations/{conversation}/run-turn", json=turn) as streaming:
            lines, seen = streaming.aiter_lines(), []
            async with asyncio.timeout(40):
                async for line in lines:
                    seen.append(line)
                    if seen.count("event: text") == 1 and line == "event: text":
                        for pid in (server.process.pid, *workers(server)):  # like a terminal or a service manager
                            os.kill(pid, signal.SIGTERM)
        assert await server.wait_for_exit() == 0
    result = json.loads(seen[seen.index("event: result") + 1].removeprefix("data: "))
    assert len(result["text"].split()) == 10
    assert "Traceback" not in server.output


async def test_a_stopping_server_rejects_new_connections(ready_postgres_url: str) -> None:
    secret = (await create_key(ready_postgres_url)).secret
    async with three_workers(ready_postgres_url, *SLOW_MODEL) as server, server.client(secret, "maya") as client:
        turn = {"text": "Say 40", "stream": True}
        async with client.stream("POST", "/ai-conversations/chat", json=turn) as streaming:
            lines = streaming.aiter_lines()
            async with asyncio.timeout(20):
                assert [line async for line in _up_to(lines, "event: text")]
            server.signal(signal.SIGTERM)
            async with asyncio.timeout(5):  # the turn takes ten seconds
                while await is_listening(server):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert server.process.returncode is None
            assert "event: result" in [line async for line in lines]
        assert await server.wait_for_exit() == 0


async def is_listening(server: ServerProcess) -> bool:
    """Whether a server listens."""
    address = urlsplit(server.url)
    try:
        _, writer = await asyncio.open_connection(address.hostname, address.port)
    except ConnectionRefusedError:
        return False
    writer.transport.abort()
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_worker_that_closes_its_store_is_not_interrupted(ready_postgres_url: str, number: int) -> None:
    await create_key(ready_postgres_url)
    async with three_workers(ready_postgres_url, "--agents", "tests.support.served_models:slow_to_close") as server:
        worker_pids = workers(server)
        for pid in (server.process.pid, *worker_pids):  # like a terminal
            os.kill(pid, signal.SIGINT)
        async with asyncio.timeout(20):
            while workers(server):
                for pid in workers(server):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                await asyncio.sleep(0.1)
        assert await server.wait_for_exit() == 0
    assert sum("Server stopped" in line for line in server.log) == 3
    assert "Traceback" not in server.output


async def test_workers_exit_when_the_supervisor_dies(ready_postgres_url: str) -> None:
    await create_key(ready_postgres_url)
    async with three_workers(ready_postgres_url) as server:
        remaining_pids = workers(server)
        server.signal(signal.SIGKILL)
        await server.wait_for_exit()
        async with asyncio.timeout(40):
            while any(process_exists(pid) for pid in remaining_pids):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


def process_exists(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return False
