"""Putting a fact in its place among those that were so before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest
from typing import TypeAlias

from tellback.memory.extraction.claims import IncomingFact
from tellback.memory.extraction.entities import ResolvedEntities
from tellback.memory.extraction.ledger import ChangeTracker, TrackedAtom, with_citations
from tellback.memory.extraction.likeness import negates, same_value
from tellback.memory.extraction.values import Change
from tellback.stores import AtomDraft
from tellback.types.ids import new_id
from tellback.types.memory import AtomStatus

ADDED = "added"
SUPERSEDED = "superseded"

Restatement: TypeAlias = tuple[AtomDraft, tuple[datetime, ...]]
"""An atom to be told, and when it was."""


class TimelinePlanner:
    """Plans atoms in their places. Each way says whether the fact was added, or took the place of something."""

    def __init__(self, tracker: ChangeTracker, entities: ResolvedEntities) -> None:
        self._tracker = tracker
        self._entities = entities

    def add(self, incoming: IncomingFact) -> str:
        """A fact that is new."""
        self._tracker.add(self._build_draft(incoming, incoming.begins, incoming.ends), incoming.message_dates)
        return ADDED

    def add_beside(self, incoming: IncomingFact, replaced: TrackedAtom, change: Change) -> str:
        """A fact that takes the place of an atom together with another that has done so."""
        begins = incoming.begins
        if replaced.begins <= incoming.first_said and not incoming.had_ended:
            if change is Change.CORRECTED:
                begins = replaced.begins
            elif begins <= replaced.begins:
                begins = incoming.first_said
        self._tracker.add(self._build_draft(incoming, begins, incoming.ends), incoming.message_dates)
        return ADDED

    def end_atom(self, incoming: IncomingFact, entry: TrackedAtom) -> str:
        """A fact that says when an atom ended which says the same, or which it denies.

        What is still to end is told anew with its end. Of what is over, the atom says what was so, and the fact what
        has been so since.
        """
        if not incoming.had_ended:
            return self._restate(incoming, entry, min(entry.begins, incoming.begins), incoming.ends)
        since = incoming.fact.valid_from
        if since is not None and since < entry.begins:
            earlier = with_citations(
                replace(_copy_draft(entry), valid_from=since), (*entry.citations, incoming.citation)
            )
            entry = self._tracker.replace(entry, earlier, (*entry.message_dates, *incoming.message_dates))
        self._tracker.cite(entry, incoming.citation, ())
        ended = replace(
            self._build_draft(incoming, incoming.ends or incoming.first_said, None),
            slot=incoming.slot if incoming.is_single else None,
            value=None,
        )
        self._append_and_restate(ended, incoming, entry, self._restatements(entry, incoming.message_dates[-1]))
        return SUPERSEDED

    def extend_back(self, incoming: IncomingFact, entry: TrackedAtom) -> str:
        """A fact that says that an atom was so since earlier than was thought."""
        return self._restate(incoming, entry, incoming.begins, entry.ends)

    def cancel_upcoming(self, incoming: IncomingFact, entry: TrackedAtom) -> None:
        """A fact that says that an atom stays so: what was to take its place does not, unless that was told later."""
        upcoming = list(self._tracker.successors(entry))
        if not upcoming or incoming.ends is not None or not upcoming[-1].is_last:
            return
        begins = min(each.begins for each in upcoming)
        if begins > incoming.first_said and all(
            each.status is AtomStatus.ACTIVE and each.message_dates and each.message_dates[-1] < incoming.first_said
            for each in upcoming
        ):
            self._tracker.replace(upcoming[-1], self._build_draft(incoming, begins, None), incoming.message_dates)

    def _restate(self, incoming: IncomingFact, entry: TrackedAtom, begins: datetime, ends: datetime | None) -> str:
        draft = with_citations(self._build_draft(incoming, begins, ends), (incoming.citation, *entry.citations))
        self._tracker.replace(entry, draft, (*incoming.message_dates, *entry.message_dates))
        return SUPERSEDED

    def place(self, incoming: IncomingFact, timeline: Sequence[TrackedAtom], change: Change) -> str:
        """A fact among those of which one is so at a time. What was over when it was said is placed by its dates."""
        current = None if incoming.had_ended else find_holder(timeline, incoming.first_said)
        if change is Change.CORRECTED and current is not None:
            return self.correct(incoming, timeline, current)
        begins = incoming.begins
        if change is Change.CHANGED and current is not None and begins <= current.begins:
            # What changed was so before it did: a month that was named may have begun before that.
            begins = incoming.first_said
        return self._insert(incoming, timeline, begins, find_holder(timeline, begins))

    def correct(self, incoming: IncomingFact, timeline: Sequence[TrackedAtom], wrong: TrackedAtom) -> str:
        """A fact that was so all the time that another was thought to be."""
        if wrong.never_held or wrong.begins > incoming.first_said or incoming.had_ended:
            return self.place(incoming, timeline, Change.CHANGED)
        begins = wrong.begins
        if wrong.is_last and incoming.fact.valid_from is not None:
            begins = min(begins, incoming.fact.valid_from)
        return self._insert(incoming, timeline, begins, wrong)

    def _insert(
        self, incoming: IncomingFact, timeline: Sequence[TrackedAtom], begins: datetime, before: TrackedAtom | None
    ) -> str:
        following = next((entry for entry in timeline if entry.begins > begins and entry is not before), None)
        until = incoming.ends if following is None else _earliest(incoming.ends, following.begins)
        draft = self._build_draft(incoming, begins, until)
        if before is None:
            if (
                following is not None
                and following.is_last
                and incoming.ends is None
                and _has_same_value(incoming, following)
            ):
                return self._restate(incoming, following, begins, following.ends)
            self._tracker.add(draft, incoming.message_dates)
            return ADDED
        later = list(self._tracker.successors(before))
        if not before.is_last and not (later and later[-1].is_last and all(map(_is_active, later))):
            # What stands there now is not ours to move. Both are so until then.
            self._tracker.add(replace(draft, valid_to=_earliest(draft.valid_to, before.ends)), incoming.message_dates)
            return ADDED
        last_said = incoming.ends if incoming.had_ended else max(begins, incoming.message_dates[-1])
        restatements = self._restatements(before, last_said or begins)
        if before.is_last and not restatements:
            self._tracker.replace(before, draft, incoming.message_dates)
            return SUPERSEDED
        self._append_and_restate(replace(draft, valid_to=incoming.ends), incoming, before, restatements)
        return ADDED

    def _restatements(self, entry: TrackedAtom, moment: datetime) -> list[Restatement]:
        """What was told again later than a moment is so again from then on."""
        said_again = entry.next_said_after(moment)
        return [] if said_again is None else [(replace(_copy_draft(entry), valid_from=said_again), entry.message_dates)]

    def _append_and_restate(
        self, draft: AtomDraft, incoming: IncomingFact, before: TrackedAtom, restatements: list[Restatement]
    ) -> None:
        """Plan an atom after another, in a chain or at its end: what comes after both is said again."""
        later = list(self._tracker.successors(before))
        restatements = [
            *restatements,
            *((_copy_draft(entry), entry.message_dates) for entry in later if not entry.never_held),
        ]
        last = self._tracker.replace(later[-1] if later else before, draft, incoming.message_dates)
        for (copied, message_dates), following in zip_longest(restatements, restatements[1:]):
            ends_there = following is not None and copied.valid_to == following[0].valid_from
            last = self._tracker.replace(last, replace(copied, valid_to=None) if ends_there else copied, message_dates)

    def _build_draft(self, incoming: IncomingFact, begins: datetime, ends: datetime | None) -> AtomDraft:
        return incoming.to_draft(self._entities.ids_of(incoming.fact.entities), begins, ends)


def find_holder(timeline: Sequence[TrackedAtom], moment: datetime) -> TrackedAtom | None:
    """What is so at a moment; of several, what began last."""
    return next((entry for entry in reversed(timeline) if entry.holds(moment)), None)


def _is_active(entry: TrackedAtom) -> bool:
    return entry.status is AtomStatus.ACTIVE


def _copy_draft(entry: TrackedAtom) -> AtomDraft:
    """The same atom, to be said again."""
    return with_citations(replace(entry.draft, id=new_id("atom"), valid_to=entry.ends), entry.citations)


def _has_same_value(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    value = entry.draft.value
    if value is None or incoming.value is None or negates(entry.draft.text) != negates(incoming.fact.text):
        return False
    return same_value(value, incoming.value)


def _earliest(a: datetime | None, b: datetime | None) -> datetime | None:
    return min(a, b) if a is not None and b is not None else a or b
