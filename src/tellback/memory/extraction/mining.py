"""What happens again: episodes that say much the same, put together."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from tellback.memory.extraction.likeness import negates
from tellback.memory.recall.words import HAS_NUMBER, HAS_TIME, extract_words
from tellback.types.memory import Atom

MIN_SIMILARITY = 2 / 3
"""Episodes are of one kind if they share this much of what they say: with whom and where must be the same, too."""

Signature = frozenset[str]

_IGNORED_STEMS = frozenset({"user", "im", "den", "el", "en", "le", "vom"})
"""Words that tell no episode from another: whom it is about, and what stands before dates."""

_WORD = re.compile(r"[^\W\d_][\w'\u2019]*")


@dataclass(slots=True)
class Cluster:
    """Episodes of one kind, in the order in which they happened, what each of them says, and the entities they name."""

    episodes: list[Atom] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    entity_ids: frozenset[str] = frozenset()

    def add(self, episode: Atom, signature: Signature) -> None:
        """One more. What it is about is told by the first that tells."""
        self.episodes.append(episode)
        self.signatures.append(signature)
        self.entity_ids = self.entity_ids or frozenset(episode.entity_ids)


def episode_signature(text: str) -> Signature:
    """What an episode says but for when and how often: the stems of its other words.

    What did not happen has nothing in common with what did.
    """
    stems = _stems(text)
    return frozenset(f"not {stem}" for stem in stems) if negates(text) else stems


def _stems(text: str) -> Signature:
    return (
        frozenset(word.term for word in extract_words(text) if not word.features & (HAS_TIME | HAS_NUMBER))
        - _IGNORED_STEMS
    )


def name_stems(text: str) -> Signature:
    """The stems of what a text calls by name, as far as capital letters tell.

    >>> sorted(name_stems("User met Anna for coffee on Monday."))
    ['anna']
    """
    return _stems(" ".join(word for word in _WORD.findall(text) if word[0].isupper()))


def have_same_names(one: str, other: str) -> bool:
    """Whether each text says the names that the other does.

    >>> have_same_names("User met Anna.", "user saw anna"), have_same_names("User met Anna.", "User met Bob.")
    (True, False)
    """
    return name_stems(one) <= _stems(other) and name_stems(other) <= _stems(one)


def are_compatible(one: Set[str], other: Set[str]) -> bool:
    """Whether nothing speaks against it that both are about the same: one may tell less than the other."""
    return one <= other or other <= one


def cluster_episodes(episodes: Iterable[Atom]) -> list[Cluster]:
    """Put together what is alike. Later episodes do not change where earlier ones belong."""
    in_order = sorted(episodes, key=lambda episode: (episode.valid_from, episode.id))
    signed = [(episode_signature(episode.text), episode) for episode in in_order]
    index = _ClusterIndex(signature for signature, _ in signed)
    for signature, episode in signed:
        if signature:
            index.find_or_create(signature, episode).add(episode, signature)
    return index.clusters


class _ClusterIndex:
    """Clusters by what their first episodes say, found by their rarest stems.

    Two sets that are alike enough share one of so many of their rarest: only those need to be looked up, however common
    the others are.
    """

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self._stem_counts = Counter(stem for signature in signatures for stem in signature)
        self.clusters: list[Cluster] = []
        self._leader_signatures: list[Signature] = []
        self._by_stem: dict[str, list[int]] = defaultdict(list)
        self._assigned: dict[tuple[Signature, frozenset[str]], int] = {}

    def find_or_create(self, signature: Signature, episode: Atom) -> Cluster:
        """The cluster that is most alike, the first of several; what says the same goes where it went before."""
        key = signature, frozenset(episode.entity_ids)
        if key not in self._assigned:
            rarest = self._rarest(signature)
            found = self._find(signature, rarest, episode)
            self._assigned[key] = self._create(signature, rarest) if found is None else found
        return self.clusters[self._assigned[key]]

    def _create(self, signature: Signature, rarest: Sequence[str]) -> int:
        number = len(self.clusters)
        self.clusters.append(Cluster())
        self._leader_signatures.append(signature)
        for stem in rarest:
            self._by_stem[stem].append(number)
        return number

    def _find(self, signature: Signature, rarest: Sequence[str], episode: Atom) -> int | None:
        near = {number for stem in rarest for number in self._by_stem.get(stem, ())}
        similar = [
            (-similarity, number)
            for number in near
            if (similarity := self._similarity(signature, number)) >= MIN_SIMILARITY
        ]
        return next((number for _, number in sorted(similar) if self._accepts(number, episode)), None)

    def _accepts(self, number: int, episode: Atom) -> bool:
        cluster = self.clusters[number]
        about_same = are_compatible(cluster.entity_ids, frozenset(episode.entity_ids))
        return about_same and have_same_names(cluster.episodes[0].text, episode.text)

    def _similarity(self, signature: Signature, number: int) -> float:
        leader = self._leader_signatures[number]
        if min(len(signature), len(leader)) < MIN_SIMILARITY * max(len(signature), len(leader)) - 1e-9:
            return 0.0  # one says so much more that it need not be looked at
        shared = len(signature & leader)
        return shared / (len(signature) + len(leader) - shared)

    def _rarest(self, signature: Signature) -> Sequence[str]:
        needed = len(signature) - math.ceil(len(signature) * MIN_SIMILARITY - 1e-9) + 1
        return sorted(signature, key=lambda stem: (self._stem_counts[stem], stem))[:needed]
