"""Read request headers: reject oversized, ambiguous or malformed ones, and resolve the acting user."""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import Scope

from tellback import validation
from tellback.errors import (
    InvalidArgumentError,
    NotAllowedError,
    RateLimitedError,
    RemoteUnavailableError,
    TellbackError,
)
from tellback.server.auth import Principal
from tellback.server.problems import error_response, problem_response
from tellback.server.settings import LOCAL_USER

USER_HEADER = "X-Tellback-User"
MAX_TARGET_BYTES = 16_384
MAX_HEADER_BYTES = 65_536
MAX_HEADERS = 200

_CONTROL_CHARACTERS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_INVALID_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

# Duplicates of these are ambiguous: one program would use the first value, another one the last.
_SINGLE_HEADERS = frozenset(
    {
        *(b"authorization", b"content-encoding", b"content-length", b"content-type", b"host", b"idempotency-key"),
        *(b"last-event-id", b"origin", b"transfer-encoding", b"x-request-id", b"x-tellback-conversation"),
        *(b"x-tellback-namespace", b"x-tellback-session", b"x-tellback-space", b"x-tellback-user"),
    }
)


class RequestRejectedError(Exception):
    """A request that is rejected before it reaches a route."""

    def __init__(self, status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = headers

    def to_response(self, request_id: str | None) -> Response:
        return problem_response(self.status, self.code, str(self), request_id=request_id, headers=self.headers)


def rejection_response(error: RequestRejectedError | TellbackError, request_id: str | None) -> Response:
    """Build the response to a rejected request."""
    if isinstance(error, RequestRejectedError):
        return error.to_response(request_id)
    if isinstance(error, RemoteUnavailableError):
        return problem_response(
            503, "issuer-unavailable", str(error), request_id=request_id, headers={"Retry-After": "5"}
        )
    response = error_response(error, request_id)
    if isinstance(error, RateLimitedError):
        response.headers["RateLimit-Remaining"] = "0"
        response.headers["RateLimit-Reset"] = response.headers["Retry-After"]
    return response


def read_headers(scope: Scope) -> dict[bytes, bytes]:
    """Validate and return the headers of a request; of repeated headers, the last one."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    by_name = dict(headers)
    values = b"".join([value for _, value in headers])
    if len(headers) > MAX_HEADERS or len(values) > MAX_HEADER_BYTES:
        raise RequestRejectedError(
            431, "headers-too-large", f"At most {MAX_HEADERS} headers with {MAX_HEADER_BYTES} bytes are allowed."
        )
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_TARGET_BYTES:
        raise RequestRejectedError(
            414, "address-too-long", f"The URL may have at most {MAX_TARGET_BYTES} bytes: send more in the body."
        )
    if len(by_name) != len(headers):
        _reject_duplicates(headers)
    if _CONTROL_CHARACTERS.search(values):
        raise RequestRejectedError(400, "malformed", "A header contains a control character.")
    if b"content-length" in by_name and b"transfer-encoding" in by_name:
        raise RequestRejectedError(400, "malformed", "Send either Content-Length or Transfer-Encoding, not both.")
    if by_name.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestRejectedError(415, "media-type", "Compressed bodies are not supported: remove Content-Encoding.")
    return by_name


def _reject_duplicates(headers: list[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in _SINGLE_HEADERS:
            raise RequestRejectedError(400, "malformed", f"Duplicate header: send {name.decode('latin-1')} only once.")
        seen.add(name)


def resolve_acting_user(principal: Principal, header: bytes | None) -> str | None:
    """Return the user to act for: the credential's own, or the one in the header."""
    if header is None:
        return LOCAL_USER if principal.id == "open" else principal.user_id
    user_id = validation.validate_scope_id(USER_HEADER, _decode_user_header(header))
    if principal.user_id not in (None, user_id):
        raise NotAllowedError(f"This credential may only act for user {principal.user_id!r}.")
    return user_id


def _decode_user_header(header: bytes) -> str:
    try:
        text = header.decode("ascii")
        if "%" not in text:
            return text
        if _INVALID_PERCENT.search(text) is None:
            return unquote(text, errors="strict")
    except UnicodeDecodeError:
        pass
    raise InvalidArgumentError(f"{USER_HEADER} must be a user's id as percent-encoded UTF-8.")
