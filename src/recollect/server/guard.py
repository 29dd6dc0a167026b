"""What every request passes before it is answered: its id, its credential, and bounds on its body."""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect.conversations import checks
from recollect.errors import InvalidArgumentError, RecollectError, RequestTooLargeError
from recollect.server.access import Access
from recollect.server.callers import Caller, Home, Principal
from recollect.server.problems import problem, problem_of
from recollect.server.settings import LOCAL_USER

USER_HEADER = "X-Recollect-User"
PUBLIC = ("/health/live", "/health/ready", "/metrics", "/openapi.json", "/docs")
"""What is answered without a credential."""


class Guard:
    """Lets a request in, with its caller in `scope["state"]["caller"]`, or answers with what is wrong."""

    def __init__(self, app: ASGIApp, home: Home, access: Access) -> None:
        self._app = app
        self._home = home
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        state = scope.setdefault("state", {})
        body = _Body(receive, self._home.settings.body_bytes, self._home.settings.body_seconds)
        try:
            if scope["path"] not in PUBLIC:
                principal = await self._access.principal(headers.get("authorization"))
                state["caller"] = Caller(self._home, principal, _user_id(principal, headers.get(USER_HEADER)))
            body.check(headers.get("content-length"))
        except RecollectError as error:
            await problem_of(error, state.get("request_id"))(scope, receive, send)
            return
        try:
            await self._app(scope, body.receive, send)
        except RequestTooLargeError as error:
            await problem_of(error, state.get("request_id"))(scope, receive, send)
        except TimeoutError:
            if not body.is_late:
                raise
            detail = f"The body did not come within {self._home.settings.body_seconds:g} seconds."
            await problem(408, "body-timeout", detail, request_id=state.get("request_id"))(scope, receive, send)


def _user_id(principal: Principal, named: str | None) -> str | None:
    """The user a request is about: a header names one where the credential is for any."""
    if named is None:
        return LOCAL_USER if principal.id == "open" else principal.user_id
    try:
        wanted = checks.scope_name(USER_HEADER, unquote(named, errors="strict"))
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"{USER_HEADER} is a user's id, percent-encoded UTF-8.") from None
    if principal.user_id not in (None, wanted):
        from recollect.errors import NotAllowedError

        raise NotAllowedError(f"This credential is of user {principal.user_id!r}, and for no other.")
    return wanted


class _Body:
    """A request's body, as far as it may go."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive = receive
        self._most = most
        self._seconds = seconds
        self._size = 0
        self._is_over = False
        self.is_late = False

    def check(self, length: str | None) -> None:
        """Refuse what says that it is too large."""
        if length is not None and length.isdecimal() and int(length[:20]) > self._most:
            raise RequestTooLargeError(f"The body has {length[:20]} bytes; {self._most} is the limit here.")

    async def receive(self) -> Message:
        """The next part, or what follows the body."""
        if self._is_over:
            return await self._receive()
        try:
            async with asyncio.timeout(self._seconds):
                message = await self._receive()
        except TimeoutError:
            self.is_late = True
            raise
        self._size += len(message.get("body", b""))
        if self._size > self._most:
            raise RequestTooLargeError(f"The body has more than {self._most} bytes, which is the limit here.")
        self._is_over = not message.get("more_body", False)
        return message
