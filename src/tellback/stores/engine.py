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
"""The statement that writes an event. Subscribers are notified only after operations that run it."""

UNBOUNDED = 2**62
"""Larger than any seq, limit or timestamp in use."""


class SqlEngine(Protocol):
    """Runs each operation in its own transaction.

    - `scope` is bound to every statement (`:tenant_id`, `:app_id`, `:user_id`). A database that can enforce it does so.
      None means work across users.
    - `read` runs an operation that only reads. A `brief` read looks up one or two rows by key, so an engine may run it
      directly instead of handing it to a thread.
    - `write` may run an operation again after a retryable database error, so it takes a function that creates the
      operation.
    - `changes` yields once at the start, and then whenever any process may have committed events.
    - `search` is the search that the database itself supports: "none", "words" (text only) or "meaning" (text and
      vectors).
    - `positions_after_commit`: whether events get their positions only after they are committed.
    - `announce_instance` is called before anything is claimed for `instance_id`. From then on, `is_instance_alive`
      returns True for it in other processes.
    - `keeps_deleted_bytes`: whether bytes of deleted rows stay in files until `wipe` is called. An operation that must
      remove such bytes sets the state `WIPE_STEP` (`operations.user_data`) in its transaction; without that state,
      `wipe` does nothing. `wipe` raises `StoreBusyError` or `StoreFullError` if bytes are left, and can be called
      again.
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
    """Turn an operation into a method of a `StorePart` that runs it in a read transaction.

    The transaction's scope is the method's argument `scope`. A method without that argument works across users.
    """
    return _run_by_engine(operation, "read")


def reads_briefly(operation: Callable[P, Operation[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Like `reads`, for operations that look up one or two rows by key."""
    return _run_by_engine(operation, "read", brief=True)


def writes(operation: Callable[P, Operation[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Like `reads`, but in a write transaction."""
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
    """Return the scope as values to bind."""
    if scope is None:
        return {}
    return {"tenant_id": scope.tenant_id, "app_id": scope.app_id, "user_id": scope.user_id}


def run_in_scope(scope: Scope, operation: Operation[T]) -> Operation[T]:
    """Run one user's operation inside work across users."""
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
    """Return the statement that writes an event. In work across users, `scope` is the event's owner."""
    values = {"type": type, "subject_id": subject_id, "data": dump_stored_json(data), "now": now}
    return EVENT_STATEMENT, {**values, **scope_values(scope)}


class ChangeNotifier:
    """Wakes all waiting listeners. `notify` is cheap without listeners, and safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._closed = False

    @property
    def has_listeners(self) -> bool:
        """Whether any listener waits."""
        return bool(self._waiters)

    def notify(self) -> None:
        """Wake all listeners."""
        if not self._waiters:
            return
        with self._lock:
            waiters = list(self._waiters.items())
        for event, loop in waiters:
            if event.is_set():
                continue  # already woken: waking a loop for every change would cost more than the change
            with contextlib.suppress(RuntimeError):  # the listener's loop has been closed
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Wake all listeners and end their iterations."""
        self._closed = True
        self.notify()

    async def notifications(self) -> AsyncGenerator[None, None]:
        """Yield once at the start, then after notifications (several may count as one), until closed."""
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
