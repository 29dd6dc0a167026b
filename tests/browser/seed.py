"""Stored data of a user before a test opens the console."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tellback import Tellback
from tellback.types.messages import ChatUsage
from tellback.user import User


@dataclass(frozen=True, slots=True)
class SeededIds:
    """The ids of the stored records."""

    space: str
    conversation: str
    message: str
    lisbon: str
    diet: str
    cello: str
    robert: str
    bob: str


@asynccontextmanager
async def open_user(store: Path, user: str) -> AsyncIterator[User]:
    """Open the user's handle in this process, on the store of a running server."""
    async with Tellback(store, worker=False, embedder=None) as tb:
        yield tb.user(user)


async def seed_user(store: Path, user: str) -> SeededIds:
    """Store a move to Lisbon, a diet, a plan, and Robert, who is also called Bob."""
    async with open_user(store, user) as handle:
        memory, log = handle.memory, handle.conversations
        space = await memory.create_space("default", once=True)
        conversation = await log.create("chat", title="Moving")
        message = await log.append_user_message(conversation.id, "I moved to Lisbon in March, and I'm vegetarian now.")
        used = ChatUsage(input_tokens=1_200, output_tokens=80, cost_usd=0.0048, model="claude-sonnet-4-5")
        await log.append_assistant_turn(conversation.id, "Lisbon, lovely!", model="claude-sonnet-4-5", usage=used)
        city = await memory.create_entity(
            space.id, "PLACE", "Lisbon", "A city in Portugal", {"country": "Portugal"}, ["Lisboa"]
        )
        robert = await memory.create_entity(space.id, "PERSON", "Robert", "A colleague")
        bob = await memory.create_entity(space.id, "PERSON", "Bob")
        berlin = await memory.add_atom(
            space.id, "Lives in Berlin", {"name": "home", "kind": "FACT"}, 4, valid_from="2021-05-01T00:00:00Z"
        )
        lisbon = await memory.supersede_atom(
            berlin.id,
            "Lives in Lisbon",
            valid_from="2026-03-01T00:00:00Z",
            source_conversation_id=conversation.id,
            source_message_ids=[message.id],
            entity_ids=[city.id],
        )
        diet = await memory.add_atom(
            space.id, "Is vegetarian", {"name": "diet", "kind": "PREFERENCE"}, 5, 0.9, "2026-03-10T00:00:00Z"
        )
        await memory.add_atom(space.id, "Bob owes them a dinner", entity_ids=[bob.id])
        await memory.add_atom(space.id, "Robert works in accounting", entity_ids=[robert.id])
        cello = await memory.add_atom(space.id, "Plans to learn the cello", {"name": "plans", "kind": "INTENTION"})
        return SeededIds(space.id, conversation.id, message.id, lisbon.id, diet.id, cello.id, robert.id, bob.id)
