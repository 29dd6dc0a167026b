"""Answers: values as JSON, and lists page by page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from fastapi import Query, Response

from tellback.errors import InvalidArgumentError
from tellback.server.callers import Caller
from tellback.server.problems import Problem
from tellback.wire.base import Page, Wire

JSON = "application/json"


def answer(value: Wire, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(value.encoded(), status, headers, JSON)


def nothing() -> Response:
    """An answer without a body."""
    return Response(status_code=204)


def page(wire: type[Wire], found: Sequence[Any], limit: int, cursor: Callable[[Any], str]) -> Response:
    """A page of at most `limit` values; `found` holds one more than that if there is more."""
    shown = found[:limit]
    following = write_cursor(cursor(shown[-1])) if len(found) > limit and shown else None
    return answer(Page[Any](items=[wire.of(each) for each in shown], next_cursor=following))


def page_of_all(wire: type[Wire], everything: Iterable[Any], limit: int, after: str | None) -> Response:
    """A page of a list that is read as a whole, the oldest first; each of it has an `id`, which grows with time."""
    found = [each for each in everything if after is None or each.id > after]
    return page(wire, found, limit, lambda each: str(each.id))


def write_cursor(place: str) -> str:
    """A place in a list, for clients to hand back.

    >>> read_cursor(write_cursor("conv_1"))
    'conv_1'
    """
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_cursor(cursor: str | None) -> str | None:
    """The place that a cursor stands for."""
    if cursor is None:
        return None
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.") from None


def page_limit(caller: Caller, limit: int | None) -> int:
    """How many a page has: what was asked for, but not more than the server gives at once."""
    settings = caller.home.settings
    return min(settings.page_size if limit is None else limit, settings.largest_page)


def whole_limit(caller: Caller, limit: int | None) -> int:
    """How many there are in an answer that does not lead on to more: what is too much is refused."""
    settings = caller.home.settings
    if limit is not None and limit > settings.largest_page:
        raise InvalidArgumentError(f"limit is at most {settings.largest_page} here, not {limit}.")
    return min(settings.page_size, settings.largest_page) if limit is None else limit


LimitIs = Annotated[
    int | None, Query(ge=1, description="How many at most; a page may have fewer, and lead on by nextCursor.")
]
CursorIs = Annotated[str | None, Query(max_length=1_000, description="nextCursor of the page before.")]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer besides: for OpenAPI."""
    wanted = sorted({400, 401, 403, 413, 415, 422, 429, 503, *statuses})
    described = {"content": {"application/problem+json": {}}, "model": Problem}
    return {status: {**described, "description": _DESCRIPTIONS[status]} for status in wanted}


_DESCRIPTIONS = {
    400: "The request cannot be read.",
    401: "No credential, or one that is not valid.",
    403: "The credential is not for that.",
    404: "Nothing of that id is in the credential's scope.",
    409: "In conflict with what is there.",
    412: "It has changed meanwhile.",
    413: "The body, or a text in it, is too large.",
    415: "The body is not JSON.",
    422: "A field cannot be used; `errors` says which.",
    429: "Too many requests; see Retry-After.",
    502: "A model's provider failed.",
    503: "The store or a provider is not available now.",
    504: "A model's provider gave no answer in time.",
    507: "The store's disk is full.",
}
