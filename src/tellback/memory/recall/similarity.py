"""Lexical and vector similarity of each row of an index to a query, including its neighbours and its session."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tellback.memory.recall.index import PREFIX_DIMENSIONS, SESSION_K1, WINDOW_K1, WINDOW_RADIUS, SpaceIndex
from tellback.memory.recall.postings import Bools, Floats, Ints
from tellback.memory.recall.tokenizer import Word

PREVIOUS_ROW_WEIGHT = 0.7
NEXT_ROW_WEIGHT = 0.3
"""What a word counts in the row before and in the row after. Three rows back it still counts
`PREVIOUS_ROW_WEIGHT` to the third: what answers stands after what it answers."""

WINDOW_OVERLAP = 0.8
"""Words come up again soon after they did: their windows overlap by so much."""

MAX_QUERY_WORDS = 16
MAX_SIMILAR_POSTINGS = 40_000
PRIOR_ROWS = 300
PRIOR_SESSIONS = 10
"""How rare a word is, is counted as if a space held as many others besides: in a space of three memories nothing is
common, and a match still says something."""

PREVIOUS_VECTOR_WEIGHT = 0.7
"""What the meaning of the row before counts beside that of the row itself."""

PRIOR_COSINES = 20
PRIOR_MEAN = 0.25
PRIOR_DEVIATION = 0.11
"""Cosines are judged by their mean and deviation over the space, as if it held so many usual ones besides: a space of
two memories says nothing about what is usual."""

MIN_DEVIATION = 0.02

MAX_FULL_SCAN_ROWS = 4_096
RESCORED_ROWS = 192
SAMPLE_ROWS = 192
PREFIX_CORRELATION = 0.87
"""In spaces of more than `MAX_FULL_SCAN_ROWS` rows, reading all vectors takes longer than all else. There, the first
dimensions alone say which rows could be among the best, about so much of what all of them say, and only `RESCORED_ROWS`
rows are looked at again. What is usual is told by a sample of `SAMPLE_ROWS`."""


@dataclass(frozen=True, slots=True)
class WordMatches:
    """The query's words against every row, by the words' rarity: the best match of each word in the row or near it,
    BM25 over the row and its neighbours, and BM25 over its session. All are on one scale for any query."""

    soft: Floats
    window: Floats
    session: Floats


def match_words(index: SpaceIndex, query_words: Sequence[Word]) -> WordMatches | None:
    """Match the words of a query; None if there is nothing to match."""
    layout, postings = index.layout, index.postings
    if not query_words or not postings.terms:
        return None
    find_term = postings.terms.get
    term_numbers = [find_term(word.term, -1) for word in query_words]
    frequencies = [int(postings.document_frequencies[number]) if number >= 0 else 0 for number in term_numbers]
    if len(query_words) > MAX_QUERY_WORDS:
        # The rarest words that are there; then those that may be like one that is there.
        selected = sorted(
            sorted(range(len(query_words)), key=lambda at: (term_numbers[at] < 0, frequencies[at]))[:MAX_QUERY_WORDS]
        )
        query_words = [query_words[at] for at in selected]
        term_numbers, frequencies = [term_numbers[at] for at in selected], [frequencies[at] for at in selected]
    idf = _inverse_document_frequency(frequencies, len(index) + PRIOR_ROWS)
    scale = np.float32(1 / math.sqrt(max(float(idf.sum()), 1.0)))

    word_indices, similar_terms, strengths = _find_similar_words(index, query_words)
    known_words = [at for at, number in enumerate(term_numbers) if number >= 0]
    exact_terms = np.array([term_numbers[at] for at in known_words], np.int64)
    at, lengths = postings.lookup(np.concatenate((similar_terms, exact_terms)))
    word_indices = np.repeat(np.concatenate((word_indices, known_words)).astype(np.int64), lengths)
    rows = postings.rows[at]
    positions = layout.positions[rows]
    cells = word_indices * layout.width + positions
    similar_count = int(lengths[: len(similar_terms)].sum())

    best_match = np.zeros((len(query_words), layout.width), np.float32)
    # Of several values for one place the last stays, which is the greatest.
    best_match.ravel()[cells[:similar_count]] = np.repeat(strengths, lengths[: len(similar_terms)])
    best_match.ravel()[cells[similar_count:]] = 1
    soft = np.asarray((idf * scale) @ _spread_to_neighbours(best_match, layout.windowed_width), np.float32)

    counts = postings.counts[at[similar_count:]]
    term_counts = np.zeros((len(query_words), layout.width), np.float32)
    term_counts.ravel()[cells[similar_count:]] = counts
    window = _window_bm25(index, term_counts, frequencies, scale)[layout.positions]
    session = _session_bm25(
        index, len(query_words), word_indices[similar_count:], rows[similar_count:], counts, window, scale
    )
    return WordMatches(soft[layout.positions], window, session)


def _inverse_document_frequency(frequencies: Sequence[int], total: int) -> Floats:
    return np.array(
        [math.log(1 + (max(total - frequency, 0) + 0.5) / (frequency + 0.5)) for frequency in frequencies], np.float32
    )


def _count_documents(term_counts: Floats) -> list[int]:
    # Row by row over truth values: many times faster than counting along an axis.
    return [int(np.count_nonzero(row)) for row in term_counts > 0]


def _find_similar_words(index: SpaceIndex, query_words: Sequence[Word]) -> tuple[Ints, Ints, Floats]:
    """Words that mean nearly the same as a word of the query: whose, which, and how much, the least first for each."""
    similar = index.similar_terms([word.form for word in query_words])
    if not similar:
        empty = np.zeros(0, np.int64)
        return empty, empty, np.zeros(0, np.float32)
    terms = np.concatenate([terms for terms, _ in similar])
    strengths = np.concatenate([strengths for _, strengths in similar])
    word_indices = np.repeat(np.arange(len(similar)), [len(terms) for terms, _ in similar])
    lengths = index.postings.document_frequencies[terms]
    if int(lengths.sum()) > MAX_SIMILAR_POSTINGS:
        # The strongest of all words, as far as they go; each word's stay in their order.
        order = np.argsort(-strengths, kind="stable")
        selected = np.sort(order[np.cumsum(lengths[order]) <= MAX_SIMILAR_POSTINGS])
        word_indices, terms, strengths = word_indices[selected], terms[selected], strengths[selected]
    return word_indices, terms, strengths


def _spread_to_neighbours(match: Floats, windowed_width: int) -> Floats:
    """For each word its best match in a place or, counting less, in the places around it."""
    best = match.copy()
    if windowed_width:
        inside = best[:, :windowed_width]
        # One step reaches one row back, and two rows back from there.
        np.maximum(inside[:, 1:], PREVIOUS_ROW_WEIGHT * match[:, : windowed_width - 1], out=inside[:, 1:])
        np.maximum(inside[:, 2:], PREVIOUS_ROW_WEIGHT**2 * inside[:, :-2], out=inside[:, 2:])
        np.maximum(inside[:, :-1], NEXT_ROW_WEIGHT * match[:, 1:windowed_width], out=inside[:, :-1])
    return best


def _window_bm25(index: SpaceIndex, term_counts: Floats, frequencies: Sequence[int], scale: np.float32) -> Floats:
    layout = index.layout
    windowed_width = layout.windowed_width
    if windowed_width:
        # Sums over 9 places from sums over 2, 4 and 8.
        inner = term_counts[:, :windowed_width]
        pairs = inner[:, :-1] + inner[:, 1:]
        fours = pairs[:, :-2] + pairs[:, 2:]
        eights = fours[:, :-4] + fours[:, 4:]
        term_counts[:, WINDOW_RADIUS : windowed_width - WINDOW_RADIUS] = eights[:, :-1] + inner[:, 2 * WINDOW_RADIUS :]
        # A word counts in about so many windows, which would take as long to count as all the rest.
        width = layout.width
        frequencies = [
            round(width * (1 - math.exp(-WINDOW_OVERLAP * (2 * WINDOW_RADIUS + 1) * frequency / width)))
            for frequency in frequencies
        ]
    idf = _inverse_document_frequency(frequencies, layout.width + PRIOR_ROWS)
    term_counts /= term_counts + layout.window_damping
    return np.asarray((idf * (scale * np.float32(1 + WINDOW_K1))) @ term_counts, np.float32)


def _session_bm25(
    index: SpaceIndex,
    word_count: int,
    word_indices: Ints,
    rows: Ints,
    counts: Floats,
    window_scores: Floats,
    scale: np.float32,
) -> Floats:
    """Shared by the rows of a session; a row that is alone is its own session."""
    layout = index.layout
    session_count = layout.session_count
    if not session_count:
        return window_scores
    totals = np.bincount(
        word_indices * (session_count + 1) + layout.sessions[rows], counts, minlength=word_count * (session_count + 1)
    )
    session_counts = totals.astype(np.float32).reshape(word_count, session_count + 1)
    session_counts[:, session_count] = 0
    idf = _inverse_document_frequency(_count_documents(session_counts), session_count + PRIOR_SESSIONS)
    session_counts /= session_counts + layout.session_damping
    scores = np.asarray((idf * (scale * np.float32(1 + SESSION_K1))) @ session_counts, np.float32)[layout.sessions]
    return (
        scores if len(layout.order) == len(index) else np.where(layout.sessions < session_count, scores, window_scores)
    )


@dataclass(frozen=True, slots=True)
class VectorSimilarity:
    """In deviations from what is usual: the row with the one before it, and the nearest of its session."""

    own: Floats
    session: Floats


def compare_vectors(
    index: SpaceIndex, vector: Floats | None, eligible: Bools | None, other_scores: Floats, weight: float
) -> VectorSimilarity | None:
    """Compare vectors; None if there is nothing to compare.

    `other_scores` is what else counts for each row, and `weight` what a deviation counts: they say which rows matter.
    """
    vectors = index.vectors
    if vector is None or vectors is None or vectors.view.shape[1] != len(vector):
        return None
    has_vector = index.has_vector.view
    measured = has_vector if eligible is None else has_vector & eligible
    all_measured = bool(measured.all())
    if len(index) > MAX_FULL_SCAN_ROWS and index.vector_prefixes is not None and has_vector.all():
        similarity = _two_pass_similarity(
            index, vector, other_scores if eligible is None else np.where(eligible, other_scores, -np.inf), weight
        )
    else:
        similarity = vectors.dot(vector)
        mean, deviation = _mean_and_deviation(similarity if all_measured else similarity[measured])
        similarity -= mean
        similarity *= 1 / deviation
        if not all_measured:
            similarity[~has_vector] = 0
    own = similarity[index.previous_rows.view]
    own *= np.float32(PREVIOUS_VECTOR_WEIGHT / (1 + PREVIOUS_VECTOR_WEIGHT))
    own += np.float32(1 / (1 + PREVIOUS_VECTOR_WEIGHT)) * similarity
    return VectorSimilarity(own, _session_maximum(index, similarity))


def _two_pass_similarity(index: SpaceIndex, vector: Floats, other_scores: Floats, weight: float) -> Floats:
    assert index.vectors is not None
    assert index.vector_prefixes is not None
    similarity = index.vector_prefixes.dot(vector[:PREFIX_DIMENSIONS])
    similarity -= np.float32(similarity.sum() / len(similarity))
    similarity *= np.float32(
        PREFIX_CORRELATION / max(math.sqrt(float(similarity @ similarity) / len(similarity)), MIN_DEVIATION / 4)
    )
    estimates = other_scores + np.float32(weight) * similarity
    threshold = np.partition(estimates, len(estimates) - RESCORED_ROWS)[len(estimates) - RESCORED_ROWS]
    selected = estimates >= threshold
    selected[index.previous_rows.view[selected]] = True
    rows = np.flatnonzero(selected)
    vectors = index.vectors.view
    mean, deviation = _mean_and_deviation(vectors[:: max(len(vectors) // SAMPLE_ROWS, 1)] @ vector)
    similarity[rows] = (vectors[rows] @ vector - mean) / deviation
    return similarity


def _mean_and_deviation(cosines: Floats) -> tuple[np.float32, np.float32]:
    """The mean and the deviation of cosines."""
    size = len(cosines) + PRIOR_COSINES
    mean = (float(cosines.sum()) + PRIOR_COSINES * PRIOR_MEAN) / size
    square = (float(cosines @ cosines) + PRIOR_COSINES * (PRIOR_DEVIATION**2 + PRIOR_MEAN**2)) / size
    return np.float32(mean), np.float32(math.sqrt(max(square - mean * mean, MIN_DEVIATION**2)))


def _session_maximum(index: SpaceIndex, similarity: Floats) -> Floats:
    layout = index.layout
    if not layout.session_count:
        return similarity
    maxima = np.zeros(layout.session_count + 1, np.float32)
    maxima[:-1] = np.maximum.reduceat(similarity[layout.order], layout.session_starts)
    scores = maxima[layout.sessions]
    return (
        scores
        if len(layout.order) == len(index)
        else np.where(layout.sessions < layout.session_count, scores, similarity)
    )
