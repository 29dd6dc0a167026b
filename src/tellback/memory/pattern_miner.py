"""The pattern miner: its options, and the service that finds patterns in the spaces of a store, without a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tellback.errors import ConfigurationError, NotFoundError
from tellback.memory.embedding import EmbeddingService, embed_changes
from tellback.memory.patterns import PatternChanges, find_patterns
from tellback.runtime import Runtime
from tellback.stores import AtomFilter, MemoryStore, Reconciliation
from tellback.types.access import Scope
from tellback.types.memory import Atom, AtomStatus, CategoryKind

BATCH_SIZE = 256
MAX_ATTEMPTS = 10
BEGINNING_OF_TIME = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PatternMining:
    """How patterns are mined: how often, from how many episodes on different days, and never of these categories.

    >>> PatternMining(exclude=("medical",)).at_least
    3
    """

    every: timedelta = timedelta(days=1)
    at_least: int = 3
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.exclude, str):
            raise ConfigurationError(f"exclude is a list of category names, not {self.exclude!r}.")
        if not isinstance(self.at_least, int) or self.at_least < 2:
            raise ConfigurationError(f"at_least is a number of episodes from 2 on, not {self.at_least!r}.")
        if not isinstance(self.every, timedelta) or self.every <= timedelta(0):
            raise ConfigurationError(f"every is a timedelta, not {self.every!r}.")


def resolve_pattern_mining(value: Any) -> PatternMining | None:
    """What can be given as a way of mining."""
    if value == "daily":
        return PatternMining()
    if value is None or isinstance(value, PatternMining):
        return value
    raise ConfigurationError(f"patterns is 'daily', a PatternMining or None, not {value!r:.80}.")


class PatternMiner:
    """Mines the spaces of a store."""

    def __init__(self, runtime: Runtime, embedding: EmbeddingService, options: PatternMining) -> None:
        self._runtime = runtime
        self._embedding = embedding
        self._options = options

    async def mine_all(self, changed_since: datetime | None = None) -> int:
        """Mine every space, or those that changed since then; gives how many atoms were added or changed."""
        count = 0
        async for scope, space_id in self._iterate_spaces(changed_since):
            try:
                count += await self.mine(scope, space_id)
            except NotFoundError:  # deleted meanwhile
                continue
        return count

    async def mine(self, scope: Scope, space_id: str) -> int:
        """Mine one space; gives how many atoms were added or changed."""
        for _ in range(MAX_ATTEMPTS):
            version = await self._memories.version(scope, space_id)
            found = await self._find_patterns(scope, space_id)
            changed = await self._apply(scope, space_id, found.reconciliation, version)
            if changed is not None:
                archived = await self._set_status(scope, found.archived, AtomStatus.ARCHIVED)
                return changed + archived + await self._set_status(scope, found.restored, AtomStatus.ACTIVE)
        return 0  # it changes all the time: its turn comes again

    async def _find_patterns(self, scope: Scope, space_id: str) -> PatternChanges:
        episodes = await self._load_atoms(scope, space_id, AtomStatus.ACTIVE, CategoryKind.EPISODE)
        patterns = [
            atom
            for status in AtomStatus
            for atom in await self._load_atoms(scope, space_id, status, CategoryKind.PATTERN)
        ]
        if not patterns and len(episodes) < self._options.at_least:
            return PatternChanges()
        options = self._options
        # Thousands of episodes take a while, in which others are to be served.
        return await asyncio.to_thread(
            find_patterns, episodes, patterns, at_least=options.at_least, exclude=options.exclude
        )

    async def _apply(self, scope: Scope, space_id: str, reconciliation: Reconciliation, version: int) -> int | None:
        """How many atoms were added or changed; None if the space has changed meanwhile."""
        if not reconciliation.changes:
            return 0 if await self._memories.version(scope, space_id) == version else None
        reconciliation = replace(reconciliation, changes=await embed_changes(self._embedding, reconciliation.changes))
        changed = await self._memories.reconcile(
            scope, space_id, reconciliation, expected_version=version, end=None, now=self._runtime.clock()
        )
        return None if changed is None else len(changed)

    async def _set_status(self, scope: Scope, ids: Sequence[str], status: AtomStatus) -> int:
        count = 0
        for id in ids:
            try:
                await self._memories.set_status(scope, id, status, now=self._runtime.clock())
            except NotFoundError:  # deleted meanwhile
                continue
            count += 1
        return count

    async def _load_atoms(self, scope: Scope, space_id: str, status: AtomStatus, kind: CategoryKind) -> list[Atom]:
        return await self._memories.atoms(scope, space_id, AtomFilter(status, BEGINNING_OF_TIME, kind=kind))

    async def _iterate_spaces(self, changed_since: datetime | None) -> AsyncIterator[tuple[Scope, str]]:
        after = ""
        while found := await self._memories.all_spaces(after=after, limit=BATCH_SIZE, changed_since=changed_since):
            for each in found:
                yield each
            after = found[-1][1]

    @property
    def _memories(self) -> MemoryStore:
        return self._runtime.store.memories
