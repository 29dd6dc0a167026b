"""The recall step of a turn, and the memory space of a namespace.

Recall runs before the user's message is stored, so a message never recalls itself."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tellback import validation
from tellback.errors import EmbeddingError, InvalidArgumentError, NotFoundError, StoreClosedError, StoreError
from tellback.types.access import Scope
from tellback.types.blocks import blocks_text
from tellback.types.conversations import Conversation, Identity, MessageDraft, TurnProblem
from tellback.types.jobs import Binding, ConversationScope
from tellback.types.memory import MemorySpace, WorkingContext

if TYPE_CHECKING:
    from tellback.conversations import Conversations
    from tellback.memory.memory import Memory
    from tellback.memory.working_context import WorkingContextBuilder

log = logging.getLogger("tellback.turn")

T = TypeVar("T")

MAX_CACHED = 10_000
LOCAL_WAIT_SECONDS, REMOTE_WAIT_SECONDS = 15.0, 3.0
"""How long to wait for memories that are being made by this process's worker, or by another's if there is one."""

DEFAULT_SPACE = "default"


class UserHandle(Protocol):
    """A user's handle, `rc.user(...)`, as far as a turn needs it."""

    scope: Scope
    conversations: Conversations

    @property
    def memory(self) -> Memory: ...

    @property
    def working_context(self) -> WorkingContextBuilder: ...


async def get_conversation(user: UserHandle, id: str) -> Conversation:
    """Return the user's conversation of that id; raise `NotFoundError` if there is none."""
    conversation = await user.conversations.get(id)
    if conversation is None:
        raise NotFoundError("conversation", id)
    return conversation


async def find_or_open(
    user: UserHandle,
    namespace: str,
    session_id: str | None,
    sender: Identity | None,
    close_after: timedelta | float | None,
) -> Conversation:
    """Return the open conversation of a namespace and session, or a new one that knows the sender's name."""
    metadata = {"speakers": {"user": sender.name}} if sender is not None and sender.name else None
    return await user.conversations.find_or_create(namespace, session_id, metadata=metadata, close_after=close_after)


async def try_step(work: Awaitable[T], step: str, problems: list[TurnProblem]) -> T | None:
    """Return what `work` gives, or None if the store or the embedder failed, which is added to `problems`.

    A Tellback that is not open is a mistake of the caller, and raises.
    """
    try:
        return await work
    except StoreClosedError:
        raise
    except (StoreError, EmbeddingError) as error:
        log.warning("%s failed; the turn goes on without it", step, exc_info=error)
        problems.append(TurnProblem(step, error))
        return None


@dataclass(frozen=True, slots=True)
class RecalledContext:
    """The result of recall: the system prompt with the memories in it, and the working context they come from.

    `tail_limit` is how many messages of the log fit beside it, if the token budget left some out.
    """

    system: str | None
    context: WorkingContext | None = None
    tail_limit: int | None = None


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """The recall of a turn: `options` are arguments of `working_context.build`.

    Memories come from `space_id`, or else from the space of `memory`, which is created and bound unless `bind` is
    False. With a `heading`, nothing but memories goes behind the system prompt, under that heading.
    """

    options: Mapping[str, Any]
    space_id: str | None = None
    memory: NamespaceMemory | None = None
    bind: bool = True
    heading: str | None = None

    async def build_context(self, user: UserHandle, conversation_id: str | None) -> WorkingContext:
        """Recall now."""

        async def build(space_id: str | None) -> WorkingContext:
            return await user.working_context.build(conversation_id, self.space_id or space_id, **self.options)

        if self.memory is None:
            return await build(None)
        if self.bind:
            return await self.memory.use_space(build)
        return await build(await self.memory.find())

    def extend_prompt(self, system: str | None, context: WorkingContext) -> str | None:
        """Return the system prompt followed by what was recalled."""
        if self.heading is None:
            parts = [system, context.system]
        else:
            parts = [system, self.heading, context.system] if context.remembers else [system]
        return "\n\n".join(filter(None, parts)) or None


def build_recall(
    recall: Mapping[str, Any],
    query: str | None,
    space_id: str | None = None,
    memory: NamespaceMemory | None = None,
    *,
    bind: bool = True,
    heading: str | None = None,
) -> RecallRequest:
    """Build the recall of a turn from the caller's `recall` options, which may name the space themselves."""
    options = {"recall_query": query, "template_id": "messages", **recall}
    return RecallRequest(options, options.pop("memory_space_id", None) or space_id, memory, bind, heading)


def query_from_draft(draft: MessageDraft | None) -> str | None:
    """Return what to recall by: the words of the message; None for the last one in the log."""
    return None if draft is None else query_from_text(blocks_text(draft.content))


def query_from_text(text: str) -> str | None:
    """Return a text as far as it can be a query: a pasted document has no topic, and no database can hold a NUL."""
    return text[: validation.QUERY_LENGTH].encode(errors="ignore").decode().replace("\x00", " ") or None


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
        """Run `action` with the id of the space; if that was deleted meanwhile, with the one that takes its place."""
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
