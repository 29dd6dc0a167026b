"""Vectors for what is about to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tellback.memory.embedding import EmbeddingService
from tellback.stores import AtomChange, AtomDraft, Replacement


async def embed_changes(embedding: EmbeddingService, changes: Sequence[AtomChange]) -> tuple[AtomChange, ...]:
    """Changes with the vectors of the atoms they make, as far as there are any for now."""
    texts = list(dict.fromkeys(draft.text for change in changes if (draft := _draft_of(change)) is not None))
    vectors = dict(zip(texts, await embedding.encode(texts), strict=True))
    return tuple(_with_vector(change, embedding.name, vectors) for change in changes)


def _draft_of(change: AtomChange) -> AtomDraft | None:
    if isinstance(change, AtomDraft):
        return change
    return change.draft if isinstance(change, Replacement) else None


def _with_vector(change: AtomChange, embedder: str, vectors: Mapping[str, bytes | None]) -> AtomChange:
    draft = _draft_of(change)
    vector = None if draft is None else vectors[draft.text]
    if draft is None or vector is None:
        return change
    with_vector = replace(draft, embedder=embedder, vector=vector)
    return replace(change, draft=with_vector) if isinstance(change, Replacement) else with_vector
