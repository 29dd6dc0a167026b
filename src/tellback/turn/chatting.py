"""`user.chat`: the short way. It goes on with the conversation or opens one, remembers, answers, and keeps it all."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypedDict

from tellback.chat import ChatOptions, Model
from tellback.chat.offline import SET_UP, is_offline
from tellback.conversations import checks
from tellback.conversations.turn_requests import (
    Planner,
    Prepared,
    TurnArguments,
    TurnRequest,
    remembering,
    turn_request,
)
from tellback.errors import ConfigurationError, ConversationClosedError, InvalidArgumentError
from tellback.turn.attachments import as_message, attachments_of, summed_up, woven_in
from tellback.turn.handle import UserHandle, known_conversation
from tellback.turn.remembering import Remembering, await_memories, close_idle, refuse_bound
from tellback.turn.tolerating import tolerated
from tellback.turn.values import TurnResult, result_of
from tellback.types import ReplyDelta
from tellback.types.conversations import Conversation, TurnOutcome
from tellback.types.turns import Identity, Session, TurnProblem

CLOSE_AFTER = timedelta(hours=1)


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


class Chat:
    """One message of a chat, ready to be answered."""

    def __init__(
        self,
        user: UserHandle,
        text: str | None,
        namespace: str,
        space: str | None,
        model: str | Model | None,
        given: ChatArguments,
        *,
        planner: Planner | None = None,
        visibility: str = "user",
    ) -> None:
        self._user = user
        self._text = text
        self._namespace = checks.name("namespace", namespace)
        self._space = None if space is None else checks.name("space", space)
        self._model = model
        self._given = given
        self._planner = planner
        self._visibility = visibility
        self._problems: list[TurnProblem] = []
        unknown = given.keys() - ChatArguments.__annotations__.keys()
        if unknown:
            raise InvalidArgumentError(f"chat takes no {', '.join(sorted(unknown))}.")
        if text is None and given.get("approvals") is None:
            raise InvalidArgumentError("there is nothing to answer: pass a text, or approvals.")

    async def answer(self) -> TurnResult:
        """The answer, when it is complete."""
        asked = await self._request()
        try:
            outcome = await self._user.conversations.turns.run(asked)
        except ConversationClosedError:
            if not self._may_begin_anew:
                raise
            asked = await self._request()
            outcome = await self._user.conversations.turns.run(asked)
        return _result(asked, outcome)

    async def stream(self) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """The answer as it comes, and the result last."""
        asked = await self._request()
        items = self._user.conversations.turns.stream(asked)
        try:
            first = await anext(items)
        except ConversationClosedError:
            if not self._may_begin_anew:
                raise
            asked = await self._request()
            items = self._user.conversations.turns.stream(asked)
            first = await anext(items)
        async with aclosing(items):
            yield _result(asked, first) if isinstance(first, TurnOutcome) else first
            async for item in items:
                yield _result(asked, item) if isinstance(item, TurnOutcome) else item

    @property
    def _may_begin_anew(self) -> bool:
        """Whether the conversation that we found, and that was closed while we waited for it, may be another one."""
        return self._given.get("conversation_id") is None and self._text is not None

    async def _request(self) -> TurnRequest:
        asked = self._checked()
        id = await self._conversation_id()
        session = Session(self._given.get("session_id") or id or self._namespace, id)
        attachments = attachments_of(self._given.get("attachments"))
        said = self._text is not None and attachments
        assert asked.request is not None
        planner = self._planner
        draft = asked.draft
        return replace(
            asked,
            draft=None if draft is None else replace(draft, visibility=self._visibility),
            conversation_id=id,
            request=replace(asked.request, session=session, agent=planner),
            reply_to={"session_id": session.id},
            said=[as_message(woven_in(self._text or "", attachments), attachments)] if said else (),
            prepare=lambda: self._prepared(asked, id),
            lenient=True,
            plan=None if planner is None else planner.plan,
            reply_metadata=None if planner is None else planner.reply_metadata,
            planning_usage=None if planner is None else planner.planning_usage,
            session_end=None if planner is None else planner.session_end,
            agent=None if planner is None else planner.name,
            problems=self._problems,
        )

    def _checked(self) -> TurnRequest:
        """The turn, but for its conversation: none is opened for a mistake."""
        given, user = self._given, self._user
        content = None if self._text is None else summed_up(self._text, attachments_of(given.get("attachments")))
        more: TurnArguments = {
            "options": self._options(),
            "tools": given.get("tools"),
            "content": content,
            "approvals": given.get("approvals"),
            "extras": given.get("extras"),
            "metadata": given.get("metadata"),
            "idempotency_key": given.get("idempotency_key"),
            "trace_id": given.get("trace_id"),
            "sender": given.get("sender"),
        }
        if "wait" in given:
            more["wait"] = given["wait"]
        if given.get("memory_wait") is not None:
            checks.seconds("memory_wait", given["memory_wait"])
        checks.recall("recall", given.get("recall"))
        talks = user.conversations
        asked = turn_request(talks.runtime, user.scope, talks.build_context, "", self._model, None, **more)
        if self._planner is not None and is_offline(asked.options.model):
            raise ConfigurationError(
                f"Agent {self._planner.name!r} has no model: pass Agent(model=...), or set one for all. {SET_UP}"
            )
        return asked

    async def _conversation_id(self) -> str | None:
        """The conversation to go on with, or None if the store cannot tell."""
        named = self._given.get("conversation_id")
        if named is not None:
            known = await known_conversation(self._user, str(named))
            self._namespace = known.namespace
            return known.id
        if self._text is None:
            return await self._undecided()
        if self._space is None:
            await tolerated(refuse_bound(self._user, self._namespace), "recall", self._problems)
        closed = await tolerated(close_idle(self._user), "recall", self._problems)
        found = await tolerated(self._found_or_opened(), "store_user", self._problems)
        if found is not None and self._space is not None and (closed or not found.last_seq):
            seconds = self._given.get("memory_wait")
            await tolerated(await_memories(self._user, seconds), "recall", self._problems)
        return None if found is None else found.id

    async def _undecided(self) -> str:
        """The conversation whose calls are decided: it is there, or there is nothing to decide."""
        talks, session_id = self._user.conversations, self._given.get("session_id")
        found = await talks.find(self._namespace, session_id)
        if found is None and session_id is not None:  # it may have been closed meanwhile
            closed = await talks.list(self._namespace, "closed", limit=100)
            found = next((each for each in closed if each.session_id == session_id), None)
        if found is None:
            raise InvalidArgumentError(
                f"no conversation of {self._namespace!r} is open whose calls could be decided:"
                " pass conversation_id=..., as the reply that asked has it."
            )
        return found.id

    async def _found_or_opened(self) -> Conversation:
        given = self._given
        sender = given.get("sender")
        return await self._user.conversations.find_or_create(
            self._namespace,
            given.get("session_id"),
            metadata={"speakers": {"user": sender.name}} if sender is not None and sender.name else None,
            close_after=given.get("close_after", CLOSE_AFTER),
        )

    def _options(self) -> ChatOptions | Mapping[str, Any]:
        """The options as given, with what has a keyword of its own, and what is attached for skills to see."""
        options = self._given.get("options") or {}
        given: Mapping[str, Any] = self._given
        changes = {name: given[name] for name in ("system", "skills") if given.get(name) is not None}
        attached = {"attachments": list(attachments_of(given.get("attachments")))}
        if isinstance(options, ChatOptions):
            return replace(options, **changes, skill_context={**attached, **(options.skill_context or {})})
        if not isinstance(options, Mapping):
            raise ConfigurationError(f"options is a ChatOptions or a mapping, not {options!r:.80}.")
        return {**options, **changes, "skill_context": {**attached, **(options.get("skill_context") or {})}}

    async def _prepared(self, asked: TurnRequest, id: str | None) -> Prepared:
        """The working context; without it the turn goes on all the same, and says so."""
        build, system = self._user.conversations.build_context, asked.options.system
        recall = self._given.get("recall") or {}

        async def remembered(space_id: str | None) -> Prepared:
            return await remembering(build, id, space_id, recall, asked.draft, system)()

        memory = Remembering(self._user, self._namespace, self._space, only=True)
        work = remembered(None) if self._space is None else memory.using(remembered)
        return await tolerated(work, "recall", self._problems) or Prepared(system)


def _result(asked: TurnRequest, outcome: TurnOutcome) -> TurnResult:
    """The outcome, with the id of the message that was answered: of the one stored before, if it was sent again."""
    id = None
    if asked.draft is not None:
        first = outcome.appended_messages[0] if outcome.appended_messages else None
        id = first.id if first is not None and first.role == "user" else asked.draft.id
    return result_of(outcome, {**asked.reply_to, "message_id": id})
