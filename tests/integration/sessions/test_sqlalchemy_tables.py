"""Tables of `SqlAlchemyAdapter`: names, the user's own tables, dialects."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    event,
    select,
)
from sqlalchemy.dialects import mssql, mysql, oracle
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.schema import CreateIndex, CreateTable

from tellback.errors import ConfigurationError, SessionConflictError
from tellback.sessions.sqlalchemy import SqlAlchemyAdapter
from tellback.testing.sessions.repositories import NOON, contents, make_message, make_session
from tests.integration.sessions.sqlalchemy_databases import KINDS, check_round_trip, url

__all__ = ["url"]

pytestmark = pytest.mark.backend("SQLAlchemy")
on_both = pytest.mark.parametrize("url", KINDS, indirect=True)

AWKWARD = 'We"ird %s {x} :y ünï'

EITHER = JSON().with_variant(JSONB(), "postgresql")
MAPPINGS = {"sessions": {"user_id": "customerId", "version": "revision"}}


def own_tables(*, zoned: bool, json: Any, linked: bool = False, expires: bool = True) -> dict[str, Table]:
    """Tables as a user would define them."""
    metadata = MetaData()
    moment = DateTime(timezone=zoned)
    link = [ForeignKey("AgentSession.id")] if linked else []
    sessions = Table(
        "AgentSession",
        metadata,
        Column("id", String(200), primary_key=True),
        Column("customerId", String(200), index=True),
        *[Column(name, Text) for name in ("agent_name", "status", "current_route", "current_state")],
        Column("collected_data", json),
        Column("message_count", Integer, nullable=False),
        *[Column(name, moment) for name in ("last_message_at", "completed_at", "created_at", "updated_at")],
        Column("revision", BigInteger, nullable=False),
        Column("shop", Text, server_default="corner"),
        *([Column("expires_at", moment)] if expires else []),
    )
    messages = Table(
        "AgentMessage",
        metadata,
        Column("id", String(200), primary_key=True),
        Column("session_id", String(200), *link, nullable=False),
        *[Column(name, Text) for name in ("user_id", "role", "content", "route", "state")],
        Column("tool_calls", json),
        Column("happened", json, key="event"),
        Column("created_at", moment, nullable=False),
        Column("position", Integer, nullable=False),
        Column("rating", Integer),
        *([Column("expires_at", moment)] if expires else []),
    )
    return {"sessions": sessions, "messages": messages}


@on_both
async def test_any_quotable_name_works(url: str) -> None:
    adapter = SqlAlchemyAdapter(
        url,
        auto_migrate=True,
        tables={"sessions": "AgentSession", "messages": AWKWARD},
        field_mappings={"sessions": {"user_id": "customerId", "id": AWKWARD}, "messages": {"position": AWKWARD}},
    )
    await adapter.initialize()
    await check_round_trip(adapter)
    await adapter.initialize()
    await adapter.disconnect()


@pytest.mark.parametrize(
    "options",
    [
        {"tables": {"sessions": ""}},
        {"tables": {"sessions": "a\nb"}},
        {"tables": {"sessions": "x" * 49}},
        {"tables": {"sessions": 5}},
        {"tables": {"other": "x"}},
        {"tables": "agent_sessions"},
        {"tables": {"sessions": "same", "messages": "SAME"}},
        {"tables": {"messages": "agent_sessions_migrations"}},
        {"tables": {"sessions": own_tables(zoned=True, json=JSON)["sessions"]}},
        {"tables": own_tables(zoned=True, json=JSON)},
        {"tables": own_tables(zoned=True, json=Integer), "field_mappings": MAPPINGS},
        {"tables": own_tables(zoned=True, json=JSON, expires=False), "field_mappings": MAPPINGS, "session_ttl": 5},
        {"field_mappings": {"sessions": {"user": "x"}}},
        {"field_mappings": {"sessions": {"user_id": "id"}}},
        {"field_mappings": {"sessions": ["user_id"]}},
        {"field_mappings": {"messages": {"user_id": None}}},
        {"session_ttl": 0},
    ],
)
def test_invalid_options_are_rejected_immediately(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        SqlAlchemyAdapter("sqlite+aiosqlite://", **options)


@on_both
@pytest.mark.parametrize("zoned", [True, False])
@pytest.mark.parametrize(
    "json", [JSON, Text, JSON().with_variant(JSONB(), "postgresql")], ids=["json", "text", "jsonb"]
)
async def test_user_tables_are_used_unchanged(url: str, zoned: bool, json: Any) -> None:
    tables = own_tables(zoned=zoned, json=json, linked=True)
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(tables["sessions"].metadata.create_all)
    adapter = SqlAlchemyAdapter(engine, tables=tables, field_mappings=MAPPINGS)
    assert adapter.metadata is tables["sessions"].metadata
    await adapter.initialize()
    await check_round_trip(adapter, {"n": 1, "text": "né 🧑"})
    await adapter.save(make_session(version=1), [make_message("Hi")])
    async with engine.connect() as connection:
        row = (await connection.execute(select(tables["sessions"]))).one()
        assert (row.customerId, row.revision, row.shop) == ("maya", 1, "corner")
        assert row.created_at.replace(tzinfo=None) == NOON.replace(tzinfo=None)
    await adapter.disconnect()
    await engine.dispose()


@on_both
async def test_an_event_that_is_a_string_is_read_from_a_json_column(url: str) -> None:
    tables = own_tables(zoned=True, json=JSON, expires=False)
    adapter = SqlAlchemyAdapter(url, auto_migrate=True, tables=tables, field_mappings=MAPPINGS)
    await adapter.initialize()
    events: list[Any] = ["text", "5", "null", 5, None, [], {"a": 1}]
    await adapter.save(make_session(version=1), [make_message("Hi", event=event) for event in events])
    assert [each.event for each in await adapter.message_repository.list_by_session("web-42")] == events
    await adapter.disconnect()


@on_both
async def test_messages_are_purged_before_the_sessions_they_refer_to(url: str) -> None:
    tables = own_tables(zoned=True, json=JSON, linked=True)
    adapter = SqlAlchemyAdapter(url, auto_migrate=True, tables=tables, field_mappings=MAPPINGS, session_ttl=0.001)
    await adapter.initialize()
    await adapter.save(make_session("with", version=1), [make_message("Hi", "with")])
    await adapter.save(make_session("without", version=1), [])
    assert await adapter.purge_expired() == 1
    assert contents(await adapter.message_repository.list_by_session("with")) == ["Hi"]
    await adapter.disconnect()


@pytest.mark.parametrize("dialect", [mysql, mssql, oracle], ids=["mysql", "mssql", "oracle"])
async def test_tables_and_statements_compile_for_other_databases(dialect: Any) -> None:
    """Compile only: the tests cannot run these databases."""
    engine = create_async_engine("sqlite+aiosqlite://")
    adapter = SqlAlchemyAdapter(engine, auto_migrate=True, session_ttl=60, message_ttl=60)
    await adapter.initialize()
    compiled_statements: set[str] = set()

    @event.listens_for(engine.sync_engine, "before_execute")
    def _(connection: Any, element: Any, *_: Any) -> None:
        compiled_statements.add(str(element.compile(dialect=dialect.dialect())))

    await check_round_trip(adapter)
    await adapter.message_repository.list_by_session("web-42", limit=1, before=5, after=2)
    with pytest.raises(SessionConflictError):
        await adapter.save(make_session(version=9), [])
    assert {statement.split()[0] for statement in compiled_statements} == {"SELECT", "INSERT", "UPDATE", "DELETE"}
    await engine.dispose()
    tables = adapter.metadata.sorted_tables
    create_sql = "".join(str(CreateTable(table).compile(dialect=dialect.dialect())) for table in tables)
    assert create_sql.count({mysql: "DATETIME(6)", mssql: "DATETIMEOFFSET", oracle: "TIMESTAMP"}[dialect]) == 8
    for index in (index for table in tables for index in table.indexes):
        assert "INDEX" in str(CreateIndex(index).compile(dialect=dialect.dialect()))
