"""What is ranked: a remembered text, when it was said, and what it belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SPEAKER = re.compile(r"\s*([^\W\d_][\w.'\u2019-]*(?: [^\W_][\w.'\u2019-]*){0,3}):\s+(?=\S)")
_ROLES = frozenset(("user", "assistant", "agent", "speaker", "person", "participant"))
_PARTICLES = frozenset(
    ("van", "von", "der", "den", "de", "da", "di", "do", "dos", "del", "della", "la", "le", "bin", "al")
)
_NO_NAMES = frozenset(
    """
    note notes todo reminder ps nb fyi edit update warning important tip question answer summary example result re fw
    fwd subject date time from to cc http https ftp mailto file title topic address phone email today tomorrow yesterday
    goal goals plan idea ideas list step steps remember fact facts preference preferences hint error info
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One text of a space.

    `text` is as it was remembered; a leading "Name: " is its speaker. `moment` is when it was true or said, in
    microseconds since 1970. The entries of one conversation share a `group` and stand in the order they were added;
    without a group an entry has no neighbours. `names` are those of the entities it is linked to.
    """

    text: str
    moment: int
    group: str | None = None
    names: tuple[str, ...] = ()


def split_speaker(text: str) -> tuple[str | None, str]:
    """The speaker a text begins with, and what was said.

    >>> split_speaker("Ana Ruiz: I am home")
    ('Ana Ruiz', 'I am home')
    >>> split_speaker("Note: buy milk")
    (None, 'Note: buy milk')
    """
    found = _SPEAKER.match(text, 0, 80)
    if found is None:
        return None, text
    name = found.group(1)
    first, *others = name.split()
    role = first.casefold() in _ROLES
    if (first[0].islower() and not role) or first.casefold() in _NO_NAMES:
        return None, text
    # "Maria da Silva" and "Speaker 2", but not "My plan" or "Chapter 2".
    if not all(other[0].isdigit() if role else _may_be_name(other) for other in others):
        return None, text
    return name, text[found.end() :]


def _may_be_name(word: str) -> bool:
    return not word[0].isdigit() and (not word[0].islower() or word in _PARTICLES)
