"""Putting a fact in its place among those that were so before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest
from typing import TypeAlias

from tellback.memory.extraction.claims import Claim
from tellback.memory.extraction.entities import Resolved
from tellback.memory.extraction.ledger import Entry, Ledger, citing
from tellback.memory.extraction.likeness import negates, same_value
from tellback.memory.extraction.values import Change
from tellback.stores import AtomDraft
from tellback.types.ids import new_id
from tellback.types.memory import AtomStatus

ADDED = "added"
SUPERSEDED = "superseded"

Told: TypeAlias = tuple[AtomDraft, tuple[datetime, ...]]
"""An atom to be told, and when it was."""


class Placing:
    """Plans atoms in their places. Each way says whether the fact was added, or took the place of something."""

    def __init__(self, ledger: Ledger, entities: Resolved) -> None:
        self._ledger = ledger
        self._entities = entities

    def add(self, claim: Claim) -> str:
        """A fact that is new."""
        self._ledger.add(self._draft(claim, claim.begins, claim.ends), claim.dates)
        return ADDED

    def beside(self, claim: Claim, replaced: Entry, change: Change) -> str:
        """A fact that takes the place of an atom together with another that has done so."""
        begins = claim.begins
        if replaced.begins <= claim.said and not claim.was_over:
            if change is Change.CORRECTED:
                begins = replaced.begins
            elif begins <= replaced.begins:
                begins = claim.said
        self._ledger.add(self._draft(claim, begins, claim.ends), claim.dates)
        return ADDED

    def end(self, claim: Claim, entry: Entry) -> str:
        """A fact that says when an atom ended which says the same, or which it denies.

        What is still to end is told anew with its end. Of what is over, the atom says what was so, and the fact what
        has been so since.
        """
        if not claim.was_over:
            return self._tell_anew(claim, entry, min(entry.begins, claim.begins), claim.ends)
        since = claim.fact.valid_from
        if since is not None and since < entry.begins:
            earlier = citing(replace(_copy(entry), valid_from=since), (*entry.citations, claim.citation))
            entry = self._ledger.replace(entry, earlier, (*entry.said, *claim.dates))
        self._ledger.cite(entry, claim.citation, ())
        over = replace(
            self._draft(claim, claim.ends or claim.said, None), slot=claim.slot if claim.is_single else None, value=None
        )
        self._retell(over, claim, entry, self._said_again(entry, claim.dates[-1]))
        return SUPERSEDED

    def lengthen(self, claim: Claim, entry: Entry) -> str:
        """A fact that says that an atom was so since earlier than was thought."""
        return self._tell_anew(claim, entry, claim.begins, entry.ends)

    def take_back_what_comes(self, claim: Claim, entry: Entry) -> None:
        """A fact that says that an atom stays so: what was to take its place does not, unless that was told later."""
        coming = list(self._ledger.after(entry))
        if not coming or claim.ends is not None or not coming[-1].is_last:
            return
        begins = min(each.begins for each in coming)
        if begins > claim.said and all(
            each.status is AtomStatus.ACTIVE and each.said and each.said[-1] < claim.said for each in coming
        ):
            self._ledger.replace(coming[-1], self._draft(claim, begins, None), claim.dates)

    def _tell_anew(self, claim: Claim, entry: Entry, begins: datetime, ends: datetime | None) -> str:
        draft = citing(self._draft(claim, begins, ends), (claim.citation, *entry.citations))
        self._ledger.replace(entry, draft, (*claim.dates, *entry.said))
        return SUPERSEDED

    def place(self, claim: Claim, line: Sequence[Entry], change: Change) -> str:
        """A fact among those of which one is so at a time. What was over when it was said is placed by its dates."""
        held = None if claim.was_over else holder(line, claim.said)
        if change is Change.CORRECTED and held is not None:
            return self.correct(claim, line, held)
        begins = claim.begins
        if change is Change.CHANGED and held is not None and begins <= held.begins:
            # What changed was so before it did: a month that was named may have begun before that.
            begins = claim.said
        return self._insert(claim, line, begins, holder(line, begins))

    def correct(self, claim: Claim, line: Sequence[Entry], wrong: Entry) -> str:
        """A fact that was so all the time that another was thought to be."""
        if wrong.never_held or wrong.begins > claim.said or claim.was_over:
            return self.place(claim, line, Change.CHANGED)
        begins = wrong.begins
        if wrong.is_last and claim.fact.valid_from is not None:
            begins = min(begins, claim.fact.valid_from)
        return self._insert(claim, line, begins, wrong)

    def _insert(self, claim: Claim, line: Sequence[Entry], begins: datetime, before: Entry | None) -> str:
        following = next((entry for entry in line if entry.begins > begins and entry is not before), None)
        until = claim.ends if following is None else _earlier(claim.ends, following.begins)
        draft = self._draft(claim, begins, until)
        if before is None:
            if following is not None and following.is_last and claim.ends is None and _gives_same(claim, following):
                return self._tell_anew(claim, following, begins, following.ends)
            self._ledger.add(draft, claim.dates)
            return ADDED
        later = list(self._ledger.after(before))
        if not before.is_last and not (later and later[-1].is_last and all(map(_is_active, later))):
            # What stands there now is not ours to move. Both are so until then.
            self._ledger.add(replace(draft, valid_to=_earlier(draft.valid_to, before.ends)), claim.dates)
            return ADDED
        told = claim.ends if claim.was_over else max(begins, claim.dates[-1])
        again = self._said_again(before, told or begins)
        if before.is_last and not again:
            self._ledger.replace(before, draft, claim.dates)
            return SUPERSEDED
        self._retell(replace(draft, valid_to=claim.ends), claim, before, again)
        return ADDED

    def _said_again(self, entry: Entry, moment: datetime) -> list[Told]:
        """What was told again later than a moment is so again from then on."""
        told = entry.said_after(moment)
        return [] if told is None else [(replace(_copy(entry), valid_from=told), entry.said)]

    def _retell(self, draft: AtomDraft, claim: Claim, before: Entry, again: list[Told]) -> None:
        """Plan an atom after another, in a chain or at its end: what comes after both is said again."""
        later = list(self._ledger.after(before))
        again = [*again, *((_copy(entry), entry.said) for entry in later if not entry.never_held)]
        last = self._ledger.replace(later[-1] if later else before, draft, claim.dates)
        for (copied, said), following in zip_longest(again, again[1:]):
            ends_there = following is not None and copied.valid_to == following[0].valid_from
            last = self._ledger.replace(last, replace(copied, valid_to=None) if ends_there else copied, said)

    def _draft(self, claim: Claim, begins: datetime, ends: datetime | None) -> AtomDraft:
        return claim.draft(self._entities.ids_of(claim.fact.entities), begins, ends)


def holder(line: Sequence[Entry], moment: datetime) -> Entry | None:
    """What is so at a moment; of several, what began last."""
    return next((entry for entry in reversed(line) if entry.holds(moment)), None)


def _is_active(entry: Entry) -> bool:
    return entry.status is AtomStatus.ACTIVE


def _copy(entry: Entry) -> AtomDraft:
    """The same atom, to be said again."""
    return citing(replace(entry.draft, id=new_id("atom"), valid_to=entry.ends), entry.citations)


def _gives_same(claim: Claim, entry: Entry) -> bool:
    value = entry.draft.value
    if value is None or claim.value is None or negates(entry.draft.text) != negates(claim.fact.text):
        return False
    return same_value(value, claim.value)


def _earlier(a: datetime | None, b: datetime | None) -> datetime | None:
    return min(a, b) if a is not None and b is not None else a or b
