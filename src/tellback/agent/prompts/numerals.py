"""Find the numbers in a text, in digits and in words, and the words for days and times, in several languages."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]")
"""Letters of scripts without spaces between words, or with endings that are written like words."""
_INVISIBLE = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u0655\u0670\u00ad\u200b-\u200f\u2060\ufe0f\ufeff]"
)


def fold_text(text: str) -> str:
    """Remove case, accents and optional marks, and convert digits of all scripts."""
    text = text.casefold()
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", _INVISIBLE.sub("", unicodedata.normalize("NFKD", text)))
    return "".join(str(unicodedata.digit(each)) if each.isdecimal() else each for each in text)


def word_set(words: str) -> frozenset[str]:
    """Return the folded words of a table."""
    return frozenset(fold_text(words).split())


class StatedNumber(NamedTuple):
    """A number in a text. "1.200" has two readings."""

    readings: frozenset[float]
    is_time: bool = False
    is_article: bool = False


_NUMBER = re.compile(
    r"(?P<time>[0-9]{1,2}:[0-9]{2}|[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{1,4}"
    r"|[0-9]{1,2}(?=\s?(?:[ap]\.?m\b|uhr\b|h\b|o.?clock)))"
    r"|(?P<digits>[0-9]+(?:[.,'\u2019 ][0-9]{3}(?![0-9]))*(?:[.,][0-9]+)?)"
    r"(?:\s?(?P<unit>%|k\b|hundred\b|thousand\b|million\b|tausend\b|mil\b|mille\b|mila\b))?"
    r"|(?P<word>[^\W\d_]+)"
)
_UNITS = {"%": 0.01, "hundred": 100, "million": 1_000_000}
_CHARACTER_NUMBERS = {each: number for number, each in enumerate("〇一二三四五六七八九十")} | dict.fromkeys("两兩両", 2)
_DATE_CONNECTORS = frozenset(("st", "nd", "rd", "th", "of", "de", "do", "di", "the"))


def find_numbers(text: str) -> list[StatedNumber]:
    """Find the numbers of a text, in digits and in words.

    >>> [sorted(number.readings) for number in find_numbers("vierundzwanzig, two hundred thirty four, 1.200")]
    [[24], [234], [1.2, 1200.0]]
    """
    vocabulary = load_vocabulary()
    found: list[StatedNumber] = []
    group: list[str] = []
    after_number = after_month = may_be_day = False
    # The last word ends a group of number words at the end of the text.
    for match in _NUMBER.finditer(f"{fold_text(text)} end"):
        word = match["word"]
        if word is not None and _parse_number_word(word) is not None:
            group.append(word)
            continue
        if group:
            is_article = len(group) == 1 and group[0] in vocabulary.articles
            found += [StatedNumber(frozenset((each,)), False, is_article) for each in _join_number_words(group)]
            group, after_number, after_month = [], True, False
        if word is None:
            readings = _read_digits(match["time"] or match["digits"], match["unit"])
            is_date = after_month and (may_be_day or any(1900 <= each < 2100 for each in readings))
            found.append(StatedNumber(readings, is_date or match["time"] is not None))
            after_number, after_month = True, False
        elif word in vocabulary.months:
            if after_number:
                found[-1] = found[-1]._replace(is_time=True)
            after_number, after_month, may_be_day = False, True, not after_number
        elif word not in _DATE_CONNECTORS:
            after_number = after_month = False
            if UNSPACED.match(word):
                digits = [each for each in word if each in _CHARACTER_NUMBERS]
                found += [StatedNumber(frozenset((_CHARACTER_NUMBERS[each],)), False, each == "一") for each in digits]
    return found


def _read_digits(digits: str, unit: str | None) -> frozenset[float]:
    """Return the readings of digits: a separator before three digits may be decimal or not."""
    if len(digits) > 18 or ":" in digits or "/" in digits or "-" in digits:
        return frozenset()
    *groups, last = re.split(r"[.,'\u2019 ]", digits)
    readings = {float(f"{''.join(groups)}.{last}")} if groups and digits[-len(last) - 1] in ".," else {float(last)}
    if groups and len(last) == 3:
        readings.add(float("".join(groups) + last))
    factor = 1 if unit is None else _UNITS.get(unit, 1_000)
    return frozenset(round(each * factor, 6) for each in readings) | (readings if unit == "%" else frozenset())


def _parse_number_word(word: str) -> int | None:
    numbers = load_vocabulary().numbers
    if word in numbers:
        return numbers[word]
    # "fünfundzwanzig"
    ones, und, tens = word.partition("und")
    return numbers[ones] + numbers[tens] if und and ones in numbers and tens in numbers else None


def _join_number_words(words: Iterable[str]) -> list[int]:
    """Join consecutive words to numbers: "two hundred thirty four" is one number, "two three" are two."""
    found: list[int] = []
    total, current = 0, -1
    for number in (_parse_number_word(word) or 0 for word in words):
        if current < 0:
            current = number
        elif number == 100 and current < 100:
            current = max(current, 1) * 100
        elif number >= 1000:
            total, current = total + max(current, 1) * number, 0
        elif current % 100 == 0 or (current % 10 == 0 and current % 100 >= 20 and number < 20):
            current += number
        else:
            found.append(total + current)
            total, current = 0, number
    return [*found, total + current]


def compute_results(numbers: Sequence[StatedNumber]) -> set[float]:
    """Return the numbers themselves, the sums of some of them, and products and differences of two."""
    results: set[float] = set()
    for each in numbers:
        results |= {round(sum + one, 6) for one in each.readings for sum in (0, *results)}
    for one, other in combinations(numbers, 2):
        for left in one.readings:
            for right in other.readings:
                results |= {round(left * right, 6), round(abs(left - right), 6)}
    return results


class NumberAndTimeWords(NamedTuple):
    """The words for numbers, days and times."""

    numbers: Mapping[str, int]
    ordinals: Mapping[str, int]
    articles: frozenset[str]
    months: Mapping[str, int]
    relative: frozenset[str]
    """Words that determine a day: weekdays, holidays, "tomorrow", and units as in "in two weeks"."""
    units: frozenset[str]
    clock: frozenset[str]
    unspaced: tuple[str, ...]


@functools.cache
def load_vocabulary() -> NumberAndTimeWords:
    """Merge the tables of the date parser, and words of languages that have no table yet."""
    from tellback.memory.recall.dates.vocabulary import LANGUAGES, number_names

    by_tag: dict[str, dict[str, Any]] = {}
    for language in LANGUAGES.values():
        for word, (tag, value, _) in language.words.items():
            by_tag.setdefault(tag, {}).setdefault(fold_text(word), value)
    phrases = {word for language in LANGUAGES.values() for word in language.triggers}
    numbers = {word: low for tag in "na" for word, (low, high) in by_tag[tag].items() if low == high}
    articles = word_set(_ARTICLES) | set(_PERSONS)
    for names in _NUMBER_NAMES:
        numbers = {fold_text(word): number for word, number in number_names(names, 0).items()} | numbers
    numbers |= _LARGE_NUMBERS | _PERSONS
    months = {word: number for tag in "Mm" for word, number in by_tag.get(tag, {}).items()}
    for names in _MONTH_NAMES:
        months |= {fold_text(word): number for word, number in number_names(names).items()}
    units = frozenset(by_tag["u"]) | word_set(_OTHER_UNITS)
    relative = {fold_text(word) for word in phrases} | {word for tag in "DkWwHKYQL7" for word in by_tag.get(tag, ())}
    relative = relative | units | word_set(_OTHER_DAYS)
    # "39 years old" determines no day.
    long_units = {word for word, (unit, *_) in by_tag["u"].items() if unit in ("quarter", "year", "decade")}
    relative -= {*months, *by_tag["S"], *by_tag["V"], *long_units, *word_set("année années anno anni ano anos")}
    return NumberAndTimeWords(
        numbers,
        by_tag["o"],
        articles,
        months,
        frozenset(relative),
        units,
        word_set(_CLOCK_WORDS),
        tuple(_UNSPACED_DAYS.split()),
    )


_NUMBER_NAMES = (
    "zéro un/une deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
    "zero uno/una due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici",
    "zero um/uma dois/duas três quatro cinco seis sete oito nove dez onze doze treze quatorze/catorze quinze dezesseis",
    "null eins zwei/zwo/beide/beiden drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn zwanzig",
    "cero uno dos/ambos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince",
    "ноль один/одна два/две/двое три/трое четыре/четверо пять шесть семь восемь девять десять",
    "zero - both/pair/couple",
)
_LARGE_NUMBERS = {
    fold_text(word): number
    for number, words in {
        12: "dozen dutzend docena douzaine dozzina",
        20: "vingt venti vinte veinte",
        30: "dreißig trente trenta trinta treinta",
        40: "vierzig quarante quaranta quarenta cuarenta",
        50: "fünfzig cinquante cinquanta cinquenta cincuenta",
        60: "sechzig soixante sessanta sessenta sesenta",
        70: "seventy siebzig settanta setenta",
        80: "eighty achtzig ottanta oitenta ochenta",
        90: "ninety neunzig novanta noventa",
        100: "hundert einhundert cent cento cem cien ciento",
        1_000: "thousand tausend eintausend mille mil",
        1_000_000: "million millionen millones millions milioni milhões",
    }.items()
    for word in words.split()
}
_ARTICLES = "a an ein eine einer einem einen un una une um uma uno once due sei"
"""Number words that are also other words. They count only with "and"."""
_PERSONS = dict.fromkeys(
    word_set("me myself mich moi wife husband frau esposa marido mujer femme mari moglie marito"), 1
)
"""One person each, like an article: "me and my two kids" are three."""
_MONTH_NAMES = (
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
)
_OTHER_UNITS = """
    minute heure heures jour jours semaine semaines mois année années minuti ora ore giorno giorni settimana settimane
    mese mesi anno anni minuto minutos hora horas dia dias semana semanas meses ano anos час часа минут день дня дней
    неделю недели
"""
_OTHER_DAYS = """
    aujourd hui demain hier lundi mardi mercredi jeudi vendredi samedi dimanche noël pâques oggi domani ieri lunedì
    martedì mercoledì giovedì venerdì sabato domenica natale pasqua hoje amanhã ontem segunda terça quarta quinta sexta
    sábado domingo natal сегодня завтра вчера послезавтра понедельник вторник среду среда четверг пятницу пятница
    субботу воскресенье غدا اليوم امس now jetzt ahora maintenant adesso agora сейчас asap immediately
"""
_CLOCK_WORDS = """
    noon midday midnight now mittag mittags mitternacht jetzt mediodía medianoche ahora midi minuit maintenant
    mezzogiorno mezzanotte adesso agora полдень полночь сейчас
"""
_UNSPACED_DAYS = """
    今日 明日 昨日 明後日 来週 今週 先週 来月 曜 今天 明天 昨天 后天 後天 下周 下週 本周 上周 周一 周二 周三 周四 周五
    周六 周日 星期 礼拜 下个月 오늘 내일 어제 모레 다음주 요일 พรุ่งนี้ วันนี้ เมื่อวาน
"""
