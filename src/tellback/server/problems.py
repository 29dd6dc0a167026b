"""Turn errors into `application/problem+json` responses, with a `code` that clients can match on."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from tellback import errors
from tellback.errors import TellbackError
from tellback.wire.problems import encode_error_data, status_and_code

log = logging.getLogger("tellback.server")

MEDIA_TYPE = "application/problem+json"

_TITLES = {
    400: "Malformed request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    412: "Precondition failed",
    413: "Request too large",
    414: "URI too long",
    415: "Unsupported media type",
    422: "Invalid request",
    429: "Too many requests",
    431: "Request headers too large",
    500: "Internal server error",
    502: "Bad gateway",
    503: "Service unavailable",
    504: "Gateway timeout",
    507: "Insufficient storage",
}

_INTERNAL_ERRORS = (errors.StoreError, errors.ConfigurationError, errors.ProviderError, errors.EmbeddingError)


def problem_response(
    status: int,
    code: str,
    detail: str,
    *,
    request_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Build a problem response."""
    body = {
        "type": f"urn:tellback:problem:{code}",
        "title": _TITLES.get(status, "Request failed"),
        "status": status,
        "code": code,
        "detail": detail,
        "requestId": request_id,
        **more,
    }
    # Escaped as ASCII: texts quoted from the request may contain lone surrogates, which UTF-8 cannot encode.
    return Response(json.dumps(body, default=str).encode(), status, headers, MEDIA_TYPE)


def error_response(error: TellbackError, request_id: str | None = None) -> Response:
    """Turn a Tellback error into a response."""
    status, code = status_and_code(error)
    headers = {}
    if isinstance(error, errors.RateLimitedError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    elif isinstance(error, errors.NotAuthenticatedError):
        headers["WWW-Authenticate"] = "Bearer"
    if status >= 500:
        log.error("Request failed with %s: %s", code, type(error).__name__, exc_info=error)
    return problem_response(
        status, code, public_message(error), request_id=request_id, headers=headers, data=encode_error_data(error)
    )


def any_error_response(error: Exception, request_id: str | None) -> Response:
    """Turn any error into a response. The reason of an unexpected error is only logged."""
    if isinstance(error, TellbackError):
        return error_response(error, request_id)
    log.error("Request failed unexpectedly: %s", type(error).__name__, exc_info=error)
    detail = f"The server failed. Its log has the reason under request id {request_id}."
    return problem_response(500, "failed", detail, request_id=request_id)


def public_message(error: TellbackError) -> str:
    """Return the message a caller may see: without store addresses or provider responses."""
    if isinstance(error, errors.StoreError):
        return (
            "The store is unavailable; nothing was saved."
            if not error.in_doubt
            else ("The store failed while saving: check whether the data was saved before you retry.")
        )
    if isinstance(error, errors.ConfigurationError) and not isinstance(error, errors.AgentSpecError):
        if isinstance(error, errors.UnknownModelError):
            return f"No provider supports model {error.model!r:.120}."
        return "The server is not configured for this; its log has the details."
    if isinstance(error, errors.ProviderError):
        return f"The model's provider failed ({type(error).__name__})."
    if isinstance(error, errors.EmbeddingError):
        return "The embedding model failed; the server's log has the reason."
    return str(error)


def public_job_error(failure: str | None) -> str | None:
    """Return the failure message of a job that a caller may see: internal details are replaced.

    >>> public_job_error("ProviderRequestError: Incorrect API key sk-1"), public_job_error("ExtractionError: no JSON")
    ("ProviderRequestError: the server's log has the reason", 'ExtractionError: no JSON')
    """
    if failure is None:
        return None
    name = failure.partition(":")[0]
    kind = getattr(errors, name, None)
    is_public = isinstance(kind, type) and issubclass(kind, TellbackError) and not issubclass(kind, _INTERNAL_ERRORS)
    return failure if is_public else f"{name:.100}: the server's log has the reason"


async def on_tellback_error(request: Request, error: Exception) -> Response:
    """Handle `TellbackError`."""
    assert isinstance(error, TellbackError)
    return error_response(error, get_request_id(request))


async def on_validation_error(request: Request, error: Exception) -> Response:
    """Handle validation errors: report each field and its problem, but not the values sent."""
    assert isinstance(error, RequestValidationError)
    field_errors = [
        {"at": ".".join(map(str, each["loc"])), "problem": str(each["msg"]), "type": str(each["type"])}
        for each in error.errors()
    ]
    first = field_errors[0] if field_errors else {"at": "the request", "problem": "is invalid"}
    detail = f"{first['at']}: {first['problem']}."
    return problem_response(
        422, "invalid-argument", detail, request_id=get_request_id(request), errors=field_errors[:50]
    )


async def on_http_error(request: Request, error: Exception) -> Response:
    """Handle unknown paths and methods, and bodies that are not JSON."""
    assert isinstance(error, HTTPException)
    codes = {400: "malformed", 404: "unknown-path", 405: "method-not-allowed", 413: "too-large", 415: "media-type"}
    code = codes.get(error.status_code, "failed")
    detail, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == 404:
        detail = "This path does not exist."
    elif error.status_code == 405:
        headers["Allow"] = _allowed_methods(request) or headers.get("Allow", "")
        detail = f"Method not allowed. Allowed: {headers['Allow']}."
    return problem_response(error.status_code, code, detail, request_id=get_request_id(request), headers=headers)


def _allowed_methods(request: Request) -> str | None:
    """Return the methods of a path from the OpenAPI document, since each method has a separate route."""
    path = str(request.scope["path"]).removeprefix(request.scope.get("root_path", ""))
    for template, methods in request.app.openapi()["paths"].items():
        if compile_path(template)[0].match(path):
            return ", ".join(sorted(methods)).upper()
    return None


def get_request_id(request: Request) -> str | None:
    """Return the request's id, as in the logs."""
    state: Mapping[str, Any] = request.scope.get("state", {})
    return state.get("request_id")
