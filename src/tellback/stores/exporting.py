"""Operations that read all that is kept of a user, a page at a time, for any engine."""

from __future__ import annotations

import base64
import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from itertools import accumulate
from typing import Any

from tellback.stores import access_rows, job_rows, memory_rows, rows, session_rows
from tellback.stores.chains import NEVER_HELD
from tellback.stores.engine import Operation
from tellback.types.bindings import ANY, Binding
from tellback.types.conversations import Event
from tellback.types.scope import Scope
from tellback.types.times import from_micros

Record = dict[str, Any]

PAGE_LENGTH = 500_000
"""About so many characters are read at a time."""

_PLAIN = frozenset((str, int, float, bool, type(None)))
LISTED: dict[str, Callable[[Sequence[Any]], Record]] = {}
"""Collections that are listed by id alone, and how their rows read."""


def plain(value: Any) -> Any:
    """A value as JSON knows it: moments in ISO 8601, lengths in seconds, no scope, which is the same for all.

    >>> plain({"at": datetime(2026, 3, 1), "of": (1, 2)})
    {'at': '2026-03-01T00:00:00', 'of': [1, 2]}
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != "scope")


def listed(collection: str, after: str, limit: int) -> Operation[list[Record]]:
    """Records of a collection that come after an id."""
    found = yield f"export_{collection}", {"after": after, "limit": limit}
    return [LISTED[collection](row) for row in found]


def messages(conversation_id: str, after: int, limit: int) -> Operation[list[Record]]:
    """A conversation's messages after a seq, hidden ones too."""
    values = {"conversation_id": conversation_id, "after": after}
    lengths = yield "export_message_lengths", {**values, "limit": limit}
    found = yield "export_messages", {**values, "limit": _fitting(lengths)}
    return [_read(rows.message, row) for row in found]


def kept_answers(after: str, limit: int) -> Operation[list[Record]]:
    """What a user's requests were answered, after an idempotency key."""
    lengths = yield "export_kept_answer_lengths", {"after": after, "limit": limit}
    found = yield "export_kept_answers", {"after": after, "limit": _fitting(lengths)}
    return [_kept_answer(*row) for row in found]


def _fitting(lengths: Sequence[Sequence[Any]]) -> int:
    """How many of them make a page; one alone may be as long as many pages."""
    sums = accumulate(int(row[0]) for row in lengths)
    return max(1, sum(1 for length in sums if length <= PAGE_LENGTH))


def atoms(include_vectors: bool, space_id: str, after: int, limit: int) -> Operation[list[Record]]:
    """A space's atoms after a seq, whatever their status and that of the space."""
    # Of one moment: an atom and what is kept beside it belong together.
    yield "platform_snapshot", {}
    found = yield "export_atoms", {"space_id": space_id, "after": after, "limit": limit}
    if not found:
        return []
    pages = {"space_id": space_id, "first": found[0][memory_rows.SEQ], "last": found[-1][memory_rows.SEQ]}
    ends: defaultdict[int, list[Record]] = defaultdict(list)
    for seq, *closing in (yield "export_closings", pages):
        ends[seq].append(_closing(*closing))
    vectors: defaultdict[int, Record] = defaultdict(dict)
    for seq, embedder, *vector in (yield ("export_vectors" if include_vectors else "export_embedders"), pages):
        vectors[seq][embedder] = _vector(vector[0]) if vector else None
    return [_atom(row, ends[row[memory_rows.SEQ]], vectors[row[memory_rows.SEQ]], include_vectors) for row in found]


def bindings(scope: Scope) -> Operation[list[Record]]:
    """The bindings that a user made or that name it."""
    found = yield "platform_bindings_seen", {}
    made = [job_rows.binding(row).binding for row in found]
    return [plain(_as_known_to(scope.user_id, binding)) for binding in made if _is_of(scope.user_id, binding)]


def event(told: Event) -> Record:
    """An event as a record."""
    record: Record = plain(told)
    return record


def _closing(by_seq: int, known_at: int, valid_to: int) -> Record:
    """From `known_at` on it was known to hold up to `valid_to`, or with None, never to have held."""
    end = None if valid_to == NEVER_HELD else from_micros(valid_to)
    record: Record = plain({"by_seq": by_seq, "known_at": from_micros(known_at), "valid_to": end})
    return record


def _atom(row: Sequence[Any], ends: list[Record], vectors: Record, include_vectors: bool) -> Record:
    origin, slot, value = row[-3:]
    record: Record = plain(memory_rows.atom(row))
    record |= {"seq": row[memory_rows.SEQ], "origin": origin, "slot": slot, "value": value}
    record |= {"closings": ends, "embedders": list(vectors)}
    return record | {"vectors": vectors} if include_vectors else record


def _vector(vector: bytes) -> str:
    """Little-endian half-precision numbers in base64."""
    return base64.b64encode(vector).decode("ascii")


def _is_of(user_id: str, binding: Binding) -> bool:
    return binding.created_by == user_id or any(scope.user_id == user_id for scope in binding.conversation_scope)


def _as_known_to(user_id: str, binding: Binding) -> Binding:
    """A binding without the other users it names."""
    scopes = tuple(scope for scope in binding.conversation_scope if scope.user_id in (ANY, user_id))
    if binding.created_by != user_id:
        binding = replace(binding, created_by=None, memory_space_ids=())
    return replace(binding, conversation_scope=scopes)


def _read(make: Callable[[Sequence[Any]], Any], row: Sequence[Any]) -> Record:
    record: Record = plain(make(row))
    return record


def _kept_answer(key: str, created_at: int, finished_at: int | None, status: int | None, *answer: Any) -> Record:
    moments = {"created_at": from_micros(created_at), "finished_at": finished_at and from_micros(finished_at)}
    record: Record = {"key": key, **plain(moments), "status": status}
    if status is None:
        return record
    given = access_rows.answer(status, *answer)
    record |= {"content_type": given.content_type, "headers": plain(given.headers)}
    try:
        return record | {"body": given.body.decode()}
    except UnicodeDecodeError:
        return record | {"body_base64": base64.b64encode(given.body).decode("ascii")}


def _space(row: Sequence[Any]) -> Record:
    record: Record = plain(memory_rows.space(row))
    return record | {"status": row[9]}


LISTED |= {
    "conversations": partial(_read, rows.conversation),
    "sessions": partial(_read, session_rows.session),
    "spaces": _space,
    "entities": partial(_read, memory_rows.entity),
    "jobs": partial(_read, job_rows.job),
    "usage": partial(_read, job_rows.usage),
    "api_keys": partial(_read, access_rows.api_key),
}
