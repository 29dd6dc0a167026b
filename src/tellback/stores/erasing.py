"""The operation that deletes all of a user's rows, for any engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any

from tellback.stores import job_rows, rows
from tellback.stores.engine import Operation
from tellback.stores.planning import CURSOR
from tellback.stores.ports.admin import ERASED, Erasure, erased_subject
from tellback.types.bindings import Binding
from tellback.types.scope import Scope

BATCH = 1_000
"""So many conversations or spaces are taken at a time."""

STRETCH = 500_000
"""So many events are read at a time, within what a server gives a statement."""

OF_CONVERSATIONS = {"messages": "erase_messages", "conversations": "erase_conversations"}
OF_SPACE = {
    "atom_vectors": "erase_atom_vectors",
    "atom_entities": "erase_atom_entities",
    "atom_closings": "erase_atom_closings",
    "atoms": "erase_atoms",
    "entity_names": "erase_entity_names",
    "entities": "erase_entities",
    "spaces": "erase_space",
}
"""Tables and the statements that empty them, children before parents."""

OF_BINDING = ("id", "created_by", "scopes", "space_ids", "about_user")
"""What names users in a binding."""

TABLES = (*OF_CONVERSATIONS, "sessions", *OF_SPACE, "bindings", "jobs", "usage", "api_keys", "kept_answers", "events")

WIPE = "wipe"
"""The mark of what is still to be wiped from the file; see `after_deleting`."""


def after_deleting(mark: int) -> int:
    """The mark's next value once rows were deleted.

    It only grows, so that nobody takes an earlier deletion for a later one. What is left of dividing it by three says
    what is to be done: 0 nothing, 1 the file is to be rewritten, 2 the log is to be emptied.

    >>> [after_deleting(mark) for mark in (0, 1, 2, 3)]
    [4, 4, 4, 7]
    """
    return mark - mark % 3 + 4


def erase(scope: Scope, now: int, leaves_traces: bool) -> Operation[Erasure]:
    """Delete a user's rows and tell of it. Work across users: the scope is to be bound to it with `within`."""
    # Jobs are planned from events and bindings under this lock: none is left over that was planned beside us.
    yield "platform_mark_lock", {"name": CURSOR}
    counts: Counter[str] = Counter()
    # Jobs first: one that ends beside us has its own row before it looks at its conversation.
    jobs = yield "erase_jobs_list", {}
    counts["jobs"] = len(jobs)
    yield "erase_jobs", {}
    for table in ("sessions", "api_keys", "kept_answers"):
        counts[table] = len((yield f"erase_{table}", {}))
    # From here on nothing is added to these; what is made beside us is another matter, and stays.
    conversations = yield from _taken("erase_conversations_take")
    spaces = yield from _taken("erase_spaces_take")
    counts["usage"] = yield from _counted("erase_usage_count")
    yield "erase_usage", {}
    for batch in conversations:
        yield from _emptied({"ids": rows.to_json(batch)}, OF_CONVERSATIONS, counts)
    for id in chain.from_iterable(spaces):
        yield from _emptied({"space_id": id}, OF_SPACE, counts)
    counts["bindings"] = yield from _bindings(scope.user_id)
    yield from _undelivered([row[0] for row in jobs])
    until = int((yield "platform_events_latest", {})[0][0])
    if counts.total() or (yield "erase_event_exists", {"after": 0, "until": until}):
        # Before the events are deleted: the newest one stays, so that no position is given twice.
        yield _told(scope, counts, now)
        counts["events"] = yield from _events(until)
        if leaves_traces:
            yield from _marked()
    return Erasure({table: counts[table] for table in TABLES}, tuple(str(row[0]) for row in jobs))


def _events(until: int) -> Operation[int]:
    deleted = len((yield "erase_events_without_position", {}))
    for after in range(0, until, STRETCH):
        deleted += len((yield "erase_events", {"after": after, "until": min(after + STRETCH, until)}))
    return deleted


def _undelivered(job_ids: list[str]) -> Operation[None]:
    """Take jobs out of the queue that brings them to workers, if there is one beside our tables."""
    if job_ids and (yield "platform_queue_is_there", {})[0][0]:
        yield "platform_queue_forget", {"ids": job_ids}


def _taken(statement: str) -> Operation[list[list[str]]]:
    """The ids of all conversations or spaces, in batches, which are ours until the transaction ends."""
    taken: list[list[str]] = []
    while found := (yield statement, {"after": taken[-1][-1] if taken else "", "limit": BATCH}):
        taken.append([row[0] for row in found])
    return taken


def _counted(statement: str) -> Operation[int]:
    found = yield statement, {}
    return int(found[0][0])


def _emptied(named: dict[str, str], statements: dict[str, str], counts: Counter[str]) -> Operation[None]:
    """Delete conversations or a space with all that is in them."""
    for table, statement in statements.items():
        counts[table] += len((yield statement, named))


def _bindings(user_id: str) -> Operation[int]:
    """Delete the bindings that are about nobody else, and the user's name from the others; gives how many."""
    found = yield "platform_bindings_take", {}
    changed = 0
    for row in found:
        binding = job_rows.binding(row).binding
        left = _without(binding, user_id)
        if left is None:
            yield "platform_binding_delete", {"id": binding.id}
        elif left != binding:
            values = job_rows.binding_values(left, 0)
            yield "platform_binding_erase", {key: values[key] for key in OF_BINDING}
        changed += left != binding
    return changed


def _without(binding: Binding, user_id: str) -> Binding | None:
    """What is left of a binding without a user; None if it was about that user alone."""
    scopes = tuple(scope for scope in binding.conversation_scope if scope.user_id != user_id)
    if not scopes:
        return None
    if binding.created_by == user_id:
        binding = replace(binding, created_by=None, memory_space_ids=())
    return replace(binding, conversation_scope=scopes)


def _told(scope: Scope, counts: Counter[str], now: int) -> tuple[str, dict[str, Any]]:
    data = rows.to_json({table: counts[table] for table in TABLES if table != "events"})
    return "event_insert", {
        "user_id": "",
        "type": ERASED,
        "subject_id": erased_subject(scope),
        "data": data,
        "now": now,
    }


def _marked() -> Operation[None]:
    found = yield "platform_mark_get", {"name": WIPE}
    yield "platform_mark_set", {"name": WIPE, "value": after_deleting(int(found[0][0]) if found else 0)}
