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

Entry = tuple[str, Any, bool]
"""Tag, value, and whether that is all: else a phrase may start here, or the neighbours decide."""
Phrase = tuple[tuple[str, ...], str, Any]

# One of these must be in a text for it to hold an expression of that language, or a number that can be a year.
_TELLING = frozenset("DpukMmWwSVHKYQL7")
_DEPENDING = frozenset("MwUcNC")


@dataclass(frozen=True, slots=True)
class Language:
    """The words of a language; see `table` for what they mean."""

    words: Mapping[str, Entry]
    phrases: Mapping[str, tuple[Phrase, ...]]
    """By first word, the longest first."""
    triggers: frozenset[str]
    abbreviations: frozenset[str]
    """A full stop after these ends no sentence."""
    guarded: frozenset[str]
    """Months that are also other words in small letters."""
    named: frozenset[str]
    """Months that are also people's names or verbs when a sentence starts with them."""
    day_first: bool
    """How 05/08/2023 is read: 5 August, or else May 8."""
    dot_is_ordinal: bool
    past: re.Pattern[str]
    """Verbs in the past: after one, "in two weeks" is how long it took."""
    when: str
    """How questions ask for a time, as a regular expression that starts at a word; the next two alike."""
    latest: str
    first: str


def language(
    words: Mapping[str, Mapping[str, Any] | str],
    *,
    abbreviations: str = "",
    guarded: str = "",
    named: str = "",
    day_first: bool = True,
    dot_is_ordinal: bool = False,
    past: str = r"(?!)",
    when: str,
    latest: str,
    first: str,
) -> Language:
    """A language from its words by tag: with values, or as one text when there is nothing to say but the tag.

    In such texts words are separated by spaces; `_` joins the words of a phrase.
    """
    single: dict[str, Entry] = {}
    joined: dict[str, list[Phrase]] = {}
    for tag, entries in words.items():
        valued: Mapping[str, Any] = dict.fromkeys(entries.split()) if isinstance(entries, str) else entries
        for name, value in valued.items():
            for spelling in name.split():
                first_word, *rest = spelling.split("_")
                if rest:
                    joined.setdefault(first_word, []).append((tuple(rest), tag, value))
                else:
                    single[spelling] = (tag, value, tag not in _DEPENDING and not (tag == "D" and value[0] > 0))
    for first_word in joined:
        tag, value, _ = single.get(first_word, ("x", None, False))
        single[first_word] = (tag, value, False)
    triggers = {word for word, (tag, _, _) in single.items() if tag in _TELLING}
    # The last word of a phrase is rarer than its first.
    triggers |= {
        rest[-1] for found in joined.values() for rest, tag, _ in found if tag in _TELLING and not triggers & {*rest}
    }
    return Language(
        words=single,
        phrases={word: tuple(sorted(found, key=lambda one: -len(one[0]))) for word, found in joined.items()},
        triggers=frozenset(triggers),
        abbreviations=frozenset(abbreviations.split()),
        guarded=frozenset(guarded.split()),
        named=frozenset(named.split()),
        day_first=day_first,
        dot_is_ordinal=dot_is_ordinal,
        past=re.compile(past),
        when=when,
        latest=latest,
        first=first,
    )


def numbered(names: str, start: int = 1) -> dict[str, int]:
    """Names in order to their numbers; spellings of one name are joined by `/`.

    >>> numbered("january/jan february")
    {'january': 1, 'jan': 1, 'february': 2}
    """
    return {one: number for number, name in enumerate(names.split(), start) for one in name.split("/")}


def counts(names: str, start: int = 1) -> dict[str, tuple[int, int]]:
    """The same for numbers that count: at least and at most so many."""
    return {name: (number, number) for name, number in numbered(names, start).items()}
