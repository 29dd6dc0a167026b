"""Operations on a database, written once for every engine.

An operation is a generator: it yields a statement's name and values, and is sent the rows. It knows no driver and does
not wait, so the same code runs inside SQLite's writer thread and inside PostgreSQL's asynchronous transactions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from typing import Any, Literal, Protocol, TypeVar

from tellback.types.scope import Scope

T = TypeVar("T")
Operation = Generator[tuple[str, Mapping[str, Any]], list[Any], T]
OperationFactory = Callable[[], Operation[T]]

EVENT_STATEMENT = "event_insert"
"""The statement that writes an event: only operations that run it are announced to subscribers."""

UNBOUNDED = 2**62
"""Larger than any seq, limit or moment that occurs."""


class SqlEngine(Protocol):
    """Runs operations, each in a transaction of its own.

    `scope` is bound to every statement (`:tenant_id`, `:app_id`, `:user_id`) and, where the database can, enforced by
    it; None is work across users. `write` may run an operation again when the database asked for it, so it takes a
    function that makes it. A `brief` read looks up a row or two by their keys: it may be done at once, without handing
    it to anyone else. `changes` yields once at the start, and whenever any process may have committed events.
    `search` says whether the database finds texts itself: not at all, by their words, or by vectors as well.
    `show_alive` comes before anything is claimed for `owner`: from then on, `is_alive` in other processes sees it.
    `leaves_traces` says that bytes of deleted rows stay in files until `wipe`; whoever deletes what must not stay sets
    the mark `erasing.WIPE` in the same transaction, and `wipe` does nothing without it. It raises `StoreBusyError` or
    `StoreFullError` if traces are left, and can be called again.
    """

    owner: str
    search: Literal["none", "words", "meaning"]

    @property
    def keeps_deleted_bytes(self) -> bool: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, scope: Scope | None, make: OperationFactory[T], *, brief: bool = False) -> T: ...

    async def write(self, scope: Scope | None, make: OperationFactory[T]) -> T: ...

    def changes(self) -> AsyncGenerator[None, None]: ...

    async def announce_owner(self) -> None: ...

    async def is_alive(self, owner: str) -> bool | None: ...

    async def wipe(self) -> None: ...


def scope_values(scope: Scope | None) -> dict[str, Any]:
    """The scope as values to bind."""
    if scope is None:
        return {}
    return {"tenant_id": scope.tenant_id, "app_id": scope.app_id, "user_id": scope.user_id}


def run_in_scope(scope: Scope, operation: Operation[T]) -> Operation[T]:
    """A user's operation inside work across users."""
    bound_scope = scope_values(scope)
    try:
        name, parameters = next(operation)
        while True:
            rows = yield name, {**bound_scope, **parameters}
            name, parameters = operation.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result
