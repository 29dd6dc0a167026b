"""Which chats are there already: what was imported before, by this process or another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tellback.importing.handles import ImportConversations
from tellback.importing.values import ImportedChat
from tellback.types.conversations import Conversation

PAGE_SIZE = 200
NEWEST_COUNT = 5
"""How many of the newest conversations tell whether anyone else has begun one meanwhile."""

METADATA_KEY = "import"
"""Under this name a conversation's metadata says which chat it was."""


def build_metadata(chat: ImportedChat, messages: int) -> dict[str, Any]:
    """What a conversation that will hold so many messages of a chat says of it."""
    began_at = chat.began_at
    details = {
        "source": chat.source,
        "id": chat.id,
        "created_at": None if began_at is None else began_at.isoformat(),
        "digest": chat.digest,
        "messages": messages,
    }
    return {METADATA_KEY: details}


class ImportedConversations:
    """The conversations of a namespace by the chats they were, the newest first."""

    def __init__(self, conversations: ImportConversations, namespace: str) -> None:
        self._conversations = conversations
        self._namespace = namespace
        self._by_session: defaultdict[str, dict[str, Conversation]] = defaultdict(dict)
        self._ids: set[str] = set()

    async def refresh(self, page_size: int = NEWEST_COUNT) -> None:
        """Take in what has come since the last time."""
        before = None
        while True:
            conversations = await self._conversations.list(self._namespace, limit=page_size, before=before)
            new = [conversation for conversation in conversations if conversation.id not in self._ids]
            for conversation in new:
                self.add(conversation)
            if len(new) < page_size:
                return
            before, page_size = conversations[-1], PAGE_SIZE

    def add(self, conversation: Conversation) -> None:
        """Know of one more, or of how it is now."""
        self._ids.add(conversation.id)
        if conversation.session_id is not None:
            self._by_session[conversation.session_id][conversation.id] = conversation

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def conversations_of(self, chat: ImportedChat) -> list[Conversation]:
        """The conversations that hold a chat: more than one if it has grown between two imports."""
        return list(self._by_session.get(chat.session_id, {}).values())

    def is_complete(self, chat: ImportedChat) -> bool:
        """Whether a chat is known to be there as it is; if not, what is there has to be looked at."""
        return any(_holds_whole_chat(part, chat.digest) for part in self.conversations_of(chat))

    async def missing_messages(self, chat: ImportedChat) -> list[int]:
        """The places of those messages of a chat that are in none of its conversations."""
        stored: set[str | None] = set()
        for part in self.conversations_of(chat):
            for message in await self._conversations.messages(part.id, include_internal=True, include_hidden=True):
                stored.add(message.idempotency_key)
        return [index for index, key in enumerate(chat.keys) if key not in stored]


def _holds_whole_chat(part: Conversation, digest: str) -> bool:
    details = part.metadata.get(METADATA_KEY)
    if part.is_open or not isinstance(details, Mapping) or details.get("digest") != digest:
        return False
    messages = details.get("messages")
    return isinstance(messages, int) and part.last_seq >= messages
