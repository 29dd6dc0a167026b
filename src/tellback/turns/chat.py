"""`user.chat`: find or create the conversation, and build the turn request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tellback import validation
from tellback.chat import ChatOptions, Model
from tellback.chat.approval import as_approvals
from tellback.chat.offline import SETUP_HINT, is_offline
from tellback.chat.options import ChatOptionsLike
from tellback.errors import ConfigurationError, ConversationClosedError, InvalidArgumentError, NotFoundError
from tellback.turns.attachments import append_contents, append_summaries, build_user_message, parse_attachments
from tellback.turns.request import (
    WAIT_SECONDS,
    CommonArguments,
    NamespaceMemory,
    TurnPlanner,
    TurnRequest,
    UserHandle,
    build_draft,
    build_recall,
    log,
    query_from_draft,
    resolve_options,
    try_step,
    validate_tool_request,
    with_attachments,
)
from tellback.types import ReplyDelta
from tellback.types.conversations import Conversation, Identity, MessageDraft, Session, TurnProblem, TurnResult

CHAT_CLOSE_AFTER = timedelta(hours=1)
LOCAL_WAIT_SECONDS, REMOTE_WAIT_SECONDS = 15.0, 3.0
"""Seconds that the first turn of a conversation waits for extraction, with and without a worker in this process."""


class ChatArguments(CommonArguments, total=False):
    """The keyword arguments of `user.chat` and `user.chat_stream`."""

    system: str | None
    tools: Sequence[Any] | None
    skills: Sequence[Any] | None
    options: ChatOptionsLike | None
    attachments: Sequence[Any] | None
    session_id: str | None
    conversation_id: str | None
    close_after: timedelta | float | None
    memory_wait: float | None


class UserChat:
    """One call of `user.chat`. `planner` is the turn of the agent that answers, if any."""

    def __init__(
        self,
        user: UserHandle,
        text: str | None,
        namespace: str,
        space: str | None,
        model: str | Model | None,
        arguments: ChatArguments,
        *,
        planner: TurnPlanner | None = None,
        visibility: str = "user",
    ) -> None:
        self._user = user
        self._text = text
        self._namespace = validation.validate_name("namespace", namespace)
        self._space = None if space is None else validation.validate_name("space", space)
        self._model = model
        self._arguments = arguments
        self._planner = planner
        self._visibility = visibility
        self._problems: list[TurnProblem] = []
        attachments = arguments.get("attachments")
        self._attachments = () if attachments is None else parse_attachments(attachments)
        unknown = arguments.keys() - ChatArguments.__annotations__.keys()
        if unknown:
            raise InvalidArgumentError(f"chat has no argument {', '.join(sorted(unknown))}.")

    async def run(self) -> TurnResult:
        """Run the turn and return its result."""
        engine = self._user.conversations.turns
        request = await self._build_request()
        try:
            return await engine.run(request)
        except ConversationClosedError:
            if not self._may_reopen:
                raise
        return await engine.run(await self._build_request())

    async def stream(self) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """Run the turn; yield the deltas of the reply, then the result."""
        engine = self._user.conversations.turns
        items = engine.stream(await self._build_request())
        try:
            first = await anext(items)
        except ConversationClosedError:
            if not self._may_reopen:
                raise
            items = engine.stream(await self._build_request())
            first = await anext(items)
        async with aclosing(items):
            yield first
            async for item in items:
                yield item

    @property
    def _may_reopen(self) -> bool:
        """Whether the turn may use a new conversation if the current one was closed while the turn waited."""
        return self._arguments.get("conversation_id") is None and self._text is not None

    async def _build_request(self) -> TurnRequest:
        """Validate all arguments, then find or create the conversation, so that an error creates none."""
        arguments, planner = self._arguments, self._planner
        options, draft = self._resolve_options(), self._build_draft()
        validate_tool_request(None, arguments.get("sender"), arguments.get("extras"))
        wait = validation.validate_seconds("wait", arguments.get("wait", WAIT_SECONDS))
        trace_id = validation.validate_optional_text("trace_id", arguments.get("trace_id"), validation.KEY_LENGTH)
        validation.validate_recall_options("recall", arguments.get("recall"))
        if arguments.get("memory_wait") is not None:
            validation.validate_seconds("memory_wait", arguments["memory_wait"])
        id = await self._conversation_id()
        memory = None
        if self._space is not None:
            memory = NamespaceMemory(self._user, self._namespace, self._space, exclusive=True)
        message = None
        if draft is not None and self._attachments:
            message = build_user_message(append_contents(self._text or "", self._attachments), self._attachments)
        return TurnRequest(
            self._user,
            id,
            options,
            draft,
            approvals=arguments.get("approvals"),
            wait=wait,
            trace_id=trace_id,
            recall=build_recall(arguments.get("recall") or {}, query_from_draft(draft), memory=memory),
            user_messages=() if message is None else (message,),
            session=Session(arguments.get("session_id") or id or self._namespace, id),
            sender=arguments.get("sender"),
            extras=dict(arguments.get("extras") or {}),
            planner=planner,
            tolerate_store_errors=True,
            problems=self._problems,
        )

    def _resolve_options(self) -> ChatOptions:
        """Resolve the options; the keywords `system`, `tools` and `skills` override them."""
        arguments: Mapping[str, Any] = self._arguments
        changes = {name: arguments[name] for name in ("system", "skills") if arguments.get(name) is not None}
        options = arguments.get("options")
        if isinstance(options, ChatOptions):
            options = replace(options, **changes) if changes else options
        elif isinstance(options, Mapping | None):
            options = {**(options or {}), **changes}
        resolved = resolve_options(
            options,
            model=self._model,
            tools=arguments.get("tools"),
            default_model=self._user.conversations.runtime.model,
        )
        if self._planner is not None and is_offline(resolved.model):
            raise ConfigurationError(
                f"Agent {self._planner.name!r} has no model: pass Agent(model=...) or Tellback(model=...). {SETUP_HINT}"
            )
        return with_attachments(resolved, self._attachments)

    def _build_draft(self) -> MessageDraft | None:
        """Build the user's message to store; None if a turn is resumed."""
        arguments = self._arguments
        approvals = arguments.get("approvals")
        if approvals is not None:
            if self._text is not None:
                raise InvalidArgumentError("approvals resume a turn: pass them without a text.")
            as_approvals(approvals)
            return None
        if self._text is None:
            raise InvalidArgumentError("text is missing: pass a text or approvals.")
        return build_draft(
            "user",
            append_summaries(self._text, self._attachments) if self._attachments else self._text,
            self._user.conversations.runtime.clock(),
            visibility=self._visibility,
            trace_id=arguments.get("trace_id"),
            idempotency_key=arguments.get("idempotency_key"),
            metadata=arguments.get("metadata"),
        )

    async def _conversation_id(self) -> str | None:
        """Return the id of the conversation to continue, or None if the store failed."""
        requested_id = self._arguments.get("conversation_id")
        if requested_id is not None:
            existing = await get_conversation(self._user, str(requested_id))
            self._namespace = existing.namespace
            return existing.id
        if self._text is None:
            return await self._pending_conversation_id()
        if self._space is None:
            await try_step(require_unbound(self._user, self._namespace), "recall", self._problems)
        closed = await try_step(close_idle_conversations(self._user), "recall", self._problems)
        opening = find_or_open(
            self._user,
            self._namespace,
            self._arguments.get("session_id"),
            self._arguments.get("sender"),
            self._arguments.get("close_after", CHAT_CLOSE_AFTER),
        )
        conversation = await try_step(opening, "store_user", self._problems)
        if conversation is not None and self._space is not None and (closed or not conversation.last_seq):
            seconds = self._arguments.get("memory_wait")
            await try_step(wait_for_memories(self._user, seconds), "recall", self._problems)
        return None if conversation is None else conversation.id

    async def _pending_conversation_id(self) -> str:
        """Return the id of the conversation with the pending calls; raise `InvalidArgumentError` if there is none."""
        conversations, session_id = self._user.conversations, self._arguments.get("session_id")
        found = await conversations.find(self._namespace, session_id)
        if found is None and session_id is not None:  # it may have been closed in the meantime
            closed = await conversations.list(self._namespace, "closed", limit=100)
            found = next((conversation for conversation in closed if conversation.session_id == session_id), None)
        if found is None:
            raise InvalidArgumentError(
                f"namespace {self._namespace!r} has no open conversation with pending calls:"
                " pass conversation_id=... of the reply that has them."
            )
        return found.id


async def get_conversation(user: UserHandle, id: str) -> Conversation:
    """Return the user's conversation with this id, or raise `NotFoundError`."""
    conversation = await user.conversations.get(id)
    if conversation is None:
        raise NotFoundError("conversation", id)
    return conversation


async def find_or_open(
    user: UserHandle,
    namespace: str,
    session_id: str | None,
    sender: Identity | None,
    close_after: timedelta | float | None,
) -> Conversation:
    """Return the open conversation of a namespace and session, or create one with the sender's name."""
    metadata = {"speakers": {"user": sender.name}} if sender is not None and sender.name else None
    return await user.conversations.find_or_create(namespace, session_id, metadata=metadata, close_after=close_after)


async def require_unbound(user: UserHandle, namespace: str) -> None:
    """Raise if `space=None` is passed for a namespace with a binding: its conversations are extracted."""
    bindings = await user.memory.list_bindings()
    if any(binding.enabled and binding.matches(namespace, user.scope.user_id) for binding in bindings):
        raise InvalidArgumentError(
            f"namespace {namespace!r} is bound to a memory space: use another namespace with space=None."
        )


async def close_idle_conversations(user: UserHandle) -> bool:
    """Close the user's conversations that are due; return whether there were any."""
    runtime = user.conversations.runtime
    now = runtime.clock()
    store = runtime.store.conversations
    if not await store.list_due(user.scope, now=now):
        return False
    return bool(await store.close_stale(user.scope, idle_since=None, now=now))


async def wait_for_memories(user: UserHandle, seconds: float | None) -> None:
    """Wait a limited time until the user's closed conversations are extracted."""
    if seconds is None:  # another process may or may not run a worker
        seconds = LOCAL_WAIT_SECONDS if user.conversations.runtime.worker else REMOTE_WAIT_SECONDS
    if not await user.memory.wait_for_extraction(seconds):
        log.info(
            "Extraction for user %s is still running; this turn continues without its memories", user.scope.user_id
        )
