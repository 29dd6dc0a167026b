"""`Responder`: load and lock the session, run the turn, save the session and its messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, cast
from weakref import WeakValueDictionary

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
"""The placeholder for an unset model name."""
HISTORY_LIMIT = 30


@dataclass(slots=True)
class PreparedTurn:
    """A turn that is ready to run: its message, its owner, and the session before the turn.

    If the message log and the sessions share one store, the turn saves both in one step, with the last message.
    """

    turn: AgentTurn
    session: SessionState
    key: SessionKey
    message: Message | None
    work: UserChat | TurnRequest | None = None
    problems: list[TurnProblem] = field(default_factory=list)
    idempotency_key: str | None = None
    decided_call_ids: tuple[str, ...] = ()
    repeated_response: Response | None = None
    message_is_stored: bool = False
    log_persistence: Persistence | None = None
    saved: bool = False
    saved_session: SessionState | None = None

    @property
    def turn_to_run(self) -> UserChat | TurnRequest:
        """The chat of a user with a memory, or else the request for the engine."""
        assert self.work is not None, "the response already exists"
        return self.work

    def stamp_session(self, session: SessionState, text: str) -> SessionState:
        """Add the owner, and the reply to a message with an idempotency key, to the session after the turn."""
        key = self.idempotency_key
        idempotent_reply = IdempotentReply(key, text) if key is not None else self.session.idempotent_reply
        return replace(session, idempotent_reply=idempotent_reply, owner=format_owner(self.key))

    def after(self, text: str, invoked: Sequence[ToolInvocation]) -> SessionTurn:
        """Return the session and messages to save with this reply."""
        assert self.log_persistence is not None
        self.saved_session = self.stamp_session(self.turn.session_after(), text)
        events = self.build_events(self.message, (*self.turn.invocations, *invoked), text)
        turn = self.log_persistence.build_session_turn(
            self.saved_session, events, agent_name=self.turn.name, user_id=get_user_id(self.key)
        )
        return replace(turn, tool_calls=turn.messages[-1].tool_calls)

    def build_events(self, message: Message | None, invocations: Sequence[ToolInvocation], text: str) -> list[Event]:
        """Build the history events of the turn: the message, the tool calls and the reply."""
        events = []
        if message is not None:
            events.append(create_message_event(EventSource.CUSTOMER, "user", message_text(message)))
        if invocations:
            calls = [
                {"tool_id": each.name, "arguments": dict(each.arguments), "result": each.content}
                for each in invocations
            ]
            events.append(create_tool_event(EventSource.AI_AGENT, calls))
        events.append(create_message_event(EventSource.AI_AGENT, self.turn.name, text))
        return events


class RespondArguments(TypedDict, total=False):
    """The keyword arguments of `respond` and `respond_stream`."""

    approvals: Mapping[str, Any] | None
    user: Any
    extras: Mapping[str, Any] | None
    sender: Identity | None
    metadata: Mapping[str, Any] | None
    idempotency_key: str | None
    trace_id: str | None
    wait: float


class Responder:
    """Runs an agent's turns."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._turns = TurnEngine()  # for turns without a user, which are not stored
        self._running_keys: set[SessionKey] = set()
        self._locks: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()
        self._attempts = TurnAttempts()

    async def respond(
        self,
        history: Any,
        session: SessionState | str | None,
        override: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> Response:
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
        saved_session = prepared.saved_session if prepared.saved else None
        response = replace(
            response,
            session=saved_session or prepared.stamp_session(response.session, response.message),
            problems=(*prepared.problems, *response.problems),
        )
        store = self._agent.persistence
        if saved_session is None:
            if prepared.log_persistence is not None:
                _raise_store_error(response)
            if store is not None and _saves_turns(store):
                message = None if prepared.message_is_stored else prepared.message
                events = prepared.build_events(message, response.tool_calls, response.message)
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
            raise InvalidArgumentError(f"context_override must be a mapping, got {override!r:.80}.")
        async with self._hold_session(session, arguments) as (state, user, key):
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
                raise InvalidArgumentError("idempotency_key requires persistence or memory: pass one to Agent(...).")
            if agent.persistence is not None and _saves_turns(agent.persistence):
                turn.validate_version = partial(_load_and_validate_version, agent.persistence, state)
            if user is None:
                prepared.work = self._build_request(turn, state, messages or (), arguments)
            else:
                prepared.work = self._build_chat(prepared, user, messages, arguments, approvals, resumes_reply)
            yield prepared

    @asynccontextmanager
    async def _hold_session(
        self, session: SessionState | str | None, arguments: RespondArguments
    ) -> AsyncIterator[tuple[SessionState, UserHandle | None, SessionKey]]:
        """Yield the session, locked in this process, its user and its key."""
        store = self._agent.persistence
        if isinstance(session, str):
            if store is None:
                raise InvalidArgumentError(
                    f"session {session!r} is an id, but the agent has no persistence: pass Agent(persistence=...), or"
                    " pass the last response's session."
                )
            async with self._wait_in_queue(session, arguments.get("wait", WAIT_SECONDS)):
                state = await store.load(session) or create_session(session)
                user, key = await self._resolve_user(state, arguments)
                async with self._run_exclusively(key, state):
                    yield state, user, key
            return
        if not isinstance(session, SessionState | None):
            raise InvalidArgumentError(f"session must be a SessionState or a session id, got {session!r:.80}.")
        state = create_session() if session is None else session
        user, key = await self._resolve_user(state, arguments)
        async with self._run_exclusively(key, state):
            if store is not None and session is not None:
                stored = await store.load(state.id)
                if stored is not None:
                    validate_owner(stored, key)
                if _saves_turns(store):
                    _validate_version(stored, state)
            yield state, user, key

    async def _resolve_user(
        self, session: SessionState, arguments: RespondArguments
    ) -> tuple[UserHandle | None, SessionKey]:
        user = await resolve_memory_user(self._agent.memory, session, arguments.get("user"))
        key = build_session_key(user, arguments.get("sender"), session)
        validate_owner(session, key)
        return user, key

    async def _is_message_stored(self, history: Any, prepared: PreparedTurn) -> bool:
        """Whether the application stored the user's message before it passed the history."""
        store = self._agent.persistence
        if store is None or prepared.message is None or isinstance(history, str | None):
            return False
        last = history_to_messages(await store.history(prepared.session.id, 1))[-1:]
        return bool(last) and last[0].role == "user" and message_text(last[0]) == message_text(prepared.message)

    def _validate_user(self, key: SessionKey) -> None:
        owner_id = getattr(self._agent.persistence, "user_id", None)
        if owner_id is not None and get_user_id(key) not in (None, owner_id):
            raise InvalidArgumentError(
                f"the agent's persistence belongs to user {owner_id!r}, but the sender is {get_user_id(key)!r:.80}."
            )

    @asynccontextmanager
    async def _wait_in_queue(self, id: str, wait: float) -> AsyncIterator[None]:
        turn = current_tool_host()
        if isinstance(turn, AgentTurn) and turn.session_id == id:  # it would wait for itself
            raise SessionConflictError(id, turn.version)
        # The dictionary references locks weakly: a lock exists while a turn holds it or waits for it. A traceback may
        # keep it longer than its event loop, so the loop is part of the key.
        lock = self._locks.setdefault((asyncio.get_running_loop(), id), asyncio.Lock())
        try:
            async with asyncio.timeout(validation.validate_seconds("wait", wait)):
                await lock.acquire()
        except TimeoutError:
            raise TurnConflictError(id, "", wait) from None
        try:
            yield
        finally:
            lock.release()

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
        return TurnRequest(
            None,
            None,
            options,
            user_messages=messages[-1:],
            session=Session(session.id),
            sender=arguments.get("sender"),
            extras=dict(validation.validate_mapping("extras", arguments.get("extras"))),
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
            turn.session_save, prepared.log_persistence = prepared, store
        options = agent.memory_options
        namespace = options.namespace_of(agent.name)
        last = messages[-1] if messages else None
        if not resumes_reply and (last is None or last.role != "user"):
            raise InvalidArgumentError("an agent with a memory needs a user message: pass one as history.")

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
    """Raise the log's error: without the log the session is not saved either, so the whole turn has failed."""
    for problem in reversed(response.problems):
        if problem.step in ("store_user", "store_reply"):
            raise problem.error


async def _load_and_validate_version(store: SessionStore, session: SessionState) -> None:
    """Raise if another process ran a turn while this one waited for the conversation."""
    _validate_version(await store.load(session.id), session)


def _validate_version(stored: SessionState | None, session: SessionState) -> None:
    version = 0 if stored is None else stored.version
    if version != session.version:
        raise SessionConflictError(session.id, session.version, version)


def _saves_turns(store: SessionStore) -> bool:
    """Whether turns are saved automatically; otherwise the application saves them."""
    return bool(getattr(store, "auto_save", True))


def _validate_options(options: Mapping[str, Any]) -> RespondArguments:
    if not isinstance(options.get("sender"), Identity | None):
        raise InvalidArgumentError(f"sender must be an Identity, got {options['sender']!r:.80}.")
    unknown = options.keys() - RespondArguments.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"respond got unknown arguments: {', '.join(sorted(unknown))}.")
    return cast("RespondArguments", options)
