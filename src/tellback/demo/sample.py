"""Maya, whom nobody has met: a few conversations and what is remembered of them, so that there is something to see."""

from __future__ import annotations

from datetime import UTC, datetime

from tellback.app import Tellback
from tellback.types.memory import Atom
from tellback.user import User

SAMPLE_USER = "maya"
SAMPLE_NAMESPACE = "sample"
SAMPLE_SPACE = "sample"

_SAMPLE_CONVERSATIONS = (
    (
        datetime(2024, 5, 3, 18, 30, tzinfo=UTC),
        "A new job",
        (
            ("I started at the city hospital in Porto this week, as a nurse on night shifts.", "How are the nights?"),
            ("Long. I live ten minutes away at least, in Rua das Flores.", "That is a short way home."),
        ),
    ),
    (
        datetime(2025, 9, 14, 9, 5, tzinfo=UTC),
        "Dinner with Ana",
        (
            ("My sister Ana visits next week, and she is allergic to nuts.", "I will keep that in mind."),
            ("I'm vegetarian since the summer, so no fish either.", "Noted: no fish, no nuts."),
        ),
    ),
    (
        datetime(2026, 3, 21, 20, 0, tzinfo=UTC),
        "Moving",
        (
            ("We moved to Lisbon last weekend, to a flat near the river.", "Congratulations! How is it?"),
            ("Bright. And I have day shifts now, at Santa Maria.", "Better sleep, then."),
        ),
    ),
)


async def load_sample(rc: Tellback) -> bool:
    """Put Maya into a store that is empty; gives whether she is there, now or since before. No model is asked."""
    maya = rc.user(SAMPLE_USER)
    if await maya.conversations.list(SAMPLE_NAMESPACE, limit=1):
        return True
    if await rc.store.conversations.list_across_users(
        tenant_id=None, app_id=None, user_id=None, namespace=None, after="", limit=1
    ):
        return False  # real people are in it: nobody made up belongs among them
    stored = [await _store_conversation(maya, when, title, turns) for when, title, turns in _SAMPLE_CONVERSATIONS]
    space = await maya.memory.create_space(SAMPLE_SPACE, once=True)

    async def add(text: str, kind: tuple[str, str], conversation_index: int, turn: int, importance: int = 3) -> Atom:
        (when, _, _), (conversation, messages) = _SAMPLE_CONVERSATIONS[conversation_index], stored[conversation_index]
        return await maya.memory.add_atom(
            space.id,
            text,
            kind,
            importance=importance,
            valid_from=when,
            source_conversation_id=conversation,
            source_message_ids=[messages[turn]],
        )

    home = await add("Maya lives in Porto, in Rua das Flores.", ("home", "FACT"), 0, 1, 4)
    shifts = await add("Maya is a nurse at the city hospital in Porto, on night shifts.", ("work", "FACT"), 0, 0, 4)
    await add("Maya is vegetarian, and eats no fish.", ("food", "PREFERENCE"), 1, 1, 5)
    await add("Ana, Maya's sister, is allergic to nuts.", ("health", "FACT"), 1, 0, 5)
    when, (conversation, messages) = _SAMPLE_CONVERSATIONS[2][0], stored[2]
    for old, text, turn in (
        (home, "Maya lives in Lisbon, in a flat near the river.", 0),
        (shifts, "Maya is a nurse at Santa Maria in Lisbon, on day shifts.", 1),
    ):
        await maya.memory.supersede_atom(
            old.id,
            text,
            valid_from=when,
            source_conversation_id=conversation,
            source_message_ids=[messages[turn]],
        )
    for kind, name, description in (
        ("person", "Ana", "Maya's sister"),
        ("place", "Lisbon", "Where Maya lives"),
        ("place", "Porto", "Where Maya lived before"),
    ):
        await maya.memory.create_entity(space.id, kind, name, description=description)
    return True


async def _store_conversation(
    maya: User, when: datetime, title: str, turns: tuple[tuple[str, str], ...]
) -> tuple[str, list[str]]:
    """A closed conversation; gives its id, and those of what Maya said in it."""
    conversation = await maya.conversations.create(SAMPLE_NAMESPACE, title=title)
    ids = []
    for user_text, reply_text in turns:
        message = await maya.conversations.append_user_message(conversation.id, user_text, created_at=when)
        await maya.conversations.append_assistant_turn(conversation.id, reply_text, created_at=when)
        ids.append(message.id)
    await maya.conversations.close(conversation.id)
    return conversation.id, ids
