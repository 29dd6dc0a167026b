"""Vectors for what is about to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tellback.memory.embedding import Embedding
from tellback.stores import AtomChange, AtomDraft, Replacement


async def embedded(embedding: Embedding, changes: Sequence[AtomChange]) -> tuple[AtomChange, ...]:
    """Changes with the vectors of the atoms they make, as far as there are any for now."""
    texts = list(dict.fromkeys(draft.text for change in changes if (draft := _draft(change)) is not None))
    vectors = dict(zip(texts, await embedding.encode(texts), strict=True))
    return tuple(_with_vector(change, embedding.name, vectors) for change in changes)


def _draft(change: AtomChange) -> AtomDraft | None:
    if isinstance(change, AtomDraft):
        return change
    return change.draft if isinstance(change, Replacement) else None


def _with_vector(change: AtomChange, embedder: str, vectors: Mapping[str, bytes | None]) -> AtomChange:
    draft = _draft(change)
    vector = None if draft is None else vectors[draft.text]
    if draft is None or vector is None:
        return change
    made = replace(draft, embedder=embedder, vector=vector)
    return replace(change, draft=made) if isinstance(change, Replacement) else made
