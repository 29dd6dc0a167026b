"""The values of a chat turn: configuration, input and result."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tellback import validation
from tellback.chat import ChatOptions
from tellback.chat.approval import as_approvals
from tellback.errors import EmbeddingError, InvalidArgumentError, NotFoundError, StoreClosedError, StoreError
from tellback.types import ChatUsage, ToolCall
from tellback.types.access import Scope
from tellback.types.conversations import (
    Conversation,
    Identity,
    Session,
    StoredMessage,
    ToolInvocation,
    TurnOutcome,
    TurnProblem,
)
from tellback.types.memory import Atom, WorkingContext

if TYPE_CHECKING:
    from tellback.conversations import Conversations
    from tellback.memory.memory import Memory
    from tellback.memory.working_context import WorkingContextBuilder

log = logging.getLogger("tellback.turn")

T = TypeVar("T")

DEFAULT_RECALL_OPTIONS = {"limit": 5, "min_score": 0.3}


class UserHandle(Protocol):
    """`rc.user(...)`."""

    scope: Scope
    conversations: Conversations

    @property
    def memory(self) -> Memory: ...

    @property
    def working_context(self) -> WorkingContextBuilder: ...


async def get_conversation(user: UserHandle, id: str) -> Conversation:
    """The user's conversation of that id."""
    conversation = await user.conversations.get(id)
    if conversation is None:
        raise NotFoundError("conversation", id)
    return conversation


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """What all turns of an agent share: whose memory, the agent's name, the model, and the system prompt to begin with.

    `runtime` is a user's handle, `rc.user(...)`. `agent_name` is the namespace of the conversations, and
    `stream_label` goes with every event of a reply.

    >>> from tellback import Tellback
    >>> TurnConfig(Tellback(":memory:").user("maya"), "greeter", system_base="Be kind.").agent_name
    'greeter'
    """

    runtime: UserHandle
    agent_name: str
    stream_label: str = "reply"
    chat_opts: ChatOptions = ChatOptions()
    system_base: str = ""

    def __post_init__(self) -> None:
        if not hasattr(self.runtime, "conversations"):
            raise InvalidArgumentError(f"runtime is a user's handle, rc.user(...), not {self.runtime!r:.80}.")
        validation.validate_name("agent_name", self.agent_name)
        if not isinstance(self.chat_opts, ChatOptions):
            raise InvalidArgumentError(f"chat_opts is a ChatOptions, not {self.chat_opts!r:.80}.")


@dataclass(frozen=True, slots=True)
class TurnInput:
    """One turn: who says what, where, and how this turn differs from others. None stands for a default.

    - `attachments` are summed up in the stored message and put into the prompt: see `Attachment`.
    - `payload` holds the client's `session_id` and `message_id`, which come back with every event of the reply.
    - `recall_opts` are `limit` and `min_score`, the memory `space` by name or `space_id`, and any other argument of
      `working_context.build`. `memory_heading` stands over what is remembered.
    - `persist_user` and `persist_assistant` switch off what is stored, `bind_tool_ctx` what tools find in
      `tellback.request`; `ctx_extras` is bound besides.
    - `user_source` and `user_metadata` go with the stored message, `assistant_source` and `assistant_metadata` with the
      answer; the source is the agent's name by default.
    - `fallback_text` is the answer in the place of the model's, when there is no key for example. `system_override` is
      the whole system prompt; nothing is recalled then.
    - `approvals`, in the place of a text, decides calls that `result.pending` named, in the session's conversation.

    >>> TurnInput(Session("web-42"), Identity("maya"), "Hi!", recall_opts={"limit": 3}).text
    'Hi!'
    """

    session: Session
    sender: Identity
    text: str = ""
    attachments: Sequence[Any] | None = None
    payload: Mapping[str, Any] | None = None
    recall_opts: Mapping[str, Any] | None = None
    memory_heading: str | None = None
    persist_user: bool | None = None
    persist_assistant: bool | None = None
    bind_tool_ctx: bool | None = None
    ctx_extras: Mapping[str, Any] | None = None
    user_source: str | None = None
    user_metadata: Mapping[str, Any] | None = None
    assistant_source: str | None = None
    assistant_metadata: Mapping[str, Any] | None = None
    fallback_text: str | None = None
    system_override: str | None = None
    approvals: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.session, Session) or not isinstance(self.sender, Identity):
            raise InvalidArgumentError("session is a Session and sender an Identity of tellback.turn.")
        if not isinstance(self.text, str):
            raise InvalidArgumentError(f"text is what the user says, not {self.text!r:.80}.")
        validation.validate_name("session.id", self.session.id, validation.KEY_LENGTH)
        validation.validate_name("sender.user_id", self.sender.user_id)
        validation.validate_mapping("ctx_extras", self.ctx_extras)
        validation.validate_metadata(self.user_metadata)
        validation.validate_metadata(self.assistant_metadata)
        if self.approvals is not None:
            as_approvals(self.approvals)
            if self.text or self.attachments:
                raise InvalidArgumentError("approvals go on with a turn: pass them without a text and attachments.")
        validation.validate_mapping("payload", self.payload)
        validation.validate_recall_options("recall_opts", self.recall_opts, ("limit", "space", "space_id"))


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended. `str(result)` is the answer.

    `ok` says that there is one; without, calls in `pending` wait for a decision (`status` is "approval" then).
    `atoms_used` are the memories that the model was given, each with its citation. `problems` are failures that did
    not end the turn: a memory that could not be asked, a message that could not be stored.

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

    @property
    def atoms_used(self) -> tuple[Atom, ...]:
        """The memories that the model was given."""
        return () if self.context is None else self.context.atoms_used

    def __str__(self) -> str:
        return self.text


def build_turn_result(outcome: TurnOutcome, event_payload: Mapping[str, Any]) -> TurnResult:
    """The outcome of a turn, as those who chat see it."""
    return TurnResult(
        ok=outcome.status != "approval",
        text=outcome.text,
        status=outcome.status,
        session_id=event_payload.get("session_id"),
        message_id=event_payload.get("message_id"),
        conversation_id=outcome.conversation_id or None,
        turn_id=outcome.turn_id,
        usage=outcome.aggregate_usage,
        context=outcome.context,
        tool_invocations=outcome.tool_invocations,
        pending=outcome.pending,
        problems=outcome.problems,
        messages=outcome.appended_messages,
        output=outcome.output,
        model_calls=outcome.model_calls,
    )


async def try_step(work: Awaitable[T], step: str, problems: list[TurnProblem]) -> T | None:
    """What it gives, or None if the store or the embedder failed, which is noted.

    A Tellback that is not open is no failure but a mistake, and raises.
    """
    try:
        return await work
    except StoreClosedError:
        raise
    except (StoreError, EmbeddingError) as error:
        log.warning("%s failed; the turn goes on without it", step, exc_info=error)
        problems.append(TurnProblem(step, error))
        return None
