"""Typical mistakes of new users: each one gets a single clear sentence."""

from __future__ import annotations

import asyncio
import io
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tellback import Tellback
from tellback.cli import main
from tests.integration.chat.providers.vendors import Anthropic
from tests.support.fake_http_server import FakeHttpServer
from tests.unit.cli.conftest import Cli

pytestmark = pytest.mark.slow

ErrorOutput = Callable[..., str]

READING = (
    ["atoms", "list"],
    ["recall", "food"],
    ["timeline"],
    ["entities", "list"],
    ["spaces", "list"],
    ["conversations", "list"],
    ["jobs", "list"],
    ["jobs", "drain"],
    ["export"],
    ["delete", "--user", "maya", "--yes"],
    ["keys", "list"],
    ["keys", "revoke", "key_1"],
)


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_read_commands_do_not_create_a_missing_store(
    arguments: list[str], error_output: ErrorOutput, tmp_path: Path
) -> None:
    output = error_output(*arguments, "--url", "telback.db")
    assert output.startswith("There is no store at telback.db: pass --url, set TELLBACK_URL")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["chat", "Hi"], ["atoms", "list"], ["migrate"], ["atoms", "add", "x"]], ids=" ".join
)
def test_files_of_other_programs_are_not_changed(arguments: list[str], error_output: ErrorOutput) -> None:
    with closing(sqlite3.connect("photos.db")) as connection, connection:
        connection.execute("CREATE TABLE photos (id)")
    Path("notes.txt").write_text("This text is not a database. It is longer than the header of a SQLite file.")
    before = Path("photos.db").read_bytes()
    assert error_output(*arguments, "--url", "photos.db") == (
        "photos.db belongs to another program (it has the table 'photos'): pass another file with --url."
    )
    assert Path("photos.db").read_bytes() == before
    assert "notes.txt is not a Tellback store, because it is not a SQLite file" in error_output(
        *arguments, "--url", "notes.txt"
    )
    Path("folder").mkdir()
    assert "folder is a folder: pass a file in it, such as --url folder" in error_output(*arguments, "--url", "folder")


def test_a_damaged_store_is_reported(error_output: ErrorOutput, as_json: Callable[..., Any]) -> None:
    async def create_store() -> None:
        async with Tellback("tellback.db", worker=False) as tb:
            conversation = await tb.user("local").conversations.create("chat")
            for number in range(200):
                await tb.user("local").conversations.append_user_message(conversation.id, f"Message {number} " * 20)

    asyncio.run(create_store())
    content = bytearray(Path("tellback.db").read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    Path("tellback.db").write_bytes(content)
    output = error_output("chat", "Hi")
    assert output.startswith("tellback.db is not a valid SQLite database")
    assert "Restore it from a backup" in output
    [store] = [each for each in as_json("doctor", code=1)["checks"] if each["what"] == "store"]
    assert store["status"] == "fail"


def test_an_unreadable_store_file_is_reported(error_output: ErrorOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tellback.db").write_bytes(b"SQLite format 3\x00")

    def refuse(self: Path, *_: object, **__: object) -> Any:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)  # file permissions do not stop root, who may run this test
    assert error_output("atoms", "list") == (
        "tellback.db cannot be read: Permission denied. Check the permissions of the file and its folder."
    )


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="requires /proc, where even root cannot create files")
def test_a_folder_that_is_not_writable_is_reported(error_output: ErrorOutput) -> None:
    assert "/proc/tellback.db" in error_output("chat", "Hi", "--url", "/proc/tellback.db")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chat", "Hi", "--url", "mysql://x"], "Unknown store scheme mysql://"),
        (["atoms", "list", "--url", ":memory:"], "An in-memory store is lost when this command exits"),
        (["atoms", "list", "--url", "postgresql://127.0.0.1:1/none"], "cannot be reached"),
        (["atoms", "list", "--url", "postgresql://u:p@[::1/x"], "Malformed store URL: Invalid IPv6 URL."),
        (["migrate", "--url", "postgresql://127.0.0.1:1/none"], "cannot be reached"),
        (["chat", "Hi", "--user", "*"], "user_id cannot be '*'"),
        (["chat", "Hi", "--user", " "], "user_id"),
        (["chat", "Hi", "--model", "gtp-5"], "Run `tellback doctor` to see the available models."),
        (["chat", "Hi", "--model", "claude-sonnet-5"], "requires an API key: set ANTHROPIC_API_KEY"),
        (["chat", "Hi", "--conversation", "conv_x"], "There is no conversation 'conv_x'"),
        (["chat", "Hi", "--new", "--conversation", "conv_x"], "cannot be used together"),
        (["chat", "Hi", "--agent", "nowhere"], "There are no agents at nowhere"),
        (["chat", "Hi", "--agent", "nowhere.yaml"], "nowhere.yaml"),
        (["chat", "Hi", "--agent", "no_such_module:agent"], "no_such_module"),
    ],
)
def test_unknown_names_are_reported(arguments: list[str], words: str, error_output: ErrorOutput) -> None:
    output = error_output(*arguments)
    assert words in output.replace("│ ", "").replace(" │", "")


async def test_a_rejected_api_key_is_reported_without_the_key(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeHttpServer(lambda _: Anthropic().failure(401, "invalid x-api-key")) as wire:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", wire.url)
        result = await asyncio.to_thread(cli, "chat", "Hi", code=2)
    assert "rejected the API key (401): check the key, or choose another model with --model" in result.stderr
    assert "sk-secret" not in result.output
    assert len(result.stderr.splitlines()) == 1


def test_a_missing_store_extra_is_reported(error_output: ErrorOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "asyncpg"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [each for each in sys.modules if each.startswith("tellback.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    output = error_output("atoms", "list", "--url", "postgresql://127.0.0.1:1/none")
    assert output == "The PostgreSQL store needs the package 'asyncpg': pip install 'tellback[postgres]'."


def test_a_missing_provider_extra_is_reported(error_output: ErrorOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    for name in [each for each in sys.modules if each.partition(".")[0] == "anthropic"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [each for each in sys.modules if each.startswith("tellback.chat.providers.anthropic")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "anthropic", None)
    output = error_output("chat", "Hi", "--model", "claude-sonnet-5")
    assert "pip install 'tellback[anthropic]'" in output


def test_an_old_python_version_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 2, "final", 0))
    with pytest.raises(SystemExit, match=r"requires Python 3\.11 or later, but this is Python 3\.10"):
        main()


def test_characters_outside_the_terminals_encoding_are_escaped(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("atoms", "add", "Maya lives in São Paulo 東京.")
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", narrow)
    monkeypatch.setattr(sys, "argv", ["tellback", "atoms", "list"])
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 0
    narrow.flush()
    assert b"S\xe3o Paulo \\u6771\\u4eac." in narrow.buffer.getvalue()
