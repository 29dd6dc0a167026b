"""Settling facts one by one: each repeats what is known, takes its place, or is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import assert_never

from tellback.memory.extraction import matching
from tellback.memory.extraction.claims import IncomingFact
from tellback.memory.extraction.entities import ResolvedEntities
from tellback.memory.extraction.ledger import ChangeTracker, TrackedAtom
from tellback.memory.extraction.likeness import negates
from tellback.memory.extraction.placing import TimelinePlanner, find_holder
from tellback.memory.extraction.values import Change, Decision, LeftOut, Question, Verdict
from tellback.types.memory import AtomStatus, CategoryKind

MIN_OVERLAP = 0.5
"""From this overlap on, a fact may be what is known already, and someone has to judge."""

MIN_OVERLAP_SINGLE = 1 / 3
"""The same for a fact of which there is one at a time, or about the same entity: less may still contradict it."""

MAX_OFFERED = 6


class FactPlanner:
    """Settles the facts of one extraction."""

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
        """Plan what becomes of a fact."""
        if self._was_deleted(incoming):
            self.left_out.append(LeftOut(incoming.fact.text, "it was deleted"))
            self.refused.add(incoming.index)
            return
        outcome = self._cite_repeated(incoming) or self._end_denied(incoming) or self._replace_opposed(incoming)
        outcome = outcome or self._place_in_slot(incoming) or self._apply_decision(incoming)
        self.counts[outcome or self._timeline.add(incoming)] += 1

    def _was_deleted(self, incoming: IncomingFact) -> bool:
        """Whether the user deleted this, and nobody has said it again since."""
        if any(incoming.cited_ids <= entry.cited_ids for entry in self._find_repeated(incoming)):
            return False  # something else of those messages, which was not deleted
        return any(matching.is_deleted(incoming, entry) for entry in self._tracker.deleted())

    def _cite_repeated(self, incoming: IncomingFact) -> str | None:
        """Cite what says the same and is so at that time, if there is such an atom."""
        found = [entry for entry in self._find_repeated(incoming) if matching.is_same_occasion(incoming, entry)]
        applied = [
            entry
            for entry in found
            if matching.is_already_applied(incoming, entry) and not matching.reports_end(incoming, entry)
        ]
        if applied:
            return self._cite(incoming, applied[0])
        holding = [entry for entry in found if entry.holds(incoming.begins)]
        holding = holding or [entry for entry in found if matching.is_late_report(incoming, entry, found)]
        if not holding:
            return None
        entry = max(holding, key=lambda each: (each.status is AtomStatus.ACTIVE, each.is_last, each.begins, each.id))
        if matching.reports_end(incoming, entry):
            return self._timeline.end_atom(incoming, entry)
        if matching.reports_earlier_start(incoming, entry):
            return self._timeline.extend_back(incoming, entry)
        if incoming.is_single and incoming.is_changing and entry.holds(incoming.first_said):
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
        return "cited" if self._tracker.cite(entry, incoming.citation, incoming.message_dates) else "unchanged"

    def _end_denied(self, incoming: IncomingFact) -> str | None:
        """End what a fact says was over at some time."""
        if not incoming.had_ended or not negates(incoming.fact.text):
            return None
        for entry in self._find_opposed(incoming):
            if matching.reports_end(incoming, entry):
                return self._timeline.end_atom(incoming, entry)
            if entry.holds(incoming.begins):
                return self._add_citation(incoming, entry)
        return None

    def _replace_opposed(self, incoming: IncomingFact) -> str | None:
        """Put a fact in the place of what it denies, or of what denies it."""
        if incoming.is_single or incoming.had_ended:
            return None
        timeline = [entry for entry in self._find_opposed(incoming) if not entry.never_held]
        before = find_holder(timeline, incoming.first_said) or find_holder(timeline, incoming.begins)
        if before is None:
            later = next((entry for entry in timeline if entry.begins > incoming.begins), None)
            return None if later is None else self._timeline.place(incoming, self._tracker.chain(later), Change.CHANGED)
        if before.is_planned and before.begins >= incoming.begins:
            return None  # who says both at once means both
        return self._replace(incoming, before, self._tracker.chain(before), incoming.fact.change is Change.NONE)

    def _place_in_slot(self, incoming: IncomingFact) -> str | None:
        """Put a fact in its place in its slot, if it is clear which that is."""
        timeline = self._tracker.slot_timeline(incoming.slot)
        if not timeline or incoming.is_episode:
            return None
        if not incoming.is_single:
            return self._replace_only_holder(incoming) if incoming.is_changing else None
        if sum(entry.holds(incoming.first_said) and entry.status is AtomStatus.ACTIVE for entry in timeline) > 1:
            return None  # there is more than one at a time, whatever the fact says
        before = find_holder(timeline, incoming.begins)
        if before is None:
            return self._timeline.place(incoming, timeline, incoming.fact.change)
        return self._replace(incoming, before, timeline, matching.may_be_same(incoming, before))

    def _replace_only_holder(self, incoming: IncomingFact) -> str | None:
        """Put a fact that says what changed in the place of the only thing that can have."""
        holding = self._tracker.held_in_slot(incoming.slot, incoming.first_said)
        if len(holding) != 1:
            return None
        if self._tracker.was_replaced(holding[0]):
            return self._timeline.add_beside(incoming, holding[0], incoming.fact.change)
        return self._timeline.place(incoming, holding, incoming.fact.change)

    def _replace(
        self, incoming: IncomingFact, before: TrackedAtom, timeline: Sequence[TrackedAtom], may_ask: bool
    ) -> str:
        """Put a fact in an atom's place, unless someone who is asked decides otherwise."""
        change = incoming.fact.change
        decision = self._decide_or_ask(incoming, [before]) if may_ask else None
        if decision is not None and decision.atom_id in (None, before.id):
            match decision.verdict:
                case Verdict.SAME:
                    return self._cite(incoming, before)
                case Verdict.NEW:
                    return self._timeline.add(incoming.without_slot() if matching.is_denial(incoming) else incoming)
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
        """Do as was decided; what was not is asked."""
        decision = self._decide_or_ask(incoming, self._find_similar(incoming))
        chosen = None if decision is None or decision.atom_id is None else self._tracker.get(decision.atom_id)
        if decision is None or chosen is None or chosen.status is AtomStatus.DELETED:
            return None  # what was to be replaced is gone: the fact stands alone
        match decision.verdict:
            case Verdict.NEW:
                return None
            case Verdict.SAME if chosen.holds(incoming.begins) or chosen.begins > incoming.begins:
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
        """What was decided of a fact; if nothing was, whether it is one of these is kept as a question."""
        decision = self._decisions.get(incoming.index)
        atoms = tuple(entry.atom for entry in entries if entry.atom is not None)
        if decision is None and atoms:
            self.questions[incoming.index] = Question(incoming.fact, atoms, incoming.begins)
        return decision

    def _find_similar(self, incoming: IncomingFact) -> list[TrackedAtom]:
        """What a fact may repeat or replace: what is in its slot first, then the most alike."""
        offered = [self._tracker.get(id) for id in self._offered.get(incoming.index, ())]
        found = {
            entry.id: entry for entry in (*offered, *self._tracker.slot_timeline(incoming.slot)) if entry is not None
        }
        about = set(self._entities.ids_of(incoming.fact.entities))
        scored = []
        for entry in found.values():
            score, in_slot = matching.similarity(incoming, entry), matching.shares_slot(incoming, entry)
            shares = incoming.fact.single or not about.isdisjoint(entry.draft.entity_ids)
            is_relevant = incoming.is_changing or (in_slot and incoming.is_single)
            if matching.is_candidate(incoming, entry) and (
                is_relevant or score >= (MIN_OVERLAP_SINGLE if shares else MIN_OVERLAP)
            ):
                scored.append((not in_slot, -score, entry))
        scored.sort(key=lambda each: each[:2])
        return [entry for _, _, entry in scored[:MAX_OFFERED]]
