"""What a turn asks of a user's handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from recollect.conversations import Conversations
from recollect.errors import NotFoundError
from recollect.types.conversations import Conversation
from recollect.types.scope import Scope

if TYPE_CHECKING:
    from recollect.memory.context import WorkingContexts
    from recollect.memory.memory import Memory


class UserHandle(Protocol):
    """`rc.user(...)`."""

    scope: Scope
    conversations: Conversations

    @property
    def memory(self) -> Memory: ...

    @property
    def working_context(self) -> WorkingContexts: ...


async def known_conversation(user: UserHandle, id: str) -> Conversation:
    """The user's conversation of that id."""
    found = await user.conversations.get(id)
    if found is None:
        raise NotFoundError("conversation", id)
    return found
