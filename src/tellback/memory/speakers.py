"""Who speaks in a conversation."""

from __future__ import annotations

from collections.abc import Mapping

from tellback.chat.offline import is_offline
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.jsontext import make_storable

DEFAULT_SPEAKERS = {"user": "User", "assistant": "Assistant"}
"""Who is heard, by role, and what they are called unless the conversation names them."""


def speaker_names(conversation: Conversation) -> dict[str, str]:
    """Who speaks in each role. The metadata is the user's own: what is no name in it is passed over."""
    configured = conversation.metadata.get("speakers")
    named = configured if isinstance(configured, Mapping) else {}
    one_line = {role: " ".join(make_storable(name).split()) for role, name in named.items() if isinstance(name, str)}
    return DEFAULT_SPEAKERS | {role: name for role, name in one_line.items() if name}


def is_extractable(message: StoredMessage) -> bool:
    """Whether memories are made of it: a person saw it, and it is no quotation of memories.

    What the offline model says would be remembered again and again.
    """
    return message.role in DEFAULT_SPEAKERS and message.visibility == "user" and not is_offline(message.model)
