"""Which chats are remembered, and in which space."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tellback import (
    ChatOptions,
    Identity,
    InvalidArgumentError,
    Session,
    Tellback,
    TurnConfig,
    TurnInput,
    run_chat_turn,
)
from tellback.errors import StoreClosedError
from tellback.testing import FunctionModel, ScriptedModel, says

ECHO = FunctionModel(lambda request: f"re: {request.messages[-1].content}")


async def test_messages_without_a_space_are_never_extracted(tb: Tellback) -> None:
    maya = tb.user("maya")
    await maya.chat("My name is Maya.", model=ECHO)
    with pytest.raises(InvalidArgumentError, match="use another namespace"):
        await maya.chat("My pin is 1234.", space=None, model=ECHO)
    reply = await maya.chat("My pin is 1234.", "private", None, ECHO)
    for conversation in await maya.conversations.list():
        await maya.conversations.close(conversation.id)
    await tb.jobs.drain(timeout=30)
    stored = [atom.text for space in await maya.memory.list_spaces() for atom in await maya.memory.list_atoms(space.id)]
    assert any("Maya" in text for text in stored)
    assert not any("1234" in text for text in stored)
    assert reply.atoms_used == ()


async def test_a_namespace_has_one_space(tb: Tellback) -> None:
    maya = tb.user("maya")
    await maya.chat("The report is late.", "office", "work", ECHO)
    with pytest.raises(InvalidArgumentError, match="'work', not to 'private'"):
        await maya.chat("I am in love.", "office", "private", ECHO)
    await maya.chat("I am in love.", "diary", "private", ECHO)
    assert {space.name for space in await maya.memory.list_spaces()} == {"work", "private"}


async def test_a_conversation_by_id_uses_its_own_namespace(tb: Tellback) -> None:
    maya = tb.user("maya")
    conversation = await maya.conversations.create("support")
    await maya.chat("My order is late.", conversation_id=conversation.id, model=ECHO)
    [binding] = await maya.memory.list_bindings()
    assert [scope.namespace for scope in binding.conversation_scope] == ["support"]


@pytest.mark.parametrize("entry_point", ["chat", "chat_stream", "run_chat_turn"])
async def test_a_tellback_that_is_not_open_raises_store_closed_error(entry_point: str) -> None:
    maya = Tellback(":memory:").user("maya")
    cfg = TurnConfig(maya, "clerk", chat_opts=ChatOptions(model=ECHO))
    entry_points: dict[str, Any] = {
        "chat": lambda: maya.chat("Hello?", model=ECHO),
        "chat_stream": lambda: anext(maya.chat_stream("Hello?", model=ECHO)),
        "run_chat_turn": lambda: run_chat_turn(cfg, TurnInput(Session("s"), Identity("maya"), "Hello?")),
    }
    with pytest.raises(StoreClosedError):
        await entry_points[entry_point]()


@pytest.mark.parametrize("entry_point", ["chat", "chat_stream", "run_chat_turn"])
async def test_a_waiting_message_creates_a_new_conversation_if_the_current_one_is_closed(
    tb: Tellback, entry_point: str
) -> None:
    maya = tb.user("maya")
    request, release = asyncio.Event(), asyncio.Event()

    async def slow_answer(chat_request: Any) -> str:
        request.set()
        await release.wait()
        return "Done."

    cfg = TurnConfig(maya, "chat", chat_opts=ChatOptions(model=FunctionModel(slow_answer)))

    async def send(text: str) -> Any:
        if entry_point == "chat":
            return await maya.chat(text, model=FunctionModel(slow_answer))
        if entry_point == "chat_stream":
            return [item async for item in maya.chat_stream(text, model=FunctionModel(slow_answer))][-1]
        return await run_chat_turn(cfg, TurnInput(Session("s"), Identity("maya"), text))

    first = asyncio.create_task(send("First."))
    await request.wait()
    second = asyncio.create_task(send("Second."))
    await asyncio.sleep(0.2)  # the second message is waiting now
    conversation = await maya.conversations.find("chat", "s" if entry_point == "run_chat_turn" else None)
    assert conversation is not None
    await maya.conversations.close(conversation.id)
    release.set()
    first_result, second_result = await first, await second
    assert (first_result.text, second_result.text) == ("Done.", "Done.")
    assert (first_result.conversation_id == conversation.id, second_result.conversation_id != conversation.id) == (
        True,
        True,
    )


async def test_a_small_budget_sends_less_of_the_log(tb: Tellback) -> None:
    maya = tb.user("maya")
    for number in range(6):
        await maya.chat(f"{number}: {'word ' * 200}", model=ECHO)
    with ScriptedModel([says("Yes.")]) as model:
        await maya.chat("And now?", model=model, recall={"token_budget": 1_200})
    assert 1 < len(model.requests[0].messages) < 7
    assert model.requests[0].messages[-1].content == "And now?"
