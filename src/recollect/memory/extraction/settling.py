"""Settling facts one by one: each repeats what is known, takes its place, or is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import assert_never

from recollect.memory.extraction.claims import Claim
from recollect.memory.extraction.entities import Resolved
from recollect.memory.extraction.ledger import Entry, Ledger
from recollect.memory.extraction.likeness import negates, overlap, same_value
from recollect.memory.extraction.placing import Placing, holder
from recollect.memory.extraction.values import Change, Decision, LeftOut, Question, Verdict
from recollect.memory.recall.words import NUMBER, TIME, words
from recollect.types.memory import AtomStatus, CategoryKind

ALIKE = 0.5
"""From this overlap on, a fact may be what is known already, and someone has to judge."""

ALIKE_SINGLE = 1 / 3
"""The same for a fact of which there is one at a time: what shares less with it may still contradict it."""

AS_GOOD_AS_SAID = 0.75
"""From this overlap on, what the same messages say is what was deleted."""

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
        done = self._repeat(claim) or self._take_slot(claim) or self._judge(claim)
        self.counts[done or self._placing.add(claim)] += 1

    def _was_deleted(self, claim: Claim) -> bool:
        """Whether the user deleted this, and nobody has said it again since."""
        return any(claim.cited <= entry.cited and _says_the_same(claim, entry) for entry in self._ledger.deleted())

    def _repeat(self, claim: Claim) -> str | None:
        """Cite what says the same and is so at that time, if there is such an atom."""
        known = self._ledger.repeated(claim.fact.text, claim.slot, claim.value)
        found = [entry for entry in known if _is_same_occasion(claim, entry)]
        done = [entry for entry in found if _is_done(claim, entry) and not _is_news(claim, entry)]
        if done:
            return self._cite(claim, done[0])
        held = [entry for entry in found if entry.holds(claim.begins)]
        held = held or [entry for entry in found if _is_same_later(claim, entry) or _is_same_mistake(claim, entry)]
        if not held:
            return None
        entry = max(held, key=lambda each: (each.status is AtomStatus.ACTIVE, each.is_last, each.begins, each.id))
        return self._placing.end(claim, entry) if _is_news(claim, entry) else self._cite(claim, entry)

    def _cite(self, claim: Claim, entry: Entry) -> str:
        self._ledger.also_said(entry, claim.fact.text, claim.slot, claim.value)
        return "cited" if self._ledger.cite(entry, claim.citation) else "unchanged"

    def _take_slot(self, claim: Claim) -> str | None:
        """Put a fact in its place in its slot, if it is clear which that is."""
        line = self._ledger.line(claim.slot)
        if not line or claim.is_episode:
            return None
        if not claim.is_single:
            held = [entry for entry in line if entry.holds(claim.said)]
            return self._placing.place(claim, held, claim.fact.change) if claim.is_changing and len(held) == 1 else None
        change = claim.fact.change
        before = holder(line, claim.begins)
        if change is Change.NONE and before is not None and _may_be_same(claim, before):
            decision = self._decision(claim, [before])
            if decision is not None and decision.verdict is Verdict.SAME:
                return self._cite(claim, before)
            if decision is not None and decision.verdict is Verdict.CORRECTS:
                change = Change.CORRECTED
        return self._placing.place(claim, line, change)

    def _judge(self, claim: Claim) -> str | None:
        """Do as was decided; what was not is asked."""
        decision = self._decision(claim, self._alike(claim))
        chosen = None if decision is None or decision.atom_id is None else self._ledger.get(decision.atom_id)
        if decision is None or chosen is None or chosen.status is AtomStatus.DELETED:
            return None
        match decision.verdict:
            case Verdict.NEW:
                return None
            case Verdict.SAME if chosen.holds(claim.begins) or chosen.begins > claim.begins:
                return self._cite(claim, chosen)
            case Verdict.SAME | Verdict.REPLACES:
                return self._placing.place(claim, self._ledger.chain(chosen), Change.CHANGED)
            case Verdict.CORRECTS:
                return self._placing.correct(claim, self._ledger.chain(chosen), chosen)
            case _:
                assert_never(decision.verdict)

    def _decision(self, claim: Claim, entries: Sequence[Entry]) -> Decision | None:
        """What was decided of a fact and these atoms; the question is kept if that is open."""
        atoms = tuple(entry.atom for entry in entries if entry.atom is not None)
        if not atoms:
            return None
        decision = self._decisions.get(claim.index)
        if decision is None:
            self.questions[claim.index] = Question(claim.fact, atoms)
        elif decision.verdict is not Verdict.NEW:
            # What was offered may be over by now, or less alike than others: it counts all the same.
            given = {*self._offered.get(claim.index, ()), *(atom.id for atom in atoms)}
            if decision.atom_id not in given:
                raise ValueError(f"fact {claim.index} was decided by {decision.atom_id!r}, which was not offered.")
        return decision

    def _alike(self, claim: Claim) -> list[Entry]:
        """What a fact may repeat or replace, the most alike first."""
        given = [self._ledger.get(id) for id in self._offered.get(claim.index, ())]
        found = {entry.id: entry for entry in (*given, *self._ledger.line(claim.slot)) if entry is not None}
        least = 0.0 if claim.is_changing else ALIKE_SINGLE if claim.fact.single else ALIKE
        scored = [(_likeness(claim, entry), entry) for entry in found.values() if _can_be_asked_about(entry)]
        scored.sort(key=lambda pair: -pair[0])
        return [entry for score, entry in scored if score >= least][:MOST_OFFERED]


def _says_the_same(claim: Claim, entry: Entry) -> bool:
    text, draft = claim.fact.text, entry.draft
    if claim.slot is not None and draft.slot == claim.slot and draft.value is not None and claim.value is not None:
        return same_value(claim.value, draft.value)
    return overlap(text, draft.text) >= AS_GOOD_AS_SAID and negates(text) == negates(draft.text)


def _is_same_occasion(claim: Claim, entry: Entry) -> bool:
    """Whether two that say the same can be one: what happens again on another day is another episode."""
    if not claim.is_episode and entry.draft.category.kind is not CategoryKind.EPISODE:
        return True
    return claim.begins.date() == entry.begins.date() or claim.cited <= entry.cited or _names_a_year(claim.fact.text)


def _names_a_year(text: str) -> bool:
    return any(word.signs & TIME and word.signs & NUMBER for word in words(text))


def _is_done(claim: Claim, entry: Entry) -> bool:
    """Whether an atom was made or cited for this fact before, whatever has become of it since."""
    if not claim.cited <= entry.cited:
        return False
    if entry.never_held or entry.begins == claim.begins or entry.holds(claim.begins) or entry.holds(claim.said):
        return True
    if _is_same_later(claim, entry):
        return True
    # A correction of what is over is over, too, and so is what another fact ended at that very moment. But what this
    # plan itself has ended may be so again.
    was_over = entry.atom is not None and entry.atom.valid_to == entry.ends
    return was_over and (claim.is_changing or not claim.is_single or entry.ends == claim.begins)


def _is_same_later(claim: Claim, entry: Entry) -> bool:
    """Whether an atom that begins after a fact is the same, told by someone who did not know of the fact."""
    if entry.begins <= claim.begins or entry.never_held:
        return False
    if claim.ends is not None and claim.ends <= entry.begins:
        return False
    if not claim.is_single or entry.draft.slot != claim.slot:
        return True
    return claim.is_changing and entry.holds(claim.said)


def _is_same_mistake(claim: Claim, entry: Entry) -> bool:
    """Whether a fact was said before it was corrected, and is only heard of now."""
    corrected = None if entry.atom is None else entry.atom.superseded_at
    return entry.never_held and not claim.is_changing and corrected is not None and claim.said < corrected


def _is_news(claim: Claim, entry: Entry) -> bool:
    """Whether a fact says that an atom ended which was thought to go on."""
    if claim.ends is None or not entry.is_last or entry.status is not AtomStatus.ACTIVE or entry.never_held:
        return False
    return entry.begins < claim.ends and (entry.ends is None or claim.ends < entry.ends)


def _may_be_same(claim: Claim, entry: Entry) -> bool:
    """Whether two values of a slot may be two names of one."""
    value = entry.draft.value
    return value is not None and claim.value is not None and overlap(claim.value, value) > 0


def _likeness(claim: Claim, entry: Entry) -> float:
    value = entry.draft.value
    if claim.slot is not None and entry.draft.slot == claim.slot and value is not None and claim.value is not None:
        return overlap(claim.value, value)
    return overlap(claim.fact.text, entry.draft.text)


def _can_be_asked_about(entry: Entry) -> bool:
    return entry.atom is not None and entry.status is AtomStatus.ACTIVE and not entry.is_record and not entry.never_held
