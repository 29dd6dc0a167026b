"""The contract of `save`: a session and the messages of its turn, in one step."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tellback.errors import InvalidArgumentError, SessionConflictError
from tellback.stores.sessions.adapter import PersistenceAdapter
from tellback.testing.sessions.making import MakeAdapter, contents, later, make_message, make_session
from tellback.types.sessions import SessionData


class SaveContract:
    """Turns that are saved, one after another and at once."""

    async def test_the_first_turn_makes_the_session(self, adapter: PersistenceAdapter) -> None:
        said = [make_message("To Rome"), make_message("When?", role="agent")]
        made = make_session(version=1, current_route="book", collected_data={"extracted": {"to": "Rome"}})
        saved = await adapter.save(made, said)
        assert saved == replace(made, message_count=2, last_message_at=said[-1].created_at)
        assert await adapter.session_repository.get("web-42") == saved
        assert contents(await adapter.message_repository.of_session("web-42")) == ["To Rome", "When?"]

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
        assert contents(await adapter.message_repository.of_session("web-42")) == ["one", "note", "two"]

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
        assert contents(await adapter.message_repository.of_session("web-42")) == ["one"]

    @pytest.mark.parametrize("version", [0, 2])
    async def test_a_later_turn_of_an_unknown_session_is_refused(
        self, adapter: PersistenceAdapter, version: int
    ) -> None:
        with pytest.raises(SessionConflictError):
            await adapter.save(make_session(version=version), [make_message("lost")])
        assert await adapter.session_repository.get("web-42") is None
        assert await adapter.message_repository.of_session("web-42") == []

    async def test_messages_of_another_session_are_refused(self, adapter: PersistenceAdapter) -> None:
        with pytest.raises(InvalidArgumentError):
            await adapter.save(make_session(version=1), [make_message("Hi", "web-43")])
        assert await adapter.session_repository.get("web-42") is None

    @pytest.mark.parametrize("begun", [0, 3])
    async def test_of_turns_at_once_one_is_saved_whole(self, adapter: PersistenceAdapter, begun: int) -> None:
        for n in range(begun):
            await adapter.save(make_session(version=n + 1), [make_message(f"before {n}")])
        turns = [
            (make_session(version=begun + 1, collected_data={"turn": n}), [make_message(f"{n}.{k}") for k in range(3)])
            for n in range(8)
        ]
        ended = await asyncio.gather(*(adapter.save(*turn) for turn in turns), return_exceptions=True)
        assert [type(each) for each in ended].count(SessionConflictError) == 7
        (winner,) = [each for each in ended if isinstance(each, SessionData)]
        assert await adapter.session_repository.get("web-42") == winner
        found = contents(await adapter.message_repository.of_session("web-42"))
        assert found[begun:] == [f"{winner.collected_data['turn']}.{k}" for k in range(3)]
        assert winner.message_count == begun + 3

    async def test_turns_and_notes_at_once_lose_nothing(
        self, adapter: PersistenceAdapter, second: PersistenceAdapter
    ) -> None:
        """Turns of two adapters, each tried again until it is saved, while others add messages."""
        await adapter.session_repository.create(make_session())

        async def take_turns(mine: PersistenceAdapter, name: str) -> None:
            for n in range(5):
                while True:
                    found = await mine.session_repository.get("web-42")
                    assert found is not None
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
        stored = await adapter.session_repository.get("web-42")
        assert stored is not None
        assert (stored.version, stored.message_count) == (10, 25)
        found = contents(await adapter.message_repository.of_session("web-42"))
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
        assert await second.session_repository.of_user("maya") == [saved]
        assert contents(await second.message_repository.of_session("web-42")) == ["Hi"]
        await second.session_repository.update_status("web-42", "completed", at=later(2), completed_at=later(2))
        assert await adapter.session_repository.find_active("maya") is None


class PrefixContract:
    """Two prefixes in one database, and the beginning and end of adapters."""

    async def test_two_prefixes_are_apart(self, make_adapter: MakeAdapter) -> None:
        one, two = make_adapter("one"), make_adapter("two")
        await one.initialize()
        await two.initialize()
        await one.save(make_session(version=1), [make_message("in one")])
        assert await two.session_repository.get("web-42") is None
        assert await two.message_repository.of_session("web-42") == []
        assert await two.session_repository.of_user("maya") == []
        assert await two.session_repository.find_active("maya") is None
        assert not await two.session_repository.delete("web-42")
        await two.save(make_session(version=1), [make_message("in two")])
        assert contents(await one.message_repository.of_session("web-42")) == ["in one"]
        assert contents(await two.message_repository.of_session("web-42")) == ["in two"]
        assert await two.session_repository.delete("web-42")
        assert await one.session_repository.get("web-42") is not None
        await one.disconnect()
        await two.disconnect()
