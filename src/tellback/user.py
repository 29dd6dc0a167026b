"""A user's handle: everything that is kept of one user, and nothing of anyone else."""

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
    """What a handle asks of the Tellback it belongs to."""

    templates: Templates
    _runtime: Runtime
    _specs: SpecRegistry
    _count_tokens: TokenCounter | None

    @property
    def _memory(self) -> MemoryEngine: ...

    def _build_conversations(self, user: User) -> Conversations: ...

    def _evict_erased(self, subjects: Collection[str]) -> None: ...


class User(Handle):
    """One user's handle: `scope` says whose, `conversations` holds what was said, `memory` what is remembered,
    `working_context` puts both into a prompt, `agents` runs those that were registered, and `admin` hands it all
    out, erases it, or says what it cost.

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
        """Say something, and be answered by a model that remembers: `reply.text`, `reply.atoms_used`.

        It goes on with the user's open conversation of the namespace, or opens one. What was said in it becomes
        memories of the space when it closes, which it does by itself an hour after the last message (`close_after`).
        A conversation that was left is closed before the next answer; the first answer of a new one waits up to
        `memory_wait` (15) seconds for memories that are being made.

        - `space=None` remembers nothing. `recall` holds arguments of `working_context.build`, such as `token_budget`.
        - `system`, `tools`, `skills`, `options` (a `ChatOptions`, or a mapping of its fields) are for the model.
        - `session_id` keeps chats of one namespace apart; `conversation_id` goes on with a certain one.
        - `attachments` go along with the text: see `tellback.turn.Attachment`.
        - `approvals`, in the place of a text, decides tool calls that `reply.pending` names.
        - `sender`, `extras` are what tools find in `tellback.request`; `metadata` is kept with the message.
        - `idempotency_key`, `trace_id`, `wait` are those of `conversations.run_turn`.
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
        """`chat` as an iterator over deltas, whose last item is the `TurnResult`. Closing it cancels the turn."""
        return UserChat(self, text, namespace, space, model, more).stream()

    @property
    def memory(self) -> Memory:
        """What is remembered of the user."""
        if self._memory is None:
            self._memory = self._host._memory.for_user(self.scope)
        return self._memory

    @property
    def working_context(self) -> WorkingContextBuilder:
        """What a model should know before it answers."""
        host = self._host
        clock = host._runtime.clock
        return WorkingContextBuilder(self.conversations, self.memory, host.templates, host._count_tokens, clock=clock)

    @property
    def agents(self) -> Agents:
        """The agents that `tb.register_agent` knows, for this user."""
        return Agents(self._host._specs, self)

    @property
    def admin(self) -> Admin:
        """All that is kept of the user: to be exported, erased, or counted."""
        return Admin(self._host._runtime, self.scope, self._host._evict_erased)
