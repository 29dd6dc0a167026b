"""Chat backends: the model with the user's memory, an agent from a spec, or an agent with routes.

`tellback chat` and the console's chat page use these backends. All of them yield the same types of items.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from tellback.agent import Agent, Persistence
from tellback.agent.runtime.responder import Responder
from tellback.agent.runtime.turn import format_owner, validate_owner
from tellback.agent.sessions.persistence import SessionStore
from tellback.agent.sessions.serialization import session_data_to_state
from tellback.agent.sessions.session import SessionState
from tellback.app import Tellback
from tellback.errors import ConfigurationError, NotFoundError
from tellback.sessions.sql.adapter import SqlAdapter, StoreBackend
from tellback.specs import AgentSpec
from tellback.specs.model import Parameter, find_parameters, spec_to_tree
from tellback.turns.chat import CHAT_CLOSE_AFTER
from tellback.turns.request import NamespaceMemory
from tellback.types import ReplyDelta, StreamStop, TextDelta, ToolCall
from tellback.types.access import Scope
from tellback.types.conversations import Conversation, SessionData, StoredMessage, TurnResult
from tellback.types.ids import new_id
from tellback.user import User

CHAT_NAMESPACE = "chat"
MAX_MESSAGES_SHOWN = 100
"""Maximum number of messages in a conversation's history."""

MAX_CONVERSATIONS_SEARCHED = 20


@dataclass(frozen=True, slots=True)
class BackendReply:
    """The end of a turn: its result, and the session state of an agent with routes.

    `cited` contains the ids of the memories that the numbers in the text refer to, in order.
    """

    result: TurnResult
    cited: tuple[str, ...] = ()
    session: SessionState | None = None


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """The state of a resumed chat: its conversation, the newest messages, and tool calls that wait for approval.

    `expired` is a conversation that has been inactive for so long that the next message starts a new one.
    """

    conversation: Conversation | None = None
    messages: Sequence[StoredMessage] = ()
    pending: tuple[ToolCall, ...] = ()
    session: SessionState | None = None
    expired: Conversation | None = None


ReplyStream: TypeAlias = AsyncGenerator[ReplyDelta | BackendReply, None]


class ChatBackend(ABC):
    """A chat over several messages. `agent` is set if the chat is with an agent that has routes.

    `model` is the model chosen for the chat, or None if the agent has its own. `conversation_id` is None until a
    conversation is found or created.
    """

    agent: Agent | None = None

    def __init__(self, user: User, namespace: str, model: str | None = None) -> None:
        self.user = user
        self.model = model
        self.conversation_id: str | None = None
        self._namespace = namespace
        self._resumed: Conversation | None = None

    async def find_conversation(self) -> Conversation | None:
        """Return the conversation to continue: the resumed one, the open one, or None."""
        found = self._resumed or await self._find_open()
        self.conversation_id = None if found is None else found.id
        return found

    async def resume(self, conversation: Conversation) -> None:
        """Continue this conversation instead of the open one."""
        self._resumed = conversation
        self.conversation_id = conversation.id

    async def load_history(self) -> ChatHistory:
        """Load the messages of the open conversation."""
        found, session = await self.find_conversation(), await self.load_session()
        pending = () if session is None else tuple(each.call for each in session.pending_calls)
        if found is None:
            return ChatHistory(pending=pending, session=session)
        if self._is_expired(found):
            self.conversation_id = None
            return ChatHistory(expired=found)
        conversations, known_ids = self.user.conversations, {call.id for call in pending}
        messages = await conversations.messages(found.id, MAX_MESSAGES_SHOWN, include_internal=True)
        pending += tuple(call for call in await conversations.pending(found.id) if call.id not in known_ids)
        return ChatHistory(found, messages, pending, session)

    def send(self, text: str) -> ReplyStream:
        """Stream the answer; the last item is a `BackendReply`. Closing the stream cancels the turn."""
        return self._stream(text, None)

    def approve(self, approvals: Mapping[str, bool]) -> ReplyStream:
        """Resume a turn whose tool calls wait for approval."""
        return self._stream(None, dict(approvals))

    async def load_session(self) -> SessionState | None:
        """Load the session state of an agent with routes."""
        return None

    async def close(self) -> str | None:
        """Close the conversation and return its id, or None if there is none. The next message starts a new one."""
        id = self.conversation_id
        if id is not None:
            await self.user.conversations.close(id)
        self.conversation_id = self._resumed = None
        return id

    @abstractmethod
    def _stream(self, text: str | None, approvals: Mapping[str, bool] | None) -> ReplyStream: ...

    async def _finish_stream(self, items: AsyncGenerator[ReplyDelta | TurnResult, None]) -> ReplyStream:
        cited: tuple[str, ...] = ()
        async with aclosing(items):
            async for item in items:
                if isinstance(item, StreamStop):
                    cited = _cited_ids(item)
                if isinstance(item, TurnResult):
                    self.conversation_id = item.conversation_id
                    yield BackendReply(item, cited)
                else:
                    yield item

    async def _find_open(self) -> Conversation | None:
        return await self.user.conversations.find(self._namespace)

    def _is_expired(self, conversation: Conversation) -> bool:
        return False


class ModelBackend(ChatBackend):
    """A chat with the model, like `user.chat`: in the newest open conversation of its namespace."""

    def __init__(
        self, user: User, namespace: str = CHAT_NAMESPACE, space: str = "default", model: str | None = None
    ) -> None:
        super().__init__(user, namespace, model)
        self._space = space

    async def close(self) -> str | None:
        await self.find_conversation()
        return await super().close()

    def _stream(self, text: str | None, approvals: Mapping[str, bool] | None) -> ReplyStream:
        resumed_id = None if self._resumed is None else self._resumed.id
        id = resumed_id if approvals is None else self.conversation_id
        return self._finish_stream(
            self.user.chat_stream(
                text, self._namespace, self._space, self.model, conversation_id=id, approvals=approvals
            )
        )

    def _is_expired(self, conversation: Conversation) -> bool:
        after, now = conversation.close_after, self.user.conversations.runtime.clock()
        return after is not None and conversation.updated_at + after < now


class SpecBackend(ChatBackend):
    """A chat with an agent from a spec, in the newest open conversation of its namespace or a new one.

    With a `space`, the spec's memory space arguments are set to it, and memories are extracted into it.
    """

    def __init__(
        self,
        user: User,
        spec: AgentSpec,
        space: str | None = None,
        model: str | None = None,
        arguments: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(user, spec.namespace if isinstance(spec.namespace, str) else spec.name, model)
        self._spec = spec
        self._space = space
        self._arguments = arguments or {}

    async def _stream(self, text: str | None, approvals: Mapping[str, bool] | None) -> ReplyStream:
        arguments, space_id = dict(self._arguments), None
        if self._space is not None:
            space_id = await NamespaceMemory(self.user, self._namespace, self._space).space_id()
            arguments = {**self._space_arguments(space_id), **arguments}
            if self.conversation_id is None:
                created = await self.user.conversations.create(self._namespace, close_after=CHAT_CLOSE_AFTER)
                self.conversation_id = created.id
        if text is not None:
            message: object = self._spec.user_message
            arguments[message.name if isinstance(message, Parameter) else "userMessage"] = text
        items = self.user.agents.invoke_stream(
            self._spec.name,
            arguments,
            conversation_id=self.conversation_id,
            model=self.model,
            memory_space_id=space_id,
            approvals=approvals,
        )
        async with aclosing(self._finish_stream(items)) as replies:
            async for item in replies:
                yield item

    def _space_arguments(self, space_id: str) -> dict[str, str]:
        """Return the chat's space for every argument that the spec uses as a memory space."""
        found = find_parameters(spec_to_tree(self._spec))
        return {each.name: space_id for path, each in found if path.endswith("memorySpaceId")}


def takes_only_message(spec: AgentSpec) -> bool:
    """Whether a spec requires no argument except the user's message."""
    message: object = spec.user_message
    if not isinstance(message, Parameter):
        return False
    used_names = {parameter.name for _, parameter in find_parameters(spec_to_tree(spec))}
    declared = spec.arguments or {}
    optional = {name for name, each in declared.items() if each.has_default or not each.required}
    return not (used_names | set(declared)) - optional - {message.name}


@dataclass(frozen=True, slots=True)
class ServedAgent:
    """An agent with routes, and the user it talks to."""

    agent: Agent
    user: User

    @property
    def persistence(self) -> Persistence:
        """The store of the agent's sessions. Raises `ConfigurationError` if it is not a `Persistence`."""
        store = self.agent.persistence
        if not isinstance(store, Persistence):
            raise ConfigurationError(
                f"{self.agent.place} stores its sessions in {type(store).__name__}, which can only load and save them:"
                " pass Agent(persistence=Persistence(...))."
            )
        return store

    async def find_session(self, session_id: str) -> SessionData | None:
        """Return the user's session with this agent, or None. Another user's session raises `NotFoundError`."""
        session = await self.persistence.get_session(session_id)
        if session is not None and not self.owns(session):
            raise NotFoundError("session", session_id)
        return session

    async def get_session(self, session_id: str) -> SessionData:
        """Return the user's session with this agent. Raises `NotFoundError` if there is none."""
        session = await self.find_session(session_id)
        if session is None:
            raise NotFoundError("session", session_id)
        return session

    def owns(self, session: SessionData) -> bool:
        """Whether a session belongs to the user and this agent."""
        if session.user_id != self.user.scope.user_id or session.agent_name not in (None, self.agent.name):
            return False
        owner = session.collected_data.get("owner")
        return not owner or owner == format_owner((self.user.scope, session.id))

    async def load_state(self, session_id: str) -> tuple[SessionState, str] | None:
        """Return the state and status of one of the user's sessions, or None if it has not started."""
        store = self.agent.persistence
        if isinstance(store, Persistence):
            row = await self.find_session(session_id)
            return None if row is None else (session_data_to_state(session_id, row), row.status)
        assert store is not None
        state = await store.load(session_id)
        if state is None:
            return None
        validate_owner(state, (self.user.scope, session_id))
        return state, "active"


class RouteBackend(ChatBackend):
    """A chat with an agent with routes, in the user's newest active session or a new one."""

    agent: Agent

    def __init__(self, served_agent: ServedAgent, model: str | None = None) -> None:
        agent = served_agent.agent
        super().__init__(served_agent.user, agent.memory_options.namespace_of(agent.name), model)
        self.agent = agent
        self._served_agent = served_agent
        self._session_id: str | None = None

    async def resume(self, conversation: Conversation) -> None:
        if conversation.session_id is None:
            raise ConfigurationError(f"Conversation {conversation.id!r} does not belong to an agent with routes.")
        await super().resume(conversation)
        self._session_id = conversation.session_id

    async def load_session(self) -> SessionState | None:
        found = None if self._session_id is None else await self._served_agent.load_state(self._session_id)
        return None if found is None else found[0]

    async def close(self) -> str | None:
        id, store = self._session_id, self.agent.persistence
        if id is not None and self.conversation_id is None:  # the first turn was interrupted, or it is closed
            newest = await self.user.conversations.list(self._namespace, limit=MAX_CONVERSATIONS_SEARCHED)
            self.conversation_id = next((each.id for each in newest if each.session_id == id), None)
        if id is not None and isinstance(store, Persistence):
            await store.complete_session(id)
        self._session_id = None
        return await super().close()

    async def _find_open(self) -> Conversation | None:
        self._session_id = id = await self._find_session_id()
        return None if id is None else await self.user.conversations.find(self._namespace, id)

    async def _find_session_id(self) -> str | None:
        store = self.agent.persistence
        if isinstance(store, Persistence):
            active = await store.find_active_session(self.user.scope.user_id, self.agent.name)
            return None if active is None or not self._served_agent.owns(active) else active.id
        # Other session stores cannot list sessions, so find the session by its conversation.
        newest = await self.user.conversations.list(self._namespace, "open", limit=MAX_CONVERSATIONS_SEARCHED)
        return next((each.session_id for each in newest if each.session_id is not None), self._session_id)

    async def _stream(self, text: str | None, approvals: Mapping[str, bool] | None) -> ReplyStream:
        if self._session_id is None:
            self._session_id = new_id("ses")
        chunks = self.agent.respond_stream(text, self._session_id, user=self.user, approvals=approvals)
        async with aclosing(chunks):
            async for chunk in chunks:
                if (response := chunk.response) is not None:
                    if response.message and not chunk.accumulated:
                        yield TextDelta(response.message)  # canned responses are not streamed
                    self.conversation_id = response.conversation_id
                    yield BackendReply(response.result, session=response.session)
                elif chunk.delta:
                    yield TextDelta(chunk.delta)


def bind_agent(source: Agent, tb: Tellback, sessions: SessionStore) -> Agent:
    """Return a copy of the agent with these sessions, and with memory if it has none. It shares the routes."""
    agent = copy.copy(source)
    agent.persistence = sessions
    if agent.memory is None:
        agent.memory = tb
    agent._responder = Responder(agent)
    return agent


def store_sessions(source: Agent, tb: Tellback, scope: Scope) -> Persistence:
    """Return a session store for an agent in the Tellback's store, for one tenant and app."""
    options = source.memory_options
    backend = StoreBackend(
        tb.store,
        tenant_id=scope.tenant_id,
        app_id=scope.app_id,
        namespace=options.namespace,
        close_after=options.close_after,
    )
    return Persistence(SqlAdapter(backend), clock=lambda: tb.clock())


def _cited_ids(stop: StreamStop) -> tuple[str, ...]:
    """Return the ids of the memories that a reply cites."""
    raw = None if stop.reply is None else stop.reply.raw
    cited = raw.get("cited") if isinstance(raw, dict) else None
    return tuple(map(str, cited)) if isinstance(cited, list) else ()
