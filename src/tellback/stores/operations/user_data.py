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
"""So many conversations or spaces are taken at a time."""

EVENT_RANGE = 500_000
"""So many events are read at a time, within what a server gives a statement."""

CONVERSATION_TABLES = ("messages", "conversations")
SPACE_TABLES = ("atom_vectors", "atom_entities", "atom_validity_ends", "atoms", "entity_names", "entities", "spaces")
"""What is deleted with each conversation and space, children before parents, each by the statement `erase_` and its
name."""

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
"""The name of the state that says what is still to be wiped from the file; see `next_wipe_step`."""

PAGE_LENGTH = 500_000
"""About so many characters are read at a time."""

MAX_PAGE_SIZE = 200
"""The most records read at a time: a page after long ones is shorter."""

_JSON_TYPES = frozenset((str, int, float, bool, type(None)))

Record = dict[str, Any]


def next_wipe_step(step: int) -> int:
    """Return the value that follows `step` when rows were deleted.

    It only grows, so that nobody takes an earlier deletion for a later one. What is left of dividing it by three says
    what is to be done: 0 nothing, 1 the file is to be rewritten, 2 the log is to be emptied.

    >>> [next_wipe_step(step) for step in (0, 1, 2, 3)]
    [4, 4, 4, 7]
    """
    return step - step % 3 + 4


def erase_user(scope: Scope, now: int, needs_wipe: bool) -> Operation[Erasure]:
    """Delete a user's rows and tell of it. Work across users: the scope is to be bound to it with `run_in_scope`."""
    # Jobs are planned from events and bindings under this lock: none is left over that was planned beside us.
    yield "platform_named_lock", {"name": DISPATCH_CURSOR}
    counts: Counter[str] = Counter()
    # Jobs first: one that ends beside us has its own row before it looks at its conversation.
    jobs = yield "erase_jobs_list", {}
    counts["jobs"] = len(jobs)
    yield "erase_jobs", {}
    for table in ("sessions", "api_keys", "idempotent_responses"):
        counts[table] = len((yield f"erase_{table}", {}))
    # From here on nothing is added to these; what is made beside us is another matter, and stays.
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
    # Out of the queue that brings them to workers, too, if there is one beside our tables.
    if jobs and (yield "platform_queue_exists", {})[0]["found"]:
        yield "platform_queue_delete_deliveries", {"ids": [row["id"] for row in jobs]}
    until = int((yield "platform_events_latest", {})[0]["position"])
    if counts.total() or (yield "erase_event_exists", {"after": 0, "until": until}):
        # Before the events are deleted: the newest one stays, so that no position is given twice.
        data = {table: counts[table] for table in ERASED_TABLES if table != "events"}
        # It belongs to no user.
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
    """The ids of all conversations or spaces, in batches, which are ours until the transaction ends."""
    batches: list[list[str]] = []
    while found := (yield statement, {"after": batches[-1][-1] if batches else "", "limit": ERASE_BATCH}):
        batches.append([row["id"] for row in found])
    return batches


def _erase_from_bindings(user_id: str) -> Operation[int]:
    """Delete the bindings that are about nobody else, and the user's name from the others; gives how many."""
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
    """What is left of a binding without a user; None if it was about that user alone."""
    scopes = tuple(scope for scope in binding.conversation_scope if scope.user_id != user_id)
    if not scopes:
        return None
    if binding.created_by == user_id:
        binding = replace(binding, created_by=None, memory_space_ids=())
    return replace(binding, conversation_scope=scopes)


def to_plain(value: Any) -> Any:
    """A value as JSON knows it: moments in ISO 8601, lengths in seconds, no scope, which is the same for all.

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
    """Records of a collection that come after an id."""
    found = yield f"export_{collection}", {"after": after, "limit": limit}
    records = [to_plain(value) for value in ROW_READERS[collection].read_all(found)]
    if collection == "spaces":  # deleted ones as well
        return [record | {"status": row["status"]} for record, row in zip(records, found, strict=True)]
    return records


def export_messages(conversation_id: str, after: int, limit: int) -> Operation[list[Record]]:
    """A conversation's messages after a seq, hidden ones too."""
    values = {"conversation_id": conversation_id, "after": after}
    lengths = yield "export_message_lengths", {**values, "limit": limit}
    found = yield "export_messages", {**values, "limit": _fitting_count(lengths)}
    return [to_plain(message) for message in rows.MESSAGE.read_all(found)]


def export_stored_responses(after: str, limit: int) -> Operation[list[Record]]:
    """What a user's requests were answered, after an idempotency key."""
    lengths = yield "export_idempotent_response_lengths", {"after": after, "limit": limit}
    found = yield "export_idempotent_responses", {"after": after, "limit": _fitting_count(lengths)}
    return [_export_stored_response(row) for row in found]


def _fitting_count(lengths: Sequence[rows.Row]) -> int:
    """How many of them make a page; one alone may be as long as many pages."""
    sums = accumulate(int(row["length"]) for row in lengths)
    return max(1, sum(1 for length in sums if length <= PAGE_LENGTH))


def export_atoms(include_vectors: bool, space_id: str, after: int, limit: int) -> Operation[list[Record]]:
    """A space's atoms after a seq, whatever their status and that of the space."""
    # Of one moment: an atom and what is kept beside it belong together.
    yield "platform_snapshot", {}
    found = yield "export_atoms", {"space_id": space_id, "after": after, "limit": limit}
    if not found:
        return []
    seq_range = {"space_id": space_id, "first": found[0]["seq"], "last": found[-1]["seq"]}
    validity_ends: defaultdict[int, list[Record]] = defaultdict(list)
    for row in (yield "export_validity_ends", seq_range):
        # From `known_at` on it was known to hold up to `valid_to`, or with None, never to have held.
        end = None if row["valid_to"] == NEVER_VALID else from_micros(row["valid_to"])
        record = {"by_seq": row["by_seq"], "known_at": from_micros(row["known_at"]), "valid_to": end}
        validity_ends[row["seq"]].append(to_plain(record))
    vectors: defaultdict[int, Record] = defaultdict(dict)
    for row in (yield ("export_vectors" if include_vectors else "export_embedders"), seq_range):
        vectors[row["seq"]][row["embedder"]] = base64.b64encode(row["vector"]).decode() if include_vectors else None
    return [_export_atom(row, validity_ends[row["seq"]], vectors[row["seq"]], include_vectors) for row in found]


def export_bindings(scope: Scope) -> Operation[list[Record]]:
    """The bindings that a user made or that name it, without the other users they name."""
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
"""Collections that are listed by id alone, and how their rows read."""


class UserData(StorePart):
    """All that is kept of one user.

    - `records` gives every record of a collection as plain JSON values, also what is superseded, archived, deleted but
      still kept, or hidden; a part of it is in memory at a time. What was there at the start is given; what is written
      meanwhile may be. `parent_id` is a conversation's id, for its messages alone, or a space's, for its atoms.
      A binding is given if the user made it or it names the user, without the other users it names.
    - `erase` deletes every row of the user in one transaction, and with them the user's id: bindings that are about
      others as well are left to them, without their maker. Unless there was nothing, one event `user.erased` is
      written, which belongs to no user: its subject is `erasure_subject`, its data are the counts. When it returns, no
      file of the store holds what was erased; if that could not be done, `StoreBusyError` or `StoreFullError` says so,
      and erasing again does the rest.
    - `erasures_after` gives the subjects of erasures after a position in the events, and the position to go on from.
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
        await EventLog(self._engine).latest()  # which gives positions to what has none yet
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
        """What belongs to each of the parents, or to one of them."""
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
        """Page after page, each from where the last one ended."""
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
        """The user's events up to the newest there is now: more may be told for as long as we read."""
        log = EventLog(self._engine)
        after, end = 0, await log.latest()
        while after < end:
            events, after = await log.read(after=after, limit=MAX_PAGE_SIZE, **scope_values(scope))
            for event in events:
                yield to_plain(event)


def _approximate_length(record: Any) -> int:
    """About how many characters a record has."""
    if type(record) is str:
        return len(record)
    if type(record) is dict:
        return sum(map(_approximate_length, record.values()))
    return sum(map(_approximate_length, record)) if type(record) is list else 0
