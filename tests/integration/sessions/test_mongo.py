from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pymongo
import pytest
from bson.son import SON
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import lists
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    SessionConflictError,
    StoreClosedError,
    StoreUnavailableError,
)
from tellback.sessions.mongo import MongoAdapter, connection
from tellback.testing.sessions import MakeAdapter, SessionAdapterConformance, SessionRestartConformance
from tellback.testing.sessions.repositories import contents, eventually, later, make_message, make_session
from tests.integration.sessions import adapter_checks
from tests.support.fault_proxy import FaultProxy
from tests.support.servers.base import NotReadyError
from tests.support.servers.mongo import MongoServer
from tests.support.subprocesses import paused_process

MODULE = "tellback.sessions.mongo"
# The driver leaks a socket when a client is closed while its monitor connects.
pytestmark = pytest.mark.filterwarnings(r"ignore:unclosed <socket[^>]*laddr=\S+ \d+\)>$:ResourceWarning")
Database = AsyncDatabase[dict[str, Any]]


def adapters_of(url: str, database: str) -> MakeAdapter:
    def make(
        prefix: str = "one", *, session_ttl: float | None = None, message_ttl: float | None = None
    ) -> MongoAdapter:
        names = {"sessions": f"{prefix}_sessions", "messages": f"{prefix}_messages"}
        return MongoAdapter(url, database, collections=names, session_ttl=session_ttl, message_ttl=message_ttl)

    return make


@pytest.fixture(scope="module", autouse=True)
def _collect_leaked_sockets() -> Iterator[None]:
    """Collect leaked objects now, so that later tests do not report them."""
    yield
    gc.collect()


@pytest.fixture
def name() -> str:
    return f"test_{uuid4().hex}"


@pytest.fixture
async def database(mongo_url: str, name: str) -> AsyncIterator[Database]:
    """The test's database, to check the adapter's documents."""
    async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
        yield client[name]
        await client.drop_database(name)


@pytest.fixture
async def adapter(mongo_url: str, database: Database) -> AsyncIterator[MongoAdapter]:
    mongo_adapter = MongoAdapter(mongo_url, database.name)
    await mongo_adapter.initialize()
    yield mongo_adapter
    await mongo_adapter.disconnect()


@pytest.fixture
async def proxy(mongo_url: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(mongo_url) as fault_proxy:
        yield fault_proxy


def proxied_url(proxy: FaultProxy, milliseconds: int = 1_500) -> str:
    address = proxy.url.replace("None@", "").partition("?")[0]
    return f"{address}?directConnection=true&timeoutMS={milliseconds}"


@pytest.mark.backend("MongoDB")
class TestMongoAdapter(SessionAdapterConformance):
    @pytest.fixture
    def make_adapter(self, mongo_url: str, database: Database) -> MakeAdapter:
        return adapters_of(mongo_url, database.name)


@pytest.mark.backend("MongoDB")
class TestMongoAdapterRestart(SessionRestartConformance):
    @pytest.fixture
    def server(self, own_mongo: MongoServer) -> MongoServer:
        return own_mongo

    @pytest.fixture
    def make_adapter(self, server: MongoServer, name: str) -> MakeAdapter:
        return adapters_of(f"{server.url}&timeoutMS=2000", name)


class SingleServer(MongoServer):
    """A server without a replica set."""

    def command(self) -> list[str]:
        arguments = super().command()
        index = arguments.index("--replSet")
        return arguments[:index] + arguments[index + 2 :]

    def probe(self) -> str:
        try:
            with pymongo.MongoClient[Any]("127.0.0.1", self.port, serverSelectionTimeoutMS=2_000) as client:
                return str(client.server_info()["version"])
        except pymongo.errors.ConnectionFailure as error:
            raise NotReadyError(str(error)) from error


@pytest.fixture
def single_server() -> Iterator[SingleServer]:
    if SingleServer.missing_reason():
        pytest.skip(str(SingleServer.missing_reason()))
    server = SingleServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.mark.backend("MongoDB")
class TestClients:
    @pytest.mark.parametrize(
        "options",
        [
            {"retryWrites": False, "w": 1},
            {"document_class": SON, "tz_aware": False},
            {"readPreference": "secondaryPreferred", "readConcernLevel": "local"},
        ],
        ids=str,
    )
    async def test_any_asynchronous_client_works_and_stays_open(
        self, mongo_url: str, database: Database, options: dict[str, Any]
    ) -> None:
        async with AsyncMongoClient[Any](mongo_url, **options) as client:
            adapter = MongoAdapter(client, database.name)
            await adapter.initialize()
            saved = await adapter.save(
                make_session(version=1, collected_data={"b": {"d": 1, "c": [2]}}), [make_message("Hi")]
            )
            assert type(saved.collected_data["b"]) is dict
            assert await adapter.session_repository.list_by_user("maya") == [saved]
            assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]
            await adapter.disconnect()
            with pytest.raises(StoreClosedError, match="initialize"):
                await adapter.session_repository.get("web-42")
            assert await client.admin.command("ping")

    async def test_a_closed_client_raises_store_closed_error(self, mongo_url: str, database: Database) -> None:
        client = AsyncMongoClient[Any](mongo_url)
        adapter = MongoAdapter(client, database.name)
        await adapter.initialize()
        await client.close()
        with pytest.raises(StoreClosedError, match="is closed"):
            await adapter.session_repository.get("web-42")
        with pytest.raises(StoreClosedError, match="is closed"):
            await adapter.save(make_session(version=1), [])

    @pytest.mark.timeout(200)
    async def test_many_sessions_can_be_saved_concurrently(
        self, mongo_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The last session waits for all others. On a busy machine, this exceeds the default limit of an operation.
        # With more connections, concurrent transactions would exceed the server's limit of 3 seconds.
        monkeypatch.setattr(connection, "OPERATION_SECONDS", 120.0)
        url = f"{mongo_url}&maxPoolSize=8&connectTimeoutMS=120000&serverSelectionTimeoutMS=120000"
        adapter = MongoAdapter(url, database.name)
        await adapter.initialize()
        await adapter_checks.check_concurrent_saves(adapter)
        await adapter.disconnect()

    async def test_a_server_without_a_replica_set_is_rejected_with_advice(self, single_server: SingleServer) -> None:
        adapter = MongoAdapter(f"mongodb://127.0.0.1:{single_server.port}", "shop")
        with pytest.raises(ConfigurationError, match=r"--replSet rs0, run rs\.initiate\(\)"):
            await adapter.initialize()
        with pytest.raises(StoreClosedError):
            await adapter.session_repository.get("web-42")

    def test_a_synchronous_client_is_rejected(self) -> None:
        client: Any = pymongo.MongoClient[Any]("mongodb://127.0.0.1:1", connect=False)
        with pytest.raises(ConfigurationError, match="AsyncMongoClient"):
            MongoAdapter(client, "shop")
        client.close()

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "localhost:27017",
            "http://u:geheim@host",
            "mongodb://u:geheim@x@host",
            "mongodb+srv://u:geheim/x@host",
            "mongodb://u:4711/geheim@host",
            "mongodb://u:geheim@host:port",
            "mongodb://u:geheim@host/?geheim=1",
            "mongodb://",
        ],
    )
    def test_an_invalid_url_is_rejected_without_showing_the_password(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="percent-encoded") as caught:
            MongoAdapter(url, "shop")
        assert "geheim" not in str(caught.value)
        assert caught.value.__cause__ is None

    async def test_wrong_credentials_are_reported_without_the_password(self, mongo_url: str) -> None:
        adapter = MongoAdapter(mongo_url.replace("//", "//ben:geheim@"), "shop")
        with pytest.raises(StoreUnavailableError, match="Check the user, the password") as caught:
            await adapter.initialize()
        assert "geheim" not in str(caught.value) + repr(adapter)

    async def test_an_unreachable_server_is_reported(self) -> None:
        adapter = MongoAdapter("mongodb://127.0.0.1:1/?timeoutMS=500", "shop")
        with pytest.raises(StoreUnavailableError, match=r"MongoDB at 127\.0\.0\.1:1 cannot be reached") as caught:
            await adapter.initialize()
        assert not caught.value.in_doubt
        with pytest.raises(StoreClosedError, match="initialize"):
            await adapter.save(make_session(version=1), [])

    def test_use_in_another_event_loop_raises_an_error(self, mongo_url: str, name: str) -> None:
        adapter = MongoAdapter(mongo_url, name)
        client_and_adapter: list[Any] = []

        async def first() -> None:
            client = AsyncMongoClient[Any](mongo_url)
            client_and_adapter.extend([client, MongoAdapter(client, name)])
            await client_and_adapter[1].initialize()
            await client_and_adapter[1].save(make_session(version=1), [])
            await client.close()

        async def second() -> None:
            with pytest.raises(ConfigurationError, match="another event loop"):
                await client_and_adapter[1].session_repository.get("web-42")
            with pytest.raises((ConfigurationError, StoreClosedError)):
                await client_and_adapter[1].initialize()
            await adapter.initialize()
            assert await adapter.session_repository.get("web-42") is not None
            await adapter.disconnect()
            async with AsyncMongoClient[Any](mongo_url) as client:
                await client.drop_database(name)

        asyncio.run(first())
        asyncio.run(second())

    @pytest.mark.parametrize(
        ("database_name", "options"),
        [
            ("", {}),
            ("a.b", {}),
            ("$x", {}),
            ("a b", {}),
            ("admin", {}),
            ("x" * 64, {}),
            (None, {}),
            ("shop", {"collections": {"sessions": "a$b"}}),
            ("shop", {"collections": {"sessions": "same", "messages": "same"}}),
            ("shop", {"collections": {"session": "chats"}}),
            ("shop", {"collections": ["chats"]}),
            ("shop", {"field_mappings": {"sessions": {"user": "customer"}}}),
            ("shop", {"field_mappings": {"sessions": {"user_id": "a.b"}}}),
            ("shop", {"field_mappings": {"sessions": {"user_id": "$where"}}}),
            ("shop", {"field_mappings": {"sessions": {"user_id": "status"}}}),
            ("shop", {"field_mappings": {"sessions": {"id": "key", "user_id": "_id"}}}),
            ("shop", {"field_mappings": {"chats": {}}}),
            ("shop", {"field_mappings": {"messages": "content"}}),
            ("shop", {"session_ttl": 0}),
            ("shop", {"message_ttl": "1 day"}),
        ],
        ids=str,
    )
    def test_invalid_options_are_rejected(self, database_name: Any, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            MongoAdapter("mongodb://localhost", database_name, **options)

    def test_a_missing_driver_raises_missing_extra_error(self) -> None:
        error_text = adapter_checks.import_error_without(MODULE, "pymongo")
        assert "MissingExtraError: The MongoDB adapter needs the package 'pymongo'" in error_text
        assert "pip install 'tellback[mongo]'" in error_text


@pytest.mark.backend("MongoDB")
class TestDocuments:
    async def test_documents_use_the_configured_names(self, mongo_url: str, database: Database) -> None:
        adapter = MongoAdapter(
            mongo_url,
            database.name,
            collections={"sessions": "chats", "messages": "lines"},
            field_mappings={
                "sessions": {"id": "key", "user_id": "customer", "collected_data": "data", "expires_at": "until"},
                "messages": {"id": "key", "session_id": "chat", "position": "number", "content": "text"},
            },
            session_ttl=900,
            message_ttl=900,
        )
        await adapter.initialize()
        saved = await adapter.save(
            make_session(version=1, collected_data={"to": "Rome"}), [make_message("Hi"), make_message("Ho")]
        )
        chat = await database["chats"].find_one({"key": "web-42", "customer": "maya", "data.to": "Rome"})
        assert chat is not None
        assert not {"id", "user_id", "collected_data", "expires_at"} & chat.keys()
        assert [line["text"] async for line in database["lines"].find({"chat": "web-42"}).sort("number")] == [
            "Hi",
            "Ho",
        ]
        assert await adapter.session_repository.get("web-42") == saved
        assert await adapter.session_repository.list_by_user("maya") == [saved]
        assert contents(await adapter.message_repository.list_by_session("web-42", limit=1)) == ["Ho"]
        with pytest.raises(SessionConflictError):
            await adapter.session_repository.create(make_session())
        results = await asyncio.gather(
            *(adapter.session_repository.create(make_session("new")) for _ in range(5)), return_exceptions=True
        )
        assert [type(each) for each in results].count(SessionConflictError) == 4
        assert await adapter.session_repository.delete("web-42")
        assert await database["lines"].count_documents({}) == 0
        await adapter.disconnect()

    async def test_collected_data_can_be_queried(self, adapter: MongoAdapter, database: Database) -> None:
        data = {"to": "Rome", "people": 2, "big": 2**62, "price": 1.0, "days": [{"n": 1}]}
        await adapter.save(
            make_session(version=1, collected_data=data), [make_message("Hi", event={"kind": "message"})]
        )
        assert await database["agent_sessions"].count_documents({"collected_data.days.n": 1, "_id": "web-42"}) == 1
        assert await database["agent_messages"].count_documents({"event.kind": "message"}) == 1
        found = await adapter.session_repository.get("web-42")
        assert found is not None
        assert [type(each) for each in found.collected_data.values()] == [str, int, int, float, list]

    async def test_a_later_turn_replaces_collected_data(self, adapter: MongoAdapter) -> None:
        await adapter.save(make_session(version=1, collected_data={"old": {"a": 1}, "both": {"a": 1}}), [])
        await adapter.save(make_session(version=2, collected_data={"both": {"b": 2}}), [])
        found = await adapter.session_repository.get("web-42")
        assert found is not None
        assert found.collected_data == {"both": {"b": 2}}

    async def test_values_are_never_interpreted_as_expressions(self, adapter: MongoAdapter) -> None:
        expression_like = {
            "user_id": "$status",
            "agent_name": "$$NOW",
            "current_route": "$user_id",
            "current_state": "$$ROOT",
            "collected_data": {"a": "$user_id", "b": {"$literal": 1}, "c": ["$$NOW"]},
        }
        first = await adapter.save(
            make_session("$id", version=1, **expression_like), [make_message("$content", "$id", route="$$ROOT")]
        )
        second = await adapter.save(make_session("$id", version=2, **expression_like), [])
        for saved in (first, second, await adapter.session_repository.get("$id")):
            assert saved is not None
            assert {name: getattr(saved, name) for name in expression_like} == expression_like
        (message,) = await adapter.message_repository.list_by_session("$id")
        assert (message.content, message.route) == ("$content", "$$ROOT")
        found = await adapter.session_repository.find_active("$status", "$$NOW")
        assert found == second

    async def test_the_server_also_deletes_expired_documents(self, mongo_url: str, database: Database) -> None:
        adapter = MongoAdapter(mongo_url, database.name, session_ttl=timedelta(hours=1), message_ttl=7_200)
        await adapter.initialize()
        await adapter.save(make_session(version=1), [make_message("Hi")])
        for collection, hours in (("agent_sessions", 1), ("agent_messages", 2)):
            indexes = await database[collection].index_information()
            assert [each["key"] for each in indexes.values() if each.get("expireAfterSeconds") == 0] == [
                [("expires_at", 1)]
            ]
            (document,) = await database[collection].find().to_list()
            remaining_time = document["expires_at"].replace(tzinfo=UTC) - datetime.now(UTC)
            assert timedelta(hours=hours) - timedelta(minutes=2) < remaining_time <= timedelta(hours=hours, minutes=1)
        await adapter.disconnect()

    async def test_purging_deletes_any_number_of_documents(
        self, mongo_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tellback.sessions.mongo.adapter.PURGE_BATCH_SIZE", 7)
        adapter = MongoAdapter(mongo_url, database.name, session_ttl=900, message_ttl=0.2)
        await adapter.initialize()
        await adapter.save(make_session(version=1), [make_message(str(n)) for n in range(30)])
        await eventually(lambda: adapter.message_repository.list_by_session("web-42"), lambda found: not found)
        assert await adapter.purge_expired() in (0, 30)  # the server may have deleted them already
        assert await adapter.purge_expired() == 0
        assert await database["agent_messages"].count_documents({}) == 0
        (added,) = await adapter.message_repository.add([make_message("on")], at=later(1))
        assert added.position == 31
        await adapter.disconnect()

    async def test_a_turn_that_is_too_large_is_rejected_completely(self, adapter: MongoAdapter) -> None:
        huge_text = "x" * (17 * 2**20)
        saved = await adapter.save(make_session(version=1), [make_message("Hi")])
        for turn, messages in (
            (make_session(version=2, collected_data={"notes": huge_text}), [make_message("lost")]),
            (make_session(version=2), [make_message("lost"), make_message(huge_text)]),
        ):
            with pytest.raises(InvalidArgumentError, match="16 MB"):
                await adapter.save(turn, messages)
        with pytest.raises(InvalidArgumentError, match="16 MB"):
            await adapter.session_repository.create(make_session("huge", collected_data={"notes": huge_text}))
        assert await adapter.session_repository.get("web-42") == saved
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]

    async def test_a_message_is_stored_once(self, adapter: MongoAdapter) -> None:
        message = make_message("Hi")
        saved = await adapter.save(make_session(version=1), [message])
        for repeated in ([make_message("lost"), message], [message]):
            with pytest.raises(InvalidArgumentError, match="already exists"):
                await adapter.save(make_session(version=2), repeated)
            with pytest.raises(InvalidArgumentError, match="already exists"):
                await adapter.message_repository.add(repeated, at=later(1))
        assert await adapter.session_repository.get("web-42") == saved
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]

    async def test_values_that_cannot_be_stored_are_rejected(self, adapter: MongoAdapter) -> None:
        wrong: Any
        for wrong in (
            {"collected_data": {"a": {1}}},
            {"created_at": None},
            {"message_count": 2**60},
            {"version": 2**70},
        ):
            with pytest.raises(InvalidArgumentError):
                await adapter.session_repository.create(make_session(**wrong))
        with pytest.raises(InvalidArgumentError):
            await adapter.save(make_session(version=1), [make_message("Hi", event={1, 2})])
        assert await adapter.session_repository.get("web-42") is None

    async def test_collections_with_a_case_insensitive_collation_are_rejected(
        self, mongo_url: str, database: Database
    ) -> None:
        await database.create_collection("folded", collation={"locale": "en", "strength": 1})
        await database.command({"create": "seen", "viewOn": "folded", "pipeline": []})
        for name in ("folded", "seen"):
            adapter = MongoAdapter(mongo_url, database.name, collections={"sessions": name})
            with pytest.raises(ConfigurationError, match=f"'{name}' is a view, or has a collation"):
                await adapter.initialize()

    async def test_a_conflicting_index_is_reported(self, mongo_url: str, database: Database) -> None:
        await database["agent_sessions"].create_index("expires_at", expireAfterSeconds=60)
        with pytest.raises(ConfigurationError, match="conflicting index"):
            await MongoAdapter(mongo_url, database.name).initialize()

    async def test_every_query_uses_an_index(self, adapter: MongoAdapter, database: Database) -> None:
        """Check the server's execution statistics for a user and a session with much data."""
        sessions, messages = adapter.session_repository, adapter.message_repository
        await adapter.save(make_session("web-0", version=1), [make_message(str(n), "web-0") for n in range(500)])
        for n in range(1, 40):
            await sessions.create(make_session(f"web-{n}", created_at=later(n), status="completed"))
        await database.command({"profile": 2})
        before = (await sessions.list_by_user("maya", limit=10))[-1]
        await sessions.list_by_user("maya", limit=10, before=before)
        await sessions.find_active("maya")
        await messages.list_by_session("web-0", limit=10)
        await messages.list_by_session("web-0", limit=10, after=20)
        await adapter.save(make_session("web-0", version=2), [make_message("on", "web-0")])
        await database.command({"profile": 0})
        profiled = await database["system.profile"].find({"ns": {"$regex": "agent_"}}).to_list()
        read = [each for each in profiled if each.get("planSummary")]
        assert len(read) >= 6
        for each in read:
            assert "COLLSCAN" not in each["planSummary"], each
            assert each.get("docsExamined", 0) <= 11, each
            assert not each.get("hasSortStage"), each


@pytest.mark.backend("MongoDB")
class TestFailures:
    @pytest.mark.parametrize("fault", ["cut", "pass and cut"])
    async def test_a_change_whose_answer_is_lost_takes_effect_once(
        self, proxy: FaultProxy, database: Database, fault: Any
    ) -> None:
        adapter = MongoAdapter(proxied_url(proxy, 10_000), database.name)
        await adapter.initialize()
        sessions, messages = adapter.session_repository, adapter.message_repository
        for marker in (b"commitTransaction", b"findAndModify"):
            id = marker.decode()
            proxy.trap(marker, fault)
            assert await sessions.create(make_session(id)) == make_session(id)
            proxy.trap(marker, fault)
            (added,) = await messages.add([make_message("note", id)], at=later(1))
            proxy.trap(marker, fault)
            saved = await adapter.save(make_session(id, version=1), [make_message("one", id), make_message("two", id)])
            assert (added.position, saved.version, saved.message_count) == (1, 1, 3)
            assert contents(await messages.list_by_session(id)) == ["note", "one", "two"]
        proxy.trap(b"findAndModify", fault)
        completed = await sessions.update_status("findAndModify", "completed", at=later(3), completed_at=later(3))
        assert completed is not None
        assert completed.status == "completed"
        assert proxy.triggered == 7
        await adapter.disconnect()

    async def test_a_commit_without_an_answer_is_in_doubt(self, proxy: FaultProxy, database: Database) -> None:
        adapter = MongoAdapter(proxied_url(proxy), database.name)
        await adapter.initialize()
        await adapter.save(make_session("warm", version=1), [make_message("Hi", "warm")])
        proxy.trap(b"commitTransaction", "pass and cut", 1_000)
        with pytest.raises(StoreUnavailableError, match="may have been stored") as caught:
            await adapter.save(make_session(version=1), [make_message("Hi")])
        assert caught.value.in_doubt
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]
        proxy.refuse()
        with pytest.raises(StoreUnavailableError) as caught:
            await adapter.save(make_session(version=2), [make_message("lost")])
        assert not caught.value.in_doubt
        proxy.accept()
        assert (await adapter.session_repository.get("web-42")) is not None
        await adapter.disconnect()

    async def test_a_server_that_does_not_answer_times_out(self, own_mongo: MongoServer) -> None:
        adapter = MongoAdapter(f"{own_mongo.url}&timeoutMS=1500", "shop")
        await adapter.initialize()
        await adapter.save(make_session(version=1), [])
        with paused_process(own_mongo.pid):
            with pytest.raises(StoreUnavailableError):
                await adapter.session_repository.get("web-42")
            with pytest.raises(StoreUnavailableError):
                await adapter.save(make_session(version=2), [make_message("Hi")])
        found = await wait_for_session(adapter)
        assert found.version in (1, 2)
        await adapter.disconnect()

    async def test_a_cancelled_turn_is_saved_completely_or_not_at_all(self, adapter: MongoAdapter) -> None:
        await adapter_checks.check_cancelled_saves(adapter)

    async def test_a_killed_process_leaves_complete_turns(
        self, adapter: MongoAdapter, mongo_url: str, database: Database
    ) -> None:
        code = f"MongoAdapter({mongo_url!r}, {database.name!r})"
        await adapter_checks.check_killed_process(adapter, f"from {MODULE} import MongoAdapter", code)


async def wait_for_session(adapter: MongoAdapter) -> Any:
    """Read the session once the server works again."""

    async def find_session() -> Any:
        try:
            return await adapter.session_repository.get("web-42")
        except StoreUnavailableError:
            return None

    return await eventually(find_session, lambda found: found is not None)


@pytest.mark.backend("MongoDB")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=lists(adapter_checks.JSON, min_size=5, max_size=10))
def test_any_json_is_returned_unchanged(mongo_url: str, name: str, values: list[Any]) -> None:
    async def store() -> None:
        adapter = MongoAdapter(mongo_url, name)
        await adapter.initialize()
        for value in values:
            await adapter_checks.check_round_trip(adapter, value)
        await adapter.disconnect()

    async def forget() -> None:
        async with AsyncMongoClient[Any](mongo_url) as client:
            await client.drop_database(name)

    asyncio.run(store())
    asyncio.run(forget())
