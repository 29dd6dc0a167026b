"""Recall: by topic, by entity and along time, over a space held in this process."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np
import numpy.typing as npt

from tellback import telemetry
from tellback.memory.embedding import Embedding
from tellback.memory.recall import dates, rank
from tellback.memory.view import NEVER, SpaceView, Wanted, name_candidates, written_candidates
from tellback.memory.views import SpaceViews
from tellback.stores import Search
from tellback.types.memory import RecallHit, RecallMode, RecallResult
from tellback.types.scope import Scope

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

WORD = re.compile(r"[^\W_]+")
MOST_WORDS = 40
LONGEST_WORD = 250
CANDIDATES = 300
"""In a space too large to be held: how much of a question is searched for, and how many are ranked by each search."""

RELATED = 3.0
"""On a timeline, what is so many log-odds less likely than the best is taken to be about something else."""

ENTITY = 1.5
MENTION = 1.0
"""What it counts, in log-odds, that a memory is about what the question names, or about what was asked for at all."""


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What recall needs to know besides what is asked: whose memory, when it is asked, and what may be given."""

    scope: Scope
    space_id: str
    now: int
    wanted: Wanted
    limit: int
    neighbours: int = 0


P = ParamSpec("P")
Asked = Callable[Concatenate["Recall", RecallRequest, P], Awaitable[RecallResult]]
Observed = Callable[Concatenate["Recall", RecallRequest, P], Coroutine[Any, Any, RecallResult]]


def observed(mode: RecallMode) -> Callable[[Asked[P]], Observed[P]]:
    """Put a span around each recall of a mode."""

    def observing(ask: Asked[P]) -> Observed[P]:
        @wraps(ask)
        async def answer(self: Recall, asked: RecallRequest, /, *args: P.args, **kwargs: P.kwargs) -> RecallResult:
            with telemetry.recall_span(mode, asked.space_id) as span:
                return span.found(await ask(self, asked, *args, **kwargs))

        return answer

    return observing


class Recall:
    """Ranks the spaces of a store."""

    def __init__(self, views: SpaceViews, embedding: Embedding) -> None:
        self._views = views
        self._embedding = embedding

    @observed(RecallMode.BY_TOPIC)
    async def by_topic(self, asked: RecallRequest, query: str, least_score: float = 0.0) -> RecallResult:
        """What answers a query best."""
        began = time.perf_counter()
        vector = await self._whole(query)
        async with self._views.use(asked.scope, asked.space_id, partial(self._search, asked, query, vector)) as view:
            self._complete(asked, view)
            eligible = view.eligible(asked.wanted)
            scored = await self._topic(view, query, vector, asked.now, eligible)
            rows = _best(view, scored.total, eligible, asked.limit)
            hits = [hit for hit in _hits(view, asked, rows, scored, eligible) if hit.score >= least_score]
            return _result(RecallMode.BY_TOPIC, hits, int(np.count_nonzero(eligible)), began)

    @observed(RecallMode.BY_ENTITY)
    async def by_entity(self, asked: RecallRequest, entity_ids: list[str], name: str | None) -> RecallResult:
        """What is about an entity or, where none is known by that name, what mentions it; the newest first."""
        began = time.perf_counter()
        search = partial(self._search, asked, None if entity_ids else name, None, entity_ids)
        async with self._views.use(asked.scope, asked.space_id, search) as view:
            self._complete(asked, view)
            eligible = view.eligible(asked.wanted)
            matching, part = _concerning(view, entity_ids, name)
            rows = np.flatnonzero(eligible & matching)
            newest = rows[np.lexsort((-rows, -view.valid_from.view[rows]))]
            scored = _even(view, asked.now, part)
            hits = _hits(view, asked, newest[: asked.limit], scored, eligible)
            return _result(RecallMode.BY_ENTITY, hits, len(rows), began)

    @observed(RecallMode.TIMELINE)
    async def timeline(
        self,
        asked: RecallRequest,
        *,
        entity_ids: list[str] | None = None,
        name: str | None = None,
        query: str | None = None,
        start: int,
        end: int,
    ) -> RecallResult:
        """What held between two moments, the oldest first. Where that is more than asked for, the best for the query
        stay, or the newest."""
        began = time.perf_counter()
        vector = None if query is None else await self._whole(query)
        text = " ".join(filter(None, (query, None if entity_ids else name))) or None
        search = partial(self._search, asked, text, vector, entity_ids or [], start, end)
        async with self._views.use(asked.scope, asked.space_id, search) as view:
            self._complete(asked, view)
            eligible = view.eligible(asked.wanted) & view.overlapping(start, end, asked.wanted.known_at)
            part = "in this time"
            if entity_ids is not None:
                matching, part = _concerning(view, entity_ids, name)
                eligible &= matching
            rows = np.flatnonzero(eligible)
            if query is not None:
                scored = await self._topic(view, query, vector, asked.now, eligible)
                kept = _history(view, scored.total, eligible, asked.limit)
            else:
                scored = _even(view, asked.now, part)
                kept = rows[np.lexsort((-rows, -view.valid_from.view[rows]))][: asked.limit]
            ordered = kept[np.lexsort((kept, view.valid_from.view[kept]))]
            hits = _hits(view, asked, ordered, scored, eligible)
            return _result(RecallMode.TIMELINE, hits, len(rows), began)

    async def _whole(self, query: str) -> Floats | None:
        """The vector of all that is asked, by an embedder that cannot wait until it is known what that is about."""
        return None if self._embedding.is_quick else await self._embedding.question(query)

    async def _topic(self, view: SpaceView, query: str, vector: Floats | None, now: int, eligible: Bools) -> _Scored:
        reading = dates.read_query(query, now)
        read = rank.read(view.index, rank.Query(query, now, None, reading))
        if self._embedding.is_quick:
            vector = await self._embedding.question(read.topic)
        return _by_topic(view, rank.Query(query, now, vector, reading), read, eligible)

    async def _search(
        self,
        asked: RecallRequest,
        text: str | None,
        vector: Floats | None,
        entity_ids: Sequence[str] = (),
        start: int = -NEVER,
        end: int = NEVER,
    ) -> Search:
        """What to look for where the space is too large to be held."""
        if vector is None and text is not None and self._embedding.is_quick:
            vector = await self._embedding.question(text)
        wanted = asked.wanted
        return Search(
            limit=max(CANDIDATES, asked.limit),
            known_at=wanted.known_at,
            begun_at=wanted.valid_at if wanted.begun else NEVER,
            over_at=-NEVER if wanted.over else wanted.valid_at,
            since=start,
            until=end,
            statuses=("ACTIVE", "ARCHIVED") if wanted.archived else ("ACTIVE",),
            categories=wanted.categories,
            least_importance=wanted.least_importance,
            words=() if text is None else _searched(text),
            vector=None if vector is None else vector.astype("<f2").tobytes(),
            embedder=self._embedding.name,
            entity_ids=tuple(entity_ids),
            names=() if text is None else tuple({*name_candidates(text), *written_candidates(text)}),
        )

    def _complete(self, asked: RecallRequest, view: SpaceView) -> None:
        if not view.has_all_vectors:
            self._embedding.consider(asked.scope, asked.space_id)


def _searched(text: str) -> tuple[str, ...]:
    """The words to search for: PostgreSQL takes no longer ones, and has none."""
    return tuple(dict.fromkeys(word for word in WORD.findall(text.lower()) if len(word) <= LONGEST_WORD))[:MOST_WORDS]


@dataclass(frozen=True, slots=True)
class _Scored:
    """The rows' log-odds, what they are made of, and what their entities are worth; one number stands for all rows."""

    total: Floats
    parts: Mapping[str, Any]
    bonus: Any = 1.0


def _by_topic(view: SpaceView, asked: rank.Query, read: rank.Asked, eligible: Bools) -> _Scored:
    relevance = rank.relevance(view.index, asked, None if eligible.all() else eligible, asked=read)
    lasting = view.lasting(asked.now)
    parts = {**relevance.parts, "age": lasting.age, "importance": lasting.importance}
    total = relevance.total + lasting.together
    named = view.named_in(asked.text)
    if not named:
        return _Scored(total, parts)
    bonus = np.ones(len(view), np.float32)
    for id in named:
        bonus[view.about([id])] += 1 / len(named)
    parts["entity"] = ENTITY * (bonus - 1)
    return _Scored(total + parts["entity"], parts, bonus)


def _even(view: SpaceView, now: int, part: str) -> _Scored:
    """Scores where the question itself does not prefer one memory to another."""
    lasting = view.lasting(now)
    parts = {part: MENTION, "age": lasting.age, "importance": lasting.importance}
    return _Scored(lasting.together + np.float32(MENTION), parts, 2.0 if part == ABOUT else 1.0)


ABOUT = "about it"


def _concerning(view: SpaceView, entity_ids: list[str], name: str | None) -> tuple[Bools, str]:
    if entity_ids or name is None:
        return view.mentioning(entity_ids), ABOUT
    return view.index.mentions(name), "mentions it"


def _best(view: SpaceView, total: Floats, eligible: Bools, limit: int) -> Rows:
    """The eligible rows with the highest log-odds; among equals the newer."""
    limit = min(limit, int(np.count_nonzero(eligible)))
    if not limit:
        return np.zeros(0, np.int64)
    scores = np.where(eligible, total, -np.inf)
    # Those that tie with the last one stay in, so that the order among them is decided below.
    least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    rows = np.flatnonzero(scores >= least)
    order = np.lexsort((-rows, -view.valid_from.view[rows], -scores[rows]))
    return rows[order[:limit]]


def _history(view: SpaceView, total: Floats, eligible: Bools, limit: int) -> Rows:
    """The best rows for a topic, as far as they have to do with it, and what stood in their place before and after."""
    best = _best(view, total, eligible, limit)
    if not len(best):
        return best
    near = best[total[best] >= total[best[0]] - RELATED]
    chained = np.zeros(len(view), np.bool_)
    chained[[row for found in near.tolist() for row in view.chain(found)]] = True
    return _best(view, total, chained & eligible, limit)


def _hits(view: SpaceView, asked: RecallRequest, rows: Rows, scored: _Scored, eligible: Bools) -> list[RecallHit]:
    names = list(scored.parts)
    columns = [_column(values, rows) for values in scored.parts.values()]
    hits = []
    # The score is what hits were ordered by: adding up the parts anew would round anew.
    totals = scored.total[rows].tolist()
    decays, bonuses = view.decay(rows, asked.now).tolist(), _column(scored.bonus, rows)
    for row, total, decay, bonus, *values in zip(rows.tolist(), totals, decays, bonuses, *columns, strict=True):
        around = view.index.group_rows(row, asked.neighbours) if asked.neighbours else ()
        hits.append(
            RecallHit(
                atom=view.atom(row),
                score=_share(total),
                decay_weight=decay,
                entity_match_bonus=bonus,
                context=tuple([view.atom(other) for other in around if eligible[other]]),
                parts=dict(zip(names, values, strict=True)),
            )
        )
    return hits


def _column(values: Any, rows: Rows) -> list[float]:
    found: list[float] = values[rows].tolist() if np.ndim(values) else [float(values)] * len(rows)
    return found


def _share(odds: float) -> float:
    return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


def _result(mode: RecallMode, hits: list[RecallHit], candidates: int, began: float) -> RecallResult:
    return RecallResult(mode, tuple(hits), candidates, (time.perf_counter() - began) * 1000)
