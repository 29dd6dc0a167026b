"""A space of a real store, to reconcile extractions with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tellback.memory.extraction.reconciliation.entities import entity_names, resolve_entities
from tellback.memory.extraction.reconciliation.planner import ReconciliationPlan, plan_reconciliation, slots_to_load
from tellback.memory.extraction.values import Decision, ExtractedEntity, ExtractedFact, Extraction, Window
from tellback.stores import AtomDraft, AtomFilter, Reconciliation, Store, open_store
from tellback.types.access import Scope
from tellback.types.blocks import TextBlock
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.ids import new_id
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, Entity, MemorySpace

MAYA = Scope("acme", "support", "maya")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
PROFILE = Category("profile", CategoryKind.FACT)
EVENT = Category("event", CategoryKind.EPISODE)


def day(number: float) -> datetime:
    """Return noon, some days later."""
    return NOON + number * DAY


def make_window(*days: float, conversation_id: str = "conv_1") -> Window:
    """Build a window with one user message on each of these days, with the ids m<day>."""
    conversation = Conversation(conversation_id, MAYA, "chat", "open", NOON, NOON)
    messages = [
        StoredMessage(
            f"{conversation_id}:m{number:g}", conversation_id, seq, "turn", "user", (TextBlock("…"),), day(number)
        )
        for seq, number in enumerate(days, 1)
    ]
    return Window(conversation, tuple(messages))


def make_fact(
    text: str, stated_day: float | Sequence[float] = 0, conversation_id: str = "conv_1", **fields: Any
) -> ExtractedFact:
    """Build a fact that cites the messages of these days."""
    days = stated_day if isinstance(stated_day, Sequence) else [stated_day]
    ids = tuple(f"{conversation_id}:m{number:g}" for number in days)
    return ExtractedFact(**{"text": text, "category": PROFILE, "message_ids": ids, **fields})


def home_fact(city: str, stated_day: float = 0, **fields: Any) -> ExtractedFact:
    """Build a fact with a single-valued slot."""
    slot_fields = {"subject": "user", "attribute": "home city", "value": city, "single": True}
    return make_fact(fields.pop("text", f"User lives in {city}."), stated_day, **{**slot_fields, **fields})


class Space:
    """A space, and a clock that advances by an hour with each change."""

    def __init__(self, store: Store, id: str) -> None:
        self.store = store
        self.id = id
        self.now = day(1000)
        self._memories = store.memories

    async def apply(self, reconciliation: Reconciliation) -> list[Atom]:
        """Apply changes to the space."""
        self.now += timedelta(hours=1)
        version = await self._memories.version(MAYA, self.id)
        changed = await self._memories.reconcile(
            MAYA, self.id, reconciliation, expected_version=version, end=None, now=self.now
        )
        assert changed is not None
        return changed

    async def plan(
        self,
        window: Window,
        *facts: ExtractedFact,
        entities: Sequence[ExtractedEntity] = (),
        candidates: Mapping[int, Sequence[Atom]] | None = None,
        decisions: Mapping[int, Decision] | None = None,
    ) -> ReconciliationPlan:
        """Plan an extraction. By default, every atom is a candidate for every fact."""
        extraction = Extraction(facts, tuple(entities))
        found: dict[str, Entity] = {}
        for name in entity_names(extraction):
            found |= {each.id: each for each in await self._memories.find_entities(MAYA, self.id, name)}
        resolved = resolve_entities(extraction.entities, list(found.values()))
        known = await self._memories.known_atoms(
            MAYA, self.id, slots=slots_to_load(extraction, resolved), conversation_id=window.conversation.id
        )
        known = [replace(each, message_dates=_message_dates(each.atom)) for each in known]
        if candidates is None:
            all_atoms = await self.atoms()
            candidates = dict.fromkeys(range(len(facts)), all_atoms)
        return plan_reconciliation(
            extraction, window, known=known, candidates=candidates, entities=resolved, decisions=decisions
        )

    async def plan_and_apply(self, window: Window, *facts: ExtractedFact, **options: Any) -> ReconciliationPlan:
        """Plan an extraction and apply the plan."""
        plan = await self.plan(window, *facts, **options)
        await self.apply(plan.reconciliation)
        return plan

    async def learn_facts(
        self, *facts: ExtractedFact, days: Sequence[float] = (), conversation_id: str = "conv_1"
    ) -> ReconciliationPlan:
        """Apply facts from a window with all the messages that they cite."""
        cited_days = {float(id.rpartition(":m")[2]) for each in facts for id in each.message_ids}
        return await self.plan_and_apply(
            make_window(*sorted(cited_days.union(days)), conversation_id=conversation_id), *facts
        )

    async def add(self, text: str, **fields: Any) -> Atom:
        """Add a manually written atom."""
        values = {"id": new_id("atom"), "text": text, "category": PROFILE, "valid_from": NOON, **fields}
        [atom] = await self._memories.add(MAYA, self.id, [AtomDraft(**values)], now=self.now)
        return atom

    async def supersede(self, old: Atom, text: str, valid_from: datetime) -> Atom:
        """Supersede an atom with a manually written one."""
        draft = AtomDraft(new_id("atom"), text, PROFILE, valid_from)
        return await self._memories.supersede(MAYA, old.id, draft, now=self.now)

    async def atoms(self, status: AtomStatus = AtomStatus.ACTIVE) -> list[Atom]:
        """Return all atoms, the oldest first, including those that have ended."""
        atom_filter = AtomFilter(status, datetime(1, 1, 2, tzinfo=UTC))
        atoms = await self._memories.atoms(MAYA, self.id, atom_filter)
        known = await self._memories.changes(MAYA, self.id, after=-1, embedder="")
        ids = [row["id"] for row in known.atoms]
        never = [await self._memories.atom(MAYA, id) for id in ids if id not in {atom.id for atom in atoms}]
        all_atoms = [*atoms, *(atom for atom in never if atom is not None and atom.status is status)]
        return sorted(all_atoms, key=lambda atom: ids.index(atom.id))

    async def atom(self, id: str) -> Atom:
        """Return one atom."""
        found = await self._memories.atom(MAYA, id)
        assert found is not None
        return found

    async def texts_valid_at(self, moment: datetime) -> list[str]:
        """Return the texts valid at a time, the oldest first."""
        atom_filter = AtomFilter(AtomStatus.ACTIVE, moment, must_have_started=True)
        return [atom.text for atom in reversed(await self._memories.atoms(MAYA, self.id, atom_filter))]

    async def set_status(self, atom: Atom, status: AtomStatus) -> None:
        """Archive or delete an atom."""
        await self._memories.set_status(MAYA, atom.id, status, now=self.now)


def _message_dates(atom: Atom) -> tuple[datetime, ...]:
    """Return the dates of the messages that an atom cites. The messages are not stored, but their ids contain the
    day."""
    ids = [id for citation in atom.citations for id in citation.message_ids]
    return tuple(sorted({day(float(id.rpartition(":m")[2])) for id in ids}))


@asynccontextmanager
async def open_space() -> AsyncIterator[Space]:
    """Open a new space in an in-memory store."""
    store = open_store(":memory:")
    await store.open()
    try:
        space = MemorySpace(new_id("ms"), MAYA, "default", NOON, NOON)
        yield Space(store, (await store.memories.create_space(MAYA, space)).id)
    finally:
        await store.close()
