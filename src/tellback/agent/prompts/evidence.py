"""Check that the user's messages support a value that a model read from them.

A model returns each value with the words it was taken from. Small models invent values and quote any words for them;
the values of good models are nearly always right. So the rules refuse values that the words contradict or cannot mean,
and trust short answers. Letters are compared without case, accents and punctuation.

1. The words must occur in a message of the user, with small gaps and typos. Without words, the newest message counts.
2. The words are an *answer* if the agent asked for the field and they are in the newest message. A greeting, a
   hesitation, a refusal and a question are no answer.
3. Half of the words of a text must occur in the messages, with the same stem; its numbers, a code (an email address or
   an id) and a person's name must occur as a whole. A short answer ("the eternal city"), an abbreviation ("NYC") and a
   word in another script ("ローマ") also support a text, but no code and no name in the same script. A greeting and a
   sentence are no names.
4. A placeholder ("unknown", "none") must occur in the newest message, or the answer must be a denial.
5. A number must be stated, or be computed from stated numbers, or the answer contains no number ("my wife and I").
6. An option of an enum must be named in the messages, or described by the words, or an answer names no other option. A
   boolean needs words about the field, or an answer.
7. A date needs words with its day, its month or a relative time; a date far from today needs its year. A time of day
   needs its hour or a word such as "noon", or an answer without numbers.
8. Each item of a list needs support, and half of the values of an object, with all of its codes and numbers.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from tellback.agent.prompts.numerals import (
    UNSPACED,
    UNSPACED_DAYS,
    compute_results,
    find_numbers,
    fold_text,
    load_vocabulary,
    word_set,
)
from tellback.types.ids import register_cache

MAX_DEPTH = 8
"""How deep schemas and values are searched."""
MAX_GAP = 2
"""How many words of a message a quote may omit in one place."""
MAX_ANSWER_WORDS, MAX_ANSWER_LENGTH = 6, 40
"""How long an answer may be whose meaning is trusted."""
MAX_NAME_WORDS = 7
"""How long the name of a person or a company may be."""
_SCALES = (0.01, 100, 1_000, 100_000, 1_000_000)
"""Between a stated number and its value in another unit: 15%, 1.82 m, three grand, one lakh, 1.5M."""
MAX_MONTHS = 24
"""How far from today a date may be whose year is not stated."""


def _phrase_set(phrases: str) -> frozenset[str]:
    """Return the joined letters of phrases separated by commas."""
    return frozenset(re.sub(r"\W", "", fold_text(phrase)) for phrase in phrases.split(","))


# Words are runs of letters or of digits, as in "400mg", and emoji, since "👍" is an answer. `\w` does not match vowel
# signs of Indic scripts.
_WORD = re.compile("[0-9]+|(?:[^\\W\\d_]|[\u0900-\u0963\u0970-\u0dff])+|[\u2600-\u27bf\U0001f300-\U0001faff]")


class _Text(NamedTuple):
    """The words of a text, as a list, as a set, and joined, with the positions between words."""

    words: tuple[str, ...]
    known: frozenset[str]
    joined: str
    bounds: frozenset[int]

    def contains(self, joined: str) -> bool:
        """Whether whole words of the text join to the given letters. Scripts without spaces have no whole words."""
        at = self.joined.find(joined)
        while at >= 0:
            if (at in self.bounds and at + len(joined) in self.bounds) or UNSPACED.search(joined):
                return True
            at = self.joined.find(joined, at + 1)
        return False

    def contains_in_order(self, words: Sequence[str], gap: int) -> bool:
        """Whether the text contains the words in this order, with small gaps. A gap must not hide a negation."""
        for start in range(len(self.words)):
            at, end = start, start + 1
            for word in words:
                at = next((each for each in range(at, end) if _is_typo(self.words[each], word)), -1) + 1
                if not at:
                    break
                end = min(at + 1 + gap, len(self.words))
                end = next((each + 1 for each in range(at, end) if self.words[each] in _NEGATIONS), end)
            else:
                return True
        return False


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> _Text:
    words = tuple(_WORD.findall(fold_text(text)))
    bounds = [0]
    for word in words:
        bounds.append(bounds[-1] + len(word))
    return _Text(words, frozenset(words), "".join(words), frozenset(bounds))


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
    здравствуйте спасибо добрый مرحبا اهلا السلام عليكم شكرا שלום नमस्ते こんにちは こんばんは おはよう ありがとう
    你好 您好 谢谢 안녕하세요 감사합니다 สวัสดี 👋 🙏
    """
)
_GREETING_COMPANIONS = word_set(
    "there everyone all again please morning afternoon evening day tag morgen abend bitte dias tardes dia tarde день"
)
"""Words of greetings that may also be an answer, as in "in the morning"."""
_HESITATIONS = _phrase_set(
    """
    hm, hmm, um, lol, idk, dunno, unsure, undecided, maybe, perhaps, wait, hold on, any time, later, no preference,
    whatever works, up to you, you choose, you tell me, not sure, not yet, haven't decided, don't know, no idea, don't
    care, don't mind, don't remember, don't understand, can't find, depends, private, your business, let me, one
    moment, a moment, one sec, need help, help me, have a problem, a human, real person, already told, start over,
    cancel, too long, hurry, just browsing, weiß nicht, keine ahnung, verstehe nicht, vielleicht, egal, no sé, no
    entiendo, quizás, je ne sais, je ne comprends, peut être, non so, non capisco, forse, não sei, talvez, nie wiem,
    vet inte, weet niet, bilmiyorum, не знаю, わからない, わかりません, 不知道, 모르겠, لا اعرف, पता नहीं
    """
)
_REFUSALS = _phrase_set(
    """
    rather not, prefer not, not now, skip, pass, forget it, never mind, lieber nicht, keine lust, no quiero,
    prefiero no, préfère ne pas, preferisco di no, prefiro não, не хочу, не скажу
    """
)
"""These answer only a question that can be denied."""
_QUESTION_WORDS = word_set("can could does what whats how why where which who wie warum wer qué cómo pourquoi")
_NEGATIONS = word_set(
    "no not t never without nor none dont nope nah nicht nein nichts kein keine keinen nie ohne sin nunca nada ne pas "
    "rien sans non niente senza sem nao нет не без"
)
_ADDITIONS = word_set("and plus with also und mit sowie y e con et avec ed mais com и")
_NAME_WORDS = word_set("names nombre apellido nom prénom nome person patient passenger traveler traveller guest")
"""Words of field names for persons, besides those that end with "name"."""
_PLACEHOLDERS = _phrase_set(
    """
    unknown, n/a, na, not available, not applicable, not provided, not specified, not given, not stated, undefined,
    tbd, null, string, placeholder, anonymous, unbekannt, desconocido, inconnu, none, nil, nothing, keine, ninguno
    """
)


def find_missing_evidence(
    schema: Mapping[str, Any],
    name: str,
    value: Any,
    words: str | None,
    newest: str,
    earlier: Sequence[str],
    *,
    asked: bool,
    today: date,
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
        today: The date at the user's place.

    >>> age, today = {"type": "integer"}, date(2026, 11, 19)
    >>> find_missing_evidence(age, "age", 34, "thirty-four", "I'm thirty-four", [], asked=False, today=today)
    >>> find_missing_evidence(age, "age", 30, "hi there", "hi there", [], asked=False, today=today)
    "the words 'hi there' do not contain the number 30"
    """
    if words is None or not words.strip():
        words, asked = newest, asked and len(_parse(newest).words) <= MAX_ANSWER_WORDS
    texts = (newest, *earlier)
    source = next((text for text in texts if is_quoted(words, text)), None)
    if source is None and words.strip() == value and _TIME_VALUE.fullmatch(value):
        words, source = newest, newest  # the model wrote the date instead of the user's words
    if source is None:
        return f"the user's messages do not contain the words {_show(words)}"
    quote, messages = _parse(words), [_parse(text) for text in texts]
    if asked := asked and source is newest and not _is_question(quote, newest):
        denies = value is False or (isinstance(value, str) and not _parse(value).known.isdisjoint(_NEGATIONS))
        asked = not _states_nothing(quote) or (denies and _is_refusal(quote))
    check = _Check(words, quote, source, messages, asked, today, schema.get("$defs", {}))
    return check.run(schema, name, value, 0)


def is_literal(value: Any, words: str | None, newest: str) -> bool:
    """Whether the newest message contains the words, and these contain the value as it is.

    This is the usual case of numbers and of one or two words. It needs no parsing.
    """
    if not words or words not in newest:
        return False
    if isinstance(value, str):
        text, folded = value, value.casefold().split()
        if not 1 <= len(folded) <= 2 or "".join(folded) in _PLACEHOLDERS or not _GREETINGS.isdisjoint(folded):
            return False
    elif type(value) is int and value >= 0:
        text = str(value)
    else:
        return False
    at = words.find(text)
    before, after = words[max(0, at - 1) : max(0, at)], words[at + len(text) : at + len(text) + 1]
    is_whole = not (before.isalnum() or after.isalnum())
    return at >= 0 and is_whole and (isinstance(value, str) or (before not in _JOINTS and after not in _JOINTS))


_JOINTS = frozenset(".,:/-%\u2019'$")
"""Characters that may join the digits of a longer number, a date or a time."""


def is_quoted(words: str, message: str) -> bool:
    """Whether the words occur in the message, with small gaps and typos; an ellipsis joins pieces."""
    text, pieces = _parse(message), [_parse(piece) for piece in re.split(r"\.{2,}|…", words)]
    if not any(piece.words for piece in pieces):
        return words.strip() in message
    return all(
        text.contains(piece.joined)
        or (
            sum(word in text.known for word in piece.words) * 2 >= len(piece.words)
            and text.contains_in_order(piece.words, MAX_GAP)
        )
        or (len(piece.words) == 1 and any(_is_typo(word, piece.words[0]) for word in text.known))
        for piece in pieces
    )


def find_content(text: str) -> frozenset[str]:
    """Return the words of a text without stop words, greetings and single letters."""
    words = _parse(text).known - _STOPWORDS - _GREETINGS - _GREETING_COMPANIONS
    return frozenset(word for word in words if len(word) > 1)


def _is_sentence(text: _Text) -> bool:
    """Whether a text is too long for a name, or long and with numbers."""
    has_numbers = any(word.isdecimal() for word in text.words)
    return len(text.words) > (MAX_NAME_WORDS if has_numbers else 2 * MAX_NAME_WORDS)


def _is_greeting(words: _Text) -> bool:
    return words.known <= _GREETINGS | _GREETING_COMPANIONS and (not words.words or bool(words.known & _GREETINGS))


def _is_refusal(words: _Text) -> bool:
    return any(words.contains(each) for each in _REFUSALS)


def _states_nothing(words: _Text) -> bool:
    return _is_greeting(words) or _is_refusal(words) or any(words.contains(each) for each in _HESITATIONS)


def _is_question(quote: _Text, newest: str) -> bool:
    """Whether the words are in a question at the end of the message, with or without a question mark."""
    message = newest.rstrip()
    last_sentence = _SENTENCE_END.split(message[:-1])[-1]
    has_mark = message.endswith(_QUESTION_MARKS) and _parse(last_sentence).contains(quote.joined)
    return has_mark or not _QUESTION_WORDS.isdisjoint(_parse(newest).words[:1])


_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_SENTENCE_END = re.compile("[.!?\n\u3002\uff01\uff1f\u061f]")
_CLAUSE_END = re.compile("[.,;:!?\n\u3001\uff0c\u3002\uff01\uff1f\u061f\u060c]")


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
    today: date
    definitions: Mapping[str, Any] = field(default_factory=dict)
    """The `$defs` of the schema."""
    is_part: bool = False
    """Whether the value is an item of a list or a value of an object: then numbers are not added."""

    def run(self, schema: Any, name: str, value: Any, depth: int) -> str | None:
        if depth > MAX_DEPTH:
            return f"{name} is nested too deeply"
        branches = list(_branches(schema, self.definitions))
        if isinstance(value, str) and any("properties" in branch or "items" in branch for branch in branches):
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(value)
        if isinstance(value, list | tuple) and value:
            items: Any = next((branch["items"] for branch in branches if "items" in branch), {})
            return self._check_list(items, name, value, depth)
        if isinstance(value, Mapping):
            return self._check_object(branches, value, depth)
        options = _find_options(branches)
        if isinstance(value, str) and value not in options:
            match = _TIME_VALUE.fullmatch(value)
            return self._check_text(name, value) if match is None else self._check_time(value, match)
        if isinstance(value, str):
            return self._check_option(branches, name, value, options)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return None if self.answers and value in options else self._check_number(value)
        return self._check_closed(branches, name, value)

    def _check_list(self, items: Any, name: str, values: Sequence[Any], depth: int) -> str | None:
        check = replace(self, answers=False, is_part=True)
        reasons = [check.run(items, name, value, depth + 1) for value in values]
        # "Köln und Wien" is trusted for two items, but "peanuts" is not trusted for another item.
        if self.answers and (all(reasons) or len(find_content(self.words)) >= len(values)):
            check = replace(check, answers=True)
            reasons = [check.run(items, name, value, depth + 1) for value in values]
        return next(filter(None, reasons), None)

    def _check_object(self, branches: Iterable[Mapping[str, Any]], value: Mapping[Any, Any], depth: int) -> str | None:
        parts: dict[str, Any] = {}
        for branch in branches:
            if isinstance(branch.get("properties"), Mapping):
                parts |= branch["properties"]
        # An answer such as "my sister" is not trusted for each value of the object.
        check = replace(self, answers=False, is_part=True)
        present = {str(name): each for name, each in value.items() if each is not None}
        reasons = {name: check.run(parts.get(name, {}), name, each, depth + 1) for name, each in present.items()}
        missing = {name: reason for name, reason in reasons.items() if reason is not None}
        # Most of an object may be understood from the context, but its codes and numbers are stated.
        has_numbers = bool(find_numbers(self.words))
        codes = [
            reason
            for name, reason in missing.items()
            if _is_code(present[name]) or (has_numbers and type(present[name]) in (int, float))
        ]
        if not reasons:
            return "the object contains no values"
        return next(iter((*codes, *missing.values()))) if codes or len(missing) * 2 > len(reasons) else None

    def _check_text(self, name: str, value: str) -> str | None:
        text, missing = _parse(value), f"the user's messages do not contain {_show(value)}"
        if not text.words:
            return None if value.strip() and value.strip() in self.source else missing
        is_name = any(word.endswith("name") or word in _NAME_WORDS for word in _split_name(name))
        if text.joined in _PLACEHOLDERS:
            is_denial = self.answers and not is_name and not self.quote.known.isdisjoint(_NEGATIONS)
            return None if is_denial or self.messages[0].contains(text.joined) else missing
        if is_name and (_is_greeting(text) or _is_sentence(text) or value.rstrip().endswith("?")):
            return f"{_show(value)} is no name"
        # The message with the words must contain the value: other messages may be about something else.
        quoting = [each for each in self.messages if each.contains(self.quote.joined)] or [_parse(self.source)]
        if any(message.contains(text.joined) for message in quoting):
            return None
        is_code = _is_code(value)
        codes = [text.joined] if is_code else [word for word in text.words if word.isdecimal()]
        if not all(self._contains_code(code) for code in codes):
            # "maya at example dot org"
            is_dictated = "@" in value and text.known <= self.quote.known
            return None if is_dictated and self.quote.contains_in_order(text.words, 1) else missing
        if is_code:
            return None
        plain = [word for word in text.words if not word.isdecimal()]
        significant = [word for word in plain if word not in _STOPWORDS and len(word) > 1 + is_name] or plain
        found = sum(_contains_word(quoting, word) for word in significant)
        if found >= (len(significant) if is_name else len(significant) / 2) or self._translates(text):
            return None
        return None if not is_name and self._paraphrases(text, has_words=found > 0) else missing

    def _translates(self, text: _Text) -> bool:
        """Whether the words are the same text in another script: an answer, or words that are about as short."""
        scripts, others = _find_scripts(self.quote.joined), _find_scripts(text.joined)
        if not scripts or not others or not scripts.isdisjoint(others):
            return False
        if self.answers or _states_nothing(self.quote):
            return self.answers
        has_words = UNSPACED.search(self.quote.joined + text.joined) is None
        is_long = has_words and len(self.quote.words) > len(text.words) + 1
        return not is_long and len(self.quote.joined) <= len(text.joined) + 4

    def _paraphrases(self, text: _Text, *, has_words: bool) -> bool:
        """Whether the words contain the initials of the text, or are an answer that is short or shares words."""
        initials, quote = "".join(word[0] for word in text.words), self.quote.joined
        if len(initials) > 1 and any(initials in (word, word[:-1]) for word in self.quote.words):
            return True
        is_short = len(self.quote.words) <= MAX_ANSWER_WORDS and len(quote) <= MAX_ANSWER_LENGTH
        is_denial = self.quote.known <= _NEGATIONS and text.known.isdisjoint(_NEGATIONS)
        if not self.answers or not (is_short or has_words) or is_denial or quote.isdecimal():
            return False
        clauses = [_parse(each) for each in (self.source, *_CLAUSE_END.split(self.source))]
        return any(each.contains(quote) and len(quote) * 2 >= len(each.joined) for each in clauses)

    def _contains_code(self, code: str) -> bool:
        if any(message.contains(code) for message in self.messages):
            return True
        results = compute_results(find_numbers(self.words, with_articles=True))
        if code.isdecimal() and len(code) < 7 and int(code) in results:
            return True
        # Digits may be spoken; zeros in front, the letters of an id and a country code may be omitted.
        numbers = load_vocabulary().numbers
        spoken = [f"{numbers[word]:g}" if word in numbers else word for word in self.quote.words]
        stated, wanted = ("".join(filter(str.isdecimal, each)).lstrip("0") for each in ("".join(spoken), code))
        letters = {word for word in _parse(code).words if not word.isdecimal()}
        if stated == wanted != "":
            return letters <= self.quote.known or (self.answers and all(map(str.isdecimal, spoken)))
        return len(stated) > 5 and not letters and wanted.endswith(stated) and len(wanted) - len(stated) < 4

    def _check_number(self, value: float) -> str | None:
        value, known = abs(value), self.quote.known
        stated = {one for each in find_numbers(self.words) for one in each}
        has_unit = not known.isdisjoint(load_vocabulary().units)  # "two weeks" may be 14 nights
        is_scaled = any(round(each * scale, 9) == value for each in stated for scale in _SCALES)
        if self.answers and (has_unit or is_scaled or not stated) and not known <= _NEGATIONS:
            return None
        is_addition = not known.isdisjoint(_ADDITIONS)
        numbers = find_numbers(self.words, with_articles=is_addition)
        if not numbers:  # the words may be only "guests" of "4 guests"
            numbers = [each for each in find_numbers(self.source) if value in each]
        results = {0.0} if not known.isdisjoint(_NEGATIONS) else set()
        results |= stated.union(*numbers) if self.is_part else compute_results(numbers)
        # "With my wife and two kids" includes the user, and "my family and two friends" has no certain sum.
        is_sum = is_addition and not self.is_part
        if value in results or (is_sum and (value - 1 in results or (self.answers and value > max(results)))):
            return None
        return f"the words {_show(self.words)} do not contain the number {value}"

    def _check_option(
        self, branches: Sequence[Mapping[str, Any]], name: str, value: str, options: Sequence[Any]
    ) -> str | None:
        missing = f"the words {_show(self.words)} do not name {_show(value)}"
        others = [each for each in options if each != value and isinstance(each, str)]
        shared = frozenset(_split_name(name))
        if others:
            shared |= frozenset.intersection(*(frozenset(_split_name(other)) for other in others))
        if self._names_option(value, shared, self.messages):
            return None
        if self.quote.known.isdisjoint(_NEGATIONS):
            named = next((other for other in others if self._names_option(other, shared, [self.quote])), None)
            if named is not None:
                return f"the words {_show(self.words)} name {_show(named)}, not {_show(value)}"
        described = [word for word in _split_name(value) if word not in shared]
        described += _describe_option(branches, value, others)
        return None if self.answers or self._find_about(described) else missing

    def _names_option(self, option: str, shared: Set[str], texts: Sequence[_Text]) -> bool:
        """Whether texts contain most words of an option, apart from those that it shares with the other options."""
        distinct = [word for word in _split_name(option) if word not in shared] or _split_name(option)
        if len(option) < 4 and not option.islower():  # "US" is not "us", and "A+" is not "A-"
            return re.search(rf"(?<!\w){re.escape(option)}(?!\w)", self.source) is not None
        # Short words have other meanings, so they must be in the quote.
        found = sum(_contains_word(texts if len(word) > 3 else [self.quote], word) for word in distinct)
        return found > 0 and found * 2 > len(distinct)

    def _check_closed(self, branches: Sequence[Mapping[str, Any]], name: str, value: Any) -> str | None:
        texts = [name, *(str(branch.get(key, "")) for branch in branches for key in ("title", "description"))]
        stems = [word for text in texts for word in _split_name(text)]
        words, about = _parse(self.source).words, self._find_about(stems)
        is_denied = all(not _NEGATIONS.isdisjoint(words[max(0, at - 2) : at]) for at in about)
        if value is True and about and is_denied and _NEGATIONS.isdisjoint(stems):  # "not a student"
            return f"the words {_show(self.words)} deny {name}"
        return None if self.answers or about else f"the words {_show(self.words)} are not about {name}"

    def _find_about(self, stems: Iterable[str]) -> list[int]:
        """Find the positions of the quoted words that have one of the stems."""
        words, stems = enumerate(_parse(self.source).words), set(stems) - _STOPWORDS
        quoted = self.quote.known - _STOPWORDS
        return [at for at, word in words if word in quoted and any(_is_similar(stem, word) for stem in stems)]

    def _check_time(self, value: str, match: re.Match[str]) -> str | None:
        missing = f"the words {_show(self.words)} do not contain the time {value}"
        if _parse(self.source).contains(_parse(value).joined):
            return None
        if _is_greeting(self.quote) or _is_refusal(self.quote):
            return missing
        digits = re.findall("[0-9]{1,9}", _COMPACT_DATE.sub(r"\1 \2 \3", fold_text(self.words)))
        numbers = {float(each) for each in digits} | {one for each in find_numbers(self.words) for one in each}
        if match["year"] is None:
            return None if self._supports_clock(numbers, int(match["hour"]), int(match["minute"])) else missing
        day = None if match["day"] is None else int(match["day"])
        return None if self._supports_date(numbers, int(match["year"]), int(match["month"]), day) else missing

    def _supports_clock(self, numbers: Set[float], hour: int, minute: int) -> bool:
        vocabulary = load_vocabulary()
        hours = {each // 100 if each > 99 else each for each in numbers}
        # "Quarter to seven" and "halb acht" name the next hour, unlike "half past seven" and "7:30".
        is_before = minute > 0 and minute not in numbers and "past" not in self.quote.known
        if any((hour - each + step) % 12 == 0 for each in hours for step in (0, 1)[: 1 + is_before]):
            return True
        is_relative = not self.quote.known.isdisjoint(vocabulary.units | vocabulary.clock)
        return is_relative or (self.answers and not numbers and not self.quote.known <= _NEGATIONS)

    def _supports_date(self, numbers: Set[float], year: int, month: int, day: int | None) -> bool:
        vocabulary, known, words = load_vocabulary(), self.quote.known, fold_text(self.words)
        months = {vocabulary.months[word] for word in known & vocabulary.months.keys()}
        is_relative = not known.isdisjoint(vocabulary.relative) or any(each in words for each in UNSPACED_DAYS)
        if not (numbers or months or is_relative):
            days = vocabulary.relative | vocabulary.months.keys()
            is_relative = any(_is_typo(word, day) for word in known if len(word) > 5 for day in days)
        has_day = day in numbers or day is None or (day == 1 and not any(1 <= each <= 31 for each in numbers))
        years = {each for each in numbers if 1000 <= each <= 2999}
        if known.isdisjoint(vocabulary.units):  # not "two weeks after 17 May"
            if (years and year not in years) or (months and month not in months):
                return False
            if _FULL_DATE.search(words) and not (has_day and month in numbers and numbers & {year, year % 100}):
                return False
        if not is_relative and not (has_day and (months or numbers)):
            return False
        is_near = abs(year * 12 + month - self.today.year * 12 - self.today.month) <= MAX_MONTHS
        return is_near or year in years or year % 100 in numbers | compute_results(find_numbers(self.words))


_TIME_VALUE = re.compile(
    r"(?=[0-9])(?:(?P<year>[0-9]{4})-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?)?"
    r"(?:(?:^|[T ])(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_FULL_DATE = re.compile(r"[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{2}")
_COMPACT_DATE = re.compile(r"\b([0-9]{2})([0-9]{2})([0-9]{4})\b")


def _contains_word(texts: Sequence[_Text], word: str) -> bool:
    """Whether a text contains the word or a similar one, or most characters of a word without spaces around it."""
    if any(word in text.known for text in texts):
        return True
    if UNSPACED.search(word):
        return any(sum(letter in text.joined for letter in word) * 2 > len(word) for text in texts)
    return any(_is_similar(word, other) for text in texts for other in text.known)


def _find_scripts(text: str) -> set[str]:
    return {unicodedata.name(each, "").split(" ")[0] for each in text if each.isalpha()}


def _is_code(value: Any) -> bool:
    """Whether a text is an email address, an id or a phone number, which nobody paraphrases."""
    if not isinstance(value, str) or _TIME_VALUE.fullmatch(value):
        return False
    return "@" in value or all(any(map(str.isdecimal, part)) for part in value.split())


def _branches(schema: Any, definitions: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and the schemas that it refers to or is composed of."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return
    yield schema
    for key in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(key)
        for part in parts if isinstance(parts, list | tuple) else ():
            yield from _branches(part, definitions, depth + 1)
    if isinstance(schema.get("$ref"), str):
        yield from _branches(definitions.get(schema["$ref"].rpartition("/")[2]), definitions, depth + 1)


def _find_options(branches: Iterable[Mapping[str, Any]]) -> list[Any]:
    options = ([*branch.get("enum", ()), *([branch["const"]] if "const" in branch else ())] for branch in branches)
    return [option for each in options for option in each]


def _describe_option(branches: Iterable[Mapping[str, Any]], value: str, others: Iterable[str]) -> list[str]:
    """Return the words of the descriptions that are about one option, up to the next option."""
    next_option = "|".join(rf"\b{re.escape(other)}\b" for other in others)
    own = re.compile(rf"\b{re.escape(value)}\b.*?(?={next_option or '$'}|$)", re.IGNORECASE | re.DOTALL)
    found: list[str] = []
    for branch in branches:
        title, description = (str(branch.get(key, "")) for key in ("title", "description"))
        found += [title, description] if branch.get("const") == value else own.findall(description)
    return [word for text in found for word in _split_name(text)]


@functools.lru_cache(maxsize=512)
def _split_name(name: str) -> tuple[str, ...]:
    """Split a name such as `bookingReference` or `one_way` into words."""
    return _parse(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)).words


def _is_typo(word: str, other: str) -> bool:
    """Whether two words are equal, or long and nearly equal. Digits have no typos."""
    if word == other:
        return True
    if min(len(word), len(other)) < 4 or abs(len(word) - len(other)) > 2 or word[0] != other[0] or word.isdecimal():
        return False
    matcher = SequenceMatcher(None, word, other, autojunk=False)
    return matcher.quick_ratio() >= 0.75 and matcher.ratio() >= 0.75


def _is_similar(word: str, other: str) -> bool:
    """Whether two words are equal, or have the same stem, or one is a typo of the other."""
    if word[:3] == other[:3]:
        shorter, longer = sorted((len(word), len(other)))
        prefix = next((at for at in range(shorter) if word[at] != other[at]), shorter)
        if prefix >= 7 or (prefix == shorter == 3 and longer == 4):
            return True
        if prefix >= 3 and longer - prefix <= 3 and shorter - prefix <= min(prefix - 2, 2) and shorter > 3:
            return True
    return _is_typo(word, other)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
