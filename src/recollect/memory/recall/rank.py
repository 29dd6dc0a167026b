"""How relevant each text of a space is to a query: a weighted sum of a few signals, in one pass over arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recollect.memory.recall import hints
from recollect.memory.recall.index import REACH, Bools, Floats, SpaceIndex
from recollect.memory.recall.words import NUMBER, TIME, Word, all_words, name_words, words

DAY = 86_400_000_000.0
MOST_WORDS = 24


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for: the words, when it is asked, its vector by the embedder of the texts, and the times it speaks of."""

    text: str
    now: int
    vector: npt.NDArray[np.float32] | None = None
    reading: Any = None


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal counts."""

    same_words: float = 0.45
    meaning: float = 0.4
    nearby: float = 0.30
    conversation: float = 0.25
    speaker: float = 2.3
    first_speaker: float = 1.5
    named: float = 1.0
    date: float = 2.7
    time: float = 1.6
    number: float = 1.2
    place: float = 1.3
    name: float = 1.1
    any_name: float = 0.4
    answer: float = 0.6
    question: float = -0.5
    length: float = 0.2
    opening: float = 0.5
    intercept: float = -2.0


DEFAULT = Weights()


@dataclass(frozen=True, slots=True)
class Relevance:
    """How relevant each row is, as log-odds; what each part added to it; and the names the query mentions."""

    total: Floats
    parts: Mapping[str, npt.NDArray[np.float32]]
    names: tuple[str, ...]


BEFORE = (0.7, 0.4, 0.3, 0.2)
AFTER = (0.5, 0.3, 0.2, 0.1)
LEAST_ALIKE = 0.35


def relevance(index: SpaceIndex, query: Query, eligible: Bools | None = None, weights: Weights = DEFAULT) -> Relevance:
    """How relevant each row of an index is to a query.

    Rows that are not `eligible` hold anything; they do not count in what is compared across rows.
    """
    index.refresh()
    n = len(index)
    if n == 0:
        return Relevance(np.zeros(0, np.float32), {}, ())
    raw, names = signals(index, query)

    def z(values: Floats) -> Floats:
        kept = values if eligible is None else values[eligible]
        if not kept.size:
            return np.zeros(n, np.float32)
        return np.asarray((values - kept.mean()) / max(float(kept.std()), 0.05), np.float32)

    w = weights
    parts = {
        "same words": w.same_words * z(raw["soft"]),
        "meaning": w.meaning * z(raw["dense"]),
        "words nearby": w.nearby * z(raw["near"]),
        "same conversation": w.conversation * z(raw["session"]),
        "speaker": w.speaker * raw["speaker"] + w.first_speaker * raw["first_speaker"] + w.named * raw["named"],
        "date": w.date * raw["date"],
        "kind of question": w.time * raw["when"]
        + w.number * raw["count"]
        + w.place * raw["where"]
        + w.name * raw["who"]
        + w.any_name * raw["name"]
        + w.answer * raw["answer"]
        + w.question * raw["question"],
        "length": w.length * z(raw["length"]),
        "opening": w.opening * raw["opening"],
        "base": np.full(n, w.intercept, np.float32),
    }
    total = np.zeros(n, np.float32)
    for part in parts.values():
        total += part
    return Relevance(total, parts, names)


def signals(index: SpaceIndex, query: Query) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """Each signal before it is weighed."""
    n = len(index)
    asks = hints.read_question(query.text)
    named, taken = _people(index, query.text)
    asked = _query_words(query.text, taken)
    raw: dict[str, Floats] = {}
    raw |= _word_signals(index, asked)
    raw["dense"] = _dense(index, query)
    speakers = index.speakers.view
    raw["speaker"] = raw["first_speaker"] = np.zeros(n, np.float32)
    if len(named) == 1:
        raw["speaker"] = (speakers == named[0]).astype(np.float32)
    elif len(named) > 1 and not asks.both:
        raw["first_speaker"] = (speakers == named[0]).astype(np.float32)
    raw["named"], entity_names = _entities(index, query.text)
    raw["date"] = _dates(index, query)
    signs = index.signs.view

    def sign(bit: int, wanted: bool = True) -> Floats:
        return ((signs & bit) != 0).astype(np.float32) if wanted else np.zeros(n, np.float32)

    raw["when"] = sign(TIME, asks.when)
    raw["count"] = sign(NUMBER, asks.count)
    raw["where"] = sign(hints.PLACE, asks.where)
    raw["who"] = sign(hints.NAMED, asks.who)
    raw["name"] = sign(hints.NAMED)
    raw["question"] = sign(hints.QUESTION)
    previous = index.previous
    raw["answer"] = np.where(previous >= 0, raw["question"][previous], 0).astype(np.float32)
    raw["length"] = np.log1p(index.lengths.view)
    raw["opening"] = index.first.view.astype(np.float32)
    names = tuple(index.speaker_names[number] for number in named)
    return raw, names + tuple(name for name in entity_names if name not in names)


def _people(index: SpaceIndex, text: str) -> tuple[list[int], set[str]]:
    """The speakers a query names, in its order, and the words it names them by."""
    by_word: dict[str, list[int]] = {}
    for key, number in index.speaker_ids.items():
        for word in key:
            by_word.setdefault(word, []).append(number)
    named: list[int] = []
    taken: set[str] = set()
    if by_word:
        for token in name_words(text):
            word = token if token in by_word else token.removesuffix("s")
            if word in by_word:
                taken.add(token)
                named += [number for number in by_word[word] if number not in named]
    return named, taken


def _entities(index: SpaceIndex, text: str) -> tuple[Floats, list[str]]:
    found = np.zeros(len(index), np.float32)
    names: list[str] = []
    if index.entity_rows:
        spoken = set(name_words(text))
        for key, rows in index.entity_rows.items():
            if spoken.issuperset(key):
                found[rows] = 1
                names.append(index.entity_names[key])
    return found, names


def _query_words(text: str, taken: set[str]) -> list[Word]:
    found = [word for word in words(text) if word.form not in taken and word.form + "s" not in taken]
    if not found and not taken:
        found = all_words(text)
    return list({word.term: word for word in found}.values())


def _word_signals(index: SpaceIndex, asked: list[Word]) -> dict[str, Floats]:
    n = len(index)
    zero = np.zeros(n, np.float32)
    if not asked:
        return {"soft": zero, "near": zero, "session": zero, "own": zero}
    numbers = np.array([index.vocabulary.get(word.term, -1) for word in asked])
    spread = np.where(numbers >= 0, index.spread[numbers], 0)
    idf = np.log(1 + (n - spread + 0.5) / (spread + 0.5)).astype(np.float32)
    if len(asked) > MOST_WORDS:
        kept = np.sort(np.argsort(-idf * (numbers >= 0), kind="stable")[:MOST_WORDS])
        asked = [asked[at] for at in kept]
        numbers, idf = numbers[kept], idf[kept]
    width = index.width
    q = len(asked)
    alike = np.zeros((q, len(index.vocabulary)), np.float32)
    if index.word_vectors is not None:
        vectors = index._words.words([word.form for word in asked])  # type: ignore[union-attr]
        alike = np.maximum(0, (vectors @ index.word_vectors.view.T - LEAST_ALIKE) / (1 - LEAST_ALIKE))
    for at, number in enumerate(numbers):
        if number >= 0:
            alike[at, number] = 1
    match = np.zeros((q, width + 2 * REACH), np.float32)
    whose, which = np.nonzero(alike)
    strength = alike[whose, which]
    order = np.argsort(strength, kind="stable")
    whose, which, strength = whose[order], which[order], strength[order]
    lengths = index.spread[which]
    flat = np.repeat(index.starts[which] - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
    rows = index.postings[flat]
    # The last of several values for one place stays, which is the greatest.
    match[np.repeat(whose, lengths), index.places[rows] + REACH] = np.repeat(strength, lengths)
    best = match[:, REACH : REACH + width].copy()
    w = index.windowed
    for step in range(1, REACH + 1):
        np.maximum(best[:, :w], BEFORE[step - 1] * match[:, REACH - step : REACH - step + w], out=best[:, :w])
        np.maximum(best[:, :w], AFTER[step - 1] * match[:, REACH + step : REACH + step + w], out=best[:, :w])
    soft = idf @ best
    counts = np.zeros((q, width + 2 * REACH), np.float32)
    by_session = np.zeros((q, len(index.session_sizes)), np.float32)
    for at, number in enumerate(numbers):
        if number >= 0:
            span = slice(index.starts[number], index.starts[number + 1])
            rows = index.postings[span]
            counts[at, index.places[rows] + REACH] = index.counts[span]
            np.add.at(by_session[at], index.session_of[rows], index.counts[span])
    sizes = np.zeros(width + 2 * REACH, np.float32)
    sizes[REACH : REACH + width] = index.placed_sizes
    near = counts[:, REACH : REACH + width].copy()
    near_sizes = index.placed_sizes.copy()
    for step in range(1, REACH + 1):
        for way in (-step, step):
            near[:, :w] += counts[:, REACH + way : REACH + way + w]
            near_sizes[:w] += sizes[REACH + way : REACH + way + w]
    own = idf @ _saturated(
        counts[:, REACH : REACH + width], index.placed_sizes, 0.9, 0.4, float(index.sizes.view.mean())
    )
    near_idf = _idf(near, n)
    near_score = near_idf @ _saturated(near, near_sizes, 0.9, 0.4, float(near_sizes[index.places].mean()))
    session_idf = _idf(by_session, by_session.shape[1])
    session = session_idf @ _saturated(by_session, index.session_sizes, 1.2, 0.75, float(index.session_sizes.mean()))
    places = index.places
    return {"soft": soft[places], "near": near_score[places], "session": session[index.session_of], "own": own[places]}


def _idf(counts: Floats, n: int) -> Floats:
    spread = np.count_nonzero(counts, axis=1)
    return np.log(1 + (np.maximum(n - spread, 0) + 0.5) / (spread + 0.5)).astype(np.float32)


def _saturated(counts: Floats, sizes: Floats, k1: float, b: float, mean: float) -> Floats:
    return counts * (k1 + 1) / (counts + k1 * (1 - b + b * sizes / max(mean, 1e-6)))


def _dense(index: SpaceIndex, query: Query) -> Floats:
    n = len(index)
    if query.vector is None or index.vectors is None or index.vectors.view.shape[1] != len(query.vector):
        return np.zeros(n, np.float32)
    vectors = index.vectors.view
    own = vectors @ query.vector
    previous = index.previous
    follows = previous >= 0
    overlap = np.where(follows, np.einsum("ij,ij->i", vectors, vectors[previous]), 0)
    scale = 1 / np.sqrt(1 + np.where(follows, PREVIOUS**2 + 2 * PREVIOUS * overlap, 0))
    return np.asarray((own + np.where(follows, PREVIOUS * own[previous], 0)) * scale, np.float32)


PREVIOUS = 0.7


def _dates(index: SpaceIndex, query: Query) -> Floats:
    spans = () if query.reading is None else query.reading.spans
    best = np.zeros(len(index), np.float32)
    moments = index.moments.view
    for span in spans:
        gap = np.maximum(np.maximum(span.start - moments, moments - span.end), 0) / DAY
        np.maximum(best, np.exp(-gap / 10), out=best)
    return best
