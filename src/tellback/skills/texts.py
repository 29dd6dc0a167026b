"""Texts that reach a model and a store: without what neither can take."""

from __future__ import annotations

import re

_ODD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters but for tabs and line ends, which forge what a terminal shows, and lone surrogates."""


def cleaned(text: str) -> str:
    """The text without control characters and halves of characters.

    >>> cleaned("Be \\x1b[31mwarm\\x00.")
    'Be [31mwarm.'
    """
    return _ODD.sub("", text)


def odd_in(text: str) -> str | None:
    """The first character that is none of a text, or None.

    >>> odd_in("Our voice"), odd_in("Our\\x07voice")
    (None, '\\x07')
    """
    found = _ODD.search(text)
    return None if found is None else found.group()
