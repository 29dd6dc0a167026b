"""Validation and normalization that all embedders share: texts in, unit vectors out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tellback.errors import EmbeddingError, InvalidArgumentError

Vectors = NDArray[np.float32]

SURROGATES = re.compile(r"[\ud800-\udfff]")
"""Halves of characters, which no tokenizer and no API takes."""


def validate_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list; a lone text would be taken letter by letter, so it is refused."""
    if isinstance(texts, str):
        raise InvalidArgumentError("embed takes several texts: pass a list, such as [text].")
    result = list(texts)
    for text in result:
        if not isinstance(text, str):
            raise InvalidArgumentError(f"Only texts can be embedded, not {text!r:.80}.")
    return result


def normalize_rows(rows: Vectors) -> Vectors:
    """The rows brought to length 1, in place; a row of zeros stays one."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths[lengths == 0] = 1
    rows /= lengths[:, None]
    return rows


def to_unit_vectors(rows: Any, count: int, source: str) -> Vectors:
    """What an embedder outside our control gave, as `count` unit vectors; raises `EmbeddingError` for anything else."""
    if hasattr(rows, "__array__"):  # tensors of other libraries too
        rows = np.atleast_1d(np.asarray(rows))
    elif not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        raise EmbeddingError(f"{source} gave {rows!r:.80}, not one vector for each text.")
    if len(rows) != count:
        raise EmbeddingError(f"{source} gave {len(rows)} vectors for {count} texts.")
    try:
        # A copy, even of an array: it is normalised in place, and belongs to whoever gave it.
        wide = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise EmbeddingError(f"{source} gave vectors of unequal lengths, or that are not numbers: {error}") from error
    if count == 0:
        return np.zeros((0, wide.shape[1] if wide.ndim == 2 else 0), dtype=np.float32)
    if wide.ndim != 2 or wide.shape[1] == 0:
        raise EmbeddingError(f"{source} gave values of shape {wide.shape}, not one vector for each text.")
    if not np.isfinite(wide).all():
        raise EmbeddingError(f"{source} gave vectors with values that are not finite numbers.")
    largest = np.abs(wide).max(axis=1, keepdims=True)
    largest[largest == 0] = 1
    wide /= largest  # so that no square overflows or vanishes
    return normalize_rows(wide.astype(np.float32))


def validate_vectors(rows: Any, count: int, source: str) -> Vectors:
    """What any embedder gave, as `to_unit_vectors` makes it; what is so already stays as it is."""
    if isinstance(rows, np.ndarray) and rows.dtype == np.float32 and rows.ndim == 2 and len(rows) == count > 0:
        squares = np.einsum("ij,ij->i", rows, rows).tolist()
        # That of a row with a value that is not finite is neither, so what passes is finite.
        is_valid = rows.shape[1] > 0 and all(abs(square - 1) < 1e-3 or square == 0 for square in squares)
        if is_valid:
            return rows
    return to_unit_vectors(rows, count, source)
