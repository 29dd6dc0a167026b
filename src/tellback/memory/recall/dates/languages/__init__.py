"""The word tables, one module for each language. Another language is another table: the grammar reads only tags."""

from __future__ import annotations

from tellback.memory.recall.dates.languages.de import GERMAN
from tellback.memory.recall.dates.languages.en import ENGLISH
from tellback.memory.recall.dates.languages.es import SPANISH
from tellback.memory.recall.dates.languages.table import Language

__all__ = ["LANGUAGES", "Language"]

LANGUAGES: dict[str, Language] = {"en": ENGLISH, "de": GERMAN, "es": SPANISH}
"""By code; of languages that know equally many words of a text, the first reads it."""
