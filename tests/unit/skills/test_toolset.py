"""The tools that let a model find, read and apply skills."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.errors import ConfigurationError
from tellback.skills import (
    MAX_BODY,
    Skill,
    SkillResolver,
    builtin_apply_skill,
    builtin_list_skills,
    builtin_read_skill,
    builtin_search_skills,
    builtins,
    builtins_with_resolver,
    in_memory_resolver,
    searchable_resolver,
)
from tellback.skills.loader import MAX_REQUIRED_SKILLS
from tellback.tools import Tool, ToolCall, ToolResult, dispatch

TONE = Skill("tone", "Our voice", when=["reply"], body="Be warm.")


async def use(tools: Iterable[Tool], name: str, /, **input: Any) -> ToolResult:
    return await dispatch(ToolCall("c1", name, input), list(tools))


def seen_by(ctx_of: Callable[[dict[str, Any]], Any]) -> Skill:
    return Skill("look", "Shows its context", body_fn=lambda ctx: json.dumps(ctx_of(ctx)))


async def test_the_three_tools_work_for_a_list() -> None:
    tools = builtins([TONE])
    assert [tool.name for tool in tools] == ["list_skills", "read_skill", "apply_skill"]
    result = await use(tools, "list_skills")
    assert result.value == [{"name": "tone", "description": "Our voice", "when": ["reply"]}]
    assert (await use(tools, "read_skill", name="tone")).content == "Be warm."
    assert (await use(tools, "apply_skill", name="tone", ctx=None)).content == "Be warm."
    assert (await use(tools, "apply_skill", name="tone", ctx={"x": 1})).content == "Be warm."


async def test_a_searchable_resolver_adds_search_skills() -> None:
    tools = builtins_with_resolver(searchable_resolver([TONE]))
    assert [tool.name for tool in tools][3:] == ["search_skills"]
    assert (await use(tools, "list_skills")).value == []
    assert (await use(tools, "search_skills", query="REPLY")).value[0]["name"] == "tone"
    assert (await use(tools, "search_skills", query="reply", limit=-3)).value[0]["name"] == "tone"


async def test_each_tool_can_be_created_separately() -> None:
    for source in ([TONE], searchable_resolver([TONE], always_on=["tone"])):
        tools = [builtin_list_skills(source), builtin_read_skill(source), builtin_apply_skill(source)]
        tools.append(builtin_search_skills(source))
        assert (await use(tools, "list_skills")).value == (await use(tools, "search_skills", query="voice")).value
        assert (await use(tools, "read_skill", name="tone")).content == "Be warm."
        assert (await use(tools, "apply_skill", name="tone")).content == "Be warm."
    with pytest.raises(ConfigurationError, match="search"):
        builtin_search_skills(in_memory_resolver([TONE]))


async def test_the_resolver_is_called_at_every_tool_call() -> None:
    skills: list[Skill] = []
    tools = builtins_with_resolver(SkillResolver(lambda ctx: list(skills), lambda name: None))
    assert (await use(tools, "list_skills")).value == []
    skills.append(TONE)
    assert len((await use(tools, "list_skills")).value) == 1


async def test_the_error_for_an_unknown_skill_tells_how_to_find_skills() -> None:
    wrong = await use(builtins([TONE]), "read_skill", name="tune")
    assert wrong.is_error
    assert "tune" in wrong.content
    assert "list_skills" in wrong.content
    wrong = await use(builtins_with_resolver(searchable_resolver([TONE])), "apply_skill", name="a\nb")
    assert wrong.is_error
    assert "search_skills" in wrong.content


async def test_read_skill_uses_the_skill_context_and_apply_skill_both_contexts() -> None:
    tools = builtins([seen_by(dict)], {"attachments": ["receipt.pdf"]})
    result = await use(tools, "read_skill", name="look")
    applied = await use(tools, "apply_skill", name="look", ctx={"attachments": ["forged"], "topic": "expense"})
    assert json.loads(result.content) == {"attachments": ["receipt.pdf"]}
    assert json.loads(applied.content) == {"attachments": ["receipt.pdf"], "topic": "expense"}


json_values = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5)
contexts = st.dictionaries(st.sampled_from(["attachments", "sender", "ctx", "self", "", "a b"]), json_values)


@given(contexts, contexts)
async def test_skill_context_keys_take_precedence(from_model: dict[str, Any], from_harness: Mapping[str, Any]) -> None:
    received: list[dict[str, Any]] = []
    received_kwargs: list[dict[str, Any]] = []

    async def keep_whole(ctx: dict[str, Any]) -> str:
        received.append(ctx)
        return ""

    async def keep_named(attachments: Any = "missing", *, sender: Any = "missing", **options: Any) -> str:
        received_kwargs.append({"attachments": attachments, "sender": sender, **options})
        return ""

    skills = [Skill("whole", "", body_fn=keep_whole), Skill("named", "", body_fn=keep_named)]
    tools = builtins(skills, from_harness)
    for skill in skills:
        assert not (await use(tools, "apply_skill", name=skill.name, ctx=from_model)).is_error
    expected = {**from_model, **from_harness}
    assert received == [expected]
    assert received_kwargs == [{"attachments": "missing", "sender": "missing", **expected}]


async def test_a_body_function_cannot_change_the_skill_context() -> None:
    def forge(ctx: dict[str, Any]) -> str:
        ctx["sender"] = "someone else"
        return "done"

    tools = builtins([Skill("forge", "", body_fn=forge), seen_by(dict)], {"sender": "maya"})
    await use(tools, "apply_skill", name="forge")
    assert json.loads((await use(tools, "read_skill", name="look")).content) == {"sender": "maya"}


@pytest.mark.parametrize("context", [["attachments"], "x", {1: 2}])
def test_skill_context_must_be_a_mapping_with_string_keys(context: Any) -> None:
    with pytest.raises(ConfigurationError, match="skill_context"):
        builtins([TONE], context)


async def test_required_skills_come_first_and_once_with_their_name() -> None:
    opened: list[str] = []
    skills = [
        Skill("trip", "", body="T", requires=["flight", "hotel"]),
        Skill("flight", "", body="F", requires=["money"]),
        Skill("hotel", "", body="H", requires=["money"]),
        Skill("money", "", body="M"),
    ]
    tools = builtins(skills, on_open=lambda skill: opened.append(skill.name))
    result = await use(tools, "read_skill", name="trip")
    assert result.content == "# Skill: money\n\nM\n\n# Skill: flight\n\nF\n\n# Skill: hotel\n\nH\n\n# Skill: trip\n\nT"
    assert opened == ["money", "flight", "hotel", "trip"]


@pytest.mark.parametrize(
    ("requires", "chain"),
    [
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, "a → b → c → a"),
        ({"a": ["a"]}, "a → a"),
        ({"a": ["b"], "b": ["x"]}, "a → b → x"),
    ],
)
async def test_unknown_or_circular_requirements_are_reported_with_their_chain(
    requires: dict[str, list[str]], chain: str
) -> None:
    opened: list[Skill] = []
    tools = builtins([Skill(name, "", requires=needs) for name, needs in requires.items()], on_open=opened.append)
    result = await use(tools, "read_skill", name="a")
    assert result.is_error
    assert chain in result.content
    assert opened == []


async def test_endless_requirements_are_rejected() -> None:
    def read(name: str) -> Skill:
        return Skill(name, "", requires=[str(int(name) + 1)])

    result = await use(builtins_with_resolver(SkillResolver(lambda ctx: [], read)), "read_skill", name="0")
    assert result.is_error
    assert f"more than {MAX_REQUIRED_SKILLS}" in result.content


async def test_a_skill_known_by_two_names_is_read_once() -> None:
    pool = {"a": Skill("a", "", body="A", requires=["b", "B"]), "b": Skill("b", "", body="B")}
    resolver = SkillResolver(lambda ctx: [], lambda name: pool.get(name.lower()))
    result = await use(builtins_with_resolver(resolver), "read_skill", name="a")
    assert result.content.count("# Skill: b") == 1


async def test_several_skills_together_respect_the_length_limit() -> None:
    skills = [Skill(name, "", body=name * MAX_BODY, requires=needs) for name, needs in (("a", ["b"]), ("b", []))]
    result = await use(builtins(skills), "read_skill", name="a")
    assert len(result.content) < MAX_BODY + 500
    assert result.content.count("[Truncated") == 2


async def test_errors_of_body_functions_are_returned_to_the_model() -> None:
    def fails() -> str:
        raise LookupError("no such template")

    opened: list[Skill] = []
    skills = [Skill("fails", "", body_fn=fails), Skill("number", "", body_fn=lambda: 3)]
    tools = builtins(skills, on_open=opened.append)
    assert "no such template" in (await use(tools, "read_skill", name="fails")).content
    assert (await use(tools, "apply_skill", name="number")).is_error
    assert opened == []


async def test_a_body_function_that_hangs_times_out() -> None:
    released = threading.Event()

    async def sleeps() -> str:
        await asyncio.Event().wait()
        return ""

    def blocks() -> str:
        released.wait()
        return "too late"

    opened: list[Skill] = []
    skills = [Skill("sleeps", "", body_fn=sleeps), Skill("blocks", "", body_fn=blocks)]
    tools = builtins(skills, on_open=opened.append, timeout=0.05)
    try:
        for name in ("sleeps", "blocks"):
            result = await use(tools, "read_skill", name=name)
            assert result.is_error
            assert "did not finish" in result.content
    finally:
        released.set()
    assert opened == []
    assert all(tool.timeout == 30 for tool in builtins(skills))


async def test_invalid_resolver_results_are_returned_to_the_model_as_errors() -> None:
    tools = builtins_with_resolver(SkillResolver(lambda ctx: 3, lambda name: "text", lambda query, opts: None))
    for call in (("list_skills", {}), ("read_skill", {"name": "x"}), ("search_skills", {"query": "x"})):
        assert "SkillResolver" in (await use(tools, call[0], **call[1])).content
