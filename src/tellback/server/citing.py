"""Citations that clients give: only what the user said can be cited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.user import User

MAX_CITED = 1_000
"""How many messages one request may cite: each is looked up."""


async def validate_sources(user: User, atoms: Iterable[Mapping[str, Any]]) -> None:
    """Refuse atoms that cite a conversation or a message which is not the user's, or not of that conversation."""
    conversations: set[str] = set()
    messages: dict[str, set[str | None]] = {}
    for atom in atoms:
        source = atom.get("source_conversation_id")
        if source is not None:
            conversations.add(source)
        for id in atom.get("source_message_ids") or ():
            messages.setdefault(id, set()).add(source)
    if len(messages) > MAX_CITED:
        raise InvalidArgumentError(f"{len(messages)} messages are cited; {MAX_CITED} in one request is the limit.")
    for id in conversations:
        if await user.conversations.get(id) is None:
            raise NotFoundError("conversation", id)
    for id, sources in messages.items():
        message = await user.conversations.message(id)
        if message is None or sources - {None, message.conversation_id}:
            raise NotFoundError("message", id)
