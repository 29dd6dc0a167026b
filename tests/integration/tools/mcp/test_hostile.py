"""A misbehaving server over stdio."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tellback.errors import McpError
from tellback.tools import ToolCall, dispatch
from tellback.tools.mcp import McpToolInfo
from tests.integration.tools.mcp.support import by_name, entries, hostile, pids, running, wait_until


@pytest.fixture
def server_log(tmp_path: Path) -> Path:
    return tmp_path / "diary"


async def test_a_server_that_never_answers_times_out_and_leaves_no_process(server_log: Path) -> None:
    for wrong in ("no-greeting", "deaf"):
        server = hostile(server_log, wrong, connect_timeout=2)
        with pytest.raises(McpError, match=r"'hostile': it did not connect within 2 seconds"):
            await server.connect()
        assert not server.connected
    assert not any(map(running, pids(server_log)))


async def test_the_error_of_a_server_that_fails_to_start_contains_its_stderr(server_log: Path) -> None:
    with pytest.raises(McpError, match=r"cannot be connected.*the licence has expired"):
        await hostile(server_log, "fails-at-once").connect()


async def test_a_server_that_does_not_exit_is_killed(server_log: Path) -> None:
    async with hostile(server_log, "stubborn") as server:
        await server.tools()
        [pid] = pids(server_log)
    assert not running(pid)


async def test_closing_completes_even_if_cancelled(server_log: Path) -> None:
    server = hostile(server_log, "stubborn")
    await server.connect()
    [pid] = pids(server_log)
    closing = asyncio.create_task(server.close())
    await asyncio.sleep(0.1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not running(pid)


async def test_a_call_without_an_answer_times_out_and_the_session_continues(server_log: Path) -> None:
    async with hostile(server_log, call_timeout=3) as server:
        tools = await by_name(server)
        result = await dispatch(ToolCall("c", "wait", {}), tools)
        assert result.is_error
        assert "MCP server 'hostile': wait was not answered within 3 seconds" in result.content
        assert (await server.call("act")).content == "done"
        await wait_until(lambda: "notifications/cancelled" in str(entries(server_log)))
        assert len(pids(server_log)) == 1


async def test_a_server_that_stops_reading_blocks_neither_calls_nor_closing(server_log: Path) -> None:
    async with hostile(server_log, call_timeout=2) as server:
        await server.tools()
        with pytest.raises(McpError, match="sleep was not answered"):
            await server.call("sleep")
        with pytest.raises(McpError, match="act was not answered"):
            await server.call("act", {"much": "m" * 3_000_000})
        with pytest.raises(McpError, match="act was not answered"):
            await server.call("act")
    assert not any(map(running, pids(server_log)))


async def test_the_server_is_notified_of_a_cancelled_call(server_log: Path) -> None:
    async with hostile(server_log) as server:
        await server.tools()
        call = asyncio.create_task(server.call("wait"))
        await wait_until(lambda: "'name': 'wait'" in str(entries(server_log)))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await wait_until(lambda: entries(server_log)[-1].get("method") == "notifications/cancelled")
        request = next(entry for entry in entries(server_log) if entry.get("method") == "tools/call")
        assert entries(server_log)[-1]["params"]["requestId"] == request["id"]


async def test_an_unreadable_answer_is_an_error_and_the_session_continues(server_log: Path) -> None:
    async with hostile(server_log) as server:
        with pytest.raises(McpError, match="the answer to nonsense cannot be read"):
            await server.call("nonsense")
        with pytest.raises(McpError, match=r"refuse was rejected: not today \(code -32000\)"):
            await server.call("refuse")
        assert (await server.call("act")).content == "done"
        assert len(pids(server_log)) == 1


async def test_invalid_output_is_ignored_and_logged_once(server_log: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with hostile(server_log) as server:
        assert (await server.call("garble")).content == "done"
        assert (await server.call("act")).content == "done"
        assert len(pids(server_log)) == 1
    assert sum("invalid messages" in message for message in caplog.messages) == 1
    assert not [record for record in caplog.records if record.name.startswith("mcp")]


async def test_huge_output_is_truncated(server_log: Path) -> None:
    async with hostile(server_log, max_result_chars=500) as server:
        result = await server.call("huge")
        assert result.content == "z" * 500 + "\n\n[truncated: the first 500 of 3000000 characters are shown]"


async def test_media_with_invalid_data_is_left_out(server_log: Path) -> None:
    async with hostile(server_log) as server:
        result = await server.call("blob")
        assert result.parts is not None
        assert [part.kind for part in result.parts] == ["text", "audio"]
        assert "left out" in (result.parts[0].text or "")


async def test_a_flood_on_stderr_neither_blocks_the_server_nor_fills_the_log(
    server_log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tellback.tools.mcp")
    async with hostile(server_log) as server:
        assert (await server.call("flood")).content == "done"
    lines = [record for record in caplog.records if record.name == "tellback.tools.mcp"]
    assert 0 < len(lines) < 10_000
    assert max(len(record.getMessage()) for record in lines) < 1_100
    assert any("more lines were skipped" in record.getMessage() for record in lines)


async def test_tools_with_invalid_schemas_are_rejected_and_the_others_work(
    server_log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hostile(server_log, "bad-tools") as server:
        tools = await by_name(server)
        assert set(tools) == {"circle", "doubling", "tree", "wordy", "backtracking", "good"}
        reasons = dict(server.refused)
        assert set(reasons) == {
            *("text_schema", "no_schema", "array_schema", "invalid_schema", "remote"),
            *("dangling", "huge", "deep", "(tool 11)", "(tool 12)", "(tool 13)", "good"),
        }
        assert "which is not fetched" in reasons["remote"]
        assert "listed twice" in reasons["good"]
        for name in reasons:
            assert any(repr(name) in message for message in caplog.messages)
        assert len(tools["wordy"].description) == 4_000
        assert (await dispatch(ToolCall("c", "good", {}), tools)).content == "done"
        for schema_name in ("circle", "doubling", "tree"):
            assert not (await dispatch(ToolCall("c", schema_name, {"left": {"right": {}}}), tools)).is_error
        assert not (await dispatch(ToolCall("c", "backtracking", {"x": "a" * 60 + "!"}), tools)).is_error


async def test_unselected_tools_are_not_reported_as_refused(server_log: Path) -> None:
    async with hostile(server_log, "bad-tools", only=["tree", "remote"]) as server:
        assert set(await by_name(server)) == {"tree"}
        assert [name for name, _ in server.refused] == ["remote"]


async def test_an_approval_function_can_use_the_servers_hints(server_log: Path) -> None:
    def needs_approval(tool: McpToolInfo) -> bool:
        return not tool.hints.get("readOnlyHint")

    async with hostile(server_log, "bad-tools", requires_approval=needs_approval) as server:
        assert [tool.name for tool in await server.tools() if not tool.requires_approval] == ["wordy"]


async def test_an_endless_tool_list_is_an_error(server_log: Path) -> None:
    async with hostile(server_log, "pages") as server:
        with pytest.raises(McpError, match="more than 100 pages"):
            await server.tools()
    request = [entry for entry in entries(server_log) if entry.get("method") == "tools/list"]
    assert len(request) == 100


async def test_all_pages_of_a_tool_list_are_read(server_log: Path) -> None:
    async with hostile(server_log, "two-pages") as server:
        assert [tool.name for tool in await server.tools()] == ["a", "b"]


async def test_a_missing_or_unreadable_tool_list_is_an_error(server_log: Path) -> None:
    async with hostile(server_log, "no-list", connect_timeout=5) as server:
        with pytest.raises(McpError, match="tools/list was not answered within 5 seconds"):
            await server.tools()
    async with hostile(server_log, "nonsense-list") as server:
        with pytest.raises(McpError, match="the answer to tools/list cannot be read"):
            await server.tools()


async def test_the_tool_list_is_fetched_again_after_a_change_notification(server_log: Path) -> None:
    def list_count() -> int:
        return sum(entry.get("method") == "tools/list" for entry in entries(server_log))

    async with hostile(server_log) as server:
        first = await server.tools()
        assert await server.tools() == first
        assert list_count() == 1
        await server.call("change")
        assert "new" in await by_name(server)
        await server.tools()
        assert list_count() == 2


async def test_the_tool_list_is_fetched_each_time_without_change_notifications(server_log: Path) -> None:
    async with hostile(server_log, "no-changes") as server:
        assert await server.tools() == await server.tools()
    assert sum(entry.get("method") == "tools/list" for entry in entries(server_log)) == 2


async def test_a_server_that_dies_in_every_call_is_restarted_each_time(server_log: Path) -> None:
    async with hostile(server_log) as server:
        tools = await by_name(server)
        for _ in range(3):
            result = await dispatch(ToolCall("c", "die", {}), tools)
            assert "not repeated" in result.content
        assert (await server.call("act")).content == "done"
    assert sum("'name': 'die'" in str(entry) for entry in entries(server_log)) == 3
    assert len(pids(server_log)) == 4
    assert not any(map(running, pids(server_log)))


async def test_connecting_can_be_cancelled(server_log: Path) -> None:
    server = hostile(server_log, "deaf")
    connect_task = asyncio.create_task(server.connect())
    await wait_until(lambda: bool(pids(server_log)))
    connect_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connect_task
    assert not any(map(running, pids(server_log)))
