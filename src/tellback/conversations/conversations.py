"""`user.conversations`: one user's conversations."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

from tellback import validation
from tellback.chat import Model
from tellback.conversations.summary import RollingSummaries
from tellback.portal import Handle
from tellback.runtime import Runtime
from tellback.stores import AppendResult, ConversationLog, TurnDraft
from tellback.turns.engine import TurnEngine
from tellback.turns.request import (
    TurnArguments,
    UserHandle,
    build_assistant_draft,
    build_draft,
    build_imported_draft,
    build_turn_request,
    group_by_turn,
)
from tellback.turns.writer import load_approval_state
from tellback.types import ChatUsage, Message, ReplyDelta, ToolCall
from tellback.types.access import Scope
from tellback.types.blocks import Content
from tellback.types.conversations import (
    AppendedTurn,
    AssistantTurn,
    Conversation,
    MessageDraft,
    RollingSummary,
    StoredMessage,
    TurnResult,
)
from tellback.types.ids import new_id

STATUSES = ("open", "closed")


class Conversations(Handle):
    """One user's conversations: an append-only log, never seen by anyone else.

    `get` and `message` give None for an unknown id, everything else raises `NotFoundError`; an id of another user is
    unknown.
    """

    def __init__(self, runtime: Runtime, user: UserHandle, turns: TurnEngine, summaries: RollingSummaries) -> None:
        self._user = user
        self._scope = user.scope
        self.runtime = self._runtime = runtime
        self.turns = self._turns = turns
        self._summaries = summaries

    async def create(
        self,
        namespace: str,
        title: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        close_after: timedelta | float | None = None,
    ) -> Conversation:
        """Open a conversation. The namespace is your name for this kind of conversation, such as "support-chat".

        With `close_after` (a timedelta, or seconds) it is closed by itself once nothing has happened in it for so long.
        """
        return await self._log.create(self._scope, self._new(namespace, title, session_id, metadata, close_after))

    async def find(self, namespace: str, session_id: str | None = None) -> Conversation | None:
        """The newest open conversation of a namespace and session, or None."""
        name = validation.validate_name("namespace", namespace)
        if session_id is not None:
            validation.validate_name("session_id", session_id, validation.KEY_LENGTH)
        return await self._log.find_in_session(self._scope, name, session_id)

    async def find_or_create(
        self,
        namespace: str,
        session_id: str | None = None,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        close_after: timedelta | float | None = None,
    ) -> Conversation:
        """The newest open conversation of a namespace and session, or a new one. Of many who ask at once, one opens it.

        Title, metadata and `close_after` are for a new one.
        """
        if session_id is not None:
            validation.validate_name("session_id", session_id, validation.KEY_LENGTH)
        new = self._new(namespace, title, session_id, metadata, close_after)
        return await self._log.find_or_create(self._scope, new)

    def _new(
        self,
        namespace: str,
        title: str | None,
        session_id: str | None,
        metadata: Mapping[str, Any] | None,
        close_after: timedelta | float | None,
    ) -> Conversation:
        now = self._runtime.clock()
        return Conversation(
            id=new_id("conv"),
            scope=self._scope,
            namespace=validation.validate_name("namespace", namespace),
            status="open",
            created_at=now,
            updated_at=now,
            title=validation.validate_optional_text("title", title, validation.TITLE_LENGTH),
            session_id=validation.validate_optional_text("session_id", session_id, validation.KEY_LENGTH),
            metadata=validation.validate_metadata(metadata),
            close_after=None if close_after is None else validation.parse_duration("close_after", close_after),
        )

    async def get(self, id: str) -> Conversation | None:
        """The conversation of that id, or None."""
        return await self._log.get(self._scope, id) if validation.is_valid_id(id) else None

    async def list(
        self,
        namespace: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        before: str | Conversation | None = None,
    ) -> builtins.list[Conversation]:
        """Conversations, the newest first. For the next page, pass the last one as `before`."""
        if status is not None:
            validation.validate_choice("status", status, STATUSES)
        before_id = before.id if isinstance(before, Conversation) else before
        return await self._log.list_conversations(
            self._scope,
            namespace=validation.validate_optional_text("namespace", namespace, validation.NAME_LENGTH),
            status=status,
            limit=None if limit is None else validation.validate_count("limit", limit),
            before=validation.validate_optional_text("before", before_id, validation.KEY_LENGTH),
        )

    async def close(self, id: str) -> Conversation:
        """Close a conversation, which is when its memories are made. Closing it again changes nothing."""
        id = validation.validate_id("conversation", id)
        return await self._log.close(self._scope, id, now=self._runtime.clock())

    async def close_stale(self, older_than: timedelta | float) -> builtins.list[Conversation]:
        """Close this user's open conversations in which nothing happened for that long (a timedelta, or seconds)."""
        return await close_stale(self._runtime, self._scope, older_than)

    async def append_user_message(
        self,
        id: str,
        content: Content,
        idempotency_key: str | None = None,
        trace_id: str | None = None,
        visibility: str = "user",
        created_at: datetime | str | None = None,
    ) -> StoredMessage:
        """Append what the person said; it begins a new turn.

        With an `idempotency_key` a retry is harmless: the message stored the first time is given back.
        """
        now = self._runtime.clock()
        draft = build_draft(
            "user",
            content,
            now,
            visibility=visibility,
            created_at=created_at,
            trace_id=trace_id,
            idempotency_key=idempotency_key,
        )
        appended = await self._append(id, [TurnDraft(new_id("turn"), [draft], starts=True)], now)
        return appended.messages[0]

    async def append_assistant_turn(
        self,
        id: str,
        content: Content,
        stop_reason: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        usage: ChatUsage | Mapping[str, Any] | None = None,
        trace_id: str | None = None,
        visibility: str = "user",
        created_at: datetime | str | None = None,
    ) -> StoredMessage:
        """Append what the assistant said, in the turn that is going on."""
        assistant = AssistantTurn(content, stop_reason, model, provider, usage, trace_id, visibility, created_at)
        now = self._runtime.clock()
        return await self._append_joining(id, build_assistant_draft(assistant, now), now)

    async def append_tool_result(
        self,
        id: str,
        tool_use_id: str,
        content: Content,
        tool_name: str | None = None,
        is_error: bool = False,
        visibility: str = "user",
        created_at: datetime | str | None = None,
    ) -> StoredMessage:
        """Append what a tool gave for the call `tool_use_id`."""
        block = {
            "type": "tool_result",
            "tool_use_id": validation.validate_name("tool_use_id", tool_use_id, validation.KEY_LENGTH),
            "content": content,
            "tool_name": tool_name,
            "is_error": is_error,
        }
        now = self._runtime.clock()
        draft = build_draft("tool", [block], now, visibility=visibility, created_at=created_at)
        return await self._append_joining(id, draft, now)

    async def append_system_message(
        self, id: str, content: Content, visibility: str = "internal", created_at: datetime | str | None = None
    ) -> StoredMessage:
        """Append an instruction or a note; by default the model sees it and the person does not."""
        now = self._runtime.clock()
        draft = build_draft("system", content, now, visibility=visibility, created_at=created_at)
        return await self._append_joining(id, draft, now)

    async def append_turn(
        self,
        id: str,
        user_content: Content,
        assistant: AssistantTurn | Mapping[str, Any],
        user_visibility: str = "user",
        idempotency_key: str | None = None,
        created_at: datetime | str | None = None,
    ) -> AppendedTurn:
        """Append both sides of a turn that you ran yourself, at once and in order.

        With an `idempotency_key` the user's message is stored once; the assistant's is always a new one of its turn.
        """
        now = self._runtime.clock()
        user_draft = build_draft(
            "user",
            user_content,
            now,
            visibility=user_visibility,
            created_at=created_at,
            idempotency_key=idempotency_key,
        )
        turn = TurnDraft(new_id("turn"), [user_draft, build_assistant_draft(assistant, now)], starts=True)
        appended = await self._append(id, [turn], now)
        user_message, assistant_message = appended.messages
        return AppendedTurn(assistant_message.turn_id, user_message, assistant_message)

    async def append_messages(
        self, id: str, messages: Sequence[Message | Mapping[str, Any]]
    ) -> builtins.list[StoredMessage]:
        """Append many messages in one transaction, for imports: all are stored, or none.

        Each is a chat `Message`, or a mapping with `role`, `content` and any of `visibility`, `created_at`,
        `stop_reason`, `model`, `provider`, `usage`, `trace_id`, `idempotency_key`. A user's message begins a turn.
        """
        now = self._runtime.clock()
        turns = group_by_turn([build_imported_draft(message, now) for message in messages])
        return [*(await self._append(id, turns, now)).messages] if turns else []

    async def messages(
        self,
        id: str,
        limit: int | None = None,
        include_internal: bool = False,
        before: int | None = None,
        after: int | None = None,
        include_hidden: bool = False,
    ) -> builtins.list[StoredMessage]:
        """The last `limit` messages, oldest first: what a chat shows. All of them without a limit.

        `before` and `after` are `seq`s to page by: `before` gives what came before it, `after` what follows.
        """
        return await self._log.messages(
            self._scope,
            validation.validate_id("conversation", id),
            limit=None if limit is None else validation.validate_count("limit", limit),
            after=0 if after is None else validation.validate_count("after", after),
            before=None if before is None else validation.validate_count("before", before),
            include_internal=include_internal,
            include_hidden=include_hidden,
            from_start=after is not None and before is None,
        )

    async def raw_turns(
        self,
        id: str,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        include_hidden: bool = False,
    ) -> builtins.list[StoredMessage]:
        """The same with internal messages: what a model sees."""
        return await self.messages(id, limit, True, before, after, include_hidden)

    async def message(self, message_id: str) -> StoredMessage | None:
        """One message by its id, or None: what a citation points to."""
        return await self._log.message(self._scope, message_id) if validation.is_valid_id(message_id) else None

    async def run_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> TurnResult:
        """Store the user's message, ask the model, run the tools it calls, and store everything as it comes.

        - `user_text` or `content` is what the user says. `model` is a name or a model object (default: Tellback's),
          `provider` who serves that name, `options` a `ChatOptions`, or a mapping of its fields and `system_prompt`.
        - `tools` are functions, `Tool`s, or descriptions (`name`, `description`, `parameters`) whose calls go to
          `tool_handler(name, arguments)`. After `max_cycles` model calls (10) it is asked to answer without tools,
          unless `options` is a `ChatOptions` that says otherwise.
        - `tail_limit` (30) is how many messages of the log the model is sent.
        - `idempotency_key`: a retry uses the user's message that was stored before, and is answered anew.
        - `wait` (60 seconds): turns of one conversation run one after the other, in all processes. One that comes while
          another runs waits that long, then raises `TurnConflictError`.
        - `approvals`: calls that need approval end the turn with the status "approval"; it goes on with
          `run_turn(id, approvals={call_id: True})`, in any process. A call is never run twice.
        - `memory_space_id`: what that space remembers of the matter, and the rolling summary, go behind the system
          prompt. `recall` holds other arguments of `working_context.build`. Recall comes before the message is stored.
        - `session`, `sender`, `extras` are what tools find in `tellback.request`; `metadata` goes with the message.

        A turn that fails or is cut off leaves what it had stored, and the next one goes on from there.
        """
        return await self._turns.run(build_turn_request(self._user, id, model, user_text, **more))

    def stream_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """`run_turn` as an iterator over deltas, whose last item is the `TurnResult`. Closing it cancels the turn."""
        return self._turns.stream(build_turn_request(self._user, id, model, user_text, **more))

    async def pending(self, id: str) -> tuple[ToolCall, ...]:
        """The tool calls that wait for a person's decision, which `run_turn(id, approvals={call_id: True})` takes."""
        return (await load_approval_state(self._log, self._scope, validation.validate_id("conversation", id))).waiting

    async def refresh_rolling_summary(self, id: str, model: str | Model | None = None) -> RollingSummary:
        """Bring the rolling summary forward to the newest message, with the model if there is one.

        It also happens by itself every `Tellback(summary_every=...)` turns.
        """
        return await self._summaries.refresh(self._scope, validation.validate_id("conversation", id), model)

    @property
    def _log(self) -> ConversationLog:
        return self._runtime.store.conversations

    async def _append(self, id: str, turns: Sequence[TurnDraft], now: datetime) -> AppendResult:
        appended = await self._log.append(self._scope, validation.validate_id("conversation", id), turns, now=now)
        if turns[-1].messages[-1].role == "assistant":
            self._turns.refresh_summary_if_due(self._scope, id, appended)
        return appended

    async def _append_joining(self, id: str, draft: MessageDraft, now: datetime) -> StoredMessage:
        """Append a message to the turn that is going on."""
        appended = await self._append(id, [TurnDraft(new_id("turn"), [draft], joins=True)], now)
        return appended.messages[0]


async def close_stale(runtime: Runtime, scope: Scope | None, older_than: timedelta | float) -> list[Conversation]:
    """Close what was left open, for one user or for all."""
    age = validation.parse_duration("older_than", older_than)
    now = runtime.clock()
    return await runtime.store.conversations.close_stale(scope, idle_since=now - age, now=now)
