"""How relevant each text of a space is to a query: a weighted sum of a few signals, in one pass over arrays.

Every signal is on a scale that hardly depends on the other texts, so that a score means the same in a space of three
memories and of ten thousand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tellback.memory.recall import hints, meaning
from tellback.memory.recall.grown import Bools, Floats
from tellback.memory.recall.hints import Asks
from tellback.memory.recall.index import SpaceIndex
from tellback.memory.recall.matching import match_words
from tellback.memory.recall.words import TIME, Word, all_words, name_words, words

DAY = 86_400_000_000.0
DAYS_NEAR = 5.0
"""A memory so many days away from a date that is asked about counts 1/e of one from that date."""

MOST_READ = 64
"""How many texts of a space are read for the times they speak of, for one query."""

_AROUND = ".,;:!?()[]\"'\u201c\u201d\u2026"
_OWNER = re.compile(r"['\u2019]s$")
_SIGNS = np.where(np.arange(256) >> np.arange(8)[:, None] & 1, np.float32(0.5), np.float32(-0.5))
"""For each bit of a text's signs, whether each of the 256 combinations has it."""

_BEFORE_TIMES = r"\b(?:in|on|since|until|till|by|last|next|this|during|before|after|from|early|late|mid|of)"
MOST_SPANS = 8

VAGUE = frozenset(("recently", "lately", "now", "currently", "today", "these days"))


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    `now` is the moment of asking, `vector` that of the text, or better of its `topic` as it is `read`, by the embedder
    of the memories, and `reading` what `dates.read_query` made of it.
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


DEFAULT = Weights()


@dataclass(frozen=True, slots=True)
class Relevance:
    """How relevant each row is, as log-odds; what each part added to it; and the speakers that the query names."""

    total: Floats
    parts: Mapping[str, npt.NDArray[np.float32]]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query as it is read against a space: who it names, what it asks, the words it leaves, the times it means.

    `topic` is the query without the speakers and times that it names: the text whose vector serves best.
    """

    people: list[int]
    asks: Asks
    words: list[Word]
    spans: tuple[Any, ...]
    topic: str


def relevance(
    index: SpaceIndex,
    query: Query,
    eligible: Bools | None = None,
    weights: Weights = DEFAULT,
    asked: Asked | None = None,
) -> Relevance:
    """How relevant each row of an index is to a query, which may have been `read` against it before.

    Rows that are not `eligible` hold anything; they are not counted where the rows' own mean is needed.
    """
    if not len(index):
        return Relevance(np.zeros(0, np.float32), {}, ())
    asked = asked or read(index, query)
    parts: dict[str, Any] = {"form": _form(index, asked.asks, weights)}
    total = parts["form"] + np.float32(weights.base)
    matches = match_words(index, asked.words)
    if matches is not None:
        parts["same words"] = weights.same_words * matches.soft
        parts["words nearby"] = weights.nearby * matches.near
        parts["same conversation"] = weights.conversation * matches.session
        total += parts["same words"]
        total += parts["words nearby"]
        total += parts["same conversation"]
    if asked.people:
        parts["speaker"] = _speaker(index, asked, weights)
        total += parts["speaker"]
    meanings = meaning.compare(index, query.vector, eligible, total, weights.meaning)
    if meanings is not None:
        parts["meaning"] = weights.meaning * meanings.own
        parts["meaning of the conversation"] = weights.conversation_meaning * meanings.session
        total += parts["meaning"]
        total += parts["meaning of the conversation"]
    if asked.spans:
        parts["date"] = _dates(index, asked, total) * weights.date
        total += parts["date"]
    parts["base"] = np.float32(weights.base)
    return Relevance(total, parts, tuple(index.speaker_names[number] for number in asked.people))


def read(index: SpaceIndex, query: Query) -> Asked:
    """Read a query against a space."""
    by_word = index.speakers_by_word
    spans = tuple(span for span in _spans(query.reading) if not _is_speaker(span.text, query.text, by_word))
    text = query.text
    for span in spans:
        text = re.sub(rf"(?<!\w){re.escape(span.text)}(?!\w)", " ", text, count=1)
    people: list[int] = []
    left = []
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


def _is_speaker(time: str, text: str, by_word: Mapping[str, list[int]]) -> bool:
    """Whether what could be a month is somebody: "Did June call?", but "in June"."""
    if time.lower() not in by_word:
        return False
    return re.search(rf"{_BEFORE_TIMES}\s+{re.escape(time)}\b", text, re.IGNORECASE) is None


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


def _spans(reading: Any) -> tuple[Any, ...]:
    """The times a query means. Where it gives years, only those: "last week, on 6 May 2023" is not about now."""
    if reading is None or not reading.spans:
        return ()
    spans = tuple(span for span in reading.spans if span.text.casefold() not in VAGUE)
    exact = tuple(
        span for span in spans if any(part.isdigit() and len(part) == 4 for part in span.text.replace(",", " ").split())
    )
    return (exact or spans)[:MOST_SPANS]


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
