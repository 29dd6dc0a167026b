"""A turn that has begun, and what is kept of it when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tellback.agent.events import Event, EventSource, create_message_event, create_tool_event
from tellback.agent.owning import SessionKey, format_owner, get_user_id
from tellback.agent.persistence import Persistence
from tellback.agent.response import Response
from tellback.agent.session import IdempotentReply, SessionState
from tellback.agent.turn import AgentTurn
from tellback.conversations.turn_requests import TurnRequest
from tellback.stores import SessionTurn
from tellback.turn.chatting import UserChat
from tellback.types import Message, message_text
from tellback.types.conversations import ToolInvocation
from tellback.types.turns import TurnProblem


@dataclass(slots=True)
class PreparedTurn:
    """A turn that has begun: what was said, whose it is, and the session as it was."""

    turn: AgentTurn
    session: SessionState
    key: SessionKey
    message: Message | None
    chat: UserChat | None = None
    request: TurnRequest | None = None
    problems: list[TurnProblem] = field(default_factory=list)
    idempotency_key: str | None = None
    decided_call_ids: tuple[str, ...] = ()
    repeated_response: Response | None = None
    session_save: AtomicSessionSave | None = None
    message_is_stored: bool = False

    def stamp_session(self, session: SessionState, text: str) -> SessionState:
        """The session after the turn, with whose it is and what was said to a message that may come again."""
        key = self.idempotency_key
        idempotent_reply = IdempotentReply(key, text) if key is not None else self.session.idempotent_reply
        return replace(session, idempotent_reply=idempotent_reply, owner=format_owner(self.key))


@dataclass(slots=True)
class AtomicSessionSave:
    """The end of a turn whose messages are in the log that its session is kept beside: both are saved in one step."""

    prepared: PreparedTurn
    persistence: Persistence
    agent_name: str
    saved: bool = False
    session: SessionState | None = None

    def after(self, text: str, invoked: Sequence[ToolInvocation]) -> SessionTurn:
        """What is saved, now that this was said."""
        self.session = self.prepared.stamp_session(self.prepared.turn.session_after(), text)
        events = [] if self.prepared.message is None else [create_message_event("customer", "user", "said")]
        tool_calls = [_invocation_to_event_call(each) for each in (*self.prepared.turn.invocations, *invoked)]
        events += [create_tool_event("agent", tool_calls)] if tool_calls else []
        events.append(create_message_event("agent", self.agent_name, text))
        user_id = get_user_id(self.prepared.key)
        turn = self.persistence.build_session_turn(self.session, events, agent_name=self.agent_name, user_id=user_id)
        return replace(turn, tool_calls=turn.messages[-1].tool_calls)


def _invocation_to_event_call(call: ToolInvocation) -> dict[str, Any]:
    """A tool that ran, as an event has it."""
    return {"tool_id": call.name, "arguments": dict(call.arguments), "result": call.content}


def build_turn_events(agent_name: str, message: Message | None, response: Response) -> list[Event]:
    """What was said and done in a turn, as a session's history has it."""
    events = []
    if message is not None:
        events.append(create_message_event(EventSource.CUSTOMER, "user", message_text(message)))
    if response.tool_calls:
        events.append(
            create_tool_event(EventSource.AI_AGENT, [_invocation_to_event_call(each) for each in response.tool_calls])
        )
    events.append(create_message_event(EventSource.AI_AGENT, agent_name, response.message))
    return events
