"""Time expressions resolve to the expected spans, relative to a reference time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.memory.recall.dates.calendar import DAY, TimeSpan, civil_date, day_number, easter, nth_weekday, weekday
from tellback.memory.recall.dates.parser import parse_time_spans
from tellback.memory.recall.dates.vocabulary import LANGUAGES
from tellback.types.ids import as_utc, from_micros, to_micros

WEDNESDAY = "2023-06-14T15:30"


def to_micros_of(moment: str) -> int:
    """Return the microseconds of a date, or of a date and a time, in UTC."""
    return to_micros(as_utc(f"{moment}:00Z" if "T" in moment else f"{moment}T00:00:00Z"))


def format_span(span: TimeSpan) -> str:
    """Format start, end and precision, as short as possible."""
    start, end = (from_micros(each).isoformat()[:16].removesuffix("T00:00") for each in (span.start, span.end))
    one_day = span.end - span.start == DAY and len(start) == 10
    return f"{start if one_day else f'{start} {end}'} {span.precision}"


def parse(text: str, now: str = WEDNESDAY) -> list[str]:
    return [format_span(span) for span in parse_time_spans(text, to_micros_of(now))]


NAMED_DAYS = [
    ("today", "2023-06-14 day"),
    ("yesterday", "2023-06-13 day"),
    ("What did I eat the day before yesterday?", "2023-06-12 day"),
    ("tomorrow", "2023-06-15 day"),
    ("the day after tomorrow", "2023-06-16 day"),
    ("tonight", "2023-06-14T18:00 2023-06-15 hour"),
    ("this morning", "2023-06-14T06:00 2023-06-14T12:00 hour"),
    ("last night", "2023-06-13T18:00 2023-06-14 hour"),
    ("the night before last", "2023-06-12T18:00 2023-06-13 hour"),
    ("yesterday afternoon", "2023-06-13T12:00 2023-06-13T18:00 hour"),
    ("yesterday's match", "2023-06-13 day"),
    ("earlier today", "2023-06-14 day"),
]

SO_MANY_AGO = [
    ("two days ago", "2023-06-12 day"),
    ("3 days back", "2023-06-11 day"),
    ("10 days earlier", "2023-06-04 day"),
    ("twenty-one days ago", "2023-05-24 day"),
    ("a week ago", "2023-06-05 2023-06-12 week"),
    ("a couple of weeks ago", "2023-05-29 2023-06-05 week"),
    ("a fortnight ago", "2023-05-29 2023-06-05 week"),
    ("two weekends ago", "2023-06-03 2023-06-05 weekend"),
    ("one month ago", "2023-05-01 2023-06-01 month"),
    ("a few months ago", "2023-01-01 2023-05-01 range"),
    ("five years ago", "2018-01-01 2019-01-01 year"),
    ("two and a half years ago", "2020-12-01 2021-01-01 month"),
    ("half a year ago", "2022-12-01 2023-01-01 month"),
    ("two decades ago", "2000-01-01 2010-01-01 range"),
    ("an hour ago", "2023-06-14T14:00 2023-06-14T15:00 hour"),
    ("20 minutes ago", "2023-06-14T15:00 2023-06-14T16:00 hour"),
    ("two Fridays ago", "2023-06-02 day"),
    ("I knew her years ago", "2013-01-01 2022-01-01 range"),
    ("I see him again in 3 days", "2023-06-17 day"),
    ("in two weeks", "2023-06-26 2023-07-03 week"),
    ("2 weeks from now", "2023-06-26 2023-07-03 week"),
    ("six months from now", "2023-12-01 2024-01-01 month"),
    ("three weeks from Friday", "2023-07-03 2023-07-10 week"),
]

LAST_THIS_NEXT = [
    ("last week", "2023-06-05 2023-06-12 week"),
    ("this week", "2023-06-12 2023-06-19 week"),
    ("next week", "2023-06-19 2023-06-26 week"),
    ("the week before last", "2023-05-29 2023-06-05 week"),
    ("the week after next", "2023-06-26 2023-07-03 week"),
    ("the past week", "2023-06-07 2023-06-15 range"),
    ("last weekend", "2023-06-10 2023-06-12 weekend"),
    ("this past weekend", "2023-06-10 2023-06-12 weekend"),
    ("this weekend", "2023-06-17 2023-06-19 weekend"),
    ("the coming weekend", "2023-06-17 2023-06-19 weekend"),
    ("next weekend", "2023-06-24 2023-06-26 weekend"),
    ("over the weekend", "2023-06-10 2023-06-12 weekend"),
    ("last month", "2023-05-01 2023-06-01 month"),
    ("next month", "2023-07-01 2023-08-01 month"),
    ("last year", "2022-01-01 2023-01-01 year"),
    ("this year", "2023-01-01 2024-01-01 year"),
    ("last quarter", "2023-01-01 2023-04-01 range"),
    ("last Friday", "2023-06-09 day"),
    ("last Wednesday", "2023-06-07 day"),
    ("next Friday", "2023-06-16 day"),
    ("next Wednesday", "2023-06-21 day"),
    ("this Friday", "2023-06-16 day"),
    ("this Monday", "2023-06-12 day"),
    ("this past Monday", "2023-06-12 day"),
    ("this coming Friday", "2023-06-16 day"),
    ("the Friday before last", "2023-06-02 day"),
    ("last Friday night", "2023-06-09T18:00 2023-06-10 hour"),
    ("last fri", "2023-06-09 day"),
    ("Friday last week", "2023-06-09 day"),
    ("Monday of last week", "2023-06-05 day"),
    ("next week on Tuesday", "2023-06-20 day"),
    ("last May", "2023-05-01 2023-06-01 month"),
    ("last June", "2022-06-01 2022-07-01 month"),
    ("this June", "2023-06-01 2023-07-01 month"),
    ("next May", "2024-05-01 2024-06-01 month"),
    ("next June", "2024-06-01 2024-07-01 month"),
    ("next July", "2023-07-01 2023-08-01 month"),
    ("the May before last", "2022-05-01 2022-06-01 month"),
    ("last summer", "2022-06-01 2022-09-01 season"),
    ("this summer", "2023-06-01 2023-09-01 season"),
    ("last fall", "2022-09-01 2022-12-01 season"),
    ("next spring", "2024-03-01 2024-06-01 season"),
    ("last winter", "2022-12-01 2023-03-01 season"),
    ("the summer before last", "2021-06-01 2021-09-01 season"),
    ("last Christmas", "2022-12-25 day"),
    ("the past three weeks", "2023-05-24 2023-06-15 range"),
    ("the last two weekends", "2023-06-03 2023-06-12 range"),
    ("in the last 24 hours", "2023-06-13T15:30 2023-06-14T15:30 range"),
    ("the next two days", "2023-06-15 2023-06-17 range"),
    ("earlier this week", "2023-06-12 2023-06-14T15:30 range"),
    ("later this year", "2023-06-14T15:30 2024-01-01 range"),
    ("a while ago", "2022-12-16 2023-06-14T15:30 range"),
    ("not too long ago", "2023-04-15 2023-06-14T15:30 range"),
    ("recently", "2023-05-15 2023-06-14T15:30 range"),
    ("We met the other day", "2023-06-07 2023-06-14T15:30 range"),
]

DATES = [
    ("in May", "2023-05-01 2023-06-01 month"),
    ("in June", "2023-06-01 2023-07-01 month"),
    ("in July", "2022-07-01 2022-08-01 month"),
    ("what did i do in may", "2023-05-01 2023-06-01 month"),
    ("I loved May in Rome", "2023-05-01 2023-06-01 month"),
    ("May 2023", "2023-05-01 2023-06-01 month"),
    ("the May of 2021", "2021-05-01 2021-06-01 month"),
    ("May '22", "2022-05-01 2022-06-01 month"),
    ("May last year", "2022-05-01 2022-06-01 month"),
    ("last year in May", "2022-05-01 2022-06-01 month"),
    ("Sept 2021", "2021-09-01 2021-10-01 month"),
    ("8 May", "2023-05-08 day"),
    ("8 July", "2022-07-08 day"),
    ("May 8th", "2023-05-08 day"),
    ("May 8, 2023", "2023-05-08 day"),
    ("May 8, 2023, in the rain", "2023-05-08 day"),
    ("8 May 2023", "2023-05-08 day"),
    ("the 8th of May, 2023", "2023-05-08 day"),
    ("the eighth of May", "2023-05-08 day"),
    ("the twenty-third of May", "2023-05-23 day"),
    ("Monday, 8 May 2023", "2023-05-08 day"),
    ("Dec. 25, 2022", "2022-12-25 day"),
    ("8 may 2021", "2021-05-08 day"),
    ("march 5th", "2023-03-05 day"),
    ("29 February", "2020-02-29 day"),
    ("on the 10th", "2023-06-10 day"),
    ("on the 31st", "2023-05-31 day"),
    ("2023-05-08", "2023-05-08 day"),
    ("2023-05-08T10:00:00Z", "2023-05-08 day"),
    ("2023/05/08", "2023-05-08 day"),
    ("2023-05", "2023-05-01 2023-06-01 month"),
    ("05/08/2023", "2023-05-08 day"),
    ("25/08/2022", "2022-08-25 day"),
    ("5/8/23", "2023-05-08 day"),
    ("8.5.2023", "2023-05-08 day"),
    ("2023", "2023-01-01 2024-01-01 year"),
    ("in 2021", "2021-01-01 2022-01-01 year"),
    ("my 2021 diary was lost in the 2022 flood", "2022-01-01 2023-01-01 year"),
    ("the 90s", "1990-01-01 2000-01-01 range"),
    ("the '80s", "1980-01-01 1990-01-01 range"),
    ("in the 1960s", "1960-01-01 1970-01-01 range"),
    ("Q3 2024", "2024-07-01 2024-10-01 range"),
    ("the first quarter of 2024", "2024-01-01 2024-04-01 range"),
    ("the third quarter of last year", "2022-07-01 2022-10-01 range"),
]

SEASONS_AND_HOLIDAYS = [
    ("the summer of 2022", "2022-06-01 2022-09-01 season"),
    ("Summer '69", "1969-06-01 1969-09-01 season"),
    ("in the fall", "2022-09-01 2022-12-01 season"),
    ("in spring", "2023-03-01 2023-06-01 season"),
    ("winter 2022", "2022-12-01 2023-03-01 season"),
    ("over the summer", "2023-06-01 2023-09-01 season"),
    ("Christmas", "2022-12-25 day"),
    ("Christmas 2020", "2020-12-25 day"),
    ("Christmas Eve last year", "2022-12-24 day"),
    ("New Year's Eve", "2022-12-31 day"),
    ("New Year\u2019s Eve 2019", "2019-12-31 day"),
    ("Halloween", "2022-10-31 day"),
    ("Valentine's Day", "2023-02-14 day"),
    ("Thanksgiving", "2022-11-24 day"),
    ("Thanksgiving 2021", "2021-11-25 day"),
    ("Black Friday", "2022-11-25 day"),
    ("Easter 2024", "2024-03-31 day"),
    ("Mother's Day", "2023-05-14 day"),
]

PARTS = [
    ("mid-July", "2022-07-11 2022-07-21 range"),
    ("early June", "2023-06-01 2023-06-11 range"),
    ("late June", "2022-06-21 2022-07-01 range"),
    ("late may", "2023-05-21 2023-06-01 range"),
    ("the end of August", "2022-08-21 2022-09-01 range"),
    ("the beginning of May 2021", "2021-05-01 2021-05-11 range"),
    ("early 2022", "2022-01-01 2022-05-01 range"),
    ("late last year", "2022-09-01 2023-01-01 range"),
    ("the second half of 2021", "2021-07-01 2022-01-01 range"),
    ("the mid-90s", "1993-05-01 1996-09-01 range"),
    ("the end of the month", "2023-06-21 2023-07-01 range"),
    ("late yesterday", "2023-06-13 day"),
    ("the first week of May", "2023-05-01 2023-05-08 week"),
    ("the last week of May 2022", "2022-05-25 2022-06-01 week"),
    ("the first Monday of June", "2023-06-05 day"),
    ("the last Friday of last month", "2023-05-26 day"),
    ("the second Tuesday in March", "2023-03-14 day"),
    ("the last weekend of May", "2023-05-27 2023-05-29 weekend"),
]

RANGES = [
    ("between May and July", "2022-05-01 2022-08-01 range"),
    ("between May and July 2021", "2021-05-01 2021-08-01 range"),
    ("between May and July (2023)", "2023-05-01 2023-08-01 range"),
    ("between may and july", "2022-05-01 2022-08-01 range"),
    ("from November to February", "2022-11-01 2023-03-01 range"),
    ("from May 2021 to February", "2021-05-01 2022-03-01 range"),
    ("from 3 to 9 May", "2023-05-03 2023-05-10 range"),
    ("3-9 May 2022", "2022-05-03 2022-05-10 range"),
    ("May 3\u20139", "2023-05-03 2023-05-10 range"),
    ("between 3 and 9 May", "2023-05-03 2023-05-10 range"),
    ("from May 3rd to June 2nd", "2023-05-03 2023-06-03 range"),
    ("from Monday to Friday", "2023-06-05 2023-06-10 range"),
    ("from 2019 until 2021", "2019-01-01 2022-01-01 range"),
    ("2019-2021", "2019-01-01 2022-01-01 range"),
    ("2023-05-08 to 2023-05-10", "2023-05-08 2023-05-11 range"),
    ("since March", "2023-03-01 2023-06-14T15:30 range"),
    ("since two weeks ago", "2023-05-29 2023-06-14T15:30 range"),
    ("since 2020", "2020-01-01 2023-06-14T15:30 range"),
    ("before May 2023", "1823-05-02 2023-05-01 range"),
    ("the years before 2020", "1820-01-02 2020-01-01 range"),
    ("after Christmas", "2022-12-26 2023-06-14T15:30 range"),
    ("after next week", "2023-06-26 2223-06-26 range"),
    ("until May", "1823-05-02 2023-06-01 range"),
    ("until next Friday", "2023-06-14T15:30 2023-06-17 range"),
    ("by Friday", "2023-06-14T15:30 2023-06-17 range"),
]

DEPENDENT = [
    ("the weekend before 8 May 2023", "2023-05-06 2023-05-08 weekend"),
    ("the weekend before 7 May 2023", "2023-04-29 2023-05-01 weekend"),
    ("the weekend after 20 May 2023", "2023-05-27 2023-05-29 weekend"),
    ("the weekend after 19 May 2023", "2023-05-20 2023-05-22 weekend"),
    ("the weekend of 19 May 2023", "2023-05-20 2023-05-22 weekend"),
    ("two weekends before 20 May 2023", "2023-05-06 2023-05-08 weekend"),
    ("the week of 10 May", "2023-05-08 2023-05-15 week"),
    ("the week before 10 May", "2023-05-01 2023-05-08 week"),
    ("the week after 10 May", "2023-05-15 2023-05-22 week"),
    ("the Friday before 20 May 2023", "2023-05-19 day"),
    ("the Friday before 19 May 2023", "2023-05-12 day"),
    ("the Sunday after 21 May 2023", "2023-05-28 day"),
    ("the month before May 2023", "2023-04-01 2023-05-01 month"),
    ("the month of May", "2023-05-01 2023-06-01 month"),
    ("the year before 2020", "2019-01-01 2020-01-01 year"),
    ("3 days after Christmas", "2022-12-28 day"),
    ("two weeks before 8 May 2023", "2023-04-24 2023-05-01 week"),
    ("a few days before Christmas", "2022-12-20 2022-12-24 range"),
    ("the day after Thanksgiving 2022", "2022-11-25 day"),
    ("the night before Christmas", "2022-12-24T18:00 2022-12-25 hour"),
    ("the morning of May 8", "2023-05-08T06:00 2023-05-08T12:00 hour"),
    ("two days before the Friday before 20 May 2023", "2023-05-17 day"),
]

FUTURE = [
    ("Where will I go in May?", "2024-05-01 2024-06-01 month"),
    ("What am I going to do in June?", "2023-06-01 2023-07-01 month"),
    ("What do I plan for Christmas?", "2023-12-25 day"),
    ("We'll meet on Friday", "2023-06-16 day"),
    ("I\u2019ll be there on Friday", "2023-06-16 day"),
    ("We're going camping in July", "2023-07-01 2023-08-01 month"),
    ("She's going away in July", "2023-07-01 2023-08-01 month"),
    ("Were you going away in July?", "2022-07-01 2022-08-01 month"),
    ("She will come on the 10th", "2023-07-10 day"),
    ("I hope to be done by early June", "2023-06-14T15:30 2024-06-11 range"),
    ("What did Will do in July?", "2022-07-01 2022-08-01 month"),
    ("I swam in May. I will run.", "2023-05-01 2023-06-01 month"),
]

GERMAN = [
    ("Was habe ich gestern gemacht?", "2023-06-13 day"),
    ("vorgestern", "2023-06-12 day"),
    ("letzte Woche", "2023-06-05 2023-06-12 week"),
    ("letztes Wochenende", "2023-06-10 2023-06-12 weekend"),
    ("vor zwei Wochen", "2023-05-29 2023-06-05 week"),
    ("vor einem Jahr", "2022-01-01 2023-01-01 year"),
    ("letzten Mai", "2023-05-01 2023-06-01 month"),
    ("im August", "2022-08-01 2022-09-01 month"),
    ("im Jahr 2023", "2023-01-01 2024-01-01 year"),
    ("am 8. Mai 2023 im Regen", "2023-05-08 day"),
    ("vom 3. bis 9. Mai", "2023-05-03 2023-05-10 range"),
    ("am Freitag, dem 05/08/2022", "2022-08-05 day"),
    ("seit März", "2023-03-01 2023-06-14T15:30 range"),
    ("Ende letzten Jahres", "2022-09-01 2023-01-01 range"),
    ("zwei Wochen vor Weihnachten", "2022-12-05 2022-12-12 week"),
    ("nächsten Freitag", "2023-06-16 day"),
]

SPANISH = [
    ("¿Qué hice ayer?", "2023-06-13 day"),
    ("anteayer", "2023-06-12 day"),
    ("la semana pasada", "2023-06-05 2023-06-12 week"),
    ("el fin de semana pasado", "2023-06-10 2023-06-12 weekend"),
    ("hace dos semanas", "2023-05-29 2023-06-05 week"),
    ("el mayo pasado", "2023-05-01 2023-06-01 month"),
    ("en mayo", "2023-05-01 2023-06-01 month"),
    ("en 2023", "2023-01-01 2024-01-01 year"),
    ("el 8 de mayo de 2023", "2023-05-08 day"),
    ("el lunes pasado", "2023-06-12 day"),
    ("el próximo lunes", "2023-06-19 day"),
    ("el verano pasado", "2022-06-01 2022-09-01 season"),
    ("a finales de agosto", "2022-08-21 2022-09-01 range"),
    ("entre mayo y julio de 2022", "2022-05-01 2022-08-01 range"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *NAMED_DAYS,
        *SO_MANY_AGO,
        *LAST_THIS_NEXT,
        *DATES,
        *SEASONS_AND_HOLIDAYS,
        *PARTS,
        *RANGES,
        *DEPENDENT,
        *FUTURE,
        *GERMAN,
        *SPANISH,
    ],
)
def test_expressions_relative_to_a_wednesday_in_june(text: str, expected: str) -> None:
    assert parse(text)[-1:] == [expected]


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("last May", "2023-05-20", "2022-05-01 2022-06-01 month"),
        ("last May", "2023-02-10", "2022-05-01 2022-06-01 month"),
        ("in May", "2023-05-01", "2023-05-01 2023-06-01 month"),
        ("this weekend", "2023-06-18", "2023-06-17 2023-06-19 weekend"),
        ("last weekend", "2023-06-18", "2023-06-10 2023-06-12 weekend"),
        ("at the weekend", "2023-06-17", "2023-06-17 2023-06-19 weekend"),
        ("the coming weekend", "2023-06-17", "2023-06-24 2023-06-26 weekend"),
        ("last week", "2023-01-02", "2022-12-26 2023-01-02 week"),
        ("last month", "2023-01-31", "2022-12-01 2023-01-01 month"),
        ("the past month", "2023-03-31", "2023-02-28 2023-04-01 range"),
        ("this winter", "2023-02-10", "2022-12-01 2023-03-01 season"),
        ("this winter", "2023-10-10", "2023-12-01 2024-03-01 season"),
        ("last winter", "2023-02-10", "2021-12-01 2022-03-01 season"),
        ("the 20s", "2019-06-01", "1920-01-01 1930-01-01 range"),
        ("the 20s", "2023-06-01", "2020-01-01 2030-01-01 range"),
        ("Christmas", "2023-12-25", "2023-12-25 day"),
        ("last Christmas", "2023-12-25", "2022-12-25 day"),
        ("29 February", "2024-02-29", "2024-02-29 day"),
        ("three months ago", "2023-01-31", "2022-10-01 2022-11-01 month"),
        ("tomorrow", "2023-12-31", "2024-01-01 day"),
    ],
)
def test_the_meaning_depends_on_the_reference_time(text: str, now: str, expected: str) -> None:
    assert parse(text, now) == [expected]


NO_TIMES = """
It may rain, she said.
May I ask you something?
You may well be right, and they might too.
This may be wrong.
MAY THE BEST ONE WIN
5 may come and 8 may go home.
We march for peace. They march on and on.
I decided to march to the office.
The sun was out and I sat there.
The Sun was bright.
They wed in secret.
I will fall in love with a spring in my step.
The fall of the wall was a spring board.
He came second in the race. Just a second!
I wrote 2023 words.
It cost $2023 and 2023 people came.
We stayed in room 2023 of the hotel.
I read 1984 and loved it.
We play Cyberpunk 2077.
He is in his 30s, and she is 25 years old.
One day we shall see.
The next day we left, on the last day they came.
At the end of the day, what a day it was!
He runs every Monday and swims each July.
On Mondays we swim, and I love weekends.
Once a week, five days a week, three times a year.
I finished it in two days.
I saw her for the first time in two years.
It took 3 hours and lasted for two weeks.
The ratio is 3/4 or 9.5, at 10:30.
Call 555-12-3456, or 192.168.1.1, with version 1.2.3.
The mayor had no mayo.
We go back home to the 5th floor.
A quarter past nine, a quarter of a mile.
99999999999999999999 days ago
2023-13-45 or 31/02/2023 or 2023-00
Tag me if the die is cast.
Guten Morgen, schreibt er am Morgen.
Me levanto por la mañana.

👩‍👩‍👧 ¡¿ … ' \u2019 _ \\ ٣ ² Ⅻ
"""


@pytest.mark.parametrize("text", NO_TIMES.strip("\n").split("\n"))
def test_ordinary_words_are_not_dates(text: str) -> None:
    assert parse(text) == []


def test_each_span_of_a_text_has_its_own_words() -> None:
    spans = parse_time_spans(
        "I moved to Lisbon in March, then last week to Porto; by then (since 2021!) I cooked.", to_micros_of(WEDNESDAY)
    )
    assert [span.text for span in spans] == ["March", "last week", "since 2021"]


def test_span_words_are_exact_even_if_lowercasing_changes_the_length() -> None:
    spans = parse_time_spans("İİİ said: we met LAST Friday, ok?", to_micros_of(WEDNESDAY))
    assert [span.text for span in spans] == ["LAST Friday"]


def test_a_stored_text_is_parsed_relative_to_its_own_date() -> None:
    stated_at = to_micros_of("2021-03-10T09:00")
    assert [format_span(span) for span in parse_time_spans("I saw Noor last Friday", stated_at)] == ["2021-03-05 day"]
    assert [format_span(span) for span in parse_time_spans("I bought it last May", stated_at)] == [
        "2020-05-01 2020-06-01 month"
    ]


YEAR_1, YEAR_10000 = day_number(1) * DAY, day_number(10_000) * DAY
MOMENTS = st.integers(YEAR_1, YEAR_10000 - 1) | st.integers()
WORDS = st.sampled_from(
    sorted({word for language in LANGUAGES.values() for word in language.words})
    + """May Monday Sun 8 31 29 8th 2023 1999 99 0 999999 '22 the '90s 90s 2023-05-08 05/08/2023 2023-05 3-9 2019-2021
    new year's eve day before yesterday a couple of half , . - \u2013 ( ) ? & # $ % from now and a half""".split()  # noqa: SIM905
)


def check(text: str, now: int) -> None:
    for span in parse_time_spans(text, now):
        assert YEAR_1 <= span.start < span.end <= YEAR_10000
        assert span.text
        assert span.text in text


@given(st.text(), MOMENTS)
def test_no_text_raises_an_error(text: str, now: int) -> None:
    check(text, now)


@settings(max_examples=1_000)
@given(st.lists(WORDS, max_size=14).map(" ".join), MOMENTS)
def test_no_mix_of_vocabulary_words_raises_or_returns_an_empty_span(text: str, now: int) -> None:
    check(text, now)


@given(st.text(alphabet="0123456789-/.\u2013'stndrh ", max_size=40), MOMENTS)
def test_no_sequence_of_digits_raises_an_error(text: str, now: int) -> None:
    check(text, now)


@given(st.dates(), MOMENTS)
def test_a_full_date_means_that_day_at_any_reference_time(date: object, now: int) -> None:
    text = f"it was on {date}"
    (span,) = parse_time_spans(text, now)
    assert (format_span(span), span.text) == (f"{date} day", str(date))


@given(st.dates(), st.integers(0, 6))
def test_last_and_next_weekdays_are_at_most_a_week_away(today: object, number: int) -> None:
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    now = to_micros_of(str(today))
    for word, sign in (("last", -1), ("next", 1)):
        for span in parse_time_spans(f"{word} {names[number]}", now):
            days = (span.start - now) // DAY
            assert 1 <= days * sign <= 7
            assert weekday(span.start // DAY) == number


@given(st.integers(-2_000_000, 3_000_000))
def test_day_numbers_and_dates_convert_back_and_forth(day: int) -> None:
    assert day_number(*civil_date(day)) == day


@given(st.dates())
def test_the_calendar_matches_the_standard_library(date: object) -> None:
    import datetime

    assert isinstance(date, datetime.date)
    day = day_number(date.year, date.month, date.day)
    assert day == date.toordinal() - datetime.date(1970, 1, 1).toordinal()
    assert weekday(day) == date.weekday()


def test_movable_holidays_are_computed() -> None:
    assert [civil_date(easter(year))[1:] for year in (2000, 2019, 2024, 2038)] == [(4, 23), (4, 21), (3, 31), (4, 25)]
    assert civil_date(nth_weekday(2023, 5, 0, -1)) == (2023, 5, 29)
