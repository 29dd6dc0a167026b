"""Conversations, stored messages, turns, and the sessions of agents."""

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
    """A chat session with your own id for it, such as that of a browser tab or a channel.

    Turns with the same session id continue one conversation, unless `conversation_id` is set. `metadata` is free for
    your data.

    >>> Session("web-42").id
    'web-42'
    """

    id: str
    conversation_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender of a message. `metadata` is free for your data: roles, an email address, a locale.

    >>> Identity("maya", name="Maya").user_id
    'maya'
    """

    user_id: str
    name: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class TurnProblem:
    """A failure that did not end the turn.

    `step` is "recall", "store_user", "store_reply", "tool_data", "understand", "choose" or
    "time_zone".

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
    """A snapshot of a conversation.

    `last_seq` is the number of its newest message, and so the number of messages; `turns` is the number of turns. The
    rolling summary covers the messages up to `rolling_summary_until_seq`. With `close_after`, the conversation is
    closed automatically after that time without messages.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     conversation = tb.user("maya").conversations.create("chat", title="Dinner")
    >>> conversation.namespace, conversation.title, conversation.status
    ('chat', 'Dinner', 'open')
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
    """A message to append: everything except its position in the log.

    >>> from tellback.types.blocks import TextBlock
    >>> draft = MessageDraft("msg_1", "user", (TextBlock("A table for two"),), created_at=utc_now())
    >>> draft.visibility
    'user'
    """

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
    of blocks, `text` the text in them, and `messages` the chat messages for a model. `metadata` is the application's
    data, and `meta` the state that a provider needs back.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     log = tb.user("maya").conversations
    ...     conversation = log.create("chat")
    ...     message = log.append_user_message(conversation.id, "A table for two")
    >>> message.seq, message.role, message.text
    (1, 'user', 'A table for two')
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
        """The text of the message."""
        return blocks_text(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the message."""
        return self.messages[-1].tool_calls if any(isinstance(b, ToolUseBlock) for b in self.content) else ()

    @property
    def messages(self) -> list[Message]:
        """The chat messages for a model, with provider state: one, or more if it has several tool results."""
        return chat_messages(self.role, self.content, self.meta)


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """The assistant's reply of a turn that your own code ran, for `append_turn`.

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
    """The messages that `append_turn` stored. Both share `turn_id`.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     log = tb.user("maya").conversations
    ...     conversation = log.create("chat")
    ...     turn = log.append_turn(conversation.id, "A table for two", AssistantTurn("Booked."))
    >>> turn.user_message.seq, turn.assistant_message.text, turn.assistant_message.turn_id == turn.turn_id
    (1, 'Booked.', True)
    """

    turn_id: str
    user_message: StoredMessage
    assistant_message: StoredMessage


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """A tool call of a turn and its result; `content` is None while the call waits for approval.

    >>> from tellback import Tellback
    >>> from tellback.testing import ScriptedModel, calls, says
    >>> def add(x: int, y: int) -> int: return x + y
    >>> with Tellback(":memory:", model=ScriptedModel([calls("add", x=17, y=25), says("42.")])) as tb:
    ...     reply = tb.user("maya").chat("What is 17 + 25?", tools=[add])
    >>> [(each.name, each.arguments, each.content) for each in reply.tool_invocations]
    [('add', {'x': 17, 'y': 25}, '42')]
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    content: str | None = None
    is_error: bool = False

    @property
    def tool_name(self) -> str:
        """An alias of `name`."""
        return self.name


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn, for every function that runs turns. `str(result)` is the text of the reply.

    - `status` is "completed", "max_cycles" (the limit of model calls was reached, and the model answered without more
      tools), "approval" (calls in `pending` wait for a decision; `ok` is False then) or "truncated" (the provider's
      output limit cut the reply).
    - `message_id` is the id of the user's message, `messages` are that message and those that the turn stored, in
      order.
    - `model_calls` is the number of replies of the model, `usage` the sum of their tokens and cost.
    - `context` is the recalled working context, or None; `atoms_used` are its memories, each with its citation.
    - `problems` are failures that did not end the turn: a failed recall, a message that could not be stored.
    - `trace` explains how an agent with routes chose its reply; None for other turns.

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
        """The memories in the prompt."""
        return () if self.context is None else self.context.atoms_used

    @property
    def cost_usd(self) -> float | None:
        """The cost of the turn's model calls in US dollars; None if the price of the model is unknown."""
        return self.usage.cost_usd

    @property
    def appended_messages(self) -> tuple[StoredMessage, ...]:
        """An alias of `messages`."""
        return self.messages

    @property
    def aggregate_usage(self) -> ChatUsage:
        """An alias of `usage`."""
        return self.usage

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, with the memories used instead of the whole working context.

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
"""The former name of `TurnResult`."""


@dataclass(frozen=True, slots=True)
class RollingSummary:
    """The result of a summary refresh; `outcome` is "refreshed", or "unchanged" if there were no new messages.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     log = tb.user("maya").conversations
    ...     conversation = log.create("chat")
    ...     summary = log.refresh_rolling_summary(conversation.id)
    >>> summary.outcome
    'unchanged'
    """

    outcome: str
    rolling_summary: str | None
    rolling_summary_until_seq: int


@dataclass(frozen=True, slots=True)
class Event(Scoped):
    """A change. `position` is the cursor to continue from; `subject_id` is the id of the changed object.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     conversation = tb.user("maya").conversations.create("chat")
    ...     [event] = tb.events.read()
    >>> event.type, event.subject_id == conversation.id
    ('conversation.created', True)
    """

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
    """A stored session: its user, its state and the gathered data as JSON.

    `version` is the number of saved turns. Saving a turn that began with another version is rejected.

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
    """A stored message of a session.

    `tool_calls` are the tools that ran for it, each with `tool_name`, `arguments` and `result`. `event` is the same
    message in an agent's history: an `Event` from `Persistence`, its JSON in adapters. The adapter sets `position`,
    which grows with each message of a session.

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
