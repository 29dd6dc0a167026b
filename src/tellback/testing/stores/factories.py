"""Factories and helpers of the store tests."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from tellback.errors import NotFoundError
from tellback.stores import (
    AppendResult,
    AtomDraft,
    AtomFilter,
    EntityDraft,
    Store,
    TurnBusy,
    TurnClaim,
    TurnDraft,
    TurnStarted,
)
from tellback.types.access import Scope
from tellback.types.blocks import TextBlock
from tellback.types.conversations import Conversation, Event, MessageDraft
from tellback.types.ids import new_id, utc_now
from tellback.types.jobs import Binding, ConversationScope, ExtractionPolicy, Job
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, Entity, EntityType, MemorySpace

MakeStore = Callable[[], Store]
T = TypeVar("T")

MAYA = Scope("acme", "support", "maya")
OTHER_SCOPES = (Scope("acme", "support", "omar"), Scope("acme", "sales", "maya"), Scope("globex", "support", "maya"))

FACT = Category("home", CategoryKind.FACT)
DAY = timedelta(days=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WINDOW_CHARS = 24_000
"""The length of a window that is larger than all messages of a test."""


def present(value: T | None) -> T:
    """Return the value, and fail if it is None."""
    assert value is not None
    return value


def make_draft(text: str = "Hello", role: str = "user", **fields: Any) -> MessageDraft:
    """Build a message draft."""
    return MessageDraft(
        **{"id": new_id("msg"), "role": role, "content": (TextBlock(text),), "created_at": utc_now(), **fields}
    )


def make_turn(*drafts: MessageDraft) -> list[TurnDraft]:
    """Build one turn with these messages."""
    return [TurnDraft(new_id("turn"), drafts, starts=True)]


async def make_conversation(store: Store, scope: Scope = MAYA, **fields: Any) -> Conversation:
    """Create an open conversation."""
    now = utc_now()
    values = {"id": new_id("conv"), "scope": scope, "namespace": "chat", "status": "open", "created_at": now, **fields}
    return await store.conversations.create(scope, Conversation(**{"updated_at": now, **values}))


async def list_conversations(store: Store, scope: Scope = MAYA, **filters: Any) -> list[Conversation]:
    """Return a user's conversations, newest first."""
    values = {"namespace": None, "status": None, "limit": None, "before": None, **filters}
    return await store.conversations.list_conversations(scope, **values)


async def append_drafts(
    store: Store, id: str, *drafts: MessageDraft, scope: Scope = MAYA, **options: Any
) -> AppendResult:
    """Append messages as one turn."""
    return await store.conversations.append(scope, id, make_turn(*drafts), now=utc_now(), **options)


async def append_message(store: Store, id: str, text: str, scope: Scope = MAYA) -> int:
    """Append one message, and return its seq."""
    return (await append_drafts(store, id, make_draft(text), scope=scope)).messages[0].seq


def make_claim(claim_id: str, seconds: float = 30, evict: str | None = None) -> TurnClaim:
    """Build the claim of a turn that expires after `seconds`."""
    return TurnClaim(new_id("turn"), claim_id, time.time(), time.time() + seconds, evict)


async def begin_turn(
    store: Store,
    id: str,
    claim: TurnClaim,
    draft: MessageDraft | None = None,
    *,
    scope: Scope = MAYA,
    tail_limit: int = 9,
) -> TurnStarted | TurnBusy:
    """Try to claim a conversation for a turn."""
    return await store.conversations.begin_turn(scope, id, claim, draft, tail_limit=tail_limit, now=utc_now())


async def start_turn(store: Store, id: str, claim: TurnClaim, *draft: MessageDraft, tail_limit: int = 9) -> TurnStarted:
    """Claim a conversation for a turn, and fail if it is busy."""
    started = await begin_turn(store, id, claim, *draft, tail_limit=tail_limit)
    assert isinstance(started, TurnStarted)
    return started


async def read_all_events(store: Store, *types: str, subject_id: str | None = None) -> list[Event]:
    """Return all events, optionally only those of some types or about one subject."""
    events, _ = await store.events.read(after=0, limit=1_000)
    return [
        event
        for event in events
        if (not types or event.type in types) and (subject_id is None or event.subject_id == subject_id)
    ]


async def read_event_types(store: Store, subject_id: str | None = None) -> list[str]:
    """Return the types of all events, or of those about one subject."""
    return [event.type for event in await read_all_events(store, subject_id=subject_id)]


async def assert_not_found(*attempts: Awaitable[Any]) -> None:
    """Assert that each attempt raises `NotFoundError`."""
    for attempt in attempts:
        with pytest.raises(NotFoundError):
            await attempt


def make_atom(text: str = "Lives in Rome", **fields: Any) -> AtomDraft:
    """Build an atom draft."""
    return AtomDraft(**{"id": new_id("atom"), "text": text, "category": FACT, "valid_from": NOON, **fields})


async def make_space(store: Store, scope: Scope = MAYA, name: str = "chat") -> MemorySpace:
    """Create a memory space."""
    now = utc_now()
    space = MemorySpace(new_id("ms"), scope, name, now, now, {"k": ["v", None]})
    return await store.memories.create_space(scope, space)


async def make_entity(store: Store, space: MemorySpace, name: str, *aliases: str) -> Entity:
    """Create a person entity."""
    draft = EntityDraft(new_id("ent"), EntityType.PERSON, name, aliases=aliases)
    return await store.memories.create_entity(space.scope, space.id, draft, now=utc_now())


async def add_atoms(store: Store, space: MemorySpace, *drafts: AtomDraft, now: datetime = NOON) -> list[Atom]:
    """Add atoms to a space."""
    return await store.memories.add(space.scope, space.id, drafts, now=now)


async def valid_texts(
    store: Store, space: MemorySpace, valid_at: datetime, known_at: datetime | None = None
) -> list[str]:
    """Return the texts of atoms valid at a time, as known at a time."""
    atom_filter = AtomFilter(AtomStatus.ACTIVE, valid_at, known_at, must_have_started=True)
    return [atom.text for atom in await store.memories.atoms(space.scope, space.id, atom_filter)]


async def make_binding(
    store: Store, *spaces: MemorySpace, scope: Scope = MAYA, scopes: Sequence[ConversationScope] = (), **fields: Any
) -> Binding:
    """Create a binding of conversations (by default all) to spaces."""
    now = utc_now()
    values = {
        "id": new_id("bind"),
        "tenant_id": scope.tenant_id,
        "app_id": scope.app_id,
        "conversation_scope": tuple(scopes) or (ConversationScope(),),
        "memory_space_ids": tuple(space.id for space in spaces),
        "memory_space_names": tuple(space.name for space in spaces),
        "extraction_policy": ExtractionPolicy(),
        "created_at": now,
        "updated_at": now,
        "created_by": scope.user_id,
        **fields,
    }
    return await store.bindings.create(scope, Binding(**values))


async def append_turns(store: Store, id: str, turns: int = 1, scope: Scope = MAYA, text: str = "Hello") -> None:
    """Append turns of two messages each."""
    for _ in range(turns):
        await append_drafts(store, id, make_draft(text), make_draft(text, "assistant"), scope=scope)


async def make_closed_conversation(store: Store, scope: Scope = MAYA, *, turns: int = 1, **fields: Any) -> Conversation:
    """Create a conversation with some turns, and close it."""
    conversation = await make_conversation(store, scope, **fields)
    await append_turns(store, conversation.id, turns, scope)
    return await store.conversations.close(scope, conversation.id, now=utc_now())


async def dispatch_all(store: Store, *, length: int = WINDOW_CHARS, limit: int = 500) -> list[Job]:
    """Dispatch all new events, and return the jobs."""
    jobs: list[Job] = []
    more = True
    while more:
        found = await store.jobs.dispatch(window_length=length, limit=limit, now=utc_now())
        jobs, more = [*jobs, *found.jobs], found.has_more
    return jobs


async def plan_jobs(
    store: Store, id: str, *, version: str | None = None, space_id: str | None = None, length: int = WINDOW_CHARS
) -> list[Job]:
    """Plan the jobs of a conversation of Maya."""
    return await store.jobs.plan(MAYA, id, version=version, space_id=space_id, window_length=length, now=utc_now())


async def claim_job(
    store: Store,
    instance_id: str = "worker",
    *,
    after: float = 0,
    lease: float = 60,
    most: int = 5,
    id: str | None = None,
) -> Job | None:
    """Claim the next job as a worker whose clock is `seconds` ahead."""
    at = time.time() + after
    return await store.jobs.claim(
        instance_id=instance_id, at=at, until=at + lease, max_attempts=most, now=utc_now(), id=id
    )


async def claim_available_job(store: Store, **options: Any) -> Job:
    """Claim a job, and fail if there is none."""
    return present(await claim_job(store, **options))


def job_windows(jobs: Sequence[Job]) -> list[tuple[int, int]]:
    """Return the windows of jobs."""
    return [(job.from_seq, job.to_seq) for job in jobs]
