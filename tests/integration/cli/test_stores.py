"""Inspecting and migrating a PostgreSQL store."""

from __future__ import annotations

import asyncio

import pytest
from typer.testing import CliRunner

from tellback import Tellback
from tellback.cli.app import app
from tellback.cli.diagnostics import inspect_store
from tellback.stores.catalogue import migrations


@pytest.mark.backend("PostgreSQL")
async def test_a_database_is_inspected_before_and_after_its_migration(postgres_url: str) -> None:
    newest = migrations("postgres")[-1].version

    def migrate(*extra_args: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["migrate", "--url", postgres_url, *extra_args], catch_exceptions=False)
        return result.exit_code, result.output

    found = await inspect_store(postgres_url)
    assert (found.exists, found.version, found.needed) == (False, 0, newest)
    code, output = await asyncio.to_thread(migrate, "--check")
    assert (code, f"this release needs {newest}" in output) == (1, True)
    assert not (await inspect_store(postgres_url)).exists
    code, output = await asyncio.to_thread(migrate)
    assert (code, f"from schema version 0 to {newest}" in output) == (0, True)
    found = await inspect_store(postgres_url)
    assert (found.exists, found.version, found.is_behind) == (True, newest, False)
    assert "secret" not in found.place
    async with Tellback(postgres_url, worker=False) as tb:
        await tb.user("maya").conversations.create("chat")
    code, output = await asyncio.to_thread(migrate, "--check")
    assert (code, "is up to date" in output) == (0, True)
