"""Ids that a server made: what is not of their form is unknown without asking, and no other path by mistake."""

from __future__ import annotations

import re
from typing import Any

from tellback.errors import NotFoundError

_SERVER_ID = re.compile(r"[a-z]+_[0-9a-z]+")


def is_server_id(id: Any) -> bool:
    """Whether a server may have made that id.

    >>> is_server_id("conv_018f3c0de0a17b2c4d5e6f708192"), is_server_id("open"), is_server_id("a/b")
    (True, False, False)
    """
    return isinstance(id, str) and _SERVER_ID.fullmatch(id) is not None


def require_server_id(kind: str, id: Any) -> str:
    """An id to act on: one that nothing can have is not found."""
    if not is_server_id(id):
        raise NotFoundError(kind, id)
    checked: str = id
    return checked
