"""`user.chat`: continue or open a conversation, recall, answer, and store everything.

The memory space of a namespace and its binding are created here, on the first message."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypedDict, TypeVar

from tellback import validation
from tellback.chat import ChatOptions, Model
from tellback.chat.offline import SETUP_HINT, is_offline
from tellback.errors import ConfigurationError, ConversationClosedError, InvalidArgumentError, NotFoundError
from tellback.turns.attachments import append_contents, append_summaries, build_user_message, parse_attachments
from tellback.turns.request import (
    RecalledContext,
    TurnArguments,
    TurnPlanner,
    TurnRequest,
    build_turn_request,
    recall_step,
)
from tellback.turns.types import TurnResult, UserHandle, build_turn_result, get_conversation, try_step
from tellback.types import ReplyDelta
from tellback.types.conversations import Conversation, Identity, Session, TurnOutcome, TurnProblem
from tellback.types.jobs import Binding, ConversationScope
from tellback.types.memory import MemorySpace

log = logging.getLogger("tellback.turn")

T = TypeVar("T")

MAX_CACHED = 10_000
LOCAL_WAIT_SECONDS, REMOTE_WAIT_SECONDS = 15.0, 3.0
"""How long to wait for memories that are being made by this process's worker, or by another's if there is one."""

DEFAULT_SPACE = "default"


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
        """What `action` gives for the space; if that was deleted meanwhile, for the one that takes its place."""
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


async def require_unbound(user: UserHandle, namespace: str) -> None:
    """Refuse to promise that nothing is remembered of a namespace whose conversations are."""
    bindings = await user.memory.list_bindings()
    if any(binding.enabled and binding.matches(namespace, user.scope.user_id) for binding in bindings):
        raise InvalidArgumentError(
            f"conversations of {namespace!r} are remembered: for one that is not, use a namespace of its own."
        )


async def close_idle_conversations(user: UserHandle) -> bool:
    """Close the user's conversations whose time is past; gives whether there were any."""
    runtime = user.conversations.runtime
    now = runtime.clock()
    store = runtime.store.conversations
    if not await store.list_due(user.scope, now=now):
        return False
    return bool(await store.close_stale(user.scope, idle_since=None, now=now))


async def wait_for_memories(user: UserHandle, seconds: float | None) -> None:
    """Wait a while until the user's conversations that were closed have become memories."""
    if seconds is None:  # who knows whether anyone works on them elsewhere
        seconds = LOCAL_WAIT_SECONDS if user.conversations.runtime.worker else REMOTE_WAIT_SECONDS
    if not await user.memory.wait_for_extraction(seconds):
        log.info("conversations of %s are still becoming memories; this turn goes on without", user.scope.user_id)


CHAT_CLOSE_AFTER = timedelta(hours=1)


class ChatArguments(TypedDict, total=False):
    """What `user.chat` and `user.chat_stream` take by keyword."""

    system: str | None
    tools: Sequence[Any] | None
    skills: Sequence[Any] | None
    options: ChatOptions | Mapping[str, Any] | None
    recall: Mapping[str, Any] | None
    attachments: Sequence[Any] | None
    approvals: Mapping[str, Any] | None
    session_id: str | None
    conversation_id: str | None
    close_after: timedelta | float | None
    memory_wait: float | None
    sender: Identity | None
    extras: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None
    idempotency_key: str | None
    trace_id: str | None
    wait: float


class UserChat:
    """One message of a chat, ready to be answered."""

    def __init__(
        self,
        user: UserHandle,
        text: str | None,
        namespace: str,
        space: str | None,
        model: str | Model | None,
        arguments: ChatArguments,
        *,
        planner: TurnPlanner | None = None,
        visibility: str = "user",
    ) -> None:
        self._user = user
        self._text = text
        self._namespace = validation.validate_name("namespace", namespace)
        self._space = None if space is None else validation.validate_name("space", space)
        self._model = model
        self._arguments = arguments
        self._planner = planner
        self._visibility = visibility
        self._problems: list[TurnProblem] = []
        unknown = arguments.keys() - ChatArguments.__annotations__.keys()
        if unknown:
            raise InvalidArgumentError(f"chat takes no {', '.join(sorted(unknown))}.")
        if text is None and arguments.get("approvals") is None:
            raise InvalidArgumentError("there is nothing to answer: pass a text, or approvals.")

    async def run(self) -> TurnResult:
        """The answer, when it is complete."""
        request = await self._build_request()
        try:
            outcome = await self._user.conversations.turns.run(request)
        except ConversationClosedError:
            if not self._may_reopen:
                raise
            request = await self._build_request()
            outcome = await self._user.conversations.turns.run(request)
        return _build_result(request, outcome)

    async def stream(self) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """The answer as it comes, and the result last."""
        request = await self._build_request()
        items = self._user.conversations.turns.stream(request)
        try:
            first = await anext(items)
        except ConversationClosedError:
            if not self._may_reopen:
                raise
            request = await self._build_request()
            items = self._user.conversations.turns.stream(request)
            first = await anext(items)
        async with aclosing(items):
            yield _build_result(request, first) if isinstance(first, TurnOutcome) else first
            async for item in items:
                yield _build_result(request, item) if isinstance(item, TurnOutcome) else item

    @property
    def _may_reopen(self) -> bool:
        """Whether the conversation that we found, and that was closed while we waited for it, may be another one."""
        return self._arguments.get("conversation_id") is None and self._text is not None

    async def _build_request(self) -> TurnRequest:
        request = self._validate()
        id = await self._conversation_id()
        session = Session(self._arguments.get("session_id") or id or self._namespace, id)
        attachments = parse_attachments(self._arguments.get("attachments"))
        has_attachments = self._text is not None and attachments
        assert request.request is not None
        planner = self._planner
        draft = request.draft
        return replace(
            request,
            draft=None if draft is None else replace(draft, visibility=self._visibility),
            conversation_id=id,
            request=replace(request.request, session=session, agent=planner),
            event_payload={"session_id": session.id},
            user_messages=[build_user_message(append_contents(self._text or "", attachments), attachments)]
            if has_attachments
            else (),
            prepare=lambda: self._recall(request, id),
            tolerate_store_errors=True,
            plan=None if planner is None else planner.plan,
            reply_metadata=None if planner is None else planner.reply_metadata,
            planning_usage=None if planner is None else planner.planning_usage,
            session_save=None if planner is None else planner.session_save,
            agent=None if planner is None else planner.name,
            problems=self._problems,
        )

    def _validate(self) -> TurnRequest:
        """The turn, but for its conversation: none is opened for a mistake."""
        arguments, user = self._arguments, self._user
        content = (
            None
            if self._text is None
            else append_summaries(self._text, parse_attachments(arguments.get("attachments")))
        )
        turn_arguments: TurnArguments = {
            "options": self._options(),
            "tools": arguments.get("tools"),
            "content": content,
            "approvals": arguments.get("approvals"),
            "extras": arguments.get("extras"),
            "metadata": arguments.get("metadata"),
            "idempotency_key": arguments.get("idempotency_key"),
            "trace_id": arguments.get("trace_id"),
            "sender": arguments.get("sender"),
        }
        if "wait" in arguments:
            turn_arguments["wait"] = arguments["wait"]
        if arguments.get("memory_wait") is not None:
            validation.validate_seconds("memory_wait", arguments["memory_wait"])
        validation.validate_recall_options("recall", arguments.get("recall"))
        conversations = user.conversations
        request = build_turn_request(
            conversations.runtime, user.scope, conversations.build_context, "", self._model, None, **turn_arguments
        )
        if self._planner is not None and is_offline(request.options.model):
            raise ConfigurationError(
                f"Agent {self._planner.name!r} has no model: pass Agent(model=...), or set one for all. {SETUP_HINT}"
            )
        return request

    async def _conversation_id(self) -> str | None:
        """The conversation to go on with, or None if the store cannot tell."""
        requested_id = self._arguments.get("conversation_id")
        if requested_id is not None:
            existing = await get_conversation(self._user, str(requested_id))
            self._namespace = existing.namespace
            return existing.id
        if self._text is None:
            return await self._pending_conversation_id()
        if self._space is None:
            await try_step(require_unbound(self._user, self._namespace), "recall", self._problems)
        closed = await try_step(close_idle_conversations(self._user), "recall", self._problems)
        conversation = await try_step(self._find_or_create(), "store_user", self._problems)
        if conversation is not None and self._space is not None and (closed or not conversation.last_seq):
            seconds = self._arguments.get("memory_wait")
            await try_step(wait_for_memories(self._user, seconds), "recall", self._problems)
        return None if conversation is None else conversation.id

    async def _pending_conversation_id(self) -> str:
        """The conversation whose calls are decided: it is there, or there is nothing to decide."""
        conversations, session_id = self._user.conversations, self._arguments.get("session_id")
        found = await conversations.find(self._namespace, session_id)
        if found is None and session_id is not None:  # it may have been closed meanwhile
            closed = await conversations.list(self._namespace, "closed", limit=100)
            found = next((conversation for conversation in closed if conversation.session_id == session_id), None)
        if found is None:
            raise InvalidArgumentError(
                f"no conversation of {self._namespace!r} is open whose calls could be decided:"
                " pass conversation_id=..., as the reply that asked has it."
            )
        return found.id

    async def _find_or_create(self) -> Conversation:
        arguments = self._arguments
        sender = arguments.get("sender")
        return await self._user.conversations.find_or_create(
            self._namespace,
            arguments.get("session_id"),
            metadata={"speakers": {"user": sender.name}} if sender is not None and sender.name else None,
            close_after=arguments.get("close_after", CHAT_CLOSE_AFTER),
        )

    def _options(self) -> ChatOptions | Mapping[str, Any]:
        """The options as given, with what has a keyword of its own, and what is attached for skills to see."""
        options = self._arguments.get("options") or {}
        arguments: Mapping[str, Any] = self._arguments
        changes = {name: arguments[name] for name in ("system", "skills") if arguments.get(name) is not None}
        attached = {"attachments": list(parse_attachments(arguments.get("attachments")))}
        if isinstance(options, ChatOptions):
            return replace(options, **changes, skill_context={**attached, **(options.skill_context or {})})
        if not isinstance(options, Mapping):
            raise ConfigurationError(f"options is a ChatOptions or a mapping, not {options!r:.80}.")
        return {**options, **changes, "skill_context": {**attached, **(options.get("skill_context") or {})}}

    async def _recall(self, request: TurnRequest, id: str | None) -> RecalledContext:
        """The working context; without it the turn goes on all the same, and says so."""
        build, system = self._user.conversations.build_context, request.options.system
        recall = self._arguments.get("recall") or {}

        async def build_recalled(space_id: str | None) -> RecalledContext:
            return await recall_step(build, id, space_id, recall, request.draft, system)()

        memory = NamespaceMemory(self._user, self._namespace, self._space, exclusive=True)
        work = build_recalled(None) if self._space is None else memory.use_space(build_recalled)
        return await try_step(work, "recall", self._problems) or RecalledContext(system)


def _build_result(request: TurnRequest, outcome: TurnOutcome) -> TurnResult:
    """The outcome, with the id of the message that was answered: of the one stored before, if it was sent again."""
    id = None
    if request.draft is not None:
        first = outcome.appended_messages[0] if outcome.appended_messages else None
        id = first.id if first is not None and first.role == "user" else request.draft.id
    return build_turn_result(outcome, {**request.event_payload, "message_id": id})
