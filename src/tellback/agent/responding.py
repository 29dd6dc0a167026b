"""How an agent responds: it finds the session and whose memory it is, runs the turn, and saves what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, cast

from tellback.agent.begun import Begun, LoggedEnd, events_of_turn
from tellback.agent.deciding import decide, decision_note
from tellback.agent.events import messages_of
from tellback.agent.hooks import call_after
from tellback.agent.memory import tools_of, user_of
from tellback.agent.owning import Key, key_of, refuse_foreign, user_id_of
from tellback.agent.persistence import Persistence
from tellback.agent.response import Response, StreamChunk, last_chunk
from tellback.agent.session import SessionState, create_session
from tellback.agent.sessions import SessionStore
from tellback.agent.setting import UNSET
from tellback.agent.tries import Tries
from tellback.agent.turn import AgentTurn
from tellback.chat.approval import Approval
from tellback.conversations import checks
from tellback.conversations.turn_requests import WAIT_SECONDS, TurnRequest
from tellback.conversations.turns import unkept_turns
from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    SessionConflictError,
    TurnConflictError,
)
from tellback.request import Request
from tellback.tools import Tool
from tellback.tools.context import running
from tellback.turn.chatting import Chat, ChatArguments
from tellback.turn.handle import UserHandle
from tellback.turn.tolerating import tolerated
from tellback.turn.values import TurnResult, result_of
from tellback.types import Message, ReplyDelta, TextDelta, message_text
from tellback.types.conversations import TurnOutcome
from tellback.types.scope import Scope
from tellback.types.turns import Identity, Session

if TYPE_CHECKING:
    from tellback.agent.agent import Agent

TAIL = 30
_NOBODY = Scope("", "", "")


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
class _Line:
    """Those who wait for a session, one after another."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Responding:
    """Answers for an agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._turns = unkept_turns(lambda: agent.clock())
        self._running: set[Key] = set()
        self._lines: dict[str, _Line] = {}
        self._tries = Tries()

    async def respond(
        self,
        history: Any,
        session: SessionState | str | None,
        override: Mapping[str, Any] | None,
        more: Mapping[str, Any],
    ) -> Response:
        """The answer, when it is complete."""
        async with self._begun(history, session, override, more) as begun:
            if begun.again is not None:
                return begun.again
            if begun.chat is not None:
                result = await begun.chat.answer()
            else:
                assert begun.request is not None
                result = result_of(await self._turns.run(begun.request), begun.request.reply_to)
            response = await self._ended(begun, result)
        await call_after(self._agent.after_response, response)
        return response

    async def stream(
        self,
        history: Any,
        session: SessionState | str | None,
        override: Mapping[str, Any] | None,
        more: Mapping[str, Any],
    ) -> AsyncGenerator[StreamChunk, None]:
        """The answer as it comes, and the response last."""
        accumulated = ""
        async with self._begun(history, session, override, more) as begun:
            if begun.again is not None:
                yield StreamChunk(begun.again.message, begun.again.message)
                yield last_chunk(begun.again.message, begun.again)
                return
            items: AsyncGenerator[ReplyDelta | TurnResult | TurnOutcome, None]
            if begun.chat is not None:
                items = begun.chat.stream()
            else:
                assert begun.request is not None
                items = self._turns.stream(begun.request)
            async with aclosing(items):
                async for item in items:
                    if isinstance(item, TextDelta):
                        accumulated += item.text
                        yield StreamChunk(item.text, accumulated)
                    elif isinstance(item, TurnOutcome):
                        result = result_of(item, {})
                    elif isinstance(item, TurnResult):
                        result = item
            response = await self._ended(begun, result)
        await call_after(self._agent.after_response, response)
        yield last_chunk(accumulated, response)

    async def _ended(self, begun: Begun, result: TurnResult) -> Response:
        response = begun.turn.response(result)
        saved = None if begun.end is None or not begun.end.saved else begun.end.session
        response = replace(response, session=saved or begun.noted(response.session, response.message))
        if begun.problems:
            response = replace(response, problems=(*begun.problems, *response.problems))
        store = self._agent.persistence
        if begun.end is not None and saved is None:
            _raise_unstored(response)
        if store is not None and _saves(store) and saved is None:
            heard = None if begun.is_stored else begun.said
            said = events_of_turn(self._agent.name, heard, response)
            user_id = user_id_of(begun.key)
            await store.save(response.session, said, agent_name=self._agent.name, user_id=user_id)
        self._tries.forget((*begun.key, begun.session.version))
        for id in (*begun.decided, *begun.turn.caught_up):
            self._tries.decide(id)
        return response

    @asynccontextmanager
    async def _begun(
        self,
        history: Any,
        session: SessionState | str | None,
        override: Mapping[str, Any] | None,
        more: Mapping[str, Any],
    ) -> AsyncIterator[Begun]:
        agent = self._agent
        agent.check()
        given = _arguments(more)
        if not isinstance(override, Mapping | None):
            raise InvalidArgumentError(f"context_override is a mapping, not {override!r:.80}.")
        async with self._held(session, given) as (found, user):
            decisions = decide(agent, given.get("approvals"), history, found, self._tries)
            approvals, goes_on, found = decisions.approvals, decisions.goes_on, decisions.session
            messages = None if history is None else messages_of(history)
            if approvals:
                messages = messages_of(decision_note(found, approvals))
            if agent.persistence is not None and user is None and isinstance(history, str | None):
                messages = [*messages_of(await agent.persistence.history(found.id, TAIL)), *(messages or ())]
            key = key_of(user, given.get("sender"), found)
            self._refuse_other_user(key)
            turn = AgentTurn(
                agent,
                found,
                None if user is not None and isinstance(history, str | None) else messages or (),
                override,
                approvals=approvals,
                goes_on=goes_on,
                done=self._tries.of((*key, found.version)),
            )
            said = messages[-1] if messages and messages[-1].role == "user" and not approvals else None
            begun = Begun(turn, found, key, None if history is None else said, decided=tuple(approvals))
            begun.idempotency_key = given.get("idempotency_key")
            begun.is_stored = await self._is_stored(history, begun)
            if found.answered is not None and found.answered.key == begun.idempotency_key:
                begun.again = Response(found.answered.message, found)
                yield begun
                return
            if begun.idempotency_key is not None and user is None and agent.persistence is None:
                raise InvalidArgumentError("idempotency_key needs something that remembers it: persistence or memory.")
            if agent.persistence is not None and _saves(agent.persistence):
                turn.still_due = partial(self._still_due, agent.persistence, found)
            if user is None:
                begun.request = self._request(turn, found, messages or (), given)
            else:
                begun.chat = self._chat(begun, user, messages, given, approvals, goes_on)
            yield begun

    @asynccontextmanager
    async def _held(
        self, session: SessionState | str | None, given: RespondArguments
    ) -> AsyncIterator[tuple[SessionState, UserHandle | None]]:
        """The session, which no other turn of this process has meanwhile, and the user whose it is."""
        agent, store = self._agent, self._agent.persistence
        if isinstance(session, str):
            if store is None:
                raise InvalidArgumentError(
                    f"session {session!r} is only named: pass Agent(persistence=...), or the last response's session."
                )
            async with self._in_line(session, given.get("wait", WAIT_SECONDS)):
                found = await store.load(session) or create_session(session)
                user = await user_of(agent.memory, found, given.get("user"))
                refuse_foreign(found, key_of(user, given.get("sender"), found))
                async with self._alone(key_of(user, given.get("sender"), found), found):
                    yield found, user
            return
        if not isinstance(session, SessionState | None):
            raise InvalidArgumentError(f"session is a SessionState or the id of one, not {session!r:.80}.")
        found = create_session() if session is None else session
        user = await user_of(agent.memory, found, given.get("user"))
        refuse_foreign(found, key_of(user, given.get("sender"), found))
        async with self._alone(key_of(user, given.get("sender"), found), found):
            if store is not None and session is not None:
                stored = await store.load(found.id)
                if stored is not None:
                    refuse_foreign(stored, key_of(user, given.get("sender"), stored))
                version = 0 if stored is None else stored.version
                if version != found.version and _saves(store):
                    raise SessionConflictError(found.id, found.version, version)
            yield found, user

    async def _is_stored(self, history: Any, begun: Begun) -> bool:
        """Whether the application has saved what the user said before it passed the history that ends with it."""
        store = self._agent.persistence
        if store is None or begun.said is None or isinstance(history, str | None):
            return False
        last = messages_of(await store.history(begun.session.id, 1))[-1:]
        return bool(last) and last[0].role == "user" and message_text(last[0]) == message_text(begun.said)

    def _refuse_other_user(self, key: Key) -> None:
        whose = getattr(self._agent.persistence, "user_id", None)
        if whose is not None and user_id_of(key) not in (None, whose):
            raise InvalidArgumentError(
                f"the agent's persistence is of user {whose!r}, and it was {user_id_of(key)!r:.80} who spoke."
            )

    @asynccontextmanager
    async def _in_line(self, id: str, wait: float) -> AsyncIterator[None]:
        turn = running()
        if isinstance(turn, AgentTurn) and turn.session_id == id:  # it would wait for itself
            raise SessionConflictError(id, turn.version)
        line = self._lines.setdefault(id, _Line())
        line.waiting += 1
        try:
            try:
                async with asyncio.timeout(checks.seconds("wait", wait)):
                    await line.lock.acquire()
            except TimeoutError:
                raise TurnConflictError(id, "of this session", wait) from None
            try:
                yield
            finally:
                line.lock.release()
        finally:
            line.waiting -= 1
            if not line.waiting:
                del self._lines[id]

    async def _still_due(self, store: SessionStore, session: SessionState) -> None:
        """Another process may have taken a turn while this one waited for the conversation: then nothing is done."""
        stored = await store.load(session.id)
        version = 0 if stored is None else stored.version
        if version != session.version:
            raise SessionConflictError(session.id, session.version, version)

    @asynccontextmanager
    async def _alone(self, key: Key, session: SessionState) -> AsyncIterator[None]:
        if key in self._running:
            raise SessionConflictError(session.id, session.version)
        self._running.add(key)
        try:
            yield
        finally:
            self._running.discard(key)

    def _request(self, turn: AgentTurn, session: SessionState, messages: Any, given: RespondArguments) -> TurnRequest:
        agent = self._agent
        options = agent.options
        if agent.model is not None:
            options = replace(options, model=agent.model)
        elif options.model == UNSET:
            raise ConfigurationError(f"{agent.place} has no model: pass Agent(model=...).")
        extras = given.get("extras")
        checks.context_values("extras", extras)
        return TurnRequest(
            scope=_NOBODY,
            conversation_id=None,
            options=options,
            draft=None,
            said=messages[-1:],
            request=Request(Session(session.id), given.get("sender"), dict(extras or {}), agent=turn),
            reply_to={"session_id": session.id},
            keeps_user=False,
            keeps_reply=False,
            plan=turn.plan,
            planning_usage=turn.planning_usage,
            agent=agent.name,
            trace_id=given.get("trace_id"),
        )

    def _chat(
        self,
        begun: Begun,
        user: UserHandle,
        messages: list[Message] | None,
        given: RespondArguments,
        approvals: Mapping[str, Approval],
        goes_on: bool,
    ) -> Chat:
        agent, turn = self._agent, begun.turn
        store = agent.persistence
        log = user.conversations.runtime.store
        if isinstance(store, Persistence) and store.auto_save and store.is_beside(log, user.scope):
            turn.session_end = begun.end = LoggedEnd(begun, store, agent.name)
        options = agent.memory_options
        namespace = options.namespace_of(agent.name)
        last = messages[-1] if messages else None
        if not goes_on and (last is None or last.role != "user"):
            raise InvalidArgumentError("with a memory the user speaks first: pass what they said.")

        async def tools() -> Sequence[Tool]:
            return await tolerated(tools_of(user, namespace, options), "recall", begun.problems) or ()

        turn.memory_tools = tools
        more: ChatArguments = {
            "options": replace(agent.options, model="") if agent.options.model == UNSET else agent.options,
            "session_id": begun.session.id,
            "recall": options.recall,
            "close_after": options.close_after,
        }
        for name in ("extras", "sender", "metadata", "idempotency_key", "trace_id", "wait"):
            if given.get(name) is not None:
                more[name] = given[name]
        if goes_on:
            more["approvals"] = given.get("approvals")
        text = None if goes_on or last is None else message_text(last)
        visibility = "internal" if approvals else "user"
        return Chat(user, text, namespace, options.space, agent.model, more, planner=turn, visibility=visibility)


def _raise_unstored(response: Response) -> None:
    """What the log did not take, its session has not taken either: then the turn has failed as a whole."""
    for problem in reversed(response.problems):
        if problem.step in ("store_user", "store_reply"):
            raise problem.error


def _saves(store: SessionStore) -> bool:
    """Whether turns are saved there; otherwise it is for the application to do."""
    return bool(getattr(store, "auto_save", True))


def _arguments(more: Mapping[str, Any]) -> RespondArguments:
    if not isinstance(more.get("sender"), Identity | None):
        raise InvalidArgumentError(f"sender is an Identity, not {more['sender']!r:.80}.")
    unknown = more.keys() - RespondArguments.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"respond takes no {', '.join(sorted(unknown))}.")
    return cast("RespondArguments", more)
