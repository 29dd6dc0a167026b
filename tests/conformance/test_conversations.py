"""`user.conversations`, on every kind of store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tellback import (
    ChatUsage,
    InvalidArgumentError,
    NotFoundError,
    Tellback,
    ToolCall,
    assistant_message,
    image_part,
    user_message,
)
from tellback.errors import ConversationClosedError
from tellback.types.blocks import TextBlock
from tellback.types.conversations import AssistantTurn
from tellback.user import User


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


async def test_a_conversation_can_be_opened_and_closed(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create(
        namespace="support-chat", title="Refund", session_id="s1", metadata={"source": "web", "priority": 2}
    )
    assert conversation.id.startswith("conv_")
    assert (conversation.status, conversation.namespace, conversation.title, conversation.session_id) == (
        "open",
        "support-chat",
        "Refund",
        "s1",
    )
    assert conversation.metadata == {"source": "web", "priority": 2}
    assert conversation.created_at.tzinfo is UTC
    assert (conversation.tenant_id, conversation.app_id, conversation.user_id) == ("default", "default", "maya")
    assert await conversations.get(conversation.id) == conversation
    closed = await conversations.close(conversation.id)
    assert closed.status == "closed"
    assert closed.closed_at is not None
    assert await conversations.close(conversation.id) == closed


async def test_messages_up_to_the_next_user_message_belong_to_one_turn(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    rule = await conversations.append_system_message(conversation.id, "Be kind.")
    request = await conversations.append_user_message(conversation.id, "Where is my order?", trace_id="t-1")
    calling = await conversations.append_assistant_turn(
        conversation.id,
        [
            {"type": "text", "text": "Looking it up"},
            {"type": "tool_use", "id": "tu_1", "name": "lookup", "arguments": {"order": 7}},
        ],
        stop_reason="tool_use",
        model="claude-sonnet-5",
        provider="anthropic",
        usage={"inputTokens": 12, "outputTokens": 3, "latencyMs": 800},
    )
    result = await conversations.append_tool_result(conversation.id, "tu_1", "shipped", tool_name="lookup")
    answer = await conversations.append_assistant_turn(conversation.id, "It is on its way.")
    next_message = await conversations.append_user_message(conversation.id, "Thanks!")
    messages = [rule, request, calling, result, answer, next_message]
    assert [message.seq for message in messages] == [1, 2, 3, 4, 5, 6]
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert request.turn_id == calling.turn_id == result.turn_id == answer.turn_id
    assert len({rule.turn_id, request.turn_id, next_message.turn_id}) == 3
    assert (rule.visibility, request.visibility) == ("internal", "user")
    assert request.trace_id == "t-1"
    assert calling.usage == ChatUsage(12, 3, 15, calling.usage.cost_usd, 800, "anthropic", "claude-sonnet-5")  # type: ignore[union-attr]
    assert calling.tool_calls == (ToolCall("tu_1", "lookup", {"order": 7}),)
    assert dict(result.content[0]) == {
        "type": "tool_result",
        "tool_use_id": "tu_1",
        "content": "shipped",
        "is_error": False,
        "tool_name": "lookup",
    }
    assert await conversations.raw_turns(conversation.id) == messages
    assert await conversations.messages(conversation.id) == messages[1:]
    assert await conversations.messages(conversation.id, include_internal=True) == messages
    assert await conversations.messages(conversation.id, limit=2) == messages[-2:]
    assert await conversations.message(answer.id) == answer


async def test_append_turn_stores_both_messages_with_one_turn_id(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("custom-agent")
    assistant = {
        "content": "Hello!",
        "stop_reason": "end_turn",
        "model": "m",
        "provider": "p",
        "usage": {"input_tokens": 1},
    }
    saved = await conversations.append_turn(
        conversation.id, user_content="Hi", assistant=assistant, idempotency_key="k1"
    )
    assert saved.turn_id == saved.user_message.turn_id == saved.assistant_message.turn_id
    assert (saved.user_message.seq, saved.assistant_message.seq) == (1, 2)
    retried = await conversations.append_turn(
        conversation.id, "Hi", AssistantTurn("Hello again!"), idempotency_key="k1", user_visibility="internal"
    )
    assert retried.user_message == saved.user_message
    assert retried.turn_id == saved.turn_id
    assert (retried.assistant_message.seq, retried.assistant_message.text) == (3, "Hello again!")


async def test_hidden_messages_are_stored_but_returned_only_on_request(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    await conversations.append_user_message(conversation.id, "seen")
    await conversations.append_system_message(conversation.id, "for audit", visibility="hidden")
    assert [m.text for m in await conversations.raw_turns(conversation.id)] == ["seen"]
    assert [m.text for m in await conversations.raw_turns(conversation.id, include_hidden=True)] == [
        "seen",
        "for audit",
    ]


async def test_messages_can_be_paged_in_both_directions(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    for n in range(1, 11):
        await conversations.append_user_message(conversation.id, str(n))

    async def texts(**kwargs: Any) -> list[str]:
        return [message.text for message in await conversations.messages(conversation.id, **kwargs)]

    assert await texts(limit=3) == ["8", "9", "10"]
    assert await texts(limit=3, before=8) == ["5", "6", "7"]
    assert await texts(limit=3, after=2) == ["3", "4", "5"]
    assert await texts(after=8) == ["9", "10"]
    assert await texts(after=2, before=5) == ["3", "4"]


async def test_conversations_are_listed_by_namespace_status_and_page(maya: User) -> None:
    conversations = maya.conversations
    created = [await conversations.create("a" if n % 2 else "b") for n in range(5)]
    await conversations.close(created[0].id)
    assert [t.id for t in await conversations.list()] == [t.id for t in reversed(created)]
    assert [t.id for t in await conversations.list("b", status="open")] == [created[4].id, created[2].id]
    first = await conversations.list(limit=2)
    assert [t.id for t in await conversations.list(limit=2, before=first[-1])] == [created[2].id, created[1].id]
    assert [t.id for t in await conversations.list(limit=2, before=first[-1].id)] == [created[2].id, created[1].id]


async def test_imported_messages_keep_their_dates_and_their_order(tb: Tellback, maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("import")
    first = await conversations.append_user_message(conversation.id, "now")
    second = await conversations.append_user_message(conversation.id, "then", created_at="2023-05-01T10:00:00+02:00")
    assert second.created_at == datetime(2023, 5, 1, 8, tzinfo=UTC)
    assert (first.seq, second.seq) == (1, 2)
    turn = await conversations.append_turn(
        conversation.id,
        "a",
        {"content": "b", "created_at": "2023-05-01T00:00:01Z"},
        created_at=datetime(2023, 5, 1, tzinfo=UTC),
    )
    assert turn.assistant_message.created_at - turn.user_message.created_at == timedelta(seconds=1)
    [event] = [e for e in await tb.events.read() if e.data.get("seq") == 2]
    assert event.created_at.year > 2023


async def test_a_whole_chat_is_imported_in_one_step(maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("import")
    stored = await conversations.append_messages(
        conversation.id,
        [
            {"role": "system", "content": "Be brief.", "created_at": "2024-01-01T00:00:00Z"},
            {"role": "user", "content": "Hi", "created_at": "2024-01-01T00:00:01Z"},
            assistant_message("", [ToolCall("c1", "look", {"at": "it"}, meta={"sig": 1})], meta={"signed": True}),
            {"role": "tool", "content": [{"type": "tool_result", "toolUseId": "c1", "content": "seen"}]},
            {"role": "assistant", "content": "Done.", "usage": {"output_tokens": 2}},
            user_message(["And this?", image_part(url="https://example.com/a.png")]),
        ],
    )
    assert [m.seq for m in stored] == [1, 2, 3, 4, 5, 6]
    assert [m.visibility for m in stored] == ["internal", *["user"] * 5]
    assert len({m.turn_id for m in stored}) == 3
    read = await conversations.raw_turns(conversation.id)
    assert read == stored
    assert read[2].meta == {"signed": True}
    assert read[2].messages[0].tool_calls[0].meta == {"sig": 1}
    assert read[5].messages == [user_message(["And this?", image_part(url="https://example.com/a.png")])]
    assert await conversations.append_messages(conversation.id, []) == []
    with pytest.raises(InvalidArgumentError):
        await conversations.append_messages(
            conversation.id, [{"role": "user", "content": "kept?"}, {"role": "robot", "content": "?"}]
        )
    assert len(await conversations.raw_turns(conversation.id)) == 6


async def test_stale_conversations_are_closed(tb: Tellback, maya: User) -> None:
    conversations = maya.conversations
    start = datetime(2026, 1, 1, tzinfo=UTC)
    tb.clock = lambda: start
    old, touched = await conversations.create("chat"), await conversations.create("chat")
    other = await tb.user("omar").conversations.create("chat")
    tb.clock = lambda: start + timedelta(hours=1)
    await conversations.append_user_message(touched.id, "still here")
    tb.clock = lambda: start + timedelta(hours=1, minutes=30)
    closed = await conversations.close_stale(older_than=timedelta(hours=1))
    assert [conversation.id for conversation in closed] == [old.id]
    assert closed[0].closed_at == start + timedelta(hours=1, minutes=30)
    assert [conversation.id for conversation in await tb.close_stale(3600)] == [other.id]
    assert await tb.close_stale(timedelta(hours=1)) == []


async def test_unknown_and_closed_conversations_raise_specific_errors(tb: Tellback, maya: User) -> None:
    conversations = maya.conversations
    conversation = await conversations.create("chat")
    other_users = [tb.user("omar"), tb.user("maya", tenant_id="other"), tb.user("maya", app_id="other")]
    for user, id in [(maya, "conv_nothing"), *((other_user, conversation.id) for other_user in other_users)]:
        them = user.conversations
        assert await them.get(id) is None
        for attempt in (
            them.append_user_message(id, "x"),
            them.append_assistant_turn(id, "x"),
            them.append_tool_result(id, "t", "x"),
            them.append_system_message(id, "x"),
            them.append_turn(id, "x", {"content": "y"}),
            them.append_messages(id, [{"role": "user", "content": "x"}]),
            them.messages(id),
            them.raw_turns(id),
            them.close(id),
            them.refresh_rolling_summary(id),
        ):
            with pytest.raises(NotFoundError, match=id):
                await attempt
    await conversations.close(conversation.id)
    with pytest.raises(ConversationClosedError, match=conversation.id):
        await conversations.append_user_message(conversation.id, "x")


@pytest.mark.parametrize(
    ("kwargs", "problem"),
    [
        ({"namespace": ""}, "namespace"),
        ({"namespace": None}, "namespace"),
        ({"namespace": "x" * 201}, "200 is the limit"),
        ({"namespace": "nul\x00"}, "cannot be stored"),
        ({"namespace": "a", "title": "\ud800"}, "cannot be stored"),
        ({"namespace": "a", "title": 7}, "title must be a string"),
        ({"namespace": "a", "metadata": {"big": "x" * 20_000}}, "16384 is the limit"),
        ({"namespace": "a", "metadata": {"when": datetime.now()}}, "must be JSON"),
        ({"namespace": "a", "metadata": {"nan": float("nan")}}, "must be JSON"),
        ({"namespace": "a", "metadata": {1: "x"}}, "strings as keys"),
        ({"namespace": "a", "metadata": [1]}, "must be a mapping"),
    ],
)
async def test_values_that_cannot_be_stored_raise_an_error_with_the_reason(
    maya: User, kwargs: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        await maya.conversations.create(**kwargs)
    assert await maya.conversations.list() == []


@pytest.mark.parametrize(
    ("kwargs", "problem"),
    [
        ({"content": None}, "a string or a list of blocks"),
        ({"content": []}, "empty"),
        ({"content": [{"type": "video", "url": "x"}]}, "unknown block type 'video'"),
        ({"content": [{"type": "text"}]}, "invalid text block"),
        ({"content": [{"type": "text", "text": "x", "colour": 1}]}, "colour"),
        ({"content": [7]}, "a block must be a mapping"),
        ({"content": [{"type": "text", "text": None}, "b"]}, "text must be a string"),
        ({"content": [{"type": "text", "text": 5}]}, "text must be a string"),
        ({"content": [TextBlock(None)]}, "text must be a string"),  # type: ignore[arg-type]
        ({"content": [{"type": "tool_use", "id": None, "name": "n"}]}, "id must be a string"),
        ({"content": [{"type": "tool_use", "id": "i", "name": "n", "arguments": None}]}, "arguments must be a mapping"),
        ({"content": [{"type": "tool_use", "id": "i", "name": "n", "arguments": {"d": datetime.now()}}]}, "not JSON"),
        ({"content": [{"type": "tool_use", "id": "i", "name": "n", "arguments": {"s": {1}}}]}, "not JSON"),
        ({"content": [{"type": "tool_result", "tool_use_id": None}]}, "tool_use_id must be a string"),
        ({"content": [{"type": "tool_result", "tool_use_id": "t", "content": 7}]}, "content"),
        ({"content": [{"type": "image"}]}, "url or data"),
        ({"content": [{"type": "image", "data": b"x"}]}, "data must be a string"),
        ({"content": "x", "created_at": "0001-01-01T00:00:00+05:00"}, "created_at"),
        ({"content": [{"type": "tool_use", "id": "i", "name": "n", "arguments": nested(200)}]}, "nested"),
        ({"content": [{"type": "tool_use", "id": "i", "name": "n", "arguments": nested(20_000)}]}, "nested"),
        ({"content": [{"type": "tool_use", "id": "i", "name": "n", "arguments": {"x": "y" * 20_000_001}}]}, "limit"),
        ({"content": "x", "visibility": "everyone"}, "visibility must be"),
        ({"content": "x", "created_at": "2024-01-01T00:00:00"}, "timezone"),
        ({"content": "x", "created_at": "yesterday"}, "created_at"),
        ({"content": "x", "created_at": datetime(2024, 1, 1)}, "timezone"),
        ({"content": "x", "idempotency_key": "k" * 501}, "500 is the limit"),
    ],
)
async def test_messages_that_cannot_be_stored_raise_an_error_with_the_reason(
    maya: User, kwargs: dict[str, Any], problem: str
) -> None:
    conversation = await maya.conversations.create("chat")
    with pytest.raises(InvalidArgumentError, match=problem):
        await maya.conversations.append_user_message(conversation.id, **kwargs)
    assert await maya.conversations.messages(conversation.id) == []


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda log, key: log.messages(key, limit=-1), "limit must be an integer"),
        (lambda log, key: log.messages(key, limit="ten"), "limit must be an integer"),
        (lambda log, key: log.list(status="ajar"), "status must be"),
        (lambda log, key: log.list(namespace=5), "namespace must be a string"),
        (lambda log, key: log.list(before=5), "before must be a string"),
        (lambda log, key: log.list(namespace="\ud800"), "cannot be stored"),
        (
            lambda log, key: log.run_turn(key, "m", "x", options="y"),
            "options must be a ChatOptions or a mapping",
        ),
        (lambda log, key: log.run_turn(key, "m", "x", tools=print), "tools must be a list"),
        (lambda log, key: log.run_turn(key, "m", approvals=5), "approvals must be a mapping"),
        (lambda log, key: log.run_turn(key, "m", approvals={}, trace_id="t\x00"), "trace_id"),
        (lambda log, key: log.close_stale("1h"), "older_than"),
        (lambda log, key: log.close_stale(float("inf")), "older_than"),
        (lambda log, key: log.close_stale(-1), "older_than"),
        (lambda log, key: log.append_messages(key, [None]), "a message must be a mapping"),
        (lambda log, key: log.append_messages(key, [{"content": "x"}]), "role must be"),
        (
            lambda log, key: log.append_messages(key, [{"role": "user", "content": "x", "colour": 1}]),
            "colour",
        ),
        (lambda log, key: log.append_turn(key, "x", "y"), "an assistant's turn must be a mapping"),
        (lambda log, key: log.append_turn(key, "x", {"content": "y", "usage": 7}), "usage must be"),
        (lambda log, key: log.run_turn(key, "m", "x", wait=None), "wait must be a number of seconds"),
        (lambda log, key: log.run_turn(key, "m", "x", wait=-1), "wait must be a number of seconds"),
    ],
)
async def test_invalid_calls_raise_an_error_with_the_reason(maya: User, call: Any, problem: str) -> None:
    conversation = await maya.conversations.create("chat")
    with pytest.raises(InvalidArgumentError, match=problem):
        await call(maya.conversations, conversation.id)


@pytest.mark.parametrize("id", ["a\x00", "\ud800", "", None, 7])
async def test_invalid_ids_are_not_found(maya: User, id: Any) -> None:
    assert await maya.conversations.get(id) is None
    assert await maya.conversations.message(id) is None
    with pytest.raises(NotFoundError):
        await maya.conversations.messages(id)
    with pytest.raises(NotFoundError):
        await maya.conversations.append_user_message(id, "x")


async def test_returned_values_equal_the_stored_ones(maya: User) -> None:
    conversation = await maya.conversations.create("chat")
    block = {"type": "tool_use", "id": "i", "name": "n", "arguments": {"x": (1, 2), 3: 4}}
    returned = await maya.conversations.append_assistant_turn(conversation.id, [block])
    [read] = await maya.conversations.messages(conversation.id)
    assert returned == read
    assert read.tool_calls[0].input == {"x": [1, 2], "3": 4}


async def test_very_large_numbers_are_accepted(maya: User) -> None:
    conversation = await maya.conversations.create("chat")
    await maya.conversations.append_user_message(conversation.id, "x")
    assert len(await maya.conversations.messages(conversation.id, limit=2**70, before=2**70)) == 1
    assert await maya.conversations.messages(conversation.id, after=2**70) == []


async def test_stored_values_can_be_put_into_sets(maya: User) -> None:
    conversation = await maya.conversations.create("chat", metadata={"a": 1})
    message = await maya.conversations.append_user_message(conversation.id, "x")
    assert {conversation, message} == {conversation, message}


@pytest.mark.parametrize("user_id", ["", "  ", "*", None, 7, "x" * 201, "nul\x00"])
async def test_invalid_user_names_raise_an_error(tb: Tellback, user_id: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="user_id"):
        tb.user(user_id)
