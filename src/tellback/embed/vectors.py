"""Validation of texts and vectors, shared by all embedders, and `FunctionEmbedder`."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tellback.errors import ConfigurationError, EmbeddingError, InvalidArgumentError, TellbackError

Vectors = NDArray[np.float32]

SURROGATES = re.compile(r"[\ud800-\udfff]")
"""Unpaired surrogates, which tokenizers and APIs reject."""


def validate_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts as a list. A single str is rejected, since it would be read as a list of letters."""
    if isinstance(texts, str):
        raise InvalidArgumentError("texts must be a list of texts, got a str: pass [text].")
    result = list(texts)
    for text in result:
        if not isinstance(text, str):
            raise InvalidArgumentError(f"texts must contain only str, got {text!r:.80}.")
    return result


def normalize_rows(rows: Vectors) -> Vectors:
    """Normalise the rows to length 1 in place; a row of zeros stays unchanged."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths[lengths == 0] = 1
    rows /= lengths[:, None]
    return rows


def to_unit_vectors(rows: Any, count: int, source: str) -> Vectors:
    """Convert an external embedder's result to `count` unit vectors; raises `EmbeddingError` if it is invalid."""
    if hasattr(rows, "__array__"):  # also tensors of other libraries
        rows = np.atleast_1d(np.asarray(rows))
    elif not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        raise EmbeddingError(f"{source} must return one vector for each text, got {rows!r:.80}.")
    if len(rows) != count:
        raise EmbeddingError(f"{source} returned {len(rows)} vectors for {count} texts.")
    try:
        # A copy, even of an array: it is normalised in place, and the embedder owns the original.
        wide = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise EmbeddingError(f"{source} returned vectors of unequal lengths or without numbers: {error}") from error
    if count == 0:
        return np.zeros((0, wide.shape[1] if wide.ndim == 2 else 0), dtype=np.float32)
    if wide.ndim != 2 or wide.shape[1] == 0:
        raise EmbeddingError(f"{source} must return one vector for each text, got values of shape {wide.shape}.")
    if not np.isfinite(wide).all():
        raise EmbeddingError(f"{source} returned vectors with values that are not finite numbers.")
    largest = np.abs(wide).max(axis=1, keepdims=True)
    largest[largest == 0] = 1
    wide /= largest  # prevents overflow and underflow of the squares
    return normalize_rows(wide.astype(np.float32))


def validate_vectors(rows: Any, count: int, source: str) -> Vectors:
    """Convert an embedder's result like `to_unit_vectors`, but return valid unit vectors unchanged."""
    if isinstance(rows, np.ndarray) and rows.dtype == np.float32 and rows.ndim == 2 and len(rows) == count > 0:
        squares = np.einsum("ij,ij->i", rows, rows).tolist()
        # The square of a row with a value that is not finite fails this check too.
        is_valid = rows.shape[1] > 0 and all(abs(square - 1) < 1e-3 or square == 0 for square in squares)
        if is_valid:
            return rows
    return to_unit_vectors(rows, count, source)


class FunctionEmbedder:
    """An embedder that calls `fn(texts)`, sync or async, which returns one sequence of numbers for each text.

    `name` identifies the vectors: change it when they change. A sync function runs in a thread, one call at a time.
    `batch_size` is the largest number of texts per call (None: no limit). Blank texts are not passed. If the function
    has a parameter `query`, it receives whether the texts are questions.

    >>> import asyncio
    >>> lengths = FunctionEmbedder("lengths", lambda texts: [[len(text), 1] for text in texts])
    >>> asyncio.run(lengths.embed(["", "a", "bbb"])).shape
    (3, 2)
    """

    def __init__(self, name: str, fn: Callable[..., Any], *, batch_size: int | None = None) -> None:
        if not name or not isinstance(name, str):
            raise ConfigurationError(f"FunctionEmbedder needs a name that identifies its vectors, got {name!r:.80}.")
        if not callable(fn):
            raise ConfigurationError(f"FunctionEmbedder needs a function, got {fn!r:.80}.")
        if batch_size is not None and batch_size < 1:
            raise ConfigurationError(f"batch_size must be above 0, or None for no limit, got {batch_size!r}.")
        self._name = name
        self._fn = fn
        self._batch_size = batch_size
        self._takes_query = _takes_query(fn)
        self._lock = threading.Lock()
        self._dimensions: int | None = None

    @property
    def name(self) -> str:
        """The name that is stored with the vectors."""
        return self._name

    def __repr__(self) -> str:
        return f"FunctionEmbedder({self._name!r})"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Return the vectors of the texts."""
        texts = validate_texts(texts)
        indices = [index for index, text in enumerate(texts) if text.strip()]
        non_blank = [texts[index] for index in indices]
        if not non_blank and self._dimensions is None:
            await self._embed_batch(["."], query)  # find the vector length, which rows of zeros need too
        size = self._batch_size or len(non_blank) or 1
        batches = [
            await self._embed_batch(non_blank[start : start + size], query) for start in range(0, len(non_blank), size)
        ]
        vectors = np.zeros((len(texts), self._dimensions or 0), dtype=np.float32)
        if batches:
            vectors[indices] = np.concatenate(batches)
        return normalize_rows(vectors)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def _embed_batch(self, texts: list[str], query: bool) -> Vectors:
        extra = {"query": query} if self._takes_query else {}
        try:
            if inspect.iscoroutinefunction(self._fn):
                rows = await self._fn(texts, **extra)
            else:
                rows = await asyncio.to_thread(self._call, texts, extra)
                if inspect.isawaitable(rows):
                    rows = await rows
        except TellbackError:
            raise
        except Exception as error:
            raise EmbeddingError(f"{self._name} failed: {type(error).__name__}: {error}") from error
        vectors = to_unit_vectors(rows, len(texts), self._name)
        if self._dimensions is None:
            self._dimensions = vectors.shape[1]
        if vectors.shape[1] != self._dimensions:
            raise EmbeddingError(
                f"{self._name} returned vectors of {vectors.shape[1]} dimensions, but earlier vectors had"
                f" {self._dimensions}. Use another name for other vectors."
            )
        return vectors

    def _call(self, texts: list[str], extra: dict[str, Any]) -> Any:
        with self._lock:
            return self._fn(texts, **extra)


def _takes_query(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    return any(
        parameter.name == "query" and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )
