"""Factories and helpers of the session adapter tests."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from tellback.sessions.adapter import PersistenceAdapter
from tellback.types.ids import as_utc
from tellback.types.sessions import MessageData, SessionData

T = TypeVar("T")

NOON = as_utc("2026-03-01T12:00:00.000001+00:00")
EVENTUALLY_SECONDS = 30.0

_numbers = itertools.count(1)


class MakeAdapter(Protocol):
    """Makes an adapter of the storage under test, not yet initialized: another one, of other connections, each time.

    Those of another `prefix` have tables, keys or indices of their own in the same database. `session_ttl` and
    `message_ttl` are seconds.
    """

    def __call__(
        self, prefix: str = "one", *, session_ttl: float | None = None, message_ttl: float | None = None
    ) -> PersistenceAdapter: ...


class Restartable(Protocol):
    """A server that can be killed as by a power cut, and started again with what it had stored."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


def make_session(id: str = "web-42", **changes: Any) -> SessionData:
    """A session that was created at noon."""
    data = SessionData(id, user_id="maya", agent_name="Wanda", created_at=NOON, updated_at=NOON)
    return replace(data, **changes)


def make_message(content: str, session_id: str = "web-42", **changes: Any) -> MessageData:
    """A message of the user, later than those made before."""
    number = next(_numbers)
    at = NOON + timedelta(milliseconds=number)
    data = MessageData(f"msg_{number:08}", session_id, "user", content, user_id="maya", created_at=at)
    return replace(data, **changes)


def later(seconds: float) -> datetime:
    """A moment after noon."""
    return NOON + timedelta(seconds=seconds)


def contents(messages: list[MessageData]) -> list[str]:
    """What was said, in order."""
    return [each.content for each in messages]


async def eventually(read: Callable[[], Awaitable[T]], is_expected: Callable[[T], bool]) -> T:
    """What `look` gives, once it is right; the last of it after half a minute."""
    deadline = time.monotonic() + EVENTUALLY_SECONDS
    while True:
        found = await read()
        if is_expected(found) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.05)
