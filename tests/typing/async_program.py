"""Checks the types in an asynchronous program, with a store and with a server, and that type errors are reported."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import assert_type

from tellback import Tellback, TellbackClient
from tellback.turn import TurnResult
from tellback.types import ReplyDelta
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.jobs import Job
from tellback.types.memory import Atom, MemorySpace, RecallResult, WorkingContext


async def use_a_store() -> None:
    async with Tellback(":memory:") as tb:
        maya = tb.user("maya")
        assert_type(await maya.chat("hi"), TurnResult)
        assert_type(maya.chat_stream("hi"), AsyncGenerator[ReplyDelta | TurnResult, None])
        talk = assert_type(await maya.conversations.create("chat"), Conversation)
        assert_type(await maya.conversations.messages(talk.id), list[StoredMessage])
        assert_type(await maya.memory.recall_by_topic("ms_1", "city"), RecallResult)
        assert_type(await tb.close_stale(60), list[Conversation])


async def use_a_server() -> None:
    async with TellbackClient("https://memory.example.com", "tb_key") as client:
        maya = client.user("maya")
        assert_type((await maya.chat("hi")).text, str)
        assert_type(maya.chat_stream("hi"), AsyncGenerator[ReplyDelta | TurnResult, None])
        talk = assert_type(await maya.conversations.create("chat", title="Trip"), Conversation)
        assert_type(await maya.conversations.messages(talk.id), list[StoredMessage])
        home = assert_type(await maya.memory.create_space("home"), MemorySpace)
        assert_type(await maya.memory.add_atom(home.id, "Lives in Lisbon"), Atom)
        assert_type(await maya.memory.get_atom("atom_1"), Atom | None)
        assert_type(await maya.memory.recall_by_topic(home.id, "city"), RecallResult)
        assert_type(await maya.working_context.build(talk.id, home.id), WorkingContext)
        assert_type(await client.jobs.list(), list[Job])


async def write_it_wrong() -> None:
    """Each of these lines must be an error: mypy reports an unused ignore."""
    async with TellbackClient("https://memory.example.com") as client:
        maya = client.user("maya")
        await maya.chat("hi", modle="x")  # type: ignore[call-arg]
        await maya.conversations.create(7)  # type: ignore[arg-type]
        await maya.conversations.create("chat", titel="Trip")  # type: ignore[call-arg]
        await maya.memory.add_atom("ms_1", "Lives in Lisbon", importnace=1.0)  # type: ignore[call-arg]
        (await maya.memory.create_space("home")).nme  # type: ignore[attr-defined]  # noqa: B018
        await client.jobs.list("done", tenant="acme")  # type: ignore[call-arg]
