"""Conversations and events as JSON."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tellback.chat.usage import make_usage
from tellback.wire.base import CountIn, DatetimeIn, InputModel, NameIn
from tellback.wire.messages import ContentIn

VisibilityIn = Literal["user", "internal", "hidden"]

MAX_IMPORTED_MESSAGES = 1_000
"""How many messages one request may import."""


class CreateConversation(InputModel):
    """Open a conversation."""

    namespace: str = Field(examples=["support-chat"], description="Your name for this kind of conversation.")
    title: str | None = Field(default=None, examples=["Refund question"])
    session_id: str | None = None
    metadata: dict[str, Any] | None = Field(default=None, examples=[{"source": "web", "priority": "normal"}])
    close_after: float | None = Field(
        default=None, ge=0, description="Seconds without a change, after which it closes."
    )


class AppendUserMessage(InputModel):
    """What a person said; it begins a new turn."""

    content: ContentIn = Field(examples=["Hi, where's my refund?"])
    idempotency_key: str | None = Field(default=None, description="Or the header Idempotency-Key.")
    trace_id: str | None = None
    visibility: VisibilityIn = "user"
    created_at: DatetimeIn | None = None


class UsageIn(InputModel):
    """Tokens, cost and time of a call of your own."""

    input_tokens: CountIn | None = None
    output_tokens: CountIn | None = None
    total_tokens: CountIn | None = None
    cost_usd: float | None = Field(default=None, ge=0)
    latency_ms: CountIn | None = None
    provider: NameIn | None = Field(default=None, examples=["anthropic"], description="By default the message's.")
    model: NameIn | None = Field(default=None, description="By default the message's.")
    cached_tokens: CountIn | None = None
    cache_write_tokens: CountIn | None = None
    reasoning_tokens: CountIn | None = None

    def arguments(self) -> Any:
        """The numbers, which the message says whose they are; or whole, if they say it themselves."""
        arguments = super().arguments()
        if self.provider is None and self.model is None:
            return arguments
        return make_usage(arguments, self.provider, self.model)


class AppendAssistantTurn(InputModel):
    """What the assistant said, in the turn that is going on."""

    content: ContentIn = Field(examples=["Looking it up now..."])
    stop_reason: str | None = Field(default=None, examples=["end_turn"])
    model: str | None = None
    provider: str | None = None
    usage: UsageIn | None = None
    trace_id: str | None = None
    visibility: VisibilityIn = "user"
    created_at: DatetimeIn | None = None


class AppendToolResult(InputModel):
    """What a tool gave for a call."""

    tool_use_id: str = Field(examples=["tu_1"])
    content: ContentIn = Field(examples=["shipped"])
    tool_name: str | None = None
    is_error: bool = False
    visibility: VisibilityIn = "user"
    created_at: DatetimeIn | None = None


class AppendSystemMessage(InputModel):
    """An instruction or a note; the model sees it, and the person does not."""

    content: ContentIn = Field(examples=["The user is on the free plan."])
    visibility: VisibilityIn = "internal"
    created_at: DatetimeIn | None = None


class AppendTurn(InputModel):
    """Both sides of a turn that you ran yourself."""

    user_content: ContentIn = Field(examples=["What's my refund status?"])
    assistant: AppendAssistantTurn
    user_visibility: VisibilityIn = "user"
    idempotency_key: str | None = Field(default=None, description="Or the header Idempotency-Key.")
    created_at: DatetimeIn | None = None


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
