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
    """One user's conversations: append-only logs, isolated from all other users.

    `get` and `message` return None for an unknown id; the other methods raise `NotFoundError`. Ids of other users are
    unknown here.

    >>> from tellback import Tellback
    >>> from tellback.testing import ScriptedModel, says
    >>> with Tellback(":memory:", model=ScriptedModel([says("For what time?")])) as tb:
    ...     log = tb.user("maya").conversations
    ...     conversation = log.create("chat", title="Dinner")
    ...     result = log.run_turn(conversation.id, user_text="A table for two")
    ...     messages = log.messages(conversation.id)
    ...     closed = log.close(conversation.id)
    >>> [(message.role, message.text) for message in messages], closed.status
    ([('user', 'A table for two'), ('assistant', 'For what time?')], 'closed')
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
        """Create a conversation. The namespace is your name for this kind of conversation, such as "support-chat".

        With `close_after` (a timedelta, or seconds) it closes automatically after that time without activity.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     conversation = tb.user("maya").conversations.create("chat", title="Dinner", metadata={"channel": "web"})
        >>> conversation.namespace, conversation.title, conversation.metadata
        ('chat', 'Dinner', {'channel': 'web'})
        """
        return await self._log.create(self._scope, self._new(namespace, title, session_id, metadata, close_after))

    async def find(self, namespace: str, session_id: str | None = None) -> Conversation | None:
        """Return the newest open conversation of a namespace and session, or None."""
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
        """Return the newest open conversation of a namespace and session, or create one. Concurrent calls create only
        one.

        Title, metadata and `close_after` apply only to a new conversation.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     log = tb.user("maya").conversations
        ...     first, again = log.find_or_create("chat", "web-42"), log.find_or_create("chat", "web-42")
        >>> first.id == again.id
        True
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
        """Return the conversation with that id, or None."""
        return await self._log.get(self._scope, id) if validation.is_valid_id(id) else None

    async def list(
        self,
        namespace: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        before: str | Conversation | None = None,
    ) -> builtins.list[Conversation]:
        """List conversations, the newest first. For the next page, pass the last one as `before`.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     log = tb.user("maya").conversations
        ...     dinner, travel = log.create("chat", title="Dinner"), log.create("chat", title="Travel")
        ...     titles = [each.title for each in log.list("chat", status="open", limit=10)]
        >>> titles
        ['Travel', 'Dinner']
        """
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
        """Close a conversation, which starts its extraction. Closing it again changes nothing.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     log = tb.user("maya").conversations
        ...     closed = log.close(log.create("chat").id)
        >>> closed.is_open
        False
        """
        id = validation.validate_id("conversation", id)
        return await self._log.close(self._scope, id, now=self._runtime.clock())

    async def close_stale(self, older_than: timedelta | float) -> builtins.list[Conversation]:
        """Close this user's open conversations that had no activity for that long (a timedelta, or seconds)."""
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
        """Append a message of the user. It begins a new turn.

        With an `idempotency_key`, a retry returns the message that was stored the first time.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     log = tb.user("maya").conversations
        ...     conversation = log.create("chat")
        ...     message = log.append_user_message(conversation.id, "A table for two", idempotency_key="web-1")
        ...     retried = log.append_user_message(conversation.id, "A table for two", idempotency_key="web-1")
        >>> message.seq, retried.id == message.id
        (1, True)
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
        """Append a message of the assistant to the current turn."""
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
        """Append the result of the tool call `tool_use_id`."""
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
        """Append an instruction or a note. By default the model sees it and the user does not."""
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
        """Append the user's message and the assistant's reply of a turn that you ran yourself, in one step.

        With an `idempotency_key`, the user's message is stored once. The assistant's reply is always a new message of
        the turn.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     log = tb.user("maya").conversations
        ...     conversation = log.create("chat")
        ...     reply = {"content": "What time?", "model": "my-model"}
        ...     turn = log.append_turn(conversation.id, "A table for two", reply)
        >>> turn.user_message.text, turn.assistant_message.text, turn.assistant_message.model
        ('A table for two', 'What time?', 'my-model')
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
        """Append many messages in one transaction, for imports: either all are stored or none.

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
        """Return the last `limit` messages, oldest first, as a chat shows them; without a limit, all messages.

        `before` and `after` are `seq` numbers for paging: with `before`, return the last messages before that number;
        with `after`, the first messages after it.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     log = tb.user("maya").conversations
        ...     conversation = log.create("chat")
        ...     turn = log.append_turn(conversation.id, "A table for two", {"content": "For what time?"})
        ...     last = log.append_user_message(conversation.id, "For eight")
        ...     page = log.messages(conversation.id, limit=2)
        ...     earlier = log.messages(conversation.id, before=page[0].seq)
        >>> [message.text for message in page], [message.text for message in earlier]
        (['For what time?', 'For eight'], ['A table for two'])
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
        """Return messages as `messages` does, including internal messages: what a model sees."""
        return await self.messages(id, limit, True, before, after, include_hidden)

    async def message(self, message_id: str) -> StoredMessage | None:
        """Return the message with that id, or None. Citations contain message ids."""
        return await self._log.message(self._scope, message_id) if validation.is_valid_id(message_id) else None

    async def run_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> TurnResult:
        """Store the user's message, call the model, run the tools it calls, and store everything as it arrives.

        - `user_text` or `content` is the user's message. `model` is a name or a model object (default: Tellback's),
          `provider` the name of the provider to use for this model, and `options` a `ChatOptions`, or a mapping of its
          fields and `system_prompt`.
        - `tools` are functions, `Tool`s, or descriptions (`name`, `description`, `parameters`). Calls of tools that are
          described go to `tool_handler(name, arguments)`.
        - After `max_cycles` model calls (10), the model must answer without tools. If `options` is a `ChatOptions`, its
          `on_max_iterations` decides: the default "raise" raises `MaxIterationsError`.
        - `tail_limit` (30) is how many messages of the log are sent to the model.
        - `idempotency_key`: a retry uses the stored user message, and generates a new answer.
        - `wait` (60 seconds): turns of one conversation run one after the other, across processes. If another turn is
          running, this one waits that long, then raises `TurnConflictError`.
        - `approvals`: calls that need approval end the turn with the status "approval". It continues with `run_turn(id,
          approvals={call_id: True})`, in any process. A call never runs twice.
        - `memory_space_id`: relevant memories of that space and the rolling summary are added to the system prompt.
          `recall` contains more arguments of `working_context.build`. Recall runs before the message is stored.
        - `session`, `sender` and `extras` are available to tools in `tellback.request`; `metadata` is stored with the
          message.

        A turn that fails or is interrupted keeps what it has stored, and the next turn continues from there.

        >>> from tellback import Tellback
        >>> from tellback.testing import ScriptedModel, calls, says
        >>> def book(guests: int) -> str:
        ...     return f"Booked for {guests}."
        >>> model = ScriptedModel([calls("book", guests=2), says("Your table is booked.")])
        >>> with Tellback(":memory:", model=model) as tb:
        ...     log = tb.user("maya").conversations
        ...     result = log.run_turn(log.create("chat").id, user_text="A table for two", tools=[book])
        >>> result.text, result.tool_invocations[0].content
        ('Your table is booked.', 'Booked for 2.')
        """
        return await self._turns.run(build_turn_request(self._user, id, model, user_text, **more))

    def stream_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """Run a turn like `run_turn`, and yield deltas and then the `TurnResult`. Closing the iterator cancels the
        turn.

        >>> from tellback import TextDelta, Tellback
        >>> from tellback.testing import ScriptedModel, says
        >>> with Tellback(":memory:", model=ScriptedModel([says("Hello!", chunks=3)])) as tb:
        ...     log = tb.user("maya").conversations
        ...     items = list(log.stream_turn(log.create("chat").id, user_text="Hi!"))
        >>> [item.text for item in items if isinstance(item, TextDelta)], items[-1].text
        (['Hel', 'lo!'], 'Hello!')
        """
        return self._turns.stream(build_turn_request(self._user, id, model, user_text, **more))

    async def pending(self, id: str) -> tuple[ToolCall, ...]:
        """Return the tool calls that wait for a person's decision, for `run_turn(id, approvals={call_id: True})`."""
        return (await load_approval_state(self._log, self._scope, validation.validate_id("conversation", id))).waiting

    async def refresh_rolling_summary(self, id: str, model: str | Model | None = None) -> RollingSummary:
        """Update the rolling summary to the newest message, with the model if there is one.

        This also happens automatically every `Tellback(summary_every=...)` turns.
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
        """Append a message to the current turn."""
        appended = await self._append(id, [TurnDraft(new_id("turn"), [draft], joins=True)], now)
        return appended.messages[0]


async def close_stale(runtime: Runtime, scope: Scope | None, older_than: timedelta | float) -> list[Conversation]:
    """Close inactive conversations, of one user or of all users."""
    age = validation.parse_duration("older_than", older_than)
    now = runtime.clock()
    return await runtime.store.conversations.close_stale(scope, idle_since=now - age, now=now)
