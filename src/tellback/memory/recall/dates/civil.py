"""Calendar arithmetic on plain integers: no limits, no exceptions, a few hundred nanoseconds a call.

Days are counted from 1970-01-01. Stretches are half-open pairs of days until the very end, where they become
microseconds: only parts of a day and hours are finer.
"""

from __future__ import annotations

HOUR = 3_600_000_000
DAY = 24 * HOUR
MONDAY, SATURDAY = 0, 5

DayRange = tuple[int, int]


def day_number(year: int, month: int = 1, day: int = 1) -> int:
    """The number of a day of the Gregorian calendar; months past 12 or below 1 run into other years.

    >>> day_number(2023, 14) == day_number(2024, 2)
    True
    """
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_date(day: int) -> tuple[int, int, int]:
    """Year, month and day of a day's number.

    >>> civil_date(day_number(2024, 2, 29))
    (2024, 2, 29)
    """
    era, day_of_era = divmod(day + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def weekday(day: int) -> int:
    """Monday is 0."""
    return (day + 3) % 7


def month_length(year: int, month: int) -> int:
    """How many days a month has."""
    return day_number(year, month + 1) - day_number(year, month)


def period(unit: str, day: int, offset: int) -> DayRange:
    """The day, week, weekend, month, quarter, year or decade that holds a day, or one so many before or after."""
    if unit == "day":
        return day + offset, day + offset + 1
    if unit in ("week", "weekend"):
        monday = day - weekday(day) + 7 * offset
        return (monday, monday + 7) if unit == "week" else (monday + SATURDAY, monday + 7)
    year, month, _ = civil_date(day)
    if unit == "month":
        return day_number(year, month + offset), day_number(year, month + offset + 1)
    if unit == "quarter":
        first = (month - 1) // 3 * 3 + 1 + 3 * offset
        return day_number(year, first), day_number(year, first + 3)
    if unit == "year":
        return day_number(year + offset), day_number(year + offset + 1)
    first = year // 10 * 10 + 10 * offset
    return day_number(first), day_number(first + 10)


def nth_weekday(year: int, month: int, which: int, nth: int) -> int:
    """The nth such weekday of a month, counted from its end when negative.

    >>> civil_date(nth_weekday(2023, 11, 3, 4))
    (2023, 11, 23)
    """
    if nth < 0:
        after = day_number(year, month + 1)
        return after - 1 - (weekday(after - 1) - which) % 7 + 7 * (nth + 1)
    first = day_number(year, month)
    return first + (which - weekday(first)) % 7 + 7 * (nth - 1)


def easter(year: int) -> int:
    """Easter Sunday of the Gregorian calendar, by the anonymous algorithm.

    >>> civil_date(easter(2024))
    (2024, 3, 31)
    """
    century, year_of_century = divmod(year, 100)
    golden = year % 19
    moon = (19 * golden + century - century // 4 - (century - (century + 8) // 25 + 1) // 3 + 15) % 30
    days = (32 + 2 * (century % 4) + 2 * (year_of_century // 4) - moon - year_of_century % 4) % 7
    correction = (golden + 11 * moon + 22 * days) // 451
    month, day = divmod(moon + days - 7 * correction + 114, 31)
    return day_number(year, month, day + 1)
