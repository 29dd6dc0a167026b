"""Time expressions: `parser` turns "last Friday" or "in May 2023" into time spans, seen from a reference time.

`lexer` tags words with the tables of `vocabulary`, `grammar` holds the rules over the tags, `calendar` and `resolver`
do the arithmetic. Pure code; the recall index and the recall service use it.
"""

from tellback.memory.recall.dates.calendar import Precision, QueryTime, TimeSpan
from tellback.memory.recall.dates.parser import has_time_expression, parse_query_time, parse_time_spans
from tellback.memory.recall.dates.vocabulary import LANGUAGES, Language

__all__ = [
    "LANGUAGES",
    "Language",
    "Precision",
    "QueryTime",
    "TimeSpan",
    "has_time_expression",
    "parse_query_time",
    "parse_time_spans",
]
