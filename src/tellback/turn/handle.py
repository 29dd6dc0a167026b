"""What a turn asks of a user's handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tellback.conversations import Conversations
from tellback.errors import NotFoundError
from tellback.types.conversations import Conversation
from tellback.types.scope import Scope

if TYPE_CHECKING:
    from tellback.memory.context import WorkingContextBuilder
    from tellback.memory.memory import Memory


class UserHandle(Protocol):
    """`rc.user(...)`."""

    scope: Scope
    conversations: Conversations

    @property
    def memory(self) -> Memory: ...

    @property
    def working_context(self) -> WorkingContextBuilder: ...


async def get_conversation(user: UserHandle, id: str) -> Conversation:
    """The user's conversation of that id."""
    conversation = await user.conversations.get(id)
    if conversation is None:
        raise NotFoundError("conversation", id)
    return conversation
