"""Assertions that must hold for a store after any failure of its writers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from tellback import Tellback
from tellback.chat.history import is_valid_history
from tellback.chat.model import ChatRequest
from tellback.conversations import Conversations
from tellback.testing import FunctionModel
from tellback.types.conversations import Event, StoredMessage, TurnResult
from tests.support.subprocess_programs import USER, digest
from tests.support.subprocesses import Output

PROMPT_SECONDS = 5.0
"""Much less than the lease of a claim, and enough for a busy machine."""


def conversations_of(tb: Tellback) -> Conversations:
    return tb.user(USER).conversations


async def load_messages(tb: Tellback, id: str) -> list[StoredMessage]:
    """Return all messages, and check that their seqs have no gaps."""
    messages = await conversations_of(tb).messages(id, include_internal=True, include_hidden=True)
    assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
    conversation = await conversations_of(tb).get(id)
    assert conversation is not None
    assert conversation.last_seq == len(messages)
    return messages


def acknowledged_outputs(lines: Iterable[Output]) -> list[Output]:
    return [line for line in lines if "id" in line]


def assert_stored(messages: Iterable[StoredMessage], lines: Iterable[Output]) -> None:
    """Check that every acknowledged message is stored unchanged at its position."""
    found = {message.id: message for message in messages}
    for line in acknowledged_outputs(lines):
        message = found.get(line["id"])
        assert message is not None, f"lost: {line}"
        assert (message.seq, message.conversation_id, message.role, digest(message.text)) == (
            line["seq"],
            line["conversation"],
            line["role"],
            line["digest"],
        )


def assert_in_order(lines: Iterable[Output]) -> None:
    """Check that one writer's consecutive messages are in that order."""
    seqs: dict[str, list[int]] = {}
    for line in acknowledged_outputs(lines):
        seqs.setdefault(line["conversation"], []).append(line["seq"])
    for order in seqs.values():
        assert order == sorted(set(order))


def assert_not_interleaved(messages: Iterable[StoredMessage]) -> None:
    """Check that the messages of each turn are contiguous."""
    turns = [turn for turn, _ in itertools.groupby(messages, key=lambda message: message.turn_id)]
    assert len(turns) == len(set(turns))


@dataclass
class EventRecorder:
    """Records events and checks them: positions increase, and each message has one event."""

    position: int = 0
    seqs: dict[str, dict[str, int]] = field(default_factory=dict)

    def record(self, event: Event) -> None:
        assert event.position > self.position
        self.position = event.position
        if event.type == "message.appended":
            of_conversation = self.seqs.setdefault(event.subject_id, {})
            assert event.data["message_id"] not in of_conversation, f"duplicate: {event}"
            assert event.data["seq"] == len(of_conversation) + 1, f"out of order: {event}"
            of_conversation[event.data["message_id"]] = event.data["seq"]

    async def read_new(self, tb: Tellback) -> None:
        for event in await tb.events.read(self.position, limit=1_000_000):
            self.record(event)

    def assert_covers(self, id: str, messages: Iterable[StoredMessage]) -> None:
        assert self.seqs.get(id, {}) == {message.id: message.seq for message in messages}


async def assert_turn_runs_at_once(tb: Tellback, id: str, text: str = "Are you there?") -> TurnResult:
    """Check that no claim blocks the next turn, and that its history is valid."""
    requests: list[ChatRequest] = []

    def answer(request: ChatRequest) -> str:
        requests.append(request)
        return "I am."

    async with asyncio.timeout(PROMPT_SECONDS):
        outcome = await conversations_of(tb).run_turn(id, FunctionModel(answer), text)
    assert (outcome.status, outcome.text) == ("completed", "I am.")
    [request] = requests
    assert is_valid_history(request.messages)
    assert request.messages[-1].content == text
    return outcome
