"""What a space is to change for an extraction: what is known is cited, what has changed is replaced, the rest is new.

Nothing here reads or writes a store. The order of work, with `names`, `resolve` and `slots` saying what to look up:

1. `known entities = of names(extraction)`, `entities = resolve(extraction.entities, known entities)`
2. `known = memories.known(slots=slots(extraction, entities), conversation_id=…)`, candidates by recall
3. `planned = plan(…)`; if it has `questions` and someone can decide them, `plan(…, decisions=…)` once more
4. `memories.reconcile(planned.reconciliation, …)`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tellback.memory.extraction.claims import IncomingFact, SlotNames, build_incoming_facts
from tellback.memory.extraction.entities import ResolvedEntities
from tellback.memory.extraction.ledger import ChangeTracker
from tellback.memory.extraction.settling import FactPlanner
from tellback.memory.extraction.values import Decision, Extraction, LeftOut, Question, Window
from tellback.stores import AddedCitation, AtomDraft, KnownAtom, Reconciliation
from tellback.types.memory import Atom


@dataclass(frozen=True, slots=True)
class ReconciliationPlan:
    """What is to change, and how many facts were added, took another's place, were said again, or change nothing.

    `questions` are facts, by their number, that may repeat or replace something known: until they are decided, they
    are planned as new. `left_out` are the facts that are not remembered, the extractor's among them.
    """

    reconciliation: Reconciliation = Reconciliation()
    questions: Mapping[int, Question] = field(default_factory=dict)
    added: int = 0
    superseded: int = 0
    cited: int = 0
    unchanged: int = 0
    left_out: tuple[LeftOut, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many facts became what."""
        return {
            "added": self.added,
            "superseded": self.superseded,
            "cited": self.cited,
            "unchanged": self.unchanged,
            "left_out": len(self.left_out),
        }


def slots_to_load(extraction: Extraction, entities: ResolvedEntities) -> tuple[str, ...]:
    """The slots to look up before `plan`: those of the facts, under every name of what they are about."""
    slot_names = SlotNames(entities)
    return tuple(dict.fromkeys(each for fact in extraction.facts for each in slot_names.spellings(fact)))


def plan_reconciliation(
    extraction: Extraction,
    window: Window,
    *,
    known: Sequence[KnownAtom] = (),
    candidates: Mapping[int, Sequence[Atom]] | None = None,
    entities: ResolvedEntities | None = None,
    decisions: Mapping[int, Decision] | None = None,
) -> ReconciliationPlan:
    """Say what an extraction changes.

    `known` is what the space has, whatever its status, in the facts' slots and from this conversation. `candidates` are
    the atoms, by the number of the fact, that may be about the same. `decisions`, by the same numbers, answer the
    questions of an earlier plan; one that names an atom which is gone makes the fact new. What was done already is not
    planned again.
    """
    entities = entities or ResolvedEntities()
    slot_names = SlotNames(entities)
    offered = candidates or {}
    others = [KnownAtom(atom) for atoms in offered.values() for atom in atoms]
    tracker = ChangeTracker([replace(each, slot=slot_names.normalize(each.slot)) for each in (*known, *others)])
    ids = {number: [atom.id for atom in atoms] for number, atoms in offered.items()}
    planner = FactPlanner(tracker, entities, ids, decisions or {})
    incoming_facts = build_incoming_facts(extraction, window, slot_names)
    for incoming in incoming_facts:
        planner.plan_fact(incoming)
    uncited = set(range(len(extraction.facts))) - {incoming.index for incoming in incoming_facts}
    left_out = [
        LeftOut(extraction.facts[number].text, "it cites no message of the window") for number in sorted(uncited)
    ]
    return ReconciliationPlan(
        _build_reconciliation(tracker, entities, incoming_facts, planner),
        planner.questions,
        planner.counts["added"],
        planner.counts["superseded"],
        planner.counts["cited"],
        planner.counts["unchanged"],
        (*extraction.left_out, *left_out, *planner.left_out),
    )


def _build_reconciliation(
    tracker: ChangeTracker, entities: ResolvedEntities, incoming_facts: Sequence[IncomingFact], planner: FactPlanner
) -> Reconciliation:
    """The changes with the entities they need: none is made of which nothing is remembered."""
    drafts = [
        change if isinstance(change, AtomDraft) else change.draft
        for change in tracker.changes
        if not isinstance(change, AddedCitation)
    ]
    used_ids = {id for draft in drafts for id in draft.entity_ids}
    remembered_ids = {
        id
        for incoming in incoming_facts
        if incoming.index not in planner.refused
        for id in entities.ids_of(incoming.fact.entities)
    }
    return Reconciliation(
        entities=tuple(draft for id, draft in entities.drafts.items() if id in used_ids),
        aliases={id: names for id, names in entities.aliases.items() if id in remembered_ids},
        changes=tuple(tracker.changes),
    )
