"""Which known pattern is of which episodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import date, datetime

from tellback.memory.extraction.ledger import merged
from tellback.memory.extraction.likeness import overlap
from tellback.memory.extraction.mining import Cluster, Signature, same_entities, same_names, signature
from tellback.memory.extraction.regularity import pattern_text, regularity, sentence_of, undated
from tellback.types.memory import Atom, Citation
from tellback.types.times import to_micros

_LIKE = 1 / 3


class Found:
    """Episodes of one kind, with what a pattern of them would say and cite."""

    def __init__(self, cluster: Cluster, at_least: int) -> None:
        self.episodes = cluster.episodes
        self.said = cluster.said
        self.about = cluster.about
        self.days = days(cluster.episodes)
        self.at_least = at_least
        self.citations = merged(citation for episode in self.episodes for citation in episode.citations)

    @property
    def recurs(self) -> bool:
        """Whether it happened on enough days."""
        return len(self.days) >= self.at_least

    def since(self, moment: datetime) -> Found:
        """Those of the episodes that were learned after a moment."""
        later = [number for number, episode in enumerate(self.episodes) if episode.created_at > moment]
        cluster = Cluster([self.episodes[number] for number in later], [self.said[number] for number in later])
        cluster.about = self.about
        return Found(cluster, self.at_least)

    def says(self, sentence: str) -> str:
        """What a pattern with that sentence would say of when it recurs."""
        return pattern_text(regularity(self.days, at_least=self.at_least), sentence)

    def typical(self) -> str:
        """The sentence that says what most episodes do; of several, the shortest, then the first."""
        often = Counter(stem for said in self.said for stem in said)

        def oddity(number: int) -> tuple[float, int, int]:
            said = self.said[number]
            shared = sum(often[stem] for stem in said) / (len(said) + len(often))
            return -shared, len(self.episodes[number].text), number

        number = min(range(len(self.episodes)), key=oddity)
        episode = self.episodes[number]
        sentence = undated(episode.text, to_micros(episode.valid_from))
        # By what its sentence says, a pattern is known again.
        return sentence if signature(sentence) == self.said[number] else episode.text


def days(episodes: Iterable[Atom]) -> set[date]:
    """The days on which something happened."""
    return {episode.valid_from.date() for episode in episodes}


def messages(citations: Iterable[Citation]) -> set[str]:
    """The messages that are cited."""
    return {id for citation in citations for id in citation.message_ids}


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """A cluster and a pattern that may be of it: the greater, the more likely. `place` is the cluster's, negative."""

    says: bool
    shared: int
    exact: bool
    place: int
    pattern: str


def pairs(found: Sequence[Found], patterns: Sequence[Atom], living: Set[str]) -> Iterator[Pair]:
    """What may belong together: a pattern says what one of the episodes does, or cites most of them.

    `living` are the messages that any episode cites: those of episodes that are gone say nothing for or against it.
    """
    by_message: dict[str, set[int]] = defaultdict(set)
    by_said: dict[Signature, set[int]] = defaultdict(set)
    for number, each in enumerate(found):
        for message in messages(each.citations):
            by_message[message].add(number)
        for said in each.said:
            by_said[said].add(number)
    for pattern in patterns:
        sentence = sentence_of(pattern.text)
        saying = by_said.get(signature(sentence), set())
        cited = messages(pattern.citations) & living
        shared = Counter(number for message in cited for number in by_message.get(message, ()))
        for number in saying | shared.keys():
            each = found[number]
            if not same_entities(frozenset(pattern.entity_ids), each.about):
                continue
            if number in saying or (2 * shared[number] >= len(cited) and _sounds_like(sentence, each)):
                exact = each.says(sentence) == pattern.text
                yield Pair(number in saying, shared[number], exact, -number, pattern.id)


def _sounds_like(sentence: str, found: Found) -> bool:
    """One message may tell of several things: those that it does not sound like are others."""
    text = found.episodes[0].text
    return overlap(sentence, text) >= _LIKE and same_names(sentence, text)


def paired(found: Sequence[Found], patterns: Sequence[Atom], living: Set[str]) -> dict[int, Atom]:
    """The pattern of each cluster that has one, each pattern once."""
    by_id = {pattern.id: pattern for pattern in patterns}
    made: dict[int, Atom] = {}
    for pair in sorted(pairs(found, patterns, living), reverse=True):
        if -pair.place not in made and pair.pattern in by_id:
            made[-pair.place] = by_id.pop(pair.pattern)
    return made
