"""Rank the texts of a space by relevance to a query: a weighted sum of a few signals, in one pass over arrays.

Every signal is on a scale that hardly depends on the other texts, so a score means the same in a space of three
memories and of ten thousand."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
"""A memory so many days away from a date that is asked about counts 1/e of one from that date."""

MAX_DATED_ROWS = 64
"""How many texts of a space are read for the times they speak of, for one query."""

_PUNCTUATION = ".,;:!?()[]\"'\u201c\u201d\u2026"
_POSSESSIVE = re.compile(r"['\u2019]s$")
_FEATURE_TABLE = np.where(np.arange(256) >> np.arange(8)[:, None] & 1, np.float32(0.5), np.float32(-0.5))
"""For each bit of a text's signs, whether each of the 256 combinations has it."""

_TIME_PREPOSITION = r"\b(?:in|on|since|until|till|by|last|next|this|during|before|after|from|early|late|mid|of)"
MAX_SPANS = 8

VAGUE_TIMES = frozenset(("recently", "lately", "now", "currently", "today", "these days"))

PREVIOUS_ROW_WEIGHT = 0.7
NEXT_ROW_WEIGHT = 0.3
"""What a word counts in the row before and in the row after. Three rows back it still counts
`PREVIOUS_ROW_WEIGHT` to the third: what answers stands after what it answers."""

WINDOW_OVERLAP = 0.8
"""Words come up again soon after they did: their windows overlap by so much."""

MAX_QUERY_WORDS = 16
MAX_SIMILAR_POSTINGS = 40_000
PRIOR_ROWS = 300
PRIOR_SESSIONS = 10
"""How rare a word is, is counted as if a space held as many others besides: in a space of three memories nothing is
common, and a match still says something."""

PREVIOUS_VECTOR_WEIGHT = 0.7
"""What the meaning of the row before counts beside that of the row itself."""

PRIOR_COSINES = 20
PRIOR_MEAN = 0.25
PRIOR_DEVIATION = 0.11
"""Cosines are judged by their mean and deviation over the space, as if it held so many usual ones besides: a space of
two memories says nothing about what is usual."""

MIN_DEVIATION = 0.02

MAX_FULL_SCAN_ROWS = 4_096
RESCORED_ROWS = 192
SAMPLE_ROWS = 192
PREFIX_CORRELATION = 0.87
"""In spaces of more than `MAX_FULL_SCAN_ROWS` rows, reading all vectors takes longer than all else. There, the first
dimensions alone say which rows could be among the best, about so much of what all of them say, and only `RESCORED_ROWS`
rows are looked at again. What is usual is told by a sample of `SAMPLE_ROWS`."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    `now` is the moment of asking, `vector` that of the text, or better of its topic (`ParsedQuery.topic`), by the
    embedder of the memories, and `spans` the times it names.
    """

    text: str
    now: int
    vector: npt.NDArray[np.float32] | None = None
    spans: tuple[TimeSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal counts, in log-odds.

    `same_words` to `conversation` weigh words: matched in a row or near it, in the window around it, in its session.
    `meaning` weighs the vectors of a row and the one before, `conversation_meaning` the nearest vector of the session.
    `speaker` is for a row of the one person a query names, `first_speaker` of the first of several, `date`
    for one from the time it asks about. `when`, `count`, `where` and `who` are for
    rows with a time, a number, a place or a name where that is asked for. The rest is about the row alone: it has a
    name in it, it is a question, it follows one, it opens a session, it speaks to somebody. `base` is where a row
    starts. A sign that is there counts half of its weight, and one that is missing takes the other half away.

    The values are near those fitted by logistic regression on chats of two people, rounded by hand, and moved towards
    what also serves short messages.
    """

    base: float = -3.0
    same_words: float = 0.8
    nearby: float = 0.75
    conversation: float = 0.35
    meaning: float = 0.38
    conversation_meaning: float = 0.28
    speaker: float = 1.8
    first_speaker: float = 1.5
    date: float = 3.2
    when: float = 1.3
    count: float = 1.0
    where: float = 1.5
    who: float = 1.2
    names: float = 0.2
    question: float = -0.45
    answer: float = 0.5
    opening: float = 0.4
    address: float = -0.35


DEFAULT_WEIGHTS = Weights()


@dataclass(frozen=True, slots=True)
class RelevanceScores:
    """How relevant each row is, as log-odds, and what each part added to it."""

    total: Floats
    parts: Mapping[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query as it is read against a space: who it names, what it asks, the words it leaves, the times it means.

    `topic` is the query without the speakers and times that it names: the text whose vector serves best.
    """

    speakers: list[int]
    intent: QuestionIntent
    words: list[Word]
    spans: tuple[TimeSpan, ...]
    topic: str


def score_rows(
    index: SpaceIndex,
    query: Query,
    eligible: Bools | None = None,
    weights: Weights = DEFAULT_WEIGHTS,
    parsed: ParsedQuery | None = None,
) -> RelevanceScores:
    """How relevant each row of an index is to a query, which may have been `parsed` against it before.

    Rows that are not `eligible` hold anything; they are not counted where the rows' own mean is needed.
    """
    if not index.texts:
        return RelevanceScores(np.zeros(0, np.float32), {})
    parsed = parsed or parse_query(index, query)
    parts: dict[str, Any] = {"form": _form_signal(index, parsed.intent, weights)}
    total: Floats = parts["form"] + np.float32(weights.base)

    def add(part: str, signal: Any) -> None:
        parts[part] = signal
        np.add(total, signal, out=total)

    if (matches := match_words(index, parsed.words)) is not None:
        add("same words", weights.same_words * matches.soft)
        add("words nearby", weights.nearby * matches.window)
        add("same conversation", weights.conversation * matches.session)
    if parsed.speakers:
        add("speaker", _speaker_signal(index, parsed, weights))
    if (vectors := compare_vectors(index, query.vector, eligible, total, weights.meaning)) is not None:
        add("meaning", weights.meaning * vectors.own)
        add("meaning of the conversation", weights.conversation_meaning * vectors.session)
    if parsed.spans:
        add("date", _date_signal(index, parsed, total) * weights.date)
    parts["base"] = np.float32(weights.base)
    return RelevanceScores(total, parts)


def parse_query(index: SpaceIndex, query: Query) -> ParsedQuery:
    """Read a query against a space."""
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
    """Whether what could be a month is somebody: "Did June call?", but "in June"."""
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


def _speaker_signal(index: SpaceIndex, parsed: ParsedQuery, weights: Weights) -> Floats | np.float32:
    """Whether the one who is asked about said it; as much less likely for the others."""
    weight = weights.speaker
    if len(parsed.speakers) > 1:
        if parsed.intent.both:
            return np.float32(0)
        weight = weights.first_speaker
    table = np.full(len(index.speaker_names) + 1, -weight / 2, np.float32)
    table[parsed.speakers[0]] = weight / 2
    table[-1] = 0
    return np.asarray(table[index.speakers.view])


def _form_signal(index: SpaceIndex, intent: QuestionIntent, weights: Weights) -> Floats:
    """Whether the text has the form of what is asked for, looked up by its signs."""
    feature_weights = (
        weights.when * intent.when,
        weights.count * intent.count,
        weights.question,
        weights.who * intent.who + weights.names,
        weights.where * intent.where,
        weights.answer,
        weights.opening,
        weights.address,
    )
    table = np.array(feature_weights, np.float32) @ _FEATURE_TABLE
    return np.asarray(table[index.features.view])


def _query_spans(named: tuple[TimeSpan, ...]) -> tuple[TimeSpan, ...]:
    """The times a query means. Where it gives years, only those: "last week, on 6 May 2023" is not about now."""
    spans = tuple(span for span in named if span.text.casefold() not in VAGUE_TIMES)
    exact = tuple(
        span for span in spans if any(part.isdigit() and len(part) == 4 for part in span.text.replace(",", " ").split())
    )
    return (exact or spans)[:MAX_SPANS]


def _date_signal(index: SpaceIndex, parsed: ParsedQuery, total: Floats) -> Floats:
    """1 for what is from the time asked about or speaks of it, less with every day between them; halved around 0.

    Reading what a text speaks of takes its time, and is done for those that answer best but for the date.
    """
    timestamps = index.timestamps.view
    days = np.full(len(index), np.inf)
    for span in parsed.spans:
        np.minimum(days, np.maximum(span.start - timestamps, timestamps - span.end) / DAY, out=days)
    dated_rows = np.flatnonzero(index.features.view & HAS_TIME)
    if len(dated_rows) > MAX_DATED_ROWS:
        # Those that tie at the end are left out together: equal texts are to score equally.
        threshold = np.partition(total[dated_rows], -MAX_DATED_ROWS - 1)[-MAX_DATED_ROWS - 1]
        dated_rows = dated_rows[total[dated_rows] > threshold]
    for row in dated_rows.tolist():
        for start, end in index.dates_in_row(row):
            for span in parsed.spans:
                days[row] = min(days[row], max(span.start - end, start - span.end) / DAY)
    return np.asarray(np.exp(np.maximum(days, 0) / -DATE_DECAY_DAYS) - 0.5, np.float32)


@dataclass(frozen=True, slots=True)
class WordMatches:
    """The query's words against every row, by the words' rarity: the best match of each word in the row or near it,
    BM25 over the row and its neighbours, and BM25 over its session. All are on one scale for any query."""

    soft: Floats
    window: Floats
    session: Floats


def match_words(index: SpaceIndex, query_words: Sequence[Word]) -> WordMatches | None:
    """Match the words of a query; None if there is nothing to match."""
    layout, postings = index.layout, index.postings
    if not query_words or not postings.terms:
        return None
    find_term = postings.terms.get
    term_numbers = [find_term(word.term, -1) for word in query_words]
    frequencies = [int(postings.document_frequencies[number]) if number >= 0 else 0 for number in term_numbers]
    if len(query_words) > MAX_QUERY_WORDS:
        # The rarest words that are there; then those that may be like one that is there.
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
    # Of several values for one place the last stays, which is the greatest.
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
    # Row by row over truth values: many times faster than counting along an axis.
    return [int(np.count_nonzero(row)) for row in term_counts > 0]


def _find_similar_words(index: SpaceIndex, query_words: Sequence[Word]) -> tuple[Ints, Ints, Floats]:
    """Words that mean nearly the same as a word of the query: whose, which, and how much, the least first for each."""
    similar = index.similar_terms([word.form for word in query_words])
    if not similar:
        empty = np.zeros(0, np.int64)
        return empty, empty, np.zeros(0, np.float32)
    terms = np.concatenate([terms for terms, _ in similar])
    strengths = np.concatenate([strengths for _, strengths in similar])
    word_indices = np.repeat(np.arange(len(similar)), [len(terms) for terms, _ in similar])
    lengths = index.postings.document_frequencies[terms]
    if int(lengths.sum()) > MAX_SIMILAR_POSTINGS:
        # The strongest of all words, as far as they go; each word's stay in their order.
        order = np.argsort(-strengths, kind="stable")
        selected = np.sort(order[np.cumsum(lengths[order]) <= MAX_SIMILAR_POSTINGS])
        word_indices, terms, strengths = word_indices[selected], terms[selected], strengths[selected]
    return word_indices, terms, strengths


def _spread_to_neighbours(match: Floats, windowed_width: int) -> Floats:
    """For each word its best match in a place or, counting less, in the places around it."""
    best = match.copy()
    if windowed_width:
        inside = best[:, :windowed_width]
        # One step reaches one row back, and two rows back from there.
        np.maximum(inside[:, 1:], PREVIOUS_ROW_WEIGHT * match[:, : windowed_width - 1], out=inside[:, 1:])
        np.maximum(inside[:, 2:], PREVIOUS_ROW_WEIGHT**2 * inside[:, :-2], out=inside[:, 2:])
        np.maximum(inside[:, :-1], NEXT_ROW_WEIGHT * match[:, 1:windowed_width], out=inside[:, :-1])
    return best


def _window_bm25(index: SpaceIndex, term_counts: Floats, frequencies: Sequence[int], scale: np.float32) -> Floats:
    layout = index.layout
    windowed_width = layout.windowed_width
    if windowed_width:
        # Sums over 9 places from sums over 2, 4 and 8.
        inner = term_counts[:, :windowed_width]
        pairs = inner[:, :-1] + inner[:, 1:]
        fours = pairs[:, :-2] + pairs[:, 2:]
        eights = fours[:, :-4] + fours[:, 4:]
        term_counts[:, WINDOW_RADIUS : windowed_width - WINDOW_RADIUS] = eights[:, :-1] + inner[:, 2 * WINDOW_RADIUS :]
        # A word counts in about so many windows, which would take as long to count as all the rest.
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
    """Shared by the rows of a session; a row that is alone is its own session."""
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
    """In deviations from what is usual: the row with the one before it, and the nearest of its session."""

    own: Floats
    session: Floats


def compare_vectors(
    index: SpaceIndex, vector: Floats | None, eligible: Bools | None, other_scores: Floats, weight: float
) -> VectorSimilarity | None:
    """Compare vectors; None if there is nothing to compare.

    `other_scores` is what else counts for each row, and `weight` what a deviation counts: they say which rows matter.
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
