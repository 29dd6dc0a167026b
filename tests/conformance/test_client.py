"""The client returns the same as the in-process handle: all steps run through both."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import httpx2
import pytest

from tellback import ChatUsage, InvalidArgumentError, NotFoundError, Tellback, TellbackError, TurnResult
from tellback.client import TellbackClient
from tellback.errors import AtomSupersededError, ConversationClosedError
from tellback.server import create_app
from tellback.testing import ScriptedModel, calls, says
from tellback.tools import Tool

# The server behaves the same on a file and in memory, so the file is enough.
pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)

ID = re.compile(r"\b(conv|msg|turn|ms|atom|ent|bind|job|call)_[0-9a-f]{2,}\b")


class ValueNormalizer:
    """Normalizes values of two runs: ids are numbered in order of appearance, dates are replaced."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, str):
            return ID.sub(lambda found: self._ids.setdefault(found[0], f"{found[1]}#{len(self._ids)}"), value)
        if isinstance(value, datetime):
            return "a moment"
        if isinstance(value, float):
            return round(value, 3)
        if is_dataclass(value) and not isinstance(value, type):
            ignored_fields = ("latency_ms", "total_latency_ms", "scope", "context", "updated_at", "due_at")
            return {
                "is": type(value).__name__,
                **{
                    each.name: self(getattr(value, each.name))
                    for each in fields(value)
                    if each.name not in ignored_fields
                },
            }
        if isinstance(value, dict):
            return {str(name): self(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self(each) for each in value]
        return value


async def error_of(awaitable: Any, kind: type[TellbackError]) -> dict[str, Any]:
    with pytest.raises(kind) as caught:
        await awaitable
    return {"error": type(caught.value).__name__, "says": str(caught.value)}


async def run_scenario(user: Any) -> list[Any]:
    """Run a sequence of all operations and return their results."""
    conversations, memory = user.conversations, user.memory
    conversation = await conversations.create(
        "support", "Refund", session_id="s-1", metadata={"plan": "fr\u00e9e"}, close_after=3_600
    )
    found: list[Any] = [
        conversation,
        await conversations.get(conversation.id),
        await conversations.get("conv_00"),
        await conversations.find("support", "s-1"),
    ]
    found.append(await conversations.find_or_create("support", "s-1"))
    message = await conversations.append_user_message(
        conversation.id,
        ["Where's my refund?", {"type": "image", "url": "https://example.com/a.png", "mime_type": "image/png"}],
        idempotency_key="first",
    )
    found += [message, await conversations.append_user_message(conversation.id, "again", idempotency_key="first")]
    found.append(await conversations.append_system_message(conversation.id, "The user is on the free plan."))
    use = {"type": "tool_use", "id": "tu_1", "name": "lookup", "arguments": {"order_id": 7}}
    found.append(
        await conversations.append_assistant_turn(
            conversation.id, [use], stop_reason="tool_use", model="m", usage={"input_tokens": 3}
        )
    )
    found.append(await conversations.append_tool_result(conversation.id, "tu_1", "shipped", tool_name="lookup"))
    answer = {"content": "It is on its way.", "stop_reason": "end_turn", "usage": {"inputTokens": 9, "outputTokens": 4}}
    found.append(await conversations.append_turn(conversation.id, "And now?", answer, idempotency_key="turn"))
    found.append(
        await conversations.append_messages(
            conversation.id, [{"role": "user", "content": "Thanks"}, {"role": "assistant", "content": "Bye"}]
        )
    )
    found += [
        await conversations.messages(conversation.id),
        await conversations.messages(conversation.id, limit=2),
        await conversations.raw_turns(conversation.id, limit=3),
    ]
    found += [
        await conversations.messages(conversation.id, after=2),
        await conversations.messages(conversation.id, limit=2, before=4),
        await conversations.message(message.id),
    ]
    found += [
        await conversations.list("support"),
        await conversations.list(limit=1),
        await conversations.pending(conversation.id),
    ]
    found.append(await error_of(conversations.append_user_message("conv_00", "Hello?"), NotFoundError))
    found.append(await error_of(conversations.create(""), InvalidArgumentError))

    space = await memory.create_space("default", {"of": "tests"})
    found += [space, await memory.create_space("default", once=True), await memory.get_space(space.id)]
    found.append(await memory.create_binding({"namespace": "support", "user_id": user_id_of(user)}, [space.id]))
    [binding] = await memory.list_bindings()
    found += [
        binding,
        await memory.update_binding(binding.id, {"windowed": True, "window_turns": 50}),
        await memory.get_binding(binding.id),
    ]
    acme = await memory.create_entity(space.id, "ORGANIZATION", "Acme", aliases=["ACME Inc."])
    other = await memory.create_entity(
        space.id, "ORGANIZATION", "Acme Corporation", "They make everything.", {"seats": 3}
    )
    fact = await memory.add_atom(
        space.id,
        "Maya works at Acme",
        ("job", "FACT"),
        4,
        0.9,
        "2026-01-01T00:00:00Z",
        conversation.id,
        [message.id],
        [acme.id],
    )
    found += [acme, other, fact, await memory.merge_entities(other.id, acme.id), await memory.get_entity(acme.id)]
    found += [
        await memory.find_entity_by_name(space.id, "ORGANIZATION", "acme"),
        await memory.find_entity_by_name(space.id, name="Nobody"),
    ]
    found.append(await memory.search_entities(space.id, "acme"))
    found.append(
        await memory.add_atoms(
            space.id, [{"text": "Maya likes tea", "category": ("taste", "PREFERENCE")}, {"text": "Maya is in Lisbon"}]
        )
    )
    newer = await memory.supersede_atom(fact.id, "Maya works at Globex", valid_from="2026-06-01T00:00:00Z")
    found += [
        newer,
        await memory.get_atom(fact.id),
        await error_of(memory.supersede_atom(fact.id, "No"), AtomSupersededError),
    ]
    found += [
        await memory.list_atoms(space.id),
        await memory.list_atoms(space.id, category="taste"),
        await memory.list_atoms(space.id, limit=1),
    ]
    found.append(await memory.list_atoms(space.id, valid_at="2026-02-01T00:00:00Z"))
    found.append(await memory.recall_by_topic(space.id, "Where does Maya work?", limit=3, now="2026-07-01T00:00:00Z"))
    found.append(await memory.recall_by_entity(space.id, "Acme", now="2026-07-01T00:00:00Z"))
    found.append(
        await memory.recall_timeline(space.id, query="work", from_="2026-01-01T00:00:00Z", now="2026-07-01T00:00:00Z")
    )
    tea = (await memory.list_atoms(space.id, category="taste"))[0]
    found += [await memory.archive_atom(tea.id), await memory.restore_atom(tea.id), await memory.delete_atom(tea.id)]
    context = await user.working_context.build(conversation.id, space.id, "work", now="2026-07-01T00:00:00Z")
    found += [context, str(context), context.messages]

    found.append(await conversations.close(conversation.id))
    found.append(await error_of(conversations.append_user_message(conversation.id, "More"), ConversationClosedError))
    found.append(await memory.wait_for_extraction(20))
    found.append(sorted(atom.text for atom in await memory.list_atoms(space.id)))
    found.append([(job.status, job.conversation_id) for job in await memory.list_jobs()])
    run = await memory.run_extraction_for_conversation(conversation.id)
    found += [run.status, len(run)]
    await memory.wait_for_extraction(20)
    found.append(await memory.delete_binding(binding.id))
    exported = await user.admin.export_user_data()
    found += [sorted(exported), len(exported["conversations"][0]["messages"])]
    found.append(await memory.delete_space(space.id))
    found.append(await memory.get_space(space.id))
    return found


def user_id_of(user: Any) -> str:
    scope = getattr(user, "scope", None)
    return str(user.user_id if scope is None else scope.user_id)


@pytest.fixture
async def client(tb: Tellback) -> AsyncIterator[TellbackClient]:
    app = create_app(tb, opens=False)
    secret = (await tb.keys.create("admin", tenant_id="acme", app_id="web")).secret
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    async with TellbackClient("http://127.0.0.1", secret, http=http) as created:
        yield created
    await http.aclose()


async def test_all_operations_return_the_same_through_the_client_and_in_process(
    tb: Tellback, client: TellbackClient
) -> None:
    local, remote = (
        await run_scenario(tb.user("maya", "acme", "web")),
        await run_scenario(client.user("maya m\u00fcller/\u4f60%20")),
    )
    normalize_local, normalize_remote = ValueNormalizer(), ValueNormalizer()
    for number, (local_value, remote_value) in enumerate(zip(local, remote, strict=True)):
        expected = normalize_remote(remote_value)
        assert normalize_local(local_value) == _renamed(expected), f"step {number}"


def _renamed(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("maya m\u00fcller/\u4f60%20", "maya")
    if isinstance(value, dict):
        return {name: _renamed(each) for name, each in value.items()}
    return [_renamed(each) for each in value] if isinstance(value, list) else value


async def test_values_from_the_client_equal_the_values_read_in_process(tb: Tellback, client: TellbackClient) -> None:
    remote, local = client.user("maya"), tb.user("maya", "acme", "web")
    conversation = await remote.conversations.create("chat", close_after=timedelta(minutes=5))
    assert await local.conversations.get(conversation.id) == conversation
    message = await remote.conversations.append_user_message(
        conversation.id, "Hello", created_at="2026-03-01T12:00:00.123456Z"
    )
    assert await local.conversations.message(message.id) == message
    space = await remote.memory.create_space("x")
    atom = await remote.memory.add_atom(space.id, "Maya is here")
    assert await local.memory.get_atom(atom.id) == atom
    recalled = await remote.memory.recall_by_topic(space.id, "Maya", now="2027-01-01T00:00:00Z")
    assert recalled.hits == (await local.memory.recall_by_topic(space.id, "Maya", now="2027-01-01T00:00:00Z")).hits


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_tools_of_a_turn_run_in_the_client(tb: Tellback, client: TellbackClient, is_streamed: bool) -> None:
    calls_run: list[tuple[int, int]] = []

    def add(x: int, y: int) -> int:
        "Add two numbers."
        calls_run.append((x, y))
        return x + y

    model = ScriptedModel([calls("add", x=1, y=2), calls("add", x=3, y=3), says("Three, and six.")])
    tb._runtime.model = model
    maya = client.user("maya")
    conversation = await maya.conversations.create("sums")
    if is_streamed:
        items = [item async for item in maya.conversations.stream_turn(conversation.id, user_text="Add!", tools=[add])]
        assert isinstance(items[-1], TurnResult)
        outcome = items[-1]
        assert "Three, and six." in "".join(getattr(item, "text", "") for item in items[:-1])
    else:
        outcome = await maya.conversations.run_turn(conversation.id, user_text="Add!", tools=[add])
    assert (outcome.text, outcome.status, calls_run) == ("Three, and six.", "completed", [(1, 2), (3, 3)])
    assert [each.content for each in outcome.tool_invocations] == ["3", "6"]
    assert outcome.model_calls == 3
    log = await tb.user("maya", "acme", "web").conversations.messages(conversation.id)
    assert list(outcome.appended_messages) == log
    assert [message.role for message in log] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


async def test_a_tool_that_needs_approval_waits_for_it(tb: Tellback, client: TellbackClient) -> None:
    calls_run: list[str] = []

    def pay(to: str) -> str:
        "Pay somebody."
        calls_run.append(to)
        return "paid"

    model = tb._runtime.model = ScriptedModel(
        [calls("pay", to="Omar"), says("Done."), calls("pay", to="Eve"), says("Then not.")]
    )
    maya, tools = client.user("maya"), [Tool.from_fn(pay, requires_approval=True)]
    first = await maya.chat("Pay Omar", tools=tools)
    assert (first.status, [call.name for call in first.pending], calls_run) == ("approval", ["pay"], [])
    [call] = first.pending
    result = await maya.chat(approvals={call.id: True}, tools=tools)
    assert (result.text, calls_run, result.model_calls) == ("Done.", ["Omar"], 2)
    second = await maya.chat("Pay Eve", tools=tools)
    denied = await maya.chat(approvals={second.pending[0].id: {"approved": False, "reason": "No."}}, tools=tools)
    assert (denied.text, calls_run) == ("Then not.", ["Omar"])
    assert "did not allow" in str(model.requests[-1].messages)


USAGES: dict[str, Any] = {
    "a value": ChatUsage(1, 2, 3, 0.5, 10, "anthropic", "claude-x", 1, 2, 1),
    "Tellback's names": {"input_tokens": 1, "output_tokens": 2, "provider": "x", "model": "y"},
    "JSON names": {"inputTokens": 1, "outputTokens": 2, "cachedTokens": 1, "costUsd": 0.25},
    "OpenAI's": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
    "Anthropic's": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3},
    "Anthropic's cache writes": {"input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 4},
}


@pytest.mark.parametrize("names", USAGES)
async def test_usage_in_any_vendors_format_is_stored_the_same_through_the_client(
    tb: Tellback, client: TellbackClient, names: str
) -> None:
    usage, stored = USAGES[names], []
    for user in (tb.user("maya", "acme", "web"), client.user("tom")):
        conversations = user.conversations
        conversation = await conversations.create("chat")
        await conversations.append_user_message(conversation.id, "Hello")
        assistant_message = await conversations.append_assistant_turn(
            conversation.id, "Hi", usage=usage, provider="openai", model="gpt-x"
        )
        turn_messages = await conversations.append_turn(conversation.id, "And?", {"content": "So.", "usage": usage})
        stored.append([assistant_message.usage, turn_messages.assistant_message.usage])
    assert stored[0] == stored[1]


async def outcome(awaitable: Any) -> Any:
    try:
        return await awaitable
    except TellbackError as error:
        return type(error).__name__, str(error)


NAIVE = datetime(2026, 1, 1)  # without a timezone

STEPS: dict[str, Any] = {
    "atoms of an unknown space": lambda user: user.memory.list_atoms("ms_x", limit=0),
    "entities of an unknown space": lambda user: user.memory.search_entities("ms_x", limit=0),
    "messages of an unknown conversation": lambda user: user.conversations.messages("conv_x", limit=0),
    "an id with a slash": lambda user: user.conversations.close("a/b"),
    "a word as an id": lambda user: user.conversations.get("open"),
    "dots as an id": lambda user: user.memory.archive_atom(".."),
    "bytes in metadata": lambda user: user.conversations.create("x", metadata={"b": b"abc"}),
    "a set in metadata": lambda user: user.conversations.create("x", metadata={"s": {1}}),
    "a datetime in metadata": lambda user: user.memory.create_space("x", {"d": datetime(2026, 1, 1, tzinfo=UTC)}),
    "a number as a key": lambda user: user.conversations.create("x", metadata={1: 2}),
    "NaN in metadata": lambda user: user.conversations.create("x", metadata={"n": float("nan")}),
    "large metadata": lambda user: user.conversations.create("x", metadata={"t": "x" * 20_000}),
    "a list as metadata": lambda user: user.conversations.create("x", metadata=[1]),
    "no messages": lambda user: user.conversations.append_messages("conv_x", []),
    "no atoms": lambda user: user.memory.add_atoms("ms_x", []),
    "an atom with an invalid date": lambda user: user.memory.add_atoms(
        "ms_x", [{"text": "x", "valid_from": "some day"}]
    ),
    "an atom with a naive date": lambda user: user.memory.add_atoms("ms_x", [{"text": "x", "valid_to": NAIVE}]),
    "a message with a naive date": lambda user: user.conversations.append_messages(
        "conv_x", [{"role": "user", "content": "x", "created_at": NAIVE}]
    ),
    "an answer with an invalid date": lambda user: user.conversations.append_turn(
        "conv_x", "Hi", {"content": "x", "created_at": "some day"}
    ),
    "zero cycles": lambda user: user.conversations.run_turn("conv_x", None, "Hi", max_cycles=0),
    "an unknown file extension": lambda user: user.admin.export_user_data(to="/nowhere/export.txt"),
    "a number as a file": lambda user: user.admin.export_user_data(to=7),
}


@pytest.mark.parametrize("step", STEPS)
async def test_invalid_arguments_raise_the_same_error_as_in_process(
    tb: Tellback, client: TellbackClient, step: str
) -> None:
    local, remote = tb.user("maya", "acme", "web"), client.user("maya")
    assert await outcome(STEPS[step](local)) == await outcome(STEPS[step](remote))


async def test_a_limit_of_zero_returns_nothing(tb: Tellback, client: TellbackClient) -> None:
    maya = client.user("maya")
    space = await maya.memory.create_space("x")
    await maya.memory.create_entity(space.id, "PERSON", "Ana")
    await maya.memory.add_atom(space.id, "Ana sings")
    assert await maya.memory.search_entities(space.id, limit=0) == []
    assert await maya.memory.list_atoms(space.id, limit=0) == []
