"""An agent's sessions and messages, as session adapters store them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from tellback.types.ids import utc_now

SessionStatus: TypeAlias = Literal["active", "completed", "abandoned"]
SESSION_STATUSES: tuple[SessionStatus, ...] = ("active", "completed", "abandoned")

MessageRole: TypeAlias = Literal["user", "agent", "system"]
MESSAGE_ROLES: tuple[MessageRole, ...] = ("user", "agent", "system")


@dataclass(frozen=True, slots=True)
class SessionData:
    """A session as it is stored: whose it is, where it stands, and what was gathered, as JSON.

    `version` counts the turns that were saved: a turn that began from another version is refused.

    >>> SessionData("web-42", user_id="maya").status
    'active'
    """

    id: str
    user_id: str | None = None
    agent_name: str | None = None
    status: SessionStatus = "active"
    current_route: str | None = None
    current_state: str | None = None
    collected_data: Mapping[str, Any] = field(default_factory=dict, hash=False)
    message_count: int = 0
    last_message_at: datetime | None = None
    completed_at: datetime | None = None
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)
    version: int = 0


@dataclass(frozen=True, slots=True)
class MessageData:
    """A message of a session as it is stored.

    `tool_calls` are the tools that ran for it, each with `tool_name`, `arguments` and `result`. `event` is the same as
    an agent's history has it: an `Event` where `Persistence` gives it, its JSON where adapters keep it. `position` is
    given by the adapter, and grows with each message of a session.

    >>> MessageData("msg_1", "web-42", "user", "Hello!").tool_calls
    ()
    """

    id: str
    session_id: str
    role: MessageRole
    content: str
    user_id: str | None = None
    route: str | None = None
    state: str | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    event: Any = field(default=None, hash=False)
    created_at: datetime = field(default_factory=utc_now)
    position: int = 0
