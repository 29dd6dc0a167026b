"""The keys of an issuer: read, fetched seldom, and kept when they cannot be fetched."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tellback.errors import RemoteUnavailableError
from tellback.server import auth as module
from tellback.server.auth import IssuerKeys, fetch_jwks, parse_jwks
from tests.support.tokens import jwk, jwks, private_key


class Issuer:
    """Gives what it has, counts how often, and has a clock of its own."""

    def __init__(self, *kids: str) -> None:
        self.kids = kids
        self.fetches = 0
        self.fails = False
        self.now = 1_000.0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.keys = IssuerKeys(self.load, timer=lambda: self.now)

    async def load(self) -> Mapping[str, Any]:
        self.fetches += 1
        await self.may_answer.wait()
        if self.fails:
            raise OSError("no way there")
        return jwks(*(jwk(kid) for kid in self.kids))

    async def has(self, kid: str | None) -> bool:
        return await self.keys.find(kid, "RS256") is not None


async def test_keys_are_fetched_once_and_used_many_times() -> None:
    issuer = Issuer("one")
    assert all([await issuer.has("one") for _ in range(20)])
    assert issuer.fetches == 1


async def test_many_requests_wait_for_one_fetch() -> None:
    issuer = Issuer("one")
    issuer.may_answer.clear()
    asking = [asyncio.create_task(issuer.has("one")) for _ in range(50)]
    await asyncio.sleep(0)
    asking[0].cancel()  # whoever gives up does not take the others along
    issuer.may_answer.set()
    assert await asyncio.gather(*asking[1:]) == [True] * 49
    assert issuer.fetches == 1


async def test_a_new_key_is_found_but_unknown_ones_do_not_drive_fetches() -> None:
    issuer = Issuer("one")
    assert await issuer.has("one")
    assert not any([await issuer.has(f"garbage {number}") for number in range(100)])
    assert issuer.fetches == 1
    issuer.kids = ("one", "two")
    assert not await issuer.has("two")
    issuer.now += module.MIN_FETCH_INTERVAL
    assert await issuer.has("two")
    assert not any([await issuer.has(f"garbage {number}") for number in range(100)])
    assert issuer.fetches == 2


async def test_keys_stay_in_use_while_they_cannot_be_fetched(caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer("one")
    assert await issuer.has("one")
    issuer.fails = True
    for _ in range(5):
        issuer.now += 2 * module.STALE_SECONDS
        assert await issuer.has("one")
    assert issuer.fetches == 6
    assert "stay in use" in caplog.text


async def test_a_key_that_was_taken_back_is_not_used_for_long() -> None:
    issuer = Issuer("one")
    assert await issuer.has("one")
    issuer.kids = ("two",)
    issuer.now += module.FRESH_SECONDS
    assert await issuer.has("one")  # and they are fetched meanwhile
    await asyncio.sleep(0.01)
    assert not await issuer.has("one")
    issuer.kids = ("three",)
    issuer.now += module.STALE_SECONDS
    assert not await issuer.has("two")


async def test_without_any_keys_a_token_may_be_good_all_the_same() -> None:
    issuer = Issuer("one")
    issuer.fails = True
    for _ in range(10):
        with pytest.raises(RemoteUnavailableError):
            await issuer.has("one")
    assert issuer.fetches == 1
    issuer.fails = False
    issuer.now += module.FIRST_FETCH_INTERVAL
    assert await issuer.has("one")


async def test_a_set_without_any_key_changes_nothing() -> None:
    issuer = Issuer("one")
    assert await issuer.has("one")
    issuer.kids = ()
    issuer.now += module.STALE_SECONDS
    issuer.keys._load = lambda: asyncio.sleep(0, {"keys": []})
    assert await issuer.has("one")


def test_only_keys_that_verify_are_read() -> None:
    weak = json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key()))
    private = {**json.loads(RSAAlgorithm.to_jwk(private_key())), "kid": "private", "key_ops": ["verify"]}
    given = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        jwk("encrypts", use="enc"),
        jwk("signs", key_ops=["sign"]),
        jwk("odd", alg="HS256"),
        jwk("unhashable", alg=["RS256"]),
        {**weak, "kid": "weak"},
        {**jwk("broken"), "n": 7},
        {**jwk("empty"), "n": ""},
        {"kty": "EC", "crv": ["P-256"], "kid": "list"},
        {"kty": "RSA", "kid": "bare"},
        {**jwk(), "kid": 7},
        "text",
        None,
        private,
        jwk("good", use="sig", key_ops=["verify"], alg="RS256"),
    ]
    read = parse_jwks({"keys": given})
    assert [each.kid for each in read] == ["good"]
    assert read[0].algorithms == {"RS256"}


Handler = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture
def at() -> Iterator[Callable[[Handler], str]]:
    """Serves what a function writes; gives the address."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def serve(handle: Handler) -> str:
        class Handles(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                handle(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handles)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/keys"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def _gives(body: bytes, status: int = 200, **headers: str) -> Handler:
    def handle(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return handle


def test_keys_come_from_their_address(at: Callable[[Handler], str]) -> None:
    assert parse_jwks(fetch_jwks(at(_gives(json.dumps(jwks()).encode()))))[0].kid == "one"


def test_an_address_that_leads_elsewhere_is_not_followed(at: Callable[[Handler], str]) -> None:
    elsewhere = at(_gives(json.dumps(jwks()).encode()))
    with pytest.raises(OSError, match="302"):
        fetch_jwks(at(_gives(b"", 302, Location=elsewhere)))


def test_an_answer_without_an_end_is_given_up(at: Callable[[Handler], str]) -> None:
    ended = threading.Event()

    def drips(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not ended.wait(0.05):
            request.wfile.write(b" ")

    def floods(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            while not ended.is_set():
                request.wfile.write(b" " * 10_000)
        except OSError:
            pass

    try:
        with pytest.raises(TimeoutError):
            fetch_jwks(at(drips), seconds=0.3)
        with pytest.raises(ValueError, match="bytes"):
            fetch_jwks(at(floods), max_bytes=50_000)
    finally:
        ended.set()


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"7", b"\xff", b"[" * 100_000, b'{"keys": [' + b"{" * 9_000])
async def test_what_is_no_key_set_is_a_failed_fetch(at: Callable[[Handler], str], body: bytes) -> None:
    url = at(_gives(body))
    keys = IssuerKeys(lambda: asyncio.to_thread(fetch_jwks, url))
    with pytest.raises(RemoteUnavailableError):
        await keys.find("one", "RS256")
    for status in (404, 500):
        refusing = at(_gives(json.dumps(jwks()).encode(), status))
        with pytest.raises(OSError, match=str(status)):
            fetch_jwks(refusing)
