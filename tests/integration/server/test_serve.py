"""`tellback serve` as a command."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path

import pytest

from tellback import Tellback
from tests.integration.server.server_process import ENVIRONMENT, failed_start, running_process


async def test_a_server_without_keys_is_open_locally_and_warns(tmp_path: Path) -> None:
    url = str(tmp_path / "tellback.db")
    async with running_process("--url", url) as server:
        async with server.client() as client:
            created = await client.post("/ai-conversations", json={"namespace": "chat"})
            assert created.status_code == 201
            assert "server" not in created.headers
            assert (await client.get("/health/ready")).json() == {"status": "ready"}
            assert (await client.get("/docs")).status_code == 200
            assert (await client.get("/metrics")).status_code == 200
        server.signal(15)
        assert await server.wait_for_exit() == 0
    assert f"tellback keys create --role admin --url {url}" in server.output
    assert "/docs" in server.stdout_lines[0]
    lines = [json.loads(line) for line in server.log]
    assert [line["route"] for line in lines if "route" in line] == ["/ai-conversations", "/docs"]
    async with Tellback(url, worker=False) as tb:
        assert await tb.user("local").conversations.get(created.json()["id"]) is not None


async def test_a_server_with_a_key_requires_it(tmp_path: Path) -> None:
    url = str(tmp_path / "tellback.db")
    async with Tellback(url, worker=False) as tb:
        secret = (await tb.keys.create("app")).secret
    async with running_process(TELLBACK_URL=url, TELLBACK_RATE_LIMIT="5", TELLBACK_METRICS_TOKEN="scrape") as server:
        async with server.client() as client:
            assert (await client.get("/ai-conversations")).status_code == 401
            assert (await client.get("/metrics")).status_code == 401
            assert (await client.get("/metrics", headers={"Authorization": "Bearer scrape"})).status_code == 200
        async with server.client(secret, "maya") as client:
            statuses = [(await client.get("/ai-conversations")).status_code for _ in range(7)]
    assert statuses[0] == 200
    assert statuses[-1] == 429
    assert secret not in server.output
    assert "everyone" not in server.output


async def test_an_agent_from_a_file_is_served(tmp_path: Path) -> None:
    (tmp_path / "support.yaml").write_text("name: support\nsystemPrompt: Be brief.\n")
    async with (
        running_process("--url", ":memory:", "--agents", str(tmp_path), "--log-format", "text") as server,
        server.client() as client,
    ):
        assert (await client.get("/health/ready")).status_code == 200
    assert not server.log or not server.log[0].startswith("{")


async def test_startup_errors_print_one_line_and_exit_with_code_2(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        output = await failed_start("--url", str(tmp_path / "a.db"), "--port", port)
    assert f"port {port}" in output
    assert len(output.splitlines()) == 1


async def test_an_unreachable_store_is_reported_in_one_sentence() -> None:
    with socket.socket() as unused_socket:
        unused_socket.bind(("127.0.0.1", 0))
        output = await failed_start(
            "--url", f"postgresql://app:secret@127.0.0.1:{unused_socket.getsockname()[1]}/nothing"
        )
    assert "Traceback" not in output
    assert "secret" not in output


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
async def test_a_missing_extra_is_reported(tmp_path: Path, missing: str) -> None:
    hiding_code = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['tellback', 'serve'];"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{hiding_code} from tellback.cli import main; main()"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT,
        cwd=tmp_path,
    )
    _, error = await process.communicate()
    assert process.returncode == 2, error.decode()
    assert "tellback[server]" in error.decode()
