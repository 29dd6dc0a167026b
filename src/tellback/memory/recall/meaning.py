"""How near each row's vector is to that of a query, with the row before it and with the nearest of its session."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tellback.memory.recall.grown import Bools, Floats
from tellback.memory.recall.index import HEAD, SpaceIndex

BEFORE_SHARE = 0.7
"""What the meaning of the row before counts beside that of the row itself."""

USUAL_ROWS = 20
USUAL_MEAN = 0.25
USUAL_DEVIATION = 0.11
"""Cosines are judged by their mean and deviation over the space, as if it held so many usual ones besides: a space of
two memories says nothing about what is usual."""

LEAST_DEVIATION = 0.02

WHOLE = 4_096
LOOKS = 192
SAMPLE = 192
HEAD_TELLS = 0.87
"""In spaces of more than `WHOLE` rows, reading all vectors takes longer than all else. There, the first dimensions
alone say which rows could be among the best, about so much of what all of them say, and only `LOOKS` rows are looked at
again. What is usual is told by a `SAMPLE`."""


@dataclass(frozen=True, slots=True)
class Meanings:
    """In deviations from what is usual: the row with the one before it, and the nearest of its session."""

    own: Floats
    session: Floats


def compare(
    index: SpaceIndex, vector: Floats | None, eligible: Bools | None, rest: Floats, weight: float
) -> Meanings | None:
    """Compare vectors; None if there is nothing to compare.

    `rest` is what else counts for each row, and `weight` what a deviation counts: they say which rows matter.
    """
    vectors = index.vectors
    if vector is None or vectors is None or vectors.view.shape[1] != len(vector):
        return None
    known = index.embedded.view
    counted = known if eligible is None else known & eligible
    everywhere = bool(counted.all())
    if len(index) > WHOLE and index.heads is not None and known.all():
        near = _in_two_looks(index, vector, rest if eligible is None else np.where(eligible, rest, -np.inf), weight)
    else:
        near = vectors.times(vector)
        mean, deviation = _usual(near if everywhere else near[counted])
        near -= mean
        near *= 1 / deviation
        if not everywhere:
            near[~known] = 0
    own = near[index.before.view]
    own *= np.float32(BEFORE_SHARE / (1 + BEFORE_SHARE))
    own += np.float32(1 / (1 + BEFORE_SHARE)) * near
    return Meanings(own, _of_sessions(index, near))


def _in_two_looks(index: SpaceIndex, vector: Floats, rest: Floats, weight: float) -> Floats:
    assert index.vectors is not None
    assert index.heads is not None
    near = index.heads.times(vector[:HEAD])
    near -= np.float32(near.sum() / len(near))
    near *= np.float32(HEAD_TELLS / max(math.sqrt(float(near @ near) / len(near)), LEAST_DEVIATION / 4))
    rough = rest + np.float32(weight) * near
    least = np.partition(rough, len(rough) - LOOKS)[len(rough) - LOOKS]
    again = rough >= least
    again[index.before.view[again]] = True
    rows = np.flatnonzero(again)
    vectors = index.vectors.view
    mean, deviation = _usual(vectors[:: max(len(vectors) // SAMPLE, 1)] @ vector)
    near[rows] = (vectors[rows] @ vector - mean) / deviation
    return near


def _usual(near: Floats) -> tuple[np.float32, np.float32]:
    """The mean and the deviation of cosines."""
    size = len(near) + USUAL_ROWS
    mean = (float(near.sum()) + USUAL_ROWS * USUAL_MEAN) / size
    square = (float(near @ near) + USUAL_ROWS * (USUAL_DEVIATION**2 + USUAL_MEAN**2)) / size
    return np.float32(mean), np.float32(math.sqrt(max(square - mean * mean, LEAST_DEVIATION**2)))


def _of_sessions(index: SpaceIndex, near: Floats) -> Floats:
    layout = index.layout
    if not layout.session_count:
        return near
    nearest = np.zeros(layout.session_count + 1, np.float32)
    nearest[:-1] = np.maximum.reduceat(near[layout.order], layout.opens)
    shared = nearest[layout.sessions]
    return shared if len(layout.order) == len(index) else np.where(layout.sessions < layout.session_count, shared, near)
