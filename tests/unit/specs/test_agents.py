"""Invoking registered agent specs with the memory of the calling user."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest

from tellback import ConfigurationError, InvalidArgumentError, NotFoundError, Tellback, TextDelta, TurnResult, tool
from tellback.errors import AgentSpecError
from tellback.memory.tools import RecallByTopic
from tellback.specs import Agents, SpecRegistry
from tellback.specs.agents import build_invocation_metadata
from tellback.testing import ScriptedModel, calls, says
from tellback.user import User

SUPPORT: dict[str, Any] = {
    "name": "support",
    "systemPrompt": "You help with orders.",
    "tools": [
        {"type": "RECALL_BY_TOPIC", "name": "recallMemory", "memorySpaceId": "$space", "limit": 2},
        {"type": "RECALL_BY_ENTITY", "name": "lookUp", "memorySpaceId": "$space"},
        {"type": "RECALL_TIMELINE", "name": "history", "memorySpaceId": "$space"},
        {"type": "REMEMBER", "name": "note", "memorySpaceId": "$space"},
        {"type": "FORGET", "name": "drop", "memorySpaceId": "$space", "requiresApproval": True},
    ],
    "maxOutputTokens": 500,
    "config": {"temperature": "$temperature"},
}


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:") as opened:
        yield opened


@pytest.fixture
def registry() -> SpecRegistry:
    created = SpecRegistry()
    created.register(SUPPORT)
    return created


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


@pytest.fixture
def agents(registry: SpecRegistry, maya: User) -> Agents:
    return Agents(registry, maya)


@pytest.fixture
async def arguments(maya: User) -> dict[str, Any]:
    space = await maya.memory.create_space("orders")
    await maya.memory.add_atom(space.id, "Maya ordered a blue kettle.")
    return {"space": space.id, "userMessage": "What did I order?", "temperature": 0, "secret": "s3cret"}


async def test_an_agent_answers_with_the_users_own_memory(
    agents: Agents, maya: User, arguments: dict[str, Any]
) -> None:
    script = [calls("recallMemory", query="what did Maya order"), says("A blue kettle.", expect="blue kettle")]
    with ScriptedModel(script) as model:
        outcome = await agents.invoke("support", arguments, model=model)
    assert outcome.text == "A blue kettle."
    conversation = await maya.conversations.get(outcome.conversation_id or "")
    assert conversation is not None
    assert conversation.namespace == "support"
    first = model.requests[0]
    assert [each.name for each in first.tools] == ["recallMemory", "lookUp", "history", "note", "drop"]
    assert (first.system, first.max_output_tokens) == ("You help with orders.", 500)
    assert first.config["temperature"] == 0
    assert "s3cret" not in repr(first)


async def test_an_invocation_can_be_streamed(agents: Agents, arguments: dict[str, Any]) -> None:
    model = ScriptedModel([says("A blue kettle.", chunks=5)])
    items = [item async for item in agents.invoke_stream("support", arguments, model=model)]
    assert "".join(item.text for item in items if isinstance(item, TextDelta)) == "A blue kettle."
    assert isinstance(items[-1], TurnResult)
    assert items[-1].text == "A blue kettle."


async def test_closing_a_stream_cancels_the_turn(agents: Agents, maya: User, arguments: dict[str, Any]) -> None:
    conversation = await maya.conversations.create("support")
    stream = agents.invoke_stream(
        "support", arguments, model=ScriptedModel(["A kettle."]), conversation_id=conversation.id
    )
    await anext(stream)
    await stream.aclose()
    outcome = await agents.invoke(
        "support", arguments, model=ScriptedModel(["Yes."]), conversation_id=conversation.id, wait=5
    )
    assert outcome.text == "Yes."


async def test_an_invocation_continues_a_conversation(agents: Agents, maya: User, arguments: dict[str, Any]) -> None:
    model = ScriptedModel([says("A kettle."), says("Blue.")])
    first = await agents.invoke("support", arguments, model=model)
    second = await agents.invoke(
        "support",
        {**arguments, "userMessage": "Which colour?"},
        model=model,
        conversation_id=first.conversation_id,
        idempotency_key="k1",
    )
    assert second.conversation_id == first.conversation_id
    texts = [message.text for message in await maya.conversations.messages(first.conversation_id or "")]
    assert texts == ["What did I order?", "A kettle.", "Which colour?", "Blue."]


async def test_a_spec_sets_the_model_and_the_namespace(tb: Tellback, maya: User) -> None:
    registry = SpecRegistry()
    registry.register({"name": "echo", "namespace": "$kind", "model": "no-such-model", "userMessage": "Hello."})
    agents = Agents(registry, maya)
    outcome = await agents.invoke("echo", {"kind": "greetings"}, model=ScriptedModel(["Hi."]))
    [conversation] = await maya.conversations.list(namespace="greetings")
    assert conversation.id == outcome.conversation_id
    with pytest.raises(ConfigurationError, match="no-such-model"):
        await agents.invoke("echo", {"kind": "greetings"})


async def test_approvals_resume_a_paused_turn(agents: Agents, maya: User, arguments: dict[str, Any]) -> None:
    [atom] = await maya.memory.list_atoms(arguments["space"])
    model = ScriptedModel([calls("drop", ids=[atom.id]), says("It is forgotten.")])
    paused = await agents.invoke("support", arguments, model=model)
    assert paused.status == "approval"
    del arguments["userMessage"]
    approvals = {paused.pending[0].id: True}
    with pytest.raises(InvalidArgumentError, match="conversation_id"):
        await agents.invoke("support", arguments, model=model, approvals=approvals)
    outcome = await agents.invoke(
        "support", arguments, model=model, conversation_id=paused.conversation_id, approvals=approvals
    )
    assert outcome.text == "It is forgotten."
    assert await maya.memory.list_atoms(arguments["space"]) == []


async def test_replies_have_the_agents_name_in_their_metadata(
    agents: Agents, maya: User, arguments: dict[str, Any]
) -> None:
    outcome = await agents.invoke("support", arguments, model=ScriptedModel(["A kettle."]))
    question, reply = await maya.conversations.messages(outcome.conversation_id or "")
    assert question.metadata is None
    assert reply.metadata is not None
    assert reply.metadata["agent"] == "support"
    assert "s3cret" not in repr(reply)


async def request_note(maya: User) -> tuple[Agents, dict[str, Any], dict[str, Any]]:
    """Return agents, the arguments of an invocation that waits for approval, and the keywords that resume it."""
    registry = SpecRegistry()
    note = {"type": "REMEMBER", "name": "note", "memorySpaceId": "$space", "requiresApproval": True}
    for name in ("noter", "scribe"):
        registry.register({"name": name, "tools": [note], "config": {"temperature": 0}})
    agents = Agents(registry, maya)
    space = await maya.memory.create_space("asked")
    values = {"space": space.id, "userMessage": "I have two cats."}
    model = ScriptedModel([calls("note", text="Maya has two cats.")])
    paused = await agents.invoke("noter", values, model=model)
    resumed = {"conversation_id": paused.conversation_id, "approvals": {paused.pending[0].id: True}}
    return agents, {"space": space.id}, resumed


async def test_approvals_require_the_arguments_of_the_paused_turn(maya: User) -> None:
    agents, values, resumed = await request_note(maya)
    other = await maya.memory.create_space("other")
    before = await maya.conversations.raw_turns(resumed["conversation_id"], include_hidden=True)
    with pytest.raises(InvalidArgumentError, match="other arguments"):
        await agents.invoke("noter", {"space": other.id}, model=ScriptedModel([]), **resumed)
    assert await maya.memory.list_atoms(other.id) == []
    assert await maya.conversations.raw_turns(resumed["conversation_id"], include_hidden=True) == before
    outcome = await agents.invoke("noter", {**values, "more": 1}, model=ScriptedModel(["Noted."]), **resumed)
    assert outcome.text == "Noted."
    assert len(await maya.memory.list_atoms(values["space"])) == 1


async def test_approvals_require_the_agent_of_the_paused_turn(maya: User) -> None:
    agents, values, resumed = await request_note(maya)
    with pytest.raises(InvalidArgumentError, match="belong to agent 'noter'"):
        await agents.invoke("scribe", values, model=ScriptedModel([]), **resumed)
    assert await maya.memory.list_atoms(values["space"]) == []
    conversation = await maya.conversations.create("chat")
    model = ScriptedModel([calls("refund", order="A-7")])
    paused = await maya.conversations.run_turn(conversation.id, model, "Refund A-7.", tools=[refund])
    with pytest.raises(InvalidArgumentError, match="a turn without an agent"):
        await agents.invoke(
            "noter",
            values,
            model=ScriptedModel([]),
            conversation_id=conversation.id,
            approvals={paused.pending[0].id: True},
        )


@pytest.mark.parametrize("arguments", [{"n": 1.0}, {"n": "\ud800"}, {"n": [1, {"b": 1, "a": "é"}]}, {}])
def test_an_arguments_digest_depends_only_on_the_values(arguments: dict[str, Any]) -> None:
    metadata = build_invocation_metadata("x", arguments)
    assert metadata == build_invocation_metadata("x", json.loads(json.dumps(arguments)))
    assert metadata != build_invocation_metadata("x", {**arguments, "n": 2})
    assert len(metadata["arguments_digest"]) == 64


# Isolation


async def read_everything(user: User) -> list[Any]:
    spaces = await user.memory.list_spaces()
    atoms = [atom for space in spaces for atom in await user.memory.list_atoms(space.id)]
    return [*await user.conversations.list(), *atoms]


async def test_another_users_space_is_rejected_before_anything_is_stored(
    tb: Tellback, registry: SpecRegistry, arguments: dict[str, Any]
) -> None:
    before = await read_everything(tb.user("maya"))
    strangers = [tb.user("bob"), tb.user("maya", tenant_id="acme"), tb.user("maya", app_id="other")]
    for stranger in strangers:
        with ScriptedModel([]) as model:
            with pytest.raises(NotFoundError, match=arguments["space"]):
                await Agents(registry, stranger).invoke("support", arguments, model=model)
            with pytest.raises(NotFoundError, match=arguments["space"]):
                await anext(Agents(registry, stranger).invoke_stream("support", arguments, model=model))
        assert await read_everything(stranger) == []
    assert await read_everything(tb.user("maya")) == before


async def test_a_literal_space_works_only_for_its_owner(tb: Tellback, maya: User) -> None:
    handbook = await maya.memory.create_space("handbook")
    registry = SpecRegistry()
    registry.register(
        {
            "name": "handbook",
            "tools": [{"type": "RECALL_BY_TOPIC", "name": "recallHandbook", "memorySpaceId": handbook.id}],
        }
    )
    question = {"userMessage": "How many days off do we have?"}
    outcome = await Agents(registry, maya).invoke("handbook", question, model=ScriptedModel(["Thirty."]))
    assert outcome.text == "Thirty."
    with pytest.raises(NotFoundError, match=handbook.id):
        await Agents(registry, tb.user("bob")).invoke("handbook", question, model=ScriptedModel([]))


async def test_a_single_space_of_another_user_rejects_the_invocation(
    tb: Tellback, maya: User, arguments: dict[str, Any]
) -> None:
    other_space = await tb.user("bob").memory.create_space("secrets")
    registry = SpecRegistry()
    tools = [{"type": "FORGET", "name": f"f{n}", "memorySpaceId": f"$s{n}"} for n in range(3)]
    registry.register({"name": "cleaner", "tools": tools, "userMessage": "Clean up."})
    values = {"s0": arguments["space"], "s1": other_space.id, "s2": arguments["space"]}
    with pytest.raises(NotFoundError, match=other_space.id):
        await Agents(registry, maya).invoke("cleaner", values, model=ScriptedModel([]))
    assert await maya.conversations.list() == []


async def test_memory_space_id_must_belong_to_the_user(tb: Tellback, agents: Agents, maya: User) -> None:
    agents._registry.register({"name": "plain"})
    own_space, other_space = await maya.memory.create_space("mine"), await tb.user("bob").memory.create_space("theirs")
    await maya.memory.add_atom(own_space.id, "Maya ordered a blue kettle.")
    question = {"userMessage": "What did I order?"}
    with ScriptedModel(["A kettle."]) as model:
        await agents.invoke("plain", question, model=model, memory_space_id=own_space.id)
    assert "blue kettle" in str(model.requests[0].system)
    with pytest.raises(NotFoundError, match=other_space.id):
        await agents.invoke("plain", question, model=ScriptedModel([]), memory_space_id=other_space.id)
    assert len(await maya.conversations.list()) == 1


async def test_a_deleted_space_is_not_found(agents: Agents, maya: User, arguments: dict[str, Any]) -> None:
    await maya.memory.delete_space(arguments["space"])
    with pytest.raises(NotFoundError, match=arguments["space"]):
        await agents.invoke("support", arguments, model=ScriptedModel([]))


async def test_another_users_conversation_is_not_found(tb: Tellback, agents: Agents, arguments: dict[str, Any]) -> None:
    other_conversation = await tb.user("bob").conversations.create("support")
    with pytest.raises(NotFoundError, match=other_conversation.id):
        await agents.invoke("support", arguments, model=ScriptedModel([]), conversation_id=other_conversation.id)
    assert await tb.user("bob").conversations.messages(other_conversation.id) == []


async def test_missing_arguments_store_nothing(agents: Agents, maya: User, arguments: dict[str, Any]) -> None:
    for name in ("space", "userMessage", "temperature"):
        values = {key: value for key, value in arguments.items() if key != name}
        with pytest.raises(AgentSpecError, match=name):
            await agents.invoke("support", values, model=ScriptedModel([]))
    assert await maya.conversations.list() == []


@pytest.mark.parametrize(
    "wrong",
    [
        *({"model": None}, {"model": "no-such-model"}, {"model": 5}, {"provider": "nobody"}, {"max_cycles": 0}),
        *({"max_cycles": "3"}, {"tail_limit": 0}, {"idempotency_key": 5}, {"wait": -1}, {"trace_id": 5}),
        *({"extras": {1: 2}}, {"metadata": {"a": object()}}, {"session": "s"}, {"sender": "maya"}),
        *({"recall": {"nothing": 1}}, {"recall": {"recent_turns": -1}}, {"recall": {"memory_space_id": "ms"}}),
        *({"approvals": {"c1": True}}, {"approvals": 5}),
    ],
)
async def test_invalid_options_create_no_conversation(
    agents: Agents, maya: User, arguments: dict[str, Any], wrong: dict[str, Any]
) -> None:
    with pytest.raises((InvalidArgumentError, ConfigurationError)):
        await agents.invoke("support", arguments, **{"model": ScriptedModel([]), **wrong})
    with pytest.raises((InvalidArgumentError, ConfigurationError)):
        await anext(agents.invoke_stream("support", arguments, **{"model": ScriptedModel([]), **wrong}))
    assert await maya.conversations.list() == []


async def test_a_missing_model_is_reported_with_the_agents_name(agents: Agents, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="'support'"):
        await agents.invoke("support", arguments)


@pytest.mark.parametrize("options", [{"tools": []}, {"options": {}}, {"content": "Hi."}, {"user_text": "Hi."}])
async def test_an_invocation_cannot_override_the_spec(
    agents: Agents, maya: User, arguments: dict[str, Any], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(options))):
        await agents.invoke("support", arguments, model=ScriptedModel([]), **options)
    assert await maya.conversations.list() == []


# Functions and the registry


@tool(requires_approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


async def weather(city: str) -> str:
    """Return the weather."""
    return f"rain in {city}"


async def unlisted() -> str:
    """Do something else."""
    return "done"


def functions(**of_weather: Any) -> dict[str, Any]:
    return {
        "name": "clerk",
        "userMessage": "Hello.",
        "tools": [{"type": "FUNCTION", "name": "weather", **of_weather}, {"type": "FUNCTION", "name": "refund"}],
    }


async def test_only_functions_in_the_spec_are_offered(maya: User) -> None:
    registry = SpecRegistry()
    registry.register(functions(description="$about", timeout=5), tools=[weather, refund, unlisted])
    script = [calls("weather", city="Lisbon"), calls("refund", order="A-7")]
    with ScriptedModel(script) as model:
        outcome = await Agents(registry, maya).invoke("clerk", {"about": "Today's weather."}, model=model)
    assert [(each.name, each.description) for each in model.requests[0].tools] == [
        ("weather", "Today's weather."),
        ("refund", "Refund an order."),
    ]
    assert outcome.tool_invocations[0].content == "rain in Lisbon"
    assert outcome.status == "approval"
    assert outcome.pending[0].name == "refund"


async def test_a_spec_can_require_approval_but_not_waive_it(maya: User) -> None:
    registry = SpecRegistry()
    spec = functions(requiresApproval=True)
    spec["tools"][1]["requiresApproval"] = False
    registry.register(spec, tools=[weather, refund])
    model = ScriptedModel([calls("weather", city="Lisbon")])
    outcome = await Agents(registry, maya).invoke("clerk", model=model)
    assert outcome.status == "approval"
    assert [each.requires_approval for each in model.requests[0].tools] == [True, True]


async def test_a_spec_can_shorten_the_timeout_of_a_function_but_not_lengthen_it(maya: User) -> None:
    registry = SpecRegistry()
    quick = tool(name="weather", timeout=2)(weather)
    for name, function, seconds in (("a", quick, 60), ("b", quick, 1), ("c", weather, 60), ("d", weather, None)):
        one = {"type": "FUNCTION", "name": "weather", **({} if seconds is None else {"timeout": seconds})}
        registry.register({"name": name, "userMessage": "Hi.", "tools": [one]}, tools=[function])
    found = []
    for name in registry.names:
        model = ScriptedModel(["Hello."])
        await Agents(registry, maya).invoke(name, model=model)
        found.append(model.requests[0].tools[0].timeout)
    assert found == [2, 1, 60, None]


async def test_arguments_are_converted_to_the_types_of_the_function(maya: User) -> None:
    seen: list[Any] = []

    async def travel(day: date, /, people: int = 1) -> str:
        """Go somewhere."""
        seen.append((day, people))
        return "gone"

    registry = SpecRegistry()
    registry.register(
        {"name": "x", "userMessage": "Hi.", "tools": [{"type": "FUNCTION", "name": "travel"}]}, tools=[travel]
    )
    model = ScriptedModel([calls("travel", day="2026-03-01", people="2"), says("Bye.")])
    await Agents(registry, maya).invoke("x", model=model)
    assert seen == [(date(2026, 3, 1), 2)]


async def test_a_tool_object_can_be_registered_as_a_function(maya: User) -> None:
    space = await maya.memory.create_space("shared")
    await maya.memory.add_atom(space.id, "The office opens at nine.")
    registry = SpecRegistry()
    spec = {"name": "x", "userMessage": "When?", "tools": [{"type": "FUNCTION", "name": "handbook"}]}
    registry.register(spec, tools=[RecallByTopic(maya, space.id, name="handbook")])
    with ScriptedModel([calls("handbook", query="when does the office open"), says("At nine.")]) as model:
        outcome = await Agents(registry, maya).invoke("x", model=model)
    assert "nine" in json.dumps(outcome.tool_invocations[0].content)


def test_a_missing_or_ambiguous_function_is_rejected() -> None:
    with pytest.raises(AgentSpecError) as raised:
        SpecRegistry().register(functions(), tools=[weather, tool(name="refunds")(unlisted)])
    assert raised.value.path == "tools[1].name"
    assert "did you mean 'refunds'" in raised.value.problem
    with pytest.raises(AgentSpecError, match="register_agent"):
        SpecRegistry().register(functions())
    with pytest.raises(AgentSpecError, match="Two tools"):
        SpecRegistry().register(functions(), tools=[weather, tool(name="weather")(unlisted)])
    with pytest.raises(AgentSpecError, match="not a tool"):
        SpecRegistry().register(functions(), tools=["weather"])  # type: ignore[list-item]


@pytest.mark.parametrize("tools", [None, 5, weather, "weather", {"weather": weather}, [lambda: 1], [object]])
def test_tools_must_be_a_list_of_functions(tools: Any) -> None:
    with pytest.raises(AgentSpecError) as raised:
        SpecRegistry().register({"name": "x"}, tools=tools)
    assert raised.value.path == "tools"


@pytest.mark.parametrize("name", [[], {}, None, 5])
async def test_a_name_that_is_not_a_string_is_not_found(agents: Agents, name: Any) -> None:
    assert agents.get(name) is None
    with pytest.raises(NotFoundError, match="Registered agents"):
        await agents.invoke(name, {})


def test_registering_a_name_again_requires_replace(registry: SpecRegistry) -> None:
    with pytest.raises(AgentSpecError, match="replace=True"):
        registry.register({"name": "support"})
    assert registry.get("support") is not None
    registry.register({"name": "support", "systemPrompt": "Another."}, replace=True)
    replaced = registry.get("support")
    assert replaced is not None
    assert replaced.system == "Another."
    assert registry.names == ("support",)


def test_registered_agents_are_listed(agents: Agents, registry: SpecRegistry) -> None:
    registry.register("name: second")
    assert [spec.name for spec in agents.list()] == ["support", "second"]
    assert agents.get("second") == registry.get("second")
    assert agents.get("third") is None


async def test_an_unknown_agent_is_not_found(agents: Agents, maya: User) -> None:
    with pytest.raises(NotFoundError, match="'support'"):
        await agents.invoke("suport", {})
    assert await maya.conversations.list() == []


def test_a_rejected_spec_leaves_the_registry_unchanged(registry: SpecRegistry) -> None:
    before = registry.get("support")
    with pytest.raises(AgentSpecError):
        registry.register({"name": "support", "tools": [5]}, replace=True)
    assert registry.get("support") is before
