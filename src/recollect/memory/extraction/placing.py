"""Putting a fact in its place among those that were so before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest

from recollect.memory.extraction.claims import Claim
from recollect.memory.extraction.entities import Resolved
from recollect.memory.extraction.ledger import Entry, Ledger, citing
from recollect.memory.extraction.likeness import same_value
from recollect.memory.extraction.values import Change
from recollect.stores import AtomDraft
from recollect.types.ids import new_id
from recollect.types.memory import AtomStatus

ADDED = "added"
SUPERSEDED = "superseded"


class Placing:
    """Plans atoms in their places. Each way says whether the fact was added, or took the place of something."""

    def __init__(self, ledger: Ledger, entities: Resolved) -> None:
        self._ledger = ledger
        self._entities = entities

    def add(self, claim: Claim) -> str:
        """A fact that is new."""
        self._ledger.add(self._draft(claim, claim.begins, claim.ends))
        return ADDED

    def end(self, claim: Claim, entry: Entry) -> str:
        """A fact that says when an atom ended which says the same."""
        draft = self._draft(claim, min(entry.begins, claim.begins), claim.ends)
        self._ledger.replace(entry, citing(draft, (claim.citation, *entry.citations)))
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
                earlier = replace(draft, valid_to=following.ends)
                self._ledger.replace(following, citing(earlier, (claim.citation, *following.citations)))
                return SUPERSEDED
            self._ledger.add(draft)
            return ADDED
        if before.is_last:
            self._ledger.replace(before, draft)
            return SUPERSEDED
        later = list(self._ledger.after(before))
        if not later or not later[-1].is_last or any(entry.status is not AtomStatus.ACTIVE for entry in later):
            # What stands there now is not ours to move. Both are so until then.
            self._ledger.add(replace(draft, valid_to=_earlier(draft.valid_to, before.ends)))
            return ADDED
        self._retell(replace(draft, valid_to=claim.ends), later)
        return ADDED

    def _retell(self, draft: AtomDraft, later: Sequence[Entry]) -> None:
        """Plan an atom in the middle of a chain: it takes the place of the last, and those after it are said again."""
        again = [_copy(entry) for entry in later if not entry.never_held]
        last = self._ledger.replace(later[-1], draft)
        for copied, following in zip_longest(again, again[1:]):
            ends_there = following is not None and copied.valid_to == following.valid_from
            last = self._ledger.replace(last, replace(copied, valid_to=None) if ends_there else copied)

    def _draft(self, claim: Claim, begins: datetime, ends: datetime | None) -> AtomDraft:
        return claim.draft(self._entities.ids_of(claim.fact.entities), begins, ends)


def holder(line: Sequence[Entry], moment: datetime) -> Entry | None:
    """What is so at a moment; of several, what began last."""
    return next((entry for entry in reversed(line) if entry.holds(moment)), None)


def _copy(entry: Entry) -> AtomDraft:
    """The same atom, to be said again."""
    return citing(replace(entry.draft, id=new_id("atom"), valid_to=entry.ends), entry.citations)


def _gives_same(claim: Claim, entry: Entry) -> bool:
    value = entry.draft.value
    return value is not None and claim.value is not None and same_value(value, claim.value)


def _earlier(a: datetime | None, b: datetime | None) -> datetime | None:
    return min(a, b) if a is not None and b is not None else a or b
