"""Claims on a conversation: one turn at a time, across tasks, processes and machines.

Tasks of one event loop queue up in order. Between processes the claim is stored in the conversation's row and renewed
while the turn runs. If the process of a claim has ended, another process takes over: immediately if it can detect that,
otherwise when the claim expires."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from dataclasses import dataclass, field

from tellback.errors import StoreError, TurnConflictError
from tellback.runtime import Runtime
from tellback.stores import TurnBusy, TurnClaim, TurnStarted
from tellback.types.access import Scope
from tellback.types.conversations import MessageDraft
from tellback.types.ids import new_id

log = logging.getLogger("tellback.conversations")

CLAIM_SECONDS = 30.0
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.02, 0.5
CLAIM_ID_SEPARATOR = "#"
"""Separates the instance id of the store from the random part of a claim id."""

_open_stores: set[str] = set()
"""The instance ids of the stores that this process has open."""
_active_claims: set[str] = set()
"""The claims of this process. A claim on one of its stores that is not in this set was abandoned."""


def _clear_after_fork() -> None:
    """Clear the sets in a forked process: it holds no claims and does not know those of its parent."""
    _open_stores.clear()
    _active_claims.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clear_after_fork)


@dataclass(slots=True)
class ConversationClaim:
    """A task's claim on a conversation. `started` is set once the store has the claim.

    `released` is true once the store has recorded the end of the turn.
    """

    scope: Scope
    conversation_id: str
    wait: float
    deadline: float
    claim_id: str
    started: TurnStarted | None = None
    released: bool = False
    renewal: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _WaitQueue:
    """The tasks of one event loop that wait for the same conversation, in order of arrival."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    turn_id: str = ""


class TurnClaims:
    """Grants claims, one at a time per conversation."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._queues: dict[tuple[asyncio.AbstractEventLoop, Scope, str], _WaitQueue] = {}
        self._claims: dict[str, ConversationClaim] = {}

    async def close(self) -> None:
        """Release all claims before the store closes."""
        for claim in list(self._claims.values()):
            await self._finish(claim)
        _open_stores.discard(self._runtime.store.instance_id)

    async def enter(self, scope: Scope, id: str, wait: float) -> ConversationClaim:
        """Wait until no other task of this event loop runs a turn of the conversation. Call `leave` afterwards."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        key = (loop, scope, id)
        queue = self._queues.setdefault(key, _WaitQueue())
        queue.waiting += 1
        try:
            if queue.waiting == 1:
                await queue.lock.acquire()
            else:
                try:
                    async with asyncio.timeout_at(deadline):
                        await queue.lock.acquire()
                except TimeoutError:
                    raise TurnConflictError(id, queue.turn_id, wait) from None
        except BaseException:
            self._leave_queue(key, queue)
            raise
        claim_id = f"{self._runtime.store.instance_id}{CLAIM_ID_SEPARATOR}{secrets.token_hex(8)}"
        return ConversationClaim(scope, id, wait, deadline, claim_id)

    async def begin(self, claim: ConversationClaim, draft: MessageDraft | None, tail_limit: int) -> TurnStarted:
        """Wait until no other process has a claim on the conversation, claim it, and append the user's message."""
        loop = asyncio.get_running_loop()
        id = claim.conversation_id
        queue = self._queues[loop, claim.scope, id]
        evict: str | None = None
        look = MIN_POLL_SECONDS
        _open_stores.add(self._runtime.store.instance_id)
        _active_claims.add(claim.claim_id)
        try:
            while True:
                answer = await self._try_claim(claim, draft, evict, tail_limit)
                queue.turn_id = answer.turn_id
                if isinstance(answer, TurnStarted):
                    claim.started = answer
                    self._claims[claim.claim_id] = claim
                    claim.renewal = loop.call_later(CLAIM_SECONDS / 3, self._renew, claim)
                    return answer
                if answer.claim_id != evict and await self._is_abandoned(answer.claim_id):
                    evict = answer.claim_id
                    continue
                if loop.time() >= claim.deadline:
                    raise TurnConflictError(id, answer.turn_id, claim.wait)
                await asyncio.sleep(min(look, max(0.0, claim.deadline - loop.time())))
                look = min(look * 1.5, MAX_POLL_SECONDS)
        except BaseException:
            _active_claims.discard(claim.claim_id)
            raise

    async def leave(self, claim: ConversationClaim) -> None:
        """End the turn if it has begun, and admit the next task."""
        key = (asyncio.get_running_loop(), claim.scope, claim.conversation_id)
        queue = self._queues[key]
        try:
            if claim.started is not None:
                await self._finish(claim)
        finally:
            queue.lock.release()
            self._leave_queue(key, queue)

    def _leave_queue(self, key: tuple[asyncio.AbstractEventLoop, Scope, str], queue: _WaitQueue) -> None:
        queue.waiting -= 1
        if not queue.waiting:
            del self._queues[key]

    async def _try_claim(
        self, claim: ConversationClaim, draft: MessageDraft | None, evict: str | None, tail_limit: int
    ) -> TurnStarted | TurnBusy:
        runtime, now = self._runtime, time.time()
        turn_claim = TurnClaim(new_id("turn"), claim.claim_id, now, now + CLAIM_SECONDS, evict)
        try:
            return await runtime.store.conversations.begin_turn(
                claim.scope, claim.conversation_id, turn_claim, draft, tail_limit=tail_limit, now=runtime.clock()
            )
        except (asyncio.CancelledError, StoreError) as error:
            if isinstance(error, asyncio.CancelledError) or error.in_doubt:  # the store may have recorded the claim
                release = self._release_in_store(claim)
                runtime.jobs.start(release, f"release the claim on {claim.conversation_id}")
            raise

    async def _is_abandoned(self, claim_id: str) -> bool:
        """Whether the owner of a claim is known to be gone."""
        instance_id = claim_id.partition(CLAIM_ID_SEPARATOR)[0]
        if instance_id in _open_stores:
            return claim_id not in _active_claims
        return await self._runtime.store.is_instance_alive(instance_id) is False

    def _renew(self, claim: ConversationClaim) -> None:
        """Renew the claim in the background. The event loop calls this periodically during a turn."""
        claim.renewal = asyncio.get_running_loop().call_later(CLAIM_SECONDS / 3, self._renew, claim)
        until = time.time() + CLAIM_SECONDS
        extend = self._runtime.store.conversations.extend_turn
        work = extend(claim.scope, claim.conversation_id, claim.claim_id, until)
        self._runtime.jobs.start(work, f"renew the claim on {claim.conversation_id}")

    async def _finish(self, claim: ConversationClaim) -> None:
        """Release the claim. A cancelled task does not wait for the store; a background task releases the claim."""
        _active_claims.discard(claim.claim_id)  # the next turn may take over from here on
        self._claims.pop(claim.claim_id, None)
        if claim.renewal is not None:
            claim.renewal.cancel()
        if not claim.released:
            claim.released = True
            task = self._runtime.jobs.start(self._release_in_store(claim), f"end the turn of {claim.conversation_id}")
            current = asyncio.current_task()
            if current is None or not current.cancelling():
                await asyncio.shield(task)

    async def _release_in_store(self, claim: ConversationClaim) -> None:
        """Delete the claim from the store. If that fails, the claim expires."""
        try:
            await self._runtime.store.conversations.end_turn(claim.scope, claim.conversation_id, claim.claim_id)
        except StoreError:
            log.warning(
                "Could not release the claim on conversation %s; it will expire", claim.conversation_id, exc_info=True
            )
