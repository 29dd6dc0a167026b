"""Array types that all ranking modules share, and an array that grows at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


BLOCK_SIZE = 16


def round_up_to_block(size: int) -> int:
    """A size up to the next multiple of 16.

    What is left over of an array is multiplied in other steps than the rest of it, and equal rows would not be quite
    equal any more.
    """
    return -(-size // BLOCK_SIZE) * BLOCK_SIZE


class GrowableArray:
    """An array that grows at its end, at a constant cost a row.

    >>> rows = GrowableArray(np.int64)
    >>> rows.extend([3, 4])
    >>> rows.view.tolist()
    [3, 4]
    """

    __slots__ = ("_data", "size")

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._data: npt.NDArray[Any] = np.zeros((BLOCK_SIZE,) if width is None else (BLOCK_SIZE, width), dtype)
        self.size = 0

    def extend(self, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        """Add rows."""
        new_size = self.size + len(values)
        if new_size > len(self._data):
            larger = np.zeros(
                (round_up_to_block(max(new_size, 2 * len(self._data))), *self._data.shape[1:]), self._data.dtype
            )
            larger[: self.size] = self._data[: self.size]
            self._data = larger
        if len(values):
            self._data[self.size : new_size] = values
        self.size = new_size

    @property
    def view(self) -> npt.NDArray[Any]:
        """The rows so far; good until the next are added."""
        return self._data[: self.size]

    def dot(self, vector: Floats) -> Floats:
        """The product of each row with a vector; equal rows give equal products."""
        product: Floats = (self._data[: round_up_to_block(self.size)] @ vector)[: self.size]
        return product

    @property
    def nbytes(self) -> int:
        """The memory it holds."""
        return int(self._data.nbytes)
