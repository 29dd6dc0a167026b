"""`tellback migrate`: the version of a store's tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import DEFAULT_URL, AsJson, Url
from tellback.cli.printing import plain, say, show_json
from tellback.cli.running import fail, opened, run

if TYPE_CHECKING:
    from tellback.cli.looking import StoreLook


def migrate(
    url: Url = DEFAULT_URL,
    check: Annotated[
        bool, typer.Option("--check", help="Only tell, and change nothing; exits with 1 if it is behind.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a store's tables to this release's version, or tell how far they are.

    Opening a store migrates it, too. Do it on its own where many processes share one, before they start. Keep a copy
    of the file or a dump of the database: an earlier release cannot open what was migrated.
    """
    from tellback.cli.looking import look

    before = run(lambda: look(url))
    if before.is_ahead:
        fail(
            f"{before.place} has schema version {before.version}, and this release knows up to {before.needed}:"
            " a newer Tellback has migrated it, so upgrade this one."
        )
    after = before
    if not before.exists:
        if before.kind == "SQLite":
            fail(f"There is no store at {before.place}: name another with --url or TELLBACK_URL.")
        check or run(lambda: _migrated(url))
        after = before if check else replace(before, exists=True, version=before.needed)
    elif before.is_behind and not check:
        run(lambda: _migrated(url))
        after = run(lambda: look(url))
    is_behind = after.version < after.needed
    if as_json:
        show_json({**_plain(after), "migrated_from": before.version if after.version != before.version else None})
    elif is_behind:
        say(
            f"{after.place} has schema version {after.version}, and this release needs {after.needed}:"
            " `tellback migrate` brings it there."
        )
    elif after.version != before.version:
        say(f"{after.place} was migrated from schema version {before.version} to {after.version}.")
    else:
        say(f"{after.place} has schema version {after.version}, which is what this release needs.")
    raise typer.Exit(1 if is_behind else 0)


async def _migrated(url: str) -> None:
    async with opened(url, embedder=None):
        pass  # opening it is what migrates it


def _plain(found: StoreLook) -> dict[str, object]:
    known: dict[str, object] = plain(found)
    return {name: known[name] for name in ("kind", "place", "version", "needed")}
