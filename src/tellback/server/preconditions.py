"""`ETag`, `If-Match` and `If-None-Match`: whether what a client has seen is still so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Header

from tellback.errors import PreconditionFailedError

IfMatchIs = Annotated[
    list[str] | None, Header(alias="If-Match", description="ETags: act only if it is still so; else 412.")
]
IfNoneMatchIs = Annotated[
    list[str] | None, Header(alias="If-None-Match", description="ETags that you have: 304 if it is still so.")
]


def require_match(given: Sequence[str] | None, tag: str | None) -> None:
    """Refuse to act on what is not as the client has seen it; `tag` is None for what is not there."""
    if given is not None and not _matches(given, tag, weakly=False):
        raise PreconditionFailedError(
            "It is not as If-Match says: read it again, and decide then."
            if tag is not None
            else "There is nothing yet that If-Match could be about."
        )


def is_known(given: Sequence[str] | None, tag: str) -> bool:
    """Whether the client has it already.

    >>> is_known(['"v1", W/"v2"'], '"v2"'), is_known(["*"], '"v2"'), is_known(None, '"v2"')
    (True, True, False)
    """
    return given is not None and _matches(given, tag, weakly=True)


def _matches(given: Sequence[str], tag: str | None, *, weakly: bool) -> bool:
    found = [part.strip() for line in given for part in line.split(",")]
    if "*" in found:
        return tag is not None
    return tag is not None and tag in [each.removeprefix("W/") if weakly else each for each in found]
