"""The contracts of the session and message repositories, and helpers that the adapter tests share."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Protocol, TypeVar

import pytest

from tellback.errors import InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.sessions.adapter import PersistenceAdapter
from tellback.testing.stores.factories import present
from tellback.types.conversations import MessageData, SessionData
from tellback.types.ids import as_utc

T = TypeVar("T")

NOON = as_utc("2026-03-01T12:00:00.000001+00:00")
EVENTUALLY_SECONDS = 30.0

_numbers = itertools.count(1)

EAST = timezone(timedelta(hours=2))
AWKWARD_TEXT = "né à Łódź 🧑‍🚀 \u202e\u2028 \\ \" ' $where {{x}} %s ; DROP TABLE agent_sessions --"
INVALID_IDS: tuple[Any, ...] = (
    "",
    "  ",
    None,
    5,
    b"web-42",
    {"$ne": ""},
    {"$gt": ""},
    ["web-42"],
    "a\x00b",
    "\ud800",
    "x" * 201,
)


class MakeAdapter(Protocol):
    """Creates adapters for the storage under test, not yet initialized, each with its own connections.

    Adapters with another `prefix` use separate tables, keys or indices in the same database. `session_ttl` and
    `message_ttl` are seconds.

    >>> from tellback.sessions import InMemoryAdapter
    >>> make_adapter: MakeAdapter = lambda prefix="one", **ttls: InMemoryAdapter(**ttls)
    >>> isinstance(make_adapter(session_ttl=60), PersistenceAdapter)
    True
    """

    def __call__(
        self, prefix: str = "one", *, session_ttl: float | None = None, message_ttl: float | None = None
    ) -> PersistenceAdapter: ...


class Restartable(Protocol):
    """A server that can be killed as in a power failure, and started again with its stored data.

    >>> import subprocess
    >>> class RedisServer:
    ...     def start(self) -> None:
    ...         self.process = subprocess.Popen(["redis-server", "--appendonly", "yes", "--appendfsync", "always"])
    ...         # wait here until it answers
    ...     def kill(self) -> None:
    ...         self.process.kill()
    ...         self.process.wait()
    """

    def kill(self) -> None: ...

    def start(self) -> None: ...


def make_session(id: str = "web-42", **changes: Any) -> SessionData:
    """Build a session that was created at noon."""
    data = SessionData(id, user_id="maya", agent_name="Wanda", created_at=NOON, updated_at=NOON)
    return replace(data, **changes)


def make_message(content: str, session_id: str = "web-42", **changes: Any) -> MessageData:
    """Build a message of the user, later than all built before."""
    number = next(_numbers)
    at = NOON + timedelta(milliseconds=number)
    data = MessageData(f"msg_{number:08}", session_id, "user", content, user_id="maya", created_at=at)
    return replace(data, **changes)


def later(seconds: float) -> datetime:
    """Return the time that many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def contents(messages: list[MessageData]) -> list[str]:
    """Return the texts of messages, in order."""
    return [each.content for each in messages]


async def eventually(read: Callable[[], Awaitable[T]], is_expected: Callable[[T], bool]) -> T:
    """Call `read` until its result is as expected, at most for `EVENTUALLY_SECONDS`, and return the last result."""
    deadline = time.monotonic() + EVENTUALLY_SECONDS
    while True:
        found = await read()
        if is_expected(found) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.05)


class AdapterContract:
    """The fixtures of all contracts, and the features that an adapter may lack."""

    shared = True
    """Whether two adapters share their data."""
    expires = True
    """Whether the adapter has times to live."""
    connects = True
    """Whether the adapter has a connection to open and close."""

    @pytest.fixture
    def make_adapter(self) -> MakeAdapter:
        """Return a factory for adapters of the storage under test."""
        raise NotImplementedError("define the fixture make_adapter in your test class")

    @pytest.fixture
    async def adapter(self, make_adapter: MakeAdapter) -> AsyncIterator[PersistenceAdapter]:
        adapter = make_adapter()
        await adapter.initialize()
        yield adapter
        await adapter.disconnect()

    @pytest.fixture
    async def second(self, make_adapter: MakeAdapter, adapter: PersistenceAdapter) -> AsyncIterator[PersistenceAdapter]:
        """A second adapter for the same storage, like that of another process."""
        if not self.shared:
            pytest.skip("this adapter does not share its data")
        second = make_adapter()
        await second.initialize()
        yield second
        await second.disconnect()


class SessionRepositoryContract(AdapterContract):
    """Tests of sessions."""

    async def test_a_session_is_returned_as_created(self, adapter: PersistenceAdapter) -> None:
        made = make_session(
            status="abandoned",
            current_route="route_book_a_flight",
            current_state="state_ask_when",
            collected_data={"extracted": {"to": AWKWARD_TEXT, "when": "2026-12-01", "people": 2}, "paused_routes": {}},
            completed_at=later(5),
            updated_at=later(5.000001),
        )
        assert await adapter.session_repository.create(made) == made
        assert await adapter.session_repository.get("web-42") == made

    @pytest.mark.parametrize(
        "data",
        [
            {},
            {"text": AWKWARD_TEXT, AWKWARD_TEXT: 1},
            {"nul": "a\x00b", "lone": "\ud800", "$set": {"a.b": 1}, "": None},
            {"ints": [0, -1, 2**53 + 1, -(2**63), 2**63, 10**30], "floats": [0.1, -0.0, 1e-300, 1.5e300, 1.0]},
            {"deep": [[[[[[{"a": [None, True, False]}]]]]]], "order": {"b": 1, "a": 2}},
            {"date": "2026-03-01T12:00:00.123456+02:00", "_id": 1, "id": "x", "version": 7, "__proto__": {}},
        ],
        ids=["nothing", "unicode", "special characters", "numbers", "nested", "names"],
    )
    async def test_collected_data_is_returned_unchanged(
        self, adapter: PersistenceAdapter, data: dict[str, Any]
    ) -> None:
        await adapter.session_repository.create(make_session(collected_data=data))
        found = present(await adapter.session_repository.get("web-42"))
        assert _with_types(found.collected_data) == _with_types(data)
        saved = await adapter.save(replace(found, version=1, collected_data={"again": data}), [])
        assert _with_types(saved.collected_data["again"]) == _with_types(data)
        found = present(await adapter.session_repository.get("web-42"))
        assert _with_types(found.collected_data["again"]) == _with_types(data)

    @pytest.mark.parametrize("id", [AWKWARD_TEXT, "a/b?c#d", "x" * 200, "🧑" * 200, "a*", "_all", "a:b|c", " padded "])
    async def test_any_text_can_be_an_id(self, adapter: PersistenceAdapter, id: str) -> None:
        await adapter.session_repository.create(make_session(id, user_id=id))
        await adapter.message_repository.add([make_message("Hi", id)], at=NOON)
        found = present(await adapter.session_repository.get(id))
        assert found.id == id
        assert [each.id for each in await adapter.session_repository.list_by_user(id)] == [id]
        assert contents(await adapter.message_repository.list_by_session(id)) == ["Hi"]
        assert await adapter.session_repository.get(id + "x" if len(id) < 200 else id[1:]) is None
        assert await adapter.session_repository.delete(id)
        assert await adapter.session_repository.get(id) is None

    @pytest.mark.parametrize("id", INVALID_IDS, ids=lambda each: repr(each)[:20])
    async def test_ids_that_are_not_strings_are_rejected(self, adapter: PersistenceAdapter, id: Any) -> None:
        await adapter.session_repository.create(make_session())
        sessions, messages = adapter.session_repository, adapter.message_repository
        for call in (
            lambda: sessions.get(id),
            lambda: sessions.find_active(id),
            lambda: sessions.list_by_user(id),
            lambda: sessions.update_status(id, "completed", at=NOON, completed_at=NOON),
            lambda: sessions.delete(id),
            lambda: messages.list_by_session(id),
            lambda: messages.add([make_message("Hi", id)], at=NOON),
            lambda: sessions.create(make_session(id)),
            lambda: adapter.save(make_session(id, version=1), []),
        ):
            with pytest.raises(InvalidArgumentError):
                await call()
        if id is not None:
            with pytest.raises(InvalidArgumentError):
                await sessions.find_active("maya", id)
        found = await sessions.get("web-42")
        assert found == make_session()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"created_at": datetime(2026, 3, 1)},
            {"updated_at": "2026-03-01T00:00:00+00:00"},
            {"completed_at": datetime(2026, 3, 1)},
            {"version": 2**70},
            {"message_count": "many"},
            {"agent_name": 5},
            {"collected_data": {"when": datetime(2026, 3, 1, tzinfo=UTC)}},
            {"collected_data": {"what": object()}},
            {"collected_data": {"how much": float("nan")}},
        ],
        ids=lambda wrong: repr(wrong)[:40],
    )
    async def test_values_that_cannot_be_stored_exactly_are_rejected(
        self, adapter: PersistenceAdapter, wrong: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidArgumentError):
            await adapter.session_repository.create(make_session(**wrong))
        assert await adapter.session_repository.get("web-42") is None

    async def test_times_without_a_timezone_are_rejected(self, adapter: PersistenceAdapter) -> None:
        await adapter.session_repository.create(make_session())
        sessions, messages = adapter.session_repository, adapter.message_repository
        wrong: Any
        for wrong in (datetime(2026, 3, 1), "2026-03-01T00:00:00+00:00", 5, datetime.min.replace(tzinfo=EAST)):
            for call in (
                lambda wrong=wrong: sessions.update_status("web-42", "completed", at=wrong, completed_at=None),
                lambda wrong=wrong: sessions.update_status("web-42", "completed", at=NOON, completed_at=wrong),
                lambda wrong=wrong: messages.add([make_message("Hi")], at=wrong),
                lambda wrong=wrong: messages.add([make_message("Hi", created_at=wrong)], at=NOON),
            ):
                with pytest.raises(InvalidArgumentError):
                    await call()
        nothing: Any = None
        with pytest.raises(InvalidArgumentError):
            await adapter.save(make_session(version=1), nothing)
        assert await sessions.get("web-42") == make_session()

    async def test_an_unknown_session_is_none(self, adapter: PersistenceAdapter) -> None:
        sessions = adapter.session_repository
        assert await sessions.get("web-43") is None
        assert await sessions.find_active("maya") is None
        assert await sessions.list_by_user("maya") == []
        assert await sessions.update_status("web-43", "completed", at=NOON, completed_at=NOON) is None
        assert not await sessions.delete("web-43")

    async def test_creating_an_existing_id_raises_an_error(self, adapter: PersistenceAdapter) -> None:
        await adapter.session_repository.create(make_session())
        with pytest.raises(SessionConflictError):
            await adapter.session_repository.create(make_session(agent_name="Other"))
        found = present(await adapter.session_repository.get("web-42"))
        assert found.agent_name == "Wanda"

    async def test_concurrent_creations_of_an_id_succeed_once(self, adapter: PersistenceAdapter) -> None:
        made = await asyncio.gather(
            *(adapter.session_repository.create(make_session(agent_name=f"Agent {n}")) for n in range(8)),
            return_exceptions=True,
        )
        assert [type(each) for each in made].count(SessionConflictError) == 7
        (winner,) = [each for each in made if not isinstance(each, BaseException)]
        assert await adapter.session_repository.get("web-42") == winner

    async def test_a_users_sessions_are_listed_newest_first_in_pages(self, adapter: PersistenceAdapter) -> None:
        for n in range(7):
            # Two sessions per time: the greater id comes first.
            await adapter.session_repository.create(make_session(f"web-{n}", created_at=later(n // 2 / 1e6)))
        await adapter.session_repository.create(make_session("other", user_id="ben"))
        wanted = [f"web-{n}" for n in reversed(range(7))]
        found = await adapter.session_repository.list_by_user("maya")
        assert [each.id for each in found] == wanted
        pages = []
        last = None
        while page := await adapter.session_repository.list_by_user("maya", limit=2, before=last):
            pages.append([each.id for each in page])
            last = page[-1]
        assert pages == [wanted[:2], wanted[2:4], wanted[4:6], wanted[6:]]

    async def test_the_active_session_is_the_one_created_last(self, adapter: PersistenceAdapter) -> None:
        sessions = adapter.session_repository
        await sessions.create(make_session("old", created_at=later(1)))
        await sessions.create(make_session("new", created_at=later(2)))
        await sessions.create(make_session("done", created_at=later(3), status="completed"))
        await sessions.create(make_session("hers", created_at=later(4), agent_name="Olga"))
        await sessions.create(make_session("bens", created_at=later(5), user_id="ben"))
        found = [await sessions.find_active("maya", name) for name in (None, "Wanda", "Olga", "Nobody")]
        assert [each and each.id for each in found] == ["hers", "new", "hers", None]

    async def test_update_status_changes_only_the_status(self, adapter: PersistenceAdapter) -> None:
        sessions = adapter.session_repository
        made = make_session(collected_data={"extracted": {"to": "Rome"}}, version=3, message_count=4)
        await sessions.create(made)
        done = await sessions.update_status("web-42", "completed", at=later(9), completed_at=later(9))
        assert done == replace(made, status="completed", updated_at=later(9), completed_at=later(9))
        assert await sessions.get("web-42") == done
        assert await sessions.find_active("maya") is None
        again = await sessions.update_status("web-42", "active", at=later(10), completed_at=None)
        assert again == replace(made, updated_at=later(10))
        assert await sessions.find_active("maya") == again

    async def test_an_unknown_status_is_rejected(self, adapter: PersistenceAdapter) -> None:
        await adapter.session_repository.create(make_session())
        status: Any
        for status in ("closed", None, {"$set": 1}):
            with pytest.raises(InvalidArgumentError):
                await adapter.session_repository.update_status("web-42", status, at=NOON, completed_at=None)
        assert await adapter.session_repository.get("web-42") == make_session()

    async def test_deleting_a_session_deletes_its_messages(self, adapter: PersistenceAdapter) -> None:
        for id in ("web-42", "web-43"):
            await adapter.session_repository.create(make_session(id))
            await adapter.message_repository.add([make_message("Hi", id)], at=NOON)
        assert await adapter.session_repository.delete("web-42")
        assert await adapter.session_repository.get("web-42") is None
        assert await adapter.message_repository.list_by_session("web-42") == []
        assert [each.id for each in await adapter.session_repository.list_by_user("maya")] == ["web-43"]
        assert contents(await adapter.message_repository.list_by_session("web-43")) == ["Hi"]
        await adapter.session_repository.create(make_session())
        assert await adapter.message_repository.list_by_session("web-42") == []


class MessageRepositoryContract(AdapterContract):
    """Tests of messages."""

    async def test_a_message_is_returned_as_added(self, adapter: PersistenceAdapter) -> None:
        await adapter.session_repository.create(make_session())
        made = make_message(
            AWKWARD_TEXT,
            role="agent",
            route="route_book",
            state="state_ask",
            tool_calls=({"tool_name": "search", "arguments": {"to": AWKWARD_TEXT}, "result": [1, 2.5, None, 2**70]},),
            event={"kind": "message", "source": "agent", "data": {"message": "a\x00\ud800"}, "creation_utc": "…"},
        )
        (added,) = await adapter.message_repository.add([made], at=later(9))
        assert added == replace(made, position=added.position)
        assert await adapter.message_repository.list_by_session("web-42") == [added]
        found = present(await adapter.session_repository.get("web-42"))
        assert (found.message_count, found.last_message_at, found.updated_at) == (1, made.created_at, later(9))
        assert found.version == 0

    async def test_messages_keep_the_order_they_were_added(self, adapter: PersistenceAdapter) -> None:
        await adapter.session_repository.create(make_session())
        for n in range(5):  # with decreasing dates
            batch = [make_message(f"{n}.{k}", created_at=NOON - timedelta(hours=n)) for k in range(2)]
            await adapter.message_repository.add(batch, at=NOON)
        found = await adapter.message_repository.list_by_session("web-42")
        assert contents(found) == [f"{n}.{k}" for n in range(5) for k in range(2)]
        positions = [each.position for each in found]
        assert positions == sorted(set(positions))

    async def test_messages_are_paged_from_both_ends(self, adapter: PersistenceAdapter) -> None:
        await adapter.session_repository.create(make_session())
        added = await adapter.message_repository.add([make_message(str(n)) for n in range(7)], at=NOON)
        messages = adapter.message_repository
        assert contents(await messages.list_by_session("web-42", limit=3)) == ["4", "5", "6"]
        assert contents(await messages.list_by_session("web-42", limit=3, before=added[4].position)) == ["1", "2", "3"]
        assert contents(await messages.list_by_session("web-42", limit=3, before=added[1].position)) == ["0"]
        assert contents(await messages.list_by_session("web-42", limit=3, after=0)) == ["0", "1", "2"]
        assert contents(await messages.list_by_session("web-42", limit=9, after=added[4].position)) == ["5", "6"]
        assert await messages.list_by_session("web-42", limit=3, before=added[0].position) == []
        assert await messages.list_by_session("web-42", after=added[6].position) == []
        between = await messages.list_by_session("web-42", limit=2, after=added[1].position, before=added[5].position)
        assert contents(between) == ["2", "3"]

    async def test_an_invalid_limit_is_rejected(self, adapter: PersistenceAdapter) -> None:
        limit: Any
        for limit in (0, -1, "5", True, 2.5, {"$gt": 0}):
            with pytest.raises(InvalidArgumentError):
                await adapter.message_repository.list_by_session("web-42", limit=limit)
            with pytest.raises(InvalidArgumentError):
                await adapter.session_repository.list_by_user("maya", limit=limit)

    async def test_adding_to_an_unknown_session_raises_an_error(self, adapter: PersistenceAdapter) -> None:
        with pytest.raises(NotFoundError):
            await adapter.message_repository.add([make_message("Hi")], at=NOON)
        assert await adapter.message_repository.list_by_session("web-42") == []
        assert await adapter.session_repository.get("web-42") is None

    async def test_adding_messages_of_two_sessions_is_rejected(self, adapter: PersistenceAdapter) -> None:
        for id in ("web-42", "web-43"):
            await adapter.session_repository.create(make_session(id))
        with pytest.raises(InvalidArgumentError):
            await adapter.message_repository.add([make_message("Hi"), make_message("Hi", "web-43")], at=NOON)
        assert await adapter.message_repository.list_by_session("web-42") == []

    async def test_concurrently_added_messages_are_all_stored(self, adapter: PersistenceAdapter) -> None:
        await adapter.session_repository.create(make_session())
        batches = [[make_message(f"{n}.{k}") for k in range(2)] for n in range(12)]
        added = await asyncio.gather(*(adapter.message_repository.add(each, at=NOON) for each in batches))
        found = await adapter.message_repository.list_by_session("web-42")
        assert sorted(contents(found)) == sorted(each.content for batch in batches for each in batch)
        for batch in added:  # each batch is contiguous
            start = found.index(batch[0])
            assert found[start : start + 2] == batch
        stored = present(await adapter.session_repository.get("web-42"))
        assert stored.message_count == 24

    async def test_large_values_are_stored(self, adapter: PersistenceAdapter) -> None:
        text = "äöü🧑 " * 200_000  # two megabytes
        await adapter.session_repository.create(make_session(collected_data={"notes": text}))
        await adapter.message_repository.add([make_message(text)], at=NOON)
        found = present(await adapter.session_repository.get("web-42"))
        assert found.collected_data == {"notes": text}
        assert contents(await adapter.message_repository.list_by_session("web-42")) == [text]

    async def test_many_messages_are_stored(self, adapter: PersistenceAdapter) -> None:
        await adapter.session_repository.create(make_session())
        for start in range(0, 2_500, 500):
            await adapter.message_repository.add([make_message(str(start + n)) for n in range(500)], at=NOON)
        assert contents(await adapter.message_repository.list_by_session("web-42")) == [str(n) for n in range(2_500)]
        assert contents(await adapter.message_repository.list_by_session("web-42", limit=2)) == ["2498", "2499"]


def _with_types(value: Any) -> Any:
    """Return a value together with its types and key order: 1 is not 1.0."""
    if isinstance(value, dict):
        return [(name, _with_types(each)) for name, each in value.items()]
    if isinstance(value, list):
        return [_with_types(each) for each in value]
    return type(value).__name__, repr(value)
