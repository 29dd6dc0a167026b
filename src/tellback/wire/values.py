"""The values that servers give, as JSON: conversations, memories, jobs, keys, costs and changes.

Each model has the fields of its `value_type`; what is written here is what differs, and examples for the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticSerializationError, to_json

from tellback.admin import ErasureReport
from tellback.types.access import ApiKey, NewApiKey
from tellback.types.conversations import AppendedTurn, Conversation, Event, RollingSummary, StoredMessage, Visibility
from tellback.types.jobs import Binding, ConversationScope, ExtractionRun, Job, JobStatus, UsageRecord, UsageTotal
from tellback.types.memory import (
    Atom,
    Category,
    CategoryKind,
    Citation,
    Entity,
    EntityType,
    MemorySpace,
    RecallHit,
    RecallResult,
    WorkingContext,
)
from tellback.types.messages import ChatUsage, Message, MessagePart, ToolCall, message_text
from tellback.wire.base import SECONDS, Codec, KeyMapping, WireModel, camel
from tellback.wire.messages import BlockOut, decode_block, encode_block

EVENT_DATA_KEYS = KeyMapping(
    *("conversation_id", "from_seq", "last_seq", "left_out", "merged_into", "message_id"),
    *("rolling_summary_until_seq", "superseded_by", "to_seq", "turn_id"),
    space_id="memorySpaceId",
)
"""What the data of events are called. Those of `user.erased` are names of tables, as in what an erasure gives."""

JOB_RESULT_KEYS = KeyMapping("left_out", "left_out_facts")
"""What the counts of a job are called."""


def example_id(prefix: str) -> str:
    """An id as servers make them, for examples."""
    return f"{prefix}_018f3c0de0a17b2c4d5e6f708192"


class UsageWire(WireModel):
    """Tokens, cost and time."""

    value_type = ChatUsage


def _to_text(content: Any) -> str:
    return content if isinstance(content, str) else message_text(Message("", content))


class PartOut(WireModel):
    """A piece of a message that is more than text."""

    value_type = MessagePart

    kind: str = Field(examples=["image"], description="text, image, audio, file or tool-result")
    data: str | None = Field(default=None, description="base64, where there is no url")
    meta: dict[str, Any] | None = Field(default=None, description="Hints for one provider.")


class ToolCallOut(WireModel):
    """A model's wish to call a tool."""

    value_type = ToolCall
    hidden_fields = ("meta",)

    id: str = Field(examples=["tu_1"])
    name: str = Field(examples=["lookup"])
    input: dict[str, Any] = Field(default_factory=dict, examples=[{"order": 7}])
    invalid_input: str | None = Field(default=None, description="What the model wrote, if it is no JSON object.")


class MessageOut(WireModel):
    """A chat message. With `parts`, `content` is what they come to in plain text."""

    value_type = Message
    hidden_fields = ("meta",)

    role: str = Field(examples=["user"])
    content: Annotated[str, BeforeValidator(_to_text)] = ""


class SpaceWire(WireModel):
    """A named part of a user's memory."""

    value_type = MemorySpace

    id: str = Field(examples=[example_id("ms")])
    name: str = Field(examples=["goals"])


class CategoryWire(WireModel):
    """Your own name for a sort of memory, and its kind, which decides how fast it fades."""

    value_type = Category

    name: str = Field(examples=["preference"])
    kind: CategoryKind = Field(examples=["PREFERENCE"])


class CitationWire(WireModel):
    """Where something was said."""

    value_type = Citation


class AtomWire(WireModel):
    """One remembered thing.

    `validFrom` and `validTo` say when it was true (`validTo` null: still), `createdAt` and `supersededAt` when that was
    known. `citations` is everywhere it was said.
    """

    value_type = Atom

    id: str = Field(examples=[example_id("atom")])
    memory_space_id: str = Field(examples=[example_id("ms")])
    text: str = Field(examples=["User prefers morning meetings"])
    importance: int = Field(default=3, description="1 to 5")
    confidence: float = Field(default=1.0, description="0 to 1")
    citations: list[CitationWire] = Field(default_factory=list)


class EntityWire(WireModel):
    """A person, a place or another thing that memories are about."""

    value_type = Entity

    id: str = Field(examples=[example_id("ent")])
    memory_space_id: str = Field(examples=[example_id("ms")])
    type: EntityType = Field(examples=["PERSON"])
    canonical_name: str = Field(examples=["Ana Silva"])


class RecallHitWire(WireModel):
    """A recalled atom."""

    value_type = RecallHit

    score: float = Field(description="0 to 1; it orders the hits of a topic.")
    decay_weight: float = Field(default=1.0, description="What its age left of its weight.")
    entity_match_bonus: float = Field(default=1.0, description="Above 1 when the query names what the atom is about.")
    context: list[AtomWire] = Field(default_factory=list, description="The turns around it, with `neighbours`.")
    parts: dict[str, float] = Field(default_factory=dict, description="What each part added to the score's log-odds.")


class RecallResultWire(WireModel):
    """What was recalled."""

    value_type = RecallResult

    total_candidates: int = Field(description="How many atoms were considered.")


class WorkingContextWire(WireModel):
    """What a model should know before it answers, within a token budget.

    `contextBlock` is a system prompt, or the beginning of one; `messages` is the same as chat messages, and `system`
    the block without the turns. `atomsUsed` are the memories in it, `hits` the recalled ones among them.
    """

    value_type = WorkingContext

    system: str = ""
    over_budget: bool = Field(default=False, description="The summary and the always-on memories alone are larger.")
    remembers: bool = Field(default=False, description="There is a summary or a memory in it.")


class ConversationWire(WireModel):
    """A conversation."""

    value_type = Conversation

    id: str = Field(examples=[example_id("conv")])
    namespace: str = Field(examples=["support-chat"])
    status: Literal["open", "closed"] = "open"
    close_after: Annotated[float | None, SECONDS] = Field(default=None, description="Seconds.")


_BLOCKS = Codec(
    encode=lambda blocks: [encode_block(block) for block in blocks],
    decode=lambda encoded: tuple(map(decode_block, encoded)),
)


class MessageWire(WireModel):
    """A message in the log."""

    value_type = StoredMessage
    hidden_fields = ("meta",)

    id: str = Field(examples=[example_id("msg")])
    role: str = Field(examples=["user"])
    content: Annotated[list[BlockOut], _BLOCKS]
    visibility: Visibility = "user"


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


class RollingSummaryWire(WireModel):
    """What a refresh of the rolling summary gave."""

    value_type = RollingSummary

    outcome: str = Field(examples=["refreshed"])
    rolling_summary: str | None = None
    rolling_summary_until_seq: int = 0


class AppendedTurnWire(WireModel):
    """Both messages of a turn, which share `turnId`."""

    value_type = AppendedTurn


class ReadyWire(WireModel):
    """The first event of the feed: where it begins."""

    position: int


class ChangeWire(WireModel):
    """One change, an event of the feed. `position` is where to go on from; `subjectId` names what changed."""

    value_type = Event

    type: str = Field(examples=["message.appended"])
    data: Annotated[dict[str, Any], Codec(EVENT_DATA_KEYS.to_wire, EVENT_DATA_KEYS.from_wire)] = Field(
        default_factory=dict,
        examples=[{"messageId": example_id("msg"), "seq": 1, "role": "user", "visibility": "user"}],
    )


FEED_EVENTS: Mapping[str, type[WireModel]] = {
    "ready": ReadyWire,
    "message.appended": ChangeWire,
    "atom.added": ChangeWire,
}
"""The first event of the feed, and two of the many that may follow: all the others are alike."""


class ConversationScopeWire(WireModel):
    """Conversations of a namespace and a user; `*` is any."""

    value_type = ConversationScope

    namespace: str = Field(examples=["daily-checkin"])
    user_id: str = Field(examples=["*"])


# A single scope stands by itself.
_SCOPES = Codec(
    encode=lambda scopes: scopes[0] if len(scopes) == 1 else scopes,
    decode=lambda scopes: tuple(each.value() for each in (scopes if isinstance(scopes, list) else [scopes])),
)


class BindingWire(WireModel):
    """Conversations of some scopes become memories of some spaces.

    `conversationScope` is one scope, or a list of several. `memorySpaceIds` are spaces of whoever made it
    (`createdBy`); conversations of other users go to their own spaces of the same names.
    """

    value_type = Binding

    id: str = Field(examples=[example_id("bind")])
    conversation_scope: Annotated[ConversationScopeWire | list[ConversationScopeWire], _SCOPES]
    memory_space_names: list[str] = Field(default_factory=list)


class JobWire(WireModel):
    """The extraction of one window of a conversation into one space."""

    value_type = Job

    id: str = Field(examples=[example_id("job")])
    kind: str = Field(examples=["extract"])
    binding_id: str = Field(description="'direct' where a space was named instead.")
    raw_output: str | None = Field(default=None, description="What the model had said, if it could not be read.")
    result: Annotated[dict[str, Any], Codec(JOB_RESULT_KEYS.to_wire, JOB_RESULT_KEYS.from_wire)] = Field(
        default_factory=dict, description="Counts of what a job that is done has changed."
    )


class ExtractionRunWire(WireModel):
    """What was set going: a job for each binding, space and window; none if nothing was said yet.

    `id` and `status` are those of the first job that is not done, or else of the last one.
    """

    value_type = ExtractionRun

    id: str | None = None
    status: JobStatus


class UsageRecordWire(WireModel):
    """What one model call for memory cost."""

    value_type = UsageRecord

    id: str = Field(examples=[example_id("use")])
    purpose: str = Field(examples=["extraction"])
    cost_usd: float | None = Field(default=None, description="Null where no price is known.")


class UsageTotalWire(WireModel):
    """The calls of one user, purpose and model, added up."""

    value_type = UsageTotal

    purpose: str = Field(examples=["extraction"])
    model: str | None = None
    cost_usd: float = Field(description="The sum of what has a price.")
    unpriced_calls: int = Field(description="How many calls have none.")


class ErasedWire(WireModel):
    """What an erasure deleted."""

    value_type = ErasureReport
    derives_fields = False

    deleted: dict[str, int] = Field(examples=[{"messages": 12}], description="How many rows of each table.")
    job_ids: list[str] = Field(default_factory=list)

    @classmethod
    def from_value(cls, value: ErasureReport) -> ErasedWire:
        """It for what an erasure gave."""
        return cls(deleted=dict(value), job_ids=list(value.job_ids))

    def value(self) -> ErasureReport:
        """What the erasure gave."""
        return ErasureReport(self.deleted, tuple(self.job_ids))


class ApiKeyWire(WireModel):
    """An API key, without its secret."""

    value_type = ApiKey

    id: str = Field(examples=[example_id("key")])
    name: str = Field(examples=["Maya's phone"])
    user_id: str | None = Field(default=None, description="The user that a key of the role 'user' is fixed to.")
    rate_limit: int | None = Field(default=None, description="Requests a minute; null is what the server has for all.")


class NewApiKeyWire(WireModel):
    """A key that was just made, with its secret: nobody can show that again."""

    value_type = NewApiKey

    secret: str = Field(repr=False, description="To be sent as `Authorization: Bearer <secret>`.")


class ExtractionWaited(WireModel):
    """Whether what was closed has become memories."""

    done: bool

    @classmethod
    def from_value(cls, value: bool) -> ExtractionWaited:
        """It for what waiting gave."""
        return cls(done=value)

    def value(self) -> bool:
        """What waiting gave."""
        return self.done


class StaleClosed(WireModel):
    """What was closed. With `nextCursor`, there are more to look at: pass it as `cursor`."""

    conversation_ids: list[str] = Field(default_factory=list)
    next_cursor: str | None = None


class Replayed(WireModel):
    """What was queued. With `nextCursor`, there are more conversations: pass it as `cursor`."""

    conversations: int = Field(description="How many were looked at.")
    jobs: int = Field(description="How many jobs wait or run for them now.")
    skipped: int = Field(description="How many no binding matches.")
    next_cursor: str | None = None
