"""A file that is full, locked, read-only, damaged or too new: correct errors, and no partial changes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tellback import Tellback
from tellback.errors import (
    SchemaVersionError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from tellback.testing import FunctionModel
from tellback.types.conversations import StoredMessage
from tests.integration.stores.assertions import EventRecorder, assert_turn_runs_at_once, conversations_of, load_messages
from tests.support.subprocesses import Output, child_process

HELLO = FunctionModel(lambda _: "Hello.")


async def fill(tb: Tellback, id: str, tag: str, size: int = 20_000) -> tuple[list[StoredMessage], list[str]]:
    """Append more than there is space for, concurrently. Return the stored messages and the errors."""
    texts = [f"{tag} {number} " + "x" * size for number in range(60)]
    results = await asyncio.gather(
        *(conversations_of(tb).append_user_message(id, text) for text in texts), return_exceptions=True
    )
    stored: list[StoredMessage] = []
    errors: list[str] = []
    for text, result in zip(texts, results, strict=True):
        if isinstance(result, StoredMessage):
            stored.append(result)
        else:
            assert type(result) is StoreFullError, repr(result)
            assert not result.in_doubt
            errors.append(text)
    return stored, errors


async def assert_only(tb: Tellback, id: str, stored: list[StoredMessage]) -> None:
    """Check that exactly these messages are stored, each with its event."""
    messages = await load_messages(tb, id)
    assert {message.id: message.seq for message in messages} == {message.id: message.seq for message in stored}
    event_recorder = EventRecorder()
    await event_recorder.read_new(tb)
    event_recorder.assert_covers(id, messages)


async def test_a_full_file_rejects_new_messages_and_keeps_stored_ones(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tellback.db"
    async with Tellback(url) as tb:
        conversation = await conversations_of(tb).create("chat")
        stored = [await conversations_of(tb).append_user_message(conversation.id, "before")]
        connection: sqlite3.Connection = cast("Any", tb.store)._engine._writer._connection
        [pages] = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 60}")
        for tag in ("first", "second"):
            new, errors = await fill(tb, conversation.id, tag)
            assert errors
            stored += new
        with pytest.raises(StoreFullError):
            await conversations_of(tb).run_turn(conversation.id, HELLO, "y" * 1_000_000)
        await assert_only(tb, conversation.id, stored)  # it can still be read
        connection.execute("PRAGMA max_page_count = 1000000")
        new, errors = await fill(tb, conversation.id, "with room again")
        assert not errors
        stored += new
        await assert_only(tb, conversation.id, stored)
        await assert_turn_runs_at_once(tb, conversation.id)
    async with Tellback(url) as tb:
        assert len(await load_messages(tb, conversation.id)) == len(stored) + 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def fill_disk(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (65_536, 4_096, 512):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return ballast


async def test_a_full_disk_rejects_new_messages_and_keeps_stored_ones(small_disk: Path) -> None:
    url = f"sqlite:///{small_disk}/tellback.db"
    async with Tellback(url) as tb:
        conversation = await conversations_of(tb).create("chat")
        stored, _ = await fill(tb, conversation.id, "before", size=2_000)
        ballast = fill_disk(small_disk)
        while True:  # the write-ahead log has allocated space that is used first
            new, errors = await fill(tb, conversation.id, "until it is full")
            stored += new
            if errors:
                break
        with pytest.raises(StoreFullError):
            await conversations_of(tb).run_turn(conversation.id, HELLO, "y" * 100_000)
        await assert_only(tb, conversation.id, stored)
        ballast.unlink()
        stored.append(await conversations_of(tb).append_user_message(conversation.id, "with room again"))
        await assert_only(tb, conversation.id, stored)
        await assert_turn_runs_at_once(tb, conversation.id)
    async with Tellback(url) as tb:
        assert len(await load_messages(tb, conversation.id)) == len(stored) + 2


async def test_opening_a_store_on_a_full_disk_raises_store_full_error(small_disk: Path) -> None:
    url = f"sqlite:///{small_disk}/tellback.db"
    async with Tellback(url) as tb:
        conversation = await conversations_of(tb).create("chat")
        await conversations_of(tb).append_user_message(conversation.id, "before")
    ballast = fill_disk(small_disk)
    with pytest.raises(StoreFullError):
        async with Tellback(url) as tb:
            await conversations_of(tb).append_user_message(conversation.id, "no")
    ballast.unlink()
    async with Tellback(url) as tb:
        await assert_turn_runs_at_once(tb, conversation.id)
        assert len(await load_messages(tb, conversation.id)) == 3


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, unlike pytest's own."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = Path(tempfile.mkdtemp(prefix="tellback-ro-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("open_elsewhere", [False, True], ids=["not open elsewhere", "open elsewhere"])
async def test_a_user_with_read_permission_gets_store_read_only_error(open_folder: Path, open_elsewhere: bool) -> None:
    path = open_folder / "tellback.db"
    async with Tellback(path) as tb:
        conversation = await conversations_of(tb).create("chat")
        await conversations_of(tb).append_user_message(conversation.id, "before")
        if open_elsewhere:
            outputs = await run_unprivileged(path, conversation.id)
    if not open_elsewhere:
        outputs = await run_unprivileged(path, conversation.id)
    assert outputs[-1]["error"] == "StoreReadOnlyError", outputs
    assert "permissions" in outputs[-1]["text"]
    if open_elsewhere:  # otherwise SQLite lacks the shared-memory file, and cannot create it
        assert outputs[-2] == {"read": ["before"]}
    async with Tellback(path) as tb:
        assert [message.text for message in await load_messages(tb, conversation.id)] == ["before"]


async def run_unprivileged(path: Path, id: str) -> list[Output]:
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(0o555)
    async with child_process("without_rights", url=f"sqlite:///{path}", conversation=id) as child:
        return await child.wait()


async def test_a_read_only_store_can_be_read_while_others_write(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path) as tb:
        conversation = await conversations_of(tb).create("chat")
        await conversations_of(tb).append_user_message(conversation.id, "before")
    async with Tellback(f"sqlite:///{path}?mode=ro") as reader:
        assert [message.text for message in await load_messages(reader, conversation.id)] == ["before"]
        async with Tellback(path) as writer:
            await conversations_of(writer).append_user_message(conversation.id, "meanwhile")
            assert [message.text for message in await load_messages(reader, conversation.id)] == ["before", "meanwhile"]
            assert len(await reader.events.read()) == 3
        with pytest.raises(StoreReadOnlyError, match="mode=ro"):
            await conversations_of(reader).append_user_message(conversation.id, "no")
        with pytest.raises(StoreReadOnlyError, match="mode=ro"):
            await conversations_of(reader).run_turn(conversation.id, HELLO, "no")
    async with Tellback(path) as tb:
        assert len(await load_messages(tb, conversation.id)) == 2


async def test_a_read_only_opening_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError):
        await Tellback(f"sqlite:///{tmp_path}/nothing.db?mode=ro").open()
    assert os.listdir(tmp_path) == []


async def test_a_locked_file_is_busy_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(f"sqlite:///{path}?busy_timeout=0.2") as tb:
        log = conversations_of(tb)
        conversation = await log.create("chat")
        await log.append_user_message(conversation.id, "before")
        other = sqlite3.connect(path, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            started_at = time.monotonic()
            results = await asyncio.gather(
                *(log.append_user_message(conversation.id, f"blocked {number}") for number in range(10)),
                log.run_turn(conversation.id, HELLO, "blocked turn"),
                log.create("blocked"),
                return_exceptions=True,
            )
            assert {type(result) for result in results} == {StoreBusyError}
            assert time.monotonic() - started_at < 5
            assert [message.text for message in await log.messages(conversation.id)] == [
                "before"
            ]  # readers do not wait
            with pytest.raises(StoreBusyError):
                await log.close(conversation.id)
            other.execute("ROLLBACK")
        finally:
            other.close()
        await log.append_user_message(conversation.id, "after")
        await assert_turn_runs_at_once(tb, conversation.id)
        messages = await load_messages(tb, conversation.id)
        assert [message.text for message in messages] == ["before", "after", "Are you there?", "I am."]


async def test_a_lock_released_in_time_causes_no_error(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path) as tb:
        conversation = await conversations_of(tb).create("chat")
        other = sqlite3.connect(path, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            waiting = [
                asyncio.create_task(conversations_of(tb).append_user_message(conversation.id, str(n)))
                for n in range(10)
            ]
            done, _ = await asyncio.wait(waiting, timeout=0.3)
            assert not done
            other.execute("ROLLBACK")
        finally:
            other.close()
        async with asyncio.timeout(5):
            await asyncio.gather(*waiting)
        assert len(await load_messages(tb, conversation.id)) == 10


async def test_a_locked_file_can_be_opened_and_read(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path) as tb:
        conversation = await conversations_of(tb).create("chat")
        await conversations_of(tb).append_user_message(conversation.id, "before")
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        async with Tellback(f"sqlite:///{path}?busy_timeout=0.2") as tb:
            assert [message.text for message in await load_messages(tb, conversation.id)] == ["before"]
            with pytest.raises(StoreBusyError):
                await conversations_of(tb).append_user_message(conversation.id, "no")
    finally:
        other.close()


async def test_a_file_that_is_not_a_database_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 500)
    with pytest.raises(StoreCorruptError, match=r"notes\.txt"):
        await Tellback(path).open()
    assert path.read_text() == "Dear diary, " * 500
    assert os.listdir(tmp_path) == ["notes.txt"]


async def test_a_damaged_file_raises_store_corrupt_error(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path) as tb:
        conversation = await conversations_of(tb).create("chat")
        for number in range(200):
            await conversations_of(tb).append_user_message(conversation.id, f"{number} " + "x" * 500)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(StoreCorruptError):
        async with Tellback(path) as tb:
            await conversations_of(tb).messages(conversation.id)


async def test_a_file_damaged_while_open_raises_store_corrupt_error(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path) as tb:
        conversation = await conversations_of(tb).create("chat")
        for number in range(200):
            await conversations_of(tb).append_user_message(conversation.id, f"{number} " + "x" * 500)
    size = path.stat().st_size
    async with Tellback(path) as tb:
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))
        with pytest.raises(StoreCorruptError):
            await conversations_of(tb).messages(conversation.id)
        with pytest.raises(StoreError):
            await conversations_of(tb).append_user_message(conversation.id, "no")


@pytest.mark.parametrize("location", ["missing/tellback.db", "folder"])
async def test_an_impossible_path_is_reported_immediately(tmp_path: Path, location: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreUnavailableError, match=location):
        await Tellback(tmp_path / location).open()
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("mode", ["rwc", "ro"])
async def test_a_schema_of_a_later_release_is_rejected_unchanged(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO tellback_migrations VALUES (999, 'from the future', 0)")
    connection.close()
    with pytest.raises(SchemaVersionError, match=r"999.*newer Tellback"):
        await Tellback(f"sqlite:///{path}?mode={mode}").open()


async def test_an_instance_with_a_malformed_process_id_is_unknown(tmp_path: Path) -> None:
    async with Tellback(tmp_path / "tellback.db", worker=False) as tb:
        host, namespace, _, started, suffix = tb.store.instance_id.split("|")
        malformed = "|".join((host, namespace, "no-number", started, suffix))
        assert await tb.store.is_instance_alive(malformed) is None
