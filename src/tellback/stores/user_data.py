"""All that is kept of a user, in SQL: `UserData` on any engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from functools import partial
from typing import Any

from tellback.stores import erasing, exporting
from tellback.stores.engine import Operation, SqlEngine, run_in_scope
from tellback.stores.exporting import Record
from tellback.stores.ports import EventLog
from tellback.stores.ports.admin import Collection, Erasure
from tellback.types.scope import Scope
from tellback.types.times import to_micros

MAX_PAGE_SIZE = 200
"""The most records read at a time: a page after long ones is shorter."""


class SqlUserData:
    """`UserData` on an engine."""

    def __init__(self, engine: SqlEngine, events: EventLog) -> None:
        self._engine = engine
        self._events = events

    def records(
        self, scope: Scope, collection: Collection, *, parent_id: str | None = None, include_vectors: bool = False
    ) -> AsyncGenerator[Record, None]:
        match collection:
            case "messages":
                return self._export_children(scope, "conversations", parent_id, exporting.export_messages)
            case "atoms":
                return self._export_children(
                    scope, "spaces", parent_id, partial(exporting.export_atoms, include_vectors)
                )
            case "bindings":
                return self._export_bindings(scope)
            case "kept_answers":
                return self._export_pages(scope, exporting.export_stored_responses, "key", "")
            case "events":
                return self._export_events(scope)
            case _:
                return self._export_pages(scope, partial(exporting.export_page, collection), "id", "")

    async def erase(self, scope: Scope, *, now: datetime) -> Erasure:
        needs_wipe = self._engine.keeps_deleted_bytes

        def make_operation() -> Operation[Erasure]:
            return run_in_scope(scope, erasing.erase_user(scope, to_micros(now), needs_wipe))

        erasure = await self._engine.write(None, make_operation)
        await self._engine.wipe()
        return erasure

    async def erasures_after(self, *, after: int) -> tuple[list[str], int]:
        await self._events.latest()  # which gives positions to what has none yet
        found = await self._engine.read(None, partial(_list_erasures, after))
        return [row[0] for row in found], max([after, *(int(row[1]) for row in found)])

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
            limit = max(1, min(MAX_PAGE_SIZE, exporting.PAGE_LENGTH // length))

    async def _export_bindings(self, scope: Scope) -> AsyncGenerator[Record, None]:
        for record in await self._engine.read(scope, partial(exporting.export_bindings, scope)):
            yield record

    async def _export_events(self, scope: Scope) -> AsyncGenerator[Record, None]:
        """The user's events up to the newest there is now: more may be told for as long as we read."""
        after, end = 0, await self._events.latest()
        while after < end:
            names = {"tenant_id": scope.tenant_id, "app_id": scope.app_id, "user_id": scope.user_id}
            events, after = await self._events.read(after=after, limit=MAX_PAGE_SIZE, **names)
            for event in events:
                yield exporting.export_event(event)


def _list_erasures(after: int) -> Operation[list[Any]]:
    return (yield "platform_events_of_erasure", {"after": after})


def _approximate_length(record: Any) -> int:
    """About how many characters a record has."""
    if type(record) is str:
        return len(record)
    if type(record) is dict:
        return sum(map(_approximate_length, record.values()))
    return sum(map(_approximate_length, record)) if type(record) is list else 0
