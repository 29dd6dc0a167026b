"""Patterns: what recurs among a space's episodes becomes a memory of its own, which cites them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from tellback.memory.extraction.ledger import TURN_CATEGORY, with_citations
from tellback.memory.extraction.mining import cluster_episodes, episode_signature
from tellback.memory.extraction.pairing import (
    PatternMatch,
    Recurrence,
    assign_patterns,
    cited_message_ids,
    episode_days,
    match_patterns,
)
from tellback.memory.extraction.regularity import pattern_sentence
from tellback.stores import AddedCitation, AtomChange, AtomDraft, Reconciliation, Replacement
from tellback.types.ids import new_id
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, Citation
from tellback.types.names import fold_name

PATTERN_CATEGORY = Category("pattern", CategoryKind.PATTERN)
DEFAULT_MIN_DAYS = 3
"""On how many days something must have happened to be called a pattern."""


@dataclass(frozen=True, slots=True)
class PatternChanges:
    """What mining asks for: changes, and the ids of patterns to put aside and to bring back."""

    reconciliation: Reconciliation = Reconciliation()
    archived: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether all is as it should be."""
        return not (self.reconciliation.changes or self.archived or self.restored)


def find_patterns(
    episodes: Iterable[Atom],
    existing: Iterable[Atom],
    *,
    at_least: int = DEFAULT_MIN_DAYS,
    exclude: Iterable[str] = (),
) -> PatternChanges:
    """Say which patterns a space is to have, given its episodes and the patterns it has, also the deleted ones.

    Episodes of categories named in `exclude` do not count, nor do turns. A pattern that is known is cited for what is
    new, and replaced if it now recurs by another rule. One whose episodes are gone is archived, and restored when there
    are enough of them again; one that a user archived stays so. One that was deleted does not come back for anything
    that was known when it was: only if it recurs all over again. Where a user has put something else in a pattern's
    place, that stands for it.
    """
    excluded = frozenset(map(fold_name, exclude))
    counted = [each for each in episodes if _is_counted(each, excluded)]
    live_message_ids = cited_message_ids(citation for episode in counted for citation in episode.citations)
    patterns = _ExistingPatterns(existing)
    recurring = [each for cluster in cluster_episodes(counted) if (each := Recurrence(cluster, at_least)).recurs]
    supported = assign_patterns(recurring, patterns.known, live_message_ids)
    found = [each for each in _exclude_deleted(recurring, patterns.deleted, live_message_ids) if each.recurs]
    known = assign_patterns(found, patterns.known, live_message_ids)
    changes: list[AtomChange] = []
    restored: list[str] = []
    for number, each in enumerate(found):
        pattern = known.get(number)
        if pattern is not None and pattern.superseded_by is not None:
            continue
        is_restored = pattern is not None and _should_restore(pattern, each)
        planned = [*_plan_changes(each, pattern, is_restored=is_restored)]
        changes += planned
        if pattern is not None and is_restored and not any(isinstance(change, Replacement) for change in planned):
            restored.append(pattern.id)
    supported_ids = {pattern.id for pattern in (*supported.values(), *known.values())}
    archived = [each.id for each in patterns.active if each.id not in supported_ids]
    return PatternChanges(Reconciliation(changes=tuple(changes)), tuple(archived), tuple(restored))


def _is_counted(episode: Atom, excluded: Set[str]) -> bool:
    return (
        episode.category.kind is CategoryKind.EPISODE
        and episode.category.name != TURN_CATEGORY
        and fold_name(episode.category.name) not in excluded
        and episode.status is AtomStatus.ACTIVE
        and episode.superseded_by is None
    )


class _ExistingPatterns:
    """The patterns of a space.

    `known` are those that an episode may be of: the last of their chains, and those that a user has replaced. What a
    deleted one had replaced is the last of its chain again, but goes with it. `shown` are those that hold.
    """

    def __init__(self, existing: Iterable[Atom]) -> None:
        patterns = sorted((each for each in existing if each.category.kind is CategoryKind.PATTERN), key=lambda p: p.id)
        ids = {each.id for each in patterns}
        self.deleted = [each for each in patterns if each.status is AtomStatus.DELETED]
        replaced_by_deleted = {each.supersedes for each in self.deleted}
        last = [each for each in patterns if each.status is not AtomStatus.DELETED and each.superseded_by not in ids]
        self.known = [each for each in last if each.id not in replaced_by_deleted or each.superseded_by is not None]
        self.active = [each for each in last if each.status is AtomStatus.ACTIVE and each.superseded_by is None]


def _exclude_deleted(
    recurrences: Sequence[Recurrence], deleted: Sequence[Atom], live_message_ids: Set[str]
) -> list[Recurrence]:
    """Leave out what was known when a pattern of it was deleted."""
    best: dict[str, PatternMatch] = {}
    for match in sorted(match_patterns(recurrences, deleted, live_message_ids)):
        best[match.pattern_id] = match
    deleted_at: dict[int, datetime] = {}
    for pattern in deleted:
        if pattern.id in best:
            number = -best[pattern.id].order
            deleted_at[number] = max(deleted_at.get(number, pattern.updated_at), pattern.updated_at)
    return [
        each.learned_after(deleted_at[number]) if number in deleted_at else each
        for number, each in enumerate(recurrences)
    ]


def _should_restore(pattern: Atom, recurrence: Recurrence) -> bool:
    """Whether a pattern was archived for want of episodes: those that are as they were then would not have been enough.

    Where they would have been, a user has archived it.
    """
    before = [episode for episode in recurrence.episodes if episode.updated_at <= pattern.updated_at]
    return pattern.status is AtomStatus.ARCHIVED and len(episode_days(before)) < recurrence.at_least


def _plan_changes(recurrence: Recurrence, known: Atom | None, *, is_restored: bool) -> Iterator[AtomChange]:
    """What is to change for a cluster that recurs."""
    if known is None:
        yield _build_draft(recurrence, recurrence.text_with(recurrence.typical_sentence()))
        return
    # What was a good sentence for it stays one: only what no episode says any more is said anew.
    sentence = pattern_sentence(known.text)
    text = recurrence.text_with(
        sentence if episode_signature(sentence) in recurrence.signatures else recurrence.typical_sentence()
    )
    if text != known.text and (known.status is AtomStatus.ACTIVE or is_restored):
        yield Replacement(known.id, _build_draft(recurrence, text))
        return
    cited = cited_message_ids(known.citations)
    for citation in recurrence.citations:
        missing = tuple(id for id in citation.message_ids if id not in cited)
        if missing:
            yield AddedCitation(known.id, Citation(citation.conversation_id, missing))


def _build_draft(recurrence: Recurrence, text: str) -> AtomDraft:
    count = len(recurrence.days)
    draft = AtomDraft(
        id=new_id("atom"),
        text=text,
        category=PATTERN_CATEGORY,
        valid_from=recurrence.episodes[0].valid_from,
        importance=max(episode.importance for episode in recurrence.episodes),
        confidence=round(count / (count + 1), 3),
        entity_ids=_shared_entities(recurrence.episodes),
    )
    return with_citations(draft, recurrence.citations)


def _shared_entities(episodes: Sequence[Atom]) -> tuple[str, ...]:
    """What most of the episodes are about."""
    counted = Counter(id for episode in episodes for id in dict.fromkeys(episode.entity_ids))
    return tuple(id for id, times in counted.most_common() if 2 * times > len(episodes))
