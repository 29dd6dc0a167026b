"""What an embedder is, and which one a name stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from recollect.embed.vectors import Vectors


@runtime_checkable
class Embedder(Protocol):
    """Anything that turns texts into vectors.

    `name` identifies the vectors, model and dimensions included: two embedders of one name make vectors that can be
    compared. It is stored with every vector.

    `embed` gives a C-contiguous float32 array of one row for each text, in their order, of length 1, or all zeros for
    a text with nothing in it. It takes any number of texts. `query` says that they are questions, for the models that
    tell questions from what is searched. It raises `EmbeddingError`, and then gives nothing. It may be called from
    several tasks and event loops at once. `close` may be called more than once.
    """

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors: ...

    async def close(self) -> None: ...
