"""The three recall tools: by topic, by entity, along a timeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tellback import validation
from tellback.errors import InvalidArgumentError
from tellback.memory.tools.base import (
    DATE_FORMAT,
    DEFAULT_TIMEOUT,
    MAX_HITS,
    BoundSpace,
    MemoryLike,
    MemoryTool,
    add_remaining_count,
    bind_space,
    clamp_limit,
    input_errors_for_model,
    parse_moment,
    render_recall,
    timeline_status,
)

DEFAULT_HITS = 5
DEFAULT_TIMELINE_HITS = 10

_RESULT_NOTE = "Each memory has an id, the date since which it holds, and its source."
TOPIC_DESCRIPTION = f"Look up what is remembered about a topic, the best match first. {_RESULT_NOTE}"
ENTITY_DESCRIPTION = (
    f"Look up everything remembered about a person, a place, an organisation or a thing, newest first. {_RESULT_NOTE}"
)
TIMELINE_DESCRIPTION = (
    "See how things changed over time, oldest first, with what is no longer true: about a topic, about a person or"
    f" thing, or in a period. {_RESULT_NOTE} Its status says whether it is current, over, superseded or upcoming."
)


def _text_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": 2_000, "description": description}


def _limit_schema(default: int) -> dict[str, Any]:
    maximum = max(default, MAX_HITS)
    return {"type": "integer", "description": f"How many memories to give: {default} if left out, {maximum} at most."}


def _validate_categories(category_names: Iterable[str] | None) -> tuple[str, ...] | None:
    """Names of categories; a list without any is refused, since to recall it would mean all."""
    names = validation.validate_names("category_names", category_names)
    if names == ():
        raise InvalidArgumentError("category_names is empty: name a category, or leave it out for all of them.")
    return names


class RecallByTopic(MemoryTool):
    """Lets a model look up what a user's space holds about a topic.

    `memory` is `user.memory` or the user's handle. `limit` is how many memories are given if the model does not say
    otherwise. `min_score` and `category_names` leave out what does not reach it, or is of another category.

    >>> from tellback import Tellback
    >>> RecallByTopic(Tellback(":memory:").user("maya"), "ms_1").parameters["required"]
    ['query']
    """

    __slots__ = ()

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
        handlers = _RecallHandlers(
            bind_space(memory, space_id),
            validation.validate_count("limit", limit, 1),
            _validate_categories(category_names),
            validation.validate_ratio("min_score", min_score),
        )
        properties = {
            "query": _text_schema("What you want to know, as a question or in a few words."),
            "valid_at": _text_schema(
                f"To know what held at some time: {DATE_FORMAT}. If left out, all that is not over yet."
            ),
            "limit": _limit_schema(limit),
        }
        super().__init__(
            handlers.by_topic,
            properties,
            "query",
            name=name,
            description=description,
            default_description=TOPIC_DESCRIPTION,
            timeout=timeout,
        )


class RecallByEntity(MemoryTool):
    """Lets a model look up all that a user's space holds about a person, a place or another thing.

    >>> from tellback import Tellback
    >>> RecallByEntity(Tellback(":memory:").user("maya"), "ms_1", name="about").name
    'about'
    """

    __slots__ = ()

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
        handlers = _RecallHandlers(
            bind_space(memory, space_id),
            validation.validate_count("limit", limit, 1),
            _validate_categories(category_names),
        )
        properties = {
            "entity": _text_schema("Its name, or an id that starts with ent_."),
            "limit": _limit_schema(limit),
        }
        super().__init__(
            handlers.by_entity,
            properties,
            "entity",
            name=name,
            description=description,
            default_description=ENTITY_DESCRIPTION,
            timeout=timeout,
        )


class RecallTimeline(MemoryTool):
    """Lets a model see how what a user's space holds has changed, with what is over by now.

    >>> from tellback import Tellback
    >>> sorted(RecallTimeline(Tellback(":memory:").user("maya"), "ms_1").parameters["properties"])
    ['entity', 'from_date', 'limit', 'query', 'to_date']
    """

    __slots__ = ()

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
        handlers = _RecallHandlers(
            bind_space(memory, space_id),
            validation.validate_count("limit", limit, 1),
            _validate_categories(category_names),
        )
        properties = {
            "query": _text_schema("The topic, if there is one."),
            "entity": _text_schema("The person or thing it is about, by name or id, if there is one."),
            "from_date": _text_schema(f"Where the period begins: {DATE_FORMAT}."),
            "to_date": _text_schema(f"Where the period ends: {DATE_FORMAT}. A day alone is in it to its end."),
            "limit": _limit_schema(limit),
        }
        super().__init__(
            handlers.timeline,
            properties,
            name=name,
            description=description,
            default_description=TIMELINE_DESCRIPTION,
            timeout=timeout,
        )


@dataclass(frozen=True, slots=True)
class _RecallHandlers:
    """What the tools do, in their place and within their limits."""

    space: BoundSpace
    limit: int
    categories: tuple[str, ...] | None = None
    min_score: float = 0.0

    async def by_topic(self, query: str, valid_at: str | None = None, limit: float | None = None) -> dict[str, Any]:
        with input_errors_for_model():
            result = await self.space.memory.recall_by_topic(
                self.space.space_id,
                query,
                clamp_limit(limit, self.limit),
                self.categories,
                valid_at=parse_moment("valid_at", valid_at),
                min_score=self.min_score,
            )
        return render_recall(result)

    async def by_entity(self, entity: str, limit: float | None = None) -> dict[str, Any]:
        with input_errors_for_model():
            result = await self.space.memory.recall_by_entity(
                self.space.space_id, entity, clamp_limit(limit, self.limit), self.categories
            )
        return add_remaining_count(result, render_recall(result))

    async def timeline(
        self,
        query: str | None = None,
        entity: str | None = None,
        from_date: str | None = None,
        to_date: str | None = None,
        limit: float | None = None,
    ) -> dict[str, Any]:
        with input_errors_for_model():
            result = await self.space.memory.recall_timeline(
                self.space.space_id,
                entity,
                query,
                parse_moment("from_date", from_date),
                parse_moment("to_date", to_date, at_end=True),
                clamp_limit(limit, self.limit),
                category_names=self.categories,
            )
        now = self.space.now()
        rendered = render_recall(result, lambda atom: timeline_status(atom, now))
        return rendered if query else add_remaining_count(result, rendered)
