"""The contract of every store, as tests. Run them against your own store:

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda: MyStore(tmp_path / "data")

Each call of `make_store` must return a new store on the same storage, which is empty when a test begins. The tests need
pytest, and pytest-asyncio with `asyncio_mode = "auto"`. Set `shared = False` to skip the tests that open the storage
twice at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tellback.errors import StoreClosedError
from tellback.stores import Store
from tellback.testing.stores.admin import AccessContract, IdempotencyContract, UserDataContract
from tellback.testing.stores.bindings import BindingContract, DispatchContract
from tellback.testing.stores.conversations import ConversationContract, MessageContract, TurnContract
from tellback.testing.stores.events import EventContract
from tellback.testing.stores.factories import MAYA, MakeStore, append_message, make_conversation, make_space, present
from tellback.testing.stores.jobs import JobLogContract
from tellback.testing.stores.memories import AtomHistoryContract, MemoryContract
from tellback.testing.stores.reconciliation import ReconcileContract
from tellback.testing.stores.sessions import AgentSessionContract
from tellback.types.conversations import Conversation
from tellback.types.memory import MemorySpace

__all__ = ["MakeStore", "StoreConformance"]


@pytest.mark.asyncio
class StoreConformance(
    ConversationContract,
    MessageContract,
    EventContract,
    TurnContract,
    MemoryContract,
    AtomHistoryContract,
    BindingContract,
    DispatchContract,
    JobLogContract,
    ReconcileContract,
    AgentSessionContract,
    AccessContract,
    IdempotencyContract,
    UserDataContract,
):
    """The contract of `tellback.stores.Store`.

    >>> from tellback.stores import open_store
    >>> class TestMyStore(StoreConformance):
    ...     @pytest.fixture
    ...     def make_store(self, tmp_path):
    ...         return lambda: open_store(tmp_path / "tellback.db")
    """

    shared = True

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Return a factory for stores on the storage under test."""
        raise NotImplementedError("define the fixture make_store in your test class")

    @pytest.fixture
    async def store(self, make_store: MakeStore) -> AsyncIterator[Store]:
        """The open store."""
        store = make_store()
        await store.open()
        yield store
        await store.close()

    @pytest.fixture
    async def second(self, make_store: MakeStore, store: Store) -> AsyncIterator[Store]:
        """A second open store on the same storage, like that of another process."""
        if not self.shared:
            pytest.skip("this storage can be opened only once")
        second = make_store()
        await second.open()
        yield second
        await second.close()

    @pytest.fixture
    async def conversation(self, store: Store) -> Conversation:
        """An open conversation of Maya."""
        return await make_conversation(store)

    @pytest.fixture
    async def space(self, store: Store) -> MemorySpace:
        """A memory space of Maya."""
        return await make_space(store)

    async def test_opening_and_closing_twice_has_no_effect(self, make_store: MakeStore) -> None:
        store = make_store()
        await store.open()
        await store.open()
        await store.close()
        await store.close()
        with pytest.raises(StoreClosedError):
            await store.conversations.get(MAYA, "conv_x")
        with pytest.raises(StoreClosedError):
            await make_conversation(store)

    async def test_stored_data_can_be_read_after_reopening(self, make_store: MakeStore) -> None:
        if not self.shared:
            pytest.skip("this storage is lost when it is closed")
        store = make_store()
        await store.open()
        conversation = await make_conversation(store, title="Kept", metadata={"source": ["web", 1, None, {"a": 1.5}]})
        await append_message(store, conversation.id, "Remember me")
        await store.close()
        await store.open()
        assert [message.text for message in await store.conversations.messages(MAYA, conversation.id)] == [
            "Remember me"
        ]
        stored = present(await store.conversations.get(MAYA, conversation.id))
        assert stored.metadata == {"source": ["web", 1, None, {"a": 1.5}]}
        assert (stored.title, stored.last_seq, stored.turns) == ("Kept", 1, 1)
        await store.close()

    async def test_concurrent_first_openings_create_the_schema_once(self, make_store: MakeStore) -> None:
        if not self.shared:
            pytest.skip("this storage can be opened only once")
        stores = [make_store() for _ in range(6)]
        await asyncio.gather(*(store.open() for store in stores))
        conversation = await make_conversation(stores[0])
        for store in stores:
            assert await store.conversations.get(MAYA, conversation.id) is not None
            await store.close()
