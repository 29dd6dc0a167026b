"""Who speaks in a conversation."""

from __future__ import annotations

from collections.abc import Mapping

from recollect.types.conversations import Conversation
from recollect.types.jsontext import storable

SPEAKERS = {"user": "User", "assistant": "Assistant"}
"""Who is heard, by role, and what they are called unless the conversation names them."""


def speakers(conversation: Conversation) -> dict[str, str]:
    """Who speaks in each role. The metadata is the user's own: what is no name in it is passed over."""
    given = conversation.metadata.get("speakers")
    named = given if isinstance(given, Mapping) else {}
    one_line = {role: " ".join(storable(name).split()) for role, name in named.items() if isinstance(name, str)}
    return SPEAKERS | {role: name for role, name in one_line.items() if name}
