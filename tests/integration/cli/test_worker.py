"""The `tellback worker` command, run as a separate process."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tellback import Tellback
from tellback.types.jobs import JobStatus
from tests.integration.cli.support import COMMAND, ENVIRONMENT, run


@asynccontextmanager
async def worker(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "worker", *arguments, stderr=asyncio.subprocess.PIPE, env=ENVIRONMENT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_worker_closes_stale_conversations(tmp_path: Path) -> None:
    url = str(tmp_path / "tellback.db")
    async with Tellback(url, worker=False) as tb:
        conversation = await tb.user("maya").conversations.create("chat")
        async with (
            worker("--url", url, "--extractor", "verbatim", "--close-stale-after", "0.0001"),
            asyncio.timeout(40),
        ):
            async for event in tb.events.subscribe(types=["conversation.closed"]):
                assert event.subject_id == conversation.id
                break


async def wait_until_started(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    async with asyncio.timeout(30):
        while b"Worker started" not in (line := await process.stderr.readline()):
            assert line, "the worker exited before it started"


async def store_conversation(tb: Tellback, text: str = "I moved to Lisbon.") -> str:
    """Store a closed conversation bound to a memory space, and return the space's id."""
    maya = tb.user("maya")
    space = await maya.memory.create_space("home")
    await maya.memory.create_binding({"namespace": "chat"}, [space.id])
    conversation = await maya.conversations.create("chat")
    await maya.conversations.append_user_message(conversation.id, text)
    await maya.conversations.close(conversation.id)
    return space.id


async def test_a_worker_with_once_runs_the_due_jobs_and_exits(url: str) -> None:
    async with Tellback(url, worker=False) as tb:
        space = await store_conversation(tb)
        completed = await asyncio.to_thread(run, "worker", "--url", url, "--once", "--extractor", "verbatim")
        assert (completed.returncode, completed.stdout) == (0, ""), completed.stderr
        assert re.search(r"Job \S+ finished", completed.stderr)
        assert [atom.text for atom in await tb.user("maya").memory.list_atoms(space)] == ["User: I moved to Lisbon."]
        await tb.jobs.drain(1)


async def test_a_worker_reads_the_store_url_from_the_environment(tmp_path: Path) -> None:
    url = str(tmp_path / "tellback.db")
    completed = await asyncio.to_thread(run, "worker", "--once", "--extractor", "verbatim", TELLBACK_URL=url)
    assert completed.returncode == 0, completed.stderr
    assert url in completed.stderr


async def test_failed_jobs_change_the_exit_code(tmp_path: Path) -> None:
    url = str(tmp_path / "tellback.db")
    async with Tellback(url, worker=False) as tb:
        await store_conversation(tb)
        unreachable_provider = {"ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
        model = ("--model", "claude-sonnet-5")
        completed = await asyncio.to_thread(run, "worker", "--url", url, "--once", *model, **unreachable_provider)
        assert completed.returncode == 1, completed.stderr
        assert "1 jobs will be retried" in completed.stderr
        [job] = await tb.jobs.list()
        assert job.status is JobStatus.QUEUED
        assert "ProviderConnectionError" in (job.error or "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_worker_runs_jobs_of_other_processes_and_stops_on_a_signal(url: str, number: signal.Signals) -> None:
    async with Tellback(url, worker=False) as tb, worker("--url", url, "--extractor", "verbatim") as process:
        await wait_until_started(process)
        space = await store_conversation(tb)
        await tb.jobs.drain(30)
        assert len(await tb.user("maya").memory.list_atoms(space)) == 1
        process.send_signal(number)
        async with asyncio.timeout(30):
            _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        assert b"stopping" in errors
        assert b"Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "mysql://x", "--extractor", "verbatim"], "Unknown store scheme mysql:"),
        (["--url", "postgresql://127.0.0.1:1/none", "--extractor", "verbatim"], "cannot be reached"),
        (["--url", ":memory:", "--extractor", "llm"], "needs --model"),
        (["--url", ":memory:"], "needs --model"),
        (["--url", ":memory:", "--model", "no-such-model"], "no-such-model"),
        (["--url", ":memory:", "--prompts", "."], "needs --model"),
        (["--url", ":memory:", "--model", "claude-sonnet-5", "--prompts", "no/such"], "is not a folder"),
        (["--url", ":memory:", "--concurrency", "0"], "--concurrency"),
        ([], "--url"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(arguments: list[str], words: str) -> None:
    completed = run("worker", *arguments, "--once")
    assert completed.returncode == 2
    assert words in completed.stderr
    assert "Traceback" not in completed.stderr


def test_without_the_cli_extra_the_command_prints_an_installation_hint() -> None:
    code = "import sys; sys.modules['typer'] = None; from tellback.cli import main; main()"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert completed.returncode == 1
    assert "pip install 'tellback[cli]'" in completed.stderr
    assert "Traceback" not in completed.stderr
