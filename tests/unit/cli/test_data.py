"""Conversations, jobs, export, deletion and migration, from the command line."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tellback import Tellback
from tellback.cli import diagnostics
from tellback.cli.diagnostics import StoreInfo
from tests.support.migrations import FIRST_VERSION, LAST_VERSION, Releases
from tests.unit.cli.conftest import Cli

pytestmark = pytest.mark.slow

Json = Callable[..., Any]
ErrorOutput = Callable[..., str]


def store_conversation(*texts: str, user: str = "maya") -> str:
    """A conversation that is bound to a memory space; gives its id."""

    async def created() -> str:
        async with Tellback("tellback.db", worker=False) as tb:
            handle = tb.user(user)
            space = await handle.memory.create_space("default", once=True)
            await handle.memory.create_binding({"namespace": "chat"}, [space.id], once=True)
            conversation = await handle.conversations.create("chat", title="About [bold]Lisbon[/bold]")
            for text in texts:
                await handle.conversations.append_turn(conversation.id, text, {"content": "I see."})
            return conversation.id

    return asyncio.run(created())


def test_conversations_are_listed_and_shown(cli: Cli, as_json: Json) -> None:
    id = store_conversation("I moved to Lisbon.", "I sing.")
    [row] = as_json("conversations", "list", "--user", "maya")
    assert (row["id"], row["status"], row["last_seq"]) == (id, "open", 4)
    assert "About [bold]Lisbon[/bold]" in cli("conversations", "list", "--user", "maya").stdout
    output = cli("conversations", "show", id, "--user", "maya").stdout
    assert "I moved to Lisbon." in output
    assert "I see." in output
    last = as_json("conversations", "show", id, "--user", "maya", "-n", "2")["messages"]
    assert [each["text"] for each in last] == ["I sing.", "I see."]
    assert as_json("conversations", "list", "--user", "maya", "--status", "closed") == []


def test_closing_a_conversation_makes_memories_of_it(cli: Cli, as_json: Json) -> None:
    id = store_conversation("I moved to Lisbon.")
    closed = as_json("conversations", "close", id, "--user", "maya")
    assert (closed["status"], closed["remembered"]) == ("closed", True)
    atoms = as_json("atoms", "list", "--user", "maya")
    assert "User: I moved to Lisbon." in [each["text"] for each in atoms]
    [source_id] = {each["source_conversation_id"] for each in atoms}
    assert source_id == id
    output = cli("atoms", "show", atoms[-1]["id"], "--user", "maya").stdout
    assert f'user: "I moved to Lisbon." ({id})' in output
    [job] = as_json("jobs", "list", "--user", "maya", "--status", "done")
    assert job["conversation_id"] == id
    retried = as_json("jobs", "retry", job["id"], "--user", "maya")
    assert retried["status"] == "queued"
    assert as_json("jobs", "drain", "--user", "maya") == {"failed": 0}
    assert len(as_json("atoms", "list", "--user", "maya")) == len(atoms)


def test_what_is_closed_without_waiting_is_left_to_a_worker(cli: Cli, as_json: Json) -> None:
    id = store_conversation("I moved to Lisbon.")
    assert "a worker makes its memories" in cli("conversations", "close", id, "-u", "maya", "--no-wait").stdout
    assert as_json("atoms", "list", "--user", "maya") == []
    assert "Nothing is left to do." in cli("jobs", "drain", "--user", "maya").stdout
    assert as_json("atoms", "list", "--user", "maya")
    assert "done" in cli("jobs", "list", "--everyone").stdout
    assert "There are no such jobs." in cli("jobs", "list", "--user", "tom").stderr


def test_a_job_of_another_user_is_unknown(as_json: Json, error_output: ErrorOutput) -> None:
    id = store_conversation("I moved to Lisbon.")
    as_json("conversations", "close", id, "--user", "maya")
    [job] = as_json("jobs", "list", "--everyone")
    assert "There is no job" in error_output("jobs", "retry", job["id"], "--user", "tom")


def test_an_export_goes_to_a_file_or_to_the_output(cli: Cli, as_json: Json, tmp_path: Path) -> None:
    id = store_conversation("I moved to Lisbon.")
    printed = json.loads(cli("export", "--user", "maya").stdout)
    assert [each["id"] for each in printed["conversations"]] == [id]
    assert "2 messages" in cli("export", "--user", "maya", "--to", "maya.json").stdout
    assert json.loads((tmp_path / "maya.json").read_text())["conversations"] == printed["conversations"]
    report = as_json("export", "--user", "maya", "--to", "maya.zip")
    assert (report["path"], report["format"], report["counts"]["messages"]) == ("maya.zip", "zip", 2)
    with zipfile.ZipFile("maya.zip") as archive:
        assert "conversations.jsonl" in archive.namelist()


def test_who_has_nothing_but_a_key_is_given_that(cli: Cli, as_json: Json) -> None:
    store_conversation("I am Tom.", user="tom")
    created = as_json("keys", "create", "--url", "tellback.db", "--role", "user", "--user", "maya")
    assert [each["id"] for each in json.loads(cli("export", "--user", "maya").stdout)["api_keys"]] == [created["id"]]


def test_an_export_on_a_terminal_holds_nothing_that_it_obeys(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    store_conversation("I moved \x9b31m to \u202eLisbon, olá.")
    piped = cli("export", "--user", "maya").stdout
    monkeypatch.setattr("tellback.cli.data._is_terminal", lambda: True)
    output = cli("export", "--user", "maya").stdout
    assert "\x9b" in piped
    assert "\x9b" not in output
    assert "\u202e" not in output
    assert "olá" in output
    assert json.loads(output)["conversations"] == json.loads(piped)["conversations"]


def test_a_password_in_the_address_of_a_store_is_not_repeated(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def outdated_store(url: str, **_: object) -> StoreInfo:
        return StoreInfo("PostgreSQL", "postgresql://db/x", True, 1, 2)

    monkeypatch.setattr(diagnostics, "inspect_store", outdated_store)
    output = cli("doctor", "--json", "--url", "postgresql://u:secret@db/x").stdout
    assert "tellback migrate, with the same --url" in output
    assert "secret" not in output
    store_conversation("I moved to Lisbon.")
    address = "sqlite:///tellback.db?timeout=secret"
    monkeypatch.setattr("tellback.cli.data.run_for_user", lambda *_: {})
    assert "secret" not in cli("delete", "--user", "may", "--yes", "--url", address).stdout


def test_all_of_a_user_is_deleted_once_the_id_is_typed(cli: Cli, as_json: Json, error_output: ErrorOutput) -> None:
    store_conversation("I moved to Lisbon.")
    store_conversation("I am Tom.", user="tom")
    result = cli("delete", "--user", "maya", input="tom\n", code=2)
    assert "Nothing was deleted: that was not the user's id." in result.stderr
    assert "Nothing was deleted" in cli("delete", "--user", "maya", input="\n", code=2).stderr
    assert len(as_json("conversations", "list", "--user", "maya")) == 1
    output = cli("delete", "--user", "maya", input="maya\n").stdout
    assert "All that was kept of maya is deleted:" in output
    assert "2        messages" in output
    assert as_json("conversations", "list", "--user", "maya") == []
    assert "There was nothing of user 'maya'" in cli("delete", "--user", "maya", "--yes").stdout
    assert as_json("delete", "--user", "tom", "--yes")["conversations"] == 1


def test_nothing_is_deleted_where_nobody_can_be_asked(cli: Cli, as_json: Json) -> None:
    store_conversation("I moved to Lisbon.")
    cli("delete", "--user", "maya", input="", code=1)
    assert len(as_json("conversations", "list", "--user", "maya")) == 1


def test_export_and_deletion_say_what_is_wrong(error_output: ErrorOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    store_conversation("I moved to Lisbon.")
    assert "User 'may' has no data here: check --user" in error_output("export", "--user", "may")
    assert "'maya.txt' ends neither in .json nor in .zip" in error_output(
        "export", "--user", "maya", "--to", "maya.txt"
    )
    assert "No such file or directory" in error_output("export", "--user", "maya", "--to", "no/such/maya.json")

    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", "locked/maya.json")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    assert error_output("export", "--user", "maya", "--to", "locked/maya.json") == (
        "locked/maya.json cannot be used: Permission denied."
    )


def version_of(path: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT MAX(version) FROM tellback_migrations").fetchone()[0])


def test_a_store_is_migrated_when_asked_and_not_when_looked_at(
    cli: Cli, as_json: Json, error_output: ErrorOutput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases, old, new = Releases(tmp_path, monkeypatch), FIRST_VERSION, LAST_VERSION
    releases.use_version(old)
    with Tellback("old.db", worker=False):
        assert version_of("old.db") == old
    releases.use_version(new)
    output = cli("migrate", "--check", "--url", "old.db", code=1).stdout
    assert f"has schema version {old}, and this release needs {new}" in output
    found = as_json("migrate", "--check", "--url", "old.db", code=1)
    assert (found["version"], found["needed"], found["migrated_from"]) == (old, new, None)
    as_json("doctor", "--url", "old.db")
    assert version_of("old.db") == old
    assert f"was migrated from schema version {old} to {new}" in cli("migrate", "--url", "old.db").stdout
    assert version_of("old.db") == new
    assert "which is what this release needs" in cli("migrate", "--check", "--url", "old.db").stdout
    with closing(sqlite3.connect("old.db")) as connection, connection:
        connection.execute("INSERT INTO tellback_migrations VALUES (999, 'later', 0)")
    assert "upgrade this one" in error_output("migrate", "--url", "old.db")
    assert not Path("new.db").exists()
    assert "There is no store at new.db" in error_output("migrate", "--url", "new.db")
    assert not Path("new.db").exists()
