"""Recall, as part of `user.memory`: what is asked, checked, with the rest filled in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from tellback.conversations import checks as common
from tellback.conversations.runtime import Runtime
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.memory import checks
from tellback.memory.recalling import RecallRequest, RecallService
from tellback.memory.view import NEVER, RecallFilter
from tellback.types.memory import RecallResult
from tellback.types.scope import Scope
from tellback.types.times import to_micros

DEFAULT_RECALL_LIMIT = 10
DEFAULT_TIMELINE_LIMIT = 20
MAX_NEIGHBOURS = 50

DatetimeLike = datetime | str | None


class MemoryRecall:
    """What can be asked of a memory: by topic, by entity, along time."""

    def __init__(self, runtime: Runtime, scope: Scope, recall: RecallService) -> None:
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
        valid_at: DatetimeLike = None,
        *,
        known_at: DatetimeLike = None,
        now: DatetimeLike = None,
        min_score: float = 0.0,
        neighbours: int = 0,
        include_archived: bool = False,
    ) -> RecallResult:
        """What answers a question best, ranked by words, meaning, time, speakers, entities, age and importance.

        `valid_at` recalls what held at a moment and `known_at` what was known then; without them, whatever is not over.
        Expressions such as "last May" in the query are understood relative to `now`. With `neighbours`, a hit that was
        said in a conversation brings so many turns before and after it along, as `hit.context`.
        """
        request = self._recall_request(
            space_id,
            limit,
            now,
            valid_at=valid_at,
            known_at=known_at,
            categories=category_names,
            min_importance=min_importance,
            include_archived=include_archived,
            neighbours=neighbours,
        )
        return await self._recall.by_topic(
            request, checks.validate_query("query", query), checks.validate_ratio("min_score", min_score)
        )

    async def recall_by_entity(
        self,
        space_id: str,
        entity_id_or_name: str,
        limit: int | None = None,
        category_names: Iterable[str] | None = None,
        *,
        valid_at: DatetimeLike = None,
        known_at: DatetimeLike = None,
        now: DatetimeLike = None,
        include_archived: bool = False,
    ) -> RecallResult:
        """Everything about an entity, the newest first.

        A name that no entity has recalls what mentions it, or was said by somebody of that name.
        """
        request = self._recall_request(
            space_id,
            limit,
            now,
            valid_at=valid_at,
            known_at=known_at,
            categories=category_names,
            include_archived=include_archived,
        )
        entity_ids, name = await self._resolve_entity(request.space_id, entity_id_or_name)
        return await self._recall.by_entity(request, entity_ids, name)

    async def recall_timeline(
        self,
        space_id: str,
        entity_id_or_name: str | None = None,
        query: str | None = None,
        from_: DatetimeLike = None,
        to: DatetimeLike = None,
        limit: int | None = None,
        include_superseded: bool = True,
        *,
        category_names: Iterable[str] | None = None,
        known_at: DatetimeLike = None,
        now: DatetimeLike = None,
    ) -> RecallResult:
        """How things changed: what held at some moment from `from_` to `to`, the oldest first, even if it is over.

        About an entity, on a topic, or both; without either, everything. Where there is more than `limit`, the best for
        the query stay, or the newest.
        """
        start, end = checks.validate_moment("from_", from_), checks.validate_moment("to", to)
        if start is not None and end is not None and start > end:
            raise InvalidArgumentError(f"from_ ({start.isoformat()}) is after to ({end.isoformat()}).")
        limit = DEFAULT_TIMELINE_LIMIT if limit is None else limit
        request = self._recall_request(space_id, limit, now, known_at=known_at, categories=category_names)
        request = replace(request, filter=replace(request.filter, include_superseded=include_superseded))
        entity_ids: list[str] | None = None
        name = None
        if entity_id_or_name is not None:
            entity_ids, name = await self._resolve_entity(request.space_id, entity_id_or_name)
        return await self._recall.timeline(
            request,
            entity_ids=entity_ids,
            name=name,
            query=None if query is None else checks.validate_query("query", query),
            start=-NEVER if start is None else to_micros(start),
            end=NEVER if end is None else to_micros(end),
        )

    def _recall_request(
        self,
        space_id: str,
        limit: int | None,
        now: DatetimeLike,
        *,
        valid_at: DatetimeLike = None,
        known_at: DatetimeLike = None,
        categories: Iterable[str] | None = None,
        min_importance: int | None = None,
        include_archived: bool = False,
        neighbours: int = 0,
    ) -> RecallRequest:
        moment = checks.validate_moment("now", now) or self._runtime.clock()
        valid, known = checks.validate_moment("valid_at", valid_at), checks.validate_moment("known_at", known_at)
        return RecallRequest(
            scope=self._scope,
            space_id=common.validate_id("space", space_id),
            now=to_micros(moment),
            filter=RecallFilter(
                valid_at=to_micros(valid or moment),
                known_at=NEVER if known is None else to_micros(known),
                must_have_started=valid is not None,
                include_archived=include_archived,
                categories=checks.validate_names("category_names", categories) or None,
                min_importance=0 if not min_importance else checks.validate_importance(min_importance),
            ),
            limit=DEFAULT_RECALL_LIMIT if limit is None else common.validate_count("limit", limit),
            neighbours=min(common.validate_count("neighbours", neighbours), MAX_NEIGHBOURS),
        )

    async def _resolve_entity(self, space_id: str, id_or_name: str) -> tuple[list[str], str | None]:
        """The entity of that id, or those of that name; and the name, if it is one."""
        reference = common.validate_name("entity_id_or_name", id_or_name, checks.MAX_NAME_LENGTH)
        entity = await self._runtime.store.memories.entity(self._scope, reference)
        while entity is not None and entity.merged_into is not None:
            entity = await self._runtime.store.memories.entity(self._scope, entity.merged_into)
        if entity is not None and entity.memory_space_id == space_id:
            return [entity.id], None
        if reference.startswith("ent_"):
            raise NotFoundError("entity", reference)
        found = await self._runtime.store.memories.find_entities(self._scope, space_id, reference)
        return [entity.id for entity in found], reference
