"""`tellback atoms`: list, show, add, supersede and archive single memories."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.memory import (
    atom_to_json,
    format_category,
    format_validity,
    load_cited_messages,
    print_atoms,
    quote_rows,
)
from tellback.cli.options import (
    DEFAULT_TARGET,
    AtOption,
    JsonOption,
    LimitOption,
    SpaceOption,
    UserTarget,
    format_examples,
    register_command,
    time_option,
)
from tellback.cli.output import format_minute, print_json, print_line, print_outcome, print_pairs, to_json_value
from tellback.cli.runner import resolve_space, run_for_user
from tellback.errors import NotFoundError

if TYPE_CHECKING:
    from tellback.types.conversations import StoredMessage
    from tellback.types.memory import Atom, Entity
    from tellback.user import User

atoms_app = typer.Typer(
    no_args_is_help=True,
    help="List, show, add, supersede and archive atoms: the single memories of a user.",
    epilog=format_examples("tellback atoms list --user maya", 'tellback atoms add "Maya is vegetarian." --user maya'),
)

AtomIdArgument = Annotated[
    str, typer.Argument(help="The atom's id, as `tellback atoms list` shows it.", show_default=False)
]
ImportanceOption = Annotated[int | None, typer.Option("--importance", min=1, max=5, help="From 1 to 5; a fact has 3.")]
ValidFromOption = Annotated[datetime | None, time_option("--from", "When it became true: now, if not said.")]
CategoryOption = Annotated[
    str | None,
    typer.Option(
        "--category",
        "-c",
        help="What sort of memory it is: fact, rule, intention, episode or preference, or name:kind for one of yours.",
    ),
]


def parse_category(text: str) -> tuple[str, str]:
    """A category as it is written on the command line: a kind, or a name with its kind."""
    from tellback.types.memory import CategoryKind

    name, separator, kind = text.rpartition(":")
    kinds = [each.value.lower() for each in CategoryKind]
    if kind.lower() not in kinds:
        raise typer.BadParameter(f"{kind!r} is no kind of memory: there are {', '.join(kinds)}.")
    return (name if separator else kind.lower()), kind.upper()


@register_command(atoms_app, "tellback atoms list --user maya", "tellback atoms list -c preference --all", name="list")
def list_atoms(
    space: SpaceOption = None,
    category: Annotated[str | None, typer.Option("--category", "-c", help="Those of this category alone.")] = None,
    at: AtOption = None,
    archived: Annotated[bool, typer.Option("--archived", help="What was put aside, instead.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also what is over.")] = False,
    limit: LimitOption = 50,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """List what is remembered of a user, the newest first."""

    async def load(handle: User) -> list[Atom]:
        found = await resolve_space(handle, space)
        status = "ARCHIVED" if archived else None
        return await handle.memory.list_atoms(
            found.id, category, status, at, limit, include_superseded=everything and at is None
        )

    atoms = run_for_user(target, load)
    if as_json:
        print_json([atom_to_json(atom) for atom in atoms])
    elif atoms:
        print_atoms(atoms)
    else:
        print_line("Nothing like that is remembered.", stderr=True)


@register_command(atoms_app, "tellback atoms show atom_01J9 --user maya")
def show(
    id: AtomIdArgument,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Show one memory: where it was said, whom it is about, and what stood in its place before and after."""

    from tellback.memory.memory import load_versions

    async def load(handle: User) -> tuple[Atom, list[Atom], list[Entity], list[StoredMessage]]:
        atom = await handle.memory.get_atom(id)
        if atom is None:
            raise NotFoundError("atom", id)
        entities = [await handle.memory.get_entity(each) for each in atom.entity_ids]
        about = [each for each in entities if each is not None]
        return atom, await load_versions(handle.memory, atom), about, await load_cited_messages(handle, atom)

    atom, chain, about, messages = run_for_user(target, load)
    if as_json:
        details = {
            "history": [atom_to_json(each) for each in chain],
            "entities": to_json_value(about),
            "messages": to_json_value(messages),
        }
        print_json({**atom_to_json(atom), **details})
        return
    print_pairs(
        [
            ("id", atom.id),
            ("text", atom.text),
            ("holds", format_validity(atom)),
            ("category", format_category(atom)),
            ("importance", f"{atom.importance}, confidence {atom.confidence:g}"),
            ("status", atom.status.value.lower()),
            ("known since", format_minute(atom.created_at)),
            ("about", ", ".join(f"{each.canonical_name} ({each.id})" for each in about)),
            *quote_rows(messages),
            *(("history", f"{format_validity(each)}: {each.text} ({each.id})") for each in chain if len(chain) > 1),
        ]
    )


@register_command(
    atoms_app,
    'tellback atoms add "Maya is vegetarian." -c preference --user maya',
    'tellback atoms add "Maya lives in Lisbon." --from 2026-03 --user maya',
)
def add(
    text: Annotated[str, typer.Argument(help="What to remember.", show_default=False)],
    space: SpaceOption = None,
    category: CategoryOption = None,
    importance: ImportanceOption = None,
    valid_from: ValidFromOption = None,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Remember something."""
    parsed_category = None if category is None else parse_category(category)

    async def add_to_space(handle: User) -> Atom:
        found = await resolve_space(handle, space, may_create=True)
        return await handle.memory.add_atom(found.id, text, parsed_category, importance, valid_from=valid_from)

    _print_result("is remembered", run_for_user(target, add_to_space, may_create=True), as_json)


@register_command(atoms_app, 'tellback atoms supersede atom_01J9 "Maya lives in Porto." --from 2026-09')
def supersede(
    id: AtomIdArgument,
    text: Annotated[str, typer.Argument(help="What holds now.", show_default=False)],
    category: CategoryOption = None,
    importance: ImportanceOption = None,
    valid_from: ValidFromOption = None,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Put something new in a memory's place: the old one held until then, and stays in the history."""
    parsed_category = None if category is None else parse_category(category)

    async def replace(handle: User) -> Atom:
        return await handle.memory.supersede_atom(id, text, parsed_category, importance, valid_from=valid_from)

    _print_result(f"takes the place of {id}", run_for_user(target, replace), as_json)


@register_command(atoms_app, "tellback atoms archive atom_01J9", "tellback atoms archive atom_01J9 --restore")
def archive(
    id: AtomIdArgument,
    restore: Annotated[bool, typer.Option("--restore", help="Bring it back instead.")] = False,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Put a memory aside: it is kept, and no longer recalled."""

    async def change_status(handle: User) -> Atom:
        return await (handle.memory.restore_atom(id) if restore else handle.memory.archive_atom(id))

    _print_result("is back" if restore else "is archived", run_for_user(target, change_status), as_json)


def _print_result(outcome: str, atom: Atom, as_json: bool) -> None:
    print_outcome(atom_to_json(atom), f"{atom.id} {outcome}: {atom.text}", as_json=as_json)
