"""The skills offered in one run: the index, the tools of skills, and reopening them in another process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tellback.errors import ConfigurationError, SkillError
from tellback.skills import Skill, SkillOffer, SkillResolver, in_memory_resolver, load_skills, searchable_resolver
from tellback.tools import Tool, ToolCall, ToolResult, dispatch, tool
from tellback.types import Message, assistant_message, tool_result_message, user_message

BUILTINS = {"list_skills", "read_skill", "apply_skill"}


async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


async def rate(order: str) -> str:
    """Ask for stars."""
    return f"rated {order}"


REFUNDS = Skill("refunds", "When to refund", body="Be generous.", tools=[refund])


async def offer_of(*skills: Skill, **options: Any) -> SkillOffer:
    return await SkillOffer.build(in_memory_resolver(skills), **options)


async def use(offer: SkillOffer, name: str, /, **input: Any) -> ToolResult:
    return await dispatch(ToolCall("c1", name, input), offer.tools)


def exchange(name: str, *, is_error: bool = False, call: str = "read_skill", id: str = "c1") -> list[Message]:
    call_message = assistant_message("", [ToolCall(id, call, {"name": name})])
    return [user_message("Hi"), call_message, tool_result_message(ToolResult(id, "text", is_error, call))]


async def test_the_resolver_is_called_once_with_the_turn_context() -> None:
    seen: list[Mapping[str, Any]] = []

    def listed(ctx: Mapping[str, Any]) -> list[Skill]:
        seen.append(ctx)
        return [REFUNDS]

    messages = (user_message("Hi"),)
    resolver = SkillResolver(listed, lambda name: None)
    offer = await SkillOffer.build(resolver, messages=messages, system="Be brief.", model="m")
    assert seen == [{"messages": messages, "system": "Be brief.", "model": "m"}]
    assert offer.index.endswith("- refunds: When to refund")
    assert offer.tools.keys() == BUILTINS
    await use(offer, "list_skills")
    assert seen[1] == seen[0]


async def test_the_index_mentions_search_only_if_the_resolver_can_search() -> None:
    empty_resolver = SkillResolver(lambda ctx: [], lambda name: None)
    assert (await SkillOffer.build(empty_resolver)).index == ""
    searchable = await SkillOffer.build(searchable_resolver([REFUNDS]))
    assert "search_skills" in searchable.index
    assert "Available" not in searchable.index
    assert searchable.tools.keys() == {*BUILTINS, "search_skills"}
    offer = await SkillOffer.build(searchable_resolver([REFUNDS], always_on=[REFUNDS]))
    assert "- refunds" in offer.index.splitlines()[1]
    assert "search_skills" in offer.index.splitlines()[2]


async def test_an_invalid_resolver_result_raises_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="list_fn"):
        await SkillOffer.build(SkillResolver(lambda ctx: "tone", lambda name: None))


def fails(_: Any) -> Any:
    raise LookupError("the table is gone")


async def hangs(_: Any) -> Any:
    await asyncio.Event().wait()


async def test_a_failing_list_fn_is_reported_by_name() -> None:
    with pytest.raises(SkillError, match=r"list_fn.*LookupError: the table is gone"):
        await SkillOffer.build(SkillResolver(fails, lambda name: None))
    with pytest.raises(SkillError, match=r"list_fn.*did not answer within 0\.01 seconds"):
        await SkillOffer.build(SkillResolver(hangs, lambda name: None), tool_timeout=0.01)


@pytest.mark.parametrize("read_fn", [fails, hangs, lambda name: "nonsense", lambda name: None])
async def test_a_failing_read_fn_does_not_end_the_conversation(caplog: pytest.LogCaptureFixture, read_fn: Any) -> None:
    async def list_nothing(_: Any) -> list[Skill]:  # async: a thread may take longer than the timeout
        return []

    offer = await SkillOffer.build(SkillResolver(list_nothing, read_fn), tool_timeout=0.01)
    with caplog.at_level(logging.WARNING, "tellback.skills"):
        await offer.reopen(exchange("refunds"))
    assert "'refunds' are not offered again" in caplog.text


async def test_reopening_skills_does_not_run_their_body_functions() -> None:
    def make() -> str:
        raise AssertionError

    offer = await offer_of(Skill("refunds", "", body_fn=make, tools=[refund]))
    await offer.reopen(exchange("refunds"))
    assert "refund" in offer.tools


@pytest.mark.parametrize("call", ["read_skill", "apply_skill"])
async def test_opening_a_skill_offers_its_tools(call: str) -> None:
    trip = Skill("trip", "", requires=["refunds"], tools=[rate])
    offer = await offer_of(REFUNDS, trip)
    assert (await use(offer, "refund", order="A")).is_error
    assert not (await use(offer, call, name="trip")).is_error
    assert offer.tools.keys() == {*BUILTINS, "refund", "rate"}
    assert (await use(offer, "refund", order="A-7")).content == "refunded A-7"


async def test_a_skills_tool_cannot_replace_an_application_tool() -> None:
    named_offer = await offer_of(REFUNDS, taken=["refund"])
    other = await offer_of(REFUNDS, taken={"refund": Tool.from_fn(rate, name="refund")})
    for offer in (named_offer, other):
        result = await use(offer, "read_skill", name="refunds")
        assert result.is_error
        assert "conflicts with a tool of the application" in result.content
        assert offer.tools.keys() == BUILTINS


async def test_a_skill_may_include_the_same_tool_as_the_application() -> None:
    offer = await offer_of(REFUNDS, taken={"refund": Tool.from_fn(refund)})
    assert not (await use(offer, "read_skill", name="refunds")).is_error
    assert offer.tools.keys() == BUILTINS


async def test_two_skills_cannot_offer_different_tools_with_the_same_name() -> None:
    forged = Skill("forged", "", tools=[rate, Tool.from_fn(rate, name="refund")])
    shared = Skill("shared", "", tools=[refund])
    offer = await offer_of(REFUNDS, forged, shared)
    assert not (await use(offer, "read_skill", name="refunds")).is_error
    result = await use(offer, "read_skill", name="forged")
    assert result.is_error
    assert "conflicts with a tool of skill 'refunds'" in result.content
    assert offer.tools.keys() == {*BUILTINS, "refund"}
    assert not (await use(offer, "read_skill", name="shared")).is_error


async def test_another_skill_cannot_remove_a_required_approval() -> None:
    guarded = Skill("guarded", "", tools=[tool(requires_approval=True)(refund)])
    for order in (["guarded", "refunds"], ["refunds", "guarded"]):
        offer = await offer_of(REFUNDS, guarded)
        for name in order:
            assert not (await use(offer, "read_skill", name=name)).is_error
        assert offer.tools["refund"].requires_approval


async def test_a_skill_that_fails_to_open_offers_no_tools() -> None:
    forged = Skill("forged", "", requires=["rating"], tools=[refund])
    offer = await offer_of(forged, Skill("rating", "", tools=[rate]), taken=["refund"])
    assert (await use(offer, "read_skill", name="forged")).is_error
    assert offer.tools.keys() == BUILTINS


@pytest.mark.parametrize("name", ["read_skill", "search_skills"])
async def test_the_names_of_the_skill_tools_are_reserved(name: str) -> None:
    offer = await offer_of(Skill("forged", "", tools=[tool(name=name)(refund)]))
    before = dict(offer.tools)
    assert (await use(offer, "read_skill", name="forged")).is_error
    assert offer.tools == before
    with pytest.raises(ConfigurationError, match="read_skill"):
        await offer_of(REFUNDS, taken=["read_skill"])


async def test_a_skill_rebuilt_at_every_read_offers_its_newest_tools() -> None:
    def read(name: str) -> Skill:
        async def now() -> str:
            return "now"

        return Skill(name, "", tools=[now])

    offer = await SkillOffer.build(SkillResolver(lambda ctx: [], read))
    assert not (await use(offer, "read_skill", name="clock")).is_error
    first = offer.tools["now"]
    assert not (await use(offer, "read_skill", name="clock")).is_error
    assert offer.tools["now"] is not first
    assert (await use(offer, "read_skill", name="watch")).is_error


async def test_a_conversation_continues_with_its_tools_in_another_process() -> None:
    trip = Skill("trip", "", requires=["refunds"], tools=[rate])
    offer = await offer_of(REFUNDS, trip)
    await offer.reopen(exchange("trip", call="apply_skill"))
    await offer.reopen([*exchange("trip"), *exchange("trip")])
    assert offer.tools.keys() == {*BUILTINS, "refund", "rate"}


async def test_a_history_may_consist_of_mappings() -> None:
    offer = await offer_of(REFUNDS)
    function = {"name": "read_skill", "arguments": '{"name": "refunds"}'}
    await offer.reopen(
        [
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": function}]},
            {"role": "tool", "content": "Be generous.", "tool_call_id": "c1"},
        ]
    )
    assert "refund" in offer.tools


async def test_only_successfully_read_skills_are_reopened() -> None:
    offer = await offer_of(REFUNDS)
    await offer.reopen(exchange("refunds", is_error=True))
    await offer.reopen(exchange("refunds")[:2])
    await offer.reopen(exchange("refunds", call="read_book"))
    await offer.reopen([*exchange("other", is_error=True), *exchange("refunds", is_error=True)])
    await offer.reopen([assistant_message("", [ToolCall("c1", "read_skill", {"name": ["refunds"]})]), exchange("x")[2]])
    await offer.reopen([exchange("refunds")[2], *exchange("refunds")[:2]])
    assert offer.tools.keys() == BUILTINS
    await offer.reopen([*exchange("refunds", is_error=True), *exchange("refunds")])
    assert "refund" in offer.tools


async def test_a_removed_skill_is_skipped_when_reopening(caplog: pytest.LogCaptureFixture) -> None:
    offer = await offer_of(REFUNDS)
    with caplog.at_level(logging.WARNING, "tellback.skills"):
        await offer.reopen([*exchange("gone"), *exchange("refunds")])
    assert "gone" in caplog.text
    assert "refund" in offer.tools


async def test_the_resolver_receives_the_reopened_history() -> None:
    seen: list[int] = []

    def listed(ctx: Mapping[str, Any]) -> list[Skill]:
        seen.append(len(ctx["messages"]))
        return []

    offer = await SkillOffer.build(SkillResolver(listed, lambda name: None))
    await offer.reopen([user_message("Hi")])
    await use(offer, "list_skills")
    assert seen == [0, 1]


def folders(root: Path, *names: str) -> list[Skill]:
    for name in names:
        (root / name).mkdir()
        (root / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n")
        (root / name / "notes.md").write_text(f"notes of {name}")
    return load_skills(root)


async def test_files_of_skills_opened_in_this_run_can_be_read(tmp_path: Path) -> None:
    one, two, _ = folders(tmp_path, "one", "two", "unused")
    offer = await offer_of(one, two)
    assert "read_skill_file" not in offer.tools
    await use(offer, "read_skill", name="one")
    for name in ("two", "unused"):
        assert "not read yet" in (await use(offer, "read_skill_file", skill=name, path="notes.md")).content
    await use(offer, "apply_skill", name="two")
    for name in ("one", "two"):
        assert (await use(offer, "read_skill_file", skill=name, path="notes.md")).content == f"notes of {name}"
    assert "not read yet" in (await use(offer, "read_skill_file", skill="unused", path="notes.md")).content


async def test_files_can_be_read_again_in_another_process(tmp_path: Path) -> None:
    offer = await offer_of(*folders(tmp_path, "one", "two"))
    await offer.reopen(exchange("one"))
    assert (await use(offer, "read_skill_file", skill="one", path="notes.md")).content == "notes of one"
    assert "not read yet" in (await use(offer, "read_skill_file", skill="two", path="notes.md")).content


async def test_the_name_read_skill_file_is_reserved(tmp_path: Path) -> None:
    forged = Skill("forged", "", tools=[tool(name="read_skill_file")(refund)])
    offer = await offer_of(*folders(tmp_path, "one"), forged, taken=["read_skill_file"])
    assert "the application has a tool" in (await use(offer, "read_skill", name="one")).content
    assert offer.tools.keys() == BUILTINS
    offer = await offer_of(forged)
    assert "rename it" in (await use(offer, "read_skill", name="forged")).content


def test_opening_a_conflicting_skill_directly_raises() -> None:
    with pytest.raises(SkillError, match="rename"):
        SkillOffer(in_memory_resolver([]), {}, None, {}, 30).open(
            [Skill("x", "", tools=[tool(name="read_skill")(rate)])]
        )
