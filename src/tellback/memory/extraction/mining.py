"""What happens again: episodes that say much the same, put together."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from tellback.memory.extraction.likeness import negates
from tellback.memory.recall.words import NUMBER, TIME, words
from tellback.types.memory import Atom

ALIKE = 2 / 3
"""Episodes are of one kind if they share this much of what they say: with whom and where must be the same, too."""

Signature = frozenset[str]

_NOTHING = frozenset({"user", "im", "den", "el", "en", "le", "vom"})
"""Words that tell no episode from another: whom it is about, and what stands before dates."""

_WORD = re.compile(r"[^\W\d_][\w'\u2019]*")


@dataclass(slots=True)
class Cluster:
    """Episodes of one kind, in the order in which they happened, what each of them says, and the entities they name."""

    episodes: list[Atom] = field(default_factory=list)
    said: list[Signature] = field(default_factory=list)
    about: frozenset[str] = frozenset()

    def add(self, episode: Atom, said: Signature) -> None:
        """One more. What it is about is told by the first that tells."""
        self.episodes.append(episode)
        self.said.append(said)
        self.about = self.about or frozenset(episode.entity_ids)


def signature(text: str) -> Signature:
    """What an episode says but for when and how often: the stems of its other words.

    What did not happen has nothing in common with what did.
    """
    said = _stems(text)
    return frozenset(f"not {stem}" for stem in said) if negates(text) else said


def _stems(text: str) -> Signature:
    return frozenset(word.term for word in words(text) if not word.signs & (TIME | NUMBER)) - _NOTHING


def named(text: str) -> Signature:
    """The stems of what a text calls by name, as far as capital letters tell.

    >>> sorted(named("User met Anna for coffee on Monday."))
    ['anna']
    """
    return _stems(" ".join(word for word in _WORD.findall(text) if word[0].isupper()))


def same_names(one: str, other: str) -> bool:
    """Whether each text says the names that the other does.

    >>> same_names("User met Anna.", "user saw anna"), same_names("User met Anna.", "User met Bob.")
    (True, False)
    """
    return named(one) <= _stems(other) and named(other) <= _stems(one)


def same_entities(one: Set[str], other: Set[str]) -> bool:
    """Whether nothing speaks against it that both are about the same: one may tell less than the other."""
    return one <= other or other <= one


def clusters(episodes: Iterable[Atom]) -> list[Cluster]:
    """Put together what is alike. Later episodes do not change where earlier ones belong."""
    in_order = sorted(episodes, key=lambda episode: (episode.valid_from, episode.id))
    signed = [(signature(episode.text), episode) for episode in in_order]
    known = _Leaders(said for said, _ in signed)
    for said, episode in signed:
        if said:
            known.of(said, episode).add(episode, said)
    return known.clusters


class _Leaders:
    """Clusters by what their first episodes say, found by their rarest stems.

    Two sets that are alike enough share one of so many of their rarest: only those need to be looked up, however common
    the others are.
    """

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self._often = Counter(stem for said in signatures for stem in said)
        self.clusters: list[Cluster] = []
        self._leaders: list[Signature] = []
        self._by_stem: dict[str, list[int]] = defaultdict(list)
        self._settled: dict[tuple[Signature, frozenset[str]], int] = {}

    def of(self, said: Signature, episode: Atom) -> Cluster:
        """The cluster that is most alike, the first of several; what says the same goes where it went before."""
        key = said, frozenset(episode.entity_ids)
        if key not in self._settled:
            rarest = self._rarest(said)
            found = self._find(said, rarest, episode)
            self._settled[key] = self._new(said, rarest) if found is None else found
        return self.clusters[self._settled[key]]

    def _new(self, said: Signature, rarest: Sequence[str]) -> int:
        number = len(self.clusters)
        self.clusters.append(Cluster())
        self._leaders.append(said)
        for stem in rarest:
            self._by_stem[stem].append(number)
        return number

    def _find(self, said: Signature, rarest: Sequence[str], episode: Atom) -> int | None:
        near = {number for stem in rarest for number in self._by_stem.get(stem, ())}
        alike = [(-share, number) for number in near if (share := self._share(said, number)) >= ALIKE]
        return next((number for _, number in sorted(alike) if self._takes(number, episode)), None)

    def _takes(self, number: int, episode: Atom) -> bool:
        cluster = self.clusters[number]
        about_same = same_entities(cluster.about, frozenset(episode.entity_ids))
        return about_same and same_names(cluster.episodes[0].text, episode.text)

    def _share(self, said: Signature, number: int) -> float:
        leader = self._leaders[number]
        if min(len(said), len(leader)) < ALIKE * max(len(said), len(leader)) - 1e-9:
            return 0.0  # one says so much more that it need not be looked at
        shared = len(said & leader)
        return shared / (len(said) + len(leader) - shared)

    def _rarest(self, said: Signature) -> Sequence[str]:
        needed = len(said) - math.ceil(len(said) * ALIKE - 1e-9) + 1
        return sorted(said, key=lambda stem: (self._often[stem], stem))[:needed]
