"""Tracked atoms, incoming facts, and how one fact relates to one tracked atom.

Tracked atoms are the atoms that matter to a plan, with the changes planned so far. Incoming facts are extracted facts
with their dates, citations and slots.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from tellback.memory.extraction.reconciliation.entities import ResolvedEntities
from tellback.memory.extraction.values import Change, ExtractedFact, Extraction, Window
from tellback.memory.recall.tokenizer import HAS_NUMBER, HAS_TIME, extract_words
from tellback.memory.text_similarity import denies, negates, overlap, same_value, slot_name, text_key, value_key
from tellback.stores import AddedCitation, AtomChange, AtomDraft, KnownAtom, Replacement
from tellback.types.ids import new_id
from tellback.types.memory import TURN_CATEGORY, Atom, AtomStatus, CategoryKind, Citation

JUST_BEFORE = timedelta(days=1)
"""If only the end of something is known, it is stored as true for this long before the end."""

MIN_DELETED_OVERLAP = 0.4
"""From this overlap on, a fact from the same messages counts as the deleted one. Losing a fact is better than restoring
deleted data."""


_COPIED_FIELDS = AtomDraft.__dataclass_fields__.keys() & Atom.__dataclass_fields__.keys()


@dataclass(slots=True, eq=False)
class TrackedAtom:
    """An atom and its planned changes. `atom` is None if it is only planned. `message_dates` are the times when it was
    stated."""

    draft: AtomDraft
    atom: Atom | None = None
    status: AtomStatus = AtomStatus.ACTIVE
    valid_to: datetime | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    citations: tuple[Citation, ...] = ()
    message_dates: tuple[datetime, ...] = ()

    @property
    def id(self) -> str:
        return self.draft.id

    @property
    def valid_from(self) -> datetime:
        return self.draft.valid_from

    @property
    def cited_ids(self) -> set[str]:
        return {id for citation in self.citations for id in citation.message_ids}

    @property
    def was_never_valid(self) -> bool:
        return self.valid_to is not None and self.valid_to <= self.valid_from

    @property
    def is_planned(self) -> bool:
        """Whether it comes from the current extraction."""
        return self.atom is None

    @property
    def is_last(self) -> bool:
        """Whether no atom has superseded it."""
        return self.superseded_by is None

    @property
    def is_record(self) -> bool:
        """Whether it is a verbatim message or a mined pattern, which facts do not change."""
        category = self.draft.category
        return category.name == TURN_CATEGORY.name or category.kind is CategoryKind.PATTERN

    def is_valid_at(self, moment: datetime) -> bool:
        return self.valid_from <= moment and (self.valid_to is None or moment < self.valid_to)

    def was_valid_at(self, moment: datetime) -> bool:
        """Whether it was valid at a time, before the planned changes."""
        if self.atom is None or moment < self.valid_from:
            return False
        return self.atom.valid_to is None or moment < self.atom.valid_to

    def next_said_after(self, moment: datetime) -> datetime | None:
        """Return when it was next stated after a time, while it was valid."""
        return next((said for said in self.message_dates if said > moment and self.is_valid_at(said)), None)


class ChangeTracker:
    """Atoms by text and slot, and the changes planned so far, in order."""

    def __init__(self, known: Iterable[KnownAtom]) -> None:
        self.changes: list[AtomChange] = []
        self._by_id: dict[str, TrackedAtom] = {}
        self._by_words: dict[str, dict[str, TrackedAtom]] = defaultdict(dict)
        self._by_slot: dict[str, dict[str, TrackedAtom]] = defaultdict(dict)
        self._by_value: dict[tuple[str, str, bool], dict[str, TrackedAtom]] = defaultdict(dict)
        for each in known:
            self._track(_to_tracked(each))
        for entry in list(self._by_id.values()):
            if entry.draft.slot is not None and entry.status is not AtomStatus.DELETED:
                # An atom that superseded another manually has no slot, but is about the same thing.
                for following in self.successors(entry):
                    if following.draft.slot is None:
                        self._by_slot[entry.draft.slot][following.id] = following

    def get(self, id: str) -> TrackedAtom | None:
        return self._by_id.get(id)

    def deleted(self) -> list[TrackedAtom]:
        return [entry for entry in self._by_id.values() if entry.status is AtomStatus.DELETED]

    def find_repeated(self, text: str, slot: str | None, value: str | None) -> list[TrackedAtom]:
        """Return atoms with the same words, or with the same value of the slot and the same negation."""
        found = dict(self._by_words.get(text_key(text), {}))
        if slot is not None and value is not None:
            expected = value_key(value)
            found = {id: entry for id, entry in found.items() if not _has_other_value(entry, slot, expected)}
            found |= self._by_value.get((slot, expected, negates(text)), {})
        return [entry for entry in found.values() if _is_live(entry)]

    def find_opposed(self, text: str, slot: str | None, value: str | None) -> list[TrackedAtom]:
        """Return atoms with the value that a text denies, or that deny its value, in order."""
        if slot is None or value is None:
            return []
        same = {entry.id for entry in self.find_repeated(text, slot, value)}
        found = self._by_value.get((slot, value_key(value), not negates(text)), {})
        return sort_by_start(entry for id, entry in found.items() if id not in same and _is_live(entry))

    def slot_timeline(self, slot: str | None) -> list[TrackedAtom]:
        """Return all atoms that were ever valid in a slot, ordered by start."""
        found = self._by_slot.get(slot, {}).values() if slot is not None else ()
        return sort_by_start(entry for entry in found if _is_live(entry) and not entry.was_never_valid)

    def valid_in_slot(self, slot: str | None, moment: datetime) -> list[TrackedAtom]:
        """Return the atoms that were valid in a slot at a time, before the planned changes."""
        found = self._by_slot.get(slot, {}).values() if slot is not None else ()
        return sort_by_start(entry for entry in found if _is_live(entry) and entry.was_valid_at(moment))

    def was_replaced(self, entry: TrackedAtom) -> bool:
        """Whether this plan supersedes an atom."""
        following = None if entry.superseded_by is None else self._by_id.get(entry.superseded_by)
        return not entry.is_planned and following is not None and following.is_planned

    def chain(self, entry: TrackedAtom) -> list[TrackedAtom]:
        """Return the atoms that superseded each other, including this one, if they were ever valid, ordered by
        start."""
        found = {each.id: each for each in (entry, *self._follow(entry, "supersedes"), *self.successors(entry))}
        return sort_by_start(each for each in found.values() if _is_live(each) and not each.was_never_valid)

    def successors(self, entry: TrackedAtom) -> Iterator[TrackedAtom]:
        """Yield the known atoms that superseded an atom, in order."""
        return self._follow(entry, "superseded_by")

    def add(self, draft: AtomDraft, message_dates: Iterable[datetime]) -> TrackedAtom:
        self.changes.append(draft)
        return self._track_planned(draft, message_dates)

    def replace(self, old: TrackedAtom, draft: AtomDraft, message_dates: Iterable[datetime]) -> TrackedAtom:
        """Plan an atom that supersedes another. No earlier atom of the chain stays valid past its start."""
        self.changes.append(Replacement(old.id, draft))
        tracked = self._track_planned(draft, message_dates, supersedes=old.id)
        for entry in (old, *self._follow(old, "supersedes")):
            if entry.valid_to is None or (draft.valid_from < entry.valid_to and entry.valid_from < entry.valid_to):
                entry.valid_to = draft.valid_from
        old.superseded_by = tracked.id
        return tracked

    def cite(self, entry: TrackedAtom, citation: Citation, message_dates: Iterable[datetime]) -> bool:
        """Plan another citation of an atom; return False if the atom already has it."""
        entry.message_dates = tuple(sorted({*entry.message_dates, *message_dates}))
        missing = tuple(id for id in citation.message_ids if id not in entry.cited_ids)
        if not missing:
            return False
        added = Citation(citation.conversation_id, missing)
        self.changes.append(AddedCitation(entry.id, added))
        entry.citations = merge_citations((*entry.citations, added))
        return True

    def add_wording(self, entry: TrackedAtom, text: str, slot: str | None, value: str | None) -> None:
        """Make an atom findable by another text with the same meaning."""
        self._by_words[text_key(text)].setdefault(entry.id, entry)
        if slot is not None and value is not None:
            self._by_value[slot, value_key(value), negates(text)].setdefault(entry.id, entry)

    def _follow(self, entry: TrackedAtom, link: Literal["supersedes", "superseded_by"]) -> Iterator[TrackedAtom]:
        seen = {entry.id}
        while (following := self._by_id.get(getattr(entry, link) or "")) is not None and following.id not in seen:
            yield following
            seen.add(following.id)
            entry = following

    def _track_planned(
        self, draft: AtomDraft, message_dates: Iterable[datetime], supersedes: str | None = None
    ) -> TrackedAtom:
        source = draft.source_conversation_id
        first = () if source is None else (Citation(source, draft.source_message_ids),)
        tracked = TrackedAtom(
            draft,
            valid_to=draft.valid_to,
            supersedes=supersedes,
            citations=(*first, *draft.other_sources),
            message_dates=tuple(sorted(set(message_dates))),
        )
        self._track(tracked)
        return tracked

    def _track(self, entry: TrackedAtom) -> None:
        if entry.id in self._by_id:
            return
        self._by_id[entry.id] = entry
        self._by_words[text_key(entry.draft.text)][entry.id] = entry
        slot, value = entry.draft.slot, entry.draft.value
        if slot is not None:
            self._by_slot[slot][entry.id] = entry
            if value is not None:
                self._by_value[slot, value_key(value), negates(entry.draft.text)][entry.id] = entry


def sort_by_start(entries: Iterable[TrackedAtom]) -> list[TrackedAtom]:
    """Sort atoms by their start."""
    return sorted(entries, key=lambda entry: (entry.valid_from, entry.id))


def merge_citations(citations: Iterable[Citation]) -> tuple[Citation, ...]:
    """Merge citations, so that each conversation and each message occurs once.

    >>> merge_citations([Citation("a", ("1",)), Citation("b"), Citation("a", ("1", "2"))])
    (Citation(conversation_id='a', message_ids=('1', '2')), Citation(conversation_id='b', message_ids=()))
    """
    found: dict[str, dict[str, None]] = {}
    for citation in citations:
        found.setdefault(citation.conversation_id, {}).update(dict.fromkeys(citation.message_ids))
    return tuple(Citation(id, tuple(messages)) for id, messages in found.items())


def with_citations(draft: AtomDraft, citations: Iterable[Citation]) -> AtomDraft:
    """Return a draft with these citations instead; the first one becomes its source."""
    merged = merge_citations(citations)
    id, message_ids = (merged[0].conversation_id, merged[0].message_ids) if merged else (None, ())
    return replace(draft, source_conversation_id=id, source_message_ids=message_ids, other_sources=merged[1:])


def _to_tracked(known: KnownAtom) -> TrackedAtom:
    atom = known.atom
    draft = AtomDraft(**{name: getattr(atom, name) for name in _COPIED_FIELDS}, slot=known.slot, value=known.value)
    own = {name: getattr(atom, name) for name in ("status", "valid_to", "supersedes", "superseded_by", "citations")}
    return TrackedAtom(draft, atom, **own, message_dates=known.message_dates)


def _is_live(entry: TrackedAtom) -> bool:
    return entry.status is not AtomStatus.DELETED and not entry.is_record


def _has_other_value(entry: TrackedAtom, slot: str, expected: str) -> bool:
    value = entry.draft.value
    return entry.draft.slot == slot and value is not None and value_key(value) != expected


@dataclass(frozen=True, slots=True)
class IncomingFact:
    """A fact of an extraction. It is true from `valid_from` on, until `valid_to` if that is known.

    `message_dates` are the dates of all messages that it cites.
    """

    index: int
    fact: ExtractedFact
    citation: Citation
    message_dates: tuple[datetime, ...]
    valid_from: datetime
    slot: str | None
    value: str | None

    @property
    def first_said(self) -> datetime:
        return self.message_dates[0]

    @property
    def valid_to(self) -> datetime | None:
        """When it ended, if that is known and possible."""
        valid_to = self.fact.valid_to
        return valid_to if valid_to is not None and valid_to > self.valid_from else None

    @property
    def had_ended(self) -> bool:
        """Whether it had already ended when it was stated."""
        return self.valid_to is not None and self.valid_to <= self.first_said

    @property
    def cited_ids(self) -> frozenset[str]:
        return frozenset(self.citation.message_ids)

    @property
    def is_episode(self) -> bool:
        return self.fact.category.kind is CategoryKind.EPISODE

    @property
    def is_single(self) -> bool:
        """Whether its slot is known and has one value at a time."""
        return self.fact.single and self.slot is not None and not self.is_episode

    @property
    def is_changing(self) -> bool:
        """Whether it states that a known fact has changed or was never true."""
        return self.fact.change is not Change.NONE

    def without_slot(self) -> IncomingFact:
        """Return a copy without a slot."""
        return replace(self, slot=None, value=None)

    def to_draft(self, entity_ids: tuple[str, ...], valid_from: datetime, valid_to: datetime | None) -> AtomDraft:
        return AtomDraft(
            id=new_id("atom"),
            text=self.fact.text,
            category=self.fact.category,
            valid_from=valid_from,
            importance=self.fact.importance,
            confidence=self.fact.confidence,
            valid_to=valid_to,
            source_conversation_id=self.citation.conversation_id,
            source_message_ids=self.citation.message_ids,
            entity_ids=entity_ids,
            slot=self.slot,
            value=self.value,
        )


class SlotNames:
    """The names of slots. If the subject has several names, the entity's main name is used."""

    def __init__(self, entities: ResolvedEntities) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        for name, id in entities.ids.items():
            self._names.setdefault(text_key(name), entities.names[id])

    def slot_of(self, fact: ExtractedFact) -> str | None:
        """Return the slot of a fact, or None if it has no value."""
        if not fact.subject or not fact.value or not fact.value.strip():
            return None
        return slot_name(self._names.get(text_key(fact.subject), (fact.subject,))[0], fact.attribute)

    def spellings(self, fact: ExtractedFact) -> tuple[str, ...]:
        """Return all names under which the slot of a fact may be stored."""
        if self.slot_of(fact) is None or fact.subject is None:
            return ()
        names = self._names.get(text_key(fact.subject), (fact.subject,))
        return tuple(dict.fromkeys(each for name in names if (each := slot_name(name, fact.attribute)) is not None))

    def normalize(self, stored: str | None) -> str | None:
        """Return the name of a stored slot with the main name of its subject."""
        if stored is None:
            return None
        subject, _, attribute = stored.partition(": ")
        return slot_name(self._names.get(subject, (subject,))[0], attribute) or stored


def build_incoming_facts(extraction: Extraction, window: Window, slots: SlotNames) -> list[IncomingFact]:
    """Return the facts that cite the window, ordered by start."""
    dates = {message.id: message.created_at for message in window.messages}
    found = []
    for index, fact in enumerate(extraction.facts):
        ids = tuple(dict.fromkeys(id for id in fact.message_ids if id in dates))
        if ids:
            slot = slots.slot_of(fact)
            message_dates = tuple(sorted(dates[id] for id in ids))
            found.append(
                IncomingFact(
                    index=index,
                    fact=fact,
                    citation=Citation(window.conversation.id, ids),
                    message_dates=message_dates,
                    valid_from=_start_of(fact, message_dates[0]),
                    slot=slot,
                    value=fact.value if slot else None,
                )
            )
    return sorted(found, key=lambda incoming: (incoming.valid_from, incoming.first_said, incoming.index))


def _start_of(fact: ExtractedFact, first_said: datetime) -> datetime:
    """Return when a fact became true: the stated date, or the earliest time at which it is known to be true."""
    if fact.valid_from is not None:
        return fact.valid_from
    return first_said if fact.valid_to is None or fact.valid_to > first_said else _just_before(fact.valid_to)


def _just_before(moment: datetime) -> datetime:
    try:
        return moment - JUST_BEFORE
    except OverflowError:  # the result would be before year 1
        return moment


def is_deleted(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact repeats a deleted atom, based on messages from before the deletion."""
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
    """Whether two facts with the same text can be the same. An episode on another day is a different one."""
    if not incoming.is_episode and entry.draft.category.kind is not CategoryKind.EPISODE:
        return True
    return (
        incoming.valid_from.date() == entry.valid_from.date()
        or incoming.cited_ids <= entry.cited_ids
        or _names_a_year(incoming.fact.text)
    )


def _names_a_year(text: str) -> bool:
    return any(word.features & HAS_TIME and word.features & HAS_NUMBER for word in extract_words(text))


def is_already_applied(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether an atom was already created or cited for this fact, even if it has changed since."""
    if not incoming.cited_ids <= entry.cited_ids:
        return False
    if (
        entry.was_never_valid
        or entry.valid_from == incoming.valid_from
        or entry.is_valid_at(incoming.valid_from)
        or entry.is_valid_at(incoming.first_said)
    ):
        return True
    if is_same_later(incoming, entry):
        return True
    # A correction of an ended atom has ended too, and so has an atom that another fact ended at that time. But an atom
    # that this plan itself ended may become true again.
    had_ended = entry.atom is not None and entry.atom.valid_to == entry.valid_to
    return had_ended and (incoming.is_changing or not incoming.is_single or entry.valid_to == incoming.valid_from)


def is_same_later(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether an atom that starts after a fact states the same fact."""
    if entry.valid_from <= incoming.valid_from or entry.was_never_valid:
        return False
    if incoming.valid_to is not None and incoming.valid_to <= entry.valid_from:
        return False
    if not incoming.is_single or entry.draft.slot != incoming.slot:
        return True
    return incoming.is_changing and entry.is_valid_at(incoming.first_said)


def is_late_report(incoming: IncomingFact, entry: TrackedAtom, known: Iterable[TrackedAtom]) -> bool:
    """Whether a fact repeats an atom that is not valid at the fact's start. `known` are all atoms that say the same."""
    if is_same_later(incoming, entry) or (incoming.had_ended and reports_end(incoming, entry)):
        return True
    # Inserting an earlier atom ends this one and adds a copy of it with the same citations. That is not a mistake.
    repeated = (each for each in known if not each.was_never_valid and entry.cited_ids <= each.cited_ids)
    return _is_same_mistake(incoming, entry) and not any(repeated)


def _is_same_mistake(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact was stated before it was corrected, and is extracted only now."""
    corrected = None if entry.atom is None else entry.atom.superseded_at
    return (
        entry.was_never_valid and not incoming.is_changing and corrected is not None and incoming.first_said < corrected
    )


def reports_end(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact states an end for an atom that is open-ended or ends later."""
    if incoming.valid_to is None or not entry.is_last or entry.status is not AtomStatus.ACTIVE or entry.was_never_valid:
        return False
    return entry.valid_from < incoming.valid_to and (entry.valid_to is None or incoming.valid_to < entry.valid_to)


def reports_earlier_start(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact states an earlier start of an atom."""
    valid_from = incoming.fact.valid_from
    if (
        valid_from is None
        or valid_from >= entry.valid_from
        or incoming.is_episode
        or incoming.is_single
        or incoming.is_changing
    ):
        return False
    can_change = entry.is_last and entry.supersedes is None and entry.status is AtomStatus.ACTIVE
    return can_change and not entry.was_never_valid


def may_be_same(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether two values of a slot may be synonyms, or one of the two is denied."""
    value = entry.draft.value
    if value is None or incoming.value is None:
        return False
    if not incoming.is_changing:
        return overlap(incoming.value, value) > 0 or is_denial(incoming)
    return is_denial(incoming) and not same_value(incoming.value, value)


def is_denial(incoming: IncomingFact) -> bool:
    """Whether a fact denies its slot's value."""
    return incoming.value is not None and denies(incoming.fact.text, incoming.value)


def shares_slot(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether both have the same slot."""
    return incoming.slot is not None and entry.draft.slot == incoming.slot


def similarity(incoming: IncomingFact, entry: TrackedAtom) -> float:
    """Return the similarity of a fact and an atom, from 0 to 1; in one slot, the similarity of their values."""
    value = entry.draft.value
    if shares_slot(incoming, entry) and value is not None and incoming.value is not None:
        return overlap(incoming.value, value)
    return overlap(incoming.fact.text, entry.draft.text)


def is_candidate(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact may relate to an atom in a way that comparing words cannot decide."""
    if entry.is_planned or entry.status is not AtomStatus.ACTIVE or entry.is_record or entry.was_never_valid:
        return False
    return incoming.is_changing or is_same_occasion(incoming, entry)
