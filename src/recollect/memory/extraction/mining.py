"""What happens again: episodes that say much the same, put together."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from recollect.memory.extraction.likeness import negates
from recollect.memory.recall.words import NUMBER, TIME, words
from recollect.types.memory import Atom

ALIKE = 2 / 3
"""Episodes are of one kind if they share this much of what they say: with whom and where must be the same, too."""

Signature = frozenset[str]


@dataclass(slots=True)
class Cluster:
    """Episodes of one kind, in the order in which they happened, and what each of them says."""

    episodes: list[Atom] = field(default_factory=list)
    said: list[Signature] = field(default_factory=list)


def signature(text: str) -> Signature:
    """What an episode says but for when and how often: the stems of its other words.

    What did not happen has nothing in common with what did.
    """
    said = {word.term for word in words(text) if not word.signs & (TIME | NUMBER)} - {"user"}
    return frozenset(f"not {stem}" for stem in said) if negates(text) else frozenset(said)


def clusters(episodes: Iterable[Atom]) -> list[Cluster]:
    """Put together what is alike. Later episodes do not change where earlier ones belong."""
    in_order = sorted(episodes, key=lambda episode: (episode.valid_from, episode.id))
    signed = [(signature(episode.text), episode) for episode in in_order]
    known = _Leaders(signature for signature, _ in signed)
    found: list[Cluster] = []
    for said, episode in signed:
        if not said:
            continue
        number = known.find(said)
        if number is None:
            number = known.add(said)
            found.append(Cluster())
        found[number].episodes.append(episode)
        found[number].said.append(said)
    return found


class _Leaders:
    """What clusters are led by, found by their rarest stems.

    Two sets that are alike enough share one of so many of their rarest: only those need to be looked up, however common
    the others are.
    """

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self._often = Counter(stem for said in signatures for stem in said)
        self._leaders: list[Signature] = []
        self._by_stem: dict[str, list[int]] = defaultdict(list)
        self._settled: dict[Signature, int] = {}

    def add(self, said: Signature) -> int:
        number = len(self._leaders)
        self._leaders.append(said)
        self._settled[said] = number
        for stem in self._rarest(said):
            self._by_stem[stem].append(number)
        return number

    def find(self, said: Signature) -> int | None:
        """The cluster that is most alike, the first of several; what says the same goes where it went before."""
        if said in self._settled:
            return self._settled[said]
        near = {number for stem in self._rarest(said) for number in self._by_stem.get(stem, ())}
        best = max(near, key=lambda number: (_share(said, self._leaders[number]), -number), default=None)
        if best is None or _share(said, self._leaders[best]) < ALIKE:
            return None
        self._settled[said] = best
        return best

    def _rarest(self, said: Signature) -> Sequence[str]:
        needed = len(said) - math.ceil(len(said) * ALIKE - 1e-9) + 1
        return sorted(said, key=lambda stem: (self._often[stem], stem))[:needed]


def _share(a: Signature, b: Signature) -> float:
    return len(a & b) / len(a | b)
