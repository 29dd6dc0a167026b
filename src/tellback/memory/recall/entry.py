"""What is ranked: a remembered text, when it was said, and what it belongs to."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from tellback.types.caches import forgets

_NAME = re.compile(r"\s*([^\W\d_][\w.'\u2019-]*(?: [^\W_][\w.'\u2019-]*){0,3})")
_LONGEST = 80
_ROLES = frozenset(("user", "assistant", "agent", "speaker", "person", "participant"))
_PARTICLES = frozenset(
    ("van", "von", "der", "den", "de", "da", "di", "do", "dos", "del", "della", "la", "le", "bin", "al")
)
_NO_NAMES = frozenset(
    """
    note notes todo reminder ps nb fyi edit update warning important tip question answer summary example result re fw
    fwd subject date time from to cc http https ftp mailto file title topic address phone email today tomorrow yesterday
    goal goals plan idea ideas list step steps remember fact facts preference preferences hint error info wifi password
    """.split()  # noqa: SIM905
)


LOOSE = ""
"""The group of turns of no known conversation: only those that were said at the same time are neighbours."""


class Entry(NamedTuple):
    """One text of a space.

    `text` is as it was remembered; a leading "Name: " is its speaker. `moment` is when it was true or said, in
    microseconds since 1970. The entries of one conversation share a `group` and stand in the order they were added;
    without a group an entry has no neighbours.
    """

    text: str
    moment: int
    group: str | None = None


def split_speaker(text: str) -> tuple[str | None, str]:
    """The speaker a text begins with, and what was said.

    >>> split_speaker("Ana Ruiz: I am home")
    ('Ana Ruiz', 'I am home')
    >>> split_speaker("Note: buy milk")
    (None, 'Note: buy milk')
    """
    at = text.find(":", 0, _LONGEST)
    if at < 1 or not text[at + 1 : at + 2].isspace():
        return None, text
    # A space has few speakers and many turns: who a text begins with has mostly been met before.
    name = _speaker(text[:at])
    said = text[at + 1 :].lstrip()
    return (name, said) if name is not None and said else (None, text)


@functools.lru_cache(maxsize=4_096)
def _speaker(beginning: str) -> str | None:
    """The name before a colon, if it is one."""
    found = _NAME.fullmatch(beginning)
    if found is None:
        return None
    name = found.group(1)
    first, *others = name.split()
    role = first.casefold() in _ROLES
    if (first[0].islower() and not role) or first.casefold() in _NO_NAMES:
        return None
    # "Maria da Silva" and "Speaker 2", but not "My plan" or "Chapter 2".
    return name if all(other[0].isdigit() if role else _may_be_name(other) for other in others) else None


forgets(_speaker.cache_clear)


def _may_be_name(word: str) -> bool:
    return not word[0].isdigit() and (not word[0].islower() or word in _PARTICLES)
