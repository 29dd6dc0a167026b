"""How requests are read: strict JSON, texts of a bounded length, and each idempotency key once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from tellback.server.idempotency import KEY_PARAMETER, resolve_lease, run_once
from tellback.server.sizes import validate_size

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


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
        """The body, read."""
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
        """What answers a request."""
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
