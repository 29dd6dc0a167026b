"""Word tables for the date grammar: the languages, and the words each of them uses for times.

To add a language, add a table here: the grammar uses only tags. A word has a tag (one character) and a value.

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
| `H` | a holiday | its name in `calendar.HOLIDAYS` |
| `K` `Y` | last week, this week …; last year … | how many from this one |
| `l` `P` `N` `C` `t` | last, past, next, coming, this | |
| `r` | last or next after its noun | `l` or `N` |
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
| `U` | will, going to: the sentence is about the future | |
| `<` | was: a `U` that follows is not about the future | |
| `#` | room, how many: the next number is not a year, and not "years ago" | |
| `z` | time, times: a following "in two years" is not the future | |
| `R` | was, we: words that may follow a year | |
| `*` | every, each: the following is not a single day | |
| `c` | words, people: the number before is a count | |

The lexer adds `d` and `c` (a number that can be a day of a month, any other), `y` (a year), `Z` (a decade), `A` (a date
in digits), punctuation and `x` for all other words. The rules tag a resolved time `A`, and a bare weekday `J`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VocabularyEntry = tuple[str, Any, bool]
"""The tag, the value, and whether the entry is final. Otherwise a phrase may start here, or the neighbours decide."""
Phrase = tuple[tuple[str, ...], str, Any]

# A text needs one of these tags, or a number that can be a year, to contain a time expression.
_TRIGGER_TAGS = frozenset("DpukMmWwSVHKYQL7")
_CONTEXT_TAGS = frozenset("MwUcNC")


@dataclass(frozen=True, slots=True)
class Language:
    """The words of a language. The top of this file explains the tags."""

    words: Mapping[str, VocabularyEntry]
    phrases: Mapping[str, tuple[Phrase, ...]]
    """Phrases by first word, the longest first."""
    triggers: frozenset[str]
    abbreviations: frozenset[str]
    """A full stop after these does not end a sentence."""
    ambiguous_lowercase: frozenset[str]
    """Months that are also other words in lowercase."""
    ambiguous_capitalized: frozenset[str]
    """Months that are also names of people, or verbs at the start of a sentence."""
    day_first: bool
    """Whether 05/08/2023 means 5 August rather than May 8."""
    dot_is_ordinal: bool
    past_verbs: re.Pattern[str]
    """Verbs in the past tense. After one, "in two weeks" is a duration."""


def build_language(
    words: Mapping[str, Mapping[str, Any] | str],
    *,
    abbreviations: str = "",
    ambiguous_lowercase: str = "",
    ambiguous_capitalized: str = "",
    day_first: bool = True,
    dot_is_ordinal: bool = False,
    past_verbs: str = r"(?!)",
) -> Language:
    """Build a language from its words by tag: a mapping with values, or one string for tags without values.

    Words in such a string are separated by spaces; `_` joins the words of a phrase.
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
    # The last word of a phrase is rarer than its first word.
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
    )


def number_names(names: str, start: int = 1) -> dict[str, int]:
    """Map names to consecutive numbers; `/` joins the spellings of one name.

    >>> number_names("january/jan february")
    {'january': 1, 'jan': 1, 'february': 2}
    """
    return {one: number for number, name in enumerate(names.split(), start) for one in name.split("/")}


def count_names(names: str, start: int = 1) -> dict[str, tuple[int, int]]:
    """Map names to consecutive counts, each as a minimum and a maximum."""
    return {name: (number, number) for name, number in number_names(names, start).items()}


def unit_names(singular: str, plural: str) -> dict[str, tuple[str, int, bool]]:
    """Map the names of the units from minute to decade, singular and plural; `-` means that there is no name."""
    units = ("minute", "hour", "day", "week", "month", "quarter", "year", "decade")
    return {
        name: (unit, 1, is_plural)
        for is_plural, column in ((False, singular), (True, plural))
        for unit, names in zip(units, column.split(), strict=True)
        for name in names.split("/")
        if name != "-"
    }


def holiday_names(names: str) -> dict[str, str]:
    """Map spellings of holidays to their names in `calendar.HOLIDAYS`. Without `=`, the first spelling is the name.

    >>> holiday_names("boxing_day christmas=navidad easter/easter_sunday")
    {'boxing_day': 'boxing_day', 'navidad': 'christmas', 'easter': 'easter', 'easter_sunday': 'easter'}
    """
    found: dict[str, str] = {}
    for entry in names.split():
        name, _, spellings = entry.rpartition("=")
        found |= dict.fromkeys(spellings.split("/"), name or spellings.partition("/")[0])
    return found


_ENGLISH_MONTHS = number_names(
    "january/jan february/feb march/mar april/apr may june/jun july/jul august/aug september/sept/sep october/oct "
    "november/nov december/dec"
)
_ENGLISH_WEEKDAYS = number_names("monday tuesday wednesday thursday friday saturday sunday", 0)
_ENGLISH_SHORT_WEEKDAYS = number_names("mon tue/tues wed thu/thur/thurs fri sat sun", 0)
_ENGLISH_ORDINALS = number_names(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth"
)
_ENGLISH_COUNTS = count_names(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)

ENGLISH = build_language(
    {
        "D": {
            "today": (0, None),
            "yesterday": (-1, None),
            "tomorrow": (1, None),
            "tonight": (0, "night"),
            "day_before_yesterday": (-2, None),
            "day_after_tomorrow": (2, None),
        },
        "p": {name: name for name in ("morning", "afternoon", "evening", "night")},
        "u": {
            **unit_names(
                "minute hour day week month quarter year decade",
                "minutes hours days weeks months quarters years decades",
            ),
            "fortnight": ("week", 2, False),
            "fortnights": ("week", 2, True),
            "half_a_year": ("month", 6, False),
        },
        "k": {"weekend": ("weekend", 1, False), "weekends": ("weekend", 1, True)},
        "n": {
            **_ENGLISH_COUNTS,
            **{word: (10 * tens, 10 * tens) for word, tens in number_names("thirty forty fifty sixty", 3).items()},
            "hundred": (100, 100),
            "couple_of couple": (2, 2),
            "few": (2, 5),
            "several": (3, 7),
        },
        "a": {"a": (1, 1), "an": (1, 1)},
        "o": {**_ENGLISH_ORDINALS, "thirtieth": 30},
        "M": _ENGLISH_MONTHS,
        "W": _ENGLISH_WEEKDAYS,
        "w": _ENGLISH_SHORT_WEEKDAYS,
        "S": {"summer": 1, "autumn": 2, "winter": 3},
        "V": {"spring": 0, "fall": 2},
        "H": holiday_names(
            "christmas/christmas_day/xmas/xmas_day christmas_eve/xmas_eve boxing_day new_year_eve/new_years_eve "
            "new_year/new_year_day/new_years_day/new_years halloween valentine_day/valentines_day/valentines "
            "thanksgiving/thanksgiving_day black_friday easter/easter_sunday easter_monday good_friday "
            "independence_day mother_day/mothers_day father_day/fathers_day labor_day/labour_day memorial_day "
            "st_patrick_day/saint_patrick_day/st_patricks_day"
        ),
        "K": {"last_week": -1, "this_week": 0, "next_week": 1},
        "Y": {"last_year": -1, "this_year": 0, "next_year": 1},
        "l": "last",
        "P": "past previous",
        "N": "next",
        "C": "coming upcoming",
        "t": "this current",
        "G": {"ago": False, "back": False, "earlier": True},
        "/": "and_a_half",
        "7": number_names("mondays tuesdays wednesdays thursdays fridays saturdays sundays", 0),
        "g": "later",
        "f": "from_now from_today hence",
        "b": "before preceding",
        "e": "after following",
        "s": "since",
        "T": "until till by",
        "F": "from",
        "2": "to through thru",
        "B": "between",
        "&": "and",
        "i": "in",
        "j": "during over throughout around circa",
        "q": "on at for",
        "O": "of",
        "h": "the",
        "E": {
            "early": (0, 3),
            "mid": (1, 3),
            "late": (2, 3),
            "beginning_of start_of": (0, 3),
            "middle_of": (1, 3),
            "end_of": (2, 3),
            "first_half_of": (0, 2),
            "second_half_of": (1, 2),
        },
        "Q": {"q1": 1, "q2": 2, "q3": 3, "q4": 4},
        "L": {
            "recently": 30,
            "lately": 30,
            "other_day other_night": 7,
            "while_ago": 180,
            "not_long_ago too_long_ago so_long_ago": 60,
            "other_week": 21,
        },
        "U": "will i'll we'll she'll he'll they'll it'll you'll won't shall going gonna plan plans planning hope hopes "
        "hoping intend intends intending soon looking_forward want_to wants_to would_like_to scheduled see_you "
        "can't_wait",
        "<": "was were been",
        "x": "going_on",
        "#": "how_many room number no page route flight version code pin model chapter read reading paid pay cost",
        "z": "time times",
        "R": "is are had has have did do does i we he she they you it my our his her their i'm when where "
        "who what which but or because so that there while as with",
        "*": "every each most",
        "c": "words people persons men women children kids dollars euros pounds cents bucks steps miles kilometers "
        "kilometres km meters metres feet pages points calories users pieces items votes followers copies lines bytes "
        "kg grams tons jobs members students employees guests friends others percent units books songs photos pictures "
        "pm am things cats dogs",
    },
    abbreviations="jan feb mar apr jun jul aug sept sep oct nov dec mon tue tues wed thu thur thurs fri sat sun st",
    ambiguous_lowercase="may march sun sat mon wed",
    ambiguous_capitalized="may march april june august",
    day_first=False,
    past_verbs=r"\b(?:\w\w+ed|was|were|did|got|had|lost|ran|read|wrote|made|built|went|took|came|grew|learnt|saw|became"
    r"|won|drove|sold|been)\b",
)


GERMAN = build_language(
    {
        "D": {
            "heute": (0, None),
            "gestern": (-1, None),
            "vorgestern": (-2, None),
            "morgen": (1, None),
            "übermorgen": (2, None),
            "heute_abend heute_nacht": (0, "night"),
            "heute_morgen heute_früh": (0, "morning"),
            "gestern_abend": (-1, "night"),
        },
        "p": {"vormittag": "morning", "nachmittag": "afternoon", "abend": "evening", "nacht": "night"},
        "u": unit_names(
            "minute stunde tag woche monat/monats quartal/quartals jahr/jahres jahrzehnt",
            "minuten stunden tage/tagen wochen monate/monaten - jahre/jahren jahrzehnte/jahrzehnten",
        ),
        "k": {"wochenende": ("weekend", 1, False), "wochenenden": ("weekend", 1, True)},
        "n": {
            **count_names("eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"),
            "paar": (2, 5),
            "einigen mehreren": (3, 7),
        },
        "a": {"ein eine einer einem einen": (1, 1)},
        "o": number_names(
            "ersten/erste/erstes zweiten/zweite/zweites dritten/dritte/drittes vierten/vierte/viertes fünften "
            "sechsten siebten achten neunten zehnten"
        ),
        "M": number_names("januar/jänner februar märz april mai juni juli august september oktober november dezember"),
        "W": number_names("montag dienstag mittwoch donnerstag freitag samstag/sonnabend sonntag", 0),
        "S": {"frühling": 0, "frühjahr": 0, "sommer": 1, "herbst": 2, "winter": 3},
        "H": holiday_names(
            "christmas=weihnachten christmas_eve=heiligabend new_year_eve=silvester new_year=neujahr halloween "
            "valentine_day=valentinstag easter=ostern/ostersonntag easter_monday=ostermontag good_friday=karfreitag"
        ),
        "K": {"letzte_woche vergangene_woche vorige_woche": -1, "diese_woche": 0, "nächste_woche kommende_woche": 1},
        "Y": {"letztes_jahr letzten_jahres vergangenes_jahr": -1, "dieses_jahr": 0, "nächstes_jahr": 1},
        "l": "letzte letzten letzter letztes letztem vorige vorigen voriges vergangene vergangenen vergangenes",
        "N": "nächste nächsten nächster nächstes nächstem",
        "C": "kommende kommenden kommendes",
        "t": "diese diesen dieser dieses diesem",
        "v": "vor",
        "e": "nach",
        "s": "seit",
        "T": "bis",
        "F": "von",
        "B": "zwischen",
        "&": "und",
        "i": "in im im_jahr im_jahre",
        "j": "während über ums",
        "q": "am um",
        "O": "des vom",
        "h": "der die das dem den",
        "E": {"anfang": (0, 3), "mitte": (1, 3), "ende": (2, 3)},
        "L": {"kürzlich neulich": 30, "letztens": 30},
        "U": "werde wirst wird werden werdet plane plant planen",
        "#": "nummer zimmer seite",
        "R": "war ist waren sind hatte haben hat ich wir er sie es",
        "*": "jeden jede jedes jeder",
        "c": "wörter leute euro meter kilometer km seiten mal menschen uhr",
        "x": "am_morgen guten_morgen",
    },
    ambiguous_capitalized="mai april august",
    dot_is_ordinal=True,
)


SPANISH = build_language(
    {
        "D": {
            "hoy": (0, None),
            "ayer": (-1, None),
            "anteayer antier antes_de_ayer": (-2, None),
            "mañana": (1, None),
            "pasado_mañana": (2, None),
            "anoche": (-1, "night"),
            "esta_noche": (0, "night"),
            "esta_mañana": (0, "morning"),
            "esta_tarde": (0, "afternoon"),
        },
        "p": {"tarde": "afternoon", "noche": "night"},
        "u": unit_names(
            "minuto hora día semana mes trimestre año década", "minutos horas días semanas meses - años décadas"
        ),
        "k": {"fin_de_semana": ("weekend", 1, False), "fines_de_semana": ("weekend", 1, True)},
        "n": {
            **count_names("uno dos tres cuatro cinco seis siete ocho nueve diez once doce"),
            "par_de": (2, 2),
            "unos unas": (2, 5),
            "varios varias": (3, 7),
        },
        "a": {"un": (1, 1), "una": (1, 1)},
        "o": number_names("primero/primer/primera segundo/segunda tercero/tercer/tercera cuarto/cuarta"),
        "M": number_names(
            "enero febrero marzo abril mayo junio julio agosto septiembre/setiembre octubre noviembre diciembre"
        ),
        "W": number_names("lunes martes miércoles jueves viernes sábado domingo", 0),
        "S": {"primavera": 0, "verano": 1, "otoño": 2, "invierno": 3},
        "H": holiday_names(
            "christmas=navidad christmas_eve=nochebuena new_year_eve=nochevieja new_year=año_nuevo halloween "
            "valentine_day=san_valentín"
        ),
        "K": {"semana_pasada": -1, "esta_semana": 0, "próxima_semana semana_que_viene": 1},
        "Y": {"año_pasado": -1, "este_año": 0, "próximo_año año_que_viene": 1},
        "l": "último última",
        "P": "últimos últimas",
        "N": "próximo próxima próximos próximas",
        "t": "este esta",
        "r": {"pasado pasada": "l", "que_viene": "N"},
        "G": {"atrás": False},
        "v": "hace",
        "b": "antes_de antes_del",
        "e": "después_de después_del",
        "s": "desde",
        "T": "hasta",
        "2": "a al",
        "B": "entre",
        "&": "y e",
        "i": "en dentro_de",
        "j": "durante",
        "q": "para",
        "O": "de del",
        "h": "el la los las",
        "E": {
            "principios_de comienzos_de": (0, 3),
            "mediados_de": (1, 3),
            "finales_de fines_de": (2, 3),
        },
        "L": {"recientemente últimamente": 30},
        "U": "voy_a vas_a va_a vamos_a van_a iremos iré",
        "#": "número página habitación",
        "R": "fue es era fueron son yo nosotros ella él",
        "*": "cada todos",
        "c": "palabras personas euros dólares metros kilómetros km páginas veces",
        "x": "la_mañana por_la_mañana",
    },
    ambiguous_lowercase="mayo",
    ambiguous_capitalized="mayo",
)

LANGUAGES: dict[str, Language] = {"en": ENGLISH, "de": GERMAN, "es": SPANISH}
"""Languages by code. If two languages know equally many words of a text, the first one parses it."""
