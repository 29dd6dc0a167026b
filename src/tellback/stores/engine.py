"""Operations, the engine protocol that runs them, and the change notifier both engines share.

An operation is a generator: it yields a statement's name and parameters, and is sent the rows. It does no I/O, so the
same code runs in SQLite's writer thread and in PostgreSQL's asynchronous transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from functools import partial, wraps
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast

from tellback.types.access import Scope
from tellback.types.jsontext import dump_stored_json

T = TypeVar("T")
P = ParamSpec("P")
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
    With `positions_after_commit`, events get their positions only when they have been committed.
    `announce_instance` comes before anything is claimed for `instance_id`: from then on, other processes see that it is
    alive (`is_instance_alive`).
    `keeps_deleted_bytes` says that bytes of deleted rows stay in files until `wipe`; whoever deletes what must not stay
    sets the state `WIPE_STEP` (`operations.user_data`) in the same transaction, and `wipe` does nothing without it. It
    raises `StoreBusyError` or `StoreFullError` if traces are left, and can be called again.
    """

    instance_id: str
    positions_after_commit: bool
    search: Literal["none", "words", "meaning"]

    @property
    def keeps_deleted_bytes(self) -> bool: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, scope: Scope | None, make: OperationFactory[T], *, brief: bool = False) -> T: ...

    async def write(self, scope: Scope | None, make: OperationFactory[T]) -> T: ...

    def changes(self) -> AsyncGenerator[None, None]: ...

    async def announce_instance(self) -> None: ...

    async def is_instance_alive(self, instance_id: str) -> bool | None: ...

    async def wipe(self) -> None: ...


class StorePart:
    """A part of a store: its methods run operations on an engine."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine


def reads(operation: Callable[P, Operation[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a method of a `StorePart` that is an operation one that runs it, in a transaction that reads.

    The scope of the transaction is the method's argument `scope`; a method without one works across users.
    """
    return _run_by_engine(operation, "read")


def reads_briefly(operation: Callable[P, Operation[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The same, for a row or two by their keys."""
    return _run_by_engine(operation, "read", brief=True)


def writes(operation: Callable[P, Operation[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The same, in a transaction that writes."""
    return _run_by_engine(operation, "write")


def _run_by_engine(
    operation: Callable[P, Operation[T]], mode: str, **options: bool
) -> Callable[P, Coroutine[Any, Any, T]]:
    is_scoped = list(inspect.signature(operation).parameters)[1:2] == ["scope"]

    async def run(part: Any, *args: Any, **kwargs: Any) -> Any:
        scope = (args[0] if args else kwargs["scope"]) if is_scoped else None
        return await getattr(part._engine, mode)(scope, partial(operation, part, *args, **kwargs), **options)

    return cast("Callable[P, Coroutine[Any, Any, T]]", wraps(operation)(run))


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


def event_statement(
    type: str, subject_id: str, data: dict[str, Any], now: int, scope: Scope | None = None
) -> tuple[str, dict[str, Any]]:
    """The statement that writes an event. In work across users, `scope` says whose it is."""
    values = {"type": type, "subject_id": subject_id, "data": dump_stored_json(data), "now": now}
    return EVENT_STATEMENT, {**values, **scope_values(scope)}


class ChangeNotifier:
    """Rings for everyone who waits. Ringing is cheap when nobody does, and safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._closed = False

    @property
    def has_listeners(self) -> bool:
        """Whether anyone waits."""
        return bool(self._waiters)

    def notify(self) -> None:
        """Wake everyone up."""
        if not self._waiters:
            return
        with self._lock:
            waiters = list(self._waiters.items())
        for event, loop in waiters:
            if event.is_set():
                continue  # it has not looked yet: waking a loop for every change would cost more than the change
            with contextlib.suppress(RuntimeError):  # that loop has been closed, and nobody waits there any more
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Let everyone go."""
        self._closed = True
        self.notify()

    async def notifications(self) -> AsyncGenerator[None, None]:
        """Yields once at the start, then after every ring; several at once count as one. Ends when it is closed."""
        event = asyncio.Event()
        with self._lock:
            self._waiters[event] = asyncio.get_running_loop()
        try:
            while not self._closed:
                yield
                await event.wait()
                event.clear()
        finally:
            with self._lock:
                del self._waiters[event]
