"""Which chats are there already: what was imported before, by this process or another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tellback.importing.handles import ImportConversations
from tellback.importing.values import ImportedChat
from tellback.types.conversations import Conversation

PAGE = 200
NEWEST = 5
"""How many of the newest conversations tell whether anyone else has begun one meanwhile."""

METADATA = "import"
"""Under this name a conversation's metadata says which chat it was."""


def metadata_of(chat: ImportedChat, messages: int) -> dict[str, Any]:
    """What a conversation that will hold so many messages of a chat says of it."""
    began = chat.began_at
    told = {
        "source": chat.source,
        "id": chat.id,
        "created_at": None if began is None else began.isoformat(),
        "digest": chat.digest,
        "messages": messages,
    }
    return {METADATA: told}


class Known:
    """The conversations of a namespace by the chats they were, the newest first."""

    def __init__(self, conversations: ImportConversations, namespace: str) -> None:
        self._conversations = conversations
        self._namespace = namespace
        self._parts: defaultdict[str, dict[str, Conversation]] = defaultdict(dict)
        self._ids: set[str] = set()

    async def refresh(self, page: int = NEWEST) -> None:
        """Take in what has come since the last time."""
        before = None
        while True:
            found = await self._conversations.list(self._namespace, limit=page, before=before)
            new = [each for each in found if each.id not in self._ids]
            for each in new:
                self.add(each)
            if len(new) < page:
                return
            before, page = found[-1], PAGE

    def add(self, conversation: Conversation) -> None:
        """Know of one more, or of how it is now."""
        self._ids.add(conversation.id)
        if conversation.session_id is not None:
            self._parts[conversation.session_id][conversation.id] = conversation

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def parts(self, chat: ImportedChat) -> list[Conversation]:
        """The conversations that hold a chat: more than one if it has grown between two imports."""
        return list(self._parts.get(chat.session_id, {}).values())

    def has_all(self, chat: ImportedChat) -> bool:
        """Whether a chat is known to be there as it is; if not, what is there has to be looked at."""
        return any(_is_whole(part, chat.digest) for part in self.parts(chat))

    async def new_in(self, chat: ImportedChat) -> list[int]:
        """The places of those messages of a chat that are in none of its conversations."""
        stored: set[str | None] = set()
        for part in self.parts(chat):
            for message in await self._conversations.messages(part.id, include_internal=True, include_hidden=True):
                stored.add(message.idempotency_key)
        return [place for place, key in enumerate(chat.keys) if key not in stored]


def _is_whole(part: Conversation, digest: str) -> bool:
    told = part.metadata.get(METADATA)
    if part.is_open or not isinstance(told, Mapping) or told.get("digest") != digest:
        return False
    messages = told.get("messages")
    return isinstance(messages, int) and part.last_seq >= messages
