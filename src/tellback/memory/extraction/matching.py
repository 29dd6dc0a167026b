"""What a fact is to one atom: the same, told again, told late, or something to ask about."""

from __future__ import annotations

from collections.abc import Iterable

from tellback.memory.extraction.claims import Claim
from tellback.memory.extraction.ledger import Entry
from tellback.memory.extraction.likeness import denies, negates, overlap, same_value
from tellback.memory.recall.words import NUMBER, TIME, words
from tellback.types.memory import AtomStatus, CategoryKind

AS_GOOD_AS_SAID = 0.4
"""From this overlap on, what the same messages say is what was deleted: better to lose it than to bring that back."""


def is_deleted(claim: Claim, entry: Entry) -> bool:
    """Whether a fact says what was deleted, and rests on what was said before that."""
    if entry.atom is None or not claim.cited & entry.cited or claim.dates[-1] > entry.atom.updated_at:
        return False
    text, draft = claim.fact.text, entry.draft
    if negates(text) != negates(draft.text):
        return False
    if is_slot_mate(claim, entry) and draft.value is not None and claim.value is not None:
        return same_value(claim.value, draft.value) or overlap(claim.value, draft.value) >= AS_GOOD_AS_SAID
    return overlap(text, draft.text) >= AS_GOOD_AS_SAID


def is_same_occasion(claim: Claim, entry: Entry) -> bool:
    """Whether two that say the same can be one: what happens again on another day is another episode."""
    if not claim.is_episode and entry.draft.category.kind is not CategoryKind.EPISODE:
        return True
    return claim.begins.date() == entry.begins.date() or claim.cited <= entry.cited or _names_a_year(claim.fact.text)


def _names_a_year(text: str) -> bool:
    return any(word.signs & TIME and word.signs & NUMBER for word in words(text))


def is_done(claim: Claim, entry: Entry) -> bool:
    """Whether an atom was made or cited for this fact before, whatever has become of it since."""
    if not claim.cited <= entry.cited:
        return False
    if entry.never_held or entry.begins == claim.begins or entry.holds(claim.begins) or entry.holds(claim.said):
        return True
    if is_same_later(claim, entry):
        return True
    # A correction of what is over is over, too, and so is what another fact ended at that very moment. But what this
    # plan itself has ended may be so again.
    was_over = entry.atom is not None and entry.atom.valid_to == entry.ends
    return was_over and (claim.is_changing or not claim.is_single or entry.ends == claim.begins)


def is_same_later(claim: Claim, entry: Entry) -> bool:
    """Whether an atom that begins after a fact is the same, told by someone who did not know of the fact."""
    if entry.begins <= claim.begins or entry.never_held:
        return False
    if claim.ends is not None and claim.ends <= entry.begins:
        return False
    if not claim.is_single or entry.draft.slot != claim.slot:
        return True
    return claim.is_changing and entry.holds(claim.said)


def is_told_late(claim: Claim, entry: Entry, known: Iterable[Entry]) -> bool:
    """Whether an atom that is not so when a fact begins is the same, of all that are known to say so."""
    if is_same_later(claim, entry) or (claim.was_over and is_news(claim, entry)):
        return True
    # What is told again elsewhere, because something came in between, was no mistake.
    told_again = (each for each in known if not each.never_held and entry.cited <= each.cited)
    return _is_same_mistake(claim, entry) and not any(told_again)


def _is_same_mistake(claim: Claim, entry: Entry) -> bool:
    """Whether a fact was said before it was corrected, and is only heard of now."""
    corrected = None if entry.atom is None else entry.atom.superseded_at
    return entry.never_held and not claim.is_changing and corrected is not None and claim.said < corrected


def is_news(claim: Claim, entry: Entry) -> bool:
    """Whether a fact says that an atom ended which was thought to go on."""
    if claim.ends is None or not entry.is_last or entry.status is not AtomStatus.ACTIVE or entry.never_held:
        return False
    return entry.begins < claim.ends and (entry.ends is None or claim.ends < entry.ends)


def is_longer(claim: Claim, entry: Entry) -> bool:
    """Whether a fact says that an atom was so since earlier than was thought."""
    since = claim.fact.valid_from
    if since is None or since >= entry.begins or claim.is_episode or claim.is_single or claim.is_changing:
        return False
    is_ours = entry.is_last and entry.supersedes is None and entry.status is AtomStatus.ACTIVE
    return is_ours and not entry.never_held


def may_be_same(claim: Claim, entry: Entry) -> bool:
    """Whether two values of a slot may be two names of one, or only one of them is denied."""
    value = entry.draft.value
    if value is None or claim.value is None:
        return False
    if not claim.is_changing:
        return overlap(claim.value, value) > 0 or is_denial(claim)
    return is_denial(claim) and not same_value(claim.value, value)


def is_denial(claim: Claim) -> bool:
    """Whether a fact says that its slot does not have its value."""
    return claim.value is not None and denies(claim.fact.text, claim.value)


def is_slot_mate(claim: Claim, entry: Entry) -> bool:
    """Whether both are about the same."""
    return claim.slot is not None and entry.draft.slot == claim.slot


def likeness(claim: Claim, entry: Entry) -> float:
    """How alike two are, from 0 to 1; in one slot, how alike their values are."""
    value = entry.draft.value
    if is_slot_mate(claim, entry) and value is not None and claim.value is not None:
        return overlap(claim.value, value)
    return overlap(claim.fact.text, entry.draft.text)


def can_be_asked_about(claim: Claim, entry: Entry) -> bool:
    """Whether a fact may be something to an atom that words alone do not tell."""
    if entry.is_planned or entry.status is not AtomStatus.ACTIVE or entry.is_record or entry.never_held:
        return False
    return claim.is_changing or is_same_occasion(claim, entry)
