"""What is ranked: a remembered text, when it was said, and what it belongs to."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from tellback.types.caches import register_cache

_SPEAKER_NAME = re.compile(r"\s*([^\W\d_][\w.'\u2019-]*(?: [^\W_][\w.'\u2019-]*){0,3})")
_MAX_SPEAKER_LENGTH = 80
_ROLES = frozenset(("user", "assistant", "agent", "speaker", "person", "participant"))
_NAME_PARTICLES = frozenset(
    ("van", "von", "der", "den", "de", "da", "di", "do", "dos", "del", "della", "la", "le", "bin", "al")
)
_NOT_NAMES = frozenset(
    """
    note notes todo reminder ps nb fyi edit update warning important tip question answer summary example result re fw
    fwd subject date time from to cc http https ftp mailto file title topic address phone email today tomorrow yesterday
    goal goals plan idea ideas list step steps remember fact facts preference preferences hint error info wifi password
    """.split()  # noqa: SIM905
)


UNGROUPED = ""
"""The group of turns of no known conversation: only those that were said at the same time are neighbours."""


class IndexEntry(NamedTuple):
    """One text of a space.

    `text` is as it was remembered; a leading "Name: " is its speaker. `moment` is when it was true or said, in
    microseconds since 1970. The entries of one conversation share a `group` and stand in the order they were added;
    without a group an entry has no neighbours.
    """

    text: str
    timestamp: int
    group: str | None = None


def split_speaker(text: str) -> tuple[str | None, str]:
    """The speaker a text begins with, and what was said.

    >>> split_speaker("Ana Ruiz: I am home")
    ('Ana Ruiz', 'I am home')
    >>> split_speaker("Note: buy milk")
    (None, 'Note: buy milk')
    """
    colon = text.find(":", 0, _MAX_SPEAKER_LENGTH)
    if colon < 1 or not text[colon + 1 : colon + 2].isspace():
        return None, text
    # A space has few speakers and many turns: who a text begins with has mostly been met before.
    name = _parse_speaker(text[:colon])
    body = text[colon + 1 :].lstrip()
    return (name, body) if name is not None and body else (None, text)


@functools.lru_cache(maxsize=4_096)
def _parse_speaker(prefix: str) -> str | None:
    """The name before a colon, if it is one."""
    match = _SPEAKER_NAME.fullmatch(prefix)
    if match is None:
        return None
    name = match.group(1)
    first, *others = name.split()
    is_role = first.casefold() in _ROLES
    if (first[0].islower() and not is_role) or first.casefold() in _NOT_NAMES:
        return None
    # "Maria da Silva" and "Speaker 2", but not "My plan" or "Chapter 2".
    return name if all(other[0].isdigit() if is_role else _may_be_name(other) for other in others) else None


register_cache(_parse_speaker.cache_clear)


def _may_be_name(word: str) -> bool:
    return not word[0].isdigit() and (not word[0].islower() or word in _NAME_PARTICLES)
