"""Which known pattern is of which episodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import date, datetime

from tellback.memory.extraction.ledger import merge_citations
from tellback.memory.extraction.likeness import overlap
from tellback.memory.extraction.mining import Cluster, Signature, are_compatible, episode_signature, have_same_names
from tellback.memory.extraction.regularity import describe_regularity, pattern_sentence, pattern_text, remove_dates
from tellback.types.memory import Atom, Citation
from tellback.types.times import to_micros

_MIN_OVERLAP = 1 / 3


class Recurrence:
    """Episodes of one kind, with what a pattern of them would say and cite."""

    def __init__(self, cluster: Cluster, at_least: int) -> None:
        self.episodes = cluster.episodes
        self.signatures = cluster.signatures
        self.entity_ids = cluster.entity_ids
        self.days = episode_days(cluster.episodes)
        self.at_least = at_least
        self.citations = merge_citations(citation for episode in self.episodes for citation in episode.citations)

    @property
    def recurs(self) -> bool:
        """Whether it happened on enough days."""
        return len(self.days) >= self.at_least

    def learned_after(self, moment: datetime) -> Recurrence:
        """Those of the episodes that were learned after a moment."""
        later = [number for number, episode in enumerate(self.episodes) if episode.created_at > moment]
        cluster = Cluster([self.episodes[number] for number in later], [self.signatures[number] for number in later])
        cluster.entity_ids = self.entity_ids
        return Recurrence(cluster, self.at_least)

    def text_with(self, sentence: str) -> str:
        """What a pattern with that sentence would say of when it recurs."""
        return pattern_text(describe_regularity(self.days, at_least=self.at_least), sentence)

    def typical_sentence(self) -> str:
        """The sentence that says what most episodes do; of several, the shortest, then the first."""
        stem_counts = Counter(stem for signature in self.signatures for stem in signature)

        def oddity(number: int) -> tuple[float, int, int]:
            signature = self.signatures[number]
            shared = sum(stem_counts[stem] for stem in signature) / (len(signature) + len(stem_counts))
            return -shared, len(self.episodes[number].text), number

        number = min(range(len(self.episodes)), key=oddity)
        episode = self.episodes[number]
        sentence = remove_dates(episode.text, to_micros(episode.valid_from))
        # By what its sentence says, a pattern is known again.
        return sentence if episode_signature(sentence) == self.signatures[number] else episode.text


def episode_days(episodes: Iterable[Atom]) -> set[date]:
    """The days on which something happened."""
    return {episode.valid_from.date() for episode in episodes}


def cited_message_ids(citations: Iterable[Citation]) -> set[str]:
    """The messages that are cited."""
    return {id for citation in citations for id in citation.message_ids}


@dataclass(frozen=True, slots=True, order=True)
class PatternMatch:
    """A cluster and a pattern that may be of it: the greater, the more likely. `place` is the cluster's, negative."""

    says_same: bool
    shared_messages: int
    exact: bool
    order: int
    pattern_id: str


def match_patterns(
    recurrences: Sequence[Recurrence], patterns: Sequence[Atom], live_message_ids: Set[str]
) -> Iterator[PatternMatch]:
    """What may belong together: a pattern says what one of the episodes does, or cites most of them.

    `living` are the messages that any episode cites: those of episodes that are gone say nothing for or against it.
    """
    by_message: dict[str, set[int]] = defaultdict(set)
    by_signature: dict[Signature, set[int]] = defaultdict(set)
    for number, each in enumerate(recurrences):
        for message in cited_message_ids(each.citations):
            by_message[message].add(number)
        for signature in each.signatures:
            by_signature[signature].add(number)
    for pattern in patterns:
        sentence = pattern_sentence(pattern.text)
        says_same = by_signature.get(episode_signature(sentence), set())
        cited = cited_message_ids(pattern.citations) & live_message_ids
        shared = Counter(number for message in cited for number in by_message.get(message, ()))
        for number in says_same | shared.keys():
            each = recurrences[number]
            if not are_compatible(frozenset(pattern.entity_ids), each.entity_ids):
                continue
            if number in says_same or (2 * shared[number] >= len(cited) and _is_similar_sentence(sentence, each)):
                exact = each.text_with(sentence) == pattern.text
                yield PatternMatch(number in says_same, shared[number], exact, -number, pattern.id)


def _is_similar_sentence(sentence: str, recurrence: Recurrence) -> bool:
    """One message may tell of several things: those that it does not sound like are others."""
    text = recurrence.episodes[0].text
    return overlap(sentence, text) >= _MIN_OVERLAP and have_same_names(sentence, text)


def assign_patterns(
    recurrences: Sequence[Recurrence], patterns: Sequence[Atom], live_message_ids: Set[str]
) -> dict[int, Atom]:
    """The pattern of each cluster that has one, each pattern once."""
    by_id = {pattern.id: pattern for pattern in patterns}
    assigned: dict[int, Atom] = {}
    for match in sorted(match_patterns(recurrences, patterns, live_message_ids), reverse=True):
        if -match.order not in assigned and match.pattern_id in by_id:
            assigned[-match.order] = by_id.pop(match.pattern_id)
    return assigned
