"""`Responder`: load and lock the session, run the turn, save the session and its messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, cast

from tellback import validation
from tellback.agent.events import Event, EventSource, create_message_event, create_tool_event, history_to_messages
from tellback.agent.response import Response, StreamChunk, last_chunk, run_after_hook
from tellback.agent.runtime.state_tools import TurnAttempts, format_decision_note, resolve_approvals
from tellback.agent.runtime.turn import (
    AgentTurn,
    SessionKey,
    build_memory_tools,
    build_session_key,
    format_owner,
    get_user_id,
    resolve_memory_user,
    validate_owner,
)
from tellback.agent.sessions.persistence import Persistence, SessionStore
from tellback.agent.sessions.session import IdempotentReply, SessionState, create_session
from tellback.chat.approval import Approval
from tellback.errors import ConfigurationError, InvalidArgumentError, SessionConflictError, TurnConflictError
from tellback.stores import SessionTurn
from tellback.tools import Tool
from tellback.tools.context import current_tool_host
from tellback.turns.chat import ChatArguments, UserChat
from tellback.turns.engine import TurnEngine
from tellback.turns.request import WAIT_SECONDS, TurnRequest, UserHandle, try_step
from tellback.types import Message, TextDelta, message_text
from tellback.types.conversations import Identity, Session, ToolInvocation, TurnProblem, TurnResult

if TYPE_CHECKING:
    from tellback.agent.agent import Agent

UNSET_MODEL = "-"
"""The model's name where none is set."""
HISTORY_LIMIT = 30


@dataclass(slots=True)
class PreparedTurn:
    """A turn that has begun: what was said, whose it is, and the session as it was."""

    turn: AgentTurn
    session: SessionState
    key: SessionKey
    message: Message | None
    work: UserChat | TurnRequest | None = None
    problems: list[TurnProblem] = field(default_factory=list)
    idempotency_key: str | None = None
    decided_call_ids: tuple[str, ...] = ()
    repeated_response: Response | None = None
    session_save: AtomicSessionSave | None = None
    message_is_stored: bool = False

    @property
    def turn_to_run(self) -> UserChat | TurnRequest:
        """The chat of a user with a memory, or else the request for the engine."""
        assert self.work is not None, "there is a response already"
        return self.work

    def stamp_session(self, session: SessionState, text: str) -> SessionState:
        """The session after the turn, with whose it is and what was said to a message that may come again."""
        key = self.idempotency_key
        idempotent_reply = IdempotentReply(key, text) if key is not None else self.session.idempotent_reply
        return replace(session, idempotent_reply=idempotent_reply, owner=format_owner(self.key))


@dataclass(slots=True)
class AtomicSessionSave:
    """The end of a turn whose messages are in the log that its session is kept beside: both are saved in one step."""

    prepared: PreparedTurn
    persistence: Persistence
    agent_name: str
    saved: bool = False
    session: SessionState | None = None

    def after(self, text: str, invoked: Sequence[ToolInvocation]) -> SessionTurn:
        """What is saved, now that this was said."""
        self.session = self.prepared.stamp_session(self.prepared.turn.session_after(), text)
        events = [] if self.prepared.message is None else [create_message_event("customer", "user", "said")]
        tool_calls = [_invocation_to_event_call(each) for each in (*self.prepared.turn.invocations, *invoked)]
        events += [create_tool_event("agent", tool_calls)] if tool_calls else []
        events.append(create_message_event("agent", self.agent_name, text))
        user_id = get_user_id(self.prepared.key)
        turn = self.persistence.build_session_turn(self.session, events, agent_name=self.agent_name, user_id=user_id)
        return replace(turn, tool_calls=turn.messages[-1].tool_calls)


def _invocation_to_event_call(call: ToolInvocation) -> dict[str, Any]:
    """A tool that ran, as an event has it."""
    return {"tool_id": call.name, "arguments": dict(call.arguments), "result": call.content}


def build_turn_events(agent_name: str, message: Message | None, response: Response) -> list[Event]:
    """What was said and done in a turn, as a session's history has it."""
    events = []
    if message is not None:
        events.append(create_message_event(EventSource.CUSTOMER, "user", message_text(message)))
    if response.tool_calls:
        events.append(
            create_tool_event(EventSource.AI_AGENT, [_invocation_to_event_call(each) for each in response.tool_calls])
        )
    events.append(create_message_event(EventSource.AI_AGENT, agent_name, response.message))
    return events


class RespondArguments(TypedDict, total=False):
    """What `respond` and `respond_stream` take by keyword."""

    approvals: Mapping[str, Any] | None
    user: Any
    extras: Mapping[str, Any] | None
    sender: Identity | None
    metadata: Mapping[str, Any] | None
    idempotency_key: str | None
    trace_id: str | None
    wait: float


@dataclass(slots=True)
class _SessionQueue:
    """Those who wait for a session, one after another."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Responder:
    """Answers for an agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._turns = TurnEngine()  # for turns without a user: nothing of them is stored
        self._running_keys: set[SessionKey] = set()
        self._queues: dict[str, _SessionQueue] = {}
        self._attempts = TurnAttempts()

    async def respond(
        self,
        history: Any,
        session: SessionState | str | None,
        override: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> Response:
        """The answer, when it is complete."""
        async with self._prepare(history, session, override, options) as prepared:
            if prepared.repeated_response is not None:
                return prepared.repeated_response
            turn = prepared.turn_to_run
            result = await (turn.run() if isinstance(turn, UserChat) else self._turns.run(turn))
            response = await self._finish(prepared, result)
        await run_after_hook(self._agent.after_response, response)
        return response

    async def stream(
        self,
        history: Any,
        session: SessionState | str | None,
        override: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> AsyncGenerator[StreamChunk, None]:
        """The answer as it comes, and the response last."""
        accumulated = ""
        async with self._prepare(history, session, override, options) as prepared:
            if prepared.repeated_response is not None:
                yield StreamChunk(prepared.repeated_response.message, prepared.repeated_response.message)
                yield last_chunk(prepared.repeated_response.message, prepared.repeated_response)
                return
            turn = prepared.turn_to_run
            async with aclosing(turn.stream() if isinstance(turn, UserChat) else self._turns.stream(turn)) as items:
                async for item in items:
                    if isinstance(item, TextDelta):
                        accumulated += item.text
                        yield StreamChunk(item.text, accumulated)
                    elif isinstance(item, TurnResult):
                        result = item
            response = await self._finish(prepared, result)
        await run_after_hook(self._agent.after_response, response)
        yield last_chunk(accumulated, response)

    async def _finish(self, prepared: PreparedTurn, result: TurnResult) -> Response:
        response = prepared.turn.response(result)
        saved_session = (
            None if prepared.session_save is None or not prepared.session_save.saved else prepared.session_save.session
        )
        response = replace(
            response, session=saved_session or prepared.stamp_session(response.session, response.message)
        )
        if prepared.problems:
            response = replace(response, problems=(*prepared.problems, *response.problems))
        store = self._agent.persistence
        if prepared.session_save is not None and saved_session is None:
            _raise_store_error(response)
        if store is not None and _saves_turns(store) and saved_session is None:
            message = None if prepared.message_is_stored else prepared.message
            events = build_turn_events(self._agent.name, message, response)
            user_id = get_user_id(prepared.key)
            await store.save(response.session, events, agent_name=self._agent.name, user_id=user_id)
        self._attempts.forget((*prepared.key, prepared.session.version))
        for id in (*prepared.decided_call_ids, *prepared.turn.recovered_call_ids):
            self._attempts.mark_decided(id)
        return response

    @asynccontextmanager
    async def _prepare(
        self,
        history: Any,
        session: SessionState | str | None,
        override: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> AsyncIterator[PreparedTurn]:
        agent = self._agent
        agent.check()
        arguments = _validate_options(options)
        if not isinstance(override, Mapping | None):
            raise InvalidArgumentError(f"context_override is a mapping, not {override!r:.80}.")
        async with self._hold_session(session, arguments) as (state, user):
            decisions = resolve_approvals(agent, arguments.get("approvals"), history, state, self._attempts)
            approvals, resumes_reply, state = decisions.approvals, decisions.resumes_reply, decisions.session
            messages = None if history is None else history_to_messages(history)
            if approvals:
                messages = history_to_messages(format_decision_note(state, approvals))
            if agent.persistence is not None and user is None and isinstance(history, str | None):
                messages = [
                    *history_to_messages(await agent.persistence.history(state.id, HISTORY_LIMIT)),
                    *(messages or ()),
                ]
            key = build_session_key(user, arguments.get("sender"), state)
            self._validate_user(key)
            turn = AgentTurn(
                agent,
                state,
                None if user is not None and isinstance(history, str | None) else messages or (),
                override,
                approvals=approvals,
                resumes_reply=resumes_reply,
                attempt=self._attempts.get_or_create((*key, state.version)),
            )
            message = messages[-1] if messages and messages[-1].role == "user" and not approvals else None
            prepared = PreparedTurn(
                turn, state, key, None if history is None else message, decided_call_ids=tuple(approvals)
            )
            prepared.idempotency_key = arguments.get("idempotency_key")
            prepared.message_is_stored = await self._is_message_stored(history, prepared)
            if state.idempotent_reply is not None and state.idempotent_reply.key == prepared.idempotency_key:
                prepared.repeated_response = Response(state.idempotent_reply.message, state)
                yield prepared
                return
            if prepared.idempotency_key is not None and user is None and agent.persistence is None:
                raise InvalidArgumentError("idempotency_key needs something that remembers it: persistence or memory.")
            if agent.persistence is not None and _saves_turns(agent.persistence):
                turn.validate_version = partial(self._validate_version, agent.persistence, state)
            if user is None:
                prepared.work = self._build_request(turn, state, messages or (), arguments)
            else:
                prepared.work = self._build_chat(prepared, user, messages, arguments, approvals, resumes_reply)
            yield prepared

    @asynccontextmanager
    async def _hold_session(
        self, session: SessionState | str | None, arguments: RespondArguments
    ) -> AsyncIterator[tuple[SessionState, UserHandle | None]]:
        """The session, which no other turn of this process has meanwhile, and the user whose it is."""
        agent, store = self._agent, self._agent.persistence
        if isinstance(session, str):
            if store is None:
                raise InvalidArgumentError(
                    f"session {session!r} is only named: pass Agent(persistence=...), or the last response's session."
                )
            async with self._wait_in_queue(session, arguments.get("wait", WAIT_SECONDS)):
                state = await store.load(session) or create_session(session)
                user = await resolve_memory_user(agent.memory, state, arguments.get("user"))
                validate_owner(state, build_session_key(user, arguments.get("sender"), state))
                async with self._run_exclusively(build_session_key(user, arguments.get("sender"), state), state):
                    yield state, user
            return
        if not isinstance(session, SessionState | None):
            raise InvalidArgumentError(f"session is a SessionState or the id of one, not {session!r:.80}.")
        state = create_session() if session is None else session
        user = await resolve_memory_user(agent.memory, state, arguments.get("user"))
        validate_owner(state, build_session_key(user, arguments.get("sender"), state))
        async with self._run_exclusively(build_session_key(user, arguments.get("sender"), state), state):
            if store is not None and session is not None:
                stored = await store.load(state.id)
                if stored is not None:
                    validate_owner(stored, build_session_key(user, arguments.get("sender"), stored))
                version = 0 if stored is None else stored.version
                if version != state.version and _saves_turns(store):
                    raise SessionConflictError(state.id, state.version, version)
            yield state, user

    async def _is_message_stored(self, history: Any, prepared: PreparedTurn) -> bool:
        """Whether the application has saved what the user said before it passed the history that ends with it."""
        store = self._agent.persistence
        if store is None or prepared.message is None or isinstance(history, str | None):
            return False
        last = history_to_messages(await store.history(prepared.session.id, 1))[-1:]
        return bool(last) and last[0].role == "user" and message_text(last[0]) == message_text(prepared.message)

    def _validate_user(self, key: SessionKey) -> None:
        owner_id = getattr(self._agent.persistence, "user_id", None)
        if owner_id is not None and get_user_id(key) not in (None, owner_id):
            raise InvalidArgumentError(
                f"the agent's persistence is of user {owner_id!r}, and it was {get_user_id(key)!r:.80} who spoke."
            )

    @asynccontextmanager
    async def _wait_in_queue(self, id: str, wait: float) -> AsyncIterator[None]:
        turn = current_tool_host()
        if isinstance(turn, AgentTurn) and turn.session_id == id:  # it would wait for itself
            raise SessionConflictError(id, turn.version)
        queue = self._queues.setdefault(id, _SessionQueue())
        queue.waiting += 1
        try:
            try:
                async with asyncio.timeout(validation.validate_seconds("wait", wait)):
                    await queue.lock.acquire()
            except TimeoutError:
                raise TurnConflictError(id, "of this session", wait) from None
            try:
                yield
            finally:
                queue.lock.release()
        finally:
            queue.waiting -= 1
            if not queue.waiting:
                del self._queues[id]

    async def _validate_version(self, store: SessionStore, session: SessionState) -> None:
        """Another process may have taken a turn while this one waited for the conversation: then nothing is done."""
        stored = await store.load(session.id)
        version = 0 if stored is None else stored.version
        if version != session.version:
            raise SessionConflictError(session.id, session.version, version)

    @asynccontextmanager
    async def _run_exclusively(self, key: SessionKey, session: SessionState) -> AsyncIterator[None]:
        if key in self._running_keys:
            raise SessionConflictError(session.id, session.version)
        self._running_keys.add(key)
        try:
            yield
        finally:
            self._running_keys.discard(key)

    def _build_request(
        self, turn: AgentTurn, session: SessionState, messages: Any, arguments: RespondArguments
    ) -> TurnRequest:
        agent = self._agent
        options = agent.options
        if agent.model is not None:
            options = replace(options, model=agent.model)
        elif options.model == UNSET_MODEL:
            raise ConfigurationError(f"{agent.place} has no model: pass Agent(model=...).")
        extras = arguments.get("extras")
        validation.validate_mapping("extras", extras)
        return TurnRequest(
            None,
            None,
            options,
            user_messages=messages[-1:],
            session=Session(session.id),
            sender=arguments.get("sender"),
            extras=dict(extras or {}),
            store_user_message=False,
            store_reply=False,
            planner=turn,
            trace_id=arguments.get("trace_id"),
        )

    def _build_chat(
        self,
        prepared: PreparedTurn,
        user: UserHandle,
        messages: list[Message] | None,
        arguments: RespondArguments,
        approvals: Mapping[str, Approval],
        resumes_reply: bool,
    ) -> UserChat:
        agent, turn = self._agent, prepared.turn
        store = agent.persistence
        log = user.conversations.runtime.store
        if isinstance(store, Persistence) and store.auto_save and store.shares_store_with(log, user.scope):
            turn.session_save = prepared.session_save = AtomicSessionSave(prepared, store, agent.name)
        options = agent.memory_options
        namespace = options.namespace_of(agent.name)
        last = messages[-1] if messages else None
        if not resumes_reply and (last is None or last.role != "user"):
            raise InvalidArgumentError("with a memory the user speaks first: pass what they said.")

        async def tools() -> Sequence[Tool]:
            return await try_step(build_memory_tools(user, namespace, options), "recall", prepared.problems) or ()

        turn.load_memory_tools = tools
        chat_arguments: ChatArguments = {
            "options": replace(agent.options, model="") if agent.options.model == UNSET_MODEL else agent.options,
            "session_id": prepared.session.id,
            "recall": options.recall,
            "close_after": options.close_after,
        }
        for name in ("extras", "sender", "metadata", "idempotency_key", "trace_id", "wait"):
            if arguments.get(name) is not None:
                chat_arguments[name] = arguments[name]
        if resumes_reply:
            chat_arguments["approvals"] = arguments.get("approvals")
        text = None if resumes_reply or last is None else message_text(last)
        visibility = "internal" if approvals else "user"
        return UserChat(
            user, text, namespace, options.space, agent.model, chat_arguments, planner=turn, visibility=visibility
        )


def _raise_store_error(response: Response) -> None:
    """What the log did not take, its session has not taken either: then the turn has failed as a whole."""
    for problem in reversed(response.problems):
        if problem.step in ("store_user", "store_reply"):
            raise problem.error


def _saves_turns(store: SessionStore) -> bool:
    """Whether turns are saved there; otherwise it is for the application to do."""
    return bool(getattr(store, "auto_save", True))


def _validate_options(options: Mapping[str, Any]) -> RespondArguments:
    if not isinstance(options.get("sender"), Identity | None):
        raise InvalidArgumentError(f"sender is an Identity, not {options['sender']!r:.80}.")
    unknown = options.keys() - RespondArguments.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"respond takes no {', '.join(sorted(unknown))}.")
    return cast("RespondArguments", options)
