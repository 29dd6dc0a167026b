"""Where a memory tool works: one space of one user, fixed before the model is asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tellback import request
from tellback.conversations import checks
from tellback.errors import ConfigurationError
from tellback.types.memory import Atom, AtomStatus

if TYPE_CHECKING:
    from tellback.memory.memory import Memory


class HasMemory(Protocol):
    """A user's handle, as `rc.user(...)` gives it."""

    @property
    def memory(self) -> Memory:
        """What is remembered of the user."""
        ...


MemoryLike: TypeAlias = "Memory | HasMemory"


@dataclass(frozen=True, slots=True)
class BoundSpace:
    """A space of a user's memory."""

    memory: Memory
    space_id: str

    def now(self) -> datetime:
        """This moment, by Tellback's clock."""
        return self.memory._runtime.clock()

    async def find_atom(self, id: str) -> Atom | None:
        """The memory of that id, unless it is in another space, someone else's, or forgotten."""
        atom = await self.memory.get_atom(id)
        if atom is None or atom.memory_space_id != self.space_id or atom.status is not AtomStatus.ACTIVE:
            return None
        return atom

    async def citation(self) -> dict[str, Any]:
        """What to cite: the user's message that is being answered, if it is this user's."""
        current = request.current()
        if current.conversation_id is None or current.message_id is None:
            return {}
        log = self.memory._runtime.store.conversations
        # In another user's turn it would put that user's ids into this memory.
        if await log.get(self.memory._scope, current.conversation_id) is None:
            return {}
        return {"source_conversation_id": current.conversation_id, "source_message_ids": [current.message_id]}


def bind_space(memory: Any, space_id: str) -> BoundSpace:
    """The place for a tool, from a memory or the handle of its user."""
    # The synchronous face waits for the very event loop on which tools run.
    memory = getattr(memory, "_target", memory)
    handle = getattr(memory, "memory", memory)
    if not hasattr(handle, "recall_by_topic"):
        raise ConfigurationError(f"A memory tool takes a user or user.memory, not {memory!r:.80}.")
    return BoundSpace(handle, checks.validate_name("space_id", space_id, checks.KEY_LENGTH))
