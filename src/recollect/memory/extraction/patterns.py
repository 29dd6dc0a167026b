"""Patterns: what recurs among a space's episodes becomes a memory of its own, which cites them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import date, datetime

from recollect.memory.extraction.ledger import TURN, citing, merged
from recollect.memory.extraction.likeness import overlap
from recollect.memory.extraction.mining import Cluster, Signature, clusters, signature
from recollect.memory.extraction.regularity import pattern_text, regularity, sentence_of, undated
from recollect.stores import AddedCitation, AtomChange, AtomDraft, Reconciliation, Replacement
from recollect.types.ids import new_id
from recollect.types.memory import Atom, AtomStatus, Category, CategoryKind, Citation
from recollect.types.times import to_micros

PATTERN = Category("pattern", CategoryKind.PATTERN)
AT_LEAST = 3
"""On how many days something must have happened to be called a pattern."""

_LIKE = 1 / 3


def mine(
    episodes: Iterable[Atom],
    existing: Iterable[Atom],
    *,
    at_least: int = AT_LEAST,
    exclude: frozenset[str] = frozenset(),
) -> Reconciliation:
    """Say which patterns a space is to have, given its episodes and the patterns it has, also the deleted ones.

    Episodes of categories named in `exclude` do not count, nor do turns. A pattern that is known is cited for what is
    new, and replaced if it now recurs by another rule. One that was deleted does not come back for anything that was
    known when it was: only if it recurs all over again.
    """
    counted = [each for each in episodes if _counts(each, exclude)]
    recurring = [_Found(each) for each in clusters(counted) if len(_days(each.episodes)) >= at_least]
    patterns = sorted((each for each in existing if each.category.kind is CategoryKind.PATTERN), key=lambda p: p.id)
    living = _messages(citation for episode in counted for citation in episode.citations)
    deleted = [each for each in patterns if each.status is AtomStatus.DELETED]
    recurring = [each for each in _unforgotten(recurring, deleted, living) if len(each.days) >= at_least]
    standing = [each for each in patterns if each.status is not AtomStatus.DELETED and each.superseded_by is None]
    known = _paired(recurring, standing, living)
    changes: list[AtomChange] = []
    for number, each in enumerate(recurring):
        changes += _changes(each, known.get(number), at_least)
    return Reconciliation(changes=tuple(changes))


def _counts(episode: Atom, exclude: frozenset[str]) -> bool:
    return (
        episode.category.kind is CategoryKind.EPISODE
        and episode.category.name != TURN
        and episode.category.name not in exclude
        and episode.status is AtomStatus.ACTIVE
        and episode.superseded_by is None
    )


class _Found:
    """Episodes of one kind, with what a pattern of them would cite."""

    def __init__(self, cluster: Cluster) -> None:
        self.episodes = cluster.episodes
        self.said = cluster.said
        self.days = _days(cluster.episodes)
        self.citations = merged(citation for episode in self.episodes for citation in episode.citations)

    def since(self, moment: datetime) -> _Found:
        """Those of the episodes that were learned after a moment."""
        later = [number for number, episode in enumerate(self.episodes) if episode.created_at > moment]
        return _Found(Cluster([self.episodes[number] for number in later], [self.said[number] for number in later]))

    def typical(self) -> str:
        """The sentence that says what most episodes do; of several, the shortest, then the first."""
        often = Counter(stem for said in self.said for stem in said)

        def oddity(number: int) -> tuple[float, int, int]:
            said = self.said[number]
            shared = sum(often[stem] for stem in said) / (len(said) + len(often))
            return -shared, len(self.episodes[number].text), number

        episode = self.episodes[min(range(len(self.episodes)), key=oddity)]
        return undated(episode.text, to_micros(episode.valid_from))


def _days(episodes: Iterable[Atom]) -> set[date]:
    return {episode.valid_from.date() for episode in episodes}


def _unforgotten(found: Sequence[_Found], deleted: Sequence[Atom], living: Set[str]) -> list[_Found]:
    """Leave out what was known when a pattern of it was deleted."""
    best: dict[str, _Pair] = {}
    for pair in sorted(_pairs(found, deleted, living)):
        best[pair.pattern] = pair
    forgotten: dict[int, datetime] = {}
    for pattern in deleted:
        if pattern.id in best:
            number = -best[pattern.id].place
            forgotten[number] = max(forgotten.get(number, pattern.updated_at), pattern.updated_at)
    return [each.since(forgotten[number]) if number in forgotten else each for number, each in enumerate(found)]


@dataclass(frozen=True, slots=True, order=True)
class _Pair:
    """A cluster and a pattern that may be of it: the greater, the more likely. `place` is the cluster's, negative."""

    says: bool
    shared: int
    place: int
    pattern: str


def _pairs(found: Sequence[_Found], patterns: Sequence[Atom], living: Set[str]) -> Iterator[_Pair]:
    """What may belong together: a pattern says what one of the episodes does, or cites most of them.

    `living` are the messages that any episode cites: those of episodes that are gone say nothing for or against it.
    """
    by_message: dict[str, set[int]] = defaultdict(set)
    by_said: dict[Signature, set[int]] = defaultdict(set)
    for number, each in enumerate(found):
        for message in _messages(each.citations):
            by_message[message].add(number)
        for said in each.said:
            by_said[said].add(number)
    for pattern in patterns:
        sentence = sentence_of(pattern.text)
        saying = by_said.get(signature(sentence), set())
        cited = _messages(pattern.citations) & living
        shared = Counter(number for message in cited for number in by_message.get(message, ()))
        for number in saying | shared.keys():
            # One message may tell of several things: those that it does not sound like are others.
            sounds_alike = overlap(sentence, found[number].episodes[0].text) >= _LIKE
            if number in saying or (2 * shared[number] >= len(cited) and sounds_alike):
                yield _Pair(number in saying, shared[number], -number, pattern.id)


def _paired(found: Sequence[_Found], patterns: Sequence[Atom], living: Set[str]) -> dict[int, Atom]:
    """The pattern of each cluster that has one, each pattern once."""
    by_id = {pattern.id: pattern for pattern in patterns}
    paired: dict[int, Atom] = {}
    for pair in sorted(_pairs(found, patterns, living), reverse=True):
        if -pair.place not in paired and pair.pattern in by_id:
            paired[-pair.place] = by_id.pop(pair.pattern)
    return paired


def _messages(citations: Iterable[Citation]) -> set[str]:
    return {id for citation in citations for id in citation.message_ids}


def _changes(found: _Found, known: Atom | None, at_least: int) -> Iterator[AtomChange]:
    """What is to change for a cluster that recurs."""
    when = regularity(found.days, at_least=at_least)
    if known is None:
        yield _draft(found, pattern_text(when, found.typical()), f"pattern:{found.episodes[0].id}")
        return
    # What was a good sentence for it stays one: only what no episode says any more is said anew.
    sentence = sentence_of(known.text)
    sentence = sentence if signature(sentence) in found.said else found.typical()
    text = pattern_text(when, sentence)
    if text != known.text and known.status is AtomStatus.ACTIVE:
        yield Replacement(known.id, _draft(found, text, None))
        return
    cited = _messages(known.citations)
    for citation in found.citations:
        missing = tuple(id for id in citation.message_ids if id not in cited)
        if missing:
            yield AddedCitation(known.id, Citation(citation.conversation_id, missing))


def _draft(found: _Found, text: str, origin: str | None) -> AtomDraft:
    days = len(found.days)
    draft = AtomDraft(
        id=new_id("atom"),
        text=text,
        category=PATTERN,
        valid_from=found.episodes[0].valid_from,
        importance=max(episode.importance for episode in found.episodes),
        confidence=round(days / (days + 1), 3),
        entity_ids=_shared_entities(found.episodes),
        origin=origin,
    )
    return citing(draft, found.citations)


def _shared_entities(episodes: Sequence[Atom]) -> tuple[str, ...]:
    """What most of the episodes are about."""
    counted = Counter(id for episode in episodes for id in dict.fromkeys(episode.entity_ids))
    return tuple(id for id, times in counted.most_common() if 2 * times > len(episodes))
