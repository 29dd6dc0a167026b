"""Conversations and events as JSON."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticSerializationError, to_json

from tellback.chat.usage import make_usage
from tellback.types.conversations import AppendedTurn, Conversation, Event, RollingSummary, StoredMessage
from tellback.types.replies import ChatUsage
from tellback.wire.base import CountIn, DatetimeIn, InputModel, KeyMapping, NameIn, WireModel, camel
from tellback.wire.messages import BlockOut, ContentIn, decode_blocks, encode_block

VisibilityIn = Literal["user", "internal", "hidden"]

MAX_IMPORTED_MESSAGES = 1_000
"""How many messages one request may import."""

EVENT_DATA_KEYS = KeyMapping(
    *("conversation_id", "from_seq", "last_seq", "left_out", "merged_into", "message_id"),
    *("rolling_summary_until_seq", "superseded_by", "to_seq", "turn_id"),
    space_id="memorySpaceId",
)
"""What the data of events are called. Those of `user.erased` are names of tables, as in what an erasure gives."""

_ValueType = type[Any] | None  # in the class, `type` is a field


def _to_seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


class UsageWire(WireModel):
    """Tokens, cost and time."""

    value_type: ClassVar[type[Any] | None] = ChatUsage

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost_usd: float | None = None
    latency_ms: int | None = None
    provider: str | None = None
    model: str | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class ConversationWire(WireModel):
    """A conversation."""

    value_type: ClassVar[type[Any] | None] = Conversation

    id: str = Field(examples=["conv_018f3c0de0a17b2c4d5e6f708192"])
    tenant_id: str
    app_id: str
    user_id: str
    namespace: str = Field(examples=["support-chat"])
    status: Literal["open", "closed"] = "open"
    created_at: datetime
    updated_at: datetime
    title: str | None = None
    session_id: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    closed_at: datetime | None = None
    last_seq: int = 0
    turns: int = 0
    rolling_summary: str | None = None
    rolling_summary_until_seq: int = 0
    summarized_turns: int = 0
    close_after: Annotated[float | None, BeforeValidator(_to_seconds)] = Field(default=None, description="Seconds.")

    def value(self) -> Conversation:
        """The conversation."""
        found: Conversation = super().value()
        if self.close_after is not None:
            object.__setattr__(found, "close_after", timedelta(seconds=self.close_after))
        return found


class MessageWire(WireModel):
    """A message in the log."""

    value_type: ClassVar[type[Any] | None] = StoredMessage

    id: str = Field(examples=["msg_018f3c0de0a17b2c4d5e6f708192"])
    conversation_id: str
    seq: int
    turn_id: str
    role: str = Field(examples=["user"])
    content: list[BlockOut]
    created_at: datetime
    visibility: VisibilityIn = "user"
    stop_reason: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: UsageWire | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None
    metadata: dict[str, Any] | None = None

    def value(self) -> StoredMessage:
        """The message."""
        found: StoredMessage = super().value()
        object.__setattr__(found, "content", decode_blocks(self.content))
        return found


_MESSAGE_KEYS = {name: camel(name) for name in MessageWire.model_fields if name not in ("content", "usage")}


def encode_message(message: StoredMessage) -> bytes:
    """Encode a message as `MessageWire.from_value(message).to_json()` does, at a third of its cost."""
    if message.usage is None:
        fields = {key: getattr(message, name) for name, key in _MESSAGE_KEYS.items()}
        fields |= {"content": [encode_block(block) for block in message.content], "usage": None}
        try:
            return to_json(fields)
        except PydanticSerializationError:  # half of a character
            pass
    return MessageWire.from_value(message).to_json()


class AppendedTurnWire(WireModel):
    """Both messages of a turn, which share `turnId`."""

    value_type: ClassVar[type[Any] | None] = AppendedTurn

    turn_id: str
    user_message: MessageWire
    assistant_message: MessageWire


class RollingSummaryWire(WireModel):
    """What a refresh of the rolling summary gave."""

    value_type: ClassVar[type[Any] | None] = RollingSummary

    outcome: str = Field(examples=["refreshed"])
    rolling_summary: str | None = None
    rolling_summary_until_seq: int = 0


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


class ReadyWire(WireModel):
    """The first event of the feed: where it begins."""

    position: int


class ChangeWire(WireModel):
    """One change, an event of the feed. `position` is where to go on from; `subjectId` names what changed."""

    value_type: ClassVar[_ValueType] = Event

    position: int
    type: str = Field(examples=["message.appended"])
    tenant_id: str
    app_id: str
    user_id: str
    subject_id: str
    data: dict[str, Any] = Field(
        default_factory=dict,
        examples=[{"messageId": "msg_018f3c0de0a17b2c4d5e6f708192", "seq": 1, "role": "user", "visibility": "user"}],
    )
    created_at: datetime

    @classmethod
    def from_value(cls, value: Event) -> ChangeWire:
        """It for a change."""
        scope = value.scope
        return cls(
            position=value.position,
            type=value.type,
            tenant_id=scope.tenant_id,
            app_id=scope.app_id,
            user_id=scope.user_id,
            subject_id=value.subject_id,
            data=EVENT_DATA_KEYS.to_wire(value.data),
            created_at=value.created_at,
        )

    def value(self) -> Event:
        """The change."""
        event: Event = super().value()
        object.__setattr__(event, "data", EVENT_DATA_KEYS.from_wire(self.data))
        return event
