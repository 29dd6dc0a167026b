"""How near each row's vector is to that of a query, with the row before it and with the nearest of its session."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tellback.memory.recall.grown import Bools, Floats
from tellback.memory.recall.index import PREFIX_DIMENSIONS, SpaceIndex

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
"""In spaces of more than `WHOLE` rows, reading all vectors takes longer than all else. There, the first dimensions
alone say which rows could be among the best, about so much of what all of them say, and only `LOOKS` rows are looked at
again. What is usual is told by a `SAMPLE`."""


@dataclass(frozen=True, slots=True)
class VectorSimilarity:
    """In deviations from what is usual: the row with the one before it, and the nearest of its session."""

    own: Floats
    session: Floats


def compare_vectors(
    index: SpaceIndex, vector: Floats | None, eligible: Bools | None, other_scores: Floats, weight: float
) -> VectorSimilarity | None:
    """Compare vectors; None if there is nothing to compare.

    `rest` is what else counts for each row, and `weight` what a deviation counts: they say which rows matter.
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
