"""What a language's table holds. A word is a tag, one character the grammar reads, and a value.

| tag | words | value |
|---|---|---|
| `D` | today, yesterday, tomorrow, tonight | days from today, part of the day or None |
| `p` | morning, afternoon, evening, night | part of the day |
| `u` `k` | day, week, month …; weekend | unit, how many of it, whether plural |
| `n` `a` | two, a few; a | at least, at most |
| `o` | first, second … | number |
| `M` `m` | a month; one that may be another word | number |
| `W` `w` | a weekday; short for one | number, Monday is 0 |
| `S` `V` | a season; one that may be another word | spring 0, summer 1, autumn 2, winter 3 |
| `H` | a holiday | its name in `yearly.HOLIDAYS` |
| `K` `Y` | last week, this week …; last year … | how many from this one |
| `l` `P` `N` `C` `t` | last, past, next, coming, this | |
| `r` | last or next behind its noun | `l` or `N` |
| `G` `g` | ago, earlier; later | whether it also stands before: "earlier this week" |
| `/` | and a half | |
| `7` | Fridays, as in "two Fridays ago" | number, Monday is 0 |
| `f` `v` | from now; ago, where it comes before its number | |
| `b` `e` `s` `T` | before, after, since, until | |
| `F` `2` `B` `&` | from, to, between, and | |
| `i` `j` `q` `O` `h` | in; during, over; on, at; of; the | |
| `E` | early, the end of | which part, of how many |
| `Q` | Q3 | number |
| `L` | recently | days back |
| `U` | will, going to: the sentence speaks of the future | |
| `<` | was: a `U` that follows does not | |
| `#` | room, how many: what follows is no year, and not "years ago" | |
| `z` | time, times: "in two years" that follows is not the future | |
| `R` | was, we: words that may follow a year | |
| `*` | every, each: what follows is no single day | |
| `c` | words, people: the number before is a count | |

The lexer adds `d` and `c` (a number that can be a day of a month, any other), `y` (a year), `Z` (a decade), `A` (a date
in digits), punctuation and `x` for all other words. Rules put `A` for what they understand, `J` for a bare weekday.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VocabularyEntry = tuple[str, Any, bool]
"""Tag, value, and whether that is all: else a phrase may start here, or the neighbours decide."""
Phrase = tuple[tuple[str, ...], str, Any]

# One of these must be in a text for it to hold an expression of that language, or a number that can be a year.
_TRIGGER_TAGS = frozenset("DpukMmWwSVHKYQL7")
_CONTEXT_TAGS = frozenset("MwUcNC")


@dataclass(frozen=True, slots=True)
class Language:
    """The words of a language; see `table` for what they mean."""

    words: Mapping[str, VocabularyEntry]
    phrases: Mapping[str, tuple[Phrase, ...]]
    """By first word, the longest first."""
    triggers: frozenset[str]
    abbreviations: frozenset[str]
    """A full stop after these ends no sentence."""
    ambiguous_lowercase: frozenset[str]
    """Months that are also other words in small letters."""
    ambiguous_capitalized: frozenset[str]
    """Months that are also people's names or verbs when a sentence starts with them."""
    day_first: bool
    """How 05/08/2023 is read: 5 August, or else May 8."""
    dot_is_ordinal: bool
    past_verbs: re.Pattern[str]
    """Verbs in the past: after one, "in two weeks" is how long it took."""
    when_pattern: str
    """How questions ask for a time, as a regular expression that starts at a word; the next two alike."""
    latest_pattern: str
    first_pattern: str


def build_language(
    words: Mapping[str, Mapping[str, Any] | str],
    *,
    abbreviations: str = "",
    ambiguous_lowercase: str = "",
    ambiguous_capitalized: str = "",
    day_first: bool = True,
    dot_is_ordinal: bool = False,
    past_verbs: str = r"(?!)",
    when_pattern: str,
    latest_pattern: str,
    first_pattern: str,
) -> Language:
    """A language from its words by tag: with values, or as one text when there is nothing to say but the tag.

    In such texts words are separated by spaces; `_` joins the words of a phrase.
    """
    single_words: dict[str, VocabularyEntry] = {}
    phrases: dict[str, list[Phrase]] = {}
    for tag, entries in words.items():
        value_by_word: Mapping[str, Any] = dict.fromkeys(entries.split()) if isinstance(entries, str) else entries
        for name, value in value_by_word.items():
            for spelling in name.split():
                first_word, *rest = spelling.split("_")
                if rest:
                    phrases.setdefault(first_word, []).append((tuple(rest), tag, value))
                else:
                    single_words[spelling] = (
                        tag,
                        value,
                        tag not in _CONTEXT_TAGS and not (tag == "D" and value[0] > 0),
                    )
    for first_word in phrases:
        tag, value, _ = single_words.get(first_word, ("x", None, False))
        single_words[first_word] = (tag, value, False)
    triggers = {word for word, (tag, _, _) in single_words.items() if tag in _TRIGGER_TAGS}
    # The last word of a phrase is rarer than its first.
    triggers |= {
        rest[-1]
        for group in phrases.values()
        for rest, tag, _ in group
        if tag in _TRIGGER_TAGS and not triggers & {*rest}
    }
    return Language(
        words=single_words,
        phrases={word: tuple(sorted(group, key=lambda one: -len(one[0]))) for word, group in phrases.items()},
        triggers=frozenset(triggers),
        abbreviations=frozenset(abbreviations.split()),
        ambiguous_lowercase=frozenset(ambiguous_lowercase.split()),
        ambiguous_capitalized=frozenset(ambiguous_capitalized.split()),
        day_first=day_first,
        dot_is_ordinal=dot_is_ordinal,
        past_verbs=re.compile(past_verbs),
        when_pattern=when_pattern,
        latest_pattern=latest_pattern,
        first_pattern=first_pattern,
    )


def number_names(names: str, start: int = 1) -> dict[str, int]:
    """Names in order to their numbers; spellings of one name are joined by `/`.

    >>> number_names("january/jan february")
    {'january': 1, 'jan': 1, 'february': 2}
    """
    return {one: number for number, name in enumerate(names.split(), start) for one in name.split("/")}


def count_names(names: str, start: int = 1) -> dict[str, tuple[int, int]]:
    """The same for numbers that count: at least and at most so many."""
    return {name: (number, number) for name, number in number_names(names, start).items()}
