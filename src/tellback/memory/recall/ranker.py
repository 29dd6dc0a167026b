"""Rank the texts of a space by relevance to a query: a weighted sum of a few signals, computed on arrays.

Each signal is one function with `@signal`; see docs/contributing/add-a-recall-signal.md. The scale of a signal hardly
depends on the other texts, so a score means the same in a space of three memories and of ten thousand."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tellback.memory.recall.dates.calendar import TimeSpan
from tellback.memory.recall.index import (
    PREFIX_DIMENSIONS,
    SESSION_K1,
    WINDOW_K1,
    WINDOW_RADIUS,
    Bools,
    Floats,
    Ints,
    SpaceIndex,
)
from tellback.memory.recall.tokenizer import (
    HAS_TIME,
    QuestionIntent,
    Word,
    extract_all_words,
    extract_words,
    normalize_name,
    parse_question,
)

DAY = 86_400_000_000.0
DATE_DECAY_DAYS = 5.0
"""The date signal falls to 1/e at this distance from the date in the query."""

MAX_DATED_ROWS = 64
"""How many texts are searched for dates, per query."""

_PUNCTUATION = ".,;:!?()[]\"'\u201c\u201d\u2026"
_POSSESSIVE = re.compile(r"['\u2019]s$")
_FEATURE_TABLE = np.where(np.arange(256) >> np.arange(8)[:, None] & 1, np.float32(0.5), np.float32(-0.5))
"""For each bit of a text's features: 0.5 for each of the 256 combinations that has it, otherwise -0.5."""

_TIME_PREPOSITION = r"\b(?:in|on|since|until|till|by|last|next|this|during|before|after|from|early|late|mid|of)"
MAX_SPANS = 8

VAGUE_TIMES = frozenset(("recently", "lately", "now", "currently", "today", "these days"))

PREVIOUS_ROW_WEIGHT = 0.7
NEXT_ROW_WEIGHT = 0.3
"""How much a match in the previous row, and in the next row, counts for a row. An answer follows its question, so the
previous row counts more. A match two or three rows before counts `PREVIOUS_ROW_WEIGHT` squared or cubed."""

WINDOW_OVERLAP = 0.8
"""A repeated word often repeats within one window. This factor corrects the number of windows for that overlap."""

MAX_QUERY_WORDS = 16
MAX_SIMILAR_POSTINGS = 40_000
PRIOR_ROWS = 300
PRIOR_SESSIONS = 10
"""Extra rows and sessions assumed when a word's rarity is computed, so that matches count in tiny spaces too."""

PREVIOUS_VECTOR_WEIGHT = 0.7
"""Weight of the previous row's cosine, relative to the row's own."""

PRIOR_COSINES = 20
PRIOR_MEAN = 0.25
PRIOR_DEVIATION = 0.11
"""Cosines are standardized by their mean and deviation over the space. `PRIOR_COSINES` typical values are added first,
because a tiny space has no reliable mean."""

MIN_DEVIATION = 0.02

MAX_FULL_SCAN_ROWS = 4_096
RESCORED_ROWS = 192
SAMPLE_ROWS = 192
PREFIX_CORRELATION = 0.87
"""In spaces of more than `MAX_FULL_SCAN_ROWS` rows, reading whole vectors takes the most time. There, the first
dimensions, which correlate with the full cosine by `PREFIX_CORRELATION`, select `RESCORED_ROWS` candidates, and only
these are compared in full. Mean and deviation come from a sample of `SAMPLE_ROWS`."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query by topic.

    `now` is the time of the query. `spans` are the times that its text names. `vector` is the embedding of the text, or
    better of its topic (`ParsedQuery.topic`), made by the embedder of the memories.
    """

    text: str
    now: int
    vector: npt.NDArray[np.float32] | None = None
    spans: tuple[TimeSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query parsed against a space: the speakers it names, its intent, its other words, and the times it means.

    `topic` is the query without the speakers and times that it names. Its vector gives better rankings than that
    of the whole query.
    """

    speakers: list[int]
    intent: QuestionIntent
    words: list[Word]
    spans: tuple[TimeSpan, ...]
    topic: str


@dataclass(frozen=True, slots=True)
class RelevanceScores:
    """The log-odds of each row, and the part that each signal contributed."""

    total: Floats
    parts: Mapping[str, npt.NDArray[np.float32]]


@dataclass(slots=True, eq=False)
class Scoring:
    """The input of the signals for one query.

    `total` is the sum of the signals computed so far, `words` the matches of the query's words. The meaning signal sets
    `vectors`.
    """

    index: SpaceIndex
    query: Query
    parsed: ParsedQuery
    eligible: Bools | None
    total: Floats
    words: WordMatches | None
    vectors: VectorSimilarity | None = None


SignalFunction = Callable[..., Floats | np.float32 | None]


@dataclass(frozen=True, slots=True)
class Signal:
    """One part of a score.

    `name` is its key in `RelevanceScores.parts` and `RecallHit.explain()`, `label` its name in the console, and
    `weights` has the default of each of its weights, in log-odds.
    """

    name: str
    label: str
    weights: Mapping[str, float]
    compute: SignalFunction


SIGNALS: list[Signal] = []
"""All signals, in the order in which they are computed and added."""


def signal(name: str, *, label: str) -> Callable[[SignalFunction], SignalFunction]:
    """Register a function as a signal. Its keyword-only parameters become fields of `Weights`, with their defaults.

    The function receives a `Scoring` and returns a number for each row, one number for all rows, or None if the signal
    does not apply to the query.
    """

    def register(compute: SignalFunction) -> SignalFunction:
        weights: Mapping[str, float] = getattr(compute, "__kwdefaults__", None) or {}
        for each in SIGNALS:
            if taken := [each.name] if each.name == name else sorted(each.weights.keys() & weights):
                raise TypeError(f"The signals {each.name!r} and {name!r} both use {', '.join(taken)}: rename one.")
        if "Weights" in globals():
            raise TypeError(f"Declare the signal {name!r} above the class Weights, which has a field for each weight.")
        SIGNALS.append(Signal(name, label, weights, compute))
        return compute

    return register


@signal("form", label="Kind of sentence")
def _form_signal(
    scoring: Scoring,
    *,
    when: float = 1.3,
    count: float = 1.0,
    where: float = 1.5,
    who: float = 1.2,
    names: float = 0.2,
    question: float = -0.45,
    answer: float = 0.5,
    opening: float = 0.4,
    address: float = -0.35,
) -> Floats:
    """Score the form of each text.

    `when`, `count`, `where` and `who` apply to texts with a time, number, place or name if the query asks for one. The
    others apply to any query: the text has a name, is a question, follows one, opens a session, addresses somebody.
    A present feature adds half of its weight and a missing one subtracts half.
    """
    intent = scoring.parsed.intent
    feature_weights = (
        when * intent.when,
        count * intent.count,
        question,
        who * intent.who + names,
        where * intent.where,
        answer,
        opening,
        address,
    )
    return np.asarray(_form_table(feature_weights)[scoring.index.features.view])


@lru_cache(maxsize=64)
def _form_table(feature_weights: tuple[float, ...]) -> Floats:
    """Return the score of each of the 256 combinations of features."""
    return np.asarray(np.array(feature_weights, np.float32) @ _FEATURE_TABLE)


@signal("same words", label="Words in common")
def _same_words_signal(scoring: Scoring, *, same_words: float = 0.8) -> Floats | None:
    """Score the matches of the query's words in the row or near it."""
    return None if scoring.words is None else np.float32(same_words) * scoring.words.soft


@signal("words nearby", label="Words in common, in the texts around it")
def _nearby_signal(scoring: Scoring, *, nearby: float = 0.75) -> Floats | None:
    """Score the matches of the query's words in the window around the row."""
    return None if scoring.words is None else np.float32(nearby) * scoring.words.window


@signal("same conversation", label="Words in common, in its conversation")
def _conversation_signal(scoring: Scoring, *, conversation: float = 0.35) -> Floats | None:
    """Score the matches of the query's words in the row's session."""
    return None if scoring.words is None else np.float32(conversation) * scoring.words.session


@signal("speaker", label="Speaker named in the question")
def _speaker_signal(
    scoring: Scoring, *, speaker: float = 1.8, first_speaker: float = 1.5
) -> Floats | np.float32 | None:
    """Prefer rows of the person whom the query names, or of the first (`first_speaker`) if it names several."""
    index, speakers = scoring.index, scoring.parsed.speakers
    if not speakers:
        return None
    if len(speakers) > 1 and scoring.parsed.intent.both:
        return np.float32(0)
    weight = first_speaker if len(speakers) > 1 else speaker
    table = np.full(len(index.speaker_names) + 1, -weight / 2, np.float32)
    table[speakers[0]] = weight / 2
    table[-1] = 0
    return np.asarray(table[index.speakers.view])


@signal("meaning", label="Similar meaning")
def _meaning_signal(scoring: Scoring, *, meaning: float = 0.38) -> Floats | None:
    """Score the similarity of the vectors of the row and the row before it to the query's."""
    scoring.vectors = compare_vectors(scoring.index, scoring.query.vector, scoring.eligible, scoring.total, meaning)
    return None if scoring.vectors is None else np.float32(meaning) * scoring.vectors.own


@signal("meaning of the conversation", label="Similar meaning, in its conversation")
def _conversation_meaning_signal(scoring: Scoring, *, conversation_meaning: float = 0.28) -> Floats | None:
    """Score the most similar vector of the row's session. `_meaning_signal` has compared the vectors."""
    return None if scoring.vectors is None else np.float32(conversation_meaning) * scoring.vectors.session


@signal("date", label="Time named in the question")
def _date_signal(scoring: Scoring, *, date: float = 3.2) -> Floats | None:
    """Prefer rows from the time that the query names, and rows whose text names that time.

    Reading the dates in a text is slow, so only the best rows so far are read.
    """
    index, total, spans = scoring.index, scoring.total, scoring.parsed.spans
    if not spans:
        return None
    timestamps = index.timestamps.view
    days = np.full(len(index), np.inf)
    for span in spans:
        np.minimum(days, np.maximum(span.start - timestamps, timestamps - span.end) / DAY, out=days)
    dated_rows = np.flatnonzero(index.features.view & HAS_TIME)
    if len(dated_rows) > MAX_DATED_ROWS:
        # Rows that tie at the threshold are all left out, because equal texts must have equal scores.
        threshold = np.partition(total[dated_rows], -MAX_DATED_ROWS - 1)[-MAX_DATED_ROWS - 1]
        dated_rows = dated_rows[total[dated_rows] > threshold]
    for row in dated_rows.tolist():
        for start, end in index.dates_in_row(row):
            for span in spans:
                days[row] = min(days[row], max(span.start - end, start - span.end) / DAY)
    return np.asarray(np.exp(np.maximum(days, 0) / -DATE_DECAY_DAYS) - 0.5, np.float32) * date


BASE_WEIGHT = -3.0

_WeightFields: Any = make_dataclass(
    "_WeightFields",
    [("base", float, BASE_WEIGHT)]
    + [(name, float, default) for each in SIGNALS for name, default in each.weights.items()],
    frozen=True,
    slots=True,
)


class Weights(_WeightFields):  # type: ignore[misc]
    """The weights of all signals, in log-odds: a frozen dataclass with the keyword-only parameters of the signals.

    `base` is the value that each row starts with. The defaults are near those fitted by logistic regression on chats
    between two people, then rounded and adjusted manually for short messages.

    >>> Weights(speaker=2.0).speaker
    2.0
    """

    __slots__ = ()


DEFAULT_WEIGHTS = Weights()


def score_rows(
    index: SpaceIndex,
    query: Query,
    eligible: Bools | None = None,
    weights: Weights = DEFAULT_WEIGHTS,
    parsed: ParsedQuery | None = None,
) -> RelevanceScores:
    """Score how relevant each row of an index is to a query; pass `parsed` if the query was already parsed against it.

    Scores of ineligible rows are undefined. They do not count towards the mean of the cosines.
    """
    if not index.texts:
        return RelevanceScores(np.zeros(0, np.float32), {})
    parsed = parsed or parse_query(index, query)
    total = np.empty(len(index), np.float32)
    total.fill(weights.base)
    scoring = Scoring(index, query, parsed, eligible, total, match_words(index, parsed.words))
    parts: dict[str, Any] = {}
    for name, compute, signal_weights in _signals_with(weights):
        values = compute(scoring, **signal_weights)
        if values is not None:
            parts[name] = values
            np.add(total, values, out=total)
    parts["base"] = np.float32(weights.base)
    return RelevanceScores(total, parts)


@lru_cache(maxsize=16)
def _signals_with(weights: Weights) -> list[tuple[str, SignalFunction, dict[str, float]]]:
    return [(each.name, each.compute, {name: getattr(weights, name) for name in each.weights}) for each in SIGNALS]


def parse_query(index: SpaceIndex, query: Query) -> ParsedQuery:
    """Find the speakers, times and words of a query in a space."""
    speakers_by_word = index.speakers_by_word
    spans = tuple(
        span for span in _query_spans(query.spans) if not _is_speaker_name(span.text, query.text, speakers_by_word)
    )
    text = query.text
    for span in spans:
        text = re.sub(rf"(?<!\w){re.escape(span.text)}(?!\w)", " ", text, count=1)
    speakers: list[int] = []
    remaining = []
    for piece in text.split() if speakers_by_word else ():
        numbers = _find_speakers(piece, speakers_by_word)
        speakers += [number for number in numbers if number not in speakers]
        if not numbers:
            remaining.append(piece)
    topic = " ".join(remaining) if speakers else text
    query_words = extract_words(topic)
    if not query_words and not speakers:
        query_words = extract_all_words(topic)
    return ParsedQuery(
        speakers,
        parse_question(query.text),
        list({word.term: word for word in query_words}.values()),
        spans,
        topic,
    )


def _is_speaker_name(time: str, text: str, speakers_by_word: Mapping[str, list[int]]) -> bool:
    """Whether a name that is also a month names a person: "Did June call?", but not "in June"."""
    if time.lower() not in speakers_by_word:
        return False
    return re.search(rf"{_TIME_PREPOSITION}\s+{re.escape(time)}\b", text, re.IGNORECASE) is None


def _find_speakers(piece: str, speakers_by_word: Mapping[str, list[int]]) -> list[int]:
    folded = piece.strip(_PUNCTUATION).lower()
    if folded in speakers_by_word:
        return speakers_by_word[folded]
    if folded.isalpha() and folded.isascii():
        return []
    found: list[int] = []
    for word in normalize_name(_POSSESSIVE.sub("", piece.strip(_PUNCTUATION))):
        found += speakers_by_word.get(word, ())
    return found


def _query_spans(named: tuple[TimeSpan, ...]) -> tuple[TimeSpan, ...]:
    """Return the times that a query means; only those with a year, if there are any.

    "Last week, on 6 May 2023" does not mean the week before now.
    """
    spans = tuple(span for span in named if span.text.casefold() not in VAGUE_TIMES)
    exact = tuple(
        span for span in spans if any(part.isdigit() and len(part) == 4 for part in span.text.replace(",", " ").split())
    )
    return (exact or spans)[:MAX_SPANS]


@dataclass(frozen=True, slots=True)
class WordMatches:
    """Word matches of a query, per row. All three are on the same scale for any query.

    `soft` is the best match of each word in the row or near it, weighted by rarity. `window` is BM25 over the row and
    its neighbours, `session` BM25 over its session.
    """

    soft: Floats
    window: Floats
    session: Floats


def match_words(index: SpaceIndex, query_words: Sequence[Word]) -> WordMatches | None:
    """Match the words of a query against all rows, or return None if the query or the index has no words."""
    layout, postings = index.layout, index.postings
    if not query_words or not postings.terms:
        return None
    find_term = postings.terms.get
    term_numbers = [find_term(word.term, -1) for word in query_words]
    frequencies = [int(postings.document_frequencies[number]) if number >= 0 else 0 for number in term_numbers]
    if len(query_words) > MAX_QUERY_WORDS:
        # Prefer the rarest words that the index has, then words it lacks, which may be similar to one it has.
        selected = sorted(
            sorted(range(len(query_words)), key=lambda at: (term_numbers[at] < 0, frequencies[at]))[:MAX_QUERY_WORDS]
        )
        query_words = [query_words[at] for at in selected]
        term_numbers, frequencies = [term_numbers[at] for at in selected], [frequencies[at] for at in selected]
    idf = _inverse_document_frequency(frequencies, len(index) + PRIOR_ROWS)
    scale = np.float32(1 / math.sqrt(max(float(idf.sum()), 1.0)))

    word_indices, similar_terms, strengths = _find_similar_words(index, query_words)
    known_words = [at for at, number in enumerate(term_numbers) if number >= 0]
    exact_terms = np.array([term_numbers[at] for at in known_words], np.int64)
    at, lengths = postings.lookup(np.concatenate((similar_terms, exact_terms)))
    word_indices = np.repeat(np.concatenate((word_indices, known_words)).astype(np.int64), lengths)
    rows = postings.rows[at]
    positions = layout.positions[rows]
    cells = word_indices * layout.width + positions
    similar_count = int(lengths[: len(similar_terms)].sum())

    best_match = np.zeros((len(query_words), layout.width), np.float32)
    # numpy stores the last of several values for one cell. That is the greatest, because strengths ascend.
    best_match.ravel()[cells[:similar_count]] = np.repeat(strengths, lengths[: len(similar_terms)])
    best_match.ravel()[cells[similar_count:]] = 1
    soft = np.asarray((idf * scale) @ _spread_to_neighbours(best_match, layout.windowed_width), np.float32)

    counts = postings.counts[at[similar_count:]]
    term_counts = np.zeros((len(query_words), layout.width), np.float32)
    term_counts.ravel()[cells[similar_count:]] = counts
    window = _window_bm25(index, term_counts, frequencies, scale)[layout.positions]
    session = _session_bm25(
        index, len(query_words), word_indices[similar_count:], rows[similar_count:], counts, window, scale
    )
    return WordMatches(soft[layout.positions], window, session)


def _inverse_document_frequency(frequencies: Sequence[int], total: int) -> Floats:
    return np.array(
        [math.log(1 + (max(total - frequency, 0) + 0.5) / (frequency + 0.5)) for frequency in frequencies], np.float32
    )


def _count_documents(term_counts: Floats) -> list[int]:
    # Counting booleans row by row is many times faster than counting along an axis.
    return [int(np.count_nonzero(row)) for row in term_counts > 0]


def _find_similar_words(index: SpaceIndex, query_words: Sequence[Word]) -> tuple[Ints, Ints, Floats]:
    """Find terms similar to the query's words: word indices, terms, and strengths in ascending order for each word."""
    similar = index.similar_terms([word.form for word in query_words])
    if not similar:
        empty = np.zeros(0, np.int64)
        return empty, empty, np.zeros(0, np.float32)
    terms = np.concatenate([terms for terms, _ in similar])
    strengths = np.concatenate([strengths for _, strengths in similar])
    word_indices = np.repeat(np.arange(len(similar)), [len(terms) for terms, _ in similar])
    lengths = index.postings.document_frequencies[terms]
    if int(lengths.sum()) > MAX_SIMILAR_POSTINGS:
        # Take the strongest terms of all words until the limit, keeping the order within each word.
        order = np.argsort(-strengths, kind="stable")
        selected = np.sort(order[np.cumsum(lengths[order]) <= MAX_SIMILAR_POSTINGS])
        word_indices, terms, strengths = word_indices[selected], terms[selected], strengths[selected]
    return word_indices, terms, strengths


def _spread_to_neighbours(match: Floats, windowed_width: int) -> Floats:
    """Return the best match of each word at each position or, with less weight, at the positions around it."""
    best = match.copy()
    if windowed_width:
        inside = best[:, :windowed_width]
        # The second line continues from the first, so together they reach three rows back.
        np.maximum(inside[:, 1:], PREVIOUS_ROW_WEIGHT * match[:, : windowed_width - 1], out=inside[:, 1:])
        np.maximum(inside[:, 2:], PREVIOUS_ROW_WEIGHT**2 * inside[:, :-2], out=inside[:, 2:])
        np.maximum(inside[:, :-1], NEXT_ROW_WEIGHT * match[:, 1:windowed_width], out=inside[:, :-1])
    return best


def _window_bm25(index: SpaceIndex, term_counts: Floats, frequencies: Sequence[int], scale: np.float32) -> Floats:
    layout = index.layout
    windowed_width = layout.windowed_width
    if windowed_width:
        # Sums over 9 positions, from sums over 2, 4 and 8.
        inner = term_counts[:, :windowed_width]
        pairs = inner[:, :-1] + inner[:, 1:]
        fours = pairs[:, :-2] + pairs[:, 2:]
        eights = fours[:, :-4] + fours[:, 4:]
        term_counts[:, WINDOW_RADIUS : windowed_width - WINDOW_RADIUS] = eights[:, :-1] + inner[:, 2 * WINDOW_RADIUS :]
        # Estimate how many windows have each word: counting them would double the time of this function.
        width = layout.width
        frequencies = [
            round(width * (1 - math.exp(-WINDOW_OVERLAP * (2 * WINDOW_RADIUS + 1) * frequency / width)))
            for frequency in frequencies
        ]
    idf = _inverse_document_frequency(frequencies, layout.width + PRIOR_ROWS)
    term_counts /= term_counts + layout.window_damping
    return np.asarray((idf * (scale * np.float32(1 + WINDOW_K1))) @ term_counts, np.float32)


def _session_bm25(
    index: SpaceIndex,
    word_count: int,
    word_indices: Ints,
    rows: Ints,
    counts: Floats,
    window_scores: Floats,
    scale: np.float32,
) -> Floats:
    """Return the BM25 score of each row's session. A row that is alone in its session gets its window score."""
    layout = index.layout
    session_count = layout.session_count
    if not session_count:
        return window_scores
    totals = np.bincount(
        word_indices * (session_count + 1) + layout.sessions[rows], counts, minlength=word_count * (session_count + 1)
    )
    session_counts = totals.astype(np.float32).reshape(word_count, session_count + 1)
    session_counts[:, session_count] = 0
    idf = _inverse_document_frequency(_count_documents(session_counts), session_count + PRIOR_SESSIONS)
    session_counts /= session_counts + layout.session_damping
    scores = np.asarray((idf * (scale * np.float32(1 + SESSION_K1))) @ session_counts, np.float32)[layout.sessions]
    return (
        scores if len(layout.order) == len(index) else np.where(layout.sessions < session_count, scores, window_scores)
    )


@dataclass(frozen=True, slots=True)
class VectorSimilarity:
    """Standardized cosines per row: `own` of the row and the one before it, `session` the highest of its session."""

    own: Floats
    session: Floats


def compare_vectors(
    index: SpaceIndex, vector: Floats | None, eligible: Bools | None, other_scores: Floats, weight: float
) -> VectorSimilarity | None:
    """Compare the vectors of all rows with the query's, or return None if there are no comparable vectors.

    `other_scores` are the scores of the other signals, and `weight` is the score of one standard deviation. They decide
    which rows of a large space are compared in full.
    """
    vectors = index.vectors
    if vector is None or vectors is None or vectors.view.shape[1] != len(vector):
        return None
    has_vector = index.has_vector.view
    measured = has_vector if eligible is None else has_vector & eligible
    all_measured = bool(measured.all())
    if len(index) > MAX_FULL_SCAN_ROWS and index.vector_prefixes is not None and has_vector.all():
        similarity = _two_pass_similarity(
            index, vector, other_scores if eligible is None else np.where(eligible, other_scores, -np.inf), weight
        )
    else:
        similarity = vectors.dot(vector)
        mean, deviation = _mean_and_deviation(similarity if all_measured else similarity[measured])
        similarity -= mean
        similarity *= 1 / deviation
        if not all_measured:
            similarity[~has_vector] = 0
    own = similarity[index.previous_rows.view]
    own *= np.float32(PREVIOUS_VECTOR_WEIGHT / (1 + PREVIOUS_VECTOR_WEIGHT))
    own += np.float32(1 / (1 + PREVIOUS_VECTOR_WEIGHT)) * similarity
    return VectorSimilarity(own, _session_maximum(index, similarity))


def _two_pass_similarity(index: SpaceIndex, vector: Floats, other_scores: Floats, weight: float) -> Floats:
    assert index.vectors is not None
    assert index.vector_prefixes is not None
    similarity = index.vector_prefixes.dot(vector[:PREFIX_DIMENSIONS])
    similarity -= np.float32(similarity.sum() / len(similarity))
    similarity *= np.float32(
        PREFIX_CORRELATION / max(math.sqrt(float(similarity @ similarity) / len(similarity)), MIN_DEVIATION / 4)
    )
    estimates = other_scores + np.float32(weight) * similarity
    threshold = np.partition(estimates, len(estimates) - RESCORED_ROWS)[len(estimates) - RESCORED_ROWS]
    selected = estimates >= threshold
    selected[index.previous_rows.view[selected]] = True
    rows = np.flatnonzero(selected)
    vectors = index.vectors.view
    mean, deviation = _mean_and_deviation(vectors[:: max(len(vectors) // SAMPLE_ROWS, 1)] @ vector)
    similarity[rows] = (vectors[rows] @ vector - mean) / deviation
    return similarity


def _mean_and_deviation(cosines: Floats) -> tuple[np.float32, np.float32]:
    size = len(cosines) + PRIOR_COSINES
    mean = (float(cosines.sum()) + PRIOR_COSINES * PRIOR_MEAN) / size
    square = (float(cosines @ cosines) + PRIOR_COSINES * (PRIOR_DEVIATION**2 + PRIOR_MEAN**2)) / size
    return np.float32(mean), np.float32(math.sqrt(max(square - mean * mean, MIN_DEVIATION**2)))


def _session_maximum(index: SpaceIndex, similarity: Floats) -> Floats:
    layout = index.layout
    if not layout.session_count:
        return similarity
    maxima = np.zeros(layout.session_count + 1, np.float32)
    maxima[:-1] = np.maximum.reduceat(similarity[layout.order], layout.session_starts)
    scores = maxima[layout.sessions]
    return (
        scores
        if len(layout.order) == len(index)
        else np.where(layout.sessions < layout.session_count, scores, similarity)
    )
