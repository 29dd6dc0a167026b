"""`tellback recall`, `timeline`, `entities` and `spaces`, and how memories are printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    format_examples,
    parse_period_end,
    register_command,
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
from tellback.cli.runner import format_missing_data, resolve_space, run_for_user
from tellback.errors import NotFoundError

if TYPE_CHECKING:
    from tellback.types.conversations import StoredMessage
    from tellback.types.memory import Atom, Entity, MemorySpace, RecallHit, RecallResult
    from tellback.user import User

ATOM_COLUMNS = ("HOLDS", "CATEGORY", "ID", "SAID IN", "TEXT")
MAX_MESSAGES_QUOTED = 3
"""How many of an atom's messages are quoted."""

MAX_ATOMS_SHOWN = 20
"""How many of an entity's memories are shown with it."""

ENTITY_COLUMNS = ("ID", "TYPE", "NAME", "ALSO", "ATOMS", "DESCRIPTION")

entities_app = typer.Typer(
    no_args_is_help=True,
    help="List, search, show and merge entities: whom and what memories are about.",
    epilog=format_examples("tellback entities list --user maya"),
)
spaces_app = typer.Typer(
    no_args_is_help=True,
    help="List and make memory spaces: the parts of a user's memory.",
    epilog=format_examples("tellback spaces list --user maya"),
)


CategoriesOption = Annotated[
    list[str] | None, typer.Option("--category", "-c", help="Memories of this category alone.")
]
EntityTypeName = Literal["person", "organization", "place", "object", "concept", "event", "agreement"]
EntityTypeOption = Annotated[EntityTypeName | None, typer.Option("--type", "-t", help="Those of this type alone.")]
EntityArgument = Annotated[str, typer.Argument(help="The entity's id, or its name.", show_default=False)]


def format_validity(atom: Atom) -> str:
    """When an atom holds or held."""
    end = "" if atom.valid_to is None else f" to {format_date(atom.valid_to)}"
    return f"{format_date(atom.valid_from)}{end}"


def format_category(atom: Atom) -> str:
    """An atom's category, and its kind where that says more."""
    name, kind = atom.category.name, atom.category.kind.value
    return name if name.upper() == kind else f"{name} ({kind.lower()})"


def format_source(atom: Atom) -> str:
    """Where an atom comes from, in short: the first conversation, and how many more there are."""
    more = len(atom.citations) - 1
    return "" if more < 0 else atom.citations[0].conversation_id + (f" +{more}" if more else "")


def _atom_cells(atom: Atom) -> tuple[str, ...]:
    return format_validity(atom), format_category(atom), atom.id, format_source(atom), atom.text


def atom_to_json(atom: Atom) -> dict[str, Any]:
    """An atom as JSON has it, with all its citations."""
    fields: dict[str, Any] = to_json_value(atom)
    return {**fields, "citations": to_json_value(atom.citations)}


def hit_to_json(hit: RecallHit) -> dict[str, Any]:
    """A hit as JSON has it, with what its score is made of."""
    scores = {"score": hit.score, "decay_weight": hit.decay_weight, "entity_match_bonus": hit.entity_match_bonus}
    return {**scores, "atom": atom_to_json(hit.atom), "explanation": dict(hit.explain())}


def print_atoms(atoms: Sequence[Atom]) -> None:
    """A table of atoms."""
    rows = [
        (each.id, format_validity(each), format_category(each), str(each.importance), format_source(each), each.text)
        for each in atoms
    ]
    print_table(("ID", "HOLDS", "CATEGORY", "IMPORTANCE", "SAID IN", "TEXT"), rows)


def print_hits(hits: Iterable[RecallHit]) -> None:
    """A table of what was recalled."""
    print_table(("SCORE", *ATOM_COLUMNS), [(f"{hit.score:.2f}", *_atom_cells(hit.atom)) for hit in hits])


def print_score_parts(hits: Iterable[RecallHit]) -> None:
    """What each hit's score is made of."""
    for hit in hits:
        parts = ", ".join(f"{name} {value:+.2f}" for name, value in hit.explain().items())
        print_pairs([(f"{hit.score:.2f}", to_one_line(hit.atom.text, SHORT_LENGTH)), ("", parts or "nothing")])


async def load_cited_messages(user: User, atom: Atom) -> list[StoredMessage]:
    """The messages that an atom cites, as far as they are still there."""
    ids = [id for citation in atom.citations for id in citation.message_ids][:MAX_MESSAGES_QUOTED]
    found = [await user.conversations.message(id) for id in ids]
    return [message for message in found if message is not None]


def quote_rows(messages: Iterable[StoredMessage]) -> list[tuple[str, str]]:
    """Messages as lines: who said it and when, and what."""

    def quote(each: StoredMessage) -> str:
        return f'{format_minute(each.created_at)} {each.role}: "{to_one_line(each.text, 200)}" ({each.conversation_id})'

    return [("said", quote(each)) for each in messages]


def _entity_row(entity: Entity) -> tuple[str, ...]:
    names = entity.type.value, entity.canonical_name, ", ".join(entity.aliases)
    return entity.id, *names, str(entity.atom_count), to_one_line(entity.description or "", SHORT_LENGTH)


def recall(
    topic: Annotated[
        str | None, typer.Argument(help="A question, or words: what it is about.", show_default=False)
    ] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", "-e", help="All about a person, place or thing, by name or id.")
    ] = None,
    at: AtOption = None,
    category: CategoriesOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each score is made of.")] = False,
    space: SpaceOption = None,
    limit: LimitOption = 10,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Recall what is remembered on a topic or about an entity, with scores and where it was said.

    Words such as "last May" in a question are understood. With --entity the newest come first.
    """
    if (topic is None) == (entity is None):
        raise typer.BadParameter('name a topic ("where does she live?"), or --entity Lena: one of the two.')

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
        print_line("Nothing is remembered of that.", stderr=True)
    else:
        print_hits(result.hits)
        if explain:
            print_line("\nWhat the scores are made of, in log-odds:")
            print_score_parts(result.hits)


def timeline(
    query: Annotated[str | None, typer.Argument(help="A topic; without one, everything.", show_default=False)] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", "-e", help="About a person, place or thing, by name or id.")
    ] = None,
    since: Annotated[datetime | None, time_option("--from", "From then on.")] = None,
    until: Annotated[datetime | None, time_option("--to", "Until then.", parse_period_end)] = None,
    current: Annotated[bool, typer.Option("--current", help="Leave out what is over.")] = False,
    category: CategoriesOption = None,
    space: SpaceOption = None,
    limit: LimitOption = 20,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Show how things changed: what held when, the oldest first, also what is over."""
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
        print_line("Nothing is remembered of that time.", stderr=True)
    else:
        print_table(ATOM_COLUMNS, [_atom_cells(atom) for atom in result.atoms])


def _result_to_json(result: RecallResult) -> dict[str, object]:
    return {
        "mode": result.mode.value,
        "total_candidates": result.total_candidates,
        "latency_ms": result.latency_ms,
        "hits": [hit_to_json(hit) for hit in result.hits],
    }


@register_command(entities_app, "tellback entities list --user maya --type person", name="list")
def list_entities(
    space: SpaceOption = None,
    type: EntityTypeOption = None,
    limit: LimitOption = 50,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """List what memories are about, the oldest first."""

    async def load(handle: User) -> list[Entity]:
        found = await resolve_space(handle, space)
        return await handle.memory.list_entities(found.id, type and type.upper(), limit)

    _print_entities(run_for_user(target, load), as_json)


@register_command(entities_app, 'tellback entities search "sister" --user maya')
def search(
    query: Annotated[str, typer.Argument(help="A name, or words of a description.", show_default=False)],
    space: SpaceOption = None,
    type: EntityTypeOption = None,
    limit: LimitOption = 20,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Search entities by name and description, the best first."""

    async def load(handle: User) -> list[Entity]:
        found = await resolve_space(handle, space)
        return await handle.memory.search_entities(found.id, query, type and type.upper(), limit)

    _print_entities(run_for_user(target, load), as_json)


@register_command(entities_app, "tellback entities show Lena --user maya")
def show(
    entity: EntityArgument,
    space: SpaceOption = None,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Show one entity, and what is remembered about it."""

    async def load(handle: User) -> tuple[Entity, list[Atom]]:
        found = await find_entity(handle, entity, space)
        recalled = await handle.memory.recall_by_entity(found.memory_space_id, found.id, MAX_ATOMS_SHOWN)
        return found, recalled.atoms

    found, atoms = run_for_user(target, load)
    if as_json:
        print_json({**to_json_value(found), "atoms": [atom_to_json(atom) for atom in atoms]})
        return
    period = f"{format_date(found.first_seen_at)} to {format_date(found.last_seen_at)}"
    print_pairs(
        [
            ("id", found.id),
            ("name", found.canonical_name),
            ("also", ", ".join(found.aliases)),
            ("type", found.type.value.lower()),
            ("description", found.description or ""),
            ("attributes", to_json_line(found.attributes) if found.attributes else ""),
            ("merged into", found.merged_into or ""),
            ("spoken of", period if found.first_seen_at else ""),
            *(("memory", f"{format_validity(atom)}: {atom.text} ({atom.id})") for atom in atoms),
        ]
    )


@register_command(entities_app, "tellback entities merge Lena ent_01J9 --user maya")
def merge(
    canonical: Annotated[str, typer.Argument(help="The one that stays, by id or name.", show_default=False)],
    alias: Annotated[str, typer.Argument(help="The one that is the same, by id or name.", show_default=False)],
    space: SpaceOption = None,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Let one entity stand for another: memories about both become memories about the first."""

    async def merge_both(handle: User) -> Entity:
        kept_entity = await find_entity(handle, canonical, space)
        merged_entity = await find_entity(handle, alias, space)
        return await handle.memory.merge_entities(kept_entity.id, merged_entity.id)

    merged = run_for_user(target, merge_both)
    aliases = ", ".join(merged.aliases)
    outcome = f"{merged.canonical_name} ({merged.id}) stands for both, also called {aliases}."
    print_outcome(merged, outcome, as_json=as_json)


async def find_entity(user: User, id_or_name: str, space: str | None) -> Entity:
    """The entity of that id or name."""
    found = await user.memory.get_entity(id_or_name)
    if found is None:
        found = await user.memory.find_entity_by_name((await resolve_space(user, space)).id, None, id_or_name)
    if found is None:
        raise NotFoundError("entity", id_or_name, "`tellback entities list` shows those there are.")
    return found


def _print_entities(entities: list[Entity], as_json: bool) -> None:
    print_rows(
        entities,
        ENTITY_COLUMNS,
        _entity_row,
        as_json=as_json,
        if_empty="There are no such entities.",
        title_column="NAME",
    )


@register_command(spaces_app, "tellback spaces list --user maya", name="list")
def list_spaces(
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """List a user's memory spaces, the oldest first."""

    async def load(handle: User) -> tuple[list[MemorySpace], str]:
        return await handle.memory.list_spaces(), format_missing_data(handle, "memory space")

    found, empty_note = run_for_user(target, load)
    print_rows(
        found,
        ("ID", "NAME", "ATOMS", "SINCE"),
        lambda each: (each.id, each.name, str(each.atom_count), format_date(each.created_at)),
        as_json=as_json,
        if_empty=empty_note,
        title_column="NAME",
    )


@register_command(spaces_app, "tellback spaces create work --user maya")
def create(
    name: Annotated[str, typer.Argument(help="What it is called.", show_default=False)],
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Make a memory space. If there is one of that name, that one is given."""
    space = run_for_user(target, lambda handle: handle.memory.create_space(name, once=True), may_create=True)
    print_outcome(space, f"{space.name} is {space.id}.", as_json=as_json)
