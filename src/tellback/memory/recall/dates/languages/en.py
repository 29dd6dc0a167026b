"""English."""

from __future__ import annotations

from tellback.memory.recall.dates.languages.table import build_language, count_names, number_names

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
            "minute": ("minute", 1, False),
            "minutes": ("minute", 1, True),
            "hour": ("hour", 1, False),
            "hours": ("hour", 1, True),
            "day": ("day", 1, False),
            "days": ("day", 1, True),
            "week": ("week", 1, False),
            "weeks": ("week", 1, True),
            "fortnight": ("week", 2, False),
            "fortnights": ("week", 2, True),
            "month": ("month", 1, False),
            "months": ("month", 1, True),
            "half_a_year": ("month", 6, False),
            "quarter": ("quarter", 1, False),
            "quarters": ("quarter", 1, True),
            "year": ("year", 1, False),
            "years": ("year", 1, True),
            "decade": ("decade", 1, False),
            "decades": ("decade", 1, True),
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
        "H": {
            "christmas christmas_day xmas xmas_day": "christmas",
            "christmas_eve xmas_eve": "christmas eve",
            "boxing_day": "boxing day",
            "new_year_eve new_years_eve": "new year's eve",
            "new_year_day new_years_day new_years new_year": "new year",
            "halloween": "halloween",
            "valentine_day valentines_day valentines": "valentine's day",
            "thanksgiving thanksgiving_day": "thanksgiving",
            "black_friday": "black friday",
            "easter easter_sunday": "easter",
            "easter_monday": "easter monday",
            "good_friday": "good friday",
            "independence_day": "independence day",
            "mother_day mothers_day": "mother's day",
            "father_day fathers_day": "father's day",
            "labor_day labour_day": "labor day",
            "memorial_day": "memorial day",
            "st_patrick_day saint_patrick_day st_patricks_day": "st patrick's day",
        },
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
    past_verbs=r"\b(?:\w\w+ed|was|were|did|got|had|lost|ran|read|wrote|made|built|went|took|came|grew|learnt|saw|became|won"
    r"|drove|sold|been)\b",
    when_pattern=r"when(?:['\u2019]s| (?:did|do|does|was|were|is|are|am|will|would|had|has|have|can|could|should|shall)\b)"
    r"|when(?= *(?:$|[?!.]))"
    r"|(?:know|tell me|tell us|remember|recall|remind me|exactly|since|until|idea|sure) when\b"
    r"|(?:what|which)(?:['\u2019]s| is| was)?(?: the)?(?: exact| specific)?"
    r" (?:date|day|month|year|time|week|weekend|season|decade|hour)\b"
    r"|the (?:date|day|month|year) (?:of|when|that)\b"
    r"|how (?:long ago|recently|long (?:has|had) it been|long (?:since|until))\b"
    r"|how many (?:days|weeks|weekends|months|years|hours) (?:ago|since|until|before|after|passed|have passed)\b",
    latest_pattern=r"(?<!from )now\b(?! and then)|currently\b|current\b|latest\b|newest\b|most recent|recent(?:ly)?\b|lately\b"
    r"|nowadays\b|these days\b|presently\b|at present\b|at the moment\b|any ?more\b|still\b|last time\b|up to date\b"
    r"|(?:did|have|has|had|do|does|was|were) (?:\w+ ){1,3}?last (?!(?:week|month|year|night|summer|winter|spring|fall"
    r"|autumn|mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|evening|christmas|quarter|few"
    r"|two|three|[0-9]))",
    first_pattern=r"originally\b|initially\b|earliest\b|at first\b|to begin with\b|in the beginning\b"
    r"|first\b(?! (?:name|names|aid|floor|class|quarter|half|of|language|lady|week|day|month|grade|person|mon|tue|wed"
    r"|thu|fri|sat|sun))",
)
