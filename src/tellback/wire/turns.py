"""JSON models of turns: request bodies, results, and the deltas of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tellback.errors import RemoteError
from tellback.types import ReplyDelta, StreamStop, TextDelta, ThinkingDelta, ToolUseEnd, ToolUseInputDelta, ToolUseStart
from tellback.types.conversations import ToolInvocation, TurnProblem, TurnResult
from tellback.types.memory import WorkingContext
from tellback.wire.arguments import RecallIn
from tellback.wire.base import CountIn, IdIn, InputModel, NameIn, WireModel
from tellback.wire.messages import ContentIn, validate_url
from tellback.wire.values import AtomWire, MessageWire, UsageWire

MAX_TOOLS = 128
MAX_CYCLES = 50
MAX_TAIL = 500
MAX_TURN_WAIT_SECONDS = 300.0
MAX_MEMORY_WAIT_SECONDS = 60.0
HOUR_SECONDS = 3_600.0
YEAR_SECONDS = 365 * 24 * 3_600.0

KeyIn = Annotated[str, Field(min_length=1, max_length=500)]
CallIdIn = Annotated[str, Field(min_length=1, max_length=500, examples=["tu_1"])]

NULLABLE_FIELDS = frozenset(("space", "close_after"))
"""Fields of a chat in which null differs from a missing value."""

STREAM_DESCRIPTION = "Stream the answer. Alternative to the header Accept: text/event-stream."
STATUS_DESCRIPTION = "completed, max_cycles, approval (calls in `pending` wait) or truncated"
_TEXT_DELTAS: Mapping[str, type[TextDelta] | type[ThinkingDelta]] = {"text": TextDelta, "thinking": ThinkingDelta}
_encode_text = json.JSONEncoder(ensure_ascii=True).encode


class ToolIn(InputModel):
    """A tool that the client runs. A call of the tool ends the turn; continue the turn with `toolResults`."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", examples=["lookup"])
    description: str = Field(default="", max_length=20_000, examples=["Look up an order."])
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        description="The JSON schema of its arguments.",
        examples=[{"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}],
    )


class ToolResultIn(InputModel):
    """The result of a tool call in `pending`."""

    tool_use_id: CallIdIn
    content: ContentIn = Field(examples=["shipped"])
    is_error: bool = False


class ApprovalIn(InputModel):
    """A decision on a tool call in `pending`."""

    approved: bool
    reason: str = Field(default="", max_length=10_000)
    input: dict[str, Any] | None = None


ApprovalsIn = Annotated[dict[CallIdIn, bool | ApprovalIn], Field(max_length=MAX_TOOLS)]


class OptionsIn(InputModel):
    """Options of the model call."""

    drops_null = True

    system_prompt: str | None = Field(default=None, examples=["You are a support assistant. Be brief."])
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_context_tokens: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    tool_choice: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, examples=["auto"], description="auto, none, required or a tool's name"
    )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `ChatOptions`."""
        arguments = super().arguments()
        config = {name: arguments.pop(name) for name in ("temperature", "top_p") if name in arguments}
        return {**arguments, "config": config} if config else arguments


class AttachmentIn(InputModel):
    """A file attached to a message: its text, its bytes as base64, or its URL."""

    name: str = Field(min_length=1, max_length=500, examples=["receipt.png"])
    mime: str | None = Field(default=None, max_length=200, examples=["image/png"])
    text: str | None = None
    data: str | None = Field(default=None, description="base64")
    url: Annotated[str, AfterValidator(validate_url), Field(max_length=4_000)] | None = None
    size: CountIn | None = None


class BaseTurnInput(InputModel):
    """Fields that `run-turn` and `chat` share."""

    drops_null = True

    model: NameIn | None = Field(
        None, exclude=True, description="The default model, or another that the server allows."
    )
    tools: list[ToolIn] | None = Field(None, exclude=True, max_length=MAX_TOOLS)
    tool_results: Annotated[list[ToolResultIn], Field(min_length=1, max_length=MAX_TOOLS)] | None = Field(
        None, exclude=True, description="Results of pending calls, instead of a text; send the same `tools`."
    )
    approvals: ApprovalsIn | None = Field(
        None, exclude=True, description="Decisions on pending calls, instead of a text."
    )
    options: OptionsIn | None = None
    max_cycles: Annotated[int, Field(ge=1, le=MAX_CYCLES)] | None = Field(
        default=None, exclude=True, examples=[10], description="The maximum number of model calls in this turn."
    )
    recall: RecallIn | None = None
    metadata: dict[str, Any] | None = None
    trace_id: KeyIn | None = Field(default=None, description="Replaces the trace id of the header traceparent.")
    idempotency_key: KeyIn | None = Field(default=None, description="Alternative to the header Idempotency-Key.")
    wait: Annotated[float, Field(ge=0, le=MAX_TURN_WAIT_SECONDS)] | None = Field(
        default=None, description="The maximum seconds to wait until another turn of the conversation has ended."
    )
    stream: bool = Field(default=False, exclude=True, description=STREAM_DESCRIPTION)

    @model_validator(mode="after")
    def _validate_unique_tools(self) -> BaseTurnInput:
        names = [tool.name for tool in self.tools or ()]
        if len(set(names)) != len(names):
            raise ValueError("tool names must be unique")
        return self


class RunTurn(BaseTurnInput):
    """A turn of a conversation: `userText`, `content`, or the continuation of a turn."""

    provider: NameIn | None = Field(
        default=None, exclude=True, examples=["anthropic"], description="The model's provider."
    )
    user_text: str | None = Field(default=None, examples=["Where is my refund?"])
    content: ContentIn | None = None
    tail_limit: Annotated[int, Field(ge=1, le=MAX_TAIL)] | None = Field(default=None, examples=[30])
    memory_space_id: IdIn | None = Field(default=None, description="The space to recall from.")


class ChatInput(BaseTurnInput):
    """A chat message to answer with the user's memories."""

    text: str | None = Field(default=None, examples=["Where should we eat tonight?"])
    namespace: str = Field(default="chat", min_length=1, max_length=200)
    space: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default="default", description="The name of the memory space; null disables memory."
    )
    system: str | None = Field(default=None, examples=["You are a travel assistant."])
    session_id: KeyIn | None = Field(default=None, description="Your id of a chat; separates chats in one namespace.")
    conversation_id: IdIn | None = Field(default=None, description="The conversation to continue.")
    close_after: Annotated[float, Field(ge=0, le=YEAR_SECONDS)] | None = Field(
        default=HOUR_SECONDS,
        description="Seconds without a message after which a new conversation closes; null: never.",
    )
    memory_wait: Annotated[float, Field(ge=0, le=MAX_MEMORY_WAIT_SECONDS)] | None = Field(
        default=None, description="Seconds to wait for memories of closed conversations."
    )
    attachments: list[AttachmentIn] | None = Field(default=None, max_length=50)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `user.chat`; `space` and `close_after` may be null."""
        return super().arguments() | {name: getattr(self, name) for name in NULLABLE_FIELDS & self.model_fields_set}


class ToolInvocationWire(WireModel, value_type=ToolInvocation, examples={"id": "tu_1", "name": "lookup"}):
    """A tool call of a turn and its result; `content` is null while it is pending."""

    arguments: dict[str, Any] = Field(default_factory=dict)


def _error_name(error: Any) -> Any:
    return type(error).__name__ if isinstance(error, Exception) else error


class TurnProblemWire(
    WireModel,
    value_type=TurnProblem,
):
    """A step that failed without ending the turn."""

    step: str = Field(
        examples=["recall"], description="recall, store_user, store_reply, tool_data, understand, choose or time_zone"
    )
    error: Annotated[str, BeforeValidator(_error_name)]

    def value(self) -> TurnProblem:
        """Return the problem. Its error is a `RemoteError` with the text that the server sent."""
        return TurnProblem(self.step, RemoteError(self.error))


def restore_context(atoms_used: Iterable[AtomWire], tokens_estimated: int | None) -> WorkingContext | None:
    """Decode the part of a working context that is sent."""
    if tokens_estimated is None:
        return None
    atoms = tuple(atom.value() for atom in atoms_used)
    return WorkingContext("", (), atoms, tokens_estimated, remembers=bool(atoms))


class TurnResultWire(
    WireModel,
    value_type=TurnResult,
    hidden=("context", "trace"),
    examples={"text": "Your refund is on its way.", "stop_reason": "end_turn"},
    descriptions={"pending": "Pending tool calls: run them and send `toolResults`."},
):
    """The result of a turn."""

    status: str = Field(examples=["completed"], description=STATUS_DESCRIPTION)
    usage: UsageWire
    output: Any = None
    atoms_used: list[AtomWire] = Field(default_factory=list, description="The memories that the model received.")
    tokens_estimated: int | None = Field(
        default=None, description="The size of the working context; null if there was none."
    )
    problems: list[TurnProblemWire] = Field(default_factory=list)

    @classmethod
    def from_value(cls, value: Any) -> Any:
        """Encode a result, with the memories and the size of its working context."""
        wire = super().from_value(value)
        wire.tokens_estimated = None if value.context is None else value.context.tokens_estimated
        return wire

    def value(self) -> TurnResult:
        """Decode the result, with the part of the working context that was sent."""
        result: TurnResult = super().value()
        # Keep `output` as sent: decoding would turn lists into tuples.
        return replace(result, output=self.output, context=restore_context(self.atoms_used, self.tokens_estimated))


class TurnOutcomeWire(TurnResultWire):
    """The result of a turn of a conversation. `appendedMessages` are its messages, `aggregateUsage` is its usage."""

    ok: bool = True
    turn_id: str
    conversation_id: str
    usage: UsageWire = Field(alias="aggregateUsage")
    messages: list[MessageWire] = Field(alias="appendedMessages")


class TextDeltaWire(WireModel):
    """The next part of the reply's text, or of the model's thinking."""

    text: str = Field(examples=["Your refund"])


class ToolUseStartWire(WireModel, value_type=ToolUseStart, examples={"id": "tu_1", "name": "lookup"}):
    """The start of a tool call."""


class ToolUseInputWire(
    WireModel, value_type=ToolUseInputDelta, examples={"id": "tu_1", "partial_input_json": '{"order": '}
):
    """A part of a tool call's input, as JSON text."""


class ToolUseEndWire(WireModel, value_type=ToolUseEnd, examples={"id": "tu_1"}):
    """The end of a tool call's input."""


class StopWire(WireModel, value_type=StreamStop, hidden=("reply",), examples={"reason": "end_turn"}):
    """The end of one model call; another may follow if it called tools."""


_DELTA_MODELS: Mapping[type[Any], tuple[str, type[WireModel]]] = {
    ToolUseStart: ("tool_use_start", ToolUseStartWire),
    ToolUseInputDelta: ("tool_use_input", ToolUseInputWire),
    ToolUseEnd: ("tool_use_end", ToolUseEndWire),
    StreamStop: ("stop", StopWire),
}
_DELTA_MODEL_BY_EVENT: Mapping[str, type[WireModel]] = dict(_DELTA_MODELS.values())


DELTA_EVENTS: Mapping[str, type[WireModel]] = {
    "text": TextDeltaWire,
    "thinking": TextDeltaWire,
    **_DELTA_MODEL_BY_EVENT,
}
"""The events of a running turn."""


def encode_delta(delta: ReplyDelta) -> tuple[str, bytes] | None:
    """Encode a delta as event name and JSON; None if it is not sent.

    >>> encode_delta(TextDelta("Hi"))
    ('text', b'{"text":"Hi"}')
    """
    kind = type(delta)
    if kind is TextDelta or kind is ThinkingDelta:
        event = "text" if kind is TextDelta else "thinking"
        return event, f'{{"text":{_encode_text(delta.text)}}}'.encode("ascii")  # type: ignore[union-attr]
    found = _DELTA_MODELS.get(kind)
    return None if found is None else (found[0], found[1].from_value(delta).to_json())


def decode_delta(event: str, data: Mapping[str, Any]) -> ReplyDelta | None:
    """Decode an event's name and JSON to a delta; None if the event is unknown.

    >>> decode_delta("text", {"text": "Hi"})
    TextDelta(text='Hi')
    """
    if event in _TEXT_DELTAS:
        return _TEXT_DELTAS[event](str(data["text"]))
    model = _DELTA_MODEL_BY_EVENT.get(event)
    found: ReplyDelta | None = None if model is None else model.model_validate(data).value()
    return found
