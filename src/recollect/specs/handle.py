"""`user.agents`: agents by their description, run for one user."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

from recollect.errors import InvalidArgumentError, NotFoundError
from recollect.specs.registry import SpecRegistry
from recollect.tools import Tool

if TYPE_CHECKING:
    from recollect.chat import Model
    from recollect.conversations import Conversations
    from recollect.memory.memory import Memory
    from recollect.specs.model import AgentSpec, BoundSpec
    from recollect.types import ReplyDelta
    from recollect.types.conversations import TurnOutcome
    from recollect.types.turns import Identity, Session


class UserLike(Protocol):
    """What an invocation needs of a user's handle."""

    @property
    def conversations(self) -> Conversations:
        """What was said."""
        ...

    @property
    def memory(self) -> Memory:
        """What is remembered."""
        ...


class AgentTurn(TypedDict, total=False):
    """What an invocation passes on to `run_turn`."""

    provider: str | None
    max_cycles: int | None
    tail_limit: int | None
    idempotency_key: str | None
    approvals: Mapping[str, Any] | None
    wait: float
    trace_id: str | None
    memory_space_id: str | None
    recall: Mapping[str, Any] | None
    session: Session | None
    sender: Identity | None
    extras: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None


class Agents:
    """One user's way to the agents that were registered."""

    def __init__(self, registry: SpecRegistry, user: UserLike) -> None:
        self._registry = registry
        self._user = user

    def list(self) -> builtins.list[AgentSpec]:
        """All descriptions, in the order of registration."""
        return [self._registry.registered(name).spec for name in self._registry.names]

    def get(self, name: str) -> AgentSpec | None:
        """The description of that name, or None."""
        return self._registry.get(name)

    async def invoke(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        conversation_id: str | None = None,
        model: str | Model | None = None,
        **turn: Unpack[AgentTurn],
    ) -> TurnOutcome:
        """Run one turn of an agent, with the arguments its description asks for.

        It is kept in a new conversation, of the description's namespace or else the agent's name, or in
        `conversation_id`. `model` goes before the description's own, and Recollect's is used if there is neither.
        A space that is not this user's raises `NotFoundError` before anything is stored or sent. With `approvals`, a
        turn that waits for them goes on; the message is not needed then.
        """
        id, wanted = await self._prepared(name, arguments, conversation_id, model, turn)
        return await self._user.conversations.run_turn(id, **wanted)

    async def invoke_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        conversation_id: str | None = None,
        model: str | Model | None = None,
        **turn: Unpack[AgentTurn],
    ) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        """`invoke` as an iterator over deltas, whose last item is the `TurnOutcome`. Closing it cancels the turn."""
        id, wanted = await self._prepared(name, arguments, conversation_id, model, turn)
        items = self._user.conversations.stream_turn(id, **wanted)
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()

    async def _prepared(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        conversation_id: str | None,
        model: str | Model | None,
        turn: AgentTurn,
    ) -> tuple[str, dict[str, Any]]:
        """Where the turn is kept, and what `run_turn` is told; nothing is stored before all is known to be well."""
        from recollect.specs.binding import bind
        from recollect.specs.building import build_tools, check_spaces

        if others := set(turn) - AgentTurn.__annotations__.keys():
            raise InvalidArgumentError(
                f"invoke takes no {', '.join(sorted(others))}: the description of {name!r:.80} says what is run."
            )
        registered = self._registry.registered(name)
        resuming = turn.get("approvals") is not None
        spec = bind(registered.spec, arguments, resuming=resuming)
        memory = self._user.memory
        await check_spaces(spec, memory, turn.get("memory_space_id"))
        tools = build_tools(spec, memory, registered.functions)
        wanted = _turn(spec, tools, model) | {key: value for key, value in turn.items() if value is not None}
        if resuming and conversation_id is None:
            raise InvalidArgumentError("approvals go on with a turn: pass its conversation_id.")
        return await self._conversation(spec, conversation_id), wanted

    async def _conversation(self, spec: BoundSpec, id: str | None) -> str:
        conversations = self._user.conversations
        if id is None:
            return (await conversations.create(spec.namespace or spec.name)).id
        if await conversations.get(id) is None:
            raise NotFoundError("conversation", id)
        return id


def _turn(spec: BoundSpec, tools: builtins.list[Tool], model: str | Model | None) -> dict[str, Any]:
    options = {"system": spec.system, "max_output_tokens": spec.max_output_tokens, "config": spec.config or None}
    return {
        "model": spec.model if model is None else model,
        "user_text": spec.user_message,
        "tools": tools,
        "max_cycles": spec.max_cycles,
        "options": {name: value for name, value in options.items() if value is not None},
    }
