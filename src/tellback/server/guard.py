"""What every request passes before it is answered: its head, its credential, limits, and bounds on its body."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tellback.errors import NotAuthenticatedError, RateLimitedError, RemoteUnavailableError, TellbackError
from tellback.server.access import OPEN, Access
from tellback.server.bodies import Exchange
from tellback.server.callers import Caller, Home, Principal
from tellback.server.heads import Refused, read_head, user_named
from tellback.server.hosts import Hosts
from tellback.server.problems import problem, problem_of
from tellback.server.rates import AtOnce, Failures, Rates
from tellback.server.reception import Face, Reception, guarded

PUBLIC = frozenset({"/health/live", "/health/ready", "/metrics", "/openapi.json", "/docs"})
"""What is answered without a credential, and under any name: whoever looks after a server asks by its address."""


class Guard:
    """Lets a request in, with its caller in `scope["state"]["caller"]`, or answers with what is wrong.

    `scope["state"]["is_still_valid"]` tells later whether the credential still holds. WebSockets are closed,
    but for those of `faces`, which are for people: the reception lets them in.
    """

    def __init__(self, app: ASGIApp, home: Home, access: Access, faces: Sequence[Face] = ()) -> None:
        settings = home.settings
        self._app = app
        self._home = home
        self._access = access
        self._hosts = Hosts(settings.allowed_hosts, is_open=settings.open, origins=settings.cors_origins)
        self._rates = Rates(home.rc.store.rate_windows, settings.rate_limit)
        self._at_once = AtOnce(settings.concurrency)
        self._failures = Failures(settings.failure_limit)
        self._reception = Reception(faces, home, access, self._hosts, self._failures, self._rates) if faces else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        face = None if self._reception is None else self._reception.face_of(_path(scope))
        if face is not None:
            await self._show(face, scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "Nothing is served by WebSocket here."})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        settings = self._home.settings
        exchange = Exchange(receive, send, settings.body_bytes, settings.body_seconds)
        counted: str | None = None
        try:
            headers = read_head(scope)
            principal = None if _path(scope) in PUBLIC else await self._let_in(scope, headers, state)
            exchange.check(headers.get(b"content-length"))
            if principal is not None and principal is not OPEN:
                self._at_once.enter(principal.id)
                counted = principal.id
        except (Refused, TellbackError) as error:
            await _refusal(error, state.get("request_id"))(scope, receive, send)
            return
        try:
            await self._pass_on(scope, receive, send, exchange)
        finally:
            if counted is not None:
                self._at_once.leave(counted)

    async def _show(self, face: Face, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a person's browser."""
        assert self._reception is not None
        scope.setdefault("state", {})
        if scope["type"] != "http":
            if await self._reception.admit(face, _path(scope), scope, receive) is None:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": "Log in first."})
            return
        settings = self._home.settings
        exchange = Exchange(receive, guarded(send), settings.body_bytes, settings.body_seconds)
        answer = await self._reception.admit(face, _path(scope), scope, exchange.receive)
        if answer is None:
            await self._pass_on(scope, receive, guarded(send), exchange)
        else:
            await answer(scope, receive, guarded(send))

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
        """Have the request answered; what was wrong with its body is the answer, if none has begun."""
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:  # whatever was made of a refused body on its way up: the refusal is the answer
            if exchange.refusal is None or exchange.has_begun:
                raise
        if exchange.refusal is not None and not exchange.has_begun:
            await exchange.refusal.answer(scope["state"].get("request_id"))(scope, receive, send)

    async def _let_in(self, scope: Scope, headers: dict[bytes, bytes], state: dict[str, Any]) -> Principal:
        """Find out who asks, and whether they may ask now."""
        client = scope.get("client")
        self._hosts.check(headers, client)
        given = headers.get(b"authorization")
        authorization = None if given is None else given.decode("latin-1")
        principal = await self._authenticated(client, authorization)
        if principal is not OPEN:
            await self._rates.take(principal)
        state["caller"] = Caller(self._home, principal, user_named(principal, headers.get(b"x-tellback-user")))
        state["is_still_valid"] = partial(self._access.is_still_valid, authorization, principal)
        return principal

    async def _authenticated(self, client: tuple[str, int] | None, authorization: str | None) -> Principal:
        try:
            return await self._access.principal(authorization)
        except NotAuthenticatedError:
            if authorization is not None:
                self._failures.failed(client)
            raise


def _path(scope: Scope) -> str:
    path, root = str(scope["path"]), scope.get("root_path")
    return path.removeprefix(root) if root else path


def _refusal(error: Refused | TellbackError, request_id: str | None) -> Response:
    if isinstance(error, Refused):
        return error.answer(request_id)
    if isinstance(error, RemoteUnavailableError):
        return problem(503, "issuer-unavailable", str(error), request_id=request_id, headers={"Retry-After": "5"})
    answer = problem_of(error, request_id)
    if isinstance(error, RateLimitedError):
        answer.headers["RateLimit-Remaining"] = "0"
        answer.headers["RateLimit-Reset"] = answer.headers["Retry-After"]
    return answer
