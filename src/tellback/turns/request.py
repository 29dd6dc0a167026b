"""A turn request: options, message drafts and recall, built from the arguments of a caller.

Recall runs before the user's message is stored, so a message never recalls itself.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar

from tellback import validation
from tellback.chat import ChatOptions, Model, ProviderRegistration, builtin_providers
from tellback.chat.approval import as_approvals
from tellback.chat.offline import OFFLINE
from tellback.chat.options import ChatOptionsLike
from tellback.chat.usage import parse_usage
from tellback.errors import (
    ConfigurationError,
    EmbeddingError,
    InvalidArgumentError,
    NotFoundError,
    StoreClosedError,
    StoreError,
)
from tellback.stores import SessionTurn, TurnDraft
from tellback.tools import Tool
from tellback.tools.context import ToolHost
from tellback.types import ChatUsage, Message, ToolCall
from tellback.types.access import Scope
from tellback.types.blocks import Content, blocks_text, message_blocks
from tellback.types.conversations import (
    AssistantTurn,
    Identity,
    MessageDraft,
    Session,
    ToolInvocation,
    TurnProblem,
)
from tellback.types.ids import new_id
from tellback.types.jobs import Binding, ConversationScope
from tellback.types.memory import MemorySpace, WorkingContext

if TYPE_CHECKING:
    from tellback.conversations import Conversations
    from tellback.memory.memory import Memory
    from tellback.memory.working_context import WorkingContextBuilder

log = logging.getLogger("tellback.turn")

T = TypeVar("T")

ROLES = ("user", "assistant", "tool", "system")

_FIELD_ALIASES = {
    "stopReason": "stop_reason",
    "traceId": "trace_id",
    "createdAt": "created_at",
    "idempotencyKey": "idempotency_key",
}
_ASSISTANT_FIELDS = tuple(field.name for field in fields(AssistantTurn))

ToolHandler = Callable[[str, dict[str, Any]], Any]

_NO_OPTIONS = ChatOptions()
_OPTIONS = frozenset(field.name for field in fields(ChatOptions))
_FUNCTIONS = frozenset(("chat_fn", "chat_stream_fn"))

TAIL_LIMIT = 30
WAIT_SECONDS = 60.0
MAX_CACHED = 10_000
DEFAULT_SPACE = "default"


def build_draft(
    role: str,
    content: Content,
    now: datetime,
    *,
    visibility: str = "user",
    created_at: datetime | str | None = None,
    stop_reason: str | None = None,
    model: str | None = None,
    provider: str | None = None,
    usage: ChatUsage | Mapping[str, Any] | None = None,
    trace_id: str | None = None,
    idempotency_key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> MessageDraft:
    """Validate the parts of a message that is about to be appended."""
    return MessageDraft(
        id=new_id("msg"),
        role=role,
        content=validation.parse_content(content),
        created_at=now if created_at is None else validation.parse_datetime("created_at", created_at),
        visibility=validation.validate_visibility(visibility),
        stop_reason=validation.validate_optional_text("stop_reason", stop_reason, validation.KEY_LENGTH),
        model=validation.validate_optional_text("model", model, validation.KEY_LENGTH),
        provider=validation.validate_optional_text("provider", provider, validation.KEY_LENGTH),
        usage=None if usage is None else parse_usage(usage, provider, model),
        trace_id=validation.validate_optional_text("trace_id", trace_id, validation.KEY_LENGTH),
        idempotency_key=validation.validate_optional_text("idempotency_key", idempotency_key, validation.KEY_LENGTH),
        metadata=None if metadata is None else validation.validate_metadata(metadata),
    )


def build_assistant_draft(turn: AssistantTurn | Mapping[str, Any], now: datetime) -> MessageDraft:
    """Build an assistant message with its model, usage and latency."""
    if isinstance(turn, AssistantTurn):
        values = {name: getattr(turn, name) for name in _ASSISTANT_FIELDS}
    else:
        values = _parse_mapping("an assistant's turn", turn, _ASSISTANT_FIELDS)
    return build_draft("assistant", now=now, **values)


def build_imported_draft(message: Message | Mapping[str, Any], now: datetime) -> MessageDraft:
    """Build a message of a conversation that took place elsewhere."""
    if isinstance(message, Message):
        role = validation.validate_choice("role", message.role, ROLES)
        return MessageDraft(new_id("msg"), role, message_blocks(message), now, meta=message.meta)
    values = _parse_mapping("a message", message, ("role", "idempotency_key", *_ASSISTANT_FIELDS))
    role = validation.validate_choice("role", values.pop("role", None), ROLES)
    return build_draft(role, now=now, **{"visibility": "internal" if role == "system" else "user", **values})


def group_by_turn(drafts: Sequence[MessageDraft]) -> list[TurnDraft]:
    """Group drafts by turn: a user's message begins a turn; messages before the first one join the current turn."""
    turns: list[tuple[bool, list[MessageDraft]]] = []
    for draft in drafts:
        if draft.role == "user" or not turns:
            turns.append((draft.role == "user", []))
        turns[-1][1].append(draft)
    return [TurnDraft(new_id("turn"), messages, starts=starts, joins=not starts) for starts, messages in turns]


def _parse_mapping(label: str, values: Any, field_names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(values, Mapping) or "content" not in values:
        raise InvalidArgumentError(f"{label} must be a mapping with 'content', got {values!r:.80}.")
    renamed = {str(_FIELD_ALIASES.get(name, name)): value for name, value in values.items()}
    unknown = [name for name in renamed if name not in field_names]
    if unknown:
        raise InvalidArgumentError(f"{label} has unknown fields {', '.join(unknown)}; known: {', '.join(field_names)}.")
    return renamed


def resolve_options(
    options: ChatOptionsLike | Mapping[str, Any] | None,
    *,
    default_model: str | Model | None,
    model: str | Model | None = None,
    provider: str | None = None,
    tools: Sequence[Any] | None = None,
    tool_handler: ToolHandler | None = None,
    max_cycles: int | None = None,
) -> ChatOptions:
    """Build the options of the loop from the arguments of `run_turn`; raise if one is invalid."""
    changes: dict[str, Any] = {}
    if not isinstance(options, ChatOptions | Mapping | None):
        raise InvalidArgumentError(f"options must be a ChatOptions or a mapping, got {options!r:.80}.")
    if not isinstance(options, ChatOptions):
        changes = {"on_max_iterations": "answer", **_option_fields(options or {})}
        options = _NO_OPTIONS
    if model is not None:
        changes["model"] = model
    elif not (changes.get("model") or options.model or _has_function(options) or changes.keys() & _FUNCTIONS):
        changes["model"] = OFFLINE if default_model is None else default_model
    tools = changes.get("tools") if tools is None else tools
    if tools is not None:
        if callable(tools) or isinstance(tools, str | Mapping):
            raise InvalidArgumentError(f"tools must be a list, got {tools!r:.80}: write tools=[...].")
        changes["tools"] = [tool_from_description(entry, tool_handler) for entry in tools]
    if max_cycles is not None:
        changes["max_iterations"] = max_cycles
    if provider is not None:
        changes["providers"] = [_find_provider(provider, changes.get("providers", options.providers))]
    return ChatOptions(**changes) if options is _NO_OPTIONS else replace(options, **changes)


def _has_function(options: ChatOptions) -> bool:
    return options.chat_fn is not None or options.chat_stream_fn is not None


def _option_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {"system" if name in ("system_prompt", "systemPrompt") else name: value for name, value in values.items()}
    for name in found:
        if name not in _OPTIONS:
            raise InvalidArgumentError(
                f"options has no field {name!r}: use system_prompt or the fields of ChatOptions;"
                " settings for the provider belong in config={...}."
            )
    return found


def tool_from_description(entry: Any, handler: ToolHandler | None) -> Any:
    """Return a tool: the tool itself, or one built from a function or from a description with the handler."""
    if not isinstance(entry, Mapping):
        return entry
    described: Mapping[str, Any] = entry["function"] if isinstance(entry.get("function"), Mapping) else entry
    name = described.get("name")
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a tool description needs a name, got {entry!r:.120}.")
    if handler is None:
        raise InvalidArgumentError(f"tool {name!r} has no function: pass tool_handler=..., or a function.")
    schemas = [described.get(key) for key in ("parameters", "input_schema", "inputSchema")]
    schema = next((each for each in schemas if each is not None), {"type": "object", "properties": {}})
    return Tool(name, str(described.get("description") or ""), schema, _wrap_handler(name, handler))


def _wrap_handler(name: str, handler: ToolHandler) -> Callable[..., Any]:
    async def call(**arguments: Any) -> Any:
        return await handler(name, arguments)

    return call if inspect.iscoroutinefunction(handler) else lambda **arguments: handler(name, arguments)


def _find_provider(provider: str, registry: Sequence[ProviderRegistration] | None) -> ProviderRegistration:
    """Return the registration of a provider, so that it serves any model name."""
    entries = builtin_providers() if registry is None else list(registry)
    for entry in reversed(entries):
        if str(provider).lower() in (str(entry.variant).lower(), entry.display_name.lower()):
            return replace(entry, detect=lambda _: True)
    known = ", ".join(dict.fromkeys(str(entry.variant) for entry in entries))
    raise ConfigurationError(f"Unknown provider {provider!r}. Known: {known}.")


class UserHandle(Protocol):
    """The part of a user's handle, `tb.user(...)`, that a turn needs."""

    scope: Scope
    conversations: Conversations

    @property
    def memory(self) -> Memory: ...

    @property
    def working_context(self) -> WorkingContextBuilder: ...


async def try_step(work: Awaitable[T], step: str, problems: list[TurnProblem]) -> T | None:
    """Await `work` and return its result. If the store or the embedder fails, add a problem and return None.

    If the Tellback is not open, `StoreClosedError` is raised, because that is an error of the caller.
    """
    try:
        return await work
    except StoreClosedError:
        raise
    except (StoreError, EmbeddingError) as error:
        log.warning("Step %s failed; the turn continues without it", step, exc_info=error)
        problems.append(TurnProblem(step, error))
        return None


@dataclass(frozen=True, slots=True)
class RecalledContext:
    """The result of recall: the system prompt with memories, and the working context.

    `tail_limit` is the number of log messages that fit into the token budget, or None if all fit.
    """

    system: str | None
    context: WorkingContext | None = None
    tail_limit: int | None = None


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """The recall of a turn: `options` are arguments of `working_context.build`.

    Memories come from `space_id`, otherwise from the space of `memory`, which is created and bound unless `bind` is
    False. With a `heading`, only the memories are appended to the system prompt, below that heading.
    """

    options: Mapping[str, Any]
    space_id: str | None = None
    memory: NamespaceMemory | None = None
    bind: bool = True
    heading: str | None = None

    async def build_context(self, user: UserHandle, conversation_id: str | None) -> WorkingContext:
        """Build the working context and the extended system prompt."""

        async def build(space_id: str | None) -> WorkingContext:
            return await user.working_context.build(conversation_id, self.space_id or space_id, **self.options)

        if self.memory is None:
            return await build(None)
        if self.bind:
            return await self.memory.use_space(build)
        return await build(await self.memory.find())

    def extend_prompt(self, system: str | None, context: WorkingContext) -> str | None:
        """Return the system prompt followed by the recalled memories."""
        if self.heading is None:
            parts = [system, context.system]
        else:
            parts = [system, self.heading, context.system] if context.remembers else [system]
        return "\n\n".join(filter(None, parts)) or None


def build_recall(
    recall: Mapping[str, Any],
    query: str | None,
    space_id: str | None = None,
    memory: NamespaceMemory | None = None,
    *,
    bind: bool = True,
    heading: str | None = None,
) -> RecallRequest:
    """Build the recall of a turn from the caller's `recall` options, which may contain the space."""
    options = {"recall_query": query, "template_id": "messages", **recall}
    return RecallRequest(options, options.pop("memory_space_id", None) or space_id, memory, bind, heading)


def query_from_draft(draft: MessageDraft | None) -> str | None:
    """Return the recall query: the text of the message; None means the last message in the log."""
    return None if draft is None else query_from_text(blocks_text(draft.content))


def query_from_text(text: str) -> str | None:
    """Return a text as a recall query, or None if it is empty.

    It is shortened, because a long pasted document is not a useful query. NUL is replaced by a space and lone
    surrogates are removed, because a database may reject them.
    """
    return text[: validation.QUERY_LENGTH].encode(errors="ignore").decode().replace("\x00", " ") or None


class NamespaceMemory:
    """The memory space of a user's namespace; the space and its binding are created on first use.

    Without a name it is the space "default", or the only existing space. If the namespace is already bound to another
    space, that binding stays; with `exclusive=True` this raises instead.
    """

    def __init__(self, user: UserHandle, namespace: str, space: str | None, *, exclusive: bool = False) -> None:
        self._user = user
        self._namespace = namespace
        self._space = space
        self._exclusive = exclusive
        self._cache = user.conversations.runtime.bound_spaces
        self._key = (user.scope, namespace, space or "")

    async def find(self) -> str | None:
        """Return the id of the space, or None if it does not exist."""
        memory = self._user.memory
        found = await memory.list_spaces(self._space or DEFAULT_SPACE)
        if not found and self._space is None:
            found = await memory.list_spaces()
            found = found if len(found) == 1 else []
        return found[0].id if found else None

    async def space_id(self) -> str:
        """Return the id of the space; create the space and the binding if they do not exist."""
        id = self._cache.get(self._key)
        if id is None:
            id = await self._bind()
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[self._key] = id
        return id

    async def use_space(self, action: Callable[[str], Awaitable[T]]) -> T:
        """Run `action` with the id of the space. If the space was deleted in the meantime, use its replacement."""
        id = await self.space_id()
        try:
            return await action(id)
        except NotFoundError as error:
            if error.kind != "space" or error.id != id:
                raise
        self._cache.pop(self._key, None)
        return await action(await self.space_id())

    async def _bind(self) -> str:
        memory = self._user.memory
        found = await self.find()
        space = None if found is None else await memory.get_space(found)
        if space is None:
            space = await memory.create_space(self._space or DEFAULT_SPACE, once=True)
        bindings = await memory.list_bindings()
        if not any(self._is_bound_to(space, binding) for binding in bindings):
            other = await self._other_bound_space(bindings)
            if other is not None and self._exclusive:
                raise InvalidArgumentError(
                    f"namespace {self._namespace!r} is bound to space {other.name!r}, not to {space.name!r}:"
                    " use another namespace, or bind this one to both spaces with memory.create_binding."
                )
            if other is None:
                scope = {"namespace": self._namespace, "user_id": self._user.scope.user_id}
                await memory.create_binding(scope, [space.id], once=True)
        return space.id

    async def _other_bound_space(self, bindings: Sequence[Binding]) -> MemorySpace | None:
        """Return the space that this namespace is already bound to: a second binding would extract everything twice."""
        scope = ConversationScope(self._namespace, self._user.scope.user_id)
        for binding in bindings:
            for id in binding.memory_space_ids if scope in binding.conversation_scope else ():
                if (space := await self._user.memory.get_space(id)) is not None:
                    return space
        return None

    def _is_bound_to(self, space: MemorySpace, binding: Binding) -> bool:
        """Whether a binding to this space exists, paused or not. A second one would extract everything twice."""
        user_id = self._user.scope.user_id
        if not binding.matches(self._namespace, user_id):
            return False
        if binding.created_by == user_id:
            return space.id in binding.memory_space_ids
        return space.name in binding.memory_space_names


class TurnLog(Protocol):
    """The part of the log that a planner uses.

    `previous_answer` is set if the message was already answered. `begin_call` records that an approved call is about to
    run, and returns False if that was recorded before.
    """

    previous_answer: str | None

    async def begin_call(self, call: ToolCall) -> bool: ...


class SessionSave(Protocol):
    """An agent's session, saved in one transaction with the last message of a turn.

    `after` returns the session after a reply and its tool calls; `saved` is set once it is stored.
    """

    saved: bool

    def after(self, text: str, invoked: Sequence[ToolInvocation]) -> SessionTurn: ...


class TurnPlanner:
    """Plans the reply after the user's message is stored. Subclasses override what they need.

    `name` is the agent's name, `session_save` the session to save with the last message.
    """

    name: str | None = None
    session_save: SessionSave | None = None

    @property
    def tool_host(self) -> ToolHost | None:
        """The agent, for tools that take a `ToolContext`."""
        return None

    async def plan(
        self, options: ChatOptions, history: list[Message], log: TurnLog
    ) -> tuple[ChatOptions, list[Message]]:
        """Return the options and the history of the reply."""
        return options, history

    def reply_metadata(self) -> Mapping[str, Any] | None:
        """Return the metadata of each assistant message."""
        return None

    def planning_usage(self) -> ChatUsage:
        """Return the token usage of planning."""
        return ChatUsage()


class CommonArguments(TypedDict, total=False):
    """The keyword arguments that all functions that start a turn share."""

    idempotency_key: str | None
    approvals: Mapping[str, Any] | None
    wait: float
    trace_id: str | None
    recall: Mapping[str, Any] | None
    sender: Identity | None
    extras: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None


class InvokeOptions(CommonArguments, total=False):
    """The keyword arguments of `invoke`, which are passed on to the turn."""

    provider: str | None
    max_cycles: int | None
    tail_limit: int | None
    memory_space_id: str | None
    session: Session | None


class TurnArguments(InvokeOptions, total=False):
    """The keyword arguments of `run_turn` and `stream_turn`."""

    content: Content | None
    tools: Sequence[Any] | None
    tool_handler: ToolHandler | None
    options: ChatOptionsLike | None


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A turn to run: resolved options, and the user's message unless a turn is resumed.

    - Without a `conversation_id` nothing is stored; without a `user` nothing is stored or recalled.
    - `recall` runs before the message is stored; `earlier_messages` are stored before it.
    - `user_messages` are sent to the model instead of the stored message.
    - `session` (default: the conversation), `sender` (default: the user) and `extras` are available to tools in
      `tellback.request`, unless `bind_tools` is False. `event_payload` is part of every event of the reply.
    - With `tolerate_store_errors` the turn continues when the store fails; `problems` collects the failures.
    - `planner` decides the final options and history; without one, `agent` and `reply_metadata` describe the reply.
    """

    user: UserHandle | None
    conversation_id: str | None
    options: ChatOptions
    draft: MessageDraft | None = None
    approvals: Mapping[str, Any] | None = None
    tail_limit: int = TAIL_LIMIT
    wait: float = WAIT_SECONDS
    trace_id: str | None = None
    recall: RecallRequest | None = None
    earlier_messages: Sequence[MessageDraft] = ()
    user_messages: Sequence[Message] = ()
    session: Session | None = None
    sender: Identity | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    bind_tools: bool = True
    event_payload: Mapping[str, Any] = field(default_factory=dict)
    store_user_message: bool = True
    store_reply: bool = True
    agent: str | None = None
    reply_metadata: Mapping[str, Any] | None = None
    planner: TurnPlanner | None = None
    tolerate_store_errors: bool = False
    problems: list[TurnProblem] = field(default_factory=list)

    @property
    def scope(self) -> Scope:
        """The scope of the user."""
        assert self.user is not None, "a turn without a user stores nothing"
        return self.user.scope

    async def attempt(self, work: Awaitable[T], step: str) -> T | None:
        """Await `work` and return its result, or None if it failed and store errors are tolerated."""
        return await (try_step(work, step, self.problems) if self.tolerate_store_errors else work)

    @property
    def is_stored(self) -> bool:
        """Whether the turn stores anything in a conversation."""
        stores_anything = self.store_user_message or self.store_reply
        return self.user is not None and self.conversation_id is not None and stores_anything


def build_turn_request(
    user: UserHandle,
    id: str | None,
    model: str | Model | None,
    user_text: str | None,
    *,
    content: Content | None = None,
    provider: str | None = None,
    tools: Sequence[Any] | None = None,
    tool_handler: ToolHandler | None = None,
    options: ChatOptionsLike | None = None,
    max_cycles: int | None = None,
    tail_limit: int | None = None,
    idempotency_key: str | None = None,
    approvals: Mapping[str, Any] | None = None,
    wait: float = WAIT_SECONDS,
    trace_id: str | None = None,
    memory_space_id: str | None = None,
    recall: Mapping[str, Any] | None = None,
    session: Session | None = None,
    sender: Identity | None = None,
    extras: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    agent: str | None = None,
    reply_metadata: Mapping[str, Any] | None = None,
) -> TurnRequest:
    """Validate the arguments of `run_turn` before anything is stored.

    Without an `id`, the conversation is created later.
    """
    runtime = user.conversations.runtime
    user_content = _user_content(user_text, content, approvals)
    validate_tool_request(session, sender, extras)
    validation.validate_recall_options("recall", recall)
    draft = None
    if user_content is not None:
        draft = build_draft(
            "user",
            user_content,
            runtime.clock(),
            visibility="user",
            trace_id=trace_id,
            idempotency_key=idempotency_key,
            metadata=metadata,
        )
    resolved = resolve_options(
        options,
        model=model,
        provider=provider,
        tools=tools,
        tool_handler=tool_handler,
        max_cycles=None if max_cycles is None else validation.validate_count("max_cycles", max_cycles, 1),
        default_model=runtime.model,
    )
    has_recall = memory_space_id is not None or recall is not None
    return TurnRequest(
        user,
        None if id is None else validation.validate_id("conversation", id),
        with_attachments(resolved, ()),
        draft,
        approvals=approvals,
        tail_limit=TAIL_LIMIT if tail_limit is None else validation.validate_count("tail_limit", tail_limit, 1),
        wait=validation.validate_seconds("wait", wait),
        trace_id=validation.validate_optional_text("trace_id", trace_id, validation.KEY_LENGTH),
        recall=build_recall(recall or {}, query_from_draft(draft), memory_space_id) if has_recall else None,
        session=session,
        sender=sender,
        extras=dict(extras or {}),
        agent=agent,
        reply_metadata=reply_metadata,
    )


def validate_tool_request(session: Any, sender: Any, extras: Any) -> None:
    """Validate the values that are bound for tools."""
    validation.validate_mapping("extras", extras)
    if not isinstance(sender, Identity | None):
        raise InvalidArgumentError(f"sender must be a tellback.turn.Identity, got {sender!r:.80}.")
    if not isinstance(session, Session | None):
        raise InvalidArgumentError(f"session must be a tellback.turn.Session, got {session!r:.80}.")


def with_attachments(options: ChatOptions, attachments: Sequence[Any]) -> ChatOptions:
    """Return options whose skills receive the attachments. An empty list is passed too, so that the model cannot pass
    its own list."""
    if not options.skills and options.skill_resolver is None:
        return options
    context = options.skill_context or {}
    if "attachments" in context and not attachments:
        return options
    return replace(options, skill_context={"attachments": list(attachments), **context})


def _user_content(user_text: str | None, content: Content | None, approvals: Any) -> Content | None:
    if user_text is not None and content is not None:
        raise InvalidArgumentError("pass user_text or content, not both.")
    user_content = user_text if content is None else content
    if user_content is None and approvals is None:
        raise InvalidArgumentError("the message is missing: pass user_text, content or approvals.")
    if user_content is not None and approvals is not None:
        raise InvalidArgumentError("approvals resume a turn: pass them without user_text and content.")
    if approvals is not None:
        as_approvals(approvals)
    return user_content
