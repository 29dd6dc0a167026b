"""A completion is a turn of a chat: the model gets the client's messages, and the log what is new in them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from tellback.chat import ChatOptions
from tellback.conversations.turn_requests import RecalledContext, TurnLog, TurnRequest
from tellback.errors import AlreadyAnsweredError, IdempotencyConflictError
from tellback.server.openai.placing import MAX_LOOKBACK, SEPARATOR, LogTail
from tellback.server.openai.reading import ParsedChat as Sent
from tellback.server.openai.reading import get_attachments, text_of_parts
from tellback.turn.attachments import append_summaries, parse_attachments
from tellback.turn.chatting import ChatArguments, UserChat
from tellback.turn.tolerating import try_step
from tellback.turn.values import TurnResult
from tellback.types import Message, ReplyDelta, TextDelta
from tellback.types.blocks import TextBlock
from tellback.types.conversations import MessageDraft, StoredMessage
from tellback.user import User


class Completion(UserChat):
    """A chat whose client keeps the history. `conversation_id` is known once the turn has begun."""

    def __init__(
        self, user: User, chat: Sent, namespace: str, space: str | None, model: Any, arguments: ChatArguments
    ) -> None:
        self._chat = chat
        self._log_texts = [_to_log_text(message) for message in chat.user_messages]
        attachments = [part for message in chat.user_messages for part in get_attachments(message)]
        text = SEPARATOR.join(map(text_of_parts, chat.user_messages)) if chat.user_messages else chat.last_user_text
        super().__init__(user, text, namespace, space, model, {**arguments, "attachments": attachments})
        self.conversation_id: str | None = None

    async def run(self) -> TurnResult:
        """The answer; that of the same request, if it was answered while this one waited."""
        try:
            return await super().run()
        except AlreadyAnsweredError as error:
            return self._answered_result(error.text)

    async def stream(self) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """The answer as it comes, and the result last."""
        try:
            async with aclosing(super().stream()) as items:
                async for item in items:
                    yield item
        except AlreadyAnsweredError as error:
            yield TextDelta(error.text)
            yield self._answered_result(error.text)

    def _answered_result(self, text: str) -> TurnResult:
        return TurnResult(ok=True, text=text, conversation_id=self.conversation_id)

    async def _build_request(self) -> TurnRequest:
        request = await super()._build_request()
        self.conversation_id = request.conversation_id
        tail = LogTail(await self._read_log_tail())
        tail.reject_agent_results(self._chat.tool_results)
        return replace(
            request,
            draft=self._draft(request, tail),
            prepare=lambda: self._store_tool_results(request, tail),
            plan=partial(self._plan, tail),
        )

    async def _read_log_tail(self) -> Sequence[StoredMessage]:
        if self.conversation_id is None:
            return ()
        reading = self._user.conversations.raw_turns(self.conversation_id, limit=MAX_LOOKBACK)
        return await try_step(reading, "recall", self._problems) or ()

    def _draft(self, request: TurnRequest, tail: LogTail) -> MessageDraft | None:
        """What the user says that is not in the log yet; all of it is the message that was stored before."""
        if not self._chat.user_messages or request.draft is None:
            return None
        key = request.draft.idempotency_key
        if key is not None and tail.conflicts(key, self._log_texts):
            raise IdempotencyConflictError(key)
        unlogged = tail.find_unlogged(self._log_texts)
        content = TextBlock(SEPARATOR.join(unlogged.texts or self._log_texts[-1:]))
        return replace(request.draft, content=(content,), idempotency_key=key or unlogged.key)

    async def _store_tool_results(self, request: TurnRequest, tail: LogTail) -> RecalledContext:
        """Results of tools are stored first: they belong to the turn that asked for them."""
        missing = tail.find_missing_results(self._chat.tool_results)
        if missing and self.conversation_id is not None:
            storing = self._user.conversations.append_messages(self.conversation_id, missing)
            await try_step(storing, "store_user", self._problems)
        assert request.prepare is not None
        return await request.prepare()

    async def _plan(
        self, tail: LogTail, options: ChatOptions, history: list[Message], log: TurnLog
    ) -> tuple[ChatOptions, list[Message]]:
        """The history is the client's. What the same request was answered while this one waited holds for both."""
        answer = log.previous_answer
        if self._chat.tool_results and not self._chat.user_messages:
            answer = LogTail(await self._read_log_tail()).answer_since(tail)
        if answer is not None:
            raise AlreadyAnsweredError(answer)
        return options, list(self._chat.messages)


def _to_log_text(message: Message) -> str:
    """A user's message as the log keeps it: the words, and a line for each thing attached."""
    return append_summaries(text_of_parts(message), parse_attachments(get_attachments(message)))
