"""A turn to run: what it takes, and how a caller's arguments become one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypedDict

from tellback.chat import ChatOptions, Model
from tellback.chat.approval import as_approvals
from tellback.conversations import checks
from tellback.conversations.drafts import build_draft
from tellback.conversations.runtime import Runtime
from tellback.conversations.turn_options import ToolHandler, resolve_options
from tellback.errors import InvalidArgumentError
from tellback.request import Request
from tellback.stores import SessionTurn
from tellback.tools.context import ToolHost
from tellback.types import ChatUsage, Message, ToolCall
from tellback.types.blocks import Content, blocks_text
from tellback.types.context import WorkingContext
from tellback.types.conversations import MessageDraft, ToolInvocation
from tellback.types.scope import Scope
from tellback.types.turns import Identity, Session, TurnProblem

TAIL_LIMIT = 30
WAIT_SECONDS = 60.0


class TurnLog(Protocol):
    """What a plan may ask of the log: whether the message was `answered` before (what was said then), and whether an
    approved call `begins`: it is noted, and may not if it was noted before."""

    previous_answer: str | None

    async def begin_call(self, call: ToolCall) -> bool: ...


Plan = Callable[[ChatOptions, list[Message], TurnLog], Awaitable[tuple[ChatOptions, list[Message]]]]
"""What decides, once the user's message is stored and the request bound, how the model is to answer: it is given the
options and the history of the turn, and gives those to use."""


class TurnPlanner(ToolHost, Protocol):
    """An agent that plans its turns. `reply_metadata` is asked for when what it says is stored."""

    name: str
    session_save: SessionSave | None

    async def plan(
        self, options: ChatOptions, history: list[Message], log: TurnLog
    ) -> tuple[ChatOptions, list[Message]]: ...

    def reply_metadata(self) -> Mapping[str, Any]: ...

    def planning_usage(self) -> ChatUsage: ...


class SessionSave(Protocol):
    """What is saved of an agent's session together with the last message of a turn.

    `after` gives it for what the agent said and the tools that the model called; `saved` is set once it is stored.
    """

    saved: bool

    def after(self, text: str, invoked: Sequence[ToolInvocation]) -> SessionTurn: ...


BuildContext = Callable[..., Awaitable[WorkingContext]]
"""`user.working_context.build`."""


class TurnArguments(TypedDict, total=False):
    """What `run_turn` and `stream_turn` take by keyword."""

    content: Content | None
    provider: str | None
    tools: Sequence[Any] | None
    tool_handler: ToolHandler | None
    options: ChatOptions | Mapping[str, Any] | None
    max_cycles: int | None
    tail_limit: int | None
    idempotency_key: str | None
    approvals: Mapping[str, Any] | None
    wait: float
    trace_id: str | None
    memory_space_id: str | None
    recall: Mapping[str, Any] | None
    session: Session | None
    sender: Identity | None
    extras: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class RecalledContext:
    """What was found out before the user's message was stored: the system prompt with what is remembered in it.

    `tail_limit` is how many messages of the log fit beside it, if that was measured.
    """

    system: str | None
    context: WorkingContext | None = None
    tail_limit: int | None = None


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A turn to run: the options with everything resolved, and the user's message, unless a turn is resumed.

    `prepare` recalls; it is awaited before the message is stored, so that nobody is reminded of what they have just
    said. `request` is bound for the tools (None: nothing is). `reply_to` goes with every event of the reply, whose is
    `agent`. `lenient` lets the turn go on when the store fails, and gathers what failed in `problems`; without
    `conversation_id` there is nowhere to keep it. `said` is what the model is sent in the place of the draft. `plan`
    has the last word on options and history, and `planning_usage` says what it cost. `session_end` is saved in one step
    with the turn's last message.
    """

    scope: Scope
    conversation_id: str | None
    options: ChatOptions
    draft: MessageDraft | None
    approvals: Mapping[str, Any] | None = None
    tail_limit: int = TAIL_LIMIT
    wait: float = WAIT_SECONDS
    trace_id: str | None = None
    prepare: Callable[[], Awaitable[RecalledContext]] | None = None
    request: Request | None = None
    event_payload: Mapping[str, Any] = field(default_factory=dict)
    user_messages: Sequence[Message] = ()
    store_user_message: bool = True
    store_reply: bool = True
    reply_metadata: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None
    plan: Plan | None = None
    planning_usage: Callable[[], ChatUsage] | None = None
    session_save: SessionSave | None = None
    agent: str | None = None
    lenient: bool = False
    problems: list[TurnProblem] = field(default_factory=list)


def build_turn_request(
    runtime: Runtime,
    scope: Scope,
    build_context: BuildContext,
    id: str,
    model: str | Model | None,
    user_text: str | None,
    *,
    content: Content | None = None,
    provider: str | None = None,
    tools: Sequence[Any] | None = None,
    tool_handler: ToolHandler | None = None,
    options: ChatOptions | Mapping[str, Any] | None = None,
    max_cycles: int | None = None,
    tail_limit: int | None = None,
    idempotency_key: str | None = None,
    approvals: Mapping[str, Any] | None = None,
    wait: float = WAIT_SECONDS,
    trace_id: str | None = None,
    memory_space_id: str | None = None,
    recall: Mapping[str, Any] | None = None,
    session: Session | None = None,
    sender: Identity | None = None,
    extras: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> TurnRequest:
    """The arguments of `run_turn`, checked; whatever is wrong with them is found before anything is stored."""
    user_content = _user_content(user_text, content, approvals)
    checks.validate_optional_text("trace_id", trace_id, checks.KEY_LENGTH)
    checks.validate_mapping("extras", extras)
    if not isinstance(sender, Identity | None) or not isinstance(session, Session | None):
        raise InvalidArgumentError("sender is an Identity and session a Session of tellback.turn.")
    checks.validate_recall_options("recall", recall)
    draft = None
    if user_content is not None:
        draft = build_draft(
            "user",
            user_content,
            runtime.clock(),
            visibility="user",
            trace_id=trace_id,
            idempotency_key=idempotency_key,
            metadata=metadata,
        )
    id = checks.validate_id("conversation", id)
    resolved = with_attachments(
        resolve_options(
            options,
            model=model,
            provider=provider,
            tools=tools,
            tool_handler=tool_handler,
            max_cycles=None if max_cycles is None else checks.validate_count("max_cycles", max_cycles, 1),
            default_model=runtime.model,
        ),
        (),
    )
    prepare = None
    if memory_space_id is not None or recall is not None:
        prepare = recall_step(build_context, id, memory_space_id, recall or {}, draft, resolved.system)
    session = Session(id, conversation_id=id) if session is None else session
    return TurnRequest(
        scope=scope,
        conversation_id=id,
        options=resolved,
        draft=draft,
        approvals=approvals,
        tail_limit=TAIL_LIMIT if tail_limit is None else checks.validate_count("tail_limit", tail_limit, 1),
        wait=checks.validate_seconds("wait", wait),
        trace_id=trace_id,
        prepare=prepare,
        request=Request(session, sender or Identity(scope.user_id), dict(extras or {})),
        event_payload={"session_id": session.id},
    )


def with_attachments(options: ChatOptions, attachments: Sequence[Any]) -> ChatOptions:
    """Options whose skills are told what is attached, also that nothing is: the model cannot say otherwise."""
    if not options.skills and options.skill_resolver is None:
        return options
    context = options.skill_context or {}
    if "attachments" in context and not attachments:
        return options
    return replace(options, skill_context={"attachments": list(attachments), **context})


def recall_step(
    build_context: BuildContext,
    conversation_id: str | None,
    space_id: str | None,
    recall: Mapping[str, Any],
    draft: MessageDraft | None,
    system: str | None,
) -> Callable[[], Awaitable[RecalledContext]]:
    """What puts the working context behind the system prompt. The turns in it are sent as the history they are."""
    arguments = {"recall_query": query_from_draft(draft), "template_id": "messages", **recall}
    space_id = arguments.pop("memory_space_id", None) or space_id

    async def prepare() -> RecalledContext:
        context = await build_context(conversation_id, space_id, **arguments)
        fitting_messages = (
            None if not context.turns_dropped else max(1, len(context.messages) - 1) + (draft is not None)
        )
        return RecalledContext("\n\n".join(filter(None, (system, context.system))) or None, context, fitting_messages)

    return prepare


def query_from_draft(draft: MessageDraft | None) -> str | None:
    """What to recall by: the words of the message; None for the last one in the log."""
    return None if draft is None else query_from_text(blocks_text(draft.content))


def query_from_text(text: str) -> str | None:
    """A text as far as it can be recalled by: a pasted document has no topic, nor has what no database can hold."""
    return text[: checks.QUERY_LENGTH].encode(errors="ignore").decode().replace("\x00", " ") or None


def _user_content(user_text: str | None, content: Content | None, approvals: Any) -> Content | None:
    if user_text is not None and content is not None:
        raise InvalidArgumentError("pass user_text or content, not both.")
    user_content = user_text if content is None else content
    if user_content is None and approvals is None:
        raise InvalidArgumentError("there is nothing to answer: pass user_text, content or approvals.")
    if user_content is not None and approvals is not None:
        raise InvalidArgumentError("approvals go on with a turn: pass them without user_text and content.")
    if approvals is not None:
        as_approvals(approvals)
    return user_content
