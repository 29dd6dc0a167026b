"""The contract of adapters with their own tables: names, existing tables, rejected values."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tellback.errors import ConfigurationError, InvalidArgumentError, NotFoundError, SchemaVersionError, TellbackError
from tellback.sessions.adapter import PersistenceAdapter
from tellback.sessions.in_memory import InMemoryAdapter
from tellback.sessions.sql import tables
from tellback.testing.sessions.repositories import NOON, contents, eventually, later, make_message, make_session

BAD_NAMES = ['x"; DROP TABLE agent_sessions --', "a b", "a.b", "", "1a", "é", "a" * 64, None, 5, "x'"]
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["create", "save", "save", "add", "status", "delete", "get", "list_by_user", "messages"]),
        st.integers(0, 1),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=14,
)
FEW = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
_numbers = itertools.count(1)

Run = Callable[[str], Awaitable[list[tuple[Any, ...]]]]
"""Runs SQL on the database under test, bypassing the adapter."""


class Make(Protocol):
    """Creates an adapter for the database under test, with the default tables."""

    def __call__(self, **options: Any) -> PersistenceAdapter: ...


class SqlTablesContract:
    """`make` creates adapters, `run` runs SQL; `moment` and `json` are the column types of version 1."""

    moment = "TEXT"
    json = "TEXT"

    async def test_a_database_of_version_1_is_migrated_with_its_data(self, make: Make, run: Run) -> None:
        await self._version_1(run)
        adapter = make()
        await adapter.initialize()
        found = await adapter.session_repository.get("web-1")
        assert found is not None
        assert (found.version, found.message_count, found.user_id, found.status) == (0, 3, "maya", "active")
        assert found.collected_data == {"to": "Rome"}
        assert (found.created_at, found.completed_at) == (NOON, None)
        messages = await adapter.message_repository.list_by_session("web-1")
        assert [(each.content, each.position) for each in messages] == [("one", 1), ("two", 2), ("three", 3)]
        assert messages[0].tool_calls == ({"tool_name": "search", "arguments": {}},)
        assert [each.position for each in await adapter.message_repository.list_by_session("web-2")] == [1]
        saved = await adapter.save(replace(found, version=1), [make_message("four", "web-1")])
        assert saved.message_count == 4
        messages = await adapter.message_repository.list_by_session("web-1")
        assert [each.position for each in messages] == [1, 2, 3, 4]
        assert await run("SELECT version FROM agent_sessions_migrations ORDER BY version") == [(1,), (2,)]
        await adapter.initialize()
        await adapter.disconnect()

    async def test_concurrent_migrations_run_once(self, make: Make, run: Run) -> None:
        await self._version_1(run)
        adapters = [make() for _ in range(6)]
        await asyncio.gather(*(each.initialize() for each in adapters))
        for each in adapters:
            messages = await each.message_repository.list_by_session("web-1")
            assert [message.position for message in messages] == [1, 2, 3]
            await each.disconnect()
        assert await run("SELECT version FROM agent_sessions_migrations ORDER BY version") == [(1,), (2,)]

    async def test_an_existing_table_gets_missing_columns(self, make: Make, run: Run) -> None:
        await run("CREATE TABLE agent_sessions (id VARCHAR(255), customer TEXT, score INTEGER)")
        await run("INSERT INTO agent_sessions VALUES ('web-1', 'maya', 7)")
        adapter = make(field_mappings={"sessions": {"user_id": "customer"}})
        await adapter.initialize()
        (found,) = await adapter.session_repository.list_by_user("maya")
        assert (found.id, found.status, found.collected_data, found.version) == ("web-1", "active", {}, 0)
        await adapter.save(replace(found, version=1, user_id="maya"), [make_message("Hi", "web-1")])
        assert await run("SELECT customer, score, version FROM agent_sessions") == [("maya", 7, 1)]
        with pytest.raises(TellbackError):  # the migration has made ids unique
            await adapter.session_repository.create(make_session("web-1"))
        await adapter.disconnect()

    async def test_a_table_without_required_columns_is_rejected(self, make: Make, run: Run) -> None:
        await run("CREATE TABLE agent_sessions (key TEXT, user_id TEXT)")
        with pytest.raises(ConfigurationError, match=r"no column 'id'.*field_mappings\['sessions'\]"):
            await make().initialize()
        assert await self._columns(run, "agent_sessions") == {"key", "user_id"}
        adapter = make(field_mappings={"sessions": {"id": "key"}})
        await adapter.initialize()
        await adapter.disconnect()

    async def test_tables_of_a_later_version_are_rejected(self, make: Make, run: Run) -> None:
        adapter = make()
        await adapter.initialize()
        await adapter.disconnect()
        await run("INSERT INTO agent_sessions_migrations (version, name, applied_at) VALUES (99, 'later', 0)")
        with pytest.raises(SchemaVersionError, match="99"):
            await adapter.initialize()
        await adapter.disconnect()

    async def test_a_failing_migration_changes_nothing(self, make: Make, run: Run) -> None:
        await run("CREATE TABLE agent_sessions (id TEXT)")
        await run("INSERT INTO agent_sessions VALUES ('twice'), ('twice')")
        with pytest.raises(TellbackError):
            await make().initialize()
        assert await self._columns(run, "agent_sessions") == {"id"}
        assert await self._columns(run, "agent_sessions_migrations") == set()

    async def test_tables_and_columns_use_the_configured_names(self, make: Make, run: Run) -> None:
        adapter = make(
            tables={"sessions": "Chats", "messages": "select"},
            field_mappings={
                "sessions": {"user_id": "customer", "id": "order", "version": "Group", "expires_at": "until"},
                "messages": {"content": "text", "position": "where"},
            },
            session_ttl=900,
        )
        await adapter.initialize()
        saved = await adapter.save(make_session(version=1), [make_message("Hi")])
        assert await adapter.session_repository.find_active("maya", "Wanda") == saved
        assert await adapter.session_repository.list_by_user(
            "maya", before=make_session("zzz", created_at=later(1))
        ) == [saved]
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]
        assert await run('SELECT customer, "order", "Group" FROM "Chats"') == [("maya", "web-42", 1)]
        assert await run('SELECT text, "where" FROM "select"') == [("Hi", 1)]
        assert await adapter.session_repository.delete("web-42")
        assert await adapter.purge_expired() == 0
        await adapter.disconnect()

    async def test_names_changed_later_are_reported(self, make: Make) -> None:
        adapter = make()
        await adapter.initialize()
        await adapter.save(make_session(version=1), [])
        await adapter.disconnect()
        with pytest.raises(ConfigurationError, match="customer"):
            await make(field_mappings={"sessions": {"user_id": "customer"}}).initialize()

    @pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
    async def test_invalid_names_are_rejected(self, make: Make, name: Any) -> None:
        for options in (
            {"tables": {"sessions": name}},
            {"field_mappings": {"messages": {"content": name}}},
        ):
            with pytest.raises(ConfigurationError):
                make(**options)

    @pytest.mark.parametrize(
        "options",
        [
            {"tables": {"users": "x"}},
            {"tables": {"sessions": "Same", "messages": "same"}},
            {"tables": {"sessions": "a", "messages": "a_migrations"}},
            {"tables": {"sessions": "a" * 51}},
            {"tables": "agent_sessions"},
            {"field_mappings": {"sessions": {"user_id": "ID"}}},
            {"field_mappings": {"sessions": {"nothing": "x"}}},
            {"field_mappings": {"users": {}}},
            {"field_mappings": {"sessions": "x"}},
            {"field_mappings": "x"},
            {"session_ttl": 0},
            {"message_ttl": "1h"},
        ],
        ids=str,
    )
    async def test_invalid_options_are_rejected(self, make: Make, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            make(**options)

    @pytest.mark.parametrize(
        "changes",
        [
            {"collected_data": {"x": float("nan")}},
            {"collected_data": {"x": datetime(2026, 1, 1)}},
            {"collected_data": "text"},
            {"created_at": datetime(2026, 1, 1)},
            {"created_at": None},
            {"updated_at": "2026-01-01"},
            {"completed_at": 5},
            {"version": 2**63},
            {"message_count": "many"},
        ],
        ids=str,
    )
    async def test_a_turn_with_invalid_values_is_rejected_completely(self, make: Make, changes: dict[str, Any]) -> None:
        adapter = make()
        await adapter.initialize()
        with pytest.raises(InvalidArgumentError):
            await adapter.session_repository.create(make_session(**changes))
        bad = [make_message("Hi"), make_message("no", created_at=datetime(2026, 1, 1)), make_message("Hi")]
        with pytest.raises(InvalidArgumentError):
            await adapter.save(make_session(version=1), bad)
        with pytest.raises(InvalidArgumentError):
            await adapter.message_repository.add([make_message("no", event={1j: 2})], at=NOON)
        assert await adapter.session_repository.get("web-42") is None
        assert await adapter.message_repository.list_by_session("web-42") == []
        await adapter.disconnect()

    async def test_one_adapter_can_be_initialized_concurrently(self, make: Make) -> None:
        adapter = make()
        await asyncio.gather(*(adapter.initialize() for _ in range(8)))
        await asyncio.gather(
            *(adapter.save(make_session(f"web-{n}", version=1), [make_message("Hi", f"web-{n}")]) for n in range(200))
        )
        found = await adapter.session_repository.list_by_user("maya")
        assert len(found) == 200
        assert {each.message_count for each in found} == {1}
        await asyncio.gather(*(adapter.disconnect() for _ in range(3)))

    async def test_message_ids_are_unique_per_session(self, make: Make) -> None:
        adapter = make()
        await adapter.initialize()
        for id in ("web-1", "web-2"):
            await adapter.save(make_session(id, version=1), [make_message("Hi", id, id="msg_same")])
            assert contents(await adapter.message_repository.list_by_session(id)) == ["Hi"]
        await adapter.disconnect()

    async def test_a_cancelled_save_is_atomic(self, make: Make) -> None:
        adapter = make()
        await adapter.initialize()
        for n in range(40):
            id = f"web-{n}"
            task = asyncio.create_task(
                adapter.save(make_session(id, version=1), [make_message(str(k), id) for k in range(5)])
            )
            await asyncio.sleep(n * 0.0003)
            task.cancel()
            result = (await asyncio.gather(task, return_exceptions=True))[0]
            await adapter.session_repository.delete("none")  # a thread may still be saving: this waits for it
            found = await adapter.session_repository.get(id)
            message_texts = contents(await adapter.message_repository.list_by_session(id))
            assert message_texts == ([] if found is None else ["0", "1", "2", "3", "4"])
            assert found is not None or isinstance(result, asyncio.CancelledError)
        await adapter.disconnect()

    async def test_expired_rows_are_purged_in_batches_and_counted(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tables, "PURGE_BATCH", 3)
        expiring, non_expiring = make(session_ttl=0.2, message_ttl=0.2), make()
        await expiring.initialize()
        await non_expiring.initialize()
        for n in range(7):
            await expiring.save(
                make_session(f"web-{n}", version=1), [make_message(str(k), f"web-{n}") for k in range(2)]
            )
        await non_expiring.save(make_session("kept", version=1), [make_message("kept", "kept")])
        await eventually(lambda: expiring.session_repository.list_by_user("maya"), lambda found: len(found) == 1)
        await eventually(lambda: expiring.message_repository.list_by_session("web-6"), lambda found: not found)
        assert await non_expiring.session_repository.get("web-6") is None  # expired for every adapter
        assert await non_expiring.purge_expired() == 21
        assert await non_expiring.purge_expired() == 0
        assert contents(await expiring.message_repository.list_by_session("kept")) == ["kept"]
        await expiring.disconnect()
        await non_expiring.disconnect()

    async def test_positions_continue_after_a_session_expired_and_was_purged(self, make: Make) -> None:
        expiring = make(session_ttl=0.2)
        await expiring.initialize()
        for turn in range(3):
            await expiring.save(make_session(version=1), [make_message(f"{turn}.{k}") for k in range(2)])
            await eventually(lambda: expiring.session_repository.get("web-42"), lambda found: found is None)
            if turn == 1:
                assert await expiring.purge_expired() == 1
        with pytest.raises(NotFoundError):
            await expiring.message_repository.add([make_message("late")], at=NOON)
        found = await expiring.message_repository.list_by_session("web-42")
        assert [each.position for each in found] == [1, 2, 3, 4, 5, 6]
        assert not await expiring.session_repository.delete("web-42")  # the session did not exist, but its messages did
        assert await expiring.message_repository.list_by_session("web-42") == []
        await expiring.disconnect()

    async def test_a_session_deleted_and_recreated_concurrently_has_its_messages(self, make: Make) -> None:
        adapter, other = make(), make()
        await adapter.initialize()
        await other.initialize()
        for n in range(15):
            await asyncio.gather(
                adapter.session_repository.delete("web-42"),
                other.save(make_session(version=1), [make_message(str(n))]),
                other.session_repository.delete("web-42"),
                return_exceptions=True,
            )
            found = await adapter.session_repository.get("web-42")
            messages = await adapter.message_repository.list_by_session("web-42")
            assert len(messages) == (0 if found is None else found.message_count)
        await adapter.disconnect()
        await other.disconnect()

    async def _columns(self, run: Run, table: str) -> set[str]:
        raise NotImplementedError

    async def _version_1(self, run: Run) -> None:
        await run(
            "CREATE TABLE agent_sessions (id TEXT PRIMARY KEY, user_id TEXT, agent_name TEXT, status TEXT NOT NULL,"
            f" current_route TEXT, current_state TEXT, collected_data {self.json},"
            f" message_count INTEGER NOT NULL DEFAULT 0,"
            f" last_message_at {self.moment}, completed_at {self.moment}, created_at {self.moment} NOT NULL,"
            f" updated_at {self.moment} NOT NULL)"
        )
        await run(
            "CREATE TABLE agent_messages (id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES agent_sessions (id),"
            " user_id TEXT, role TEXT NOT NULL, content TEXT NOT NULL, route TEXT, state TEXT,"
            f" tool_calls {self.json}, event {self.json}, created_at {self.moment} NOT NULL)"
        )
        await run(
            "CREATE TABLE agent_sessions_migrations (version BIGINT PRIMARY KEY, name TEXT NOT NULL,"
            " applied_at BIGINT NOT NULL)"
        )
        await run("INSERT INTO agent_sessions_migrations VALUES (1, 'sessions and messages', 0)")
        for id, count in (("web-1", 3), ("web-2", 1)):
            await run(
                "INSERT INTO agent_sessions (id, user_id, status, collected_data, message_count, created_at,"
                f" updated_at) VALUES ('{id}', 'maya', 'active', '{{\"to\": \"Rome\"}}', {count}, '{NOON.isoformat()}',"
                f" '{NOON.isoformat()}')"
            )
        calls = '[{"tool_name": "search", "arguments": {}}]'
        for id, session_id, content, seconds, tools in (
            ("c", "web-1", "three", 2, "NULL"),
            ("b", "web-1", "two", 1, "NULL"),
            ("a", "web-1", "one", 1, f"'{calls}'"),
            ("d", "web-2", "other", 0, "NULL"),
        ):
            await run(
                "INSERT INTO agent_messages (id, session_id, role, content, tool_calls, created_at) VALUES"
                f" ('{id}', '{session_id}', 'user', '{content}', {tools}, '{later(seconds).isoformat()}')"
            )


def check_against_in_memory(make: Make, steps: list[tuple[str, int, int]]) -> None:
    """Run the same operations on an adapter and on `InMemoryAdapter`, and compare each result."""

    async def compare_adapters() -> None:
        model, adapter = InMemoryAdapter(), make()
        await adapter.initialize()
        example = next(_numbers)
        for step in steps:
            clock = next(_numbers)
            assert await _run_step(adapter, example, clock, *step) == await _run_step(model, example, clock, *step)
        await adapter.disconnect()

    asyncio.run(compare_adapters())


async def _run_step(
    adapter: PersistenceAdapter, example: int, clock: int, action: str, which: int, number: int
) -> object:
    """Return an operation's result, or its error, in a form that is equal for all adapters."""
    sessions, messages = adapter.session_repository, adapter.message_repository
    id, user = f"s-{example}-{which}", f"u-{example}"
    moment = NOON + timedelta(microseconds=clock)
    new_messages = [
        replace(make_message(f"{clock}.{k}", id, created_at=moment), id=f"m-{clock}-{k}") for k in range(number)
    ]
    session = make_session(id, user_id=user if number else None, version=number, created_at=moment, updated_at=moment)
    try:
        match action:
            case "create":
                return await sessions.create(session)
            case "save":
                return await adapter.save(replace(session, collected_data={"clock": clock}), new_messages)
            case "add":
                return await messages.add(new_messages, at=moment)
            case "status":
                return await sessions.update_status(
                    id, "completed" if number else "active", at=moment, completed_at=None
                )
            case "delete":
                return await sessions.delete(id)
            case "list_by_user":
                return await sessions.list_by_user(user), await sessions.find_active(user)
            case "messages":
                return await messages.list_by_session(id, limit=number or None, before=number * 2 or None)
            case _:
                return await sessions.get(id)
    except TellbackError as error:
        return type(error), str(error)
