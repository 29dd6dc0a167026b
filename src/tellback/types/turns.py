"""Who is talking, and where: the values of a turn's request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Session:
    """One sitting of a chat: your own id for it, such as a browser tab's or a channel's.

    Turns with the same session id continue one conversation, unless `conversation_id` names one. `metadata` is yours.

    >>> Session("web-42").id
    'web-42'
    """

    id: str
    conversation_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sent a message. `metadata` is yours: roles, a mail address, a locale.

    >>> Identity("maya", name="Maya").user_id
    'maya'
    """

    user_id: str
    name: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class TurnProblem:
    """Something that failed without ending the turn: `step` is "recall", "store_user" or "store_reply".

    >>> str(TurnProblem("recall", TimeoutError("too slow")))
    'recall: TimeoutError: too slow'
    """

    step: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.step}: {type(self.error).__name__}: {self.error}"
