"""Arrays that grow at their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Grown:
    """An array that grows at its end, at a constant cost a row.

    >>> rows = Grown(np.int64)
    >>> rows.extend([3, 4])
    >>> rows.view.tolist()
    [3, 4]
    """

    __slots__ = ("_data", "size")

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._data: npt.NDArray[Any] = np.zeros((16,) if width is None else (16, width), dtype)
        self.size = 0

    def extend(self, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        """Add rows."""
        wanted = self.size + len(values)
        if wanted > len(self._data):
            grown = np.zeros((max(wanted, 2 * len(self._data)), *self._data.shape[1:]), self._data.dtype)
            grown[: self.size] = self._data[: self.size]
            self._data = grown
        if len(values):
            self._data[self.size : wanted] = values
        self.size = wanted

    @property
    def view(self) -> npt.NDArray[Any]:
        """The rows so far; good until the next are added."""
        return self._data[: self.size]

    @property
    def nbytes(self) -> int:
        """The memory it holds."""
        return int(self._data.nbytes)
