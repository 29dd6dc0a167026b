"""What the tests make and look at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from recollect.stores import Store, TurnClaim, TurnDraft
from recollect.types.blocks import TextBlock
from recollect.types.conversations import Conversation, Event, MessageDraft
from recollect.types.ids import new_id
from recollect.types.scope import Scope
from recollect.types.times import utc_now

MakeStore = Callable[[], Store]

MAYA = Scope("acme", "support", "maya")
OTHERS = (Scope("acme", "support", "omar"), Scope("acme", "sales", "maya"), Scope("globex", "support", "maya"))


def make_draft(text: str = "Hello", role: str = "user", **fields: Any) -> MessageDraft:
    """A message to append."""
    return MessageDraft(
        **{"id": new_id("msg"), "role": role, "content": (TextBlock(text),), "created_at": utc_now(), **fields}
    )


def make_turn(*drafts: MessageDraft) -> list[TurnDraft]:
    """A turn of its own with these messages."""
    return [TurnDraft(new_id("turn"), drafts, starts=True)]


async def make_conversation(store: Store, scope: Scope = MAYA, **fields: Any) -> Conversation:
    """A conversation that is open."""
    now = utc_now()
    given = {"id": new_id("conv"), "scope": scope, "namespace": "chat", "status": "open", "created_at": now, **fields}
    return await store.conversations.create(scope, Conversation(**{"updated_at": now, **given}))


async def say(store: Store, id: str, text: str, scope: Scope = MAYA) -> int:
    """Append one message; gives its seq."""
    appended = await store.conversations.append(scope, id, make_turn(make_draft(text)), now=utc_now())
    return appended.messages[0].seq


def make_claim(owner: str, seconds: float = 30, evict: str | None = None) -> TurnClaim:
    """A wish to run a turn, of a claim that holds so long."""
    return TurnClaim(new_id("turn"), owner, time.time(), time.time() + seconds, evict)


def both_sides() -> list[MessageDraft]:
    """A turn's two messages, with new ids."""
    return [make_draft(), make_draft(role="assistant")]


async def all_events(store: Store) -> list[Event]:
    """Every event there is."""
    return (await store.events.read(after=0, limit=1_000))[0]
