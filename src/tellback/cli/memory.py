"""The `tellback recall`, `timeline`, `atoms`, `entities` and `spaces` commands, and how memories are printed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tellback.cli.options import (
    DEFAULT_TARGET,
    AtOption,
    JsonOption,
    LimitOption,
    SpaceOption,
    UserTarget,
    parse_period_end,
    time_option,
)
from tellback.cli.output import (
    SHORT_LENGTH,
    format_date,
    format_minute,
    print_json,
    print_line,
    print_outcome,
    print_pairs,
    print_rows,
    print_table,
    to_json_line,
    to_json_value,
    to_one_line,
)
from tellback.cli.runner import command_group, format_missing_data, register_command, resolve_space, run_for_user
from tellback.errors import require_found
from tellback.types.memory import Atom, Category, CategoryKind, Entity, RecallHit, RecallResult

if TYPE_CHECKING:
    from tellback.types.conversations import StoredMessage
    from tellback.user import User

ATOM_COLUMNS = ("ID", "VALID FROM", "CATEGORY", "IMPORTANCE", "SOURCE", "TEXT")
RECALL_COLUMNS = ("VALID FROM", "CATEGORY", "ID", "SOURCE", "TEXT")
MAX_MESSAGES_QUOTED = 3
"""Maximum number of source messages quoted for an atom."""

MAX_ATOMS_SHOWN = 20
"""Maximum number of memories shown with an entity."""

atoms_app = command_group(
    "List, show, add, supersede (replace) and archive atoms. An atom is one memory of a user.",
    "tellback atoms list --user maya",
    'tellback atoms add "Maya is vegetarian." --user maya',
)
entities_app = command_group(
    "List, search, show and merge entities: the people, places and things in memories.",
    "tellback entities list --user maya",
)
spaces_app = command_group(
    "List and create memory spaces, which keep parts of a user's memory separate.", "tellback spaces list --user maya"
)


def _parse_category(text: str) -> Category:
    """Parse a category from the command line: a kind, or name:kind."""
    name, separator, kind = text.rpartition(":")
    kinds = [each.value.lower() for each in CategoryKind]
    if kind.lower() not in kinds:
        raise typer.BadParameter(f"{kind!r} is not a kind of memory. Use one of {', '.join(kinds)}.")
    return Category(name if separator else kind.lower(), CategoryKind(kind.upper()))


CategoriesOption = Annotated[list[str] | None, typer.Option("--category", "-c", help="Only memories of this category.")]
AtomIdArgument = Annotated[str, typer.Argument(help="Atom id, as shown by `tellback atoms list`.", show_default=False)]
ImportanceOption = Annotated[
    int | None, typer.Option("--importance", min=1, max=5, help="Importance from 1 to 5. Default: 3.")
]
NewImportanceOption = Annotated[
    int | None,
    typer.Option("--importance", min=1, max=5, help="Importance, 1 to 5. Default: that of the old memory."),
]
ValidFromOption = Annotated[datetime | None, time_option("--from", "When it became true. Default: now.")]
NewValidFromOption = Annotated[datetime | None, time_option("--from", "When the new memory became true. Default: now.")]
CategoryOption = Annotated[
    Category | None,
    typer.Option(
        "--category",
        "-c",
        parser=_parse_category,
        metavar="<str>",
        help="Category: fact, rule, intention, episode or preference; or your own name and one of these: diet:fact.",
    ),
]
EntityTypeName = Literal["person", "organization", "place", "object", "concept", "event", "agreement"]
EntityTypeOption = Annotated[EntityTypeName | None, typer.Option("--type", "-t", help="Only entities of this type.")]
EntityArgument = Annotated[str, typer.Argument(help="Entity id or name.", show_default=False)]


def format_validity(atom: Atom) -> str:
    """Format the period during which an atom is valid."""
    end = "" if atom.valid_to is None else f" to {format_date(atom.valid_to)}"
    return f"{format_date(atom.valid_from)}{end}"


def format_category(atom: Atom) -> str:
    """Format an atom's category, with its kind if the name differs from it."""
    name, kind = atom.category.name, atom.category.kind.value
    return name if name.upper() == kind else f"{name} ({kind.lower()})"


def format_source(atom: Atom) -> str:
    """Format the source of an atom: its first conversation, and the number of further ones."""
    more = len(atom.citations) - 1
    return "" if more < 0 else atom.citations[0].conversation_id + (f" +{more}" if more else "")


def _recall_row(atom: Atom) -> tuple[str, ...]:
    return format_validity(atom), format_category(atom), atom.id, format_source(atom), atom.text


def _atom_row(atom: Atom) -> tuple[str, ...]:
    validity, category, id, source, text = _recall_row(atom)
    return id, validity, category, str(atom.importance), source, text


def atom_to_json(atom: Atom) -> dict[str, Any]:
    """Convert an atom to JSON, with all its citations."""
    fields: dict[str, Any] = to_json_value(atom)
    return {**fields, "citations": to_json_value(atom.citations)}


def _hit_to_json(hit: RecallHit) -> dict[str, Any]:
    scores = {"score": hit.score, "decay_weight": hit.decay_weight, "entity_match_bonus": hit.entity_match_bonus}
    return {**scores, "atom": atom_to_json(hit.atom), "explanation": dict(hit.explain())}


def print_atoms(atoms: Iterable[Atom]) -> None:
    """Print a table of atoms."""
    print_table(ATOM_COLUMNS, map(_atom_row, atoms))


def print_hits(hits: Iterable[RecallHit]) -> None:
    """Print a table of recalled atoms with their scores."""
    print_table(("SCORE", *RECALL_COLUMNS), [(f"{hit.score:.2f}", *_recall_row(hit.atom)) for hit in hits])


def _print_score_parts(hits: Iterable[RecallHit]) -> None:
    for hit in hits:
        parts = ", ".join(f"{name} {value:+.2f}" for name, value in hit.explain().items())
        print_pairs([(f"{hit.score:.2f}", to_one_line(hit.atom.text, SHORT_LENGTH)), ("", parts or "nothing")])


def recall(
    topic: Annotated[str | None, typer.Argument(help="Question or words to search for.", show_default=False)] = None,
    entity: Annotated[
        str | None,
        typer.Option("--entity", "-e", help="Recall memories about this person, place or thing (name or id)."),
    ] = None,
    at: AtOption = None,
    category: CategoriesOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    space: SpaceOption = None,
    limit: LimitOption = 10,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Search a user's memories by topic or entity, and show scores and sources.

    Time expressions such as "last May" in a question are understood. With --entity, the newest memories come first.
    """
    if (topic is None) == (entity is None):
        raise typer.BadParameter('Pass either a topic ("where does she live?") or --entity, such as --entity Lena.')

    async def load(handle: User) -> RecallResult:
        found = await resolve_space(handle, space)
        if entity is not None:
            return await handle.memory.recall_by_entity(found.id, entity, limit, category, valid_at=at)
        assert topic is not None
        return await handle.memory.recall_by_topic(found.id, topic, limit, category, valid_at=at)

    result = run_for_user(target, load)
    if as_json:
        print_json(_result_to_json(result))
    elif not result.hits:
        print_line("No matching memories.", stderr=True)
    else:
        print_hits(result.hits)
        if explain:
            print_line("\nParts of the scores, in log-odds:")
            _print_score_parts(result.hits)


def timeline(
    query: Annotated[
        str | None, typer.Argument(help="Topic to search for. Default: all memories.", show_default=False)
    ] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", "-e", help="Only memories about this person, place or thing (name or id).")
    ] = None,
    since: Annotated[datetime | None, time_option("--from", "Start of the period.")] = None,
    until: Annotated[datetime | None, time_option("--to", "End of the period.", parse_period_end)] = None,
    current: Annotated[bool, typer.Option("--current", help="Exclude superseded (replaced) memories.")] = False,
    category: CategoriesOption = None,
    space: SpaceOption = None,
    limit: LimitOption = 20,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Show memories in the order in which they became true, including superseded (replaced) ones."""
    if since is not None and until is not None and since > until:
        raise typer.BadParameter(f"--from ({since:%Y-%m-%d %H:%M}) is later than --to ({until:%Y-%m-%d %H:%M}).")

    async def load(handle: User) -> RecallResult:
        found = await resolve_space(handle, space)
        return await handle.memory.recall_timeline(
            found.id, entity, query, since, until, limit, not current, category_names=category
        )

    result = run_for_user(target, load)
    if as_json:
        print_json(_result_to_json(result))
    elif not result.hits:
        print_line("No matching memories.", stderr=True)
    else:
        print_table(RECALL_COLUMNS, map(_recall_row, result.atoms))


def _result_to_json(result: RecallResult) -> dict[str, object]:
    return {
        "mode": result.mode.value,
        "total_candidates": result.total_candidates,
        "latency_ms": result.latency_ms,
        "hits": [_hit_to_json(hit) for hit in result.hits],
    }


@register_command(atoms_app, "tellback atoms list --user maya", "tellback atoms list -c preference --all", name="list")
async def list_atoms(
    user: User,
    space: SpaceOption = None,
    category: Annotated[str | None, typer.Option("--category", "-c", help="Only memories of this category.")] = None,
    at: AtOption = None,
    archived: Annotated[bool, typer.Option("--archived", help="List archived memories instead.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Include superseded memories.")] = False,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List a user's memories, newest first."""
    found = await resolve_space(user, space)
    status = "ARCHIVED" if archived else None
    atoms = await user.memory.list_atoms(
        found.id, category, status, at, limit, include_superseded=everything and at is None
    )
    print_rows(
        atoms,
        ATOM_COLUMNS,
        _atom_row,
        as_json=as_json,
        if_empty="No matching memories.",
        to_json=atom_to_json,
    )


@register_command(atoms_app, "tellback atoms show atom_01J9 --user maya", name="show")
async def show_atom(user: User, id: AtomIdArgument, as_json: JsonOption = False) -> None:
    """Show one memory with its source messages, entities and version history."""
    from tellback.memory.memory import load_versions

    atom = require_found(await user.memory.get_atom(id), "atom", id)
    entities = [await user.memory.get_entity(each) for each in atom.entity_ids]
    about = [each for each in entities if each is not None]
    versions, messages = await load_versions(user.memory, atom), await _load_cited_messages(user, atom)
    if as_json:
        details = {
            "history": [atom_to_json(each) for each in versions],
            "entities": to_json_value(about),
            "messages": to_json_value(messages),
        }
        print_json({**atom_to_json(atom), **details})
        return
    print_pairs(
        [
            ("id", atom.id),
            ("text", atom.text),
            ("valid from", format_validity(atom)),
            ("category", format_category(atom)),
            ("importance", f"{atom.importance}, confidence {atom.confidence:g}"),
            ("status", atom.status.value.lower()),
            ("created", format_minute(atom.created_at)),
            ("entities", ", ".join(f"{each.canonical_name} ({each.id})" for each in about)),
            *(("source", _format_quote(each)) for each in messages),
            *(
                ("history", f"{format_validity(each)}: {each.text} ({each.id})")
                for each in versions
                if len(versions) > 1
            ),
        ]
    )


async def _load_cited_messages(user: User, atom: Atom) -> list[StoredMessage]:
    ids = [id for citation in atom.citations for id in citation.message_ids][:MAX_MESSAGES_QUOTED]
    found = [await user.conversations.message(id) for id in ids]
    return [message for message in found if message is not None]


def _format_quote(message: StoredMessage) -> str:
    origin = f"{format_minute(message.created_at)} {message.role}"
    return f'{origin}: "{to_one_line(message.text, 200)}" ({message.conversation_id})'


@register_command(
    atoms_app,
    'tellback atoms add "Maya is vegetarian." -c preference --user maya',
    'tellback atoms add "Maya lives in Lisbon." --from 2026-03 --user maya',
    may_create=True,
)
async def add(
    user: User,
    text: Annotated[str, typer.Argument(help="Text of the memory.", show_default=False)],
    space: SpaceOption = None,
    category: CategoryOption = None,
    importance: ImportanceOption = None,
    valid_from: ValidFromOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a memory."""
    found = await resolve_space(user, space, may_create=True)
    atom = await user.memory.add_atom(found.id, text, category, importance, valid_from=valid_from)
    _print_result(f"Added {atom.id}", atom, as_json)


@register_command(atoms_app, 'tellback atoms supersede atom_01J9 "Maya lives in Porto." --from 2026-09')
async def supersede(
    user: User,
    id: AtomIdArgument,
    text: Annotated[str, typer.Argument(help="Text of the new memory.", show_default=False)],
    category: CategoryOption = None,
    importance: NewImportanceOption = None,
    valid_from: NewValidFromOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a memory with a new one. The old memory ends when the new one starts, and stays in the history.

    Category and importance are those of the old memory, unless you set them.
    """
    atom = await user.memory.supersede_atom(id, text, category, importance, valid_from=valid_from)
    _print_result(f"Superseded {id} with {atom.id}", atom, as_json)


@register_command(atoms_app, "tellback atoms archive atom_01J9", "tellback atoms archive atom_01J9 --restore")
async def archive(
    user: User,
    id: AtomIdArgument,
    restore: Annotated[bool, typer.Option("--restore", help="Restore an archived memory.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Archive a memory: it stays in the store, but is no longer recalled."""
    atom = await (user.memory.restore_atom(id) if restore else user.memory.archive_atom(id))
    _print_result(f"{'Restored' if restore else 'Archived'} {atom.id}", atom, as_json)


def _print_result(outcome: str, atom: Atom, as_json: bool) -> None:
    print_outcome(atom_to_json(atom), f"{outcome}: {atom.text}", as_json=as_json)


@register_command(entities_app, "tellback entities list --user maya --type person", name="list")
async def list_entities(
    user: User,
    space: SpaceOption = None,
    type: EntityTypeOption = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List the entities in a user's memories, oldest first."""
    found = await resolve_space(user, space)
    _print_entities(await user.memory.list_entities(found.id, type and type.upper(), limit), as_json)


@register_command(entities_app, 'tellback entities search "sister" --user maya')
async def search(
    user: User,
    query: Annotated[str, typer.Argument(help="Name, or words of the description.", show_default=False)],
    space: SpaceOption = None,
    type: EntityTypeOption = None,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Search entities by name and description, best match first."""
    found = await resolve_space(user, space)
    _print_entities(await user.memory.search_entities(found.id, query, type and type.upper(), limit), as_json)


def _print_entities(entities: list[Entity], as_json: bool) -> None:
    print_rows(
        entities,
        ("ID", "TYPE", "NAME", "ALIASES", "ATOMS", "DESCRIPTION"),
        _entity_row,
        as_json=as_json,
        if_empty="No matching entities.",
        title_column="NAME",
    )


def _entity_row(entity: Entity) -> tuple[str, ...]:
    names = entity.type.value, entity.canonical_name, ", ".join(entity.aliases)
    return entity.id, *names, str(entity.atom_count), to_one_line(entity.description or "", SHORT_LENGTH)


@register_command(entities_app, "tellback entities show Lena --user maya", name="show")
async def show_entity(
    user: User, entity: EntityArgument, space: SpaceOption = None, as_json: JsonOption = False
) -> None:
    """Show one entity and the memories about it."""
    found = await _find_entity(user, entity, space)
    atoms = (await user.memory.recall_by_entity(found.memory_space_id, found.id, MAX_ATOMS_SHOWN)).atoms
    if as_json:
        print_json({**to_json_value(found), "atoms": [atom_to_json(atom) for atom in atoms]})
        return
    period = f"{format_date(found.first_seen_at)} to {format_date(found.last_seen_at)}"
    print_pairs(
        [
            ("id", found.id),
            ("name", found.canonical_name),
            ("aliases", ", ".join(found.aliases)),
            ("type", found.type.value.lower()),
            ("description", found.description or ""),
            ("attributes", to_json_line(found.attributes) if found.attributes else ""),
            ("merged into", found.merged_into or ""),
            ("mentioned", period if found.first_seen_at else ""),
            *(("memory", f"{format_validity(atom)}: {atom.text} ({atom.id})") for atom in atoms),
        ]
    )


@register_command(entities_app, "tellback entities merge Lena ent_01J9 --user maya")
async def merge(
    user: User,
    canonical: Annotated[str, typer.Argument(help="Entity to keep (id or name).", show_default=False)],
    alias: Annotated[str, typer.Argument(help="Duplicate entity to merge into it (id or name).", show_default=False)],
    space: SpaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge a duplicate entity (ALIAS) into another (CANONICAL), which then has the memories of both."""
    first, second = await _find_entity(user, canonical, space), await _find_entity(user, alias, space)
    merged = await user.memory.merge_entities(first.id, second.id)
    aliases = ", ".join(merged.aliases)
    outcome = f"Merged {second.id} into {merged.canonical_name} ({merged.id}). Aliases: {aliases}."
    print_outcome(merged, outcome, as_json=as_json)


async def _find_entity(user: User, id_or_name: str, space: str | None) -> Entity:
    found = await user.memory.get_entity(id_or_name)
    if found is None:
        found = await user.memory.find_entity_by_name((await resolve_space(user, space)).id, None, id_or_name)
    return require_found(found, "entity", id_or_name, "Run `tellback entities list` to see all entities.")


@register_command(spaces_app, "tellback spaces list --user maya", name="list")
async def list_spaces(user: User, as_json: JsonOption = False) -> None:
    """List a user's memory spaces, oldest first."""
    print_rows(
        await user.memory.list_spaces(),
        ("ID", "NAME", "ATOMS", "CREATED"),
        lambda each: (each.id, each.name, str(each.atom_count), format_date(each.created_at)),
        as_json=as_json,
        if_empty=format_missing_data(user, "memory space"),
        title_column="NAME",
    )


@register_command(spaces_app, "tellback spaces create work --user maya", may_create=True)
async def create(
    user: User,
    name: Annotated[str, typer.Argument(help="Name of the memory space.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Create a memory space, or print the existing one with that name."""
    space = await user.memory.create_space(name, once=True)
    print_outcome(space, f"Memory space {space.name} has the id {space.id}.", as_json=as_json)
