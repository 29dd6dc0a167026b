"""What is known in a space while a plan is made: each atom as it will stand when the changes so far are done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from tellback.memory.extraction.likeness import key, negates, value_key
from tellback.stores import AddedCitation, AtomChange, AtomDraft, KnownAtom, Replacement
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, Citation

TURN = "turn"
"""The category of what was said, word for word: a record, which nothing repeats or replaces."""


@dataclass(slots=True, eq=False)
class Entry:
    """An atom, and what becomes of it. `atom` is None if it is only planned, `said` are the times it was told."""

    draft: AtomDraft
    atom: Atom | None = None
    status: AtomStatus = AtomStatus.ACTIVE
    ends: datetime | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    citations: tuple[Citation, ...] = ()
    said: tuple[datetime, ...] = ()

    @property
    def id(self) -> str:
        return self.draft.id

    @property
    def begins(self) -> datetime:
        return self.draft.valid_from

    @property
    def cited(self) -> set[str]:
        """The messages it cites."""
        return {id for citation in self.citations for id in citation.message_ids}

    @property
    def never_held(self) -> bool:
        """Whether it turned out that it was never so."""
        return self.ends is not None and self.ends <= self.begins

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
        return is_record(self.draft.category)

    def holds(self, moment: datetime) -> bool:
        """Whether it is so at a moment."""
        return self.begins <= moment and (self.ends is None or moment < self.ends)

    def held_before(self, moment: datetime) -> bool:
        """Whether it was so at a moment before anything was planned."""
        if self.atom is None or moment < self.begins:
            return False
        return self.atom.valid_to is None or moment < self.atom.valid_to

    def said_after(self, moment: datetime) -> datetime | None:
        """When it was told again after a moment, while it was so."""
        return next((said for said in self.said if said > moment and self.holds(said)), None)


class Ledger:
    """Atoms by what they say and what they are about, and the changes to them so far, in order."""

    def __init__(self, known: Iterable[KnownAtom]) -> None:
        self.changes: list[AtomChange] = []
        self._by_id: dict[str, Entry] = {}
        self._by_words: dict[str, dict[str, Entry]] = defaultdict(dict)
        self._by_slot: dict[str, dict[str, Entry]] = defaultdict(dict)
        self._by_value: dict[tuple[str, str, bool], dict[str, Entry]] = defaultdict(dict)
        for each in known:
            self._keep(_entry(each))
        for each_entry in list(self._by_id.values()):
            self._hand_down(each_entry)

    def get(self, id: str) -> Entry | None:
        """The atom of that id, if it is known here."""
        return self._by_id.get(id)

    def deleted(self) -> list[Entry]:
        """What the user wants forgotten."""
        return [entry for entry in self._by_id.values() if entry.status is AtomStatus.DELETED]

    def repeated(self, text: str, slot: str | None, value: str | None) -> list[Entry]:
        """Atoms that say the same in the same words, or give the slot the same value and deny it as little or much."""
        found = dict(self._by_words.get(key(text), {}))
        if slot is not None and value is not None:
            wanted = value_key(value)
            found = {id: entry for id, entry in found.items() if not _differs(entry, slot, wanted)}
            found |= self._by_value.get((slot, wanted, negates(text)), {})
        return [entry for entry in found.values() if _is_live(entry)]

    def opposed(self, text: str, slot: str | None, value: str | None) -> list[Entry]:
        """Atoms that give the slot the value which a text denies, or deny the one it gives, in order."""
        if slot is None or value is None:
            return []
        same = {entry.id for entry in self.repeated(text, slot, value)}
        found = self._by_value.get((slot, value_key(value), not negates(text)), {})
        return in_order(entry for id, entry in found.items() if id not in same and _is_live(entry))

    def line(self, slot: str | None) -> list[Entry]:
        """What was ever so in a slot, in the order in which it began."""
        found = self._by_slot.get(slot, {}).values() if slot is not None else ()
        return in_order(entry for entry in found if _is_live(entry) and not entry.never_held)

    def held_before(self, slot: str | None, moment: datetime) -> list[Entry]:
        """The atoms that held in a slot at a moment before anything was planned, whatever is planned of them."""
        found = self._by_slot.get(slot, {}).values() if slot is not None else ()
        return in_order(entry for entry in found if _is_live(entry) and entry.held_before(moment))

    def was_replaced(self, entry: Entry) -> bool:
        """Whether this plan puts something else in an atom's place."""
        following = None if entry.superseded_by is None else self._by_id.get(entry.superseded_by)
        return not entry.is_planned and following is not None and following.is_planned

    def chain(self, entry: Entry) -> list[Entry]:
        """An atom with those before and after it in its place that were ever so, in the order in which they began."""
        found = {each.id: each for each in (entry, *self._before(entry), *self.after(entry))}
        return in_order(each for each in found.values() if _is_live(each) and not each.never_held)

    def after(self, entry: Entry) -> Iterator[Entry]:
        """Those that took an atom's place one after the other, as far as they are known."""
        seen = {entry.id}
        while entry.superseded_by is not None and entry.superseded_by not in seen:
            following = self._by_id.get(entry.superseded_by)
            if following is None:
                return
            yield following
            seen.add(following.id)
            entry = following

    def add(self, draft: AtomDraft, said: Iterable[datetime]) -> Entry:
        """Plan a new atom."""
        self.changes.append(draft)
        return self._planned(draft, said)

    def replace(self, old: Entry, draft: AtomDraft, said: Iterable[datetime]) -> Entry:
        """Plan an atom in another's place: none before it in its chain holds past its beginning."""
        self.changes.append(Replacement(old.id, draft))
        made = self._planned(draft, said, supersedes=old.id)
        for entry in (old, *self._before(old)):
            if entry.ends is None or (draft.valid_from < entry.ends and entry.begins < entry.ends):
                entry.ends = draft.valid_from
        old.superseded_by = made.id
        return made

    def cite(self, entry: Entry, citation: Citation, said: Iterable[datetime]) -> bool:
        """Plan that an atom was said again; False if it is known to have been said there."""
        entry.said = tuple(sorted({*entry.said, *said}))
        missing = tuple(id for id in citation.message_ids if id not in entry.cited)
        if not missing:
            return False
        added = Citation(citation.conversation_id, missing)
        self.changes.append(AddedCitation(entry.id, added))
        entry.citations = merged((*entry.citations, added))
        return True

    def also_said(self, entry: Entry, text: str, slot: str | None, value: str | None) -> None:
        """Let what says the same in other words be found by these, too."""
        self._by_words[key(text)].setdefault(entry.id, entry)
        if slot is not None and value is not None:
            self._by_value[slot, value_key(value), negates(text)].setdefault(entry.id, entry)

    def _before(self, entry: Entry) -> Iterator[Entry]:
        seen = {entry.id}
        while entry.supersedes is not None and entry.supersedes not in seen:
            earlier = self._by_id.get(entry.supersedes)
            if earlier is None:
                return
            yield earlier
            seen.add(earlier.id)
            entry = earlier

    def _planned(self, draft: AtomDraft, said: Iterable[datetime], supersedes: str | None = None) -> Entry:
        source = draft.source_conversation_id
        first = () if source is None else (Citation(source, draft.source_message_ids),)
        cited = (*first, *draft.other_sources)
        made = Entry(draft, ends=draft.valid_to, supersedes=supersedes, citations=cited, said=tuple(sorted(set(said))))
        self._keep(made)
        return made

    def _keep(self, entry: Entry) -> None:
        if entry.id in self._by_id:
            return
        self._by_id[entry.id] = entry
        self._by_words[key(entry.draft.text)][entry.id] = entry
        slot, value = entry.draft.slot, entry.draft.value
        if slot is not None:
            self._by_slot[slot][entry.id] = entry
            if value is not None:
                self._by_value[slot, value_key(value), negates(entry.draft.text)][entry.id] = entry

    def _hand_down(self, entry: Entry) -> None:
        """What took an atom's place by hand says nothing of slots, but is about the same."""
        slot = entry.draft.slot
        if slot is not None and entry.status is not AtomStatus.DELETED:
            for following in self.after(entry):
                if following.draft.slot is None:
                    self._by_slot[slot][following.id] = following


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Atoms in the order in which they began."""
    return sorted(entries, key=lambda entry: (entry.begins, entry.id))


def merged(citations: Iterable[Citation]) -> tuple[Citation, ...]:
    """Citations with each conversation once, and each message.

    >>> merged([Citation("a", ("1",)), Citation("b"), Citation("a", ("1", "2"))])
    (Citation(conversation_id='a', message_ids=('1', '2')), Citation(conversation_id='b', message_ids=()))
    """
    found: dict[str, dict[str, None]] = {}
    for citation in citations:
        found.setdefault(citation.conversation_id, {}).update(dict.fromkeys(citation.message_ids))
    return tuple(Citation(id, tuple(messages)) for id, messages in found.items())


def citing(draft: AtomDraft, citations: Iterable[Citation]) -> AtomDraft:
    """A draft that cites these instead, the first place first."""
    first, *others = merged(citations) or (None,)
    if first is None:
        return replace(draft, source_conversation_id=None, source_message_ids=(), other_sources=())
    return replace(
        draft,
        source_conversation_id=first.conversation_id,
        source_message_ids=first.message_ids,
        other_sources=tuple(each for each in others if each is not None),
    )


def _entry(known: KnownAtom) -> Entry:
    atom = known.atom
    draft = AtomDraft(
        id=atom.id,
        text=atom.text,
        category=atom.category,
        valid_from=atom.valid_from,
        importance=atom.importance,
        confidence=atom.confidence,
        valid_to=atom.valid_to,
        source_conversation_id=atom.source_conversation_id,
        source_message_ids=atom.source_message_ids,
        entity_ids=atom.entity_ids,
        other_sources=atom.other_sources,
        slot=known.slot,
        value=known.value,
    )
    return Entry(
        draft, atom, atom.status, atom.valid_to, atom.supersedes, atom.superseded_by, atom.citations, known.said
    )


def is_record(category: Category) -> bool:
    """Whether atoms of a category are what was said, or found by mining."""
    return category.name == TURN or category.kind is CategoryKind.PATTERN


def _is_live(entry: Entry) -> bool:
    return entry.status is not AtomStatus.DELETED and not entry.is_record


def _differs(entry: Entry, slot: str, wanted: str) -> bool:
    value = entry.draft.value
    return entry.draft.slot == slot and value is not None and value_key(value) != wanted
