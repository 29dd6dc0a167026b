"""`tellback entities`: the people, places and things that memories are about."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import (
    DEFAULT_URL,
    DEFAULT_USER,
    AppOption,
    JsonOption,
    LimitOption,
    SpaceOption,
    TenantOption,
    UrlOption,
    UserOption,
    format_examples,
    register_command,
)
from tellback.cli.printing import (
    format_date,
    print_json,
    print_line,
    print_pairs,
    print_table,
    to_json_line,
    to_json_value,
)
from tellback.cli.running import UserTarget, resolve_space, run_for_user
from tellback.cli.showing import ENTITY_COLUMNS, atom_to_json, entity_rows, format_validity
from tellback.errors import NotFoundError

if TYPE_CHECKING:
    from tellback.types.memory import Atom, Entity
    from tellback.user import User as Handle

entities_app = typer.Typer(
    no_args_is_help=True,
    help="List, search, show and merge entities: whom and what memories are about.",
    epilog=format_examples("tellback entities list --user maya"),
)

MAX_ATOMS_SHOWN = 20
"""How many of an entity's memories are shown with it."""


class EntityTypeChoice(StrEnum):
    """What an entity is."""

    PERSON = "person"
    ORGANIZATION = "organization"
    PLACE = "place"
    OBJECT = "object"
    CONCEPT = "concept"
    EVENT = "event"
    AGREEMENT = "agreement"


EntityTypeOption = Annotated[EntityTypeChoice | None, typer.Option("--type", "-t", help="Those of this type alone.")]
EntityArgument = Annotated[str, typer.Argument(help="The entity's id, or its name.", show_default=False)]


@register_command(entities_app, "tellback entities list --user maya --type person", name="list")
def list_entities(
    space: SpaceOption = None,
    type: EntityTypeOption = None,
    limit: LimitOption = 50,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List what memories are about, the oldest first."""

    async def load(handle: Handle) -> list[Entity]:
        found = await resolve_space(handle, space)
        return await handle.memory.list_entities(found.id, _type_value(type), limit)

    _print_entities(run_for_user(UserTarget(url, user, tenant, app_id), load), as_json)


@register_command(entities_app, 'tellback entities search "sister" --user maya')
def search(
    query: Annotated[str, typer.Argument(help="A name, or words of a description.", show_default=False)],
    space: SpaceOption = None,
    type: EntityTypeOption = None,
    limit: LimitOption = 20,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Search entities by name and description, the best first."""

    async def load(handle: Handle) -> list[Entity]:
        found = await resolve_space(handle, space)
        return await handle.memory.search_entities(found.id, query, _type_value(type), limit)

    _print_entities(run_for_user(UserTarget(url, user, tenant, app_id), load), as_json)


@register_command(entities_app, "tellback entities show Lena --user maya")
def show(
    entity: EntityArgument,
    space: SpaceOption = None,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show one entity, and what is remembered about it."""

    async def load(handle: Handle) -> tuple[Entity, list[Atom]]:
        found = await find_entity(handle, entity, space)
        recalled = await handle.memory.recall_by_entity(found.memory_space_id, found.id, MAX_ATOMS_SHOWN)
        return found, recalled.atoms

    found, atoms = run_for_user(UserTarget(url, user, tenant, app_id), load)
    if as_json:
        print_json({**to_json_value(found), "atoms": [atom_to_json(atom) for atom in atoms]})
        return
    print_pairs(
        [
            ("id", found.id),
            ("name", found.canonical_name),
            ("also", ", ".join(found.aliases)),
            ("type", found.type.value.lower()),
            ("description", found.description or ""),
            ("attributes", to_json_line(found.attributes) if found.attributes else ""),
            ("merged into", found.merged_into or ""),
            (
                "spoken of",
                f"{format_date(found.first_seen_at)} to {format_date(found.last_seen_at)}"
                if found.first_seen_at
                else "",
            ),
            *(("memory", f"{format_validity(atom)}: {atom.text} ({atom.id})") for atom in atoms),
        ]
    )


@register_command(entities_app, "tellback entities merge Lena ent_01J9 --user maya")
def merge(
    canonical: Annotated[str, typer.Argument(help="The one that stays, by id or name.", show_default=False)],
    alias: Annotated[str, typer.Argument(help="The one that is the same, by id or name.", show_default=False)],
    space: SpaceOption = None,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Let one entity stand for another: memories about both become memories about the first."""

    async def merge_both(handle: Handle) -> Entity:
        kept_entity = await find_entity(handle, canonical, space)
        merged_entity = await find_entity(handle, alias, space)
        return await handle.memory.merge_entities(kept_entity.id, merged_entity.id)

    merged = run_for_user(UserTarget(url, user, tenant, app_id), merge_both)
    if as_json:
        print_json(merged)
    else:
        print_line(f"{merged.canonical_name} ({merged.id}) stands for both, also called {', '.join(merged.aliases)}.")


async def find_entity(user: Handle, id_or_name: str, space: str | None) -> Entity:
    """The entity of that id or name."""
    found = await user.memory.get_entity(id_or_name)
    if found is None:
        found = await user.memory.find_entity_by_name((await resolve_space(user, space)).id, None, id_or_name)
    if found is None:
        raise NotFoundError("entity", id_or_name, "`tellback entities list` shows those there are.")
    return found


def _type_value(type: EntityTypeChoice | None) -> str | None:
    return None if type is None else type.value.upper()


def _print_entities(entities: list[Entity], as_json: bool) -> None:
    if as_json:
        print_json(entities)
    elif entities:
        print_table(ENTITY_COLUMNS, entity_rows(entities), title_column="NAME")
    else:
        print_line("There are no such entities.", stderr=True)
