"""What of a request the log does not hold yet: clients send their whole history, and send a request again."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tellback.server.openai.errors import InvalidFieldError
from tellback.types import Message, message_text
from tellback.types.blocks import ToolResultBlock
from tellback.types.conversations import StoredMessage

MAX_LOOKBACK = 100
"""How much of the end of a log is looked at."""

SEPARATOR = "\n\n"


def _cumulative_lengths(texts: Sequence[str]) -> Iterator[int]:
    """How long the first, the first two and so on are together."""
    return (size - len(SEPARATOR) for size in itertools.accumulate(len(text) + len(SEPARATOR) for text in texts))


@dataclass(frozen=True, slots=True)
class UnloggedText:
    """What of the things that a user said is not in the log: `texts`, as one message under `key`.

    Without texts all of it is there, and `key` is that of its last message.
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
        """What is new of the messages since the last answer. The same ones sent again have the same key."""
        logged_count = self._count_logged(texts)
        if logged_count == len(texts) and self._unanswered[-1].idempotency_key is not None:
            return UnloggedText((), self._unanswered[-1].idempotency_key)
        unlogged = tuple(texts[logged_count:] or texts[-1:])
        return UnloggedText(unlogged, self._idempotency_key("said", *unlogged))

    def conflicts(self, key: str, texts: Sequence[str]) -> bool:
        """Whether something else was said under that key."""
        stored = next((each.text for each in self._stored if each.idempotency_key == key), None)
        return stored is not None and not SEPARATOR.join(texts).endswith(stored)

    def find_missing_results(self, results: Sequence[Message]) -> list[dict[str, Any]]:
        """The results that are not in the log behind their calls, ready to be appended."""
        return [self._encode_result(each) for each in results if not self._has_result(str(each.tool_call_id))]

    def reject_agent_results(self, results: Sequence[Message]) -> None:
        """Refuse results of an agent's calls: its tools are the server's, and what they give is not for clients."""
        for id in {str(each.tool_call_id) for each in results}:
            request = next(
                (each for each in reversed(self._stored) if any(call.id == id for call in each.tool_calls)), None
            )
            agent = None if request is None else (request.metadata or {}).get("agent")
            if agent is not None:
                raise InvalidFieldError(
                    "messages", f"Agent {agent!r:.80} asked for call {id!r:.80}, and runs it itself."
                )

    def answer_since(self, earlier: LogTail) -> str | None:
        """What was said last, if it was said after that and nothing followed it."""
        last = self._stored[-1] if self._stored else None
        if last is None or last.role != "assistant" or last.tool_calls or last.seq <= earlier._answered_seq:
            return None
        return last.text

    def _count_logged(self, texts: Sequence[str]) -> int:
        """How many of the texts stand at the end of the log, unanswered."""
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
        """The same for the same at the same place: after an answer, it is something else to say it again."""
        position = json.dumps([self._answered_seq, *parts]).encode()
        return f"v1-{hashlib.sha256(position).hexdigest()[:40]}"
