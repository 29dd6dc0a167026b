"""What the tests make and look at."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from recollect.stores import AtomDraft, AtomFilter, EntityDraft, Store, TurnClaim, TurnDraft
from recollect.types.blocks import TextBlock
from recollect.types.conversations import Conversation, Event, MessageDraft
from recollect.types.ids import new_id
from recollect.types.memory import Atom, AtomStatus, Category, CategoryKind, Entity, EntityType, MemorySpace
from recollect.types.scope import Scope
from recollect.types.times import utc_now

MakeStore = Callable[[], Store]

MAYA = Scope("acme", "support", "maya")
OTHERS = (Scope("acme", "support", "omar"), Scope("acme", "sales", "maya"), Scope("globex", "support", "maya"))

FACT = Category("home", CategoryKind.FACT)
DAY = timedelta(days=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


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


def make_atom(text: str = "Lives in Rome", **fields: Any) -> AtomDraft:
    """An atom to add."""
    return AtomDraft(**{"id": new_id("atom"), "text": text, "category": FACT, "valid_from": NOON, **fields})


async def make_space(store: Store, scope: Scope = MAYA, name: str = "chat") -> MemorySpace:
    """A space."""
    now = utc_now()
    made = MemorySpace(new_id("ms"), scope, name, now, now, {"k": ["v", None]})
    return await store.memories.create_space(scope, made)


async def make_entity(store: Store, space: MemorySpace, name: str, *aliases: str) -> Entity:
    """A person."""
    draft = EntityDraft(new_id("ent"), EntityType.PERSON, name, aliases=aliases)
    return await store.memories.create_entity(space.scope, space.id, draft, now=utc_now())


async def add(store: Store, space: MemorySpace, *drafts: AtomDraft, now: datetime = NOON) -> list[Atom]:
    """Add atoms."""
    return await store.memories.add(space.scope, space.id, drafts, now=now)


async def held(store: Store, space: MemorySpace, valid_at: datetime, known_at: datetime | None = None) -> list[str]:
    """What held then, as was known then."""
    wanted = AtomFilter(AtomStatus.ACTIVE, valid_at, known_at, begun=True)
    return [atom.text for atom in await store.memories.atoms(space.scope, space.id, wanted)]
