"""`SpecRegistry` registers agent specs for an application, and `Agents` invokes them for one user."""

from __future__ import annotations

import builtins
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from tellback import validation
from tellback.chat.dispatch import resolve_caller
from tellback.errors import AgentSpecError, ConfigurationError, InvalidArgumentError, NotFoundError, ToolError
from tellback.memory.tools import Forget, RecallByEntity, RecallByTopic, RecallTimeline, Remember
from tellback.portal import Handle
from tellback.specs.model import BoundSpec, FunctionSpec, MemoryToolSpec, ToolSpec
from tellback.tools import Tool, tools_by_name
from tellback.turns.request import InvokeOptions, TurnRequest, build_turn_request

if TYPE_CHECKING:
    from tellback.chat import Model
    from tellback.conversations import Conversations
    from tellback.memory.memory import Memory
    from tellback.specs.loader import SpecSource
    from tellback.specs.model import AgentSpec
    from tellback.turns.request import UserHandle
    from tellback.types import ReplyDelta
    from tellback.types.conversations import TurnResult


LOOK_BACK = 100
"""How many of the newest messages to search for the reply whose tool calls are approved."""


@dataclass(frozen=True, slots=True)
class RegisteredSpec:
    """A spec and the functions that its tools can refer to."""

    spec: AgentSpec
    functions: Mapping[str, Tool]


class SpecRegistry:
    """The registered agents, shared by all users.

    >>> registry = SpecRegistry()
    >>> registry.register({"name": "support", "systemPrompt": "Be kind."}).name
    'support'
    >>> registry.names
    ('support',)
    """

    def __init__(self) -> None:
        self._agents: dict[str, RegisteredSpec] = {}

    def register(
        self, spec: SpecSource, tools: Iterable[Tool | Callable[..., Any]] = (), replace: bool = False
    ) -> AgentSpec:
        """Register a spec with the functions for its tools of type FUNCTION; other functions in `tools` are ignored.

        Raises `AgentSpecError` if the name is already registered, unless `replace` is true.
        """
        from tellback.specs.loader import load_spec

        loaded = load_spec(spec)
        if loaded.name in self._agents and not replace:
            raise AgentSpecError(
                "name", "an agent with this name is already registered: pass replace=True to replace it.", loaded.name
            )
        if callable(tools) or isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            raise AgentSpecError(
                "tools", f"must be a list of functions, got {tools!r:.80}: write tools=[…].", loaded.name
            )
        try:
            functions = tools_by_name(tools)
        except (ConfigurationError, ToolError) as error:
            raise AgentSpecError("tools", str(error), loaded.name) from error
        _validate_functions(loaded, functions)
        self._agents[loaded.name] = RegisteredSpec(loaded, functions)
        return loaded

    def get(self, name: str) -> AgentSpec | None:
        """Return the spec with this name, or None."""
        found = self._agents.get(name) if isinstance(name, str) else None
        return None if found is None else found.spec

    def registered(self, name: str) -> RegisteredSpec:
        """Return the spec with its functions. Raises `NotFoundError` for an unknown name."""
        found = self._agents.get(name) if isinstance(name, str) else None
        if found is None:
            known = ", ".join(map(repr, self._agents)) or "none"
            raise NotFoundError("agent", name, f"Registered agents: {known}.")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the registered agents, in the order of registration."""
        return tuple(self._agents)


def _validate_functions(spec: AgentSpec, functions: Mapping[str, Tool]) -> None:
    from tellback.specs.loader import format_unknown_name

    for index, tool in enumerate(spec.tools):
        if tool.type == "FUNCTION" and tool.name not in functions:
            problem = format_unknown_name(tool.name, list(functions), "function")
            raise AgentSpecError(
                f"tools[{index}].name", f"{problem} Pass the function: register_agent(spec, tools=[…]).", spec.name
            )


def build_invocation_metadata(agent: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata of an invocation's replies: the agent's name and a digest of the arguments."""
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return {"agent": agent, "arguments_digest": hashlib.sha256(canonical.encode()).hexdigest()}


async def validate_resumed(
    conversations: Conversations, id: str, call_ids: Collection[str], current: Mapping[str, str]
) -> None:
    """Raise `InvalidArgumentError` unless the reply with the pending calls came from the same invocation."""
    for message in reversed(await conversations.raw_turns(id, LOOK_BACK)):
        if not any(call.id in call_ids for call in message.tool_calls):
            continue
        previous = message.metadata or {}
        if previous.get("agent") != current["agent"]:
            asker = f"agent {previous['agent']!r:.80}" if "agent" in previous else "a turn without an agent"
            raise InvalidArgumentError(
                f"These approvals belong to {asker}, not to agent {current['agent']!r}: resume that turn instead."
            )
        if previous.get("arguments_digest") != current["arguments_digest"]:
            raise InvalidArgumentError(
                f"Agent {current['agent']!r} requested these approvals with other arguments: invoke it with the same"
                " arguments (the message may be omitted)."
            )
        return


class Agents(Handle):
    """Invokes the registered agents for one user.

    >>> from tellback import Tellback
    >>> from tellback.testing import ScriptedModel, says
    >>> with Tellback(":memory:", model=ScriptedModel([says("Bom dia!")])) as tb:
    ...     spec = tb.register_agent({"name": "greeter", "systemPrompt": "$style"})
    ...     agents = tb.user("maya").agents
    ...     result = agents.invoke("greeter", {"style": "Speak Portuguese.", "userMessage": "Good morning!"})
    ...     names = [spec.name for spec in agents.list()]
    >>> result.text, names
    ('Bom dia!', ['greeter'])
    """

    def __init__(self, registry: SpecRegistry, user: UserHandle) -> None:
        self._registry = registry
        self._user = user

    def list(self) -> builtins.list[AgentSpec]:
        """Return all registered specs, in the order of registration.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     registered = [tb.register_agent({"name": name}) for name in ("greeter", "support")]
        ...     names = [spec.name for spec in tb.user("maya").agents.list()]
        >>> names
        ['greeter', 'support']
        """
        return [self._registry.registered(name).spec for name in self._registry.names]

    def get(self, name: str) -> AgentSpec | None:
        """Return the spec with this name, or None.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     spec = tb.register_agent({"name": "greeter", "description": "Greets people."})
        ...     found = tb.user("maya").agents.get("greeter")
        >>> found.description
        'Greets people.'
        """
        return self._registry.get(name)

    async def invoke(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        conversation_id: str | None = None,
        model: str | Model | None = None,
        **turn: Unpack[InvokeOptions],
    ) -> TurnResult:
        """Run one turn of an agent with the arguments that its spec requires.

        The turn is stored in `conversation_id`, or in a new conversation in the spec's namespace (default: the agent's
        name). The model is `model`, the spec's model or Tellback's model, in this order. A memory space of another user
        raises `NotFoundError`. All arguments are validated before a conversation is created or anything is sent.
        `approvals` resume a paused turn of the same agent; pass the same arguments, optionally without the message.

        >>> from tellback import Tellback
        >>> from tellback.testing import ScriptedModel, says
        >>> with Tellback(":memory:", model=ScriptedModel([says("Hello!"), says("Goodbye!")])) as tb:
        ...     spec = tb.register_agent({"name": "greeter", "systemPrompt": "Be kind."})
        ...     agents = tb.user("maya").agents
        ...     first = agents.invoke("greeter", {"userMessage": "Hi!"})
        ...     second = agents.invoke("greeter", {"userMessage": "Bye!"}, conversation_id=first.conversation_id)
        >>> first.text, second.text, second.conversation_id == first.conversation_id
        ('Hello!', 'Goodbye!', True)
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
    ) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """Like `invoke`, but stream deltas; the last item is the `TurnResult`. Closing the stream cancels the turn.

        >>> from tellback import TextDelta, Tellback
        >>> from tellback.testing import ScriptedModel, says
        >>> with Tellback(":memory:", model=ScriptedModel([says("Hello!", chunks=3)])) as tb:
        ...     spec = tb.register_agent({"name": "greeter", "systemPrompt": "Be kind."})
        ...     items = list(tb.user("maya").agents.invoke_stream("greeter", {"userMessage": "Hi!"}))
        >>> [item.text for item in items if isinstance(item, TextDelta)], items[-1].text
        (['Hel', 'lo!'], 'Hello!')
        """
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
        """Build the turn to run. Creates a conversation only after all validation has passed."""
        from tellback.specs.arguments import bind_with_arguments

        registered = self._registry.registered(name)
        await self._validate_options(name, turn)
        resuming = turn.get("approvals") is not None
        if resuming and conversation_id is None:
            raise InvalidArgumentError("approvals resume a turn: pass its conversation_id.")
        spec, used = bind_with_arguments(registered.spec, arguments, resuming=resuming)
        memory, conversations = self._user.memory, self._user.conversations
        await validate_spaces(spec, memory, turn.get("memory_space_id"))
        turn_arguments: dict[str, Any] = _to_turn_arguments(spec, build_tools(spec, memory, registered.functions))
        turn_arguments |= {key: value for key, value in turn.items() if value is not None}
        model = self._resolve_model(spec, model)

        metadata = build_invocation_metadata(spec.name, used)
        request = build_turn_request(
            self._user, conversation_id, model, **turn_arguments, agent=spec.name, reply_metadata=metadata
        )
        resolve_caller(request.options)  # raises for an unknown model
        if conversation_id is None:
            created = await conversations.create(spec.namespace or spec.name)
            assert request.draft is not None, "only a resumed turn has no message"
            draft = replace(request.draft, created_at=conversations.runtime.clock())
            return replace(request, conversation_id=created.id, draft=draft)
        if request.approvals is not None:
            await validate_resumed(conversations, conversation_id, request.approvals, metadata)
        return request

    async def _validate_options(self, name: str, turn: InvokeOptions) -> None:
        """Validate the keywords and the recall options before a conversation is created."""
        if unknown_options := set(turn) - InvokeOptions.__annotations__.keys():
            raise InvalidArgumentError(
                f"invoke() does not accept {', '.join(sorted(unknown_options))}: the spec of {name!r:.80} defines what"
                " is run."
            )
        recall = turn.get("recall")
        if recall is not None:
            validation.validate_recall_options("recall", recall)
            if "memory_space_id" in recall:
                raise InvalidArgumentError("memory_space_id must be passed as an argument of invoke, not in recall.")
            await self._user.working_context.build(None, None, **recall)

    def _resolve_model(self, spec: BoundSpec, model: str | Model | None) -> str | Model:
        candidates = (model, spec.model, self._user.conversations.runtime.model)
        found = next((each for each in candidates if each is not None), None)
        if found is None:
            raise ConfigurationError(
                f"Agent {spec.name!r} has no model: pass invoke(model=...), set one in its spec, or pass"
                " Tellback(..., model=...) for all turns."
            )
        return found


def _to_turn_arguments(spec: BoundSpec, tools: builtins.list[Tool]) -> dict[str, Any]:
    """Return the turn's arguments from the spec."""
    options = {"system": spec.system, "max_output_tokens": spec.max_output_tokens, "config": spec.config or None}
    return {
        "user_text": spec.user_message,
        "tools": tools,
        "max_cycles": spec.max_cycles,
        "options": {name: value for name, value in options.items() if value is not None},
    }


_MEMORY_TOOLS: Mapping[str, type[Any]] = {
    "RECALL_BY_TOPIC": RecallByTopic,
    "RECALL_BY_ENTITY": RecallByEntity,
    "RECALL_TIMELINE": RecallTimeline,
    "REMEMBER": Remember,
    "FORGET": Forget,
}


async def validate_spaces(spec: BoundSpec, memory: Memory, extra_space_id: str | None = None) -> None:
    """Raise `NotFoundError` for a memory space that does not exist or belongs to another user."""
    space_ids = [tool.memory_space_id for tool in spec.tools if isinstance(tool, MemoryToolSpec)]
    for id in dict.fromkeys(space_ids if extra_space_id is None else [*space_ids, extra_space_id]):
        if await memory.get_space(id) is None:
            raise NotFoundError("space", id, f"Agent {spec.name!r} was invoked with it.")


def build_tools(spec: BoundSpec, memory: Memory, functions: Mapping[str, Tool]) -> list[Tool]:
    """Build the tools in the order of the spec."""
    return [
        _build_function_tool(tool, functions[tool.name])
        if isinstance(tool, FunctionSpec)
        else _build_memory_tool(tool, memory)
        for tool in spec.tools
    ]


def _build_memory_tool(tool: ToolSpec, memory: Memory) -> Tool:
    assert isinstance(tool, MemoryToolSpec)
    fields = {name: getattr(tool, name) for name in tool.model_fields_set - {"type", "memory_space_id"}}
    options = {name: value for name, value in fields.items() if value is not None}
    built: Tool = _MEMORY_TOOLS[tool.type](memory, tool.memory_space_id, **options)
    return built


def _build_function_tool(tool: FunctionSpec, registered: Tool) -> Tool:
    """Apply the spec's settings to a registered function: they can be stricter than the function's, never laxer."""
    return Tool(
        name=registered.name,
        description=registered.description if tool.description is None else tool.description,
        parameters=registered.parameters,
        fn=registered.fn,
        timeout=min((each for each in (registered.timeout, tool.timeout) if each is not None), default=None),
        requires_approval=registered.requires_approval or tool.requires_approval,
        bind=registered.bind,
    )
