"""Texts that reach a model and a store: without what neither can take."""

from __future__ import annotations

import re

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters but for tabs and line ends, which forge what a terminal shows, and lone surrogates."""


def strip_control_characters(text: str) -> str:
    """The text without control characters and halves of characters.

    >>> strip_control_characters("Be \\x1b[31mwarm\\x00.")
    'Be [31mwarm.'
    """
    return _CONTROL_CHARACTERS.sub("", text)


def find_control_character(text: str) -> str | None:
    """The first character that is none of a text, or None.

    >>> find_control_character("Our voice"), find_control_character("Our\\x07voice")
    (None, '\\x07')
    """
    match = _CONTROL_CHARACTERS.search(text)
    return None if match is None else match.group()
