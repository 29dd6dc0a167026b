"""How relevant each text of a space is to a query: a weighted sum of a few signals, in one pass over arrays.

Every signal is on a scale that hardly depends on the other texts, so that a score means the same in a space of three
memories and of ten thousand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recollect.memory.recall import hints
from recollect.memory.recall.grown import Bools, Floats
from recollect.memory.recall.hints import Asks
from recollect.memory.recall.index import SpaceIndex
from recollect.memory.recall.matching import match_words
from recollect.memory.recall.words import TIME, Word, all_words, name_words, words

DAY = 86_400_000_000.0
DAYS_NEAR = 5.0
"""A memory so many days away from a date that is asked about counts 1/e of one from that date."""

MOST_READ = 64
"""How many texts of a space are read for the times they speak of, for one query."""

BEFORE_SHARE = 0.7
"""What the meaning of the row before counts beside that of the row itself."""

USUAL_ROWS = 20
USUAL_MEAN = 0.25
USUAL_DEVIATION = 0.11
"""Cosines are judged by their mean and deviation over the space, as if it held so many usual ones besides: a space of
two memories says nothing about what is usual."""

LEAST_DEVIATION = 0.02

_AROUND = ".,;:!?()[]\"'\u201c\u201d\u2026"
_OWNER = re.compile(r"['\u2019]s$")
_SIGNS = np.where(np.arange(256) >> np.arange(8)[:, None] & 1, np.float32(0.5), np.float32(-0.5))
"""For each bit of a text's signs, whether each of the 256 combinations has it."""

VAGUE = frozenset(("recently", "lately", "now", "currently", "today", "these days"))


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    `now` is the moment of asking, `vector` that of the text, or better of its `topic_of`, by the embedder of the
    memories, and `reading` what `dates.read_query` made of it.
    """

    text: str
    now: int
    vector: npt.NDArray[np.float32] | None = None
    reading: Any = None


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal counts, in log-odds.

    `same_words` to `conversation` weigh words: matched in a row or near it, in the window around it, in its session.
    `meaning` weighs the vectors of a row and the one before, `conversation_meaning` the nearest vector of the session.
    `speaker` is for a row of the one person a query names, `first_speaker` of the first of several, `named` for a row
    linked to an entity it names, `date` for one from the time it asks about. `when`, `count`, `where` and `who` are for
    rows with a time, a number, a place or a name where that is asked for. The rest is about the row alone: it has a
    name in it, it is a question, it follows one, it opens a session, it speaks to somebody, it is long. `base` is where
    a row starts. A sign that is there counts half of its weight, and one that is missing takes the other half away.

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
    named: float = 1.0
    date: float = 3.2
    when: float = 1.3
    count: float = 1.0
    where: float = 1.5
    who: float = 1.2
    names: float = 0.2
    question: float = -0.55
    answer: float = 0.5
    opening: float = 0.4
    address: float = -0.35
    length: float = 0.1


DEFAULT = Weights()

PARTS = {
    "same words": ("same_words",),
    "words nearby": ("nearby",),
    "same conversation": ("conversation", "conversation_meaning"),
    "meaning": ("meaning",),
    "form": ("length",),
}
"""What is shown of a score, and the signals in each part."""


@dataclass(frozen=True, slots=True)
class Relevance:
    """How relevant each row is, as log-odds; what each part added to it; and the names that the query mentions."""

    total: Floats
    parts: Mapping[str, npt.NDArray[np.float32]]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query as it is read against a space: who it names, what it asks, the words it leaves, the times it means."""

    people: list[int]
    asks: Asks
    words: list[Word]
    spans: tuple[Any, ...]
    topic: str


def relevance(index: SpaceIndex, query: Query, eligible: Bools | None = None, weights: Weights = DEFAULT) -> Relevance:
    """How relevant each row of an index is to a query.

    Rows that are not `eligible` hold anything; they are not counted where the rows' own mean is needed.
    """
    n = len(index)
    if not n:
        return Relevance(np.zeros(0, np.float32), {}, ())
    asked = read(index, query)
    found = signals(index, query, asked, eligible)
    parts: dict[str, Any] = {}
    for part, names in PARTS.items():
        for name in names:
            values = found.get(name)
            if values is not None:
                values = values * getattr(weights, name)
                parts[part] = values if part not in parts else parts[part] + values
    parts["form"] += _form(index, asked.asks, weights)
    if asked.people:
        parts["speaker"] = _speaker(index, asked, weights)
    entities: list[str] = []
    if index.entity_rows:
        parts["names"], entities = _entities(index, query.text, weights)
    total = np.full(n, weights.base, np.float32)
    for values in parts.values():
        total += values
    if asked.spans:
        parts["date"] = _dates(index, asked, total) * weights.date
        total += parts["date"]
    parts["base"] = np.float32(weights.base)
    people = [index.speaker_names[number] for number in asked.people]
    return Relevance(total, parts, tuple(dict.fromkeys(people + entities)))


def topic_of(index: SpaceIndex, query: Query) -> str:
    """What a query is about, without the speakers and dates it names: the text whose vector serves best."""
    return read(index, query).topic


def read(index: SpaceIndex, query: Query) -> Asked:
    """Read a query against a space."""
    spans = _spans(query.reading)
    text = query.text
    for span in spans:
        text = text.replace(span.text, " ")
    people: list[int] = []
    left = []
    by_word = index.speakers_by_word
    for piece in text.split() if by_word else ():
        numbers = _speakers_in(piece, by_word)
        people += [number for number in numbers if number not in people]
        if not numbers:
            left.append(piece)
    topic = " ".join(left) if people else text
    found = words(topic)
    if not found and not people:
        found = all_words(topic)
    return Asked(
        people, hints.read_question(query.text), list({word.term: word for word in found}.values()), spans, topic
    )


def _speakers_in(piece: str, by_word: Mapping[str, list[int]]) -> list[int]:
    plain = piece.strip(_AROUND).lower()
    if plain in by_word:
        return by_word[plain]
    if plain.isalpha() and plain.isascii():
        return []
    found: list[int] = []
    for word in name_words(_OWNER.sub("", piece.strip(_AROUND))):
        found += by_word.get(word, ())
    return found


def signals(index: SpaceIndex, query: Query, asked: Asked, eligible: Bools | None) -> dict[str, Floats]:
    """The signals that are numbers, before they are weighed."""
    found: dict[str, Floats] = {"length": index.lengths.view}
    matches = match_words(index, asked.words)
    if matches is not None:
        found |= {"same_words": matches.soft, "nearby": matches.near, "conversation": matches.session}
    meaning, conversation_meaning = _meaning(index, query, eligible)
    if meaning is not None and conversation_meaning is not None:
        found |= {"meaning": meaning, "conversation_meaning": conversation_meaning}
    return found


def _speaker(index: SpaceIndex, asked: Asked, weights: Weights) -> Floats | np.float32:
    """Whether the one who is asked about said it; as much less likely for the others."""
    weight = weights.speaker
    if len(asked.people) > 1:
        if asked.asks.both:
            return np.float32(0)
        weight = weights.first_speaker
    table = np.full(len(index.speaker_names) + 1, -weight / 2, np.float32)
    table[asked.people[0]] = weight / 2
    table[-1] = 0
    return np.asarray(table[index.speakers.view])


def _form(index: SpaceIndex, asks: Asks, weights: Weights) -> Floats:
    """Whether the text has the form of what is asked for, looked up by its signs."""
    weighed = (
        weights.when * asks.when,
        weights.count * asks.count,
        weights.question,
        weights.who * asks.who + weights.names,
        weights.where * asks.where,
        weights.answer,
        weights.opening,
        weights.address,
    )
    table = np.array(weighed, np.float32) @ _SIGNS
    return np.asarray(table[index.signs.view])


def _entities(index: SpaceIndex, text: str, weights: Weights) -> tuple[Floats, list[str]]:
    found = np.zeros(len(index), np.float32)
    names: list[str] = []
    spoken = set(name_words(text))
    for key, rows in index.entity_rows.items():
        if spoken.issuperset(key):
            found[rows] = weights.named
            names.append(index.entity_names[key])
    return found, names


def _meaning(index: SpaceIndex, query: Query, eligible: Bools | None) -> tuple[Floats | None, Floats | None]:
    """How near the vectors are, with the row before and with the nearest of the session."""
    if query.vector is None or index.vectors is None or index.vectors.view.shape[1] != len(query.vector):
        return None, None
    near = index.vectors.times(query.vector)
    known = index.embedded.view
    counted = known if eligible is None else known & eligible
    sample = near if counted.all() else near[counted]
    size = len(sample) + USUAL_ROWS
    mean = (float(sample.sum()) + USUAL_ROWS * USUAL_MEAN) / size
    square = (float(sample @ sample) + USUAL_ROWS * (USUAL_DEVIATION**2 + USUAL_MEAN**2)) / size
    near -= np.float32(mean)
    near *= np.float32(1 / math.sqrt(max(square - mean * mean, LEAST_DEVIATION**2)))
    if len(sample) < len(near):
        near[~known] = 0
    meaning = near[index.before.view]
    meaning *= np.float32(BEFORE_SHARE / (1 + BEFORE_SHARE))
    meaning += np.float32(1 / (1 + BEFORE_SHARE)) * near
    layout = index.layout
    if not layout.session_count:
        return meaning, near
    nearest = np.zeros(layout.session_count + 1, np.float32)
    nearest[:-1] = np.maximum.reduceat(near[layout.order], layout.opens)
    shared = nearest[layout.sessions]
    if len(layout.order) < len(index):
        shared = np.where(layout.sessions < layout.session_count, shared, near)
    return meaning, shared


def _spans(reading: Any) -> tuple[Any, ...]:
    """The times a query means. Where it gives years, only those: "last week, on 6 May 2023" is not about now."""
    if reading is None or not reading.spans:
        return ()
    spans = tuple(span for span in reading.spans if span.text.casefold() not in VAGUE)
    exact = tuple(
        span for span in spans if any(part.isdigit() and len(part) == 4 for part in span.text.replace(",", " ").split())
    )
    return exact or spans


def _dates(index: SpaceIndex, asked: Asked, total: Floats) -> Floats:
    """1 for what is from the time asked about or speaks of it, less with every day between them; halved around 0.

    Reading what a text speaks of takes its time, and is done for those that answer best but for the date.
    """
    moments = index.moments.view
    days = np.full(len(index), np.inf)
    for span in asked.spans:
        np.minimum(days, np.maximum(span.start - moments, moments - span.end) / DAY, out=days)
    telling = np.flatnonzero(index.signs.view & TIME)
    if len(telling) > MOST_READ:
        # Those that tie at the end are left out together: equal texts are to score equally.
        least = np.partition(total[telling], -MOST_READ - 1)[-MOST_READ - 1]
        telling = telling[total[telling] > least]
    for row in telling.tolist():
        for start, end in index.times_of(row):
            for span in asked.spans:
                days[row] = min(days[row], max(span.start - end, start - span.end) / DAY)
    return np.asarray(np.exp(np.maximum(days, 0) / -DAYS_NEAR) - 0.5, np.float32)
