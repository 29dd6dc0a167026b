"""The contract of an adapter as a whole: saving turns, prefixes, times to live, connections, and server restarts."""

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
    """Turns that are saved, one after another and at once."""

    async def test_the_first_turn_makes_the_session(self, adapter: PersistenceAdapter) -> None:
        said = [make_message("To Rome"), make_message("When?", role="agent")]
        made = make_session(version=1, current_route="book", collected_data={"extracted": {"to": "Rome"}})
        saved = await adapter.save(made, said)
        assert saved == replace(made, message_count=2, last_message_at=said[-1].created_at)
        assert await adapter.session_repository.get("web-42") == saved
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["To Rome", "When?"]

    async def test_a_turn_goes_on_from_the_one_before(self, adapter: PersistenceAdapter) -> None:
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

    async def test_whose_a_session_is_can_be_said_later(self, adapter: PersistenceAdapter) -> None:
        await adapter.save(make_session(version=1, agent_name=None), [])
        saved = await adapter.save(make_session(version=2, agent_name="Olga"), [])
        assert saved.agent_name == "Olga"
        assert await adapter.session_repository.find_active("maya", "Olga") == saved

    async def test_a_turn_without_messages_counts_none(self, adapter: PersistenceAdapter) -> None:
        saved = await adapter.save(make_session(version=1), [])
        assert (saved.message_count, saved.last_message_at) == (0, None)

    @pytest.mark.parametrize("version", [0, 1, 3, 9])
    async def test_a_turn_from_another_version_is_refused_with_its_messages(
        self, adapter: PersistenceAdapter, version: int
    ) -> None:
        saved = await adapter.save(make_session(version=1), [make_message("one")])
        with pytest.raises(SessionConflictError):
            await adapter.save(make_session(version=version), [make_message("lost")])
        assert await adapter.session_repository.get("web-42") == saved
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["one"]

    @pytest.mark.parametrize("version", [0, 2])
    async def test_a_later_turn_of_an_unknown_session_is_refused(
        self, adapter: PersistenceAdapter, version: int
    ) -> None:
        with pytest.raises(SessionConflictError):
            await adapter.save(make_session(version=version), [make_message("lost")])
        assert await adapter.session_repository.get("web-42") is None
        assert await adapter.message_repository.list_by_session("web-42") == []

    async def test_messages_of_another_session_are_refused(self, adapter: PersistenceAdapter) -> None:
        with pytest.raises(InvalidArgumentError):
            await adapter.save(make_session(version=1), [make_message("Hi", "web-43")])
        assert await adapter.session_repository.get("web-42") is None

    @pytest.mark.parametrize("earlier_turns", [0, 3])
    async def test_of_turns_at_once_one_is_saved_whole(self, adapter: PersistenceAdapter, earlier_turns: int) -> None:
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

    async def test_turns_and_notes_at_once_lose_nothing(
        self, adapter: PersistenceAdapter, second: PersistenceAdapter
    ) -> None:
        """Turns of two adapters, each tried again until it is saved, while others add messages."""
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

    async def test_what_one_stored_another_reads_at_once(
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
    """Times to live."""

    @pytest.fixture
    async def open_adapter(self, make_adapter: MakeAdapter) -> AsyncIterator[OpenAdapter]:
        """Opens adapters of the storage under test that have times to live; they are closed after the test."""
        if not self.expires:
            pytest.skip("what it keeps does not expire")
        opened: list[PersistenceAdapter] = []

        async def open_one(**times: float) -> PersistenceAdapter:
            opened.append(make_adapter("one", **times))
            await opened[-1].initialize()
            return opened[-1]

        yield open_one
        for adapter in opened:
            await adapter.disconnect()

    async def test_a_session_past_its_time_is_gone(self, open_adapter: OpenAdapter) -> None:
        expiring = await open_adapter(session_ttl=1.0)
        await expiring.save(make_session(version=1), [make_message("Hi")])
        assert await eventually(lambda: expiring.session_repository.get("web-42"), lambda found: found is None) is None
        assert await expiring.session_repository.list_by_user("maya") == []
        assert await expiring.session_repository.find_active("maya") is None
        assert contents(await expiring.message_repository.list_by_session("web-42")) == ["Hi"]
        with pytest.raises(SessionConflictError):
            await expiring.save(make_session(version=2), [])

    async def test_after_its_time_a_session_begins_anew_behind_its_old_messages(
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
    async def test_each_change_gives_a_session_its_time_again(self, open_adapter: OpenAdapter, change: str) -> None:
        expiring = await open_adapter(session_ttl=1.5)
        sessions, loop = expiring.session_repository, asyncio.get_running_loop()
        saved = await expiring.save(make_session(version=1), [])
        started = loop.time()
        while loop.time() < started + 2.5:  # longer than it would have had
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
                    pytest.skip("this machine was too busy to change it within its time")
                raise
            await asyncio.sleep(0.2)
            if loop.time() - before > 1.0:
                pytest.skip("this machine was too busy to change it within its time")
        assert await sessions.get("web-42") is not None

    async def test_positions_go_on_behind_what_was_purged(self, open_adapter: OpenAdapter) -> None:
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

    async def test_a_message_past_its_time_is_gone(self, open_adapter: OpenAdapter) -> None:
        expiring = await open_adapter(message_ttl=1.0)
        await expiring.save(make_session(version=1), [make_message("brief")])
        assert (
            await eventually(lambda: expiring.message_repository.list_by_session("web-42"), lambda found: not found)
            == []
        )
        found = present(await expiring.session_repository.get("web-42"))
        assert found.message_count == 1

    async def test_purging_leaves_what_still_has_time(self, open_adapter: OpenAdapter) -> None:
        if not self.shared:
            pytest.skip("this adapter keeps things to itself")
        expiring = await open_adapter(session_ttl=0.5, message_ttl=0.5)
        lasting = await open_adapter(session_ttl=900, message_ttl=900)
        await expiring.save(make_session("gone", version=1), [make_message("Hi", "gone")])
        await lasting.save(make_session("kept", version=1), [make_message("Hi", "kept")])
        await eventually(lambda: expiring.session_repository.get("gone"), lambda found: found is None)
        await eventually(lambda: expiring.message_repository.list_by_session("gone"), lambda found: not found)
        assert await expiring.purge_expired() <= 2  # a database may have done it
        assert await expiring.purge_expired() == 0
        assert await lasting.session_repository.get("kept") is not None
        assert contents(await lasting.message_repository.list_by_session("kept")) == ["Hi"]


class LifecycleContract(AdapterContract):
    """The beginning and end of adapters, and two prefixes in one database."""

    async def test_two_prefixes_are_apart(self, make_adapter: MakeAdapter) -> None:
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

    async def test_initializing_and_disconnecting_twice_is_harmless(self, make_adapter: MakeAdapter) -> None:
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

    async def test_many_initialize_at_once(self, make_adapter: MakeAdapter) -> None:
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

    async def test_before_it_is_initialized_and_after_it_is_disconnected_it_says_so(
        self, make_adapter: MakeAdapter
    ) -> None:
        if not self.connects:
            pytest.skip("it has no connection")
        adapter = make_adapter()
        with pytest.raises(StoreClosedError):
            await adapter.session_repository.get("web-42")
        await adapter.initialize()
        await adapter.disconnect()
        with pytest.raises(StoreClosedError):
            await adapter.save(make_session(version=1), [])


class RestartContract(AdapterContract):
    """A server that is killed and started again. `server` is the test's own."""

    async def test_a_dead_server_is_named_and_a_living_one_is_used_again(
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

    async def test_what_was_acknowledged_outlives_a_kill(
        self, adapter: PersistenceAdapter, server: Restartable
    ) -> None:
        """Turns are saved in several sessions while the server is killed: each is there whole, or not at all."""
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
            # The turn that was on its way may have been stored.
            assert found.version in (acknowledged[id], acknowledged[id] + 1)
            said = contents(await adapter.message_repository.list_by_session(id))
            assert said == [f"{n}.{k}" for n in range(1, found.version + 1) for k in range(2)]
            assert found.message_count == len(said)
            await adapter.save(make_session(id, version=found.version + 1), [make_message("on", id)])
