"""The `verbatim` extractor: what was said becomes memory as it is, with no model at all."""

from __future__ import annotations

from collections.abc import Sequence

from tellback.memory.checks import TEXT_LENGTH
from tellback.memory.speakers import is_heard, speakers
from tellback.stores import AtomDraft
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.ids import new_id
from tellback.types.jsontext import storable
from tellback.types.memory import TURN

CUT = " […]"


def verbatim_drafts(conversation: Conversation, messages: Sequence[StoredMessage]) -> list[AtomDraft]:
    """An episode for each message with words that a person could see: dated, cited, and naming who said it.

    The conversation's metadata may name the speakers: `{"speakers": {"user": "Ann", "assistant": "Bob"}}`.
    """
    named = speakers(conversation)
    drafts = []
    for message in messages:
        said = storable(message.text).strip()
        if not is_heard(message) or not said:
            continue
        text = f"{named[message.role]}: {said}"
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
