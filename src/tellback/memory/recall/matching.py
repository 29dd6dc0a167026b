"""How well the words of a query are met by each row, by its neighbours, and by its whole session."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tellback.memory.recall.grown import Floats, Ints
from tellback.memory.recall.index import SpaceIndex
from tellback.memory.recall.layout import NEAR_K1, REACH, SESSION_K1
from tellback.memory.recall.words import Word

BEFORE = 0.7
AFTER = 0.3
"""What a word counts in the row before and in the row after. Three rows back it still counts BEFORE to the third: what
answers stands after what it answers."""

CLUSTERED = 0.8
"""Words come up again soon after they did: their windows overlap by so much."""

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
    layout, postings = index.layout, index.postings
    if not asked or not postings.terms:
        return None
    find = postings.terms.get
    numbers = [find(word.term, -1) for word in asked]
    spread = [int(postings.spread[number]) if number >= 0 else 0 for number in numbers]
    if len(asked) > MOST_WORDS:
        # The rarest words that are there; then those that may be like one that is there.
        kept = sorted(sorted(range(len(asked)), key=lambda at: (numbers[at] < 0, spread[at]))[:MOST_WORDS])
        asked = [asked[at] for at in kept]
        numbers, spread = [numbers[at] for at in kept], [spread[at] for at in kept]
    rarity = _rarity(spread, len(index) + USUAL_ROWS)
    scale = np.float32(1 / math.sqrt(max(float(rarity.sum()), 1.0)))

    whose, terms, strength = _alike(index, asked)
    known = [at for at, number in enumerate(numbers) if number >= 0]
    exact = np.array([numbers[at] for at in known], np.int64)
    at, lengths = postings.lookup(np.concatenate((terms, exact)))
    whose = np.repeat(np.concatenate((whose, known)).astype(np.int64), lengths)
    rows = postings.rows[at]
    places = layout.places[rows]
    where = whose * layout.width + places
    first = int(lengths[: len(terms)].sum())

    match = np.zeros((len(asked), layout.width), np.float32)
    # Of several values for one place the last stays, which is the greatest.
    match.ravel()[where[:first]] = np.repeat(strength, lengths[: len(terms)])
    match.ravel()[where[first:]] = 1
    soft = np.asarray((rarity * scale) @ _windowed(match, layout.windowed), np.float32)

    counts = postings.counts[at[first:]]
    found = np.zeros((len(asked), layout.width), np.float32)
    found.ravel()[where[first:]] = counts
    near = _near(index, found, spread, scale)[layout.places]
    session = _session(index, len(asked), whose[first:], rows[first:], counts, near, scale)
    return Matches(soft[layout.places], near, session)


def _rarity(spread: Sequence[int], n: int) -> Floats:
    return np.array([math.log(1 + (max(n - many, 0) + 0.5) / (many + 0.5)) for many in spread], np.float32)


def _spread(found: Floats) -> list[int]:
    # Row by row over truth values: many times faster than counting along an axis.
    return [int(np.count_nonzero(row)) for row in found > 0]


def _alike(index: SpaceIndex, asked: Sequence[Word]) -> tuple[Ints, Ints, Floats]:
    """Words that mean nearly the same as a word of the query: whose, which, and how much, the least first for each."""
    found = index.alike([word.form for word in asked])
    if not found:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, np.zeros(0, np.float32)
    terms = np.concatenate([terms for terms, _ in found])
    strength = np.concatenate([strength for _, strength in found])
    whose = np.repeat(np.arange(len(found)), [len(terms) for terms, _ in found])
    lengths = index.postings.spread[terms]
    if int(lengths.sum()) > MOST_POSTINGS:
        # The strongest of all words, as far as they go; each word's stay in their order.
        order = np.argsort(-strength, kind="stable")
        kept = np.sort(order[np.cumsum(lengths[order]) <= MOST_POSTINGS])
        whose, terms, strength = whose[kept], terms[kept], strength[kept]
    return whose, terms, strength


def _windowed(match: Floats, windowed: int) -> Floats:
    """For each word its best match in a place or, counting less, in the places around it."""
    best = match.copy()
    if windowed:
        spread = best[:, :windowed]
        # One step reaches one row back, and two rows back from there.
        np.maximum(spread[:, 1:], BEFORE * match[:, : windowed - 1], out=spread[:, 1:])
        np.maximum(spread[:, 2:], BEFORE**2 * spread[:, :-2], out=spread[:, 2:])
        np.maximum(spread[:, :-1], AFTER * match[:, 1:windowed], out=spread[:, :-1])
    return best


def _near(index: SpaceIndex, found: Floats, spread: Sequence[int], scale: np.float32) -> Floats:
    layout = index.layout
    windowed = layout.windowed
    if windowed:
        # Sums over 9 places from sums over 2, 4 and 8.
        inner = found[:, :windowed]
        pairs = inner[:, :-1] + inner[:, 1:]
        fours = pairs[:, :-2] + pairs[:, 2:]
        around = fours[:, :-4] + fours[:, 4:]
        found[:, REACH : windowed - REACH] = around[:, :-1] + inner[:, 2 * REACH :]
        # A word counts in about so many windows, which would take as long to count as all the rest.
        width = layout.width
        spread = [round(width * (1 - math.exp(-CLUSTERED * (2 * REACH + 1) * many / width))) for many in spread]
    rarity = _rarity(spread, layout.width + USUAL_ROWS)
    found /= found + layout.near_damping
    return np.asarray((rarity * (scale * np.float32(1 + NEAR_K1))) @ found, np.float32)


def _session(
    index: SpaceIndex, words: int, whose: Ints, rows: Ints, counts: Floats, near: Floats, scale: np.float32
) -> Floats:
    """Shared by the rows of a session; a row that is alone is its own session."""
    layout = index.layout
    count = layout.session_count
    if not count:
        return near
    totals = np.bincount(whose * (count + 1) + layout.sessions[rows], counts, minlength=words * (count + 1))
    found = totals.astype(np.float32).reshape(words, count + 1)
    found[:, count] = 0
    rarity = _rarity(_spread(found), count + USUAL_SESSIONS)
    found /= found + layout.session_damping
    shared = np.asarray((rarity * (scale * np.float32(1 + SESSION_K1))) @ found, np.float32)[layout.sessions]
    return shared if len(layout.order) == len(index) else np.where(layout.sessions < count, shared, near)
