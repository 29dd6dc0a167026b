"""Names and texts inside SQL, where a bound value is not possible."""

from __future__ import annotations


def quote_identifier(name: str) -> str:
    """A name in double quotes.

    >>> quote_identifier('my "own" schema')
    '"my ""own"" schema"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A text in single quotes; with a backslash, in the form whose escapes do not depend on settings.

    >>> quote_literal("O'Hara")
    "'O''Hara'"
    """
    quoted = "'" + text.replace("'", "''") + "'"
    return quoted if "\\" not in text else " E" + quoted.replace("\\", "\\\\")
