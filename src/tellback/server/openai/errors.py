"""Errors in OpenAI's format. Its clients map the status to exceptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tellback.errors import InvalidArgumentError, ProviderError, TellbackError
from tellback.server.problems import (
    MEDIA_TYPE,
    any_error_response,
    on_http_error,
    on_tellback_error,
    on_validation_error,
)

PREFIX = "/v1/"

HandledError = TellbackError | RequestValidationError | HTTPException

_OPENAI_CODES = {
    "not-authenticated": "invalid_api_key",
    "rate-limited": "rate_limit_exceeded",
    "invalid-argument": "invalid_value",
    "budget-exceeded": "context_length_exceeded",
    "malformed": "invalid_json",
}
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_NOT_RETRYABLE = ("conversation-closed", "already-answered", "already-decided", "not-configured", "store-full")
"""Error codes that clients should not retry, although they retry the HTTP status."""


class ErrorDetail(BaseModel):
    """Details of an error."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorOut(BaseModel):
    """An error response."""

    error: ErrorDetail


class InvalidFieldError(InvalidArgumentError):
    """A field of a completion request is invalid; `param` is its name."""

    def __init__(self, param: str, message: str, code: str = "invalid_value") -> None:
        self.param = param
        self.code = code
        super().__init__(message)


def unsupported_field(param: str, why: str) -> InvalidFieldError:
    """Return the error for a field that must not be silently ignored."""
    return InvalidFieldError(param, f"`{param}` is not supported: {why}", "unsupported_parameter")


def encode_error(problem: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Convert a problem to OpenAI's status and body.

    >>> encode_error({"status": 422, "code": "invalid-argument", "detail": "No."})[1]["error"]["code"]
    'invalid_value'
    """
    status, code = int(problem["status"]), str(problem["code"])
    status = 400 if status in (415, 422) else status
    kind = _ERROR_TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")
    openai_code = _OPENAI_CODES.get(code, code.replace("-", "_"))
    if code == "not-found" and (problem.get("data") or {}).get("kind") == "model":
        openai_code = "model_not_found"
    detail = {"message": str(problem["detail"]), "type": kind, "param": _find_param(problem), "code": openai_code}
    return status, {"error": detail}


def _find_param(problem: Mapping[str, Any]) -> str | None:
    location = next((str(each.get("at")) for each in problem.get("errors") or ()), None)
    return (
        "model" if (problem.get("data") or {}).get("kind") == "model" else location and location.removeprefix("body.")
    )


async def openai_error_response(request: Request, error: HandledError) -> Response:
    """Turn an error into a response."""
    if isinstance(error, RequestValidationError):
        problem = await on_validation_error(request, error)
    elif isinstance(error, HTTPException):
        problem = await on_http_error(request, error)
    else:
        problem = await on_tellback_error(request, error)
    details = {"param": error.param, "code": error.code} if isinstance(error, InvalidFieldError) else {}
    response = _problem_to_response(json.loads(bytes(problem.body)), problem.headers, **details)
    if isinstance(error, ProviderError) and not error.retryable:
        response.headers["x-should-retry"] = "false"
    return response


def _problem_to_response(problem: Mapping[str, Any], headers: Mapping[str, str], **details: str) -> Response:
    status, body = encode_error(problem)
    body["error"].update(details)
    kept = {name: value for name, value in headers.items() if name.lower() not in ("content-length", "content-type")}
    if problem["code"] in _NOT_RETRYABLE:
        kept["x-should-retry"] = "false"
    return Response(json.dumps(body).encode(), status, kept, "application/json")


class OpenAIErrorMiddleware:
    """Converts problems of requests under `/v1/` to OpenAI's format, including rejected requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].removeprefix(scope.get("root_path", "")).startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        rewriter = _ProblemRewriter(scope, receive, send)
        try:
            await self._app(scope, receive, rewriter.send)
        except Exception as error:
            if rewriter.has_started:
                raise
            await any_error_response(error, scope["state"].get("request_id"))(scope, receive, rewriter.send)


class _ProblemRewriter:
    """Buffers a problem response and sends it in OpenAI's format."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers: dict[str, str] | None = None
        self._body = b""
        self.has_started = False

    async def send(self, message: Message) -> None:
        self.has_started = True
        if message["type"] == "http.response.start":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message.get("headers", ())}
            if headers.get("content-type", "").startswith(MEDIA_TYPE):
                self._headers = headers
                return
        elif self._headers is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await _problem_to_response(json.loads(self._body), self._headers)(
                    self._scope, self._receive, self._send
                )
            return
        await self._send(message)
