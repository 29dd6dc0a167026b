"""`FunctionEmbedder`: a function of your own as an embedder."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tellback.embed.vectors import Vectors, normalize_rows, to_unit_vectors, validate_texts
from tellback.errors import ConfigurationError, EmbeddingError, TellbackError

_PROBE_TEXT = "."


class FunctionEmbedder:
    """Embeds with `fn(texts)`, which gives one sequence of numbers for each text; it may be async.

    `name` identifies the vectors: change it when they change. A plain function runs in a thread, one call at a time.
    `batch_size` is how many texts it gets at once (None: all). It is never given a blank text. If it takes `query`, it
    is told whether the texts are questions.

    >>> import asyncio
    >>> lengths = FunctionEmbedder("lengths", lambda texts: [[len(text), 1] for text in texts])
    >>> asyncio.run(lengths.embed(["", "a", "bbb"])).shape
    (3, 2)
    """

    def __init__(self, name: str, fn: Callable[..., Any], *, batch_size: int | None = None) -> None:
        if not name or not isinstance(name, str):
            raise ConfigurationError(f"FunctionEmbedder needs a name that identifies its vectors, not {name!r:.80}.")
        if not callable(fn):
            raise ConfigurationError(f"FunctionEmbedder needs a function, not {fn!r:.80}.")
        if batch_size is not None and batch_size < 1:
            raise ConfigurationError(f"batch_size is a number above 0, or None for all at once, not {batch_size!r}.")
        self._name = name
        self._fn = fn
        self._batch_size = batch_size
        self._takes_query = _takes_query(fn)
        self._lock = threading.Lock()
        self._dimensions: int | None = None

    @property
    def name(self) -> str:
        """What its vectors are stored under."""
        return self._name

    def __repr__(self) -> str:
        return f"FunctionEmbedder({self._name!r})"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """The texts' vectors."""
        texts = validate_texts(texts)
        indices = [index for index, text in enumerate(texts) if text.strip()]
        non_blank = [texts[index] for index in indices]
        if not non_blank and self._dimensions is None:
            await self._embed_batch([_PROBE_TEXT], query)  # how long would a row of zeros be?
        size = self._batch_size or len(non_blank) or 1
        batches = [
            await self._embed_batch(non_blank[start : start + size], query) for start in range(0, len(non_blank), size)
        ]
        vectors = np.zeros((len(texts), self._dimensions or 0), dtype=np.float32)
        if batches:
            vectors[indices] = np.concatenate(batches)
        return normalize_rows(vectors)

    async def close(self) -> None:
        """Nothing is held open."""

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
                f"{self._name} gave vectors of {vectors.shape[1]} dimensions, and before of {self._dimensions}."
                " Vectors of another kind need another name."
            )
        return vectors

    def _call(self, texts: list[str], extra: dict[str, Any]) -> Any:
        with self._lock:
            return self._fn(texts, **extra)


def _takes_query(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some builtins have none
        return False
    return any(
        parameter.name == "query" and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )
