"""Check that the user's messages support a value that a model read from them.

A model returns each value with the words it was taken from. Small models invent values and quote any words for them, so
code checks the words against the user's messages, and the value against both. Letters are compared without case,
accents and punctuation. The rules:

1. The words must occur in one message of the user: a few words or a comma may be missing, an ellipsis may join pieces,
   and long words may have a typo. A paraphrase is not a quote. Without words, the value itself must occur.
2. The words *answer* the agent's question if it asked for the field and they stand in the newest message. Greetings,
   hesitations ("not sure yet") and a question of the user's own are no answer.
3. A text that occurs in a message is supported. Otherwise each of its parts with a digit, and an email address or an
   id as a whole, must occur exactly, apart from separators; and half of its other words must be in the messages, with
   the same stem or with a typo. Names need all of their words. Words in another script ("ローマ" for "Rome") support a
   text if they are an answer, or if they are about as short as the text: then they are the name itself and not a
   sentence.
4. A placeholder ("unknown") must occur in the newest message. "none" may also be the answer "no".
5. A number must be in the words, in digits or as a word, or be a sum, product or difference of such numbers. "A" counts
   only in "two adults and a child". Numbers of dates and times count only in an answer. Words with other numbers
   contradict it; an answer without numbers ("my wife and I") supports it, and so does a slightly smaller number with an
   addition ("me and my 2 kids").
6. An option of an enum must be named in the messages, or the words must share a stem with what the description says
   about this option, or they must be an answer that names no other option.
7. A boolean needs words that share a stem with the field's name, title or description, or an answer. Words that negate
   the stem contradict true.
8. A date needs words with its day, with a weekday, a month, a holiday or a relative time, or an answer without numbers.
   A stated year, month or day must be the date's own, and a month alone stands for its first day. A time needs its
   hour, a relative time, or an answer without numbers.
9. Each item of a list needs support. Half of the values in an object do, and all of its codes. An answer as a whole is
   no support for a single value of an object.

The rules cannot see that "cologne" is Köln, or that an answer such as "cheapest please" contains no date.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from tellback.agent.prompts.numerals import (
    UNSPACED,
    compute_results,
    find_numbers,
    fold_text,
    load_vocabulary,
    word_set,
)
from tellback.types.ids import register_cache

MAX_DEPTH = 8
"""How deep schemas and lists are searched."""
MAX_GAP = 2
"""How many words of a message a quote may omit in one place."""
MAX_NUMBERS = 6
"""How many numbers of a quote are added."""
MAX_ADDITION = 4
"""How much "and my family" can add to a stated number."""


def _phrase_set(phrases: str) -> frozenset[str]:
    """Return the joined letters of phrases separated by commas."""
    return frozenset(re.sub(r"\W", "", fold_text(phrase)) for phrase in phrases.split(","))


# A unit is a word of its own, as in "400mg" and "3rd"; emoji are words, since "👍" is an answer. Vowel signs of Indic
# scripts are not matched by `\w`.
_WORD = re.compile(
    "(?<![^\\W_])[0-9]+(?=[^\\W\\d_]{2,4}(?![^\\W_]))"
    "|(?:[^\\W_]|[\u0900-\u0963\u0966-\u0dff])+|[\u2600-\u27bf\U0001f300-\U0001faff]"
)
_DIGIT = re.compile(r"\d")


class _Text(NamedTuple):
    """The words of a text, as a list, as a set, and joined, with the positions at which words start and end."""

    words: tuple[str, ...]
    known: frozenset[str]
    joined: str
    starts: frozenset[int]
    ends: frozenset[int]

    def contains(self, joined: str, *, is_code: bool = False) -> bool:
        """Whether whole words of the text join to the given letters. Scripts without spaces have no whole words."""
        at = self.joined.find(joined)
        if at >= 0 and UNSPACED.search(joined):
            return True
        while at >= 0:
            start = len(self.joined[:at].rstrip("0")) if is_code and at not in self.starts else at
            if (at in self.starts or start in self.starts) and at + len(joined) in self.ends:
                return True
            at = self.joined.find(joined, at + 1)
        return False


@functools.lru_cache(maxsize=128)
def _parse(text: str) -> _Text:
    words = tuple(_WORD.findall(fold_text(text)))
    ends: list[int] = []
    for word in words:
        ends.append(len(word) + (ends[-1] if ends else 0))
    return _Text(words, frozenset(words), "".join(words), frozenset((0, *ends[:-1])), frozenset(ends))


register_cache(_parse.cache_clear)

_STOPWORDS = word_set(
    """
    a an the of and or to in for at on with by from as is are was were be it its that this i my me we our you your user
    users customer whether wants want has have had does do if when what which how who why there so no not yes one such
    der die das den dem ein eine und oder von zu mit im am für ist ich mein wir el la los las un una y o de del en con
    le les une et ou du des il lo gli e di da per um uma os do dos das em com
    """
)
_GREETINGS = word_set(
    """
    hi hello hey hiya good thanks thank thx cheers bye goodbye welcome hallo guten servus danke hola buenos buenas
    gracias bonjour bonsoir salut merci ciao buongiorno buonasera salve grazie ola bom boa obrigado obrigada привет
    здравствуйте спасибо добрый день مرحبا اهلا السلام عليكم شكرا שלום नमस्ते こんにちは こんばんは おはよう ありがとう
    你好 您好 谢谢 안녕하세요 감사합니다 สวัสดี 👋 🙏
    """
)
_GREETING_COMPANIONS = word_set(
    "there everyone all you again please morning afternoon evening day tag morgen abend bitte dias tardes dia tarde"
)
"""Words of greetings that may also be an answer, as in "in the morning"."""
_HESITATIONS = _phrase_set(
    """
    hm, hmm, hmmm, idk, dunno, unsure, maybe, perhaps, wait, later, skip, not sure, don't know, no idea, rather not,
    prefer not, let me check, let me see, let me think, one moment, weiß nicht, keine ahnung, vielleicht, lieber nicht,
    no sé, quizás, prefiero no, je ne sais, peut être, non so, forse, não sei, talvez, не знаю, わからない, 不知道
    """
)
_NEGATIONS = word_set(
    "no not t never without nor dont nope nah nicht nein nichts kein keine keinen nie ohne sin nunca nada ne pas rien "
    "sans non niente senza sem nao нет не без"
)
_ADDITIONS = word_set("and plus with also und mit sowie y e con et avec ed mais com и")
_PLACEHOLDERS = _phrase_set(
    """
    unknown, n/a, not available, not applicable, not provided, not specified, unspecified, not given, not stated,
    not mentioned, undefined, missing, tbd, to be determined, to be confirmed, null, string, placeholder, anonymous,
    unbekannt, keine angabe, desconocido, inconnu, sconosciuto, desconhecido, none, nil, nothing, keine, ninguno, aucun,
    nessuno
    """
)
_ABSENCES = word_set("none nil nothing keine ninguno aucun nessuno")


def find_missing_evidence(
    schema: Mapping[str, Any],
    name: str,
    value: Any,
    words: str | None,
    newest: str,
    earlier: Sequence[str],
    *,
    asked: bool,
) -> str | None:
    """Return why a value cannot be taken from the user's messages, or None if it can.

    Args:
        schema: The JSON schema of the field.
        name: The name of the field.
        value: The value, as JSON.
        words: The words that the value was taken from, as quoted by the model.
        newest: The newest message of the user.
        earlier: The user's earlier messages, without those of the agent.
        asked: Whether the agent's last message asked for this field.

    >>> age = {"type": "integer"}
    >>> find_missing_evidence(age, "age", 34, "thirty-four", "I'm thirty-four", [], asked=False)
    >>> find_missing_evidence(age, "age", 30, "hi there", "hi there", [], asked=False)
    "the words 'hi there' do not contain the number 30"
    """
    messages = [_parse(newest), *map(_parse, earlier)]
    if words is None or not words.strip():
        words = _find_stated(value, (newest, *earlier))
        if not words:
            return f"no words were quoted, and the user's messages do not contain {_show(value)}"
    quote, texts = _parse(words), (newest, *earlier)
    sources = [
        text
        for text, message in zip(texts, messages, strict=True)
        if (_is_quoted(words, message) if quote.words else words.strip() in text)
    ]
    if not sources:
        return f"the user's messages do not contain the words {_show(words)}"
    answers = asked and sources[0] is newest and _is_answer(words, newest)
    return _Check(words, quote, sources[0], messages, answers).run(schema, name, value, 0)


def _find_stated(value: Any, messages: Sequence[str]) -> str | None:
    """Return the value as text if the messages contain it, or its items if they contain all of them."""
    if isinstance(value, list | tuple):
        items = [_find_stated(each, messages) for each in value]
        return "\u2026".join(each for each in items if each is not None) if None not in items else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text, joined = str(value), _parse(str(value)).joined
    return text if joined and any(_parse(message).contains(joined) for message in messages) else None


def _is_quoted(words: str, message: _Text) -> bool:
    pieces = [_parse(piece) for piece in re.split(r"\.{2,}|\u2026", words)]
    return all(message.contains(piece.joined) or _is_nearly_quoted(piece.words, message) for piece in pieces)


def _is_nearly_quoted(quote: Sequence[str], message: _Text) -> bool:
    """Whether the words occur in this order, with small gaps. A gap must not hide a negation."""
    if len(quote) < 2 or not sum(word in message.known for word in quote) * 2 >= len(quote):
        return False
    for start, first in enumerate(message.words):
        if not _is_typo(first, quote[0]):
            continue
        at = start
        for word in quote[1:]:
            for position in range(at + 1, min(at + 2 + MAX_GAP, len(message.words))):
                if _is_typo(message.words[position], word):
                    at = position
                    break
                if message.words[position] in _NEGATIONS:
                    return False
            else:
                break
        else:
            return True
    return False


def _is_greeting(words: _Text) -> bool:
    return words.known <= _GREETINGS | _GREETING_COMPANIONS and (not words.words or bool(words.known & _GREETINGS))


def _is_answer(words: str, newest: str) -> bool:
    """Whether the words may be an answer, rather than a greeting, a hesitation or a question."""
    quote = _parse(words)
    if _is_greeting(quote) or any(quote.contains(each) for each in _HESITATIONS):
        return False
    is_question = newest.rstrip().endswith(("?", "\uff1f", "\u061f"))
    if not is_question:
        return True
    last_sentence = re.split(r"[.!?\n\u3002\uff01\uff1f\u061f]", newest.rstrip(" \n?\uff1f\u061f"))[-1]
    return not _parse(last_sentence).contains(quote.joined)


@dataclass(frozen=True, slots=True)
class _Check:
    """The words and messages that the values of one field are compared with."""

    words: str
    quote: _Text
    source: str
    """The newest of the messages that contain the words."""
    messages: Sequence[_Text]
    answers: bool
    """Whether the words answer the agent's question for the field."""

    def run(self, schema: Any, name: str, value: Any, depth: int) -> str | None:
        if depth > MAX_DEPTH:
            return f"{name} is nested too deeply"
        if isinstance(value, list | tuple) and value:
            items: Any = next((branch["items"] for branch in _branches(schema) if "items" in branch), {})
            return next(filter(None, (self.run(items, name, each, depth + 1) for each in value)), None)
        if isinstance(value, Mapping):
            return self._check_object(schema, value, depth)
        branches = list(_branches(schema))
        if not isinstance(value, str) or any("enum" in branch or "const" in branch for branch in branches):
            options = _find_options(branches)
            if value in [each for each in options if type(each) is type(value)] or value is None:
                return self._check_option(branches, name, value, options)
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                return self._check_closed(branches, name, value)
            if not isinstance(value, str):
                return self._check_number(value, self.answers)
        time = _TIME_VALUE.fullmatch(value)
        if time is not None:
            return self._check_time(value, time)
        return self._check_text(name, value)

    def _check_object(self, schema: Any, value: Mapping[Any, Any], depth: int) -> str | None:
        parts: dict[str, Any] = {}
        for branch in _branches(schema):
            if isinstance(branch.get("properties"), Mapping):
                parts |= branch["properties"]
        # As a whole, an answer such as "my sister" would support each closed value in the object.
        check = replace(self, answers=False)
        reasons: list[str | None] = []
        for name, each in value.items():
            if each is None:
                continue
            reason = check.run(parts.get(name, {}), str(name), each, depth + 1)
            if reason is not None and isinstance(each, str) and _is_code(each) and not _TIME_VALUE.fullmatch(each):
                return reason
            reasons.append(reason)
        missing = [reason for reason in reasons if reason is not None]
        if reasons and len(missing) * 2 <= len(reasons):
            return None
        return missing[0] if missing else "the object contains no values"

    def _check_text(self, name: str, value: str) -> str | None:
        text = _parse(value)
        missing = f"the user's messages do not contain {_show(value)}"
        if not text.words:
            return None if value.strip() and value.strip() in self.source else missing
        if text.joined in _PLACEHOLDERS:
            is_denial = text.joined in _ABSENCES and self.answers and bool(self.quote.known & _NEGATIONS)
            return None if is_denial or self.messages[0].contains(text.joined) else missing
        if any(message.contains(text.joined) for message in self.messages):
            return None
        if text.joined.isdecimal() and len(text.joined) < 4 and not text.joined.startswith("0"):
            return self._check_number(int(text.joined), answers=False)
        codes = [word for word in text.words if _DIGIT.search(word)]
        if _is_code(value):
            codes = ["".join(word for word in text.words if word not in ("http", "https", "www"))]
        if not all(self._contains_code(code) for code in codes):
            return missing
        plain = [] if _is_code(value) else [word for word in text.words if not _DIGIT.search(word)]
        significant = [word for word in plain if word not in _STOPWORDS and len(word) > 1] or plain
        if self._is_other_script(text):
            is_short = len(self.quote.joined) <= len(text.joined) + 4 and (
                len(self.quote.words) <= len(text.words) or UNSPACED.search(self.quote.joined + text.joined) is not None
            )
            return None if self.answers or (is_short and not _is_greeting(self.quote)) else missing
        found = sum(_contains_word(self.messages, word) for word in significant)
        is_name = any(word.endswith("name") for word in _split_name(name))
        return None if found >= (len(significant) if is_name else len(significant) / 2) else missing

    def _contains_code(self, code: str) -> bool:
        if any(message.contains(code, is_code=code.isdecimal()) for message in self.messages):
            return True
        if code.isdecimal() and len(code) < 3:
            return any(int(code) in each.readings for each in find_numbers(self.words))
        # An email address that was dictated.
        spoken = [word for word in self.quote.words if word not in ("at", "dot")]
        return len(spoken) < len(self.quote.words) and _parse(" ".join(spoken)).contains(code)

    def _is_other_script(self, value: _Text) -> bool:
        """Whether the words and the value have no script in common, so that they cannot be compared."""
        if self.quote.joined.isascii() and value.joined.isascii():
            return False
        scripts, others = _find_scripts(self.quote.joined), _find_scripts(value.joined)
        return bool(scripts) and bool(others) and scripts.isdisjoint(others)

    def _check_number(self, value: float, answers: bool) -> str | None:
        value = abs(value)
        missing = f"the words {_show(self.words)} do not contain the number {value}"
        if isinstance(value, int) and len(str(value)) > 3 and self.quote.contains(str(value), is_code=True):
            return None
        is_addition = not self.quote.known.isdisjoint(_ADDITIONS)
        # "A" is a number in "two adults and a child", but not in "book a table".
        numbers = [each for each in find_numbers(self.words) if is_addition or not each.is_article]
        if not answers:
            # The quote may be "10" from "10 June", or only "guests" from "4 guests".
            stated = [each for each in find_numbers(self.source) if not each.is_article]
            of_times = {one for each in stated if each.is_time for one in each.readings}
            of_times -= {one for each in stated if not each.is_time for one in each.readings}
            numbers = [each for each in numbers if not (each.is_time or each.readings & of_times)]
            if all(each.is_article for each in numbers):
                numbers = [each for each in stated if not each.is_time and value in each.readings]
        elif all(each.is_article for each in numbers):
            return None
        if any(value in each.readings for each in numbers):
            return None
        results = compute_results(numbers[:MAX_NUMBERS])
        is_larger = answers and is_addition and any(0 < value - each <= MAX_ADDITION for each in results)
        return None if value in results or is_larger else missing

    def _check_option(
        self, branches: Sequence[Mapping[str, Any]], name: str, value: Any, options: Sequence[Any]
    ) -> str | None:
        missing = f"the words {_show(self.words)} do not name {_show(value)}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            return None if self.answers else self._check_number(value, answers=False)
        if not isinstance(value, str):
            return self._check_closed(branches, name, value)
        others = [each for each in options if each != value and isinstance(each, str)]
        if any(_split_name(value) == _split_name(other) for other in others):  # "A+" and "A-"
            return None if value in self.words else missing
        shared = frozenset(_split_name(name))
        if others:
            shared |= frozenset.intersection(*(frozenset(_split_name(other)) for other in others))
        if self._names_option(value, shared, self.messages):
            return None
        if self.quote.known.isdisjoint(_NEGATIONS):
            named = next((other for other in others if self._names_option(other, shared, [self.quote])), None)
            if named is not None:
                return f"the words {_show(self.words)} name {_show(named)}, not {_show(value)}"
        is_described = self._shares_stem(_describe_option(branches, value, others))
        return None if self.answers or is_described else missing

    def _names_option(self, option: str, shared: Set[str], texts: Sequence[_Text]) -> bool:
        """Whether texts contain most words of an option, apart from those that it shares with the other options."""
        distinct = [word for word in _split_name(option) if word not in shared] or _split_name(option)
        # Short words have other meanings, so they must be in the quote: "US" is not "us".
        if option.isupper() and len(option) < 4:
            return re.search(rf"(?<!\w){re.escape(option)}(?!\w)", self.source) is not None
        found = sum(_contains_word(texts if len(word) > 3 else [self.quote], word) for word in distinct)
        return found > 0 and found * 2 > len(distinct)

    def _check_closed(self, branches: Sequence[Mapping[str, Any]], name: str, value: Any) -> str | None:
        texts = [name, *(str(branch.get(key, "")) for branch in branches for key in ("title", "description"))]
        stems = [word for text in texts for word in _split_name(text)]
        if value is True and _NEGATIONS.isdisjoint(stems) and self._negates(stems):
            return f"the words {_show(self.words)} deny {name}"
        if self.answers or self._shares_stem(stems):
            return None
        return f"the words {_show(self.words)} are not about {name}"

    def _shares_stem(self, stems: Iterable[str]) -> bool:
        significant = [word for word in self.quote.words if word not in _STOPWORDS | _GREETINGS]
        return any(_is_similar(stem, word) for stem in stems if stem not in _STOPWORDS for word in significant)

    def _negates(self, stems: Sequence[str]) -> bool:
        """Whether each of the words with a stem of the field follows a negation, as in "not a student"."""
        message = _parse(self.source)
        found = [
            not _NEGATIONS.isdisjoint(message.words[max(0, at - 2) : at])
            for at, word in enumerate(message.words)
            if word in self.quote.known and any(_is_similar(stem, word) for stem in stems if stem not in _STOPWORDS)
        ]
        return bool(found) and all(found)

    def _check_time(self, value: str, match: re.Match[str]) -> str | None:
        missing = f"the words {_show(self.words)} do not contain the time {value}"
        if _parse(self.source).contains(_parse(value).joined):
            return None
        if _is_greeting(self.quote):
            return missing
        vocabulary = load_vocabulary()
        numbers = {int(each) for each in re.findall("[0-9]{1,9}", fold_text(self.words))}
        numbers |= {vocabulary.ordinals[word] for word in self.quote.known if word in vocabulary.ordinals}
        numbers |= {int(one) for each in find_numbers(self.words) if not each.is_article for one in each.readings}
        if match["year"] is None:
            is_supported = self._supports_clock(numbers, int(match["hour"]), int(match["minute"]))
        else:
            day = None if match["day"] is None else int(match["day"])
            is_supported = self._supports_date(numbers, int(match["year"]), int(match["month"]), day)
        return None if is_supported else missing

    def _supports_clock(self, numbers: set[int], hour: int, minute: int) -> bool:
        vocabulary = load_vocabulary()
        if not self.quote.known.isdisjoint(vocabulary.units | vocabulary.clock):
            return True
        # "Quarter to seven" and "halb acht" name the next hour.
        hours = {each // 100 if each > 99 else each for each in numbers}
        return any((hour - each + (minute > 0 and step)) % 12 == 0 for each in hours for step in (0, 1)) or (
            self.answers and not numbers
        )

    def _supports_date(self, numbers: set[int], year: int, month: int, day: int | None) -> bool:
        vocabulary, known = load_vocabulary(), self.quote.known
        is_relative = not known.isdisjoint(vocabulary.relative) or any(
            each in self.quote.joined for each in vocabulary.unspaced
        )
        if "may" in known and not _MONTH_MAY.search(fold_text(self.words)):
            known -= {"may"}
        months = {vocabulary.months[word] for word in known if word in vocabulary.months}
        has_day = day is None or day in numbers
        if known.isdisjoint(vocabulary.units):  # not "two weeks after 17 May"
            has_year = any(1000 <= each <= 2999 for each in numbers)
            is_full = has_year and any(1 <= each <= 31 for each in numbers)
            is_full = is_full or re.search(r"[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{2}", fold_text(self.words)) is not None
            if (has_year and year not in numbers) or (months and month not in months):
                return False
            if is_full and not (has_day and numbers & {year, year % 100}):
                return False
            if months and not (has_day or is_relative or day == 1):
                return False
        if numbers and not (is_relative or months):
            return has_day
        return is_relative or bool(months) or self.answers


_TIME_VALUE = re.compile(
    r"(?=[0-9])(?:(?P<year>[0-9]{4})-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?)?"
    r"(?:(?:^|[T ])(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)


def _contains_word(texts: Sequence[_Text], word: str) -> bool:
    """Whether a text contains the word or a similar one, or most characters of a word without spaces around it."""
    if any(word in text.known for text in texts):
        return True
    if UNSPACED.search(word):
        return any(sum(letter in text.joined for letter in word) * 2 > len(word) for text in texts)
    return any(_is_similar(word, other) for text in texts for other in text.known)


_MONTH_MAY = re.compile(
    r"\b(?:in|of|by|early|late|mid|next|since|until|[0-9]+(?:st|nd|rd|th)?)[\s.-]+may\b|\bmay[\s,]+(?:the\s+)?[0-9]|^may$"
)
"""May as a month, and not as in "I may come"."""


def _find_scripts(text: str) -> set[str]:
    return {unicodedata.name(each, "").partition(" ")[0] for each in set(text) if each.isalpha()}


def _is_code(value: str) -> bool:
    """Whether a text is an email address, an id or a phone number, which nobody paraphrases."""
    if "@" in value:
        return True
    parts = value.split()
    has_digits = [_DIGIT.search(part) is not None for part in parts]
    return all(has_digits) and bool(parts)


def _branches(schema: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and the schemas that it is composed of."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return
    yield schema
    for key in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(key)
        for part in parts if isinstance(parts, list | tuple) else ():
            yield from _branches(part, depth + 1)


def _find_options(branches: Iterable[Mapping[str, Any]]) -> list[Any]:
    found: list[Any] = []
    for branch in branches:
        options = branch.get("enum")
        found += options if isinstance(options, list | tuple) else ()
        found += [branch["const"]] if "const" in branch else ()
    return found


def _describe_option(branches: Iterable[Mapping[str, Any]], value: str, others: Iterable[str]) -> list[str]:
    """Return the words of the descriptions that are about one option, up to the next option."""
    found: list[str] = []
    own, first_words = _split_name(value)[:1], {word for other in others for word in _split_name(other)[:1]}
    for branch in branches:
        texts = [str(branch.get(key, "")) for key in ("title", "description")]
        if branch.get("const") == value:
            found += [word for text in texts for word in _split_name(text)]
            continue
        is_own = False
        for word in _split_name(texts[1]):
            is_own = word in own or (is_own and word not in first_words)
            if is_own:
                found.append(word)
    return found


@functools.lru_cache(maxsize=512)
def _split_name(name: str) -> tuple[str, ...]:
    """Split a name such as `bookingReference` or `one_way` into words."""
    return _parse(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)).words


def _is_typo(word: str, other: str) -> bool:
    """Whether two words are equal, or long and nearly equal. Digits have no typos."""
    if word == other:
        return True
    if min(len(word), len(other)) < 4 or abs(len(word) - len(other)) > 2 or word[0] != other[0]:
        return False
    if _DIGIT.search(word) or _DIGIT.search(other):
        return False
    matcher = SequenceMatcher(None, word, other, autojunk=False)
    return matcher.quick_ratio() >= 0.75 and matcher.ratio() >= 0.75


def _is_similar(word: str, other: str) -> bool:
    """Whether two words are equal, or have the same stem, or one is a typo of the other."""
    if word == other:
        return True
    if word[:3] == other[:3] and word.isalpha() and other.isalpha():
        shorter, longer = sorted((len(word), len(other)))
        prefix = next((at for at in range(shorter) if word[at] != other[at]), shorter)
        if prefix >= 7 or (prefix == 3 and shorter == 3 and longer == 4):
            return True
        if prefix >= 4 and longer - prefix <= 3 and shorter - prefix <= 2:
            return True
    return _is_typo(word, other)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
