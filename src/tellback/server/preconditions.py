"""`ETag`, `If-Match` and `If-None-Match`: whether what a client has seen is still so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Header

from tellback.errors import PreconditionFailedError

IfMatchHeader = Annotated[
    list[str] | None, Header(alias="If-Match", description="ETags: act only if it is still so; else 412.")
]
IfNoneMatchHeader = Annotated[
    list[str] | None, Header(alias="If-None-Match", description="ETags that you have: 304 if it is still so.")
]


def require_match(etags: Sequence[str] | None, etag: str | None) -> None:
    """Refuse to act on what is not as the client has seen it; `tag` is None for what is not there."""
    if etags is not None and not _matches(etags, etag, weakly=False):
        raise PreconditionFailedError(
            "It is not as If-Match says: read it again, and decide then."
            if etag is not None
            else "There is nothing yet that If-Match could be about."
        )


def is_not_modified(etags: Sequence[str] | None, etag: str) -> bool:
    """Whether the client has it already.

    >>> is_not_modified(['"v1", W/"v2"'], '"v2"'), is_not_modified(["*"], '"v2"'), is_not_modified(None, '"v2"')
    (True, True, False)
    """
    return etags is not None and _matches(etags, etag, weakly=True)


def _matches(etags: Sequence[str], etag: str | None, *, weakly: bool) -> bool:
    candidates = [part.strip() for line in etags for part in line.split(",")]
    if "*" in candidates:
        return etag is not None
    return etag is not None and etag in [each.removeprefix("W/") if weakly else each for each in candidates]
