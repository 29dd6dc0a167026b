"""A small program that `test_typing` checks with mypy, like a user's program."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_type

from tellback import TellbackClient
from tellback.admin import ErasureReport
from tellback.types.access import ApiKey, NewApiKey
from tellback.types.conversations import AppendedTurn, Conversation, RollingSummary, SessionData, StoredMessage
from tellback.types.jobs import Binding, ExtractionRun, Job, UsageRecord, UsageTotal
from tellback.types.memory import Atom, Entity, MemorySpace, RecallResult, WorkingContext
from tellback.types.messages import ToolCall


async def main(url: str, api_key: str) -> None:
    """Call the client's methods and declare the types of their results."""
    async with TellbackClient(url, api_key, timeout=30) as client:
        maya = client.user("maya")
        space = await maya.memory.create_space("goals", once=True)
        assert_type(space, MemorySpace)
        assert_type(await maya.memory.get_space(space.id), MemorySpace | None)
        assert_type(await maya.memory.list_spaces(), list[MemorySpace])
        assert_type(await maya.memory.delete_space(space.id), None)
        atom = await maya.memory.add_atom(
            space.id, "User keeps bees", ("hobby", "FACT"), valid_from="2026-03-01T09:00Z"
        )
        assert_type(atom, Atom)
        assert_type(await maya.memory.list_atoms(space.id, limit=3, before=atom), list[Atom])
        assert_type(await maya.memory.recall_by_topic(space.id, "bees?", now=datetime.now().astimezone()), RecallResult)
        assert_type(await maya.memory.find_entity_by_name(space.id, name="Ana"), Entity | None)
        assert_type(await maya.memory.create_binding({"namespace": "chat"}, [space.id]), Binding)
        assert_type(await maya.memory.run_extraction_for_conversation("conv_1", space_id=space.id), ExtractionRun)
        assert_type(await maya.memory.wait_for_extraction(5), bool)
        assert_type(await maya.memory.get_job("job_1"), Job | None)
        assert_type(await maya.working_context.build(None, space.id), WorkingContext)

        conversation = await maya.conversations.create("chat", close_after=timedelta(hours=1))
        assert_type(conversation, Conversation)
        assert_type(await maya.conversations.find("chat"), Conversation | None)
        assert_type(await maya.conversations.append_user_message(conversation.id, "Hello"), StoredMessage)
        assert_type(await maya.conversations.append_turn(conversation.id, "Hi", {"content": "Hello"}), AppendedTurn)
        assert_type(await maya.conversations.messages(conversation.id, limit=10), list[StoredMessage])
        assert_type(await maya.conversations.pending(conversation.id), tuple[ToolCall, ...])
        assert_type(await maya.conversations.refresh_rolling_summary(conversation.id), RollingSummary)
        assert_type((await maya.chat("Hello")).text, str)

        assert_type(await maya.agents.sessions("Wanda").get_session("web-42"), SessionData | None)
        assert_type(await maya.admin.delete_user_data(confirm=True), ErasureReport)
        assert_type(await maya.admin.usage(limit=5), list[UsageRecord])
        assert_type(await client.usage_totals(), list[UsageTotal])
        assert_type(await client.jobs.list("failed", user_id="maya"), list[Job])
        assert_type(await client.bindings.update("bind_1", enabled=False), Binding)
        assert_type(await client.keys.create("user", user_id="maya", expires_at=timedelta(days=1)), NewApiKey)
        assert_type(await client.keys.revoke("key_1"), ApiKey)


async def misuse(client: TellbackClient) -> None:
    """Calls that a type checker must reject; an unused ignore is an error."""
    maya = client.user("maya")
    await maya.memory.create_space(3)  # type: ignore[arg-type]
    await maya.memory.create_space(twice=True)  # type: ignore[call-arg]
    await maya.memory.add_atom("ms_1")  # type: ignore[call-arg]
    await maya.conversations.create()  # type: ignore[call-arg]
    await client.jobs.list(tenant_id="acme")  # type: ignore[call-arg]
    await maya.working_context.build(None, count_tokens=len)  # type: ignore[call-arg]
    (await maya.memory.get_space("ms_1")).name  # type: ignore[union-attr]  # noqa: B018
    maya.memory.forget  # type: ignore[attr-defined]  # noqa: B018
