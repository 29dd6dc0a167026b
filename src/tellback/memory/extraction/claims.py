"""Facts as they are compared with what is known: when they began, where they were said, what they are about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tellback.memory.extraction.entities import ResolvedEntities
from tellback.memory.extraction.likeness import slot_name, text_key
from tellback.memory.extraction.values import Change, ExtractedFact, Extraction, Window
from tellback.stores import AtomDraft
from tellback.types.ids import new_id
from tellback.types.memory import CategoryKind, Citation

JUST_BEFORE = timedelta(days=1)
"""Of what is only known to have ended, this much is known: it was so just before."""


@dataclass(frozen=True, slots=True)
class IncomingFact:
    """A fact of an extraction. It was first `said` then and is so from `begins` on, to `ends` if that is known.

    `dates` are those of all messages it cites.
    """

    index: int
    fact: ExtractedFact
    citation: Citation
    message_dates: tuple[datetime, ...]
    begins: datetime
    slot: str | None
    value: str | None

    @property
    def first_said(self) -> datetime:
        """When it was first said."""
        return self.message_dates[0]

    @property
    def ends(self) -> datetime | None:
        """When it was over, if that is known and can be."""
        ends = self.fact.valid_to
        return ends if ends is not None and ends > self.begins else None

    @property
    def had_ended(self) -> bool:
        """Whether it was so no more when it was said."""
        return self.ends is not None and self.ends <= self.first_said

    @property
    def cited_ids(self) -> frozenset[str]:
        """The messages it cites."""
        return frozenset(self.citation.message_ids)

    @property
    def is_episode(self) -> bool:
        """Whether it happened, rather than being so."""
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

    def to_draft(self, entity_ids: tuple[str, ...], begins: datetime, ends: datetime | None) -> AtomDraft:
        """The atom it becomes."""
        return AtomDraft(
            id=new_id("atom"),
            text=self.fact.text,
            category=self.fact.category,
            valid_from=begins,
            importance=self.fact.importance,
            confidence=self.fact.confidence,
            valid_to=ends,
            source_conversation_id=self.citation.conversation_id,
            source_message_ids=self.citation.message_ids,
            entity_ids=entity_ids,
            slot=self.slot,
            value=self.value,
        )


class SlotNames:
    """The names of slots, where what they are about has several: the entity's own name is used."""

    def __init__(self, entities: ResolvedEntities) -> None:
        self._canonical_names: dict[str, str] = {}
        self._all_names: dict[str, tuple[str, ...]] = {}
        for name, id in entities.ids.items():
            self._canonical_names.setdefault(text_key(name), entities.names[id][0])
            self._all_names.setdefault(text_key(name), entities.names[id])

    def slot_of(self, fact: ExtractedFact) -> str | None:
        """The slot of a fact; None if it has no value for one."""
        if not fact.subject or not fact.value or not fact.value.strip():
            return None
        return slot_name(self._canonical_names.get(text_key(fact.subject), fact.subject), fact.attribute)

    def spellings(self, fact: ExtractedFact) -> tuple[str, ...]:
        """The names under which the slot of a fact may be stored."""
        if self.slot_of(fact) is None or fact.subject is None:
            return ()
        names = self._all_names.get(text_key(fact.subject), (fact.subject,))
        return tuple(dict.fromkeys(each for name in names if (each := slot_name(name, fact.attribute)) is not None))

    def normalize(self, stored: str | None) -> str | None:
        """The name that a stored slot has now."""
        if stored is None:
            return None
        subject, _, attribute = stored.partition(": ")
        return slot_name(self._canonical_names.get(subject, subject), attribute) or stored


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
                    begins=_start_of(fact, message_dates[0]),
                    slot=slot,
                    value=fact.value if slot else None,
                )
            )
    return sorted(found, key=lambda incoming: (incoming.begins, incoming.first_said, incoming.index))


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
