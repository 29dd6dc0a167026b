"""A store that an earlier release wrote is brought up to date with nothing lost."""

from __future__ import annotations

import pytest

from recollect import Recollect
from recollect.stores.catalogue import Dialect, Migration, migrations

EARLIER = range(1, len(migrations("sqlite")))


@pytest.mark.parametrize("version", EARLIER)
async def test_every_earlier_schema_is_upgraded(url: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if url == ":memory:":
        pytest.skip("what is in memory has no earlier release")

    def until(dialect: Dialect) -> tuple[Migration, ...]:
        return migrations(dialect)[:version]

    with monkeypatch.context() as patched:
        patched.setattr("recollect.stores.sqlite.connection.migrations", until)
        patched.setattr("recollect.stores.postgres.migrate.migrations", until)
        async with Recollect(url) as rc:
            maya = rc.user("maya")
            talk = await maya.conversations.create("chat", metadata={"speakers": {"user": "Maya"}})
            await maya.conversations.append_user_message(talk.id, "I moved to Lisbon.")
    for _ in range(2):
        async with Recollect(url) as rc:
            maya = rc.user("maya")
            assert [message.text for message in await maya.conversations.messages(talk.id)] == ["I moved to Lisbon."]
            space = await maya.memory.create_space("talks", once=True)
            [atom] = await maya.memory.remember_conversation(space.id, talk.id)
            assert atom.text == "Maya: I moved to Lisbon."
