"""The `verbatim` extractor: what was said becomes memory as it is, with no model at all."""

from __future__ import annotations

from collections.abc import Sequence

from tellback.memory.checks import MAX_TEXT_LENGTH
from tellback.memory.speakers import is_extractable, speaker_names
from tellback.stores import AtomDraft
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.ids import new_id
from tellback.types.jsontext import make_storable
from tellback.types.memory import TURN_CATEGORY

VERBATIM_CUT = " […]"


def build_verbatim_drafts(conversation: Conversation, messages: Sequence[StoredMessage]) -> list[AtomDraft]:
    """An episode for each message with words that a person could see: dated, cited, and naming who said it.

    The conversation's metadata may name the speakers: `{"speakers": {"user": "Ann", "assistant": "Bob"}}`.
    """
    names = speaker_names(conversation)
    drafts = []
    for message in messages:
        body = make_storable(message.text).strip()
        if not is_extractable(message) or not body:
            continue
        text = f"{names[message.role]}: {body}"
        drafts.append(
            AtomDraft(
                id=new_id("atom"),
                text=text
                if len(text) <= MAX_TEXT_LENGTH
                else text[: MAX_TEXT_LENGTH - len(VERBATIM_CUT)] + VERBATIM_CUT,
                category=TURN_CATEGORY,
                valid_from=message.created_at,
                source_conversation_id=conversation.id,
                source_message_ids=(message.id,),
                origin=f"verbatim:{message.id}",
            )
        )
    return drafts
