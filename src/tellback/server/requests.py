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
"""Limit on the number of JSON values in a body; a thousand imported messages have fewer."""

IfMatchHeader = Annotated[
    list[str] | None,
    Header(alias="If-Match", description="ETags. Fail with 412 unless the resource has one of them."),
]
IfNoneMatchHeader = Annotated[
    list[str] | None,
    Header(alias="If-None-Match", description="ETags. Return 304 if the resource still has one of them."),
]

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def validate_size(document: Any, text_length: int, is_attachment: Callable[[str, str], bool]) -> None:
    """Raise for a body with too many values, a text that is too long (attachments excepted), or an infinite number."""
    for name, value in iter_values(document, MAX_VALUES):
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidArgumentError(f"{name or 'A number'} is too large for a floating-point number.")
        if isinstance(value, str) and len(value) > text_length and not is_attachment(name, value):
            message = f"{name or 'A text'} has {len(value)} characters; at most {text_length} are allowed."
            raise RequestTooLargeError(message)


def iter_values(document: Any, max_values: int) -> Iterator[tuple[str, Any]]:
    """Yield every nested value with its field name. Raises `RequestTooLargeError` beyond `max_values`."""
    remaining, pending = max_values, [("", document)]
    while pending:
        name, value = pending.pop()
        yield name, value
        if isinstance(value, dict | list):
            remaining -= len(value)
            if remaining < 0:
                raise RequestTooLargeError(f"The body has more than {max_values} values, which is the limit.")
            pending.extend(value.items() if isinstance(value, dict) else ((name, each) for each in value))


def require_match(etags: Sequence[str] | None, etag: str | None) -> None:
    """Raise `PreconditionFailedError` unless an ETag matches; `etag` is None if the resource does not exist."""
    if etags is not None and not _matches(etags, etag, weakly=False):
        raise PreconditionFailedError(
            "The resource has changed since the ETag in If-Match: read it again and retry."
            if etag is not None
            else "If-Match was sent, but the resource does not exist."
        )


def is_not_modified(etags: Sequence[str] | None, etag: str) -> bool:
    """Whether the client already has the current version.

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
    """A request that accepts only strict JSON: no NaN, no lone surrogates."""

    @staticmethod
    def is_attachment(name: str, value: str) -> bool:
        """Whether a value is an attachment, which only the body size limits."""
        return name == "data"

    async def validate_json(self) -> None:
        """Read and validate the body, so that errors become specific problem responses."""
        content_type = self.headers.get("content-type", "")
        if not _is_json(content_type):
            raise HTTPException(415, f"The body must be application/json, got {content_type!r:.80}.")
        await self.json()

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            try:
                value = from_json(await self.body(), allow_inf_nan=False)
            except ValueError as error:
                raise HTTPException(400, f"The body is not valid JSON: {error}.") from None
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
