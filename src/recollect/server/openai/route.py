"""How requests under `/v1` are read, and how what is wrong with them is told."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from recollect.errors import RecollectError, RequestTooLargeError
from recollect.server.openai.errors import error_of

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_DATA = ("data", "file_data")
"""Fields that hold what is attached, which the size of the body bounds."""


class OpenAIRequest(Request):
    """A request whose body is strict JSON, with texts of a bounded length."""

    async def json(self) -> Any:
        """The body, read."""
        if not hasattr(self, "_json"):
            try:
                read = from_json(await self.body(), allow_inf_nan=False)
            except ValueError as error:
                raise HTTPException(400, f"The body is not JSON: {error}.") from None
            _check_texts(read, self.scope["state"]["caller"].home.settings.text_length)
            self._json = read
        return self._json


class OpenAIRoute(APIRoute):
    """A route whose errors are in OpenAI's shape."""

    def get_route_handler(self) -> Handler:
        """What answers a request."""
        handler, takes_body = super().get_route_handler(), self.body_field is not None

        async def handle(request: Request) -> Response:
            read = OpenAIRequest(request.scope, request.receive)
            try:
                if takes_body:
                    given = read.headers.get("content-type", "")
                    if given.partition(";")[0].strip().lower() != "application/json":
                        raise HTTPException(415, f"Bodies are application/json here, not {given!r:.80}.")
                    await read.json()
                return await handler(read)
            except (RecollectError, RequestValidationError, HTTPException) as error:
                return await error_of(read, error)

        return handle


def _check_texts(value: Any, limit: int, name: str = "") -> None:
    if isinstance(value, str):
        if len(value) > limit and name not in _DATA and not (name == "url" and value.startswith("data:")):
            raise RequestTooLargeError(f"{name or 'A text'} has {len(value)} characters; {limit} is the limit here.")
    elif isinstance(value, dict):
        for key, each in value.items():
            _check_texts(each, limit, key)
    elif isinstance(value, list):
        for each in value:
            _check_texts(each, limit, name)
