"""Convert rows of spaces, atoms and entities to values; the column positions of an atom's row.

Columns are in the order in which the SQL files list them.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Sequence
from typing import Any

from tellback.stores.rows import optional_datetime
from tellback.types.access import Scope
from tellback.types.ids import from_micros, register_cache
from tellback.types.jsontext import dump_stored_json
from tellback.types.memory import (
    Atom,
    AtomStatus,
    Category,
    CategoryKind,
    Citation,
    Entity,
    EntityStatus,
    EntityType,
    MemorySpace,
)

TEXT, CATEGORY, KIND, IMPORTANCE, STATUS, VALID_FROM, CREATED_AT = 5, 6, 7, 8, 10, 11, 13
SUPERSEDES, SUPERSEDED_BY, SOURCE_CONVERSATION_ID, ENTITY_IDS, SEQ, SLOT, VALUE = 16, 17, 18, 20, 22, 23, 24
"""Places in a row of `atoms`, for whoever needs a few of them of many rows."""

_ATOM_STATUSES = {status.value: status for status in AtomStatus}


def space_from_row(row: Sequence[Any]) -> MemorySpace:
    """A row of `spaces`."""
    return MemorySpace(
        id=row[0],
        scope=Scope(row[1], row[2], row[3]),
        name=row[4],
        metadata=json.loads(row[5]),
        created_at=from_micros(row[6]),
        updated_at=from_micros(row[7]),
        atom_count=row[8],
    )


def atom_from_row(row: Sequence[Any]) -> Atom:
    """A row of `atoms`."""
    return Atom(
        id=row[0],
        memory_space_id=row[1],
        scope=_cached_scope(row[2], row[3], row[4]),
        text=row[5],
        category=_cached_category(row[6], row[7]),
        importance=row[8],
        confidence=row[9],
        status=_ATOM_STATUSES[row[10]],
        valid_from=from_micros(row[11]),
        valid_to=optional_datetime(row[12]),
        created_at=from_micros(row[13]),
        updated_at=from_micros(row[14]),
        superseded_at=optional_datetime(row[15]),
        supersedes=row[16],
        superseded_by=row[17],
        source_conversation_id=row[18],
        source_message_ids=parse_ids(row[19]),
        entity_ids=parse_ids(row[20]),
        other_sources=parse_citations(row[21]),
    )


def parse_citations(text: str | None) -> tuple[Citation, ...]:
    """A JSON list of conversations with their messages, which is mostly missing.

    >>> parse_citations('[["conv_1",["msg_2"]]]')
    (Citation(conversation_id='conv_1', message_ids=('msg_2',)),)
    """
    return () if text is None else tuple(Citation(id, tuple(messages)) for id, messages in json.loads(text))


def dump_citations(sources: Sequence[Citation]) -> str | None:
    """The same, to be stored.

    >>> dump_citations([Citation("conv_1", ("msg_2",))])
    '[["conv_1",["msg_2"]]]'
    """
    return dump_stored_json([[each.conversation_id, each.message_ids] for each in sources]) if sources else None


def entity_from_row(row: Sequence[Any]) -> Entity:
    """A row of `entities`."""
    return Entity(
        id=row[0],
        memory_space_id=row[1],
        scope=Scope(row[2], row[3], row[4]),
        type=EntityType(row[5]),
        canonical_name=row[6],
        description=row[7],
        attributes=json.loads(row[8]),
        aliases=parse_ids(row[9]),
        status=EntityStatus(row[10]),
        merged_into=row[11],
        first_seen_at=optional_datetime(row[12]),
        last_seen_at=optional_datetime(row[13]),
        atom_count=row[14],
        created_at=from_micros(row[15]),
        updated_at=from_micros(row[16]),
    )


def parse_ids(text: str) -> tuple[str, ...]:
    """A JSON list of texts, which is mostly empty or of one plain id.

    >>> parse_ids("[]"), parse_ids('["msg_1"]'), parse_ids('["a","b"]')
    ((), ('msg_1',), ('a', 'b'))
    """
    if text == "[]":
        return ()
    inner = text[2:-2]
    return (inner,) if '"' not in inner and "\\" not in inner else tuple(json.loads(text))


def vector_to_floats(vector: bytes) -> tuple[float, ...]:
    """Half-precision numbers, one by one.

    >>> vector_to_floats(bytes.fromhex("003c00c0"))
    (1.0, -2.0)
    """
    return struct.unpack(f"<{len(vector) // 2}e", vector)


@functools.lru_cache(maxsize=1_024)
def _cached_category(name: str, kind: str) -> Category:
    return Category(name, CategoryKind(kind))


@functools.lru_cache(maxsize=1_024)
def _cached_scope(tenant_id: str, app_id: str, user_id: str) -> Scope:
    return Scope(tenant_id, app_id, user_id)


register_cache(_cached_category.cache_clear)
register_cache(_cached_scope.cache_clear)
