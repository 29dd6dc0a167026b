"""Tools by which a model looks into a memory during a turn and, if you let it, writes into it.

Each is made for one space of one user: the model chooses what to ask, never whose memory it asks. The tools of
`tellback.mcp` parse dates, write and render memories by the functions here.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias
from weakref import WeakValueDictionary

from tellback import request, validation
from tellback.errors import AtomSupersededError, ConfigurationError, InvalidArgumentError, NotFoundError
from tellback.memory.templates import truncate_text
from tellback.memory.text_similarity import same_words, text_key
from tellback.tools import Tool
from tellback.tools.dispatch import run_in_thread
from tellback.tools.schema import Bind, InvalidInput, build_binder
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, RecallResult

if TYPE_CHECKING:
    from tellback.memory.memory import Memory

__all__ = ["Forget", "RecallByEntity", "RecallByTopic", "RecallTimeline", "Remember", "memory_tools"]

MemoryLike: TypeAlias = "Memory | HasMemory"

DEFAULT_TIMEOUT = 30.0
"""How long a tool may take, unless it is made with another timeout."""

DEFAULT_HITS = 5
DEFAULT_TIMELINE_HITS = 10
MAX_HITS = 20
MAX_INPUT_TEXT = 2_000
MAX_RESULT_TEXT = 1_000
MAX_CITED_MESSAGES = 5
MAX_FORGOTTEN = 50
MAX_COMPARED = 1_000
MAX_SIMILAR = 200
"""A new memory is compared with the newest ones and, in a larger space, with those that are most like it."""

REMEMBERED, KNOWN = "remembered", "known already"
NOT_FOUND = "no such memory"
NOTHING_FOUND = "Nothing like this is remembered."
WRITABLE_KINDS = [kind.value for kind in CategoryKind if kind is not CategoryKind.PATTERN]

DATE_FORMAT = "an ISO 8601 date such as 2026-03-01, or a moment such as 2026-03-01T12:30:00Z"
TOPIC_FIELD = "The topic, if there is one."
BEGIN_FIELD = f"Where the period begins: {DATE_FORMAT}."
CATEGORY_FIELD = "What sort of thing it is: FACT, if left out."
VALID_FROM_FIELD = f"Since when it is true: {DATE_FORMAT}. Now, if left out."
"""What models are told of the inputs that the MCP tools have as well."""

_RESULT_NOTE = "Each memory has an id, the date since which it holds, and its source."


class HasMemory(Protocol):
    """A user's handle, as `tb.user(...)` gives it."""

    @property
    def memory(self) -> Memory:
        """What is remembered of the user."""
        ...


def _text_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": MAX_INPUT_TEXT, "description": description}


def _limit_schema(default: int) -> dict[str, Any]:
    maximum = max(default, MAX_HITS)
    return {"type": "integer", "description": f"How many memories to give: {default} if left out, {maximum} at most."}


class MemoryTool(Tool):
    """A tool whose input is made of these properties and no others. One that is not required may be null."""

    __slots__ = ()
    _description: ClassVar[str]
    _required: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        fn: Callable[..., Any],
        properties: Mapping[str, Any],
        name: str,
        description: str | None,
        timeout: float | None,
        requires_approval: bool = False,
    ) -> None:
        schema = {
            "type": "object",
            "properties": dict(properties),
            "required": list(self._required),
            "additionalProperties": False,
        }
        super().__init__(
            name=validation.validate_name("name", name),
            description=self._description
            if description is None
            else validation.validate_name("description", description, 100_000),
            parameters=schema,
            fn=fn,
            timeout=_validate_timeout(timeout),
            requires_approval=requires_approval,
            bind=_input_binder(json.dumps(schema)),
        )


@functools.lru_cache(maxsize=64)
def _input_binder(schema_json: str) -> Bind:
    """The input check of a schema. One takes milliseconds to make, and tools are made for every turn."""
    schema = json.loads(schema_json)
    bind_checked = build_binder(schema, "memory tool")
    required = frozenset(schema["required"])

    def bind(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        # Many models write null for what they leave out.
        return bind_checked({name: value for name, value in values.items() if value is not None or name in required})

    return bind


def _validate_timeout(timeout: Any) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise InvalidArgumentError(f"timeout is a number of seconds above 0, or None, not {timeout!r:.80}.")
    return float(timeout)


class RecallByTopic(MemoryTool):
    """Lets a model look up what a user's space holds about a topic.

    `memory` is `user.memory` or the user's handle. `limit` is how many memories are given if the model does not say
    otherwise. `min_score` and `category_names` leave out what does not reach it, or is of another category.

    >>> from tellback import Tellback
    >>> RecallByTopic(Tellback(":memory:").user("maya"), "ms_1").parameters["required"]
    ['query']
    """

    __slots__ = ()
    _description = f"Look up what is remembered about a topic, the best match first. {_RESULT_NOTE}"
    _required = ("query",)

    def __init__(
        self,
        memory: MemoryLike,
        space_id: str,
        *,
        name: str = "recall_by_topic",
        description: str | None = None,
        limit: int = DEFAULT_HITS,
        min_score: float = 0.0,
        category_names: Iterable[str] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        space = _SpaceTools.bind(memory, space_id, limit, category_names, min_score)
        properties = {
            "query": _text_schema("What you want to know, as a question or in a few words."),
            "valid_at": _text_schema(
                f"To know what held at some time: {DATE_FORMAT}. If left out, all that is not over yet."
            ),
            "limit": _limit_schema(limit),
        }
        super().__init__(space.recall_by_topic, properties, name, description, timeout)


class RecallByEntity(MemoryTool):
    """Lets a model look up all that a user's space holds about a person, a place or another thing.

    >>> from tellback import Tellback
    >>> RecallByEntity(Tellback(":memory:").user("maya"), "ms_1", name="about").name
    'about'
    """

    __slots__ = ()
    _description = (
        "Look up everything remembered about a person, a place, an organisation or a thing, newest first."
        f" {_RESULT_NOTE}"
    )
    _required = ("entity",)

    def __init__(
        self,
        memory: MemoryLike,
        space_id: str,
        *,
        name: str = "recall_by_entity",
        description: str | None = None,
        limit: int = DEFAULT_HITS,
        category_names: Iterable[str] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        space = _SpaceTools.bind(memory, space_id, limit, category_names)
        entity = _text_schema("Its name, or an id that starts with ent_.")
        properties = {"entity": entity, "limit": _limit_schema(limit)}
        super().__init__(space.recall_by_entity, properties, name, description, timeout)


class RecallTimeline(MemoryTool):
    """Lets a model see how what a user's space holds has changed, with what is over by now.

    >>> from tellback import Tellback
    >>> sorted(RecallTimeline(Tellback(":memory:").user("maya"), "ms_1").parameters["properties"])
    ['entity', 'from_date', 'limit', 'query', 'to_date']
    """

    __slots__ = ()
    _description = (
        "See how things changed over time, oldest first, with what is no longer true: about a topic, about a person or"
        f" thing, or in a period. {_RESULT_NOTE} Its status says whether it is current, over, superseded or upcoming."
    )

    def __init__(
        self,
        memory: MemoryLike,
        space_id: str,
        *,
        name: str = "recall_timeline",
        description: str | None = None,
        limit: int = DEFAULT_TIMELINE_HITS,
        category_names: Iterable[str] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        space = _SpaceTools.bind(memory, space_id, limit, category_names)
        properties = {
            "query": _text_schema(TOPIC_FIELD),
            "entity": _text_schema("The person or thing it is about, by name or id, if there is one."),
            "from_date": _text_schema(BEGIN_FIELD),
            "to_date": _text_schema(f"Where the period ends: {DATE_FORMAT}. A day alone is in it to its end."),
            "limit": _limit_schema(limit),
        }
        super().__init__(space.recall_timeline, properties, name, description, timeout)


class Remember(MemoryTool):
    """Lets a model keep something in a user's space, citing the user's message of the turn that runs.

    What is known already, word for word, is not kept twice. In a space of more than `MAX_COMPARED` memories, only
    the newest of them and those that are most like it are looked at.

    >>> from tellback import Tellback
    >>> Remember(Tellback(":memory:").user("maya"), "ms_1").parameters["properties"]["category"]["enum"]
    ['FACT', 'RULE', 'INTENTION', 'EPISODE', 'PREFERENCE']
    """

    __slots__ = ()
    _description = (
        "Remember something for later conversations: one thing, in a short sentence that can be understood by itself."
        " If it corrects or updates a memory you have seen, give that one's id in `replaces`."
    )
    _required = ("text",)
    _properties: ClassVar[Mapping[str, Any]] = {
        "text": _text_schema("What to remember, such as 'Maya is vegetarian.'"),
        "category": {"type": "string", "enum": WRITABLE_KINDS, "description": CATEGORY_FIELD},
        "valid_from": {"type": "string", "description": VALID_FROM_FIELD},
        "replaces": {"type": "string", "description": "The id of the memory whose place it takes, if there is one."},
    }

    def __init__(
        self,
        memory: MemoryLike,
        space_id: str,
        *,
        name: str = "remember",
        description: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        requires_approval: bool = False,
    ) -> None:
        space = _SpaceTools.bind(memory, space_id)
        super().__init__(space.remember, self._properties, name, description, timeout, requires_approval)


class Forget(MemoryTool):
    """Lets a model put memories of a user's space aside, so that no recall gives them (`restore_atom` does undo it).

    >>> from tellback import Tellback
    >>> Forget(Tellback(":memory:").user("maya"), "ms_1", requires_approval=True).requires_approval
    True
    """

    __slots__ = ()
    _description = "Forget memories that the user does not want kept, by their ids as recall gave them."
    _required = ("ids",)
    _properties: ClassVar[Mapping[str, Any]] = {
        "ids": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": MAX_FORGOTTEN,
            "description": "The ids of the memories to forget.",
        }
    }

    def __init__(
        self,
        memory: MemoryLike,
        space_id: str,
        *,
        name: str = "forget",
        description: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        requires_approval: bool = False,
    ) -> None:
        space = _SpaceTools.bind(memory, space_id)
        super().__init__(space.forget, self._properties, name, description, timeout, requires_approval)


def memory_tools(memory: MemoryLike, space_id: str, write: bool = False) -> list[Tool]:
    """The three recall tools for a space and, with `write`, those that remember and forget.

    >>> from tellback import Tellback
    >>> maya = Tellback(":memory:").user("maya")
    >>> [tool.name for tool in memory_tools(maya, "ms_1", write=True)]
    ['recall_by_topic', 'recall_by_entity', 'recall_timeline', 'remember', 'forget']
    """
    found: list[Tool] = [kind(memory, space_id) for kind in (RecallByTopic, RecallByEntity, RecallTimeline)]
    if write:
        found += [Remember(memory, space_id), Forget(memory, space_id)]
    return found


@dataclass(frozen=True, slots=True)
class _SpaceTools:
    """What the tools do, in their space of a user's memory and within their limits."""

    memory: Memory
    space_id: str
    limit: int
    categories: tuple[str, ...] | None
    min_score: float

    @classmethod
    def bind(
        cls,
        memory: Any,
        space_id: str,
        limit: int = DEFAULT_HITS,
        category_names: Iterable[str] | None = None,
        min_score: float = 0.0,
    ) -> _SpaceTools:
        """For a space, from a memory or the handle of its user."""
        # The synchronous handle waits for the very event loop on which tools run.
        memory = getattr(memory, "_target", memory)
        handle = getattr(memory, "memory", memory)
        if not hasattr(handle, "recall_by_topic"):
            raise ConfigurationError(f"A memory tool takes a user or user.memory, not {memory!r:.80}.")
        categories = validation.validate_names("category_names", category_names)
        if categories == ():  # to recall it would mean all
            raise InvalidArgumentError("category_names is empty: name a category, or leave it out for all of them.")
        return cls(
            handle,
            validation.validate_name("space_id", space_id, validation.KEY_LENGTH),
            validation.validate_count("limit", limit, 1),
            categories,
            validation.validate_ratio("min_score", min_score),
        )

    async def recall_by_topic(
        self, query: str, valid_at: str | None = None, limit: float | None = None
    ) -> dict[str, Any]:
        with _input_errors_for_model():
            result = await self.memory.recall_by_topic(
                self.space_id,
                query,
                clamp_limit(limit, self.limit),
                self.categories,
                valid_at=parse_moment("valid_at", valid_at),
                min_score=self.min_score,
            )
        return _render_recall(result)

    async def recall_by_entity(self, entity: str, limit: float | None = None) -> dict[str, Any]:
        with _input_errors_for_model():
            result = await self.memory.recall_by_entity(
                self.space_id, entity, clamp_limit(limit, self.limit), self.categories
            )
        return _render_recall(result, with_more=True)

    async def recall_timeline(
        self,
        query: str | None = None,
        entity: str | None = None,
        from_date: str | None = None,
        to_date: str | None = None,
        limit: float | None = None,
    ) -> dict[str, Any]:
        with _input_errors_for_model():
            result = await self.memory.recall_timeline(
                self.space_id,
                entity,
                query,
                parse_moment("from_date", from_date),
                parse_moment("to_date", to_date, at_end=True),
                clamp_limit(limit, self.limit),
                category_names=self.categories,
            )
        now = self.memory._runtime.clock()
        return _render_recall(result, lambda atom: timeline_status(atom, now), with_more=not query)

    async def remember(
        self, text: str, category: str | None = None, valid_from: str | None = None, replaces: str | None = None
    ) -> dict[str, Any]:
        since = parse_moment("valid_from", valid_from)
        with _input_errors_for_model():
            if replaces is None:
                status, atom = await remember_text(self.memory, self.space_id, text, category, since)
                return {"status": status, "memory": _render_atom(atom)}
            validation.validate_memory_text(text)
            old = await self._find_atom(replaces)
            if old is None:
                raise InvalidInput(f"replaces: there is {NOT_FOUND} as {replaces[:80]!r}; look it up first")
            try:
                status, atom = await replace_atom(self.memory, old, text, category, since)
            except AtomSupersededError as error:
                raise InvalidInput(f"replaces: {replaces} was replaced by {error.superseded_by} before") from error
        rendered = {"status": status, "memory": _render_atom(atom)}
        return rendered | {"replaced": replaces} if status == REMEMBERED else rendered

    async def forget(self, ids: list[str]) -> dict[str, Any]:
        results = [{"id": id, "status": await self._forget_one(id)} for id in dict.fromkeys(ids)]
        return {"forgotten": sum(each["status"] == "forgotten" for each in results), "results": results}

    async def _forget_one(self, id: str) -> str:
        if await self._find_atom(id) is None:
            return NOT_FOUND
        try:
            await self.memory.archive_atom(id)
        except NotFoundError:  # it was deleted meanwhile
            return NOT_FOUND
        return "forgotten"

    async def _find_atom(self, id: str) -> Atom | None:
        """The memory of that id, unless it is in another space, someone else's, or forgotten."""
        atom = await self.memory.get_atom(id)
        is_here = atom is not None and atom.memory_space_id == self.space_id and atom.status is AtomStatus.ACTIVE
        return atom if is_here else None


@contextmanager
def _input_errors_for_model() -> Iterator[None]:
    """What is wrong with the arguments goes back to the model, to be corrected; it is no failure of the tool."""
    try:
        yield
    except (InvalidArgumentError, NotFoundError) as error:
        if isinstance(error, NotFoundError) and error.kind == "space":  # the model did not choose it
            raise
        raise InvalidInput(str(error).rstrip(".")) from error


def clamp_limit(requested: float | None, default: int) -> int:
    """How many hits to give: as many as asked for, within bounds."""
    return default if requested is None else max(1, min(int(requested), max(default, MAX_HITS)))


def parse_moment(name: str, text: str | None, *, at_end: bool = False) -> datetime | None:
    """A moment from a model's date; a day alone begins at midnight UTC or, `at_end`, lasts until the next.

    >>> parse_moment("to_date", "2026-03-01", at_end=True).isoformat()
    '2026-03-01T23:59:59.999999+00:00'
    """
    if text is None:
        return None
    try:
        parsed = _parse_iso(text.strip(), at_end)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(f"{name}: {text[:40]!r} is not {DATE_FORMAT}") from None


def _parse_iso(text: str, at_end: bool) -> datetime:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)
    return datetime.combine(day, time.max if at_end else time.min, UTC)


async def remember_text(
    memory: Memory, space_id: str, text: str, kind: str | None, since: datetime | None, importance: int | None = None
) -> tuple[str, Atom]:
    """Keep a text in a space, or find the memory that says the same, word for word; gives which of the two it was."""
    validation.validate_memory_text(text)
    # The calls of one reply run at the same time: the second of two equal ones must see the first one's memory.
    async with _locks.setdefault((id(asyncio.get_running_loop()), space_id), asyncio.Lock()):
        known = await _find_known(memory, space_id, text, kind, since or memory._runtime.clock())
        if known is not None:
            return KNOWN, known
        category, source = _to_category(kind), await _current_citation(memory)
        return REMEMBERED, await memory.add_atom(space_id, text, category, importance, valid_from=since, **source)


async def replace_atom(
    memory: Memory, old: Atom, text: str, kind: str | None, since: datetime | None, importance: int | None = None
) -> tuple[str, Atom]:
    """Put a text in the place of a memory, unless that says the same, word for word; gives which of the two it was."""
    if same_words(old.text, text):
        return KNOWN, old
    is_pattern = old.category.kind is CategoryKind.PATTERN  # which only the platform writes
    category = _to_category(kind) if kind is not None or is_pattern else None
    source = await _current_citation(memory)
    return REMEMBERED, await memory.supersede_atom(old.id, text, category, importance, valid_from=since, **source)


_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()


async def _find_known(memory: Memory, space_id: str, text: str, kind: str | None, since: datetime) -> Atom | None:
    """What says the same word for word; what happened on another day is something else."""
    newest = await memory.list_atoms(space_id, limit=MAX_COMPARED)
    found = await run_in_thread(_find_same, newest, text, kind, since)  # a second, where all of them are long
    if found is not None or len(newest) < MAX_COMPARED:
        return found
    return _find_same((await memory.recall_by_topic(space_id, text, MAX_SIMILAR)).atoms, text, kind, since)


def _find_same(atoms: Sequence[Atom], text: str, kind: str | None, since: datetime) -> Atom | None:
    wanted_key, length = text_key(text), len(text)
    for atom in atoms:
        if not length <= 2 * len(atom.text) + 50 <= 4 * length + 150:  # too short or too long to be the same
            continue
        is_episode = CategoryKind.EPISODE in (kind, atom.category.kind)
        if text_key(atom.text) == wanted_key and (not is_episode or atom.valid_from.date() == since.date()):
            return atom
    return None


def _to_category(kind: str | None) -> Category:
    found = CategoryKind(kind or CategoryKind.FACT)
    return Category(found.value.lower(), found)


async def _current_citation(memory: Memory) -> dict[str, Any]:
    """What to cite: the user's message that is being answered, if it is this user's."""
    current = request.current()
    if current.conversation_id is None or current.message_id is None:
        return {}
    # In another user's turn it would put that user's ids into this memory.
    if await memory._runtime.store.conversations.get(memory._scope, current.conversation_id) is None:
        return {}
    return {"source_conversation_id": current.conversation_id, "source_message_ids": [current.message_id]}


def timeline_status(atom: Atom, now: datetime) -> dict[str, Any]:
    """Where a memory stands on a timeline, and what took its place."""
    if atom.superseded_by is not None:
        return {"status": "superseded", "superseded_by": atom.superseded_by}
    if atom.valid_to is not None and atom.valid_to <= now:
        return {"status": "over"}
    return {"status": "upcoming" if atom.valid_from > now else "current"}


def format_moment(moment: datetime) -> str:
    """A moment as models and programs read it."""
    return moment.isoformat(timespec="seconds")


def render_source(atom: Atom) -> dict[str, Any] | None:
    """Where a memory was first said: the conversation, and some of the messages."""
    if not atom.citations:
        return None
    first = atom.citations[0]
    return {"conversation_id": first.conversation_id, "message_ids": list(first.message_ids[:MAX_CITED_MESSAGES])}


def _render_recall(
    result: RecallResult, extra: Callable[[Atom], dict[str, Any]] = lambda atom: {}, *, with_more: bool = False
) -> dict[str, Any]:
    """What was recalled, each with what `extra` adds; a note if there is nothing, and how many more there are."""
    memories = [_render_atom(hit.atom) | {"score": round(hit.score, 3)} | extra(hit.atom) for hit in result]
    rendered = {"memories": memories} if memories else {"memories": [], "note": NOTHING_FOUND}
    remaining = result.total_candidates - len(result)
    return rendered | {"more": remaining} if with_more and remaining > 0 else rendered


def _render_atom(atom: Atom) -> dict[str, Any]:
    """One memory: what it says, since when and until when, and where it was said."""
    return {
        "id": atom.id,
        "text": truncate_text(atom.text, MAX_RESULT_TEXT),
        "date": format_moment(atom.valid_from),
        "until": None if atom.valid_to is None else format_moment(atom.valid_to),
        "category": atom.category.name,
        "source": render_source(atom),
    }
