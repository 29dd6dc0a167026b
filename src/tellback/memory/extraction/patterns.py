"""Patterns: what recurs among a space's episodes becomes a memory of its own, which cites them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from tellback.memory.extraction.ledger import TURN, citing
from tellback.memory.extraction.mining import clusters, signature
from tellback.memory.extraction.pairing import Found, Pair, days, messages, paired, pairs
from tellback.memory.extraction.regularity import sentence_of
from tellback.stores import AddedCitation, AtomChange, AtomDraft, Reconciliation, Replacement
from tellback.types.ids import new_id
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, Citation
from tellback.types.names import folded

PATTERN = Category("pattern", CategoryKind.PATTERN)
AT_LEAST = 3
"""On how many days something must have happened to be called a pattern."""


@dataclass(frozen=True, slots=True)
class Mined:
    """What mining asks for: changes, and the ids of patterns to put aside and to bring back."""

    wanted: Reconciliation = Reconciliation()
    archived: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether all is as it should be."""
        return not (self.wanted.changes or self.archived or self.restored)


def mine(
    episodes: Iterable[Atom],
    existing: Iterable[Atom],
    *,
    at_least: int = AT_LEAST,
    exclude: Iterable[str] = (),
) -> Mined:
    """Say which patterns a space is to have, given its episodes and the patterns it has, also the deleted ones.

    Episodes of categories named in `exclude` do not count, nor do turns. A pattern that is known is cited for what is
    new, and replaced if it now recurs by another rule. One whose episodes are gone is archived, and restored when there
    are enough of them again; one that a user archived stays so. One that was deleted does not come back for anything
    that was known when it was: only if it recurs all over again. Where a user has put something else in a pattern's
    place, that stands for it.
    """
    excluded = frozenset(map(folded, exclude))
    counted = [each for each in episodes if _counts(each, excluded)]
    living = messages(citation for episode in counted for citation in episode.citations)
    patterns = _Patterns(existing)
    recurring = [each for cluster in clusters(counted) if (each := Found(cluster, at_least)).recurs]
    supported = paired(recurring, patterns.known, living)
    found = [each for each in _unforgotten(recurring, patterns.deleted, living) if each.recurs]
    known = paired(found, patterns.known, living)
    changes: list[AtomChange] = []
    restored: list[str] = []
    for number, each in enumerate(found):
        pattern = known.get(number)
        if pattern is not None and pattern.superseded_by is not None:
            continue
        returns = pattern is not None and _returns(pattern, each)
        made = [*_changes(each, pattern, is_shown=returns)]
        changes += made
        if pattern is not None and returns and not any(isinstance(change, Replacement) for change in made):
            restored.append(pattern.id)
    kept = {pattern.id for pattern in (*supported.values(), *known.values())}
    archived = [each.id for each in patterns.shown if each.id not in kept]
    return Mined(Reconciliation(changes=tuple(changes)), tuple(archived), tuple(restored))


def _counts(episode: Atom, excluded: Set[str]) -> bool:
    return (
        episode.category.kind is CategoryKind.EPISODE
        and episode.category.name != TURN
        and folded(episode.category.name) not in excluded
        and episode.status is AtomStatus.ACTIVE
        and episode.superseded_by is None
    )


class _Patterns:
    """The patterns of a space.

    `known` are those that an episode may be of: the last of their chains, and those that a user has replaced. What a
    deleted one had replaced is the last of its chain again, but goes with it. `shown` are those that hold.
    """

    def __init__(self, existing: Iterable[Atom]) -> None:
        every = sorted((each for each in existing if each.category.kind is CategoryKind.PATTERN), key=lambda p: p.id)
        ids = {each.id for each in every}
        self.deleted = [each for each in every if each.status is AtomStatus.DELETED]
        left = {each.supersedes for each in self.deleted}
        last = [each for each in every if each.status is not AtomStatus.DELETED and each.superseded_by not in ids]
        self.known = [each for each in last if each.id not in left or each.superseded_by is not None]
        self.shown = [each for each in last if each.status is AtomStatus.ACTIVE and each.superseded_by is None]


def _unforgotten(found: Sequence[Found], deleted: Sequence[Atom], living: Set[str]) -> list[Found]:
    """Leave out what was known when a pattern of it was deleted."""
    best: dict[str, Pair] = {}
    for pair in sorted(pairs(found, deleted, living)):
        best[pair.pattern] = pair
    forgotten: dict[int, datetime] = {}
    for pattern in deleted:
        if pattern.id in best:
            number = -best[pattern.id].place
            forgotten[number] = max(forgotten.get(number, pattern.updated_at), pattern.updated_at)
    return [each.since(forgotten[number]) if number in forgotten else each for number, each in enumerate(found)]


def _returns(pattern: Atom, found: Found) -> bool:
    """Whether a pattern was archived for want of episodes: those that are as they were then would not have been enough.

    Where they would have been, a user has archived it.
    """
    before = [episode for episode in found.episodes if episode.updated_at <= pattern.updated_at]
    return pattern.status is AtomStatus.ARCHIVED and len(days(before)) < found.at_least


def _changes(found: Found, known: Atom | None, *, is_shown: bool) -> Iterator[AtomChange]:
    """What is to change for a cluster that recurs."""
    if known is None:
        yield _draft(found, found.says(found.typical()))
        return
    # What was a good sentence for it stays one: only what no episode says any more is said anew.
    sentence = sentence_of(known.text)
    text = found.says(sentence if signature(sentence) in found.said else found.typical())
    if text != known.text and (known.status is AtomStatus.ACTIVE or is_shown):
        yield Replacement(known.id, _draft(found, text))
        return
    cited = messages(known.citations)
    for citation in found.citations:
        missing = tuple(id for id in citation.message_ids if id not in cited)
        if missing:
            yield AddedCitation(known.id, Citation(citation.conversation_id, missing))


def _draft(found: Found, text: str) -> AtomDraft:
    count = len(found.days)
    draft = AtomDraft(
        id=new_id("atom"),
        text=text,
        category=PATTERN,
        valid_from=found.episodes[0].valid_from,
        importance=max(episode.importance for episode in found.episodes),
        confidence=round(count / (count + 1), 3),
        entity_ids=_shared_entities(found.episodes),
    )
    return citing(draft, found.citations)


def _shared_entities(episodes: Sequence[Atom]) -> tuple[str, ...]:
    """What most of the episodes are about."""
    counted = Counter(id for episode in episodes for id in dict.fromkeys(episode.entity_ids))
    return tuple(id for id, times in counted.most_common() if 2 * times > len(episodes))
