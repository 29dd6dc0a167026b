"""Checks for every adapter that talks to a server: cancelled tasks and killed processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import hypothesis.strategies as some

from tellback.sessions.adapter import PersistenceAdapter
from tellback.testing.sessions.repositories import contents, make_message, make_session
from tellback.types.conversations import SessionData

_PROGRAM = """
import asyncio, sys
{imports}
from tellback.testing.sessions.repositories import make_message, make_session

async def main():
    adapter = {adapter}
    await adapter.initialize()
    version = 0
    while True:
        version += 1
        messages = [make_message(f"{{version}}.{{n}}", id=f"m{{version}}.{{n}}") for n in range(3)]
        await adapter.save(make_session(version=version), messages)
        print(version, flush=True)

asyncio.run(main())
"""

_TEXTS = some.text(max_size=8) | some.sampled_from(["$set", "a.b", "\x00", "\ud800", "_id", "$$NOW", "{}", "null"])
_NUMBERS = (
    some.integers()
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.sampled_from([2**63, -(2**63), 2**31, -0.0, 10**30])
)
JSON: some.SearchStrategy[Any] = some.recursive(
    some.none() | some.booleans() | _NUMBERS | _TEXTS,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


async def check_cancelled_saves(adapter: PersistenceAdapter, tries: int = 40) -> None:
    """Cancel each turn a little later than the one before; each is stored completely or not at all."""
    version, stored, sent = 0, list[str](), list[list[str]]()
    for n in range(tries):
        turn = [f"{n}.{k}" for k in range(3)]
        sent.append(turn)
        task = asyncio.create_task(
            adapter.save(make_session(version=version + 1), [make_message(each) for each in turn])
        )
        for _ in range(n):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0001 * n)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found, texts = await _read_consistent(adapter)
        if found is not None and found.version > version:
            version += 1
            # One that was sent before the cancellation may have been stored first.
            assert texts[len(stored) :] in sent
            stored, sent = texts, []
        assert (found.version if found else 0) == version
        assert texts == stored, (texts[-6:], stored[-6:])
        assert (found.message_count if found else 0) == len(stored)


async def _read_consistent(adapter: PersistenceAdapter) -> tuple[SessionData | None, list[str]]:
    """Read the session and its messages consistently: a request sent before a cancellation may still be running."""
    while True:
        before = await adapter.session_repository.get("web-42")
        texts = contents(await adapter.message_repository.list_by_session("web-42"))
        if await adapter.session_repository.get("web-42") == before:
            return before, texts


async def check_killed_process(adapter: PersistenceAdapter, imports: str, code: str) -> None:
    """Kill a process that saves turn after turn; `code` creates its adapter."""
    program = _PROGRAM.format(imports=imports, adapter=code)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    acknowledged_count = 0
    while acknowledged_count < 20:
        line = await process.stdout.readline()
        assert line, (await process.communicate())[1].decode()
        acknowledged_count = int(line)
    process.kill()
    remaining_output, _ = await process.communicate()
    acknowledged_count = (
        int(remaining_output.split()[-1])
        if remaining_output.split() and remaining_output.endswith(b"\n")
        else acknowledged_count
    )
    found = await adapter.session_repository.get("web-42")
    assert found is not None
    assert found.version in (acknowledged_count, acknowledged_count + 1)
    texts = contents(await adapter.message_repository.list_by_session("web-42"))
    assert texts == [f"{n}.{k}" for n in range(1, found.version + 1) for k in range(3)]
    await adapter.save(make_session(version=found.version + 1), [make_message("on")])


async def check_concurrent_saves(adapter: PersistenceAdapter, count: int = 200) -> None:
    """Save turns of `count` sessions concurrently."""
    ids = [f"web-{n}" for n in range(count)]
    saved = await asyncio.gather(*(adapter.save(make_session(id, version=1), [make_message("Hi", id)]) for id in ids))
    assert [each.id for each in saved] == ids
    assert len(await adapter.session_repository.list_by_user("maya")) == count


async def check_round_trip(adapter: PersistenceAdapter, value: Any) -> None:
    """Check that any JSON is returned unchanged."""
    session = make_session(version=1, collected_data={"value": value})
    message = make_message("Hi", event=value, tool_calls=({"result": value},))
    saved = await adapter.save(session, [message])
    found = await adapter.session_repository.get("web-42")
    (stored_message,) = await adapter.message_repository.list_by_session("web-42")
    assert found == saved
    for back in (found.collected_data["value"], stored_message.event, stored_message.tool_calls[0]["result"]):
        assert dump_exact(back) == dump_exact(value)
    await adapter.session_repository.delete("web-42")


def dump_exact(value: Any) -> str:
    """Return a value with its types and key order."""
    return json.dumps(value)


def import_error_without(module: str, package: str) -> str:
    """Return the error of importing a module without a package; `import tellback` must work without it."""
    program = f"import sys; sys.modules[{package!r}] = None; import tellback; import {module}"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert completed.returncode == 1
    return completed.stderr.strip().splitlines()[-1]
