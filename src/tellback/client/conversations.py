"""`user.conversations` of a server: the log, and turns."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Unpack

from tellback import validation
from tellback.chat import Model
from tellback.client.transport import PAGE_SIZE, list_all
from tellback.client.turn_loop import TurnLoop, TurnRunner
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.turns.request import TurnArguments
from tellback.types import ChatUsage, Message, ReplyDelta, ToolCall
from tellback.types.blocks import Content, message_blocks
from tellback.types.conversations import (
    AppendedTurn,
    AssistantTurn,
    Conversation,
    RollingSummary,
    StoredMessage,
    TurnResult,
)
from tellback.wire.arguments import (
    build_path,
    encode_arguments,
    encode_content,
    encode_cursor,
    encode_datetime,
    encode_duration,
    encode_metadata,
    encode_usage,
    require_server_id,
)
from tellback.wire.base import camel
from tellback.wire.messages import encode_block
from tellback.wire.turns import TurnOutcomeWire
from tellback.wire.values import AppendedTurnWire, ConversationWire, MessageWire, RollingSummaryWire, ToolCallOut

CONVERSATIONS_PATH = "ai-conversations"


def _conversation_turn_loop(model: str | Model | None, user_text: str | None, more: TurnArguments) -> TurnLoop:
    unknown = more.keys() - TurnArguments.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"run_turn takes no {', '.join(sorted(unknown))}.")
    content = more.get("content")
    return TurnLoop(
        TurnOutcomeWire,
        model,
        more,
        common_fields=encode_arguments(
            provider=more.get("provider"),
            tail_limit=more.get("tail_limit"),
            memory_space_id=more.get("memory_space_id"),
        ),
        first_fields=encode_arguments(
            user_text=user_text, content=None if content is None else encode_content(content)
        ),
    )


class RemoteConversations(TurnRunner):
    """One user's conversations, kept by a server. It has the methods of `user.conversations`."""

    async def create(
        self,
        namespace: str,
        title: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        close_after: timedelta | float | None = None,
    ) -> Conversation:
        """Open a conversation."""
        body = encode_arguments(
            namespace=namespace,
            title=title,
            session_id=session_id,
            metadata=encode_metadata(metadata),
            close_after=encode_duration("close_after", close_after),
        )
        return self._decode_conversation(await self._post(build_path(CONVERSATIONS_PATH), body))

    async def find(self, namespace: str, session_id: str | None = None) -> Conversation | None:
        """The newest open conversation of a namespace and session, or None."""
        query = encode_arguments(namespace=validation.validate_name("namespace", namespace), session_id=session_id)
        found = await self._transport.call_or_none(
            "GET", build_path(CONVERSATIONS_PATH, "open"), user=self._user, query=query
        )
        return None if found is None else self._decode_conversation(found)

    async def find_or_create(
        self,
        namespace: str,
        session_id: str | None = None,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        close_after: timedelta | float | None = None,
    ) -> Conversation:
        """The newest open conversation of a namespace and session, or a new one."""
        body = encode_arguments(
            namespace=namespace,
            session_id=session_id,
            title=title,
            metadata=encode_metadata(metadata),
            close_after=encode_duration("close_after", close_after),
        )
        return self._decode_conversation(await self._post(build_path(CONVERSATIONS_PATH, "find-or-create"), body))

    async def get(self, id: str) -> Conversation | None:
        """The conversation of that id, or None."""
        found = await self._get_by_id(CONVERSATIONS_PATH, id)
        return None if found is None else self._decode_conversation(found)

    async def list(
        self,
        namespace: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        before: str | Conversation | None = None,
    ) -> builtins.list[Conversation]:
        """Conversations, the newest first. For the next page, pass the last one as `before`."""
        cursor = encode_cursor(before.id if isinstance(before, Conversation) else before)
        query = encode_arguments(namespace=namespace, status=status)
        return await list_all(
            self._transport,
            build_path(CONVERSATIONS_PATH),
            ConversationWire.decode,
            limit,
            user=self._user,
            query=query,
            cursor=cursor,
        )

    async def close(self, id: str) -> Conversation:
        """Close a conversation, which is when its memories are made. Closing it again changes nothing."""
        return self._decode_conversation(await self._post(self._conversation_path(id, "close")))

    async def close_stale(self, older_than: timedelta | float) -> builtins.list[Conversation]:
        """Close this user's open conversations in which nothing happened for that long (a timedelta, or seconds)."""
        body = {"olderThan": encode_duration("older_than", older_than)}
        found = await self._post(build_path(CONVERSATIONS_PATH, "close-stale"), body)
        return [self._decode_conversation(each) for each in found["items"]]

    async def append_user_message(
        self,
        id: str,
        content: Content,
        idempotency_key: str | None = None,
        trace_id: str | None = None,
        visibility: str = "user",
        created_at: datetime | str | None = None,
    ) -> StoredMessage:
        """Append what the person said; it begins a new turn. With an `idempotency_key` a retry is harmless."""
        body = encode_arguments(
            trace_id=trace_id, visibility=visibility, created_at=encode_datetime("created_at", created_at)
        )
        body["content"] = encode_content(content)
        return self._decode_message(
            await self._post(self._conversation_path(id, "user-messages"), body, key=idempotency_key, has_own_key=True)
        )

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
        return self._decode_message(
            await self._post(self._conversation_path(id, "assistant-turns"), _encode_assistant_turn(assistant))
        )

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
        body = encode_arguments(
            tool_use_id=tool_use_id,
            tool_name=tool_name,
            is_error=is_error,
            visibility=visibility,
            created_at=encode_datetime("created_at", created_at),
        )
        body["content"] = encode_content(content)
        return self._decode_message(await self._post(self._conversation_path(id, "tool-results"), body))

    async def append_system_message(
        self, id: str, content: Content, visibility: str = "internal", created_at: datetime | str | None = None
    ) -> StoredMessage:
        """Append an instruction or a note; by default the model sees it and the person does not."""
        body = encode_arguments(visibility=visibility, created_at=encode_datetime("created_at", created_at))
        body["content"] = encode_content(content)
        return self._decode_message(await self._post(self._conversation_path(id, "system-messages"), body))

    async def append_turn(
        self,
        id: str,
        user_content: Content,
        assistant: AssistantTurn | Mapping[str, Any],
        user_visibility: str = "user",
        idempotency_key: str | None = None,
        created_at: datetime | str | None = None,
    ) -> AppendedTurn:
        """Append both sides of a turn that you ran yourself, at once and in order."""
        body = encode_arguments(user_visibility=user_visibility, created_at=encode_datetime("created_at", created_at))
        body["userContent"] = encode_content(user_content)
        body["assistant"] = _encode_assistant_turn(assistant)
        found = await self._post(self._conversation_path(id, "turns"), body, key=idempotency_key, has_own_key=True)
        appended: AppendedTurn = AppendedTurnWire.model_validate(found).value()
        return appended

    async def append_messages(
        self, id: str, messages: Sequence[Message | Mapping[str, Any]]
    ) -> builtins.list[StoredMessage]:
        """Append many messages in one transaction, for imports: all are stored, or none."""
        sent = [_encode_imported(message) for message in messages]
        if not sent:
            return []
        found = await self._post(self._conversation_path(id, "messages"), {"messages": sent})
        return [self._decode_message(each) for each in found["items"]]

    async def messages(
        self,
        id: str,
        limit: int | None = None,
        include_internal: bool = False,
        before: int | None = None,
        after: int | None = None,
        include_hidden: bool = False,
    ) -> builtins.list[StoredMessage]:
        """The last `limit` messages, oldest first: what a chat shows. All of them without a limit."""
        return await self._read_messages(id, limit, before, after, include_internal, include_hidden)

    async def raw_turns(
        self,
        id: str,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        include_hidden: bool = False,
    ) -> builtins.list[StoredMessage]:
        """The same with internal messages: what a model sees."""
        return await self._read_messages(id, limit, before, after, True, include_hidden)

    async def message(self, message_id: str) -> StoredMessage | None:
        """One message by its id, or None: what a citation points to."""
        found = await self._get_by_id(CONVERSATIONS_PATH, "messages", message_id)
        return None if found is None else self._decode_message(found)

    async def refresh_rolling_summary(self, id: str, model: str | None = None) -> RollingSummary:
        """Bring the rolling summary forward to the newest message, with the model if there is one."""
        found = await self._post(self._conversation_path(id, "rolling-summary"), encode_arguments(model=model))
        summary: RollingSummary = RollingSummaryWire.model_validate(found).value()
        return summary

    async def run_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> TurnResult:
        """Let the server store the user's message, ask the model, and store everything as it comes.

        The arguments are those of `conversations.run_turn`; `model` is a name. `tools` and `tool_handler` are called
        here, whenever the model asks for them.
        """
        return await self._run(
            self._conversation_path(id, "run-turn"), await self._build_loop(id, model, user_text, more)
        )

    async def stream_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """`run_turn` as an iterator over deltas, whose last item is the `TurnResult`. Closing it cancels the turn."""
        loop = await self._build_loop(id, model, user_text, more)
        async with aclosing(self._run_streamed(self._conversation_path(id, "run-turn"), loop)) as items:
            async for item in items:
                yield item

    async def pending(self, id: str) -> tuple[ToolCall, ...]:
        """The tool calls that wait for a person's decision, which `run_turn(id, approvals={call_id: True})` takes."""
        found = await self._transport.call("GET", self._conversation_path(id, "pending"), user=self._user)
        return tuple(ToolCallOut.model_validate(each).value() for each in found["items"])

    async def _build_loop(
        self, id: str, model: str | Model | None, user_text: str | None, more: TurnArguments
    ) -> TurnLoop:
        loop = _conversation_turn_loop(model, user_text, more)
        if more.get("approvals") is not None:
            await loop.resume(await self.pending(id))
        return loop

    def _conversation_path(self, id: str, *more: str) -> str:
        return build_path(CONVERSATIONS_PATH, require_server_id("conversation", id), *more)

    async def _read_messages(
        self,
        id: str,
        limit: int | None,
        before: int | None,
        after: int | None,
        include_internal: bool,
        include_hidden: bool,
    ) -> builtins.list[StoredMessage]:
        """Messages page by page: backwards from the newest or `before`, or forwards from `after`."""
        path = self._conversation_path(id, "messages")
        max_messages = None if limit is None else validation.validate_count("limit", limit)
        query = encode_arguments(
            include_internal=include_internal or None, include_hidden=include_hidden or None, after=after
        )
        if before is not None:
            query["before"] = before
        messages: list[StoredMessage] = []
        cursor: str | None = None
        while max_messages is None or len(messages) < max_messages:
            size = PAGE_SIZE if max_messages is None else min(PAGE_SIZE, max_messages - len(messages))
            page = await self._transport.call(
                "GET", path, user=self._user, query={**_encode_booleans(query), "limit": size, "cursor": cursor}
            )
            items = [self._decode_message(each) for each in page["items"]]
            messages = [*messages, *items] if after is not None and before is None else [*items, *messages]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        if max_messages == 0 and await self.get(id) is None:
            raise NotFoundError("conversation", id)
        return messages

    @staticmethod
    def _decode_conversation(payload: Any) -> Conversation:
        found: Conversation = ConversationWire.model_validate(payload).value()
        return found

    @staticmethod
    def _decode_message(payload: Any) -> StoredMessage:
        found: StoredMessage = MessageWire.model_validate(payload).value()
        return found


def _encode_booleans(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}


def _encode_assistant_turn(assistant: AssistantTurn | Mapping[str, Any]) -> dict[str, Any]:
    """The assistant's side of a turn, of its value or of a mapping in either spelling."""
    if isinstance(assistant, Mapping):
        body = {camel(str(name)): value for name, value in assistant.items() if value is not None}
    else:
        body = {
            camel(name): getattr(assistant, name)
            for name in AssistantTurn.__dataclass_fields__
            if getattr(assistant, name) is not None
        }
    return _encode_message_fields(body)


def _encode_imported(message: Message | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(message, Message):
        return {"role": message.role, "content": [encode_block(block) for block in message_blocks(message)]}
    return _encode_message_fields({camel(str(name)): value for name, value in message.items() if value is not None})


def _encode_message_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a message holds, each in its own way."""
    special: dict[str, Any] = {}
    if "content" in body:
        special["content"] = encode_content(body["content"])
    if "usage" in body:
        special["usage"] = encode_usage(body["usage"], body.get("provider"), body.get("model"))
    if "metadata" in body:
        special["metadata"] = encode_metadata(body["metadata"])
    if "createdAt" in body:
        special["createdAt"] = encode_datetime("created_at", body["createdAt"])
    return {**encode_arguments(**{name: value for name, value in body.items() if name not in special}), **special}
