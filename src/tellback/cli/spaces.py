"""`tellback spaces`: the parts of a user's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import (
    DEFAULT_URL,
    DEFAULT_USER,
    AppOption,
    JsonOption,
    TenantOption,
    UrlOption,
    UserOption,
    format_examples,
    register_command,
)
from tellback.cli.printing import format_date, print_json, print_line, print_table
from tellback.cli.running import UserTarget, format_missing_data, run_for_user

if TYPE_CHECKING:
    from tellback.types.memory import MemorySpace
    from tellback.user import User as Handle

spaces_app = typer.Typer(
    no_args_is_help=True,
    help="List and make memory spaces: the parts of a user's memory.",
    epilog=format_examples("tellback spaces list --user maya"),
)


@register_command(spaces_app, "tellback spaces list --user maya", name="list")
def list_spaces(
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List a user's memory spaces, the oldest first."""

    async def load(handle: Handle) -> tuple[list[MemorySpace], str]:
        return await handle.memory.list_spaces(), format_missing_data(handle, "memory space")

    found, empty_note = run_for_user(UserTarget(url, user, tenant, app_id), load)
    if as_json:
        print_json(found)
    elif not found:
        print_line(empty_note, stderr=True)
    else:
        rows = [(each.id, each.name, str(each.atom_count), format_date(each.created_at)) for each in found]
        print_table(("ID", "NAME", "ATOMS", "SINCE"), rows, title_column="NAME")


@register_command(spaces_app, "tellback spaces create work --user maya")
def create(
    name: Annotated[str, typer.Argument(help="What it is called.", show_default=False)],
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Make a memory space. If there is one of that name, that one is given."""
    space = run_for_user(
        UserTarget(url, user, tenant, app_id),
        lambda handle: handle.memory.create_space(name, once=True),
        may_create=True,
    )
    if as_json:
        print_json(space)
    else:
        print_line(f"{space.name} is {space.id}.")
