"""Errors as `application/problem+json` responses; each has a `code` that clients recognize."""

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
    400: "The request cannot be read",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "That method is not for this path",
    408: "It did not come in time",
    409: "In conflict with what is there",
    412: "It has changed meanwhile",
    413: "Too large",
    414: "The address is too long",
    415: "Not a media type that is taken here",
    422: "The request cannot be used",
    429: "Too many requests",
    431: "The headers are too large",
    500: "The server failed",
    502: "What the server asked has failed",
    503: "Not available now",
    504: "No answer in time",
    507: "No room left",
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
    """An answer that tells of a problem."""
    body = {
        "type": f"urn:tellback:problem:{code}",
        "title": _TITLES.get(status, "The request failed"),
        "status": status,
        "code": code,
        "detail": detail,
        "requestId": request_id,
        **more,
    }
    # Escaped: what is quoted of the request may not be text that UTF-8 can hold.
    return Response(json.dumps(body, default=str).encode(), status, headers, MEDIA_TYPE)


def error_response(error: TellbackError, request_id: str | None = None) -> Response:
    """An error of ours as an answer."""
    status, code = status_and_code(error)
    headers = {}
    if isinstance(error, errors.RateLimitedError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    elif isinstance(error, errors.NotAuthenticatedError):
        headers["WWW-Authenticate"] = "Bearer"
    if status >= 500:
        log.error("answered %s: %s", code, type(error).__name__, exc_info=error)
    return problem_response(
        status, code, public_message(error), request_id=request_id, headers=headers, data=encode_error_data(error)
    )


def any_error_response(error: Exception, request_id: str | None) -> Response:
    """Any error as an answer; of what nobody foresaw, the reason is in the log alone."""
    if isinstance(error, TellbackError):
        return error_response(error, request_id)
    log.error("a request failed: %s", type(error).__name__, exc_info=error)
    detail = f"The server failed. Its log has the reason, under the request {request_id}."
    return problem_response(500, "failed", detail, request_id=request_id)


def public_message(error: TellbackError) -> str:
    """What a caller is told of an error: not where the store is, nor what a provider sent back."""
    if isinstance(error, errors.StoreError):
        return (
            "The store cannot do that now; nothing was kept."
            if not error.in_doubt
            else ("The store broke off while it was keeping this: look whether it is there before you try again.")
        )
    if isinstance(error, errors.ConfigurationError) and not isinstance(error, errors.AgentSpecError):
        if isinstance(error, errors.UnknownModelError):
            return f"No provider is known for model {error.model!r:.120}."
        return "The server is not set up for that; its log says what is missing."
    if isinstance(error, errors.ProviderError):
        return f"The model's provider failed ({type(error).__name__})."
    if isinstance(error, errors.EmbeddingError):
        return "What compares meanings has failed; the server's log says why."
    return str(error)


def public_job_error(failure: str | None) -> str | None:
    """What a caller is told of a job's failure, which is noted as `Class: words`: the words if they are ours alone.

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
    """The answer to an error of ours."""
    assert isinstance(error, TellbackError)
    return error_response(error, get_request_id(request))


async def on_validation_error(request: Request, error: Exception) -> Response:
    """The answer to a request whose fields are wrong: which, and how, but not with what was sent."""
    assert isinstance(error, RequestValidationError)
    field_errors = [
        {"at": ".".join(map(str, each["loc"])), "problem": str(each["msg"]), "type": str(each["type"])}
        for each in error.errors()
    ]
    first = field_errors[0] if field_errors else {"at": "the request", "problem": "cannot be used"}
    detail = f"{first['at']}: {first['problem']}."
    return problem_response(
        422, "invalid-argument", detail, request_id=get_request_id(request), errors=field_errors[:50]
    )


async def on_http_error(request: Request, error: Exception) -> Response:
    """The answer to an unknown path or method, and to a body that is no JSON."""
    assert isinstance(error, HTTPException)
    codes = {400: "malformed", 404: "unknown-path", 405: "method-not-allowed", 413: "too-large", 415: "media-type"}
    code = codes.get(error.status_code, "failed")
    detail, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == 404:
        detail = "There is nothing at this path."
    elif error.status_code == 405:
        headers["Allow"] = _allowed_methods(request) or headers.get("Allow", "")
        detail = f"This path takes {headers['Allow']}."
    return problem_response(error.status_code, code, detail, request_id=get_request_id(request), headers=headers)


def _allowed_methods(request: Request) -> str | None:
    """What a path takes, as the contract says: each method has a route of its own, which knows of no other."""
    path = str(request.scope["path"]).removeprefix(request.scope.get("root_path", ""))
    for template, methods in request.app.openapi()["paths"].items():
        if compile_path(template)[0].match(path):
            return ", ".join(sorted(methods)).upper()
    return None


def get_request_id(request: Request) -> str | None:
    """The id under which a request is in the logs."""
    state: Mapping[str, Any] = request.scope.get("state", {})
    return state.get("request_id")
