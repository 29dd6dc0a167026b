"""Tools with which a model searches a memory during a turn and, if you allow it, writes to it.

Each tool is bound to one space of one user. The model chooses the query, but never whose memory is searched. The tools
of `tellback.mcp` use the functions here to parse dates, and to write and render memories.
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
"""The default timeout of a tool, in seconds."""

DEFAULT_HITS = 5
DEFAULT_TIMELINE_HITS = 10
MAX_HITS = 20
MAX_INPUT_TEXT = 2_000
MAX_RESULT_TEXT = 1_000
MAX_CITED_MESSAGES = 5
MAX_FORGOTTEN = 50
MAX_COMPARED = 1_000
MAX_SIMILAR = 200
"""A new memory is compared with the newest `MAX_COMPARED` and, in a larger space, `MAX_SIMILAR` similar ones."""

REMEMBERED, KNOWN = "remembered", "known already"
NOT_FOUND = "no such memory"
NOTHING_FOUND = "Nothing like this is remembered."
WRITABLE_KINDS = [kind.value for kind in CategoryKind if kind is not CategoryKind.PATTERN]

DATE_FORMAT = "an ISO 8601 date such as 2026-03-01, or a time such as 2026-03-01T12:30:00Z"
TOPIC_FIELD = "The topic (optional)."
BEGIN_FIELD = f"The start of the period: {DATE_FORMAT}."
CATEGORY_FIELD = "The kind of memory (default: FACT)."
VALID_FROM_FIELD = f"The time since which it is true: {DATE_FORMAT} (default: now)."
"""Descriptions of inputs, shared with the MCP tools."""

_RESULT_NOTE = "Each memory has an id, the date since which it is true, and its source."


class HasMemory(Protocol):
    """A user's handle, as returned by `tb.user(...)`."""

    @property
    def memory(self) -> Memory:
        """The user's memory."""
        ...


def _text_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": MAX_INPUT_TEXT, "description": description}


def _limit_schema(default: int) -> dict[str, Any]:
    maximum = max(default, MAX_HITS)
    return {"type": "integer", "description": f"How many memories to return (default: {default}, maximum: {maximum})."}


class MemoryTool(Tool):
    """A tool whose input has exactly the given properties. An optional property may be null."""

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
    """Return the input check of a schema. It is cached, because building one takes milliseconds and every turn
    creates tools."""
    schema = json.loads(schema_json)
    bind_checked = build_binder(schema, "memory tool")
    required = frozenset(schema["required"])

    def bind(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        # Many models send null for omitted fields.
        return bind_checked({name: value for name, value in values.items() if value is not None or name in required})

    return bind


def _validate_timeout(timeout: Any) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise InvalidArgumentError(f"timeout must be a number of seconds above 0, or None, got {timeout!r:.80}.")
    return float(timeout)


class RecallByTopic(MemoryTool):
    """Lets a model search a user's space by topic.

    `memory` is `user.memory` or the user's handle. `limit` is how many memories are returned if the model passes no
    limit. `min_score` and `category_names` exclude memories with a lower score or another category.

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
            "query": _text_schema("What you want to know, as a question or a few words."),
            "valid_at": _text_schema(
                f"Search what was true at this time: {DATE_FORMAT} (default: everything still true)."
            ),
            "limit": _limit_schema(limit),
        }
        super().__init__(space.recall_by_topic, properties, name, description, timeout)


class RecallByEntity(MemoryTool):
    """Lets a model look up everything that a user's space has about a person, a place or another thing.

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
        entity = _text_schema("The name, or an id that starts with ent_.")
        properties = {"entity": entity, "limit": _limit_schema(limit)}
        super().__init__(space.recall_by_entity, properties, name, description, timeout)


class RecallTimeline(MemoryTool):
    """Lets a model see how the memories of a user's space changed, including those that have ended.

    >>> from tellback import Tellback
    >>> sorted(RecallTimeline(Tellback(":memory:").user("maya"), "ms_1").parameters["properties"])
    ['entity', 'from_date', 'limit', 'query', 'to_date']
    """

    __slots__ = ()
    _description = (
        "See how things changed over time, oldest first, including what is no longer true: about a topic, a person or"
        f" thing, or in a period. {_RESULT_NOTE} Its status is current, over, superseded or upcoming."
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
            "entity": _text_schema("The person or thing, by name or id (optional)."),
            "from_date": _text_schema(BEGIN_FIELD),
            "to_date": _text_schema(f"The end of the period: {DATE_FORMAT}. A date includes the whole day."),
            "limit": _limit_schema(limit),
        }
        super().__init__(space.recall_timeline, properties, name, description, timeout)


class Remember(MemoryTool):
    """Lets a model store a memory in a user's space. It cites the user's message of the current turn.

    A text with the same words as a stored memory is not stored again. In a space of more than `MAX_COMPARED` memories,
    only the newest and the most similar ones are compared.

    >>> from tellback import Tellback
    >>> Remember(Tellback(":memory:").user("maya"), "ms_1").parameters["properties"]["category"]["enum"]
    ['FACT', 'RULE', 'INTENTION', 'EPISODE', 'PREFERENCE']
    """

    __slots__ = ()
    _description = (
        "Remember something for later conversations: one thing, in a short sentence that is clear without context."
        " If it corrects or updates a memory you have seen, pass that memory's id in `replaces`."
    )
    _required = ("text",)
    _properties: ClassVar[Mapping[str, Any]] = {
        "text": _text_schema("What to remember, such as 'Maya is vegetarian.'"),
        "category": {"type": "string", "enum": WRITABLE_KINDS, "description": CATEGORY_FIELD},
        "valid_from": {"type": "string", "description": VALID_FROM_FIELD},
        "replaces": {"type": "string", "description": "The id of the memory that it replaces (optional)."},
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
    """Lets a model archive memories of a user's space, so that recall does not return them. `restore_atom` undoes it.

    >>> from tellback import Tellback
    >>> Forget(Tellback(":memory:").user("maya"), "ms_1", requires_approval=True).requires_approval
    True
    """

    __slots__ = ()
    _description = "Forget memories that the user does not want stored, by the ids that recall returned."
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
    """Return the three recall tools for a space and, with `write`, the tools that remember and forget.

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
    """The implementation of the tools, in one space of a user's memory, with their limits."""

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
        """Bind the tools to a space of a memory, or of the handle of its user."""
        # A synchronous handle would block the event loop that runs the tools.
        memory = getattr(memory, "_target", memory)
        handle = getattr(memory, "memory", memory)
        if not hasattr(handle, "recall_by_topic"):
            raise ConfigurationError(f"memory must be a user or user.memory, got {memory!r:.80}.")
        categories = validation.validate_names("category_names", category_names)
        if categories == ():  # recall would take it as all categories
            raise InvalidArgumentError(
                "category_names is empty: pass at least one category, or omit it for all categories."
            )
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
                raise InvalidInput(f"replaces: {NOT_FOUND}: {replaces[:80]!r}; look it up first")
            try:
                status, atom = await replace_atom(self.memory, old, text, category, since)
            except AtomSupersededError as error:
                raise InvalidInput(f"replaces: {replaces} was already replaced by {error.superseded_by}") from error
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
        except NotFoundError:  # deleted in the meantime
            return NOT_FOUND
        return "forgotten"

    async def _find_atom(self, id: str) -> Atom | None:
        """Return the memory with that id, or None if it is in another space, belongs to another user, or was
        forgotten."""
        atom = await self.memory.get_atom(id)
        is_here = atom is not None and atom.memory_space_id == self.space_id and atom.status is AtomStatus.ACTIVE
        return atom if is_here else None


@contextmanager
def _input_errors_for_model() -> Iterator[None]:
    """Convert errors about the arguments to `InvalidInput`, which the model can correct; the tool has not failed."""
    try:
        yield
    except (InvalidArgumentError, NotFoundError) as error:
        if isinstance(error, NotFoundError) and error.kind == "space":  # the model did not choose it
            raise
        raise InvalidInput(str(error).rstrip(".")) from error


def clamp_limit(requested: float | None, default: int) -> int:
    """Return the requested number of hits, within bounds."""
    return default if requested is None else max(1, min(int(requested), max(default, MAX_HITS)))


def parse_moment(name: str, text: str | None, *, at_end: bool = False) -> datetime | None:
    """Parse a model's date or time. A date means its midnight UTC or, with `at_end`, its last microsecond.

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
    """Store a text in a space, or find the memory with the same words. Return which of the two happened, and the
    memory."""
    validation.validate_memory_text(text)
    # The calls of one reply run concurrently. The second of two equal ones must see the first one's memory.
    async with _locks.setdefault((id(asyncio.get_running_loop()), space_id), asyncio.Lock()):
        known = await _find_known(memory, space_id, text, kind, since or memory._runtime.clock())
        if known is not None:
            return KNOWN, known
        category, source = _to_category(kind), await _current_citation(memory)
        return REMEMBERED, await memory.add_atom(space_id, text, category, importance, valid_from=since, **source)


async def replace_atom(
    memory: Memory, old: Atom, text: str, kind: str | None, since: datetime | None, importance: int | None = None
) -> tuple[str, Atom]:
    """Replace a memory with a text, unless it has the same words. Return which of the two happened, and the memory."""
    if same_words(old.text, text):
        return KNOWN, old
    is_pattern = old.category.kind is CategoryKind.PATTERN  # only the platform writes patterns
    category = _to_category(kind) if kind is not None or is_pattern else None
    source = await _current_citation(memory)
    return REMEMBERED, await memory.supersede_atom(old.id, text, category, importance, valid_from=since, **source)


_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()


async def _find_known(memory: Memory, space_id: str, text: str, kind: str | None, since: datetime) -> Atom | None:
    """Find a memory with the same words; an event on another day is a different memory."""
    newest = await memory.list_atoms(space_id, limit=MAX_COMPARED)
    found = await run_in_thread(_find_same, newest, text, kind, since)  # takes up to a second if all texts are long
    if found is not None or len(newest) < MAX_COMPARED:
        return found
    return _find_same((await memory.recall_by_topic(space_id, text, MAX_SIMILAR)).atoms, text, kind, since)


def _find_same(atoms: Sequence[Atom], text: str, kind: str | None, since: datetime) -> Atom | None:
    wanted_key, length = text_key(text), len(text)
    for atom in atoms:
        if not length <= 2 * len(atom.text) + 50 <= 4 * length + 150:  # too short or too long to have the same words
            continue
        is_episode = CategoryKind.EPISODE in (kind, atom.category.kind)
        if text_key(atom.text) == wanted_key and (not is_episode or atom.valid_from.date() == since.date()):
            return atom
    return None


def _to_category(kind: str | None) -> Category:
    found = CategoryKind(kind or CategoryKind.FACT)
    return Category(found.value.lower(), found)


async def _current_citation(memory: Memory) -> dict[str, Any]:
    """Cite the user's message that is being answered, if it belongs to this user."""
    current = request.current()
    if current.conversation_id is None or current.message_id is None:
        return {}
    # In another user's turn, a citation would put that user's ids into this memory.
    if await memory._runtime.store.conversations.get(memory._scope, current.conversation_id) is None:
        return {}
    return {"source_conversation_id": current.conversation_id, "source_message_ids": [current.message_id]}


def timeline_status(atom: Atom, now: datetime) -> dict[str, Any]:
    """Return the status of a memory on a timeline, and its replacement."""
    if atom.superseded_by is not None:
        return {"status": "superseded", "superseded_by": atom.superseded_by}
    if atom.valid_to is not None and atom.valid_to <= now:
        return {"status": "over"}
    return {"status": "upcoming" if atom.valid_from > now else "current"}


def format_moment(moment: datetime) -> str:
    """Format a time for models and programs."""
    return moment.isoformat(timespec="seconds")


def render_source(atom: Atom) -> dict[str, Any] | None:
    """Return where a memory was first said: the conversation and some of the messages."""
    if not atom.citations:
        return None
    first = atom.citations[0]
    return {"conversation_id": first.conversation_id, "message_ids": list(first.message_ids[:MAX_CITED_MESSAGES])}


def _render_recall(
    result: RecallResult, extra: Callable[[Atom], dict[str, Any]] = lambda atom: {}, *, with_more: bool = False
) -> dict[str, Any]:
    """Render recalled memories, each with the fields of `extra`; a note if there are none, and how many more there
    are."""
    memories = [_render_atom(hit.atom) | {"score": round(hit.score, 3)} | extra(hit.atom) for hit in result]
    rendered = {"memories": memories} if memories else {"memories": [], "note": NOTHING_FOUND}
    remaining = result.total_candidates - len(result)
    return rendered | {"more": remaining} if with_more and remaining > 0 else rendered


def _render_atom(atom: Atom) -> dict[str, Any]:
    return {
        "id": atom.id,
        "text": truncate_text(atom.text, MAX_RESULT_TEXT),
        "date": format_moment(atom.valid_from),
        "until": None if atom.valid_to is None else format_moment(atom.valid_to),
        "category": atom.category.name,
        "source": render_source(atom),
    }
