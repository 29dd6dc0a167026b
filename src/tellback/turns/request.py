"""A turn request: the options, the message drafts and the recall that a caller's arguments become.

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
    """A message of the assistant, with what is known of how it came about."""
    if isinstance(turn, AssistantTurn):
        values = {name: getattr(turn, name) for name in _ASSISTANT_FIELDS}
    else:
        values = _parse_mapping("an assistant's turn", turn, _ASSISTANT_FIELDS)
    return build_draft("assistant", now=now, **values)


def build_imported_draft(message: Message | Mapping[str, Any], now: datetime) -> MessageDraft:
    """A message of a chat that took place elsewhere."""
    if isinstance(message, Message):
        role = validation.validate_choice("role", message.role, ROLES)
        return MessageDraft(new_id("msg"), role, message_blocks(message), now, meta=message.meta)
    values = _parse_mapping("a message", message, ("role", "idempotency_key", *_ASSISTANT_FIELDS))
    role = validation.validate_choice("role", values.pop("role", None), ROLES)
    return build_draft(role, now=now, **{"visibility": "internal" if role == "system" else "user", **values})


def group_by_turn(drafts: Sequence[MessageDraft]) -> list[TurnDraft]:
    """Drafts by turn: a user's message begins one, and what comes before the first joins the one that is going on."""
    turns: list[tuple[bool, list[MessageDraft]]] = []
    for draft in drafts:
        if draft.role == "user" or not turns:
            turns.append((draft.role == "user", []))
        turns[-1][1].append(draft)
    return [TurnDraft(new_id("turn"), messages, starts=starts, joins=not starts) for starts, messages in turns]


def _parse_mapping(label: str, values: Any, field_names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(values, Mapping) or "content" not in values:
        raise InvalidArgumentError(f"{label} is a mapping with 'content', not {values!r:.80}.")
    renamed = {str(_FIELD_ALIASES.get(name, name)): value for name, value in values.items()}
    unknown = [name for name in renamed if name not in field_names]
    if unknown:
        raise InvalidArgumentError(f"{label} has {', '.join(field_names)}, but not {', '.join(unknown)}.")
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
    """Resolve what a caller passed to `run_turn` into options for the loop, and raise for what is wrong with it."""
    changes: dict[str, Any] = {}
    if not isinstance(options, ChatOptions | Mapping | None):
        raise InvalidArgumentError(f"options is a ChatOptions or a mapping, not {options!r:.80}.")
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
            raise InvalidArgumentError(f"tools is a list, not {tools!r:.80}: write tools=[...].")
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
                f"options has no {name!r}: it takes system_prompt and the fields of ChatOptions;"
                " settings for the provider go into config={...}."
            )
    return found


def tool_from_description(entry: Any, handler: ToolHandler | None) -> Any:
    """A tool, a function, or a description whose calls go to the handler."""
    if not isinstance(entry, Mapping):
        return entry
    described: Mapping[str, Any] = entry["function"] if isinstance(entry.get("function"), Mapping) else entry
    name = described.get("name")
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a tool's description needs a name: {entry!r:.120}.")
    if handler is None:
        raise InvalidArgumentError(f"tool {name!r} is only described: pass tool_handler=..., or a function instead.")
    schemas = [described.get(key) for key in ("parameters", "input_schema", "inputSchema")]
    schema = next((each for each in schemas if each is not None), {"type": "object", "properties": {}})
    return Tool(name, str(described.get("description") or ""), schema, _wrap_handler(name, handler))


def _wrap_handler(name: str, handler: ToolHandler) -> Callable[..., Any]:
    async def call(**arguments: Any) -> Any:
        return await handler(name, arguments)

    return call if inspect.iscoroutinefunction(handler) else lambda **arguments: handler(name, arguments)


def _find_provider(provider: str, registry: Sequence[ProviderRegistration] | None) -> ProviderRegistration:
    """The registration of that name, for whatever model it is asked."""
    entries = builtin_providers() if registry is None else list(registry)
    for entry in reversed(entries):
        if str(provider).lower() in (str(entry.variant).lower(), entry.display_name.lower()):
            return replace(entry, detect=lambda _: True)
    known = ", ".join(dict.fromkeys(str(entry.variant) for entry in entries))
    raise ConfigurationError(f"No provider is called {provider!r}. Known: {known}.")


class UserHandle(Protocol):
    """A user's handle, `tb.user(...)`, as far as a turn needs it."""

    scope: Scope
    conversations: Conversations

    @property
    def memory(self) -> Memory: ...

    @property
    def working_context(self) -> WorkingContextBuilder: ...


async def try_step(work: Awaitable[T], step: str, problems: list[TurnProblem]) -> T | None:
    """Return what `work` gives, or None if the store or the embedder failed, which is added to `problems`.

    A Tellback that is not open is a mistake of the caller, and raises.
    """
    try:
        return await work
    except StoreClosedError:
        raise
    except (StoreError, EmbeddingError) as error:
        log.warning("%s failed; the turn goes on without it", step, exc_info=error)
        problems.append(TurnProblem(step, error))
        return None


@dataclass(frozen=True, slots=True)
class RecalledContext:
    """The result of recall: the system prompt with the memories in it, and the working context they come from.

    `tail_limit` is how many messages of the log fit beside it, if the token budget left some out.
    """

    system: str | None
    context: WorkingContext | None = None
    tail_limit: int | None = None


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """The recall of a turn: `options` are arguments of `working_context.build`.

    Memories come from `space_id`, or else from the space of `memory`, which is created and bound unless `bind` is
    False. With a `heading`, nothing but memories goes behind the system prompt, under that heading.
    """

    options: Mapping[str, Any]
    space_id: str | None = None
    memory: NamespaceMemory | None = None
    bind: bool = True
    heading: str | None = None

    async def build_context(self, user: UserHandle, conversation_id: str | None) -> WorkingContext:
        """Recall now."""

        async def build(space_id: str | None) -> WorkingContext:
            return await user.working_context.build(conversation_id, self.space_id or space_id, **self.options)

        if self.memory is None:
            return await build(None)
        if self.bind:
            return await self.memory.use_space(build)
        return await build(await self.memory.find())

    def extend_prompt(self, system: str | None, context: WorkingContext) -> str | None:
        """Return the system prompt followed by what was recalled."""
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
    """Build the recall of a turn from the caller's `recall` options, which may name the space themselves."""
    options = {"recall_query": query, "template_id": "messages", **recall}
    return RecallRequest(options, options.pop("memory_space_id", None) or space_id, memory, bind, heading)


def query_from_draft(draft: MessageDraft | None) -> str | None:
    """Return what to recall by: the words of the message; None for the last one in the log."""
    return None if draft is None else query_from_text(blocks_text(draft.content))


def query_from_text(text: str) -> str | None:
    """Return a text as far as it can be a query: a pasted document has no topic, and no database can hold a NUL."""
    return text[: validation.QUERY_LENGTH].encode(errors="ignore").decode().replace("\x00", " ") or None


class NamespaceMemory:
    """The space of a user's conversations of one namespace, found or made with its binding at the first use.

    Without a name it is the space called "default", or the only one there is. A namespace that is bound to another
    space already stays so; with `exclusive`, that is refused.
    """

    def __init__(self, user: UserHandle, namespace: str, space: str | None, *, exclusive: bool = False) -> None:
        self._user = user
        self._namespace = namespace
        self._space = space
        self._exclusive = exclusive
        self._cache = user.conversations.runtime.bound_spaces
        self._key = (user.scope, namespace, space or "")

    async def find(self) -> str | None:
        """The space's id, if there is one."""
        memory = self._user.memory
        found = await memory.list_spaces(self._space or DEFAULT_SPACE)
        if not found and self._space is None:
            found = await memory.list_spaces()
            found = found if len(found) == 1 else []
        return found[0].id if found else None

    async def space_id(self) -> str:
        """The space's id. A binding from the namespace to it is there afterwards."""
        id = self._cache.get(self._key)
        if id is None:
            id = await self._bind()
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[self._key] = id
        return id

    async def use_space(self, action: Callable[[str], Awaitable[T]]) -> T:
        """Run `action` with the id of the space; if that was deleted meanwhile, with the one that takes its place."""
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
                    f"conversations of {self._namespace!r} are remembered in {other.name!r}, not in {space.name!r}:"
                    " use another namespace for another space, or bind this one to both with memory.create_binding."
                )
            if other is None:
                scope = {"namespace": self._namespace, "user_id": self._user.scope.user_id}
                await memory.create_binding(scope, [space.id], once=True)
        return space.id

    async def _other_bound_space(self, bindings: Sequence[Binding]) -> MemorySpace | None:
        """The space that this very namespace is bound to: a second one would get all of its conversations, too."""
        scope = ConversationScope(self._namespace, self._user.scope.user_id)
        for binding in bindings:
            for id in binding.memory_space_ids if scope in binding.conversation_scope else ():
                if (space := await self._user.memory.get_space(id)) is not None:
                    return space
        return None

    def _is_bound_to(self, space: MemorySpace, binding: Binding) -> bool:
        """Whether a binding does it already, or would if it were not paused: nothing is extracted twice."""
        user_id = self._user.scope.user_id
        if not binding.matches(self._namespace, user_id):
            return False
        if binding.created_by == user_id:
            return space.id in binding.memory_space_ids
        return space.name in binding.memory_space_names


class TurnLog(Protocol):
    """The log as a planner may use it.

    `previous_answer` is set if the message was answered before. `begin_call` records that an approved call is about to
    run, and returns False if that was recorded before.
    """

    previous_answer: str | None

    async def begin_call(self, call: ToolCall) -> bool: ...


class SessionSave(Protocol):
    """An agent's session, saved together with the last message of a turn.

    `after` gives it for what the agent said and the tools that the model called; `saved` is set once it is stored.
    """

    saved: bool

    def after(self, text: str, invoked: Sequence[ToolInvocation]) -> SessionTurn: ...


class TurnPlanner:
    """Decides, once the user's message is stored, how the model answers. Subclasses override what they need.

    `name` is the agent's, and `session_save` what is saved with the last message.
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
        """Return what is stored with each message of the assistant."""
        return None

    def planning_usage(self) -> ChatUsage:
        """Return the tokens that planning took."""
        return ChatUsage()


class CommonArguments(TypedDict, total=False):
    """The keyword arguments that all ways to start a turn have in common."""

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
    """A turn to run: the options with everything resolved, and the user's message, unless a turn is resumed.

    - Without a `conversation_id` nothing is stored; without a `user` nothing is stored or recalled.
    - `recall` runs before the message is stored; `earlier_messages` are stored before it.
    - `user_messages` are sent to the model in place of the stored message.
    - `session` (the conversation by default), `sender` (the user by default) and `extras` are what tools find in
      `tellback.request`, unless `bind_tools` is False. `event_payload` goes with every event of the reply.
    - `tolerate_store_errors` lets the turn go on when the store fails; `problems` collects what failed.
    - `planner` has the last word on options and history; otherwise `agent` and `reply_metadata` describe the reply.
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
        """Whose conversation it is."""
        assert self.user is not None, "a turn of nobody stores nothing"
        return self.user.scope

    async def attempt(self, work: Awaitable[T], step: str) -> T | None:
        """Return what `work` gives; None if it failed and the turn may go on without it."""
        return await (try_step(work, step, self.problems) if self.tolerate_store_errors else work)

    @property
    def is_stored(self) -> bool:
        """Whether anything of the turn goes into a conversation."""
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
    """Validate the arguments of `run_turn`; whatever is wrong with them is found before anything is stored.

    Without an `id`, the conversation is still to be opened.
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
    """Refuse what cannot be bound for tools."""
    validation.validate_mapping("extras", extras)
    if not isinstance(sender, Identity | None) or not isinstance(session, Session | None):
        raise InvalidArgumentError("sender is an Identity and session a Session of tellback.turn.")


def with_attachments(options: ChatOptions, attachments: Sequence[Any]) -> ChatOptions:
    """Return options whose skills are told what is attached, even if nothing is: the model cannot say otherwise."""
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
        raise InvalidArgumentError("there is nothing to answer: pass user_text, content or approvals.")
    if user_content is not None and approvals is not None:
        raise InvalidArgumentError("approvals go on with a turn: pass them without user_text and content.")
    if approvals is not None:
        as_approvals(approvals)
    return user_content
