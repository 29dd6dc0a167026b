"""Ids that a server made: what is not of their form is unknown without asking, and no other path by mistake."""

from __future__ import annotations

import re
from typing import Any

from tellback.errors import NotFoundError

_MADE = re.compile(r"[a-z]+_[0-9a-z]+")


def is_made(id: Any) -> bool:
    """Whether a server may have made that id.

    >>> is_made("conv_018f3c0de0a17b2c4d5e6f708192"), is_made("open"), is_made("a/b")
    (True, False, False)
    """
    return isinstance(id, str) and _MADE.fullmatch(id) is not None


def made_id(kind: str, id: Any) -> str:
    """An id to act on: one that nothing can have is not found."""
    if not is_made(id):
        raise NotFoundError(kind, id)
    checked: str = id
    return checked
