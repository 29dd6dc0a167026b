"""Tellback's own keys are camelCase in JSON and are restored; users' keys stay unchanged."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tellback
from tellback import Category, Tellback
from tellback.agent.sessions.serialization import session_data_to_state, session_state_to_data
from tellback.agent.sessions.session import CurrentRoute, CurrentState, RouteVisit, SessionState, create_session
from tellback.memory import ExtractedEntity, ExtractedFact, Extraction, Window
from tellback.server.streaming.change_feed import encode_event
from tellback.stores.values import USER_ERASED
from tellback.testing import FunctionModel
from tellback.types.conversations import Event, SessionData
from tellback.types.ids import utc_now
from tellback.types.memory import CategoryKind, EntityType
from tellback.user import User
from tellback.wire.agents import SessionStateWire, SessionWire
from tellback.wire.values import ChangeWire, ExtractionRunWire, JobWire
from tests.support.sse import parse_frame

STORES = Path(tellback.__file__).parent / "stores"
TYPE = re.compile(r'"((?:conversation|message|space|atom|entity|binding|key|extraction|user)\.[a-z]+)"')
CAMEL = re.compile(r"[a-z]+([A-Z][a-z]*)*")


class SingleFactExtractor:
    """An extractor that returns one fact, and finally an invalid one."""

    def __init__(self) -> None:
        self.importance = 3
        self.seconds = 0.0

    async def extract(self, window: Window) -> Extraction:
        await asyncio.sleep(self.seconds)
        message_ids = (window.messages[0].id,)
        home = Category("home", CategoryKind.FACT)
        fact = ExtractedFact("User lives in Porto.", home, message_ids, self.importance, entities=("Porto",))
        return Extraction((fact,), (ExtractedEntity("Porto", EntityType.PLACE, ("Oporto",)),))


async def make_conversation(user: User, namespace: str) -> str:
    conversation = await user.conversations.create(namespace)
    await user.conversations.append_turn(conversation.id, "I live in Porto.", {"content": "I see."})
    return conversation.id


@pytest.fixture(scope="module")
def changes() -> list[Event]:
    """Return a change of each type."""
    return asyncio.run(collect_events())


async def collect_events() -> list[Event]:
    extractor = SingleFactExtractor()
    async with Tellback(":memory:", extractor=extractor, embedder=None) as tb:
        maya, conversations = tb.user("maya"), tb.user("maya").conversations
        space = (await maya.memory.create_space("home")).id
        binding = await maya.memory.create_binding({"namespace": "bound"}, [space])
        await tb.bindings.update(binding.id, enabled=False)
        await tb.bindings.delete(binding.id)
        await tb.keys.revoke((await tb.keys.create("user", user_id="maya")).key.id)

        await maya.memory.create_entity(space, "PLACE", "Porto")
        for _ in range(2):  # the second one repeats the same fact
            await maya.memory.run_extraction_for_conversation(await make_conversation(maya, "chat"), space_id=space)
            await tb.jobs.drain()
        extractor.importance = 9
        await maya.memory.run_extraction_for_conversation(await make_conversation(maya, "chat"), space_id=space)
        await tb.jobs.drain()
        extractor.seconds = 60.0
        [job] = await maya.memory.run_extraction_for_conversation(await make_conversation(maya, "chat"), space_id=space)
        await tb.jobs.cancel(job.id)

        id = await make_conversation(maya, "closing")
        model = FunctionModel(lambda _: closing())

        async def closing() -> str:
            await conversations.close(id)
            return "Bye."

        await conversations.run_turn(id, user_text="Bye", model=model)
        await conversations.refresh_rolling_summary(id, FunctionModel(lambda _: "They said hello."))

        atom = await maya.memory.add_atom(space, "One")
        new = await maya.memory.supersede_atom(atom.id, text="Two")
        await maya.memory.archive_atom(new.id)
        await maya.memory.restore_atom(new.id)
        await maya.memory.delete_atom(new.id)
        ann = await maya.memory.create_entity(space, "PERSON", "Ann")
        anna = await maya.memory.create_entity(space, "PERSON", "Anna")
        await maya.memory.merge_entities(ann.id, anna.id)
        await maya.memory.delete_space(space)
        await tb.user("omar").memory.create_space("home")
        found = await tb.events.read(limit=1_000)
        await tb.user("omar").admin.delete_user_data(confirm=True)
        return [*found, *await tb.events.read(found[-1].position)]


def encode_payload(event: Event) -> dict[str, Any]:
    payload = parse_frame(encode_event(event).removesuffix(b"\n\n")).data
    assert isinstance(payload, dict)
    return payload


def test_every_event_type_is_tested(changes: list[Event]) -> None:
    event_types = {type for path in STORES.rglob("*.py") for type in TYPE.findall(path.read_text())}
    assert {event.type for event in changes} == event_types


def test_event_data_has_json_names(changes: list[Event]) -> None:
    for event in changes:
        payload = encode_payload(event)
        assert payload == json.loads(ChangeWire.from_value(event).to_json())
        if event.type == USER_ERASED:  # table names
            assert payload["data"] == event.data
        else:
            assert all(CAMEL.fullmatch(name) for name in payload["data"]), event.type
            assert ("memorySpaceId" in payload["data"]) == ("space_id" in event.data)


def test_a_change_survives_the_roundtrip(changes: list[Event]) -> None:
    for event in changes:
        assert ChangeWire.model_validate(encode_payload(event)).value() == event


async def test_job_results_have_json_names() -> None:
    async with Tellback(":memory:", extractor=SingleFactExtractor(), embedder=None) as tb:
        maya = tb.user("maya")
        space = (await maya.memory.create_space("home")).id
        id = await make_conversation(maya, "chat")
        for _ in range(2):
            run = await maya.memory.run_extraction_for_conversation(id, space_id=space)
            await tb.jobs.drain()
        [job] = await maya.memory.list_jobs()
        payload = json.loads(JobWire.from_value(job).to_json())
        assert (payload["result"]["leftOut"], payload["result"]["leftOutFacts"]) == (0, [])
        assert JobWire.model_validate(payload).value() == job
        payload = json.loads(ExtractionRunWire.from_value(run).to_json())
        assert [JobWire.model_validate(each).value() for each in payload["jobs"]] == list(run.jobs)


def row_of(state: SessionState, **fields: Any) -> SessionData:
    data = session_state_to_data(state)
    return SessionData(state.id, "maya", collected_data={**data["collected_data"], **fields}, version=state.version)


def booked_state(metadata: Mapping[str, Any]) -> SessionState:
    now = utc_now()
    started = create_session("web-42", metadata)
    return SessionState(
        "web-42",
        CurrentRoute("book", "Book a flight", now),
        CurrentState("ask", "Ask where to", now),
        {"travel_date": "2026-06-15"},
        (RouteVisit("book", now),),
        started.metadata,
        1,
    )


def test_only_a_sessions_own_keys_get_json_names() -> None:
    own_data = {"my_key": 1, "fares": {"from_to": 2}}
    row = row_of(booked_state(own_data), my_channel={"first_seen": 1})
    payload = json.loads(SessionWire.from_value(row).to_json())["collectedData"]
    assert payload.keys() == {
        *("extracted", "routeHistory", "currentRouteTitle", "currentRouteEnteredAt", "currentStateDescription"),
        *("currentStateEnteredAt", "metadata", "my_channel"),
    }
    assert payload["routeHistory"][0].keys() == {"routeId", "enteredAt", "exitedAt", "completed"}
    assert payload["metadata"].keys() == {"createdAt", "lastUpdatedAt", "my_key", "fares"}
    assert (payload["extracted"], payload["my_channel"]) == ({"travel_date": "2026-06-15"}, {"first_seen": 1})
    assert payload["metadata"]["fares"] == {"from_to": 2}


@pytest.mark.parametrize(
    "own_data",
    [{}, {"my_key": 1}, {"createdAt": "long ago", "lastUpdatedAt": 3}, {"user_id": "maya"}, {"created_at": "then"}],
    ids=str,
)
def test_a_session_survives_the_roundtrip(own_data: dict[str, Any]) -> None:
    state = booked_state(own_data)
    row = row_of(state)
    back = SessionWire.model_validate(json.loads(SessionWire.from_value(row).to_json())).value()
    expected = {name: row.collected_data[name] for name in back.collected_data}
    assert back.collected_data == expected
    stored = session_data_to_state("web-42", row)
    payload = json.loads(SessionStateWire.from_value(stored).to_json())
    assert SessionStateWire.model_validate(payload).value() == stored
    assert payload["metadata"]["userId"] == "maya"
    assert set(own_data) - {"user_id", "created_at"} <= payload["metadata"].keys()
