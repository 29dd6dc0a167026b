"""The lexer of time expressions: it turns a text into a string with one tag character per word, for the grammar."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from tellback.memory.recall.dates.calendar import ResolvedSpan, day_number, month_length, unit_span
from tellback.memory.recall.dates.vocabulary import Language, Phrase

TaggedItem = tuple[Any, int, int]
"""The meaning of a word, and its start and end in the text."""

_TOKEN = re.compile(
    r"[^\W\d_][^\W_]*(?:['\u2019][^\W\d_]+)?"
    r"|[0-9]+(?:[-/.\u2013][0-9]+)*(?:[^\W\d_][^\W_]*)?"
    r"|['\u2019][0-9]{2}s?\b"
    r"|[^\w\s]|\n"
)
_PUNCTUATION = (
    dict.fromkeys(".?!;\n", ".")
    | dict.fromkeys("-\u2013\u2014", "-")
    | dict.fromkeys("$#€£¥", "#")
    | {",": ",", "(": "(", ")": ")", "&": "&"}
)
_NUMBER = re.compile(r"([0-9]{1,6})(?:([-/.\u2013])([0-9]{1,6})(?:\2([0-9]{1,6}))?)?((?:[^\W\d_][^\W_]*)?)\Z")
_ORDINAL = frozenset(("st", "nd", "rd", "th"))
_EMPTY_ITEM: TaggedItem = (None, 0, 0)

_PAST_VERB_DISTANCE = 40


class TaggedText:
    """A text as tags, with the value of each tag, the ends of its sentences, and which sentences are about the
    future."""

    __slots__ = ("_future_sentences", "_sentence_ends", "_tags", "items", "language", "tags", "text")

    def __init__(self, text: str, language: Language) -> None:
        self.text, self.language = text, language
        self._tags: list[str] = []
        self.items: list[TaggedItem] = []
        self._sentence_ends: list[int] = []
        self._future_sentences: set[int] = set()
        tags, items, lookup = self._tags, self.items, language.words.get
        tokens = list(_TOKEN.finditer(text))
        skip = 0
        for index, match in enumerate(tokens):
            if skip:
                skip -= 1
                continue
            token = match[0]
            word = token.lower()
            entry = lookup(word)
            if entry is None and not word.isalnum():
                word = _normalize_word(word)
                entry = lookup(word)
            if entry is not None:
                tag, value, is_plain = entry
                if is_plain:
                    tags.append(tag)
                    items.append((value, *match.span()))
                else:
                    skip = self._read_special(word, tag, value, tokens, index)
            elif word[:1].isalpha():
                tags.append("x")
                items.append(_EMPTY_ITEM)
            else:
                self._read_other(token, *match.span())
        self.tags = "".join(tags)

    def is_future(self, position: int) -> bool:
        """Whether the sentence around a position is about the future."""
        return bool(self._future_sentences) and bisect_left(self._sentence_ends, position) in self._future_sentences

    def follows_past_verb(self, position: int) -> bool:
        """Whether a verb in the past tense stands shortly before a position, in the same sentence."""
        sentence = bisect_left(self._sentence_ends, position)
        begins = max(self._sentence_ends[sentence - 1] if sentence else 0, position - _PAST_VERB_DISTANCE)
        return self.language.past_verbs.search(self.text, begins, position) is not None

    def _read_special(self, word: str, tag: str, value: Any, tokens: Sequence[re.Match[str]], index: int) -> int:
        """Read a word that may start a phrase or depends on its neighbours, and return how many following words it
        includes."""
        start, end = tokens[index].span()
        skip = 0
        if phrase := _match_phrase(self.language.phrases.get(word, ()), tokens, index):
            following, tag, value = phrase
            skip = len(following)
            end = tokens[index + skip].end()
        elif tag in "MwU":
            tag = self._disambiguate(word, tokens[index][0], tag)
        elif tag == "c":
            tag = "x"
            if self._tags and self._tags[-1] in "dyo":
                self._tags[-1] = "c"
        if tag in "UNC" or (tag == "D" and value[0] > 0) or (tag in "KY" and value > 0):
            self._future_sentences.add(len(self._sentence_ends))
        self._add(tag, value, start, end)
        return skip

    def _add(self, tag: str, value: Any, start: int, end: int) -> None:
        self._tags.append(tag)
        self.items.append((value, start, end))

    def _disambiguate(self, word: str, token: str, tag: str) -> str:
        """Decide by capitals and position whether May is a month, Sun is a day and Will is a verb."""
        is_capitalized = token[0].isupper() and not (len(token) > 1 and token.isupper())
        starts_sentence = not self._tags or self._tags[-1] in '."'
        if tag == "U":
            is_name = is_capitalized and not starts_sentence and word == "will"
            return "x" if is_name or "<" in self._tags[-2:] else tag
        if tag == "w":
            return "x" if word in self.language.ambiguous_lowercase and not is_capitalized else tag
        if word in self.language.abbreviations or (word in self.language.ambiguous_lowercase and not is_capitalized):
            return "m"
        return "m" if starts_sentence and is_capitalized and word in self.language.ambiguous_capitalized else tag

    def _read_other(self, token: str, start: int, end: int) -> None:
        if token[0] in "0123456789":
            self._read_number(token, start, end)
        elif len(token) > 1:  # '22 after a month, a season or "of"; the '90s
            if token[-1] == "s":
                self._add("Z" if token[-2] == "0" else "x", int(token[1:3]), start, end)
            elif self._tags and self._tags[-1] in "MmSVHOido":
                self._add("y", _expand_year(int(token[1:])), start, end)
            else:
                self._add("x", None, start, end)
        else:
            self._read_punctuation(token, start, end)

    def _read_number(self, token: str, start: int, end: int) -> None:
        match = _NUMBER.match(token)
        if match is None:
            self._add("#", None, start, end)
            return
        first, separator, second, third, suffix = match.groups()
        suffix = suffix.lower()
        if (self._tags and self._tags[-1] == "#") or self.text[end : end + 1] in ("%", "°"):
            self._add("x" if separator or suffix else "c", int(first), start, end)
        elif not separator:
            self._add(*_tag_number(first, suffix, self._tags), start, end)
        elif third is not None:
            date = (
                _parse_numeric_date(first, separator, second, third, self.language) if suffix[:1] in ("", "t") else None
            )
            self._add("A" if date else "x", date, start, end)
        elif not suffix and separator in "-/" and (month := _parse_year_month(first, second)):
            self._add("A", month, start, end)
        elif separator in "-\u2013" and (not suffix or suffix in _ORDINAL):
            middle = start + len(first)
            self._add(*_tag_number(first, "", self._tags), start, middle)
            self._add("-", None, middle, middle + 1)
            self._add(*_tag_number(second, suffix, self._tags), middle + 1, end)
        else:
            self._add("x", None, start, end)

    def _read_punctuation(self, token: str, start: int, end: int) -> None:
        tag = _PUNCTUATION.get(token, '"')
        if token == "." and self._tags:
            _, item_start, item_end = self.items[-1]
            if item_end == start and self.text[item_start:item_end].lower() in self.language.abbreviations:
                return
            if item_end == start and self._tags[-1] == "d" and self.language.dot_is_ordinal:
                self._tags[-1] = "o"
                return
        if tag == ".":
            self._sentence_ends.append(start)
        self._add(tag, None, start, end)


def _normalize_word(token: str) -> str:
    """Lowercase a word, with a plain apostrophe and without 's."""
    word = token.lower()
    return word if word.isalnum() else word.replace("\u2019", "'").removesuffix("'s")


def _match_phrase(phrases: Sequence[Phrase], tokens: Sequence[re.Match[str]], index: int) -> Phrase | None:
    if not phrases or index + 1 == len(tokens):
        return None
    second = _normalize_word(tokens[index + 1][0])
    for phrase in phrases:
        following = phrase[0]
        if following[0] == second:
            candidate = tokens[index + 2 : index + 1 + len(following)]
            if len(following) == 1 or following[1:] == tuple(_normalize_word(token[0]) for token in candidate):
                return phrase
    return None


def _tag_number(digits: str, suffix: str, previous_tags: Sequence[str]) -> tuple[str, Any]:
    """Tag a number without separators: a year, a day, a count, an ordinal or a decade."""
    number = int(digits)
    if not suffix:
        if len(digits) == 4 and 1900 <= number <= 2099:
            return "y", number
        return ("d" if len(digits) < 3 and 1 <= number <= 31 else "c"), number
    if suffix in _ORDINAL:
        return ("o" if 1 <= number <= 31 else "x"), number
    if suffix == "s" and number % 10 == 0:
        if len(digits) == 4 and 1500 <= number <= 2090:
            return "Z", number
        # "The 90s" and "mid-90s" are years, but "in her 90s" is an age.
        if len(digits) == 2 and "".join(previous_tags[-2:]).rstrip("-")[-1:] in ("h", "E"):
            return "Z", number
    return "x", None


def _expand_year(year: int) -> int:
    return year + (2000 if year < 50 else 1900)


def _parse_year_month(first: str, second: str) -> ResolvedSpan | None:
    if len(first) != 4 or len(second) != 2 or not (1900 <= int(first) <= 2099 and 1 <= int(second) <= 12):
        return None
    return unit_span("month", day_number(int(first), int(second)))


def _parse_numeric_date(first: str, separator: str, second: str, third: str, language: Language) -> ResolvedSpan | None:
    """Parse a date in digits: 2023-05-08, 8.5.2023, or 05/08/2023 in the language's order if it is ambiguous."""
    if len(first) == 4:
        year, month, day = int(first), int(second), int(third)
    elif len(third) == 4 or (len(third) == 2 and separator == "/"):
        year = int(third) if len(third) == 4 else _expand_year(int(third))
        day, month = int(first), int(second)
        month_first = separator != "." and not language.day_first
        if month > 12 or (month_first and day <= 12):
            day, month = month, day
    else:
        return None
    if not (1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= month_length(year, month)):
        return None
    return unit_span("day", day_number(year, month, day))
