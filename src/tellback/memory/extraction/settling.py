"""Settling facts one by one: each repeats what is known, takes its place, or is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import assert_never

from tellback.memory.extraction import matching
from tellback.memory.extraction.claims import Claim
from tellback.memory.extraction.entities import Resolved
from tellback.memory.extraction.ledger import Entry, Ledger
from tellback.memory.extraction.likeness import negates
from tellback.memory.extraction.placing import Placing, holder
from tellback.memory.extraction.values import Change, Decision, LeftOut, Question, Verdict
from tellback.types.memory import AtomStatus, CategoryKind

ALIKE = 0.5
"""From this overlap on, a fact may be what is known already, and someone has to judge."""

ALIKE_SINGLE = 1 / 3
"""The same for a fact of which there is one at a time, or about the same entity: less may still contradict it."""

MOST_OFFERED = 6


class Settling:
    """Settles the facts of one extraction."""

    def __init__(
        self,
        ledger: Ledger,
        entities: Resolved,
        offered: Mapping[int, Sequence[str]],
        decisions: Mapping[int, Decision],
    ) -> None:
        self._ledger = ledger
        self._entities = entities
        self._offered = offered
        self._decisions = decisions
        self._placing = Placing(ledger, entities)
        self.questions: dict[int, Question] = {}
        self.counts: Counter[str] = Counter()
        self.left_out: list[LeftOut] = []
        self.refused: set[int] = set()

    def settle(self, claim: Claim) -> None:
        """Plan what becomes of a fact."""
        if self._was_deleted(claim):
            self.left_out.append(LeftOut(claim.fact.text, "it was deleted"))
            self.refused.add(claim.index)
            return
        done = self._repeat(claim) or self._end_denied(claim) or self._oppose(claim)
        done = done or self._take_slot(claim) or self._judge(claim)
        self.counts[done or self._placing.add(claim)] += 1

    def _was_deleted(self, claim: Claim) -> bool:
        """Whether the user deleted this, and nobody has said it again since."""
        if any(claim.cited <= entry.cited for entry in self._repeated(claim)):
            return False  # something else of those messages, which was not deleted
        return any(matching.is_deleted(claim, entry) for entry in self._ledger.deleted())

    def _repeat(self, claim: Claim) -> str | None:
        """Cite what says the same and is so at that time, if there is such an atom."""
        found = [entry for entry in self._repeated(claim) if matching.is_same_occasion(claim, entry)]
        done = [entry for entry in found if matching.is_done(claim, entry) and not matching.is_news(claim, entry)]
        if done:
            return self._cite(claim, done[0])
        held = [entry for entry in found if entry.holds(claim.begins)]
        held = held or [entry for entry in found if matching.is_told_late(claim, entry, found)]
        if not held:
            return None
        entry = max(held, key=lambda each: (each.status is AtomStatus.ACTIVE, each.is_last, each.begins, each.id))
        if matching.is_news(claim, entry):
            return self._placing.end(claim, entry)
        if matching.is_longer(claim, entry):
            return self._placing.lengthen(claim, entry)
        if claim.is_single and claim.is_changing and entry.holds(claim.said):
            self._placing.take_back_what_comes(claim, entry)
        return self._cite(claim, entry)

    def _repeated(self, claim: Claim) -> list[Entry]:
        return self._ledger.repeated(claim.fact.text, claim.slot, claim.value)

    def _opposed(self, claim: Claim) -> list[Entry]:
        if claim.is_episode:
            return []
        found = self._ledger.opposed(claim.fact.text, claim.slot, claim.value)
        return [entry for entry in found if entry.draft.category.kind is not CategoryKind.EPISODE]

    def _cite(self, claim: Claim, entry: Entry) -> str:
        self._ledger.also_said(entry, claim.fact.text, claim.slot, claim.value)
        return self._cited(claim, entry)

    def _cited(self, claim: Claim, entry: Entry) -> str:
        return "cited" if self._ledger.cite(entry, claim.citation, claim.dates) else "unchanged"

    def _end_denied(self, claim: Claim) -> str | None:
        """End what a fact says was over at some time."""
        if not claim.was_over or not negates(claim.fact.text):
            return None
        for entry in self._opposed(claim):
            if matching.is_news(claim, entry):
                return self._placing.end(claim, entry)
            if entry.holds(claim.begins):
                return self._cited(claim, entry)
        return None

    def _oppose(self, claim: Claim) -> str | None:
        """Put a fact in the place of what it denies, or of what denies it."""
        if claim.is_single or claim.was_over:
            return None
        line = [entry for entry in self._opposed(claim) if not entry.never_held]
        before = holder(line, claim.said) or holder(line, claim.begins)
        if before is None:
            later = next((entry for entry in line if entry.begins > claim.begins), None)
            return None if later is None else self._placing.place(claim, self._ledger.chain(later), Change.CHANGED)
        if before.is_planned and before.begins >= claim.begins:
            return None  # who says both at once means both
        return self._replace(claim, before, self._ledger.chain(before), claim.fact.change is Change.NONE)

    def _take_slot(self, claim: Claim) -> str | None:
        """Put a fact in its place in its slot, if it is clear which that is."""
        line = self._ledger.line(claim.slot)
        if not line or claim.is_episode:
            return None
        if not claim.is_single:
            return self._take_only(claim) if claim.is_changing else None
        if sum(entry.holds(claim.said) and entry.status is AtomStatus.ACTIVE for entry in line) > 1:
            return None  # there is more than one at a time, whatever the fact says
        before = holder(line, claim.begins)
        if before is None:
            return self._placing.place(claim, line, claim.fact.change)
        return self._replace(claim, before, line, matching.may_be_same(claim, before))

    def _take_only(self, claim: Claim) -> str | None:
        """Put a fact that says what changed in the place of the only thing that can have."""
        held = self._ledger.held_before(claim.slot, claim.said)
        if len(held) != 1:
            return None
        if self._ledger.was_replaced(held[0]):
            return self._placing.beside(claim, held[0], claim.fact.change)
        return self._placing.place(claim, held, claim.fact.change)

    def _replace(self, claim: Claim, before: Entry, line: Sequence[Entry], ask: bool) -> str:
        """Put a fact in an atom's place, unless someone who is asked decides otherwise."""
        change = claim.fact.change
        decision = self._decision(claim, [before]) if ask else None
        if decision is not None and decision.atom_id in (None, before.id):
            match decision.verdict:
                case Verdict.SAME:
                    return self._cite(claim, before)
                case Verdict.NEW:
                    return self._placing.add(claim.without_slot() if matching.is_denial(claim) else claim)
                case Verdict.CORRECTS:
                    change = Change.CORRECTED
                case Verdict.REPLACES:
                    change = Change.CHANGED
                case _:
                    assert_never(decision.verdict)
        if change is Change.NONE and not claim.is_single:
            change = Change.CHANGED
        return self._placing.place(claim, line, change)

    def _judge(self, claim: Claim) -> str | None:
        """Do as was decided; what was not is asked."""
        decision = self._decision(claim, self._alike(claim))
        chosen = None if decision is None or decision.atom_id is None else self._ledger.get(decision.atom_id)
        if decision is None or chosen is None or chosen.status is AtomStatus.DELETED:
            return None  # what was to be replaced is gone: the fact stands alone
        match decision.verdict:
            case Verdict.NEW:
                return None
            case Verdict.SAME if chosen.holds(claim.begins) or chosen.begins > claim.begins:
                return self._cite(claim, chosen)
            case Verdict.REPLACES | Verdict.CORRECTS if self._ledger.was_replaced(chosen) and not claim.fact.single:
                corrects = decision.verdict is Verdict.CORRECTS
                return self._placing.beside(claim, chosen, Change.CORRECTED if corrects else Change.CHANGED)
            case Verdict.SAME | Verdict.REPLACES:
                return self._placing.place(claim, self._ledger.chain(chosen), Change.CHANGED)
            case Verdict.CORRECTS:
                return self._placing.correct(claim, self._ledger.chain(chosen), chosen)
            case _:
                assert_never(decision.verdict)

    def _decision(self, claim: Claim, entries: Sequence[Entry]) -> Decision | None:
        """What was decided of a fact; if nothing was, whether it is one of these is kept as a question."""
        decision = self._decisions.get(claim.index)
        atoms = tuple(entry.atom for entry in entries if entry.atom is not None)
        if decision is None and atoms:
            self.questions[claim.index] = Question(claim.fact, atoms, claim.begins)
        return decision

    def _alike(self, claim: Claim) -> list[Entry]:
        """What a fact may repeat or replace: what is in its slot first, then the most alike."""
        given = [self._ledger.get(id) for id in self._offered.get(claim.index, ())]
        found = {entry.id: entry for entry in (*given, *self._ledger.line(claim.slot)) if entry is not None}
        about = set(self._entities.ids_of(claim.fact.entities))
        scored = []
        for entry in found.values():
            score, is_mate = matching.likeness(claim, entry), matching.is_slot_mate(claim, entry)
            shares = claim.fact.single or not about.isdisjoint(entry.draft.entity_ids)
            is_meant = claim.is_changing or (is_mate and claim.is_single)
            if matching.can_be_asked_about(claim, entry) and (is_meant or score >= (ALIKE_SINGLE if shares else ALIKE)):
                scored.append((not is_mate, -score, entry))
        scored.sort(key=lambda each: each[:2])
        return [entry for _, _, entry in scored[:MOST_OFFERED]]
