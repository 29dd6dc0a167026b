"""All that is kept of a user, to be handed out or erased: the port."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, get_args

from tellback.types.scope import Scope

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
      meanwhile may be. `of` is a conversation's id, for its messages alone, or a space's, for its atoms.
      A binding is given if the user made it or it names the user, without the other users it names.
    - `erase` deletes every row of the user in one transaction, and with them the user's id: bindings that are about
      others as well are left to them, without their maker. Unless there was nothing, one event `user.erased` is
      written, which belongs to no user: its subject is `erased_subject`, its data are the counts. When it returns, no
      file of the store holds what was erased; if that could not be done, `StoreBusyError` or `StoreFullError` says so,
      and erasing again does the rest.
    - `erased` gives the subjects of erasures after a position in the events, and the position to go on from.
    """

    def records(
        self, scope: Scope, collection: Collection, *, parent_id: str | None = None, include_vectors: bool = False
    ) -> AsyncGenerator[dict[str, Any], None]: ...

    async def erase(self, scope: Scope, *, now: datetime) -> Erasure: ...

    async def erasures_after(self, *, after: int) -> tuple[list[str], int]: ...
