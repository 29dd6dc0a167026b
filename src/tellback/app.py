"""`Tellback`: opens a store, connects the parts, and returns a handle for each user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self

from tellback import validation
from tellback.admin import follow_erasures, list_usage, total_usage
from tellback.api_keys import Keys
from tellback.chat import Model
from tellback.chat.discovery import resolve_model
from tellback.chat.registry import load_model
from tellback.concurrency import cancel_and_wait
from tellback.conversations import Conversations
from tellback.conversations.conversations import close_stale
from tellback.conversations.summary import RollingSummaries
from tellback.embed import Embedder, resolve_embedder
from tellback.errors import ConfigurationError
from tellback.jobs import Jobs, Schedule, WorkerOptions, open_worker
from tellback.memory.bindings import AllBindings
from tellback.memory.extraction.extractors import ExtractorLike, validate_extractor
from tellback.memory.patterns import PatternMining, resolve_pattern_mining
from tellback.memory.templates import Templates
from tellback.memory.working_context import TokenCounter
from tellback.portal import Handle
from tellback.runtime import Runtime
from tellback.specs.agents import SpecRegistry
from tellback.stores import EXTRACTION_JOB, EventFeed, Store, open_store
from tellback.sync import SyncTellback
from tellback.tools import Tool
from tellback.turns.engine import TurnEngine
from tellback.types.access import Scope
from tellback.types.conversations import Conversation
from tellback.types.ids import utc_now
from tellback.types.jobs import Job, UsageRecord, UsageTotal
from tellback.user import User as User

if TYPE_CHECKING:
    from tellback.memory.engine import MemoryEngine
    from tellback.memory.extraction.service import ReplayProgress, ReplayReport
    from tellback.specs.model import AgentSpec


SUMMARY_REFRESH_SECONDS = 3_600.0
STALE_CHECK_SECONDS = 300.0
"""How often outdated summaries are refreshed, and the longest time between two checks for stale conversations."""


class Tellback(Handle):
    """The application: conversations and memories of many users in one store.

    - `url`: a path (`tellback.db`), `sqlite:///path`, `:memory:`, `postgresql://…`, or a `Store` object.
    - `model`: the default model: a name, a model object, or "auto" for the best available one
      (`tellback.chat.choose_model`). Without a model, `OfflineModel` answers with quotations from memory.
    - `embedder`: the bundled static embedder by default; another name or object; None ranks by words only.
    - `extractor`: how closed conversations become memories: "llm", "verbatim" or an object. By default a model extracts
      facts; without a model, messages are stored verbatim.
    - `worker`: whether this process runs jobs; a `WorkerOptions` configures how. False leaves jobs to other processes.
    - `summary_every`: refresh the rolling summary after this many turns, in the background (None: never).
    - `close_stale_after`: close conversations without activity for this long. `patterns`: how recurring episodes are
      searched (None: not at all).
    - `memory_bytes`: the limit of the cache of users' memories. Spaces with more than `memory_atoms` atoms are searched
      in PostgreSQL instead of in this process.
    - `count_tokens`: counts tokens of working contexts, which are estimated otherwise. `clock`: returns the current
      time.

    Use `async with`, or `with` in synchronous code, where every method blocks until its result is available.

    >>> import asyncio
    >>> async def main():
    ...     async with Tellback(":memory:") as tb:
    ...         maya = tb.user("maya")
    ...         conversation = await maya.conversations.create("chat")
    ...         await maya.conversations.append_user_message(conversation.id, "I moved to Lisbon.")
    ...         return [message.text for message in await maya.conversations.messages(conversation.id)]
    >>> asyncio.run(main())
    ['I moved to Lisbon.']
    """

    templates: Templates
    events: EventFeed

    def __init__(
        self,
        url: str | PathLike[str] | Store = "tellback.db",
        *,
        model: str | Model | None = None,
        embedder: str | Embedder | None = "static",
        extractor: ExtractorLike = None,
        worker: bool | WorkerOptions = True,
        summary_every: int | None = 20,
        close_stale_after: timedelta | float | None = None,
        patterns: PatternMining | Literal["daily"] | None = "daily",
        memory_bytes: int = 256 * 1024 * 1024,
        memory_atoms: int = 50_000,
        count_tokens: TokenCounter | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        if isinstance(url, str | PathLike):
            store = open_store(url)
        elif hasattr(url, "conversations"):
            store = url
        else:
            raise ConfigurationError(f"url must be a path, a URL or a Store, got {url!r:.80}.")
        if summary_every is not None and (not isinstance(summary_every, int) or summary_every < 1):
            raise ConfigurationError(f"summary_every must be an integer of at least 1, or None, got {summary_every!r}.")
        for name, value in (("memory_bytes", memory_bytes), ("memory_atoms", memory_atoms)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigurationError(f"{name} must be an integer of at least 0, got {value!r}.")
        if not isinstance(worker, bool | WorkerOptions):
            raise ConfigurationError(f"worker must be True, False or a WorkerOptions, got {worker!r:.80}.")
        self._extractor = validate_extractor(extractor)
        self._pattern_mining = resolve_pattern_mining(patterns)
        self._close_stale_after = (
            None if close_stale_after is None else validation.parse_duration("close_stale_after", close_stale_after)
        )
        options = worker if isinstance(worker, WorkerOptions) else WorkerOptions()
        own_worker = open_worker(
            store,
            {EXTRACTION_JOB: self._run_extraction_job},
            schedules=self._schedules(),
            options=options,
            clock=self._now,
        )
        jobs = Jobs(store, own_worker if worker else None, clock=self._now)
        self._runtime = Runtime(
            store,
            jobs,
            resolve_model(model),
            _validate_clock(clock),
            summary_every,
            bool(worker),
            options.window_length,
        )
        self._summaries = RollingSummaries(self._runtime)
        self._turns = TurnEngine(self._runtime, self._summaries.schedule_refresh if worker else None)
        # The bundled embedder imports numpy, which conversations without memory do not need: it is loaded later.
        self._embedder = embedder if embedder == "static" else resolve_embedder(embedder)
        self._memory_limits = (memory_bytes, memory_atoms)
        self._opened_memory: MemoryEngine | None = None
        self._erasure_follower: asyncio.Task[None] | None = None
        self._has_mined_patterns = False
        self._count_tokens = count_tokens
        self._specs = SpecRegistry()
        self.templates = Templates()
        self.events = EventFeed(store.events)

    async def open(self) -> Self:
        """Open the store and migrate it if needed. `async with` calls this."""
        await self._runtime.store.open()
        self._runtime.jobs.start_worker()
        if self._erasure_follower is None:
            follower = follow_erasures(self._runtime, self._holds_memories, self._evict_erased)
            self._erasure_follower = asyncio.create_task(follower, name="tellback erasures")
        return self

    async def close(self) -> None:
        """Finish background work and close the store."""
        if self._erasure_follower is not None:
            await cancel_and_wait(self._erasure_follower)
            self._erasure_follower = None
        await self._runtime.jobs.close()
        await self._turns.close()
        if self._opened_memory is not None:
            await self._opened_memory.close()
        await self._runtime.store.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __enter__(self) -> SyncTellback:
        self._sync = SyncTellback(self)
        return self._sync

    def __exit__(self, *exception: object) -> None:
        self._sync.close()

    def user(self, user_id: str, tenant_id: str = "default", app_id: str = "default") -> User:
        """Return the handle of a user, which reads and writes only this user's data.

        >>> Tellback(":memory:").user("maya", tenant_id="acme").scope
        Scope(tenant_id='acme', app_id='default', user_id='maya')
        """
        scope = Scope(
            validation.validate_scope_id("tenant_id", tenant_id),
            validation.validate_scope_id("app_id", app_id),
            validation.validate_scope_id("user_id", user_id),
        )
        return User(self, scope)

    def register_agent(
        self,
        spec: Any,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        replace: bool = False,
    ) -> AgentSpec:
        """Register an agent spec: a mapping, JSON or YAML text, or a `pathlib.Path`.

        `user.agents.invoke(name, arguments={...})` runs it. `tools` are the functions that its `FUNCTION` tools refer
        to. `replace=True` replaces a registered agent. Raises `AgentSpecError` with the path of the problem.
        """
        return self._specs.register(spec, tools, replace=replace)

    async def warm_up(self) -> None:
        """Load the embedder and a local model now, so that the first turn is as fast as later ones. Used by servers."""
        await load_model(self.model)
        await self._memory.warm_up()

    async def reembed(self, on_progress: Callable[[int], Any] | None = None, *, forget_others: bool = False) -> int:
        """Embed the memories of all users that have no vector of the current embedder; return their number.

        This also happens in the background, when a space is used. `on_progress` is called with the number embedded so
        far. Vectors of other embedders are kept for processes that still use them; `forget_others=True` deletes them.
        Raises `EmbeddingError` at the end if the embedder rejected some texts, and immediately if it fails. The
        finished vectors are kept, and nothing is deleted then.
        """
        done = 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            if on_progress is not None:
                on_progress(done)

        return await self._memory.embedding.backfill_all(count, forget_others=forget_others)

    async def close_stale(self, older_than: timedelta | float) -> list[Conversation]:
        """Close all users' open conversations that had no activity for `older_than` (a timedelta, or seconds)."""
        return await close_stale(self._runtime, None, older_than)

    async def replay(
        self,
        namespace: str | None = None,
        extraction_version: str | None = None,
        *,
        tenant_id: str | None = None,
        app_id: str | None = None,
        on_progress: Callable[[ReplayProgress], Any] | None = None,
    ) -> ReplayReport:
        """Extract the conversations of a namespace again for all users, oldest first, and wait for the jobs.

        `tenant_id` and `app_id` limit the users. `on_progress` is called when a job ends. Cancelling this call cancels
        the jobs that have not started.
        """
        from tellback.memory.extraction.service import Replay

        if extraction_version is not None:
            self._memory.extraction.check_version(extraction_version)
        names = {"namespace": namespace, "tenant_id": tenant_id, "app_id": app_id}
        for name, value in names.items():
            validation.validate_optional_text(name, value, validation.NAME_LENGTH)
        replay = Replay(self._runtime, self._memory.extraction, extraction_version, on_progress)
        return await replay.run(None, namespace, tenant_id, app_id)

    async def mine_patterns(self) -> int:
        """Search all users' episodes for patterns now; return how many patterns were added or changed.

        The `patterns` setting does this on a schedule.
        """
        return await self._memory.pattern_miner(self._pattern_mining or PatternMining()).mine_all()

    async def usage(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        *,
        job_id: str | None = None,
        limit: int = 1_000,
        before: str | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> list[UsageRecord]:
        """List the model calls for memory (extraction, reconciliation, summaries) of all users, newest first.

        For the next page, pass the last record's id as `before`.
        """
        filters = {"tenant_id": tenant_id, "app_id": app_id}
        return await list_usage(self._runtime, None, since, until, job_id, limit, before, **filters)

    async def usage_totals(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        *,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> list[UsageTotal]:
        """Sum the usage of model calls for memory by user, purpose and model."""
        return await total_usage(self._runtime, None, since, until, tenant_id=tenant_id, app_id=app_id)

    def _schedules(self) -> list[Schedule]:
        """Return the periodic tasks. Each task runs in only one process at a time."""
        stale_after = self._close_stale_after
        schedules = [
            Schedule("close due", STALE_CHECK_SECONDS, self._close_due),
            Schedule("refresh summaries", SUMMARY_REFRESH_SECONDS, lambda: self._summaries.refresh_due()),
        ]
        if stale_after is not None:
            every = min(max(stale_after.total_seconds() / 4, 1.0), STALE_CHECK_SECONDS)
            schedules.append(Schedule("close stale", every, partial(self._close_stale, stale_after)))
        if self._pattern_mining is not None:
            schedules.append(Schedule("mine patterns", self._pattern_mining.every.total_seconds(), self._mine_patterns))
        return schedules

    async def _run_extraction_job(self, job: Job) -> None:
        await self._memory.extraction.run_job(job)

    async def _close_stale(self, older_than: timedelta) -> None:
        await self.close_stale(older_than)

    async def _close_due(self) -> None:
        await self._runtime.store.conversations.close_stale(None, idle_since=None, now=self._now())

    async def _mine_patterns(self) -> None:
        assert self._pattern_mining is not None
        # The first run mines all spaces. Later runs mine spaces that changed, including during the previous run.
        since = self._now() - 2 * self._pattern_mining.every if self._has_mined_patterns else None
        await self._memory.pattern_miner(self._pattern_mining).mine_all(since)
        self._has_mined_patterns = True

    def _now(self) -> datetime:
        return self._runtime.clock()

    def _holds_memories(self) -> bool:
        return self._opened_memory is not None and len(self._opened_memory.space_cache) > 0

    def _evict_erased(self, subjects: Collection[str]) -> None:
        """Remove erased users from the cache."""
        if self._opened_memory is not None:
            self._opened_memory.space_cache.evict_erased(subjects)

    def _build_conversations(self, user: User) -> Conversations:
        return Conversations(self._runtime, user, self._turns, self._summaries)

    @property
    def _memory(self) -> MemoryEngine:
        """The memory engine, created on first use: conversations without memory do not need numpy."""
        if self._opened_memory is None:
            from tellback.memory.engine import MemoryEngine

            embedder = resolve_embedder(self._embedder)
            self._opened_memory = MemoryEngine(self._runtime, embedder, self._extractor, *self._memory_limits)
        return self._opened_memory

    @property
    def store(self) -> Store:
        """The store."""
        return self._runtime.store

    @property
    def jobs(self) -> Jobs:
        """The jobs and the worker; `await tb.jobs.drain()` waits until no job is due."""
        return self._runtime.jobs

    @property
    def bindings(self) -> AllBindings:
        """The bindings of all users."""
        return AllBindings(self._runtime, self._memory.extraction)

    @cached_property
    def keys(self) -> Keys:
        """The API keys of a server on this store."""
        return Keys(self._runtime.store.api_keys, self._now)

    @property
    def model(self) -> Any:
        """The default model."""
        return self._runtime.model

    @property
    def clock(self) -> Callable[[], datetime]:
        """The function that returns the current time. Tests can replace it."""
        return self._runtime.clock

    @clock.setter
    def clock(self, clock: Callable[[], datetime]) -> None:
        self._runtime.clock = _validate_clock(clock)


def _validate_clock(clock: Callable[[], datetime]) -> Callable[[], datetime]:
    """Reject a clock without a time zone now instead of at the first message."""
    if clock is not utc_now:
        validation.parse_datetime("clock", clock())
    return clock
