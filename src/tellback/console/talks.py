"""Whom the chat page talks to: the model with the user's memory, an agent with routes, or one by its description.

All of them give the same values.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tellback.agent import Persistence
from tellback.agent.response import Response, Trace
from tellback.agent.session import SessionState
from tellback.console.seat import Seat
from tellback.errors import NotFoundError
from tellback.server.serving import Served
from tellback.specs import AgentSpec
from tellback.specs.parameters import Parameter, parameters_in
from tellback.specs.walking import tree_of
from tellback.turn.values import TurnResult, result_of
from tellback.types import ChatUsage, ReplyDelta, StreamStop, TextDelta, ToolCall
from tellback.types.context import WorkingContext
from tellback.types.conversations import Conversation, StoredMessage, ToolInvocation, TurnOutcome
from tellback.types.ids import new_id
from tellback.types.turns import TurnProblem
from tellback.user import User

NAMESPACE = "chat"
MOST_SHOWN = 100
"""How many messages of a conversation are shown when it is gone on with."""
REMEMBERING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a turn. `cited` are the ids of the memories that the numbers in the text stand for, in order."""

    text: str
    conversation_id: str | None = None
    context: WorkingContext | None = None
    usage: ChatUsage = ChatUsage()
    model_calls: int = 0
    tools: tuple[ToolInvocation, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    problems: tuple[TurnProblem, ...] = ()
    cited: tuple[str, ...] = ()
    status: str = "completed"
    trace: Trace | None = None
    session: SessionState | None = None


@dataclass(frozen=True, slots=True)
class Earlier:
    """What is gone on with: the conversation if it is known, its newest messages, and calls that wait for a decision.

    `left` is a conversation that was left so long ago that the next message begins another.
    """

    conversation: Conversation | None = None
    messages: Sequence[StoredMessage] = ()
    pending: tuple[ToolCall, ...] = ()
    session: SessionState | None = None
    left: Conversation | None = None


class Talk(Protocol):
    """A conversation that a page goes on with."""

    async def earlier(self) -> Earlier:
        """What was said so far."""

    def say(self, text: str) -> AsyncGenerator[ReplyDelta | Answer, None]:
        """The answer as it comes; the last item is an `Answer`. Closing it cancels the turn."""

    def decide(self, decisions: Mapping[str, bool]) -> AsyncGenerator[ReplyDelta | Answer, None]:
        """Go on with a turn whose calls waited."""

    async def end(self) -> bool:
        """Close the conversation, so that the next message begins another; gives whether there was one."""


class MemoryTalk:
    """A chat with the model that the Tellback has, which remembers."""

    def __init__(self, seat: Seat) -> None:
        self._user = seat.user
        self._conversation_id: str | None = None

    async def earlier(self) -> Earlier:
        talks = self._user.conversations
        found = await talks.find(NAMESPACE)
        if found is None:
            return Earlier()
        if found.close_after is not None and found.updated_at + found.close_after < self._now():
            return Earlier(left=found)
        self._conversation_id = found.id
        said = await talks.messages(found.id, MOST_SHOWN, include_internal=True)
        return Earlier(found, said, await talks.pending(found.id))

    def say(self, text: str) -> AsyncGenerator[ReplyDelta | Answer, None]:
        return self._answers(self._user.chat_stream(text, NAMESPACE))

    def decide(self, decisions: Mapping[str, bool]) -> AsyncGenerator[ReplyDelta | Answer, None]:
        given = dict(decisions)
        return self._answers(
            self._user.chat_stream(None, NAMESPACE, approvals=given, conversation_id=self._conversation_id)
        )

    async def end(self) -> bool:
        found = await self._user.conversations.find(NAMESPACE)
        self._conversation_id = None
        if found is None:
            return False
        await self._user.conversations.close(found.id)
        return True

    async def _answers(
        self, items: AsyncGenerator[ReplyDelta | TurnResult, None]
    ) -> AsyncGenerator[ReplyDelta | Answer, None]:
        cited: tuple[str, ...] = ()
        async with aclosing(items):
            async for item in items:
                if isinstance(item, StreamStop):
                    cited = _cited(item)
                if isinstance(item, TurnResult):
                    self._conversation_id = item.conversation_id
                    yield _of_turn(item, cited)
                else:
                    yield item

    def _now(self) -> datetime:
        return self._user.conversations.runtime.clock()


class AgentTalk:
    """A session with an agent with routes: the newest active one of the user, or a new one."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._session_id: str | None = None

    async def earlier(self) -> Earlier:
        session_id = await self._found()
        if session_id is None:
            return Earlier()
        found = await self._served.state(session_id)
        if found is None:
            return Earlier()
        self._session_id = session_id
        talks, agent = self._served.user.conversations, self._served.agent
        talk = await talks.find(agent.memory_options.namespace_of(agent.name), session_id)
        said = [] if talk is None else await talks.messages(talk.id, MOST_SHOWN, include_internal=True)
        pending = tuple(each.call for each in found[0].waiting)
        if talk is not None:
            known = {call.id for call in pending}
            pending += tuple(call for call in await talks.pending(talk.id) if call.id not in known)
        return Earlier(talk, said, pending, found[0])

    def say(self, text: str) -> AsyncGenerator[ReplyDelta | Answer, None]:
        return self._answers(text, None)

    def decide(self, decisions: Mapping[str, bool]) -> AsyncGenerator[ReplyDelta | Answer, None]:
        return self._answers(None, dict(decisions))

    async def end(self) -> bool:
        session_id, self._session_id = self._session_id, None
        if session_id is None:
            return False
        store = self._served.agent.persistence
        if isinstance(store, Persistence):
            await store.complete_session(session_id)
        talks, agent = self._served.user.conversations, self._served.agent
        talk = await talks.find(agent.memory_options.namespace_of(agent.name), session_id)
        if talk is not None:
            await talks.close(talk.id)
        return True

    async def _found(self) -> str | None:
        store, user_id = self._served.agent.persistence, self._served.user.scope.user_id
        if not isinstance(store, Persistence):
            return self._session_id
        found = await store.find_active_session(user_id, self._served.agent.name)
        return None if found is None or not self._served.has(found) else found.id

    async def _answers(
        self, text: str | None, approvals: Mapping[str, bool] | None
    ) -> AsyncGenerator[ReplyDelta | Answer, None]:
        if self._session_id is None:
            self._session_id = new_id("ses")
        chunks = self._served.agent.respond_stream(text, self._session_id, user=self._served.user, approvals=approvals)
        async with aclosing(chunks):
            async for chunk in chunks:
                if chunk.response is not None:
                    yield _of_response(chunk.response)
                elif chunk.delta:
                    yield TextDelta(chunk.delta)


class SpecTalk:
    """A conversation with an agent by its description: the newest open one of its namespace, or a new one."""

    def __init__(self, user: User, spec: AgentSpec, argument: str) -> None:
        self._user = user
        self._name = spec.name
        self._argument = argument
        self._namespace = spec.namespace if isinstance(spec.namespace, str) else spec.name
        self._conversation_id: str | None = None

    async def earlier(self) -> Earlier:
        talks = self._user.conversations
        found = await talks.find(self._namespace)
        if found is None:
            return Earlier()
        self._conversation_id = found.id
        said = await talks.messages(found.id, MOST_SHOWN, include_internal=True)
        return Earlier(found, said, await talks.pending(found.id))

    def say(self, text: str) -> AsyncGenerator[ReplyDelta | Answer, None]:
        return self._answers({self._argument: text}, None)

    def decide(self, decisions: Mapping[str, bool]) -> AsyncGenerator[ReplyDelta | Answer, None]:
        return self._answers({}, dict(decisions))

    async def end(self) -> bool:
        id, self._conversation_id = self._conversation_id, None
        if id is not None:
            await self._user.conversations.close(id)
        return id is not None

    async def _answers(
        self, arguments: Mapping[str, str], approvals: Mapping[str, bool] | None
    ) -> AsyncGenerator[ReplyDelta | Answer, None]:
        items = self._user.agents.invoke_stream(
            self._name, arguments, conversation_id=self._conversation_id, approvals=approvals
        )
        async with aclosing(items):
            async for item in items:
                if isinstance(item, TurnOutcome):
                    self._conversation_id = item.conversation_id
                    yield _of_turn(result_of(item, {}), ())
                else:
                    yield item


def partners(seat: Seat) -> dict[str, str]:
    """Whom one can talk to besides the model with memory, by name, and how they are called in a list.

    Of agents by their description, those that need nothing but a message.
    """
    found = {name: name for name in seat.agents}
    for spec in seat.user.agents.list():
        if spec.name not in found and _message_argument(spec) is not None:
            found[spec.name] = spec.name
    return found


def talk_with(seat: Seat, partner: str | None) -> Talk:
    """The conversation of a page: with one of `partners`, or with the model and the user's memory."""
    if partner is None:
        return MemoryTalk(seat)
    if partner in seat.agents:
        return AgentTalk(seat.served(partner))
    spec = seat.user.agents.get(partner)
    argument = None if spec is None else _message_argument(spec)
    if spec is None or argument is None:
        raise NotFoundError("agent", partner)
    return SpecTalk(seat.user, spec, argument)


def _message_argument(spec: AgentSpec) -> str | None:
    """The argument that takes the message, if that is all that an agent needs."""
    message: object = spec.user_message
    if not isinstance(message, Parameter):
        return None
    wanted = {parameter.name for _, parameter in parameters_in(tree_of(spec))}
    declared = spec.arguments or {}
    spare = {name for name, each in declared.items() if each.has_default or not each.required}
    others = (wanted | set(declared)) - spare - {message.name}
    return None if others else message.name


def _cited(stop: StreamStop) -> tuple[str, ...]:
    """The memories that a reply says it quotes."""
    raw = None if stop.reply is None else stop.reply.raw
    cited = raw.get("cited") if isinstance(raw, dict) else None
    return tuple(map(str, cited)) if isinstance(cited, list) else ()


def _of_turn(result: TurnResult, cited: tuple[str, ...]) -> Answer:
    return Answer(
        result.text,
        result.conversation_id,
        result.context,
        result.usage,
        result.model_calls,
        result.tool_invocations,
        result.pending,
        result.problems,
        cited,
        result.status,
    )


def _of_response(response: Response) -> Answer:
    return Answer(
        response.message,
        response.conversation_id,
        response.context,
        response.trace.usage,
        response.trace.model_calls,
        response.tool_calls,
        response.pending,
        response.problems,
        status="approval" if response.pending else "completed",
        trace=response.trace,
        session=response.session,
    )
