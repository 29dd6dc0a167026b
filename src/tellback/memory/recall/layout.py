"""Where rows stand beside their neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tellback.memory.recall.grown import Floats, Ints, whole

REACH = 4
"""How far a row looks to both sides."""

NEAR_K1, NEAR_B = 0.9, 0.4
SESSION_K1, SESSION_B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows laid out session after session, with a gap of `REACH` places around each.

    So a window over neighbours is a shift of the whole array, and never reaches into another session. Rows that are
    alone in their session stand from place `windowed` on, without gaps. `sessions` numbers the sessions of two rows and
    more; a row that is alone has the number after the last. `near_damping` and `session_damping` are what BM25 adds to
    the counts of a window and of a session, by their lengths.
    """

    places: Ints
    windowed: int
    width: int
    sessions: Ints
    session_count: int
    order: Ints
    opens: Ints
    near_damping: Floats
    session_damping: Floats

    @property
    def nbytes(self) -> int:
        """The memory it holds."""
        arrays = (self.places, self.sessions, self.order, self.opens)
        return sum(array.nbytes for array in arrays) + self.near_damping.nbytes + self.session_damping.nbytes


def lay_out(sessions: Ints, sizes: Floats) -> Layout:
    """Place rows by their sessions, in the order of rows; `sizes` are the rows' lengths in words."""
    n = len(sessions)
    members = np.bincount(sessions)
    alone = members[sessions] == 1
    order = np.argsort(sessions, kind="stable")
    order = order[~alone[order]]
    of_ordered = sessions[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = of_ordered[1:] != of_ordered[:-1]
    numbers = np.cumsum(begins) - 1
    count = int(begins.sum())
    places = np.empty(n, np.int64)
    places[order] = np.arange(len(order)) + REACH * (numbers + 1)
    windowed = len(order) + REACH * (count + 1) if count else 0
    lonely = np.flatnonzero(alone)
    places[lonely] = windowed + np.arange(len(lonely))
    numbered = np.full(n, count, np.int64)
    numbered[order] = numbers
    width = whole(windowed + len(lonely))
    placed = np.zeros(width, np.float32)
    placed[places] = sizes
    around = placed.copy()
    for step in range(1, REACH + 1):
        around[step:windowed] += placed[: max(windowed - step, 0)]
        around[: max(windowed - step, 0)] += placed[step:windowed]
    lengths = np.bincount(numbered, sizes, minlength=count + 1).astype(np.float32)
    return Layout(
        places=places,
        windowed=windowed,
        width=width,
        sessions=numbered,
        session_count=count,
        order=order,
        opens=np.flatnonzero(begins),
        near_damping=_damping(around, float(around[places].mean()), NEAR_K1, NEAR_B),
        session_damping=_damping(lengths, float(lengths[:count].mean()) if count else 1.0, SESSION_K1, SESSION_B),
    )


def _damping(lengths: Floats, mean: float, k1: float, b: float) -> Floats:
    return np.asarray(k1 * (1 - b + b * lengths / max(mean, 1.0)), np.float32)
