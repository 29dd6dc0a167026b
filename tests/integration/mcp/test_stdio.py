"""The command `tellback mcp` over pipes, with the official client and with raw JSON lines."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tellback import Tellback
from tellback.mcp.server import MAX_MESSAGE_BYTES
from tests.integration.mcp.support import PROGRAM, server_parameters
from tests.unit.mcp.support import call_ok, call_refused

INITIALIZE: dict[str, Any] = {
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}

LIST = b'{"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}'


@pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["newest", "with handshake"])
async def test_one_process_remembers_and_another_one_recalls(tmp_path: Path, mode: str) -> None:
    url = tmp_path / "tellback.db"
    async with Client(server_parameters(url, "maya"), mode=mode) as client:
        assert client.server_info is not None
        assert client.server_info.name == "tellback"
        assert "long-term memory" in (client.instructions or "")
        memory = (await call_ok(client, "remember", text="Maya is vegetarian."))["memory"]
        assert "limit" in await call_refused(client, "recall", query="food", limit=1_000)
        with pytest.raises(MCPError, match="There is no tool 'erase'"):
            await client.call_tool("erase", {})
    async with Client(server_parameters(url, "maya", "--read-only"), mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            *("recall", "timeline", "entities", "conversations")
        ]
        found = (await call_ok(client, "recall", query="is she vegetarian"))["memories"]
        assert [each["id"] for each in found] == [memory["id"]]


async def test_two_users_and_two_tenants_do_not_see_each_other(tmp_path: Path) -> None:
    url = tmp_path / "tellback.db"
    async with Client(server_parameters(url, "maya")) as client:
        memory = (await call_ok(client, "remember", text="Maya is vegetarian."))["memory"]
    for user, tenant in (("tom", "default"), ("maya", "acme")):
        async with Client(server_parameters(url, user, "--tenant", tenant)) as client:
            assert (await call_ok(client, "recall", query="vegetarian"))["memories"] == []
            assert "There is no atom" in await call_refused(client, "forget", atom_id=memory["id"])
    async with Tellback(url, worker=False) as tb:
        assert (await tb.user("maya").memory.get_atom(memory["id"])) is not None


class RawClient:
    """A client that sends raw JSON lines to the command."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._number = 0

    async def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()

    async def ask(self, method: str, params: Any) -> Any:
        """Send a request and return the answer; standard output may contain only protocol messages."""
        assert self.process.stdout is not None
        self._number += 1
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        await self.send(json.dumps(body).encode())
        async with asyncio.timeout(40):
            answer = json.loads(await self.process.stdout.readline())
        assert answer["id"] == self._number
        return answer

    async def initialize(self) -> None:
        assert (await self.ask(INITIALIZE["method"], INITIALIZE["params"]))["result"]["serverInfo"]["name"]
        await self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    async def wait_closed(self, last_input: bytes = b"") -> tuple[int, str]:
        """Send the last input, close standard input, and return the exit code and the standard error."""
        async with asyncio.timeout(40):
            _, stderr = await self.process.communicate(last_input)
        assert self.process.returncode is not None
        return self.process.returncode, stderr.decode()


@asynccontextmanager
async def run_command(url: Path, *extra_args: str, stdout: int = asyncio.subprocess.PIPE) -> AsyncIterator[RawClient]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *PROGRAM, "--url", str(url), "--user", "maya", *extra_args),
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        limit=16 * 1024 * 1024,
        env={name: value for name, value in os.environ.items() if not name.startswith("TELLBACK_")},
    )
    try:
        yield RawClient(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def test_malformed_messages_are_ignored(tmp_path: Path) -> None:
    async with run_command(tmp_path / "tellback.db") as server:
        await server.initialize()
        for line in (b"", b"hello", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"jsonrpc": "2.0", "id": []}', b"null"):
            await server.send(line)
        answer = await server.ask("tools/call", {"name": "recall", "arguments": "food"})
        assert answer["error"]["code"] == -32602
        answer = await server.ask("tools/call", {"name": "remember", "arguments": {"text": "x" * 500_000}})
        assert answer["result"]["isError"] is True
        answer = await server.ask("tools/call", {"name": "remember", "arguments": {"text": "é\ud83d\ude00"}})
        assert "é😀" in answer["result"]["content"][0]["text"]
        assert (await server.ask("no/such", {}))["error"]["code"] == -32601


async def test_the_command_exits_at_the_end_of_its_input(tmp_path: Path) -> None:
    async with run_command(tmp_path / "tellback.db") as server:
        await server.initialize()
        code, stderr = await server.wait_closed()
        assert code == 0
        assert "Serving the memory of maya" in stderr
        assert "Traceback" not in stderr
    assert not (tmp_path / "tellback.db-wal").exists()  # the store was closed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_exits_on_a_signal_while_waiting_for_input(tmp_path: Path, number: int) -> None:
    async with run_command(tmp_path / "tellback.db") as server:
        await server.initialize()
        server.process.send_signal(number)
        async with asyncio.timeout(40):
            assert await server.process.wait() == 0
        assert not (tmp_path / "tellback.db-wal").exists()


@asynccontextmanager
async def unread(url: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Run the command with an initialized connection, and yield the unread end of its output pipe."""
    reading, writing = os.pipe()
    async with run_command(url, stdout=writing) as server:
        os.close(writing)
        try:
            await server.send(json.dumps({"jsonrpc": "2.0", "id": 1, **INITIALIZE}).encode())
            await server.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
            assert b"serverInfo" in await asyncio.to_thread(os.read, reading, 100_000)
            yield server.process, reading
        finally:
            with suppress(OSError):
                os.close(reading)


async def test_the_command_exits_even_if_the_client_does_not_read(tmp_path: Path) -> None:
    async with unread(tmp_path / "tellback.db") as (process, _):
        assert process.stdin is not None
        for _ in range(100):  # more than a pipe holds
            process.stdin.write(LIST + b"\n")
        await process.stdin.drain()
        await asyncio.sleep(1)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(40):
            assert await process.wait() == 0
    assert not (tmp_path / "tellback.db-wal").exists()


async def test_the_command_exits_without_a_traceback_if_the_client_is_gone(tmp_path: Path) -> None:
    async with unread(tmp_path / "tellback.db") as (process, reading):
        os.close(reading)
        async with asyncio.timeout(40):
            _, stderr = await process.communicate(LIST + b"\n")
        assert process.returncode == 0, stderr.decode()
        assert b"Traceback" not in stderr


async def test_an_overlong_message_ends_the_connection(tmp_path: Path) -> None:
    async with run_command(tmp_path / "tellback.db") as server:
        await server.initialize()
        code, stderr = await server.wait_closed(b"x" * (MAX_MESSAGE_BYTES + 200_000))
        assert code == 0
        assert "more than 1048576 bytes" in stderr


async def test_configuration_errors_are_printed_to_standard_error(tmp_path: Path) -> None:
    async with run_command(tmp_path / "none" / "tellback.db") as server:
        async with asyncio.timeout(40):
            out, stderr = await server.process.communicate()
        assert server.process.returncode == 2
        assert out == b""
        assert stderr
        assert b"Traceback" not in stderr
