"""What the chat page talks to: the model with the user's memory, an agent with routes, or an agent from a spec.

All of them yield the same values.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tellback.agent import Persistence
from tellback.agent.response import Response, Trace
from tellback.agent.sessions.session import SessionState
from tellback.console.context import PageContext
from tellback.errors import NotFoundError
from tellback.server.tenant_agents import ServedAgent
from tellback.specs import AgentSpec
from tellback.specs.model import Parameter, find_parameters, spec_to_tree
from tellback.types import ChatUsage, ReplyDelta, StreamStop, TextDelta, ToolCall
from tellback.types.conversations import Conversation, StoredMessage, ToolInvocation, TurnProblem, TurnResult
from tellback.types.ids import new_id
from tellback.types.memory import WorkingContext
from tellback.user import User

CHAT_NAMESPACE = "chat"
MAX_MESSAGES_SHOWN = 100
"""How many messages of a conversation are shown when it is gone on with."""
EXTRACTION_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PageReply:
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
class ChatHistory:
    """What is gone on with: the conversation if it is known, its newest messages, and calls that wait for a decision.

    `expired` is a conversation that was left so long ago that the next message begins another.
    """

    conversation: Conversation | None = None
    messages: Sequence[StoredMessage] = ()
    pending: tuple[ToolCall, ...] = ()
    session: SessionState | None = None
    expired: Conversation | None = None


class PageChatBackend(Protocol):
    """A conversation that a page goes on with."""

    async def load_history(self) -> ChatHistory:
        """What was said so far."""

    def send(self, text: str) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        """The answer as it comes; the last item is a `PageReply`. Closing it cancels the turn."""

    def approve(self, approvals: Mapping[str, bool]) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        """Go on with a turn whose calls waited."""

    async def close(self) -> bool:
        """Close the conversation, so that the next message begins another; gives whether there was one."""


class MemoryChatBackend:
    """A chat with the model that the Tellback has, which remembers."""

    def __init__(self, ctx: PageContext) -> None:
        self._user = ctx.user
        self._conversation_id: str | None = None

    async def load_history(self) -> ChatHistory:
        conversations = self._user.conversations
        found = await conversations.find(CHAT_NAMESPACE)
        if found is None:
            return ChatHistory()
        if found.close_after is not None and found.updated_at + found.close_after < self._now():
            return ChatHistory(expired=found)
        self._conversation_id = found.id
        messages = await conversations.messages(found.id, MAX_MESSAGES_SHOWN, include_internal=True)
        return ChatHistory(found, messages, await conversations.pending(found.id))

    def send(self, text: str) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        return self._stream_reply(self._user.chat_stream(text, CHAT_NAMESPACE))

    def approve(self, approvals: Mapping[str, bool]) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        return self._stream_reply(
            self._user.chat_stream(
                None, CHAT_NAMESPACE, approvals=dict(approvals), conversation_id=self._conversation_id
            )
        )

    async def close(self) -> bool:
        found = await self._user.conversations.find(CHAT_NAMESPACE)
        self._conversation_id = None
        if found is None:
            return False
        await self._user.conversations.close(found.id)
        return True

    async def _stream_reply(
        self, items: AsyncGenerator[ReplyDelta | TurnResult, None]
    ) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        cited: tuple[str, ...] = ()
        async with aclosing(items):
            async for item in items:
                if isinstance(item, StreamStop):
                    cited = _cited_ids(item)
                if isinstance(item, TurnResult):
                    self._conversation_id = item.conversation_id
                    yield _reply_from_turn(item, cited)
                else:
                    yield item

    def _now(self) -> datetime:
        return self._user.conversations.runtime.clock()


class RouteChatBackend:
    """A session with an agent with routes: the newest active one of the user, or a new one."""

    def __init__(self, served_agent: ServedAgent) -> None:
        self._served_agent = served_agent
        self._session_id: str | None = None

    async def load_history(self) -> ChatHistory:
        session_id = await self._find_session_id()
        if session_id is None:
            return ChatHistory()
        found = await self._served_agent.load_state(session_id)
        if found is None:
            return ChatHistory()
        self._session_id = session_id
        conversations, agent = self._served_agent.user.conversations, self._served_agent.agent
        conversation = await conversations.find(agent.memory_options.namespace_of(agent.name), session_id)
        messages = (
            []
            if conversation is None
            else await conversations.messages(conversation.id, MAX_MESSAGES_SHOWN, include_internal=True)
        )
        pending = tuple(each.call for each in found[0].pending_calls)
        if conversation is not None:
            pending_ids = {call.id for call in pending}
            pending += tuple(
                call for call in await conversations.pending(conversation.id) if call.id not in pending_ids
            )
        return ChatHistory(conversation, messages, pending, found[0])

    def send(self, text: str) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        return self._stream_reply(text, None)

    def approve(self, approvals: Mapping[str, bool]) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        return self._stream_reply(None, dict(approvals))

    async def close(self) -> bool:
        session_id, self._session_id = self._session_id, None
        if session_id is None:
            return False
        store = self._served_agent.agent.persistence
        if isinstance(store, Persistence):
            await store.complete_session(session_id)
        conversations, agent = self._served_agent.user.conversations, self._served_agent.agent
        conversation = await conversations.find(agent.memory_options.namespace_of(agent.name), session_id)
        if conversation is not None:
            await conversations.close(conversation.id)
        return True

    async def _find_session_id(self) -> str | None:
        store, user_id = self._served_agent.agent.persistence, self._served_agent.user.scope.user_id
        if not isinstance(store, Persistence):
            return self._session_id
        found = await store.find_active_session(user_id, self._served_agent.agent.name)
        return None if found is None or not self._served_agent.owns(found) else found.id

    async def _stream_reply(
        self, text: str | None, approvals: Mapping[str, bool] | None
    ) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        if self._session_id is None:
            self._session_id = new_id("ses")
        chunks = self._served_agent.agent.respond_stream(
            text, self._session_id, user=self._served_agent.user, approvals=approvals
        )
        async with aclosing(chunks):
            async for chunk in chunks:
                if chunk.response is not None:
                    yield _reply_from_response(chunk.response)
                elif chunk.delta:
                    yield TextDelta(chunk.delta)


class SpecChatBackend:
    """A conversation with an agent by its description: the newest open one of its namespace, or a new one."""

    def __init__(self, user: User, spec: AgentSpec, argument: str) -> None:
        self._user = user
        self._name = spec.name
        self._argument = argument
        self._namespace = spec.namespace if isinstance(spec.namespace, str) else spec.name
        self._conversation_id: str | None = None

    async def load_history(self) -> ChatHistory:
        conversations = self._user.conversations
        found = await conversations.find(self._namespace)
        if found is None:
            return ChatHistory()
        self._conversation_id = found.id
        messages = await conversations.messages(found.id, MAX_MESSAGES_SHOWN, include_internal=True)
        return ChatHistory(found, messages, await conversations.pending(found.id))

    def send(self, text: str) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        return self._stream_reply({self._argument: text}, None)

    def approve(self, approvals: Mapping[str, bool]) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        return self._stream_reply({}, dict(approvals))

    async def close(self) -> bool:
        id, self._conversation_id = self._conversation_id, None
        if id is not None:
            await self._user.conversations.close(id)
        return id is not None

    async def _stream_reply(
        self, arguments: Mapping[str, str], approvals: Mapping[str, bool] | None
    ) -> AsyncGenerator[ReplyDelta | PageReply, None]:
        items = self._user.agents.invoke_stream(
            self._name, arguments, conversation_id=self._conversation_id, approvals=approvals
        )
        async with aclosing(items):
            async for item in items:
                if isinstance(item, TurnResult):
                    self._conversation_id = item.conversation_id
                    yield _reply_from_turn(item, ())
                else:
                    yield item


def list_chat_agents(ctx: PageContext) -> dict[str, str]:
    """Whom one can talk to besides the model with memory, by name, and how they are called in a list.

    Of agents by their description, those that need nothing but a message.
    """
    found = {name: name for name in ctx.agents}
    for spec in ctx.user.agents.list():
        if spec.name not in found and _message_argument(spec) is not None:
            found[spec.name] = spec.name
    return found


def create_backend(ctx: PageContext, agent_name: str | None) -> PageChatBackend:
    """The conversation of a page: with one of `list_chat_agents`, or with the model and the user's memory."""
    if agent_name is None:
        return MemoryChatBackend(ctx)
    if agent_name in ctx.agents:
        return RouteChatBackend(ctx.served_agent(agent_name))
    spec = ctx.user.agents.get(agent_name)
    argument = None if spec is None else _message_argument(spec)
    if spec is None or argument is None:
        raise NotFoundError("agent", agent_name)
    return SpecChatBackend(ctx.user, spec, argument)


def _message_argument(spec: AgentSpec) -> str | None:
    """The argument that takes the message, if that is all that an agent needs."""
    message: object = spec.user_message
    if not isinstance(message, Parameter):
        return None
    used_names = {parameter.name for _, parameter in find_parameters(spec_to_tree(spec))}
    declared = spec.arguments or {}
    optional = {name for name, each in declared.items() if each.has_default or not each.required}
    others = (used_names | set(declared)) - optional - {message.name}
    return None if others else message.name


def _cited_ids(stop: StreamStop) -> tuple[str, ...]:
    """The memories that a reply says it quotes."""
    raw = None if stop.reply is None else stop.reply.raw
    cited = raw.get("cited") if isinstance(raw, dict) else None
    return tuple(map(str, cited)) if isinstance(cited, list) else ()


def _reply_from_turn(result: TurnResult, cited: tuple[str, ...]) -> PageReply:
    return PageReply(
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


def _reply_from_response(response: Response) -> PageReply:
    return PageReply(
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
