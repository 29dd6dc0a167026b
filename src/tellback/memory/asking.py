"""Recall, as part of `user.memory`: what is asked, checked, with the rest filled in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from tellback.conversations import checks as common
from tellback.conversations.runtime import Runtime
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.memory import checks
from tellback.memory.recalling import Recall, RecallRequest
from tellback.memory.view import NEVER, Wanted
from tellback.types.memory import RecallResult
from tellback.types.scope import Scope
from tellback.types.times import to_micros

RECALL_LIMIT = 10
TIMELINE_LIMIT = 20
MOST_NEIGHBOURS = 50

Moment = datetime | str | None


class Asking:
    """What can be asked of a memory: by topic, by entity, along time."""

    def __init__(self, runtime: Runtime, scope: Scope, recall: Recall) -> None:
        self._runtime = runtime
        self._scope = scope
        self._recall = recall

    async def recall_by_topic(
        self,
        space_id: str,
        query: str,
        limit: int | None = None,
        category_names: Iterable[str] | None = None,
        min_importance: int | None = None,
        valid_at: Moment = None,
        *,
        known_at: Moment = None,
        now: Moment = None,
        min_score: float = 0.0,
        neighbours: int = 0,
        include_archived: bool = False,
    ) -> RecallResult:
        """What answers a question best, ranked by words, meaning, time, speakers, entities, age and importance.

        `valid_at` recalls what held at a moment and `known_at` what was known then; without them, whatever is not over.
        Expressions such as "last May" in the query are understood relative to `now`. With `neighbours`, a hit that was
        said in a conversation brings so many turns before and after it along, as `hit.context`.
        """
        asked = self._asked(
            space_id,
            limit,
            now,
            valid_at=valid_at,
            known_at=known_at,
            categories=category_names,
            least=min_importance,
            archived=include_archived,
            neighbours=neighbours,
        )
        return await self._recall.by_topic(asked, checks.question("query", query), checks.share("min_score", min_score))

    async def recall_by_entity(
        self,
        space_id: str,
        entity_id_or_name: str,
        limit: int | None = None,
        category_names: Iterable[str] | None = None,
        *,
        valid_at: Moment = None,
        known_at: Moment = None,
        now: Moment = None,
        include_archived: bool = False,
    ) -> RecallResult:
        """Everything about an entity, the newest first.

        A name that no entity has recalls what mentions it, or was said by somebody of that name.
        """
        asked = self._asked(
            space_id,
            limit,
            now,
            valid_at=valid_at,
            known_at=known_at,
            categories=category_names,
            archived=include_archived,
        )
        entity_ids, name = await self._entities(asked.space_id, entity_id_or_name)
        return await self._recall.by_entity(asked, entity_ids, name)

    async def recall_timeline(
        self,
        space_id: str,
        entity_id_or_name: str | None = None,
        query: str | None = None,
        from_: Moment = None,
        to: Moment = None,
        limit: int | None = None,
        include_superseded: bool = True,
        *,
        category_names: Iterable[str] | None = None,
        known_at: Moment = None,
        now: Moment = None,
    ) -> RecallResult:
        """How things changed: what held at some moment from `from_` to `to`, the oldest first, even if it is over.

        About an entity, on a topic, or both; without either, everything. Where there is more than `limit`, the best for
        the query stay, or the newest.
        """
        start, end = checks.moment("from_", from_), checks.moment("to", to)
        if start is not None and end is not None and start > end:
            raise InvalidArgumentError(f"from_ ({start.isoformat()}) is after to ({end.isoformat()}).")
        limit = TIMELINE_LIMIT if limit is None else limit
        asked = self._asked(space_id, limit, now, known_at=known_at, categories=category_names)
        asked = replace(asked, wanted=replace(asked.wanted, over=include_superseded))
        entity_ids: list[str] | None = None
        name = None
        if entity_id_or_name is not None:
            entity_ids, name = await self._entities(asked.space_id, entity_id_or_name)
        return await self._recall.timeline(
            asked,
            entity_ids=entity_ids,
            name=name,
            query=None if query is None else checks.question("query", query),
            start=-NEVER if start is None else to_micros(start),
            end=NEVER if end is None else to_micros(end),
        )

    def _asked(
        self,
        space_id: str,
        limit: int | None,
        now: Moment,
        *,
        valid_at: Moment = None,
        known_at: Moment = None,
        categories: Iterable[str] | None = None,
        least: int | None = None,
        archived: bool = False,
        neighbours: int = 0,
    ) -> RecallRequest:
        moment = checks.moment("now", now) or self._runtime.clock()
        valid, known = checks.moment("valid_at", valid_at), checks.moment("known_at", known_at)
        return RecallRequest(
            scope=self._scope,
            space_id=common.known_id("space", space_id),
            now=to_micros(moment),
            wanted=Wanted(
                valid_at=to_micros(valid or moment),
                known_at=NEVER if known is None else to_micros(known),
                begun=valid is not None,
                archived=archived,
                categories=checks.names("category_names", categories) or None,
                least_importance=0 if not least else checks.importance(least),
            ),
            limit=RECALL_LIMIT if limit is None else common.count("limit", limit),
            neighbours=min(common.count("neighbours", neighbours), MOST_NEIGHBOURS),
        )

    async def _entities(self, space_id: str, id_or_name: str) -> tuple[list[str], str | None]:
        """The entity of that id, or those of that name; and the name, if it is one."""
        given = common.name("entity_id_or_name", id_or_name, checks.NAME_LENGTH)
        entity = await self._runtime.store.memories.entity(self._scope, given)
        while entity is not None and entity.merged_into is not None:
            entity = await self._runtime.store.memories.entity(self._scope, entity.merged_into)
        if entity is not None and entity.memory_space_id == space_id:
            return [entity.id], None
        if given.startswith("ent_"):
            raise NotFoundError("entity", given)
        found = await self._runtime.store.memories.entities_named(self._scope, space_id, given)
        return [entity.id for entity in found], given
