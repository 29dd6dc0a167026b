"""Plan the changes that an extraction makes to a space: known facts are cited, changed ones superseded, others added.

This module does no I/O. The order of work:

1. `entities = resolve_entities(extraction.entities, known entities of entity_names(extraction))`
2. `known = memories.known_atoms(slots=slots_to_load(extraction, entities), conversation_id=...)`, candidates by recall
3. `plan = plan_reconciliation(...)`; if it has `questions` and there is a decider, once more with `decisions`
4. `memories.reconcile(plan.reconciliation, ...)`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import zip_longest
from typing import TypeAlias, assert_never

from tellback.memory.extraction.reconciliation import facts
from tellback.memory.extraction.reconciliation.entities import ResolvedEntities
from tellback.memory.extraction.reconciliation.facts import (
    ChangeTracker,
    IncomingFact,
    SlotNames,
    TrackedAtom,
    build_incoming_facts,
    with_citations,
)
from tellback.memory.extraction.values import Change, Decision, Extraction, LeftOut, Question, Verdict, Window
from tellback.memory.text_similarity import negates, same_value
from tellback.stores import AddedCitation, AtomDraft, KnownAtom, Reconciliation
from tellback.types.ids import new_id
from tellback.types.memory import Atom, AtomStatus, CategoryKind

OUTCOMES = ADDED, SUPERSEDED, CITED, UNCHANGED = "added", "superseded", "cited", "unchanged"
"""The possible outcomes of a fact."""

Restatement: TypeAlias = tuple[AtomDraft, tuple[datetime, ...]]
"""A copy of an atom that is planned again, and the times when the atom was stated."""

MIN_OVERLAP = 0.5
"""From this overlap on, a fact may repeat a known one, and a decider must compare them."""

MIN_OVERLAP_SINGLE = 1 / 3
"""The threshold for single-valued facts, or facts about the same entity: less overlap may still be a contradiction."""

MAX_OFFERED = 6


class TimelinePlanner:
    """Plans atoms on their timelines. The methods return the outcome of the fact: `ADDED` or `SUPERSEDED`."""

    def __init__(self, tracker: ChangeTracker, entities: ResolvedEntities) -> None:
        self._tracker = tracker
        self._entities = entities

    def add(self, incoming: IncomingFact) -> str:
        self._tracker.add(self._build_draft(incoming, incoming.valid_from, incoming.valid_to), incoming.message_dates)
        return ADDED

    def add_beside(self, incoming: IncomingFact, replaced: TrackedAtom, change: Change) -> str:
        """Add a fact that supersedes an atom together with another fact of the same extraction."""
        valid_from = incoming.valid_from
        if replaced.valid_from <= incoming.first_said and not incoming.had_ended:
            if change is Change.CORRECTED:
                valid_from = replaced.valid_from
            elif valid_from <= replaced.valid_from:
                valid_from = incoming.first_said
        self._tracker.add(self._build_draft(incoming, valid_from, incoming.valid_to), incoming.message_dates)
        return ADDED

    def end_atom(self, incoming: IncomingFact, entry: TrackedAtom) -> str:
        """End an atom with a fact that states its end, or that denies it.

        If the end is in the future, the atom is superseded by one with that end. If it has passed, the atom ends, and
        the fact describes the time since then.
        """
        if not incoming.had_ended:
            return self._restate(incoming, entry, min(entry.valid_from, incoming.valid_from), incoming.valid_to)
        since = incoming.fact.valid_from
        if since is not None and since < entry.valid_from:
            earlier = with_citations(
                replace(_copy_draft(entry), valid_from=since), (*entry.citations, incoming.citation)
            )
            entry = self._tracker.replace(entry, earlier, (*entry.message_dates, *incoming.message_dates))
        self._tracker.cite(entry, incoming.citation, ())
        ended = replace(
            self._build_draft(incoming, incoming.valid_to or incoming.first_said, None),
            slot=incoming.slot if incoming.is_single else None,
            value=None,
        )
        self._append_and_restate(ended, incoming, entry, self._restatements(entry, incoming.message_dates[-1]))
        return SUPERSEDED

    def extend_back(self, incoming: IncomingFact, entry: TrackedAtom) -> str:
        """Apply a fact that states an earlier start of an atom."""
        return self._restate(incoming, entry, incoming.valid_from, entry.valid_to)

    def cancel_upcoming(self, incoming: IncomingFact, entry: TrackedAtom) -> None:
        """Cancel the future successors of an atom, because a fact says that it stays valid, unless they were stated
        later."""
        upcoming = list(self._tracker.successors(entry))
        if not upcoming or incoming.valid_to is not None or not upcoming[-1].is_last:
            return
        valid_from = min(each.valid_from for each in upcoming)
        if valid_from > incoming.first_said and all(
            each.status is AtomStatus.ACTIVE and each.message_dates and each.message_dates[-1] < incoming.first_said
            for each in upcoming
        ):
            self._tracker.replace(upcoming[-1], self._build_draft(incoming, valid_from, None), incoming.message_dates)

    def _restate(
        self, incoming: IncomingFact, entry: TrackedAtom, valid_from: datetime, valid_to: datetime | None
    ) -> str:
        draft = with_citations(self._build_draft(incoming, valid_from, valid_to), (incoming.citation, *entry.citations))
        self._tracker.replace(entry, draft, (*incoming.message_dates, *entry.message_dates))
        return SUPERSEDED

    def place(self, incoming: IncomingFact, timeline: Sequence[TrackedAtom], change: Change) -> str:
        """Place a fact on a timeline: the atoms of a single-valued slot, or of a chain.

        A fact that had ended when it was stated is placed by its dates.
        """
        current = None if incoming.had_ended else find_valid_at(timeline, incoming.first_said)
        if change is Change.CORRECTED and current is not None:
            return self.correct(incoming, timeline, current)
        valid_from = incoming.valid_from
        if change is Change.CHANGED and current is not None and valid_from <= current.valid_from:
            # The old value was valid before the change, although a stated month may have started earlier.
            valid_from = incoming.first_said
        return self._insert(incoming, timeline, valid_from, find_valid_at(timeline, valid_from))

    def correct(self, incoming: IncomingFact, timeline: Sequence[TrackedAtom], wrong: TrackedAtom) -> str:
        """Apply a correction: the fact was true from the start of the wrong atom on."""
        if wrong.was_never_valid or wrong.valid_from > incoming.first_said or incoming.had_ended:
            return self.place(incoming, timeline, Change.CHANGED)
        valid_from = wrong.valid_from
        if wrong.is_last and incoming.fact.valid_from is not None:
            valid_from = min(valid_from, incoming.fact.valid_from)
        return self._insert(incoming, timeline, valid_from, wrong)

    def _insert(
        self, incoming: IncomingFact, timeline: Sequence[TrackedAtom], valid_from: datetime, before: TrackedAtom | None
    ) -> str:
        following = next((entry for entry in timeline if entry.valid_from > valid_from and entry is not before), None)
        until = incoming.valid_to if following is None else _earliest(incoming.valid_to, following.valid_from)
        draft = self._build_draft(incoming, valid_from, until)
        if before is None:
            if (
                following is not None
                and following.is_last
                and incoming.valid_to is None
                and _has_same_value(incoming, following)
            ):
                return self._restate(incoming, following, valid_from, following.valid_to)
            self._tracker.add(draft, incoming.message_dates)
            return ADDED
        later = list(self._tracker.successors(before))
        if not before.is_last and not (later and later[-1].is_last and all(map(_is_active, later))):
            # The chain cannot be extended, so `before` is not superseded: both are valid until it ends.
            self._tracker.add(
                replace(draft, valid_to=_earliest(draft.valid_to, before.valid_to)), incoming.message_dates
            )
            return ADDED
        last_said = incoming.valid_to if incoming.had_ended else max(valid_from, incoming.message_dates[-1])
        restatements = self._restatements(before, last_said or valid_from)
        if before.is_last and not restatements:
            self._tracker.replace(before, draft, incoming.message_dates)
            return SUPERSEDED
        self._append_and_restate(replace(draft, valid_to=incoming.valid_to), incoming, before, restatements)
        return ADDED

    def _restatements(self, entry: TrackedAtom, moment: datetime) -> list[Restatement]:
        """Return a copy of the atom that starts when it was next stated after a time; an empty list if it was not."""
        said_again = entry.next_said_after(moment)
        return [] if said_again is None else [(replace(_copy_draft(entry), valid_from=said_again), entry.message_dates)]

    def _append_and_restate(
        self, draft: AtomDraft, incoming: IncomingFact, before: TrackedAtom, restatements: list[Restatement]
    ) -> None:
        """Plan an atom that follows another one in its chain, and plan copies of the later atoms after it."""
        later = list(self._tracker.successors(before))
        restatements = [
            *restatements,
            *((_copy_draft(entry), entry.message_dates) for entry in later if not entry.was_never_valid),
        ]
        last = self._tracker.replace(later[-1] if later else before, draft, incoming.message_dates)
        for (copied, message_dates), following in zip_longest(restatements, restatements[1:]):
            ends_there = following is not None and copied.valid_to == following[0].valid_from
            last = self._tracker.replace(last, replace(copied, valid_to=None) if ends_there else copied, message_dates)

    def _build_draft(self, incoming: IncomingFact, valid_from: datetime, valid_to: datetime | None) -> AtomDraft:
        return incoming.to_draft(self._entities.ids_of(incoming.fact.entities), valid_from, valid_to)


def find_valid_at(timeline: Sequence[TrackedAtom], moment: datetime) -> TrackedAtom | None:
    """Return the atom valid at a time; of several, the one that started last."""
    return next((entry for entry in reversed(timeline) if entry.is_valid_at(moment)), None)


def _is_active(entry: TrackedAtom) -> bool:
    return entry.status is AtomStatus.ACTIVE


def _copy_draft(entry: TrackedAtom) -> AtomDraft:
    return with_citations(replace(entry.draft, id=new_id("atom"), valid_to=entry.valid_to), entry.citations)


def _has_same_value(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    value = entry.draft.value
    if value is None or incoming.value is None or negates(entry.draft.text) != negates(incoming.fact.text):
        return False
    return same_value(value, incoming.value)


def _earliest(a: datetime | None, b: datetime | None) -> datetime | None:
    return min(a, b) if a is not None and b is not None else a or b


class FactPlanner:
    """Plans the facts of one extraction."""

    def __init__(
        self,
        tracker: ChangeTracker,
        entities: ResolvedEntities,
        offered: Mapping[int, Sequence[str]],
        decisions: Mapping[int, Decision],
    ) -> None:
        self._tracker = tracker
        self._entities = entities
        self._offered = offered
        self._decisions = decisions
        self._timeline = TimelinePlanner(tracker, entities)
        self.questions: dict[int, Question] = {}
        self.counts: Counter[str] = Counter()
        self.left_out: list[LeftOut] = []
        self.refused: set[int] = set()

    def plan_fact(self, incoming: IncomingFact) -> None:
        if self._was_deleted(incoming):
            self.left_out.append(LeftOut(incoming.fact.text, "the user deleted it"))
            self.refused.add(incoming.index)
            return
        outcome = self._cite_repeated(incoming) or self._end_denied(incoming) or self._replace_opposed(incoming)
        outcome = outcome or self._place_in_slot(incoming) or self._apply_decision(incoming)
        self.counts[outcome or self._timeline.add(incoming)] += 1

    def _was_deleted(self, incoming: IncomingFact) -> bool:
        """Whether the user deleted this fact and has not stated it again since."""
        if any(incoming.cited_ids <= entry.cited_ids for entry in self._find_repeated(incoming)):
            return False  # an atom that was not deleted already has these words and citations
        return any(facts.is_deleted(incoming, entry) for entry in self._tracker.deleted())

    def _cite_repeated(self, incoming: IncomingFact) -> str | None:
        """Cite the atom that says the same and is valid when the fact starts, if there is one.

        If the fact states its end or an earlier start, the atom is changed instead.
        """
        found = [entry for entry in self._find_repeated(incoming) if facts.is_same_occasion(incoming, entry)]
        applied = [
            entry
            for entry in found
            if facts.is_already_applied(incoming, entry) and not facts.reports_end(incoming, entry)
        ]
        if applied:
            return self._cite(incoming, applied[0])
        valid_entries = [entry for entry in found if entry.is_valid_at(incoming.valid_from)]
        valid_entries = valid_entries or [entry for entry in found if facts.is_late_report(incoming, entry, found)]
        if not valid_entries:
            return None
        entry = max(
            valid_entries, key=lambda each: (each.status is AtomStatus.ACTIVE, each.is_last, each.valid_from, each.id)
        )
        if facts.reports_end(incoming, entry):
            return self._timeline.end_atom(incoming, entry)
        if facts.reports_earlier_start(incoming, entry):
            return self._timeline.extend_back(incoming, entry)
        if incoming.is_single and incoming.is_changing and entry.is_valid_at(incoming.first_said):
            self._timeline.cancel_upcoming(incoming, entry)
        return self._cite(incoming, entry)

    def _find_repeated(self, incoming: IncomingFact) -> list[TrackedAtom]:
        return self._tracker.find_repeated(incoming.fact.text, incoming.slot, incoming.value)

    def _find_opposed(self, incoming: IncomingFact) -> list[TrackedAtom]:
        if incoming.is_episode:
            return []
        found = self._tracker.find_opposed(incoming.fact.text, incoming.slot, incoming.value)
        return [entry for entry in found if entry.draft.category.kind is not CategoryKind.EPISODE]

    def _cite(self, incoming: IncomingFact, entry: TrackedAtom) -> str:
        self._tracker.add_wording(entry, incoming.fact.text, incoming.slot, incoming.value)
        return self._add_citation(incoming, entry)

    def _add_citation(self, incoming: IncomingFact, entry: TrackedAtom) -> str:
        return CITED if self._tracker.cite(entry, incoming.citation, incoming.message_dates) else UNCHANGED

    def _end_denied(self, incoming: IncomingFact) -> str | None:
        """End the atom that a fact says has ended. If it ends already, cite it if it is valid when the fact starts."""
        if not incoming.had_ended or not negates(incoming.fact.text):
            return None
        for entry in self._find_opposed(incoming):
            if facts.reports_end(incoming, entry):
                return self._timeline.end_atom(incoming, entry)
            if entry.is_valid_at(incoming.valid_from):
                return self._add_citation(incoming, entry)
        return None

    def _replace_opposed(self, incoming: IncomingFact) -> str | None:
        """Supersede the atom that a fact denies, or that denies the fact."""
        if incoming.is_single or incoming.had_ended:
            return None
        timeline = [entry for entry in self._find_opposed(incoming) if not entry.was_never_valid]
        before = find_valid_at(timeline, incoming.first_said) or find_valid_at(timeline, incoming.valid_from)
        if before is None:
            later = next((entry for entry in timeline if entry.valid_from > incoming.valid_from), None)
            return None if later is None else self._timeline.place(incoming, self._tracker.chain(later), Change.CHANGED)
        if before.is_planned and before.valid_from >= incoming.valid_from:
            return None  # both come from this extraction, so both are true
        return self._replace(incoming, before, self._tracker.chain(before), incoming.fact.change is Change.NONE)

    def _place_in_slot(self, incoming: IncomingFact) -> str | None:
        """Place a fact in its slot, if its position is clear."""
        timeline = self._tracker.slot_timeline(incoming.slot)
        if not timeline or incoming.is_episode:
            return None
        if not incoming.is_single:
            return self._replace_only_holder(incoming) if incoming.is_changing else None
        if sum(entry.is_valid_at(incoming.first_said) and entry.status is AtomStatus.ACTIVE for entry in timeline) > 1:
            return None  # the slot already has more than one value, so it is not single-valued
        before = find_valid_at(timeline, incoming.valid_from)
        if before is None:
            return self._timeline.place(incoming, timeline, incoming.fact.change)
        return self._replace(incoming, before, timeline, facts.may_be_same(incoming, before))

    def _replace_only_holder(self, incoming: IncomingFact) -> str | None:
        """Supersede the only atom that a fact about a change can mean."""
        valid_entries = self._tracker.valid_in_slot(incoming.slot, incoming.first_said)
        if len(valid_entries) != 1:
            return None
        if self._tracker.was_replaced(valid_entries[0]):
            return self._timeline.add_beside(incoming, valid_entries[0], incoming.fact.change)
        return self._timeline.place(incoming, valid_entries, incoming.fact.change)

    def _replace(
        self, incoming: IncomingFact, before: TrackedAtom, timeline: Sequence[TrackedAtom], may_ask: bool
    ) -> str:
        """Supersede an atom with a fact, unless the decider decides otherwise."""
        change = incoming.fact.change
        decision = self._decide_or_ask(incoming, [before]) if may_ask else None
        if decision is not None and decision.atom_id in (None, before.id):
            match decision.verdict:
                case Verdict.SAME:
                    return self._cite(incoming, before)
                case Verdict.NEW:
                    return self._timeline.add(incoming.without_slot() if facts.is_denial(incoming) else incoming)
                case Verdict.CORRECTS:
                    change = Change.CORRECTED
                case Verdict.REPLACES:
                    change = Change.CHANGED
                case _:
                    assert_never(decision.verdict)
        if change is Change.NONE and not incoming.is_single:
            change = Change.CHANGED
        return self._timeline.place(incoming, timeline, change)

    def _apply_decision(self, incoming: IncomingFact) -> str | None:
        """Apply the decision on a fact, or record a question."""
        decision = self._decide_or_ask(incoming, self._find_similar(incoming))
        chosen = None if decision is None or decision.atom_id is None else self._tracker.get(decision.atom_id)
        if decision is None or chosen is None or chosen.status is AtomStatus.DELETED:
            return None  # undecided, decided as new, or the chosen atom is gone
        match decision.verdict:
            case Verdict.NEW:
                return None
            case Verdict.SAME if chosen.is_valid_at(incoming.valid_from) or chosen.valid_from > incoming.valid_from:
                return self._cite(incoming, chosen)
            case Verdict.REPLACES | Verdict.CORRECTS if self._tracker.was_replaced(chosen) and not incoming.fact.single:
                corrects = decision.verdict is Verdict.CORRECTS
                return self._timeline.add_beside(incoming, chosen, Change.CORRECTED if corrects else Change.CHANGED)
            case Verdict.SAME | Verdict.REPLACES:
                return self._timeline.place(incoming, self._tracker.chain(chosen), Change.CHANGED)
            case Verdict.CORRECTS:
                return self._timeline.correct(incoming, self._tracker.chain(chosen), chosen)
            case _:
                assert_never(decision.verdict)

    def _decide_or_ask(self, incoming: IncomingFact, entries: Sequence[TrackedAtom]) -> Decision | None:
        """Return the decision on a fact; without one, record a question with these candidates."""
        decision = self._decisions.get(incoming.index)
        atoms = tuple(entry.atom for entry in entries if entry.atom is not None)
        if decision is None and atoms:
            self.questions[incoming.index] = Question(incoming.fact, atoms, incoming.valid_from)
        return decision

    def _find_similar(self, incoming: IncomingFact) -> list[TrackedAtom]:
        """Return the atoms that a fact may repeat or supersede: those in its slot first, then the most similar."""
        offered = [self._tracker.get(id) for id in self._offered.get(incoming.index, ())]
        found = {
            entry.id: entry for entry in (*offered, *self._tracker.slot_timeline(incoming.slot)) if entry is not None
        }
        about = set(self._entities.ids_of(incoming.fact.entities))
        scored = []
        for entry in found.values():
            score, in_slot = facts.similarity(incoming, entry), facts.shares_slot(incoming, entry)
            shares = incoming.fact.single or not about.isdisjoint(entry.draft.entity_ids)
            is_relevant = incoming.is_changing or (in_slot and incoming.is_single)
            if facts.is_candidate(incoming, entry) and (
                is_relevant or score >= (MIN_OVERLAP_SINGLE if shares else MIN_OVERLAP)
            ):
                scored.append((not in_slot, -score, entry))
        scored.sort(key=lambda each: each[:2])
        return [entry for _, _, entry in scored[:MAX_OFFERED]]


@dataclass(frozen=True, slots=True)
class ReconciliationPlan:
    """The planned changes, and how many facts were added, superseded an atom, cited a known one or changed nothing.

    `questions` are facts, by number, that may repeat or supersede a known atom. Until they are decided, they are
    planned as new. `left_out` are the facts that are not stored, including those that the extractor left out.
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
        return {**{outcome: getattr(self, outcome) for outcome in OUTCOMES}, "left_out": len(self.left_out)}


def slots_to_load(extraction: Extraction, entities: ResolvedEntities) -> tuple[str, ...]:
    """Return the slots to load for `plan_reconciliation`: those of the facts, under every name of their subjects."""
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
    """Plan the changes that an extraction makes.

    `known` are the space's atoms in the facts' slots and from this conversation, with any status. `candidates` are, by
    fact number, atoms that may be about the same thing. `decisions`, by fact number, answer the questions of an earlier
    plan. If the atom of a decision is gone, the fact is new. Changes that were already made are not planned again.
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
        **{outcome: planner.counts[outcome] for outcome in OUTCOMES},
        left_out=(*extraction.left_out, *left_out, *planner.left_out),
    )


def _build_reconciliation(
    tracker: ChangeTracker, entities: ResolvedEntities, incoming_facts: Sequence[IncomingFact], planner: FactPlanner
) -> Reconciliation:
    """Return the changes with the entities they need. Entities without stored facts are not created."""
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
