"""The pages, which register themselves when they are imported."""

from recollect.console.pages import chat

__all__ = ["chat"]
