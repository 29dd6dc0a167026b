"""`User`: the handle of one user's conversations, memory, agents and data."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from typing import TYPE_CHECKING, Protocol, Unpack

from tellback.admin import Admin
from tellback.chat import Model
from tellback.conversations import Conversations
from tellback.memory.working_context import TokenCounter, WorkingContextBuilder
from tellback.portal import Handle
from tellback.runtime import Runtime
from tellback.specs.agents import Agents, SpecRegistry
from tellback.turns.chat import ChatArguments, UserChat
from tellback.types import ReplyDelta
from tellback.types.access import Scope
from tellback.types.conversations import TurnResult

if TYPE_CHECKING:
    from tellback.memory.engine import MemoryEngine
    from tellback.memory.memory import Memory
    from tellback.memory.templates import Templates


class UserHost(Protocol):
    """The parts of a `Tellback` that `User` uses."""

    templates: Templates
    _runtime: Runtime
    _specs: SpecRegistry
    _count_tokens: TokenCounter | None

    @property
    def _memory(self) -> MemoryEngine: ...

    def _build_conversations(self, user: User) -> Conversations: ...

    def _evict_erased(self, subjects: Collection[str]) -> None: ...


class User(Handle):
    """The handle of one user. It reads and writes data of this user only.

    - `conversations`: the log of messages, and turns.
    - `memory`: spaces, atoms, entities, recall and bindings.
    - `working_context`: builds the part of a prompt that comes from memory and recent messages.
    - `agents`: runs registered agents.
    - `admin`: exports and erases the user's data, and lists the usage of models.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> from tellback.testing import ScriptedModel, says
    >>> async def main():
    ...     async with Tellback(":memory:", model=ScriptedModel([says("Hello, Maya!")])) as tb:
    ...         return await tb.user("maya").chat("Hi, I'm Maya.")
    >>> asyncio.run(main()).text
    'Hello, Maya!'
    """

    __slots__ = ("_host", "_memory", "conversations", "scope")
    scope: Scope
    conversations: Conversations

    def __init__(self, host: UserHost, scope: Scope) -> None:
        self._host = host
        self.scope = scope
        self._memory: Memory | None = None
        self.conversations = host._build_conversations(self)

    @property
    def user_id(self) -> str:
        """The user's id."""
        return self.scope.user_id

    async def chat(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> TurnResult:
        """Send a message and return the model's reply, with recalled memories in the prompt.

        The turn continues the user's open conversation of the namespace, or creates one. When the conversation closes,
        its messages are extracted into memories of the space. It closes one hour (`close_after`) after its last
        message. The first turn of a new conversation waits up to `memory_wait` (15) seconds for running extractions.

        - `space=None` turns memory off. `recall` contains arguments of `working_context.build`, such as `token_budget`.
        - `system`, `tools`, `skills` and `options` (a `ChatOptions` or a mapping of its fields) are for the model.
        - `session_id` separates conversations within a namespace; `conversation_id` selects a conversation.
        - `attachments` are sent with the text: see `tellback.turn.Attachment`.
        - `approvals`, instead of a text, approves or denies the tool calls in `reply.pending`.
        - `sender` and `extras` are available to tools in `tellback.request`; `metadata` is stored with the message.
        - `idempotency_key`, `trace_id` and `wait` work as in `conversations.run_turn`.
        """
        return await UserChat(self, text, namespace, space, model, more).run()

    def chat_stream(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """Like `chat`, but iterate over deltas; the last item is the `TurnResult`. Closing it cancels the turn."""
        return UserChat(self, text, namespace, space, model, more).stream()

    @property
    def memory(self) -> Memory:
        """The user's memory."""
        if self._memory is None:
            self._memory = self._host._memory.for_user(self.scope)
        return self._memory

    @property
    def working_context(self) -> WorkingContextBuilder:
        """The builder of working contexts: memories and recent messages for a prompt."""
        host = self._host
        clock = host._runtime.clock
        return WorkingContextBuilder(self.conversations, self.memory, host.templates, host._count_tokens, clock=clock)

    @property
    def agents(self) -> Agents:
        """The agents registered with `tb.register_agent`, run for this user."""
        return Agents(self._host._specs, self)

    @property
    def admin(self) -> Admin:
        """Export, erasure and usage of the user's data."""
        return Admin(self._host._runtime, self.scope, self._host._evict_erased)
