"""Browser authentication: login, access to pages, and logout."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request, WebSocket
from starlette.responses import JSONResponse

from tellback import Tellback
from tellback.errors import NotAllowedError
from tellback.server import ServerSettings, create_app
from tellback.server.middleware.browser_auth import IDLE_TIMEOUT_SECONDS, MAX_SESSIONS, LoginSessions
from tellback.types.access import ApiKeyRole
from tests.support import tokens
from tests.support.http_server import app_client

COOKIE = "tellback_console"
EYES = {"Accept": "text/html"}


class Pages:
    """A web UI whose page shows the caller."""

    path = "/console"
    assets: tuple[str, ...] = ("/console/_assets/",)

    def add_to(self, app: FastAPI) -> None:
        @app.get("/console/_assets/{name}")
        async def asset(name: str) -> str:
            return name

        @app.api_route("/console/{name:path}", methods=["GET", "POST"])
        async def page(request: Request, name: str) -> JSONResponse:
            state = request.scope["state"]
            caller = state["caller"]
            user_id = request.query_params.get("user")
            try:
                seen = caller.user_handle(user_id).scope if user_id else None
            except NotAllowedError:
                return JSONResponse("not allowed", 403)
            is_valid = await state["is_still_valid"]()
            return JSONResponse(
                {
                    "tenant": caller.principal.tenant_id,
                    "user": caller.user_id,
                    "seen": seen and [seen.tenant_id, seen.app_id, seen.user_id],
                    "held": is_valid,
                }
            )


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", worker=False) as opened:
        yield opened


def make_server(tb: Tellback, **settings: Any) -> Any:
    return create_app(tb, ServerSettings(**settings), opens=False, web_uis=[Pages()])


async def create_key(tb: Tellback, role: ApiKeyRole = "app", **options: Any) -> str:
    return (await tb.keys.create(role, **options)).secret


async def log_in(client: httpx2.AsyncClient, secret: str, next: str = "") -> httpx2.Response:
    return await client.post("/console/login", params={"next": next} if next else None, data={"key": secret})


async def test_login_redirects_back_to_the_requested_page(tb: Tellback) -> None:
    async with app_client(make_server(tb)) as client:
        answer = await client.get("/console/memory?space=a b&x=1")
        assert answer.status_code == 303
        form = await client.get(answer.headers["location"])
        assert (form.status_code, form.headers["content-type"]) == (200, "text/html; charset=utf-8")
        action = re.search(r'action="([^"]+)"', form.text)
        assert action is not None
        secret = await create_key(tb, tenant_id="acme")
        response = await client.post(action[1].replace("&amp;", "&"), data={"key": f" {secret} "})
        assert (response.status_code, response.headers["location"]) == (303, "/console/memory?space=a%20b&x=1")
        page = await client.get("/console/memory")
        assert page.json() == {"tenant": "acme", "user": None, "seen": None, "held": True}


async def test_the_cookie_contains_no_secret_and_is_limited_to_the_web_ui(tb: Tellback) -> None:
    secret = await create_key(tb)
    async with app_client(make_server(tb)) as client:
        plain = (await log_in(client, secret)).headers["set-cookie"]
        client.base_url = httpx2.URL("https://127.0.0.1")
        secure = (await log_in(client, secret)).headers["set-cookie"]
    assert secret not in plain
    flags = {each.strip().lower() for each in plain.split(";")[1:]}
    assert {"httponly", "path=/console", "samesite=lax"} <= flags
    assert "secure" not in flags
    assert "secure" in {each.strip().lower() for each in secure.split(";")}


async def test_login_with_an_unreachable_issuer_is_a_503(tb: Tellback) -> None:
    jwt = tokens.settings(jwks_url="http://127.0.0.1:1/keys")
    async with app_client(make_server(tb, jwt=jwt)) as client:
        answer = await client.post("/console/login", data={"key": tokens.token()}, headers=EYES)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert 'role="alert"' in answer.text
        assert "127.0.0.1" not in answer.text


async def test_a_wrong_key_shows_an_error_and_counts_as_a_failure(tb: Tellback) -> None:
    async with app_client(make_server(tb, failure_limit=2)) as client:
        for _ in range(2):
            answer = await log_in(client, "tb_" + "0" * 30)
            assert (answer.status_code, COOKIE in client.cookies) == (401, False)
            assert 'role="alert"' in answer.text
        assert (await log_in(client, "tb_" + "0" * 30)).status_code == 429
        assert (await log_in(client, await create_key(tb))).status_code == 303  # valid credentials are still accepted


async def test_wrong_credentials_in_a_header_are_counted_as_well(tb: Tellback) -> None:
    async with app_client(make_server(tb, failure_limit=2), "tb_" + "0" * 30) as client:
        assert [(await client.get("/console/")).status_code for _ in range(3)] == [303, 303, 429]


async def test_user_input_is_escaped_on_the_login_page(tb: Tellback) -> None:
    async with app_client(make_server(tb)) as client:
        answer = await log_in(client, '"><script>1</script>', '/console/"><img src=x onerror=1>')
        assert "<script>" not in answer.text
        assert "<img" not in answer.text


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/console/",
        "//evil.example/console/",
        "/console//evil.example",
        "/console/\\evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/ai-conversations",
        "/consolex/",
        "",
    ],
)
async def test_login_never_redirects_to_another_site(tb: Tellback, target: str) -> None:
    secret = await create_key(tb)
    async with app_client(make_server(tb)) as client:
        assert (await log_in(client, secret, target)).headers["location"] == "/console/"


async def test_logging_out_ends_the_session_and_open_pages(tb: Tellback) -> None:
    secret = await create_key(tb)
    app = make_server(tb)
    async with app_client(app) as client, app_client(app) as other:
        await log_in(client, secret)
        other.cookies.set(COOKIE, client.cookies[COOKIE], path="/console")
        assert (await other.get("/console/")).status_code == 200
        logout_response = await client.post("/console/logout")
        assert (logout_response.status_code, logout_response.headers["location"]) == (303, "/console/login")
        assert COOKIE not in client.cookies
        assert (await other.get("/console/")).status_code == 303
        assert (await client.get("/console/logout")).status_code == 303  # a link or an image cannot log out


async def test_revoking_a_key_ends_its_sessions(tb: Tellback) -> None:
    created = await tb.keys.create("app")
    async with app_client(make_server(tb)) as client:
        await log_in(client, created.secret)
        assert (await client.get("/console/")).json()["held"]
        await tb.keys.revoke(created.key.id)
        assert (await client.get("/console/")).status_code == 303


async def test_a_login_acts_for_the_keys_user_or_tenant(tb: Tellback) -> None:
    app = make_server(tb)
    async with app_client(app) as maya, app_client(app) as acme:
        await log_in(maya, await create_key(tb, "user", tenant_id="acme", user_id="maya"))
        await log_in(acme, await create_key(tb, tenant_id="acme"))
        assert (await maya.get("/console/")).json()["user"] == "maya"
        assert (await maya.get("/console/?user=noor")).status_code == 403
        assert (await acme.get("/console/?user=noor")).json()["seen"] == ["acme", "default", "noor"]


HOSTILE = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1"},
]


@pytest.mark.parametrize("headers", HOSTILE)
@pytest.mark.parametrize("path", ["/console/login", "/console/logout", "/console/page"])
async def test_a_page_of_another_origin_cannot_post(tb: Tellback, path: str, headers: dict[str, str]) -> None:
    secret = await create_key(tb)
    async with app_client(make_server(tb)) as client:
        await log_in(client, secret)
        assert (await client.post(path, data={"key": secret}, headers=headers)).status_code == 403
        assert (await client.get("/console/")).status_code == 200  # still logged in
        same_origin = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
        assert (await client.post("/console/page", headers=same_origin)).status_code == 200


async def websocket_response(app: Any, headers: dict[str, str], path: str = "/console/_ws") -> str:
    """Return the first message that a WebSocket gets."""
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])

    sent_headers = {"host": "127.0.0.1", **{name.lower(): value for name, value in headers.items()}}
    scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "ws",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in sent_headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "subprotocols": [],
        "extensions": {},
    }
    await app(scope, receive, send)
    return sent[0]


async def test_other_origins_may_link_to_pages_but_not_load_them(tb: Tellback) -> None:
    """Otherwise, on an open server, each image on a foreign page would build and cache a page."""
    async with app_client(make_server(tb, open=True)) as client:
        for site, mode, status in (
            ("cross-site", "no-cors", 403),
            ("same-site", "cors", 403),
            ("same-origin", "cors", 200),
            ("cross-site", "navigate", 200),
        ):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
            assert (await client.get("/console/", headers=headers)).status_code == status


async def test_a_websocket_needs_the_cookie_and_the_same_origin(tb: Tellback) -> None:
    app = make_server(tb)

    @app.websocket("/console/_ws")  # type: ignore[untyped-decorator]
    async def echo(socket: WebSocket) -> None:
        await socket.accept()

    async with app_client(app) as client:
        await log_in(client, await create_key(tb))
        cookie = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
    same_origin = {"Origin": "http://127.0.0.1"}
    assert await websocket_response(app, {**cookie, **same_origin}) == "websocket.accept"
    assert await websocket_response(app, same_origin) == "websocket.close"
    assert await websocket_response(app, {"Cookie": f"{COOKIE}=guessed", **same_origin}) == "websocket.close"
    assert await websocket_response(app, {**cookie, **same_origin}, "/ai-conversations") == "websocket.close"
    for headers in HOSTILE:
        assert await websocket_response(app, {**cookie, **headers}) == "websocket.close"


async def test_without_credentials_only_local_requests_are_accepted(tb: Tellback) -> None:
    app = make_server(tb, open=True)
    async with app_client(app) as client:
        assert (await client.get("/console/")).json()["user"] == "local"
        for host in ("evil.example", "192.168.1.7", "127.0.0.1.evil.example"):
            answer = await client.get("/console/", headers={"Host": host, **EYES})
            assert answer.status_code == 403
            assert "requests from its own machine" in answer.text
        assert (await client.get("/console/", headers={"X-Forwarded-For": "10.0.0.1"})).status_code == 403
    remote_transport = httpx2.ASGITransport(app, client=("192.168.1.7", 5))
    async with httpx2.AsyncClient(transport=remote_transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/console/")).status_code == 403


async def test_only_assets_need_no_login(tb: Tellback) -> None:
    async with app_client(make_server(tb)) as client:
        assert (await client.get("/console/_assets/app.js")).status_code == 200
        assert (await client.get("/console/_other/app.js")).status_code == 401
        assert (await client.post("/console/page")).status_code == 401
        assert (await client.get("/console/_assets/../page")).status_code in (303, 404)


async def test_every_response_has_security_headers(tb: Tellback) -> None:
    async with app_client(make_server(tb)) as client:
        for path in ("/console/login", "/console/", "/console/_assets/app.js"):
            headers = (await client.get(path)).headers
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


async def test_pages_count_towards_the_rate_limit_and_show_an_error_page(tb: Tellback) -> None:
    async with app_client(make_server(tb)) as client:
        await log_in(client, await create_key(tb, rate_limit=3))
        answers = [await client.get("/console/", headers=EYES) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert "3 requests per minute" in answers[-1].text
        assert answers[-1].headers["content-type"].startswith("text/html")
        assert "retry-after" in answers[-1].headers
        assert (await client.get("/console/_assets/app.js")).status_code == 200


async def test_logins_count_towards_the_rate_limit(tb: Tellback) -> None:
    secret = await create_key(tb, rate_limit=2)
    async with app_client(make_server(tb)) as client:
        answers = [await log_in(client, secret) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [303, 303, 429]
        assert COOKIE not in answers[-1].headers.get("set-cookie", "")


async def test_a_form_that_is_too_large_is_rejected(tb: Tellback) -> None:
    async with app_client(make_server(tb)) as client:
        answer = await client.post("/console/login", content=b"key=" + b"x" * 30_000)
        assert answer.status_code == 413


async def test_the_root_and_the_bare_path_redirect_to_the_web_ui(tb: Tellback) -> None:
    app = make_server(tb)
    async with app_client(app) as client:
        for path in ("/", "/console"):
            assert (await client.get(path)).headers["location"] == "/console/"
            assert (await client.get(f"{path}?user=maya")).headers["location"] == "/console/?user=maya"
    prefixed_transport = httpx2.ASGITransport(app, root_path="/below")
    async with httpx2.AsyncClient(transport=prefixed_transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/below/console")).headers["location"] == "/below/console/"


def test_an_idle_session_expires_and_checking_it_does_not_extend_it() -> None:
    now = [0.0]
    login_sessions = LoginSessions(lambda: now[0])
    cookie = login_sessions.create("Bearer tb_x")
    now[0] = IDLE_TIMEOUT_SECONDS - 1
    assert login_sessions.is_active(cookie, is_used=False)
    now[0] = IDLE_TIMEOUT_SECONDS + 1
    assert not login_sessions.is_active(cookie)
    cookie = login_sessions.create("Bearer tb_x")
    now[0] += IDLE_TIMEOUT_SECONDS - 1
    assert login_sessions.is_active(cookie)
    now[0] += IDLE_TIMEOUT_SECONDS - 1
    assert login_sessions.authorization(cookie) == "Bearer tb_x"


def test_the_least_recently_used_session_is_evicted() -> None:
    login_sessions = LoginSessions()
    first, second = login_sessions.create("Bearer 1"), login_sessions.create("Bearer 2")
    assert login_sessions.authorization(first) == "Bearer 1"
    for _ in range(MAX_SESSIONS - 1):
        login_sessions.create("Bearer n")
    assert login_sessions.is_active(first)
    assert not login_sessions.is_active(second)
