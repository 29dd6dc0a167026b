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

_JSON_TYPES = frozenset((str, int, float, bool, type(None)))
ROW_EXPORTERS: dict[str, Callable[[Sequence[Any]], Record]] = {}
"""Collections that are listed by id alone, and how their rows read."""


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
    return [ROW_EXPORTERS[collection](row) for row in found]


def export_messages(conversation_id: str, after: int, limit: int) -> Operation[list[Record]]:
    """A conversation's messages after a seq, hidden ones too."""
    values = {"conversation_id": conversation_id, "after": after}
    lengths = yield "export_message_lengths", {**values, "limit": limit}
    found = yield "export_messages", {**values, "limit": _fitting_count(lengths)}
    return [_export_row(rows.message_from_row, row) for row in found]


def export_stored_responses(after: str, limit: int) -> Operation[list[Record]]:
    """What a user's requests were answered, after an idempotency key."""
    lengths = yield "export_kept_answer_lengths", {"after": after, "limit": limit}
    found = yield "export_kept_answers", {"after": after, "limit": _fitting_count(lengths)}
    return [_export_stored_response(*row) for row in found]


def _fitting_count(lengths: Sequence[Sequence[Any]]) -> int:
    """How many of them make a page; one alone may be as long as many pages."""
    sums = accumulate(int(row[0]) for row in lengths)
    return max(1, sum(1 for length in sums if length <= PAGE_LENGTH))


def export_atoms(include_vectors: bool, space_id: str, after: int, limit: int) -> Operation[list[Record]]:
    """A space's atoms after a seq, whatever their status and that of the space."""
    # Of one moment: an atom and what is kept beside it belong together.
    yield "platform_snapshot", {}
    found = yield "export_atoms", {"space_id": space_id, "after": after, "limit": limit}
    if not found:
        return []
    seq_range = {"space_id": space_id, "first": found[0][memory_rows.SEQ], "last": found[-1][memory_rows.SEQ]}
    closings: defaultdict[int, list[Record]] = defaultdict(list)
    for seq, *closing in (yield "export_closings", seq_range):
        closings[seq].append(_export_closing(*closing))
    vectors: defaultdict[int, Record] = defaultdict(dict)
    for seq, embedder, *vector in (yield ("export_vectors" if include_vectors else "export_embedders"), seq_range):
        vectors[seq][embedder] = _encode_vector(vector[0]) if vector else None
    return [
        _export_atom(row, closings[row[memory_rows.SEQ]], vectors[row[memory_rows.SEQ]], include_vectors)
        for row in found
    ]


def export_bindings(scope: Scope) -> Operation[list[Record]]:
    """The bindings that a user made or that name it."""
    found = yield "platform_bindings_seen", {}
    stored = [job_rows.binding_from_row(row).binding for row in found]
    return [
        to_plain(_without_other_users(scope.user_id, binding))
        for binding in stored
        if _concerns_user(scope.user_id, binding)
    ]


def export_event(event: Event) -> Record:
    """An event as a record."""
    record: Record = to_plain(event)
    return record


def _export_closing(by_seq: int, known_at: int, valid_to: int) -> Record:
    """From `known_at` on it was known to hold up to `valid_to`, or with None, never to have held."""
    end = None if valid_to == NEVER_HELD else from_micros(valid_to)
    record: Record = to_plain({"by_seq": by_seq, "known_at": from_micros(known_at), "valid_to": end})
    return record


def _export_atom(row: Sequence[Any], closings: list[Record], vectors: Record, include_vectors: bool) -> Record:
    origin, slot, value = row[-3:]
    record: Record = to_plain(memory_rows.atom_from_row(row))
    record |= {"seq": row[memory_rows.SEQ], "origin": origin, "slot": slot, "value": value}
    record |= {"closings": closings, "embedders": list(vectors)}
    return record | {"vectors": vectors} if include_vectors else record


def _encode_vector(vector: bytes) -> str:
    """Little-endian half-precision numbers in base64."""
    return base64.b64encode(vector).decode("ascii")


def _concerns_user(user_id: str, binding: Binding) -> bool:
    return binding.created_by == user_id or any(scope.user_id == user_id for scope in binding.conversation_scope)


def _without_other_users(user_id: str, binding: Binding) -> Binding:
    """A binding without the other users it names."""
    scopes = tuple(scope for scope in binding.conversation_scope if scope.user_id in (ANY, user_id))
    if binding.created_by != user_id:
        binding = replace(binding, created_by=None, memory_space_ids=())
    return replace(binding, conversation_scope=scopes)


def _export_row(convert: Callable[[Sequence[Any]], Any], row: Sequence[Any]) -> Record:
    record: Record = to_plain(convert(row))
    return record


def _export_stored_response(
    key: str, created_at: int, finished_at: int | None, status: int | None, *columns: Any
) -> Record:
    moments = {"created_at": from_micros(created_at), "finished_at": finished_at and from_micros(finished_at)}
    record: Record = {"key": key, **to_plain(moments), "status": status}
    if status is None:
        return record
    response = access_rows.stored_response_from_columns(status, *columns)
    record |= {"content_type": response.content_type, "headers": to_plain(response.headers)}
    try:
        return record | {"body": response.body.decode()}
    except UnicodeDecodeError:
        return record | {"body_base64": base64.b64encode(response.body).decode("ascii")}


def _export_space(row: Sequence[Any]) -> Record:
    record: Record = to_plain(memory_rows.space_from_row(row))
    return record | {"status": row[9]}


ROW_EXPORTERS |= {
    "conversations": partial(_export_row, rows.conversation_from_row),
    "sessions": partial(_export_row, session_rows.session_from_row),
    "spaces": _export_space,
    "entities": partial(_export_row, memory_rows.entity_from_row),
    "jobs": partial(_export_row, job_rows.job_from_row),
    "usage": partial(_export_row, job_rows.usage_from_row),
    "api_keys": partial(_export_row, access_rows.api_key_from_row),
}
