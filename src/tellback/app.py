"""`Tellback`: opens a store, wires the parts, and gives each user a handle."""

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
"""How often summaries that fell behind are refreshed, and how often at least stale conversations are looked for."""


class Tellback(Handle):
    """Conversations that are kept and memories of each user, in a file, in memory or in PostgreSQL.

    `url` is a path (`tellback.db`), `sqlite:///path`, `:memory:`, `postgresql://…`, or a store of your own. `model` is
    used where none is named: a name, a model object, or "auto" for the best at hand (`tellback.chat.choose_model`);
    without one, `OfflineModel` answers from memory. Every `summary_every` turns a conversation's rolling summary is
    refreshed in the background (None: never; `worker=False`: not by this process). `embedder` compares meanings: the
    bundled one by default, another by name or as an object, or None to go by words alone. `extractor` makes memories of
    conversations that bindings name: "llm", "verbatim" (word for word) or an object of your own; by default a model
    does if there is one. `worker` runs jobs in this process, with `WorkerOptions` in its own way; False leaves them to
    others.
    `close_stale_after` closes conversations in which nothing happened for so long, and `patterns` says how recurring
    episodes are looked for (None: not at all). `memory_bytes` bounds what is held of users' memories to answer quickly;
    spaces of more than `memory_atoms` are searched by the server instead, if it is PostgreSQL. `count_tokens` measures
    working contexts, which are guessed otherwise. `clock` tells the time; tests can replace it.

    Use it with `async with`, or with a plain `with` from synchronous code: every method then waits by itself.

    >>> import asyncio
    >>> async def main():
    ...     async with Tellback(":memory:") as tb:
    ...         maya = tb.user("maya")
    ...         talk = await maya.conversations.create("chat")
    ...         await maya.conversations.append_user_message(talk.id, "I moved to Lisbon.")
    ...         return [message.text for message in await maya.conversations.messages(talk.id)]
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
            raise ConfigurationError(f"Tellback takes a path, a URL or a store, not {url!r:.80}.")
        if summary_every is not None and (not isinstance(summary_every, int) or summary_every < 1):
            raise ConfigurationError(f"summary_every is a number of turns, or None for never, not {summary_every!r}.")
        for name, value in (("memory_bytes", memory_bytes), ("memory_atoms", memory_atoms)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigurationError(f"{name} is a whole number, not {value!r}.")
        if not isinstance(worker, bool | WorkerOptions):
            raise ConfigurationError(f"worker is True, False or WorkerOptions, not {worker!r:.80}.")
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
        # The bundled one comes with arrays, which conversations alone do not need.
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
        """Open the store, and migrate it if need be; `async with` does it for you."""
        await self._runtime.store.open()
        self._runtime.jobs.start_worker()
        if self._erasure_follower is None:
            follower = follow_erasures(self._runtime, self._holds_memories, self._evict_erased)
            self._erasure_follower = asyncio.create_task(follower, name="tellback erasures")
        return self

    async def close(self) -> None:
        """Finish what runs in the background, and close the store."""
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
        """The handle of a user. What it reads and writes is that user's alone.

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
        """Make an agent known by its description: a mapping, JSON or YAML text, or a `pathlib.Path`.

        `user.agents.invoke(name, arguments={...})` runs it. `tools` are the functions that its `FUNCTION` tools name.
        A name can be registered again with `replace`. Raises `AgentSpecError`, which says what is wrong and where.
        """
        return self._specs.register(spec, tools, replace=replace)

    async def warm_up(self) -> None:
        """Load what recall needs, and a model that runs in this process, so that the first turn is as quick as later
        ones: for servers."""
        await load_model(self.model)
        await self._memory.warm_up()

    async def reembed(self, on_progress: Callable[[int], Any] | None = None, *, forget_others: bool = False) -> int:
        """Embed every user's memories that have no vector by the present embedder; gives how many there were.

        It happens by itself in the background, space by space, when a space is used; this does all at once.
        `on_progress` is called with the number done so far. Other embedders' vectors stay, for processes that still use
        them, until `forget_others` deletes them. Raises `EmbeddingError` at the end if the embedder refused some texts,
        at once if it fails altogether; what was embedded is kept, and nothing is deleted then.
        """
        done = 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            if on_progress is not None:
                on_progress(done)

        return await self._memory.embedding.backfill_all(count, forget_others=forget_others)

    async def close_stale(self, older_than: timedelta | float) -> list[Conversation]:
        """Close every user's open conversations in which nothing happened for that long: for schedulers."""
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
        """Extract everyone's conversations of a namespace again, the oldest first, and wait until that is done.

        Without a tenant or an app, those of all. `on_progress` is called as jobs end; cancelling it cancels the jobs
        that were not begun.
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
        """Look for what recurs in everyone's episodes now; gives how many patterns were added or changed.

        It happens by itself, as `patterns` says.
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
        """What model calls for memory cost, of all users, call by call and the newest first.

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
        """What model calls for memory cost, added up by user, purpose and model."""
        return await total_usage(self._runtime, None, since, until, tenant_id=tenant_id, app_id=app_id)

    def _schedules(self) -> list[Schedule]:
        """What this process does now and then, unless another was faster."""
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
        # All spaces at first: nobody may have looked for long. Then what changed, also during the last run.
        since = self._now() - 2 * self._pattern_mining.every if self._has_mined_patterns else None
        await self._memory.pattern_miner(self._pattern_mining).mine_all(since)
        self._has_mined_patterns = True

    def _now(self) -> datetime:
        return self._runtime.clock()

    def _holds_memories(self) -> bool:
        return self._opened_memory is not None and len(self._opened_memory.space_cache) > 0

    def _evict_erased(self, subjects: Collection[str]) -> None:
        """Drop what is held of users who were erased."""
        if self._opened_memory is not None:
            self._opened_memory.space_cache.evict_erased(subjects)

    def _build_conversations(self, user: User) -> Conversations:
        return Conversations(self._runtime, user, self._turns, self._summaries)

    @property
    def _memory(self) -> MemoryEngine:
        """Loaded when memory is first used: conversations alone need no arrays."""
        if self._opened_memory is None:
            from tellback.memory.engine import MemoryEngine

            embedder = resolve_embedder(self._embedder)
            self._opened_memory = MemoryEngine(self._runtime, embedder, self._extractor, *self._memory_limits)
        return self._opened_memory

    @property
    def store(self) -> Store:
        """The store it was opened on."""
        return self._runtime.store

    @property
    def jobs(self) -> Jobs:
        """What runs in the background; `await tb.jobs.drain()` waits for it."""
        return self._runtime.jobs

    @property
    def bindings(self) -> AllBindings:
        """The bindings of all users."""
        return AllBindings(self._runtime, self._memory.extraction)

    @cached_property
    def keys(self) -> Keys:
        """API keys, for those who use it through a server."""
        return Keys(self._runtime.store.api_keys, self._now)

    @property
    def model(self) -> Any:
        """The model used where none is named."""
        return self._runtime.model

    @property
    def clock(self) -> Callable[[], datetime]:
        """What tells the time."""
        return self._runtime.clock

    @clock.setter
    def clock(self, clock: Callable[[], datetime]) -> None:
        self._runtime.clock = _validate_clock(clock)


def _validate_clock(clock: Callable[[], datetime]) -> Callable[[], datetime]:
    """A clock that does not say its timezone would fail at the first message."""
    if clock is not utc_now:
        validation.parse_datetime("clock", clock())
    return clock
