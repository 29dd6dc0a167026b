"""Conversations, messages as they are stored, turns, and the sessions of agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from tellback.types.access import Scope, Scoped
from tellback.types.blocks import Content, ContentBlock, ToolUseBlock, blocks_text, chat_messages
from tellback.types.ids import utc_now
from tellback.types.jsontext import to_json_value
from tellback.types.memory import Atom, WorkingContext
from tellback.types.messages import ChatUsage, Message, ToolCall


@dataclass(frozen=True, slots=True)
class Session:
    """One sitting of a chat: your own id for it, such as a browser tab's or a channel's.

    Turns with the same session id continue one conversation, unless `conversation_id` names one. `metadata` is yours.

    >>> Session("web-42").id
    'web-42'
    """

    id: str
    conversation_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sent a message. `metadata` is yours: roles, a mail address, a locale.

    >>> Identity("maya", name="Maya").user_id
    'maya'
    """

    user_id: str
    name: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class TurnProblem:
    """Something that failed without ending the turn: `step` is "recall", "store_user" or "store_reply".

    >>> str(TurnProblem("recall", TimeoutError("too slow")))
    'recall: TimeoutError: too slow'
    """

    step: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.step}: {type(self.error).__name__}: {self.error}"


Visibility = Literal["user", "internal", "hidden"]
VISIBILITIES: tuple[Visibility, ...] = ("user", "internal", "hidden")


@dataclass(frozen=True, slots=True)
class Conversation(Scoped):
    """A conversation as it stood when it was read.

    `last_seq` is the number of its newest message, so it counts them; `turns` counts its turns. The rolling summary
    covers the messages up to `rolling_summary_until_seq`. With `close_after` it is closed by itself once nothing has
    happened in it for that long.
    """

    id: str
    scope: Scope
    namespace: str
    status: str
    created_at: datetime
    updated_at: datetime
    title: str | None = None
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    closed_at: datetime | None = None
    last_seq: int = 0
    turns: int = 0
    rolling_summary: str | None = None
    rolling_summary_until_seq: int = 0
    summarized_turns: int = 0
    close_after: timedelta | None = None

    @property
    def is_open(self) -> bool:
        """Whether messages can still be appended."""
        return self.status == "open"


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """A message about to be appended: everything but its place in the log."""

    id: str
    role: str
    content: tuple[ContentBlock, ...]
    created_at: datetime
    visibility: str = "user"
    stop_reason: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: ChatUsage | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None
    meta: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in the log. It never changes.

    `seq` counts from 1 without gaps in its conversation; all messages of a turn share `turn_id`. `content` is a tuple
    of blocks; `text` is the words among them, `messages` the same as a model is sent it. `metadata` is the
    application's own, and `meta` the state that a provider wants back.
    """

    id: str
    conversation_id: str
    seq: int
    turn_id: str
    role: str
    content: tuple[ContentBlock, ...] = field(hash=False)
    created_at: datetime
    visibility: str = "user"
    stop_reason: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: ChatUsage | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None
    meta: Mapping[str, Any] | None = field(default=None, repr=False)
    metadata: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The words of the message."""
        return blocks_text(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools it calls."""
        return self.messages[-1].tool_calls if any(isinstance(b, ToolUseBlock) for b in self.content) else ()

    @property
    def messages(self) -> list[Message]:
        """It as chat messages, with the state a provider wants back: one, unless it holds several tool results."""
        return chat_messages(self.role, self.content, self.meta)


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """The assistant's side of a turn that you ran yourself, for `append_turn`.

    >>> AssistantTurn("Hello!", model="claude-sonnet-5", usage={"input_tokens": 12, "output_tokens": 3}).model
    'claude-sonnet-5'
    """

    content: Content
    stop_reason: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: ChatUsage | Mapping[str, Any] | None = None
    trace_id: str | None = None
    visibility: str = "user"
    created_at: datetime | str | None = None


@dataclass(frozen=True, slots=True)
class AppendedTurn:
    """What `append_turn` stored: both messages share `turn_id`."""

    turn_id: str
    user_message: StoredMessage
    assistant_message: StoredMessage


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """A tool call of a turn and what came of it; `content` is None while it waits for approval."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    content: str | None = None
    is_error: bool = False

    @property
    def tool_name(self) -> str:
        """The same as `name`."""
        return self.name


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn, whichever way it was run. `str(result)` is the answer.

    - `status` is "completed", "max_cycles" (the cap was reached, and the model was asked to answer without more tools),
      "approval" (calls in `pending` wait for a decision; `ok` is False then) or "truncated" (the provider's output
      limit cut the answer).
    - `message_id` is the user's message, `messages` are that message and what the turn added to the log, in order.
    - `model_calls` counts the replies of the model, `usage` adds up their tokens and cost.
    - `context` is what was recalled, if recall was asked for; `atoms_used` are its memories, each with its citation.
    - `problems` are failures that did not end the turn: recall that failed, a message that could not be stored.
    - `trace` says how an agent with routes came to its answer; None for other turns.

    >>> str(TurnResult(ok=True, text="Hello!"))
    'Hello!'
    """

    ok: bool
    text: str
    status: str = "completed"
    session_id: str | None = None
    message_id: str | None = None
    conversation_id: str | None = None
    turn_id: str | None = None
    usage: ChatUsage = field(default_factory=ChatUsage)
    context: WorkingContext | None = field(default=None, repr=False)
    tool_invocations: tuple[ToolInvocation, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    problems: tuple[TurnProblem, ...] = ()
    messages: tuple[StoredMessage, ...] = field(default=(), repr=False)
    output: Any = None
    model_calls: int = 0
    stop_reason: str = "end_turn"
    total_latency_ms: int = 0
    trace: Any = field(default=None, repr=False)

    @property
    def atoms_used(self) -> tuple[Atom, ...]:
        """The memories that the model was given."""
        return () if self.context is None else self.context.atoms_used

    @property
    def cost_usd(self) -> float | None:
        """The cost of the turn's model calls; None where the price of the model is unknown."""
        return self.usage.cost_usd

    @property
    def appended_messages(self) -> tuple[StoredMessage, ...]:
        """The same as `messages`."""
        return self.messages

    @property
    def aggregate_usage(self) -> ChatUsage:
        """The same as `usage`."""
        return self.usage

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, with the memories used in place of the whole working context.

        >>> TurnResult(ok=True, text="Hello!", conversation_id="conv_1").to_dict()["conversation_id"]
        'conv_1'
        """
        result: dict[str, Any] = {
            each.name: to_json_value(getattr(self, each.name)) for each in fields(self) if each.name != "context"
        }
        return {**result, "cost_usd": self.cost_usd, "atoms_used": to_json_value(self.atoms_used)}

    def __str__(self) -> str:
        return self.text


TurnOutcome = TurnResult
"""The former name of what `run_turn` returns."""


@dataclass(frozen=True, slots=True)
class RollingSummary:
    """What a refresh of the rolling summary gave; `outcome` is "refreshed", or "unchanged" if there was nothing new."""

    outcome: str
    rolling_summary: str | None
    rolling_summary_until_seq: int


@dataclass(frozen=True, slots=True)
class Event(Scoped):
    """One change, as told to subscribers. `position` is the cursor to go on from; `subject_id` names what changed."""

    position: int
    type: str
    scope: Scope
    subject_id: str
    data: Mapping[str, Any]
    created_at: datetime


SessionStatus: TypeAlias = Literal["active", "completed", "abandoned"]
SESSION_STATUSES: tuple[SessionStatus, ...] = ("active", "completed", "abandoned")

MessageRole: TypeAlias = Literal["user", "agent", "system"]
MESSAGE_ROLES: tuple[MessageRole, ...] = ("user", "agent", "system")


@dataclass(frozen=True, slots=True)
class SessionData:
    """A session as it is stored: whose it is, where it stands, and what was gathered, as JSON.

    `version` counts the turns that were saved: a turn that began from another version is refused.

    >>> SessionData("web-42", user_id="maya").status
    'active'
    """

    id: str
    user_id: str | None = None
    agent_name: str | None = None
    status: SessionStatus = "active"
    current_route: str | None = None
    current_state: str | None = None
    collected_data: Mapping[str, Any] = field(default_factory=dict, hash=False)
    message_count: int = 0
    last_message_at: datetime | None = None
    completed_at: datetime | None = None
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)
    version: int = 0


@dataclass(frozen=True, slots=True)
class MessageData:
    """A message of a session as it is stored.

    `tool_calls` are the tools that ran for it, each with `tool_name`, `arguments` and `result`. `event` is the same as
    an agent's history has it: an `Event` where `Persistence` gives it, its JSON where adapters keep it. `position` is
    given by the adapter, and grows with each message of a session.

    >>> MessageData("msg_1", "web-42", "user", "Hello!").tool_calls
    ()
    """

    id: str
    session_id: str
    role: MessageRole
    content: str
    user_id: str | None = None
    route: str | None = None
    state: str | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    event: Any = field(default=None, hash=False)
    created_at: datetime = field(default_factory=utc_now)
    position: int = 0
