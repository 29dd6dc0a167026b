"""Pages for people: what they pass before they are shown, and how a browser logs in.

The rest of the server takes a credential with each request. A browser sends a cookie in its place, which a page with
one field gives it in exchange for the credential.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Protocol
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import FastAPI
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from tellback.errors import NotAllowedError, NotAuthenticatedError, RateLimitedError, TellbackError
from tellback.server.access import OPEN, Access
from tellback.server.callers import Caller, Home, Principal
from tellback.server.heads import Refused, read_head, user_named
from tellback.server.hosts import Hosts
from tellback.server.problems import problem_of, told
from tellback.server.rates import Failures, Rates
from tellback.server.sittings import Sittings

COOKIE = "tellback_console"
LARGEST_FORM = 20_000
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none';"
    " base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

_STYLE = """
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


class Face(Protocol):
    """Pages for people below a path, such as the console.

    `add_to` mounts them when the app is made. What is below `assets` is shown to everyone: scripts and styles.
    """

    path: str
    assets: tuple[str, ...]

    def add_to(self, app: FastAPI) -> None: ...


class Reception:
    """Answers requests below the paths of faces: lets them in with a cookie or a header, or has the person log in.

    The caller is in `scope["state"]["caller"]`, as for all requests. A page of another origin may lead here, but
    neither load something, nor post, nor open a WebSocket: browsers say where a request comes from.
    """

    def __init__(
        self, faces: Iterable[Face], home: Home, access: Access, hosts: Hosts, failures: Failures, rates: Rates
    ) -> None:
        self._faces = tuple(faces)
        self._home = home
        self._access = access
        self._hosts = hosts
        self._failures = failures
        self._rates = rates
        self._sittings = Sittings()

    def face_of(self, path: str) -> Face | None:
        """The face that a path belongs to; the root is the first one's."""
        if path == "/" and self._faces:
            return self._faces[0]
        for face in self._faces:
            if path == face.path or path.startswith(f"{face.path}/"):
                return face
        return None

    async def admit(self, face: Face, path: str, scope: Scope, receive: Receive) -> Response | None:
        """None for a request that the app is to answer, which has its caller then; else the answer."""
        try:
            headers = read_head(scope)
            self._hosts.check(headers, scope.get("client"))
            is_navigated = headers.get(b"sec-fetch-mode", b"navigate") == b"navigate"
            if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or not is_navigated:
                _check_origin(headers)
            return await self._let_in(face, path, scope, headers, receive)
        except (Refused, TellbackError) as error:
            return _refusal(error, scope)

    async def _let_in(
        self, face: Face, path: str, scope: Scope, headers: dict[bytes, bytes], receive: Receive
    ) -> Response | None:
        """None for what the app answers; else the answer."""
        base = scope.get("root_path", "") + face.path
        if path in ("/", face.path):
            return RedirectResponse(f"{base}/", 307)
        if path == f"{face.path}/login" and scope["type"] == "http":
            return await self._login(base, scope, headers, receive)
        if path == f"{face.path}/logout" and scope["type"] == "http" and scope["method"] == "POST":
            self._sittings.end(_cookie(headers))
            answer: Response = RedirectResponse(f"{base}/login", 303)
            answer.delete_cookie(COOKIE, path=base)
            return answer
        if path.startswith(face.assets):
            return None
        given = headers.get(b"authorization")
        cookie = _cookie(headers) if given is None else None
        authorization = self._sittings.authorization(cookie) if given is None else given.decode("latin-1")
        try:
            principal = await self._access.principal(authorization)
        except NotAuthenticatedError:
            if given is not None:
                self._failures.failed(scope.get("client"))
            if scope["type"] != "http" or scope["method"] != "GET" or path.startswith(f"{face.path}/_"):
                raise
            to = path + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
            return RedirectResponse(f"{base}/login?next={quote(to, safe='')}", 303)
        state = scope.setdefault("state", {})
        state["caller"] = Caller(self._home, principal, user_named(principal, None))
        state["is_still_valid"] = partial(self._is_still_valid, cookie, authorization, principal)
        state["count"] = partial(self._count, principal)
        state["server"] = scope["app"]
        if scope["type"] == "http" and not path.startswith(f"{face.path}/_"):
            await self._count(principal)
        return None

    async def _count(self, principal: Principal) -> None:
        """Count a page, or what is done on one, as a request of the credential; raises `RateLimitedError`."""
        if principal is not OPEN:
            await self._rates.take(principal)

    async def _is_still_valid(
        self, cookie: str | None, authorization: str | None, principal: Principal, *, is_used: bool = True
    ) -> bool:
        """Whether a page's credential holds, and whoever opened it has not logged out meanwhile."""
        if authorization is not None and cookie is not None and not self._sittings.holds(cookie, is_used=is_used):
            return False
        return await self._access.is_still_valid(authorization, principal)

    async def _login(self, base: str, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> Response:
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("next", [""])[0]
        if scope["method"] in ("GET", "HEAD"):
            return HTMLResponse(_form(base, asked))
        if scope["method"] != "POST":
            return HTMLResponse(_form(base, asked), 405, headers={"Allow": "GET, POST"})
        form = parse_qs((await _body(receive)).decode("utf-8", "replace"))
        authorization = f"Bearer {form.get('key', [''])[0].strip()}"
        try:
            principal = await self._access.principal(authorization)
        except NotAuthenticatedError as error:
            self._failures.failed(scope.get("client"))
            return HTMLResponse(_form(base, asked, str(error)), 401)
        await self._count(principal)  # each log-in is held, and of too many the oldest are others'
        answer = RedirectResponse(_safe(asked, base, scope.get("root_path", "")), 303)
        secure = scope.get("scheme") == "https"
        cookie = self._sittings.begin(authorization)
        answer.set_cookie(COOKIE, cookie, path=base, httponly=True, samesite="lax", secure=secure)
        return answer


def _check_origin(headers: dict[bytes, bytes]) -> None:
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
        raise NotAllowedError("Pages of other origins are not let in here.")


def _cookie(headers: dict[bytes, bytes]) -> str | None:
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(headers.get(b"cookie", b"").decode("latin-1"))
    except CookieError:
        return None
    found = cookies.get(COOKIE)
    return None if found is None else found.value


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > LARGEST_FORM:
            raise Refused(413, "too-large", f"A form has at most {LARGEST_FORM} bytes here.")
        if not message.get("more_body"):
            return b"".join(parts)


def _safe(path: str, base: str, root: str) -> str:
    """Where to go after logging in: only to a page of this face, whatever the address says."""
    is_ours = path.startswith(f"{base.removeprefix(root)}/") and "\\" not in path and "//" not in path
    return root + path if is_ours else f"{base}/"


def _form(base: str, asked: str, wrong: str = "") -> str:
    action = f"{base}/login" + (f"?next={quote(asked, safe='')}" if asked else "")
    alert = f'<p class="wrong" role="alert">{escape(wrong)}</p>' if wrong else ""
    return plain_page(
        "Log in",
        f'{alert}<form method="post" action="{escape(action)}"><label for="key">API key or token</label>'
        '<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>'
        "<button>Log in</button></form><p>Whoever runs this server makes a key with <code>tellback keys create</code>."
        "</p>",
    )


def plain_page(title: str, body: str) -> str:
    """A page that needs nothing else: `body` is markup."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} · Tellback</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head>"
        f"<body><main><h1>Tellback</h1>{body}</main></body></html>"
    )


def _refusal(error: Refused | TellbackError, scope: Scope) -> Response:
    request_id = scope.get("state", {}).get("request_id")
    answer = error.answer(request_id) if isinstance(error, Refused) else problem_of(error, request_id)
    if isinstance(error, TellbackError) and is_for_eyes(scope):
        headers = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
        page = plain_page("Not here", f'<p class="wrong" role="alert">{escape(told(error))}</p>')
        answer = HTMLResponse(page, answer.status_code, headers)
    if isinstance(error, RateLimitedError):
        answer.headers["RateLimit-Remaining"] = "0"
    return answer


def is_for_eyes(scope: Scope) -> bool:
    """Whether a person's browser shows the answer as a page."""
    return scope["type"] == "http" and any(
        name == b"accept" and b"text/html" in value.lower() for name, value in scope["headers"]
    )


def guarded(send: Send) -> Send:
    """What a page may load and who may show it in a frame stands in every answer."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            given: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            message = {**message, "headers": [*given, *(each for each in _HEADERS if each[0] not in names)]}
        await send(message)

    return sent
