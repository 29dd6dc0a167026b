"""The data of one user in SQL: export it page by page, or erase it in one transaction."""

from __future__ import annotations

import base64
import functools
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from itertools import accumulate, chain
from typing import Any

from tellback.stores import rows
from tellback.stores.engine import Operation, StorePart, event_statement, reads, run_in_scope, scope_values
from tellback.stores.events import EventLog
from tellback.stores.operations.atoms import NEVER_VALID
from tellback.stores.operations.dispatch import DISPATCH_CURSOR
from tellback.stores.values import USER_ERASED, Collection, Erasure, erasure_subject
from tellback.types.access import Scope
from tellback.types.ids import from_micros, to_micros
from tellback.types.jobs import ANY, Binding
from tellback.types.jsontext import dump_stored_json

ERASE_BATCH = 1_000
"""How many conversations or spaces are locked at a time."""

EVENT_RANGE = 500_000
"""How many events are read at a time, to stay within a server's statement timeout."""

CONVERSATION_TABLES = ("messages", "conversations")
SPACE_TABLES = ("atom_vectors", "atom_entities", "atom_validity_ends", "atoms", "entity_names", "entities", "spaces")
"""The tables of each conversation and space, children before parents. Statements `erase_<table>` delete their rows."""

ERASED_TABLES = (
    *CONVERSATION_TABLES,
    "sessions",
    *SPACE_TABLES,
    "bindings",
    "jobs",
    "usage",
    "api_keys",
    "idempotent_responses",
    "events",
)

WIPE_STEP = "wipe"
"""The name of the state with the remaining steps to wipe the file; see `next_wipe_step`."""

PAGE_LENGTH = 500_000
"""The approximate number of characters read at a time."""

MAX_PAGE_SIZE = 200
"""The maximum number of records read at a time. After a page with long records, fewer are read."""

_JSON_TYPES = frozenset((str, int, float, bool, type(None)))

Record = dict[str, Any]


def next_wipe_step(step: int) -> int:
    """Return the value that follows `step` when rows were deleted.

    It only grows, so that a later deletion is never mistaken for an earlier one. Its remainder divided by three is the
    next step: 0 nothing, 1 rewrite the file, 2 empty the log.

    >>> [next_wipe_step(step) for step in (0, 1, 2, 3)]
    [4, 4, 4, 7]
    """
    return step - step % 3 + 4


def erase_user(scope: Scope, now: int, needs_wipe: bool) -> Operation[Erasure]:
    """Delete a user's rows and write an event. This is work across users: bind the scope with `run_in_scope`."""
    # Jobs are planned from events and bindings under this lock: no concurrent plan can leave a job behind.
    yield "platform_named_lock", {"name": DISPATCH_CURSOR}
    counts: Counter[str] = Counter()
    # Jobs first: a concurrent job locks its own row before its conversation.
    jobs = yield "erase_jobs_list", {}
    counts["jobs"] = len(jobs)
    yield "erase_jobs", {}
    for table in ("sessions", "api_keys", "idempotent_responses"):
        counts[table] = len((yield f"erase_{table}", {}))
    # From here on no rows can be added to these. Conversations and spaces created concurrently stay.
    conversations = yield from _lock_ids("erase_conversations_lock")
    spaces = yield from _lock_ids("erase_spaces_lock")
    counts["usage"] = int((yield "erase_usage_count", {})[0]["count"])
    yield "erase_usage", {}
    for batch in conversations:
        for table in CONVERSATION_TABLES:
            counts[table] += len((yield f"erase_{table}", {"ids": dump_stored_json(batch)}))
    for id in chain.from_iterable(spaces):
        for table in SPACE_TABLES:
            counts[table] += len((yield f"erase_{table}", {"space_id": id}))
    counts["bindings"] = yield from _erase_from_bindings(scope.user_id)
    # Also remove the jobs from a job queue in the same database, if there is one.
    if jobs and (yield "platform_queue_exists", {})[0]["found"]:
        yield "platform_queue_delete_deliveries", {"ids": [row["id"] for row in jobs]}
    until = int((yield "platform_events_latest", {})[0]["position"])
    if counts.total() or (yield "erase_event_exists", {"after": 0, "until": until}):
        # Write this event before the others are deleted: the newest one must stay, so that no position is used twice.
        data = {table: counts[table] for table in ERASED_TABLES if table != "events"}
        # This event belongs to no user.
        yield event_statement(USER_ERASED, erasure_subject(scope), data, now, replace(scope, user_id=""))
        counts["events"] = yield from _delete_events(until)
        if needs_wipe:
            found = yield "platform_state_get", {"name": WIPE_STEP}
            step = next_wipe_step(int(found[0]["value"]) if found else 0)
            yield "platform_state_set", {"name": WIPE_STEP, "value": step}
    return Erasure({table: counts[table] for table in ERASED_TABLES}, tuple(str(row["id"]) for row in jobs))


def _delete_events(until: int) -> Operation[int]:
    deleted = len((yield "erase_events_without_position", {}))
    for after in range(0, until, EVENT_RANGE):
        deleted += len((yield "erase_events", {"after": after, "until": min(after + EVENT_RANGE, until)}))
    return deleted


def _lock_ids(statement: str) -> Operation[list[list[str]]]:
    """Lock all conversations or spaces until the transaction ends. Return their ids in batches."""
    batches: list[list[str]] = []
    while found := (yield statement, {"after": batches[-1][-1] if batches else "", "limit": ERASE_BATCH}):
        batches.append([row["id"] for row in found])
    return batches


def _erase_from_bindings(user_id: str) -> Operation[int]:
    """Delete bindings that apply to this user alone, and remove the user from others. Return the number changed."""
    found = yield "platform_bindings_lock", {}
    changed = 0
    for binding in rows.BINDING.read_all(found):
        remaining = _without_user(binding, user_id)
        if remaining is None:
            yield "platform_binding_delete", {"id": binding.id}
        elif remaining != binding:
            yield "platform_binding_erase", rows.binding_values(remaining, None)
        changed += remaining != binding
    return changed


def _without_user(binding: Binding, user_id: str) -> Binding | None:
    """Return a binding without a user, or None if it applied to that user alone."""
    scopes = tuple(scope for scope in binding.conversation_scope if scope.user_id != user_id)
    if not scopes:
        return None
    if binding.created_by == user_id:
        binding = replace(binding, created_by=None, memory_space_ids=())
    return replace(binding, conversation_scope=scopes)


def to_plain(value: Any) -> Any:
    """Convert a value to JSON types: ISO 8601 timestamps, durations in seconds. Scopes are left out.

    >>> to_plain({"at": datetime(2026, 3, 1), "of": (1, 2)})
    {'at': '2026-03-01T00:00:00', 'of': [1, 2]}
    """
    if type(value) in _JSON_TYPES:
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_plain(inner) for key, inner in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(getattr(value, name)) for name in _exported_fields(type(value))}
    if isinstance(value, list | tuple):
        return [to_plain(inner) for inner in value]
    return value


@functools.cache
def _exported_fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != "scope")


def export_page(collection: str, after: str, limit: int) -> Operation[list[Record]]:
    """Return the records of a collection that come after an id."""
    found = yield f"export_{collection}", {"after": after, "limit": limit}
    records = [to_plain(value) for value in ROW_READERS[collection].read_all(found)]
    if collection == "spaces":  # spaces include deleted ones
        return [record | {"status": row["status"]} for record, row in zip(records, found, strict=True)]
    return records


def export_messages(conversation_id: str, after: int, limit: int) -> Operation[list[Record]]:
    """Return a conversation's messages after a seq, including hidden ones."""
    values = {"conversation_id": conversation_id, "after": after}
    lengths = yield "export_message_lengths", {**values, "limit": limit}
    found = yield "export_messages", {**values, "limit": _fitting_count(lengths)}
    return [to_plain(message) for message in rows.MESSAGE.read_all(found)]


def export_stored_responses(after: str, limit: int) -> Operation[list[Record]]:
    """Return the stored responses to a user's requests, after an idempotency key."""
    lengths = yield "export_idempotent_response_lengths", {"after": after, "limit": limit}
    found = yield "export_idempotent_responses", {"after": after, "limit": _fitting_count(lengths)}
    return [_export_stored_response(row) for row in found]


def _fitting_count(lengths: Sequence[rows.Row]) -> int:
    """Return how many rows fit on a page. The first row always does, however long."""
    sums = accumulate(int(row["length"]) for row in lengths)
    return max(1, sum(1 for length in sums if length <= PAGE_LENGTH))


def export_atoms(include_vectors: bool, space_id: str, after: int, limit: int) -> Operation[list[Record]]:
    """Return a space's atoms after a seq, whatever the status of the atom or the space."""
    # Read one snapshot: an atom must match its ends and vectors.
    yield "platform_snapshot", {}
    found = yield "export_atoms", {"space_id": space_id, "after": after, "limit": limit}
    if not found:
        return []
    seq_range = {"space_id": space_id, "first": found[0]["seq"], "last": found[-1]["seq"]}
    validity_ends: defaultdict[int, list[Record]] = defaultdict(list)
    for row in (yield "export_validity_ends", seq_range):
        # This end is known from `known_at` on. None means that the atom was never valid.
        end = None if row["valid_to"] == NEVER_VALID else from_micros(row["valid_to"])
        record = {"by_seq": row["by_seq"], "known_at": from_micros(row["known_at"]), "valid_to": end}
        validity_ends[row["seq"]].append(to_plain(record))
    vectors: defaultdict[int, Record] = defaultdict(dict)
    for row in (yield ("export_vectors" if include_vectors else "export_embedders"), seq_range):
        vectors[row["seq"]][row["embedder"]] = base64.b64encode(row["vector"]).decode() if include_vectors else None
    return [_export_atom(row, validity_ends[row["seq"]], vectors[row["seq"]], include_vectors) for row in found]


def export_bindings(scope: Scope) -> Operation[list[Record]]:
    """Return the bindings that a user created or that refer to the user, without other users' ids."""
    found = yield "platform_bindings_visible_to_user", {}
    records = []
    for binding in rows.BINDING.read_all(found):
        is_own = binding.created_by == scope.user_id
        if is_own or any(each.user_id == scope.user_id for each in binding.conversation_scope):
            visible = binding if is_own else replace(binding, created_by=None, memory_space_ids=())
            scopes = tuple(each for each in binding.conversation_scope if each.user_id in (ANY, scope.user_id))
            records.append(to_plain(replace(visible, conversation_scope=scopes)))
    return records


def _export_atom(row: rows.Row, validity_ends: list[Record], vectors: Record, include_vectors: bool) -> Record:
    record: Record = to_plain(rows.ATOM.read(row))
    record |= {name: row[name] for name in ("seq", "origin", "slot", "value")}
    record |= {"validity_ends": validity_ends, "embedders": list(vectors)}
    return record | {"vectors": vectors} if include_vectors else record


def _export_stored_response(row: rows.Row) -> Record:
    moments = {name: row[name] and from_micros(row[name]) for name in ("created_at", "finished_at")}
    record: Record = {"key": row["key"], **to_plain(moments), "status": row["status"]}
    if row["status"] is None:
        return record
    response = rows.RESPONSE.read(row)
    record |= {"content_type": response.content_type, "headers": to_plain(response.headers)}
    try:
        return record | {"body": response.body.decode()}
    except UnicodeDecodeError:
        return record | {"body_base64": base64.b64encode(response.body).decode("ascii")}


ROW_READERS: dict[str, rows.RowReader[Any]] = {
    "conversations": rows.CONVERSATION,
    "sessions": rows.SESSION,
    "spaces": rows.SPACE,
    "entities": rows.ENTITY,
    "jobs": rows.JOB,
    "usage": rows.USAGE,
    "api_keys": rows.API_KEY,
}
"""The collections that are listed by id alone, and the reader for the rows of each."""


class UserData(StorePart):
    """All stored data of one user.

    - `records` yields every record of a collection as plain JSON values, including superseded, archived, hidden and
      deleted ones that are still stored. Only one page is in memory at a time. It includes all records that exist at
      the start; records written meanwhile may be missing. `parent_id` limits messages to one conversation or atoms to
      one space. Bindings are included if the user created them or they refer to the user, without other users' ids.
    - `erase` deletes every row of the user in one transaction, and removes the user's id from bindings that also apply
      to others. If anything was deleted, it writes one event `user.erased`, which belongs to no user: its subject is
      `erasure_subject`, its data are the counts. When it returns, no file of the store contains the erased data. If
      that failed, it raises `StoreBusyError` or `StoreFullError`, and erasing again finishes the work.
    - `erasures_after` returns the subjects of erasures after a position in the events, and the position to continue
      from.
    """

    def records(
        self, scope: Scope, collection: Collection, *, parent_id: str | None = None, include_vectors: bool = False
    ) -> AsyncGenerator[Record, None]:
        match collection:
            case "messages":
                return self._export_children(scope, "conversations", parent_id, export_messages)
            case "atoms":
                return self._export_children(scope, "spaces", parent_id, partial(export_atoms, include_vectors))
            case "bindings":
                return self._export_bindings(scope)
            case "idempotent_responses":
                return self._export_pages(scope, export_stored_responses, "key", "")
            case "events":
                return self._export_events(scope)
            case _:
                return self._export_pages(scope, partial(export_page, collection), "id", "")

    async def erase(self, scope: Scope, *, now: datetime) -> Erasure:
        operation = partial(erase_user, scope, to_micros(now), self._engine.keeps_deleted_bytes)
        erasure = await self._engine.write(None, lambda: run_in_scope(scope, operation()))
        await self._engine.wipe()
        return erasure

    async def erasures_after(self, *, after: int) -> tuple[list[str], int]:
        await EventLog(self._engine).latest()  # assigns positions to new events
        return await self._list_erasures(after)

    @reads
    def _list_erasures(self, after: int) -> Operation[tuple[list[str], int]]:
        found = yield "platform_events_of_erasure", {"after": after}
        return [row["subject_id"] for row in found], max([after, *(int(row["position"]) for row in found)])

    async def _export_children(
        self,
        scope: Scope,
        parents: Collection,
        id: str | None,
        read: Callable[[str, int, int], Operation[list[Record]]],
    ) -> AsyncGenerator[Record, None]:
        """Yield the children of one parent, or of all parents."""
        if id is not None:
            async for record in self._export_pages(scope, partial(read, id), "seq", 0):
                yield record
            return
        async for parent in self.records(scope, parents):
            async for record in self._export_pages(scope, partial(read, parent["id"]), "seq", 0):
                yield record

    async def _export_pages(
        self, scope: Scope, read: Callable[[Any, int], Operation[list[Record]]], key: str, after: Any
    ) -> AsyncGenerator[Record, None]:
        """Yield pages of records, each starting where the last one ended."""
        limit = MAX_PAGE_SIZE // 4
        while page := await self._engine.read(scope, partial(read, after, limit)):
            for record in page:
                yield record
            after = page[-1][key]
            length = sum(_approximate_length(record) for record in page) // len(page) + 1
            limit = max(1, min(MAX_PAGE_SIZE, PAGE_LENGTH // length))

    async def _export_bindings(self, scope: Scope) -> AsyncGenerator[Record, None]:
        for record in await self._engine.read(scope, partial(export_bindings, scope)):
            yield record

    async def _export_events(self, scope: Scope) -> AsyncGenerator[Record, None]:
        """Yield the user's events up to the newest one now, because reading never catches up with new ones."""
        log = EventLog(self._engine)
        after, end = 0, await log.latest()
        while after < end:
            events, after = await log.read(after=after, limit=MAX_PAGE_SIZE, **scope_values(scope))
            for event in events:
                yield to_plain(event)


def _approximate_length(record: Any) -> int:
    """Return about how many characters a record has."""
    if type(record) is str:
        return len(record)
    if type(record) is dict:
        return sum(map(_approximate_length, record.values()))
    return sum(map(_approximate_length, record)) if type(record) is list else 0
