"""A store that an earlier release wrote is brought up to date with nothing lost."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from tellback import Tellback
from tellback.stores.catalogue import Dialect, Migration, migrations

EARLIER = range(1, len(migrations("sqlite")))
TALK = "conv_talk"
TALKED = (
    "INSERT INTO conversations (tenant_id, app_id, user_id, id, namespace, metadata, status, created_at, updated_at,"
    " last_seq, turns, turn_id) VALUES"
    """ ('default', 'default', 'maya', 'conv_talk', 'chat', '{"speakers": {"user": "Maya"}}', 'open', 1, 1, 1, 1,"""
    " 't1'),"
    " ('default', 'default', 'maya', 'conv_before', 'chat', '{}', 'closed', 1, 1, 1, 1, 't2')",
    "INSERT INTO messages (conversation_id, seq, id, tenant_id, app_id, user_id, turn_id, role, visibility, content,"
    " created_at) VALUES"
    " ('conv_talk', 1, 'msg_1', 'default', 'default', 'maya', 't1', 'user', 'user', 'I moved to Lisbon.', 1),"
    " ('conv_before', 1, 'msg_2', 'default', 'default', 'maya', 't2', 'user', 'user', 'This was closed long ago.', 1)",
)
"""What version 1 kept of conversations."""
REMEMBERED = (
    "INSERT INTO spaces (tenant_id, app_id, user_id, id, name, metadata, status, created_at, updated_at, version,"
    " last_seq, atom_count) VALUES ('default', 'default', 'maya', 'ms_old', 'old', '{}', 'ACTIVE', 1, 1, 1, 1, 1)",
    "INSERT INTO atoms (space_id, seq, id, tenant_id, app_id, user_id, version, text, category, kind, importance,"
    " confidence, status, valid_from, created_at, updated_at, source_conversation_id, source_message_ids, entity_ids)"
    " VALUES ('ms_old', 1, 'atom_old', 'default', 'default', 'maya', 1, 'Likes tea.', 'fact', 'FACT', 3, 1.0, 'ACTIVE',"
    " 1, 1, 1, 'conv_old', '[\"msg_old\"]', '[]')",
)
"""What version 2 kept of an atom, as it kept it."""


async def write(url: str, *statements: str) -> None:
    if not url.startswith("postgresql"):
        with contextlib.closing(sqlite3.connect(url)) as connection, connection:
            for statement in statements:
                connection.execute(statement)
        return
    server = await asyncpg.connect(url, server_settings={"search_path": "tellback"})
    try:
        for statement in statements:
            await server.execute(statement)
    finally:
        await server.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without any tables; what is in memory has no earlier release."""
    if request.param == "sqlite":
        return str(tmp_path / "tellback.db")
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.mark.parametrize("version", EARLIER)
async def test_every_earlier_schema_is_upgraded(url: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def until(dialect: Dialect) -> tuple[Migration, ...]:
        return migrations(dialect)[:version]

    with monkeypatch.context() as patched:
        patched.setattr("tellback.stores.sqlite.connection.migrations", until)
        patched.setattr("tellback.stores.postgres.schema.migrations", until)
        async with Tellback(url, worker=False):
            pass
    await write(url, *TALKED)
    if version >= 2:
        await write(url, *REMEMBERED)
    for opening in range(2):
        async with Tellback(url, embedder=None, worker=False) as rc:
            maya = rc.user("maya")
            assert [message.text for message in await maya.conversations.messages(TALK)] == ["I moved to Lisbon."]
            space = await maya.memory.create_space("talks", once=True)
            [atom] = await maya.memory.remember_conversation(space.id, TALK)
            assert atom.text == "Maya: I moved to Lisbon."
            if version >= 2:
                [hit] = await maya.memory.recall_by_topic("ms_old", "tea")
                assert (hit.atom.source_message_ids, hit.atom.other_sources) == (("msg_old",), ())
            if opening == 0:
                await maya.memory.create_binding({"namespace": "chat"}, [space.id])
                await maya.conversations.close(TALK)
                jobs = await rc.store.jobs.dispatch(window_length=100, limit=10, now=rc.clock())
                assert [job.conversation_id for job in jobs.jobs] == [TALK]
                assert await rc.keys.list() == []
                made = await rc.keys.create("user", user_id="maya")
                assert await rc.keys.check(made.secret) == made.key
            assert [job.conversation_id for job in await maya.memory.list_jobs()] == [TALK]
