"""The `verbatim` extractor: what was said becomes memory as it is, with no model at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recollect.memory.checks import TEXT_LENGTH
from recollect.stores import AtomDraft
from recollect.types.conversations import Conversation, StoredMessage
from recollect.types.ids import new_id
from recollect.types.jsontext import storable
from recollect.types.memory import Category, CategoryKind

TURN = Category("turn", CategoryKind.EPISODE)
"""The category of what was said."""

SPEAKERS = {"user": "User", "assistant": "Assistant"}
CUT = " […]"


def verbatim_drafts(conversation: Conversation, messages: Sequence[StoredMessage]) -> list[AtomDraft]:
    """An episode for each message with words that a person could see: dated, cited, and naming who said it.

    The conversation's metadata may name the speakers: `{"speakers": {"user": "Ann", "assistant": "Bob"}}`.
    """
    speakers = _speakers(conversation)
    drafts = []
    for message in messages:
        said = storable(message.text).strip()
        if message.role not in SPEAKERS or message.visibility != "user" or not said:
            continue
        text = f"{speakers[message.role]}: {said}"
        drafts.append(
            AtomDraft(
                id=new_id("atom"),
                text=text if len(text) <= TEXT_LENGTH else text[: TEXT_LENGTH - len(CUT)] + CUT,
                category=TURN,
                valid_from=message.created_at,
                source_conversation_id=conversation.id,
                source_message_ids=(message.id,),
                origin=f"verbatim:{message.id}",
            )
        )
    return drafts


def _speakers(conversation: Conversation) -> dict[str, str]:
    """Who speaks in each role. The metadata is the user's own: what is no name in it is passed over."""
    given = conversation.metadata.get("speakers")
    named = given if isinstance(given, Mapping) else {}
    one_line = {role: " ".join(storable(name).split()) for role, name in named.items() if isinstance(name, str)}
    return SPEAKERS | {role: name for role, name in one_line.items() if name}
