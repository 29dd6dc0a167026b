"""How requests are read: strict JSON, texts of a bounded length, and each idempotency key once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from tellback.server.idempotency import DESCRIBED, answered_once, lease_of
from tellback.server.sizes import check_size

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRequest(Request):
    """A request whose body is JSON as it is defined: no NaN, no half of a character."""

    @staticmethod
    def is_attached(name: str, value: str) -> bool:
        """Whether it is something that only the size of the body bounds."""
        return name == "data"

    async def check_json(self) -> None:
        """Read the body here, where what is wrong with it is told as it is."""
        given = self.headers.get("content-type", "")
        if not _is_json(given):
            raise HTTPException(415, f"Bodies are application/json here, not {given!r:.80}.")
        await self.json()

    async def json(self) -> Any:
        """The body, read."""
        if not hasattr(self, "_json"):
            try:
                read = from_json(await self.body(), allow_inf_nan=False)
            except ValueError as error:
                raise HTTPException(400, f"The body is not JSON: {error}.") from None
            check_size(read, self.scope["state"]["caller"].home.settings.text_length, self.is_attached)
            self._json = read
        return self._json


class Route(APIRoute):
    """A route of the REST interface."""

    def get_route_handler(self) -> Handler:
        """What answers a request."""
        handler, takes_body = super().get_route_handler(), self.body_field is not None
        lease = lease_of(self.methods, self.dependant, self.openapi_extra)
        if lease is not None:
            self.openapi_extra = {**(self.openapi_extra or {}), "parameters": [DESCRIBED]}

        async def handle(request: Request) -> Response:
            read = StrictRequest(request.scope, request.receive)
            if takes_body and await read.body():
                await read.check_json()
            return await handler(read) if lease is None else await answered_once(read, handler, lease)

        return handle


def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media == "application/json" or (media.startswith("application/") and media.endswith("+json"))
