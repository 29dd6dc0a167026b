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
"""What the data of events are called. Those of `user.erased` are names of tables, as in what an erasure gives."""

JOB_RESULT_KEYS = KeyMapping("left_out", "left_out_facts")
"""What the counts of a job are called."""


def example_id(prefix: str) -> str:
    """An id as servers make them, for examples."""
    return f"{prefix}_018f3c0de0a17b2c4d5e6f708192"


class UsageWire(WireModel, value_type=ChatUsage):
    """Tokens, cost and time."""


def _to_text(content: Any) -> str:
    return content if isinstance(content, str) else message_text(Message("", content))


class PartOut(
    WireModel,
    value_type=MessagePart,
    examples={"kind": "image"},
    descriptions={
        "kind": "text, image, audio, file or tool-result",
        "data": "base64, where there is no url",
        "meta": "Hints for one provider.",
    },
):
    """A piece of a message that is more than text."""


class ToolCallOut(
    WireModel,
    value_type=ToolCall,
    hidden=("meta",),
    examples={"id": "tu_1", "name": "lookup", "input": {"order": 7}},
    descriptions={"invalid_input": "What the model wrote, if it is no JSON object."},
):
    """A model's wish to call a tool."""


class MessageOut(WireModel, value_type=Message, hidden=("meta",), examples={"role": "user"}):
    """A chat message. With `parts`, `content` is what they come to in plain text."""

    content: Annotated[str, BeforeValidator(_to_text)] = ""


class SpaceWire(WireModel, value_type=MemorySpace, examples={"id": example_id("ms"), "name": "goals"}):
    """A named part of a user's memory."""


class CategoryWire(WireModel, value_type=Category, examples={"name": "preference", "kind": "PREFERENCE"}):
    """Your own name for a sort of memory, and its kind, which decides how fast it fades."""


class CitationWire(WireModel, value_type=Citation):
    """Where something was said."""


class AtomWire(
    WireModel,
    value_type=Atom,
    examples={"id": example_id("atom"), "memory_space_id": example_id("ms"), "text": "User prefers morning meetings"},
    descriptions={"importance": "1 to 5", "confidence": "0 to 1"},
):
    """One remembered thing.

    `validFrom` and `validTo` say when it was true (`validTo` null: still), `createdAt` and `supersededAt` when that was
    known. `citations` is everywhere it was said.
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
    """A person, a place or another thing that memories are about."""


class RecallHitWire(
    WireModel,
    value_type=RecallHit,
    descriptions={
        "score": "0 to 1; it orders the hits of a topic.",
        "decay_weight": "What its age left of its weight.",
        "entity_match_bonus": "Above 1 when the query names what the atom is about.",
        "context": "The turns around it, with `neighbours`.",
        "parts": "What each part added to the score's log-odds.",
    },
):
    """A recalled atom."""


class RecallResultWire(
    WireModel, value_type=RecallResult, descriptions={"total_candidates": "How many atoms were considered."}
):
    """What was recalled."""


class WorkingContextWire(
    WireModel,
    value_type=WorkingContext,
    descriptions={
        "over_budget": "The summary and the always-on memories alone are larger.",
        "remembers": "There is a summary or a memory in it.",
    },
):
    """What a model should know before it answers, within a token budget.

    `contextBlock` is a system prompt, or the beginning of one; `messages` is the same as chat messages, and `system`
    the block without the turns. `atomsUsed` are the memories in it, `hits` the recalled ones among them.
    """

    system: str = ""


class ConversationWire(
    WireModel,
    value_type=Conversation,
    examples={"id": example_id("conv"), "namespace": "support-chat"},
    descriptions={"close_after": "Seconds."},
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
    """Encode a message as `MessageWire.from_value(message).to_json()` does, at a third of its cost."""
    if message.usage is None:
        fields = {key: getattr(message, name) for name, key in _MESSAGE_KEYS.items()}
        fields |= {"content": [encode_block(block) for block in message.content], "usage": None}
        try:
            return to_json(fields)
        except PydanticSerializationError:  # half of a character
            pass
    return MessageWire.from_value(message).to_json()


class RollingSummaryWire(WireModel, value_type=RollingSummary, examples={"outcome": "refreshed"}):
    """What a refresh of the rolling summary gave."""

    rolling_summary: str | None = None
    rolling_summary_until_seq: int = 0


class AppendedTurnWire(WireModel, value_type=AppendedTurn):
    """Both messages of a turn, which share `turnId`."""


class ReadyWire(WireModel):
    """The first event of the feed: where it begins."""

    position: int


class ChangeWire(WireModel, value_type=Event, examples={"type": "message.appended"}):
    """One change, an event of the feed. `position` is where to go on from; `subjectId` names what changed."""

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


class ConversationScopeWire(WireModel, value_type=ConversationScope):
    """Conversations of a namespace and a user; `*` is any."""

    namespace: str = Field(examples=["daily-checkin"])
    user_id: str = Field(examples=["*"])


# A single scope stands by itself.
_SCOPES = Codec(
    encode=lambda scopes: scopes[0] if len(scopes) == 1 else scopes,
    decode=lambda scopes: tuple(each.value() for each in (scopes if isinstance(scopes, list) else [scopes])),
)


class BindingWire(WireModel, value_type=Binding, examples={"id": example_id("bind")}):
    """Conversations of some scopes become memories of some spaces.

    `conversationScope` is one scope, or a list of several. `memorySpaceIds` are spaces of whoever made it
    (`createdBy`); conversations of other users go to their own spaces of the same names.
    """

    conversation_scope: Annotated[ConversationScopeWire | list[ConversationScopeWire], _SCOPES]
    memory_space_names: list[str] = Field(default_factory=list)


class JobWire(
    WireModel,
    value_type=Job,
    examples={"id": example_id("job"), "kind": "extract"},
    descriptions={
        "binding_id": "'direct' where a space was named instead.",
        "raw_output": "What the model had said, if it could not be read.",
    },
):
    """The extraction of one window of a conversation into one space."""

    result: Annotated[dict[str, Any], Codec(JOB_RESULT_KEYS.to_wire, JOB_RESULT_KEYS.from_wire)] = Field(
        default_factory=dict, description="Counts of what a job that is done has changed."
    )


class ExtractionRunWire(WireModel, value_type=ExtractionRun):
    """What was set going: a job for each binding, space and window; none if nothing was said yet.

    `id` and `status` are those of the first job that is not done, or else of the last one.
    """

    id: str | None = None
    status: JobStatus


class UsageRecordWire(
    WireModel,
    value_type=UsageRecord,
    examples={"id": example_id("use"), "purpose": "extraction"},
    descriptions={"cost_usd": "Null where no price is known."},
):
    """What one model call for memory cost."""


class UsageTotalWire(
    WireModel,
    value_type=UsageTotal,
    examples={"purpose": "extraction"},
    descriptions={"cost_usd": "The sum of what has a price.", "unpriced_calls": "How many calls have none."},
):
    """The calls of one user, purpose and model, added up."""

    model: str | None = None


class ErasedWire(WireModel):
    """What an erasure deleted."""

    deleted: dict[str, int] = Field(examples=[{"messages": 12}], description="How many rows of each table.")
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
        "user_id": "The user that a key of the role 'user' is fixed to.",
        "rate_limit": "Requests a minute; null is what the server has for all.",
    },
):
    """An API key, without its secret."""


class NewApiKeyWire(WireModel, value_type=NewApiKey):
    """A key that was just made, with its secret: nobody can show that again."""

    secret: str = Field(repr=False, description="To be sent as `Authorization: Bearer <secret>`.")


class ExtractionWaited(WireModel):
    """Whether what was closed has become memories."""

    done: bool

    @classmethod
    def from_value(cls, value: bool) -> ExtractionWaited:
        return cls(done=value)

    def value(self) -> bool:
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
