"""What tools gave in turns that failed later: a refund is not paid twice because a connection was lost."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from tellback.agent.moves import ToolRunResult
from tellback.types.conversations import ToolInvocation

MAX_ATTEMPTS = 1_000
ATTEMPT_TTL = 900.0


@dataclass(slots=True)
class TurnAttempt:
    """What the tools of one turn gave: by the approved call, or by state and arguments; and the last of each state.

    `running` are those in threads that nobody can stop, though their turn was, by state.
    """

    runs: dict[str, tuple[ToolRunResult, ToolInvocation]] = field(default_factory=dict)
    states: dict[str, tuple[ToolRunResult, ToolInvocation]] = field(default_factory=dict)
    running: dict[str, asyncio.Future[tuple[ToolRunResult, ToolInvocation]]] = field(default_factory=dict)
    started_at: float = field(default_factory=time.monotonic)


class TurnAttempts:
    """First tries, by the session and its version: whoever tries a turn again is told what was done already.

    They are forgotten once the turn has succeeded, and after a quarter of an hour. Calls that were decided are
    remembered for longer, as many as there is room for.
    """

    def __init__(self) -> None:
        self._attempts: OrderedDict[tuple[Any, ...], TurnAttempt] = OrderedDict()
        self._decided: OrderedDict[str, None] = OrderedDict()

    def get_or_create(self, key: tuple[Any, ...]) -> TurnAttempt:
        """What was done in the turn so far; it is added to as tools run."""
        now = time.monotonic()
        while self._attempts and (
            len(self._attempts) >= MAX_ATTEMPTS or next(iter(self._attempts.values())).started_at < now - ATTEMPT_TTL
        ):
            self._attempts.popitem(last=False)
        return self._attempts.setdefault(key, TurnAttempt())

    def forget(self, key: tuple[Any, ...]) -> None:
        """The turn has succeeded."""
        self._attempts.pop(key, None)

    def mark_decided(self, call_id: str) -> None:
        """Note that a call was decided, and its turn has succeeded."""
        self._decided[call_id] = None
        if len(self._decided) > 10 * MAX_ATTEMPTS:
            self._decided.popitem(last=False)

    def was_decided(self, call_id: str) -> bool:
        """Whether that is known of a call."""
        return call_id in self._decided
