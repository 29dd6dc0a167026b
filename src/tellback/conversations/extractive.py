"""A summary without a model: the sentences that say most, in the order they were said."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

SUMMARY_LENGTH = 1_500
MAX_SENTENCE_LENGTH = 240

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
_WORD = re.compile(r"\w[\w'\u2019-]*")
_STOPWORDS = frozenset(
    """
    a about all also am an and any are as at be been but by can could did do does for from get go going good
    got had has have he hello her here hi him his how i i'd i'll i'm i've if in into is it it's its just know
    let like me more my no not now of ok okay on one or our out please really say see she should so some sure
    thank thanks that that's the their them then there they this to too up us very want was we well were what
    when where which who why will with would yes you you're your
    """.split()  # noqa: SIM905
)
_SPEAKER_WEIGHT = {"user": 1.4, "assistant": 1.0, "tool": 0.6, "system": 0.5}


def extract_summary(previous: str | None, messages: Iterable[tuple[str, str]], limit: int = SUMMARY_LENGTH) -> str:
    """The most telling sentences of an earlier summary and of what was said since, as "speaker: sentence" lines.

    >>> extract_summary(None, [("user", "I moved to Lisbon in March. Ok."), ("assistant", "Sure!")], limit=40)
    'user: I moved to Lisbon in March.'
    """
    lines = list(dict.fromkeys([*(previous or "").splitlines(), *_split_lines(messages)]))
    words = [set(_content_words(line)) for line in lines]
    document_frequency = Counter(word for line_words in words for word in line_words)
    scores = [
        _score_line(line, line_words, document_frequency, len(lines))
        for line, line_words in zip(lines, words, strict=True)
    ]
    chosen: list[int] = []
    length = 0
    # Of equally telling ones the newer wins: it is more likely to still hold.
    for index in sorted(range(len(lines)), key=lambda index: (-scores[index], -index)):
        if scores[index] <= 0 or length + len(lines[index]) + 1 > limit + 1:
            continue
        chosen.append(index)
        length += len(lines[index]) + 1
    return "\n".join(lines[index] for index in sorted(chosen))


def _split_lines(messages: Iterable[tuple[str, str]]) -> Iterable[str]:
    for speaker, text in messages:
        for sentence in _SENTENCE.split(text):
            line = " ".join(sentence.split())
            if line:
                yield f"{speaker}: {line if len(line) <= MAX_SENTENCE_LENGTH else line[: MAX_SENTENCE_LENGTH - 1] + '…'}"


def _content_words(line: str) -> Sequence[str]:
    _, _, sentence = line.partition(": ")
    return [word for word in _WORD.findall(sentence.casefold()) if word not in _STOPWORDS and len(word) > 1]


def _score_line(line: str, words: set[str], document_frequency: Counter[str], lines: int) -> float:
    """Rare enough to say something, but shared with other lines; names and numbers count more."""
    if not words:
        return 0.0
    speaker, _, sentence = line.partition(": ")
    rarity = sum(
        math.log(1 + lines / document_frequency[word]) * (1.5 if document_frequency[word] > 1 else 1.0)
        for word in words
    )
    specific = len(re.findall(r"\d+|(?<=\s)[A-ZÀ-Ý]\w+", sentence))
    question = 0.6 if sentence.rstrip().endswith("?") else 1.0
    return (rarity + specific) / math.sqrt(len(words) + 3) * question * _SPEAKER_WEIGHT.get(speaker, 1.0)
