"""What all memory tools share: the space they are bound to, their input schema, parsed arguments, rendered results."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tellback import request, validation
from tellback.errors import ConfigurationError, InvalidArgumentError, NotFoundError
from tellback.tools import Tool
from tellback.tools.schema import Bind, InvalidInput, build_binder
from tellback.types.memory import Atom, AtomStatus, RecallHit, RecallResult

if TYPE_CHECKING:
    from tellback.memory.memory import Memory

MemoryLike: TypeAlias = "Memory | HasMemory"

DEFAULT_TIMEOUT = 30.0
"""How long a tool may take, unless it is made with another timeout."""

MAX_HITS = 20
DATE_FORMAT = "an ISO 8601 date such as 2026-03-01, or a moment such as 2026-03-01T12:30:00Z"

MAX_RESULT_TEXT = 1_000
MAX_CITED_MESSAGES = 5
RESULT_CUT = " […]"
NOTHING_FOUND = "Nothing like this is remembered."


class HasMemory(Protocol):
    """A user's handle, as `rc.user(...)` gives it."""

    @property
    def memory(self) -> Memory:
        """What is remembered of the user."""
        ...


@dataclass(frozen=True, slots=True)
class BoundSpace:
    """A space of a user's memory."""

    memory: Memory
    space_id: str

    def now(self) -> datetime:
        """This moment, by Tellback's clock."""
        return self.memory._runtime.clock()

    async def find_atom(self, id: str) -> Atom | None:
        """The memory of that id, unless it is in another space, someone else's, or forgotten."""
        atom = await self.memory.get_atom(id)
        if atom is None or atom.memory_space_id != self.space_id or atom.status is not AtomStatus.ACTIVE:
            return None
        return atom

    async def citation(self) -> dict[str, Any]:
        """What to cite: the user's message that is being answered, if it is this user's."""
        current = request.current()
        if current.conversation_id is None or current.message_id is None:
            return {}
        log = self.memory._runtime.store.conversations
        # In another user's turn it would put that user's ids into this memory.
        if await log.get(self.memory._scope, current.conversation_id) is None:
            return {}
        return {"source_conversation_id": current.conversation_id, "source_message_ids": [current.message_id]}


def bind_space(memory: Any, space_id: str) -> BoundSpace:
    """The space for a tool, from a memory or the handle of its user."""
    # The synchronous handle waits for the very event loop on which tools run.
    memory = getattr(memory, "_target", memory)
    handle = getattr(memory, "memory", memory)
    if not hasattr(handle, "recall_by_topic"):
        raise ConfigurationError(f"A memory tool takes a user or user.memory, not {memory!r:.80}.")
    return BoundSpace(handle, validation.validate_name("space_id", space_id, validation.KEY_LENGTH))


class MemoryTool(Tool):
    """A tool whose input is made of these properties and no others. One that is not required may be null."""

    __slots__ = ()

    def __init__(
        self,
        fn: Callable[..., Any],
        properties: Mapping[str, Any],
        *required: str,
        name: str,
        description: str | None,
        default_description: str,
        timeout: float | None,
        requires_approval: bool = False,
    ) -> None:
        schema = {
            "type": "object",
            "properties": dict(properties),
            "required": list(required),
            "additionalProperties": False,
        }
        super().__init__(
            name=validation.validate_name("name", name),
            description=default_description
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


@contextmanager
def input_errors_for_model() -> Iterator[None]:
    """What is wrong with the arguments goes back to the model, to be corrected; it is no failure of the tool."""
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidInput(str(error).rstrip(".")) from error
    except NotFoundError as error:
        if error.kind == "space":  # the model did not choose it
            raise
        raise InvalidInput(str(error).rstrip(".")) from error


def render_atom(atom: Atom) -> dict[str, Any]:
    """One memory: what it says, since when and until when, and where it was said."""
    return {
        "id": atom.id,
        "text": truncate_text(atom.text),
        "date": _format_moment(atom.valid_from),
        "until": None if atom.valid_to is None else _format_moment(atom.valid_to),
        "category": atom.category.name,
        "source": _render_source(atom),
    }


def render_recall(result: RecallResult, extra: Callable[[Atom], dict[str, Any]] | None = None) -> dict[str, Any]:
    """What was recalled; `extra` adds to each memory. A note says so if there is nothing."""
    memories = [_render_hit(hit) | (extra(hit.atom) if extra else {}) for hit in result]
    return {"memories": memories} if memories else {"memories": [], "note": NOTHING_FOUND}


def add_remaining_count(result: RecallResult, rendered: dict[str, Any]) -> dict[str, Any]:
    """With how many more there are than were given, where that is known."""
    remaining = result.total_candidates - len(result)
    return {**rendered, "more": remaining} if remaining > 0 else rendered


def timeline_status(atom: Atom, now: datetime) -> dict[str, Any]:
    """Where a memory stands on a timeline, and what took its place."""
    if atom.superseded_by is not None:
        return {"status": "superseded", "superseded_by": atom.superseded_by}
    if atom.valid_to is not None and atom.valid_to <= now:
        return {"status": "over"}
    return {"status": "upcoming" if atom.valid_from > now else "current"}


def truncate_text(text: str, length: int = MAX_RESULT_TEXT) -> str:
    """A text, cut if it is long."""
    return text if len(text) <= length else text[: length - len(RESULT_CUT)] + RESULT_CUT


def _render_hit(hit: RecallHit) -> dict[str, Any]:
    return {**render_atom(hit.atom), "score": round(hit.score, 3)}


def _render_source(atom: Atom) -> dict[str, Any] | None:
    if not atom.citations:
        return None
    first = atom.citations[0]
    return {"conversation_id": first.conversation_id, "message_ids": list(first.message_ids[:MAX_CITED_MESSAGES])}


def _format_moment(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
