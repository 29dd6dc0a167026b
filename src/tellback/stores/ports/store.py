"""The ports that span all data: the event log, the data of one user, and `Store` itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, get_args

from tellback.stores.ports.access import ApiKeys, IdempotencyStore, RateWindows
from tellback.stores.ports.conversations import AgentSessions, ConversationLog
from tellback.stores.ports.jobs import Bindings, JobLog
from tellback.stores.ports.memory import MemoryStore
from tellback.types.access import Scope
from tellback.types.conversations import Event


class EventLog(Protocol):
    """Every change, in the order of commits.

    - `read` gives events after a position, oldest first, and the position to go on from, which is past those of other
      scopes. An event never appears before a position already given: whoever goes on misses none and gets none twice.
    - `latest` is the newest position, 0 when there is none.
    - `changes` yields whenever there may be something new, whichever process wrote it, and once at the start.
    """

    async def read(
        self,
        *,
        after: int,
        limit: int,
        tenant_id: str | None = None,
        app_id: str | None = None,
        user_id: str | None = None,
    ) -> tuple[list[Event], int]: ...

    async def latest(self) -> int: ...

    def changes(self) -> AsyncGenerator[None, None]: ...


Collection = Literal[
    "conversations",
    "messages",
    "sessions",
    "spaces",
    "atoms",
    "entities",
    "bindings",
    "jobs",
    "usage",
    "api_keys",
    "kept_answers",
    "events",
]
COLLECTIONS: tuple[Collection, ...] = get_args(Collection)
"""What a user's data consists of, in the order it is handed out."""

USER_ERASED = "user.erased"
"""The event that tells of an erasure."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """What an erasure deleted: how many of each, and the ids of the jobs among it."""

    counts: Mapping[str, int]
    job_ids: tuple[str, ...] = ()


def erasure_subject(scope: Scope) -> str:
    """What the event of an erasure names in place of the user: whoever knows the user can tell that it is meant.

    >>> erasure_subject(Scope("acme", "support", "maya"))[:16]
    'f66d4fb83f8998cb'
    """
    identity = json.dumps([scope.tenant_id, scope.app_id, scope.user_id], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(identity.encode()).hexdigest()


class UserData(Protocol):
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
    ) -> AsyncGenerator[dict[str, Any], None]: ...

    async def erase(self, scope: Scope, *, now: datetime) -> Erasure: ...

    async def erasures_after(self, *, after: int) -> tuple[list[str], int]: ...


class Store(Protocol):
    """A place where everything is kept. `owner` names this opening of it among all processes that use it.

    `open` migrates the schema to this release's version, or raises `SchemaVersionError` for a newer one; it and `close`
    may be called twice. `is_alive` says whether an owner still runs: False only when that is certain, None when nobody
    can tell.
    """

    url: str

    @property
    def owner(self) -> str: ...

    @property
    def conversations(self) -> ConversationLog: ...

    @property
    def sessions(self) -> AgentSessions: ...

    @property
    def memories(self) -> MemoryStore: ...

    @property
    def bindings(self) -> Bindings: ...

    @property
    def jobs(self) -> JobLog: ...

    @property
    def events(self) -> EventLog: ...

    @property
    def user_data(self) -> UserData: ...

    @property
    def api_keys(self) -> ApiKeys: ...

    @property
    def rate_windows(self) -> RateWindows: ...

    @property
    def idempotency(self) -> IdempotencyStore: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def is_alive(self, owner: str) -> bool | None: ...
