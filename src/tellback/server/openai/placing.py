"""What of a request the log does not hold yet: clients send their whole history, and send a request again."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tellback.server.openai.errors import FieldRefusedError
from tellback.types import Message, message_text
from tellback.types.blocks import ToolResultBlock
from tellback.types.conversations import StoredMessage

LOOK_BACK = 100
"""How much of the end of a log is looked at."""

BETWEEN = "\n\n"


def _sizes(texts: Sequence[str]) -> Iterator[int]:
    """How long the first, the first two and so on are together."""
    return (size - len(BETWEEN) for size in itertools.accumulate(len(text) + len(BETWEEN) for text in texts))


@dataclass(frozen=True, slots=True)
class Fresh:
    """What of the things that a user said is not in the log: `texts`, as one message under `key`.

    Without texts all of it is there, and `key` is that of its last message.
    """

    texts: tuple[str, ...]
    key: str | None


class LogEnd:
    """The end of a conversation's log."""

    def __init__(self, stored: Sequence[StoredMessage]) -> None:
        self._stored = stored
        self._answered = max((each.seq for each in stored if each.role == "assistant"), default=0)
        self._unanswered = [each for each in stored if each.role == "user" and each.seq > self._answered]

    def fresh(self, texts: Sequence[str]) -> Fresh:
        """What is new of the messages since the last answer. The same ones sent again have the same key."""
        known = self._known(texts)
        if known == len(texts) and self._unanswered[-1].idempotency_key is not None:
            return Fresh((), self._unanswered[-1].idempotency_key)
        rest = tuple(texts[known:] or texts[-1:])
        return Fresh(rest, self._key("said", *rest))

    def contradicts(self, key: str, texts: Sequence[str]) -> bool:
        """Whether something else was said under that key."""
        before = next((each.text for each in self._stored if each.idempotency_key == key), None)
        return before is not None and not BETWEEN.join(texts).endswith(before)

    def missing(self, results: Sequence[Message]) -> list[dict[str, Any]]:
        """The results that are not in the log behind their calls, ready to be appended."""
        return [self._result(each) for each in results if not self._holds(str(each.tool_call_id))]

    def check_results(self, results: Sequence[Message]) -> None:
        """Refuse results of an agent's calls: its tools are the server's, and what they give is not for clients."""
        for id in {str(each.tool_call_id) for each in results}:
            asked = next(
                (each for each in reversed(self._stored) if any(call.id == id for call in each.tool_calls)), None
            )
            agent = None if asked is None else (asked.metadata or {}).get("agent")
            if agent is not None:
                raise FieldRefusedError(
                    "messages", f"Agent {agent!r:.80} asked for call {id!r:.80}, and runs it itself."
                )

    def answer_since(self, earlier: LogEnd) -> str | None:
        """What was said last, if it was said after that and nothing followed it."""
        last = self._stored[-1] if self._stored else None
        if last is None or last.role != "assistant" or last.tool_calls or last.seq <= earlier._answered:
            return None
        return last.text

    def _known(self, texts: Sequence[str]) -> int:
        """How many of the texts stand at the end of the log, unanswered."""
        sent = BETWEEN.join(texts)
        ends = [size for size in _sizes([each.text for each in reversed(self._unanswered)]) if size <= len(sent)]
        end = BETWEEN.join(each.text for each in self._unanswered[-len(ends) :]) if ends else ""
        fitting = {size: count for count, size in enumerate(_sizes(texts), 1) if size in ends}
        return next((fitting[size] for size in sorted(fitting, reverse=True) if end.endswith(sent[:size])), 0)

    def _holds(self, id: str) -> bool:
        calls = (each.seq for each in self._stored if any(call.id == id for call in each.tool_calls))
        asked = max(calls, default=self._answered)
        return any(
            isinstance(block, ToolResultBlock) and block.tool_use_id == id
            for each in self._stored
            if each.seq > asked
            for block in each.content
        )

    def _result(self, message: Message) -> dict[str, Any]:
        id, text = str(message.tool_call_id), message_text(message)
        block = {"type": "tool_result", "tool_use_id": id, "content": text, "tool_name": message.name}
        return {"role": "tool", "content": [block], "idempotency_key": self._key("result", id, text)}

    def _key(self, *about: str) -> str:
        """The same for the same at the same place: after an answer, it is something else to say it again."""
        told = json.dumps([self._answered, *about]).encode()
        return f"v1-{hashlib.sha256(told).hexdigest()[:40]}"
