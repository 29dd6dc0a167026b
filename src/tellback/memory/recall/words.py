"""Text to words: the terms two texts are compared by, with what little spelling and grammar must be known for it.

English is stemmed; words of other languages pass through the same steps unharmed, since what is done to a word depends
on nothing but the word. Scripts that do not part their words are read in pairs of characters.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from itertools import chain
from typing import NamedTuple

import Stemmer

from tellback.memory.recall import english
from tellback.types.caches import forgets

TIME = 1
NUMBER = 2
PLACE = 16

_LONGEST = 64
_MOST_KNOWN = 200_000
# Marks that make up words in the scripts of India are not letters to `\w`.
_TOKEN = re.compile(r"(?:[^\W_]|[\u0300-\u036f\u0900-\u0963\u0966-\u0dff])+(?:['\u2019](?:[^\W_])+)*")
_PLAIN = "".join(char if char.isalnum() or char == "'" else " " for char in map(chr, range(128)))
_UNPARTED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_MEANINGFUL = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_MARKS = re.compile(r"[\u0300-\u036f]+")
_DRAWN_OUT = re.compile(r"([a-z])\1{2,}")


class Word(NamedTuple):
    """A word of a text: the term it is compared by, its form for word vectors, and what it is a sign of."""

    term: str
    form: str
    signs: int = 0


class _Known(dict[str, tuple[Word, ...]]):
    """The tokens met so far in this process, and what each was read as."""

    def __missing__(self, token: str) -> tuple[Word, ...]:
        found = _read(token[:_LONGEST])
        if len(token) <= _LONGEST:
            # Emptied when full rather than pruned: the words in use are back after a few texts.
            if len(self) >= _MOST_KNOWN:
                self.clear()
            self[token] = found
        return found


_KNOWN = _Known()
forgets(_KNOWN.clear)
_STEMMER = Stemmer.Stemmer("english")
_STEMMING = threading.Lock()


def words(text: str) -> list[Word]:
    """The words of a text that say something, in order.

    >>> [word.term for word in words("She didn't go hiking: two kids were ill")]
    ['go', 'hike', '2', 'child', 'ill']
    """
    return list(chain.from_iterable(map(_KNOWN.__getitem__, tokens(text))))


def words_of(token: str) -> tuple[Word, ...]:
    """The words that one of a text's `tokens` stands for."""
    return _KNOWN[token]


def all_words(text: str) -> list[Word]:
    """The words of a text as they stand, stopwords included: what is left to compare when nothing else is.

    >>> [word.term for word in all_words("To be")]
    ['to', 'be']
    """
    return [Word(token[:_LONGEST], token[:_LONGEST]) for token in tokens(text)]


def name_words(name: str) -> tuple[str, ...]:
    """A name as plain words: without case, accents and punctuation.

    >>> name_words("José O'Neil")
    ('jose', 'oneil')
    """
    return tuple(_plain(token) for token in tokens(name))


def tokens(text: str) -> list[str]:
    """A text in pieces, as `words_of` takes them."""
    # Most texts are plain, and those are parted much faster without a pattern.
    return text.lower().translate(_PLAIN).split() if text.isascii() else _TOKEN.findall(text.casefold())


def _read(token: str) -> tuple[Word, ...]:
    token = token.strip("'")
    if _UNPARTED.search(token):
        return tuple(_read_unparted(token))
    signs = (TIME if token in english.TIMES else 0) | (PLACE if token in english.PLACES else 0)
    form = _plain(token)
    if form in english.STOPWORDS:
        return ()
    base, _, ending = token.partition("'") if "'" in token else token.partition("\u2019")
    if ending:
        if ending not in ("s", "t", "m", "re", "ve", "ll", "d"):
            base = form
        elif ending == "t":
            base = base.removesuffix("n") if base != "can" else base
        form = _plain(base)
    form = _DRAWN_OUT.sub(_shorten, form)
    if form in english.STOPWORDS or not form:
        return ()
    if form in english.NUMBERS:
        return (Word(english.NUMBERS[form], form, signs | NUMBER),)
    if form[0].isdigit():
        number = form.rstrip("abcdefghijklmnopqrstuvwxyz") or form
        year = len(number) == 4 and number[:2] in ("19", "20")
        return (Word(number, form, signs | NUMBER | (TIME if year else 0)),)
    if form in english.FEW:
        signs |= NUMBER
    term = english.IRREGULAR.get(form, form)
    if term in english.STOPWORDS:
        return ()
    return (Word(_stem(term), form, signs),)


def _read_unparted(token: str) -> list[Word]:
    """Pairs of characters where words are not parted, and characters that are words alone; the rest as usual."""
    found: list[Word] = []
    position = 0
    for run in _UNPARTED.finditer(token):
        found += _read(token[position : run.start()]) if run.start() > position else ()
        run_text = run.group()
        pairs = [run_text[at : at + 2] for at in range(len(run_text) - 1)]
        alone = _MEANINGFUL.findall(run_text) if pairs else [run_text]
        found += [Word(part, part) for part in (*alone, *pairs)]
        position = run.end()
    if position < len(token):
        found += _read(token[position:])
    return found


def _plain(token: str) -> str:
    if token.isascii():
        return token.replace("'", "")
    plain = _MARKS.sub("", unicodedata.normalize("NFKD", token.replace("'", "").replace("\u2019", "")))
    return unicodedata.normalize("NFC", plain)


def _shorten(drawn: re.Match[str]) -> str:
    return drawn.group(1) if drawn.group(1) in "iuyhaw" else drawn.group(1) * 2


def _stem(form: str) -> str:
    if not form.isascii():
        return form
    with _STEMMING:  # a stemmer keeps state between its steps
        return str(_STEMMER.stemWord(form))
