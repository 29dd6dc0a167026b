"""Run a completion as a turn: the model gets the client's messages, and the log stores those it does not have yet."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from tellback.chat import ChatOptions
from tellback.errors import AlreadyAnsweredError, IdempotencyConflictError
from tellback.server.openai.errors import InvalidFieldError
from tellback.server.openai.requests import ParsedChat, get_attachments, text_of_parts
from tellback.turns.attachments import append_summaries, parse_attachments
from tellback.turns.chat import ChatArguments, UserChat
from tellback.turns.request import TurnLog, TurnPlanner, TurnRequest, build_imported_draft, try_step
from tellback.types import Message, ReplyDelta, TextDelta, message_text
from tellback.types.blocks import TextBlock, ToolResultBlock
from tellback.types.conversations import MessageDraft, StoredMessage, TurnResult
from tellback.user import User

MAX_LOOKBACK = 100
"""The number of recent messages of the log to compare with."""

SEPARATOR = "\n\n"


def _cumulative_lengths(texts: Sequence[str]) -> Iterator[int]:
    """Yield the length of the first text, of the first two joined, and so on."""
    return (size - len(SEPARATOR) for size in itertools.accumulate(len(text) + len(SEPARATOR) for text in texts))


@dataclass(frozen=True, slots=True)
class UnloggedText:
    """The user's texts that are not in the log, as one message with an idempotency key.

    If `texts` is empty, the log already has all texts, and `key` is the key of the last message.
    """

    texts: tuple[str, ...]
    key: str | None


class LogTail:
    """The end of a conversation's log."""

    def __init__(self, stored: Sequence[StoredMessage]) -> None:
        self._stored = stored
        self._answered_seq = max((each.seq for each in stored if each.role == "assistant"), default=0)
        self._unanswered = [each for each in stored if each.role == "user" and each.seq > self._answered_seq]

    def find_unlogged(self, texts: Sequence[str]) -> UnloggedText:
        """Find the texts that were not logged after the last answer. If they are sent again, they get the same key."""
        logged_count = self._count_logged(texts)
        if logged_count == len(texts) and self._unanswered[-1].idempotency_key is not None:
            return UnloggedText((), self._unanswered[-1].idempotency_key)
        unlogged = tuple(texts[logged_count:] or texts[-1:])
        return UnloggedText(unlogged, self._idempotency_key("said", *unlogged))

    def conflicts(self, key: str, texts: Sequence[str]) -> bool:
        """Whether the log has a different message with that key."""
        stored = next((each.text for each in self._stored if each.idempotency_key == key), None)
        return stored is not None and not SEPARATOR.join(texts).endswith(stored)

    def find_missing_results(self, results: Sequence[Message]) -> list[dict[str, Any]]:
        """Return the results that the log does not have yet, ready to append."""
        return [self._encode_result(each) for each in results if not self._has_result(str(each.tool_call_id))]

    def reject_agent_results(self, results: Sequence[Message]) -> None:
        """Raise for results of an agent's calls: the server runs an agent's tools."""
        for id in {str(each.tool_call_id) for each in results}:
            request = next(
                (each for each in reversed(self._stored) if any(call.id == id for call in each.tool_calls)), None
            )
            agent = None if request is None else (request.metadata or {}).get("agent")
            if agent is not None:
                raise InvalidFieldError(
                    "messages", f"Agent {agent!r:.80} made call {id!r:.80} and runs it itself: do not send its result."
                )

    def answer_since(self, earlier: LogTail) -> str | None:
        """Return the last answer, if it came after `earlier` and nothing followed."""
        last = self._stored[-1] if self._stored else None
        if last is None or last.role != "assistant" or last.tool_calls or last.seq <= earlier._answered_seq:
            return None
        return last.text

    def _count_logged(self, texts: Sequence[str]) -> int:
        """Count the texts that are at the end of the log without an answer."""
        sent = SEPARATOR.join(texts)
        lengths = [
            size
            for size in _cumulative_lengths([each.text for each in reversed(self._unanswered)])
            if size <= len(sent)
        ]
        tail = SEPARATOR.join(each.text for each in self._unanswered[-len(lengths) :]) if lengths else ""
        counts_by_length = {size: count for count, size in enumerate(_cumulative_lengths(texts), 1) if size in lengths}
        return next(
            (counts_by_length[size] for size in sorted(counts_by_length, reverse=True) if tail.endswith(sent[:size])), 0
        )

    def _has_result(self, id: str) -> bool:
        calls = (each.seq for each in self._stored if any(call.id == id for call in each.tool_calls))
        requested_seq = max(calls, default=self._answered_seq)
        return any(
            isinstance(block, ToolResultBlock) and block.tool_use_id == id
            for each in self._stored
            if each.seq > requested_seq
            for block in each.content
        )

    def _encode_result(self, message: Message) -> dict[str, Any]:
        id, text = str(message.tool_call_id), message_text(message)
        block = {"type": "tool_result", "tool_use_id": id, "content": text, "tool_name": message.name}
        return {"role": "tool", "content": [block], "idempotency_key": self._idempotency_key("result", id, text)}

    def _idempotency_key(self, *parts: str) -> str:
        """Return a key for these parts after the last answer. The same text after another answer is a new message."""
        position = json.dumps([self._answered_seq, *parts]).encode()
        return f"v1-{hashlib.sha256(position).hexdigest()[:40]}"


class Completion(UserChat):
    """A chat whose client sends the history with each request. `conversation_id` is set when the turn begins."""

    def __init__(
        self, user: User, chat: ParsedChat, namespace: str, space: str | None, model: Any, arguments: ChatArguments
    ) -> None:
        self.chat = chat
        self._log_texts = [_to_log_text(message) for message in chat.user_messages]
        attachments = [part for message in chat.user_messages for part in get_attachments(message)]
        text = SEPARATOR.join(map(text_of_parts, chat.user_messages)) if chat.user_messages else chat.last_user_text
        super().__init__(user, text, namespace, space, model, {**arguments, "attachments": attachments})
        self.conversation_id: str | None = None

    async def run(self) -> TurnResult:
        """Return the answer, or the earlier answer if the same request was answered while this one waited."""
        try:
            return await super().run()
        except AlreadyAnsweredError as error:
            return self._answered_result(error.text)

    async def stream(self) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """Yield the answer in pieces, then the result."""
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
        tail = LogTail(await self.read_log_tail())
        tail.reject_agent_results(self.chat.tool_results)
        # Tool results are stored first, because they belong to the turn with their calls.
        now = self._user.conversations.runtime.clock()
        missing = tail.find_missing_results(self.chat.tool_results)
        return replace(
            request,
            draft=self._draft(request, tail),
            earlier_messages=[build_imported_draft(message, now) for message in missing],
            planner=_ClientHistory(self, tail),
        )

    async def read_log_tail(self) -> Sequence[StoredMessage]:
        if self.conversation_id is None:
            return ()
        reading = self._user.conversations.raw_turns(self.conversation_id, limit=MAX_LOOKBACK)
        return await try_step(reading, "recall", self._problems) or ()

    def _draft(self, request: TurnRequest, tail: LogTail) -> MessageDraft | None:
        """Return the new part of the user's message, or the stored message if nothing is new."""
        if not self.chat.user_messages or request.draft is None:
            return None
        key = request.draft.idempotency_key
        if key is not None and tail.conflicts(key, self._log_texts):
            raise IdempotencyConflictError(key)
        unlogged = tail.find_unlogged(self._log_texts)
        content = TextBlock(SEPARATOR.join(unlogged.texts or self._log_texts[-1:]))
        return replace(request.draft, content=(content,), idempotency_key=key or unlogged.key)


class _ClientHistory(TurnPlanner):
    """Sends the client's history to the model instead of the log's. Raises if the request was answered meanwhile."""

    def __init__(self, completion: Completion, tail: LogTail) -> None:
        self._completion = completion
        self._tail = tail

    async def plan(
        self, options: ChatOptions, history: list[Message], log: TurnLog
    ) -> tuple[ChatOptions, list[Message]]:
        chat, answer = self._completion.chat, log.previous_answer
        if chat.tool_results and not chat.user_messages:
            answer = LogTail(await self._completion.read_log_tail()).answer_since(self._tail)
        if answer is not None:
            raise AlreadyAnsweredError(answer)
        return options, list(chat.messages)


def _to_log_text(message: Message) -> str:
    """Return a user's message as logged: the text, and one line per attachment."""
    return append_summaries(text_of_parts(message), parse_attachments(get_attachments(message)))
