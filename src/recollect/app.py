"""`Recollect`: opens a store, wires the parts, and gives each user a handle."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from recollect.background import Jobs
from recollect.chat import Model
from recollect.conversations import Conversations, checks
from recollect.conversations.claims import TurnClaims
from recollect.conversations.log import close_stale
from recollect.conversations.runtime import Runtime
from recollect.conversations.summary import Summaries
from recollect.conversations.turns import Turns
from recollect.embed import Embedder, resolve_embedder
from recollect.errors import ConfigurationError
from recollect.memory.context import TokenCounter, WorkingContexts
from recollect.memory.templates import Templates
from recollect.stores import EventFeed, Store, open_store
from recollect.sync import SyncRecollect
from recollect.types.conversations import Conversation
from recollect.types.scope import Scope
from recollect.types.times import utc_now

if TYPE_CHECKING:
    from recollect.memory.memory import Memory
    from recollect.memory.opened import OpenedMemory


class Recollect:
    """Conversations that are kept and memories of each user, in a file, in memory or in PostgreSQL.

    `url` is a path (`recollect.db`), `sqlite:///path`, `:memory:`, `postgresql://…`, or a store of your own. `model` is
    used where none is named. Every `summary_every` turns a conversation's rolling summary is refreshed in the
    background (None: never; `worker=False`: not by this process). `embedder` compares meanings: the bundled one by
    default, another by name or as an object, or None to go by words alone. `memory_bytes` bounds what is held of users'
    memories to answer quickly; spaces of more than `memory_atoms` are searched by the server instead, if it is
    PostgreSQL. `count_tokens` measures working contexts, which are guessed otherwise. `clock` tells the time; tests can
    replace it.

    Use it with `async with`, or with a plain `with` from synchronous code: every method then waits by itself.

    >>> import asyncio
    >>> async def main():
    ...     async with Recollect(":memory:") as rc:
    ...         maya = rc.user("maya")
    ...         talk = await maya.conversations.create("chat")
    ...         await maya.conversations.append_user_message(talk.id, "I moved to Lisbon.")
    ...         return [message.text for message in await maya.conversations.messages(talk.id)]
    >>> asyncio.run(main())
    ['I moved to Lisbon.']
    """

    def __init__(
        self,
        url: str | PathLike[str] | Store = "recollect.db",
        *,
        model: str | Model | None = None,
        embedder: str | Embedder | None = "static",
        worker: bool = True,
        summary_every: int | None = 20,
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
            raise ConfigurationError(f"Recollect takes a path, a URL or a store, not {url!r:.80}.")
        if summary_every is not None and (not isinstance(summary_every, int) or summary_every < 1):
            raise ConfigurationError(f"summary_every is a number of turns, or None for never, not {summary_every!r}.")
        for name, value in (("memory_bytes", memory_bytes), ("memory_atoms", memory_atoms)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigurationError(f"{name} is a whole number, not {value!r}.")
        self._runtime = Runtime(store, model, _checked(clock), summary_every, worker)
        self._claims = TurnClaims(self._runtime)
        self._summaries = Summaries(self._runtime)
        self._turns = Turns(self._runtime, self._claims, self._summaries.consider)
        # The bundled one comes with arrays, which conversations alone do not need.
        self._embedder = embedder if embedder == "static" else resolve_embedder(embedder)
        self._memory_limits = (memory_bytes, memory_atoms)
        self._opened_memory: OpenedMemory | None = None
        self._count_tokens = count_tokens
        self.templates = Templates()
        self.events = EventFeed(store.events)

    async def open(self) -> Self:
        """Open the store, and migrate it if need be; `async with` does it for you."""
        await self._runtime.store.open()
        return self

    async def close(self) -> None:
        """Finish what runs in the background, and close the store."""
        await self._runtime.jobs.close()
        await self._claims.close()
        if self._opened_memory is not None:
            await self._opened_memory.close()
        await self._runtime.store.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __enter__(self) -> SyncRecollect:
        self._sync = SyncRecollect(self)
        return self._sync

    def __exit__(self, *exception: object) -> None:
        self._sync.close()

    def user(self, user_id: str, tenant_id: str = "default", app_id: str = "default") -> User:
        """The handle of a user. What it reads and writes is that user's alone.

        >>> Recollect(":memory:").user("maya", tenant_id="acme").scope
        Scope(tenant_id='acme', app_id='default', user_id='maya')
        """
        scope = Scope(
            checks.scope_name("tenant_id", tenant_id),
            checks.scope_name("app_id", app_id),
            checks.scope_name("user_id", user_id),
        )
        return User(self, scope, Conversations(self._runtime, scope, self._turns, self._summaries))

    async def warm_up(self) -> None:
        """Load what recall needs, so that the first one in this process is as quick as the next: for servers."""
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

        return await self._memory.embedding.fill_all(count, forget_others=forget_others)

    async def close_stale(self, older_than: timedelta | float) -> list[Conversation]:
        """Close every user's open conversations in which nothing happened for that long: for schedulers."""
        return await close_stale(self._runtime, None, older_than)

    def _working_context(self, user: User) -> WorkingContexts:
        clock = self._runtime.clock
        return WorkingContexts(user.conversations, user.memory, self.templates, self._count_tokens, clock=clock)

    @property
    def _memory(self) -> OpenedMemory:
        """Loaded when memory is first used: conversations alone need no arrays."""
        if self._opened_memory is None:
            from recollect.memory.opened import OpenedMemory

            embedder = resolve_embedder(self._embedder)
            self._opened_memory = OpenedMemory(self._runtime, embedder, *self._memory_limits)
        return self._opened_memory

    @property
    def store(self) -> Store:
        """The store it was opened on."""
        return self._runtime.store

    @property
    def jobs(self) -> Jobs:
        """What runs in the background; `await rc.jobs.drain()` waits for it."""
        return self._runtime.jobs

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
        self._runtime.clock = _checked(clock)


def _checked(clock: Callable[[], datetime]) -> Callable[[], datetime]:
    """A clock that does not say its timezone would fail at the first message."""
    if clock is not utc_now:
        checks.moment("clock", clock())
    return clock


class User:
    """One user's handle: `scope` says whose, `conversations` holds what was said, `memory` what is remembered,
    and `working_context` puts both into a prompt."""

    __slots__ = ("_recollect", "conversations", "scope")

    def __init__(self, recollect: Recollect, scope: Scope, conversations: Conversations) -> None:
        self._recollect = recollect
        self.scope = scope
        self.conversations = conversations

    @property
    def memory(self) -> Memory:
        """What is remembered of the user."""
        return self._recollect._memory.of(self.scope)

    @property
    def working_context(self) -> WorkingContexts:
        """What a model should know before it answers."""
        return self._recollect._working_context(self)
