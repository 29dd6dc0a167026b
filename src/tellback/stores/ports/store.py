"""The ports that span all data: the event log, the data of one user, access to a server, and `Store` itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, get_args

from tellback.stores.ports.conversations import AgentSessions, ConversationLog
from tellback.stores.ports.jobs import Bindings, JobLog
from tellback.stores.ports.memory import MemoryStore
from tellback.types.access import ApiKey, Scope
from tellback.types.conversations import Event


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key with the digest of its secret."""

    key: ApiKey
    digest: str = field(repr=False)


class ApiKeys(Protocol):
    """API keys of all tenants, each change with its event in the same transaction. Secrets are not kept.

    - `create` keeps a key with the digest of its secret; `get` gives both, also if the key is no longer valid.
    - `list_keys` gives the keys of a tenant and an app, with None of all, the oldest first.
    - `revoke` ends a key for good; one that was revoked before stays as it is. A key of another tenant or app than
      those named raises `NotFoundError`, as one that never was.
    """

    async def create(self, key: ApiKey, digest: str) -> ApiKey: ...

    async def get(self, id: str) -> StoredKey | None: ...

    async def list_keys(self, *, tenant_id: str | None = None, app_id: str | None = None) -> list[ApiKey]: ...

    async def revoke(
        self, id: str, *, tenant_id: str | None = None, app_id: str | None = None, now: datetime
    ) -> ApiKey: ...


class RateWindows(Protocol):
    """How much of a limit was taken in a window of time, by all processes together.

    `take` adds up to `requested` to what was taken of `name` in a window, but never past `max_total`, and gives how
    many were granted. Windows of all names are numbered alike, by the clock; those more than ten before one that begins
    are forgotten. A name outlives an erasure for as long: it names a credential, never a user.
    """

    async def take(self, name: str, window: int, requested: int, max_total: int) -> int: ...


RESPONSE_LIFETIME = timedelta(hours=24)
"""How long an answer is kept."""


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """The request is ours to answer: `claim_token` says so when it is finished or abandoned."""

    claim_token: str


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What a request was answered."""

    status: int
    content_type: str
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)


class IdempotencyStore(Protocol):
    """Answers by the idempotency key of their request, each user's their own, for a day.

    - `begin` claims a key that nobody has used, or whose claim has run out without an answer, until `lease_until`. It
      gives the answer if there is one to a request of the same `fingerprint`. Another fingerprint raises
      `IdempotencyConflictError`, a claim that someone else holds `RequestInProgressError`.
    - `finish` keeps the answer, and `abandon` frees the key, as nothing was changed; both do nothing unless the claim
      is still held by that token. `finish` says whether the answer was kept.
    - `delete_before` deletes what was begun before that moment, no more than `limit`; gives how many. `begin` does so
      now and then.
    """

    async def begin(
        self, scope: Scope, key: str, fingerprint: str, *, now: datetime, lease_until: datetime
    ) -> IdempotencyClaim | StoredResponse: ...

    async def finish(
        self, scope: Scope, key: str, claim_token: str, response: StoredResponse, *, now: datetime
    ) -> bool: ...

    async def abandon(self, scope: Scope, key: str, claim_token: str) -> None: ...

    async def delete_before(self, moment: datetime, *, limit: int = 500) -> int: ...


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
    "idempotent_responses",
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
    """A place where everything is kept. `instance_id` names this opening of it among all processes that use it.

    `open` migrates the schema to this release's version, or raises `SchemaVersionError` for a newer one; it and `close`
    may be called twice. `is_instance_alive` says whether an instance still runs: False only when that is certain, None
    when it cannot be known.
    """

    url: str

    @property
    def instance_id(self) -> str: ...

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

    async def is_instance_alive(self, instance_id: str) -> bool | None: ...
