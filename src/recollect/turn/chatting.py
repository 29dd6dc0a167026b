"""`user.chat`: the short way. It goes on with the conversation or opens one, remembers, answers, and keeps it all."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypedDict

from recollect.chat import ChatOptions, Model
from recollect.conversations import checks
from recollect.conversations.turn_requests import Prepared, TurnArguments, TurnRequest, remembering, turn_request
from recollect.errors import ConfigurationError, EmbeddingError, InvalidArgumentError, StoreError
from recollect.turn.attachments import as_message, attachments_of, summed_up, woven_in
from recollect.turn.handle import UserHandle, known_conversation
from recollect.turn.remembering import Remembering, close_idle
from recollect.turn.values import TurnResult, result_of
from recollect.types import ReplyDelta
from recollect.types.conversations import TurnOutcome
from recollect.types.turns import Identity, Session, TurnProblem

CLOSE_AFTER = timedelta(hours=1)
MEMORY_SECONDS = 15.0


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
    memory_wait: float
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
    ) -> None:
        self._user = user
        self._text = text
        self._namespace = checks.name("namespace", namespace)
        self._space = None if space is None else checks.name("space", space)
        self._model = model
        self._given = given
        self._problems: list[TurnProblem] = []
        unknown = given.keys() - ChatArguments.__annotations__.keys()
        if unknown:
            raise InvalidArgumentError(f"chat takes no {', '.join(sorted(unknown))}.")
        if text is None and given.get("approvals") is None:
            raise InvalidArgumentError("there is nothing to answer: pass a text, or approvals.")

    async def answer(self) -> TurnResult:
        """The answer, when it is complete."""
        asked = await self._request()
        return result_of(await self._user.conversations.turns.run(asked), self._ids(asked))

    async def stream(self) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """The answer as it comes, and the result last."""
        asked = await self._request()
        items = self._user.conversations.turns.stream(asked)
        try:
            async for item in items:
                yield result_of(item, self._ids(asked)) if isinstance(item, TurnOutcome) else item
        finally:
            await items.aclose()

    def _ids(self, asked: TurnRequest) -> dict[str, Any]:
        return {**asked.reply_to, "message_id": None if asked.draft is None else asked.draft.id}

    async def _request(self) -> TurnRequest:
        given, user = self._given, self._user
        conversation_id = await self._conversation_id()
        attachments = attachments_of(given.get("attachments"))
        content = None if self._text is None else summed_up(self._text, attachments)
        more: TurnArguments = {
            "options": self._options(),
            "tools": given.get("tools"),
            "content": content,
            "approvals": given.get("approvals"),
            "extras": given.get("extras"),
            "metadata": given.get("metadata"),
            "idempotency_key": given.get("idempotency_key"),
            "trace_id": given.get("trace_id"),
            "session": Session(given.get("session_id") or conversation_id, conversation_id=conversation_id),
            "sender": given.get("sender"),
        }
        if "wait" in given:
            more["wait"] = given["wait"]
        talks = user.conversations
        asked = turn_request(talks.runtime, user.scope, talks.build_context, conversation_id, self._model, None, **more)
        said = self._text is not None and attachments
        return replace(
            asked,
            said=[as_message(woven_in(self._text or "", attachments), attachments)] if said else (),
            prepare=lambda: self._prepared(asked),
            lenient=True,
            problems=self._problems,
        )

    async def _conversation_id(self) -> str:
        """The conversation to go on with. Those that were left are closed first: they are what is remembered."""
        given, talks = self._given, self._user.conversations
        if self._space is not None:
            seconds = checks.seconds("memory_wait", given.get("memory_wait", MEMORY_SECONDS))
            try:
                await close_idle(self._user, seconds)
            except StoreError as error:
                self._problems.append(TurnProblem("recall", error))
        if given.get("conversation_id") is not None:
            return (await known_conversation(self._user, str(given["conversation_id"]))).id
        sender = given.get("sender")
        found = await talks.find_or_create(
            self._namespace,
            given.get("session_id"),
            metadata={"speakers": {"user": sender.name}} if sender is not None and sender.name else None,
            close_after=given.get("close_after", CLOSE_AFTER),
        )
        return found.id

    def _options(self) -> ChatOptions | Mapping[str, Any]:
        options = self._given.get("options") or {}
        given: Mapping[str, Any] = self._given
        changes = {name: given[name] for name in ("system", "skills") if given.get(name) is not None}
        if isinstance(options, ChatOptions):
            return replace(options, **changes)
        if not isinstance(options, Mapping):
            raise ConfigurationError(f"options is a ChatOptions or a mapping, not {options!r:.80}.")
        return {**options, **changes}

    async def _prepared(self, asked: TurnRequest) -> Prepared:
        """The working context; without it the turn goes on all the same, and says so."""
        assert asked.conversation_id is not None
        build, id, system = self._user.conversations.build_context, asked.conversation_id, asked.options.system
        recall = self._given.get("recall") or {}

        async def remembered(space_id: str | None) -> Prepared:
            return await remembering(build, id, space_id, recall, asked.draft, system)()

        try:
            if self._space is None:
                return await remembered(None)
            return await Remembering(self._user, self._namespace, self._space).using(remembered)
        except (StoreError, EmbeddingError) as error:
            self._problems.append(TurnProblem("recall", error))
            return Prepared(system)
