"""What one asks of conversations besides talking, on the wire."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tellback.wire.base import InputModel
from tellback.wire.blocks import ContentIn
from tellback.wire.bounds import DatetimeIn
from tellback.wire.conversations import UsageIn, VisibilityIn

MAX_IMPORTED_MESSAGES = 1_000
"""How many messages one request may import."""


class FindOrCreateConversation(InputModel):
    """The newest open conversation of a namespace and session, or a new one, for which the rest is."""

    namespace: str = Field(max_length=200, examples=["daily-checkin"])
    session_id: str | None = Field(default=None, max_length=500)
    title: str | None = Field(default=None, examples=["Daily check-in"])
    metadata: dict[str, Any] | None = None
    close_after: float | None = Field(default=None, ge=0, description="Seconds without a change, then it closes.")


class CloseStale(InputModel):
    """How long nothing has happened in the conversations to close."""

    older_than: float = Field(ge=0, examples=[3600], description="Seconds.")


class ImportedMessageIn(InputModel):
    """A message of a chat that took place elsewhere."""

    role: Literal["user", "assistant", "tool", "system"] = Field(examples=["user"])
    content: ContentIn = Field(examples=["Hi, where's my refund?"])
    visibility: VisibilityIn | None = Field(default=None, description="'internal' for the system's, else 'user'.")
    created_at: DatetimeIn | None = None
    stop_reason: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: UsageIn | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None

    def arguments(self) -> dict[str, Any]:
        """What was given and is not null."""
        return {name: value for name, value in super().arguments().items() if value is not None}


class ImportMessages(InputModel):
    """Messages to import, in their order: all are stored, or none. A user's message begins a turn."""

    messages: list[ImportedMessageIn] = Field(min_length=1, max_length=MAX_IMPORTED_MESSAGES)


class RefreshSummary(InputModel):
    """Which model is to summarize: the server's own, or another that it serves."""

    model: str | None = Field(default=None, max_length=200)
