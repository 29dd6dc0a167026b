"""A store of an earlier release is migrated once, without data loss, completely or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from tellback import Tellback
from tellback.errors import SchemaVersionError, StoreError
from tests.support.migrations import BROKEN, FIRST_VERSION, LAST_VERSION, Releases, fetch_rows, run_script

VERSIONS = "SELECT version, name, applied_at FROM tellback_migrations ORDER BY version"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables; an in-memory store has no earlier release."""
    if request.param == "sqlite":
        return str(tmp_path / "tellback.db")
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Releases:
    return Releases(tmp_path, monkeypatch)


@dataclass(frozen=True)
class StoredData:
    """Data written by an earlier release."""

    conversation_id: str
    space_id: str
    atom_id: str
    secret: str


def open_app(url: str) -> Tellback:
    return Tellback(url, embedder=None, worker=False)


async def write_data(url: str) -> StoredData:
    """Open the store with this process's release, and write some data."""
    async with open_app(url) as tb:
        maya = tb.user("maya")
        conversation = await maya.conversations.create("chat", metadata={"speakers": {"user": "Maya"}})
        await maya.conversations.append_user_message(conversation.id, "I moved to Lisbon.")
        space = await maya.memory.create_space("notes")
        atom = await maya.memory.add_atom(space.id, "Likes tea.")
        await maya.memory.create_binding({"namespace": "chat"}, [space.id])
        key = await tb.keys.create("user", user_id="maya")
    return StoredData(conversation.id, space.id, atom.id, key.secret)


async def assert_data(url: str, stored: StoredData) -> None:
    """Open the store with this process's release, check the data, and write more."""
    async with open_app(url) as tb:
        maya = tb.user("maya")
        messages = await maya.conversations.messages(stored.conversation_id)
        assert [message.text for message in messages][:1] == ["I moved to Lisbon."]
        [hit] = await maya.memory.recall_by_topic(stored.space_id, "tea")
        assert hit.atom.id == stored.atom_id
        assert (await tb.keys.check(stored.secret)).user_id == "maya"
        await maya.conversations.append_user_message(stored.conversation_id, "I sing.")
        assert len(await maya.conversations.messages(stored.conversation_id)) == len(messages) + 1


async def schema_versions(url: str) -> list[int]:
    return [row[0] for row in await fetch_rows(url, VERSIONS)]


@pytest.mark.parametrize("version", range(FIRST_VERSION, LAST_VERSION))
async def test_every_earlier_schema_is_upgraded(url: str, version: int, releases: Releases) -> None:
    releases.use_version(version)
    stored = await write_data(url)
    applied = await fetch_rows(url, VERSIONS)
    assert [row[0] for row in applied] == list(range(1, version + 1))
    releases.use_version(LAST_VERSION)
    await assert_data(url, stored)
    upgraded = await fetch_rows(url, VERSIONS)
    assert [row[:2] for row in upgraded] == [(1, "baseline"), (2, "mood"), (3, "upgrades")]
    assert upgraded[:version] == applied
    moods = await fetch_rows(url, "SELECT id, mood FROM conversations")
    assert moods == [(stored.conversation_id, "calm; chat" if version == FIRST_VERSION else None)]
    assert await fetch_rows(url, "SELECT id, conversations FROM upgrades") == [(1, 2 - version)]


async def test_an_upgraded_store_works(url: str, releases: Releases) -> None:
    releases.use_version(FIRST_VERSION)
    stored = await write_data(url)
    releases.use_version(LAST_VERSION)
    for opening in range(2):
        async with open_app(url) as tb:
            maya = tb.user("maya")
            if opening == 0:
                await maya.conversations.close(stored.conversation_id)
                planned = await tb.store.jobs.dispatch(window_length=100, limit=10, now=tb.clock())
                assert [job.conversation_id for job in planned.jobs] == [stored.conversation_id]
            assert [job.conversation_id for job in await maya.memory.list_jobs()] == [stored.conversation_id]


async def test_opening_again_applies_no_migration(url: str, releases: Releases) -> None:
    releases.use_version(FIRST_VERSION)
    stored = await write_data(url)
    releases.use_version(LAST_VERSION)
    await assert_data(url, stored)
    applied = await fetch_rows(url, VERSIONS)
    await assert_data(url, stored)
    assert await fetch_rows(url, VERSIONS) == applied
    assert await fetch_rows(url, "SELECT id FROM upgrades") == [(1,)]


async def test_concurrent_openings_apply_a_migration_once(url: str, releases: Releases) -> None:
    releases.use_version(FIRST_VERSION)
    stored = await write_data(url)
    releases.use_version(LAST_VERSION)
    await asyncio.gather(*(assert_opens(url) for _ in range(8)))
    assert await schema_versions(url) == [1, 2, 3]
    assert await fetch_rows(url, "SELECT id, conversations FROM upgrades") == [(1, 1)]
    await assert_data(url, stored)


async def assert_opens(url: str) -> None:
    async with open_app(url) as tb:
        assert len(await tb.user("maya").conversations.list()) == 1


async def test_a_failing_migration_keeps_the_previous_version(url: str, releases: Releases) -> None:
    releases.use_version(FIRST_VERSION)
    stored = await write_data(url)
    for _ in range(2):
        releases.use_version(LAST_VERSION, last=BROKEN)
        with pytest.raises(StoreError, match="no_such_table"):
            await open_app(url).open()
        assert await schema_versions(url) == [1]
        for statement in ("SELECT mood FROM conversations", "SELECT id FROM half_done"):
            with pytest.raises(Exception, match=r"mood|half_done"):
                await fetch_rows(url, statement)
        releases.use_version(FIRST_VERSION)
        await assert_data(url, stored)
    releases.use_version(LAST_VERSION)
    await assert_data(url, stored)
    assert await schema_versions(url) == [1, 2, 3]


async def test_a_schema_of_a_newer_release_is_rejected_unchanged(url: str, releases: Releases) -> None:
    releases.use_version(LAST_VERSION)
    stored = await write_data(url)
    for version in range(FIRST_VERSION, LAST_VERSION):
        releases.use_version(version)
        with pytest.raises(SchemaVersionError, match=rf"version 3, .* up to {version}: a newer Tellback"):
            await open_app(url).open()
    assert await schema_versions(url) == [1, 2, 3]
    releases.use_version(LAST_VERSION)
    await assert_data(url, stored)


async def test_a_read_only_opening_does_not_migrate(tmp_path: Path, releases: Releases) -> None:
    path = str(tmp_path / "tellback.db")
    releases.use_version(FIRST_VERSION)
    await write_data(path)
    releases.use_version(LAST_VERSION)
    with pytest.raises(SchemaVersionError, match=r"version 1, this release needs 3.*without mode=ro"):
        await open_app(f"sqlite:///{path}?mode=ro").open()
    assert await schema_versions(path) == [1]


async def test_tables_of_another_program_with_our_names_are_rejected_unchanged(url: str) -> None:
    await run_script(url, "CREATE TABLE messages (text TEXT NOT NULL); INSERT INTO messages VALUES ('not ours');")
    for _ in range(2):
        with pytest.raises(SchemaVersionError, match=r"already has tables .*\(messages\).* Open another"):
            await open_app(url).open()
    assert await fetch_rows(url, "SELECT text FROM messages") == [("not ours",)]
    with pytest.raises(Exception, match="tellback_migrations"):
        await fetch_rows(url, VERSIONS)


async def test_tables_of_another_program_with_other_names_are_allowed(url: str) -> None:
    await run_script(url, "CREATE TABLE invoices (id INTEGER);")
    await assert_data(url, await write_data(url))
