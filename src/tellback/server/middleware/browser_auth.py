"""Browser authentication: login form, session cookies and security headers for web pages such as the console.

Other clients send a credential with each request. A browser exchanges its credential for a cookie on the login page.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Protocol
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import FastAPI
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from tellback.errors import NotAllowedError, NotAuthenticatedError, TellbackError
from tellback.server.auth import OPEN_PRINCIPAL, Authenticator, Caller, Principal, ServerContext
from tellback.server.middleware.headers import (
    RequestRejectedError,
    read_headers,
    rejection_response,
    resolve_acting_user,
)
from tellback.server.middleware.rate_limit import FailedLoginLimiter, RateLimiter
from tellback.server.problems import public_message
from tellback.server.settings import HostPolicy

IDLE_TIMEOUT_SECONDS = 12 * 3_600.0
MAX_SESSIONS = 10_000

COOKIE_NAME = "tellback_console"
MAX_FORM_BYTES = 20_000
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none';"
    " base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

_LOGIN_STYLE = """
:root { color-scheme: light dark; --ground: #f7f7f4; --ink: #1f2328; --edge: #c9c9c2; --act: #34568b; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #131416; --ink: #e6e6e3; --edge: #45484e; --act: #4a72b5; --bad: #f2938c; }
}
body { font: 16px/1.55 system-ui, sans-serif; background: var(--ground); color: var(--ink); margin: 0; }
main { max-width: 22rem; margin: 15vh auto 0; padding: 0 1.25rem; } h1 { font-size: 1.4rem; }
label { font-size: .9rem; } p { font-size: .9rem; overflow-wrap: anywhere; } .wrong { color: var(--bad); }
input, button { font: inherit; width: 100%; box-sizing: border-box; padding: .6rem .75rem; margin: .35rem 0;
  border: 1px solid var(--edge); border-radius: .4rem; background: transparent; color: inherit; }
button { background: var(--act); border-color: var(--act); color: #fff; cursor: pointer; }
:focus-visible { outline: 2px solid var(--act); outline-offset: 2px; }
"""


@dataclass(frozen=True, slots=True)
class _LoginSession:
    authorization: str
    last_used: float


class LoginSessions:
    """Credentials of logged-in browsers, by cookie.

    A session ends after 12 hours without use, at a restart of the server, or when its credential is revoked.

    >>> sessions = LoginSessions()
    >>> cookie = sessions.create("Bearer tb_secret")
    >>> sessions.authorization(cookie), sessions.delete(cookie), sessions.authorization(cookie)
    ('Bearer tb_secret', None, None)
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._sessions: OrderedDict[bytes, _LoginSession] = OrderedDict()

    def create(self, authorization: str) -> str:
        """Store a verified credential and return its cookie."""
        cookie = secrets.token_urlsafe(32)
        self._sessions[_hash_cookie(cookie)] = _LoginSession(authorization, self._timer())
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return cookie

    def is_active(self, cookie: str, *, is_used: bool = True) -> bool:
        """Whether a cookie has an active session. The call counts as use unless `is_used` is False."""
        session = self._sessions.get(_hash_cookie(cookie))
        if session is None or self._timer() - session.last_used > IDLE_TIMEOUT_SECONDS:
            return False
        return not is_used or self.authorization(cookie) is not None

    def authorization(self, cookie: str | None) -> str | None:
        """Return the credential of a cookie, if its session is active. The call counts as use."""
        key = _hash_cookie(cookie or "")
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._timer()
        if now - session.last_used > IDLE_TIMEOUT_SECONDS:
            del self._sessions[key]
            return None
        self._sessions[key] = _LoginSession(session.authorization, now)
        self._sessions.move_to_end(key)
        return session.authorization

    def delete(self, cookie: str | None) -> None:
        self._sessions.pop(_hash_cookie(cookie or ""), None)


def _hash_cookie(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).digest()


class WebUI(Protocol):
    """Web pages below a path, such as the console.

    `add_to` mounts them when the app is created. Paths below `assets` (scripts and styles) need no login.
    """

    path: str
    assets: tuple[str, ...]

    def add_to(self, app: FastAPI) -> None: ...


class BrowserAuth:
    """Authenticates requests below the paths of web UIs by cookie or header, or redirects to the login page.

    The caller is in `scope["state"]["caller"]`, as for all requests. Pages of other origins may link here, but must not
    load resources, post forms or open WebSockets; browsers send the origin.
    """

    def __init__(
        self,
        web_uis: Iterable[WebUI],
        server_context: ServerContext,
        authenticator: Authenticator,
        hosts: HostPolicy,
        failed_logins: FailedLoginLimiter,
        rate_limiter: RateLimiter,
    ) -> None:
        self._web_uis = tuple(web_uis)
        self._server_context = server_context
        self._authenticator = authenticator
        self._hosts = hosts
        self._failed_logins = failed_logins
        self._rate_limiter = rate_limiter
        self._sessions = LoginSessions()

    def web_ui_at(self, path: str) -> WebUI | None:
        """Return the web UI of a path; the root path belongs to the first one."""
        if path == "/" and self._web_uis:
            return self._web_uis[0]
        for web_ui in self._web_uis:
            if path == web_ui.path or path.startswith(f"{web_ui.path}/"):
                return web_ui
        return None

    async def admit(self, web_ui: WebUI, path: str, scope: Scope, receive: Receive) -> Response | None:
        """Return None and set the caller if the app should handle the request; otherwise return the response."""
        try:
            headers = read_headers(scope)
            self._hosts.check(headers, scope.get("client"))
            is_navigated = headers.get(b"sec-fetch-mode", b"navigate") == b"navigate"
            if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or not is_navigated:
                _reject_foreign_origin(headers)
            return await self._authenticate(web_ui, path, scope, headers, receive)
        except (RequestRejectedError, TellbackError) as error:
            return _error_page_response(error, scope)

    async def _authenticate(
        self, web_ui: WebUI, path: str, scope: Scope, headers: dict[bytes, bytes], receive: Receive
    ) -> Response | None:
        """Return None if the app should handle the request; otherwise return the response."""
        base = scope.get("root_path", "") + web_ui.path
        if path in ("/", web_ui.path):
            return RedirectResponse(f"{base}/{_query(scope)}", 307)
        if path == f"{web_ui.path}/login" and scope["type"] == "http":
            return await self._login(base, scope, headers, receive)
        if path == f"{web_ui.path}/logout" and scope["type"] == "http" and scope["method"] == "POST":
            self._sessions.delete(_read_cookie(headers))
            response: Response = RedirectResponse(f"{base}/login", 303)
            response.delete_cookie(COOKIE_NAME, path=base)
            return response
        if path.startswith(web_ui.assets):
            return None
        header = headers.get(b"authorization")
        cookie = _read_cookie(headers) if header is None else None
        authorization = self._sessions.authorization(cookie) if header is None else header.decode("latin-1")
        try:
            principal = await self._authenticator.authenticate(authorization)
        except NotAuthenticatedError:
            if header is not None:
                self._failed_logins.record_failure(scope.get("client"))
            if scope["type"] != "http" or scope["method"] != "GET" or path.startswith(f"{web_ui.path}/_"):
                raise
            return RedirectResponse(f"{base}/login?next={quote(path + _query(scope), safe='')}", 303)
        state = scope.setdefault("state", {})
        state["caller"] = Caller(self._server_context, principal, resolve_acting_user(principal, None))
        state["is_still_valid"] = partial(self._is_still_valid, cookie, authorization, principal)
        state["count"] = partial(self._count_request, principal)
        state["server"] = scope["app"]
        if scope["type"] == "http" and not path.startswith(f"{web_ui.path}/_"):
            await self._count_request(principal)
        return None

    async def _count_request(self, principal: Principal) -> None:
        """Count a page view or action as a request of the credential. Raises `RateLimitedError`."""
        if principal is not OPEN_PRINCIPAL:
            await self._rate_limiter.acquire(principal)

    async def _is_still_valid(
        self, cookie: str | None, authorization: str | None, principal: Principal, *, is_used: bool = True
    ) -> bool:
        """Whether the page's credential is still valid and the user has not logged out."""
        if authorization is not None and cookie is not None and not self._sessions.is_active(cookie, is_used=is_used):
            return False
        return await self._authenticator.is_still_valid(authorization, principal)

    async def _login(self, base: str, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> Response:
        next_path = parse_qs(scope["query_string"].decode("latin-1")).get("next", [""])[0]
        if scope["method"] in ("GET", "HEAD"):
            return HTMLResponse(_render_login_form(base, next_path))
        if scope["method"] != "POST":
            return HTMLResponse(_render_login_form(base, next_path), 405, headers={"Allow": "GET, POST"})
        form = parse_qs((await _read_form_body(receive)).decode("utf-8", "replace"))
        authorization = f"Bearer {form.get('key', [''])[0].strip()}"
        try:
            principal = await self._authenticator.authenticate(authorization)
        except NotAuthenticatedError as error:
            self._failed_logins.record_failure(scope.get("client"))
            return HTMLResponse(_render_login_form(base, next_path, str(error)), 401)
        await self._count_request(principal)  # sessions take memory, and too many would evict those of other users
        response = RedirectResponse(_safe_redirect(next_path, base, scope.get("root_path", "")), 303)
        secure = scope.get("scheme") == "https"
        cookie = self._sessions.create(authorization)
        response.set_cookie(COOKIE_NAME, cookie, path=base, httponly=True, samesite="lax", secure=secure)
        return response


def _reject_foreign_origin(headers: dict[bytes, bytes]) -> None:
    site = headers.get(b"sec-fetch-site")
    origin = headers.get(b"origin")
    if site is not None:
        is_own = site in (b"same-origin", b"none")
    else:
        host = headers.get(b"host", b"").decode("latin-1")
        try:
            is_own = origin is None or (bool(host) and urlsplit(origin.decode("latin-1")).netloc == host)
        except ValueError:
            is_own = False
    if not is_own:
        raise NotAllowedError("Requests from other origins are not allowed.")


def _read_cookie(headers: dict[bytes, bytes]) -> str | None:
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(headers.get(b"cookie", b"").decode("latin-1"))
    except CookieError:
        return None
    cookie = cookies.get(COOKIE_NAME)
    return None if cookie is None else cookie.value


async def _read_form_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > MAX_FORM_BYTES:
            raise RequestRejectedError(413, "too-large", f"Forms may have at most {MAX_FORM_BYTES} bytes.")
        if not message.get("more_body"):
            return b"".join(parts)


def _query(scope: Scope) -> str:
    """Return the query of a request with its question mark, or an empty string."""
    query = scope["query_string"].decode("latin-1")
    return f"?{query}" if query else ""


def _safe_redirect(path: str, base: str, root: str) -> str:
    """Return the path to redirect to after login, which must be a page of this web UI."""
    is_local = path.startswith(f"{base.removeprefix(root)}/") and "\\" not in path and "//" not in path
    return root + path if is_local else f"{base}/"


def _render_login_form(base: str, next_path: str, error_message: str = "") -> str:
    action = f"{base}/login" + (f"?next={quote(next_path, safe='')}" if next_path else "")
    alert = f'<p class="wrong" role="alert">{escape(error_message)}</p>' if error_message else ""
    return render_plain_page(
        "Sign in",
        f'{alert}<form method="post" action="{escape(action)}"><label for="key">API key or token</label>'
        '<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>'
        "<button>Sign in</button></form><p>Create a key on the server with <code>tellback keys create</code>."
        "</p>",
    )


def render_plain_page(title: str, body: str) -> str:
    """Render a page without external resources; `body` is HTML."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} · Tellback</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{_LOGIN_STYLE}</style></head>"
        f"<body><main><h1>Tellback</h1>{body}</main></body></html>"
    )


def _error_page_response(error: RequestRejectedError | TellbackError, scope: Scope) -> Response:
    response = rejection_response(error, scope.get("state", {}).get("request_id"))
    if isinstance(error, TellbackError) and accepts_html(scope):
        headers = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
        page = render_plain_page("Error", f'<p class="wrong" role="alert">{escape(public_message(error))}</p>')
        return HTMLResponse(page, response.status_code, headers)
    return response


def accepts_html(scope: Scope) -> bool:
    """Whether the client is a browser that displays the response as a page."""
    return scope["type"] == "http" and any(
        name == b"accept" and b"text/html" in value.lower() for name, value in scope["headers"]
    )


def with_security_headers(send: Send) -> Send:
    """Add the security headers to every response."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            message = {
                **message,
                "headers": [*headers, *(header for header in _SECURITY_HEADERS if header[0] not in names)],
            }
        await send(message)

    return send_with_headers
