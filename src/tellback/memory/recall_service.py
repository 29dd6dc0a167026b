"""Recall over a cached space: by topic, by entity and along a timeline; and entity search by name."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np

from tellback import telemetry
from tellback.memory.embedding import EmbeddingService
from tellback.memory.recall import ranker
from tellback.memory.recall.dates.parser import parse_time_spans
from tellback.memory.recall.index import Bools, Floats, Ints
from tellback.memory.space_view import (
    NEVER,
    RecallFilter,
    SpaceCache,
    SpaceView,
    name_candidates,
    stored_name_candidates,
)
from tellback.stores import SpaceSearch
from tellback.types.access import Scope
from tellback.types.ids import fold_name
from tellback.types.memory import Entity, RecallHit, RecallMode, RecallResult

WORD = re.compile(r"[^\W_]+")
MAX_SEARCH_WORDS = 40
MAX_WORD_LENGTH = 250
MAX_CANDIDATES = 300
"""For a space too large to be cached: how many words of the question are searched for, and how many results are
ranked."""

MAX_RELATED_GAP = 3.0
"""On a timeline, rows that score this much lower than the best one (in log-odds) are treated as unrelated."""

ENTITY_BONUS = 1.5
MENTION_BONUS = 1.0
"""The scores, in log-odds, of a memory that is linked to an entity in the question, or that matches the request."""

P = ParamSpec("P")

ABOUT = "about it"
MENTIONS = "mentions it"
IN_TIME = "in this time"

SCORE_PART_LABELS: Mapping[str, str] = {
    **{signal.name: signal.label for signal in ranker.SIGNALS},
    "base": "Starting value (the same for every memory)",
    "age": "Age",
    "importance": "Importance",
    "entity": "About an entity named in the question",
    ABOUT: "About the requested entity",
    MENTIONS: "Contains the requested name",
    IN_TIME: "Valid in the requested period",
}
"""A short label for each part of a score (`RecallHit.parts`)."""

MAX_INLINE_ENTITIES = 200
MIN_NAME_SIMILARITY = 0.75
"""Names with at least this similarity are treated as misspellings of each other."""


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """The parameters of a recall besides the query: the owner, the space, the time, the filter and the limits."""

    scope: Scope
    space_id: str
    now: int
    filter: RecallFilter
    limit: int
    neighbours: int = 0


RecallMethod = Callable[Concatenate["RecallService", RecallRequest, P], Awaitable[tuple[list[RecallHit], int]]]
TracedRecallMethod = Callable[Concatenate["RecallService", RecallRequest, P], Coroutine[Any, Any, RecallResult]]


def trace_recall(mode: RecallMode) -> Callable[[RecallMethod[P]], TracedRecallMethod[P]]:
    """Wrap a recall method: build the `RecallResult` from its hits and candidate count, inside a telemetry span."""

    def decorate(method: RecallMethod[P]) -> TracedRecallMethod[P]:
        @wraps(method)
        async def traced(
            self: RecallService, request: RecallRequest, /, *args: P.args, **kwargs: P.kwargs
        ) -> RecallResult:
            started = time.perf_counter()
            with telemetry.recall_span(mode, request.space_id) as span:
                hits, candidates = await method(self, request, *args, **kwargs)
                seconds = time.perf_counter() - started
                return span.record_result(RecallResult(mode, tuple(hits), candidates, seconds * 1000))

        return traced

    return decorate


class RecallService:
    """Ranks the spaces of a store."""

    def __init__(self, space_cache: SpaceCache, embedding: EmbeddingService) -> None:
        self._space_cache = space_cache
        self._embedding = embedding

    @trace_recall(RecallMode.BY_TOPIC)
    async def by_topic(self, request: RecallRequest, query: str, min_score: float = 0.0) -> tuple[list[RecallHit], int]:
        """Return the memories that answer a query best."""
        vector = await self._embed_whole_query(query)
        async with self._space_cache.use(
            request.scope, request.space_id, partial(self._build_search, request, query, vector)
        ) as view:
            self._schedule_missing_vectors(request, view)
            eligible = view.eligible(request.filter)
            scores = await self._score_topic(view, query, vector, request.now, eligible)
            rows = _top_rows(view, scores.total, eligible, request.limit)
            hits = [hit for hit in _build_hits(view, request, rows, scores, eligible) if hit.score >= min_score]
            return hits, int(np.count_nonzero(eligible))

    @trace_recall(RecallMode.BY_ENTITY)
    async def by_entity(
        self, request: RecallRequest, entity_ids: list[str], name: str | None
    ) -> tuple[list[RecallHit], int]:
        """Return the memories about an entity, the newest first. If no entity has the name, return those that mention
        it."""
        search = partial(self._build_search, request, None if entity_ids else name, None, entity_ids)
        async with self._space_cache.use(request.scope, request.space_id, search) as view:
            self._schedule_missing_vectors(request, view)
            eligible = view.eligible(request.filter)
            matching, part = _match_entity(view, entity_ids, name)
            rows = np.flatnonzero(eligible & matching)
            newest = rows[np.lexsort((-rows, -view.valid_from.view[rows]))][: request.limit]
            return _build_hits(view, request, newest, _uniform_scores(view, request.now, part), eligible), len(rows)

    @trace_recall(RecallMode.TIMELINE)
    async def timeline(
        self,
        request: RecallRequest,
        *,
        entity_ids: list[str] | None = None,
        name: str | None = None,
        query: str | None = None,
        start: int,
        end: int,
    ) -> tuple[list[RecallHit], int]:
        """Return the memories valid between two times, the oldest first. Above the limit, keep the best matches for the
        query, or the newest."""
        vector = None if query is None else await self._embed_whole_query(query)
        text = " ".join(filter(None, (query, None if entity_ids else name))) or None
        search = partial(self._build_search, request, text, vector, entity_ids or [], start, end)
        async with self._space_cache.use(request.scope, request.space_id, search) as view:
            self._schedule_missing_vectors(request, view)
            eligible = view.eligible(request.filter) & view.overlapping(start, end, request.filter.known_at)
            part = IN_TIME
            if entity_ids is not None:
                matching, part = _match_entity(view, entity_ids, name)
                eligible &= matching
            rows = np.flatnonzero(eligible)
            if query is not None:
                scores = await self._score_topic(view, query, vector, request.now, eligible)
                selected = _timeline_rows(view, scores.total, eligible, request.limit)
            else:
                scores = _uniform_scores(view, request.now, part)
                selected = rows[np.lexsort((-rows, -view.valid_from.view[rows]))][: request.limit]
            ordered = selected[np.lexsort((selected, view.valid_from.view[selected]))]
            return _build_hits(view, request, ordered, scores, eligible), len(rows)

    async def _embed_whole_query(self, query: str) -> Floats | None:
        """Embed the whole query, unless the embedder is quick: then only the topic is embedded, once it is known."""
        return None if self._embedding.is_quick else await self._embedding.embed_query(query)

    async def _score_topic(
        self, view: SpaceView, query: str, vector: Floats | None, now: int, eligible: Bools
    ) -> _Scores:
        spans = parse_time_spans(query, now)
        parsed = ranker.parse_query(view.index, ranker.Query(query, now, None, spans))
        if self._embedding.is_quick:
            vector = await self._embedding.embed_query(parsed.topic)
        return _score_by_topic(view, ranker.Query(query, now, vector, spans), parsed, eligible)

    async def _build_search(
        self,
        request: RecallRequest,
        text: str | None,
        vector: Floats | None,
        entity_ids: Sequence[str] = (),
        start: int = -NEVER,
        end: int = NEVER,
    ) -> SpaceSearch:
        """Build the search for a space that is too large to be cached."""
        if vector is None and text is not None and self._embedding.is_quick:
            vector = await self._embedding.embed_query(text)
        filter = request.filter
        return SpaceSearch(
            limit=max(MAX_CANDIDATES, request.limit),
            known_at=filter.known_at,
            started_by=filter.valid_at if filter.must_have_started else NEVER,
            ends_after=-NEVER if filter.include_superseded else filter.valid_at,
            since=start,
            until=end,
            statuses=("ACTIVE", "ARCHIVED") if filter.include_archived else ("ACTIVE",),
            categories=filter.categories,
            min_importance=filter.min_importance,
            words=() if text is None else _search_words(text),
            vector=None if vector is None else vector.astype("<f2").tobytes(),
            embedder=self._embedding.name,
            entity_ids=tuple(entity_ids),
            names=() if text is None else tuple({*name_candidates(text), *stored_name_candidates(text)}),
        )

    def _schedule_missing_vectors(self, request: RecallRequest, view: SpaceView) -> None:
        if not view.has_all_vectors:
            self._embedding.schedule_backfill(request.scope, request.space_id)


def _search_words(text: str) -> tuple[str, ...]:
    """Return the words to search for, without words that are too long for PostgreSQL's index."""
    return tuple(dict.fromkeys(word for word in WORD.findall(text.lower()) if len(word) <= MAX_WORD_LENGTH))[
        :MAX_SEARCH_WORDS
    ]


@dataclass(frozen=True, slots=True)
class _Scores:
    """The rows' log-odds, their parts, and the bonus of their entities. A single number applies to all rows."""

    total: Floats
    parts: Mapping[str, Any]
    bonus: Any = 1.0


def _score_by_topic(view: SpaceView, query: ranker.Query, parsed: ranker.ParsedQuery, eligible: Bools) -> _Scores:
    relevance = ranker.score_rows(view.index, query, None if eligible.all() else eligible, parsed=parsed)
    prior = view.prior_scores(query.now)
    parts = {**relevance.parts, "age": prior.age, "importance": prior.importance}
    total = relevance.total + prior.total
    named = view.entities_named_in(query.text)
    if not named:
        return _Scores(total, parts)
    bonus = np.ones(len(view), np.float32)
    for id in named:
        bonus[view.rows_about([id])] += 1 / len(named)
    parts["entity"] = ENTITY_BONUS * (bonus - 1)
    return _Scores(total + parts["entity"], parts, bonus)


def _uniform_scores(view: SpaceView, now: int, part: str) -> _Scores:
    """Score rows when the question itself does not prefer one memory to another."""
    prior = view.prior_scores(now)
    parts = {part: MENTION_BONUS, "age": prior.age, "importance": prior.importance}
    return _Scores(prior.total + np.float32(MENTION_BONUS), parts, 2.0 if part == ABOUT else 1.0)


def _match_entity(view: SpaceView, entity_ids: list[str], name: str | None) -> tuple[Bools, str]:
    if entity_ids or name is None:
        return view.mask_mentioning(entity_ids), ABOUT
    return view.index.rows_mentioning(name), MENTIONS


def _top_rows(view: SpaceView, total: Floats, eligible: Bools, limit: int) -> Ints:
    """Return the eligible rows with the highest log-odds; of equal ones, the newer first."""
    limit = min(limit, int(np.count_nonzero(eligible)))
    if not limit:
        return np.zeros(0, np.int64)
    scores = np.where(eligible, total, -np.inf)
    # Keep the rows that tie with the last one: the sort below decides their order.
    threshold = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    rows = np.flatnonzero(scores >= threshold)
    order = np.lexsort((-rows, -view.valid_from.view[rows], -scores[rows]))
    return rows[order[:limit]]


def _timeline_rows(view: SpaceView, total: Floats, eligible: Bools, limit: int) -> Ints:
    """Return the best rows that are related to a topic, and the rows that they superseded or that superseded them."""
    best = _top_rows(view, total, eligible, limit)
    if not len(best):
        return best
    near = best[total[best] >= total[best[0]] - MAX_RELATED_GAP]
    chained = np.zeros(len(view), np.bool_)
    chained[[row for found in near.tolist() for row in view.chain(found)]] = True
    return _top_rows(view, total, chained & eligible, limit)


def _build_hits(
    view: SpaceView, request: RecallRequest, rows: Ints, scores: _Scores, eligible: Bools
) -> list[RecallHit]:
    columns = [_column_values(values, rows) for values in scores.parts.values()]
    hits = []
    # Use the totals that ordered the hits: adding up the parts again would round differently.
    totals = scores.total[rows].tolist()
    decays, bonuses = view.decay(rows, request.now).tolist(), _column_values(scores.bonus, rows)
    for row, total, decay, bonus, *values in zip(rows.tolist(), totals, decays, bonuses, *columns, strict=True):
        neighbours = view.index.neighbour_rows(row, request.neighbours) if request.neighbours else ()
        hits.append(
            RecallHit(
                atom=view.atom(row),
                score=_probability(total),
                decay_weight=decay,
                entity_match_bonus=bonus,
                context=tuple([view.atom(other) for other in neighbours if eligible[other]]),
                parts=dict(zip(scores.parts, values, strict=True)),
            )
        )
    return hits


def _column_values(values: Any, rows: Ints) -> list[float]:
    found: list[float] = values[rows].tolist() if np.ndim(values) else [float(values)] * len(rows)
    return found


def _probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds)) if log_odds > -700 else 0.0


async def rank_entities(entities: Sequence[Entity], query: str) -> list[Entity]:
    """Rank the entities that match: by equal name, its beginning, its words, a part of it, the description, a
    misspelling.

    Of equal matches, the entities with the most atoms come first. Long lists are compared in a thread, so that they do
    not block the event loop.
    """
    if len(entities) <= MAX_INLINE_ENTITIES:
        return _rank_entities(entities, query)
    return await asyncio.to_thread(_rank_entities, entities, query)


def _rank_entities(entities: Sequence[Entity], query: str) -> list[Entity]:
    folded_query = fold_name(query)
    ranked = [(-_match_score(entity, folded_query), -entity.atom_count, entity.id, entity) for entity in entities]
    return [entity for score, *_, entity in sorted(ranked, key=lambda each: each[:3]) if score]


def _match_score(entity: Entity, query: str) -> int:
    if not query:
        return 1
    names = [fold_name(name) for name in (entity.canonical_name, *entity.aliases)]
    words = set(query.split())
    if query in names:
        return 6
    if any(name.startswith(query) for name in names):
        return 5
    if any(words <= set(name.split()) for name in names):
        return 4
    if any(query in name for name in names):
        return 3
    if entity.description is not None and query in fold_name(entity.description):
        return 2
    return int(any(_is_misspelling(name, query) for name in names))


def _is_misspelling(name: str, query: str) -> bool:
    matcher = SequenceMatcher(None, name, query)
    # The quick ratios are upper bounds of the exact ratio.
    ratios = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
    return all(ratio() >= MIN_NAME_SIMILARITY for ratio in ratios)
