"""Malformed and hostile requests get a problem response or a closed connection, and the server continues."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tellback.server.operations.http_server import BoundedProtocol
from tests.support.http_server import running_server
from tests.support.raw_http import RawResponse, build_request, encode_chunked, open_connection, send_request

HERE = "/ai-conversations"
BODY = 100_000


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[str]:
    """An open server."""
    settings = ServerSettings(open=True, body_bytes=BODY, body_seconds=0.5)
    async with Tellback(":memory:", worker=False) as tb:
        app = create_app(tb, settings, opens=False)
        async with running_server(app, http=BoundedProtocol, ws="none", timeout_graceful_shutdown=2) as address:
            yield address


@pytest_asyncio.fixture(loop_scope="module")
async def url(server: str) -> AsyncIterator[str]:
    """Yield the server's address, and check that it still responds after the test."""
    yield server
    assert (await send_request(server, build_request("GET", HERE))).status == 200


def post(body: bytes, *headers: tuple[str, str | bytes]) -> bytes:
    return build_request("POST", HERE, body, list(headers))


def conversation_body(namespace: str = "chat", **kwargs: Any) -> bytes:
    return json.dumps({"namespace": namespace, **kwargs}).encode()


async def send_and_check(url: str, data: bytes, *answers: tuple[int, str] | int) -> RawResponse:
    """Send bytes and check that the response is one of these, each a status and a problem code."""
    answer = await send_request(url, data)
    assert answer.status in answers or (answer.status, answer.code) in answers, (answer.status, answer.body[:500])
    return answer


MALFORMED = (400, "malformed")
UNREADABLE = (400, "")  # the HTTP parser's own response, before the app is called


@pytest.mark.parametrize(
    "name",
    [
        *("Authorization", "X-Tellback-User", "Host", "Content-Type", "Idempotency-Key", "X-Request-Id", "Origin"),
        *("X-Tellback-Conversation", "X-Tellback-Session", "X-Tellback-Namespace", "Last-Event-ID"),
    ],
)
async def test_ambiguous_headers_are_rejected(url: str, name: str) -> None:
    header_pairs: dict[str, tuple[str, str]] = {
        "Host": ("127.0.0.1", "evil.example.com"),
        "Content-Type": ("application/json", "text/plain"),
    }
    first, second = header_pairs.get(name, ("maya", "noor"))
    for pair in ((first, second), (first, first)):
        answer = await send_and_check(
            url, post(conversation_body(), (name, pair[0]), (name.upper(), pair[1])), MALFORMED
        )
        assert "evil" not in answer.body.decode()


@pytest.mark.parametrize(
    ("headers", "answers"),
    [
        ([("Content-Length", "22"), ("Content-Length", "23")], (MALFORMED, UNREADABLE)),
        ([("Content-Length", "22"), ("Content-Length", "22")], (MALFORMED, UNREADABLE)),
        ([("Content-Length", "22"), ("Transfer-Encoding", "chunked")], (MALFORMED, UNREADABLE)),
        ([("Transfer-Encoding", "chunked"), ("Content-Length", "22")], (MALFORMED, UNREADABLE)),
        ([("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "identity")], (MALFORMED, UNREADABLE)),
        ([("Transfer-Encoding", "xchunked")], (MALFORMED, UNREADABLE, 422)),
        ([("Content-Length", "-1")], (UNREADABLE,)),
        ([("Content-Length", "+5")], (UNREADABLE,)),
        ([("Content-Length", "0x10")], (UNREADABLE,)),
        ([("Content-Length", "9" * 30)], (MALFORMED, UNREADABLE)),
        ([("Content-Length", "9" * 18)], ((413, "too-large"),)),
        ([("Content-Length", "")], (UNREADABLE, MALFORMED, 422)),
        ([("X-Tellback-User", b"maya\x01")], (MALFORMED, UNREADABLE)),
        ([("X-Tellback-User", b"ma\x00ya")], (MALFORMED, UNREADABLE)),
        ([("X-Tellback-User", b"maya\x7f")], (MALFORMED, UNREADABLE)),
        ([("X-Tellback-User", b"maya\rX-Evil: 1")], (MALFORMED, UNREADABLE)),
        ([("X-Anything", b"\x1b[2J")], (MALFORMED, UNREADABLE)),
        ([("X-Tellback-User", b"zo\xc3\xab")], ((422, "invalid-argument"),)),
        ([("X-Tellback-User", "%0d%0aX-Evil:%201")], (201,)),
        ([("X Space", "1")], (UNREADABLE,)),
        ([("X-Folded", b"1\r\n 2")], (201, UNREADABLE, MALFORMED)),
        ([(b"X-N\xff".decode("latin-1"), "1")], (UNREADABLE,)),
        ([("", "1")], (UNREADABLE,)),
        ([("Expect", "100-continue"), ("Content-Length", "9" * 18)], ((413, "too-large"),)),
        ([("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", "x")], (201, MALFORMED, 422)),
        (
            [("Upgrade", "h2c"), ("Connection", "Upgrade, HTTP2-Settings"), ("HTTP2-Settings", "x")],
            (201, MALFORMED, 422),
        ),
    ],
)
async def test_invalid_framing_headers_are_rejected(
    url: str, headers: list[tuple[str, str | bytes]], answers: tuple[tuple[int, str] | int, ...]
) -> None:
    answer = await send_and_check(url, post(conversation_body(), *headers), *answers)
    assert "x-evil" not in answer.headers


async def test_requests_cannot_inject_response_headers(url: str) -> None:
    for value in ("a%0d%0aX-Evil: 1", "a b", "é", "x" * 500, "<script>", '"', "a\tb"):
        for name in ("X-Request-Id", "X-Tellback-Conversation", "X-Tellback-Session", "Idempotency-Key", "Origin2"):
            answer = await send_request(url, post(conversation_body(), (name, value)))
            assert answer.status < 500
            assert value.encode("latin-1") not in answer.head
    plain = await send_request(url, build_request("GET", HERE, headers=[("X-Request-Id", "req-7")]))
    assert plain.headers["x-request-id"] == "req-7"


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n\r\n",
        b"GET",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1 x\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00" * 1_000,
        b"\xff\xfe\xfd",
        b"GET \xc3\xa9 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"CONNECT evil.example.com:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"FROBNICATE /ai-conversations HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"get /ai-conversations HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
    ],
)
async def test_malformed_http_is_rejected(url: str, data: bytes) -> None:
    async with open_connection(url) as connection:
        await connection.send(data)
        connection.writer.write_eof()
        answer = await connection.read_response()
        assert answer.status in (0, 400, 403, 404, 405), answer


async def test_only_the_methods_of_a_path_are_allowed(url: str) -> None:
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "OPTIONS", "LOCK"):
        answer = await send_and_check(url, build_request(method, HERE), (405, "method-not-allowed"))
        assert answer.headers["allow"]
    async with open_connection(url) as connection:
        await connection.send(build_request("HEAD", HERE))
        head = await connection.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 405")


@pytest.mark.parametrize(
    "path",
    [
        *("/ai-conversations/", "//ai-conversations", "/ai-conversations//", "/ai-conversations/%2e%2e", "/%2e%2e/x"),
        *(
            "/ai-conversations/../../etc/passwd",
            "/ai-conversations/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "/AI-conversations",
        ),
        *("/ai-conversations/%00", "/ai-conversations/conv_%00", "/ai-conversations/%0d%0aX-Evil:1", "/%", "/%zz"),
        *("/ai-conversations/%ff%fe", "/ai-conversations/%ed%a0%80", "/ai-conversations/" + "x" * 5_000, "/a;b=c"),
        *("/ai-conversations/conv_1/messages?limit=0", "/ai-conversations?limit=-1", "/ai-conversations?limit=1e9"),
        *("/ai-conversations?limit=" + "9" * 5_000, "/ai-conversations?cursor=AA"),
        *("/ai-conversations?status=x", "/ai-conversations?cursor=" + "x" * 2_000, "/ai-conversations?limit=%00"),
        *("/ai-conversations?namespace=%00", "/ai-conversations?cursor=%ff", "/health/live/../../ai-conversations/x"),
    ],
)
async def test_an_invalid_path_is_a_client_error(url: str, path: str) -> None:
    answer = await send_request(url, build_request("GET", path))
    assert answer.status in (400, 404, 422), (answer.status, answer.body[:300])
    assert answer.status == 400 or answer.code
    assert "x-evil" not in answer.headers


async def test_urls_and_headers_that_are_too_long_are_rejected(url: str) -> None:
    await send_and_check(url, build_request("GET", "/" + "a" * 20_000), (414, "address-too-long"))
    await send_and_check(url, build_request("GET", f"{HERE}?cursor={'a' * 20_000}"), (414, "address-too-long"))
    many_headers: list[tuple[str, str | bytes]] = [(f"X-{number}", "1") for number in range(300)]
    await send_and_check(url, build_request("GET", HERE, headers=many_headers), (431, "headers-too-large"))
    assert (await send_request(url, build_request("GET", HERE, headers=[("X-Long", "a" * 200_000)]))).status in (
        0,
        400,
        431,
    )
    assert (await send_request(url, build_request("GET", "/" + "a" * 500_000))).status in (0, 400, 414)


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        (b"", (422,)),
        (b"{", (MALFORMED,)),
        (b"nonsense", (MALFORMED,)),
        (b'{"namespace": "chat"} x', (MALFORMED,)),
        (b'{"namespace": NaN}', (MALFORMED, 422)),
        (b'{"namespace": Infinity}', (MALFORMED, 422)),
        (b'{"namespace": "a\xff"}', (MALFORMED,)),
        (b'{"namespace": "\\ud800"}', (MALFORMED, 422)),
        (b'{"namespace": "\\u0000"}', (422,)),
        (b'{"namespace": "a\nb"}', (MALFORMED,)),
        (b"\xef\xbb\xbf" + b'{"namespace": "chat"}', (MALFORMED,)),
        ('{"namespace": "chat"}'.encode("utf-16"), (MALFORMED,)),
        (b"[" * 90_000, (MALFORMED,)),
        (b"[" * 40_000 + b"]" * 40_000, (MALFORMED, 422)),
        (b'{"metadata":' * 7_000 + b"1" + b"}" * 7_000, (MALFORMED, 422)),
        (b'{"namespace": "chat", "metadata": {"n": ' + b"9" * 50_000 + b"}}", (MALFORMED, 422)),
        (b'{"namespace": "chat", "metadata": {"n": 1e999}}', (MALFORMED, 422)),
        (b'{"namespace": "chat", "metadata": {"n": -' + b"1" * 4_000 + b"}}", (MALFORMED, 422, 201)),
        (b'{"namespace": ' + b"9" * 5_000 + b"}", (MALFORMED, 422)),
        (b'{"namespace": "chat", "namespace": "other"}', (201, 422)),
        (b'{"namespace": "chat", "tenantId": "umbrella"}', (422,)),
        (b'{"namespace": "chat", "__proto__": {}}', (422,)),
        (b'{"namespace": ["chat"]}', (422,)),
        (b'{"namespace": "' + b"n" * 50_000 + b'"}', (422,)),
        (b'{"namespace": "chat", "metadata": {"x": "' + b"n" * 50_000 + b'"}}', (422,)),
        (b"null", (422,)),
        (b"[]", (422,)),
        (b'"chat"', (422,)),
        (b"7", (422,)),
        (b" " * 90_000, (MALFORMED, 422)),
    ],
)
async def test_an_invalid_body_is_rejected(url: str, body: bytes, answers: tuple[tuple[int, str] | int, ...]) -> None:
    answer = await send_and_check(url, post(body), *answers)
    assert answer.code or answer.status == 201
    assert len(answer.body) < 5_000  # the response does not repeat the request


@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        ([("Content-Encoding", "gzip")], (415, "media-type")),
        ([("Content-Encoding", "br, gzip")], (415, "media-type")),
        ([("Content-Type", "text/plain")], (415, "media-type")),
        ([("Content-Type", "")], (415, "media-type")),
        ([("Content-Type", "multipart/form-data; boundary=x")], (415, "media-type")),
        ([("Content-Type", "application/x-www-form-urlencoded")], (415, "media-type")),
    ],
)
async def test_a_body_of_another_media_type_is_rejected(
    url: str, headers: list[tuple[str, str | bytes]], answer: tuple[int, str]
) -> None:
    await send_and_check(url, post(gzip.compress(conversation_body()), *headers), answer)
    await send_and_check(url, post(conversation_body(), *headers), answer)


async def test_a_body_that_is_too_large_is_rejected_with_any_framing(url: str) -> None:
    large = conversation_body("chat", title="x" * (2 * BODY))
    await send_and_check(url, post(large), (413, "too-large"))
    parts = [large[start : start + 4_096] for start in range(0, len(large), 4_096)]
    in_parts = build_request("POST", HERE, encode_chunked(*parts), [("Transfer-Encoding", "chunked")])
    await send_and_check(url, in_parts, (413, "too-large"))
    fitting = conversation_body("chat", metadata={})
    await send_and_check(
        url,
        build_request("POST", HERE, encode_chunked(fitting[:5], fitting[5:]), [("Transfer-Encoding", "chunked")]),
        201,
    )


async def test_a_large_body_does_not_count_towards_the_next_headers(url: str) -> None:
    """Bodies that arrive together with their headers and are larger than the header limit."""
    async with open_connection(url) as connection:
        for _ in range(3):
            await connection.send(post(conversation_body("chat", title="x" * 90_000)))
            assert (await connection.read_response()).status == 422  # titles are limited to fewer characters
        await connection.send(post(conversation_body()))
        assert (await connection.read_response()).status == 201


async def test_invalid_chunks_are_rejected(url: str) -> None:
    for body in (b"zz\r\nx\r\n0\r\n\r\n", b"-5\r\nx\r\n", b"ffffffffffffffffff\r\nx", b"5\r\nabcdefgh\r\n0\r\n\r\n"):
        await send_and_check(
            url, build_request("POST", HERE, body, [("Transfer-Encoding", "chunked")]), 0, 400, 408, 413
        )


async def test_a_connection_continues_after_a_rejected_request(url: str) -> None:
    async with open_connection(url) as connection:
        for body in (b"{", conversation_body("chat"), b"[" * 90_000, b"x" * (2 * BODY), conversation_body("chat")):
            await connection.send(post(body))
            answer = await connection.read_response()
            assert answer.status == (201 if body == conversation_body("chat") else 413 if len(body) > BODY else 400)


async def test_pipelined_requests_are_answered_in_order(url: str) -> None:
    async with open_connection(url) as connection:
        await connection.send(
            b"".join(
                [post(conversation_body("a")), post(b"{"), build_request("GET", "/nowhere"), build_request("GET", HERE)]
            )
        )
        assert [(await connection.read_response()).status for _ in range(4)] == [201, 400, 404, 200]


async def test_many_hostile_clients_do_not_block_others(url: str) -> None:
    bad = [
        post(b"[" * 50_000),
        build_request("GET", "/" + "a" * 20_000),
        b"\x00\x01\x02\r\n\r\n",
        post(b"x" * (2 * BODY)),
    ]
    answers = await asyncio.gather(*(send_request(url, bad[number % len(bad)], 30) for number in range(80)))
    assert all(answer.status < 500 for answer in answers)
