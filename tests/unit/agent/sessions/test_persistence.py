"""`Persistence`: an agent's sessions and messages in the database of an adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback import (
    Agent,
    ConfigurationError,
    Identity,
    InvalidArgumentError,
    NotFoundError,
    Persistence,
    create_session,
)
from tellback.agent import (
    EventKind,
    create_message_event,
    create_status_event,
    create_tool_event,
    enter_route,
    session_data_to_state,
    session_state_to_data,
)
from tellback.errors import SessionConflictError
from tellback.sessions import InMemoryAdapter
from tellback.testing import ScriptedModel, says, understands
from tellback.types.conversations import MessageData, SessionData
from tests.support.travel_agents import make_flight_agent


@pytest.fixture
def adapter() -> InMemoryAdapter:
    return InMemoryAdapter()


@pytest.fixture
async def persistence(adapter: InMemoryAdapter) -> AsyncIterator[Persistence]:
    async with Persistence(adapter) as opened:
        yield opened


async def test_a_turn_saves_the_session_and_both_messages(adapter: InMemoryAdapter) -> None:
    agent, book = make_flight_agent(persistence=Persistence(adapter, user_id="maya"))
    agent.model = ScriptedModel([understands(route=book, destination="Rome"), says("When, and how many?")])
    response = await agent.respond("A flight to Rome", "web-42")
    (session,), messages = adapter.snapshot()["sessions"], adapter.snapshot()["messages"]
    assert (session.id, session.user_id, session.agent_name, session.status) == ("web-42", "maya", "Wanda", "active")
    assert (session.current_route, session.version, session.message_count) == (book.id, 1, 2)
    assert session.current_state == response.session.current_state.id if response.session.current_state else None
    assert session.collected_data["extracted"] == {"destination": "Rome"}
    assert [(each.role, each.content, each.route) for each in messages] == [
        ("user", "A flight to Rome", book.id),
        ("agent", "When, and how many?", book.id),
    ]
    assert {each.user_id for each in messages} == {"maya"}


@pytest.mark.parametrize("auto_save", [True, False])
async def test_the_turn_that_completes_a_route_is_stored_with_this_route(
    adapter: InMemoryAdapter, auto_save: bool
) -> None:
    persistence = Persistence(adapter, auto_save=auto_save)
    agent, book = make_flight_agent(persistence=persistence)
    weather = agent.routes[1]
    scripts: list[list[Any]] = [
        [understands(route=weather), says("Which city?")],
        [understands(route=weather, city="Rome"), says("It is sunny.")],
        [understands(scores={}), says("You are welcome.")],
        [understands(route=book), says("Where to?")],
    ]
    session = None
    for script in scripts:
        agent.model = ScriptedModel(script)
        response = await agent.respond("And now?", session or create_session("web-42"))
        session = response.session
        if not auto_save:
            await persistence.save(session, [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}])
    messages = await persistence.get_session_messages("web-42")
    assert [each.route for each in messages] == [
        *(weather.id, weather.id),
        *(weather.id, weather.id),  # completed it
        *(None, None),
        *(book.id, book.id),
    ]
    assert [each.state is None for each in messages[::2]] == [False, True, True, False]


async def test_a_session_row_names_only_a_route_that_is_not_completed(adapter: InMemoryAdapter) -> None:
    agent, _ = make_flight_agent(persistence=Persistence(adapter))
    weather = agent.routes[1]
    agent.model = ScriptedModel([understands(route=weather, city="Rome"), says("It is sunny.")])
    response = await agent.respond("How is the weather in Rome?", "web-42")
    (row,) = adapter.snapshot()["sessions"]
    assert (row.current_route, row.current_state, row.collected_data["last_route"]) == (None, None, weather.id)
    assert [(visit["route_id"], visit["completed"]) for visit in row.collected_data["route_history"]] == [
        (weather.id, True)
    ]
    assert session_data_to_state("web-42", row).last_route == response.session.last_route == weather.id


async def test_another_process_continues_the_session(adapter: InMemoryAdapter) -> None:
    first, book = make_flight_agent(persistence=adapter)
    first.model = ScriptedModel([understands(route=book, destination="Rome"), says("When, and how many?")])
    await first.respond("A flight to Rome", "web-42")
    second, book = make_flight_agent(persistence={"adapter": adapter})
    model = ScriptedModel([understands(departure="2026-12-01", passengers=2), says("TP1 flies.")])
    second.model = model
    response = await second.respond("On the first of December, two of us", "web-42")
    assert book.data(response.session).departure == date(2026, 12, 1)
    texts = [message.content for message in model.requests[0].messages]
    assert any("A flight to Rome" in str(each) for each in texts)
    assert [each.content for each in adapter.snapshot()["messages"]][2:] == [
        "On the first of December, two of us",
        "TP1 flies.",
    ]


async def test_tool_calls_are_stored_with_the_next_message_and_restored_as_events(adapter: InMemoryAdapter) -> None:
    persistence = Persistence(adapter)
    agent, book = make_flight_agent(persistence=persistence)
    reading = understands(route=book, destination="Rome", departure="2026-12-01", passengers=2)
    agent.model = ScriptedModel([reading, says("TP1 flies.")])
    await agent.respond("Rome, 1 December, two of us", "web-42")
    messages = await persistence.get_session_messages("web-42")
    assert [each.role for each in messages] == ["user", "agent"]
    (call,) = messages[1].tool_calls
    assert (call["tool_name"], call["arguments"]["destination"]) == ("search_flights", "Rome")
    history = await persistence.load_session_history("web-42")
    assert [event.kind for event in history] == [EventKind.MESSAGE, EventKind.TOOL, EventKind.MESSAGE]
    assert messages[1].event == history[2]
    assert await persistence.load_session_history("web-42", limit=1) == history[1:]


async def test_without_auto_save_only_save_stores_turns(adapter: InMemoryAdapter) -> None:
    persistence = Persistence(adapter, auto_save=False)
    agent = Agent(
        "Wanda", model=ScriptedModel([says("Hello!"), says("Again!"), says("And again!")]), persistence=persistence
    )
    first = await agent.respond("Hi", "web-42")
    second = await agent.respond("Hi again", first.session)
    assert adapter.snapshot() == {"sessions": [], "messages": []}
    with pytest.raises(SessionConflictError):
        await persistence.save(second.session)
    await persistence.save(first.session, [create_message_event("customer", "Maya", "Hi")], agent_name="Wanda")
    await persistence.save(second.session, [], user_id="maya")
    stored = await persistence.get_session("web-42")
    assert stored is not None
    assert (stored.version, stored.agent_name, stored.user_id, stored.message_count) == (2, "Wanda", "maya", 1)
    assert (await agent.respond("Hi", "web-42")).session.version == 3


async def test_a_session_is_created_with_its_state(persistence: Persistence) -> None:
    created = await persistence.create_session_with_state(
        user_id="user_123", agent_name="Travel Agent", initial_data={"channel": "web", "since": date(2026, 3, 1)}
    )
    session_data, session_state = created
    assert (created.session_data, created.session_state) == (session_data, session_state)
    assert session_data.collected_data == {"channel": "web", "since": "2026-03-01"}
    assert session_state.id == session_data.id
    assert session_state.metadata["channel"] == "web"
    assert session_state.metadata["user_id"] == "user_123"
    agent = Agent("Travel Agent", model=ScriptedModel([says("Hello!"), says("Welcome back!")]), persistence=persistence)
    await agent.respond("Hi", session_state)
    response = await agent.respond("Hi again", session_data.id)
    assert response.session.metadata["channel"] == "web"
    assert response.session.version == 2
    found = await persistence.get_session(session_data.id)
    assert found is not None
    assert (found.user_id, found.created_at) == ("user_123", session_data.created_at)


async def test_a_session_can_be_created_from_a_mapping_or_a_row(persistence: Persistence) -> None:
    one = await persistence.create_session({"user_id": "maya", "agent_name": "Wanda"}, id="one")
    two = await persistence.create_session(
        SessionData("two", user_id="maya", collected_data={"at": datetime(2026, 3, 1, tzinfo=UTC)})
    )
    assert (one.id, one.user_id, two.collected_data) == ("one", "maya", {"at": "2026-03-01T00:00:00+00:00"})
    assert (await persistence.create_session()).id.startswith("session_")
    with pytest.raises(SessionConflictError):
        await persistence.create_session(id="one")


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"initial_data": {"paused_routes": 5, "owner": "acme"}}, "'owner', 'paused_routes'"),
        ({"data": SessionData("x", collected_data={"context": "web"})}, "cannot be read"),
        ({"initial_data": [1]}, "initial_data"),
        ({"user": "maya"}, "unknown fields: user"),
        ({"id": 5}, "id"),
        ({"status": "open"}, "status"),
        ({"user_id": {"$ne": 1}}, "user_id"),
    ],
)
async def test_an_invalid_session_is_rejected(
    persistence: Persistence, adapter: InMemoryAdapter, fields: dict[str, Any], pattern: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=pattern):
        await persistence.create_session(**fields)
    assert adapter.snapshot()["sessions"] == []


async def test_sessions_are_found_by_user_agent_and_page(persistence: Persistence) -> None:
    created = [await persistence.create_session(id=f"s{n}", user_id="maya", agent_name="Wanda") for n in range(5)]
    await persistence.create_session(id="hers", user_id="maya", agent_name="Olga")
    await persistence.complete_session("s4")
    active = await persistence.find_active_session("maya", "Wanda")
    assert active == created[3]
    assert [each.id for each in await persistence.get_user_sessions("maya", 2)] == ["hers", "s4"]
    assert [each.id for each in await persistence.get_user_sessions("maya", 2, before="s4")] == ["s3", "s2"]
    assert [each.id for each in await persistence.get_user_sessions("maya", before=created[1])] == ["s0"]
    with pytest.raises(NotFoundError):
        await persistence.get_user_sessions("maya", before="gone")
    with pytest.raises(InvalidArgumentError, match="user_id is missing"):
        await persistence.get_user_sessions()


async def test_a_session_can_be_completed_abandoned_and_reopened(persistence: Persistence) -> None:
    await persistence.create_session(id="one", user_id="maya")
    completed = await persistence.complete_session("one")
    assert completed is not None
    assert (completed.status, completed.completed_at) == ("completed", completed.updated_at)
    abandoned = await persistence.abandon_session("one")
    assert abandoned is not None
    assert (abandoned.status, abandoned.completed_at) == ("abandoned", None)
    reopened = await persistence.update_session_status("one", "active")
    assert reopened == await persistence.find_active_session("maya")
    assert await persistence.complete_session("gone") is None
    status: Any = "closed"
    with pytest.raises(InvalidArgumentError):
        await persistence.update_session_status("one", status)


async def test_messages_are_saved_from_fields_or_events(persistence: Persistence) -> None:
    session = await persistence.create_session(user_id="maya")
    one = await persistence.save_message(session_id=session.id, role="user", content="Hello!")
    two = await persistence.save_message(
        {"session_id": session.id, "role": "agent", "content": "Sunny."},
        tool_calls=[{"tool_name": "weather", "arguments": {"on": date(2026, 3, 1)}, "result": 21.5}],
    )
    typing = create_status_event("agent", "typing", {"for": 3})
    three = await persistence.save_message(session_id=session.id, event=typing)
    four = await persistence.save_message(MessageData("m4", session.id, "system", "A note"))
    assert (one.user_id, one.event, three.role, three.event) == ("maya", None, "agent", typing)
    assert two.tool_calls == ({"tool_name": "weather", "arguments": {"on": "2026-03-01"}, "result": 21.5},)
    assert await persistence.get_session_messages(session.id) == [one, two, three, four]
    assert await persistence.get_session_messages(session.id, 2, before=four) == [two, three]
    assert await persistence.get_session_messages(session.id, 2, after=one) == [two, three]
    history = await persistence.load_session_history(session.id)
    assert [event.kind.value for event in history] == ["message", "tool", "message", "status", "message"]
    assert [event.source.value for event in history] == ["customer", "agent", "agent", "agent", "system"]
    assert history[0].creation_utc == one.created_at.isoformat()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"role": "user", "content": "Hi"},
        {"session_id": "one"},
        {"session_id": "one", "role": "assistant", "content": "Hi"},
        {"session_id": "one", "role": "user", "content": 5},
        {"session_id": "one", "role": "user", "content": "a\x00b"},
        {"session_id": "one", "role": "user", "content": "Hi", "created_at": "yesterday"},
        {"session_id": "one", "role": "user", "content": "Hi", "created_at": datetime(2026, 3, 1)},
        {"session_id": "one", "role": "user", "content": "Hi", "tool_calls": [{"arguments": {}}]},
        {"session_id": "one", "role": "user", "content": "Hi", "text": "Hi"},
        {"session_id": "one", "event": {"kind": "nonsense"}},
        {"session_id": {"$gt": ""}, "role": "user", "content": "Hi"},
    ],
    ids=lambda fields: ",".join(fields)[:40] or "nothing",
)
async def test_an_invalid_message_is_rejected(
    persistence: Persistence, adapter: InMemoryAdapter, fields: dict[str, Any]
) -> None:
    await persistence.create_session(id="one")
    with pytest.raises(InvalidArgumentError):
        await persistence.save_message(**fields)
    assert adapter.snapshot()["messages"] == []


async def test_a_message_requires_an_existing_session(persistence: Persistence) -> None:
    with pytest.raises(NotFoundError, match="create_session"):
        await persistence.save_message(session_id="gone", role="user", content="Hi")


async def test_a_persistence_of_one_user_finds_no_sessions_of_others(adapter: InMemoryAdapter) -> None:
    unscoped, maya_persistence, ben_persistence = (Persistence(adapter, user_id=user) for user in (None, "maya", "ben"))
    await maya_persistence.create_session(id="hers")
    await maya_persistence.save_message(session_id="hers", role="user", content="Secret")
    assert await ben_persistence.get_session("hers") is None
    assert await ben_persistence.get_session_messages("hers") == []
    assert await ben_persistence.load_session_history("hers") == []
    assert await ben_persistence.complete_session("hers") is None
    assert not await ben_persistence.delete_session("hers")
    assert await ben_persistence.find_active_session() is None
    with pytest.raises(NotFoundError):
        await ben_persistence.save_message(session_id="hers", role="user", content="Mine")
    with pytest.raises(InvalidArgumentError, match="'ben'"):
        await ben_persistence.get_user_sessions("maya")
    with pytest.raises(InvalidArgumentError, match="'ben'"):
        await ben_persistence.create_session(user_id="maya")
    agent = Agent("Wanda", model=ScriptedModel([says("Yours")]), persistence=ben_persistence)
    with pytest.raises(NotFoundError, match="their own session ids"):
        await agent.respond("What did I say?", "hers")
    assert (await unscoped.get_session("hers")) is not None
    assert await maya_persistence.delete_session("hers")


async def test_a_session_created_for_one_user_is_not_found_for_another_sender(adapter: InMemoryAdapter) -> None:
    persistence = Persistence(adapter)
    await persistence.create_session(id="hers", user_id="maya")
    agent = Agent("Wanda", model=ScriptedModel([says("Hello Maya")]), persistence=persistence)
    with pytest.raises(NotFoundError):
        await agent.respond("Hi", "hers", sender=Identity("ben"))
    assert (await agent.respond("Hi", "hers", sender=Identity("maya"))).message == "Hello Maya"


@pytest.mark.parametrize("auto_save", [True, False])
async def test_the_owner_of_a_session_passed_as_a_value_is_checked(adapter: InMemoryAdapter, auto_save: bool) -> None:
    persistence = Persistence(adapter, auto_save)
    await persistence.create_session(id="hers", user_id="maya")
    await persistence.save_message(session_id="hers", role="user", content="My PIN is 1234")
    model = ScriptedModel([says("Hm")])
    agent = Agent("Wanda", model=model, persistence=persistence)
    for session in (create_session("hers", {"user_id": "ben"}), replace(create_session("hers"), version=7)):
        with pytest.raises(NotFoundError):
            await agent.respond("Hi", session, sender=Identity("ben"))
    assert model.requests == []


async def test_a_user_cannot_save_into_another_users_session(adapter: InMemoryAdapter) -> None:
    maya_persistence, ben_persistence = Persistence(adapter, user_id="maya"), Persistence(adapter, user_id="ben")
    await maya_persistence.create_session(id="hers")
    with pytest.raises(NotFoundError):
        await ben_persistence.save(
            replace(create_session("hers"), version=1), [create_message_event("customer", "Ben", "Mine")]
        )
    with pytest.raises(InvalidArgumentError, match="'maya'"):
        await maya_persistence.save_message(session_id="hers", role="user", content="Hi", user_id="ben")
    agent = Agent("Wanda", model=ScriptedModel([says("Hm")]), persistence=maya_persistence)
    with pytest.raises(InvalidArgumentError, match="the sender is 'ben'"):
        await agent.respond("Hi", "new", sender=Identity("ben"))
    assert adapter.snapshot()["messages"] == []


async def test_a_reused_session_id_does_not_expose_the_expired_session() -> None:
    now = 0.0
    adapter = InMemoryAdapter(session_ttl=10, message_ttl=100, clock=lambda: now)
    persistence = Persistence(adapter)
    await persistence.create_session(id="web-42", user_id="maya")
    await persistence.save_message(session_id="web-42", role="user", content="My PIN is 1234")
    now = 20.0
    await persistence.create_session(id="web-42", user_id="ben")
    await persistence.save_message(session_id="web-42", role="user", content="Hello")
    assert [each.content for each in await persistence.get_session_messages("web-42")] == ["Hello"]
    assert len(await persistence.load_session_history("web-42")) == 1


async def test_collected_metadata_cannot_change_the_owner(persistence: Persistence) -> None:
    row = SessionData("web-42", user_id="mallory", collected_data={"metadata": {"user_id": "maya"}})
    created = await persistence.create_session_with_state(row)
    assert created.session_state.metadata["user_id"] == "mallory"


async def test_a_message_saved_by_the_application_is_not_saved_again(persistence: Persistence) -> None:
    """The application logs manually: it saves the user's message, loads the history and responds."""
    agent = Agent("Wanda", model=ScriptedModel([says("Hello!"), says("Yes?")]), persistence=persistence)
    created = await persistence.create_session_with_state(user_id="maya")
    session = created.session_state
    for text in ("Hi", "Hi"):
        await persistence.save_message(session_id=session.id, role="user", content=text)
        history = await persistence.load_session_history(session.id)
        session = (await agent.respond(history, session)).session
    contents = [each.content for each in await persistence.get_session_messages(session.id)]
    assert contents == ["Hi", "Hello!", "Hi", "Yes?"]


async def test_all_sessions_of_a_user_are_deleted(adapter: InMemoryAdapter) -> None:
    persistence = Persistence(adapter)
    for n in range(120):
        await persistence.create_session(id=f"s{n}", user_id="maya")
    await persistence.create_session(id="kept", user_id="ben")
    assert await persistence.delete_user_sessions("maya") == 120
    assert [each.id for each in adapter.snapshot()["sessions"]] == ["kept"]


async def test_a_stale_list_does_not_block_a_deletion(adapter: InMemoryAdapter) -> None:
    persistence = Persistence(adapter)
    await persistence.create_session(id="one", user_id="maya")
    rows = await adapter.session_repository.list_by_user("maya")

    async def list_stale_rows(user_id: str, **page: Any) -> list[SessionData]:
        return rows

    adapter.session_repository.list_by_user = list_stale_rows  # type: ignore[method-assign]
    assert await persistence.delete_user_sessions("maya") == 1


async def test_the_adapter_is_initialized_once_on_first_use(adapter: InMemoryAdapter) -> None:
    started = 0

    class Counting(InMemoryAdapter):
        async def initialize(self) -> None:
            nonlocal started
            started += 1
            await asyncio.sleep(0)

    persistence = Persistence(Counting())
    await asyncio.gather(*(persistence.get_session("one") for _ in range(5)))
    assert started == 1


def test_a_user_id_in_the_place_of_auto_save_is_rejected() -> None:
    wrong: Any = "user_123"
    with pytest.raises(ConfigurationError, match="by keyword"):
        Persistence(InMemoryAdapter(), wrong)


@pytest.mark.parametrize("value", [None, "redis://localhost", InMemoryAdapter, object()])
def test_a_value_that_is_not_an_adapter_is_rejected(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="InMemoryAdapter"):
        Persistence(value)


@given(
    st.dictionaries(st.text(min_size=1), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)),
    st.text(),
)
def test_any_state_is_restored_from_its_row(data: dict[str, Any], text: str) -> None:
    session = enter_route(create_session("web-42", {"note": text}), "book", "Book a flight", initial_data=data)

    async def stored() -> SessionData | None:
        adapter = InMemoryAdapter()
        data = session_state_to_data(session)
        row = SessionData("web-42", current_route="book", collected_data=data["collected_data"], version=0)
        await adapter.session_repository.create(row)
        return await adapter.session_repository.get("web-42")

    found = asyncio.run(stored())
    assert found is not None
    assert session_data_to_state("web-42", found) == session


async def test_events_are_restored_in_their_order(persistence: Persistence) -> None:
    session = create_session("web-42")
    tool = create_tool_event("agent", [{"tool_id": "look", "arguments": {"n": 1}, "result": "found"}])
    agent_event, user_event = (
        create_message_event("agent", "Wanda", "Hm."),
        create_message_event("customer", "Maya", "And?"),
    )
    events = [tool, user_event, agent_event, tool, tool, agent_event, user_event, tool]
    await persistence.save(replace(session, version=1), events)
    found = await persistence.load_session_history("web-42")
    shape = [(each.kind.value, each.source.value) for each in found]
    assert shape == [
        *[("tool", "agent"), ("message", "customer"), ("message", "agent")],
        *[("tool", "agent"), ("message", "agent"), ("message", "customer"), ("tool", "agent")],
    ]
