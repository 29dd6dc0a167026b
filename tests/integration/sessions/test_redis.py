from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from redis import Redis as SyncRedis
from redis.asyncio import Redis, RedisCluster
from redis.crc import key_slot

from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from tellback.sessions.redis import RedisAdapter
from tellback.sessions.redis.adapter import RedisKeys
from tellback.testing.sessions import MakeAdapter, SessionAdapterConformance, SessionRestartConformance
from tellback.testing.sessions.repositories import contents, eventually, later, make_message, make_session
from tests.integration.sessions import adapter_checks
from tests.support.fault_proxy import FaultProxy
from tests.support.servers.base import free_port
from tests.support.servers.redis import RedisServer
from tests.support.subprocesses import paused_process

MODULE = "tellback.sessions.redis"
BUS_PORT_OFFSET = 10_000
"""A node of a cluster also listens on the port at this distance."""


def adapters_of(url: str) -> MakeAdapter:
    key_prefix = uuid4().hex

    def make(
        prefix: str = "one", *, session_ttl: float | None = None, message_ttl: float | None = None
    ) -> RedisAdapter:
        return RedisAdapter(url, key_prefix=f"{key_prefix}:{prefix}:", session_ttl=session_ttl, message_ttl=message_ttl)

    return make


@pytest.mark.backend("Redis")
class TestRedisAdapter(SessionAdapterConformance):
    @pytest.fixture
    def make_adapter(self, redis_url: str) -> MakeAdapter:
        return adapters_of(redis_url)


@pytest.mark.backend("Redis")
class TestRedisAdapterRestart(SessionRestartConformance):
    @pytest.fixture
    def server(self, own_redis: RedisServer) -> RedisServer:
        return own_redis

    @pytest.fixture
    def make_adapter(self, server: RedisServer) -> MakeAdapter:
        return adapters_of(server.url)


@pytest.fixture
def prefix() -> str:
    return f"{uuid4().hex}:"


@pytest.fixture
async def server(redis_url: str) -> AsyncIterator[Redis]:
    """A plain client, to check the adapter's keys."""
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def adapter(redis_url: str, prefix: str) -> AsyncIterator[RedisAdapter]:
    redis_adapter = RedisAdapter(redis_url, key_prefix=prefix)
    await redis_adapter.initialize()
    yield redis_adapter
    await redis_adapter.disconnect()


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(redis_url) as fault_proxy:
        yield fault_proxy


def proxied_url(proxy: FaultProxy) -> str:
    return proxy.url.replace("None@", "")


@pytest.mark.backend("Redis")
class TestClients:
    @pytest.mark.parametrize(
        "options",
        [
            {"decode_responses": True},
            {"decode_responses": False},
            {"decode_responses": True, "encoding": "latin-1"},
            {"protocol": 2},
            {"protocol": 3, "decode_responses": True},
            {"single_connection_client": True},
        ],
        ids=str,
    )
    async def test_any_asynchronous_client_works_and_stays_open(
        self, redis_url: str, prefix: str, options: dict[str, Any]
    ) -> None:
        async with Redis.from_url(redis_url, **options) as client:
            adapter = RedisAdapter(client, key_prefix=prefix)
            await adapter.initialize()
            saved = await adapter.save(make_session("né🧑", version=1), [make_message("Łódź", "né🧑")])
            assert await adapter.session_repository.list_by_user("maya") == [saved]
            assert contents(await adapter.message_repository.list_by_session("né🧑")) == ["Łódź"]
            assert await adapter.purge_expired() == 0
            await adapter.disconnect()
            with pytest.raises(StoreClosedError):
                await adapter.session_repository.get("né🧑")
            assert await client.ping()

    async def test_calls_wait_for_a_free_connection(self, redis_url: str, prefix: str) -> None:
        async with Redis.from_url(redis_url) as client:
            adapter = RedisAdapter(client, key_prefix=prefix)
            await adapter.initialize()
            await adapter_checks.check_concurrent_saves(adapter)

    async def test_many_sessions_can_be_saved_concurrently(self, adapter: RedisAdapter) -> None:
        await adapter_checks.check_concurrent_saves(adapter)

    async def test_a_synchronous_client_is_rejected(self, redis_url: str) -> None:
        client: Any = SyncRedis.from_url(redis_url)
        with pytest.raises(ConfigurationError, match=r"redis\.asyncio"):
            RedisAdapter(client)
        client.close()

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "localhost:6379",
            "http://u:geheim@host",
            "redis://:geheim/x@host:6379",
            "redis://app:4711/geheim@host",
            "redis://:geheim@host:port",
            "redis://host?socket_timeout=geheim",
            "unix://",
        ],
    )
    def test_an_invalid_url_is_rejected_without_showing_the_password(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="percent-encoded") as caught:
            RedisAdapter(url)
        assert "geheim" not in str(caught.value)
        assert caught.value.__cause__ is None

    async def test_wrong_credentials_are_reported_without_the_password(self, redis_url: str, prefix: str) -> None:
        adapter = RedisAdapter(redis_url.replace("//", "//ben:geheim@"), key_prefix=prefix)
        with pytest.raises(StoreUnavailableError, match="Check the user, the password") as caught:
            await adapter.initialize()
        assert "geheim" not in str(caught.value) + repr(adapter)
        with pytest.raises(StoreClosedError):
            await adapter.session_repository.get("web-42")

    async def test_an_unreachable_server_is_reported(self) -> None:
        adapter = RedisAdapter("redis://127.0.0.1:1")
        with pytest.raises(StoreUnavailableError, match=r"Redis at 127\.0\.0\.1:1 cannot be reached"):
            await adapter.initialize()
        with pytest.raises(StoreClosedError, match="initialize"):
            await adapter.save(make_session(version=1), [])

    def test_use_in_another_event_loop_raises_an_error(self, redis_url: str, prefix: str) -> None:
        async def use(adapter: RedisAdapter) -> None:
            await adapter.initialize()
            await adapter.save(make_session(version=1), [])

        async def use_in_other_loop(adapter: RedisAdapter) -> None:
            with pytest.raises(ConfigurationError, match="another event loop"):
                await adapter.session_repository.get("web-42")
            await adapter.initialize()
            assert await adapter.session_repository.get("web-42") is not None
            await adapter.disconnect()

        async def close(adapter: RedisAdapter) -> None:
            await adapter.disconnect()

        client = Redis.from_url(redis_url)
        adapter = RedisAdapter(client, key_prefix=prefix)

        async def first() -> None:
            await use(adapter)
            await client.aclose()

        async def second() -> None:
            await use_in_other_loop(adapter)
            await client.aclose()

        asyncio.run(first())
        asyncio.run(second())
        asyncio.run(close(adapter))

    @pytest.mark.parametrize(
        "options",
        [
            {"key_prefix": ""},
            {"key_prefix": "a*"},
            {"key_prefix": "a[b]"},
            {"key_prefix": "a\n"},
            {"key_prefix": "a\x00"},
            {"key_prefix": "\ud800"},
            {"key_prefix": b"agent:"},
            {"key_prefix": None},
            {"key_prefix": "x" * 201},
            {"session_ttl": 0},
            {"message_ttl": -1},
            {"session_ttl": "7 days"},
        ],
        ids=str,
    )
    def test_invalid_options_are_rejected(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            RedisAdapter("redis://localhost", **options)

    def test_a_missing_driver_raises_missing_extra_error(self) -> None:
        error_text = adapter_checks.import_error_without(MODULE, "redis")
        assert (
            "MissingExtraError: The Redis adapter needs the package 'redis': pip install 'tellback[redis]'"
            in error_text
        )


@pytest.mark.backend("Redis")
class TestKeys:
    async def test_keys_of_different_prefixes_never_collide(self, redis_url: str, prefix: str, server: Redis) -> None:
        """Try prefixes and ids that would produce equal keys if they were concatenated unescaped."""
        adapters = []
        for part in ("", "user:", "session:", "messages:", "user:session:"):
            prefixed_adapter = RedisAdapter(redis_url, key_prefix=f"{prefix}{part}")
            await prefixed_adapter.initialize()
            adapters.append(prefixed_adapter)
        ids = ["web-42", "session:web-42", "user:maya", "a:b", "a%3Ab", "{a}:b"]
        for n, each in enumerate(adapters):
            for id in ids:
                await each.save(make_session(id, user_id=id, version=1), [make_message(f"{n} {id}", id)])
        for n, each in enumerate(adapters):
            for id in ids:
                assert contents(await each.message_repository.list_by_session(id)) == [f"{n} {id}"]
                assert [found.id for found in await each.session_repository.list_by_user(id)] == [id]
        assert not await adapters[1].session_repository.delete("web-43")
        for each in adapters:
            await each.disconnect()

    def test_a_hash_tag_puts_all_keys_in_one_slot(self) -> None:
        keys = RedisKeys("{agent}:")
        built_keys = [keys.session("a{b}"), keys.messages("c"), keys.user("{d}"), keys.active("e"), keys.new_reply()]
        assert len({key_slot(key) for key in built_keys}) == 1

    async def test_every_key_expires(self, redis_url: str, prefix: str, server: Redis) -> None:
        adapter = RedisAdapter(redis_url, key_prefix=prefix, session_ttl=100, message_ttl=1_000)
        await adapter.initialize()
        await adapter.save(make_session(version=1), [make_message("Hi")])
        await adapter.session_repository.create(make_session("other", user_id="ben"))
        await adapter.session_repository.update_status("other", "completed", at=later(1), completed_at=later(1))
        await adapter.message_repository.add([make_message("Hi", "other")], at=later(1))
        await adapter.disconnect()
        ttls = {key: await server.pttl(key) async for key in server.scan_iter(f"{prefix}*")}
        assert all(0 < each <= 1_000_000 for each in ttls.values())
        keys = RedisKeys(prefix)
        assert ttls[keys.messages("web-42")] > 100_000
        assert ttls[keys.session("web-42")] <= 100_000
        assert ttls[keys.user("maya")] <= 100_000
        assert ttls[keys.user("ben")] <= 100_000

    async def test_a_users_list_expires_with_its_last_session(self, redis_url: str, prefix: str, server: Redis) -> None:
        keys, ttls = RedisKeys(prefix), []
        for n, ttl in enumerate((100, 10, 1_000, None, 10)):
            adapter = RedisAdapter(redis_url, key_prefix=prefix, session_ttl=ttl, message_ttl=ttl)
            await adapter.initialize()
            await adapter.save(make_session(f"web-{n}", version=1), [])
            await adapter.session_repository.get("web-0")
            await adapter.disconnect()
            ttls.append(await server.pttl(keys.user("maya")))
        assert 90_000 < ttls[0] <= 100_000
        assert 80_000 < ttls[1] <= ttls[0]
        assert 900_000 < ttls[2] <= 1_000_000
        assert ttls[3:] == [-1, -1]

    @pytest.mark.parametrize("cleaned_by", ["reading", "purging"])
    async def test_an_expired_session_is_removed_from_its_users_lists(
        self, redis_url: str, prefix: str, server: Redis, cleaned_by: str
    ) -> None:
        expiring = RedisAdapter(redis_url, key_prefix=prefix, session_ttl=0.2)
        non_expiring = RedisAdapter(redis_url, key_prefix=prefix, session_ttl=None)
        await expiring.initialize()
        await non_expiring.initialize()
        await non_expiring.save(make_session("kept", version=1), [])
        for n in range(5):
            await expiring.save(make_session(f"gone-{n}", version=1), [])
        await eventually(lambda: expiring.session_repository.get("gone-4"), lambda found: found is None)
        keys = RedisKeys(prefix)
        assert await server.zcard(keys.user("maya")) == 6
        if cleaned_by == "reading":
            assert [each.id for each in await non_expiring.session_repository.list_by_user("maya", limit=6)] == ["kept"]
        else:
            await non_expiring.purge_expired()
        assert await server.zcard(keys.user("maya")) == 1
        assert await server.zcard(keys.active("maya")) == 1
        await expiring.disconnect()
        await non_expiring.disconnect()

    async def test_a_session_recreated_by_another_user_belongs_to_that_user_only(
        self, redis_url: str, prefix: str
    ) -> None:
        expiring = RedisAdapter(redis_url, key_prefix=prefix, session_ttl=0.2)
        non_expiring = RedisAdapter(redis_url, key_prefix=prefix)
        await expiring.initialize()
        await non_expiring.initialize()
        await non_expiring.save(make_session("other", version=1), [])
        await expiring.save(make_session(version=1), [])
        await eventually(lambda: expiring.session_repository.get("web-42"), lambda found: found is None)
        await non_expiring.save(make_session(version=1, user_id="ben"), [])
        assert [each.id for each in await non_expiring.session_repository.list_by_user("maya")] == ["other"]
        assert [each.id for each in await non_expiring.session_repository.list_by_user("ben")] == ["web-42"]
        await expiring.disconnect()
        await non_expiring.disconnect()

    async def test_positions_continue_after_all_messages_expired(
        self, redis_url: str, prefix: str, server: Redis
    ) -> None:
        expiring = RedisAdapter(redis_url, key_prefix=prefix, session_ttl=None, message_ttl=0.2)
        await expiring.initialize()
        await expiring.save(make_session(version=1), [make_message("one"), make_message("two")])
        await eventually(lambda: expiring.message_repository.list_by_session("web-42"), lambda found: not found)
        assert not await server.exists(RedisKeys(prefix).messages("web-42"))
        (added,) = await expiring.message_repository.add([make_message("three")], at=later(1))
        assert added.position == 3
        await expiring.disconnect()

    async def test_messages_with_different_times_to_live_expire_separately(self, redis_url: str, prefix: str) -> None:
        expiring = RedisAdapter(redis_url, key_prefix=prefix, message_ttl=0.3)
        non_expiring = RedisAdapter(redis_url, key_prefix=prefix, message_ttl=None)
        await expiring.initialize()
        await non_expiring.initialize()
        await non_expiring.session_repository.create(make_session())
        for n in range(300):
            await (expiring, non_expiring)[n % 3 == 0].message_repository.add([make_message(str(n))], at=later(n))
        remaining_texts = [str(n) for n in range(0, 300, 3)]
        found = await eventually(
            lambda: non_expiring.message_repository.list_by_session("web-42"),
            lambda found: contents(found) == remaining_texts,
        )
        assert contents(found) == remaining_texts
        assert (
            contents(await non_expiring.message_repository.list_by_session("web-42", limit=2)) == remaining_texts[-2:]
        )
        assert (
            contents(await non_expiring.message_repository.list_by_session("web-42", limit=2, after=1))
            == remaining_texts[1:3]
        )
        purged = await non_expiring.purge_expired()
        assert 0 < purged <= 200
        assert await non_expiring.purge_expired() == 0
        (added,) = await non_expiring.message_repository.add([make_message("on")], at=later(1))
        assert added.position == 301
        assert contents(await non_expiring.message_repository.list_by_session("web-42")) == [*remaining_texts, "on"]
        await expiring.disconnect()
        await non_expiring.disconnect()

    async def test_a_key_of_another_type_is_reported_and_nothing_is_stored(
        self, adapter: RedisAdapter, prefix: str, server: Redis
    ) -> None:
        keys = RedisKeys(prefix)
        for key in (keys.messages("web-42"), keys.user("maya"), keys.active("maya")):
            await server.set(key, "mine")
            with pytest.raises(StoreError, match=r"is a string, not a (stream|zset)"):
                await adapter.save(make_session(version=1), [make_message("Hi")])
            with pytest.raises(StoreError):
                await adapter.session_repository.create(make_session())
            assert await server.keys(f"{prefix}*") == [key]
            await server.delete(key)

    async def test_extreme_dates_are_ordered_to_the_microsecond(self, adapter: RedisAdapter) -> None:
        moments = [later(-6e10), later(-6e10 + 1e-6), later(0), later(2e11), later(2e11 + 0.000001)]
        for n, moment in enumerate(moments):
            await adapter.session_repository.create(make_session(f"web-{n}", created_at=moment))
        found = await adapter.session_repository.list_by_user("maya")
        assert [each.id for each in found] == [f"web-{n}" for n in reversed(range(5))]
        assert [each.created_at for each in found] == moments[::-1]

    async def test_values_that_cannot_be_stored_are_rejected(self, adapter: RedisAdapter) -> None:
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
        with pytest.raises(InvalidArgumentError):
            await adapter.save(make_session(version=1), [make_message("Hi", created_at=later(0).replace(tzinfo=None))])
        assert await adapter.session_repository.get("web-42") is None


@pytest.mark.backend("Redis")
class TestFailures:
    @pytest.mark.parametrize("fault", ["cut", "pass and cut"])
    @pytest.mark.parametrize("own_client", [True, False], ids=["own client", "passed client"])
    async def test_a_change_whose_answer_is_lost_takes_effect_once(
        self, proxy: FaultProxy, prefix: str, fault: Any, own_client: bool
    ) -> None:
        async with Redis.from_url(proxied_url(proxy)) as client:
            adapter = RedisAdapter(proxied_url(proxy) if own_client else client, key_prefix=prefix)
            await adapter.initialize()
            sessions, messages = adapter.session_repository, adapter.message_repository
            await adapter.save(make_session("warm", version=1), [make_message("Hi", "warm")])
            proxy.trap(b"EVALSHA", fault)
            assert await sessions.create(make_session()) == make_session()
            proxy.trap(b"EVALSHA", fault)
            (added,) = await messages.add([make_message("note")], at=later(1))
            proxy.trap(b"EVALSHA", fault)
            saved = await adapter.save(
                make_session(version=1, updated_at=later(2)), [make_message("one"), make_message("two")]
            )
            proxy.trap(b"EVALSHA", fault)
            completed = await sessions.update_status("web-42", "completed", at=later(3), completed_at=later(3))
            assert proxy.triggered == 4
            assert (added.position, saved.version, saved.message_count) == (1, 1, 3)
            assert completed is not None
            assert (completed.status, completed.version) == ("completed", 1)
            assert contents(await messages.list_by_session("web-42")) == ["note", "one", "two"]
            proxy.trap(b"EVALSHA", fault)
            assert await sessions.delete("web-42")
            assert await sessions.get("web-42") is None
            await adapter.disconnect()

    async def test_a_change_without_an_answer_is_in_doubt(self, proxy: FaultProxy, prefix: str) -> None:
        adapter = RedisAdapter(proxied_url(proxy), key_prefix=prefix)
        await adapter.initialize()
        await adapter.save(make_session("warm", version=1), [make_message("Hi", "warm")])
        proxy.trap(b"EVALSHA", "pass and cut", 2)
        with pytest.raises(StoreUnavailableError, match="may have been stored") as caught:
            await adapter.save(make_session(version=1), [make_message("Hi")])
        assert caught.value.in_doubt
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]
        proxy.refuse()
        await asyncio.sleep(0.1)  # until the client notices the closed connections
        with pytest.raises(StoreUnavailableError) as caught:
            await adapter.save(make_session(version=2), [make_message("lost")])
        assert not caught.value.in_doubt
        with pytest.raises(StoreUnavailableError) as caught:
            await adapter.session_repository.get("web-42")
        assert not caught.value.in_doubt
        proxy.accept()
        assert (await adapter.save(make_session(version=2), [make_message("again")])).message_count == 2
        await adapter.disconnect()

    async def test_a_server_that_does_not_answer_times_out(self, own_redis: RedisServer) -> None:
        adapter = RedisAdapter(f"{own_redis.url}?socket_timeout=1")
        await adapter.initialize()
        await adapter.save(make_session(version=1), [])
        with paused_process(own_redis.pid):
            with pytest.raises(StoreUnavailableError, match="in time") as caught:
                await adapter.save(make_session(version=2), [make_message("Hi")])
            assert caught.value.in_doubt
        found = await adapter.session_repository.get("web-42")
        assert found is not None
        assert found.version in (1, 2)
        await adapter.disconnect()

    async def test_a_cancelled_turn_is_saved_completely_or_not_at_all(self, adapter: RedisAdapter) -> None:
        await adapter_checks.check_cancelled_saves(adapter)

    async def test_a_killed_process_leaves_complete_turns(
        self, adapter: RedisAdapter, redis_url: str, prefix: str
    ) -> None:
        code = f"RedisAdapter({redis_url!r}, key_prefix={prefix!r})"
        await adapter_checks.check_killed_process(adapter, f"from {MODULE} import RedisAdapter", code)

    async def test_scripts_missing_on_the_server_are_sent_again(self, own_redis: RedisServer) -> None:
        adapter = RedisAdapter(own_redis.url)
        await adapter.initialize()
        for version in (1, 2):
            await adapter.save(make_session(version=version), [make_message("Hi")])
            async with Redis.from_url(own_redis.url) as server:
                await server.script_flush()
        assert len(await adapter.message_repository.list_by_session("web-42")) == 2
        await adapter.disconnect()

    async def test_a_full_server_is_reported_and_nothing_is_stored(self, own_redis: RedisServer) -> None:
        adapter = RedisAdapter(own_redis.url)
        await adapter.initialize()
        saved = await adapter.save(make_session(version=1), [make_message("Hi")])
        async with Redis.from_url(own_redis.url) as server:
            await server.config_set("maxmemory", "1")
            for messages in ([make_message("lost")], []):
                with pytest.raises(StoreFullError, match="maxmemory"):
                    await adapter.save(make_session(version=2), messages)
            assert await adapter.session_repository.get("web-42") == saved
            assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]
            await server.config_set("maxmemory", "0")
        await adapter.save(make_session(version=2), [])
        await adapter.disconnect()

    async def test_a_replica_is_read_only(self, own_redis: RedisServer) -> None:
        adapter = RedisAdapter(own_redis.url)
        await adapter.initialize()
        saved = await adapter.save(make_session(version=1), [make_message("Hi")])
        async with Redis.from_url(own_redis.url) as server:
            await server.replicaof("127.0.0.1", "1")
        with pytest.raises(StoreReadOnlyError, match="replica"):
            await adapter.save(make_session(version=2), [make_message("lost")])
        assert await adapter.session_repository.list_by_user("maya") == [saved]
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]
        await adapter.disconnect()

    async def test_missing_permissions_are_reported(self, own_redis: RedisServer) -> None:
        async with Redis.from_url(own_redis.url) as server:
            await server.acl_setuser(
                "reader", enabled=True, passwords=["+geheim"], keys=["*"], categories=["+@read"], commands=["+ping"]
            )
        adapter = RedisAdapter(own_redis.url.replace("//", "//reader:geheim@"))
        with pytest.raises(StoreUnavailableError, match="permissions") as caught:
            await adapter.initialize()
        assert "geheim" not in str(caught.value)


class ClusterServer(RedisServer):
    """A cluster with one node."""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port(BUS_PORT_OFFSET)

    def command(self) -> list[str]:
        return [*super().command(), "--cluster-enabled", "yes"]


@pytest.fixture
def cluster() -> Iterator[ClusterServer]:
    if ClusterServer.missing_reason():
        pytest.skip(str(ClusterServer.missing_reason()))
    cluster_server = ClusterServer()
    try:
        cluster_server.start()
        with SyncRedis.from_url(cluster_server.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))
            while "cluster_state:ok" not in str(client.execute_command("CLUSTER", "INFO")):
                pass
        yield cluster_server
    finally:
        cluster_server.remove()


@pytest.mark.backend("Redis")
class TestCluster:
    @pytest.mark.parametrize("kind", [Redis, RedisCluster])
    async def test_a_cluster_needs_a_hash_tag(self, cluster: ClusterServer, kind: Callable[..., Any]) -> None:
        client = kind(host="127.0.0.1", port=cluster.port)
        try:
            with pytest.raises(ConfigurationError, match=r"such as '\{agent\}:'"):
                await RedisAdapter(client).initialize()
            adapter = RedisAdapter(client, key_prefix="{agent}:", message_ttl=0.2)
            await adapter.initialize()
            await adapter.save(make_session(version=1), [make_message("brief")])
            await adapter.session_repository.update_status("web-42", "completed", at=later(1), completed_at=later(1))
            saved = await adapter.save(make_session(version=2), [])
            assert await adapter.session_repository.list_by_user("maya") == [saved]
            assert (
                await eventually(lambda: adapter.message_repository.list_by_session("web-42"), lambda found: not found)
                == []
            )
            await adapter.purge_expired()
            assert await adapter.session_repository.delete("web-42")
        finally:
            await client.aclose()


@pytest.mark.backend("Redis")
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=adapter_checks.JSON)
def test_any_json_is_returned_unchanged(redis_url: str, prefix: str, value: Any) -> None:
    async def store() -> None:
        adapter = RedisAdapter(redis_url, key_prefix=prefix)
        await adapter.initialize()
        await adapter_checks.check_round_trip(adapter, value)
        await adapter.disconnect()

    asyncio.run(store())
