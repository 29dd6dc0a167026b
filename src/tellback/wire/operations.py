"""The table of the REST operations: routes, OpenAPI, the client's methods, tests and the reference come from it.

A new operation is one entry here, one method of a handle and one test. The classes group what one handle of the client
has; the client's handles inherit them. It imports the handles for their methods' signatures, and is imported by
`server` and `client` alone.
"""

from __future__ import annotations

from typing import Any

from tellback.memory.memory import DEFAULT_ENTITY_LIMIT, Memory
from tellback.wire.arguments import (
    MAX_ATOMS,
    MAX_CATEGORIES,
    REQUIRED,
    Argument,
    encode_category,
    several,
    text,
)
from tellback.wire.base import AtomStatusIn, InputModel, NameIn, QueryIn
from tellback.wire.operation import Operation

Arguments = dict[str, Any]

_TYPE = Argument(description="Of all types, if not said.")


def _merge_categories(arguments: Arguments) -> Arguments:
    category = arguments["category"]
    names = [] if category is None else [category if isinstance(category, str) else encode_category(category)["name"]]
    return {**arguments, "categories": [*names, *(arguments["categories"] or ())] or None}


def _search_arguments(arguments: Arguments) -> Arguments:
    limit = DEFAULT_ENTITY_LIMIT if arguments["limit"] is None else arguments["limit"]
    return {**arguments, "query": arguments["query"] or "", "limit": limit}


class MemoryOperations:
    """`user.memory`: spaces, atoms, entities, recall, bindings and jobs."""

    _tag = "memory"

    create_space = Operation(
        Memory.create_space,
        "POST /ai-memory/spaces",
        status=201,
        arguments={
            "name": Argument(text(200), "'default', if not given.", example="goals"),
            "metadata": Argument(dict[str, Any]),
            "once": Argument(description="Give the first space of that name, if there is one."),
        },
    )
    list_spaces = Operation(
        Memory.list_spaces, "GET /ai-memory/spaces", page="whole", arguments={"name": Argument(text(200))}
    )
    get_space = Operation(Memory.get_space, "GET /ai-memory/spaces/{id:space}", doc="A space.")
    delete_space = Operation(Memory.delete_space, "DELETE /ai-memory/spaces/{id:space}", status=204)
    add_atom = Operation(
        Memory.add_atom,
        "POST /ai-memory/spaces/{space_id:space}/atoms",
        doc="Remember something: a fact of importance 3 that is certain and true from now on, if not said otherwise."
        "\n\nWhat it cites must be the user's own.",
        note="what it cites must be the user's own",
        status=201,
        errors=(502,),
        arguments={"text": Argument(example="User prefers morning meetings")},
    )
    add_atoms = Operation(
        Memory.add_atoms,
        "POST /ai-memory/spaces/{space_id:space}/atoms/batch",
        note=f"up to {MAX_ATOMS}, all or none",
        status=201,
        errors=(502,),
        arguments={"atoms": Argument(lambda: several(body_model("add_atom"), MAX_ATOMS))},
    )
    list_atoms = Operation(
        Memory.list_atoms,
        "GET /ai-memory/spaces/{space_id:space}/atoms",
        doc="Atoms, the newest first: those that are not over or, with `validAt`, those that held at that moment.",
        page="before",
        omit=("category",),
        arguments={
            "categories": Argument(
                several(text(200), MAX_CATEGORIES), "A category's name; it may be given often.", name="category"
            ),
            "status": Argument(AtomStatusIn, "ACTIVE, if not said."),
        },
        prepare=_merge_categories,
    )
    get_atom = Operation(Memory.get_atom, "GET /ai-memory/atoms/{id:atom}", doc="An atom, whatever its status.")
    delete_atom = Operation(Memory.delete_atom, "DELETE /ai-memory/atoms/{id:atom}")
    supersede_atom = Operation(
        Memory.supersede_atom,
        "POST /ai-memory/atoms/{id:atom}/supersede",
        doc="Put a new atom in an old one's place: the old one held until the new one's `validFrom` (now, if not said)."
        "\n\nWhat is not given is as in the old one, but for where it comes from. Only the last atom of a chain can be"
        " superseded; `data.superseded_by` of the problem names what took its place.",
        status=201,
        errors=(409, 502),
        arguments={"old_id": Argument(name="id"), "text": Argument(example="User prefers morning meetings")},
    )
    archive_atom = Operation(Memory.archive_atom, "POST /ai-memory/atoms/{id:atom}/archive")
    restore_atom = Operation(Memory.restore_atom, "POST /ai-memory/atoms/{id:atom}/restore")
    remember_conversation = Operation(
        Memory.remember_conversation,
        "POST /ai-memory/spaces/{space_id:space}/remember-conversation",
        doc="Remember a conversation word for word, without any model: each message becomes a dated, cited atom."
        "\n\nDoing it again adds only what was said since. Gives all of its atoms.",
        errors=(502,),
        retry="turn",
    )
    create_entity = Operation(
        Memory.create_entity,
        "POST /ai-memory/spaces/{space_id:space}/entities",
        status=201,
        arguments={"description": Argument(str)},
    )
    search_entities = Operation(
        Memory.search_entities,
        "GET /ai-memory/spaces/{space_id:space}/entities",
        doc="All entities, the oldest first; with a query, those whose names or description match, the best first."
        "\n\nWhat matches is ranked anew for each page: what changes meanwhile may move an entity to another page.",
        page="offset",
        arguments={
            "query": Argument(QueryIn, "A part of a name; an empty one ranks those most spoken of first."),
            "type": _TYPE,
        },
        prepare=_search_arguments,
    )
    list_entities = Operation(
        Memory.list_entities, "GET /ai-memory/spaces/{space_id:space}/entities", page="after", is_mounted=False
    )
    find_entity_by_name = Operation(
        Memory.find_entity_by_name,
        "GET /ai-memory/spaces/{space_id:space}/entities/by-name",
        doc="The entity called that, by its own name or by an alias; case, accents and spacing do not matter.",
        note="by `name` and `type`; 404 if there is none",
        arguments={"type": _TYPE, "name": Argument(text(500), default=REQUIRED)},
        missing=("entity", ("name",)),
    )
    get_entity = Operation(
        Memory.get_entity,
        "GET /ai-memory/entities/{id:entity}",
        doc="An entity, also one that was merged: `mergedInto` names the one that stands for it.",
    )
    merge_entities = Operation(
        Memory.merge_entities,
        "POST /ai-memory/entities/{id:entity}/merge",
        doc="Let this entity stand for another: atoms about the alias become atoms about it, and the names are kept.",
        arguments={"canonical_id": Argument(name="id")},
        body="MergeEntity",
    )
    recall_by_topic = Operation(
        Memory.recall_by_topic,
        "POST /ai-memory/spaces/{space_id:space}/recall-by-topic",
        errors=(502,),
        retry="read",
        is_cancelled_on_disconnect=True,
        body="RecallByTopicInput",
    )
    recall_by_entity = Operation(
        Memory.recall_by_entity,
        "POST /ai-memory/spaces/{space_id:space}/recall-by-entity",
        doc="Everything about an entity, the newest first. A name that no entity has recalls what mentions it.",
        retry="read",
        body="RecallByEntityInput",
    )
    recall_timeline = Operation(
        Memory.recall_timeline,
        "POST /ai-memory/spaces/{space_id:space}/recall-timeline",
        doc="How things changed: what held at some moment from `from` to `to`, the oldest first, even if it is over.",
        errors=(502,),
        retry="read",
        is_cancelled_on_disconnect=True,
        arguments={"entity_id_or_name": Argument(NameIn), "query": Argument(QueryIn)},
        body="RecallTimelineInput",
    )


def body_model(name: str) -> type[InputModel]:
    """The model of the body of an operation."""
    found = OPERATIONS[name].body_model
    assert found is not None
    return found


GROUPS: tuple[type[Any], ...] = (MemoryOperations,)

OPERATIONS: dict[str, Operation[..., Any]] = {
    operation.name: operation
    for group in GROUPS
    for operation in vars(group).values()
    if isinstance(operation, Operation)
}
"""All operations by their names."""
