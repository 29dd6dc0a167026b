"""Read requests: strict JSON of bounded size, the headers `If-Match` and `If-None-Match`, and the route class."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Annotated, Any

from fastapi import Header, HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from tellback.errors import InvalidArgumentError, PreconditionFailedError, RequestTooLargeError
from tellback.server.idempotency import KEY_PARAMETER, resolve_lease, run_once

MAX_VALUES = 30_000
"""A thousand imported messages with all that can be told of them have fewer; reading so many takes a moment."""

IfMatchHeader = Annotated[
    list[str] | None, Header(alias="If-Match", description="ETags: act only if it is still so; else 412.")
]
IfNoneMatchHeader = Annotated[
    list[str] | None, Header(alias="If-None-Match", description="ETags that you have: 304 if it is still so.")
]

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def validate_size(document: Any, text_length: int, is_attachment: Callable[[str, str], bool]) -> None:
    """Refuse a body of too many values, or with a text that is too long, unless that is something attached.

    Nor may there be a number past the range of numbers, which readers of JSON take for infinite.
    """
    for name, value in iter_values(document, MAX_VALUES):
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidArgumentError(f"{name or 'A number'} is past the range of numbers.")
        if isinstance(value, str) and len(value) > text_length and not is_attachment(name, value):
            message = f"{name or 'A text'} has {len(value)} characters; {text_length} is the limit here."
            raise RequestTooLargeError(message)


def iter_values(document: Any, max_values: int) -> Iterator[tuple[str, Any]]:
    """Every value in a JSON value, with the name it stands under; raises `RequestTooLargeError` beyond `max_values`."""
    remaining, pending = max_values, [("", document)]
    while pending:
        name, value = pending.pop()
        yield name, value
        if isinstance(value, dict | list):
            remaining -= len(value)
            if remaining < 0:
                raise RequestTooLargeError(f"There are more than {max_values} values in it, which is the limit here.")
            pending.extend(value.items() if isinstance(value, dict) else ((name, each) for each in value))


def require_match(etags: Sequence[str] | None, etag: str | None) -> None:
    """Refuse to act on what is not as the client has seen it; `etag` is None for what is not there."""
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


class StrictRequest(Request):
    """A request whose body is JSON as it is defined: no NaN, no half of a character."""

    @staticmethod
    def is_attachment(name: str, value: str) -> bool:
        """Whether it is something that only the size of the body bounds."""
        return name == "data"

    async def validate_json(self) -> None:
        """Read the body here, where what is wrong with it is told as it is."""
        content_type = self.headers.get("content-type", "")
        if not _is_json(content_type):
            raise HTTPException(415, f"Bodies are application/json here, not {content_type!r:.80}.")
        await self.json()

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            try:
                value = from_json(await self.body(), allow_inf_nan=False)
            except ValueError as error:
                raise HTTPException(400, f"The body is not JSON: {error}.") from None
            validate_size(value, self.scope["state"]["caller"].server.settings.text_length, self.is_attachment)
            self._json = value
        return self._json


class StrictRoute(APIRoute):
    """A route of the REST interface."""

    def get_route_handler(self) -> Handler:
        handler, takes_body = super().get_route_handler(), self.body_field is not None
        lease = resolve_lease(self.methods, self.dependant, self.openapi_extra)
        if lease is not None:
            self.openapi_extra = {**(self.openapi_extra or {}), "parameters": [KEY_PARAMETER]}

        async def handle(request: Request) -> Response:
            strict_request = StrictRequest(request.scope, request.receive)
            if takes_body and await strict_request.body():
                await strict_request.validate_json()
            return await handler(strict_request) if lease is None else await run_once(strict_request, handler, lease)

        return handle


def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media == "application/json" or (media.startswith("application/") and media.endswith("+json"))
