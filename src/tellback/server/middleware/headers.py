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

# Two of these would mean whatever the one who reads them takes them for.
_SINGLE_HEADERS = frozenset(
    {
        *(b"authorization", b"content-encoding", b"content-length", b"content-type", b"host", b"idempotency-key"),
        *(b"last-event-id", b"origin", b"transfer-encoding", b"x-request-id", b"x-tellback-conversation"),
        *(b"x-tellback-namespace", b"x-tellback-session", b"x-tellback-space", b"x-tellback-user"),
    }
)


class RequestRejectedError(Exception):
    """A request that is answered before anyone looks at what it asks for."""

    def __init__(self, status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = headers

    def to_response(self, request_id: str | None) -> Response:
        return problem_response(self.status, self.code, str(self), request_id=request_id, headers=self.headers)


def rejection_response(error: RequestRejectedError | TellbackError, request_id: str | None) -> Response:
    """Answer a request that is not let in."""
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
    """The headers of a request; of those that may come more than once, the last."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    by_name = dict(headers)
    values = b"".join([value for _, value in headers])
    if len(headers) > MAX_HEADERS or len(values) > MAX_HEADER_BYTES:
        raise RequestRejectedError(
            431, "headers-too-large", f"At most {MAX_HEADERS} headers of {MAX_HEADER_BYTES} bytes are taken."
        )
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_TARGET_BYTES:
        raise RequestRejectedError(
            414, "address-too-long", f"An address has at most {MAX_TARGET_BYTES} bytes: send more in a body."
        )
    if len(by_name) != len(headers):
        _reject_duplicates(headers)
    if _CONTROL_CHARACTERS.search(values):
        raise RequestRejectedError(400, "malformed", "A header holds a control character.")
    if b"content-length" in by_name and b"transfer-encoding" in by_name:
        raise RequestRejectedError(
            400, "malformed", "Content-Length and Transfer-Encoding cannot both tell where the body ends."
        )
    if by_name.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestRejectedError(
            415, "media-type", "Bodies are taken as they are, not compressed: leave Content-Encoding out."
        )
    return by_name


def _reject_duplicates(headers: list[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in _SINGLE_HEADERS:
            raise RequestRejectedError(400, "malformed", f"The header {name.decode('latin-1')} comes more than once.")
        seen.add(name)


def resolve_acting_user(principal: Principal, header: bytes | None) -> str | None:
    """The user a request is about: a header names one where the credential is for any."""
    if header is None:
        return LOCAL_USER if principal.id == "open" else principal.user_id
    user_id = validation.validate_scope_id(USER_HEADER, _decode_user_header(header))
    if principal.user_id not in (None, user_id):
        raise NotAllowedError(f"This credential is of user {principal.user_id!r}, and for no other.")
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
    raise InvalidArgumentError(f"{USER_HEADER} is a user's id, percent-encoded UTF-8.")
