"""Tests of the sample data and the agent of `tellback demo`."""

from __future__ import annotations

import itertools
import socket
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from tellback import Tellback, demo
from tellback.cli import serve
from tellback.cli.app import app
from tellback.cli.runner import LOCAL_HOST
from tellback.demo import SAMPLE_SPACE, SAMPLE_USER, build_tables_agent, load_sample
from tellback.errors import ConfigurationError
from tellback.testing import ScriptedModel
from tellback.types import Message, message_text


async def replies_to(*texts: str) -> list[str]:
    """Return the demo agent's reply to each message of one conversation."""
    async with Tellback(":memory:") as tb:
        agent, session = build_tables_agent(tb), None
        history: list[Message] = []
        for text in texts:
            history.append(Message("user", text))
            reply = await agent.respond(history, session)
            session = reply.session
            history.append(Message("assistant", reply.message))
        return [message_text(each) for each in history[1::2]]


async def test_the_sample_user_is_added_once_with_citations_history_and_linked_entities() -> None:
    async with Tellback(":memory:") as tb:
        assert await load_sample(tb)
        assert await load_sample(tb)
        maya = tb.user(SAMPLE_USER)
        assert len(await maya.conversations.list()) == 3
        [space] = [each for each in await maya.memory.list_spaces() if each.name == SAMPLE_SPACE]
        hits = await maya.memory.recall_by_topic(space.id, "Where does Maya live?")
        best = hits.hits[0].atom
        assert best.text == "Maya lives in Lisbon, in a flat near the river."
        message = await maya.conversations.messages(str(best.source_conversation_id))
        assert {each.id for each in message} >= set(best.source_message_ids)
        assert best.created_at == best.valid_from
        before = await maya.memory.list_atoms(space.id, valid_at="2025-01-01T00:00:00Z")
        assert "Maya lives in Porto, in Rua das Flores." in {each.text for each in before}
        entities = {each.canonical_name: each for each in await maya.memory.search_entities(space.id)}
        assert set(entities) == {"Ana", "Lisbon", "Porto", "Santa Maria"}
        assert all(each.atom_count for each in entities.values())
        about_lisbon = await maya.memory.recall_by_entity(space.id, entities["Lisbon"].id)
        assert {hit.atom.text for hit in about_lisbon} == {
            "Maya lives in Lisbon, in a flat near the river.",
            "Maya is a nurse at Santa Maria in Lisbon, on day shifts.",
        }


async def test_a_chat_with_the_sample_user_recalls_the_sample_memories() -> None:
    async with Tellback(":memory:") as tb:
        await load_sample(tb)
        reply = await tb.user(SAMPLE_USER).chat("What can I cook for Ana?")
        assert "Ana, Maya's sister, is allergic to nuts." in reply.text


@pytest.mark.parametrize("user", [SAMPLE_USER, "ana"])
async def test_a_store_with_conversations_gets_no_sample_user(user: str) -> None:
    async with Tellback(":memory:") as tb:
        await tb.user(user).conversations.create("chat")
        assert not await load_sample(tb)
        maya = tb.user(SAMPLE_USER)
        assert not await maya.memory.list_spaces()
        assert len(await maya.conversations.list()) == (user == SAMPLE_USER)


def test_the_guide_mentions_the_sample_user_only_if_the_store_has_one() -> None:
    for has_sample in (True, False):
        guide = "\n".join(serve._guide_lines("http://127.0.0.1:1", "x.db", False, has_sample))
        assert ("user=maya" in guide) is has_sample
        assert "Your messages are stored in x.db" in guide


def test_the_guide_does_not_print_the_database_password() -> None:
    assert "secret" not in "".join(serve._guide_lines("http://127.0.0.1:1", "postgresql://me:secret@db/x", False, True))


async def test_loading_the_sample_calls_no_model() -> None:
    model = ScriptedModel([])
    async with Tellback(":memory:", model=model) as tb:
        await load_sample(tb)
        await tb.jobs.drain()
        assert model.requests == []


async def test_without_a_model_the_agent_follows_fixed_rules() -> None:
    async with Tellback(":memory:") as tb:
        agent = build_tables_agent(tb)
        first = await agent.respond("A table for two tomorrow")
        assert first.message == "Would you like Italian, Indian or Portuguese food?"
        offered = await agent.respond("indian", first.session)
        day = tb.clock().date() + timedelta(days=1)
        assert f"- Jaipur on {day:%A}, {day.day} {day:%B} at 19:30 for 2\n- Jaipur" in offered.message
        hours = await agent.respond("When are they open?", offered.session)
        assert "from 19:00" in hours.message
        resumed = await agent.respond("Back to the table", hours.session)
        assert resumed.message == offered.message
        booked = await agent.respond("Yes, book it", resumed.session)
        assert booked.message.startswith(f"Booked: Jaipur on {day:%A}, {day.day} {day:%B} at 19:30 for 2.")


async def test_the_agent_rephrases_a_question_that_it_repeats() -> None:
    replies = await replies_to("A table for two tomorrow", "hmm", "hmm", "indian")
    assert replies[1] == 'Sorry, I did not understand that. Please choose one: "Italian", "Indian" or "Portuguese".'
    assert len(set(replies)) == 4
    assert replies[-1].startswith("I found these tables:")


async def test_a_configured_model_answers_for_the_agent() -> None:
    model = ScriptedModel([])
    async with Tellback(":memory:", model=model) as tb:
        assert build_tables_agent(tb).model is model


def test_a_used_port_is_skipped() -> None:
    with socket.socket() as sock:
        sock.bind((LOCAL_HOST, 0))
        port = sock.getsockname()[1]
        assert port < serve._find_free_port(port) < port + serve.PORT_ATTEMPTS


def test_if_all_ports_are_used_the_error_suggests_the_port_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "PORT_ATTEMPTS", 1)
    with socket.socket() as sock:
        sock.bind((LOCAL_HOST, 0))
        with pytest.raises(ConfigurationError, match="pass another one with --port"):
            serve._find_free_port(sock.getsockname()[1])


def test_without_the_console_extra_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 2
    assert "pip install 'tellback[console]'" in result.output


@pytest.mark.parametrize("text", ["7 pm", "At 7:30", "at 7 o'clock", "around 8PM", "on 2026-12-04"])
async def test_a_time_or_date_does_not_change_the_number_of_guests(text: str) -> None:
    async with Tellback(":memory:") as tb:
        agent = build_tables_agent(tb)
        response = await agent.respond("An Indian table for 2.")
        response = await agent.respond(text, response.session)
        assert response.session.extracted["guests"] == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tomorrow", "2026-11-20"),
        ("on Friday", "2026-11-20"),
        ("Thursday", "2026-11-26"),
        ("19 November", "2026-11-19"),
        ("the 3rd of December", "2026-12-03"),
        ("March 3", "2027-03-03"),
        ("2026-12-24", "2026-12-24"),
        ("30 February", None),
        ("soon", None),
    ],
)
async def test_the_agent_understands_common_ways_to_name_a_day(
    text: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "utc_now", lambda: datetime(2026, 11, 19, 12, tzinfo=UTC))  # a Thursday
    assert demo._parse_day(text) == expected
    assert demo._parse_guests(f"{text} for two") == 2


async def test_the_agent_thanks_for_a_value_that_it_did_not_ask_for_and_books_the_first_table() -> None:
    replies = await replies_to(
        "I want to eat out", "what?", "for two", "what?", "on Friday", "Italian", "the first one"
    )
    assert replies[2] == "Thank you. Would you like Italian, Indian or Portuguese food?"
    assert all(one != other for one, other in itertools.pairwise(replies))
    assert replies[-1].startswith("Booked: Da Enzo on Friday")
