"""A server that does everything wrong."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tellback.errors import McpError
from tellback.tools import ToolCall, dispatch
from tellback.tools.mcp import McpToolInfo
from tests.integration.tools.mcp.support import by_name, entries, hostile, pids, running, until


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "diary"


async def test_a_server_that_never_answers_is_given_up_in_time_and_leaves_no_process(diary: Path) -> None:
    for wrong in ("no-greeting", "deaf"):
        server = hostile(diary, wrong, connect_timeout=2)
        with pytest.raises(McpError, match=r"'hostile': it did not connect within 2 seconds"):
            await server.connect()
        assert not server.connected
    assert not any(map(running, pids(diary)))


async def test_a_server_that_fails_at_once_is_quoted(diary: Path) -> None:
    with pytest.raises(McpError, match=r"cannot be connected.*the licence has expired"):
        await hostile(diary, "fails-at-once").connect()


async def test_a_server_that_will_not_end_is_ended(diary: Path) -> None:
    async with hostile(diary, "stubborn") as server:
        await server.tools()
        [pid] = pids(diary)
    assert not running(pid)


async def test_closing_goes_on_to_the_end_when_it_is_cancelled(diary: Path) -> None:
    server = hostile(diary, "stubborn")
    await server.connect()
    [pid] = pids(diary)
    closing = asyncio.create_task(server.close())
    await asyncio.sleep(0.1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not running(pid)


async def test_a_call_without_an_answer_times_out_and_the_session_goes_on(diary: Path) -> None:
    async with hostile(diary, call_timeout=3) as server:
        tools = await by_name(server)
        result = await dispatch(ToolCall("c", "wait", {}), tools)
        assert result.is_error
        assert "MCP server 'hostile': wait was not answered within 3 seconds" in result.content
        assert (await server.call("act")).content == "done"
        await until(lambda: "notifications/cancelled" in str(entries(diary)))
        assert len(pids(diary)) == 1


async def test_a_server_that_no_longer_reads_holds_up_neither_calls_nor_closing(diary: Path) -> None:
    async with hostile(diary, call_timeout=2) as server:
        await server.tools()
        with pytest.raises(McpError, match="sleep was not answered"):
            await server.call("sleep")
        with pytest.raises(McpError, match="act was not answered"):
            await server.call("act", {"much": "m" * 3_000_000})
        with pytest.raises(McpError, match="act was not answered"):
            await server.call("act")
    assert not any(map(running, pids(diary)))


async def test_the_server_is_told_of_a_cancelled_call(diary: Path) -> None:
    async with hostile(diary) as server:
        await server.tools()
        call = asyncio.create_task(server.call("wait"))
        await until(lambda: "'name': 'wait'" in str(entries(diary)))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: entries(diary)[-1].get("method") == "notifications/cancelled")
        request = next(entry for entry in entries(diary) if entry.get("method") == "tools/call")
        assert entries(diary)[-1]["params"]["requestId"] == request["id"]


async def test_an_answer_that_cannot_be_read_is_an_error_and_the_session_goes_on(diary: Path) -> None:
    async with hostile(diary) as server:
        with pytest.raises(McpError, match="the answer to nonsense cannot be read"):
            await server.call("nonsense")
        with pytest.raises(McpError, match=r"refuse was refused: not today \(code -32000\)"):
            await server.call("refuse")
        assert (await server.call("act")).content == "done"
        assert len(pids(diary)) == 1


async def test_garbage_on_stdout_is_passed_over_and_logged_once(diary: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with hostile(diary) as server:
        assert (await server.call("garble")).content == "done"
        assert (await server.call("act")).content == "done"
        assert len(pids(diary)) == 1
    assert sum("what is no message" in message for message in caplog.messages) == 1
    assert not [record for record in caplog.records if record.name.startswith("mcp")]


async def test_huge_output_is_cut(diary: Path) -> None:
    async with hostile(diary, max_result_chars=500) as server:
        result = await server.call("huge")
        assert result.content == "z" * 500 + "\n\n[cut: the first 500 of 3000000 characters are shown]"


async def test_media_that_is_not_what_it_says_is_left_out(diary: Path) -> None:
    async with hostile(diary) as server:
        result = await server.call("blob")
        assert result.parts is not None
        assert [part.kind for part in result.parts] == ["text", "audio"]
        assert "left out" in (result.parts[0].text or "")


async def test_a_flood_on_stderr_neither_blocks_the_server_nor_fills_the_log(
    diary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tellback.tools.mcp")
    async with hostile(diary) as server:
        assert (await server.call("flood")).content == "done"
    lines = [record for record in caplog.records if record.name == "tellback.tools.mcp"]
    assert 0 < len(lines) < 10_000
    assert max(len(record.getMessage()) for record in lines) < 1_100
    assert any("more lines were left out" in record.getMessage() for record in lines)


async def test_tools_with_wrong_schemas_are_left_out_by_name_and_the_others_work(
    diary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hostile(diary, "bad-tools") as server:
        tools = await by_name(server)
        assert set(tools) == {"circle", "doubling", "tree", "wordy", "backtracking", "good"}
        reasons = dict(server.refused)
        assert set(reasons) == {
            *("text_schema", "no_schema", "array_schema", "invalid_schema", "remote"),
            *("dangling", "huge", "deep", "(tool 11)", "(tool 12)", "(tool 13)", "good"),
        }
        assert "nothing is fetched" in reasons["remote"]
        assert "listed twice" in reasons["good"]
        for name in reasons:
            assert any(repr(name) in message for message in caplog.messages)
        assert len(tools["wordy"].description) == 4_000
        assert (await dispatch(ToolCall("c", "good", {}), tools)).content == "done"
        for unending in ("circle", "doubling", "tree"):
            assert not (await dispatch(ToolCall("c", unending, {"left": {"right": {}}}), tools)).is_error
        assert not (await dispatch(ToolCall("c", "backtracking", {"x": "a" * 60 + "!"}), tools)).is_error


async def test_tools_that_are_not_wanted_are_not_reported_as_refused(diary: Path) -> None:
    async with hostile(diary, "bad-tools", only=["tree", "remote"]) as server:
        assert set(await by_name(server)) == {"tree"}
        assert [name for name, _ in server.refused] == ["remote"]


async def test_a_server_may_hint_at_what_needs_no_approval(diary: Path) -> None:
    def unless_reading(tool: McpToolInfo) -> bool:
        return not tool.hints.get("readOnlyHint")

    async with hostile(diary, "bad-tools", requires_approval=unless_reading) as server:
        assert [tool.name for tool in await server.tools() if not tool.requires_approval] == ["wordy"]


async def test_a_list_without_an_end_is_stopped(diary: Path) -> None:
    async with hostile(diary, "pages") as server:
        with pytest.raises(McpError, match="does not end"):
            await server.tools()
    request = [entry for entry in entries(diary) if entry.get("method") == "tools/list"]
    assert len(request) == 100


async def test_all_pages_of_a_list_are_read(diary: Path) -> None:
    async with hostile(diary, "two-pages") as server:
        assert [tool.name for tool in await server.tools()] == ["a", "b"]


async def test_a_list_that_never_comes_or_cannot_be_read_is_an_error(diary: Path) -> None:
    async with hostile(diary, "no-list", connect_timeout=5) as server:
        with pytest.raises(McpError, match="tools/list was not answered within 5 seconds"):
            await server.tools()
    async with hostile(diary, "nonsense-list") as server:
        with pytest.raises(McpError, match="the answer to tools/list cannot be read"):
            await server.tools()


async def test_the_list_is_read_again_once_the_server_says_that_it_changed(diary: Path) -> None:
    def lists() -> int:
        return sum(entry.get("method") == "tools/list" for entry in entries(diary))

    async with hostile(diary) as server:
        first = await server.tools()
        assert await server.tools() == first
        assert lists() == 1
        await server.call("change")
        assert "new" in await by_name(server)
        await server.tools()
        assert lists() == 2


async def test_the_list_is_read_every_time_where_the_server_does_not_tell_of_changes(diary: Path) -> None:
    async with hostile(diary, "no-changes") as server:
        assert await server.tools() == await server.tools()
    assert sum(entry.get("method") == "tools/list" for entry in entries(diary)) == 2


async def test_a_server_that_dies_in_every_call_is_started_anew_each_time(diary: Path) -> None:
    async with hostile(diary) as server:
        tools = await by_name(server)
        for _ in range(3):
            result = await dispatch(ToolCall("c", "die", {}), tools)
            assert "not repeated" in result.content
        assert (await server.call("act")).content == "done"
    assert sum("'name': 'die'" in str(entry) for entry in entries(diary)) == 3
    assert len(pids(diary)) == 4
    assert not any(map(running, pids(diary)))


async def test_connecting_can_be_cancelled(diary: Path) -> None:
    server = hostile(diary, "deaf")
    connecting = asyncio.create_task(server.connect())
    await until(lambda: bool(pids(diary)))
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert not any(map(running, pids(diary)))
