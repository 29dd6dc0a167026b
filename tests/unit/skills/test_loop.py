"""Skills in a run of the loop."""

from __future__ import annotations

import json

from tellback import ChatOptions, run_loop, run_loop_messages, tool
from tellback.chat import ChatRequest
from tellback.skills import Skill, searchable_resolver
from tellback.testing import ScriptedModel, calls, says

refunded: list[str] = []


@tool(requires_approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    refunded.append(order)
    return f"refunded {order}"


async def look_up(order: str) -> str:
    """Find an order."""
    return f"found {order}"


TONE = Skill("tone", "Our voice", body="Be warm.")
REFUNDS = Skill("refunds", "When to refund", body="Be generous.", tools=[look_up, refund], requires=["tone"])


def names(request: ChatRequest) -> set[str]:
    return {entry.name for entry in request.tools}


def has_only_the_builtins(request: ChatRequest) -> bool:
    assert "- refunds: When to refund" in (request.system or "")
    return names(request) == {"list_skills", "read_skill", "apply_skill"}


def has_the_skills_tools(request: ChatRequest) -> bool:
    return {"look_up", "refund"} <= names(request)


async def test_a_skills_tools_are_offered_in_the_round_after_it_was_read() -> None:
    model = ScriptedModel(
        [
            calls("read_skill", {"name": "refunds"}, expect=has_only_the_builtins),
            calls("look_up", order="A-7", expect=has_the_skills_tools),
            says("Found.", expect="found A-7"),
        ]
    )
    result = await run_loop(ChatOptions(model=model, skills=[TONE, REFUNDS]), "Refund A-7!")
    assert result.text == "Found."


async def test_a_call_that_waits_for_approval_is_executed_by_the_next_run() -> None:
    first = ScriptedModel([calls("apply_skill", {"name": "refunds"}), calls("refund", order="A-8")])
    paused = await run_loop(ChatOptions(model=first, skills=[TONE, REFUNDS]), "Refund A-8!")
    assert paused.stop_reason == "approval"
    second = ChatOptions(model=ScriptedModel([says("Done.", expect=has_the_skills_tools)]), skills=[TONE, REFUNDS])
    result = await run_loop_messages(second, paused.messages, approvals={call.id: True for call in paused.pending})
    assert result.text == "Done."
    assert refunded[-1] == "A-8"


async def test_an_unlisted_skill_is_found_by_search_and_read() -> None:
    def found(request: ChatRequest) -> bool:
        return bool(json.loads(request.messages[-1].content)[0]["name"] == "refunds")

    model = ScriptedModel(
        [
            calls("search_skills", query="refund"),
            calls("read_skill", {"name": "refunds"}, expect=found),
            says("Gladly.", expect="Be generous."),
        ]
    )
    options = ChatOptions(model=model, system="Help.", skill_resolver=searchable_resolver([TONE, REFUNDS]))
    assert (await run_loop(options, "Refund A-9!")).text == "Gladly."
