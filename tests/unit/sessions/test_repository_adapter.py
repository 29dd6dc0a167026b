"""Adapters of an application that have only what is required: two repositories."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pytest

from tellback import Agent, ConfigurationError, Persistence
from tellback.errors import InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.sessions import InMemoryAdapter, PersistenceAdapter
from tellback.sessions.records import count_messages
from tellback.sessions.storage import complete_adapter
from tellback.testing import ScriptedModel, says, understands
from tellback.testing.sessions import MakeAdapter, SessionAdapterConformance
from tellback.testing.sessions.repositories import contents, make_message, make_session
from tellback.types.conversations import MessageData, SessionData, SessionStatus
from tests.support.travel_agents import make_flight_agent


@dataclass
class Tables:
    sessions: dict[str, SessionData] = field(default_factory=dict)
    messages: dict[str, list[MessageData]] = field(default_factory=dict)


class DictSessions:
    def __init__(self, tables: Tables) -> None:
        self._rows = tables.sessions
        self._messages = tables.messages

    async def create(self, session: SessionData) -> SessionData:
        if session.id in self._rows:
            raise SessionConflictError(session.id, 0, self._rows[session.id].version)
        self._rows[session.id] = copy.deepcopy(session)
        return session

    async def get(self, session_id: str) -> SessionData | None:
        return copy.deepcopy(self._rows.get(session_id))

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        found = [each for each in await self.list_by_user(user_id) if agent_name in (None, each.agent_name)]
        return next((each for each in found if each.status == "active"), None)

    async def list_by_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        found = [each for each in self._rows.values() if each.user_id == user_id]
        if before is not None:
            found = [each for each in found if (each.created_at, each.id) < (before.created_at, before.id)]
        return copy.deepcopy(sorted(found, key=lambda each: (each.created_at, each.id), reverse=True)[:limit])

    async def update(self, session: SessionData) -> SessionData | None:
        if session.id not in self._rows:
            return None
        self._rows[session.id] = copy.deepcopy(session)
        return session

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        found = await self.get(session_id)
        if found is None:
            return None
        return await self.update(replace(found, status=status, completed_at=completed_at, updated_at=at))

    async def delete(self, session_id: str) -> bool:
        self._messages.pop(session_id, None)
        return self._rows.pop(session_id, None) is not None


class DictMessages:
    def __init__(self, tables: Tables) -> None:
        self._rows = tables.sessions
        self._messages = tables.messages

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        id = messages[0].session_id
        if id not in self._rows:
            raise NotFoundError("session", id)
        stored = self._messages.setdefault(id, [])
        added = [replace(each, position=len(stored) + n) for n, each in enumerate(messages, 1)]
        stored += copy.deepcopy(added)
        self._rows[id] = count_messages(self._rows[id], messages, at)
        return added

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        stored = self._messages.get(session_id, [])
        found = [each for each in stored if (before is None or each.position < before) and each.position > (after or 0)]
        return copy.deepcopy(found[-(limit or len(found)) :] if after is None else found[:limit])


class DictAdapter:
    """An adapter with two repositories and nothing else."""

    def __init__(self, tables: Tables | None = None) -> None:
        self.tables = tables or Tables()
        self.session_repository = DictSessions(self.tables)
        self.message_repository = DictMessages(self.tables)


class TestDictAdapter(SessionAdapterConformance):
    connects = False
    expires = False

    @pytest.fixture
    def make_adapter(self) -> MakeAdapter:
        tables: dict[str, Tables] = {}
        return lambda prefix="one", **ttls: complete_adapter(DictAdapter(tables.setdefault(prefix, Tables())))


async def test_an_agent_stores_its_sessions_with_two_repositories() -> None:
    adapter = DictAdapter()
    scripts: list[list[Any]] = [[says("When, and how many?")], [says("Where?")]]
    for persistence, script in zip((adapter, Persistence(adapter)), scripts, strict=True):
        agent, book = make_flight_agent(persistence=persistence)
        agent.model = ScriptedModel([understands(route=book, destination="Rome"), *script])
        await agent.respond("A flight to Rome", "web-42")
    assert (adapter.tables.sessions["web-42"].version, adapter.tables.sessions["web-42"].message_count) == (2, 4)
    assert contents(adapter.tables.messages["web-42"]) == [
        "A flight to Rome",
        "When, and how many?",
        "A flight to Rome",
        "Where?",
    ]


async def test_optional_methods_of_an_adapter_are_called() -> None:
    called: list[str] = []

    class Adapter(DictAdapter):
        async def initialize(self) -> None:
            called.append("initialize")

        async def disconnect(self) -> None:
            called.append("disconnect")

        async def purge_expired(self) -> int:
            called.append("purge_expired")
            return 3

    async with Persistence(Adapter()) as persistence:
        assert await persistence.adapter.purge_expired() == 3
    assert called == ["initialize", "purge_expired", "disconnect"]
    async with Persistence(DictAdapter()) as persistence:
        assert await persistence.adapter.purge_expired() == 0


async def test_an_adapter_with_its_own_save_needs_no_update() -> None:
    class Saving:
        def __init__(self) -> None:
            whole = InMemoryAdapter()
            self.session_repository = whole.session_repository
            self.message_repository = whole.message_repository
            self.save = whole.save

    persistence = Persistence(Saving())  # type: ignore[arg-type]  # its repository has no update
    agent = Agent("Wanda", model=ScriptedModel(["Hello!"]), persistence=persistence)
    await agent.respond("Hi", "web-42")
    assert contents(await persistence.get_session_messages("web-42")) == ["Hi", "Hello!"]


async def test_a_failure_between_the_calls_of_a_save_leaves_the_earlier_ones_stored() -> None:
    adapter = DictAdapter()

    async def fail(messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        raise OSError("the disk is full")

    adapter.message_repository.add = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="full"):
        await complete_adapter(adapter).save(make_session(version=1), [make_message("Hi")])
    assert (adapter.tables.sessions["web-42"].version, adapter.tables.messages) == (1, {})


async def test_a_session_deleted_during_its_save_raises_session_conflict_error() -> None:
    adapter = DictAdapter()
    completed = complete_adapter(adapter)
    await completed.save(make_session(version=1), [])

    async def update(session: SessionData) -> None:
        return None

    adapter.session_repository.update = update  # type: ignore[method-assign]
    with pytest.raises(SessionConflictError):
        await completed.save(make_session(version=2), [])


async def test_data_that_is_not_json_is_rejected_before_a_repository_is_called() -> None:
    completed = complete_adapter(DictAdapter())
    with pytest.raises(InvalidArgumentError, match="not JSON"):
        await completed.save(make_session(version=1), [make_message("Hi", event={"at": object()})])
    assert await completed.session_repository.get("web-42") is None


def test_a_complete_adapter_is_returned_unchanged() -> None:
    adapter = InMemoryAdapter()
    assert complete_adapter(adapter) is adapter
    assert isinstance(complete_adapter(DictAdapter()), PersistenceAdapter)


def test_an_error_lists_the_missing_methods_of_the_repositories() -> None:
    class Partial:
        session_repository = InMemoryAdapter().session_repository
        message_repository = object()

    partial: Any = Partial()
    with pytest.raises(
        ConfigurationError,
        match=r"It lacks session_repository\.update, message_repository\.add, message_repository\.list_by_session\.",
    ):
        Persistence(partial)
    partial.message_repository = None
    with pytest.raises(ConfigurationError, match=r"It lacks session_repository\.update, message_repository\."):
        Agent("Wanda", persistence=partial)
    adapter_class: Any = DictAdapter
    with pytest.raises(ConfigurationError, match="DictAdapter"):
        Persistence(adapter_class)
