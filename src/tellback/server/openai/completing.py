"""A completion is a turn of a chat: the model gets the client's messages, and the log what is new in them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from tellback.chat import ChatOptions
from tellback.conversations.turn_requests import Prepared, TurnLog, TurnRequest
from tellback.errors import AlreadyAnsweredError, IdempotencyConflictError
from tellback.server.openai.placing import BETWEEN, LOOK_BACK, LogEnd
from tellback.server.openai.reading import Chat as Sent
from tellback.server.openai.reading import attached_to, words_of
from tellback.turn.attachments import attachments_of, summed_up
from tellback.turn.chatting import Chat, ChatArguments
from tellback.turn.tolerating import tolerated
from tellback.turn.values import TurnResult
from tellback.types import Message, ReplyDelta, TextDelta
from tellback.types.blocks import TextBlock
from tellback.types.conversations import MessageDraft, StoredMessage
from tellback.user import User


class Completion(Chat):
    """A chat whose client keeps the history. `conversation_id` is known once the turn has begun."""

    def __init__(
        self, user: User, sent: Sent, namespace: str, space: str | None, model: Any, given: ChatArguments
    ) -> None:
        self._sent = sent
        self._logged = [_as_logged(message) for message in sent.said]
        attached = [part for message in sent.said for part in attached_to(message)]
        said = BETWEEN.join(map(words_of, sent.said)) if sent.said else sent.topic
        super().__init__(user, said, namespace, space, model, {**given, "attachments": attached})
        self.conversation_id: str | None = None

    async def answer(self) -> TurnResult:
        """The answer; that of the same request, if it was answered while this one waited."""
        try:
            return await super().answer()
        except AlreadyAnsweredError as error:
            return self._told(error.text)

    async def stream(self) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """The answer as it comes, and the result last."""
        try:
            async with aclosing(super().stream()) as items:
                async for item in items:
                    yield item
        except AlreadyAnsweredError as error:
            yield TextDelta(error.text)
            yield self._told(error.text)

    def _told(self, text: str) -> TurnResult:
        return TurnResult(ok=True, text=text, conversation_id=self.conversation_id)

    async def _request(self) -> TurnRequest:
        asked = await super()._request()
        self.conversation_id = asked.conversation_id
        end = LogEnd(await self._end_of_log())
        end.check_results(self._sent.results)
        return replace(
            asked,
            draft=self._draft(asked, end),
            prepare=lambda: self._resumed(asked, end),
            plan=partial(self._plan, end),
        )

    async def _end_of_log(self) -> Sequence[StoredMessage]:
        if self.conversation_id is None:
            return ()
        reading = self._user.conversations.raw_turns(self.conversation_id, limit=LOOK_BACK)
        return await tolerated(reading, "recall", self._problems) or ()

    def _draft(self, asked: TurnRequest, end: LogEnd) -> MessageDraft | None:
        """What the user says that is not in the log yet; all of it is the message that was stored before."""
        if not self._sent.said or asked.draft is None:
            return None
        key = asked.draft.idempotency_key
        if key is not None and end.contradicts(key, self._logged):
            raise IdempotencyConflictError(key)
        fresh = end.fresh(self._logged)
        content = TextBlock(BETWEEN.join(fresh.texts or self._logged[-1:]))
        return replace(asked.draft, content=(content,), idempotency_key=key or fresh.key)

    async def _resumed(self, asked: TurnRequest, end: LogEnd) -> Prepared:
        """Results of tools are stored first: they belong to the turn that asked for them."""
        missing = end.missing(self._sent.results)
        if missing and self.conversation_id is not None:
            storing = self._user.conversations.append_messages(self.conversation_id, missing)
            await tolerated(storing, "store_user", self._problems)
        assert asked.prepare is not None
        return await asked.prepare()

    async def _plan(
        self, end: LogEnd, options: ChatOptions, history: list[Message], log: TurnLog
    ) -> tuple[ChatOptions, list[Message]]:
        """The history is the client's. What the same request was answered while this one waited holds for both."""
        answered = log.answered
        if self._sent.results and not self._sent.said:
            answered = LogEnd(await self._end_of_log()).answer_since(end)
        if answered is not None:
            raise AlreadyAnsweredError(answered)
        return options, list(self._sent.messages)


def _as_logged(message: Message) -> str:
    """A user's message as the log keeps it: the words, and a line for each thing attached."""
    return summed_up(words_of(message), attachments_of(attached_to(message)))
