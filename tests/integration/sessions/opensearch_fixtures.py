"""Fixtures of `OpenSearchAdapter` tests: separate indices, and a client that fails at chosen requests."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from opensearchpy import AsyncOpenSearch, AsyncTransport

from tellback.sessions.opensearch import OpenSearchAdapter
from tellback.testing.sessions import MakeAdapter

MakeOpenSearch = Callable[..., OpenSearchAdapter]
Hook = Callable[[], Awaitable[object]]


class OwnIndicesFixtures:
    """Adapters for a `url`, with indices used by the test alone."""

    @pytest.fixture
    def name(self) -> str:
        """The prefix of the test's indices."""
        return f"test-{secrets.token_hex(6)}"

    @pytest.fixture
    def make(self, url: str, name: str) -> MakeOpenSearch:
        """A function that creates adapters with any options."""

        def make(client: AsyncOpenSearch | str = url, prefix: str = "one", **options: Any) -> OpenSearchAdapter:
            indices = {each: f"{name}-{prefix}-{each}" for each in ("sessions", "messages")}
            return OpenSearchAdapter(client, indices=indices, **options)

        return make

    @pytest.fixture
    def make_adapter(self, make: MakeOpenSearch, url: str) -> MakeAdapter:
        def make_adapter(
            prefix: str = "one", *, session_ttl: float | None = None, message_ttl: float | None = None
        ) -> OpenSearchAdapter:
            return make(url, prefix, session_ttl=session_ttl, message_ttl=message_ttl)

        return make_adapter

    @pytest.fixture(autouse=True)
    async def _clean(self, url: str, name: str) -> AsyncIterator[None]:
        yield
        async with AsyncOpenSearch(url) as client:
            await client.indices.delete(index=f"{name}-*")


class SharedServerFixtures(OwnIndicesFixtures):
    """Adapters on a server shared by all tests, with an open adapter and a client for checks."""

    @pytest.fixture
    def url(self, opensearch_url: str) -> str:
        return opensearch_url

    @pytest.fixture
    async def adapter(self, make: MakeOpenSearch) -> AsyncIterator[OpenSearchAdapter]:
        adapter = make()
        await adapter.initialize()
        yield adapter
        await adapter.disconnect()

    @pytest.fixture
    async def client(self, url: str) -> AsyncIterator[AsyncOpenSearch]:
        async with AsyncOpenSearch(url) as client:
            yield client

    @pytest.fixture
    async def scripted(
        self, url: str, make: MakeOpenSearch
    ) -> AsyncIterator[tuple[OpenSearchAdapter, ScriptedTransport]]:
        """An adapter whose requests a test can interrupt."""
        async with AsyncOpenSearch(url, transport_class=ScriptedTransport) as client:
            assert isinstance(client.transport, ScriptedTransport)
            adapter = make(client)
            await adapter.initialize()
            client.transport.start()
            yield adapter, client.transport
            await adapter.disconnect()


class ScriptedTransport(AsyncTransport):
    """A transport that runs a function before or after chosen requests, and can fail from then on."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._before: dict[int, Hook] = {}
        self._after: dict[int, Hook] = {}
        self._failing: BaseException | None = None
        self.sent: list[tuple[str, str, int]] = []
        """The method, the path and the body length of each request."""

    def start(self) -> None:
        """Clear hooks and records. The next request has the number 1."""
        self._before, self._after, self._failing = {}, {}, None
        self.sent.clear()

    def add_hook(self, request: int, hook: Hook, *, after: bool = False) -> None:
        (self._after if after else self._before)[request] = hook

    def fail_from(self, request: int, error: BaseException, *, after: bool) -> None:
        """Let this and all later requests fail. With `after`, this request runs, but its answer is lost."""

        async def fail() -> None:
            self._failing = error
            raise error

        self.add_hook(request, fail, after=after)

    async def perform_request(self, method: str, url: str, *args: Any, **options: Any) -> Any:
        if self._failing is not None:
            raise self._failing
        self.sent.append((method, url, len(options.get("body") or "")))
        number = len(self.sent)
        if number in self._before:
            await self._before[number]()
        answer = await super().perform_request(method, url, *args, **options)
        if number in self._after:
            await self._after[number]()
        return answer


async def dump_indices(client: AsyncOpenSearch, name: str) -> str:
    """Return everything in the indices of a test as text."""
    await client.indices.refresh(index=f"{name}-*")
    found = await client.search(index=f"{name}-*", body={"query": {"match_all": {}}, "size": 10_000})
    return json.dumps([hit["_source"] for hit in found["hits"]["hits"]], ensure_ascii=False)


async def count_documents(client: AsyncOpenSearch, index: str) -> int:
    """Return how many documents an index contains."""
    await client.indices.refresh(index=index)
    answer = await client.count(index=index)
    number: int = answer["count"]
    return number
