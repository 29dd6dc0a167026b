"""Turns on the wire: how they ended, and what comes while they run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from tellback.errors import RemoteError
from tellback.turn.values import TurnResult
from tellback.types import (
    ReplyDelta,
    StreamStop,
    TextDelta,
    ThinkingDelta,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from tellback.types.context import WorkingContext
from tellback.types.conversations import ToolInvocation, TurnOutcome
from tellback.types.turns import TurnProblem
from tellback.wire.base import WireModel
from tellback.wire.conversations import MessageWire, UsageWire
from tellback.wire.memory import AtomWire
from tellback.wire.messages import ToolCallOut

STATUS_DESCRIPTION = "completed, max_cycles, approval (`pending` waits for you) or truncated"


class ToolInvocationWire(WireModel):
    """A tool call of a turn and what came of it; `content` is null while it waits."""

    value_type: ClassVar[type[Any] | None] = ToolInvocation

    id: str = Field(examples=["tu_1"])
    name: str = Field(examples=["lookup"])
    arguments: dict[str, Any] = Field(default_factory=dict)
    content: str | None = None
    is_error: bool = False


def _error_name(error: Any) -> Any:
    return type(error).__name__ if isinstance(error, Exception) else error


class TurnProblemWire(WireModel):
    """Something that failed without ending the turn."""

    step: str = Field(examples=["recall"], description="recall, store_user or store_reply")
    error: Annotated[str, BeforeValidator(_error_name)]

    def value(self) -> TurnProblem:
        """The problem; its error is one of a server's."""
        return TurnProblem(self.step, RemoteError(self.error))


class _TurnEndWire(WireModel):
    """What both ways of telling of a turn's end have in common."""

    status: str = Field(examples=["completed"], description=STATUS_DESCRIPTION)
    text: str = Field(examples=["Your refund is on its way."])
    tool_invocations: list[ToolInvocationWire] = Field(default_factory=list)
    pending: list[ToolCallOut] = Field(
        default_factory=list, description="Calls that wait: run them, and post `toolResults`."
    )
    model_calls: int = 0
    output: Any = None
    atoms_used: list[AtomWire] = Field(default_factory=list, description="The memories that the model was given.")
    tokens_estimated: int | None = Field(
        default=None, description="How large the working context was; null if none was asked for."
    )
    problems: list[TurnProblemWire] = Field(default_factory=list)

    @classmethod
    def of(cls, value: Any) -> Any:
        """It for an outcome. Of the working context it has the memories, and how large it was."""
        wire = cls.model_validate(value)
        wire.tokens_estimated = None if value.context is None else value.context.tokens_estimated
        return wire

    def value(self) -> Any:
        """How it ended, with as much of the working context as was on the wire."""
        value = super().value()
        object.__setattr__(value, "output", self.output)  # a list stays one
        if self.tokens_estimated is not None:
            atoms = tuple(atom.value() for atom in self.atoms_used)
            context = WorkingContext("", (), atoms, self.tokens_estimated, remembers=bool(atoms))
            object.__setattr__(value, "context", context)
        return value


class TurnOutcomeWire(_TurnEndWire):
    """How a turn ended."""

    value_type: ClassVar[type[Any] | None] = TurnOutcome

    turn_id: str
    conversation_id: str
    appended_messages: list[MessageWire]
    aggregate_usage: UsageWire
    total_latency_ms: int = 0
    stop_reason: str = Field(default="end_turn", examples=["end_turn"])


class TurnResultWire(_TurnEndWire):
    """The answer of a chat."""

    value_type: ClassVar[type[Any] | None] = TurnResult

    ok: bool
    session_id: str | None = None
    message_id: str | None = None
    conversation_id: str | None = None
    turn_id: str | None = None
    usage: UsageWire
    messages: list[MessageWire] = Field(default_factory=list)


class TextDeltaWire(WireModel):
    """The next piece of the reply's text, or of what the model thinks."""

    text: str = Field(examples=["Your refund"])


class ToolUseStartWire(WireModel):
    """A tool call begins."""

    value_type: ClassVar[type[Any] | None] = ToolUseStart

    id: str = Field(examples=["tu_1"])
    name: str = Field(examples=["lookup"])


class ToolUseInputWire(WireModel):
    """A piece of a tool call's input, as JSON text."""

    value_type: ClassVar[type[Any] | None] = ToolUseInputDelta

    id: str = Field(examples=["tu_1"])
    partial_input_json: str = Field(examples=['{"order": '])


class ToolUseEndWire(WireModel):
    """A tool call's input is complete."""

    value_type: ClassVar[type[Any] | None] = ToolUseEnd

    id: str = Field(examples=["tu_1"])


class StopWire(WireModel):
    """The end of one call of the model; more may follow, if it called tools."""

    value_type: ClassVar[type[Any] | None] = StreamStop

    reason: str = Field(examples=["end_turn"])
    usage: UsageWire | None = None


_DELTA_MODELS: Mapping[type[Any], tuple[str, type[WireModel]]] = {
    ToolUseStart: ("tool_use_start", ToolUseStartWire),
    ToolUseInputDelta: ("tool_use_input", ToolUseInputWire),
    ToolUseEnd: ("tool_use_end", ToolUseEndWire),
    StreamStop: ("stop", StopWire),
}
_DELTA_MODEL_BY_EVENT: Mapping[str, type[WireModel]] = dict(_DELTA_MODELS.values())
_TEXT_DELTAS: Mapping[str, type[TextDelta] | type[ThinkingDelta]] = {"text": TextDelta, "thinking": ThinkingDelta}
_encode_text = json.JSONEncoder(ensure_ascii=True).encode


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
    return None if found is None else (found[0], found[1].of(delta).to_json())


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
