"""Embedders: what turns texts into vectors. Importing this loads neither numpy nor any model; using it does."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from recollect.embed.base import Embedder

if TYPE_CHECKING:
    from recollect.embed.static import StaticEmbedder

_HOME = {
    "StaticEmbedder": "recollect.embed.static",
}

__all__ = ["Embedder", "StaticEmbedder"]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value
