"""One turn at a time in a conversation, across tasks, processes and machines.

Tasks of one event loop queue up for a conversation in order. Between processes the claim stands in the conversation's
row: it holds for a while and is renewed as long as the turn runs. A claim whose process is gone is taken over at once,
where that can be told, and otherwise when its time is up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tellback.conversations.runtime import Runtime
from tellback.errors import StoreError, TurnConflictError
from tellback.stores import TurnBusy, TurnClaim, TurnStarted
from tellback.types.conversations import MessageDraft
from tellback.types.ids import new_id
from tellback.types.scope import Scope

log = logging.getLogger("tellback.conversations")

CLAIM_SECONDS = 30.0
FIRST_LOOK, LONGEST_LOOK = 0.02, 0.5
SEPARATOR = "#"
"""Between the name of an opened store and that of the claim."""

_openings: set[str] = set()
"""The stores that this process has open and claims turns on."""
_held: set[str] = set()
"""The claims of this process: one on a store of ours that is not in here is nobody's."""


def _forget() -> None:
    """A forked process holds nothing, and cannot tell what its parent holds."""
    _openings.clear()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@dataclass(slots=True)
class Claim:
    """A turn that is ours. `owner` names this claim alone; `released` is set once the store knows that it has ended."""

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
        self._lines: dict[tuple[asyncio.AbstractEventLoop, Scope, str], _Line] = {}
        self._claims: dict[str, Claim] = {}

    async def close(self) -> None:
        """Give up what is still claimed: the store is about to close."""
        for claim in list(self._claims.values()):
            await self._end(claim)
        _openings.discard(self._runtime.store.owner)

    async def take(
        self,
        scope: Scope,
        id: str,
        draft: MessageDraft | None,
        before: Callable[[], Awaitable[int]],
        wait: float,
    ) -> Claim:
        """Wait for the conversation, and append the user's message. The claim is ours until it is given back.

        `before` is awaited when it is our turn and nothing has been stored yet; it gives how much of the tail to read.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        key = (loop, scope, id)
        line = self._lines.setdefault(key, _Line())
        line.waiting += 1
        try:
            if line.waiting == 1:
                await line.lock.acquire()
            else:
                try:
                    async with asyncio.timeout_at(deadline):
                        await line.lock.acquire()
                except TimeoutError:
                    raise TurnConflictError(id, line.turn_id, wait) from None
            try:
                return await self._claim(line, scope, id, draft, await before(), deadline, wait)
            except BaseException:
                line.lock.release()
                raise
        except BaseException:
            self._step_out(key, line)
            raise

    async def give_back(self, claim: Claim) -> None:
        """The turn is over."""
        key = (asyncio.get_running_loop(), claim.scope, claim.conversation_id)
        line = self._lines[key]
        try:
            await self._end(claim)
        finally:
            line.lock.release()
            self._step_out(key, line)

    def _step_out(self, key: tuple[asyncio.AbstractEventLoop, Scope, str], line: _Line) -> None:
        line.waiting -= 1
        if not line.waiting:
            del self._lines[key]

    async def _claim(
        self,
        line: _Line,
        scope: Scope,
        id: str,
        draft: MessageDraft | None,
        tail_limit: int,
        deadline: float,
        wait: float,
    ) -> Claim:
        loop = asyncio.get_running_loop()
        owner = f"{self._runtime.store.owner}{SEPARATOR}{secrets.token_hex(8)}"
        evict: str | None = None
        look = FIRST_LOOK
        _openings.add(self._runtime.store.owner)
        _held.add(owner)
        try:
            while True:
                answer = await self._ask(scope, id, draft, owner, evict, tail_limit)
                line.turn_id = answer.turn_id
                if isinstance(answer, TurnStarted):
                    claim = self._claims[owner] = Claim(scope, id, answer, owner)
                    claim.renewal = loop.call_later(CLAIM_SECONDS / 3, self._renew, claim)
                    return claim
                if answer.owner != evict and await self._is_gone(answer.owner):
                    evict = answer.owner
                    continue
                if loop.time() >= deadline:
                    raise TurnConflictError(id, answer.turn_id, wait)
                await asyncio.sleep(min(look, max(0.0, deadline - loop.time())))
                look = min(look * 1.5, LONGEST_LOOK)
        except BaseException:
            _held.discard(owner)
            raise

    async def _ask(
        self, scope: Scope, id: str, draft: MessageDraft | None, owner: str, evict: str | None, tail_limit: int
    ) -> TurnStarted | TurnBusy:
        runtime, now = self._runtime, time.time()
        wish = TurnClaim(new_id("turn"), owner, now, now + CLAIM_SECONDS, evict)
        try:
            return await runtime.store.conversations.begin_turn(
                scope, id, wish, draft, tail_limit=tail_limit, now=runtime.clock()
            )
        except (asyncio.CancelledError, StoreError) as error:
            if isinstance(error, asyncio.CancelledError) or error.in_doubt:  # the store may have made the claim
                runtime.jobs.start(self._release(scope, id, owner), f"give up a turn of {id}")
            raise

    async def _is_gone(self, owner: str) -> bool:
        """Whether nobody holds that claim any more."""
        opening = owner.partition(SEPARATOR)[0]
        if opening in _openings:
            return owner not in _held
        return await self._runtime.store.is_alive(opening) is False

    def _renew(self, claim: Claim) -> None:
        """Called from time to time while a turn runs."""
        claim.renewal = asyncio.get_running_loop().call_later(CLAIM_SECONDS / 3, self._renew, claim)
        until = time.time() + CLAIM_SECONDS
        extend = self._runtime.store.conversations.extend_turn
        work = extend(claim.scope, claim.conversation_id, claim.owner, until)
        self._runtime.jobs.start(work, f"renew the claim on {claim.conversation_id}")

    async def _end(self, claim: Claim) -> None:
        """Give the claim up. Whoever is cancelled does not wait for the store, which is told all the same."""
        _held.discard(claim.owner)  # from here on the next turn may take it over
        self._claims.pop(claim.owner, None)
        if claim.renewal is not None:
            claim.renewal.cancel()
        if not claim.released:
            claim.released = True
            release = self._release(claim.scope, claim.conversation_id, claim.owner)
            task = self._runtime.jobs.start(release, f"end a turn of {claim.conversation_id}")
            current = asyncio.current_task()
            if current is None or not current.cancelling():
                await asyncio.shield(task)

    async def _release(self, scope: Scope, id: str, owner: str) -> None:
        """Tell the store. If it cannot hear it now, the claim runs out by itself."""
        try:
            await self._runtime.store.conversations.end_turn(scope, id, owner)
        except StoreError:
            log.warning("the end of a turn of %s could not be noted", id, exc_info=True)
