"""The memory tools, called as a model calls them, on every store."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback import Category, ConfigurationError, InvalidArgumentError, Tellback, Tool, ToolCall, ToolResult, request
from tellback.memory.tools import (
    MAX_CITED_MESSAGES,
    MAX_COMPARED,
    MAX_HITS,
    MAX_RESULT_TEXT,
    Forget,
    RecallByEntity,
    RecallByTopic,
    RecallTimeline,
    Remember,
    clamp_limit,
    memory_tools,
    parse_moment,
)
from tellback.stores import AtomDraft
from tellback.testing import ScriptedModel, calls, says
from tellback.tools import dispatch, dispatch_all
from tellback.tools.schema import InvalidInput
from tellback.types.ids import new_id
from tellback.types.memory import AtomStatus, CategoryKind
from tellback.user import User
from tests.integration.memory.helpers import NOON, Clock


async def call(tool: Tool, **input: Any) -> dict[str, Any]:
    """Return the result of a tool, as the model reads it."""
    result = await run(tool, **input)
    assert not result.is_error, result.content
    found: dict[str, Any] = json.loads(result.content)
    return found


async def error_text(tool: Tool, **input: Any) -> str:
    """Return the error of a tool, as the model reads it."""
    result = await run(tool, **input)
    assert result.is_error, result.content
    return result.content


async def run(tool: Tool, **input: Any) -> ToolResult:
    return await dispatch(ToolCall("call_1", tool.name, input), [tool])


@pytest.fixture
async def maya(tb: Tellback) -> User:
    tb.clock = Clock()
    return tb.user("maya")


@pytest.fixture
async def space_id(maya: User) -> str:
    return (await maya.memory.create_space("daily")).id


# Recall


async def test_recall_by_topic_returns_dated_and_cited_memories(maya: User, space_id: str) -> None:
    conversation = await maya.conversations.create("chat")
    message = await maya.conversations.append_user_message(conversation.id, "I am vegetarian.")
    atom = await maya.memory.add_atom(
        space_id,
        "Maya is vegetarian.",
        ("diet", "PREFERENCE"),
        valid_from="2026-01-01T00:00:00Z",
        source_conversation_id=conversation.id,
        source_message_ids=[message.id],
    )
    await maya.memory.add_atom(space_id, "Maya has two cats.")

    found = await call(RecallByTopic(maya, space_id), query="what does Maya eat, is she vegetarian?", limit=1)

    [memory] = found["memories"]
    assert 0 < memory.pop("score") <= 1
    assert memory == {
        "id": atom.id,
        "text": "Maya is vegetarian.",
        "date": "2026-01-01T00:00:00+00:00",
        "until": None,
        "category": "diet",
        "source": {"conversation_id": conversation.id, "message_ids": [message.id]},
    }


async def test_an_empty_memory_returns_a_note(maya: User, space_id: str) -> None:
    for tool, input in (
        (RecallByTopic(maya, space_id), {"query": "anything"}),
        (RecallByEntity(maya, space_id), {"entity": "Acme"}),
        (RecallTimeline(maya, space_id), {}),
    ):
        found = await call(tool, **input)
        assert found["memories"] == []
        assert "Nothing" in found["note"]


async def test_the_applications_filters_apply_to_recall_by_topic(maya: User, space_id: str) -> None:
    await maya.memory.add_atom(space_id, "Maya likes green tea.", ("drinks", "PREFERENCE"))
    await maya.memory.add_atom(space_id, "Maya likes tea rooms.", ("places", "PREFERENCE"))
    drinks = RecallByTopic(maya.memory, space_id, category_names=["drinks"])
    assert [each["category"] for each in (await call(drinks, query="tea"))["memories"]] == ["drinks"]
    assert (await call(RecallByTopic(maya, space_id, min_score=1.0), query="tea"))["memories"] == []


async def test_the_applications_filters_apply_to_entity_and_timeline(maya: User, space_id: str) -> None:
    acme = await maya.memory.create_entity(space_id, "ORGANIZATION", "Acme")
    for category in ("work", "gossip"):
        await maya.memory.add_atom(space_id, f"Acme, as {category}.", (category, "FACT"), entity_ids=[acme.id])
    entity = RecallByEntity(maya, space_id, category_names=["work"])
    timeline = RecallTimeline(maya, space_id, category_names=["work"])
    for found in (
        await call(entity, entity="Acme"),
        await call(timeline, query="Acme"),
        await call(timeline, entity="Acme"),
        await call(timeline),
    ):
        assert [each["category"] for each in found["memories"]] == ["work"]


async def test_null_is_accepted_for_optional_fields(maya: User, space_id: str) -> None:
    await maya.memory.add_atom(space_id, "Maya likes green tea.")
    found = await call(RecallByTopic(maya, space_id), query="tea", valid_at=None, limit=None)
    assert len(found["memories"]) == 1
    everything = dict.fromkeys(["query", "entity", "from_date", "to_date", "limit"])
    assert len((await call(RecallTimeline(maya, space_id), **everything))["memories"]) == 1
    output = await call(Remember(maya, space_id), text="Tea.", category=None, valid_from=None, replaces=None)
    assert output["status"] == "remembered"
    assert "None" in await error_text(RecallByTopic(maya, space_id), query=None)
    assert "space_id" in await error_text(RecallByTopic(maya, space_id), query="tea", space_id="ms_other")


async def test_a_memory_of_many_messages_cites_a_few(maya: User, space_id: str) -> None:
    conversation = await maya.conversations.create("chat")
    message_ids = [
        (await maya.conversations.append_user_message(conversation.id, f"Tea {n}.")).id
        for n in range(MAX_CITED_MESSAGES + 2)
    ]
    await maya.memory.add_atom(
        space_id, "Maya likes tea.", source_conversation_id=conversation.id, source_message_ids=message_ids
    )
    [memory] = (await call(RecallByTopic(maya, space_id), query="tea"))["memories"]
    assert memory["source"]["message_ids"] == message_ids[:MAX_CITED_MESSAGES]


async def test_recall_by_topic_accepts_another_time(maya: User, space_id: str) -> None:
    old = await maya.memory.add_atom(space_id, "Maya lives in Porto.", valid_from="2024-01-01T00:00:00Z")
    await maya.memory.supersede_atom(old.id, "Maya lives in Lisbon.", valid_from="2025-06-01T00:00:00Z")
    tool = RecallByTopic(maya, space_id)
    now = await call(tool, query="where does Maya live")
    past_output = await call(tool, query="where does Maya live", valid_at="2025-01-01")
    assert [each["text"] for each in now["memories"]] == ["Maya lives in Lisbon."]
    assert [each["text"] for each in past_output["memories"]] == ["Maya lives in Porto."]


async def test_results_stay_small_in_a_large_memory(maya: User, space_id: str) -> None:
    await maya.memory.add_atoms(space_id, [{"text": f"Tea number {n}. " + "leaf " * 2_000} for n in range(40)])
    found = await call(RecallByTopic(maya, space_id), query="tea", limit=1_000_000)
    assert len(found["memories"]) == MAX_HITS
    assert all(len(each["text"]) <= MAX_RESULT_TEXT and each["text"].endswith("[…]") for each in found["memories"])
    assert len((await call(RecallByTopic(maya, space_id), query="tea", limit=-3))["memories"]) == 1
    assert len((await call(RecallByTopic(maya, space_id), query="tea"))["memories"]) == 5
    assert len((await call(RecallByTopic(maya, space_id, limit=30), query="tea"))["memories"]) == 30


async def test_an_entity_is_found_by_name_and_by_id_newest_first(maya: User, space_id: str) -> None:
    acme = await maya.memory.create_entity(space_id, "ORGANIZATION", "Acme Corporation", aliases=["Acme"])
    for day in range(1, 8):
        await maya.memory.add_atom(
            space_id, f"Meeting {day}.", valid_from=f"2026-01-0{day}T09:00:00Z", entity_ids=[acme.id]
        )
    tool = RecallByEntity(maya, space_id)
    by_name, by_id = await call(tool, entity="acme", limit=2), await call(tool, entity=acme.id, limit=2)
    assert by_name == by_id
    assert [each["text"] for each in by_name["memories"]] == ["Meeting 7.", "Meeting 6."]
    assert by_name["more"] == 5
    assert "no entity 'ent_nothing'" in await error_text(tool, entity="ent_nothing")


async def test_a_timeline_shows_what_changed_in_order(maya: User, space_id: str) -> None:
    memory = maya.memory
    first = await memory.add_atom(space_id, "Maya lives in Porto.", valid_from="2024-01-01T00:00:00Z")
    second = await memory.supersede_atom(first.id, "Maya lives in Lisbon.", valid_from="2025-06-01T00:00:00Z")
    await memory.add_atom(
        space_id, "Maya lives with Ana.", valid_from="2025-07-01T00:00:00Z", valid_to="2025-12-01T00:00:00Z"
    )
    await memory.add_atom(space_id, "Maya lives in Rome.", valid_from="2027-01-01T00:00:00Z")

    found = (await call(RecallTimeline(maya, space_id), query="where Maya lives"))["memories"]
    assert [(each["text"], each["status"]) for each in found] == [
        ("Maya lives in Porto.", "superseded"),
        ("Maya lives in Lisbon.", "current"),
        ("Maya lives with Ana.", "over"),
        ("Maya lives in Rome.", "upcoming"),
    ]
    assert found[0]["superseded_by"] == second.id
    assert found[0]["until"] == found[1]["date"]


async def test_a_timeline_is_cut_to_a_period_that_includes_its_last_day(maya: User, space_id: str) -> None:
    for day, text in ((1, "one"), (2, "two"), (3, "three")):
        start = f"2026-02-0{day}T15:00:00Z"
        await maya.memory.add_atom(space_id, text, valid_from=start, valid_to=f"2026-02-0{day}T16:00:00Z")
    found = await call(RecallTimeline(maya, space_id), from_date="2026-02-02", to_date="2026-02-02")
    assert [each["text"] for each in found["memories"]] == ["two"]


@pytest.mark.parametrize("date", ["yesterday", "2026-13-01", "03/01/2026", " ", "0001-01-01T00:00:00+14:00"])
async def test_the_error_for_an_invalid_date_shows_the_format(maya: User, space_id: str, date: str) -> None:
    timeline, topic = RecallTimeline(maya, space_id), RecallByTopic(maya, space_id)
    for error in (
        await error_text(timeline, from_date=date),
        await error_text(timeline, to_date=date),
        await error_text(topic, query="tea", valid_at=date),
        await error_text(Remember(maya, space_id), text="Tea.", valid_from=date),
    ):
        assert "ISO 8601" in error
        assert "2026-03-01" in error
    assert await maya.memory.list_atoms(space_id) == []


async def test_invalid_arguments_are_reported_to_the_model(maya: User, space_id: str) -> None:
    topic = RecallByTopic(maya, space_id)
    assert "query" in await error_text(topic)
    assert "non-empty" in await error_text(topic, query="   ")
    assert "space_id" in await error_text(topic, query="tea", space_id="ms_other")
    assert "is after" in await error_text(RecallTimeline(maya, space_id), from_date="2026-02-02", to_date="2026-02-01")


async def test_a_tool_for_a_deleted_space_returns_an_error(maya: User, space_id: str) -> None:
    await maya.memory.delete_space(space_id)
    inputs: list[dict[str, Any]] = [{"query": "tea"}, {"entity": "tea"}, {}, {"text": "tea"}, {"ids": ["atom_1"]}]
    for tool, input in zip(memory_tools(maya, space_id, write=True), inputs, strict=True):
        result = await run(tool, **input)
        if tool.name == "forget":
            assert json.loads(result.content)["forgotten"] == 0
        else:
            assert "NotFoundError" in result.content
            assert "Correct them" not in result.content  # the model did not cause it


def test_a_tool_needs_a_memory_and_a_space() -> None:
    maya = Tellback(":memory:").user("maya")
    with pytest.raises(ConfigurationError, match=r"user\.memory"):
        RecallByTopic("maya", "ms_1")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="space_id"):
        Remember(maya, "")
    with pytest.raises(InvalidArgumentError, match="limit"):
        RecallByEntity(maya, "ms_1", limit=0)
    with pytest.raises(InvalidArgumentError, match="min_score"):
        RecallByTopic(maya, "ms_1", min_score=7)


@pytest.mark.parametrize("kind", [RecallByTopic, RecallByEntity, RecallTimeline, Remember, Forget])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("timeout", -1), ("timeout", 0), ("timeout", float("nan")), ("timeout", "5"), ("timeout", True)),
        *(("description", 5), ("description", ""), ("name", 5), ("name", "")),
    ],
)
def test_invalid_tool_options_raise_an_error(kind: Any, field: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=field):
        kind(Tellback(":memory:").user("maya"), "ms_1", **{field: value})


@pytest.mark.parametrize("kind", [RecallByTopic, RecallByEntity, RecallTimeline])
def test_an_empty_list_of_categories_is_rejected(kind: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="category_names is empty"):
        kind(Tellback(":memory:").user("maya"), "ms_1", category_names=[])


def test_tools_of_one_kind_share_their_input_check() -> None:
    maya = Tellback(":memory:").user("maya")
    assert RecallByTopic(maya, "ms_1").bind is RecallByTopic(maya, "ms_2", name="other", description="Other.").bind
    assert RecallByTopic(maya, "ms_1").bind is not RecallByTopic(maya, "ms_1", limit=7).bind


def test_the_model_cannot_choose_the_user_or_space() -> None:
    for tool in memory_tools(Tellback(":memory:").user("maya"), "ms_secret", write=True):
        text = json.dumps([tool.description, dict(tool.parameters)])
        assert "ms_secret" not in text
        assert not {"space_id", "user_id", "tenant_id"} & set(tool.parameters["properties"])
        assert tool.parameters["additionalProperties"] is False
    assert len(memory_tools(Tellback(":memory:").user("maya"), "ms_secret")) == 3


# Remember


async def test_remember_cites_the_message_being_answered(maya: User, space_id: str) -> None:
    conversation = await maya.conversations.create("chat")
    message = await maya.conversations.append_user_message(conversation.id, "I am vegetarian since January.")
    tool = Remember(maya, space_id)
    with request.bind(conversation_id=conversation.id, message_id=message.id):
        output = await call(tool, text="Maya is vegetarian.", category="PREFERENCE", valid_from="2026-01-01")
    assert output["status"] == "remembered"
    [atom] = await maya.memory.list_atoms(space_id)
    assert (atom.id, atom.text) == (output["memory"]["id"], "Maya is vegetarian.")
    assert (atom.category.name, atom.category.kind) == ("preference", "PREFERENCE")
    assert atom.valid_from == datetime(2026, 1, 1, tzinfo=UTC)
    assert (atom.source_conversation_id, atom.source_message_ids) == (conversation.id, (message.id,))
    assert output["memory"]["source"] == {"conversation_id": conversation.id, "message_ids": [message.id]}


async def test_another_users_conversation_is_not_cited(tb: Tellback, maya: User, space_id: str) -> None:
    bob = tb.user("bob")
    conversation = await bob.conversations.create("chat")
    message = await bob.conversations.append_user_message(conversation.id, "Tell Maya hello.")
    with request.bind(conversation_id=conversation.id, message_id=message.id):
        output = await call(Remember(maya, space_id), text="Bob says hello.")
    assert output["memory"]["source"] is None


async def test_outside_a_turn_nothing_is_cited(maya: User, space_id: str) -> None:
    output = await call(Remember(maya, space_id), text="Maya has two cats.")
    assert output["memory"]["source"] is None
    assert output["memory"]["date"] == NOON.isoformat(timespec="seconds")
    assert output["memory"]["category"] == "fact"


async def test_a_duplicate_is_reported_as_known(maya: User, space_id: str) -> None:
    await maya.memory.add_atoms(space_id, [{"text": f"Maya has {n} cats and a dog."} for n in range(30)])
    tool = Remember(maya, space_id)
    first = await call(tool, text="Maya has two cats.")
    repeated_output = await call(tool, text="  maya has TWO cats")
    assert (first["status"], repeated_output["status"]) == ("remembered", "known already")
    assert repeated_output["memory"]["id"] == first["memory"]["id"]
    assert (await call(tool, text="Maya has no cats."))["status"] == "remembered"


async def test_a_duplicate_is_found_among_many_similar_memories(maya: User, space_id: str) -> None:
    first = await maya.memory.add_atom(space_id, "Tea.", importance=1, valid_from="2020-01-01T00:00:00Z")
    similar_atoms = [{"text": f"Tea, tea and tea {n}.", "importance": 5} for n in range(MAX_COMPARED - 2)]
    await maya.memory.add_atoms(space_id, similar_atoms)
    tool = Remember(maya, space_id)
    assert (await call(tool, text="tea"))["memory"]["id"] == first.id


async def test_a_duplicate_is_found_in_a_large_space_by_similarity(maya: User, space_id: str) -> None:
    first = await maya.memory.add_atom(space_id, "Maya plays the cello.")
    await maya.memory.add_atoms(space_id, [{"text": f"Maya likes tea {n}."} for n in range(MAX_COMPARED)])
    assert (await call(Remember(maya, space_id), text="Maya plays the CELLO"))["memory"]["id"] == first.id


async def test_a_memory_repeated_in_one_reply_is_stored_once(maya: User, space_id: str) -> None:
    tools = [Remember(maya, space_id), Remember(maya.memory, space_id, name="note")]
    tool_calls = [ToolCall(f"c{n}", tools[n % 2].name, {"text": "Maya has two cats."}) for n in range(6)]
    results = await dispatch_all(tool_calls, tools)
    assert sorted(json.loads(result.content)["status"] for result in results) == ["known already"] * 5 + ["remembered"]
    assert len(await maya.memory.list_atoms(space_id)) == 1


async def test_the_same_event_on_another_day_is_another_memory(maya: User, space_id: str) -> None:
    tool = Remember(maya, space_id)
    days = ["2026-02-01", "2026-02-02", "2026-02-02T18:00:00Z"]
    outputs = [await call(tool, text="Maya ran 5 km.", category="EPISODE", valid_from=day) for day in days]
    assert [each["status"] for each in outputs] == ["remembered", "remembered", "known already"]


async def test_a_forgotten_memory_can_be_remembered_again(maya: User, space_id: str) -> None:
    tool = Remember(maya, space_id)
    first = await call(tool, text="Maya has two cats.")
    await call(Forget(maya, space_id), ids=[first["memory"]["id"]])
    assert (await call(tool, text="Maya has two cats."))["status"] == "remembered"


async def test_a_correction_supersedes_the_old_memory(maya: User, space_id: str) -> None:
    tool = Remember(maya, space_id)
    old = await maya.memory.add_atom(
        space_id, "Maya lives in Porto.", ("home", "FACT"), 5, valid_from="2024-01-01T00:00:00Z"
    )
    output = await call(tool, text="Maya lives in Lisbon.", valid_from="2026-01-01", replaces=old.id)
    assert output["replaced"] == old.id
    [atom] = await maya.memory.list_atoms(space_id)
    assert (atom.text, atom.supersedes, atom.category.name, atom.importance) == (
        "Maya lives in Lisbon.",
        old.id,
        "home",
        5,
    )
    assert "was already replaced by " + atom.id in await error_text(tool, text="Maya lives in Rome.", replaces=old.id)
    unchanged_output = await call(tool, text="Maya lives in Lisbon", replaces=atom.id)
    assert unchanged_output["status"] == "known already"


async def test_only_a_memory_of_this_space_can_be_replaced(tb: Tellback, maya: User, space_id: str) -> None:
    others = await create_other_users_atoms(tb, maya)
    tool = Remember(maya, space_id)
    for id in [*others, "atom_nothing", "", "\x00"]:
        assert "no such memory" in await error_text(tool, text="Now mine.", replaces=id)
    assert await maya.memory.list_atoms(space_id) == []
    await assert_unchanged(tb, others)


async def test_a_pattern_can_be_corrected(tb: Tellback, maya: User, space_id: str) -> None:
    pattern = AtomDraft(new_id("atom"), "Maya runs on Sundays.", Category("pattern", CategoryKind.PATTERN), NOON)
    [found] = await tb.store.memories.add(maya.scope, space_id, [pattern], now=NOON)
    output = await call(Remember(maya, space_id), text="Maya runs on Mondays.", replaces=found.id)
    assert (output["replaced"], output["memory"]["category"]) == (found.id, "fact")


async def test_invalid_memories_are_rejected(maya: User, space_id: str) -> None:
    tool = Remember(maya, space_id)
    assert "PATTERN" in await error_text(tool, text="Maya runs on Sundays.", category="PATTERN")
    assert "too long" in await error_text(tool, text="x" * 3_000)
    assert "text must be a non-empty string" in await error_text(tool, text="  ")
    assert "cannot be stored" in await error_text(tool, text="Maya\x00")
    assert await maya.memory.list_atoms(space_id) == []


# Forget


async def test_a_forgotten_memory_is_not_recalled(maya: User, space_id: str) -> None:
    atom = await maya.memory.add_atom(space_id, "Maya has two cats.")
    output = await call(Forget(maya, space_id), ids=[atom.id, atom.id, "atom_nothing"])
    assert output == {
        "forgotten": 1,
        "results": [{"id": atom.id, "status": "forgotten"}, {"id": "atom_nothing", "status": "no such memory"}],
    }
    assert (await call(RecallByTopic(maya, space_id), query="cats"))["memories"] == []
    assert (await call(RecallTimeline(maya, space_id)))["memories"] == []
    stored = await maya.memory.get_atom(atom.id)
    assert stored is not None
    assert stored.status is AtomStatus.ARCHIVED
    repeated_output = await call(Forget(maya, space_id), ids=[atom.id])
    assert repeated_output["results"] == [{"id": atom.id, "status": "no such memory"}]


async def test_memories_of_another_space_or_user_cannot_be_forgotten(tb: Tellback, maya: User, space_id: str) -> None:
    others = await create_other_users_atoms(tb, maya)
    own_atom = await maya.memory.add_atom(space_id, "Mine.")
    output = await call(Forget(maya, space_id), ids=[*others, own_atom.id])
    assert [each["status"] for each in output["results"]] == ["no such memory"] * len(others) + ["forgotten"]
    await assert_unchanged(tb, others)


async def test_forgetting_can_need_approval(maya: User, space_id: str) -> None:
    atom = await maya.memory.add_atom(space_id, "Maya has two cats.")
    conversation = await maya.conversations.create("chat")
    tool = Forget(maya, space_id, requires_approval=True)
    model = ScriptedModel([calls("forget", ids=[atom.id]), says("Forgotten.")])
    stopped = await maya.conversations.run_turn(conversation.id, model, "Forget my cats.", tools=[tool])
    assert stopped.status == "approval"
    assert len(await maya.memory.list_atoms(space_id)) == 1
    await maya.conversations.run_turn(conversation.id, model, tools=[tool], approvals={stopped.pending[0].id: True})
    assert await maya.memory.list_atoms(space_id) == []


# Isolation


async def create_other_users_atoms(tb: Tellback, maya: User) -> list[str]:
    """Return ids that a tool for one of Maya's spaces must not reach: in Maya's other space, of another user, of
    another tenant."""
    users = [maya, tb.user("bob"), tb.user("maya", tenant_id="acme"), tb.user("maya", app_id="other")]
    found = []
    for user in users:
        space = await user.memory.create_space("elsewhere")
        found.append((await user.memory.add_atom(space.id, "Elsewhere, tea is a secret.")).id)
    return found


async def assert_unchanged(tb: Tellback, ids: list[str]) -> None:
    users = [tb.user("maya"), tb.user("bob"), tb.user("maya", tenant_id="acme"), tb.user("maya", app_id="other")]
    for user, id in zip(users, ids, strict=True):
        atom = await user.memory.get_atom(id)
        assert atom is not None
        assert (atom.status, atom.superseded_by, atom.text) == (AtomStatus.ACTIVE, None, "Elsewhere, tea is a secret.")


async def test_recall_stays_in_its_space(tb: Tellback, maya: User, space_id: str) -> None:
    await create_other_users_atoms(tb, maya)
    for tool, input in zip(
        memory_tools(maya, space_id), ({"query": "tea secret"}, {"entity": "tea"}, {"query": "tea"}), strict=True
    ):
        assert (await call(tool, **input))["memories"] == []


async def test_a_tool_for_another_users_space_reads_and_writes_nothing(tb: Tellback, maya: User) -> None:
    for owner in (tb.user("bob"), tb.user("maya", tenant_id="acme"), tb.user("maya", app_id="other")):
        space = await owner.memory.create_space("private")
        atom = await owner.memory.add_atom(space.id, "The secret is tea.")
        topic, entity, timeline, remember, forget = memory_tools(maya, space.id, write=True)
        for output in (
            await error_text(topic, query="secret tea"),
            await error_text(entity, entity="tea"),
            await error_text(timeline),
            await error_text(remember, text="The secret is coffee."),
            await error_text(remember, text="The secret is coffee.", replaces=atom.id),
        ):
            assert "The secret is tea" not in output
        assert (await call(forget, ids=[atom.id]))["forgotten"] == 0
        assert await owner.memory.list_atoms(space.id) == [atom]


# In turns


async def test_a_model_recalls_in_the_middle_of_a_turn(maya: User, space_id: str) -> None:
    await maya.memory.add_atom(space_id, "Maya is vegetarian and allergic to peanuts.")
    conversation = await maya.conversations.create("chat")
    script = [
        calls("recall_by_topic", query="Maya's dietary restrictions"),
        says("You are vegetarian, and allergic to peanuts.", expect="allergic to peanuts"),
    ]
    with ScriptedModel(script) as model:
        outcome = await maya.conversations.run_turn(
            conversation.id, model, "Did I tell you what I cannot eat?", tools=memory_tools(maya, space_id)
        )
    assert outcome.text == "You are vegetarian, and allergic to peanuts."
    assert [each.is_error for each in outcome.tool_invocations] == [False]


async def test_a_memory_stored_during_a_turn_cites_the_users_message(maya: User, space_id: str) -> None:
    conversation = await maya.conversations.create("chat")
    tools = memory_tools(maya, space_id, write=True)
    model = ScriptedModel([calls("remember", text="Maya has two cats."), says("Noted."), says("Bye.")])
    outcome = await maya.conversations.run_turn(conversation.id, model, "I have two cats.", tools=tools)
    await maya.conversations.run_turn(conversation.id, model, "Bye.", tools=tools)
    [atom] = await maya.memory.list_atoms(space_id)
    user_message = outcome.appended_messages[0]
    assert (atom.source_conversation_id, atom.source_message_ids) == (conversation.id, (user_message.id,))


def test_the_tools_work_with_the_synchronous_api() -> None:
    with Tellback(":memory:") as tb:
        maya: Any = tb.user("maya")
        space = maya.memory.create_space("daily")
        conversation = maya.conversations.create("chat")
        script = [calls("remember", text="Maya has two cats."), calls("recall_by_topic", query="cats"), says("Two.")]
        with ScriptedModel(script) as model:
            tools = memory_tools(maya, space.id, write=True)
            outcome = maya.conversations.run_turn(conversation.id, model, "I have two cats.", tools=tools)
        assert [each.is_error for each in outcome.tool_invocations] == [False, False]


# Values


@given(st.one_of(st.none(), st.integers(), st.floats(-1e9, 1e9)), st.integers(1, 50))
def test_a_limit_is_always_within_bounds(requested: float | None, usual: int) -> None:
    assert 1 <= clamp_limit(requested, usual) <= max(usual, MAX_HITS)


@given(st.datetimes(timezones=st.just(UTC)))
def test_iso_dates_and_times_are_parsed(moment: datetime) -> None:
    assert parse_moment("at", moment.isoformat()) == moment
    assert parse_moment("at", moment.replace(tzinfo=None).isoformat()) == moment
    day, end = (
        parse_moment("at", moment.date().isoformat()),
        parse_moment("at", moment.date().isoformat(), at_end=True),
    )
    assert day is not None
    assert end is not None
    assert day <= moment <= end


@given(st.text())
def test_other_texts_are_not_dates(text: str) -> None:
    try:
        found = parse_moment("at", text)
    except InvalidInput:
        return
    assert found is not None
    assert found.tzinfo is UTC


async def test_tools_of_two_spaces_run_concurrently(maya: User) -> None:
    spaces = [await maya.memory.create_space(name) for name in ("work", "home")]
    tools = [Remember(maya, space.id, name=f"note_{space.name}") for space in spaces]
    await asyncio.gather(*(call(tool, text=f"Fact {n}.") for tool in tools for n in range(5)))
    for space in spaces:
        assert len(await maya.memory.list_atoms(space.id)) == 5
