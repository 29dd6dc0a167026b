"""What `tellback chat` talks to: the model, an agent from a spec, or an agent with routes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tellback.agent import Agent, Persistence, SessionState
from tellback.errors import ConfigurationError, NotFoundError
from tellback.sessions.sql.adapter import SqlAdapter, StoreBackend
from tellback.turns.chat import CHAT_CLOSE_AFTER
from tellback.turns.recall import NamespaceMemory
from tellback.types import ChatUsage, ReplyDelta, TextDelta, ToolCall
from tellback.types.conversations import Conversation, ToolInvocation, TurnProblem, TurnResult
from tellback.types.ids import new_id
from tellback.types.memory import WorkingContext

if TYPE_CHECKING:
    from tellback.app import Tellback
    from tellback.specs import AgentSpec
    from tellback.user import User


@dataclass(frozen=True, slots=True)
class ChatTurnReply:
    """What came of a message."""

    text: str
    conversation_id: str | None
    usage: ChatUsage
    context: WorkingContext | None = None
    tools: tuple[ToolInvocation, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    problems: tuple[TurnProblem, ...] = ()
    session: SessionState | None = None


ReplyStream = AsyncGenerator[ReplyDelta | ChatTurnReply, None]


class ChatBackend(Protocol):
    """A chat that goes on from message to message."""

    @property
    def agent(self) -> Agent | None:
        """Whom one talks with, if it has routes."""

    @property
    def model(self) -> str | None:
        """The model that was chosen for it, None if the agent brings its own."""

    async def find_conversation(self, conversation_id: str | None) -> Conversation | None:
        """Find the conversation to go on with, if there is one."""

    def send(self, text: str) -> ReplyStream:
        """The answer as it comes, and the whole last."""

    def approve(self, approvals: Mapping[str, bool]) -> ReplyStream:
        """Go on with a turn whose calls wait for a decision."""

    async def load_session(self) -> SessionState | None:
        """Where an agent with routes stands."""

    async def close(self, conversation_id: str) -> None:
        """Close the conversation; the next message begins another."""


class ModelBackend:
    """A chat with the model, as `user.chat` holds it."""

    agent: Agent | None = None

    def __init__(self, user: User, namespace: str, space: str, model: str) -> None:
        self._user = user
        self._namespace = namespace
        self._space = space
        self.model: str | None = model
        self._conversation_id: str | None = None

    async def find_conversation(self, conversation_id: str | None) -> Conversation | None:
        self._conversation_id = conversation_id
        if conversation_id is not None:
            return await _load_conversation(self._user, conversation_id)
        return await self._user.conversations.find(self._namespace)

    def send(self, text: str) -> ReplyStream:
        return self._stream(text, None)

    def approve(self, approvals: Mapping[str, bool]) -> ReplyStream:
        return self._stream(None, approvals)

    async def _stream(self, text: str | None, approvals: Mapping[str, bool] | None) -> ReplyStream:
        items = self._user.chat_stream(
            text, self._namespace, self._space, self.model, conversation_id=self._conversation_id, approvals=approvals
        )
        async with aclosing(items):
            async for item in items:
                yield _reply_from_result(item) if isinstance(item, TurnResult) else item

    async def load_session(self) -> SessionState | None:
        return None

    async def close(self, conversation_id: str) -> None:
        await self._user.conversations.close(conversation_id)
        self._conversation_id = None


class SpecBackend:
    """A chat with an agent by its description."""

    agent: Agent | None = None

    def __init__(
        self, user: User, spec: AgentSpec, space: str, model: str | None, arguments: Mapping[str, str]
    ) -> None:
        self._user = user
        self._spec = spec
        self._space = space
        self.model = model
        self._arguments = arguments
        self._namespace = spec.namespace if isinstance(spec.namespace, str) else spec.name
        self._conversation_id: str | None = None

    async def find_conversation(self, conversation_id: str | None) -> Conversation | None:
        if conversation_id is not None:
            found: Conversation | None = await _load_conversation(self._user, conversation_id)
        else:
            found = await self._user.conversations.find(self._namespace)
        self._conversation_id = None if found is None else found.id
        return found

    def send(self, text: str) -> ReplyStream:
        return self._stream(text, None)

    def approve(self, approvals: Mapping[str, bool]) -> ReplyStream:
        return self._stream(None, approvals)

    async def _stream(self, text: str | None, approvals: Mapping[str, bool] | None) -> ReplyStream:
        space_id = await NamespaceMemory(self._user, self._namespace, self._space).space_id()
        if self._conversation_id is None:
            created = await self._user.conversations.create(self._namespace, close_after=CHAT_CLOSE_AFTER)
            self._conversation_id = created.id
        message_argument = {} if text is None else {self._message_argument: text}
        items = self._user.agents.invoke_stream(
            self._spec.name,
            {**self._space_arguments(space_id), **self._arguments, **message_argument},
            conversation_id=self._conversation_id,
            model=self.model,
            memory_space_id=space_id,
            approvals=approvals,
        )
        async with aclosing(items):
            async for item in items:
                yield _reply_from_result(item) if isinstance(item, TurnResult) else item

    @property
    def _message_argument(self) -> str:
        """The argument that holds the message."""
        message: Any = self._spec.user_message
        return str(getattr(message, "name", "userMessage"))

    def _space_arguments(self, space_id: str) -> dict[str, str]:
        """Spaces are arguments in most descriptions: here there is one that is meant."""
        from tellback.specs.model import find_parameters, spec_to_tree

        found = find_parameters(spec_to_tree(self._spec))
        return {each.name: space_id for path, each in found if path.endswith("memorySpaceId")}

    async def load_session(self) -> SessionState | None:
        return None

    async def close(self, conversation_id: str) -> None:
        await self._user.conversations.close(conversation_id)
        self._conversation_id = None


class RouteBackend:
    """A chat with an agent that has routes. It remembers the user, and its sessions are kept beside that."""

    def __init__(self, rc: Tellback, user: User, agent: Agent, model: str | None) -> None:
        self._user = user
        self.model = model
        self.agent = agent if model is None else agent.with_model(model)
        self.agent.memory = user
        if self.agent.persistence is None:
            options, scope = self.agent.memory_options, user.scope
            sessions = StoreBackend(
                rc.store,
                tenant_id=scope.tenant_id,
                app_id=scope.app_id,
                namespace=options.namespace,
                close_after=options.close_after,
            )
            self.agent.persistence = Persistence(SqlAdapter(sessions), clock=lambda: rc.clock())
        self._session_id = ""

    async def find_conversation(self, conversation_id: str | None) -> Conversation | None:
        conversations = self._user.conversations
        self._session_id = new_id("session")
        if conversation_id is not None:
            found: Conversation | None = await _load_conversation(self._user, conversation_id)
            if found is not None and found.session_id is None:
                raise ConfigurationError(f"Conversation {conversation_id!r} is none with an agent that has routes.")
        else:
            namespace = self.agent.memory_options.namespace_of(self.agent.name)
            open_conversations = await conversations.list(namespace, "open", limit=20)
            found = next((each for each in open_conversations if each.session_id is not None), None)
        if found is not None and found.session_id is not None:
            self._session_id = found.session_id
        return found

    def send(self, text: str) -> ReplyStream:
        return self._stream(text, None)

    def approve(self, approvals: Mapping[str, bool]) -> ReplyStream:
        return self._stream(None, approvals)

    async def _stream(self, text: str | None, approvals: Mapping[str, bool] | None) -> ReplyStream:
        items = self.agent.respond_stream(text, self._session_id, approvals=approvals)
        async with aclosing(items):
            async for chunk in items:
                if chunk.response is None:
                    yield TextDelta(chunk.delta)
                    continue
                response = chunk.response
                if not chunk.accumulated and response.message:
                    yield TextDelta(response.message)  # what is canned does not come in pieces
                yield ChatTurnReply(
                    response.message,
                    response.conversation_id,
                    response.usage,
                    response.context,
                    response.tool_calls,
                    response.pending,
                    response.problems,
                    response.session,
                )

    async def load_session(self) -> SessionState | None:
        store = self.agent.persistence
        return None if store is None else await store.load(self._session_id)

    async def close(self, conversation_id: str) -> None:
        await self._user.conversations.close(conversation_id)
        self._session_id = new_id("session")


async def _load_conversation(user: User, conversation_id: str) -> Conversation:
    found = await user.conversations.get(conversation_id)
    if found is None:
        raise NotFoundError("conversation", conversation_id, "`tellback conversations list` shows those there are.")
    return found


def _reply_from_result(result: TurnResult) -> ChatTurnReply:
    return ChatTurnReply(
        result.text,
        result.conversation_id,
        result.usage,
        result.context,
        result.tool_invocations,
        result.pending,
        result.problems,
    )
