"""The change tracker: the atoms that matter to a plan, as they will stand after the changes planned so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from tellback.memory.text_similarity import negates, text_key, value_key
from tellback.stores import AddedCitation, AtomChange, AtomDraft, KnownAtom, Replacement
from tellback.types.memory import TURN_CATEGORY, Atom, AtomStatus, Category, CategoryKind, Citation

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
        """Whether it is kept by other rules than facts are."""
        return is_record_category(self.draft.category)

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
        for each_entry in list(self._by_id.values()):
            self._inherit_slot(each_entry)

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
        found = {each.id: each for each in (entry, *self._predecessors(entry), *self.successors(entry))}
        return sort_by_start(each for each in found.values() if _is_live(each) and not each.was_never_valid)

    def successors(self, entry: TrackedAtom) -> Iterator[TrackedAtom]:
        """Those that took an atom's place one after the other, as far as they are known."""
        return self._follow(entry, lambda each: each.superseded_by)

    def add(self, draft: AtomDraft, message_dates: Iterable[datetime]) -> TrackedAtom:
        self.changes.append(draft)
        return self._track_planned(draft, message_dates)

    def replace(self, old: TrackedAtom, draft: AtomDraft, message_dates: Iterable[datetime]) -> TrackedAtom:
        """Plan an atom in another's place: none before it in its chain holds past its beginning."""
        self.changes.append(Replacement(old.id, draft))
        tracked = self._track_planned(draft, message_dates, supersedes=old.id)
        for entry in (old, *self._predecessors(old)):
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

    def _predecessors(self, entry: TrackedAtom) -> Iterator[TrackedAtom]:
        return self._follow(entry, lambda each: each.supersedes)

    def _follow(self, entry: TrackedAtom, next_id: Callable[[TrackedAtom], str | None]) -> Iterator[TrackedAtom]:
        seen = {entry.id}
        while (following := self._by_id.get(next_id(entry) or "")) is not None and following.id not in seen:
            yield following
            seen.add(following.id)
            entry = following

    def _track_planned(
        self, draft: AtomDraft, message_dates: Iterable[datetime], supersedes: str | None = None
    ) -> TrackedAtom:
        source = draft.source_conversation_id
        first = () if source is None else (Citation(source, draft.source_message_ids),)
        dates, cited = tuple(sorted(set(message_dates))), (*first, *draft.other_sources)
        tracked = TrackedAtom(
            draft, valid_to=draft.valid_to, supersedes=supersedes, citations=cited, message_dates=dates
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

    def _inherit_slot(self, entry: TrackedAtom) -> None:
        """What took an atom's place by hand says nothing of slots, but is about the same."""
        slot = entry.draft.slot
        if slot is not None and entry.status is not AtomStatus.DELETED:
            for following in self.successors(entry):
                if following.draft.slot is None:
                    self._by_slot[slot][following.id] = following


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
    first, *others = merge_citations(citations) or (None,)
    if first is None:
        return replace(draft, source_conversation_id=None, source_message_ids=(), other_sources=())
    return replace(
        draft,
        source_conversation_id=first.conversation_id,
        source_message_ids=first.message_ids,
        other_sources=tuple(each for each in others if each is not None),
    )


def _to_tracked(known: KnownAtom) -> TrackedAtom:
    atom = known.atom
    draft = AtomDraft(**{name: getattr(atom, name) for name in _COPIED_FIELDS}, slot=known.slot, value=known.value)
    own = {name: getattr(atom, name) for name in ("status", "valid_to", "supersedes", "superseded_by", "citations")}
    return TrackedAtom(draft, atom, **own, message_dates=known.message_dates)


def is_record_category(category: Category) -> bool:
    """Whether atoms of a category are what was said, or found by mining."""
    return category.name == TURN_CATEGORY.name or category.kind is CategoryKind.PATTERN


def _is_live(entry: TrackedAtom) -> bool:
    return entry.status is not AtomStatus.DELETED and not entry.is_record


def _has_other_value(entry: TrackedAtom, slot: str, expected: str) -> bool:
    value = entry.draft.value
    return entry.draft.slot == slot and value is not None and value_key(value) != expected
