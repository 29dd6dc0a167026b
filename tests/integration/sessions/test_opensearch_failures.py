"""`OpenSearchAdapter` when requests are interrupted, answers are lost, or others write in between."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from opensearchpy import AsyncOpenSearch
from opensearchpy import ConnectionError as LostError

from tellback.errors import NotFoundError, SessionConflictError, StoreBusyError, StoreError, StoreUnavailableError
from tellback.sessions.opensearch import OpenSearchAdapter, documents
from tellback.testing.sessions.repositories import NOON, contents, later, make_message, make_session
from tests.integration.sessions.opensearch_fixtures import (
    MakeOpenSearch,
    ScriptedTransport,
    SharedServerFixtures,
    count_documents,
    dump_indices,
)
from tests.support.fault_proxy import Fault, FaultProxy

Scripted = tuple[OpenSearchAdapter, ScriptedTransport]
POINTS = [(request, after) for request in range(1, 8) for after in (False, True)]
"""The requests to interrupt, before or after they run. No change needs more than 7 requests."""


@pytest.mark.backend("OpenSearch")
class TestInterruptedRequests(SharedServerFixtures):
    @pytest.mark.parametrize("is_known", [False, True])
    async def test_an_interrupted_turn_is_stored_completely_or_not_at_all(
        self, adapter: OpenSearchAdapter, scripted: Scripted, client: AsyncOpenSearch, is_known: bool
    ) -> None:
        breaking, transport = scripted
        seen = set()
        for n, (request, after) in enumerate(POINTS):
            id, message_texts = f"web-{n}", []
            if is_known:
                await adapter.save(make_session(id, version=1), [make_message("one", id)])
                message_texts = ["one"]
            version = len(message_texts)
            transport.start()
            transport.fail_from(request, asyncio.CancelledError(), after=after)
            try:
                await breaking.save(
                    make_session(id, version=version + 1), [make_message("two", id), make_message("three", id)]
                )
            except asyncio.CancelledError:
                is_complete = False
            else:
                is_complete = True
            found = await adapter.session_repository.get(id)
            stored = 0 if found is None else found.version
            assert stored in (version, version + 1)
            if stored > version:
                message_texts += ["two", "three"]
            assert is_complete <= (stored > version)
            assert contents(await adapter.message_repository.list_by_session(id)) == message_texts
            assert (found.message_count if found else 0) == len(message_texts)
            seen.add((is_complete, stored > version))
            saved = await adapter.save(make_session(id, version=stored + 1), [make_message("on", id)])
            assert saved.message_count == len(message_texts) + 1
            messages = await adapter.message_repository.list_by_session(id)
            assert contents(messages) == [*message_texts, "on"]
            assert [each.position for each in messages] == list(range(1, len(message_texts) + 2))
            assert len(await adapter.search_messages("one two three on", limit=None)) == await count_documents(
                client, adapter.indices["messages"]
            )
        assert seen == {(False, False), (False, True), (True, True)}

    async def test_after_an_interrupted_deletion_nothing_reappears(
        self, adapter: OpenSearchAdapter, scripted: Scripted, client: AsyncOpenSearch, name: str
    ) -> None:
        breaking, transport = scripted
        seen = set()
        for n, (request, after) in enumerate(POINTS):
            id = f"web-{n}"
            await adapter.save(make_session(id, version=1), [make_message("old", id), make_message("older", id)])
            transport.start()
            transport.fail_from(request, asyncio.CancelledError(), after=after)
            with contextlib.suppress(asyncio.CancelledError):
                assert await breaking.session_repository.delete(id)
            found = await adapter.session_repository.get(id)
            message_texts = contents(await adapter.message_repository.list_by_session(id))
            assert message_texts == ([] if found is None else ["old", "older"])
            assert len(await adapter.search_messages("old older")) == len(message_texts)
            assert len(await adapter.session_repository.list_by_user("maya")) == (found is not None)
            seen.add(found is None)
            if n % 2:
                await adapter.session_repository.delete(id)
                assert await adapter.purge_expired() == 0
            else:
                await adapter.session_repository.delete(id)
                await adapter.session_repository.create(make_session(id))
                (new,) = await adapter.message_repository.add([make_message("new", id)], at=NOON)
                assert new.position == 1
                assert contents(await adapter.message_repository.list_by_session(id)) == ["new"]
                assert contents(await adapter.search_messages("old older new")) == ["new"]
                assert await adapter.session_repository.delete(id)
        assert seen == {True, False}
        assert await dump_indices(client, name) == "[]"

    async def test_a_purge_finishes_interrupted_deletions(
        self, adapter: OpenSearchAdapter, scripted: Scripted, client: AsyncOpenSearch, name: str
    ) -> None:
        breaking, transport = scripted
        await adapter.save(make_session(version=1), [make_message("old")])
        transport.start()
        transport.fail_from(4, asyncio.CancelledError(), after=False)
        with pytest.raises(asyncio.CancelledError):
            await breaking.session_repository.delete("web-42")
        assert "old" in await dump_indices(client, name)
        assert await adapter.purge_expired() == 0
        assert await dump_indices(client, name) == "[]"

    async def test_a_purge_indexes_pending_messages(self, adapter: OpenSearchAdapter, scripted: Scripted) -> None:
        breaking, transport = scripted
        transport.fail_from(2, asyncio.CancelledError(), after=True)
        with pytest.raises(asyncio.CancelledError):
            await breaking.save(make_session(version=1), [make_message("Rome")])
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Rome"]
        assert await adapter.search_messages("rome") == []
        assert await adapter.purge_expired() == 0
        assert contents(await adapter.search_messages("rome")) == ["Rome"]

    async def test_a_partial_deletion_is_reported(self, scripted: Scripted) -> None:
        breaking, transport = scripted
        await breaking.save(make_session(version=1), [make_message("old")])
        transport.start()
        transport.fail_from(4, LostError("N/A", "cut", OSError()), after=False)
        with pytest.raises(StoreUnavailableError, match="some of its messages are not") as caught:
            await breaking.session_repository.delete("web-42")
        assert caught.value.in_doubt
        transport.start()
        assert await breaking.session_repository.get("web-42") is None
        assert not await breaking.session_repository.delete("web-42")

    async def test_a_killed_process_leaves_complete_turns(self, adapter: OpenSearchAdapter, url: str) -> None:
        code = f"""if True:
            import asyncio
            from tellback.sessions.opensearch import OpenSearchAdapter
            from tellback.testing.sessions.repositories import make_message, make_session
            async def main():
                adapter = OpenSearchAdapter({url!r}, indices={adapter.indices!r})
                await adapter.initialize()
                version = 0
                while True:
                    version += 1
                    messages = [make_message(f"{{version}}.{{k}}") for k in range(3)]
                    await adapter.save(make_session(version=version), messages)
                    print(version, flush=True)
            asyncio.run(main())
        """
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
        assert child.stdout is not None
        try:
            for _ in range(5):
                assert await child.stdout.readline()
        finally:
            child.kill()
            remaining_output = await child.stdout.read()
            await child.wait()
        acknowledged_count = 5 + len(remaining_output.splitlines())
        found = await adapter.session_repository.get("web-42")
        assert found is not None
        assert found.version in (acknowledged_count, acknowledged_count + 1)
        message_texts = contents(await adapter.message_repository.list_by_session("web-42"))
        assert message_texts == [f"{n}.{k}" for n in range(1, found.version + 1) for k in range(3)]


@pytest.mark.backend("OpenSearch")
class TestConcurrentWrites(SharedServerFixtures):
    async def test_a_concurrently_added_message_does_not_reject_a_turn(
        self, adapter: OpenSearchAdapter, scripted: Scripted
    ) -> None:
        slow, transport = scripted
        await adapter.session_repository.create(make_session())
        transport.add_hook(2, lambda: adapter.message_repository.add([make_message("note")], at=later(1)))
        saved = await slow.save(make_session(version=1), [make_message("turn")])
        assert saved.message_count == 2
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["note", "turn"]

    async def test_the_slower_of_two_concurrent_turns_is_rejected(
        self, adapter: OpenSearchAdapter, scripted: Scripted
    ) -> None:
        slow, transport = scripted
        transport.add_hook(2, lambda: adapter.save(make_session(version=1), [make_message("first")]))
        with pytest.raises(SessionConflictError):
            await slow.save(make_session(version=1), [make_message("second")])
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["first"]

    async def test_turns_and_messages_are_rejected_after_a_concurrent_deletion(
        self, adapter: OpenSearchAdapter, scripted: Scripted, client: AsyncOpenSearch, name: str
    ) -> None:
        slow, transport = scripted
        await adapter.session_repository.create(make_session())
        transport.add_hook(2, lambda: adapter.session_repository.delete("web-42"))
        with pytest.raises(NotFoundError):
            await slow.message_repository.add([make_message("lost")], at=NOON)
        await adapter.save(make_session(version=1), [])
        transport.start()
        transport.add_hook(2, lambda: adapter.session_repository.delete("web-42"))
        with pytest.raises(SessionConflictError):
            await slow.save(make_session(version=2), [make_message("lost")])
        assert await dump_indices(client, name) == "[]"

    async def test_messages_indexed_late_do_not_reappear_after_a_deletion(
        self, adapter: OpenSearchAdapter, scripted: Scripted, client: AsyncOpenSearch
    ) -> None:
        slow, transport = scripted

        async def delete_and_recreate() -> None:
            await adapter.session_repository.delete("web-42")
            await adapter.save(make_session(version=1, user_id="ben"), [make_message("new")])

        transport.add_hook(3, delete_and_recreate)
        await slow.save(make_session(version=1), [make_message("late"), make_message("later")])
        assert [url.rpartition("/")[2] for _, url, _ in transport.sent][1:3] == ["web-42", "_bulk"]
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["new"]
        assert contents(await adapter.search_messages("new late later")) == ["new"]
        assert await count_documents(client, adapter.indices["messages"]) == 1

    async def test_a_session_deleted_while_it_is_read_is_not_returned_partially(
        self, adapter: OpenSearchAdapter, scripted: Scripted
    ) -> None:
        slow, transport = scripted
        await adapter.save(make_session(version=1), [make_message("one")])
        await adapter.save(make_session(version=2), [make_message("two")])
        transport.add_hook(2, lambda: adapter.session_repository.delete("web-42"))
        assert await slow.message_repository.list_by_session("web-42") == []

    async def test_a_lost_answer_is_recognized_despite_later_writes(
        self, adapter: OpenSearchAdapter, scripted: Scripted
    ) -> None:
        slow, transport = scripted
        await adapter.session_repository.create(make_session())

        async def write_and_drop_response() -> None:
            for n in range(20):
                await adapter.message_repository.add([make_message(f"other {n}")], at=NOON)
            raise LostError("N/A", "cut", OSError())

        transport.add_hook(2, write_and_drop_response, after=True)
        (added,) = await slow.message_repository.add([make_message("mine")], at=NOON)
        assert added.position == 1
        message_texts = contents(await adapter.message_repository.list_by_session("web-42"))
        assert message_texts == ["mine", *(f"other {n}" for n in range(20))]

    async def test_constant_conflicts_raise_store_busy_error(
        self, adapter: OpenSearchAdapter, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(documents, "CONFLICT_SECONDS", 0.2)
        slow, transport = scripted
        await adapter.session_repository.create(make_session())

        async def save_concurrently() -> None:
            await adapter.session_repository.update_status("web-42", "active", at=NOON, completed_at=None)

        for request in range(1, 1_000):
            transport.add_hook(2 * request, save_concurrently)
        with pytest.raises(StoreBusyError) as caught:
            await slow.save(make_session(version=1), [make_message("lost")])
        assert not caught.value.in_doubt
        assert await adapter.message_repository.list_by_session("web-42") == []


@pytest.mark.backend("OpenSearch")
class TestLostAnswers(SharedServerFixtures):
    @pytest.fixture
    async def proxy(self, url: str) -> AsyncIterator[FaultProxy]:
        async with FaultProxy(url) as proxy:
            yield proxy

    @pytest.mark.parametrize("own_client", [True, False], ids=["a URL", "a client that retries"])
    @pytest.mark.parametrize("fault", ["cut", "pass and cut"])
    async def test_a_lost_write_takes_effect_at_most_once(
        self, adapter: OpenSearchAdapter, make: MakeOpenSearch, proxy: FaultProxy, fault: Fault, own_client: bool
    ) -> None:
        url = proxy.url.replace("None@", "")  # the driver requires a password for a user
        client = AsyncOpenSearch(url, max_retries=3)
        faulty_adapter = make(url if own_client else client)
        await faulty_adapter.initialize()
        sessions = faulty_adapter.session_repository

        def trap() -> None:
            proxy.trap(b"POST /" + faulty_adapter.indices["sessions"].encode() + b"/_doc/", fault)

        trap()
        await sessions.create(make_session())
        trap()
        assert (await faulty_adapter.save(make_session(version=1), [make_message("one")])).message_count == 1
        trap()
        await faulty_adapter.message_repository.add([make_message("two")], at=NOON)
        trap()
        changed = await sessions.update_status("web-42", "completed", at=later(1), completed_at=later(1))
        assert changed == await adapter.session_repository.get("web-42")
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["one", "two"]
        trap()
        assert await sessions.delete("web-42")
        trap()
        saved = await faulty_adapter.save(make_session(version=1), [make_message("recreated")])
        assert proxy.triggered == 6
        assert saved == await adapter.session_repository.get("web-42")
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["recreated"]
        await faulty_adapter.disconnect()
        await client.close()

    @pytest.mark.parametrize("path", [b"_mget", b"_bulk", b"_search", b"_refresh", b"GET /"])
    async def test_repeatable_requests_are_retried_after_a_lost_connection(
        self, make: MakeOpenSearch, proxy: FaultProxy, path: bytes
    ) -> None:
        faulty_adapter = make(proxy.url)
        await faulty_adapter.initialize()
        proxy.trap(path, "pass and cut")
        await faulty_adapter.save(make_session(version=1), [make_message("one")])
        saved = await faulty_adapter.save(make_session(version=2), [make_message("two")])
        assert contents(await faulty_adapter.message_repository.list_by_session("web-42")) == ["one", "two"]
        assert await faulty_adapter.session_repository.list_by_user("maya") == [saved]
        assert proxy.triggered == 1
        await faulty_adapter.disconnect()

    async def test_a_change_without_an_answer_is_in_doubt(self, scripted: Scripted) -> None:
        adapter, transport = scripted
        for request, after, in_doubt in ((1, False, False), (2, False, True), (2, True, True)):
            transport.start()
            transport.fail_from(request, LostError("N/A", "cut", OSError()), after=after)
            with pytest.raises(StoreUnavailableError) as caught:
                await adapter.save(
                    make_session(f"web-{request}-{after}", version=1), [make_message("Hi", f"web-{request}-{after}")]
                )
            assert caught.value.in_doubt is in_doubt
            transport.start()
            found = await adapter.session_repository.get(f"web-{request}-{after}")
            assert (found is not None) is after

    async def test_a_server_lost_after_storing_a_turn_causes_no_error(self, scripted: Scripted) -> None:
        adapter, transport = scripted
        transport.fail_from(3, LostError("N/A", "cut", OSError()), after=False)
        saved = await adapter.save(make_session(version=1), [make_message("Hi")])
        with pytest.raises(StoreError):
            await adapter.session_repository.get("web-42")
        transport.start()
        assert await adapter.session_repository.get("web-42") == saved
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]


@pytest.mark.backend("OpenSearch")
class TestPurging(SharedServerFixtures):
    async def test_unexpired_messages_survive_their_session(
        self, adapter: OpenSearchAdapter, make: MakeOpenSearch, client: AsyncOpenSearch, name: str
    ) -> None:
        expiring = make(session_ttl=0.001)
        await expiring.initialize()
        data = {"extracted": {"to": "Rome"}}
        await expiring.save(make_session(version=1, collected_data=data), [make_message("old"), make_message("older")])
        await asyncio.sleep(0.01)
        assert [await adapter.purge_expired() for _ in range(2)] == [1, 0]
        assert "Rome" not in await dump_indices(client, name)
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["old", "older"]
        assert len(await adapter.search_messages("old older")) == 2
        await adapter.session_repository.create(make_session(user_id="ben"))
        (added,) = await adapter.message_repository.add([make_message("new")], at=NOON)
        assert added.position == 3
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["old", "older", "new"]
        await expiring.disconnect()

    async def test_purging_leaves_no_expired_data(
        self, adapter: OpenSearchAdapter, make: MakeOpenSearch, client: AsyncOpenSearch, name: str
    ) -> None:
        expiring = make(session_ttl=0.001, message_ttl=0.001)
        await expiring.initialize()
        for id in ("a", "b", "c"):
            await expiring.save(make_session(id, version=1), [make_message(f"{id} {n}", id) for n in range(4)])
        await asyncio.sleep(0.01)
        assert [await adapter.purge_expired() for _ in range(2)] == [15, 0]
        assert await dump_indices(client, name) == "[]"
        await expiring.disconnect()

    async def test_a_session_keeps_no_copy_of_expired_messages(
        self, adapter: OpenSearchAdapter, make: MakeOpenSearch, client: AsyncOpenSearch, name: str
    ) -> None:
        expiring = make(message_ttl=0.001)
        await expiring.initialize()
        saved = await expiring.save(make_session(version=1), [make_message("old")])
        await asyncio.sleep(0.01)
        assert [await adapter.purge_expired() for _ in range(2)] == [1, 0]
        assert "old" not in await dump_indices(client, name)
        assert await adapter.session_repository.get("web-42") == saved
        await adapter.save(make_session(version=2), [make_message("new")])
        (found,) = await adapter.message_repository.list_by_session("web-42")
        assert (found.content, found.position) == ("new", 2)
        await expiring.disconnect()

    async def test_concurrent_purges_count_each_row_once(
        self, adapter: OpenSearchAdapter, make: MakeOpenSearch
    ) -> None:
        expiring = make(session_ttl=0.001, message_ttl=0.001)
        await expiring.initialize()
        await asyncio.gather(
            *(expiring.save(make_session(f"s{n}", version=1), [make_message("x", f"s{n}")]) for n in range(20))
        )
        await asyncio.sleep(0.01)
        assert sum(await asyncio.gather(*(each.purge_expired() for each in (adapter, expiring, adapter)))) == 40
        await expiring.disconnect()
