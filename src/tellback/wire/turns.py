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
from tellback.wire.base import Wire
from tellback.wire.conversations import MessageWire, UsageWire
from tellback.wire.memory import AtomWire
from tellback.wire.messages import ToolCallOut

STATUS = "completed, max_cycles, approval (`pending` waits for you) or truncated"


class ToolInvocationWire(Wire):
    """A tool call of a turn and what came of it; `content` is null while it waits."""

    kind: ClassVar[type[Any] | None] = ToolInvocation

    id: str = Field(examples=["tu_1"])
    name: str = Field(examples=["lookup"])
    arguments: dict[str, Any] = Field(default_factory=dict)
    content: str | None = None
    is_error: bool = False


def _error_name(error: Any) -> Any:
    return type(error).__name__ if isinstance(error, Exception) else error


class TurnProblemWire(Wire):
    """Something that failed without ending the turn."""

    step: str = Field(examples=["recall"], description="recall, store_user or store_reply")
    error: Annotated[str, BeforeValidator(_error_name)]

    def value(self) -> TurnProblem:
        """The problem; its error is one of a server's."""
        return TurnProblem(self.step, RemoteError(self.error))


class _Ended(Wire):
    """What both ways of telling of a turn's end have in common."""

    status: str = Field(examples=["completed"], description=STATUS)
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
        made = cls.model_validate(value)
        made.tokens_estimated = None if value.context is None else value.context.tokens_estimated
        return made

    def value(self) -> Any:
        """How it ended, with as much of the working context as was on the wire."""
        found = super().value()
        object.__setattr__(found, "output", self.output)  # a list stays one
        if self.tokens_estimated is not None:
            atoms = tuple(atom.value() for atom in self.atoms_used)
            context = WorkingContext("", (), atoms, self.tokens_estimated, remembers=bool(atoms))
            object.__setattr__(found, "context", context)
        return found


class TurnOutcomeWire(_Ended):
    """How a turn ended."""

    kind: ClassVar[type[Any] | None] = TurnOutcome

    turn_id: str
    conversation_id: str
    appended_messages: list[MessageWire]
    aggregate_usage: UsageWire
    total_latency_ms: int = 0
    stop_reason: str = Field(default="end_turn", examples=["end_turn"])


class TurnResultWire(_Ended):
    """The answer of a chat."""

    kind: ClassVar[type[Any] | None] = TurnResult

    ok: bool
    session_id: str | None = None
    message_id: str | None = None
    conversation_id: str | None = None
    turn_id: str | None = None
    usage: UsageWire
    messages: list[MessageWire] = Field(default_factory=list)


class TextDeltaWire(Wire):
    """The next piece of the reply's text, or of what the model thinks."""

    text: str = Field(examples=["Your refund"])


class ToolUseStartWire(Wire):
    """A tool call begins."""

    kind: ClassVar[type[Any] | None] = ToolUseStart

    id: str = Field(examples=["tu_1"])
    name: str = Field(examples=["lookup"])


class ToolUseInputWire(Wire):
    """A piece of a tool call's input, as JSON text."""

    kind: ClassVar[type[Any] | None] = ToolUseInputDelta

    id: str = Field(examples=["tu_1"])
    partial_input_json: str = Field(examples=['{"order": '])


class ToolUseEndWire(Wire):
    """A tool call's input is complete."""

    kind: ClassVar[type[Any] | None] = ToolUseEnd

    id: str = Field(examples=["tu_1"])


class StopWire(Wire):
    """The end of one call of the model; more may follow, if it called tools."""

    kind: ClassVar[type[Any] | None] = StreamStop

    reason: str = Field(examples=["end_turn"])
    usage: UsageWire | None = None


_WIRES: Mapping[type[Any], tuple[str, type[Wire]]] = {
    ToolUseStart: ("tool_use_start", ToolUseStartWire),
    ToolUseInputDelta: ("tool_use_input", ToolUseInputWire),
    ToolUseEnd: ("tool_use_end", ToolUseEndWire),
    StreamStop: ("stop", StopWire),
}
_KINDS: Mapping[str, type[Wire]] = dict(_WIRES.values())
_TEXTS: Mapping[str, type[TextDelta] | type[ThinkingDelta]] = {"text": TextDelta, "thinking": ThinkingDelta}
_text = json.JSONEncoder(ensure_ascii=True).encode


def delta_event(delta: ReplyDelta) -> tuple[str, bytes] | None:
    """The name and the JSON of a delta; None for one that is not for the wire.

    >>> delta_event(TextDelta("Hi"))
    ('text', b'{"text":"Hi"}')
    """
    kind = type(delta)
    if kind is TextDelta or kind is ThinkingDelta:
        event = "text" if kind is TextDelta else "thinking"
        return event, f'{{"text":{_text(delta.text)}}}'.encode("ascii")  # type: ignore[union-attr]
    found = _WIRES.get(kind)
    return None if found is None else (found[0], found[1].of(delta).encoded())


def delta_value(event: str, data: Mapping[str, Any]) -> ReplyDelta | None:
    """The delta of an event's name and JSON; None for one that is not known here.

    >>> delta_value("text", {"text": "Hi"})
    TextDelta(text='Hi')
    """
    if event in _TEXTS:
        return _TEXTS[event](str(data["text"]))
    wire = _KINDS.get(event)
    found: ReplyDelta | None = None if wire is None else wire.model_validate(data).value()
    return found
