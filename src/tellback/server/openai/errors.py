"""Errors in OpenAI's shape, which its clients turn into their own exceptions by the status."""

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
    on_http_error,
    on_tellback_error,
    on_validation_error,
    problem_for,
)

PREFIX = "/v1/"

Caught = TellbackError | RequestValidationError | HTTPException

_CODES = {
    "not-authenticated": "invalid_api_key",
    "rate-limited": "rate_limit_exceeded",
    "invalid-argument": "invalid_value",
    "budget-exceeded": "context_length_exceeded",
    "malformed": "invalid_json",
}
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_IN_VAIN = ("conversation-closed", "already-answered", "already-decided", "not-configured", "store-full")
"""Statuses that clients try again, with codes that stay what they are."""


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorOut(BaseModel):
    """An error, as OpenAI's clients know it."""

    error: ErrorDetail


class FieldRefusedError(InvalidArgumentError):
    """A field of a completion's request cannot be used; `param` says which."""

    def __init__(self, param: str, message: str, code: str = "invalid_value") -> None:
        self.param = param
        self.code = code
        super().__init__(message)


def unsupported(param: str, why: str) -> FieldRefusedError:
    """The error for what would be a lie to ignore."""
    return FieldRefusedError(param, f"`{param}` is not supported here: {why}", "unsupported_parameter")


def error_body(problem: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """A problem's status and body in OpenAI's words.

    >>> error_body({"status": 422, "code": "invalid-argument", "detail": "No."})[1]["error"]["code"]
    'invalid_value'
    """
    status, code = int(problem["status"]), str(problem["code"])
    status = 400 if status in (415, 422) else status
    kind = _TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")
    named = _CODES.get(code, code.replace("-", "_"))
    if code == "not-found" and (problem.get("data") or {}).get("kind") == "model":
        named = "model_not_found"
    detail = {"message": str(problem["detail"]), "type": kind, "param": _param(problem), "code": named}
    return status, {"error": detail}


def _param(problem: Mapping[str, Any]) -> str | None:
    at = next((str(each.get("at")) for each in problem.get("errors") or ()), None)
    return "model" if (problem.get("data") or {}).get("kind") == "model" else at and at.removeprefix("body.")


async def error_of(request: Request, error: Caught) -> Response:
    """An error as an answer."""
    if isinstance(error, RequestValidationError):
        told = await on_validation_error(request, error)
    elif isinstance(error, HTTPException):
        told = await on_http_error(request, error)
    else:
        told = await on_tellback_error(request, error)
    answer = _rewritten(json.loads(bytes(told.body)), told.headers)
    if isinstance(error, FieldRefusedError):
        body = json.loads(bytes(answer.body))
        body["error"].update(param=error.param, code=error.code)
        answer = _response(answer.status_code, body, dict(answer.headers))
    if isinstance(error, ProviderError) and not error.retryable:
        answer.headers["x-should-retry"] = "false"
    return answer


def _rewritten(problem: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
    status, body = error_body(problem)
    retry = {"x-should-retry": "false"} if problem["code"] in _IN_VAIN else {}
    return _response(status, body, {**headers, **retry})


def _response(status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
    kept = {name: value for name, value in headers.items() if name.lower() not in ("content-length", "content-type")}
    return Response(json.dumps(body).encode(), status, kept, "application/json")


class OpenAIErrors:
    """Problems of requests under `/v1/` in OpenAI's shape, also those of requests that are not let in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].removeprefix(scope.get("root_path", "")).startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        rewriting = _Rewriting(scope, receive, send)
        try:
            await self._app(scope, receive, rewriting.send)
        except Exception as error:
            if rewriting.has_begun:
                raise
            await problem_for(error, scope["state"].get("request_id"))(scope, receive, rewriting.send)


class _Rewriting:
    """Holds a problem back until it is whole, and sends it in other words."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers: dict[str, str] | None = None
        self._body = b""
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """The application's `send`."""
        self.has_begun = True
        if message["type"] == "http.response.start":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message.get("headers", ())}
            if headers.get("content-type", "").startswith(MEDIA_TYPE):
                self._headers = headers
                return
        elif self._headers is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await _rewritten(json.loads(self._body), self._headers)(self._scope, self._receive, self._send)
            return
        await self._send(message)
