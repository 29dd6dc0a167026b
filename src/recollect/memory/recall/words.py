"""Text to words: the terms two texts are compared by, with what little spelling and grammar must be known for it.

English is stemmed; words of other languages pass through the same steps unharmed, since what is done to a word depends on
nothing but the word. Scripts that do not part their words are read in pairs of characters.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from itertools import chain
from typing import NamedTuple

import Stemmer

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
_MARKS = re.compile(r"[\u0300-\u036f]+")
_DRAWN_OUT = re.compile(r"([a-z])\1{2,}")


class Word(NamedTuple):
    """A word of a text: the term it is compared by, its form for word vectors, and what it is a sign of."""

    term: str
    form: str
    signs: int = 0


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _paired(pairs: str) -> dict[str, str]:
    """`go: went gone, be: was` as {"went": "go", "gone": "go", "was": "be"}."""
    table: dict[str, str] = {}
    for pair in pairs.split(","):
        base, _, forms = pair.partition(":")
        table.update(dict.fromkeys(forms.split(), base.strip()))
    return table


STOPWORDS = _listed(
    """
    a about above after again against all also am an and any are as at be because been before being below between both but
    by can cannot could d did do does doing don done down during each either else ever few for from further get gets
    getting got had has have having he hence her here hers herself him himself his how however i if in into is it its
    itself just let ll m me might more most much must my myself nor not of off oh ok okay on once only or other our
    ours ourselves out over own re s same shall she should since so some such t than that the their theirs them themselves
    then there these they this those though through to too u under until up upon us ve very was we were what whatever when
    where whether which while who whom whose why will with within without would yeah yes yet you your yours yourself
    yourselves ur im ive dont didnt doesnt isnt wasnt cant couldnt wouldnt wont shouldnt havent hasnt thats whats
    theres heres lets gonna wanna gotta hey hi hello haha hahaha lol omg wow um uh hmm
    """
)

_IRREGULAR = _paired(
    """
    become: became, begin: began begun, bite: bit bitten, blow: blew blown, break: broke broken, bring: brought,
    build: built, buy: bought, catch: caught, choose: chose chosen, come: came, deal: dealt, draw: drew drawn,
    dream: dreamt, drink: drank drunk, drive: drove driven, eat: ate eaten, fall: fell fallen, feed: fed,
    feel: felt, fight: fought, find: found, fly: flew flown, forget: forgot forgotten, forgive: forgave forgiven,
    freeze: froze frozen, give: gave given, go: went gone, grow: grew grown, hang: hung, hear: heard, hide: hid hidden,
    hold: held, keep: kept, know: knew known, lead: led, learn: learnt, leave: left, lend: lent, lose: lost, make: made,
    mean: meant, meet: met, pay: paid, ride: rode ridden, ring: rang rung, rise: rose risen, run: ran, say: said,
    see: saw seen, seek: sought, sell: sold, send: sent, shake: shook shaken, shine: shone, shoot: shot,
    show: shown, sing: sang sung, sink: sank sunk, sit: sat, sleep: slept, speak: spoke spoken, spend: spent,
    stand: stood, steal: stole stolen, stick: stuck, strike: struck, swear: swore sworn, sweep: swept, swim: swam swum,
    take: took taken, teach: taught, tear: tore torn, tell: told, think: thought, throw: threw thrown,
    understand: understood, wake: woke woken, wear: wore worn, win: won, write: wrote written,
    child: children kid kids, person: people persons, man: men, woman: women, foot: feet, tooth: teeth, mouse: mice,
    goose: geese, wife: wives, knife: knives, shelf: shelves, half: halves, wolf: wolves,
    mom: mum mommy mummy mother mothers moms mama, dad: daddy father fathers dads papa, grandma: grandmother granny nana,
    grandpa: grandfather granddad, photo: photograph picture pic pics photos photographs pictures,
    movie: film movies films, tv: television, bike: bicycle bikes bicycles, vacation: holiday, birthday: bday,
    tomorrow: tmrw tmr tomoz, girlfriend: gf, boyfriend: bf, favorite: fav favourite faves fave, color: colour colours,
    apartment: apt, please: pls plz, thanks: thx thank, math: maths, store: shop shops, restaurant: resto,
    tonight: tonite, university: uni, college: colleges, information: info, morning: mornin, because: cuz coz bc,
    before: b4, great: gr8, though: tho, through: thru, person: ppl, probably: prob probs prolly, about: abt
    """
)

_NUMBERS = {
    word: str(value)
    for value, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
        ]
    )
} | {"thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "hundred": "100", "thousand": "1000"}
_FEW = _listed("once twice couple dozen several few many pair half third second")

_TIMES = _listed(
    """
    yesterday today tonight tomorrow ago last next week weeks weekend weekends month months year years day days recently
    lately soon morning evening night january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday
    mon tue wed thu fri sat sun spring summer autumn fall winter christmas halloween thanksgiving since
    gestern heute morgen woche monat jahr ayer hoy mañana semana mes año hier demain semaine mois année
    """
)

_PLACES = _listed(
    """
    home park beach city country town village studio gym cafe restaurant lake mountain mountains street museum school
    church office station airport hotel bar shop store library hospital
    """
)


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
_STEMMER = Stemmer.Stemmer("english")
_STEMMING = threading.Lock()


def words(text: str) -> list[Word]:
    """The words of a text that say something, in order.

    >>> [word.term for word in words("She didn't go hiking: two kids were ill")]
    ['go', 'hike', '2', 'child', 'ill']
    """
    return list(chain.from_iterable(map(_KNOWN.__getitem__, _tokens(text))))


def all_words(text: str) -> list[Word]:
    """The words of a text as they stand, stopwords included: what is left to compare when nothing else is.

    >>> [word.term for word in all_words("To be")]
    ['to', 'be']
    """
    return [Word(token[:_LONGEST], token[:_LONGEST]) for token in _tokens(text)]


def name_words(name: str) -> tuple[str, ...]:
    """A name as plain words: without case, accents and punctuation.

    >>> name_words("José O'Neil")
    ('jose', 'oneil')
    """
    return tuple(_plain(token) for token in _tokens(name))


def _tokens(text: str) -> list[str]:
    # Most texts are plain, and those are parted much faster without a pattern.
    return text.lower().translate(_PLAIN).split() if text.isascii() else _TOKEN.findall(text.casefold())


def forget() -> None:
    """Empty the process-wide table of words met so far."""
    _KNOWN.clear()


def _read(token: str) -> tuple[Word, ...]:
    token = token.strip("'")
    if _UNPARTED.search(token):
        return tuple(_read_unparted(token))
    signs = (TIME if token in _TIMES else 0) | (PLACE if token in _PLACES else 0)
    form = _plain(token)
    base, _, ending = token.partition("'") if "'" in token else token.partition("\u2019")
    if ending:
        if ending not in ("s", "t", "m", "re", "ve", "ll", "d"):
            base = form
        elif ending == "t":
            base = base.removesuffix("n") if base != "can" else base
        form = _plain(base)
    form = _DRAWN_OUT.sub(_shorten, form)
    if form in STOPWORDS or not form:
        return ()
    if form in _NUMBERS:
        return (Word(_NUMBERS[form], form, signs | NUMBER),)
    if form[0].isdigit():
        number = form.rstrip("abcdefghijklmnopqrstuvwxyz") or form
        year = len(number) == 4 and number[:2] in ("19", "20")
        return (Word(number, form, signs | NUMBER | (TIME if year else 0)),)
    if form in _FEW:
        signs |= NUMBER
    term = _IRREGULAR.get(form, form)
    if term in STOPWORDS:
        return ()
    return (Word(_stem(term), form, signs),)


def _read_unparted(token: str) -> list[Word]:
    """Pairs of characters where words are not parted; what stands between them as words of its own."""
    found: list[Word] = []
    position = 0
    for run in _UNPARTED.finditer(token):
        found += _read(token[position : run.start()]) if run.start() > position else ()
        run_text = run.group()
        pairs = [run_text[at : at + 2] for at in range(len(run_text) - 1)] or [run_text]
        found += [Word(pair, pair) for pair in pairs]
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
        return _STEMMER.stemWord(form)
