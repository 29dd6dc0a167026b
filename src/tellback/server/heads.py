"""The head of a request: refused if it can be read in two ways, or holds more than anyone needs."""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import Scope

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, NotAllowedError
from tellback.server.callers import Principal
from tellback.server.problems import problem
from tellback.server.settings import LOCAL_USER

USER_HEADER = "X-Tellback-User"
LONGEST_TARGET = 16_384
LARGEST_HEAD = 65_536
MOST_HEADERS = 200

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_HALF_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})")

# Two of these would mean whatever the one who reads them takes them for.
_ONCE = frozenset(
    {
        *(b"authorization", b"content-encoding", b"content-length", b"content-type", b"host", b"idempotency-key"),
        *(b"last-event-id", b"origin", b"transfer-encoding", b"x-request-id", b"x-tellback-conversation"),
        *(b"x-tellback-namespace", b"x-tellback-session", b"x-tellback-space", b"x-tellback-user"),
    }
)


class Refused(Exception):
    """A request that is answered before anyone looks at what it asks for."""

    def __init__(self, status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = headers

    def answer(self, request_id: str | None) -> Response:
        """It as an answer."""
        return problem(self.status, self.code, str(self), request_id=request_id, headers=self.headers)


def read_head(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request; of those that may come more than once, the last."""
    given: list[tuple[bytes, bytes]] = scope["headers"]
    found = dict(given)
    values = b"".join([value for _, value in given])
    if len(given) > MOST_HEADERS or len(values) > LARGEST_HEAD:
        raise Refused(431, "headers-too-large", f"At most {MOST_HEADERS} headers of {LARGEST_HEAD} bytes are taken.")
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_TARGET:
        raise Refused(414, "address-too-long", f"An address has at most {LONGEST_TARGET} bytes: send more in a body.")
    if len(found) != len(given):
        _check_once(given)
    if _CONTROL.search(values):
        raise Refused(400, "malformed", "A header holds a control character.")
    if b"content-length" in found and b"transfer-encoding" in found:
        raise Refused(400, "malformed", "Content-Length and Transfer-Encoding cannot both tell where the body ends.")
    if found.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refused(415, "media-type", "Bodies are taken as they are, not compressed: leave Content-Encoding out.")
    return found


def _check_once(given: list[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in given:
        if name in seen and name in _ONCE:
            raise Refused(400, "malformed", f"The header {name.decode('latin-1')} comes more than once.")
        seen.add(name)


def user_named(principal: Principal, named: bytes | None) -> str | None:
    """The user a request is about: a header names one where the credential is for any."""
    if named is None:
        return LOCAL_USER if principal.id == "open" else principal.user_id
    wanted = checks.scope_name(USER_HEADER, _decoded(named))
    if principal.user_id not in (None, wanted):
        raise NotAllowedError(f"This credential is of user {principal.user_id!r}, and for no other.")
    return wanted


def _decoded(named: bytes) -> str:
    try:
        text = named.decode("ascii")
        if "%" not in text:
            return text
        if _HALF_ENCODED.search(text) is None:
            return unquote(text, errors="strict")
    except UnicodeDecodeError:
        pass
    raise InvalidArgumentError(f"{USER_HEADER} is a user's id, percent-encoded UTF-8.")
