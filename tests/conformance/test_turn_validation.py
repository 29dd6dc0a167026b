"""Invalid arguments of a turn are reported before anything is stored."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tellback import ChatOptions, Identity, InvalidArgumentError, Session, Tellback, TurnConfig, TurnInput
from tellback.testing import ScriptedModel
from tellback.turn import run_chat_turn
from tellback.turns.attachments import Attachment

ARGUMENTS: dict[str, Any] = {"session": Session("s"), "sender": Identity("maya"), "text": "Hi!"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"session": Session("")},
        {"sender": Identity("")},
        {"sender": "maya"},
        {"assistant_metadata": {"at": datetime(2026, 1, 1, tzinfo=UTC)}},
        {"assistant_metadata": {"much": "x" * 20_000}},
        {"user_metadata": [1]},
        {"recall_opts": {"limits": 3}},
        {"ctx_extras": {1: 2}},
    ],
    ids=["session", "sender", "sender-type", "metadata", "metadata-size", "metadata-type", "recall", "extras"],
)
def test_turn_input_is_validated_on_creation(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        TurnInput(**{**ARGUMENTS, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [{"session_id": ""}, {"sender": "maya"}, {"recall": {"limits": 3}}, {"memory_wait": -1}, {"extras": 5}],
    ids=["session", "sender", "recall", "wait", "extras"],
)
async def test_invalid_chat_arguments_create_no_conversation(tb: Tellback, wrong: dict[str, Any]) -> None:
    maya = tb.user("maya")
    model = ScriptedModel([])
    with pytest.raises(InvalidArgumentError):
        await maya.chat("Hi!", model=model, **wrong)
    assert await maya.conversations.list() == []
    assert model.requests == []


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"sender": "maya"}, "sender must be a tellback.turn.Identity, got 'maya'."),
        ({"session": "web-42"}, "session must be a tellback.turn.Session, got 'web-42'."),
        ({"session": Identity("maya")}, "session must be a tellback.turn.Session, got Identity(user_id='maya'"),
        ({"sender": "m" * 99}, f"sender must be a tellback.turn.Identity, got '{'m' * 79}."),
    ],
    ids=["sender", "session", "swapped", "long"],
)
async def test_a_sender_or_session_of_the_wrong_type_is_named_with_its_value(
    tb: Tellback, wrong: dict[str, Any], problem: str
) -> None:
    conversations = tb.user("maya").conversations
    conversation, model = await conversations.create("chat"), ScriptedModel([])
    with pytest.raises(InvalidArgumentError, match=re.escape(problem)):
        await conversations.run_turn(conversation.id, model, "Hi!", **wrong)
    assert await conversations.messages(conversation.id) == []
    assert model.requests == []


@pytest.mark.parametrize(("options", "named"), [({"zeta": 1, "alpha": 2}, "'zeta'"), ({1: 2, "x": 3}, "1")], ids=str)
async def test_the_first_unknown_option_is_named(tb: Tellback, options: Any, named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"options has no field {named}"):
        await tb.user("maya").chat("Hi!", model=ScriptedModel([]), options=options)


async def test_the_stored_sender_comes_from_the_application(tb: Tellback) -> None:
    maya = tb.user("maya")
    cfg = TurnConfig(maya, "clerk", chat_opts=ChatOptions(model=ScriptedModel(["Hello!"])))
    result = await run_chat_turn(
        cfg, TurnInput(**ARGUMENTS, user_metadata={"sender": "admin", "role": "system", "n": 1})
    )
    assert result.messages[0].metadata == {"source": "clerk", "sender": "maya", "role": "user", "n": 1}


@pytest.mark.parametrize("wrong", [{"name": None}, {"name": "a", "text": 5}, {"name": "a", "mime": 5}], ids=str)
def test_an_attachment_is_validated_on_creation(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="attachment"):
        Attachment(**wrong)


async def test_waiting_for_jobs_needs_a_list(tb: Tellback) -> None:
    with pytest.raises(InvalidArgumentError, match="a list"):
        await tb.jobs.wait("job_1")
    assert await tb.jobs.wait([], timeout=1)
