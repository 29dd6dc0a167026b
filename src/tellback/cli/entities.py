"""`tellback entities`: the people, places and things that memories are about."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import (
    DEFAULT_URL,
    DEFAULT_USER,
    App,
    AsJson,
    Limit,
    Space,
    Tenant,
    Url,
    User,
    command,
    examples,
)
from tellback.cli.printing import day, json_line, plain, say, show_json, show_pairs, show_table
from tellback.cli.running import Whose, ask, space_of
from tellback.cli.showing import ENTITY_COLUMNS, entity_rows, held, plain_atom
from tellback.errors import NotFoundError

if TYPE_CHECKING:
    from tellback.types.memory import Atom, Entity
    from tellback.user import User as Handle

app = typer.Typer(
    no_args_is_help=True,
    help="List, search, show and merge entities: whom and what memories are about.",
    epilog=examples("tellback entities list --user maya"),
)

SHOWN = 20
"""How many of an entity's memories are shown with it."""


class Type(StrEnum):
    """What an entity is."""

    PERSON = "person"
    ORGANIZATION = "organization"
    PLACE = "place"
    OBJECT = "object"
    CONCEPT = "concept"
    EVENT = "event"
    AGREEMENT = "agreement"


OfType = Annotated[Type | None, typer.Option("--type", "-t", help="Those of this type alone.")]
IdOrName = Annotated[str, typer.Argument(help="The entity's id, or its name.", show_default=False)]


@command(app, "tellback entities list --user maya --type person", name="list")
def list_entities(
    space: Space = None,
    type: OfType = None,
    limit: Limit = 50,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """List what memories are about, the oldest first."""

    async def work(handle: Handle) -> list[Entity]:
        found = await space_of(handle, space)
        return await handle.memory.list_entities(found.id, _upper(type), limit)

    _show(ask(Whose(url, user, tenant, app_id), work), as_json)


@command(app, 'tellback entities search "sister" --user maya')
def search(
    query: Annotated[str, typer.Argument(help="A name, or words of a description.", show_default=False)],
    space: Space = None,
    type: OfType = None,
    limit: Limit = 20,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Search entities by name and description, the best first."""

    async def work(handle: Handle) -> list[Entity]:
        found = await space_of(handle, space)
        return await handle.memory.search_entities(found.id, query, _upper(type), limit)

    _show(ask(Whose(url, user, tenant, app_id), work), as_json)


@command(app, "tellback entities show Lena --user maya")
def show(
    entity: IdOrName,
    space: Space = None,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Show one entity, and what is remembered about it."""

    async def work(handle: Handle) -> tuple[Entity, list[Atom]]:
        found = await entity_of(handle, entity, space)
        recalled = await handle.memory.recall_by_entity(found.memory_space_id, found.id, SHOWN)
        return found, recalled.atoms

    found, atoms = ask(Whose(url, user, tenant, app_id), work)
    if as_json:
        show_json({**plain(found), "atoms": [plain_atom(atom) for atom in atoms]})
        return
    show_pairs(
        [
            ("id", found.id),
            ("name", found.canonical_name),
            ("also", ", ".join(found.aliases)),
            ("type", found.type.value.lower()),
            ("description", found.description or ""),
            ("attributes", json_line(found.attributes) if found.attributes else ""),
            ("merged into", found.merged_into or ""),
            ("spoken of", f"{day(found.first_seen_at)} to {day(found.last_seen_at)}" if found.first_seen_at else ""),
            *(("memory", f"{held(atom)}: {atom.text} ({atom.id})") for atom in atoms),
        ]
    )


@command(app, "tellback entities merge Lena ent_01J9 --user maya")
def merge(
    canonical: Annotated[str, typer.Argument(help="The one that stays, by id or name.", show_default=False)],
    alias: Annotated[str, typer.Argument(help="The one that is the same, by id or name.", show_default=False)],
    space: Space = None,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Let one entity stand for another: memories about both become memories about the first."""

    async def work(handle: Handle) -> Entity:
        stays = await entity_of(handle, canonical, space)
        goes = await entity_of(handle, alias, space)
        return await handle.memory.merge_entities(stays.id, goes.id)

    merged = ask(Whose(url, user, tenant, app_id), work)
    if as_json:
        show_json(merged)
    else:
        say(f"{merged.canonical_name} ({merged.id}) stands for both, also called {', '.join(merged.aliases)}.")


async def entity_of(user: Handle, id_or_name: str, space: str | None) -> Entity:
    """The entity of that id or name."""
    found = await user.memory.get_entity(id_or_name)
    if found is None:
        found = await user.memory.find_entity_by_name((await space_of(user, space)).id, None, id_or_name)
    if found is None:
        raise NotFoundError("entity", id_or_name, "`tellback entities list` shows those there are.")
    return found


def _upper(type: Type | None) -> str | None:
    return None if type is None else type.value.upper()


def _show(entities: list[Entity], as_json: bool) -> None:
    if as_json:
        show_json(entities)
    elif entities:
        show_table(ENTITY_COLUMNS, entity_rows(entities), head="NAME")
    else:
        say("There are no such entities.", stderr=True)
