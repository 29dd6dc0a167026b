"""Checks the types in a program with the synchronous API, and that type errors are reported."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, assert_type

from tellback import Tellback, TellbackClient
from tellback.admin import ErasureReport, ExportReport
from tellback.sync import SyncConversations, SyncRemoteUser, SyncTellback, SyncTellbackClient, SyncUser
from tellback.turn import TurnResult
from tellback.types import ReplyDelta
from tellback.types.conversations import Conversation, Event, StoredMessage
from tellback.types.jobs import Binding, Job
from tellback.types.memory import Atom, MemorySpace, RecallResult, WorkingContext


def use_a_store() -> None:
    with Tellback(":memory:", model="offline") as tb:
        assert_type(tb, SyncTellback)
        maya = assert_type(tb.user("maya"), SyncUser)
        assert_type(maya.chat("hi", options={"max_iterations": 3}).text, str)
        assert_type(maya.chat_stream("hi"), Generator[ReplyDelta | TurnResult, None, None])
        assert_type(maya.conversations, SyncConversations)
        talk = assert_type(maya.conversations.create("chat", title="Trip"), Conversation)
        assert_type(maya.conversations.messages(talk.id), list[StoredMessage])
        home = assert_type(maya.memory.create_space("home"), MemorySpace)
        assert_type(maya.memory.add_atom(home.id, "Lives in Lisbon"), Atom)
        assert_type(maya.memory.recall_by_topic(home.id, "city"), RecallResult)
        assert_type(maya.working_context.build(talk.id, home.id), WorkingContext)
        assert_type(maya.admin.export_user_data(), dict[str, Any])
        assert_type(maya.admin.export_user_data(to="maya.zip"), ExportReport)
        assert_type(maya.admin.delete_user_data(confirm=True), ErasureReport)
        assert_type(tb.events.subscribe(), Generator[Event, None, None])
        assert_type(tb.jobs.list(), list[Job])
        assert_type(tb.bindings.list(), list[Binding])


def use_a_server() -> None:
    with TellbackClient("https://memory.example.com", "tb_key") as client:
        assert_type(client, SyncTellbackClient)
        maya = assert_type(client.user("maya"), SyncRemoteUser)
        assert_type(maya.chat("hi").text, str)
        assert_type(maya.conversations.get("conv_1"), Conversation | None)
        assert_type(maya.memory.list_spaces(), list[MemorySpace])
        assert_type(client.jobs.get("job_1"), Job | None)


def write_it_wrong() -> None:
    """Each of these lines must be an error: mypy reports an unused ignore."""
    with Tellback(":memory:") as tb:
        tb.usr("maya")  # type: ignore[attr-defined]
        maya = tb.user("maya")
        maya.chat(txt="hi")  # type: ignore[call-arg]
        maya.chat("hi", conversation="conv_1")  # type: ignore[call-arg]
        maya.chat("hi", options={"max_iteration": 3})  # type: ignore[arg-type]
        maya.conversations.create(7)  # type: ignore[arg-type]
        maya.conversations.creat("chat")  # type: ignore[attr-defined]
        maya.memory.add_atom("ms_1", text="Lives in Lisbon", importnace=1.0)  # type: ignore[call-arg]
        maya.memory.create_space("home").nme  # type: ignore[attr-defined]  # noqa: B018
        tb.replay(tenant="acme")  # type: ignore[call-arg]
    with TellbackClient("https://memory.example.com") as client:
        client.user("maya").chat("hi", modle="x")  # type: ignore[call-arg]
        client.user("maya", "acme")  # type: ignore[call-arg]
