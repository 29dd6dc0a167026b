"""A turn that has begun, and what is kept of it when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tellback.agent.events import Event, EventSource, create_message_event, create_tool_event
from tellback.agent.owning import Key, owner_of, user_id_of
from tellback.agent.persistence import Persistence
from tellback.agent.response import Response
from tellback.agent.session import Answered, SessionState
from tellback.agent.turn import AgentTurn
from tellback.conversations.turn_requests import TurnRequest
from tellback.stores import SessionTurn
from tellback.turn.chatting import Chat
from tellback.types import Message, message_text
from tellback.types.conversations import ToolInvocation
from tellback.types.turns import TurnProblem


@dataclass(slots=True)
class Begun:
    """A turn that has begun: what was said, whose it is, and the session as it was."""

    turn: AgentTurn
    session: SessionState
    key: Key
    said: Message | None
    chat: Chat | None = None
    request: TurnRequest | None = None
    problems: list[TurnProblem] = field(default_factory=list)
    idempotency_key: str | None = None
    decided: tuple[str, ...] = ()
    again: Response | None = None
    end: LoggedEnd | None = None
    is_stored: bool = False

    def noted(self, session: SessionState, text: str) -> SessionState:
        """The session after the turn, with whose it is and what was said to a message that may come again."""
        key = self.idempotency_key
        answered = Answered(key, text) if key is not None else self.session.answered
        return replace(session, answered=answered, owner=owner_of(self.key))


@dataclass(slots=True)
class LoggedEnd:
    """The end of a turn whose messages are in the log that its session is kept beside: both are saved in one step."""

    begun: Begun
    persistence: Persistence
    agent_name: str
    saved: bool = False
    session: SessionState | None = None

    def after(self, text: str, invoked: Sequence[ToolInvocation]) -> SessionTurn:
        """What is saved, now that this was said."""
        self.session = self.begun.noted(self.begun.turn.session_after(), text)
        said = [] if self.begun.said is None else [create_message_event("customer", "user", "said")]
        ran = [_as_event_has_it(each) for each in (*self.begun.turn.invoked, *invoked)]
        said += [create_tool_event("agent", ran)] if ran else []
        said.append(create_message_event("agent", self.agent_name, text))
        user_id = user_id_of(self.begun.key)
        turn = self.persistence.session_turn(self.session, said, agent_name=self.agent_name, user_id=user_id)
        return replace(turn, tool_calls=turn.said[-1].tool_calls)


def _as_event_has_it(call: ToolInvocation) -> dict[str, Any]:
    """A tool that ran, as an event has it."""
    return {"tool_id": call.name, "arguments": dict(call.arguments), "result": call.content}


def events_of_turn(agent: str, said: Message | None, response: Response) -> list[Event]:
    """What was said and done in a turn, as a session's history has it."""
    found = []
    if said is not None:
        found.append(create_message_event(EventSource.CUSTOMER, "user", message_text(said)))
    if response.tool_calls:
        found.append(create_tool_event(EventSource.AI_AGENT, [_as_event_has_it(each) for each in response.tool_calls]))
    found.append(create_message_event(EventSource.AI_AGENT, agent, response.message))
    return found
