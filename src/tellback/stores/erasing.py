"""The operation that deletes all of a user's rows, for any engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any

from tellback.stores import job_rows, rows
from tellback.stores.engine import Operation
from tellback.stores.planning import DISPATCH_MARK
from tellback.stores.ports.admin import USER_ERASED, Erasure, erasure_subject
from tellback.types.bindings import Binding
from tellback.types.scope import Scope

ERASE_BATCH = 1_000
"""So many conversations or spaces are taken at a time."""

EVENT_RANGE = 500_000
"""So many events are read at a time, within what a server gives a statement."""

CONVERSATION_DELETES = {"messages": "erase_messages", "conversations": "erase_conversations"}
SPACE_DELETES = {
    "atom_vectors": "erase_atom_vectors",
    "atom_entities": "erase_atom_entities",
    "atom_closings": "erase_atom_closings",
    "atoms": "erase_atoms",
    "entity_names": "erase_entity_names",
    "entities": "erase_entities",
    "spaces": "erase_space",
}
"""Tables and the statements that empty them, children before parents."""

BINDING_USER_COLUMNS = ("id", "created_by", "scopes", "space_ids", "about_user")
"""What names users in a binding."""

ERASED_TABLES = (
    *CONVERSATION_DELETES,
    "sessions",
    *SPACE_DELETES,
    "bindings",
    "jobs",
    "usage",
    "api_keys",
    "kept_answers",
    "events",
)

WIPE_MARK = "wipe"
"""The mark of what is still to be wiped from the file; see `after_deleting`."""


def next_wipe_mark(mark: int) -> int:
    """The mark's next value once rows were deleted.

    It only grows, so that nobody takes an earlier deletion for a later one. What is left of dividing it by three says
    what is to be done: 0 nothing, 1 the file is to be rewritten, 2 the log is to be emptied.

    >>> [next_wipe_mark(mark) for mark in (0, 1, 2, 3)]
    [4, 4, 4, 7]
    """
    return mark - mark % 3 + 4


def erase_user(scope: Scope, now: int, needs_wipe: bool) -> Operation[Erasure]:
    """Delete a user's rows and tell of it. Work across users: the scope is to be bound to it with `within`."""
    # Jobs are planned from events and bindings under this lock: none is left over that was planned beside us.
    yield "platform_mark_lock", {"name": DISPATCH_MARK}
    counts: Counter[str] = Counter()
    # Jobs first: one that ends beside us has its own row before it looks at its conversation.
    jobs = yield "erase_jobs_list", {}
    counts["jobs"] = len(jobs)
    yield "erase_jobs", {}
    for table in ("sessions", "api_keys", "kept_answers"):
        counts[table] = len((yield f"erase_{table}", {}))
    # From here on nothing is added to these; what is made beside us is another matter, and stays.
    conversations = yield from _lock_ids("erase_conversations_take")
    spaces = yield from _lock_ids("erase_spaces_take")
    counts["usage"] = yield from _count_rows("erase_usage_count")
    yield "erase_usage", {}
    for batch in conversations:
        yield from _delete_tables({"ids": rows.dump_stored_json(batch)}, CONVERSATION_DELETES, counts)
    for id in chain.from_iterable(spaces):
        yield from _delete_tables({"space_id": id}, SPACE_DELETES, counts)
    counts["bindings"] = yield from _erase_from_bindings(scope.user_id)
    yield from _remove_from_queue([row[0] for row in jobs])
    until = int((yield "platform_events_latest", {})[0][0])
    if counts.total() or (yield "erase_event_exists", {"after": 0, "until": until}):
        # Before the events are deleted: the newest one stays, so that no position is given twice.
        yield _erasure_event(scope, counts, now)
        counts["events"] = yield from _delete_events(until)
        if needs_wipe:
            yield from _set_wipe_mark()
    return Erasure({table: counts[table] for table in ERASED_TABLES}, tuple(str(row[0]) for row in jobs))


def _delete_events(until: int) -> Operation[int]:
    deleted = len((yield "erase_events_without_position", {}))
    for after in range(0, until, EVENT_RANGE):
        deleted += len((yield "erase_events", {"after": after, "until": min(after + EVENT_RANGE, until)}))
    return deleted


def _remove_from_queue(job_ids: list[str]) -> Operation[None]:
    """Take jobs out of the queue that brings them to workers, if there is one beside our tables."""
    if job_ids and (yield "platform_queue_is_there", {})[0][0]:
        yield "platform_queue_forget", {"ids": job_ids}


def _lock_ids(statement: str) -> Operation[list[list[str]]]:
    """The ids of all conversations or spaces, in batches, which are ours until the transaction ends."""
    batches: list[list[str]] = []
    while found := (yield statement, {"after": batches[-1][-1] if batches else "", "limit": ERASE_BATCH}):
        batches.append([row[0] for row in found])
    return batches


def _count_rows(statement: str) -> Operation[int]:
    found = yield statement, {}
    return int(found[0][0])


def _delete_tables(parameters: dict[str, str], statements: dict[str, str], counts: Counter[str]) -> Operation[None]:
    """Delete conversations or a space with all that is in them."""
    for table, statement in statements.items():
        counts[table] += len((yield statement, parameters))


def _erase_from_bindings(user_id: str) -> Operation[int]:
    """Delete the bindings that are about nobody else, and the user's name from the others; gives how many."""
    found = yield "platform_bindings_take", {}
    changed = 0
    for row in found:
        binding = job_rows.binding_from_row(row).binding
        remaining = _without_user(binding, user_id)
        if remaining is None:
            yield "platform_binding_delete", {"id": binding.id}
        elif remaining != binding:
            values = job_rows.binding_values(remaining, 0)
            yield "platform_binding_erase", {key: values[key] for key in BINDING_USER_COLUMNS}
        changed += remaining != binding
    return changed


def _without_user(binding: Binding, user_id: str) -> Binding | None:
    """What is left of a binding without a user; None if it was about that user alone."""
    scopes = tuple(scope for scope in binding.conversation_scope if scope.user_id != user_id)
    if not scopes:
        return None
    if binding.created_by == user_id:
        binding = replace(binding, created_by=None, memory_space_ids=())
    return replace(binding, conversation_scope=scopes)


def _erasure_event(scope: Scope, counts: Counter[str], now: int) -> tuple[str, dict[str, Any]]:
    data = rows.dump_stored_json({table: counts[table] for table in ERASED_TABLES if table != "events"})
    return "event_insert", {
        "user_id": "",
        "type": USER_ERASED,
        "subject_id": erasure_subject(scope),
        "data": data,
        "now": now,
    }


def _set_wipe_mark() -> Operation[None]:
    found = yield "platform_mark_get", {"name": WIPE_MARK}
    yield "platform_mark_set", {"name": WIPE_MARK, "value": next_wipe_mark(int(found[0][0]) if found else 0)}
