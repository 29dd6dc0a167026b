"""The `tellback keys` commands, run as a separate process."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from tellback import Tellback
from tellback.api_keys import Keys
from tellback.errors import NotAuthenticatedError
from tests.integration.cli.support import run


async def keys(*arguments: str, **environment: str) -> str:
    """Run a command that must succeed, and return its output."""
    completed = await asyncio.to_thread(run, "keys", *arguments, **environment)
    assert completed.returncode == 0, completed.stderr
    assert "Traceback" not in completed.stderr
    return completed.stdout


async def test_a_key_is_created_listed_and_revoked(url: str) -> None:
    async with Tellback(url, worker=False) as tb:
        options = ("--role", "user", "--user", "maya", "--tenant", "acme", "--app", "web", "--name", "Phone")
        secret = (await keys("create", "--url", url, *options, "--expires", "90d", "--rate-limit", "7")).strip()
        key = await tb.keys.check(secret)
        assert (key.role, key.user_id, key.tenant_id, key.app_id) == ("user", "maya", "acme", "web")
        assert (key.name, key.rate_limit) == ("Phone", 7)
        assert key.expires_at == key.created_at + timedelta(days=90)
        assert secret not in await keys("list", "--url", url)
        assert await keys("revoke", "--url", url, key.id, "--tenant", "acme") == f"Revoked {key.id}.\n"
        with pytest.raises(NotAuthenticatedError, match="revoked"):
            await Keys(tb.store.api_keys, tb.clock).check(secret)  # a new instance with an empty cache


async def test_standard_output_contains_only_the_secret(tmp_path: Path) -> None:
    completed = await asyncio.to_thread(run, "keys", "create", TELLBACK_URL=str(tmp_path / "r.db"))
    assert completed.stdout.startswith("tb_")
    assert len(completed.stdout.split()) == 1
    assert "cannot be shown again" in completed.stderr
    assert completed.stdout.strip() not in completed.stderr


async def test_an_unknown_key_is_reported(tmp_path: Path) -> None:
    url = str(tmp_path / "r.db")
    await keys("create", "--url", url)
    completed = await asyncio.to_thread(run, "keys", "revoke", "key_x", TELLBACK_URL=url)
    assert completed.returncode != 0
    assert "There is no API key 'key_x' in this store." in completed.stderr


async def test_keys_commands_print_json(tmp_path: Path) -> None:
    url = str(tmp_path / "r.db")
    created = json.loads(await keys("create", "--url", url, "--expires", "2127-01-01", "--json"))
    assert (created["role"], created["expires_at"]) == ("app", "2127-01-01T00:00:00+00:00")
    secret = created.pop("secret")
    [listed] = json.loads(await keys("list", "--url", url, "--json"))
    assert listed == created
    assert secret not in json.dumps(listed)
    revoked = json.loads(await keys("revoke", "--url", url, created["id"], "--json"))
    assert revoked["revoked_at"] is not None


async def test_the_list_shows_scope_status_and_name(tmp_path: Path) -> None:
    url = str(tmp_path / "r.db")
    async with Tellback(url, worker=False) as tb:
        first = await tb.keys.create("user", name="Maya's \x1b[31mphone", user_id="maya")
        second = await tb.keys.create("admin", tenant_id="acme", expires_at="2127-01-01T00:00:00Z")
        await tb.keys.revoke(first.key.id)
    head, *lines = (await keys("list", "--url", url)).splitlines()
    assert head.split() == ["ID", "ROLE", "SCOPE", "STATUS", "NAME"]
    assert lines[0].split()[:5] == [first.key.id, "user", "default/default/maya", "revoked", lines[0].split()[4]]
    assert "\x1b" not in lines[0]
    assert "acme/default" in lines[1]
    assert "valid until 2127-01-01" in lines[1]
    acme_lines = (await keys("list", "--url", url, "--tenant", "acme")).splitlines()[1:]
    assert [line.split()[0] for line in acme_lines] == [second.key.id]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "--url", "FILE", "--role", "user"], "--user"),
        (["create", "--url", "FILE", "--user", "maya"], "--role user"),
        (["create", "--url", "FILE", "--role", "root"], "--role"),
        (["create", "--url", "FILE", "--expires", "soon"], "duration"),
        (["create", "--url", "FILE", "--expires", "2020-01-01"], "must be in the future"),
        (["create", "--url", "FILE", "--expires", "0d"], "must be in the future"),
        (["create", "--url", "FILE", "--rate-limit", "0"], "--rate-limit"),
        (["create", "--url", ":memory:"], "in-memory"),
        (["create", "--url", "sqlite://"], "in-memory"),
        (["create", "--url", "mysql://x"], "Unknown store scheme mysql:"),
        (["list", "--url", "postgresql://127.0.0.1:1/none"], "cannot be reached"),
        (["revoke", "--url", "FILE", "key_x"], "There is no store at"),
        (["list"], "--url"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(arguments: list[str], words: str, tmp_path: Path) -> None:
    completed = run("keys", *(str(tmp_path / "r.db") if each == "FILE" else each for each in arguments))
    assert (completed.returncode, completed.stdout) == (2, "")
    assert words in completed.stderr
    assert "Traceback" not in completed.stderr
