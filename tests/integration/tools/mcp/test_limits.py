"""Limits on the size and number of a server's messages."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tellback.errors import McpError
from tests.integration.tools.mcp.support import by_name, entries, hostile, pids, running, wait_until


@pytest.fixture
def server_log(tmp_path: Path) -> Path:
    return tmp_path / "diary"


def list_count(server_log: Path) -> int:
    return sum(entry.get("method") == "tools/list" for entry in entries(server_log))


@pytest.mark.parametrize(
    ("flood", "reason"),
    [
        ("endless", "a message of more than 16 MB"),
        ("values", "a message of more than 500000 values"),
        ("chatter", "too much unrequested output"),
    ],
)
async def test_a_server_that_floods_its_output_is_stopped_and_restarted(
    server_log: Path, flood: str, reason: str
) -> None:
    async with hostile(server_log) as server:
        with pytest.raises(McpError, match=f"broke while {flood} was running: .*{reason}"):
            await server.call(flood)
        assert not server.connected
        assert (await server.call("act")).content == "done"
        first, second = pids(server_log)
        await wait_until(lambda: not running(first))
        assert running(second)


async def test_a_broken_connection_fails_all_waiting_calls(server_log: Path) -> None:
    async with hostile(server_log) as server:
        await server.tools()
        waiting = asyncio.create_task(server.call("wait"))
        await wait_until(lambda: "'name': 'wait'" in str(entries(server_log)))
        with pytest.raises(McpError, match="more than 16 MB"):
            await server.call("endless")
        with pytest.raises(McpError, match=r"broke while wait was running.*more than 16 MB"):
            await waiting


async def test_requests_of_the_server_are_answered(server_log: Path) -> None:
    async with hostile(server_log) as server:
        assert (await server.call("questions")).content == "done"
        await wait_until(lambda: sum(entry.get("result") == {} for entry in entries(server_log)) == 99)
        [refusal] = [entry for entry in entries(server_log) if entry.get("id") == "q0"]
        assert refusal["error"]["code"] == -32601


async def test_an_answer_with_too_many_blocks_is_truncated(server_log: Path) -> None:
    async with hostile(server_log) as server:
        assert (await server.call("parts")).content == "[truncated: the first 1000 of 300000 blocks are shown]"


async def test_lone_surrogates_are_replaced(server_log: Path) -> None:
    async with hostile(server_log) as server:
        assert (await server.call("half")).content == "half ? a character"


async def test_a_deeply_nested_answer_is_an_error(server_log: Path) -> None:
    async with hostile(server_log) as server:
        with pytest.raises(McpError, match="the answer to deep cannot be read"):
            await server.call("deep")
        assert (await server.call("act")).content == "done"


async def test_too_many_tools_on_one_page_are_an_error(server_log: Path) -> None:
    async with hostile(server_log, "many-tools") as server:
        with pytest.raises(McpError, match="it lists more than 2000 tools"):
            await server.tools()


async def test_stderr_output_is_not_in_the_errors_of_calls(server_log: Path) -> None:
    async with hostile(server_log) as server:
        await server.call("whisper")
        for failing in ("refuse", "nonsense", "die"):
            with pytest.raises(McpError) as caught:
                await server.call(failing)
            assert "secret" not in str(caught.value)


async def test_concurrent_callers_share_one_tool_list_request(server_log: Path) -> None:
    async with hostile(server_log, "no-list", connect_timeout=5) as server:
        found = await asyncio.gather(*(server.call("act") for _ in range(6)), return_exceptions=True)
        assert all("tools/list was not answered" in str(error) for error in found)
        assert list_count(server_log) == 1


async def test_a_cancelled_caller_does_not_cancel_the_shared_tool_list_request(server_log: Path) -> None:
    async with hostile(server_log, "no-changes") as server:
        first_task, second_task = asyncio.create_task(server.tools()), asyncio.create_task(server.tools())
        await asyncio.sleep(0)
        first_task.cancel()
        assert await second_task
        assert first_task.cancelled()


async def test_a_change_is_remembered_if_fetching_the_tool_list_fails(server_log: Path) -> None:
    async with hostile(server_log, "second-list-lost", connect_timeout=5) as server:
        assert "new" not in await by_name(server)
        await server.call("change")
        with pytest.raises(McpError, match="tools/list was not answered"):
            await server.tools()
        assert "new" in await by_name(server)
        assert list_count(server_log) == 3


async def test_a_call_with_outdated_headers_is_retried_with_new_ones(server_log: Path) -> None:
    async with hostile(server_log) as server:
        await server.tools()
        assert (await server.call("mismatch")).content == "done"
        assert list_count(server_log) == 2


def test_trace_context_is_not_sent_and_the_sdk_creates_no_spans(server_log: Path) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.integration.tools.mcp.support import hostile

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)

async def main():
    with trace.get_tracer("app").start_as_current_span("request"):
        async with hostile(Path(sys.argv[1])) as server:
            await server.call("act")

asyncio.run(main())
print([span.name for span in spans.get_finished_spans()])
"""
    completed = subprocess.run(
        [sys.executable, "-c", code, str(server_log)], timeout=50, check=False, capture_output=True, text=True
    )
    assert completed.stdout.strip() == "['request']", completed.stderr
    assert "traceparent" not in json.dumps(entries(server_log))
    [call] = [entry for entry in entries(server_log) if entry.get("method") == "tools/call"]
    assert call["params"] == {"name": "act", "arguments": {}}
