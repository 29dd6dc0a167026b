"""Tracked atoms (those that matter to a plan, as they will stand after the changes planned so far), extracted facts
with their dates, citations and slots, and how one fact relates to one tracked atom."""

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
"""Of what is only known to have ended, this much is known: it was so just before."""

MIN_DELETED_OVERLAP = 0.4
"""From this overlap on, what the same messages say is what was deleted: better to lose it than to bring that back."""


_COPIED_FIELDS = AtomDraft.__dataclass_fields__.keys() & Atom.__dataclass_fields__.keys()


@dataclass(slots=True, eq=False)
class TrackedAtom:
    """An atom, and what becomes of it. `atom` is None if it is only planned, `message_dates` are
    the times it was said."""

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
        """Whether it is from the extraction that is being settled."""
        return self.atom is None

    @property
    def is_last(self) -> bool:
        """Whether nothing has taken its place."""
        return self.superseded_by is None

    @property
    def is_record(self) -> bool:
        """Whether it is what was said, or found by mining: that is kept by other rules than facts are."""
        category = self.draft.category
        return category.name == TURN_CATEGORY.name or category.kind is CategoryKind.PATTERN

    def is_valid_at(self, moment: datetime) -> bool:
        return self.valid_from <= moment and (self.valid_to is None or moment < self.valid_to)

    def was_valid_at(self, moment: datetime) -> bool:
        """Whether it was so at a moment before anything was planned."""
        if self.atom is None or moment < self.valid_from:
            return False
        return self.atom.valid_to is None or moment < self.atom.valid_to

    def next_said_after(self, moment: datetime) -> datetime | None:
        """When it was told again after a moment, while it was so."""
        return next((said for said in self.message_dates if said > moment and self.is_valid_at(said)), None)


class ChangeTracker:
    """Atoms by what they say and what they are about, and the changes to them so far, in order."""

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
                # What took an atom's place by hand says nothing of slots, but is about the same.
                for following in self.successors(entry):
                    if following.draft.slot is None:
                        self._by_slot[entry.draft.slot][following.id] = following

    def get(self, id: str) -> TrackedAtom | None:
        return self._by_id.get(id)

    def deleted(self) -> list[TrackedAtom]:
        return [entry for entry in self._by_id.values() if entry.status is AtomStatus.DELETED]

    def find_repeated(self, text: str, slot: str | None, value: str | None) -> list[TrackedAtom]:
        """Atoms that say the same in the same words, or give the slot the same value and deny it as little or much."""
        found = dict(self._by_words.get(text_key(text), {}))
        if slot is not None and value is not None:
            expected = value_key(value)
            found = {id: entry for id, entry in found.items() if not _has_other_value(entry, slot, expected)}
            found |= self._by_value.get((slot, expected, negates(text)), {})
        return [entry for entry in found.values() if _is_live(entry)]

    def find_opposed(self, text: str, slot: str | None, value: str | None) -> list[TrackedAtom]:
        """Atoms that give the slot the value which a text denies, or deny the one it gives, in order."""
        if slot is None or value is None:
            return []
        same = {entry.id for entry in self.find_repeated(text, slot, value)}
        found = self._by_value.get((slot, value_key(value), not negates(text)), {})
        return sort_by_start(entry for id, entry in found.items() if id not in same and _is_live(entry))

    def slot_timeline(self, slot: str | None) -> list[TrackedAtom]:
        """What was ever so in a slot, in the order in which it began."""
        found = self._by_slot.get(slot, {}).values() if slot is not None else ()
        return sort_by_start(entry for entry in found if _is_live(entry) and not entry.was_never_valid)

    def valid_in_slot(self, slot: str | None, moment: datetime) -> list[TrackedAtom]:
        """The atoms that held in a slot at a moment before anything was planned, whatever is planned of them."""
        found = self._by_slot.get(slot, {}).values() if slot is not None else ()
        return sort_by_start(entry for entry in found if _is_live(entry) and entry.was_valid_at(moment))

    def was_replaced(self, entry: TrackedAtom) -> bool:
        """Whether this plan puts something else in an atom's place."""
        following = None if entry.superseded_by is None else self._by_id.get(entry.superseded_by)
        return not entry.is_planned and following is not None and following.is_planned

    def chain(self, entry: TrackedAtom) -> list[TrackedAtom]:
        """An atom with those before and after it in its place that were ever so, in the order in which they began."""
        found = {each.id: each for each in (entry, *self._follow(entry, "supersedes"), *self.successors(entry))}
        return sort_by_start(each for each in found.values() if _is_live(each) and not each.was_never_valid)

    def successors(self, entry: TrackedAtom) -> Iterator[TrackedAtom]:
        """Those that took an atom's place one after the other, as far as they are known."""
        return self._follow(entry, "superseded_by")

    def add(self, draft: AtomDraft, message_dates: Iterable[datetime]) -> TrackedAtom:
        self.changes.append(draft)
        return self._track_planned(draft, message_dates)

    def replace(self, old: TrackedAtom, draft: AtomDraft, message_dates: Iterable[datetime]) -> TrackedAtom:
        """Plan an atom in another's place: none before it in its chain holds past its beginning."""
        self.changes.append(Replacement(old.id, draft))
        tracked = self._track_planned(draft, message_dates, supersedes=old.id)
        for entry in (old, *self._follow(old, "supersedes")):
            if entry.valid_to is None or (draft.valid_from < entry.valid_to and entry.valid_from < entry.valid_to):
                entry.valid_to = draft.valid_from
        old.superseded_by = tracked.id
        return tracked

    def cite(self, entry: TrackedAtom, citation: Citation, message_dates: Iterable[datetime]) -> bool:
        """Plan that an atom was said again; False if it is known to have been said there."""
        entry.message_dates = tuple(sorted({*entry.message_dates, *message_dates}))
        missing = tuple(id for id in citation.message_ids if id not in entry.cited_ids)
        if not missing:
            return False
        added = Citation(citation.conversation_id, missing)
        self.changes.append(AddedCitation(entry.id, added))
        entry.citations = merge_citations((*entry.citations, added))
        return True

    def add_wording(self, entry: TrackedAtom, text: str, slot: str | None, value: str | None) -> None:
        """Let what says the same in other words be found by these, too."""
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
    """Atoms in the order in which they began."""
    return sorted(entries, key=lambda entry: (entry.valid_from, entry.id))


def merge_citations(citations: Iterable[Citation]) -> tuple[Citation, ...]:
    """Citations with each conversation once, and each message.

    >>> merge_citations([Citation("a", ("1",)), Citation("b"), Citation("a", ("1", "2"))])
    (Citation(conversation_id='a', message_ids=('1', '2')), Citation(conversation_id='b', message_ids=()))
    """
    found: dict[str, dict[str, None]] = {}
    for citation in citations:
        found.setdefault(citation.conversation_id, {}).update(dict.fromkeys(citation.message_ids))
    return tuple(Citation(id, tuple(messages)) for id, messages in found.items())


def with_citations(draft: AtomDraft, citations: Iterable[Citation]) -> AtomDraft:
    """A draft that cites these instead, the first place first."""
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
    """A fact of an extraction. It is so from `valid_from` on, to `valid_to` if that is known.

    `message_dates` are those of all messages it cites.
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
        """When it was over, if that is known and can be."""
        valid_to = self.fact.valid_to
        return valid_to if valid_to is not None and valid_to > self.valid_from else None

    @property
    def had_ended(self) -> bool:
        """Whether it was so no more when it was said."""
        return self.valid_to is not None and self.valid_to <= self.first_said

    @property
    def cited_ids(self) -> frozenset[str]:
        return frozenset(self.citation.message_ids)

    @property
    def is_episode(self) -> bool:
        return self.fact.category.kind is CategoryKind.EPISODE

    @property
    def is_single(self) -> bool:
        """Whether there is one such value at a time, and it is known of what."""
        return self.fact.single and self.slot is not None and not self.is_episode

    @property
    def is_changing(self) -> bool:
        """Whether it says that something known is so no more, or never was."""
        return self.fact.change is not Change.NONE

    def without_slot(self) -> IncomingFact:
        """The same, as something that is said of nothing in particular."""
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
    """The names of slots, where what they are about has several: the entity's own name is used."""

    def __init__(self, entities: ResolvedEntities) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        for name, id in entities.ids.items():
            self._names.setdefault(text_key(name), entities.names[id])

    def slot_of(self, fact: ExtractedFact) -> str | None:
        """The slot of a fact; None if it has no value for one."""
        if not fact.subject or not fact.value or not fact.value.strip():
            return None
        return slot_name(self._names.get(text_key(fact.subject), (fact.subject,))[0], fact.attribute)

    def spellings(self, fact: ExtractedFact) -> tuple[str, ...]:
        """The names under which the slot of a fact may be stored."""
        if self.slot_of(fact) is None or fact.subject is None:
            return ()
        names = self._names.get(text_key(fact.subject), (fact.subject,))
        return tuple(dict.fromkeys(each for name in names if (each := slot_name(name, fact.attribute)) is not None))

    def normalize(self, stored: str | None) -> str | None:
        """The name that a stored slot has now."""
        if stored is None:
            return None
        subject, _, attribute = stored.partition(": ")
        return slot_name(self._names.get(subject, (subject,))[0], attribute) or stored


def build_incoming_facts(extraction: Extraction, window: Window, slots: SlotNames) -> list[IncomingFact]:
    """The facts that cite the window, in the order in which they began."""
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
    """When a fact became true: when that is said, or when it is known to have been so first."""
    if fact.valid_from is not None:
        return fact.valid_from
    return first_said if fact.valid_to is None or fact.valid_to > first_said else _just_before(fact.valid_to)


def _just_before(moment: datetime) -> datetime:
    try:
        return moment - JUST_BEFORE
    except OverflowError:  # there is nothing before the first day
        return moment


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
        incoming.valid_from.date() == entry.valid_from.date()
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
        entry.was_never_valid
        or entry.valid_from == incoming.valid_from
        or entry.is_valid_at(incoming.valid_from)
        or entry.is_valid_at(incoming.first_said)
    ):
        return True
    if is_same_later(incoming, entry):
        return True
    # A correction of what is over is over, too, and so is what another fact ended at that very moment. But what this
    # plan itself has ended may be so again.
    had_ended = entry.atom is not None and entry.atom.valid_to == entry.valid_to
    return had_ended and (incoming.is_changing or not incoming.is_single or entry.valid_to == incoming.valid_from)


def is_same_later(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether an atom that begins after a fact is the same, told by someone who did not know of the fact."""
    if entry.valid_from <= incoming.valid_from or entry.was_never_valid:
        return False
    if incoming.valid_to is not None and incoming.valid_to <= entry.valid_from:
        return False
    if not incoming.is_single or entry.draft.slot != incoming.slot:
        return True
    return incoming.is_changing and entry.is_valid_at(incoming.first_said)


def is_late_report(incoming: IncomingFact, entry: TrackedAtom, known: Iterable[TrackedAtom]) -> bool:
    """Whether an atom that is not so when a fact begins is the same, of all that are known to say so."""
    if is_same_later(incoming, entry) or (incoming.had_ended and reports_end(incoming, entry)):
        return True
    # What is told again elsewhere, because something came in between, was no mistake.
    repeated = (each for each in known if not each.was_never_valid and entry.cited_ids <= each.cited_ids)
    return _is_same_mistake(incoming, entry) and not any(repeated)


def _is_same_mistake(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact was said before it was corrected, and is only heard of now."""
    corrected = None if entry.atom is None else entry.atom.superseded_at
    return (
        entry.was_never_valid and not incoming.is_changing and corrected is not None and incoming.first_said < corrected
    )


def reports_end(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact says that an atom ended which was thought to go on."""
    if incoming.valid_to is None or not entry.is_last or entry.status is not AtomStatus.ACTIVE or entry.was_never_valid:
        return False
    return entry.valid_from < incoming.valid_to and (entry.valid_to is None or incoming.valid_to < entry.valid_to)


def reports_earlier_start(incoming: IncomingFact, entry: TrackedAtom) -> bool:
    """Whether a fact says that an atom was so since earlier than was thought."""
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
    if entry.is_planned or entry.status is not AtomStatus.ACTIVE or entry.is_record or entry.was_never_valid:
        return False
    return incoming.is_changing or is_same_occasion(incoming, entry)
