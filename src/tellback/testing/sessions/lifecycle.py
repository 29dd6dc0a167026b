"""The contract of a whole adapter: saving turns, prefixes, times to live, connections, and server restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from tellback.errors import (
    InvalidArgumentError,
    NotFoundError,
    SessionConflictError,
    StoreClosedError,
    StoreUnavailableError,
    TellbackError,
)
from tellback.sessions.adapter import PersistenceAdapter
from tellback.testing.sessions.repositories import (
    AdapterContract,
    MakeAdapter,
    Restartable,
    contents,
    eventually,
    later,
    make_message,
    make_session,
)
from tellback.testing.stores.factories import present
from tellback.types.conversations import SessionData

OpenAdapter = Callable[..., Awaitable[PersistenceAdapter]]


class SaveContract(AdapterContract):
    """Tests of saving turns, in sequence and concurrently."""

    async def test_the_first_turn_creates_the_session(self, adapter: PersistenceAdapter) -> None:
        said = [make_message("To Rome"), make_message("When?", role="agent")]
        made = make_session(version=1, current_route="book", collected_data={"extracted": {"to": "Rome"}})
        saved = await adapter.save(made, said)
        assert saved == replace(made, message_count=2, last_message_at=said[-1].created_at)
        assert await adapter.session_repository.get("web-42") == saved
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["To Rome", "When?"]

    async def test_a_turn_continues_the_previous_one(self, adapter: PersistenceAdapter) -> None:
        sessions = adapter.session_repository
        await sessions.create(make_session(created_at=later(1)))
        await adapter.save(make_session(version=1), [make_message("one")])
        await adapter.message_repository.add([make_message("note", role="system")], at=later(3))
        await sessions.update_status("web-42", "completed", at=later(4), completed_at=later(4))
        last = make_message("two")
        turn = make_session(
            version=2, user_id="ben", agent_name="Olga", current_route="book", current_state=None, updated_at=later(5)
        )
        saved = await adapter.save(turn, [last])
        assert saved == replace(
            turn,
            user_id="maya",
            agent_name="Wanda",
            status="completed",
            completed_at=later(4),
            created_at=later(1),
            message_count=3,
            last_message_at=last.created_at,
        )
        assert await sessions.get("web-42") == saved
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["one", "note", "two"]

    async def test_the_user_of_a_session_can_be_set_later(self, adapter: PersistenceAdapter) -> None:
        await adapter.save(make_session(version=1, agent_name=None), [])
        saved = await adapter.save(make_session(version=2, agent_name="Olga"), [])
        assert saved.agent_name == "Olga"
        assert await adapter.session_repository.find_active("maya", "Olga") == saved

    async def test_a_turn_without_messages_keeps_the_message_count(self, adapter: PersistenceAdapter) -> None:
        saved = await adapter.save(make_session(version=1), [])
        assert (saved.message_count, saved.last_message_at) == (0, None)

    @pytest.mark.parametrize("version", [0, 1, 3, 9])
    async def test_a_turn_from_another_version_is_rejected_with_its_messages(
        self, adapter: PersistenceAdapter, version: int
    ) -> None:
        saved = await adapter.save(make_session(version=1), [make_message("one")])
        with pytest.raises(SessionConflictError):
            await adapter.save(make_session(version=version), [make_message("lost")])
        assert await adapter.session_repository.get("web-42") == saved
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["one"]

    @pytest.mark.parametrize("version", [0, 2])
    async def test_a_later_turn_of_an_unknown_session_is_rejected(
        self, adapter: PersistenceAdapter, version: int
    ) -> None:
        with pytest.raises(SessionConflictError):
            await adapter.save(make_session(version=version), [make_message("lost")])
        assert await adapter.session_repository.get("web-42") is None
        assert await adapter.message_repository.list_by_session("web-42") == []

    async def test_messages_of_another_session_are_rejected(self, adapter: PersistenceAdapter) -> None:
        with pytest.raises(InvalidArgumentError):
            await adapter.save(make_session(version=1), [make_message("Hi", "web-43")])
        assert await adapter.session_repository.get("web-42") is None

    @pytest.mark.parametrize("earlier_turns", [0, 3])
    async def test_one_of_several_concurrent_turns_is_saved_completely(
        self, adapter: PersistenceAdapter, earlier_turns: int
    ) -> None:
        for n in range(earlier_turns):
            await adapter.save(make_session(version=n + 1), [make_message(f"before {n}")])
        turns = [
            (
                make_session(version=earlier_turns + 1, collected_data={"turn": n}),
                [make_message(f"{n}.{k}") for k in range(3)],
            )
            for n in range(8)
        ]
        ended = await asyncio.gather(*(adapter.save(*turn) for turn in turns), return_exceptions=True)
        assert [type(each) for each in ended].count(SessionConflictError) == 7
        (winner,) = [each for each in ended if isinstance(each, SessionData)]
        assert await adapter.session_repository.get("web-42") == winner
        found = contents(await adapter.message_repository.list_by_session("web-42"))
        assert found[earlier_turns:] == [f"{winner.collected_data['turn']}.{k}" for k in range(3)]
        assert winner.message_count == earlier_turns + 3

    async def test_concurrent_turns_and_notes_lose_no_message(
        self, adapter: PersistenceAdapter, second: PersistenceAdapter
    ) -> None:
        """Run turns of two adapters, each retried until it is saved, while others add messages."""
        await adapter.session_repository.create(make_session())

        async def take_turns(mine: PersistenceAdapter, name: str) -> None:
            for n in range(5):
                while True:
                    found = present(await mine.session_repository.get("web-42"))
                    turn = make_session(version=found.version + 1, collected_data={"last": f"{name}{n}"})
                    try:
                        await mine.save(turn, [make_message(f"{name}{n}.{k}") for k in range(2)])
                    except SessionConflictError:
                        continue
                    break

        async def add_notes() -> None:
            for n in range(5):
                await adapter.message_repository.add([make_message(f"note {n}")], at=later(1))

        await asyncio.gather(take_turns(adapter, "a"), take_turns(second, "b"), add_notes())
        stored = present(await adapter.session_repository.get("web-42"))
        assert (stored.version, stored.message_count) == (10, 25)
        found = contents(await adapter.message_repository.list_by_session("web-42"))
        notes = [f"note {n}" for n in range(5)]
        assert [each for each in found if each in notes] == notes
        said = [each for each in found if each not in notes]
        for name in "ab":
            assert [each for each in said if each.startswith(name)] == [
                f"{name}{n}.{k}" for n in range(5) for k in range(2)
            ]
        assert all(first[:-1] == next_[:-1] for first, next_ in zip(said[::2], said[1::2], strict=True))

    async def test_another_adapter_reads_changes_immediately(
        self, adapter: PersistenceAdapter, second: PersistenceAdapter
    ) -> None:
        saved = await adapter.save(make_session(version=1), [make_message("Hi")])
        assert await second.session_repository.get("web-42") == saved
        assert await second.session_repository.find_active("maya") == saved
        assert await second.session_repository.list_by_user("maya") == [saved]
        assert contents(await second.message_repository.list_by_session("web-42")) == ["Hi"]
        await second.session_repository.update_status("web-42", "completed", at=later(2), completed_at=later(2))
        assert await adapter.session_repository.find_active("maya") is None


class ExpiryContract(AdapterContract):
    """Tests of times to live."""

    @pytest.fixture
    async def open_adapter(self, make_adapter: MakeAdapter) -> AsyncIterator[OpenAdapter]:
        """A function that opens adapters with times to live; they are closed after the test."""
        if not self.expires:
            pytest.skip("this adapter has no times to live")
        opened: list[PersistenceAdapter] = []

        async def open_one(**times: float) -> PersistenceAdapter:
            opened.append(make_adapter("one", **times))
            await opened[-1].initialize()
            return opened[-1]

        yield open_one
        for adapter in opened:
            await adapter.disconnect()

    async def test_an_expired_session_is_unknown(self, open_adapter: OpenAdapter) -> None:
        expiring = await open_adapter(session_ttl=1.0)
        await expiring.save(make_session(version=1), [make_message("Hi")])
        assert await eventually(lambda: expiring.session_repository.get("web-42"), lambda found: found is None) is None
        assert await expiring.session_repository.list_by_user("maya") == []
        assert await expiring.session_repository.find_active("maya") is None
        assert contents(await expiring.message_repository.list_by_session("web-42")) == ["Hi"]
        with pytest.raises(SessionConflictError):
            await expiring.save(make_session(version=2), [])

    async def test_a_session_recreated_after_expiry_continues_after_its_old_messages(
        self, open_adapter: OpenAdapter
    ) -> None:
        expiring = await open_adapter(session_ttl=1.0)
        await expiring.session_repository.create(make_session())
        await expiring.message_repository.add([make_message("old")], at=make_session().created_at)
        assert await eventually(lambda: expiring.session_repository.get("web-42"), lambda found: found is None) is None
        saved = await expiring.save(make_session(version=1, user_id="ben"), [make_message("new")])
        assert (saved.message_count, saved.user_id) == (1, "ben")
        assert contents(await expiring.message_repository.list_by_session("web-42")) == ["old", "new"]

    @pytest.mark.parametrize("change", ["save", "add", "update_status"])
    async def test_each_change_renews_a_sessions_time_to_live(self, open_adapter: OpenAdapter, change: str) -> None:
        expiring = await open_adapter(session_ttl=1.5)
        sessions, loop = expiring.session_repository, asyncio.get_running_loop()
        saved = await expiring.save(make_session(version=1), [])
        started = loop.time()
        while loop.time() < started + 2.5:  # longer than its time to live
            before = loop.time()
            try:
                if change == "save":
                    saved = await expiring.save(make_session(version=saved.version + 1), [])
                elif change == "add":
                    await expiring.message_repository.add([make_message("Hi")], at=make_session().created_at)
                else:
                    done = await sessions.update_status(
                        "web-42", "active", at=make_session().created_at, completed_at=None
                    )
                    assert done is not None
            except (SessionConflictError, NotFoundError, AssertionError):
                if loop.time() - before > 1.0:
                    pytest.skip("this machine was too busy to renew it in time")
                raise
            await asyncio.sleep(0.2)
            if loop.time() - before > 1.0:
                pytest.skip("this machine was too busy to renew it in time")
        assert await sessions.get("web-42") is not None

    async def test_positions_continue_after_purged_messages(self, open_adapter: OpenAdapter) -> None:
        expiring, lasting = await open_adapter(message_ttl=0.5), await open_adapter()
        await expiring.save(make_session(version=1), [make_message("one"), make_message("two")])
        added = await expiring.message_repository.add([make_message("three")], at=make_session().created_at)
        last = added[-1].position
        await eventually(lambda: expiring.message_repository.list_by_session("web-42"), lambda found: not found)
        await expiring.purge_expired()
        mine = lasting if self.shared else expiring
        await mine.save(make_session(version=2), [make_message("four")])
        if self.shared:
            found = await mine.message_repository.list_by_session("web-42", after=last)
            assert contents(found) == ["four"]
        else:
            added = await expiring.message_repository.add([make_message("five")], at=make_session().created_at)
            assert added[0].position > last

    async def test_an_expired_message_is_not_returned(self, open_adapter: OpenAdapter) -> None:
        expiring = await open_adapter(message_ttl=1.0)
        await expiring.save(make_session(version=1), [make_message("brief")])
        assert (
            await eventually(lambda: expiring.message_repository.list_by_session("web-42"), lambda found: not found)
            == []
        )
        found = present(await expiring.session_repository.get("web-42"))
        assert found.message_count == 1

    async def test_purging_keeps_unexpired_data(self, open_adapter: OpenAdapter) -> None:
        if not self.shared:
            pytest.skip("this adapter does not share its data")
        expiring = await open_adapter(session_ttl=0.5, message_ttl=0.5)
        lasting = await open_adapter(session_ttl=900, message_ttl=900)
        await expiring.save(make_session("gone", version=1), [make_message("Hi", "gone")])
        await lasting.save(make_session("kept", version=1), [make_message("Hi", "kept")])
        await eventually(lambda: expiring.session_repository.get("gone"), lambda found: found is None)
        await eventually(lambda: expiring.message_repository.list_by_session("gone"), lambda found: not found)
        assert await expiring.purge_expired() <= 2  # the database may have deleted some itself
        assert await expiring.purge_expired() == 0
        assert await lasting.session_repository.get("kept") is not None
        assert contents(await lasting.message_repository.list_by_session("kept")) == ["Hi"]


class LifecycleContract(AdapterContract):
    """Tests of opening and closing adapters, and of two prefixes in one database."""

    async def test_two_prefixes_are_isolated(self, make_adapter: MakeAdapter) -> None:
        one, two = make_adapter("one"), make_adapter("two")
        await one.initialize()
        await two.initialize()
        await one.save(make_session(version=1), [make_message("in one")])
        assert await two.session_repository.get("web-42") is None
        assert await two.message_repository.list_by_session("web-42") == []
        assert await two.session_repository.list_by_user("maya") == []
        assert await two.session_repository.find_active("maya") is None
        assert not await two.session_repository.delete("web-42")
        await two.save(make_session(version=1), [make_message("in two")])
        assert contents(await one.message_repository.list_by_session("web-42")) == ["in one"]
        assert contents(await two.message_repository.list_by_session("web-42")) == ["in two"]
        assert await two.session_repository.delete("web-42")
        assert await one.session_repository.get("web-42") is not None
        await one.disconnect()
        await two.disconnect()

    async def test_initializing_and_disconnecting_twice_has_no_effect(self, make_adapter: MakeAdapter) -> None:
        adapter = make_adapter()
        await adapter.initialize()
        await adapter.save(make_session(version=1), [make_message("Hi")])
        await adapter.initialize()
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]
        await adapter.disconnect()
        await adapter.disconnect()
        await adapter.initialize()
        assert (await adapter.save(make_session(version=2), [])).message_count == 1
        await adapter.disconnect()

    async def test_adapters_can_be_initialized_concurrently(self, make_adapter: MakeAdapter) -> None:
        adapters = [make_adapter() for _ in range(5)]
        await asyncio.gather(*(each.initialize() for each in adapters))
        await asyncio.gather(
            *(
                each.save(make_session(f"web-{n}", version=1), [make_message("Hi", f"web-{n}")])
                for n, each in enumerate(adapters)
            )
        )
        for each in adapters:
            await each.disconnect()

    async def test_use_before_initialize_or_after_disconnect_raises_an_error(self, make_adapter: MakeAdapter) -> None:
        if not self.connects:
            pytest.skip("this adapter has no connection")
        adapter = make_adapter()
        with pytest.raises(StoreClosedError):
            await adapter.session_repository.get("web-42")
        await adapter.initialize()
        await adapter.disconnect()
        with pytest.raises(StoreClosedError):
            await adapter.save(make_session(version=1), [])


class RestartContract(AdapterContract):
    """Tests of a server that is killed and started again. Only this test uses `server`."""

    async def test_a_dead_server_is_reported_and_a_restarted_one_is_used_again(
        self, adapter: PersistenceAdapter, server: Restartable
    ) -> None:
        saved = await adapter.save(make_session(version=1), [make_message("before")])
        await asyncio.to_thread(server.kill)
        for call in (
            lambda: adapter.session_repository.get("web-42"),
            lambda: adapter.message_repository.list_by_session("web-42"),
            lambda: adapter.save(make_session(version=2), [make_message("lost")]),
        ):
            with pytest.raises(StoreUnavailableError):
                await call()
        await asyncio.to_thread(server.start)
        assert await adapter.session_repository.get("web-42") == saved
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["before"]
        after = await adapter.save(make_session(version=2), [make_message("after")])
        assert after.message_count == 2

    async def test_acknowledged_changes_survive_a_kill(self, adapter: PersistenceAdapter, server: Restartable) -> None:
        """Kill the server while turns are saved in several sessions: each turn is stored completely or not at all."""
        acknowledged: dict[str, int] = {}
        all_started = asyncio.Event()

        async def go_on(id: str) -> None:
            version = 0
            while True:
                version += 1
                said = [make_message(f"{version}.{k}", id) for k in range(2)]
                try:
                    await adapter.save(make_session(id, version=version), said)
                except TellbackError:
                    return
                acknowledged[id] = version
                if len(acknowledged) == len(ids) and min(acknowledged.values()) >= 3:
                    all_started.set()

        ids = [f"web-{n}" for n in range(4)]
        going = [asyncio.create_task(go_on(id)) for id in ids]
        await all_started.wait()
        await asyncio.to_thread(server.kill)
        await asyncio.gather(*going)
        await asyncio.to_thread(server.start)
        for id in ids:
            found = present(await adapter.session_repository.get(id))
            # The turn in flight may have been stored.
            assert found.version in (acknowledged[id], acknowledged[id] + 1)
            said = contents(await adapter.message_repository.list_by_session(id))
            assert said == [f"{n}.{k}" for n in range(1, found.version + 1) for k in range(2)]
            assert found.message_count == len(said)
            await adapter.save(make_session(id, version=found.version + 1), [make_message("on", id)])
