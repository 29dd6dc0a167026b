"""`tellback migrate`: the version of a store's tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import DEFAULT_URL, JsonOption, UrlOption
from tellback.cli.printing import print_json, print_line, to_json_value
from tellback.cli.running import fail, open_app, run_async

if TYPE_CHECKING:
    from tellback.cli.looking import StoreInfo


def migrate(
    url: UrlOption = DEFAULT_URL,
    check: Annotated[
        bool, typer.Option("--check", help="Only tell, and change nothing; exits with 1 if it is behind.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring a store's tables to this release's version, or tell how far they are.

    Opening a store migrates it, too. Do it on its own where many processes share one, before they start. Keep a copy
    of the file or a dump of the database: an earlier release cannot open what was migrated.
    """
    from tellback.cli.looking import inspect_store

    before = run_async(lambda: inspect_store(url))
    if before.is_ahead:
        fail(
            f"{before.place} has schema version {before.version}, and this release knows up to {before.needed}:"
            " a newer Tellback has migrated it, so upgrade this one."
        )
    after = before
    if not before.exists:
        if before.kind == "SQLite":
            fail(f"There is no store at {before.place}: name another with --url or TELLBACK_URL.")
        check or run_async(lambda: _migrate_store(url))
        after = before if check else replace(before, exists=True, version=before.needed)
    elif before.is_behind and not check:
        run_async(lambda: _migrate_store(url))
        after = run_async(lambda: inspect_store(url))
    is_behind = after.version < after.needed
    if as_json:
        print_json(
            {**_store_to_json(after), "migrated_from": before.version if after.version != before.version else None}
        )
    elif is_behind:
        print_line(
            f"{after.place} has schema version {after.version}, and this release needs {after.needed}:"
            " `tellback migrate` brings it there."
        )
    elif after.version != before.version:
        print_line(f"{after.place} was migrated from schema version {before.version} to {after.version}.")
    else:
        print_line(f"{after.place} has schema version {after.version}, which is what this release needs.")
    raise typer.Exit(1 if is_behind else 0)


async def _migrate_store(url: str) -> None:
    async with open_app(url, embedder=None):
        pass  # opening it is what migrates it


def _store_to_json(found: StoreInfo) -> dict[str, object]:
    fields: dict[str, object] = to_json_value(found)
    return {name: fields[name] for name in ("kind", "place", "version", "needed")}
