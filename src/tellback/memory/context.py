"""`user.working_context`: what a model should know before it answers, within a token budget.

Four sections: the rolling summary, always-on memories, recalled memories, recent turns. Over budget, the oldest turns
go first, then the weakest memories that were recalled.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from tellback.chat.budget import MEDIA_TOKENS, count_tokens_heuristic, estimate_system_tokens
from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.memory.material import ContextDraft, ContextSources, Turn, group_turns
from tellback.memory.templates import Templates
from tellback.types import Message, message_text
from tellback.types.context import WorkingContext
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.jsontext import dump_json
from tellback.types.memory import Atom, MemorySpace, RecallHit, RecallResult
from tellback.types.times import utc_now

TokenCounter = Callable[[str], int | Awaitable[int]]
"""How many tokens a text has, such as your provider's own count; it may be async."""

PAGE_SIZE = 50
MAX_PAGE_SIZE = 1_000
SPARE_HITS = 8
MAX_SPARE_HITS = 200
PRESENT_TOLERANCE = timedelta(minutes=1)
"""So near to the clock, `now` is the present: whoever passes it read a clock a moment before, or another one."""


class ConversationReader(Protocol):
    """What is asked of `user.conversations`."""

    async def get(self, id: str) -> Conversation | None: ...

    async def raw_turns(self, id: str, limit: int | None = None, before: int | None = None) -> list[StoredMessage]: ...


class MemoryReader(Protocol):
    """What is asked of `user.memory`."""

    async def get_space(self, space_id: str, /) -> MemorySpace | None: ...

    async def list_atoms(
        self, space_id: str, *, categories: Sequence[str], limit: int | None, valid_at: datetime | None
    ) -> list[Atom]: ...

    async def recall_by_topic(
        self, space_id: str, query: str, *, limit: int, valid_at: datetime | None, now: datetime | None
    ) -> RecallResult: ...


class WorkingContextBuilder:
    """Builds the working context of a user's conversations."""

    def __init__(
        self,
        conversations: ConversationReader,
        memory: MemoryReader,
        templates: Templates | None = None,
        count_tokens: TokenCounter | None = None,
        *,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._conversations = conversations
        self._memory = memory
        self._templates = Templates() if templates is None else templates
        self._count_tokens = count_tokens
        self._clock = clock

    async def build(
        self,
        conversation_id: str | None,
        memory_space_id: str | None = None,
        recall_query: str | None = None,
        recent_turns: int | None = 10,
        recall_limit: int | None = 8,
        token_budget: int | None = 8_000,
        include_rolling_summary: bool | None = True,
        always_on_category_names: Sequence[str] | None = (),
        template_id: str | None = "default",
        *,
        count_tokens: TokenCounter | None = None,
        now: datetime | str | None = None,
        min_score: float | None = None,
    ) -> WorkingContext:
        """Put together what a model should know before it answers in this conversation, or with None, in a new one.

        - Without `memory_space_id` nothing is remembered. `recall_query` is what to recall by; without one it is the
          last thing the user said.
        - `always_on_category_names` are categories whose memories are in it whatever is asked.
        - `template_id` is "default" (plain text), "xml", "messages" (the turns follow as messages), or your own.
        - `count_tokens` counts a text's tokens, by default about four characters each.
        - None stands for an argument's default.
        - `min_score` (0 to 1) leaves out what was recalled with a lower score.
        - `now` builds it as of another moment: of the past with what held then, otherwise with what is not over.
        """
        template = self._templates.get("default" if template_id is None else template_id)
        recent_turns = checks.validate_count("recent_turns", 10 if recent_turns is None else recent_turns)
        recall_limit = checks.validate_count("recall_limit", 8 if recall_limit is None else recall_limit)
        token_budget = checks.validate_count("token_budget", 8_000 if token_budget is None else token_budget)
        always_on_names = _validate_category_names(always_on_category_names or ())
        query = checks.validate_optional_text("recall_query", recall_query, checks.CONTENT_LENGTH)
        score_threshold = _validate_score("min_score", min_score)
        present = self._clock()
        moment = present if now is None else checks.parse_datetime("now", now)
        moment = present if abs(moment - present) <= PRESENT_TOLERANCE else moment
        valid_at = moment if moment < present else None
        counter = count_tokens or self._count_tokens
        if counter is not None and not callable(counter):
            raise InvalidArgumentError(f"count_tokens is a function from a text to a number, not {counter!r:.80}.")

        conversation = None
        if conversation_id is not None:
            conversation = await self._conversations.get(checks.validate_id("conversation", conversation_id))
            if conversation is None:
                raise NotFoundError("conversation", conversation_id)
        should_recall = memory_space_id is not None and recall_limit > 0
        turns: list[Turn] = []
        if conversation is not None and (recent_turns or (should_recall and query is None)):
            messages = await self._load_recent_messages(conversation.id, recent_turns)
            turns = group_turns(messages, recent_turns)
            query = _last_user_text(messages) if query is None else query
        query = query if should_recall and query and query.strip() else None

        always_on_atoms: list[Atom] = []
        hits: Sequence[RecallHit] = ()
        if memory_space_id is not None:
            space_id = checks.validate_id("space", memory_space_id)
            if always_on_names:
                always_on_atoms = await self._memory.list_atoms(
                    space_id, categories=always_on_names, limit=None, valid_at=valid_at
                )
                if moment > present:
                    always_on_atoms = [
                        atom for atom in always_on_atoms if atom.valid_to is None or atom.valid_to > moment
                    ]
                always_on_atoms = sorted(always_on_atoms, key=lambda atom: _always_on_sort_key(atom, always_on_names))
            if query is not None:
                # Some hits will be left out: they are always on, or say what the recent turns say.
                message_count = sum(len(turn.messages) for turn in turns)
                limit = recall_limit + len(always_on_atoms) + min(max(SPARE_HITS, message_count), MAX_SPARE_HITS)
                recalled = await self._memory.recall_by_topic(
                    space_id, query, limit=limit, valid_at=valid_at, now=moment
                )
                hits = [hit for hit in recalled.hits if hit.score >= score_threshold]
            elif not always_on_names and await self._memory.get_space(space_id) is None:
                raise NotFoundError("space", space_id)

        sources = ContextSources(
            template=template,
            now=moment,
            summary=conversation.rolling_summary if conversation and include_rolling_summary is not False else None,
            always_on=tuple(always_on_atoms),
            candidates=tuple(hits),
            recall_limit=recall_limit,
            turns=tuple(turns),
        )
        return await _BudgetFitter(sources, counter, token_budget).fit(query)

    async def _load_recent_messages(self, id: str, turns: int) -> list[StoredMessage]:
        """The end of the conversation: at least that many turns and a bit, if there are as many."""
        size = min(max(PAGE_SIZE, 4 * turns), MAX_PAGE_SIZE)
        found: list[StoredMessage] = []
        while True:
            page = await self._conversations.raw_turns(id, limit=size, before=found[0].seq if found else None)
            found = [*page, *found]
            # One turn more than wanted: the oldest found may begin earlier still.
            if len(page) < size or len({message.turn_id for message in found}) > turns:
                return found


@dataclass(frozen=True, slots=True)
class _MeasuredDraft:
    draft: ContextDraft
    tokens: int
    fits: bool


class _BudgetFitter:
    """Finds the most that fits, by few counts: a counter may be a request to a provider."""

    def __init__(self, sources: ContextSources, counter: TokenCounter | None, budget: int) -> None:
        self._sources = sources
        self._counter = counter
        self._budget = budget

    async def fit(self, query: str | None) -> WorkingContext:
        sources = self._sources
        chosen = await self._measure(len(sources.turns), sources.recall_limit)
        if not chosen.fits:
            fewer_turns = await self._find_largest(len(sources.turns) - 1, lambda n: (n, sources.recall_limit))
            chosen = fewer_turns or chosen
        if not chosen.fits:
            max_hits = len(sources.hits_for(0))
            fewer_hits = await self._find_largest(max_hits - 1, lambda n: (0, n))
            chosen = fewer_hits or await self._measure(0, 0)
        draft = chosen.draft
        available_hits = len(sources.hits_for(draft.turns))
        return WorkingContext(
            context_block=draft.block,
            messages=sources.messages(draft),
            atoms_used=(*sources.always_on, *(hit.atom for hit in draft.hits)),
            tokens_estimated=chosen.tokens,
            over_budget=not chosen.fits,
            hits=draft.hits,
            turns_used=draft.turns,
            turns_dropped=len(sources.turns) - draft.turns,
            hits_dropped=available_hits - len(draft.hits),
            recall_query=query,
            remembers=bool(sources.summary or sources.always_on or draft.hits),
        )

    async def _find_largest(self, high: int, sizes: Callable[[int], tuple[int, int]]) -> _MeasuredDraft | None:
        """The largest of 0..most that fits, where more is never smaller; where it is, one that fits all the same."""
        found = None
        low = 0
        while low <= high:
            middle = (low + high + 1) // 2
            measured = await self._measure(*sizes(middle))
            if measured.fits:
                found, low = measured, middle + 1
            else:
                high = middle - 1
        return found

    async def _measure(self, turns: int, hits: int) -> _MeasuredDraft:
        draft = self._sources.draft(turns, hits)
        if self._sources.template.kind == "messages":
            tokens = await self._count_messages(self._sources.messages(draft))
            return _MeasuredDraft(draft, tokens, tokens <= self._budget)
        tokens = await self._count(draft.block)
        return _MeasuredDraft(draft, tokens, tokens <= self._budget and await self._messages_fit(draft))

    async def _messages_fit(self, draft: ContextDraft) -> bool:
        """Whether a block that fits does so as messages. These are asked about only if they say more than the block:
        pictures, what is not shown there, turns that a template leaves out."""
        if not draft.turns:
            return True
        messages = self._sources.messages(draft)
        if (
            self._counter is not None
            and not _media_tokens(messages)
            and _byte_length(_join_messages(messages)) <= _byte_length(draft.block)
        ):
            return True
        return await self._count_messages(messages) <= self._budget

    async def _count_messages(self, messages: Sequence[Message]) -> int:
        if self._counter is None:
            return count_tokens_heuristic(messages)
        return await self._count(_join_messages(messages)) + _media_tokens(messages)

    async def _count(self, text: str) -> int:
        if self._counter is None:
            return estimate_system_tokens(text)
        counted = self._counter(text)
        if inspect.isawaitable(counted):
            counted = await counted
        if isinstance(counted, bool) or not isinstance(counted, int) or counted < 0:
            raise InvalidArgumentError(f"count_tokens gives a whole number of tokens, not {counted!r:.80}.")
        return counted


def _validate_category_names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence | set | frozenset):
        raise InvalidArgumentError(f"always_on_category_names is a list of names, not {names!r:.80}.")
    return tuple(dict.fromkeys(checks.validate_name("a category's name", name) for name in names))


def _validate_score(what: str, value: float | None) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidArgumentError(f"{what} is a number from 0 to 1, not {value!r:.80}.")
    return float(value)


def _always_on_sort_key(atom: Atom, names: Sequence[str]) -> tuple[int, int, float, str]:
    """By category as they were named, then the important and the newer first; the same every time."""
    position = names.index(atom.category.name) if atom.category.name in names else len(names)
    return position, -atom.importance, -atom.valid_from.timestamp(), atom.id


def _last_user_text(messages: Sequence[StoredMessage]) -> str | None:
    for message in reversed(messages):
        if message.role == "user" and message.visibility == "user" and message.text.strip():
            return message.text[: checks.QUERY_LENGTH]
    return None


def _byte_length(text: str) -> int:
    """In bytes: invisible characters are few and have many tokens."""
    return len(text.encode(errors="replace"))


def _media_tokens(messages: Sequence[Message]) -> int:
    return sum(MEDIA_TOKENS.get(part.kind, 0) for message in messages for part in message.parts or ())


def _join_messages(messages: Sequence[Message]) -> str:
    return "\n".join(map(_format_message, messages))


def _format_message(message: Message) -> str:
    calls = "".join(f"\n{call.name} {dump_json(call.input)}" for call in message.tool_calls)
    return f"{message.role}: {message_text(message)}{calls}"
