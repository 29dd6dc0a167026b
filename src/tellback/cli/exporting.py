"""`tellback export` and `tellback delete`: all that is kept of a user."""

from __future__ import annotations

import io
import sys
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellback.cli.options import DEFAULT_URL, DEFAULT_USER, AppOption, JsonOption, TenantOption, UrlOption, UserOption
from tellback.cli.printing import create_console, escape_json, print_json, print_line, print_table
from tellback.cli.running import UserTarget, fail, missing_data_error, run_for_user

if TYPE_CHECKING:
    from tellback.admin import ErasureReport, ExportReport
    from tellback.user import User as Handle


class ExportFormatName(StrEnum):
    """How an export is written."""

    JSON = "json"
    ZIP = "zip"


def export(
    to: Annotated[
        Path | None,
        typer.Option("--to", "-o", help="The file, .json or .zip; without one, JSON on standard output."),
    ] = None,
    format: Annotated[
        ExportFormatName | None, typer.Option("--format", help="Where the file's name does not say it.")
    ] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="Also the vectors of memories.")] = False,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Hand out all that is kept of a user: conversations, memories, jobs, costs, keys.

    A file appears only when it is complete, and only its owner may read it. With --json the counts are printed as
    JSON; the export itself is JSON on standard output anyway.
    """
    prints_to_terminal = to is None and _is_terminal()
    if prints_to_terminal and format is ExportFormatName.ZIP:
        raise typer.BadParameter("a .zip is not for a terminal: name a file with --to.", param_hint="--format")
    target = UserTarget(url, user, tenant, app_id)
    buffer = io.BytesIO()

    async def run_export(handle: Handle) -> ExportReport:
        if not await _has_data(handle):
            raise missing_data_error(handle, "data")
        with create_console(stderr=True).status("Exporting…") as status:

            def progress(done: int) -> None:
                if done % 100 == 0:
                    status.update(f"Exporting: {done} records")

            return await handle.admin.export_user_data(
                to=to or (buffer if prints_to_terminal else sys.stdout.buffer),
                format=None if format is None else format.value,
                on_progress=progress,
                include_vectors=vectors,
            )

    report = run_for_user(target, run_export)
    if prints_to_terminal:
        typer.echo(escape_json(buffer.getvalue().decode()))
    if to is None:
        return
    if as_json:
        print_json(report)
    else:
        print_line(f"All that is kept of {user} is in {to}: {_format_counts(report.counts)}.")


def delete(
    user: Annotated[str, typer.Option("--user", "-u", help="Whose data to delete.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: UrlOption = DEFAULT_URL,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Delete all that is kept of a user, for good: conversations, memories, jobs, costs, keys.

    It asks for the user's id first. Nothing of it is left in any table or file of the store afterwards.
    """
    target = UserTarget(url, user, tenant, app_id)
    if not yes:
        _confirm_deletion(user)

    async def run_delete(handle: Handle) -> ErasureReport:
        return await handle.admin.delete_user_data(confirm=True)

    erased = run_for_user(target, run_delete)
    if as_json:
        print_json(dict(erased))
    elif not any(erased.values()):
        print_line(f"There was nothing of user {user!r} there.")
    else:
        print_line(f"All that was kept of {user} is deleted:")
        print_table(("DELETED", "WHAT"), [(str(count), name) for name, count in erased.items() if count])


def _confirm_deletion(user: str) -> None:
    typed = typer.prompt(f"Type the user's id ({user}) to delete all that is kept of them", default="", err=True)
    if typed.strip() != user:
        fail("Nothing was deleted: that was not the user's id.")


async def _has_data(user: Handle) -> bool:
    async with aclosing(user.admin.export_stream()) as records:
        return await anext(records, None) is not None


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _format_counts(counts: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing"
