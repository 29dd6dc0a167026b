"""Rank the texts of a space by relevance to a query: a weighted sum of a few signals, in one pass over arrays.

Every signal is on a scale that hardly depends on the other texts, so a score means the same in a space of three
memories and of ten thousand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tellback.memory.recall import question, similarity
from tellback.memory.recall.dates.calendar import TimeSpan
from tellback.memory.recall.index import SpaceIndex
from tellback.memory.recall.postings import Bools, Floats
from tellback.memory.recall.question import QuestionIntent
from tellback.memory.recall.similarity import match_words
from tellback.memory.recall.tokenizer import HAS_TIME, Word, extract_all_words, extract_words, normalize_name

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
    """How relevant each row is, as log-odds; what each part added to it; and the speakers that the query names."""

    total: Floats
    parts: Mapping[str, npt.NDArray[np.float32]]
    speaker_names: tuple[str, ...]


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
        return RelevanceScores(np.zeros(0, np.float32), {}, ())
    parsed = parsed or parse_query(index, query)
    parts: dict[str, Any] = {"form": _form_signal(index, parsed.intent, weights)}
    total = parts["form"] + np.float32(weights.base)
    matches = match_words(index, parsed.words)
    if matches is not None:
        parts["same words"] = weights.same_words * matches.soft
        parts["words nearby"] = weights.nearby * matches.window
        parts["same conversation"] = weights.conversation * matches.session
        total += parts["same words"]
        total += parts["words nearby"]
        total += parts["same conversation"]
    if parsed.speakers:
        parts["speaker"] = _speaker_signal(index, parsed, weights)
        total += parts["speaker"]
    vector_similarity = similarity.compare_vectors(index, query.vector, eligible, total, weights.meaning)
    if vector_similarity is not None:
        parts["meaning"] = weights.meaning * vector_similarity.own
        parts["meaning of the conversation"] = weights.conversation_meaning * vector_similarity.session
        total += parts["meaning"]
        total += parts["meaning of the conversation"]
    if parsed.spans:
        parts["date"] = _date_signal(index, parsed, total) * weights.date
        total += parts["date"]
    parts["base"] = np.float32(weights.base)
    return RelevanceScores(total, parts, tuple(index.speaker_names[number] for number in parsed.speakers))


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
        question.parse_question(query.text),
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
