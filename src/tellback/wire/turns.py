"""Turns on the wire: the body of a request, the outcome, and the deltas of a stream."""

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
"""Of a chat: null says something, which leaving them out does not."""

STATUS_DESCRIPTION = "completed, max_cycles, approval (`pending` waits for you) or truncated"
_TEXT_DELTAS: Mapping[str, type[TextDelta] | type[ThinkingDelta]] = {"text": TextDelta, "thinking": ThinkingDelta}
_encode_text = json.JSONEncoder(ensure_ascii=True).encode


class ToolIn(InputModel):
    """A tool that you run yourself: calls of it end the turn, and go on with `toolResults`."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", examples=["lookup"])
    description: str = Field(default="", max_length=20_000, examples=["Look up an order."])
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        description="JSON schema of its arguments.",
        examples=[{"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}],
    )


class ToolResultIn(InputModel):
    """What your tool gave for a call in `pending`."""

    tool_use_id: CallIdIn
    content: ContentIn = Field(examples=["shipped"])
    is_error: bool = False


class ApprovalIn(InputModel):
    """A decision on a call in `pending`."""

    approved: bool
    reason: str = Field(default="", max_length=10_000)
    input: dict[str, Any] | None = None


ApprovalsIn = Annotated[dict[CallIdIn, bool | ApprovalIn], Field(max_length=MAX_TOOLS)]


class OptionsIn(InputModel):
    """How the model is to answer."""

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
        """The fields of `ChatOptions`."""
        arguments = super().arguments()
        config = {name: arguments.pop(name) for name in ("temperature", "top_p") if name in arguments}
        return {**arguments, "config": config} if config else arguments


class AttachmentIn(InputModel):
    """A file that goes along with a message: its text, or its bytes as base64 or behind a url."""

    name: str = Field(min_length=1, max_length=500, examples=["receipt.png"])
    mime: str | None = Field(default=None, max_length=200, examples=["image/png"])
    text: str | None = None
    data: str | None = Field(default=None, description="base64")
    url: Annotated[str, AfterValidator(validate_url), Field(max_length=4_000)] | None = None
    size: CountIn | None = None


class BaseTurnInput(InputModel):
    """What `run-turn` and `chat` have in common."""

    drops_null = True

    model: NameIn | None = Field(None, exclude=True, description="The server's own, or another that it allows.")
    tools: list[ToolIn] | None = Field(None, exclude=True, max_length=MAX_TOOLS)
    tool_results: Annotated[list[ToolResultIn], Field(min_length=1, max_length=MAX_TOOLS)] | None = Field(
        None, exclude=True, description="In the place of a text, with the same `tools`."
    )
    approvals: ApprovalsIn | None = Field(
        None, exclude=True, description="In the place of a text: calls that are not to be made."
    )
    options: OptionsIn | None = None
    max_cycles: Annotated[int, Field(ge=1, le=MAX_CYCLES)] | None = Field(
        default=None, exclude=True, examples=[10], description="Calls of the model in this turn at most."
    )
    recall: RecallIn | None = None
    metadata: dict[str, Any] | None = None
    trace_id: KeyIn | None = Field(default=None, description="By default the one of the header traceparent.")
    idempotency_key: KeyIn | None = Field(default=None, description="Or the header Idempotency-Key.")
    wait: Annotated[float, Field(ge=0, le=MAX_TURN_WAIT_SECONDS)] | None = Field(
        default=None, description="Seconds to wait for another turn of the conversation."
    )
    stream: bool = Field(default=False, exclude=True, description="Or the header Accept: text/event-stream.")

    @model_validator(mode="after")
    def _validate_unique_tools(self) -> BaseTurnInput:
        names = [tool.name for tool in self.tools or ()]
        if len(set(names)) != len(names):
            raise ValueError("two tools have the same name")
        return self


class RunTurn(BaseTurnInput):
    """A turn of a conversation: `userText` or `content`, or what goes on with one."""

    provider: NameIn | None = Field(
        default=None, exclude=True, examples=["anthropic"], description="Who serves the model."
    )
    user_text: str | None = Field(default=None, examples=["Where is my refund?"])
    content: ContentIn | None = None
    tail_limit: Annotated[int, Field(ge=1, le=MAX_TAIL)] | None = Field(default=None, examples=[30])
    memory_space_id: IdIn | None = Field(default=None, description="What to remember.")


class ChatInput(BaseTurnInput):
    """A message, to be answered by a model that remembers."""

    text: str | None = Field(default=None, examples=["Where should we eat tonight?"])
    namespace: str = Field(default="chat", min_length=1, max_length=200)
    space: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default="default", description="The memory space by name; null remembers nothing."
    )
    system: str | None = Field(default=None, examples=["You are a travel assistant."])
    session_id: KeyIn | None = Field(default=None, description="Keeps chats of one namespace apart.")
    conversation_id: IdIn | None = Field(default=None, description="To go on with a certain one.")
    close_after: Annotated[float, Field(ge=0, le=YEAR_SECONDS)] | None = Field(
        default=HOUR_SECONDS,
        description="Seconds without a message, after which a conversation that is opened closes; null: it never does.",
    )
    memory_wait: Annotated[float, Field(ge=0, le=MAX_MEMORY_WAIT_SECONDS)] | None = Field(
        default=None, description="Seconds."
    )
    attachments: list[AttachmentIn] | None = Field(default=None, max_length=50)

    def arguments(self) -> dict[str, Any]:
        """The arguments of `user.chat`; `space` and `close_after` may be null."""
        return super().arguments() | {name: getattr(self, name) for name in NULLABLE_FIELDS & self.model_fields_set}


class ToolInvocationWire(WireModel, value_type=ToolInvocation, examples={"id": "tu_1", "name": "lookup"}):
    """A tool call of a turn and what came of it; `content` is null while it waits."""

    arguments: dict[str, Any] = Field(default_factory=dict)


def _error_name(error: Any) -> Any:
    return type(error).__name__ if isinstance(error, Exception) else error


class TurnProblemWire(
    WireModel,
    value_type=TurnProblem,
):
    """Something that failed without ending the turn."""

    step: str = Field(examples=["recall"], description="recall, store_user or store_reply")
    error: Annotated[str, BeforeValidator(_error_name)]

    def value(self) -> TurnProblem:
        """The problem; its error is one of a server's."""
        return TurnProblem(self.step, RemoteError(self.error))


def restore_context(atoms_used: Iterable[AtomWire], tokens_estimated: int | None) -> WorkingContext | None:
    """Decode as much of a working context as is sent of it."""
    if tokens_estimated is None:
        return None
    atoms = tuple(atom.value() for atom in atoms_used)
    return WorkingContext("", (), atoms, tokens_estimated, remembers=bool(atoms))


class TurnResultWire(
    WireModel,
    value_type=TurnResult,
    hidden=("context", "trace"),
    examples={"text": "Your refund is on its way.", "stop_reason": "end_turn"},
    descriptions={"pending": "Calls that wait: run them, and post `toolResults`."},
):
    """The result of a turn."""

    status: str = Field(examples=["completed"], description=STATUS_DESCRIPTION)
    usage: UsageWire
    output: Any = None
    atoms_used: list[AtomWire] = Field(default_factory=list, description="The memories that the model was given.")
    tokens_estimated: int | None = Field(
        default=None, description="How large the working context was; null if none was asked for."
    )
    problems: list[TurnProblemWire] = Field(default_factory=list)

    @classmethod
    def from_value(cls, value: Any) -> Any:
        """Encode a result. Of the working context it has the memories, and how large it was."""
        wire = super().from_value(value)
        wire.tokens_estimated = None if value.context is None else value.context.tokens_estimated
        return wire

    def value(self) -> TurnResult:
        """Decode the result, with as much of the working context as was on the wire."""
        result: TurnResult = super().value()
        # `output` as it was sent: in a value, a list would be a tuple.
        return replace(result, output=self.output, context=restore_context(self.atoms_used, self.tokens_estimated))


class TurnOutcomeWire(TurnResultWire):
    """The result of a turn of a conversation, which has other names for its messages and usage."""

    ok: bool = True
    turn_id: str
    conversation_id: str
    usage: UsageWire = Field(alias="aggregateUsage")
    messages: list[MessageWire] = Field(alias="appendedMessages")


class TextDeltaWire(WireModel):
    """The next piece of the reply's text, or of what the model thinks."""

    text: str = Field(examples=["Your refund"])


class ToolUseStartWire(WireModel, value_type=ToolUseStart, examples={"id": "tu_1", "name": "lookup"}):
    """A tool call begins."""


class ToolUseInputWire(
    WireModel, value_type=ToolUseInputDelta, examples={"id": "tu_1", "partial_input_json": '{"order": '}
):
    """A piece of a tool call's input, as JSON text."""


class ToolUseEndWire(WireModel, value_type=ToolUseEnd, examples={"id": "tu_1"}):
    """A tool call's input is complete."""


class StopWire(WireModel, value_type=StreamStop, hidden=("reply",), examples={"reason": "end_turn"}):
    """The end of one call of the model; more may follow, if it called tools."""


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
"""What comes while a turn runs."""


def encode_delta(delta: ReplyDelta) -> tuple[str, bytes] | None:
    """The name and the JSON of a delta; None for one that is not for the wire.

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
    """The delta of an event's name and JSON; None for one that is not known here.

    >>> decode_delta("text", {"text": "Hi"})
    TextDelta(text='Hi')
    """
    if event in _TEXT_DELTAS:
        return _TEXT_DELTAS[event](str(data["text"]))
    model = _DELTA_MODEL_BY_EVENT.get(event)
    found: ReplyDelta | None = None if model is None else model.model_validate(data).value()
    return found
