"""How requests under `/v1` are read, and how what is wrong with them is told."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from recollect.errors import RecollectError
from recollect.server.openai.errors import error_of
from recollect.server.sizes import check_size

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class OpenAIRequest(Request):
    """A request whose body is strict JSON, with texts of a bounded length."""

    async def json(self) -> Any:
        """The body, read."""
        if not hasattr(self, "_json"):
            try:
                read = from_json(await self.body(), allow_inf_nan=False)
            except ValueError as error:
                raise HTTPException(400, f"The body is not JSON: {error}.") from None
            check_size(read, self.scope["state"]["caller"].home.settings.text_length, _is_attached)
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


def _is_attached(name: str, value: str) -> bool:
    """Whether it is something that the size of the body bounds."""
    return name in ("data", "file_data") or (name == "url" and value.startswith("data:"))
