"""The chat backends shared by `tellback chat` and the console: each can resume a chat of the other."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tellback import Tellback
from tellback.agent import InMemorySessions
from tellback.agent.sessions.persistence import SessionStore
from tellback.chat_backends import (
    BackendReply,
    ModelBackend,
    ReplyStream,
    RouteBackend,
    ServedAgent,
    bind_agent,
    store_sessions,
)
from tellback.errors import ConfigurationError
from tellback.testing import FlowModel, FunctionModel
from tests.support.travel_agents import make_flight_agent


async def last_reply(stream: ReplyStream) -> BackendReply:
    *_, reply = [item async for item in stream]
    assert isinstance(reply, BackendReply)
    return reply


@pytest.mark.parametrize("has_own_store", [False, True])
async def test_another_backend_resumes_a_session_until_it_is_closed(has_own_store: bool) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        user = tb.user("maya")
        agent = make_flight_agent(model=FlowModel(reads={"destination": r"to ([A-Z]\w+)"}))[0]
        sessions: SessionStore = InMemorySessions() if has_own_store else store_sessions(agent, tb, user.scope)

        def open_backend() -> RouteBackend:
            return RouteBackend(ServedAgent(bind_agent(agent, tb, sessions), user))

        begun = open_backend()
        assert await begun.find_conversation() is None
        assert await begun.close() is None
        reply = await last_reply(begun.send("I want to book a flight to Rome"))
        assert reply.result.conversation_id == begun.conversation_id

        resumed = open_backend()
        history = await resumed.load_history()
        assert history.conversation is not None
        assert history.conversation.id == begun.conversation_id
        assert history.session is not None
        assert history.session.extracted == {"destination": "Rome"}

        assert await resumed.close() == begun.conversation_id
        assert await open_backend().find_conversation() is None
        next_reply = await last_reply(resumed.send("I want to book a flight to Oslo"))
        assert next_reply.session is not None
        assert next_reply.session.id != history.session.id
        assert next_reply.result.conversation_id != begun.conversation_id


async def test_an_agent_with_routes_cannot_resume_a_conversation_without_a_session() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        user = tb.user("maya")
        agent = make_flight_agent(model=FlowModel(reads={}))[0]
        backend = RouteBackend(ServedAgent(bind_agent(agent, tb, InMemorySessions()), user))
        with pytest.raises(ConfigurationError, match="does not belong to an agent with routes"):
            await backend.resume(await user.conversations.create("chat"))


async def test_a_resumed_conversation_continues_although_another_is_newer() -> None:
    async with Tellback(":memory:", worker=False, model=FunctionModel(lambda _: "I see.")) as tb:
        user = tb.user("maya")
        older, newer = [await user.conversations.create("chat") for _ in range(2)]
        backend = ModelBackend(user)
        found = await backend.find_conversation()
        assert found is not None
        assert found.id == newer.id
        await backend.resume(older)
        history = await backend.load_history()
        assert history.conversation is not None
        assert history.conversation.id == backend.conversation_id == older.id
        assert (await last_reply(backend.send("Hello."))).result.conversation_id == older.id
        assert await backend.close() == older.id
        assert (await last_reply(backend.send("Hello."))).result.conversation_id == newer.id


async def test_an_expired_conversation_is_not_continued() -> None:
    async with Tellback(":memory:", worker=False, model=FunctionModel(lambda _: "I see.")) as tb:
        backend, now = ModelBackend(tb.user("maya")), tb.clock()
        await last_reply(backend.send("Hello."))
        tb.clock = lambda: now + timedelta(hours=2)
        assert (await backend.load_history()).expired is not None
        assert backend.conversation_id is None


async def test_closing_a_session_returns_its_conversation_even_if_that_is_already_closed() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        user = tb.user("maya")
        agent = make_flight_agent(model=FlowModel(reads={"destination": r"to ([A-Z]\w+)"}))[0]
        served_agent = ServedAgent(bind_agent(agent, tb, store_sessions(agent, tb, user.scope)), user)
        begun = RouteBackend(served_agent)
        id = (await last_reply(begun.send("I want to book a flight to Rome"))).result.conversation_id
        await user.conversations.close(id or "")
        later = RouteBackend(served_agent)
        await later.load_history()
        assert await later.close() == id
