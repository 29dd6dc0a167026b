"""`user.working_context`: the information a model needs before it answers, within a token budget.

It has four sections: the rolling summary, always-on memories, recalled memories and recent turns. Over budget, the
oldest turns are dropped first, then the weakest recalled memories.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from tellback import validation
from tellback.chat.history import repair_history
from tellback.chat.options import MEDIA_TOKENS, count_tokens_heuristic, estimate_system_tokens
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.memory.templates import Template, Templates, sanitize_block, sanitize_line
from tellback.portal import Handle
from tellback.types import Message, MessagePart, ToolCall, message_text, system_message
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.ids import to_micros, utc_now
from tellback.types.jsontext import dump_json
from tellback.types.memory import Atom, RecallHit, WorkingContext

if TYPE_CHECKING:
    from tellback.memory.memory import Memory

__all__ = ["WorkingContextBuilder"]

MAX_TOOL_TEXT = 2_000
"""How many characters of a tool's result or arguments are shown. Templates of the kind "messages" show everything."""

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_TemplateValues = Mapping[str, Any]

TokenCounter = Callable[[str], int | Awaitable[int]]
"""Counts the tokens of a text, for example with your provider's tokenizer. It may be async."""

PAGE_SIZE = 50
MAX_PAGE_SIZE = 1_000
SPARE_HITS = 8
MAX_SPARE_HITS = 200
PRESENT_TOLERANCE = timedelta(minutes=1)
"""A `now` this close to the clock means the present, because the caller read a clock slightly earlier."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The messages of one turn, oldest first."""

    id: str
    messages: tuple[StoredMessage, ...]


@dataclass(frozen=True, slots=True)
class ContextDraft:
    """The newest `turns` turns and the hits to show, as a text."""

    turns: int
    hits: tuple[RecallHit, ...]
    block: str


@dataclass(slots=True)
class ContextSources:
    """All possible contents. `candidates` are the recalled hits, the best first; some of them will be left out."""

    template: Template
    now: datetime
    summary: str | None
    always_on: tuple[Atom, ...]
    candidates: tuple[RecallHit, ...]
    recall_limit: int
    turns: tuple[Turn, ...]
    _values_by_atom: dict[str, _TemplateValues] = field(default_factory=dict)
    _messages_by_id: dict[str, tuple[Message, ...]] = field(default_factory=dict)
    _lines_by_turn: dict[str, tuple[tuple[int, _TemplateValues], ...]] = field(default_factory=dict)
    _last_messages: tuple[ContextDraft, tuple[Message, ...]] | None = None
    _summary: str = ""
    _always_on: list[_TemplateValues] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = {atom.id for atom in self.always_on}
        self.candidates = tuple(hit for hit in self.candidates if hit.atom.id not in known)
        self._summary = sanitize_block(self.summary or "").strip()
        self._always_on = [_atom_values(atom) for atom in self.always_on]

    def hits_for(self, turns: int) -> tuple[RecallHit, ...]:
        """Return the hits to show with the newest `turns` turns, without hits that only repeat these turns."""
        message_ids = {message.id for turn in self._newest_turns(turns) for message in turn.messages}
        fresh = [hit for hit in self.candidates if not message_ids or not _is_covered(hit.atom, message_ids)]
        return tuple(fresh[: self.recall_limit])

    def draft(self, turns: int, hits: int) -> ContextDraft:
        """Build the context with the newest `turns` turns and the best `hits` hits."""
        chosen_hits = self.hits_for(turns)[:hits]
        lines: list[_TemplateValues] = []
        if self.template.kind == "block":
            numbered = [line for turn in self._newest_turns(turns) for line in self._lines_for(turn)]
            lines = [view for _, view in sorted(numbered, key=lambda line: line[0])]
        return ContextDraft(turns, chosen_hits, self._render(chosen_hits, lines))

    def messages(self, draft: ContextDraft) -> tuple[Message, ...]:
        """Build the same context as messages: a system message without the turns, then the turns. For a template of the
        kind "block", tool texts are cut."""
        if self._last_messages is not None and self._last_messages[0] is draft:
            return self._last_messages[1]
        stored = sorted(
            (message for turn in self._newest_turns(draft.turns) for message in turn.messages), key=attrgetter("seq")
        )
        history = repair_history([message for each in stored for message in self._messages_for(each)])
        has_turns = self.template.kind == "block" and draft.turns > 0
        system = self._render(draft.hits, []) if has_turns else draft.block
        found = (*((system_message(system),) if system.strip() else ()), *history)
        self._last_messages = (draft, found)
        return found

    def _messages_for(self, stored: StoredMessage) -> tuple[Message, ...]:
        if stored.id not in self._messages_by_id:
            messages = stored.messages
            found = tuple(map(_truncate_message, messages) if self.template.kind == "block" else messages)
            self._messages_by_id[stored.id] = found
        return self._messages_by_id[stored.id]

    def _lines_for(self, turn: Turn) -> tuple[tuple[int, _TemplateValues], ...]:
        """Return the transcript lines of a turn, each with its `seq`."""
        if turn.id not in self._lines_by_turn:
            self._lines_by_turn[turn.id] = tuple(_transcript_lines(turn.messages))
        return self._lines_by_turn[turn.id]

    def _newest_turns(self, turns: int) -> Sequence[Turn]:
        return self.turns[len(self.turns) - turns :]

    def _render(self, hits: Sequence[RecallHit], lines: Sequence[_TemplateValues]) -> str:
        has_memory = bool(self._summary or self._always_on or hits)
        return self.template.render(
            {
                "now": self.now.date().isoformat(),
                "weekday": _WEEKDAYS[self.now.weekday()],
                "summary": self._summary,
                "always_on": self._always_on,
                "recalled": [self._hit_values(hit) for hit in hits],
                "turns": lines,
                "has_summary": bool(self._summary),
                "has_always_on": bool(self._always_on),
                "has_recalled": bool(hits),
                "has_turns": bool(lines),
                "has_memory": has_memory,
                "has_record": has_memory or bool(lines),
            }
        )

    def _hit_values(self, hit: RecallHit) -> _TemplateValues:
        if hit.atom.id not in self._values_by_atom:
            around = [{"text": sanitize_line(atom.text), "date": _format_date(atom.valid_from)} for atom in hit.context]
            source = hit.atom.source_conversation_id or ""
            more = {"score": f"{hit.score:.2f}", "source": source, "context": around}
            self._values_by_atom[hit.atom.id] = {**_atom_values(hit.atom), **more}
        return self._values_by_atom[hit.atom.id]


def group_turns(messages: Sequence[StoredMessage], limit: int) -> list[Turn]:
    """Group messages into turns, and return the newest `limit` turns, oldest first."""
    by_turn: dict[str, list[StoredMessage]] = {}
    for message in messages:
        by_turn.setdefault(message.turn_id, []).append(message)
    newest = [*by_turn.items()][max(len(by_turn) - limit, 0) :]
    return [Turn(id, tuple(found)) for id, found in newest]


def _is_covered(atom: Atom, message_ids: set[str]) -> bool:
    return bool(atom.source_message_ids) and message_ids.issuperset(atom.source_message_ids)


def _atom_values(atom: Atom) -> _TemplateValues:
    return {
        "id": atom.id,
        "text": sanitize_line(atom.text),
        "date": _format_date(atom.valid_from),
        "until": "" if atom.valid_to is None else _format_date(atom.valid_to),
        "category": sanitize_line(atom.category.name),
    }


def _transcript_lines(stored: Iterable[StoredMessage]) -> Iterable[tuple[int, _TemplateValues]]:
    for record in stored:
        for message in record.messages:
            text = _render_text(message)
            if text:
                name = f" {sanitize_line(message.name)}" if message.role == "tool" and message.name else ""
                speaker = f"{sanitize_line(message.role)}{name}"
                date = _format_date(record.created_at)
                yield record.seq, {"role": message.role, "speaker": speaker, "text": text, "date": date}


def _render_text(message: Message) -> str:
    text = message_text(message)
    if message.role == "tool":
        text = _truncate(text) or "(nothing)"
        text = f"(failed) {text}" if message.is_error else text
    calls = [
        f"[calls {call.name}({_truncate(call.invalid_input or dump_json(call.input))})]" for call in message.tool_calls
    ]
    return sanitize_block("\n".join(filter(None, [text, *calls])))


def _truncate_message(message: Message) -> Message:
    """Cut the tool arguments and results of a message. Then remove the provider's state, which contains them in
    full."""
    if message.role == "tool":
        content = message.content if isinstance(message.content, str) else message_text(message)
        cut = replace(message, content=_truncate(content), parts=message.parts and _truncate_parts(message.parts))
        return message if cut == message else replace(cut, meta=None)
    calls = tuple(map(_truncate_call, message.tool_calls))
    return message if calls == message.tool_calls else replace(message, tool_calls=calls, meta=None)


def _truncate_parts(parts: Iterable[MessagePart]) -> tuple[MessagePart, ...]:
    remaining = MAX_TOOL_TEXT
    found: list[MessagePart] = []
    for part in parts:
        text = part.text or ""
        found.append(part if len(text) <= remaining else replace(part, text=_truncate(text, remaining)))
        remaining = max(remaining - len(text), 0)
    return tuple(found)


def _truncate_call(call: ToolCall) -> ToolCall:
    """Cut the arguments of a call. Each argument has its own limit, so short ones stay; a long one becomes the start of
    its JSON."""
    if len(dump_json(call.input)) <= MAX_TOOL_TEXT:
        return call
    limit = MAX_TOOL_TEXT // len(call.input)
    cut: dict[str, Any] = {}
    for name, value in call.input.items():
        text = value if isinstance(value, str) else dump_json(value)
        cut[name] = value if len(text) <= limit else _truncate(text, limit)
    return replace(call, input=cut, meta=None)


def _truncate(text: str, limit: int = MAX_TOOL_TEXT) -> str:
    omitted = len(text) - limit
    return text if omitted <= 0 else f"{text[:limit]}… ({omitted} more characters)"


def _format_date(moment: datetime) -> str:
    return moment.date().isoformat()


class ConversationReader(Protocol):
    """The part of `user.conversations` that is used here."""

    async def get(self, id: str) -> Conversation | None: ...

    async def raw_turns(self, id: str, limit: int | None = None, before: int | None = None) -> list[StoredMessage]: ...


class WorkingContextBuilder(Handle):
    """Builds the working context of a user's conversations.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     maya = tb.user("maya")
    ...     space = maya.memory.create_space("life")
    ...     atom = maya.memory.add_atom(space.id, "Maya keeps bees.")
    ...     conversation = maya.conversations.create("chat")
    ...     message = maya.conversations.append_user_message(conversation.id, "What does Maya keep?")
    ...     context = maya.working_context.build(conversation.id, space.id, token_budget=2_000)
    >>> [atom.text for atom in context.atoms_used], context.turns_used, context.tokens_estimated < 2_000
    (['Maya keeps bees.'], 1, True)
    """

    def __init__(
        self,
        conversations: ConversationReader,
        memory: Memory,
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
        """Build the information that a model needs before it answers in this conversation or, with None, in a new one.

        - Without `memory_space_id`, no memories are included. `recall_query` is the query for recall; by default the
          user's last message.
        - `always_on_category_names` are categories whose memories are always included.
        - `template_id` is "default" (plain text), "xml", "messages" (the turns follow as messages), or your own.
        - `count_tokens` counts a text's tokens; by default about four characters are one token.
        - None means an argument's default.
        - `min_score` (0 to 1) excludes recalled memories with a lower score.
        - `now` builds the context for another time. For a time in the past, it has the memories valid then; otherwise
          those that have not ended.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     maya = tb.user("maya")
        ...     space = maya.memory.create_space("life")
        ...     atom = maya.memory.add_atom(space.id, "Maya is allergic to nuts.", ("health", "FACT"))
        ...     context = maya.working_context.build(None, space.id, always_on_category_names=["health"])
        >>> "Maya is allergic to nuts." in context.context_block, context.over_budget
        (True, False)
        """
        template = self._templates.get("default" if template_id is None else template_id)
        recent_turns = validation.validate_count("recent_turns", 10 if recent_turns is None else recent_turns)
        recall_limit = validation.validate_count("recall_limit", 8 if recall_limit is None else recall_limit)
        token_budget = validation.validate_count("token_budget", 8_000 if token_budget is None else token_budget)
        names = validation.validate_names("always_on_category_names", always_on_category_names or ())
        always_on_names = tuple(dict.fromkeys(names or ()))
        query = validation.validate_optional_text("recall_query", recall_query, validation.CONTENT_LENGTH)
        score_threshold = 0.0 if min_score is None else validation.validate_ratio("min_score", min_score)
        present = self._clock()
        moment = present if now is None else validation.parse_datetime("now", now)
        moment = present if abs(moment - present) <= PRESENT_TOLERANCE else moment
        valid_at = moment if moment < present else None
        counter = count_tokens or self._count_tokens
        if counter is not None and not callable(counter):
            raise InvalidArgumentError(
                f"count_tokens must be a function that takes a string and returns an int, got {counter!r:.80}."
            )

        conversation = None
        if conversation_id is not None:
            conversation = await self._conversations.get(validation.validate_id("conversation", conversation_id))
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
            space_id = validation.validate_id("space", memory_space_id)
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
                from tellback.memory.recall_service import RecallRequest  # imported only if recall is used
                from tellback.memory.space_view import RecallFilter

                # Some hits will be left out, because they are always-on memories or repeat the recent turns.
                message_count = sum(len(turn.messages) for turn in turns)
                limit = recall_limit + len(always_on_atoms) + min(max(SPARE_HITS, message_count), MAX_SPARE_HITS)
                filter = RecallFilter(to_micros(moment), must_have_started=valid_at is not None)
                request = RecallRequest(self._memory._scope, space_id, to_micros(moment), filter, limit)
                recall_query = validation.validate_query("query", query)
                hits = (await self._memory._recall.by_topic(request, recall_query, score_threshold)).hits
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
        """Load the end of the conversation: at least `turns` complete turns, if it has that many."""
        size = min(max(PAGE_SIZE, 4 * turns), MAX_PAGE_SIZE)
        found: list[StoredMessage] = []
        while True:
            page = await self._conversations.raw_turns(id, limit=size, before=found[0].seq if found else None)
            found = [*page, *found]
            # Load one more turn than requested, because the oldest one may be incomplete.
            if len(page) < size or len({message.turn_id for message in found}) > turns:
                return found


@dataclass(frozen=True, slots=True)
class _MeasuredDraft:
    draft: ContextDraft
    tokens: int
    fits: bool


class _BudgetFitter:
    """Finds the largest context that fits, with few counts, because a counter may send a request to a provider."""

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
        """Return the largest draft of 0 to `high` that fits, if sizes grow steadily; otherwise some draft that fits."""
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
        """Whether a block that fits also fits as messages. They are counted only if they contain more than the block,
        such as pictures, or turns that a template leaves out."""
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
            raise InvalidArgumentError(f"count_tokens must return an integer of at least 0, got {counted!r:.80}.")
        return counted


def _always_on_sort_key(atom: Atom, names: Sequence[str]) -> tuple[int, int, float, str]:
    """Sort by the order of `names`, then by importance and date. The order is deterministic."""
    position = names.index(atom.category.name) if atom.category.name in names else len(names)
    return position, -atom.importance, -atom.valid_from.timestamp(), atom.id


def _last_user_text(messages: Sequence[StoredMessage]) -> str | None:
    for message in reversed(messages):
        if message.role == "user" and message.visibility == "user" and message.text.strip():
            return message.text[: validation.QUERY_LENGTH]
    return None


def _byte_length(text: str) -> int:
    """Return the length in bytes: an invisible character is one character but may be many tokens."""
    return len(text.encode(errors="replace"))


def _media_tokens(messages: Sequence[Message]) -> int:
    return sum(MEDIA_TOKENS.get(part.kind, 0) for message in messages for part in message.parts or ())


def _join_messages(messages: Sequence[Message]) -> str:
    return "\n".join(map(_format_message, messages))


def _format_message(message: Message) -> str:
    calls = "".join(f"\n{call.name} {dump_json(call.input)}" for call in message.tool_calls)
    return f"{message.role}: {message_text(message)}{calls}"
