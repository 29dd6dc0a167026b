"""`user.agents`: agents by their description, run for one user."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from tellback.chat.dispatch import resolve_caller
from tellback.conversations import checks
from tellback.conversations.turn_requests import TurnRequest, build_turn_request
from tellback.errors import ConfigurationError, InvalidArgumentError
from tellback.specs.registry import SpecRegistry
from tellback.specs.resuming import build_invocation_metadata, validate_resumed
from tellback.tools import Tool

if TYPE_CHECKING:
    from tellback.chat import Model
    from tellback.specs.model import AgentSpec, BoundSpec
    from tellback.turn.handle import UserHandle
    from tellback.types import ReplyDelta
    from tellback.types.conversations import TurnOutcome
    from tellback.types.turns import Identity, Session


class InvokeOptions(TypedDict, total=False):
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

    def __init__(self, registry: SpecRegistry, user: UserHandle) -> None:
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
        **turn: Unpack[InvokeOptions],
    ) -> TurnOutcome:
        """Run one turn of an agent, with the arguments its description asks for.

        It is kept in a new conversation, of the description's namespace or else the agent's name, or in
        `conversation_id`. `model` goes before the description's own, and Tellback's is used if there is neither.
        A space that is not this user's raises `NotFoundError` before anything is stored or sent, and whatever else is
        wrong is found before a conversation is opened. With `approvals`, a turn that waits for them goes on: by the
        same agent, with the same arguments but for the message, which is not needed then.
        """
        request = await self._build_turn_request(name, arguments, conversation_id, model, turn)
        return await self._user.conversations.turns.run(request)

    async def invoke_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        conversation_id: str | None = None,
        model: str | Model | None = None,
        **turn: Unpack[InvokeOptions],
    ) -> AsyncGenerator[ReplyDelta | TurnOutcome, None]:
        """`invoke` as an iterator over deltas, whose last item is the `TurnOutcome`. Closing it cancels the turn."""
        request = await self._build_turn_request(name, arguments, conversation_id, model, turn)
        items = self._user.conversations.turns.stream(request)
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()

    async def _build_turn_request(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        conversation_id: str | None,
        model: str | Model | None,
        turn: InvokeOptions,
    ) -> TurnRequest:
        """The turn to run; no conversation is opened before all is known to be well."""
        from tellback.specs.binding import bind_with_arguments
        from tellback.specs.building import build_tools, validate_spaces

        registered = self._registry.registered(name)
        await self._validate_options(name, turn)
        resuming = turn.get("approvals") is not None
        if resuming and conversation_id is None:
            raise InvalidArgumentError("approvals go on with a turn: pass its conversation_id.")
        spec, used = bind_with_arguments(registered.spec, arguments, resuming=resuming)
        memory, conversations = self._user.memory, self._user.conversations
        await validate_spaces(spec, memory, turn.get("memory_space_id"))
        turn_arguments: dict[str, Any] = _to_turn_arguments(spec, build_tools(spec, memory, registered.functions))
        turn_arguments |= {key: value for key, value in turn.items() if value is not None}
        model = self._resolve_model(spec, model)

        def build_request(id: str) -> TurnRequest:
            request = build_turn_request(
                conversations.runtime, self._user.scope, conversations.build_context, id, model, **turn_arguments
            )
            return replace(request, agent=spec.name, reply_metadata=build_invocation_metadata(spec.name, used))

        trial_request = build_request("" if conversation_id is None else conversation_id)
        resolve_caller(trial_request.options)  # a model that nobody serves is found here
        if conversation_id is None:
            return build_request((await conversations.create(spec.namespace or spec.name)).id)
        if trial_request.approvals is not None:
            await validate_resumed(
                conversations, conversation_id, trial_request.approvals, build_invocation_metadata(spec.name, used)
            )
        return trial_request

    async def _validate_options(self, name: str, turn: InvokeOptions) -> None:
        """That the keywords are those of a turn, and how to recall is right, which a turn would only find out later."""
        if unknown_options := set(turn) - InvokeOptions.__annotations__.keys():
            raise InvalidArgumentError(
                f"invoke takes no {', '.join(sorted(unknown_options))}: the description of {name!r:.80} says what is run."
            )
        recall = turn.get("recall")
        if recall is not None:
            checks.validate_recall_options("recall", recall)
            if "memory_space_id" in recall:
                raise InvalidArgumentError("memory_space_id goes beside recall, not into it.")
            await self._user.conversations.build_context(None, None, **recall)

    def _resolve_model(self, spec: BoundSpec, model: str | Model | None) -> str | Model:
        candidates = (model, spec.model, self._user.conversations.runtime.model)
        found = next((each for each in candidates if each is not None), None)
        if found is None:
            raise ConfigurationError(
                f"No model is set for agent {spec.name!r}: pass invoke(model=...), name one in its description, or"
                " pass Tellback(..., model=...) for all turns."
            )
        return found


def _to_turn_arguments(spec: BoundSpec, tools: builtins.list[Tool]) -> dict[str, Any]:
    """What the description says of a turn."""
    options = {"system": spec.system, "max_output_tokens": spec.max_output_tokens, "config": spec.config or None}
    return {
        "user_text": spec.user_message,
        "tools": tools,
        "max_cycles": spec.max_cycles,
        "options": {name: value for name, value in options.items() if value is not None},
    }
