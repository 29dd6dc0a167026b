"""Find the numbers of a text, in digits and in words, and collect the words for days and times of several languages."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tellback.types.ids import register_cache

MAX_OPERANDS = 5
"""How many numbers of a text are added and multiplied."""

UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]")
"""Letters of scripts without spaces between words, or with endings that are written like words."""
_INVISIBLE = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u0655\u0670\u00ad\u200b-\u200f\u2060\ufe0f\ufeff]"
)

_LETTERS = str.maketrans({"\u0131": "i", "ł": "l", "ø": "o", "đ": "d", "æ": "ae", "œ": "oe"})
"""Letters with marks that Unicode does not decompose."""


@functools.lru_cache(maxsize=256)
def fold_text(text: str) -> str:
    """Remove case, accents and optional marks, and convert digits of all scripts."""
    text = text.casefold()
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", _INVISIBLE.sub("", unicodedata.normalize("NFKD", text))).translate(_LETTERS)
    return "".join(str(unicodedata.digit(each)) if each.isdecimal() else each for each in text)


register_cache(fold_text.cache_clear)


def word_set(words: str) -> frozenset[str]:
    """Return the folded words of a table."""
    return frozenset(fold_text(words).split())


_NUMBER = re.compile(
    r"[0-9]+(?:[:/][0-9]+)+|[0-9]+-[0-9]+-[0-9]+|[0-9]+\s?(?:[ap]\.?m\b|uhr\b|h\b|o.?clock)"  # dates and times of day
    r"|(?P<digits>[0-9]+(?:[.,'\u2019 ][0-9]{3}(?![0-9]))*(?:[.,][0-9]+)?)|(?P<word>[^\W\d_]+)"
)


def find_numbers(text: str, *, with_articles: bool = False) -> list[frozenset[float]]:
    """Find the numbers of a text, in digits and in words, without dates and times; "1.200" has two readings.

    >>> [sorted(readings) for readings in find_numbers("fünfundzwanzig, two hundred, 1.200")]
    [[25], [2], [100], [1.2, 1200.0]]
    """
    vocabulary = load_vocabulary()
    found: list[frozenset[float]] = []
    for digits, word in _NUMBER.findall(fold_text(text)):
        if digits:
            found.append(_read_digits(digits))
        elif word in vocabulary.articles:
            found += [frozenset((vocabulary.articles[word],))] if with_articles else []
        elif word in vocabulary.numbers:
            found.append(frozenset((vocabulary.numbers[word],)))
        elif UNSPACED.match(word):
            found += [frozenset((_CHARACTER_NUMBERS[each],)) for each in word if each in _CHARACTER_NUMBERS]
        else:
            ones, _, tens = word.partition("und")
            if ones in vocabulary.numbers and tens in vocabulary.numbers:
                found.append(frozenset((vocabulary.numbers[ones] + vocabulary.numbers[tens],)))
    return found


def _read_digits(digits: str) -> frozenset[float]:
    """Return the readings of digits: a separator before three digits may be decimal or not."""
    *groups, last = re.split(r"[.,'\u2019 ]", digits[:40])
    if not groups:
        return frozenset((float(last),))
    decimal = {float(f"{''.join(groups)}.{last}")} if digits[-len(last) - 1] in ".," else set()
    return frozenset(decimal | ({float("".join(groups) + last)} if len(last) == 3 else set()))


def compute_results(numbers: Sequence[frozenset[float]]) -> set[float]:
    """Return the numbers, and their sums, products and differences in the order of the text.

    >>> 234 in compute_results(find_numbers("two hundred thirty-four")), 3 in compute_results(find_numbers("1, 2"))
    (True, True)
    """
    results: set[float] = {one for readings in numbers for one in readings}
    chain: set[float] = set()
    for readings in numbers[:MAX_OPERANDS]:
        combined = {round(each, 6) for a in chain for b in readings for each in (a + b, a * b, abs(a - b))}
        chain |= combined | readings
    return results | chain


class NumberAndTimeWords(NamedTuple):
    """The words for numbers, days and times."""

    numbers: Mapping[str, float]
    articles: Mapping[str, float]
    """Words that are numbers only beside others, as in "two adults and a child" and "me and my wife"."""
    months: Mapping[str, int]
    relative: frozenset[str]
    """Words that determine a day: weekdays, holidays, "tomorrow", and units as in "in two weeks"."""
    units: frozenset[str]
    clock: frozenset[str]


@functools.cache
def load_vocabulary() -> NumberAndTimeWords:
    """Merge the tables of the date parser, and words of languages that have no table yet."""
    from tellback.memory.recall.dates.vocabulary import LANGUAGES, number_names

    by_tag: dict[str, dict[str, Any]] = {}
    for language in LANGUAGES.values():
        for word, (tag, value, _) in language.words.items():
            by_tag.setdefault(tag, {}).setdefault(fold_text(word), value)
    numbers: dict[str, float] = {
        word: number for words, number in _OTHER_NUMBERS.items() for word in fold_text(words).split()
    }
    for names in _NUMBER_NAMES:
        numbers |= {fold_text(word): number for word, number in number_names(names, 0).items()}
    numbers |= by_tag["o"] | {word: low for word, (low, high) in by_tag["n"].items() if low == high}
    articles = {word: numbers.pop(word, 1) for word in word_set(_ARTICLES)}
    months = dict(by_tag["M"])
    for names in _MONTH_NAMES:
        months |= {fold_text(word): number for word, number in number_names(names).items()}
    units = frozenset(by_tag["u"]) | word_set(_OTHER_UNITS)
    relative = units.union(*(by_tag.get(tag, ()) for tag in "DkWwHKYQ7ESV"), word_set(_OTHER_DAYS))
    return NumberAndTimeWords(
        numbers,
        articles,
        months,
        relative - months.keys(),
        units,
        frozenset(by_tag["p"]) | word_set(_CLOCK_WORDS),
    )


_CHARACTER_NUMBERS = {each: number for number, each in enumerate("〇一二三四五六七八九十")} | {
    **dict.fromkeys("两兩両", 2),
    "百": 100,
    "千": 1_000,
    "万": 10_000,
}
_NUMBER_NAMES = (
    "zéro un/une deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
    "zero uno/una due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici",
    "zero um/uma dois/duas três quatro cinco seis sete oito nove dez onze doze treze quatorze/catorze quinze dezesseis",
    "null eins zwei/zwo/beide/beiden drei/dritt vier/viert fünf sechs sieben acht neun zehn elf zwölf dreizehn "
    "vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig",
    "cero uno dos/ambos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince",
    "ноль один/одна два/две/двое три/трое четыре/четверо пять шесть семь восемь девять десять",
    "nul een/één twee drie vier vijf zes zeven acht negen tien",
    "zero jeden/jedna dwa/dwie trzy cztery pięć sześć siedem osiem dziewięć dziesięć",
    "noll ett två tre fyra fem sex sju åtta nio tio",
    "- bir iki üç dört beş alti yedi sekiz dokuz",
    "zero/oh - both/pair/couple",
)
_OTHER_NUMBERS: Mapping[str, float] = {
    "myself alone solo allein": 1,
    "couples pairs": 2,
    "half": 0.5,
    "dozen dutzend docena douzaine dozzina": 12,
    "vingt venti vinte veinte": 20,
    "dreißig trente trenta trinta treinta": 30,
    "vierzig quarante quaranta quarenta cuarenta": 40,
    "fünfzig cinquante cinquanta cinquenta cincuenta": 50,
    "sechzig soixante sessanta sessenta sesenta": 60,
    "seventy siebzig settanta setenta": 70,
    "eighty achtzig ottanta oitenta ochenta": 80,
    "ninety neunzig novanta noventa": 90,
    "hundred hundert einhundert cent cento cem cien ciento": 100,
    "k thousand tausend eintausend mille mil mila": 1_000,
    "million millionen millones millions milioni milhões": 1_000_000,
}
_ARTICLES = """
    a an ein eine einer einem einen un una une um uma uno once due sei een bir me i ich mich moi yo io eu wife husband
    frau mann esposa marido mujer femme mari moglie marito
"""
_MONTH_NAMES = (
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
)
_OTHER_UNITS = """
    night nights nächte noches minute heure heures jour jours semaine semaines mois année années minuti ora ore giorno
    giorni settimana settimane mese mesi anno anni minuto minutos hora horas dia dias semana semanas meses ano anos час
    часа минут день дня дней неделю недели week weken tydzień tygodniu vecka veckan hafta haftaya
"""
_OTHER_DAYS = """
    tmr tmrw now asap immediately eve end beginning start middle jetzt sofort ahora
    aujourd hui demain hier lundi mardi mercredi jeudi vendredi samedi dimanche noël pâques maintenant
    oggi domani ieri lunedì martedì mercoledì giovedì venerdì sabato domenica natale pasqua adesso
    hoje amanhã ontem segunda terça quarta quinta sexta sábado domingo natal agora
    vandaag morgen overmorgen gisteren maandag dinsdag woensdag donderdag vrijdag zaterdag zondag
    dziś dzisiaj jutro pojutrze wczoraj poniedziałek wtorek środa środę czwartek piątek sobota sobotę niedziela
    idag imorgon morgon övermorgon igår måndag tisdag onsdag torsdag fredag lördag söndag
    bugün yarin dün pazartesi sali çarşamba perşembe cuma cumartesi pazar
    сегодня завтра вчера послезавтра понедельник вторник среду среда четверг пятницу пятница субботу воскресенье сейчас
    غدا اليوم امس الاحد الاثنين الثلاثاء الاربعاء الخميس الجمعة السبت
    आज कल परसों सोमवार मंगलवार बुधवार गुरुवार शुक्रवार शनिवार रविवार
"""
_CLOCK_WORDS = """
    noon midday midnight tonight lunch lunchtime dinner mittag mittags mitternacht mediodía medianoche midi minuit
    mezzogiorno mezzanotte полдень полночь now jetzt ahora maintenant adesso agora сейчас
"""
UNSPACED_DAYS = word_set(
    "日 月 週 周 天 曜 年 星期 礼拜 今晚 오늘 내일 어제 모레 이번주 다음주 다음달 주말 요일 พรุ่งนี้ วันนี้ เมื่อวาน"
)
