"""`user.admin`: exports contain all data of a user, and erasures delete it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import stat
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tellback import InvalidArgumentError, NotFoundError, Tellback
from tellback.admin import Admin, ErasureReport
from tellback.memory.extraction.values import Extraction, Window
from tellback.memory.recall import tokenizer
from tellback.stores.values import erasure_subject
from tellback.types import ids
from tellback.user import User
from tests.support.user_data import create_user_data

WORD = "Zanzibar"


@pytest.fixture
async def maya(tb: Tellback) -> User:
    user = tb.user("maya", tenant_id="acme")
    await create_user_data(tb, user, WORD)
    await create_user_data(tb, tb.user("omar", tenant_id="acme"), "Oslo")
    await create_user_data(tb, tb.user("maya"), "Madrid")
    return user


@pytest.fixture
def admin(tb: Tellback, maya: User) -> Admin:
    return maya.admin


def without_export_time(export: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in export.items() if name != "exported_at"}


async def test_an_export_contains_all_data_of_the_user_and_none_of_others(admin: Admin, maya: User) -> None:
    export = await admin.export_user_data()
    assert export["user"] == {"tenant_id": "acme", "app_id": "default", "user_id": "maya"}
    assert export["format_version"] == 1
    [conversation] = export["conversations"]
    assert conversation["rolling_summary"] == f"{WORD} shorter"
    assert [message["visibility"] for message in conversation["messages"]] == ["user", "user", "hidden"]
    assert conversation["messages"][1]["content"] == [{"type": "text", "text": f"[{WORD}"}]
    assert {atom["status"] for atom in export["atoms"]} == {"ACTIVE", "ARCHIVED", "DELETED"}
    assert {space["name"] for space in export["spaces"]} == {f"{WORD} space", f"{WORD} forgotten space"}
    text = json.dumps(export)
    assert "Oslo" not in text
    assert "Madrid" not in text
    assert all(export[name] for name in ("entities", "bindings", "jobs", "usage", "events"))


async def test_the_export_of_an_unknown_user_is_empty(tb: Tellback) -> None:
    export = await tb.user("nobody").admin.export_user_data()
    collections = {name: value for name, value in export.items() if isinstance(value, list)}
    assert set(collections) == {
        "conversations",
        "sessions",
        "spaces",
        "atoms",
        "entities",
        "bindings",
        "jobs",
        "usage",
        "api_keys",
        "idempotent_responses",
        "events",
    }
    assert not any(collections.values())


async def test_a_json_file_has_the_same_content_as_the_dict(admin: Admin, tmp_path: Path) -> None:
    path = tmp_path / "maya.json"
    report = await admin.export_user_data(to=path)
    exported = json.loads(path.read_text(encoding="utf-8"))
    export = await admin.export_user_data()
    assert without_export_time(exported) == without_export_time(export)
    assert (report.path, report.format) == (str(path), "json")
    assert report.counts["atoms"] == len(export["atoms"])
    assert report.counts["messages"] == 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_an_automatically_closed_conversation_is_exported(tb: Tellback, tmp_path: Path) -> None:
    nadia = tb.user("nadia")
    await nadia.conversations.create("chat", close_after=3_600)
    export = await nadia.admin.export_user_data()
    assert json.loads(json.dumps(export))["conversations"][0]["close_after"] == 3_600.0
    await nadia.admin.export_user_data(to=tmp_path / "nadia.json")
    assert json.loads((tmp_path / "nadia.json").read_text())["conversations"][0]["close_after"] == 3_600.0


async def test_a_zip_contains_a_file_per_collection_and_a_manifest(admin: Admin, tmp_path: Path) -> None:
    report = await admin.export_user_data(to=str(tmp_path / "maya.ZIP"))
    export = await admin.export_user_data()
    with zipfile.ZipFile(tmp_path / "maya.ZIP") as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
        files = {name: archive.read(f"{name}.jsonl").decode().splitlines() for name in manifest["counts"]}
    assert report.format == "zip"
    assert manifest["counts"] == report.counts == {name: len(lines) for name, lines in files.items()}
    assert manifest["user"] == export["user"]
    assert [json.loads(line) for line in files["atoms"]] == export["atoms"]
    assert [json.loads(line) for line in files["messages"]] == export["conversations"][0]["messages"]


@pytest.mark.parametrize("format", ["json", "zip", None])
async def test_an_open_file_is_written_and_not_closed(admin: Admin, format: Any) -> None:
    file = io.BytesIO()
    report = await admin.export_user_data(to=file, format=format)
    assert report.path is None
    assert file.getvalue()[:1] == (b"P" if format == "zip" else b"{")


async def test_a_stream_yields_messages_after_their_conversation(admin: Admin) -> None:
    found = [(name, record["id"]) async for name, record in admin.export_stream() if "id" in record]
    assert [name for name, _ in found[:5]] == ["conversations", "messages", "messages", "messages", "spaces"]
    assert len(found) == len(set(found))


async def test_progress_is_reported(admin: Admin) -> None:
    seen: list[int] = []
    export = await admin.export_user_data(on_progress=seen.append)
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == 3 + sum(len(value) for value in export.values() if isinstance(value, list))


async def test_vectors_are_exported_on_request(admin: Admin) -> None:
    plain = (await admin.export_user_data())["atoms"][0]
    atom_with_vector = (await admin.export_user_data(include_vectors=True))["atoms"][0]
    assert "vectors" not in plain
    assert list(atom_with_vector["vectors"]) == plain["embedders"] == atom_with_vector["embedders"]


@pytest.mark.parametrize("suffix", ["json", "zip"])
async def test_an_export_that_fails_leaves_the_folder_as_it_was(admin: Admin, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "exports" / f"maya.{suffix}"
    path.parent.mkdir()
    path.write_text("earlier export")

    def fail(count: int) -> None:
        if count > 12:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        await admin.export_user_data(to=path, on_progress=fail)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.read_text() == "earlier export"


@pytest.mark.parametrize("suffix", ["json", "zip"])
async def test_a_cancelled_export_leaves_nothing_behind(admin: Admin, tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    task: asyncio.Task[Any]

    def cancel(count: int) -> None:
        if count == 12:
            task.cancel()

    task = asyncio.create_task(admin.export_user_data(to=folder / f"maya.{suffix}", on_progress=cancel))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(folder.iterdir()) == []


async def test_invalid_arguments_raise(admin: Admin, tmp_path: Path) -> None:
    for arguments, problem in (
        ({"to": tmp_path / "maya.csv"}, "does not end in .json or .zip"),
        ({"to": tmp_path / "maya.json", "format": "csv"}, "'json' or 'zip'"),
        ({"to": 7}, "a path or an open binary file"),
        ({"format": "zip"}, "to="),
        ({"user_id": "*"}, "user_id"),
        ({"user_id": ""}, "user_id"),
    ):
        with pytest.raises(InvalidArgumentError, match=problem):
            await admin.export_user_data(**arguments)
    assert not [name for name in os.listdir(tmp_path) if "maya" in name]


async def test_nothing_is_deleted_without_confirmation(admin: Admin) -> None:
    before = await admin.export_user_data()
    for confirm in (False, 1, "yes"):
        with pytest.raises(InvalidArgumentError, match="confirm=True"):
            await admin.delete_user_data(confirm=confirm)  # type: ignore[arg-type]
    assert without_export_time(await admin.export_user_data()) == without_export_time(before)


async def test_an_erased_user_is_unknown_and_can_start_again(tb: Tellback, admin: Admin, maya: User) -> None:
    export = await admin.export_user_data()
    erased = await admin.delete_user_data(confirm=True)
    assert isinstance(erased, ErasureReport)
    assert erased.deleted == erased
    assert (erased["conversations"], erased["messages"], erased["spaces"], erased["jobs"]) == (1, 3, 2, 1)
    assert list(erased.job_ids) == [job["id"] for job in export["jobs"]]
    assert await maya.conversations.list() == []
    assert await maya.memory.list_spaces() == []
    with pytest.raises(NotFoundError):
        await maya.memory.recall_by_topic(export["spaces"][0]["id"], "Rome")
    second_counts = await admin.delete_user_data(confirm=True)
    assert set(second_counts.values()) == {0}
    assert second_counts.keys() == erased.keys()
    [event] = await tb.events.read(types=["user.erased"])
    assert (event.subject_id, dict(event.data)) == (
        erasure_subject(maya.scope),
        {table: count for table, count in erased.items() if table != "events"},
    )
    await create_user_data(tb, maya, "Lisbon")
    assert WORD not in json.dumps(await admin.export_user_data())


async def test_another_user_of_the_app_can_be_exported_and_erased(tb: Tellback, admin: Admin, maya: User) -> None:
    omar = tb.user("omar", tenant_id="acme")
    assert "Oslo" in json.dumps(await admin.export_user_data("omar"))
    before = await admin.export_user_data()
    assert (await admin.delete_user_data("omar", confirm=True))["messages"] == 3
    assert await omar.conversations.list() == []
    assert without_export_time(await admin.export_user_data()) == without_export_time(before)
    assert set((await admin.delete_user_data("omar of another tenant", confirm=True)).values()) == {0}


async def test_caches_drop_an_erased_user(tb: Tellback, admin: Admin, maya: User) -> None:
    assert tb._opened_memory is not None
    views = tb._opened_memory.space_cache
    assert len(views) == 3
    tokenizer.extract_words(f"{WORD.lower()}esque")
    ids.fold_name(f"{WORD} the Great")
    await admin.delete_user_data(confirm=True)
    assert len(views) == 2
    assert not tokenizer._TOKEN_CACHE
    assert ids._fold_cached.cache_info().currsize == 0


def test_export_and_erasure_work_synchronously(tmp_path: Path) -> None:
    with Tellback(tmp_path / "tellback.db", worker=False) as tb:
        maya = tb.user("maya")
        conversation = maya.conversations.create("chat")
        maya.conversations.append_user_message(conversation.id, "I moved to Lisbon.")
        assert maya.admin.export_user_data()["conversations"][0]["id"] == conversation.id
        assert maya.admin.export_user_data(to=tmp_path / "maya.zip").counts["messages"] == 1
        assert [name for name, _ in maya.admin.export_stream()][:2] == ["conversations", "messages"]
        assert maya.admin.delete_user_data(confirm=True)["messages"] == 1


class BlockingExtractor:
    """An extractor that waits until the test releases it."""

    def __init__(self) -> None:
        self.started_users: set[str] = set()
        self.release = asyncio.Event()

    async def extract(self, window: Window) -> Extraction:
        self.started_users.add(window.conversation.user_id)
        await self.release.wait()
        return Extraction()


async def test_erasing_a_user_does_not_stop_jobs_of_other_users(url: str) -> None:
    extractor = BlockingExtractor()
    async with Tellback(url, extractor=extractor) as tb:
        maya, omar = tb.user("maya"), tb.user("omar")
        space = await maya.memory.create_space("daily")
        await maya.memory.create_binding({"namespace": "chat", "user_id": "*"}, [space.id])
        for user in (maya, omar):
            conversation = await user.conversations.create("chat")
            await user.conversations.append_user_message(conversation.id, "Hello.")
            await user.conversations.close(conversation.id)
        async with asyncio.timeout(30):
            while extractor.started_users != {"maya", "omar"}:
                tb.jobs.wake()
                await asyncio.sleep(0.05)
        assert (await maya.admin.delete_user_data(confirm=True))["jobs"] == 1
        extractor.release.set()
        await tb.jobs.drain(timeout=30)
        [job] = await tb.jobs.list()
        assert (job.user_id, job.status.value, job.runs) == ("omar", "done", 1)


class TestAcrossProcesses:
    """Two Tellbacks on one store. An in-memory store is not tested, because it can be opened only once."""

    @pytest.fixture(params=["sqlite", "postgres"])
    def url(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        if request.param == "sqlite":
            return str(tmp_path / "tellback.db")
        found: str = request.getfixturevalue("ready_postgres_url")
        return found

    @pytest.fixture
    async def other(self, tb: Tellback, url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tellback]:
        monkeypatch.setattr("tellback.admin.ERASURE_POLL_SECONDS", 0.1)
        async with Tellback(url) as other_tb:
            yield other_tb

    async def test_caches_of_other_processes_drop_an_erased_user(self, tb: Tellback, other: Tellback) -> None:
        maya = tb.user("maya")
        await create_user_data(tb, maya, WORD)
        await create_user_data(tb, tb.user("omar"), "Oslo")
        [space] = await maya.memory.list_spaces()
        await other.user("maya").memory.recall_by_topic(space.id, "Rome")
        [omars_space] = await tb.user("omar").memory.list_spaces()
        await other.user("omar").memory.recall_by_topic(omars_space.id, "Rome")
        assert other._opened_memory is not None
        views = other._opened_memory.space_cache
        await maya.admin.delete_user_data(confirm=True)
        async with asyncio.timeout(20):
            while len(views) > 1:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.05)
        assert await other.user("omar").memory.get_space(omars_space.id) is not None
