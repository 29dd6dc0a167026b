"""Bindings: which conversations become memories, and where."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

ANY = "*"
"""Matches every namespace, or every user."""


@dataclass(frozen=True, slots=True)
class ConversationScope:
    """Conversations of a namespace and a user; `"*"` is any.

    >>> ConversationScope("daily-checkin").matches("daily-checkin", "maya")
    True
    """

    namespace: str = ANY
    user_id: str = ANY

    def matches(self, namespace: str, user_id: str) -> bool:
        """Whether a conversation of that namespace and user is meant."""
        return self.namespace in (ANY, namespace) and self.user_id in (ANY, user_id)


@dataclass(frozen=True, slots=True)
class ExtractionPolicy:
    """When conversations are extracted, and by which version of the prompt.

    `windowed` extracts every `window_turns` turns while a conversation is open; `on_conversation_closed` what is left
    when it closes.
    """

    extraction_version: str = "v1"
    on_conversation_closed: bool = True
    windowed: bool = False
    window_turns: int = 0


@dataclass(frozen=True, slots=True)
class Binding:
    """Conversations of some scopes become memories of some spaces.

    `memory_space_ids` are spaces of whoever made it (`created_by`), which that user's conversations go to; those of
    another user go to that user's own spaces of the same names, in `memory_space_names`, made when missing.
    """

    id: str
    tenant_id: str
    app_id: str
    conversation_scope: tuple[ConversationScope, ...]
    memory_space_ids: tuple[str, ...]
    memory_space_names: tuple[str, ...]
    extraction_policy: ExtractionPolicy
    created_at: datetime
    updated_at: datetime
    enabled: bool = True
    created_by: str | None = None

    def matches(self, namespace: str, user_id: str) -> bool:
        """Whether it is about conversations of that namespace and user."""
        return any(scope.matches(namespace, user_id) for scope in self.conversation_scope)
