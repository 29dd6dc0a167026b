"""`tellback export` and `tellback delete`: all that is kept of a user."""

from __future__ import annotations

import io
import sys
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellback.cli.options import DEFAULT_URL, DEFAULT_USER, App, AsJson, Tenant, Url, User
from tellback.cli.printing import console, harmless_json, say, show_json, show_table
from tellback.cli.running import Whose, ask, fail, unknown_user

if TYPE_CHECKING:
    from tellback.admin import Erased, ExportReport
    from tellback.user import User as Handle


class Form(StrEnum):
    """How an export is written."""

    JSON = "json"
    ZIP = "zip"


def export(
    to: Annotated[
        Path | None,
        typer.Option("--to", "-o", help="The file, .json or .zip; without one, JSON on standard output."),
    ] = None,
    format: Annotated[Form | None, typer.Option("--format", help="Where the file's name does not say it.")] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="Also the vectors of memories.")] = False,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Hand out all that is kept of a user: conversations, memories, jobs, costs, keys.

    A file appears only when it is complete, and only its owner may read it. With --json the counts are printed as
    JSON; the export itself is JSON on standard output anyway.
    """
    is_shown = to is None and _is_terminal()
    if is_shown and format is Form.ZIP:
        raise typer.BadParameter("a .zip is not for a terminal: name a file with --to.", param_hint="--format")
    whose = Whose(url, user, tenant, app_id)
    held = io.BytesIO()

    async def work(handle: Handle) -> ExportReport:
        if not await _is_known(handle):
            raise unknown_user(handle, "data")
        with console(stderr=True).status("Exporting…") as status:

            def progress(done: int) -> None:
                if done % 100 == 0:
                    status.update(f"Exporting: {done} records")

            return await handle.admin.export_user_data(
                to=to or (held if is_shown else sys.stdout.buffer),
                format=None if format is None else format.value,
                on_progress=progress,
                include_vectors=vectors,
            )

    report = ask(whose, work)
    if is_shown:
        typer.echo(harmless_json(held.getvalue().decode()))
    if to is None:
        return
    if as_json:
        show_json(report)
    else:
        say(f"All that is kept of {user} is in {to}: {_counted(report.counts)}.")


def delete(
    user: Annotated[str, typer.Option("--user", "-u", help="Whose data to delete.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Delete all that is kept of a user, for good: conversations, memories, jobs, costs, keys.

    It asks for the user's id first. Nothing of it is left in any table or file of the store afterwards.
    """
    whose = Whose(url, user, tenant, app_id)
    if not yes:
        _confirm(user)

    async def work(handle: Handle) -> Erased:
        return await handle.admin.delete_user_data(confirm=True)

    erased = ask(whose, work)
    if as_json:
        show_json(dict(erased))
    elif not any(erased.values()):
        say(f"There was nothing of user {user!r} there.")
    else:
        say(f"All that was kept of {user} is deleted:")
        show_table(("DELETED", "WHAT"), [(str(count), name) for name, count in erased.items() if count])


def _confirm(user: str) -> None:
    typed = typer.prompt(f"Type the user's id ({user}) to delete all that is kept of them", default="", err=True)
    if typed.strip() != user:
        fail("Nothing was deleted: that was not the user's id.")


async def _is_known(user: Handle) -> bool:
    async with aclosing(user.admin.export_stream()) as records:
        return await anext(records, None) is not None


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _counted(counts: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing"
