"""How requests under `/v1` are read, and how what is wrong with them is told."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from tellback.errors import TellbackError
from tellback.server.openai.errors import openai_error_response
from tellback.server.route import StrictRequest

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class OpenAIRequest(StrictRequest):
    """A request of which pictures and files are bounded by the body."""

    @staticmethod
    def is_attachment(name: str, value: str) -> bool:
        """Whether it is something that the size of the body bounds."""
        return name in ("data", "file_data") or (name == "url" and value.startswith("data:"))


class OpenAIRoute(APIRoute):
    """A route whose errors are in OpenAI's shape."""

    def get_route_handler(self) -> Handler:
        """What answers a request."""
        handler, takes_body = super().get_route_handler(), self.body_field is not None

        async def handle(request: Request) -> Response:
            openai_request = OpenAIRequest(request.scope, request.receive)
            try:
                if takes_body:
                    await openai_request.validate_json()
                return await handler(openai_request)
            except (TellbackError, RequestValidationError, HTTPException) as error:
                return await openai_error_response(openai_request, error)

        return handle
