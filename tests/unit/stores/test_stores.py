"""Store URLs, the rules for SQL files, and the synchronous interface."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from tellback import ConfigurationError, InvalidArgumentError, NotFoundError, Tellback, TextDelta, TurnResult
from tellback.errors import SchemaVersionError, StoreClosedError
from tellback.portal import SyncRoot
from tellback.stores import open_store
from tellback.stores.catalogue import migrations, statements
from tellback.stores.postgres.schema import quote_identifier, quote_literal
from tellback.testing import FunctionModel, ScriptedModel, calls, says
from tellback.types.jsontext import dump_stored_json

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("tellback.db", "sqlite:///tellback.db"),
        (Path("data/r.db"), "sqlite:///data/r.db"),
        ("sqlite:///r.db", "sqlite:///r.db"),
        ("sqlite:////var/r.db", "sqlite:////var/r.db"),
        ("sqlite:///with%20space.db?synchronous=FULL&busy_timeout=3", "sqlite:///with space.db"),
        (":memory:", "sqlite:///:memory:"),
        ("sqlite://", "sqlite:///:memory:"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        (
            "postgresql://u:secret@db.example:5433/prod?schema=x&pool_size=3&sslmode=require",
            "postgresql://db.example:5433/prod",
        ),
        ("postgres://db/prod", "postgresql://db/prod"),
        ("postgresql://u:p@h1:5432,h2:5433/db", "postgresql://h1:5432,h2:5433/db"),
    ],
)
def test_a_stores_url_contains_no_password(url: Any, expected: str) -> None:
    assert open_store(url).url == expected


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "empty"),
        ("mysql://db/prod", "Unknown store scheme mysql://"),
        ("sqlite:///r.db?colour=red", "no setting 'colour'"),
        ("sqlite:///r.db?synchronous=off", "use normal or full"),
        ("sqlite:///r.db?busy_timeout=long", "busy_timeout=long"),
        ("sqlite:///r.db?busy_timeout=nan", "number of seconds"),
        ("sqlite:///r.db?busy_timeout=-1", "number of seconds"),
        ("postgresql://db/prod?pool_size=many", "pool_size=many"),
        ("postgresql://db/prod?pool_size=0", "at least 1"),
        ("postgresql://db:port/prod", "Malformed store URL"),
    ],
)
def test_an_invalid_url_is_rejected_with_the_reason(url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        Tellback(url)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_statement_filters_on_the_whole_scope(dialect: Any) -> None:
    found = statements(dialect)
    assert len(found) >= 18
    for statement in found.values():
        if statement.name.startswith("platform_"):
            continue
        sql = " ".join(statement.sql.split())
        if sql.startswith("INSERT"):
            assert "(tenant_id, app_id, user_id," in sql
            continue
        place = r"\?|\$\d+"
        pattern = rf"WHERE tenant_id = ({place}) AND app_id = ({place}) AND user_id = ({place})( AND| RETURNING|;|$)"
        assert re.search(pattern, sql), f"{statement.name} does not filter on the scope"
        tables = re.findall(r"(?:FROM|JOIN|UPDATE) (?!chain\b|json_each\b|\()\w+", sql)
        assert len(re.findall(r"tenant_id = ", sql)) >= len(tables), f"{statement.name} has a part without the scope"


@pytest.mark.parametrize("what", ["atoms", "validity_ends", "vectors", "entities"])
async def test_changes_of_a_space_are_read_by_index(what: str, tmp_path: Path) -> None:
    async with Tellback(tmp_path / "r.db"):
        statement = statements("sqlite")[f"{what}_changed"]
        with contextlib.closing(sqlite3.connect(tmp_path / "r.db")) as connection:
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", [0] * len(statement.parameters)).fetchall()
    assert "version>?" in plan[0][3]


@pytest.mark.parametrize(
    ("name", "scanned"),
    [
        ("atoms_of_slot", "atoms"),
        ("atoms_of_conversation", "atoms"),
        ("job_last_of_target", "jobs"),
        ("message_lengths", "messages"),
        ("idempotent_response_get", "idempotent_responses"),
        ("platform_idempotent_responses_delete_expired", "idempotent_responses"),
        ("platform_api_key_get", "api_keys"),
        ("platform_bindings_matching_user", "bindings"),
        ("platform_events_for_extraction", "events"),
        ("platform_job_next", "jobs"),
        ("platform_running_instances", "jobs"),
        ("platform_job_release", "jobs"),
        ("platform_jobs_waiting", "jobs"),
        ("platform_rates_delete_expired", "rate_windows"),
        ("platform_usage_list", "usage"),
    ],
)
async def test_frequent_statements_scan_no_table(name: str, scanned: str, tmp_path: Path) -> None:
    async with Tellback(tmp_path / "r.db"):
        statement = statements("sqlite")[name]
        with contextlib.closing(sqlite3.connect(tmp_path / "r.db")) as connection:
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", [0] * len(statement.parameters)).fetchall()
    steps = [row[3] for row in plan]
    assert f"SCAN {scanned}" not in steps
    assert not any(step.startswith(f"SEARCH {scanned} USING PRIMARY KEY (space_id=?)") for step in steps)


async def test_closed_conversations_are_found_by_index(tmp_path: Path) -> None:
    async with Tellback(tmp_path / "r.db"):
        statement = statements("sqlite")["platform_close_events"]
        with contextlib.closing(sqlite3.connect(tmp_path / "r.db")) as connection:
            [row] = connection.execute(
                f"EXPLAIN QUERY PLAN {statement.sql}", [0] * len(statement.parameters)
            ).fetchall()
    assert "close_events" in row[3]


def test_both_dialects_have_the_same_statements_and_versions() -> None:
    sqlite, postgres = statements("sqlite"), statements("postgres")
    postgres_only = {name for name in postgres if name not in sqlite and not name.startswith("search_")}
    assert postgres_only == {"platform_events_lock", "platform_events_sequence", "platform_queue_delete_deliveries"}
    assert set(sqlite) <= set(postgres)
    assert [(step.version, step.name) for step in migrations("sqlite")] == [
        (step.version, step.name) for step in migrations("postgres")
    ]
    assert [step.version for step in migrations("sqlite")] == list(range(1, len(migrations("sqlite")) + 1))


def test_quoting_escapes_quotes_and_backslashes() -> None:
    assert quote_literal("O'Hara") == "'O''Hara'"
    assert quote_literal("back\\' slash") == " E'back\\\\'' slash'"
    assert quote_identifier('a"b') == '"a""b"'


async def test_a_newer_schema_is_rejected_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    async with Tellback(path) as tb:
        conversation = await tb.user("maya").conversations.create("chat")
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO tellback_migrations VALUES (99, 'from_the_future', 0)")
    connection.close()
    with pytest.raises(SchemaVersionError, match=r"version 99.*up to \d+.*newer Tellback"):
        await Tellback(path).open()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT id FROM conversations").fetchall() == [(conversation.id,)]
    connection.close()


async def test_the_newest_event_cannot_be_deleted_so_no_position_is_reused(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    async with Tellback(path) as tb:
        for _ in range(3):
            await tb.user("maya").conversations.create("chat")
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM events WHERE position < 3")
        with pytest.raises(sqlite3.IntegrityError, match="newest event"):
            connection.execute("DELETE FROM events")
    connection.close()
    async with Tellback(path) as tb:
        await tb.user("maya").conversations.create("chat")
        assert [event.position for event in await tb.events.read()] == [3, 4]


async def test_a_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "own.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE Conversations (mine TEXT)")
        connection.execute("INSERT INTO conversations VALUES ('kept')")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaVersionError, match=r"already has tables .*conversations"):
        await Tellback(path).open()
    assert path.read_bytes() == before  # not even the journal mode has changed
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT * FROM conversations").fetchall() == [("kept",)]
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
    connection.close()


def test_the_synchronous_interface_waits_for_everything(tmp_path: Path) -> None:
    model = ScriptedModel([says("Hello!", chunks=2), says("Bye.")])
    with Tellback(tmp_path / "r.db", model=model) as tb:
        conversations = tb.user("maya").conversations
        conversation = conversations.create("chat", title="Sync")
        items = list(conversations.stream_turn(conversation.id, user_text="Hi"))
        assert "".join(item.text for item in items if isinstance(item, TextDelta)) == "Hello!"
        assert isinstance(items[-1], TurnResult)
        assert str(conversations.run_turn(conversation.id, user_text="Bye")) == "Bye."
        with pytest.raises(NotFoundError):
            conversations.close("conv_nothing")
        events = tb.events.subscribe(types=["message.appended"])
        assert [next(events).data["seq"] for _ in range(4)] == [1, 2, 3, 4]
        events.close()
        tb.jobs.drain()
    before = threading.active_count()
    with Tellback(tmp_path / "r.db") as tb:
        assert tb.user("maya").conversations.messages(conversation.id)[0].text == "Hi"
    assert threading.active_count() == before


def test_the_synchronous_interface_serves_many_threads(tmp_path: Path) -> None:
    with Tellback(tmp_path / "r.db") as tb:
        conversations = tb.user("maya").conversations
        conversation = conversations.create("chat")

        def write() -> None:
            for n in range(20):
                conversations.append_user_message(conversation.id, str(n))

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [message.seq for message in conversations.messages(conversation.id)] == list(range(1, 81))


def test_a_store_that_cannot_be_opened_leaves_no_thread_behind(tmp_path: Path) -> None:
    from tellback.errors import StoreUnavailableError

    before = threading.active_count()
    with pytest.raises(StoreUnavailableError, match="folder"), Tellback(tmp_path / "missing" / "r.db"):
        pass
    assert threading.active_count() == before


def test_a_synchronous_call_inside_a_tool_raises_an_error() -> None:
    with Tellback(":memory:", model=ScriptedModel([calls("look"), says("ok")])) as tb:
        conversations = tb.user("maya").conversations
        conversation = conversations.create("chat")

        async def look() -> str:
            return str(conversations.messages(conversation.id))

        outcome = conversations.run_turn(conversation.id, user_text="Look", tools=[look])
        assert "Make the tool a plain function" in str(outcome.tool_invocations[0].content)
        assert outcome.tool_invocations[0].is_error


def test_the_synchronous_interface_can_be_closed_twice_and_then_raises_errors() -> None:
    with Tellback(":memory:", model=ScriptedModel([says("A long story", chunks=1)])) as tb:
        conversations = tb.user("maya").conversations
        conversation = conversations.create("chat")
        unread_stream = conversations.stream_turn(conversation.id, user_text="Tell me")
        next(unread_stream)
        tb.close()
        with pytest.raises(StoreClosedError):
            conversations.messages(conversation.id)
    unread_stream.close()


def test_dropping_an_iterator_does_not_hang() -> None:
    with Tellback(":memory:", model=ScriptedModel([says("A long story", chunks=1)])) as tb:
        conversations = tb.user("maya").conversations
        conversation = conversations.create("chat")
        items = [conversations.stream_turn(conversation.id, user_text="Tell me")]
        next(items[0])

        async def drop() -> None:
            items.clear()

        cast("SyncRoot", tb)._portal.call(drop())
        assert len(conversations.messages(conversation.id)) == 1


async def test_concurrent_openings_open_once(tmp_path: Path) -> None:
    before = threading.active_count()
    tb = Tellback(tmp_path / "r.db")
    await asyncio.gather(tb.open(), tb.open(), tb.open())
    assert [thread.name for thread in threading.enumerate()].count("tellback-writer") == 1
    await asyncio.gather(tb.close(), tb.close())
    assert threading.active_count() <= before + 1  # asyncio's own thread


async def test_a_cancelled_close_still_ends_its_threads(tmp_path: Path) -> None:
    tb = await Tellback(tmp_path / "r.db").open()
    closing = asyncio.create_task(tb.store.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    for _ in range(200):
        if not any(thread.name == "tellback-writer" for thread in threading.enumerate()):
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("the writer thread still runs")


FORKING = """
import asyncio, os, sys
from tellback import Tellback
from tellback.testing import FunctionModel, ScriptedModel, says

path, how = sys.argv[1:]
shared = Tellback(path)


async def turns(tb, name, id=None):
    async def slow(request):
        print(name, "starts", flush=True)
        await asyncio.sleep(0.5)
        print(name, "ends", flush=True)
        return name

    async with tb:
        conversations = tb.user("maya").conversations
        id = id or (await conversations.list())[0].id
        await conversations.run_turn(id, FunctionModel(slow), name)


async def prepare(tb):
    await tb.open()
    conversations = tb.user("maya").conversations
    conversation = await conversations.create("chat")
    await conversations.run_turn(conversation.id, ScriptedModel([says("ok")]), "first")


async def print_errors(tb):
    conversations = tb.user("maya").conversations
    for work in (conversations.list(), conversations.create("x"), anext(tb.events.subscribe())):
        try:
            await asyncio.wait_for(work, 3)
        except Exception as error:
            print(type(error).__name__, "forked" in str(error), flush=True)


runner = asyncio.Runner()
opened = Tellback(path)
runner.run(prepare(opened))
if how == "open":
    if not os.fork():
        asyncio.run(print_errors(opened))
        os._exit(0)
    os.wait()
runner.run(opened.close())
runner.close()
if how == "made":  # before the fork, and opened after it
    children = []
    for name in ("one", "two"):
        pid = os.fork()
        if not pid:
            asyncio.run(turns(shared, name))
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
"""


def run_forking_script(tmp_path: Path, method: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path / "r.db"), method]
    process = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_a_store_opened_before_a_fork_raises_errors_in_the_child(tmp_path: Path) -> None:
    assert run_forking_script(tmp_path, "open") == ["StoreError True"] * 3


def test_a_store_created_before_a_fork_can_be_opened_in_each_child(tmp_path: Path) -> None:
    lines = run_forking_script(tmp_path, "made")
    assert sorted(lines) == ["one ends", "one starts", "two ends", "two starts"]
    assert lines[0].split()[0] == lines[1].split()[0], "two turns ran at the same time"


def test_closing_the_synchronous_interface_releases_blocked_threads(tmp_path: Path) -> None:
    reached, errors = threading.Event(), []

    async def hang(request: Any) -> str:
        reached.set()
        await asyncio.sleep(60)
        return "never"

    with Tellback(tmp_path / "r.db") as tb:
        conversations = tb.user("maya").conversations
        conversation = conversations.create("chat")

        def turn() -> None:
            try:
                conversations.run_turn(conversation.id, FunctionModel(hang), "Hi")
            except StoreClosedError as error:
                errors.append(error)

        thread = threading.Thread(target=turn, daemon=True)
        thread.start()
        assert reached.wait(10)
    thread.join(10)
    assert not thread.is_alive()
    assert len(errors) == 1


async def test_a_subscriber_in_a_second_loop_receives_events_after_the_first_loop_closes(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    tb = await Tellback(path).open()

    async def first() -> None:
        events = tb.events.subscribe("latest")
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    await asyncio.to_thread(lambda: asyncio.run(first()))
    events = tb.events.subscribe()
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0.05)
    async with Tellback(path) as other:
        await other.user("maya").conversations.create("chat")
    assert (await asyncio.wait_for(waiting, 5)).type == "conversation.created"
    await events.aclose()
    await tb.close()


@pytest.mark.parametrize("settings", [{"url": 5}, {"summary_every": 0}, {"summary_every": "x"}])
def test_invalid_settings_are_rejected(settings: Any) -> None:
    with pytest.raises(ConfigurationError):
        Tellback(**{"url": ":memory:", **settings})


def test_a_clock_without_timezone_is_rejected() -> None:
    from datetime import datetime

    with pytest.raises(InvalidArgumentError, match="timezone"):
        Tellback(":memory:", clock=datetime.now)


def test_the_time_can_be_set_through_the_synchronous_interface() -> None:
    from datetime import UTC, datetime

    with Tellback(":memory:") as tb:
        tb.clock = lambda: datetime(2020, 1, 1, tzinfo=UTC)
        assert tb.user("maya").conversations.create("chat").created_at.year == 2020


def test_circular_values_are_rejected() -> None:
    endless: dict[str, Any] = {"amount": math.inf}
    endless["again"] = endless
    with pytest.raises(ValueError, match="nested"):
        dump_stored_json(endless)
    assert dump_stored_json({"amount": math.inf, "all": (1, -math.inf)}) == '{"amount":null,"all":[1,null]}'


async def test_numbers_that_json_cannot_represent_are_rejected_or_dropped() -> None:
    endless = {"type": "tool_use", "id": "c1", "name": "pay", "arguments": {"amount": math.inf}}
    with ScriptedModel([calls("pay", amount=math.inf), says("No.")]) as model:
        async with Tellback(":memory:", model=model, worker=False) as tb:
            maya = tb.user("maya")
            conversation = await maya.conversations.create("chat")
            with pytest.raises(InvalidArgumentError, match="JSON"):
                await maya.conversations.append_assistant_turn(conversation.id, [endless])
            message = await maya.conversations.append_assistant_turn(
                conversation.id, "Hi", usage={"cost_usd": math.nan}
            )
            assert message.usage is not None
            assert message.usage.cost_usd is None
            await maya.conversations.run_turn(conversation.id, user_text="Pay.")  # a model's output is stored anyway
            export = await maya.admin.export_user_data()
            json.dumps(export, allow_nan=False)
