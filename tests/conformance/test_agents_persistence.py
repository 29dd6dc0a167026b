"""Agents whose sessions are in the same store as their conversations, on every kind of store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tellback import ConfigurationError, Identity, InvalidArgumentError, NotFoundError, Persistence, Tellback, User
from tellback.agent import Agent, create_session
from tellback.errors import SessionConflictError, StoreUnavailableError
from tellback.sessions import PostgresAdapter, SqliteAdapter
from tellback.testing import FunctionModel, ScriptedModel, calls, says
from tellback.types.conversations import Conversation, SessionData
from tests.support.travel_agents import (
    Respond,
    TripSetup,
    read_messages,
    read_texts,
    respond_variants,
    script_full_trip,
    sent_texts,
)


def build_persistence(tb: Tellback, **kwargs: Any) -> Persistence:
    adapter = PostgresAdapter if tb.store.url.startswith("postgresql") else SqliteAdapter
    return Persistence(adapter(tb, **kwargs))


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


@respond_variants
async def test_a_session_is_stored_together_with_its_conversation(tb: Tellback, maya: User, ask: Respond) -> None:
    persistence = build_persistence(tb)
    setup = TripSetup(tb, persistence=persistence)
    setup.script(setup.understands_trip(destination="Rome"), says("How many?", chunks=2))
    first = await ask(setup.agent, "To Rome", "web-42", user="maya")
    setup.script(setup.understands_trip(passengers=2), says("The night train?"))
    second = await ask(setup.agent, "Two", "web-42", user="maya")
    assert (first.problems, second.problems, setup.searched) == ((), (), [("Rome", 2)])
    stored = await persistence.get_session("web-42")
    assert stored is not None
    assert (stored.user_id, stored.agent_name, stored.version, stored.message_count) == ("maya", "Wanda", 2, 4)
    assert await persistence.load("web-42") == replace(
        second.session, metadata={**second.session.metadata, "user_id": "maya"}
    )
    messages = await persistence.get_session_messages("web-42")
    assert [(each.role, each.content) for each in messages] == [
        ("user", "To Rome"),
        ("agent", "How many?"),
        ("user", "Two"),
        ("agent", "The night train?"),
    ]
    assert [each.id for each in messages] == [each.id for each in await read_messages(maya, first.conversation_id)]
    assert (messages[1].route, messages[3].state) == (setup.book.id, second.state.id if second.state else None)
    history = await persistence.load_session_history("web-42")
    assert [event.kind.value for event in history] == ["message", "message", "message", "tool", "message"]
    assert [(call["tool_name"], call["result"]) for call in messages[3].tool_calls] == [
        ("search", '["the night train to Rome"]')
    ]


@respond_variants
async def test_the_reply_and_the_session_are_saved_in_one_step(
    tb: Tellback, maya: User, ask: Respond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another turn is saved while the model replies, the slower turn stores only the user's message."""
    persistence = build_persistence(tb)
    setup = TripSetup(tb, persistence=persistence)
    setup.script(setup.understands_trip(destination="Rome"), says("How many?"))
    first = await ask(setup.agent, "To Rome", "web-42", user="maya")

    async def separate_save(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the session must be saved with the reply")

    monkeypatch.setattr(type(tb.store.sessions), "save", separate_save)
    setup.script(setup.understands_trip(passengers=2), says("The night train?"))
    second = await ask(setup.agent, "Two", "web-42", user="maya")
    monkeypatch.undo()
    assert (await persistence.load("web-42") or first.session).version == 2

    async def save_meanwhile(request: Any) -> str:
        row = await persistence.get_session("web-42")
        assert row is not None
        await persistence.adapter.save(replace(row, version=3), [])
        return "Too late"

    setup.agent.model = FunctionModel(save_meanwhile)
    setup.agent.understand_model = ScriptedModel([setup.understands_trip()])
    with pytest.raises(SessionConflictError):
        await ask(setup.agent, "And a window seat", "web-42", user="maya")
    assert await read_texts(maya, second.conversation_id) == [
        *("To Rome", "How many?", "Two", "The night train?"),
        "And a window seat",
    ]


@respond_variants
async def test_a_store_failure_on_save_stores_neither_reply_nor_session(
    tb: Tellback, maya: User, ask: Respond, monkeypatch: pytest.MonkeyPatch
) -> None:
    persistence = build_persistence(tb)
    setup = TripSetup(tb, persistence=persistence)
    setup.script(setup.understands_trip(destination="Rome"), says("How many?"))
    conversations = type(tb.store.conversations)
    append = conversations.append

    async def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("session") is not None:
            raise StoreUnavailableError("gone")
        return await append(self, *args, **kwargs)

    monkeypatch.setattr(conversations, "append", failing)
    with pytest.raises(StoreUnavailableError):
        await ask(setup.agent, "To Rome", "web-42", user="maya")
    monkeypatch.setattr(conversations, "append", append)
    assert await persistence.get_session("web-42") is None
    [conversation] = await maya.conversations.list()
    assert await read_texts(maya, conversation.id) == ["To Rome"]
    setup.script(setup.understands_trip(destination="Rome"), says("How many?"))
    retried = await ask(setup.agent, "To Rome, I said", "web-42", user="maya")
    assert retried.session.version == 1


@respond_variants
async def test_a_turn_whose_commit_was_in_doubt_is_saved_once(
    tb: Tellback, maya: User, ask: Respond, monkeypatch: pytest.MonkeyPatch
) -> None:
    persistence = build_persistence(tb)
    setup = TripSetup(tb, persistence=persistence)
    setup.script(setup.understands_trip(destination="Rome"), says("How many?"))
    conversations = type(tb.store.conversations)
    append = conversations.append

    async def append_in_doubt(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = await append(self, *args, **kwargs)
        if kwargs.get("session") is not None:
            monkeypatch.setattr(conversations, "append", append)
            raise StoreUnavailableError("gone while committing", in_doubt=True)
        return result

    monkeypatch.setattr(conversations, "append", append_in_doubt)
    response = await ask(setup.agent, "To Rome", "web-42", user="maya")
    assert response.session.version == 1
    stored = await persistence.get_session("web-42")
    assert stored is not None
    assert (stored.version, stored.message_count) == (1, 2)
    assert await read_texts(maya, response.conversation_id) == ["To Rome", "How many?"]


@respond_variants
async def test_a_user_erased_during_the_turn_stays_erased(tb: Tellback, maya: User, ask: Respond) -> None:
    persistence = build_persistence(tb)

    async def erase(request: Any) -> str:
        await maya.admin.delete_user_data(confirm=True)
        return "Hello!"

    agent = Agent("Wanda", model=FunctionModel(erase), memory=tb, persistence=persistence)
    with pytest.raises(NotFoundError):
        await ask(agent, "Hi", "web-42", user="maya")
    assert await persistence.get_session("web-42") is None
    assert (await maya.admin.export_user_data())["sessions"] == []


async def test_tool_calls_of_the_model_are_in_the_sessions_history(tb: Tellback, maya: User) -> None:
    def weather(city: str) -> str:
        """Return the weather."""
        return f"rain in {city}"

    model = ScriptedModel([calls("weather", city="Rome"), says("It rains.")])
    persistence = build_persistence(tb)
    agent = Agent("Wanda", model=model, memory=maya, persistence=persistence, tools=[weather])
    await agent.respond("And the weather in Rome?", "web-42")
    messages = await persistence.get_session_messages("web-42")
    assert [each.content for each in messages] == ["And the weather in Rome?", "It rains."]
    assert messages[1].tool_calls == (
        {"tool_name": "weather", "arguments": {"city": "Rome"}, "result": "rain in Rome"},
    )


async def test_message_metadata_cannot_break_a_session(tb: Tellback, maya: User) -> None:
    persistence = build_persistence(tb)
    agent = Agent("Wanda", model=ScriptedModel([says("Hi")]), memory=maya, persistence=persistence)
    await agent.respond("Hello", "web-42", metadata={"session": "tab-7", "tellback.session": "x"})
    assert [each.content for each in await persistence.get_session_messages("web-42")] == ["Hello", "Hi"]


async def test_messages_keep_their_order_regardless_of_clocks(tb: Tellback, maya: User) -> None:
    persistence = build_persistence(tb)
    await persistence.create_session(id="web-42", user_id="maya", agent_name="Wanda")
    future_id = f"conv_{2**111:028x}"
    [scope] = {maya.scope}
    now = datetime.now(UTC)
    conversation = Conversation(future_id, scope, "wanda", "open", now, now, session_id="web-42")
    await tb.store.conversations.create(scope, conversation)
    await persistence.save_message(session_id="web-42", role="user", content="one")
    await persistence.complete_session("web-42")
    await persistence.save_message(session_id="web-42", role="user", content="two")
    messages = await persistence.get_session_messages("web-42")
    assert [each.content for each in messages] == ["one", "two"]
    assert messages[0].position < messages[1].position
    await persistence.delete_session("web-42")
    await persistence.create_session(id="web-42", user_id="maya", agent_name="Wanda")
    await persistence.save_message(session_id="web-42", role="user", content="again")
    assert [each.content for each in await persistence.get_session_messages("web-42")] == ["again"]


async def test_two_tellbacks_on_the_same_store_are_rejected(tb: Tellback, url: str) -> None:
    if url == ":memory:":
        pytest.skip("every in-memory store is separate")
    async with Tellback(url, worker=False) as other:
        agent = Agent("Wanda", model=ScriptedModel([says("Hi")]), memory=other, persistence=build_persistence(tb))
        with pytest.raises(ConfigurationError, match="pass the same Tellback to both"):
            await agent.respond("Hi", "web-42", user="maya")


async def test_another_users_messages_cannot_enter_a_passed_session(tb: Tellback, maya: User) -> None:
    persistence = build_persistence(tb)
    await persistence.create_session(id="hers", user_id="maya")
    await persistence.save_message(session_id="hers", role="user", content="My PIN is 1234")
    model = ScriptedModel([says("Hm")])
    agent = Agent("Wanda", model=model, persistence=persistence)
    with pytest.raises(NotFoundError):
        await agent.respond("Hi", create_session("hers", {"user_id": "ben"}), sender=Identity("ben"))
    assert model.requests == []
    assert [each.content for each in await persistence.get_session_messages("hers")] == ["My PIN is 1234"]


async def test_sessions_without_a_memory_are_also_in_the_log(tb: Tellback, maya: User) -> None:
    persistence = build_persistence(tb)
    setup = TripSetup(None, persistence=persistence)
    script_full_trip(setup, says("The night train?"))
    await setup.agent.respond("Two of us to Rome, please.", "web-42", sender=Identity("maya"))
    [conversation] = await maya.conversations.list()
    assert (conversation.namespace, conversation.session_id, conversation.turns) == ("wanda", "web-42", 1)
    found = await read_messages(maya, conversation.id)
    assert [(each.role, each.text) for each in found] == [
        ("user", "Two of us to Rome, please."),
        ("assistant", "The night train?"),
    ]
    history = await persistence.load_session_history("web-42")
    assert [event.kind.value for event in history] == ["message", "tool", "message"]
    setup.script(setup.understands_trip(), says("Yes, still."))
    await setup.agent.respond("Still?", "web-42", sender=Identity("maya"))
    assert any("The night train?" in each for each in sent_texts(setup.model))
    with pytest.raises(InvalidArgumentError, match="belongs to a user"):
        await Agent("Wanda", model=ScriptedModel([says("Hi")]), persistence=persistence).respond("Hi", "web-43")


async def test_a_completed_session_becomes_memories(tb: Tellback, maya: User) -> None:
    space = await maya.memory.create_space("trips")
    await maya.memory.create_binding({"namespace": "wanda", "user_id": "maya"}, [space.id])
    persistence = build_persistence(tb)
    await persistence.create_session(id="web-42", user_id="maya", agent_name="Wanda")
    await persistence.save_message(session_id="web-42", role="user", content="I moved to Lisbon in March.")
    await persistence.save_message(session_id="web-42", role="agent", content="Noted.")
    await persistence.complete_session("web-42")
    await tb.jobs.drain()
    found = await maya.memory.recall_by_topic(space.id, "Where do I live, Lisbon?")
    assert any("Lisbon" in hit.atom.text for hit in found.hits)
    [conversation] = await maya.conversations.list()
    assert not conversation.is_open
    await persistence.save_message(session_id="web-42", role="user", content="And back again.")
    assert [each.is_open for each in await maya.conversations.list()] == [True, False]
    assert [each.content for each in await persistence.get_session_messages("web-42")] == [
        *("I moved to Lisbon in March.", "Noted."),
        "And back again.",
    ]


async def test_sessions_are_exported_and_erased(tb: Tellback, maya: User) -> None:
    persistence = build_persistence(tb)
    await persistence.create_session(id="hers", user_id="maya", initial_data={"channel": "web"})
    await persistence.create_session(id="his", user_id="ben")
    await persistence.save_message(session_id="hers", role="user", content="Hi")
    exported = await maya.admin.export_user_data()
    assert [(each["id"], each["collected_data"]) for each in exported["sessions"]] == [("hers", {"channel": "web"})]
    erased = await maya.admin.delete_user_data(confirm=True)
    assert erased["sessions"] == 1
    assert await persistence.get_session("hers") is None
    assert await persistence.get_session("his") is not None


async def test_another_users_session_is_not_found(tb: Tellback) -> None:
    persistence = build_persistence(tb)
    setup = TripSetup(tb, persistence=persistence)
    setup.script(setup.understands_trip(destination="Rome"), says("How many?"))
    await setup.agent.respond("To Rome", "web-42", user="maya")
    with pytest.raises(NotFoundError):
        await setup.agent.respond("And mine?", "web-42", user="ben")
    await persistence.create_session(id="made", user_id="maya")
    with pytest.raises(NotFoundError):
        await setup.agent.respond("And this?", "made", user="ben")
    assert await tb.user("ben").conversations.list() == []


async def test_a_repeated_message_is_answered_once(tb: Tellback, maya: User) -> None:
    persistence = build_persistence(tb)
    setup = TripSetup(maya, persistence=persistence)
    setup.script(setup.understands_trip(destination="Rome"), says("How many?"))
    first = await setup.agent.respond("To Rome", "web-42", idempotency_key="k1")
    repeated = await setup.agent.respond("To Rome", "web-42", idempotency_key="k1")
    assert (first.message, repeated.message, repeated.session.version) == ("How many?", "How many?", 1)
    assert len(await persistence.get_session_messages("web-42")) == 2


async def test_a_waiting_call_is_saved_with_the_session(tb: Tellback, maya: User) -> None:
    persistence = build_persistence(tb)
    setup = TripSetup(maya, approval=True, persistence=persistence)
    script_full_trip(setup, says("May I?"))
    paused = await setup.agent.respond("Two of us to Rome, please.", "web-42")
    stored = await persistence.load("web-42")
    assert stored is not None
    assert stored.pending_calls == paused.session.pending_calls
    assert len(stored.pending_calls) == 1
    setup.script(says("Booked."))
    response = await setup.agent.respond(None, "web-42", approvals={paused.pending[0].id: True})
    assert (response.message, setup.searched) == ("Booked.", [("Rome", 2)])
    assert (await persistence.load("web-42") or paused.session).version == 2


async def test_concurrent_turns_of_two_agents_are_all_stored(tb: Tellback, maya: User) -> None:
    persistence = build_persistence(tb)
    model = ScriptedModel([says("Hello!") for _ in range(8)])
    agents = [Agent("Wanda", model=model, memory=maya, persistence=persistence) for _ in range(2)]

    async def turn(agent: Agent, n: int) -> None:
        while True:
            try:
                await agent.respond(f"message {n}", "web-42")
            except SessionConflictError:
                continue
            break

    await asyncio.gather(*(turn(agents[n % 2], n) for n in range(4)))
    stored = await persistence.get_session("web-42")
    assert stored is not None
    assert stored.version == 4


async def test_the_adapter_and_the_memory_must_belong_to_one_app(tb: Tellback) -> None:
    agent = Agent(
        "Wanda", model=ScriptedModel([says("Hi")]), memory=tb, persistence=build_persistence(tb, app_id="other")
    )
    with pytest.raises(ConfigurationError, match="'other'"):
        await agent.respond("Hi", "web-42", user="maya")


async def test_adapter_options_that_do_not_apply_to_a_tellback_are_rejected(tb: Tellback) -> None:
    for options in ({"session_ttl": 5}, {"tables": {"sessions": "x"}}, {"message_ttl": 5}, {"colour": "red"}):
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            build_persistence(tb, **options)
    wrong: Any = SqliteAdapter if tb.store.url.startswith("postgresql") else PostgresAdapter
    with pytest.raises(ConfigurationError, match="Adapter"):
        wrong(tb)
    with pytest.raises(ConfigurationError, match="Tellback"):
        SqliteAdapter("agent.db", app_id="other")
    persistence = build_persistence(tb)
    with pytest.raises(InvalidArgumentError, match="'\\*'"):
        await persistence.create_session(SessionData("web-42", user_id="*"))
