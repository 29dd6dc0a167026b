"""How well the words of a query are met by each row, by its neighbours, and by its whole session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recollect.memory.recall.grown import Floats, Ints
from recollect.memory.recall.index import SpaceIndex
from recollect.memory.recall.layout import NEAR_K1, REACH, SESSION_K1
from recollect.memory.recall.words import Word

BEFORE = (0.7, 0.4, 0.3, 0.2)
AFTER = (0.4, 0.2, 0.15, 0.1)
"""What a word counts in the rows before and after, the nearest first. What answers stands after what it answers."""

LEAST_ALIKE = 0.4
"""Words whose vectors are less alike than this have nothing to do with each other."""

MOST_WORDS = 16
MOST_POSTINGS = 40_000
USUAL_ROWS = 300
USUAL_SESSIONS = 10
"""How rare a word is, is counted as if a space held as many others besides: in a space of three memories nothing is
common, and a match still says something."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The query's words against every row, by the words' rarity: the best match of each word in the row or near it,
    BM25 over the row and its neighbours, and BM25 over its session. All are on one scale for any query."""

    soft: Floats
    near: Floats
    session: Floats


def match_words(index: SpaceIndex, asked: Sequence[Word]) -> Matches | None:
    """Match the words of a query; None if there is nothing to match."""
    postings, layout = index.postings, index.layout
    if not asked or not postings.terms:
        return None
    find = postings.terms.get
    numbers = np.array([find(word.term, -1) for word in asked], np.int64)
    spread = np.where(numbers >= 0, postings.spread[numbers], 0)
    rarity = _rarity(spread, len(index) + USUAL_ROWS)
    if len(asked) > MOST_WORDS:
        kept = np.sort(np.lexsort((-rarity, numbers < 0))[:MOST_WORDS])
        asked = [asked[at] for at in kept.tolist()]
        numbers, rarity = numbers[kept], rarity[kept]
    scale = 1 / np.sqrt(max(float(rarity.sum()), 1.0))

    known = np.flatnonzero(numbers >= 0)
    at, lengths = postings.lookup(numbers[known])
    rows, whose = postings.rows[at], np.repeat(known, lengths)
    places = layout.places[rows]
    counts = postings.counts[at]
    soft = _soft(index, asked, rarity, whose, places)
    near = _near(index, len(asked), whose, places, counts)
    session = _session(index, len(asked), whose, rows, counts, near)
    return Matches(soft[layout.places] * scale, near[layout.places] * scale, session * scale)


def _rarity(spread: Ints, n: int) -> Floats:
    return np.log(1 + (np.maximum(n - spread, 0) + 0.5) / (spread + 0.5)).astype(np.float32)


def _soft(index: SpaceIndex, asked: Sequence[Word], rarity: Floats, whose: Ints, places: Ints) -> Floats:
    """For each word its best match in the row or, counting less, in a neighbour; by the words' rarity."""
    layout = index.layout
    match = np.zeros((len(asked), layout.width), np.float32)
    _match_alike(index, asked, match)
    match[whose, places] = 1
    best = match.copy()
    inner = slice(REACH, layout.windowed - REACH)
    if layout.windowed:
        shifted = np.empty((len(asked), layout.windowed - 2 * REACH), np.float32)
        for step in range(1, REACH + 1):
            for way, share in ((-step, BEFORE[step - 1]), (step, AFTER[step - 1])):
                np.multiply(match[:, inner.start + way : inner.stop + way], share, out=shifted)
                np.maximum(best[:, inner], shifted, out=best[:, inner])
    return rarity @ best


def _match_alike(index: SpaceIndex, asked: Sequence[Word], match: Floats) -> None:
    """Words that mean nearly the same match by how alike their vectors are."""
    alike = index.alike([word.form for word in asked])
    if alike is None:
        return
    found = np.flatnonzero(alike > LEAST_ALIKE)
    strength = (alike.ravel()[found] - LEAST_ALIKE) / (1 - LEAST_ALIKE)
    order = np.argsort(strength, kind="stable")
    whose, terms = np.divmod(found[order], alike.shape[1])
    lengths = index.postings.spread[terms]
    if int(lengths.sum()) > MOST_POSTINGS:
        least = int(np.searchsorted(-np.cumsum(lengths[::-1])[::-1], -MOST_POSTINGS))
        order, whose, terms = order[least:], whose[least:], terms[least:]
    at, lengths = index.postings.lookup(terms)
    # Of several values for one place the last stays, which is the greatest.
    match[np.repeat(whose, lengths), index.layout.places[index.postings.rows[at]]] = np.repeat(strength[order], lengths)


def _near(index: SpaceIndex, words: int, whose: Ints, places: Ints, counts: Floats) -> Floats:
    layout = index.layout
    found = np.zeros((words, layout.width), np.float32)
    found[whose, places] = counts
    windowed = layout.windowed
    if windowed:
        # Sums over 9 places from sums over 2, 4 and 8.
        inner = found[:, :windowed]
        pairs = inner[:, :-1] + inner[:, 1:]
        fours = pairs[:, :-2] + pairs[:, 2:]
        around = fours[:, :-4] + fours[:, 4:]
        around = around[:, :-1] + inner[:, 2 * REACH :]
        found[:, REACH : windowed - REACH] = around
    rarity = _rarity(np.count_nonzero(found, axis=1), layout.width + USUAL_ROWS)
    found /= found + layout.near_damping
    return (rarity * np.float32(1 + NEAR_K1)) @ found


def _session(index: SpaceIndex, words: int, whose: Ints, rows: Ints, counts: Floats, near: Floats) -> Floats:
    """Shared by the rows of a session; a row that is alone is its own session."""
    layout = index.layout
    count = layout.session_count
    if not count:
        return near[layout.places]
    found = np.bincount(whose * (count + 1) + layout.sessions[rows], counts, minlength=words * (count + 1))
    found = found.reshape(words, count + 1)[:, :count].astype(np.float32)
    rarity = _rarity(np.count_nonzero(found, axis=1), count + USUAL_SESSIONS)
    found /= found + layout.session_damping
    shared = np.append((rarity * np.float32(1 + SESSION_K1)) @ found, np.float32(0))
    if len(layout.order) == len(index):
        return np.asarray(shared[layout.sessions], np.float32)
    return np.where(layout.sessions < count, shared[layout.sessions], near[layout.places])
