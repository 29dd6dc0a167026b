"""Split texts into words: the terms by which two texts are compared, with English stemming and stopwords.

Words of other languages go through the same steps. Each step depends on the word alone, so equal words always have
equal terms. Scripts without spaces between words are split into pairs of characters.

The last part detects what a question asks for, and which texts look like an answer. It supports only English so far. To
add a language, add a `QuestionLanguage` to `QUESTION_LANGUAGES`. A question in another language has no intent and is
ranked by words, vectors and neighbours alone.
"""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import Stemmer

from tellback.types.ids import register_cache


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _parse_form_table(pairs: str) -> dict[str, str]:
    """Parse `go: went gone, be: was` into {"went": "go", "gone": "go", "was": "be"}."""
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
"""Irregular forms, synonyms and informal spellings, mapped to a base form."""

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
"""Words for a quantity that are not numbers."""

TIME_WORDS = _word_set(
    """
    yesterday today tonight tomorrow ago last next week weeks weekend weekends month months year years day days
    recently lately soon morning evening night january february march april may june july august september october
    november december jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday
    saturday sunday mon tue wed thu fri sat sun spring summer autumn fall winter christmas halloween thanksgiving
    since gestern heute morgen woche monat jahr ayer hoy mañana semana mes año hier demain semaine mois année
    """
)
"""Words that name a time, including a few of other languages."""

PLACE_WORDS = _word_set(
    """
    home park beach city country town village studio gym cafe restaurant lake mountain mountains street museum
    school church office station airport hotel bar shop store library hospital
    """
)
"""Words that name a place."""


HAS_TIME, HAS_NUMBER, HAS_PLACE = 1, 2, 16
"""Features of a word, as bits."""

IS_QUESTION, HAS_NAME, FOLLOWS_QUESTION, OPENS_SESSION, ADDRESSES_SOMEONE = 4, 8, 32, 64, 128
"""Features of a text besides those of its words, as bits: it is a question, names something, follows a question, opens
a session, addresses somebody."""

_SPEAKER_NAME = re.compile(r"\s*([^\W\d_][\w.'\u2019-]*(?: [^\W_][\w.'\u2019-]*){0,3})")
_MAX_SPEAKER_LENGTH = 80
_ROLES = frozenset(("user", "assistant", "agent", "speaker", "person", "participant"))
_NAME_PARTICLES = frozenset(
    ("van", "von", "der", "den", "de", "da", "di", "do", "dos", "del", "della", "la", "le", "bin", "al")
)
_NOT_NAMES = frozenset(
    """
    note notes todo reminder ps nb fyi edit update warning important tip question answer summary example result re fw
    fwd subject date time from to cc http https ftp mailto file title topic address phone email today tomorrow yesterday
    goal goals plan idea ideas list step steps remember fact facts preference preferences hint error info wifi password
    """.split()  # noqa: SIM905
)

_MAX_TOKEN_LENGTH = 64
_MAX_CACHED_TOKENS = 200_000
# Combining marks of Indic scripts are part of words, but `\w` does not match them.
_TOKEN = re.compile(r"(?:[^\W_]|[\u0300-\u036f\u0900-\u0963\u0966-\u0dff])+(?:['\u2019](?:[^\W_])+)*")
_ASCII_TABLE = "".join(char if char.isalnum() or char == "'" else " " for char in map(chr, range(128)))
_UNSPACED_SCRIPT = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_IDEOGRAPH = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_COMBINING_MARKS = re.compile(r"[\u0300-\u036f]+")
_REPEATED_LETTERS = re.compile(r"([a-z])\1{2,}")


class Word(NamedTuple):
    """A word of a text: the term that is compared, the form for word vectors, and its features."""

    term: str
    form: str
    features: int = 0


class _TokenCache(dict[str, tuple[Word, ...]]):
    """The words of each token that this process has parsed."""

    def __missing__(self, token: str) -> tuple[Word, ...]:
        parsed = _parse_token(token[:_MAX_TOKEN_LENGTH])
        if len(token) <= _MAX_TOKEN_LENGTH:
            # Clear a full cache instead of evicting entries: the next texts add the common words again.
            if len(self) >= _MAX_CACHED_TOKENS:
                self.clear()
            self[token] = parsed
        return parsed


_TOKEN_CACHE = _TokenCache()
register_cache(_TOKEN_CACHE.clear)
_STEMMER = Stemmer.Stemmer("english")
_STEMMER_LOCK = threading.Lock()


def extract_words(text: str) -> list[Word]:
    """Extract the words of a text without stopwords, in order.

    >>> [word.term for word in extract_words("She didn't go hiking: two kids were ill")]
    ['go', 'hike', '2', 'child', 'ill']
    """
    return list(chain.from_iterable(map(_TOKEN_CACHE.__getitem__, tokenize(text))))


def words_from_token(token: str) -> tuple[Word, ...]:
    """Return the words of one token of `tokenize`."""
    return _TOKEN_CACHE[token]


def extract_all_words(text: str) -> list[Word]:
    """Extract all words of a text, including stopwords: a fallback for texts of stopwords only.

    >>> [word.term for word in extract_all_words("To be")]
    ['to', 'be']
    """
    return [Word(token[:_MAX_TOKEN_LENGTH], token[:_MAX_TOKEN_LENGTH]) for token in tokenize(text)]


def normalize_name(name: str) -> tuple[str, ...]:
    """Normalize a name into words without case, accents and punctuation.

    >>> normalize_name("José O'Neil")
    ('jose', 'oneil')
    """
    return tuple(_fold_token(token) for token in tokenize(name))


def tokenize(text: str) -> list[str]:
    """Split a text into tokens for `words_from_token`."""
    # Most texts are ASCII, and `str.split` is much faster than a regular expression.
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
    """Split text without spaces into pairs of characters and single-character words; handle the rest as usual."""
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
    with _STEMMER_LOCK:  # a stemmer is not thread-safe
        return str(_STEMMER.stemWord(form))


def split_speaker(text: str) -> tuple[str | None, str]:
    """Split a text into its leading speaker, or None, and the rest.

    >>> split_speaker("Ana Ruiz: I am home")
    ('Ana Ruiz', 'I am home')
    >>> split_speaker("Note: buy milk")
    (None, 'Note: buy milk')
    """
    colon = text.find(":", 0, _MAX_SPEAKER_LENGTH)
    if colon < 1 or not text[colon + 1 : colon + 2].isspace():
        return None, text
    # A space has few speakers and many turns, so the name is usually in the cache.
    name = _parse_speaker(text[:colon])
    body = text[colon + 1 :].lstrip()
    return (name, body) if name is not None and body else (None, text)


@functools.lru_cache(maxsize=4_096)
def _parse_speaker(prefix: str) -> str | None:
    """Return the name before a colon, or None if it is not a name."""
    match = _SPEAKER_NAME.fullmatch(prefix)
    if match is None:
        return None
    name = match.group(1)
    first, *others = name.split()
    is_role = first.casefold() in _ROLES
    if (first[0].islower() and not is_role) or first.casefold() in _NOT_NAMES:
        return None
    # "Maria da Silva" and "Speaker 2", but not "My plan" or "Chapter 2".
    return name if all(other[0].isdigit() if is_role else _may_be_name(other) for other in others) else None


register_cache(_parse_speaker.cache_clear)


def _may_be_name(word: str) -> bool:
    return not word[0].isdigit() and (not word[0].islower() or word in _NAME_PARTICLES)


_CAPITALIZED = r" [\"'\u201c]?[A-Z\u00c0-\u00de][a-z\u00df-\u00ff]"
_NAME_IN_SENTENCE = re.compile(rf"(?<=[^.!?\u2026*)\-\u2014: ]){_CAPITALIZED}")
"""A capitalized word inside a sentence."""


@dataclass(frozen=True, slots=True)
class QuestionIntent:
    """The kind of answer that a question asks for. `both` means that it asks about all people in it."""

    when: bool = False
    where: bool = False
    who: bool = False
    count: bool = False
    both: bool = False


@dataclass(frozen=True, slots=True)
class QuestionLanguage:
    """The question patterns of one language.

    `detect` recognizes the language. `when`, `where`, `count` and `who` recognize what a question asks for, and `both`
    that it is about all of the people it names. `place_prepositions`, optionally followed by one of the `articles`,
    stand before the name of a place. `address_words` occur in texts that address somebody.
    """

    detect: re.Pattern[str]
    when: re.Pattern[str]
    where: re.Pattern[str]
    count: re.Pattern[str]
    who: re.Pattern[str]
    both: re.Pattern[str]
    place_prepositions: frozenset[str]
    articles: frozenset[str]
    address_words: tuple[str, ...]


ENGLISH_QUESTIONS = QuestionLanguage(
    detect=re.compile(
        r"\b(?:what|when|where|who|whom|whose|which|why|how|did|does|do|is|are|was|were|has|have|had|can|could|would|the|of)\b",
        re.I,
    ),
    when=re.compile(r"\b(?:when|what (?:date|day|month|year|time)|how long ago|which (?:day|month|year|date))\b", re.I),
    where=re.compile(
        r"\b(?:where|(?:what|which) (?:\w+ ){0,2}"
        r"(?:cit(?:y|ies)|countr(?:y|ies)|places?|towns?|states?|areas?|locations?))\b",
        re.I,
    ),
    count=re.compile(r"\bhow (?:many|much|long|often|old|far)\b", re.I),
    who=re.compile(
        r"\b(?:who|whom|whose|which|names?|named|called|titles?|(?:what|which) (?:book|movie|song|band|game)s?)\b", re.I
    ),
    both=re.compile(r"\b(?:and|both|together|common|share[ds]?|each other)\b|&", re.I),
    place_prepositions=frozenset(("in", "at", "to", "from", "near", "around", "visit", "visited", "visiting", "of")),
    articles=frozenset(("the", "a", "my", "our")),
    address_words=(" you", "You"),
)
QUESTION_LANGUAGES = {"en": ENGLISH_QUESTIONS}
_ADDRESS_WORDS = tuple(address for language in QUESTION_LANGUAGES.values() for address in language.address_words)


def _alternatives(words: Iterable[frozenset[str]]) -> str:
    return "|".join(sorted(frozenset().union(*words)))


_PLACE_NAME = re.compile(
    rf"(?<![^ ])(?:{_alternatives(language.place_prepositions for language in QUESTION_LANGUAGES.values())})"
    rf"(?: (?:{_alternatives(language.articles for language in QUESTION_LANGUAGES.values())}))?{_CAPITALIZED}"
)


def detect_question_language(question: str) -> QuestionLanguage | None:
    """Return the first language whose `detect` pattern matches a question, or None."""
    return next((language for language in QUESTION_LANGUAGES.values() if language.detect.search(question)), None)


def parse_question(question: str) -> QuestionIntent:
    """Return what a question asks for.

    >>> parse_question("Where did she buy it?").where
    True
    """
    language = detect_question_language(question)
    if language is None:
        return QuestionIntent()
    patterns = (language.when, language.where, language.who, language.count, language.both)
    return QuestionIntent(*(pattern.search(question) is not None for pattern in patterns))


def detect_features(text: str) -> int:
    """Return the features of a text: it is a question, names something or a place, addresses somebody."""
    features = IS_QUESTION if "?" in text[-40:] else 0
    for address in _ADDRESS_WORDS:
        if address in text:
            features |= ADDRESSES_SOMEONE
    if _NAME_IN_SENTENCE.search(text) is not None:
        features |= HAS_NAME
        if _PLACE_NAME.search(text) is not None:
            features |= HAS_PLACE
    return features
