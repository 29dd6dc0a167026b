"""Where rows stand beside their neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tellback.memory.recall.grown import Floats, Ints, round_up_to_block

WINDOW_RADIUS = 4
"""How far a row looks to both sides."""

WINDOW_K1, WINDOW_B = 0.9, 0.4
SESSION_K1, SESSION_B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class SessionLayout:
    """The rows laid out session after session, with a gap of `REACH` places around each.

    So a window over neighbours is a shift of the whole array, and never reaches into another session. Rows that are
    alone in their session stand from place `windowed` on, without gaps. `sessions` numbers the sessions of two rows and
    more; a row that is alone has the number after the last. `near_damping` and `session_damping` are what BM25 adds to
    the counts of a window and of a session, by their lengths.
    """

    positions: Ints
    windowed_width: int
    width: int
    sessions: Ints
    session_count: int
    order: Ints
    session_starts: Ints
    window_damping: Floats
    session_damping: Floats

    @property
    def nbytes(self) -> int:
        """The memory it holds."""
        arrays = (self.positions, self.sessions, self.order, self.session_starts)
        return sum(array.nbytes for array in arrays) + self.window_damping.nbytes + self.session_damping.nbytes


def build_layout(sessions: Ints, sizes: Floats) -> SessionLayout:
    """Place rows by their sessions, in the order of rows; `sizes` are the rows' lengths in words."""
    row_count = len(sessions)
    session_sizes = np.bincount(sessions)
    is_single = session_sizes[sessions] == 1
    order = np.argsort(sessions, kind="stable")
    order = order[~is_single[order]]
    ordered_sessions = sessions[order]
    is_start = np.ones(len(order), np.bool_)
    is_start[1:] = ordered_sessions[1:] != ordered_sessions[:-1]
    session_numbers = np.cumsum(is_start) - 1
    session_count = int(is_start.sum())
    positions = np.empty(row_count, np.int64)
    positions[order] = np.arange(len(order)) + WINDOW_RADIUS * (session_numbers + 1)
    windowed_width = len(order) + WINDOW_RADIUS * (session_count + 1) if session_count else 0
    singles = np.flatnonzero(is_single)
    positions[singles] = windowed_width + np.arange(len(singles))
    session_of_row = np.full(row_count, session_count, np.int64)
    session_of_row[order] = session_numbers
    width = round_up_to_block(windowed_width + len(singles))
    placed_sizes = np.zeros(width, np.float32)
    placed_sizes[positions] = sizes
    window_sizes = placed_sizes.copy()
    for step in range(1, WINDOW_RADIUS + 1):
        window_sizes[step:windowed_width] += placed_sizes[: max(windowed_width - step, 0)]
        window_sizes[: max(windowed_width - step, 0)] += placed_sizes[step:windowed_width]
    lengths = np.bincount(session_of_row, sizes, minlength=session_count + 1).astype(np.float32)
    return SessionLayout(
        positions=positions,
        windowed_width=windowed_width,
        width=width,
        sessions=session_of_row,
        session_count=session_count,
        order=order,
        session_starts=np.flatnonzero(is_start),
        window_damping=_bm25_damping(window_sizes, float(window_sizes[positions].mean()), WINDOW_K1, WINDOW_B),
        session_damping=_bm25_damping(
            lengths, float(lengths[:session_count].mean()) if session_count else 1.0, SESSION_K1, SESSION_B
        ),
    )


def _bm25_damping(lengths: Floats, mean: float, k1: float, b: float) -> Floats:
    return np.asarray(k1 * (1 - b + b * lengths / max(mean, 1.0)), np.float32)
