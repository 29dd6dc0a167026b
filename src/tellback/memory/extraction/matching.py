"""What a fact is to one atom: the same, told again, told late, or something to ask about."""

from __future__ import annotations

from collections.abc import Iterable

from tellback.memory.extraction.claims import IncomingFact
from tellback.memory.extraction.ledger import TrackedAtom
from tellback.memory.extraction.likeness import denies, negates, overlap, same_value
from tellback.memory.recall.words import HAS_NUMBER, HAS_TIME, extract_words
from tellback.types.memory import AtomStatus, CategoryKind

MIN_DELETED_OVERLAP = 0.4
"""From this overlap on, what the same messages say is what was deleted: better to lose it than to bring that back."""


def is_deleted(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact says what was deleted, and rests on what was said before that."""
    if (
        entry.atom is None
        or not incoming.cited_ids & entry.cited_ids
        or incoming.message_dates[-1] > entry.atom.updated_at
    ):
        return False
    text, draft = incoming.fact.text, entry.draft
    if negates(text) != negates(draft.text):
        return False
    if shares_slot(incoming, entry) and draft.value is not None and incoming.value is not None:
        return same_value(incoming.value, draft.value) or overlap(incoming.value, draft.value) >= MIN_DELETED_OVERLAP
    return overlap(text, draft.text) >= MIN_DELETED_OVERLAP


def is_same_occasion(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether two that say the same can be one: what happens again on another day is another episode."""
    if not incoming.is_episode and entry.draft.category.kind is not CategoryKind.EPISODE:
        return True
    return (
        incoming.begins.date() == entry.begins.date()
        or incoming.cited_ids <= entry.cited_ids
        or _names_a_year(incoming.fact.text)
    )


def _names_a_year(text: str) -> bool:
    return any(word.features & HAS_TIME and word.features & HAS_NUMBER for word in extract_words(text))


def is_already_applied(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether an atom was made or cited for this fact before, whatever has become of it since."""
    if not incoming.cited_ids <= entry.cited_ids:
        return False
    if (
        entry.never_held
        or entry.begins == incoming.begins
        or entry.holds(incoming.begins)
        or entry.holds(incoming.first_said)
    ):
        return True
    if is_same_later(incoming, entry):
        return True
    # A correction of what is over is over, too, and so is what another fact ended at that very moment. But what this
    # plan itself has ended may be so again.
    had_ended = entry.atom is not None and entry.atom.valid_to == entry.ends
    return had_ended and (incoming.is_changing or not incoming.is_single or entry.ends == incoming.begins)


def is_same_later(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether an atom that begins after a fact is the same, told by someone who did not know of the fact."""
    if entry.begins <= incoming.begins or entry.never_held:
        return False
    if incoming.ends is not None and incoming.ends <= entry.begins:
        return False
    if not incoming.is_single or entry.draft.slot != incoming.slot:
        return True
    return incoming.is_changing and entry.holds(incoming.first_said)


def is_late_report(incoming: IncomingFact, entry: TrackedAtom, known: Iterable[TrackedAtom]) -> bool:
    """Whether an atom that is not so when a fact begins is the same, of all that are known to say so."""
    if is_same_later(incoming, entry) or (incoming.had_ended and reports_end(incoming, entry)):
        return True
    # What is told again elsewhere, because something came in between, was no mistake.
    repeated = (each for each in known if not each.never_held and entry.cited_ids <= each.cited_ids)
    return _is_same_mistake(incoming, entry) and not any(repeated)


def _is_same_mistake(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact was said before it was corrected, and is only heard of now."""
    corrected = None if entry.atom is None else entry.atom.superseded_at
    return entry.never_held and not incoming.is_changing and corrected is not None and incoming.first_said < corrected


def reports_end(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact says that an atom ended which was thought to go on."""
    if incoming.ends is None or not entry.is_last or entry.status is not AtomStatus.ACTIVE or entry.never_held:
        return False
    return entry.begins < incoming.ends and (entry.ends is None or incoming.ends < entry.ends)


def reports_earlier_start(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact says that an atom was so since earlier than was thought."""
    valid_from = incoming.fact.valid_from
    if (
        valid_from is None
        or valid_from >= entry.begins
        or incoming.is_episode
        or incoming.is_single
        or incoming.is_changing
    ):
        return False
    can_change = entry.is_last and entry.supersedes is None and entry.status is AtomStatus.ACTIVE
    return can_change and not entry.never_held


def may_be_same(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether two values of a slot may be two names of one, or only one of them is denied."""
    value = entry.draft.value
    if value is None or incoming.value is None:
        return False
    if not incoming.is_changing:
        return overlap(incoming.value, value) > 0 or is_denial(incoming)
    return is_denial(incoming) and not same_value(incoming.value, value)


def is_denial(incoming: IncomingFact) -> bool:
    """Whether a fact says that its slot does not have its value."""
    return incoming.value is not None and denies(incoming.fact.text, incoming.value)


def shares_slot(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether both are about the same."""
    return incoming.slot is not None and entry.draft.slot == incoming.slot


def similarity(incoming: IncomingFact, entry: TrackedAtom) -> float:
    """How alike two are, from 0 to 1; in one slot, how alike their values are."""
    value = entry.draft.value
    if shares_slot(incoming, entry) and value is not None and incoming.value is not None:
        return overlap(incoming.value, value)
    return overlap(incoming.fact.text, entry.draft.text)


def is_candidate(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact may be something to an atom that words alone do not tell."""
    if entry.is_planned or entry.status is not AtomStatus.ACTIVE or entry.is_record or entry.never_held:
        return False
    return incoming.is_changing or is_same_occasion(incoming, entry)
