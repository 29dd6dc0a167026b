"""The memory space of a namespace: found or created together with its binding, and the wait for pending memories."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.turns.types import UserHandle
from tellback.types.jobs import Binding, ConversationScope
from tellback.types.memory import MemorySpace

log = logging.getLogger("tellback.turn")

T = TypeVar("T")

MAX_CACHED = 10_000
LOCAL_WAIT_SECONDS, REMOTE_WAIT_SECONDS = 15.0, 3.0
"""How long to wait for memories that are being made by this process's worker, or by another's if there is one."""

DEFAULT_SPACE = "default"


class NamespaceMemory:
    """The space of a user's conversations of one namespace, found or made with its binding at the first use.

    Without a name it is the space called "default", or the only one there is. A namespace that is bound to another
    space already stays so; with `exclusive`, that is refused.
    """

    def __init__(self, user: UserHandle, namespace: str, space: str | None, *, exclusive: bool = False) -> None:
        self._user = user
        self._namespace = namespace
        self._space = space
        self._exclusive = exclusive
        self._cache = user.conversations.runtime.bound_spaces
        self._key = (user.scope, namespace, space or "")

    async def find(self) -> str | None:
        """The space's id, if there is one."""
        memory = self._user.memory
        found = await memory.list_spaces(self._space or DEFAULT_SPACE)
        if not found and self._space is None:
            found = await memory.list_spaces()
            found = found if len(found) == 1 else []
        return found[0].id if found else None

    async def space_id(self) -> str:
        """The space's id. A binding from the namespace to it is there afterwards."""
        id = self._cache.get(self._key)
        if id is None:
            id = await self._bind()
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[self._key] = id
        return id

    async def use_space(self, action: Callable[[str], Awaitable[T]]) -> T:
        """What `action` gives for the space; if that was deleted meanwhile, for the one that takes its place."""
        id = await self.space_id()
        try:
            return await action(id)
        except NotFoundError as error:
            if error.kind != "space" or error.id != id:
                raise
        self._cache.pop(self._key, None)
        return await action(await self.space_id())

    async def _bind(self) -> str:
        memory = self._user.memory
        found = await self.find()
        space = None if found is None else await memory.get_space(found)
        if space is None:
            space = await memory.create_space(self._space or DEFAULT_SPACE, once=True)
        bindings = await memory.list_bindings()
        if not any(self._is_bound_to(space, binding) for binding in bindings):
            other = await self._other_bound_space(bindings)
            if other is not None and self._exclusive:
                raise InvalidArgumentError(
                    f"conversations of {self._namespace!r} are remembered in {other.name!r}, not in {space.name!r}:"
                    " use another namespace for another space, or bind this one to both with memory.create_binding."
                )
            if other is None:
                scope = {"namespace": self._namespace, "user_id": self._user.scope.user_id}
                await memory.create_binding(scope, [space.id], once=True)
        return space.id

    async def _other_bound_space(self, bindings: Sequence[Binding]) -> MemorySpace | None:
        """The space that this very namespace is bound to: a second one would get all of its conversations, too."""
        scope = ConversationScope(self._namespace, self._user.scope.user_id)
        for binding in bindings:
            for id in binding.memory_space_ids if scope in binding.conversation_scope else ():
                if (space := await self._user.memory.get_space(id)) is not None:
                    return space
        return None

    def _is_bound_to(self, space: MemorySpace, binding: Binding) -> bool:
        """Whether a binding does it already, or would if it were not paused: nothing is extracted twice."""
        user_id = self._user.scope.user_id
        if not binding.matches(self._namespace, user_id):
            return False
        if binding.created_by == user_id:
            return space.id in binding.memory_space_ids
        return space.name in binding.memory_space_names


async def require_unbound(user: UserHandle, namespace: str) -> None:
    """Refuse to promise that nothing is remembered of a namespace whose conversations are."""
    bindings = await user.memory.list_bindings()
    if any(binding.enabled and binding.matches(namespace, user.scope.user_id) for binding in bindings):
        raise InvalidArgumentError(
            f"conversations of {namespace!r} are remembered: for one that is not, use a namespace of its own."
        )


async def close_idle_conversations(user: UserHandle) -> bool:
    """Close the user's conversations whose time is past; gives whether there were any."""
    runtime = user.conversations.runtime
    now = runtime.clock()
    store = runtime.store.conversations
    if not await store.list_due(user.scope, now=now):
        return False
    return bool(await store.close_stale(user.scope, idle_since=None, now=now))


async def wait_for_memories(user: UserHandle, seconds: float | None) -> None:
    """Wait a while until the user's conversations that were closed have become memories."""
    if seconds is None:  # who knows whether anyone works on them elsewhere
        seconds = LOCAL_WAIT_SECONDS if user.conversations.runtime.worker else REMOTE_WAIT_SECONDS
    if not await user.memory.wait_for_extraction(seconds):
        log.info("conversations of %s are still becoming memories; this turn goes on without", user.scope.user_id)
