"""`tellback atoms`: what is remembered of a user, piece by piece."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli import times
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
from tellback.cli.printing import minute, plain, say, show_json, show_pairs
from tellback.cli.running import Whose, ask, space_of
from tellback.cli.showing import held, kind_of, plain_atom, quoted, quotes, show_atoms
from tellback.errors import NotFoundError

if TYPE_CHECKING:
    from tellback.types.conversations import StoredMessage
    from tellback.types.memory import Atom, Entity
    from tellback.user import User as Handle

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, add, supersede and archive atoms: the single memories of a user.",
    epilog=examples("tellback atoms list --user maya", 'tellback atoms add "Maya is vegetarian." --user maya'),
)

Id = Annotated[str, typer.Argument(help="The atom's id, as `tellback atoms list` shows it.", show_default=False)]
Importance = Annotated[int | None, typer.Option("--importance", min=1, max=5, help="From 1 to 5; a fact has 3.")]
ValidFrom = Annotated[
    datetime | None,
    typer.Option(
        "--from", parser=times.beginning, metavar=times.METAVAR, help="When it became true: now, if not said."
    ),
]
CategoryName = Annotated[
    str | None,
    typer.Option(
        "--category",
        "-c",
        help="What sort of memory it is: fact, rule, intention, episode or preference, or name:kind for one of yours.",
    ),
]


def category_of(text: str) -> tuple[str, str]:
    """A category as it is written on the command line: a kind, or a name with its kind."""
    from tellback.types.memory import CategoryKind

    name, named, kind = text.rpartition(":")
    known = [each.value.lower() for each in CategoryKind]
    if kind.lower() not in known:
        raise typer.BadParameter(f"{kind!r} is no kind of memory: there are {', '.join(known)}.")
    return (name if named else kind.lower()), kind.upper()


@command(app, "tellback atoms list --user maya", "tellback atoms list -c preference --all", name="list")
def list_atoms(
    space: Space = None,
    category: Annotated[str | None, typer.Option("--category", "-c", help="Those of this category alone.")] = None,
    at: Annotated[
        datetime | None,
        typer.Option("--at", parser=times.beginning, metavar=times.METAVAR, help="What held at that moment."),
    ] = None,
    archived: Annotated[bool, typer.Option("--archived", help="What was put aside, instead.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also what is over.")] = False,
    limit: Limit = 50,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """List what is remembered of a user, the newest first."""

    async def work(handle: Handle) -> list[Atom]:
        found = await space_of(handle, space)
        status = "ARCHIVED" if archived else None
        return await handle.memory.list_atoms(
            found.id, category, status, at, limit, include_superseded=everything and at is None
        )

    atoms = ask(Whose(url, user, tenant, app_id), work)
    if as_json:
        show_json([plain_atom(atom) for atom in atoms])
    elif atoms:
        show_atoms(atoms)
    else:
        say("Nothing like that is remembered.", stderr=True)


@command(app, "tellback atoms show atom_01J9 --user maya")
def show(
    id: Id,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Show one memory: where it was said, whom it is about, and what stood in its place before and after."""

    async def work(handle: Handle) -> tuple[Atom, list[Atom], list[Entity], list[StoredMessage]]:
        atom = await handle.memory.get_atom(id)
        if atom is None:
            raise NotFoundError("atom", id)
        entities = [await handle.memory.get_entity(each) for each in atom.entity_ids]
        about = [each for each in entities if each is not None]
        return atom, await history(handle, atom), about, await quoted(handle, atom)

    atom, chain, about, said = ask(Whose(url, user, tenant, app_id), work)
    if as_json:
        more = {"history": [plain_atom(each) for each in chain], "entities": plain(about), "messages": plain(said)}
        show_json({**plain_atom(atom), **more})
        return
    show_pairs(
        [
            ("id", atom.id),
            ("text", atom.text),
            ("holds", held(atom)),
            ("category", kind_of(atom)),
            ("importance", f"{atom.importance}, confidence {atom.confidence:g}"),
            ("status", atom.status.value.lower()),
            ("known since", minute(atom.created_at)),
            ("about", ", ".join(f"{each.canonical_name} ({each.id})" for each in about)),
            *quotes(said),
            *(("history", f"{held(each)}: {each.text} ({each.id})") for each in chain if len(chain) > 1),
        ]
    )


@command(
    app,
    'tellback atoms add "Maya is vegetarian." -c preference --user maya',
    'tellback atoms add "Maya lives in Lisbon." --from 2026-03 --user maya',
)
def add(
    text: Annotated[str, typer.Argument(help="What to remember.", show_default=False)],
    space: Space = None,
    category: CategoryName = None,
    importance: Importance = None,
    valid_from: ValidFrom = None,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Remember something."""
    of = None if category is None else category_of(category)

    async def work(handle: Handle) -> Atom:
        found = await space_of(handle, space, new=True)
        return await handle.memory.add_atom(found.id, text, of, importance, valid_from=valid_from)

    _tell("is remembered", ask(Whose(url, user, tenant, app_id), work, new=True), as_json)


@command(app, 'tellback atoms supersede atom_01J9 "Maya lives in Porto." --from 2026-09')
def supersede(
    id: Id,
    text: Annotated[str, typer.Argument(help="What holds now.", show_default=False)],
    category: CategoryName = None,
    importance: Importance = None,
    valid_from: ValidFrom = None,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Put something new in a memory's place: the old one held until then, and stays in the history."""
    of = None if category is None else category_of(category)

    async def work(handle: Handle) -> Atom:
        return await handle.memory.supersede_atom(id, text, of, importance, valid_from=valid_from)

    _tell(f"takes the place of {id}", ask(Whose(url, user, tenant, app_id), work), as_json)


@command(app, "tellback atoms archive atom_01J9", "tellback atoms archive atom_01J9 --restore")
def archive(
    id: Id,
    restore: Annotated[bool, typer.Option("--restore", help="Bring it back instead.")] = False,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Put a memory aside: it is kept, and no longer recalled."""

    async def work(handle: Handle) -> Atom:
        return await (handle.memory.restore_atom(id) if restore else handle.memory.archive_atom(id))

    _tell("is back" if restore else "is archived", ask(Whose(url, user, tenant, app_id), work), as_json)


def _tell(what: str, atom: Atom, as_json: bool) -> None:
    if as_json:
        show_json(plain_atom(atom))
    else:
        say(f"{atom.id} {what}: {atom.text}")


async def history(user: Handle, atom: Atom) -> list[Atom]:
    """What stood in an atom's place one after the other, the oldest first, itself among it."""
    chain = [atom]
    while chain[0].supersedes is not None and (before := await user.memory.get_atom(chain[0].supersedes)) is not None:
        chain.insert(0, before)
    while chain[-1].superseded_by is not None:
        after = await user.memory.get_atom(chain[-1].superseded_by)
        if after is None:
            break
        chain.append(after)
    return chain
