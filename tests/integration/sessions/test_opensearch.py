"""`OpenSearchAdapter` on a real server: the contract, its options, and its indices."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings
from dataclasses import replace
from typing import Any

import pytest
from opensearchpy import AsyncOpenSearch, OpenSearch

from tellback.errors import (
    ConfigurationError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from tellback.sessions.opensearch import OpenSearchAdapter
from tellback.sessions.opensearch import adapter as opensearch_adapter
from tellback.testing.sessions import SessionAdapterConformance, SessionRestartConformance
from tellback.testing.sessions.repositories import NOON, contents, later, make_message, make_session
from tests.integration.sessions.opensearch_fixtures import (
    MakeOpenSearch,
    OwnIndicesFixtures,
    ScriptedTransport,
    SharedServerFixtures,
    count_documents,
)
from tests.support.servers.base import free_port
from tests.support.servers.opensearch import OpenSearchServer


@pytest.mark.backend("OpenSearch")
class TestOpenSearchAdapter(OwnIndicesFixtures, SessionAdapterConformance):
    @pytest.fixture
    def url(self, opensearch_url: str) -> str:
        return opensearch_url


@pytest.mark.backend("OpenSearch")
class TestOpenSearchRestart(OwnIndicesFixtures, SessionRestartConformance):
    @pytest.fixture
    def server(self, own_opensearch: OpenSearchServer) -> OpenSearchServer:
        return own_opensearch

    @pytest.fixture
    def url(self, server: OpenSearchServer) -> str:
        return server.url


@pytest.mark.backend("OpenSearch")
class TestIndices(SharedServerFixtures):
    async def test_documents_use_the_configured_names(self, make: MakeOpenSearch, client: AsyncOpenSearch) -> None:
        mappings = {
            "sessions": {"id": "key", "user_id": "customer", "expires_at": "gone_at", "created_at": "begun"},
            "messages": {"content": "words", "position": "place", "session_id": "chat", "expires_at": "gone_at"},
        }
        adapter = make(field_mappings=mappings, session_ttl=900, message_ttl=900)
        await adapter.initialize()
        saved = await adapter.save(make_session(version=1), [make_message("To Rome"), make_message("Today")])
        assert await adapter.session_repository.find_active("maya") == saved
        assert await adapter.session_repository.list_by_user("maya", before=replace(saved, id="zzz")) == [saved]
        assert contents(await adapter.message_repository.list_by_session("web-42", limit=1)) == ["Today"]
        assert contents(await adapter.search_messages("rome", user_id="maya")) == ["To Rome"]
        document = await client.get(index=adapter.indices["sessions"], id="web-42")
        assert document["_source"].keys() >= {"key", "customer", "gone_at", "begun", "status"}
        assert not document["_source"].keys() & {"id", "user_id", "expires_at", "created_at"}
        assert await adapter.session_repository.delete("web-42")
        assert await count_documents(client, adapter.indices["messages"]) == 0
        await adapter.disconnect()

    async def test_other_clients_can_search_the_indices(
        self, adapter: OpenSearchAdapter, client: AsyncOpenSearch
    ) -> None:
        await adapter.save(
            make_session(version=1, current_route="Book a flight"), [make_message("Flights to Rome, please")]
        )
        sessions, messages = adapter.indices["sessions"], adapter.indices["messages"]
        await client.indices.refresh(index=f"{sessions},{messages}")
        queries: list[tuple[str, dict[str, Any]]] = [
            (messages, {"match": {"content": "rome"}}),
            (messages, {"range": {"created_at.date": {"gte": "2026-03-01", "lt": "2026-03-02"}}}),
            (sessions, {"term": {"current_route": "Book a flight"}}),
            (sessions, {"range": {"updated_at.date": {"gte": "2026-03-01", "lt": "2026-03-02"}}}),
        ]
        for index, query in queries:
            assert (await client.count(index=index, body={"query": query}))["count"] == 1, query

    async def test_missing_indices_are_reported(self, make: MakeOpenSearch, client: AsyncOpenSearch) -> None:
        adapter = make(auto_create_indices=False)
        with pytest.raises(ConfigurationError, match=adapter.indices["sessions"]):
            await adapter.initialize()
        for name, definition in adapter.index_definitions.items():
            await client.indices.create(index=name, body=definition)
        await adapter.initialize()
        await adapter.save(make_session(version=1), [make_message("Hi")])
        await adapter.disconnect()

    async def test_an_index_with_another_mapping_is_rejected(
        self, make: MakeOpenSearch, client: AsyncOpenSearch
    ) -> None:
        adapter = make()
        await client.index(index=adapter.indices["sessions"], body={"id": "x", "user_id": "maya"})
        with pytest.raises(ConfigurationError, match=r"as text, but it must be keyword"):
            await adapter.initialize()

    async def test_an_alias_can_be_used_as_index(self, make: MakeOpenSearch, client: AsyncOpenSearch) -> None:
        adapter = make()
        for name, definition in adapter.index_definitions.items():
            await client.indices.create(index=f"{name}-v1", body={**definition, "aliases": {name: {}}})
        await adapter.initialize()
        await adapter.save(make_session(version=1), [make_message("Hi")])
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]
        await adapter.disconnect()

    async def test_a_deleted_index_is_not_recreated_automatically(
        self, adapter: OpenSearchAdapter, client: AsyncOpenSearch
    ) -> None:
        await client.indices.delete(index=adapter.indices["sessions"])
        for call in (
            lambda: adapter.save(make_session(version=1), [make_message("Hi")]),
            lambda: adapter.session_repository.get("web-42"),
            lambda: adapter.session_repository.list_by_user("maya"),
            lambda: adapter.purge_expired(),
        ):
            with pytest.raises(StoreError, match=r"initialize\(\)"):
                await call()
        assert not await client.indices.exists(index=adapter.indices["sessions"])
        await adapter.initialize()
        await adapter.save(make_session(version=1), [make_message("Hi")])

    @pytest.mark.parametrize(
        ("options", "error_text"),
        [
            ({"indices": {"sessions": "UPPER"}}, "lowercase letters"),
            ({"indices": {"sessions": "_all"}}, "lowercase letters"),
            ({"indices": {"sessions": "*"}}, "lowercase letters"),
            ({"indices": {"sessions": "a,b"}}, "lowercase letters"),
            ({"indices": {"sessions": "a/_search"}}, "lowercase letters"),
            ({"indices": {"sessions": "same", "messages": "same"}}, "duplicate names"),
            ({"indices": {"notes": "x"}}, "notes"),
            ({"indices": "x"}, "mapping"),
            ({"field_mappings": {"notes": {}}}, "notes"),
            ({"field_mappings": {"sessions": {"user_id": "tellback"}}}, "taken"),
            ({"field_mappings": {"sessions": {"user_id": "_id"}}}, "taken"),
            ({"field_mappings": {"sessions": {"user_id": "status"}}}, "duplicate names"),
            ({"field_mappings": {"messages": {"content": "a.b"}}}, "letters"),
            ({"refresh": "later"}, "wait_for"),
            ({"session_ttl": -1}, "session_ttl"),
            ({"message_ttl": "1h"}, "message_ttl"),
        ],
    )
    def test_invalid_options_are_rejected_immediately(self, url: str, options: dict[str, Any], error_text: str) -> None:
        with pytest.raises(ConfigurationError, match=error_text):
            OpenSearchAdapter(url, **options)

    async def test_a_full_or_locked_index_is_reported(
        self, adapter: OpenSearchAdapter, client: AsyncOpenSearch
    ) -> None:
        saved = await adapter.save(make_session(version=1), [make_message("one")])
        index = adapter.indices["sessions"]
        for block, error in (("read_only_allow_delete", StoreFullError), ("write", StoreReadOnlyError)):
            await client.indices.put_settings(index=index, body={f"index.blocks.{block}": True})
            with pytest.raises(error):
                await adapter.save(make_session(version=2), [make_message("lost")])
            assert await adapter.session_repository.get("web-42") == saved
            await client.indices.put_settings(index=index, body={f"index.blocks.{block}": None})
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["one"]

    async def test_messages_that_cannot_be_indexed_are_stored_and_readable(
        self, adapter: OpenSearchAdapter, client: AsyncOpenSearch
    ) -> None:
        index = adapter.indices["messages"]
        await client.indices.put_settings(index=index, body={"index.blocks.write": True})
        await adapter.save(make_session(version=1), [make_message("one")])
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["one"]
        with pytest.raises(StoreReadOnlyError):  # pending messages are not dropped
            await adapter.save(make_session(version=2), [make_message("two")])
        await client.indices.put_settings(index=index, body={"index.blocks.write": None})
        await adapter.save(make_session(version=2), [make_message("two")])
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["one", "two"]
        assert await count_documents(client, index) == 2


@pytest.mark.backend("OpenSearch")
class TestSearching(SharedServerFixtures):
    async def test_messages_are_found_by_words(self, adapter: OpenSearchAdapter) -> None:
        await adapter.save(
            make_session(version=1),
            [make_message("Flights to Rome"), make_message("Rome, Rome!"), make_message("Hello")],
        )
        await adapter.save(make_session("b", version=1, user_id="ben"), [make_message("Rome too", "b", user_id="ben")])
        assert contents(await adapter.search_messages("ROME", user_id="maya")) == ["Rome, Rome!", "Flights to Rome"]
        assert contents(await adapter.search_messages("rome", user_id="ben")) == ["Rome too"]
        assert await adapter.search_messages("rome", user_id="mayaX") == []
        assert len(await adapter.search_messages("rome")) == 3
        assert contents(await adapter.search_messages("flights rome", limit=1)) == ["Flights to Rome"]
        assert await adapter.search_messages("nothing like it") == []
        (found,) = await adapter.search_messages("hello")
        assert found in await adapter.message_repository.list_by_session("web-42")

    async def test_a_message_without_a_user_belongs_to_its_sessions_user(self, adapter: OpenSearchAdapter) -> None:
        await adapter.save(make_session(version=1), [make_message("Rome?", role="agent", user_id=None)])
        assert contents(await adapter.search_messages("rome", user_id="maya")) == ["Rome?"]
        assert await adapter.search_messages("rome", user_id="ben") == []

    async def test_deleted_and_expired_messages_are_not_found(
        self, adapter: OpenSearchAdapter, make: MakeOpenSearch
    ) -> None:
        expiring = make(message_ttl=0.001)
        await expiring.initialize()
        await expiring.save(make_session("brief", version=1), [make_message("Rome briefly", "brief")])
        await adapter.save(make_session("deleted", version=1), [make_message("Rome deleted", "deleted")])
        await adapter.session_repository.delete("deleted")
        await adapter.save(make_session(version=1), [make_message("Rome")])
        await asyncio.sleep(0.01)
        assert contents(await adapter.search_messages("rome")) == ["Rome"]
        await expiring.disconnect()

    async def test_leftover_messages_of_a_deleted_session_are_not_found(
        self, adapter: OpenSearchAdapter, client: AsyncOpenSearch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(opensearch_adapter, "_PAGE_SIZE", 2)
        await adapter.save(make_session(version=1), [make_message("Rome")])
        for n in range(5):  # as after interrupted deletions
            stray = {"content": "Rome Rome", "session_id": "web-42", "position": n, "created_at": "2026"}
            await client.index(index=adapter.indices["messages"], id=f"another-{n}", body=stray)
        assert contents(await adapter.search_messages("rome")) == ["Rome"]

    @pytest.mark.parametrize("text", ["* OR content:*", '{"match_all": {}}', "a" * 2_000, "x " * 1_000, "\\ /:[]()~^"])
    async def test_query_syntax_is_treated_as_words(self, adapter: OpenSearchAdapter, text: str) -> None:
        await adapter.save(make_session(version=1), [make_message("Rome")])
        assert await adapter.search_messages(text) == []

    @pytest.mark.parametrize("text", ["", "  ", None, 5, {"match_all": {}}, "a\x00b", "\ud800", "x" * 2_001])
    async def test_invalid_search_texts_are_rejected(self, adapter: OpenSearchAdapter, text: Any) -> None:
        with pytest.raises(ValueError, match="text"):
            await adapter.search_messages(text)
        with pytest.raises(ValueError, match="user_id"):
            await adapter.search_messages("rome", user_id={"$ne": 1})  # type: ignore[arg-type]

    async def test_lists_continue_beyond_a_page(
        self, adapter: OpenSearchAdapter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(opensearch_adapter, "_PAGE_SIZE", 3)
        sessions = [make_session(f"web-{n}", created_at=later(n // 4)) for n in range(10)]
        await asyncio.gather(*map(adapter.session_repository.create, sessions))
        found = await adapter.session_repository.list_by_user("maya")
        assert found == sessions[::-1]
        assert await adapter.session_repository.list_by_user("maya", limit=7, before=sessions[9]) == sessions[8:1:-1]

    async def test_a_list_with_a_limit_is_one_search(
        self, scripted: tuple[OpenSearchAdapter, ScriptedTransport]
    ) -> None:
        adapter, transport = scripted
        await asyncio.gather(
            *(adapter.save(make_session(f"web-{n}", version=1), [make_message("Rome", f"web-{n}")]) for n in range(5))
        )
        transport.start()
        assert await adapter.session_repository.find_active("maya") is not None
        assert len(await adapter.session_repository.list_by_user("maya", limit=2)) == 2
        assert len(transport.sent) == 4
        assert len(await adapter.search_messages("rome", limit=2)) == 2
        assert len(transport.sent) == 7

    async def test_without_fresh_searches_new_messages_may_be_missing(self, make: MakeOpenSearch) -> None:
        for refresh in (True, "wait_for"):
            adapter = make(prefix=str(refresh).lower(), refresh=refresh, fresh_searches=False)
            await adapter.initialize()
            saved = await adapter.save(make_session(version=1), [make_message("Rome")])
            assert await adapter.session_repository.list_by_user("maya") == [saved]
            assert contents(await adapter.search_messages("rome")) == ["Rome"]
            assert await adapter.session_repository.delete("web-42")
            assert await adapter.session_repository.list_by_user("maya") == []
            await adapter.disconnect()


@pytest.mark.backend("OpenSearch")
class TestConnecting(SharedServerFixtures):
    async def test_a_passed_client_stays_open(self, make: MakeOpenSearch, url: str) -> None:
        async with AsyncOpenSearch(url) as client:
            adapter = make(client)
            await adapter.initialize()
            await adapter.save(make_session(version=1), [make_message("Hi")])
            await adapter.disconnect()
            with pytest.raises(StoreClosedError):
                await adapter.session_repository.get("web-42")
            assert await client.ping()
            await adapter.initialize()
            assert await adapter.session_repository.get("web-42") is not None
            await adapter.disconnect()

    def test_only_an_asynchronous_client_or_a_url_is_accepted(self, url: str) -> None:
        client: Any
        for client in (OpenSearch(url), None, 5, b"http://x"):
            with pytest.raises(ConfigurationError, match="AsyncOpenSearch"):
                OpenSearchAdapter(client)

    @pytest.mark.parametrize(
        "url", ["", "app:secret@host", "ftp://app:secret@host", "http://", "http://h:secret", "http://a:1/secret@h"]
    )
    def test_an_invalid_url_is_rejected_without_showing_the_password(self, url: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            OpenSearchAdapter(url)
        assert "secret" not in str(caught.value)

    @pytest.fixture(autouse=True)
    async def _clean(self) -> None:
        """Override the fixture that deletes indices, because some of these tests start no server."""

    async def test_an_unreachable_server_is_reported_without_the_password(self) -> None:
        adapter = OpenSearchAdapter(f"http://app:secret@127.0.0.1:{free_port()}")
        with pytest.raises(StoreUnavailableError) as caught:
            await adapter.initialize()
        assert "127.0.0.1" in str(caught.value)
        assert "secret" not in f"{caught.value!r} {adapter!r}"
        with pytest.raises(StoreClosedError):
            await adapter.session_repository.get("web-42")

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            (b"401 Unauthorized\r\ncontent-length: 12\r\n\r\nUnauthorized", ConfigurationError),
            (b"200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p/>", StoreError),
            (b"200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi", StoreError),
            (b"404 Not Found\r\ncontent-length: 2\r\n\r\nno", StoreError),
            (b"502 Bad Gateway\r\ncontent-length: 2\r\n\r\nno", StoreUnavailableError),
            (b"garbage", StoreUnavailableError),
        ],
    )
    async def test_answers_of_other_servers_are_reported(self, answer: bytes, error: type[Exception]) -> None:
        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request_head = await reader.readuntil(b"\r\n\r\n")
            head, end, body = answer.partition(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 " + head + end + (b"" if request_head.startswith(b"HEAD") else body))
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(error) as caught:
                await OpenSearchAdapter(f"http://app:secret@127.0.0.1:{port}").initialize()
        assert "secret" not in str(caught.value)

    def test_use_in_another_event_loop_raises_an_error_until_initialized_there(self, make: MakeOpenSearch) -> None:
        adapter = make()

        async def initialize() -> None:
            await adapter.initialize()

        async def use() -> None:
            with pytest.raises(ConfigurationError, match="another event loop"):
                await adapter.session_repository.get("web-42")
            with pytest.raises(ConfigurationError, match="another event loop"):
                await adapter.initialize()

        async def begin_again() -> None:
            await adapter.initialize()
            assert await adapter.session_repository.get("web-42") is None
            await adapter.disconnect()

        with asyncio.Runner() as first_runner, asyncio.Runner() as second_runner:
            first_runner.run(initialize())
            second_runner.run(use())
            first_runner.run(adapter.disconnect())
            second_runner.run(begin_again())

    def test_the_client_of_a_closed_event_loop_is_closed(
        self, make: MakeOpenSearch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        adapter, closed = make(), []
        close = AsyncOpenSearch.close

        async def record_close(client: AsyncOpenSearch) -> None:
            closed.append(client)
            await close(client)

        async def begin_again() -> None:
            await adapter.initialize()
            assert await adapter.session_repository.get("web-42") is None
            await adapter.disconnect()

        monkeypatch.setattr(AsyncOpenSearch, "close", record_close)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the closed loop's sockets
            asyncio.run(adapter.initialize())
            asyncio.run(begin_again())
            gc.collect()
        assert len({id(client) for client in closed}) == len(closed) == 2

    async def test_concurrent_initialization_leaks_no_client(self, make: MakeOpenSearch) -> None:
        adapter = make()
        await asyncio.gather(*(adapter.initialize() for _ in range(4)))
        saving = [
            asyncio.create_task(adapter.save(make_session(f"web-{n}", version=1), [make_message("Hi", f"web-{n}")]))
            for n in range(20)
        ]
        await asyncio.sleep(0.02)
        await adapter.disconnect()
        results = await asyncio.gather(*saving, return_exceptions=True)
        assert all(isinstance(each, StoreError) or not isinstance(each, BaseException) for each in results)

    async def test_many_sessions_can_be_saved_concurrently(self, make: MakeOpenSearch) -> None:
        adapter = make()
        await adapter.initialize()
        ids = [f"web-{n}" for n in range(200)]
        saved = await asyncio.gather(*(adapter.save(make_session(id, version=1), [make_message(id, id)]) for id in ids))
        assert sorted(each.id for each in saved) == sorted(ids)
        found = await asyncio.gather(*(adapter.message_repository.list_by_session(id) for id in ids))
        assert [contents(each) for each in found] == [[id] for id in ids]
        assert len(await adapter.session_repository.list_by_user("maya")) == 200
        await adapter.disconnect()

    async def test_the_cost_of_a_turn_is_independent_of_earlier_turns(
        self, scripted: tuple[OpenSearchAdapter, ScriptedTransport]
    ) -> None:
        adapter, transport = scripted
        costs = []
        for version in range(1, 42):
            transport.start()
            await adapter.save(make_session(version=version), [make_message("x" * 50) for _ in range(2)])
            costs.append((len(transport.sent), sum(length for *_, length in transport.sent)))
            if version == 20:
                await adapter.message_repository.add([make_message("x" * 50) for _ in range(2_000)], at=NOON)
                await adapter.message_repository.add([make_message("x" * 50)], at=NOON)
        assert costs[-1][0] <= costs[1][0] == 5
        assert costs[-1][1] < costs[1][1] + 1_500  # the ids of the last writes are stored


def test_a_missing_driver_raises_missing_extra_error() -> None:
    for missing in ("opensearchpy", "aiohttp"):
        code = f"""if True:
            import sys
            sys.modules[{missing!r}] = None
            from tellback.errors import MissingExtraError
            try:
                import tellback.sessions.opensearch
            except MissingExtraError as error:
                assert "tellback[opensearch]" in str(error), error
            else:
                raise AssertionError("it was imported")
        """
        subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


def test_importing_tellback_does_not_import_the_driver() -> None:
    code = "import sys, tellback; assert not {'opensearchpy', 'aiohttp'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
