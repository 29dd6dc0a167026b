"""`tellback spaces`: the parts of a user's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import DEFAULT_URL, DEFAULT_USER, App, AsJson, Tenant, Url, User, command, examples
from tellback.cli.printing import day, say, show_json, show_table
from tellback.cli.running import Whose, ask, nothing_of

if TYPE_CHECKING:
    from tellback.types.memory import MemorySpace
    from tellback.user import User as Handle

app = typer.Typer(
    no_args_is_help=True,
    help="List and make memory spaces: the parts of a user's memory.",
    epilog=examples("tellback spaces list --user maya"),
)


@command(app, "tellback spaces list --user maya", name="list")
def list_spaces(
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """List a user's memory spaces, the oldest first."""

    async def work(handle: Handle) -> tuple[list[MemorySpace], str]:
        return await handle.memory.list_spaces(), nothing_of(handle, "memory space")

    found, nothing = ask(Whose(url, user, tenant, app_id), work)
    if as_json:
        show_json(found)
    elif not found:
        say(nothing, stderr=True)
    else:
        rows = [(each.id, each.name, str(each.atom_count), day(each.created_at)) for each in found]
        show_table(("ID", "NAME", "ATOMS", "SINCE"), rows, head="NAME")


@command(app, "tellback spaces create work --user maya")
def create(
    name: Annotated[str, typer.Argument(help="What it is called.", show_default=False)],
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Make a memory space. If there is one of that name, that one is given."""
    made = ask(Whose(url, user, tenant, app_id), lambda handle: handle.memory.create_space(name, once=True), new=True)
    if as_json:
        show_json(made)
    else:
        say(f"{made.name} is {made.id}.")
