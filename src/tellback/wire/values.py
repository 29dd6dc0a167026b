"""JSON models of values: conversations, memories, jobs, keys, usage and changes.

Each model has the fields of its `value_type`; the class body has differences and examples.
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
    Citation,
    Entity,
    MemorySpace,
    RecallHit,
    RecallResult,
    WorkingContext,
)
from tellback.types.messages import ChatUsage, Message, MessagePart, ToolCall, message_text
from tellback.wire.base import Codec, KeyMapping, WireModel, camel
from tellback.wire.messages import BlockOut, decode_block, encode_block

EVENT_DATA_KEYS = KeyMapping(
    *("conversation_id", "from_seq", "last_seq", "left_out", "merged_into", "message_id"),
    *("rolling_summary_until_seq", "superseded_by", "to_seq", "turn_id"),
    space_id="memorySpaceId",
)
"""JSON names of event data. The keys of `user.erased` are table names, as in an erasure report."""

JOB_RESULT_KEYS = KeyMapping("left_out", "left_out_facts")
"""JSON names of a job's counts."""


def example_id(prefix: str) -> str:
    """Return an example id."""
    return f"{prefix}_018f3c0de0a17b2c4d5e6f708192"


class UsageWire(WireModel, value_type=ChatUsage):
    """Tokens, cost and latency of model calls."""


def _to_text(content: Any) -> str:
    return content if isinstance(content, str) else message_text(Message("", content))


class PartOut(
    WireModel,
    value_type=MessagePart,
    examples={"kind": "image"},
    descriptions={
        "kind": "text, image, audio, file or tool-result",
        "data": "base64 data, if there is no url",
        "meta": "Provider-specific options.",
    },
):
    """A part of a message that is not plain text."""


class ToolCallOut(
    WireModel,
    value_type=ToolCall,
    hidden=("meta",),
    examples={"id": "tu_1", "name": "lookup", "input": {"order": 7}},
    descriptions={"invalid_input": "The model's text, if it is not a JSON object."},
):
    """A tool call by a model."""


class MessageOut(WireModel, value_type=Message, hidden=("meta",), examples={"role": "user"}):
    """A chat message. If it has `parts`, `content` is their text."""

    content: Annotated[str, BeforeValidator(_to_text)] = ""


class SpaceWire(WireModel, value_type=MemorySpace, examples={"id": example_id("ms"), "name": "goals"}):
    """A memory space: a named set of a user's memories."""


class CategoryWire(WireModel, value_type=Category, examples={"name": "preference", "kind": "PREFERENCE"}):
    """A category of memories: your own name for it, and its kind, which determines how fast their weight decays."""


class CitationWire(WireModel, value_type=Citation):
    """The source of a memory."""


class AtomWire(
    WireModel,
    value_type=Atom,
    examples={"id": example_id("atom"), "memory_space_id": example_id("ms"), "text": "User prefers morning meetings"},
    descriptions={"importance": "1 to 5", "confidence": "0 to 1"},
):
    """A remembered fact.

    It was true from `validFrom` to `validTo` (null: still true), and known from `createdAt` to `supersededAt`.
    `citations` are all its sources.
    """

    citations: list[CitationWire] = Field(default_factory=list)


class EntityWire(
    WireModel,
    value_type=Entity,
    examples={
        "id": example_id("ent"),
        "memory_space_id": example_id("ms"),
        "type": "PERSON",
        "canonical_name": "Ana Silva",
    },
):
    """A person, place or thing that memories refer to."""


class RecallHitWire(
    WireModel,
    value_type=RecallHit,
    descriptions={
        "score": "0 to 1. Recall by topic sorts the hits by score.",
        "decay_weight": "The weight that remains at the age of the atom; 1 for a new atom.",
        "entity_match_bonus": "Above 1 if the query mentions an entity of the atom.",
        "context": "The surrounding turns, if `neighbours` was set.",
        "parts": "The contribution of each signal to the log-odds of the score.",
    },
):
    """A recalled atom."""


class RecallResultWire(
    WireModel, value_type=RecallResult, descriptions={"total_candidates": "The number of atoms that were ranked."}
):
    """The result of a recall."""


class WorkingContextWire(
    WireModel,
    value_type=WorkingContext,
    descriptions={
        "over_budget": "Whether summary and always-on memories alone exceed the budget.",
        "remembers": "Whether it contains a summary or a memory.",
    },
):
    """The context for a model's answer, within a token budget.

    `contextBlock` is a system prompt, or the beginning of one. `messages` has the same content as chat messages, and
    `system` is the block without the turns. `atomsUsed` are the memories in it, `hits` the recalled ones among them.
    """

    system: str = ""


class ConversationWire(
    WireModel,
    value_type=Conversation,
    examples={"id": example_id("conv"), "namespace": "support-chat"},
    descriptions={"close_after": "Seconds without a new message after which it closes."},
):
    """A conversation."""

    status: Literal["open", "closed"] = "open"


_BLOCKS = Codec(
    encode=lambda blocks: [encode_block(block) for block in blocks],
    decode=lambda encoded: tuple(map(decode_block, encoded)),
)


class MessageWire(
    WireModel, value_type=StoredMessage, hidden=("meta",), examples={"id": example_id("msg"), "role": "user"}
):
    """A message in the log."""

    content: Annotated[list[BlockOut], _BLOCKS]
    visibility: Visibility = "user"


_MESSAGE_KEYS = {name: camel(name) for name in MessageWire.model_fields if name not in ("content", "usage")}


def encode_message(message: StoredMessage) -> bytes:
    """Encode a message like `MessageWire.from_value(message).to_json()`, but three times as fast."""
    if message.usage is None:
        fields = {key: getattr(message, name) for name, key in _MESSAGE_KEYS.items()}
        fields |= {"content": [encode_block(block) for block in message.content], "usage": None}
        try:
            return to_json(fields)
        except PydanticSerializationError:  # a lone surrogate
            pass
    return MessageWire.from_value(message).to_json()


class RollingSummaryWire(WireModel, value_type=RollingSummary, examples={"outcome": "refreshed"}):
    """The result of a refresh of the rolling summary."""

    rolling_summary: str | None = None
    rolling_summary_until_seq: int = 0


class AppendedTurnWire(WireModel, value_type=AppendedTurn):
    """Both messages of a turn, which share `turnId`."""


class ReadyWire(WireModel):
    """The first event of the feed, with its start position."""

    position: int


class ChangeWire(WireModel, value_type=Event, examples={"type": "message.appended"}):
    """A change: one event of the feed. Resume after its `position`; `subjectId` is the id of what changed."""

    data: Annotated[dict[str, Any], Codec(EVENT_DATA_KEYS.to_wire, EVENT_DATA_KEYS.from_wire)] = Field(
        default_factory=dict,
        examples=[{"messageId": example_id("msg"), "seq": 1, "role": "user", "visibility": "user"}],
    )


FEED_EVENTS: Mapping[str, type[WireModel]] = {
    "ready": ReadyWire,
    "message.appended": ChangeWire,
    "atom.added": ChangeWire,
}
"""The first event of the feed, and examples of later ones, which all have the same schema."""


class ConversationScopeWire(WireModel, value_type=ConversationScope):
    """Conversations of a namespace and a user; `*` matches any."""

    namespace: str = Field(examples=["daily-checkin"])
    user_id: str = Field(examples=["*"])


# A single scope is sent without a list.
_SCOPES = Codec(
    encode=lambda scopes: scopes[0] if len(scopes) == 1 else scopes,
    decode=lambda scopes: tuple(each.value() for each in (scopes if isinstance(scopes, list) else [scopes])),
)


class BindingWire(WireModel, value_type=Binding, examples={"id": example_id("bind")}):
    """A rule: conversations of these scopes become memories of these spaces.

    `conversationScope` is one scope or a list of scopes. `memorySpaceIds` are spaces of the user in `createdBy`;
    conversations of other users go to their own spaces with the same names.
    """

    conversation_scope: Annotated[ConversationScopeWire | list[ConversationScopeWire], _SCOPES]
    memory_space_names: list[str] = Field(default_factory=list)


class JobWire(
    WireModel,
    value_type=Job,
    examples={"id": example_id("job"), "kind": "extract"},
    descriptions={
        "binding_id": "'direct' if the job was started for a space without a binding.",
        "raw_output": "The model's output, if it could not be parsed.",
    },
):
    """A job that extracts one window of a conversation into one space."""

    result: Annotated[dict[str, Any], Codec(JOB_RESULT_KEYS.to_wire, JOB_RESULT_KEYS.from_wire)] = Field(
        default_factory=dict,
        description="Counts of the changes made by a finished job, and `leftOutFacts`: the facts that were not stored.",
    )


class ExtractionRunWire(WireModel, value_type=ExtractionRun):
    """The queued jobs: one per binding, space and window; empty if there are no messages.

    `id` and `status` are those of the first unfinished job, or of the last job.
    """

    id: str | None = None
    status: JobStatus


class UsageRecordWire(
    WireModel,
    value_type=UsageRecord,
    examples={"id": example_id("use"), "purpose": "extraction"},
    descriptions={"cost_usd": "Null if the price is unknown."},
):
    """The usage of one model call for memory."""


class UsageTotalWire(
    WireModel,
    value_type=UsageTotal,
    examples={"purpose": "extraction"},
    descriptions={"cost_usd": "The cost of all priced calls.", "unpriced_calls": "Calls without a known price."},
):
    """The total usage of one user, purpose and model."""

    model: str | None = None


class ErasedWire(WireModel):
    """The result of an erasure."""

    deleted: dict[str, int] = Field(examples=[{"messages": 12}], description="The number of deleted rows by table.")
    job_ids: list[str] = Field(default_factory=list)

    @classmethod
    def from_value(cls, value: ErasureReport) -> ErasedWire:
        return cls(deleted=dict(value), job_ids=list(value.job_ids))

    def value(self) -> ErasureReport:
        return ErasureReport(self.deleted, tuple(self.job_ids))


class ApiKeyWire(
    WireModel,
    value_type=ApiKey,
    examples={"id": example_id("key"), "name": "Maya's phone"},
    descriptions={
        "user_id": "The user of a key of the role 'user'.",
        "rate_limit": "Requests per minute; null means the server's default.",
    },
):
    """An API key, without its secret."""


class NewApiKeyWire(WireModel, value_type=NewApiKey):
    """A new API key with its secret, which is not shown again."""

    secret: str = Field(repr=False, description="Send it as `Authorization: Bearer <secret>`.")


class ExtractionWaited(WireModel):
    """Whether all extraction jobs have finished."""

    done: bool

    @classmethod
    def from_value(cls, value: bool) -> ExtractionWaited:
        return cls(done=value)

    def value(self) -> bool:
        return self.done


class StaleClosed(WireModel):
    """The closed conversations. If `nextCursor` is set, pass it as `cursor` to continue."""

    conversation_ids: list[str] = Field(default_factory=list)
    next_cursor: str | None = None


class Replayed(WireModel):
    """The queued jobs. If `nextCursor` is set, pass it as `cursor` to continue."""

    conversations: int = Field(description="The number of conversations that were checked.")
    jobs: int = Field(description="The number of their queued and running jobs.")
    skipped: int = Field(description="The number of conversations without a matching binding.")
    next_cursor: str | None = None
