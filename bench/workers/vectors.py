"""Vectors of texts, made before anything is measured."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path


class Vectors:
    """Texts, in a folder with the vectors that were made of them."""

    embedded: list[str]
    folder: Path

    @cached_property
    def _vectors(self) -> dict[str, list[float]]:
        import numpy

        vectors = numpy.load(self.folder / "vectors.npy")
        return dict(zip(self.embedded, vectors.tolist(), strict=True))

    def vector(self, text: str) -> list[float]:
        """The vector of a text that was embedded."""
        return self._vectors[text]
