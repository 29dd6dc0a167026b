"""Conversations, jobs, export, deletion and migration on the command line."""

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
    """Store a conversation that is bound to a memory space, and return its id."""

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


def test_closing_a_conversation_extracts_its_memories(cli: Cli, as_json: Json) -> None:
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


def test_close_with_no_wait_leaves_the_extraction_to_a_worker(cli: Cli, as_json: Json) -> None:
    id = store_conversation("I moved to Lisbon.")
    assert (
        "A worker or `tellback jobs drain` extracts its memories."
        in cli("conversations", "close", id, "-u", "maya", "--no-wait").stdout
    )
    assert as_json("atoms", "list", "--user", "maya") == []
    assert "All due jobs are done." in cli("jobs", "drain", "--user", "maya").stdout
    assert as_json("atoms", "list", "--user", "maya")
    assert "done" in cli("jobs", "list", "--everyone").stdout
    assert "No matching jobs." in cli("jobs", "list", "--user", "tom").stderr


def test_a_job_of_another_user_is_not_found(as_json: Json, error_output: ErrorOutput) -> None:
    id = store_conversation("I moved to Lisbon.")
    as_json("conversations", "close", id, "--user", "maya")
    [job] = as_json("jobs", "list", "--everyone")
    assert "There is no job" in error_output("jobs", "retry", job["id"], "--user", "tom")


def test_an_export_goes_to_a_file_or_to_standard_output(cli: Cli, as_json: Json, tmp_path: Path) -> None:
    id = store_conversation("I moved to Lisbon.")
    printed = json.loads(cli("export", "--user", "maya").stdout)
    assert [each["id"] for each in printed["conversations"]] == [id]
    assert "messages: 2" in cli("export", "--user", "maya", "--to", "maya.json").stdout
    assert json.loads((tmp_path / "maya.json").read_text())["conversations"] == printed["conversations"]
    report = as_json("export", "--user", "maya", "--to", "maya.zip")
    assert (report["path"], report["format"], report["counts"]["messages"]) == ("maya.zip", "zip", 2)
    with zipfile.ZipFile("maya.zip") as archive:
        assert "conversations.jsonl" in archive.namelist()


def test_the_export_of_a_user_with_only_an_api_key_contains_the_key(cli: Cli, as_json: Json) -> None:
    store_conversation("I am Tom.", user="tom")
    created = as_json("keys", "create", "--url", "tellback.db", "--role", "user", "--user", "maya")
    assert [each["id"] for each in json.loads(cli("export", "--user", "maya").stdout)["api_keys"]] == [created["id"]]


def test_an_export_printed_to_a_terminal_escapes_control_characters(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    store_conversation("I moved \x9b31m to \u202eLisbon, olá.")
    piped = cli("export", "--user", "maya").stdout
    monkeypatch.setattr("tellback.cli.data._is_terminal", lambda: True)
    output = cli("export", "--user", "maya").stdout
    assert "\x9b" in piped
    assert "\x9b" not in output
    assert "\u202e" not in output
    assert "olá" in output
    assert json.loads(output)["conversations"] == json.loads(piped)["conversations"]


def test_passwords_in_store_urls_are_not_printed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_delete_requires_the_users_id_and_removes_all_their_data(
    cli: Cli, as_json: Json, error_output: ErrorOutput
) -> None:
    store_conversation("I moved to Lisbon.")
    store_conversation("I am Tom.", user="tom")
    result = cli("delete", "--user", "maya", input="tom\n", code=2)
    assert "Nothing was deleted: the typed id does not match." in result.stderr
    assert "Nothing was deleted" in cli("delete", "--user", "maya", input="\n", code=2).stderr
    assert len(as_json("conversations", "list", "--user", "maya")) == 1
    output = cli("delete", "--user", "maya", input="maya\n").stdout
    assert "Deleted all data of maya:" in output
    assert "2        messages" in output
    assert as_json("conversations", "list", "--user", "maya") == []
    hint = "Check --user, --tenant, --app and --url."
    assert f"User 'maya' has no data. {hint}" in cli("delete", "--user", "maya", "--yes").stdout
    elsewhere = cli("delete", "--user", "maya", "--tenant", "acme", input="maya\n")
    assert f"User 'maya' in tenant acme, app default has no data. {hint}" in elsewhere.stdout
    assert "delete all data of this user in tenant acme, app default:" in elsewhere.stderr
    assert as_json("delete", "--user", "tom", "--yes")["conversations"] == 1


def test_delete_without_input_for_the_confirmation_deletes_nothing(cli: Cli, as_json: Json) -> None:
    store_conversation("I moved to Lisbon.")
    cli("delete", "--user", "maya", input="", code=1)
    assert len(as_json("conversations", "list", "--user", "maya")) == 1


def test_failed_exports_report_the_cause(error_output: ErrorOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    store_conversation("I moved to Lisbon.")
    assert "User 'may' has no data. Check --user" in error_output("export", "--user", "may")
    assert "'maya.txt' does not end in .json or .zip" in error_output("export", "--user", "maya", "--to", "maya.txt")
    assert "No such file or directory" in error_output("export", "--user", "maya", "--to", "no/such/maya.json")

    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", "locked/maya.json")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    assert error_output("export", "--user", "maya", "--to", "locked/maya.json") == (
        "Cannot access locked/maya.json: Permission denied."
    )


def version_of(path: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT MAX(version) FROM tellback_migrations").fetchone()[0])


def test_migrate_migrates_a_store_but_check_and_doctor_do_not(
    cli: Cli, as_json: Json, error_output: ErrorOutput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases, old, new = Releases(tmp_path, monkeypatch), FIRST_VERSION, LAST_VERSION
    releases.use_version(old)
    with Tellback("old.db", worker=False):
        assert version_of("old.db") == old
    releases.use_version(new)
    output = cli("migrate", "--check", "--url", "old.db", code=1).stdout
    assert f"has schema version {old}, but this release needs {new}" in output
    found = as_json("migrate", "--check", "--url", "old.db", code=1)
    assert (found["version"], found["needed"], found["migrated_from"]) == (old, new, None)
    as_json("doctor", "--url", "old.db")
    assert version_of("old.db") == old
    assert f"Migrated old.db from schema version {old} to {new}" in cli("migrate", "--url", "old.db").stdout
    assert version_of("old.db") == new
    assert "old.db is up to date" in cli("migrate", "--check", "--url", "old.db").stdout
    with closing(sqlite3.connect("old.db")) as connection, connection:
        connection.execute("INSERT INTO tellback_migrations VALUES (999, 'later', 0)")
    assert "upgrade Tellback" in error_output("migrate", "--url", "old.db")
    assert not Path("new.db").exists()
    assert "There is no store at new.db" in error_output("migrate", "--url", "new.db")
    assert not Path("new.db").exists()
