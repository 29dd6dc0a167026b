"""A server of the official SDK as a child process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tellback.chat import ChatOptions, run_loop
from tellback.errors import ConfigurationError, InvalidArgumentError, McpError
from tellback.testing import ScriptedModel, calls, says
from tellback.tools import ToolCall, dispatch, dispatch_all
from tellback.tools.mcp import McpServer, McpToolInfo, mcp_tools
from tests.integration.tools.mcp.support import by_name, friendly, running, wait_until


async def test_a_servers_tools_have_descriptions_and_can_be_called() -> None:
    async with friendly() as server:
        tools = await by_name(server)
        add = tools["add"]
        assert add.description == "Add two numbers."
        assert add.parameters["required"] == ["x", "y"]
        result = await dispatch(ToolCall("c1", "add", {"x": 1, "y": 2}), tools)
        assert (result.id, result.name, result.content, result.is_error) == ("c1", "add", "3", False)
        wrong = await dispatch(ToolCall("c2", "add", {"x": "one", "y": 2}), tools)
        assert wrong.is_error
        assert "x: 'one' is not of type 'integer'" in wrong.content


async def test_results_contain_text_images_and_structured_content() -> None:
    async with friendly(max_result_chars=1_000) as server:
        weather, picture, documents, long, boom = await asyncio.gather(
            server.call("weather", {"city": "Lisbon"}),
            server.call("picture"),
            server.call("documents"),
            server.call("long", {"chars": 5_000}),
            server.call("boom"),
        )
        assert weather.value == {"city": "Lisbon", "celsius": 21}
        assert "Lisbon" in weather.content
        assert picture.content == "A dot:\n\n[image: image/png]"
        assert picture.parts is not None
        assert [(part.kind, part.data) for part in picture.parts] == [("text", None), ("image", "iVBORw0KGgo=")]
        assert "Buy milk." in documents.content
        assert "https://example.com/manual" in documents.content
        assert documents.parts is None
        assert long.content == "x" * 1_000 + "\n\n[truncated: the first 1000 of 5000 characters are shown]"
        assert boom.is_error


async def test_a_model_calls_a_servers_tool_in_the_loop() -> None:
    async with friendly(prefix="calc", only=["add"]) as server:
        tools = await server.tools()
        assert [tool.name for tool in tools] == ["calc_add"]
        model = ScriptedModel([calls("calc_add", x=20, y=22), says("It is 42.")])
        outcome = await run_loop(ChatOptions(model=model, tools=tools), "What is 20 + 22?")
        assert outcome.text == "It is 42."
        assert any(message.role == "tool" and message.content == "42" for message in outcome.messages)


async def test_invalid_tool_names_are_replaced_and_still_call_their_tool() -> None:
    async with friendly() as server:
        result = await dispatch(ToolCall("c", "files_read", {"path": "a.txt"}), await by_name(server))
        assert result.content == "contents of a.txt"


async def test_requires_approval_selects_tools() -> None:
    def needs_approval(tool: McpToolInfo) -> bool:
        return tool.name.startswith("c")

    async with friendly(requires_approval=needs_approval) as server:
        assert {tool.name for tool in await server.tools() if tool.requires_approval} == {"count", "crash"}
    async with friendly(requires_approval=["files.read"]) as server:
        assert [tool.name for tool in await server.tools() if tool.requires_approval] == ["files_read"]
    async with friendly(requires_approval=True, only=["add"]) as server:
        model = ScriptedModel([calls("add", x=1, y=1)])
        outcome = await run_loop(ChatOptions(model=model, tools=await server.tools()), "Add.")
        assert outcome.stop_reason == "approval"


async def test_calls_of_many_tasks_run_concurrently() -> None:
    async with friendly() as server:
        tools = await by_name(server)
        tool_calls = [ToolCall(f"c{n}", "add", {"x": n, "y": n}) for n in range(40)]
        results = await dispatch_all(tool_calls, tools)
        assert [result.content for result in results] == [str(2 * n) for n in range(40)]


async def test_cancelling_a_call_does_not_affect_others() -> None:
    async with friendly() as server:
        slow_call = asyncio.create_task(server.call("slow", {"seconds": 60}))
        other = asyncio.create_task(server.call("slow", {"seconds": 1}))
        await asyncio.sleep(0.3)
        slow_call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow_call
        assert (await other).content == "done"


async def test_a_slow_call_times_out_and_the_session_continues() -> None:
    async with friendly(call_timeout=3) as server:
        with pytest.raises(McpError, match=r"'friendly': slow was not answered within 3 seconds"):
            await server.call("slow", {"seconds": 60})
        before = await server.call("pid")
        assert (await server.call("pid")).content == before.content


async def test_the_server_receives_only_the_configured_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_OURS", "hidden")
    async with friendly(env={"ITS_OWN": "given"}) as server:
        assert (await server.call("variable", {"name": "A_SECRET_OF_OURS"})).content == "unset"
        assert (await server.call("variable", {"name": "ITS_OWN"})).content == "given"


async def test_stderr_of_the_server_is_logged_with_its_name(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "tellback.tools.mcp")
    async with friendly():
        await wait_until(lambda: "friendly: friendly is up" in caplog.messages)
    assert "friendly is up" not in capfd.readouterr().err


async def test_the_next_call_restarts_a_killed_server() -> None:
    async with friendly() as server:
        tools = await by_name(server)
        first = int((await server.call("pid")).content)
        os.kill(first, signal.SIGKILL)
        await wait_until(lambda: not server.connected)
        second = await dispatch(ToolCall("c", "pid", {}), tools)
        assert not second.is_error
        assert int(second.content) != first
    await wait_until(lambda: not running(int(second.content)))


async def test_a_call_during_which_the_server_dies_is_not_repeated() -> None:
    async with friendly() as server:
        await server.call("count")
        with pytest.raises(McpError, match=r"broke while crash was running.*may or may not.*not repeated"):
            await server.call("crash")
        assert (await server.call("count")).content == "1"


async def test_many_calls_share_one_new_connection() -> None:
    async with friendly() as server:
        os.kill(int((await server.call("pid")).content), signal.SIGKILL)
        await wait_until(lambda: not server.connected)
        found = await asyncio.gather(*(server.call("pid") for _ in range(10)))
        assert len({result.content for result in found}) == 1


async def test_closing_leaves_no_process_and_the_server_can_be_opened_again() -> None:
    server = friendly()
    seen = []
    for _ in range(2):
        await server.connect()
        await server.connect()
        seen.append(int((await server.call("pid")).content))
        await server.close()
        await server.close()
        assert not running(seen[-1])
    assert seen[0] != seen[1]
    with pytest.raises(McpError, match="not connected"):
        await server.call("pid")


async def test_closing_fails_running_calls() -> None:
    server = friendly()
    await server.connect()
    call = asyncio.create_task(server.call("slow", {"seconds": 60}))
    await asyncio.sleep(0.5)
    await server.close()
    with pytest.raises(McpError):
        await call


async def test_one_task_may_connect_and_another_close() -> None:
    server = friendly()
    await asyncio.create_task(server.connect())
    pid = int((await asyncio.create_task(server.call("pid"))).content)
    await asyncio.create_task(server.close())
    assert not running(pid)


async def test_mcp_tools_returns_the_tools_of_several_servers() -> None:
    first_server = friendly(name="one", prefix="one", only=["add", "pid"])
    second_server = friendly(name="two", prefix="two", only=["add"])
    async with mcp_tools(first_server, second_server) as tools:
        assert [tool.name for tool in tools] == ["one_add", "one_pid", "two_add"]
        pid = int((await first_server.call("pid")).content)
    assert not running(pid)
    assert not first_server.connected
    assert not second_server.connected


async def test_the_last_task_to_exit_closes_the_server() -> None:
    server = friendly(only=["pid"])

    async def use(leave: asyncio.Event) -> str:
        async with mcp_tools(server) as tools:
            await leave.wait()
            return (await dispatch(ToolCall("c", "pid", {}), {tool.name: tool for tool in tools})).content

    first, second = asyncio.Event(), asyncio.Event()
    users = [asyncio.create_task(use(leave)) for leave in (first, second)]
    async with server:
        first.set()
        pid = await users[0]
        assert server.connected
    assert server.connected
    second.set()
    assert await users[1] == pid
    assert not server.connected
    assert not running(int(pid))


async def test_a_manually_connected_server_stays_open_until_closed() -> None:
    server = friendly()
    await server.connect()
    async with server:
        pass
    assert server.connected
    async with server:
        await server.close()
        assert not server.connected
    async with server:
        assert server.connected
    assert not server.connected


async def test_a_failed_enter_is_not_counted() -> None:
    bad = McpServer.stdio("/nonexistent/server", name="bad")
    for _ in range(2):
        with pytest.raises(McpError, match="cannot be connected"):
            async with bad:
                pass
    async with friendly(name="good") as good:
        with pytest.raises(McpError, match="'bad'"):
            async with mcp_tools(good, bad):
                pass
        assert good.connected
    assert not good.connected


async def test_two_servers_with_the_same_tool_name_are_rejected() -> None:
    first_server, second_server = friendly(name="one", only=["add"]), friendly(name="two", only=["add"])
    with pytest.raises(ConfigurationError, match=r"'one' and 'two' both have a tool 'add'.*prefix="):
        async with mcp_tools(first_server, second_server):
            pass
    assert not first_server.connected


async def test_a_server_that_fails_to_start_closes_the_others() -> None:
    good = friendly(name="good")
    bad = McpServer.stdio("/nonexistent/server", name="bad")
    with pytest.raises(McpError, match=r"'bad': it cannot be connected: FileNotFoundError"):
        async with mcp_tools(good, bad):
            pass
    assert not good.connected


async def test_arguments_that_are_not_json_do_not_break_the_connection() -> None:
    async with friendly() as server:
        pid = (await server.call("pid")).content
        for wrong in ("\ud800", float("nan"), object()):
            with pytest.raises(InvalidArgumentError):
                await server.call("variable", {"name": wrong})
        assert (await server.call("pid")).content == pid


async def test_a_server_cannot_be_used_in_another_event_loop() -> None:
    server = friendly()

    async def use_in_other_loop() -> None:
        with pytest.raises(McpError, match="another event loop"):
            await server.call("pid")
        with pytest.raises(McpError, match="another event loop"):
            await server.close()

    async with server:
        await asyncio.to_thread(asyncio.run, use_in_other_loop())
        assert (await server.call("add", {"x": 1, "y": 1})).content == "2"


def test_a_server_left_open_ends_with_its_event_loop() -> None:
    server = friendly()

    async def use() -> int:
        await server.connect()
        return int((await server.call("pid")).content)

    first = asyncio.run(use())
    assert not running(first)
    second = asyncio.run(use())
    assert second != first
    assert not running(second)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("connect_timeout", [0, -1, "30", None, True, float("nan"), float("inf")]),
        ("call_timeout", [0, [60]]),
        ("max_result_chars", [0, 1.5, "all"]),
        ("prefix", ["no spaces", "", 3]),
        ("only", ["add", 3, [3], b"add"]),
        ("requires_approval", ["add", None, 3, [None]]),
        ("env", [{"A": 1}, ["A"]]),
    ],
)
def test_invalid_options_are_rejected_by_name(option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidArgumentError, match=option):
            friendly(**{option: value})


def test_invalid_targets_are_rejected() -> None:
    for url in ("localhost:8000/mcp", "http://", "http://[x", 3, None):
        with pytest.raises(InvalidArgumentError, match="http"):
            McpServer.http(url)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="headers"):
        McpServer.http("http://localhost", {"x": 3})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgumentError, match="args"):
        McpServer.stdio("server", [3])  # type: ignore[list-item]


async def test_a_failing_approval_function_is_reported() -> None:
    def failing_check(tool: McpToolInfo) -> bool:
        return bool(tool.hints["readOnlyHint"])

    async with friendly(requires_approval=failing_check) as server:
        with pytest.raises(ConfigurationError, match=r"failing_check.*failed for the tool 'add': KeyError"):
            await server.tools()


def test_the_sdk_is_imported_only_on_connect() -> None:
    code = (
        "import sys, tellback.tools, tellback.tools.mcp as m; m.McpServer.stdio('x');"
        "sys.exit(any(n.partition('.')[0] in ('mcp', 'mcp_types', 'httpx2') for n in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=50, check=False).returncode == 0


def test_without_the_extra_the_error_contains_an_installation_hint() -> None:
    code = """
import asyncio, sys
sys.modules["mcp"] = sys.modules["mcp_types"] = None
from tellback.errors import MissingExtraError
from tellback.tools.mcp import McpServer
try:
    asyncio.run(McpServer.stdio("x").connect())
except MissingExtraError as error:
    assert "tellback[mcp]" in str(error), error
else:
    raise AssertionError
"""
    completed = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], timeout=50, check=False, capture_output=True
    )
    assert completed.returncode == 0, completed.stderr.decode()
