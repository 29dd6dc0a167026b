"""The auth middleware: which requests are accepted, and for which user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response

from tellback import Tellback
from tellback.errors import ConfigurationError, NotAllowedError
from tellback.server import ServerSettings, create_app
from tellback.server.auth import OPEN_PRINCIPAL, Authenticator, Principal, ServerContext
from tellback.server.middleware.auth import AuthMiddleware
from tellback.server.middleware.headers import resolve_acting_user
from tellback.server.settings import HostPolicy, host_name, is_loopback
from tests.support import tokens
from tests.support.http_server import app_client

PATH = "/ai-conversations"


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", worker=False) as opened:
        yield opened


def make_server(tb: Tellback, **settings: Any) -> Any:
    return create_app(tb, ServerSettings(**settings), opens=False)


async def send_request(app: Any, secret: str | None = None, user: str | None = None, **options: Any) -> httpx2.Response:
    async with app_client(app, secret, user) as client:
        return await client.request(options.pop("method", "GET"), options.pop("path", PATH), **options)


def status_and_code(answer: httpx2.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


async def test_a_request_without_credential_gets_a_401_that_says_what_to_send(tb: Tellback) -> None:
    answer = await send_request(make_server(tb))
    assert status_and_code(answer) == (401, "not-authenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer" in answer.json()["detail"]


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic bWF5YTp4", "tb_x", "Bearer x y", "Bearer tb_" + "0" * 28]
)
async def test_malformed_credentials_are_rejected(tb: Tellback, header: str) -> None:
    answer = await send_request(make_server(tb), headers={"Authorization": header})
    assert status_and_code(answer) == (401, "not-authenticated")
    assert header.removeprefix("Bearer").strip() in ("", *header.split()) or header not in answer.text


async def test_a_key_is_accepted_until_it_is_revoked(tb: Tellback) -> None:
    app, created = make_server(tb), await tb.keys.create("app", tenant_id="acme")
    assert (await send_request(app, created.secret, "maya")).status_code == 200
    assert (
        await send_request(app, headers={"Authorization": f"bearer   {created.secret} "}, user="maya")
    ).status_code == 200
    await tb.keys.revoke(created.key.id)
    assert status_and_code(await send_request(app, created.secret, "maya")) == (401, "not-authenticated")


async def test_a_key_is_accepted_until_it_expires(tb: Tellback) -> None:
    app, created = make_server(tb), await tb.keys.create("app", expires_at=timedelta(hours=1))
    assert (await send_request(app, created.secret, "maya")).status_code == 200
    now = tb.clock
    tb.clock = lambda: now() + timedelta(hours=2)
    assert status_and_code(await send_request(app, created.secret, "maya")) == (401, "not-authenticated")


async def test_a_server_accepts_both_tokens_and_keys(tb: Tellback) -> None:
    app, key = make_server(tb, jwt=tokens.settings()), (await tb.keys.create("app", tenant_id="acme")).secret
    response = await send_request(app, tokens.token(), method="POST", json={"namespace": "chat"})
    assert response.status_code == 201
    found = await send_request(app, key, "maya", path=f"{PATH}/{response.json()['id']}")
    assert found.status_code == 200
    assert status_and_code(await send_request(app, tokens.token(exp=1))) == (401, "not-authenticated")
    assert (
        status_and_code(
            await send_request(app, tokens.token(tenant_id="umbrella"), path=f"{PATH}/{response.json()['id']}")
        )[0]
        == 404
    )
    assert (
        status_and_code(await send_request(app, tokens.token(sub="noor"), path=f"{PATH}/{response.json()['id']}"))[0]
        == 404
    )


async def test_a_token_is_rejected_without_a_configured_issuer(tb: Tellback) -> None:
    assert status_and_code(await send_request(make_server(tb), tokens.token())) == (401, "not-authenticated")


async def test_an_unreachable_issuer_is_a_503(tb: Tellback) -> None:
    app = make_server(tb, jwt=tokens.settings(jwks_url="http://127.0.0.1:1/keys"))
    answer = await send_request(app, tokens.token())
    assert status_and_code(answer) == (503, "issuer-unavailable")
    assert answer.headers["retry-after"] == "5"
    assert "127.0.0.1" not in answer.text


async def test_a_users_key_cannot_act_for_another_user(tb: Tellback) -> None:
    app, secret = make_server(tb), (await tb.keys.create("user", user_id="maya")).secret
    assert (await send_request(app, secret)).status_code == 200
    assert (await send_request(app, secret, "maya")).status_code == 200
    assert status_and_code(await send_request(app, secret, "noor")) == (403, "not-allowed")


async def test_an_app_key_needs_the_user_header(tb: Tellback) -> None:
    app, secret = make_server(tb), (await tb.keys.create("app")).secret
    answer = await send_request(app, secret)
    assert status_and_code(answer) == (422, "invalid-argument")
    assert "X-Tellback-User" in answer.json()["detail"]


async def test_the_credential_is_checked_first(tb: Tellback) -> None:
    app = make_server(tb, body_bytes=10)
    for path in (PATH, "/nowhere", f"{PATH}/../x", "/mcp", "/docs/x", "/health"):
        assert status_and_code(await send_request(app, path=path, method="POST", content=b"x" * 1_000))[0] == 401


async def test_a_stream_can_check_whether_its_credential_is_still_valid(tb: Tellback) -> None:
    created = await tb.keys.create("app")
    stored: dict[str, Any] = {}

    async def hold_open(scope: Any, receive: Any, send: Any) -> None:
        stored.update(scope["state"])
        await Response()(scope, receive, send)

    settings = ServerSettings()
    await send_request(
        AuthMiddleware(hold_open, ServerContext(tb, settings), Authenticator(tb, settings)), created.secret, "maya"
    )
    assert await stored["is_still_valid"]()
    await tb.keys.revoke(created.key.id)
    assert not await stored["is_still_valid"]()


async def test_rate_limited_requests_get_a_retry_after_header(tb: Tellback) -> None:
    app, secret = make_server(tb, rate_limit=3), (await tb.keys.create("app")).secret
    answers = [await send_request(app, secret, "maya") for _ in range(8)]
    assert 3 <= sum(each.status_code == 200 for each in answers) <= 6  # a new minute may begin meanwhile
    last = next(each for each in answers if each.status_code != 200)
    assert status_and_code(last) == (429, "rate-limited")
    assert 1 <= int(last.headers["retry-after"]) <= 60
    assert last.headers["ratelimit-remaining"] == "0"
    assert (await send_request(app, path="/health/live")).status_code == 200


async def test_failed_logins_are_limited_without_locking_out_valid_credentials_of_the_same_address(
    tb: Tellback,
) -> None:
    app, good = make_server(tb, failure_limit=3), (await tb.keys.create("app")).secret
    statuses = [(await send_request(app, f"guess{number}", "maya")).status_code for number in range(10)]
    assert statuses[:3] == [401] * 3
    assert 429 in statuses
    assert (await send_request(app, good, "maya")).status_code == 200  # although this key is new


class Waiting:
    """An application that responds when the test lets it."""

    def __init__(self) -> None:
        self.active = 0
        self.may_continue = asyncio.Event()
        self.changed = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.active += 1
        self.changed.set()
        try:
            await self.may_continue.wait()
            if scope["path"] == "/fails":
                raise RuntimeError("failed")
            await Response()(scope, receive, send)
        finally:
            self.active -= 1
            self.changed.set()

    async def wait_for_count(self, count: int) -> None:
        async with asyncio.timeout(20):
            while self.active != count:
                self.changed.clear()
                await self.changed.wait()


async def test_simultaneous_requests_of_a_credential_are_limited(tb: Tellback) -> None:
    settings, waiting = ServerSettings(concurrency=3), Waiting()
    guard = AuthMiddleware(waiting, ServerContext(tb, settings), Authenticator(tb, settings))
    one, other = [(await tb.keys.create("app")).secret for _ in range(2)]
    tasks = [
        asyncio.create_task(send_request(guard, one, "maya", path=path)) for path in (PATH, "/fails", "/cancelled")
    ]
    await waiting.wait_for_count(3)
    refused_response = await send_request(guard, one, "noor")
    assert status_and_code(refused_response) == (429, "rate-limited")
    assert (refused_response.headers["retry-after"], refused_response.headers["ratelimit-remaining"]) == ("1", "0")
    tasks.append(asyncio.create_task(send_request(guard, other, "maya")))
    await waiting.wait_for_count(4)
    tasks[2].cancel()
    await waiting.wait_for_count(3)
    tasks.append(asyncio.create_task(send_request(guard, one, "maya")))
    await waiting.wait_for_count(4)
    waiting.may_continue.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in results[1:3]] == [RuntimeError, asyncio.CancelledError]
    assert guard._concurrency._counts == {}
    assert status_and_code(await send_request(guard, "guess"))[0] == 401
    assert (await send_request(guard, one, "maya", content=b"x" * 5_000_000)).status_code == 413
    assert guard._concurrency._counts == {}


@pytest.mark.parametrize("options", [{"open": True, "concurrency": 1}, {"concurrency": None}])
async def test_requests_are_not_counted_without_a_limit_or_a_credential(tb: Tellback, options: Any) -> None:
    settings, waiting = ServerSettings(rate_limit=None, **options), Waiting()
    guard = AuthMiddleware(waiting, ServerContext(tb, settings), Authenticator(tb, settings))
    secret = None if settings.open else (await tb.keys.create("app")).secret
    tasks = [asyncio.create_task(send_request(guard, secret, "maya")) for _ in range(120)]
    await waiting.wait_for_count(120)
    waiting.may_continue.set()
    assert {each.status_code for each in await asyncio.gather(*tasks)} == {200}


async def test_local_requests_may_use_an_open_server(tb: Tellback) -> None:
    app = make_server(tb, open=True, rate_limit=1)
    for host in ("127.0.0.1:8765", "localhost:8765", "LOCALHOST", "[::1]:8765", "127.8.9.1"):
        assert (await send_request(app, headers={"Host": host})).status_code == 200
    created = await send_request(app, user="maya", method="POST", json={"namespace": "chat"})
    assert created.json()["userId"] == "maya"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example.com"},
        {"Host": "127.0.0.1.evil.example.com:8765"},
        {"Host": "localhost.evil.example.com"},
        {"Host": "192.168.1.5:8765"},
        {"Host": ""},
        {"Host": "0.0.0.0"},
        {"Host": "[::1"[:1]},
        {"X-Forwarded-For": "203.0.113.9"},
        {"Forwarded": "for=203.0.113.9"},
        {"Origin": "https://evil.example.com"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "http://[x"},
    ],
)
async def test_an_open_server_rejects_proxied_and_foreign_requests(tb: Tellback, headers: dict[str, str]) -> None:
    answer = await send_request(make_server(tb, open=True), headers=headers)
    assert status_and_code(answer) == (403, "not-allowed")
    assert "evil" not in answer.text


async def test_an_open_server_accepts_requests_of_its_own_origin(tb: Tellback) -> None:
    app = make_server(tb, open=True, cors_origins=("http://localhost:3000",))
    for origin in ("http://127.0.0.1", "http://localhost:3000"):
        assert (await send_request(app, headers={"Origin": origin})).status_code == 200


async def test_an_open_server_rejects_other_machines(tb: Tellback) -> None:
    app = make_server(tb, open=True)
    for client, status in (("203.0.113.9", 403), ("::ffff:127.0.0.1", 200), ("::1", 200), ("127.0.0.1", 200)):
        transport = httpx2.ASGITransport(app, client=(client, 4711))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as there:
            assert (await there.get(PATH)).status_code == status


async def test_only_allowed_hosts_are_served(tb: Tellback) -> None:
    app = make_server(tb, allowed_hosts=("api.example.com", "*.example.org"))
    secret = (await tb.keys.create("app")).secret
    for host, status in (
        ("api.example.com", 200),
        ("API.example.com.:443", 200),
        ("a.b.example.org", 200),
        ("example.org", 403),
        ("evilexample.org", 403),
        ("example.com", 403),
        ("127.0.0.1", 403),
        ("", 403),
    ):
        assert (await send_request(app, secret, "maya", headers={"Host": host})).status_code == status, host
    assert (await send_request(app, path="/health/live", headers={"Host": "10.0.0.3"})).status_code == 200


async def test_only_configured_cors_origins_can_read_responses(tb: Tellback) -> None:
    closed, cors_app = make_server(tb), make_server(tb, cors_origins=("https://app.example.com",))
    secret = (await tb.keys.create("app")).secret
    headers = "authorization,x-tellback-space,x-tellback-user"
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": headers}
    for app, origin, is_allowed in (
        (closed, "https://app.example.com", False),
        (cors_app, "https://evil.example.com", False),
        (cors_app, "https://app.example.com.evil.example.com", False),
        (cors_app, "https://app.example.com", True),
    ):
        preflight = await send_request(app, method="OPTIONS", headers={"Origin": origin, **ask})
        answer = await send_request(app, secret, "maya", headers={"Origin": origin})
        assert (preflight.status_code == 200) is is_allowed
        assert ("access-control-allow-origin" in preflight.headers) is is_allowed
        assert (answer.headers.get("access-control-allow-origin") == origin) is is_allowed
        assert "access-control-allow-credentials" not in answer.headers
    response = await send_request(cors_app, headers={"Origin": "https://app.example.com"})
    assert response.status_code == 401
    assert response.headers["access-control-allow-origin"] == "https://app.example.com"
    assert {"ETag", "Idempotency-Replayed"} <= {*response.headers["access-control-expose-headers"].split(", ")}


def test_insecure_server_settings_are_rejected() -> None:
    for origin in (
        "*",
        "https://*.example.com",
        "app.example.com",
        "https://a.example.com/",
        "null",
        "file://",
        "ftp://x",
    ):
        with pytest.raises(ConfigurationError, match="cors_origins"):
            ServerSettings(cors_origins=(origin,))
    for host in ("*", "*.", "", "a.*.com", "https://example.com"):
        with pytest.raises(ConfigurationError, match="allowed_hosts"):
            ServerSettings(allowed_hosts=(host,))
    no_limits: dict[str, Any] = dict.fromkeys(("rate_limit", "failure_limit", "body_bytes", "body_seconds"), 0)
    for name in no_limits:
        with pytest.raises(ConfigurationError, match=name):
            ServerSettings(**{name: no_limits[name]})
    with pytest.raises(ConfigurationError, match="concurrency"):
        ServerSettings(concurrency=0)
    with pytest.raises(ConfigurationError, match="body_seconds"):
        ServerSettings(body_seconds=float("nan"))


@given(st.text(max_size=60))
def test_any_host_header_can_be_parsed(host: str) -> None:
    name = host_name(host)
    assert is_loopback(name) in (True, False)
    with suppress(NotAllowedError):
        HostPolicy((), is_open=True).check({b"host": host.encode("latin-1", "replace")}, None)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60))
def test_user_ids_survive_the_header_encoding(name: str) -> None:
    principal = Principal("key_1", "acme", "default", "app")
    if not name.strip() or name == "*":
        return
    assert resolve_acting_user(principal, quote(name, safe="").encode()) == name
    assert resolve_acting_user(OPEN_PRINCIPAL, quote(name).encode()) == name


@pytest.mark.parametrize("user", ["%", "%4", "%zz", "%FF", "%ED%A0%80", "%00", "a%00b", "*", "%2A", "%20", "x" * 201])
async def test_an_invalid_user_header_is_rejected(tb: Tellback, user: str) -> None:
    answer = await send_request(
        make_server(tb), (await tb.keys.create("app")).secret, headers={"X-Tellback-User": user}
    )
    assert status_and_code(answer) == (422, "invalid-argument")


async def test_non_ascii_user_headers_must_be_percent_encoded(tb: Tellback) -> None:
    headers = [(b"X-Tellback-User", "zoë".encode())]
    answer = await send_request(make_server(tb), (await tb.keys.create("app")).secret, headers=headers)
    assert status_and_code(answer) == (422, "invalid-argument")


async def test_websockets_are_closed(tb: Tellback) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": PATH, "headers": [], "query_string": b"", "client": ("127.0.0.1", 1)}
    await make_server(tb, open=True)(scope, receive, send)
    assert [each["type"] for each in sent] == ["websocket.close"]


async def test_the_auth_middleware_passes_lifespan_events() -> None:
    app = create_app(Tellback(":memory:", worker=False), ServerSettings(open=True))
    asked_for: asyncio.Queue[Any] = asyncio.Queue()
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if len(sent) == 1:
            await asked_for.put({"type": "lifespan.shutdown"})

    await asked_for.put({"type": "lifespan.startup"})
    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, asked_for.get, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_an_api_key_is_checked_even_by_an_open_server(tb: Tellback) -> None:
    app = make_server(tb, open=True)
    created = await tb.keys.create("user", tenant_id="acme", user_id="maya")
    conversation = await tb.user("maya", "acme").conversations.create("chat")
    assert [each["id"] for each in (await send_request(app, created.secret)).json()["items"]] == [conversation.id]
    assert (await send_request(app, "sk-of-another-vendor")).json()["items"] == []
    await tb.keys.revoke(created.key.id)
    assert status_and_code(await send_request(app, created.secret)) == (401, "not-authenticated")
