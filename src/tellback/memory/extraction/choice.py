"""Which extractor reads conversations."""

from __future__ import annotations

from typing import Any

from tellback.chat import Model
from tellback.errors import ConfigurationError
from tellback.memory.extraction.values import Extractor, Window
from tellback.memory.verbatim import build_verbatim_drafts
from tellback.stores import AtomDraft

ExtractorLike = Extractor | str | None


class VerbatimExtractor:
    """Needs no model: each message becomes a dated, cited EPISODE atom, word for word."""

    def drafts(self, window: Window) -> list[AtomDraft]:
        """The atoms of a window."""
        return build_verbatim_drafts(window.conversation, window.messages)


def validate_extractor(extractor: Any) -> ExtractorLike:
    """What can be given as an extractor; raises `ConfigurationError` for anything else."""
    is_name = isinstance(extractor, str) and extractor in ("llm", "verbatim")
    if extractor is None or is_name or hasattr(extractor, "extract") or hasattr(extractor, "drafts"):
        found: ExtractorLike = extractor
        return found
    raise ConfigurationError(
        f"extractor is 'llm', 'verbatim' or an object with a method extract, like LlmExtractor, not {extractor!r:.80}."
    )


def resolve_extractor(extractor: ExtractorLike, model: str | Model | None) -> Any:
    """The extractor to use: without any, the model's if there is one, and word for word if there is none."""
    if extractor is None:
        extractor = "verbatim" if model is None else "llm"
    if extractor == "verbatim":
        return VerbatimExtractor()
    from tellback.memory.extraction.llm import LlmExtractor

    resolved: Any = LlmExtractor() if extractor == "llm" else extractor
    if isinstance(resolved, LlmExtractor) and resolved.model is None:
        if model is None:
            raise ConfigurationError("The extractor has no model: pass model= to Tellback, or to LlmExtractor.")
        return resolved.with_model(model)
    return resolved
