"""Vectors of texts, computed before the measurement."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path


class Vectors:
    """Embedded texts and their vectors, in a folder."""

    embedded: list[str]
    folder: Path

    @cached_property
    def _vectors(self) -> dict[str, list[float]]:
        import numpy

        vectors = numpy.load(self.folder / "vectors.npy")
        return dict(zip(self.embedded, vectors.tolist(), strict=True))

    def vector(self, text: str) -> list[float]:
        """Return the vector of an embedded text."""
        return self._vectors[text]
