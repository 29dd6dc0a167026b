"""Find patterns: recurring episodes become a separate atom that cites them.

Finding them does no I/O; `PatternMiner`, at the end, reads the episodes and stores the patterns.

Patterns ignore the time of day, because the stored hour is mostly when somebody mentioned the episode, in UTC.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from tellback.errors import ConfigurationError, NotFoundError
from tellback.memory.embedding import EmbeddingService, embed_changes, iterate_spaces
from tellback.memory.extraction.reconciliation.facts import merge_citations, with_citations
from tellback.memory.recall.dates.parser import parse_time_spans
from tellback.memory.recall.tokenizer import HAS_NUMBER, HAS_TIME, extract_words
from tellback.memory.text_similarity import negates, overlap
from tellback.runtime import Runtime
from tellback.stores import AddedCitation, AtomChange, AtomDraft, AtomFilter, MemoryStore, Reconciliation, Replacement
from tellback.types.access import Scope
from tellback.types.ids import fold_name, new_id, to_micros
from tellback.types.memory import TURN_CATEGORY, Atom, AtomStatus, Category, CategoryKind, Citation

__all__ = ["PatternMining"]

MIN_REGULAR_SHARE = 0.8
"""The minimum share of days that must fit a rule such as "on Mondays"."""

WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
PATTERN_PREFIX = "Recurs"

_PREPOSITION = r"(?:,?\s*\b(?:on|in|at|during|am|im|den|el|en|le|vom)\s+)?"
_EVERY = re.compile(r"(?:every|each|jeden|jede|cada|chaque)\s*$", re.IGNORECASE)
_LOOSE_PUNCTUATION = re.compile(r"\s+(?=[.,;:!?])|^[\s,;:.]+|[\s,;:]+(?=\.?$)")

MIN_SIMILARITY = 2 / 3
"""Episodes are similar if they share this much of their stems. People and places must also be the same."""

Signature = frozenset[str]

_IGNORED_STEMS = frozenset({"user", "im", "den", "el", "en", "le", "vom"})
"""Words that do not distinguish episodes: the user, and words before dates."""

_WORD = re.compile(r"[^\W\d_][\w'\u2019]*")

_MIN_OVERLAP = 1 / 3

PATTERN_CATEGORY = Category("pattern", CategoryKind.PATTERN)
DEFAULT_MIN_DAYS = 3
"""The minimum number of different days on which episodes must happen to form a pattern."""


def describe_regularity(days: Collection[date], *, at_least: int) -> str:
    """Describe the rule that the days follow, such as "on Mondays", or return "" if there is none.

    >>> from datetime import date, timedelta
    >>> describe_regularity([date(2026, 3, 2) + timedelta(weeks=n) for n in range(3)], at_least=3)
    'on Mondays'
    """
    in_order = sorted(set(days))
    needed = max(at_least, MIN_REGULAR_SHARE * len(in_order))
    if len(in_order) < at_least:
        return ""
    gaps = [(after - before).days for before, after in pairwise(in_order)]
    if len(gaps) > at_least and gaps.count(1) >= MIN_REGULAR_SHARE * len(gaps):
        return "daily"
    [(day, months)] = Counter(each.day for each in in_order).most_common(1)
    if months >= needed:
        return f"on day {day} of the month"
    [(weekday, times)] = Counter(each.weekday() for each in in_order).most_common(1)
    if times >= needed:
        return f"on {WEEKDAYS[weekday]}"
    weekend = sum(each.weekday() >= 5 for each in in_order)
    return "on weekends" if weekend >= needed and len(in_order) > at_least else ""


def pattern_sentence(text: str) -> str:
    """Return the sentence of a pattern's text, without the rule before it.

    >>> pattern_sentence("Recurs on Mondays: User said: hello.")
    'User said: hello.'
    """
    return text.partition(": ")[2] if text.startswith(PATTERN_PREFIX) else text


def remove_dates(text: str, said_us: int) -> str:
    """Remove the dates from a sentence, unless nothing else is left.

    >>> remove_dates("User went running in the park on Monday, 2 March 2026.", 0)
    'User went running in the park.'
    """
    remaining = text
    for span in parse_time_spans(text, said_us):
        if span.precision == "hour":
            continue
        found = re.search(_PREPOSITION + re.escape(span.text), remaining, re.IGNORECASE)
        if found is not None and not _EVERY.search(remaining[: found.start()]):
            remaining = remaining[: found.start()] + remaining[found.end() :]
    remaining = _LOOSE_PUNCTUATION.sub("", " ".join(remaining.split()))
    return remaining[:1].upper() + remaining[1:] if remaining != text and len(extract_words(remaining)) > 1 else text


@dataclass(slots=True)
class Cluster:
    """Similar episodes in chronological order, with their signatures and the entities they name.

    They recur if they happened on at least `at_least` days.
    """

    at_least: int
    episodes: list[Atom] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    entity_ids: frozenset[str] = frozenset()

    def add(self, episode: Atom, signature: Signature) -> None:
        """Add an episode. The first one that has entities determines those of the cluster."""
        self.episodes.append(episode)
        self.signatures.append(signature)
        self.entity_ids = self.entity_ids or frozenset(episode.entity_ids)

    @property
    def days(self) -> set[date]:
        return episode_days(self.episodes)

    @property
    def recurs(self) -> bool:
        return len(self.days) >= self.at_least

    @property
    def citations(self) -> tuple[Citation, ...]:
        return merge_citations(citation for episode in self.episodes for citation in episode.citations)

    def learned_after(self, moment: datetime) -> Cluster:
        """Return a cluster of the episodes that were stored after a time."""
        later = [number for number, episode in enumerate(self.episodes) if episode.created_at > moment]
        episodes, signatures = (
            [self.episodes[number] for number in later],
            [self.signatures[number] for number in later],
        )
        return replace(self, episodes=episodes, signatures=signatures)

    def text_with(self, sentence: str) -> str:
        """Return the text of a pattern with that sentence and the rule of this cluster.

        >>> Cluster(at_least=3).text_with("User went running.")
        'Recurs: User went running.'
        """
        when = describe_regularity(self.days, at_least=self.at_least)
        return f"{PATTERN_PREFIX} {when}: {sentence}" if when else f"{PATTERN_PREFIX}: {sentence}"

    def typical_sentence(self) -> str:
        """Return the sentence of the episode that shares the most stems with the others; of several, the shortest, then
        the first."""
        stem_counts = Counter(stem for signature in self.signatures for stem in signature)

        def oddity(number: int) -> tuple[float, int, int]:
            signature = self.signatures[number]
            shared = sum(stem_counts[stem] for stem in signature) / (len(signature) + len(stem_counts))
            return -shared, len(self.episodes[number].text), number

        number = min(range(len(self.episodes)), key=oddity)
        episode = self.episodes[number]
        sentence = remove_dates(episode.text, to_micros(episode.valid_from))
        # The signature of its sentence identifies a pattern later.
        return sentence if episode_signature(sentence) == self.signatures[number] else episode.text


def episode_signature(text: str) -> Signature:
    """Return the stems of an episode without its dates and counts.

    A negated episode gets different stems, so it has nothing in common with a positive one.
    """
    stems = _stems(text)
    return frozenset(f"not {stem}" for stem in stems) if negates(text) else stems


def _stems(text: str) -> Signature:
    return (
        frozenset(word.term for word in extract_words(text) if not word.features & (HAS_TIME | HAS_NUMBER))
        - _IGNORED_STEMS
    )


def name_stems(text: str) -> Signature:
    """Return the stems of the names in a text, recognized by capital letters.

    >>> sorted(name_stems("User met Anna for coffee on Monday."))
    ['anna']
    """
    return _stems(" ".join(word for word in _WORD.findall(text) if word[0].isupper()))


def have_same_names(one: str, other: str) -> bool:
    """Whether two texts contain each other's names.

    >>> have_same_names("User met Anna.", "user saw anna"), have_same_names("User met Anna.", "User met Bob.")
    (True, False)
    """
    return name_stems(one) <= _stems(other) and name_stems(other) <= _stems(one)


def are_compatible(one: Set[str], other: Set[str]) -> bool:
    """Whether two sets of entity ids may describe the same thing: one contains the other."""
    return one <= other or other <= one


def cluster_episodes(episodes: Iterable[Atom], at_least: int = DEFAULT_MIN_DAYS) -> list[Cluster]:
    """Group similar episodes. Later episodes do not change the groups of earlier ones."""
    in_order = sorted(episodes, key=lambda episode: (episode.valid_from, episode.id))
    signed = [(episode_signature(episode.text), episode) for episode in in_order]
    index = _ClusterIndex((signature for signature, _ in signed), at_least)
    for signature, episode in signed:
        if signature:
            index.find_or_create(signature, episode).add(episode, signature)
    return index.clusters


class _ClusterIndex:
    """Clusters by the signatures of their first episodes, found by their rarest stems.

    Two sets above the similarity threshold share at least one of their rarest stems, so only clusters with such a stem
    are compared.
    """

    def __init__(self, signatures: Iterable[Signature], at_least: int) -> None:
        self._stem_counts = Counter(stem for signature in signatures for stem in signature)
        self._at_least = at_least
        self.clusters: list[Cluster] = []
        self._by_stem: dict[str, list[int]] = defaultdict(list)
        self._assigned: dict[tuple[Signature, frozenset[str]], Cluster] = {}

    def find_or_create(self, signature: Signature, episode: Atom) -> Cluster:
        """Return the most similar cluster, or a new one. Episodes with equal signatures and entities share a
        cluster."""
        key = signature, frozenset(episode.entity_ids)
        if key not in self._assigned:
            rarest = self._rarest(signature)
            self._assigned[key] = self._find(signature, rarest, episode) or self._create(rarest)
        return self._assigned[key]

    def _create(self, rarest: Sequence[str]) -> Cluster:
        for stem in rarest:
            self._by_stem[stem].append(len(self.clusters))
        self.clusters.append(Cluster(self._at_least))
        return self.clusters[-1]

    def _find(self, signature: Signature, rarest: Sequence[str], episode: Atom) -> Cluster | None:
        near = {number for stem in rarest for number in self._by_stem.get(stem, ())}
        found = [(-_similarity(signature, self.clusters[number].signatures[0]), number) for number in near]
        similar = (self.clusters[number] for similarity, number in sorted(found) if -similarity >= MIN_SIMILARITY)
        return next((cluster for cluster in similar if _accepts(cluster, episode)), None)

    def _rarest(self, signature: Signature) -> Sequence[str]:
        needed = len(signature) - math.ceil(len(signature) * MIN_SIMILARITY - 1e-9) + 1
        return sorted(signature, key=lambda stem: (self._stem_counts[stem], stem))[:needed]


def _accepts(cluster: Cluster, episode: Atom) -> bool:
    about_same = are_compatible(cluster.entity_ids, frozenset(episode.entity_ids))
    return about_same and have_same_names(cluster.episodes[0].text, episode.text)


def _similarity(one: Signature, other: Signature) -> float:
    if min(len(one), len(other)) < MIN_SIMILARITY * max(len(one), len(other)) - 1e-9:
        return 0.0  # their sizes differ too much for the threshold
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def episode_days(episodes: Iterable[Atom]) -> set[date]:
    """Return the days on which the episodes happened."""
    return {episode.valid_from.date() for episode in episodes}


def cited_message_ids(citations: Iterable[Citation]) -> set[str]:
    """Return the ids of the messages that are cited."""
    return {id for citation in citations for id in citation.message_ids}


class PatternMatch(NamedTuple):
    """A cluster and a pattern that may belong together. A greater tuple is a better match. `order` is the negative
    number of the cluster."""

    says_same: bool
    shared_messages: int
    exact: bool
    order: int
    pattern_id: str


def match_patterns(
    clusters: Sequence[Cluster], patterns: Sequence[Atom], live_message_ids: Set[str]
) -> Iterator[PatternMatch]:
    """Yield pairs that may belong together: the pattern resembles an episode, or cites most of the cluster's messages.

    `live_message_ids` are the messages that any episode cites. Messages of removed episodes do not count.
    """
    by_message: dict[str, set[int]] = defaultdict(set)
    by_signature: dict[Signature, set[int]] = defaultdict(set)
    for number, each in enumerate(clusters):
        for message in cited_message_ids(each.citations):
            by_message[message].add(number)
        for signature in each.signatures:
            by_signature[signature].add(number)
    for pattern in patterns:
        sentence = pattern_sentence(pattern.text)
        says_same = by_signature.get(episode_signature(sentence), set())
        cited = cited_message_ids(pattern.citations) & live_message_ids
        shared = Counter(number for message in cited for number in by_message.get(message, ()))
        for number in says_same | shared.keys():
            each = clusters[number]
            if not are_compatible(frozenset(pattern.entity_ids), each.entity_ids):
                continue
            cites_most, text = 2 * shared[number] >= len(cited), each.episodes[0].text
            if number in says_same or (cites_most and _is_similar_sentence(sentence, text)):
                exact = each.text_with(sentence) == pattern.text
                yield PatternMatch(number in says_same, shared[number], exact, -number, pattern.id)


def _is_similar_sentence(sentence: str, text: str) -> bool:
    """Whether two sentences are similar. One message may contain several facts, so equal citations are not enough."""
    return overlap(sentence, text) >= _MIN_OVERLAP and have_same_names(sentence, text)


def assign_patterns(
    clusters: Sequence[Cluster], patterns: Sequence[Atom], live_message_ids: Set[str]
) -> dict[int, Atom]:
    """Assign to each cluster at most one pattern, and each pattern to at most one cluster."""
    by_id = {pattern.id: pattern for pattern in patterns}
    assigned: dict[int, Atom] = {}
    for match in sorted(match_patterns(clusters, patterns, live_message_ids), reverse=True):
        if -match.order not in assigned and match.pattern_id in by_id:
            assigned[-match.order] = by_id.pop(match.pattern_id)
    return assigned


@dataclass(frozen=True, slots=True)
class PatternChanges:
    """The result of mining: changes, and the ids of patterns to archive and to restore."""

    reconciliation: Reconciliation = Reconciliation()
    archived: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()


def find_patterns(
    episodes: Iterable[Atom],
    existing: Iterable[Atom],
    *,
    at_least: int = DEFAULT_MIN_DAYS,
    exclude: Iterable[str] = (),
) -> PatternChanges:
    """Compute the changes to a space's patterns from its episodes and its existing patterns, including deleted ones.

    Episodes of categories in `exclude` and turns are ignored. A known pattern gets citations of new episodes, and is
    superseded if it now follows another rule. A pattern that has lost its episodes is archived, and restored when there
    are enough again; one that a user archived stays archived. A deleted pattern is created again only if enough
    episodes recur after the deletion. An atom with which a user superseded a pattern counts as that pattern.
    """
    excluded = frozenset(map(fold_name, exclude))
    counted = [each for each in episodes if _is_counted(each, excluded)]
    live_message_ids = cited_message_ids(citation for episode in counted for citation in episode.citations)
    patterns = _ExistingPatterns(existing)
    recurring = [cluster for cluster in cluster_episodes(counted, at_least) if cluster.recurs]
    supported = assign_patterns(recurring, patterns.known, live_message_ids)
    found = [each for each in _exclude_deleted(recurring, patterns.deleted, live_message_ids) if each.recurs]
    known = assign_patterns(found, patterns.known, live_message_ids)
    changes: list[AtomChange] = []
    restored: list[str] = []
    for number, each in enumerate(found):
        pattern = known.get(number)
        if pattern is not None and pattern.superseded_by is not None:
            continue
        is_restored = pattern is not None and _should_restore(pattern, each)
        planned = [*_plan_changes(each, pattern, is_restored=is_restored)]
        changes += planned
        if pattern is not None and is_restored and not any(isinstance(change, Replacement) for change in planned):
            restored.append(pattern.id)
    supported_ids = {pattern.id for pattern in (*supported.values(), *known.values())}
    archived = [each.id for each in patterns.active if each.id not in supported_ids]
    return PatternChanges(Reconciliation(changes=tuple(changes)), tuple(archived), tuple(restored))


def _is_counted(episode: Atom, excluded: Set[str]) -> bool:
    return (
        episode.category.kind is CategoryKind.EPISODE
        and episode.category.name != TURN_CATEGORY.name
        and fold_name(episode.category.name) not in excluded
        and episode.status is AtomStatus.ACTIVE
        and episode.superseded_by is None
    )


class _ExistingPatterns:
    """The patterns of a space.

    `known` are those that an episode may match: the last of each chain, and those that a user superseded. If the last
    of a chain is deleted, its predecessor is treated as deleted, too. `active` are the current ones.
    """

    def __init__(self, existing: Iterable[Atom]) -> None:
        patterns = sorted((each for each in existing if each.category.kind is CategoryKind.PATTERN), key=lambda p: p.id)
        ids = {each.id for each in patterns}
        self.deleted = [each for each in patterns if each.status is AtomStatus.DELETED]
        replaced_by_deleted = {each.supersedes for each in self.deleted}
        last = [each for each in patterns if each.status is not AtomStatus.DELETED and each.superseded_by not in ids]
        self.known = [each for each in last if each.id not in replaced_by_deleted or each.superseded_by is not None]
        self.active = [each for each in last if each.status is AtomStatus.ACTIVE and each.superseded_by is None]


def _exclude_deleted(clusters: Sequence[Cluster], deleted: Sequence[Atom], live_message_ids: Set[str]) -> list[Cluster]:
    """Leave out episodes that were known when their pattern was deleted."""
    best = {match.pattern_id: match for match in sorted(match_patterns(clusters, deleted, live_message_ids))}
    deleted_at: dict[int, datetime] = {}
    for pattern in deleted:
        if pattern.id in best:
            number = -best[pattern.id].order
            deleted_at[number] = max(deleted_at.get(number, pattern.updated_at), pattern.updated_at)
    return [
        each.learned_after(deleted_at[number]) if number in deleted_at else each for number, each in enumerate(clusters)
    ]


def _should_restore(pattern: Atom, cluster: Cluster) -> bool:
    """Whether a pattern was archived because it had too few episodes, rather than by a user.

    If the episodes known at that time would have been enough, a user archived it.
    """
    before = [episode for episode in cluster.episodes if episode.updated_at <= pattern.updated_at]
    return pattern.status is AtomStatus.ARCHIVED and len(episode_days(before)) < cluster.at_least


def _plan_changes(cluster: Cluster, known: Atom | None, *, is_restored: bool) -> Iterator[AtomChange]:
    if known is None:
        yield _build_draft(cluster, cluster.text_with(cluster.typical_sentence()))
        return
    # Keep the sentence of the pattern as long as one of the episodes still has it.
    sentence = pattern_sentence(known.text)
    text = cluster.text_with(
        sentence if episode_signature(sentence) in cluster.signatures else cluster.typical_sentence()
    )
    if text != known.text and (known.status is AtomStatus.ACTIVE or is_restored):
        yield Replacement(known.id, _build_draft(cluster, text))
        return
    cited = cited_message_ids(known.citations)
    for citation in cluster.citations:
        missing = tuple(id for id in citation.message_ids if id not in cited)
        if missing:
            yield AddedCitation(known.id, Citation(citation.conversation_id, missing))


def _build_draft(cluster: Cluster, text: str) -> AtomDraft:
    count = len(cluster.days)
    draft = AtomDraft(
        id=new_id("atom"),
        text=text,
        category=PATTERN_CATEGORY,
        valid_from=cluster.episodes[0].valid_from,
        importance=max(episode.importance for episode in cluster.episodes),
        confidence=round(count / (count + 1), 3),
        entity_ids=_shared_entities(cluster.episodes),
    )
    return with_citations(draft, cluster.citations)


def _shared_entities(episodes: Sequence[Atom]) -> tuple[str, ...]:
    """Return the entities of most of the episodes."""
    counted = Counter(id for episode in episodes for id in dict.fromkeys(episode.entity_ids))
    return tuple(id for id, times in counted.most_common() if 2 * times > len(episodes))


MAX_ATTEMPTS = 10
BEGINNING_OF_TIME = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PatternMining:
    """The options of pattern mining: the interval, the minimum number of days, and categories to exclude.

    >>> PatternMining(exclude=("medical",)).at_least
    3
    """

    every: timedelta = timedelta(days=1)
    at_least: int = DEFAULT_MIN_DAYS
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.exclude, str):
            raise ConfigurationError(f"exclude must be a list of category names, got {self.exclude!r}.")
        if not isinstance(self.at_least, int) or self.at_least < 2:
            raise ConfigurationError(f"at_least must be an integer of at least 2, got {self.at_least!r}.")
        if not isinstance(self.every, timedelta) or self.every <= timedelta(0):
            raise ConfigurationError(f"every must be a positive timedelta, got {self.every!r}.")


def resolve_pattern_mining(value: Any) -> PatternMining | None:
    """Return the options for a `patterns` argument: "daily", a `PatternMining` or None."""
    if value == "daily":
        return PatternMining()
    if value is None or isinstance(value, PatternMining):
        return value
    raise ConfigurationError(f"patterns must be 'daily', a PatternMining or None, got {value!r:.80}.")


class PatternMiner:
    """Mines patterns in the spaces of a store."""

    def __init__(self, runtime: Runtime, embedding: EmbeddingService, options: PatternMining) -> None:
        self._runtime = runtime
        self._embedding = embedding
        self._options = options

    async def mine_all(self, changed_since: datetime | None = None) -> int:
        """Mine every space, or those changed since a time; return how many atoms were added or changed."""
        count = 0
        async for scope, space_id in iterate_spaces(self._memories, changed_since):
            try:
                count += await self.mine(scope, space_id)
            except NotFoundError:  # deleted meanwhile
                continue
        return count

    async def mine(self, scope: Scope, space_id: str) -> int:
        """Mine one space; return how many atoms were added or changed."""
        for _ in range(MAX_ATTEMPTS):
            version = await self._memories.version(scope, space_id)
            found = await self._find_patterns(scope, space_id)
            changed = await self._apply(scope, space_id, found.reconciliation, version)
            if changed is not None:
                archived = await self._set_status(scope, found.archived, AtomStatus.ARCHIVED)
                return changed + archived + await self._set_status(scope, found.restored, AtomStatus.ACTIVE)
        return 0  # the space keeps changing; the next run mines it

    async def _find_patterns(self, scope: Scope, space_id: str) -> PatternChanges:
        options = self._options

        async def load(kind: CategoryKind, *statuses: AtomStatus) -> list[Atom]:
            filters = [AtomFilter(status, BEGINNING_OF_TIME, kind=kind) for status in statuses]
            return [atom for each in filters for atom in await self._memories.atoms(scope, space_id, each)]

        episodes = await load(CategoryKind.EPISODE, AtomStatus.ACTIVE)
        patterns = await load(CategoryKind.PATTERN, *AtomStatus)
        if not patterns and len(episodes) < options.at_least:
            return PatternChanges()
        # Thousands of episodes take a while, so do not block the event loop.
        return await asyncio.to_thread(
            find_patterns, episodes, patterns, at_least=options.at_least, exclude=options.exclude
        )

    async def _apply(self, scope: Scope, space_id: str, reconciliation: Reconciliation, version: int) -> int | None:
        """Return how many atoms were added or changed, or None if the space has changed in the meantime."""
        if not reconciliation.changes:
            return 0 if await self._memories.version(scope, space_id) == version else None
        reconciliation = replace(reconciliation, changes=await embed_changes(self._embedding, reconciliation.changes))
        changed = await self._memories.reconcile(
            scope, space_id, reconciliation, expected_version=version, end=None, now=self._runtime.clock()
        )
        return None if changed is None else len(changed)

    async def _set_status(self, scope: Scope, ids: Sequence[str], status: AtomStatus) -> int:
        count = 0
        for id in ids:
            try:
                await self._memories.set_status(scope, id, status, now=self._runtime.clock())
            except NotFoundError:  # deleted meanwhile
                continue
            count += 1
        return count

    @property
    def _memories(self) -> MemoryStore:
        return self._runtime.store.memories
