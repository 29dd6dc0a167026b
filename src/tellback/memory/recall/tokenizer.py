"""Split texts into words: the terms by which two texts are compared, with English stemming and stopwords.

Words of other languages pass through the same steps unchanged, since what is done to a word depends on the word alone.
Scripts that do not separate words with spaces are read in pairs of characters."""

from __future__ import annotations

import re
import threading
import unicodedata
from itertools import chain
from typing import NamedTuple

import Stemmer

from tellback.types.ids import register_cache


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _parse_form_table(pairs: str) -> dict[str, str]:
    """`go: went gone, be: was` as {"went": "go", "gone": "go", "was": "be"}."""
    table: dict[str, str] = {}
    for pair in pairs.split(","):
        base, _, forms = pair.partition(":")
        table.update(dict.fromkeys(forms.split(), base.strip()))
    return table


STOPWORDS = _word_set(
    """
    a about above after again against all also am an and any are as at be because been before being below between
    both but by can cannot could d did do does doing don done down during each either else ever few for from further
    get gets getting got had has have having he hence her here hers herself him himself his how however i if in into
    is it its itself just let ll m me might more most much must my myself nor not of off oh ok okay on once only or
    other our ours ourselves out over own re s same shall she should since so some such t than that the their theirs
    them themselves then there these they this those though through to too u under until up upon us ve very was we
    were what whatever when where whether which while who whom whose why will with within without would yeah yes yet
    you your yours yourself yourselves ur im ive dont didnt doesnt isnt wasnt cant couldnt wouldnt wont shouldnt
    havent hasnt thats whats theres heres lets gonna wanna gotta hey hi hello haha hahaha lol omg wow um uh hmm
    """
)

CANONICAL_FORMS = _parse_form_table(
    """
    become: became, begin: began begun, bite: bit bitten, blow: blew blown, break: broke broken, bring: brought,
    build: built, buy: bought, catch: caught, choose: chose chosen, come: came, deal: dealt, draw: drew drawn,
    dream: dreamt, drink: drank drunk, drive: drove driven, eat: ate eaten, fall: fell fallen, feed: fed, feel:
    felt, fight: fought, find: found, fly: flew flown, forget: forgot forgotten, forgive: forgave forgiven, freeze:
    froze frozen, give: gave given, go: went gone, grow: grew grown, hang: hung, hear: heard, hide: hid hidden,
    hold: held, keep: kept, know: knew known, lead: led, learn: learnt, leave: left, lend: lent, lose: lost, make:
    made, mean: meant, meet: met, pay: paid, ride: rode ridden, ring: rang rung, rise: rose risen, run: ran, say:
    said, see: saw seen, seek: sought, sell: sold, send: sent, shake: shook shaken, shine: shone, shoot: shot, show:
    shown, sing: sang sung, sink: sank sunk, sit: sat, sleep: slept, speak: spoke spoken, spend: spent, stand:
    stood, steal: stole stolen, stick: stuck, strike: struck, swear: swore sworn, sweep: swept, swim: swam swum,
    take: took taken, teach: taught, tear: tore torn, tell: told, think: thought, throw: threw thrown, understand:
    understood, wake: woke woken, wear: wore worn, win: won, write: wrote written, child: children kid kids, person:
    people persons, man: men, woman: women, foot: feet, tooth: teeth, mouse: mice, goose: geese, wife: wives, knife:
    knives, shelf: shelves, half: halves, wolf: wolves, mom: mum mommy mummy mother mothers moms mama, dad: daddy
    father fathers dads papa, grandma: grandmother granny nana, grandpa: grandfather granddad, photo: photograph
    picture pic pics photos photographs pictures, movie: film movies films, tv: television, bike: bicycle bikes
    bicycles, vacation: holiday, birthday: bday, tomorrow: tmrw tmr tomoz, girlfriend: gf, boyfriend: bf, favorite:
    fav favourite faves fave, color: colour colours, apartment: apt, please: pls plz, thanks: thx thank, math:
    maths, store: shop shops, restaurant: resto, tonight: tonite, university: uni, college: colleges, information:
    info, morning: mornin, because: cuz coz bc, before: b4, great: gr8, though: tho, through: thru, person: ppl,
    probably: prob probs prolly, about: abt
    """
)
"""Forms that are no spelling of their base, other words for the same thing, and what people type in a hurry."""

NUMBER_WORDS = {
    number: str(value)
    for value, number in enumerate(
        """
        zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
        eighteen nineteen twenty
        """.split()  # noqa: SIM905
    )
} | {"thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "hundred": "100", "thousand": "1000"}
QUANTITY_WORDS = _word_set("once twice couple dozen several few many pair half third second")
"""Words that tell how many, though they are no numbers."""

TIME_WORDS = _word_set(
    """
    yesterday today tonight tomorrow ago last next week weeks weekend weekends month months year years day days
    recently lately soon morning evening night january february march april may june july august september october
    november december jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday
    saturday sunday mon tue wed thu fri sat sun spring summer autumn fall winter christmas halloween thanksgiving
    since gestern heute morgen woche monat jahr ayer hoy mañana semana mes año hier demain semaine mois année
    """
)
"""Words that tell when; a few of other languages too."""

PLACE_WORDS = _word_set(
    """
    home park beach city country town village studio gym cafe restaurant lake mountain mountains street museum
    school church office station airport hotel bar shop store library hospital
    """
)
"""Words that tell where."""


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
    """The words that one token of `tokenize` stands for."""
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
    """A text in pieces, as `words_from_token` takes them."""
    # Most texts are plain, and those are parted much faster without a pattern.
    return text.lower().translate(_ASCII_TABLE).split() if text.isascii() else _TOKEN.findall(text.casefold())


def _parse_token(token: str) -> tuple[Word, ...]:
    token = token.strip("'")
    if _UNSPACED_SCRIPT.search(token):
        return tuple(_parse_unspaced(token))
    features = (HAS_TIME if token in TIME_WORDS else 0) | (HAS_PLACE if token in PLACE_WORDS else 0)
    form = _fold_token(token)
    if form in STOPWORDS:
        return ()
    base, _, ending = token.partition("'") if "'" in token else token.partition("\u2019")
    if ending:
        if ending not in ("s", "t", "m", "re", "ve", "ll", "d"):
            base = form
        elif ending == "t":
            base = base.removesuffix("n") if base != "can" else base
        form = _fold_token(base)
    form = _REPEATED_LETTERS.sub(_collapse_repeat, form)
    if form in STOPWORDS or not form:
        return ()
    if form in NUMBER_WORDS:
        return (Word(NUMBER_WORDS[form], form, features | HAS_NUMBER),)
    if form[0].isdigit():
        number = form.rstrip("abcdefghijklmnopqrstuvwxyz") or form
        is_year = len(number) == 4 and number[:2] in ("19", "20")
        return (Word(number, form, features | HAS_NUMBER | (HAS_TIME if is_year else 0)),)
    if form in QUANTITY_WORDS:
        features |= HAS_NUMBER
    term = CANONICAL_FORMS.get(form, form)
    if term in STOPWORDS:
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
