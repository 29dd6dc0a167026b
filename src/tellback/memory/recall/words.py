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
from tellback.types.caches import register_cache

HAS_TIME = 1
HAS_NUMBER = 2
HAS_PLACE = 16

_MAX_TOKEN_LENGTH = 64
_MAX_CACHED_TOKENS = 200_000
# Marks that make up words in the scripts of India are not letters to `\w`.
_TOKEN = re.compile(r"(?:[^\W_]|[\u0300-\u036f\u0900-\u0963\u0966-\u0dff])+(?:['\u2019](?:[^\W_])+)*")
_ASCII_TABLE = "".join(char if char.isalnum() or char == "'" else " " for char in map(chr, range(128)))
_UNSPACED_SCRIPT = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_IDEOGRAPH = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_COMBINING_MARKS = re.compile(r"[\u0300-\u036f]+")
_REPEATED_LETTERS = re.compile(r"([a-z])\1{2,}")


class Word(NamedTuple):
    """A word of a text: the term it is compared by, its form for word vectors, and what it is a sign of."""

    term: str
    form: str
    features: int = 0


class _TokenCache(dict[str, tuple[Word, ...]]):
    """The tokens met so far in this process, and what each was read as."""

    def __missing__(self, token: str) -> tuple[Word, ...]:
        parsed = _parse_token(token[:_MAX_TOKEN_LENGTH])
        if len(token) <= _MAX_TOKEN_LENGTH:
            # Emptied when full rather than pruned: the words in use are back after a few texts.
            if len(self) >= _MAX_CACHED_TOKENS:
                self.clear()
            self[token] = parsed
        return parsed


_TOKEN_CACHE = _TokenCache()
register_cache(_TOKEN_CACHE.clear)
_STEMMER = Stemmer.Stemmer("english")
_STEMMER_LOCK = threading.Lock()


def extract_words(text: str) -> list[Word]:
    """The words of a text that say something, in order.

    >>> [word.term for word in extract_words("She didn't go hiking: two kids were ill")]
    ['go', 'hike', '2', 'child', 'ill']
    """
    return list(chain.from_iterable(map(_TOKEN_CACHE.__getitem__, tokenize(text))))


def words_from_token(token: str) -> tuple[Word, ...]:
    """The words that one of a text's `tokens` stands for."""
    return _TOKEN_CACHE[token]


def extract_all_words(text: str) -> list[Word]:
    """The words of a text as they stand, stopwords included: what is left to compare when nothing else is.

    >>> [word.term for word in extract_all_words("To be")]
    ['to', 'be']
    """
    return [Word(token[:_MAX_TOKEN_LENGTH], token[:_MAX_TOKEN_LENGTH]) for token in tokenize(text)]


def normalize_name(name: str) -> tuple[str, ...]:
    """A name as plain words: without case, accents and punctuation.

    >>> normalize_name("José O'Neil")
    ('jose', 'oneil')
    """
    return tuple(_fold_token(token) for token in tokenize(name))


def tokenize(text: str) -> list[str]:
    """A text in pieces, as `words_of` takes them."""
    # Most texts are plain, and those are parted much faster without a pattern.
    return text.lower().translate(_ASCII_TABLE).split() if text.isascii() else _TOKEN.findall(text.casefold())


def _parse_token(token: str) -> tuple[Word, ...]:
    token = token.strip("'")
    if _UNSPACED_SCRIPT.search(token):
        return tuple(_parse_unspaced(token))
    features = (HAS_TIME if token in english.TIME_WORDS else 0) | (HAS_PLACE if token in english.PLACE_WORDS else 0)
    form = _fold_token(token)
    if form in english.STOPWORDS:
        return ()
    base, _, ending = token.partition("'") if "'" in token else token.partition("\u2019")
    if ending:
        if ending not in ("s", "t", "m", "re", "ve", "ll", "d"):
            base = form
        elif ending == "t":
            base = base.removesuffix("n") if base != "can" else base
        form = _fold_token(base)
    form = _REPEATED_LETTERS.sub(_collapse_repeat, form)
    if form in english.STOPWORDS or not form:
        return ()
    if form in english.NUMBER_WORDS:
        return (Word(english.NUMBER_WORDS[form], form, features | HAS_NUMBER),)
    if form[0].isdigit():
        number = form.rstrip("abcdefghijklmnopqrstuvwxyz") or form
        is_year = len(number) == 4 and number[:2] in ("19", "20")
        return (Word(number, form, features | HAS_NUMBER | (HAS_TIME if is_year else 0)),)
    if form in english.QUANTITY_WORDS:
        features |= HAS_NUMBER
    term = english.CANONICAL_FORMS.get(form, form)
    if term in english.STOPWORDS:
        return ()
    return (Word(_stem(term), form, features),)


def _parse_unspaced(token: str) -> list[Word]:
    """Pairs of characters where words are not parted, and characters that are words alone; the rest as usual."""
    result: list[Word] = []
    position = 0
    for run in _UNSPACED_SCRIPT.finditer(token):
        result += _parse_token(token[position : run.start()]) if run.start() > position else ()
        run_text = run.group()
        pairs = [run_text[at : at + 2] for at in range(len(run_text) - 1)]
        single = _IDEOGRAPH.findall(run_text) if pairs else [run_text]
        result += [Word(part, part) for part in (*single, *pairs)]
        position = run.end()
    if position < len(token):
        result += _parse_token(token[position:])
    return result


def _fold_token(token: str) -> str:
    if token.isascii():
        return token.replace("'", "")
    folded = _COMBINING_MARKS.sub("", unicodedata.normalize("NFKD", token.replace("'", "").replace("\u2019", "")))
    return unicodedata.normalize("NFC", folded)


def _collapse_repeat(match: re.Match[str]) -> str:
    return match.group(1) if match.group(1) in "iuyhaw" else match.group(1) * 2


def _stem(form: str) -> str:
    if not form.isascii():
        return form
    with _STEMMER_LOCK:  # a stemmer keeps state between its steps
        return str(_STEMMER.stemWord(form))
