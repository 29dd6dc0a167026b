"""One turn at a time in a conversation, across tasks, processes and machines.

Tasks of one event loop queue up for a conversation in order. Between processes the claim stands in the conversation's
row: it holds for a while and is renewed as long as the turn runs. A claim whose process is gone is taken over at once,
where that can be told, and otherwise when its time is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from recollect.conversations.runtime import Runtime
from recollect.errors import RecollectError, StoreError, TurnConflictError
from recollect.stores import TurnBusy, TurnClaim, TurnStarted
from recollect.types.conversations import MessageDraft
from recollect.types.ids import new_id
from recollect.types.scope import Scope

log = logging.getLogger("recollect.conversations")

CLAIM_SECONDS = 30.0
FIRST_LOOK, LONGEST_LOOK = 0.02, 0.5


@dataclass(slots=True)
class Claim:
    """A turn that is ours. `released` is set once the store knows that it has ended."""

    scope: Scope
    conversation_id: str
    started: TurnStarted
    owner: str
    released: bool = False
    renewal: asyncio.TimerHandle | None = None

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.started.turn_id


class _Line:
    """The tasks of one event loop that want the same conversation, in the order they came."""

    __slots__ = ("lock", "turn_id", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.turn_id = ""


class TurnClaims:
    """Hands out claims, one per conversation."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lines: dict[tuple[int, Scope, str], _Line] = {}
        self._running: set[str] = set()

    @asynccontextmanager
    async def claimed(
        self, scope: Scope, id: str, draft: MessageDraft | None, *, tail_limit: int, wait: float
    ) -> AsyncIterator[Claim]:
        """Wait for the conversation, append the user's message, and hold the claim for the block."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        key = (hash(loop), scope, id)
        line = self._lines.setdefault(key, _Line())
        line.waiting += 1
        try:
            if line.lock.locked() or line.waiting > 1:
                try:
                    async with asyncio.timeout_at(deadline):
                        await line.lock.acquire()
                except TimeoutError:
                    raise TurnConflictError(id, line.turn_id, wait) from None
            else:
                await line.lock.acquire()
            try:
                claim = await self._claim(scope, id, draft, tail_limit, deadline, wait)
                line.turn_id = claim.turn_id
                try:
                    yield claim
                finally:
                    await self._end(claim)
            finally:
                line.lock.release()
        finally:
            line.waiting -= 1
            if not line.waiting:
                del self._lines[key]

    async def _claim(
        self, scope: Scope, id: str, draft: MessageDraft | None, tail_limit: int, deadline: float, wait: float
    ) -> Claim:
        runtime, loop = self._runtime, asyncio.get_running_loop()
        owner = runtime.store.owner
        evict: str | None = None
        look = FIRST_LOOK
        while True:
            now = time.time()
            wish = TurnClaim(new_id("turn"), owner, now, now + CLAIM_SECONDS, evict)
            asked = asyncio.ensure_future(
                runtime.store.conversations.begin_turn(
                    scope, id, wish, draft, tail_limit=tail_limit, now=runtime.clock()
                )
            )
            try:
                answer = await asyncio.shield(asked)
            except asyncio.CancelledError:
                runtime.jobs.start(self._abandon(scope, id, asked), f"give up a turn of {id}")
                raise
            if isinstance(answer, TurnStarted):
                claim = Claim(scope, id, answer, owner)
                self._running.add(claim.turn_id)
                claim.renewal = loop.call_later(CLAIM_SECONDS / 3, self._renew, claim)
                return claim
            if answer.owner != evict and await self._is_gone(answer):
                evict = answer.owner
                continue
            if loop.time() >= deadline:
                raise TurnConflictError(id, answer.turn_id, wait)
            await asyncio.sleep(min(look, max(0.0, deadline - loop.time())))
            look = min(look * 1.5, LONGEST_LOOK)

    async def _is_gone(self, busy: TurnBusy) -> bool:
        """Whether nobody runs that turn any more."""
        if busy.owner == self._runtime.store.owner:
            return busy.turn_id not in self._running
        return await self._runtime.store.is_alive(busy.owner) is False

    def _renew(self, claim: Claim) -> None:
        """Called from time to time while a turn runs."""
        claim.renewal = asyncio.get_running_loop().call_later(CLAIM_SECONDS / 3, self._renew, claim)
        until = time.time() + CLAIM_SECONDS
        extend = self._runtime.store.conversations.extend_turn
        work = extend(claim.scope, claim.conversation_id, claim.turn_id, claim.owner, until)
        self._runtime.jobs.start(work, f"renew the claim on {claim.conversation_id}")

    async def _end(self, claim: Claim) -> None:
        if claim.renewal is not None:
            claim.renewal.cancel()
        self._running.discard(claim.turn_id)
        if not claim.released:
            # In the background if we are being cancelled: whoever cancels must not wait for the store.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self._runtime.jobs.start(self._release(claim), f"end a turn of {claim.conversation_id}")
            else:
                await self._release(claim)

    async def _release(self, claim: Claim) -> None:
        """Tell the store. If it cannot hear it now, the claim runs out by itself."""
        try:
            await self._runtime.store.conversations.end_turn(
                claim.scope, claim.conversation_id, claim.turn_id, claim.owner
            )
        except StoreError:
            log.warning("the end of turn %s could not be noted", claim.turn_id, exc_info=True)

    async def _abandon(self, scope: Scope, id: str, asked: asyncio.Future[TurnStarted | TurnBusy]) -> None:
        """A turn was cancelled while the store was claiming it."""
        with contextlib.suppress(RecollectError):
            answer = await asked
            if isinstance(answer, TurnStarted):
                await self._release(Claim(scope, id, answer, self._runtime.store.owner))
