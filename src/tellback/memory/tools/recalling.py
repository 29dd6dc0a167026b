"""The three recall tools: by topic, by entity, along time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tellback.conversations import checks as common
from tellback.errors import InvalidArgumentError
from tellback.memory import checks
from tellback.memory.tools.base import SECONDS, MemoryTool
from tellback.memory.tools.inputs import FORMAT, MOST_HITS, bounded, moment, told_to_the_model
from tellback.memory.tools.places import MemoryLike, Place, place_of
from tellback.memory.tools.results import counted, recalled, standing

HITS = 5
TIMELINE_HITS = 10

_EACH = "Each memory has an id, the date since which it holds, and its source."
TOPIC = f"Look up what is remembered about a topic, the best match first. {_EACH}"
ENTITY = f"Look up everything remembered about a person, a place, an organisation or a thing, newest first. {_EACH}"
TIMELINE = (
    "See how things changed over time, oldest first, with what is no longer true: about a topic, about a person or"
    f" thing, or in a period. {_EACH} Its status says whether it is current, over, superseded or upcoming."
)


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": 2_000, "description": description}


def _limit(usual: int) -> dict[str, Any]:
    most = max(usual, MOST_HITS)
    return {"type": "integer", "description": f"How many memories to give: {usual} if left out, {most} at most."}


def _categories(given: Iterable[str] | None) -> tuple[str, ...] | None:
    """Names of categories; a list without any is refused, since to recall it would mean all."""
    names = checks.names("category_names", given)
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
        limit: int = HITS,
        min_score: float = 0.0,
        category_names: Iterable[str] | None = None,
        timeout: float | None = SECONDS,
    ) -> None:
        asking = _Asking(
            place_of(memory, space_id),
            common.count("limit", limit, 1),
            _categories(category_names),
            checks.share("min_score", min_score),
        )
        asked = {
            "query": _text("What you want to know, as a question or in a few words."),
            "valid_at": _text(f"To know what held at some time: {FORMAT}. If left out, all that is not over yet."),
            "limit": _limit(limit),
        }
        super().__init__(
            asking.by_topic,
            asked,
            "query",
            name=name,
            description=description,
            usual=TOPIC,
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
        limit: int = HITS,
        category_names: Iterable[str] | None = None,
        timeout: float | None = SECONDS,
    ) -> None:
        asking = _Asking(
            place_of(memory, space_id),
            common.count("limit", limit, 1),
            _categories(category_names),
        )
        asked = {"entity": _text("Its name, or an id that starts with ent_."), "limit": _limit(limit)}
        super().__init__(
            asking.by_entity,
            asked,
            "entity",
            name=name,
            description=description,
            usual=ENTITY,
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
        limit: int = TIMELINE_HITS,
        category_names: Iterable[str] | None = None,
        timeout: float | None = SECONDS,
    ) -> None:
        asking = _Asking(
            place_of(memory, space_id),
            common.count("limit", limit, 1),
            _categories(category_names),
        )
        asked = {
            "query": _text("The topic, if there is one."),
            "entity": _text("The person or thing it is about, by name or id, if there is one."),
            "from_date": _text(f"Where the period begins: {FORMAT}."),
            "to_date": _text(f"Where the period ends: {FORMAT}. A day alone is in it to its end."),
            "limit": _limit(limit),
        }
        super().__init__(
            asking.timeline,
            asked,
            name=name,
            description=description,
            usual=TIMELINE,
            timeout=timeout,
        )


@dataclass(frozen=True, slots=True)
class _Asking:
    """What the tools do, in their place and within their limits."""

    place: Place
    limit: int
    categories: tuple[str, ...] | None = None
    least: float = 0.0

    async def by_topic(self, query: str, valid_at: str | None = None, limit: float | None = None) -> dict[str, Any]:
        with told_to_the_model():
            result = await self.place.memory.recall_by_topic(
                self.place.space_id,
                query,
                bounded(limit, self.limit),
                self.categories,
                valid_at=moment("valid_at", valid_at),
                min_score=self.least,
            )
        return recalled(result)

    async def by_entity(self, entity: str, limit: float | None = None) -> dict[str, Any]:
        with told_to_the_model():
            result = await self.place.memory.recall_by_entity(
                self.place.space_id, entity, bounded(limit, self.limit), self.categories
            )
        return counted(result, recalled(result))

    async def timeline(
        self,
        query: str | None = None,
        entity: str | None = None,
        from_date: str | None = None,
        to_date: str | None = None,
        limit: float | None = None,
    ) -> dict[str, Any]:
        with told_to_the_model():
            result = await self.place.memory.recall_timeline(
                self.place.space_id,
                entity,
                query,
                moment("from_date", from_date),
                moment("to_date", to_date, at_end=True),
                bounded(limit, self.limit),
                category_names=self.categories,
            )
        now = self.place.now()
        given = recalled(result, lambda atom: standing(atom, now))
        return given if query else counted(result, given)
