"""JWTs: accepted and rejected tokens, the reasons, and the issuer's keys."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from tellback.errors import ConfigurationError, NotAuthenticatedError, RemoteUnavailableError
from tellback.server import auth as module
from tellback.server.auth import IssuerKeys, JwtVerifier, fetch_jwks, parse_jwks
from tests.support import tokens
from tests.support.tokens import claims, jwk, jwks, private_key, settings, signed, token, unsigned

TOKENS = JwtVerifier(settings())


async def verify_error(encoded: str, checker: JwtVerifier = TOKENS) -> str:
    with pytest.raises(NotAuthenticatedError) as raised:
        await checker.verify(encoded)
    assert encoded not in str(raised.value)
    assert encoded.partition(".")[2][:40] not in str(raised.value) or len(encoded) < 40
    return str(raised.value)


async def test_a_valid_token_yields_the_principal_of_its_user() -> None:
    found = await TOKENS.verify(token())
    assert (found.tenant_id, found.app_id, found.role, found.user_id) == ("acme", "default", "user", "maya")
    assert found.id.startswith("jwt_")
    assert "maya" not in found.id


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_tokens_signed_with_each_kind_of_key_are_accepted(algorithm: str) -> None:
    checker = JwtVerifier(settings(jwks=jwks(jwk("a"), jwk("b", "ES256"), jwk("c", "EdDSA"))))
    kid = {"RS256": "a", "ES256": "b", "EdDSA": "c"}[algorithm]
    assert (await checker.verify(token(kid, algorithm))).user_id == "maya"


@pytest.mark.parametrize("moment", [10**400, -(10**400), 10**12, 1e300], ids=["huge", "tiny", "far", "farther"])
@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
async def test_tokens_with_out_of_range_timestamps_are_rejected(name: str, moment: float) -> None:
    claim_values: dict[str, Any] = {name: moment}
    assert await verify_error(token(**claim_values))


async def test_claim_names_come_from_the_settings() -> None:
    checker = JwtVerifier(
        settings(tenant_claim="https://example.com/tenant", user_claim="email", app_claim="azp", role_claim="r")
    )
    claim_values: dict[str, Any] = {
        "https://example.com/tenant": "umbrella",
        "email": "m@example.com",
        "azp": "shop",
        "r": "user",
    }
    found = await checker.verify(token(**claim_values))
    assert (found.tenant_id, found.app_id, found.user_id) == ("umbrella", "shop", "m@example.com")


async def test_missing_claims_get_defaults_from_the_settings() -> None:
    checker = JwtVerifier(settings(tenant_id="acme", app_id="shop", role="app"))
    found = await checker.verify(token(tenant_id=None))
    assert (found.tenant_id, found.app_id, found.role, found.user_id) == ("acme", "shop", "app", None)


async def test_all_tokens_of_a_user_share_one_principal() -> None:
    first, second = await TOKENS.verify(token()), await TOKENS.verify(token(exp=int(time.time()) + 60))
    changed: list[dict[str, Any]] = [{"sub": "noor"}, {"tenant_id": "b"}, {"role": "admin"}]
    others = [await TOKENS.verify(token(**each)) for each in changed]
    assert first == second  # a stream continues with either token
    assert first.expires_at != second.expires_at
    assert first.id not in {each.id for each in others}


async def test_a_token_may_have_several_audiences() -> None:
    assert (await TOKENS.verify(token(aud=["other", tokens.AUDIENCE]))).user_id == "maya"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": int(time.time()) - 60}, "expired"),
        ({"exp": None}, "no exp"),
        ({"exp": "9999999999"}, "exp"),
        ({"exp": True}, "expired"),
        ({"exp": [1]}, "cannot be parsed"),
        ({"exp": float("inf")}, "cannot be parsed"),
        ({"exp": float("nan")}, "cannot be parsed"),
        ({"nbf": int(time.time()) + 600}, "not valid yet"),
        ({"nbf": "0"}, "nbf"),
        ({"iat": int(time.time()) + 600}, "not valid yet"),
        ({"iat": "soon"}, "iat"),
        ({"aud": "somewhere else"}, "audience"),
        ({"aud": None}, "no aud"),
        ({"aud": 7}, "audience"),
        ({"aud": [tokens.AUDIENCE, 7]}, "audience"),
        ({"iss": "https://evil.example.com/"}, "issuer"),
        ({"iss": None}, "no iss"),
        ({"iss": [tokens.ISSUER]}, "issuer"),
        ({"sub": None}, "no sub"),
        ({"sub": 7}, "cannot be parsed"),
        ({"sub": ""}, "sub"),
        ({"sub": "*"}, "sub"),
        ({"sub": "a\0b"}, "sub"),
        ({"sub": "m" * 300}, "sub"),
        ({"tenant_id": None}, "no tenant_id"),
        ({"tenant_id": 7}, "tenant_id"),
        ({"tenant_id": ["acme"]}, "tenant_id"),
        ({"tenant_id": ""}, "tenant_id"),
        ({"app_id": {"a": 1}}, "app_id"),
        ({"role": "root"}, "role"),
        ({"role": ["admin"]}, "role"),
        ({"role": {"admin": True}}, "role"),
        ({"role": "app", "sub": None}, "no sub"),
    ],
)
async def test_a_token_with_wrong_claims_is_rejected_with_the_reason(changed: dict[str, Any], reason: str) -> None:
    assert reason in await verify_error(token(**changed))


async def test_an_unsigned_token_is_rejected() -> None:
    for algorithm in ("none", "None", "NONE", "nOnE", ""):
        assert "algorithm" in await verify_error(unsigned(claims(), {"alg": algorithm, "kid": "one"}))
    assert "algorithm" in await verify_error(unsigned(claims(), {"kid": "one"}))


async def test_a_public_key_is_not_accepted_as_a_shared_secret() -> None:
    start = unsigned(claims(), {"alg": "HS256", "kid": "one"}).rpartition(".")[0]
    for secret in (tokens.public_pem(), tokens.public_pem().strip(), b""):
        signature_bytes = hmac.new(secret, start.encode(), hashlib.sha256).digest()
        assert "algorithm" in await verify_error(f"{start}.{jwt.utils.base64url_encode(signature_bytes).decode()}")


async def test_a_key_only_verifies_its_own_algorithms() -> None:
    checker = JwtVerifier(settings(jwks=jwks(jwk("one"), jwk("two", "ES256"))))
    assert "algorithm" in await verify_error(signed(claims(), {"alg": "ES256", "kid": "one"}), checker)
    narrow = JwtVerifier(settings(jwks=jwks(jwk("one", alg="RS512"))))
    assert "algorithm" in await verify_error(token(), narrow)
    only = JwtVerifier(settings(algorithms=("ES256",)))
    assert "algorithm" in await verify_error(token(), only)


async def test_a_signature_of_another_key_is_rejected() -> None:
    assert "signature" in await verify_error(token(number=2))
    good = token()
    start, _, signature = good.rpartition(".")
    assert "signature" in await verify_error(f"{start}.{'A' * len(signature)}")
    header, payload, _ = good.split(".")
    other = token(sub="noor").split(".")[1]
    assert payload != other
    assert "signature" in await verify_error(f"{header}.{other}.{signature}")


async def test_a_token_without_key_id_needs_an_issuer_with_one_key() -> None:
    assert (await TOKENS.verify(token(kid=None))).user_id == "maya"
    several = JwtVerifier(settings(jwks=jwks(jwk("one"), jwk("two", number=2))))
    assert "kid" in await verify_error(token(kid=None), several)
    assert "kid" in await verify_error(token(kid="three"), several)


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "RS256", "kid": 7},
        {"alg": "RS256", "kid": ["one"]},
        {"alg": ["RS256"], "kid": "one"},
        {"alg": {"RS256": 1}, "kid": "one"},
        {"alg": "RS256", "kid": "one", "crit": ["x"], "x": 1},
        {"alg": "RS256", "kid": "one", "b64": False, "crit": ["b64"]},
        [],
        "RS256",
        None,
        7,
    ],
)
async def test_a_malformed_token_header_is_rejected(header: Any) -> None:
    await verify_error(signed(claims(), header))


async def test_a_payload_that_is_not_an_object_is_rejected() -> None:
    for payload in (b"[]", b"7", b"null", b"{", b"\xff\xfe", b"[" * 5_000, b'{"exp": ' + b"9" * 5_000 + b"}"):
        assert "cannot be parsed" in await verify_error(signed(payload, {"alg": "RS256", "kid": "one"}))
    nested = b'{"alg":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    await verify_error(unsigned(claims(), nested))


async def test_keys_in_a_tokens_header_are_ignored() -> None:
    header = {
        "alg": "RS256",
        "kid": "evil",
        "jwk": jwk("evil", number=2),
        "jku": "http://127.0.0.1:1/",
        "x5u": "http://x",
    }
    assert "kid" in await verify_error(signed(claims(), header, number=2))
    assert "signature" in await verify_error(signed(claims(), {**header, "kid": "one"}, number=2))


async def test_a_token_that_is_too_long_is_rejected_unparsed() -> None:
    assert "limit" in await verify_error(token(more="x" * 20_000))


@given(st.text(max_size=200) | st.from_regex(r"[A-Za-z0-9_-]{0,40}(\.[A-Za-z0-9_-]{0,40}){0,4}", fullmatch=True))
@hypothesis_settings(max_examples=200)
async def test_arbitrary_strings_are_rejected_as_tokens(text: str) -> None:
    with pytest.raises(NotAuthenticatedError):
        await TOKENS.verify(text)


async def test_a_cached_token_is_accepted_only_until_it_expires() -> None:
    now = time.time()
    moment = [now]
    checker = JwtVerifier(settings(leeway_seconds=0), timer=lambda: moment[0])
    short = token(exp=int(now) + 1)
    assert (await checker.verify(short)).user_id == "maya"
    checker._keys = IssuerKeys(None)  # the cached token needs no keys
    assert (await checker.verify(short)).user_id == "maya"
    moment[0] = now + 2
    await verify_error(short, checker)


async def test_the_token_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from tellback.server import auth as module

    monkeypatch.setattr(module, "MAX_CACHED_TOKENS", 3)
    checker = JwtVerifier(settings())
    for number in range(6):
        await checker.verify(token(sub=f"user {number}"))
    assert len(checker._cache) == 3


def test_insecure_jwt_settings_are_rejected() -> None:
    good = settings()
    for changed in (
        {"algorithms": ("HS256",)},
        {"algorithms": ("none",)},
        {"algorithms": ()},
        {"algorithms": ("RS256", "hs512")},
        {"issuer": ""},
        {"audience": ""},
        {"jwks": None},
        {"jwks_url": "https://login.example.com/keys"},
        {"role": "root"},
        {"leeway_seconds": -1.0},
        {"leeway_seconds": float("nan")},
        {"leeway_seconds": 86_400.0},
    ):
        with pytest.raises(ConfigurationError):
            replace(good, **changed)
    for url in ("http://login.example.com/keys", "file:///etc/passwd", "ftp://x/", "https://", "login.example.com"):
        with pytest.raises(ConfigurationError, match="jwks_url"):
            settings(jwks_url=url)
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "one"}
    useless: list[dict[str, Any]] = [{}, {"keys": []}, {"keys": [secret]}, {"keys": "one"}]
    for keys in useless:
        with pytest.raises(ConfigurationError, match="jwks"):
            JwtVerifier(settings(jwks=keys))


class Issuer:
    """An issuer that serves its keys, counts the fetches, and has its own clock."""

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
            raise OSError("unreachable")
        return jwks(*(jwk(kid) for kid in self.kids))

    async def has_key(self, kid: str | None) -> bool:
        return await self.keys.find(kid, "RS256") is not None


async def test_issuer_keys_are_fetched_once_and_reused() -> None:
    issuer = Issuer("one")
    assert all([await issuer.has_key("one") for _ in range(20)])
    assert issuer.fetches == 1


async def test_concurrent_requests_share_one_fetch() -> None:
    issuer = Issuer("one")
    issuer.may_answer.clear()
    asking = [asyncio.create_task(issuer.has_key("one")) for _ in range(50)]
    await asyncio.sleep(0)
    asking[0].cancel()  # a cancelled request does not cancel the others
    issuer.may_answer.set()
    assert await asyncio.gather(*asking[1:]) == [True] * 49
    assert issuer.fetches == 1


async def test_a_new_key_is_fetched_but_unknown_key_ids_do_not_cause_more_fetches() -> None:
    issuer = Issuer("one")
    assert await issuer.has_key("one")
    assert not any([await issuer.has_key(f"garbage {number}") for number in range(100)])
    assert issuer.fetches == 1
    issuer.kids = ("one", "two")
    assert not await issuer.has_key("two")
    issuer.now += module.MIN_FETCH_INTERVAL
    assert await issuer.has_key("two")
    assert not any([await issuer.has_key(f"garbage {number}") for number in range(100)])
    assert issuer.fetches == 2


async def test_old_keys_remain_in_use_while_fetches_fail(caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer("one")
    assert await issuer.has_key("one")
    issuer.fails = True
    for _ in range(5):
        issuer.now += 2 * module.STALE_SECONDS
        assert await issuer.has_key("one")
    assert issuer.fetches == 6
    assert "keeping the old ones" in caplog.text


async def test_a_withdrawn_key_is_soon_rejected() -> None:
    issuer = Issuer("one")
    assert await issuer.has_key("one")
    issuer.kids = ("two",)
    issuer.now += module.FRESH_SECONDS
    assert await issuer.has_key("one")  # the keys are fetched in the background
    await asyncio.sleep(0.01)
    assert not await issuer.has_key("one")
    issuer.kids = ("three",)
    issuer.now += module.STALE_SECONDS
    assert not await issuer.has_key("two")


async def test_without_any_keys_the_issuer_is_reported_as_unavailable() -> None:
    issuer = Issuer("one")
    issuer.fails = True
    for _ in range(10):
        with pytest.raises(RemoteUnavailableError):
            await issuer.has_key("one")
    assert issuer.fetches == 1
    issuer.fails = False
    issuer.now += module.FIRST_FETCH_INTERVAL
    assert await issuer.has_key("one")


async def test_an_empty_key_set_keeps_the_old_keys() -> None:
    issuer = Issuer("one")
    assert await issuer.has_key("one")
    issuer.kids = ()
    issuer.now += module.STALE_SECONDS
    issuer.keys._load = lambda: asyncio.sleep(0, {"keys": []})
    assert await issuer.has_key("one")


def test_only_verification_keys_are_parsed() -> None:
    weak = json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key()))
    private = {**json.loads(RSAAlgorithm.to_jwk(private_key())), "kid": "private", "key_ops": ["verify"]}
    raw_keys = [
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
    parsed = parse_jwks({"keys": raw_keys})
    assert [each.kid for each in parsed] == ["good"]
    assert parsed[0].algorithms == {"RS256"}


Handler = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture
def serve_handler() -> Iterator[Callable[[Handler], str]]:
    """Serve the output of a function, and yield the URL."""
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


def _respond_with(body: bytes, status: int = 200, **headers: str) -> Handler:
    def handle(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return handle


def test_keys_are_fetched_from_the_jwks_url(serve_handler: Callable[[Handler], str]) -> None:
    assert parse_jwks(fetch_jwks(serve_handler(_respond_with(json.dumps(jwks()).encode()))))[0].kid == "one"


def test_redirects_of_the_jwks_url_are_not_followed(serve_handler: Callable[[Handler], str]) -> None:
    other_url = serve_handler(_respond_with(json.dumps(jwks()).encode()))
    with pytest.raises(OSError, match="302"):
        fetch_jwks(serve_handler(_respond_with(b"", 302, Location=other_url)))


def test_a_jwks_response_that_is_too_large_or_slow_is_aborted(serve_handler: Callable[[Handler], str]) -> None:
    finished = threading.Event()

    def drip_bytes(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not finished.wait(0.05):
            request.wfile.write(b" ")

    def flood_bytes(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            while not finished.is_set():
                request.wfile.write(b" " * 10_000)
        except OSError:
            pass

    try:
        with pytest.raises(TimeoutError):
            fetch_jwks(serve_handler(drip_bytes), seconds=0.3)
        with pytest.raises(ValueError, match="bytes"):
            fetch_jwks(serve_handler(flood_bytes), max_bytes=50_000)
    finally:
        finished.set()


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"7", b"\xff", b"[" * 100_000, b'{"keys": [' + b"{" * 9_000])
async def test_a_malformed_key_set_counts_as_a_failed_fetch(
    serve_handler: Callable[[Handler], str], body: bytes
) -> None:
    url = serve_handler(_respond_with(body))
    keys = IssuerKeys(lambda: asyncio.to_thread(fetch_jwks, url))
    with pytest.raises(RemoteUnavailableError):
        await keys.find("one", "RS256")
    for status in (404, 500):
        refusing = serve_handler(_respond_with(json.dumps(jwks()).encode(), status))
        with pytest.raises(OSError, match=str(status)):
            fetch_jwks(refusing)
