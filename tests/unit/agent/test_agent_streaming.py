"""Streaming: text chunks from the first token, one last chunk, and no effect of an interrupted stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from tellback.agent import Agent, InMemorySessions, Response, StreamChunk, create_session, session_state_to_data
from tellback.chat.model import ChatRequest
from tellback.errors import ChatError, ProviderOverloadedError
from tellback.testing import FunctionModel, ScriptedModel, answers, calls, raises, says, understands
from tellback.types import ChatReply, ReplyDelta, StreamStop, TextDelta
from tests.unit.agent.travel_setup import TravelSetup, make_travel_setup, wait_for_event


class WaitingModel:
    """A model that streams one word, and the rest only after `go_on` is set."""

    def __init__(self, setup: TravelSetup) -> None:
        self.go_on = asyncio.Event()
        self.closed = False
        reading = understands(route=setup.book, destination="Rome")
        self.model = FunctionModel(reading, stream_fn=self._stream)

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        try:
            yield TextDelta("When ")
            await self.go_on.wait()
            yield TextDelta("then?")
            yield StreamStop("end_turn", reply=ChatReply(text="When then?"))
        finally:
            self.closed = True


async def collect_chunks(agent: Agent, *args: Any, **options: Any) -> list[StreamChunk]:
    return [chunk async for chunk in agent.respond_stream(*args, **options)]


def last_response(chunks: list[StreamChunk]) -> Response:
    assert chunks[-1].response is not None
    return chunks[-1].response


async def test_the_first_chunk_arrives_before_the_reply_ends() -> None:
    setup = make_travel_setup()
    waiting = WaitingModel(setup)
    setup.agent.model = waiting.model
    async with aclosing(setup.agent.respond_stream("Rome")) as chunks:
        first = await anext(chunks)
        assert (first.delta, first.accumulated, first.done) == ("When ", "When ", False)
        assert first.session is None
        waiting.go_on.set()
        rest = [chunk async for chunk in chunks]
    assert [chunk.delta for chunk in rest] == ["then?", ""]
    assert rest[-1].accumulated == "When then?"


async def test_the_last_chunk_contains_the_whole_response() -> None:
    setup = make_travel_setup()
    reading = understands(route=setup.book, destination="Rome", departure="2026-12-01", passengers=2)
    with ScriptedModel([reading, says("One flight", chunks=3)]) as model:
        setup.agent.model = model
        chunks = await collect_chunks(setup.agent, "To Rome…")
    assert "".join(chunk.delta for chunk in chunks) == "One flight"
    assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    end, response = chunks[-1], last_response(chunks)
    assert end.accumulated == response.message == "One flight"
    assert (end.route, end.state, end.tool_calls, end.session) == (
        response.route,
        response.state,
        response.tool_calls,
        response.session,
    )
    assert [call.name for call in end.tool_calls] == ["search_flights"]


async def test_streaming_and_responding_give_the_same_result() -> None:
    found: list[Response] = []
    for streams in (False, True):
        setup = make_travel_setup()
        setup.agent.model = ScriptedModel([understands(route=setup.book, destination="Rome"), says("When?")])
        session = create_session("web-42")
        if streams:
            found.append(last_response(await collect_chunks(setup.agent, "Rome", session)))
        else:
            found.append(await setup.agent.respond("Rome", session))
    one, other = found
    assert one.message == other.message
    assert one.state == other.state
    assert one.session.extracted == other.session.extracted
    assert one.session.version == other.session.version == 1
    assert [call.purpose for call in one.trace.calls] == [call.purpose for call in other.trace.calls]


async def test_closing_the_stream_changes_no_state() -> None:
    sessions = InMemorySessions()
    setup = make_travel_setup(persistence=sessions)
    setup.agent.model = ScriptedModel([understands(route=setup.book), says("Where to?")])
    first = await setup.agent.respond("Fly", "web-42")
    before, history = session_state_to_data(first.session), await sessions.history("web-42", 10)
    waiting = WaitingModel(setup)
    setup.agent.model = waiting.model
    async with aclosing(setup.agent.respond_stream("Rome", "web-42")) as chunks:
        await anext(chunks)
    assert waiting.closed
    stored = await sessions.load("web-42")
    assert stored is not None
    assert session_state_to_data(stored) == before
    assert await sessions.history("web-42", 10) == history
    setup.agent.model = ScriptedModel([understands(destination="Oslo"), says("When?")])
    retried = await setup.agent.respond("Oslo", "web-42")
    assert retried.session.extracted == {"destination": "Oslo"}


async def test_cancelling_the_task_of_a_stream_changes_no_state() -> None:
    sessions = InMemorySessions()
    setup = make_travel_setup(persistence=sessions)
    waiting = WaitingModel(setup)
    setup.agent.model = waiting.model
    session = create_session("web-42")
    deltas: list[str] = []
    started = asyncio.Event()

    async def listen() -> None:
        async for chunk in setup.agent.respond_stream("Rome", session):
            deltas.append(chunk.delta)
            started.set()

    task = asyncio.create_task(listen())
    await wait_for_event(started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert deltas == ["When "]
    assert waiting.closed
    assert await sessions.load("web-42") is None
    setup.agent.model = ScriptedModel([understands(route=setup.book), says("Where to?")])
    assert (await setup.agent.respond("Fly", session)).session.version == 1


async def test_cancelling_a_response_changes_no_state() -> None:
    sessions = InMemorySessions()
    setup = make_travel_setup(persistence=sessions)
    started = asyncio.Event()

    async def never(request: ChatRequest) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    setup.agent.model = FunctionModel(never)
    session = create_session("web-42")
    task = asyncio.create_task(setup.agent.respond("Fly", session))
    await wait_for_event(started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await sessions.load("web-42") is None
    setup.agent.model = ScriptedModel([understands(route=setup.book), says("Where to?")])
    assert (await setup.agent.respond("Fly", session)).message == "Where to?"


async def test_an_unread_stream_makes_no_model_call() -> None:
    setup = make_travel_setup()
    setup.agent.model = model = ScriptedModel([])
    session = create_session()
    chunks = setup.agent.respond_stream("Fly", session)
    await chunks.aclose()
    assert model.requests == []


async def test_a_model_error_during_the_stream_changes_no_state() -> None:
    sessions = InMemorySessions()
    setup = make_travel_setup(persistence=sessions)
    failing = raises(ProviderOverloadedError("overloaded"), after="Whe")
    setup.agent.model = ScriptedModel([understands(route=setup.book), failing])
    session = create_session("web-42")
    chunks = setup.agent.respond_stream("Fly", session)
    assert (await anext(chunks)).delta == "Whe"
    with pytest.raises(ProviderOverloadedError):
        await anext(chunks)
    assert await sessions.load("web-42") is None
    setup.agent.model = ScriptedModel([understands(route=setup.book), says("Where to?")])
    assert (await setup.agent.respond("Fly", session)).session.version == 1


async def test_text_before_a_tool_call_does_not_end_the_stream() -> None:
    def fare(city: str) -> int:
        """Return the price of a flight."""
        return 120

    agent = Agent("Wanda", tools=[fare])
    with ScriptedModel([calls("fare", city="Rome", saying="Let me look. "), says("It is 120 euros.")]) as model:
        agent.model = model
        chunks = await collect_chunks(agent, "What does Rome cost?")
    assert "".join(chunk.delta for chunk in chunks) == chunks[-1].accumulated
    assert chunks[-1].accumulated.startswith("Let me look. ")
    assert chunks[-1].accumulated.endswith("It is 120 euros.")
    assert last_response(chunks).message.endswith("It is 120 euros.")
    assert [call.content for call in chunks[-1].tool_calls] == ["120"]


async def test_a_canned_response_is_streamed() -> None:
    agent = Agent("Clinic", composition_mode="strict_canned", canned_responses=["Please wait.", "One moment."])
    agent.model = ScriptedModel([answers({"answer": "r2"})])
    chunks = await collect_chunks(agent, "Hi")
    assert "".join(chunk.delta for chunk in chunks) == "One moment."
    assert last_response(chunks).message == "One moment."
    assert chunks[-1].done


async def test_errors_are_raised_by_the_first_step_of_a_stream() -> None:
    setup = make_travel_setup()
    setup.agent.model = ScriptedModel([raises(ChatError("refused"))])
    session = create_session()
    with pytest.raises(ChatError, match="refused"):
        await anext(setup.agent.respond_stream("Fly", session))
    setup.agent.model = ScriptedModel([understands(), says("Hello!")])
    assert last_response(await collect_chunks(setup.agent, "Fly", session)).message == "Hello!"


async def test_a_turn_is_saved_when_its_stream_ends() -> None:
    sessions = InMemorySessions()
    agent = Agent("Wanda", persistence=sessions, model=ScriptedModel([says("Hello!", chunks=3)]))
    async for chunk in agent.respond_stream("Hi", "web-42"):
        stored = await sessions.load("web-42")
        assert (stored is not None) == chunk.done
