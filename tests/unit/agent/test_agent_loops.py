"""Loops of a flow: each pass has its own data, and a tool may lead back to a question."""

from __future__ import annotations

from typing import Any

from tellback.agent import END_ROUTE, Agent, Route
from tellback.testing import Dialogue, says, understands
from tellback.tools.context import ToolUpdate
from tests.unit.agent.test_agent_actions import last_prompt

MORE = "the user wants to add another item"
DONE = "the user is done"


def build_cart_agent(added: list[tuple[str, int]], *, repeat: bool = True) -> tuple[Agent, Route]:
    """Build an agent that adds items to a cart until the user is done."""

    def add(item: str, count: int) -> str:
        """Add an item to the cart."""
        added.append((item, count))
        return f"{count} {item} added"

    agent = Agent("Shop")
    fields = {"item": {"type": "string"}, "count": {"type": "integer"}}
    route = agent.create_route(
        "Order", gather_schema={"type": "object", "properties": fields, "required": ["item", "count"]}
    )
    asks = route.initial_state.transition_to(chat_state="Ask for an item", gather=["item", "count"])
    more = asks.transition_to(tool_state=add, repeat=repeat).transition_to(chat_state="Ask whether to add more")
    more.transition_to(state=asks, condition=MORE)
    more.transition_to(chat_state="Say goodbye", condition=DONE).transition_to(state=END_ROUTE)
    return agent, route


async def test_the_condition_of_a_loop_together_with_values_begins_a_new_pass() -> None:
    for repeat in (True, False):
        added: list[tuple[str, int]] = []
        agent, _ = build_cart_agent(added, repeat=repeat)
        dialogue = Dialogue(agent)
        await dialogue.says("2 pizzas", understands(item="pizza", count=2), says("More?"))
        await dialogue.says("Yes, 3 cokes", understands(item="coke", count=3, holds=[MORE]), says("More?"))
        assert added == [("pizza", 2), ("coke", 3)]
        dialogue.expect(state="Ask whether to add more", data={"item": "coke", "count": 3})
        await dialogue.says("And fries", understands(item="fries", holds=[MORE]), says("How many?"))
        dialogue.expect(state="Ask for an item", asks=["count"], data={"item": "fries", "count": None})
        assert "coke" not in last_prompt(dialogue).partition("Ask for")[2]
        await dialogue.says("One", understands(count=1), says("More?"))
        assert added == [("pizza", 2), ("coke", 3), ("fries", 1)]
        await dialogue.says("That's all", understands(holds=[DONE]), says("Bye"))
        dialogue.expect(state="Say goodbye")
        assert added == [("pizza", 2), ("coke", 3), ("fries", 1)]


async def test_a_correction_in_a_loop_changes_the_last_item() -> None:
    added: list[tuple[str, int]] = []
    agent, _ = build_cart_agent(added)
    dialogue = Dialogue(agent)
    await dialogue.says("2 pizzas", understands(item="pizza", count=2), says("More?"))
    await dialogue.says("No, 3 pizzas", understands(count=3), says("3 then. More?"))
    dialogue.expect(state="Ask whether to add more", data={"item": "pizza", "count": 3})
    assert added == [("pizza", 2), ("pizza", 3)]


async def test_a_correction_of_an_item_that_was_added_once_is_confirmed() -> None:
    added: list[tuple[str, int]] = []
    agent, _ = build_cart_agent(added, repeat=False)
    dialogue = Dialogue(agent)
    await dialogue.says("2 pizzas", understands(item="pizza", count=2), says("More?"))
    await dialogue.says("No, 3 pizzas", understands(count=3), says("Again with 3?"))
    assert added == [("pizza", 2)]
    dialogue.expect(data={"count": 3})
    prompt = last_prompt(dialogue)
    assert 'add({"item":"pizza","count":2}) was done, and stays done' in prompt
    assert "Ask whether to do it again with the values above" in prompt


async def test_an_action_with_changed_values_can_be_left_as_it_was_done() -> None:
    added: list[tuple[str, int]] = []
    agent, _ = build_cart_agent(added, repeat=False)
    dialogue = Dialogue(agent)
    await dialogue.says("2 pizzas", understands(item="pizza", count=2), says("More?"))
    await dialogue.says("No, 3 pizzas", understands(count=3), says("Again with 3?"))
    dialogue.expect(state="add")
    left = understands(holds=["the user does not want this again: add"])
    await dialogue.says("No, leave it", left, says("Fine. More?"))
    dialogue.expect(state="Ask whether to add more")
    assert added == [("pizza", 2)]
    assert 'add({"item":"pizza","count":2}) returned' in last_prompt(dialogue)
    await dialogue.says("That's all", understands(holds=[DONE]), says("Bye"))
    dialogue.expect(state="Say goodbye")
    assert added == [("pizza", 2)]


async def test_a_second_pass_does_not_inherit_fields_of_the_first() -> None:
    created: list[tuple[str, str | None]] = []

    def create(name: str, company: str | None = None) -> str:
        """Create an account."""
        created.append((name, company))
        return "created"

    agent = Agent("Desk")
    fields = {"name": {"type": "string"}, "company": {"type": "string"}}
    route = agent.create_route(
        "Create accounts", gather_schema={"type": "object", "properties": fields, "required": ["name"]}
    )
    asks = route.initial_state.transition_to(chat_state="Ask for the name and the company", gather=["name", "company"])
    more = asks.transition_to(tool_state=create, repeat=False).transition_to(chat_state="Ask for another account")
    more.transition_to(state=asks, condition=MORE)
    dialogue = Dialogue(agent)
    await dialogue.says("Maya of Acme", understands(name="Maya", company="Acme"), says("Another?"))
    await dialogue.says("Yes, for Omar", understands(name="Omar", holds=[MORE]), says("Which company?"))
    dialogue.expect(data={"name": "Omar", "company": None}, asks=["company"])
    await dialogue.says("None", understands(), says("Another?"))
    assert created == [("Maya", "Acme"), ("Omar", None)]


async def test_a_second_visit_of_a_completed_route_begins_without_data() -> None:
    created: list[tuple[str, str | None]] = []

    def create(name: str, company: str | None = None) -> str:
        """Create an account."""
        created.append((name, company))
        return "created"

    agent = Agent("Desk")
    fields = {"name": {"type": "string"}, "company": {"type": "string"}}
    route = agent.create_route(
        "Create an account",
        conditions=["the user wants an account"],
        gather_schema={"type": "object", "properties": fields, "required": ["name"]},
    )
    (
        route.initial_state.transition_to(chat_state="Ask for the name and the company", gather=["name", "company"])
        .transition_to(tool_state=create, repeat=False)
        .transition_to(state=END_ROUTE)
    )
    dialogue = Dialogue(agent)
    reading = understands(route=route, name="Maya", company="Acme")
    await dialogue.says("An account for Maya of Acme", reading, says("Created"))
    dialogue.expect(completed=True)
    await dialogue.says("One for Omar, too", understands(route=route, name="Omar"), says("Which company?"))
    dialogue.expect(data={"name": "Omar", "company": None}, asks=["company"])


async def test_items_of_all_passes_accumulate_in_a_list() -> None:
    agent = Agent("Shop")
    fields = {"items": {"type": "array", "items": {"type": "string"}}}
    route = agent.create_route("Order", gather_schema={"type": "object", "properties": fields, "required": ["items"]})
    asks = route.initial_state.transition_to(chat_state="Ask for items", gather=["items"])
    more = asks.transition_to(chat_state="Ask whether to add more")
    more.transition_to(state=asks, condition=MORE)
    more.transition_to(chat_state="Say goodbye", condition=DONE)
    dialogue = Dialogue(agent)
    await dialogue.says("Pizza", understands(items=["pizza"]), says("More?"))
    await dialogue.says("Yes, coke", understands(items=["coke"], holds=[MORE]), says("More?"))
    dialogue.expect(data={"items": ["pizza", "coke"]}, state="Ask whether to add more")
    await dialogue.says("Yes", understands(holds=[MORE]), says("What?"))
    dialogue.expect(data={"items": ["pizza", "coke"]}, state="Ask for items", asks=["items"])
    await dialogue.says("Fries", understands(items=["fries"]), says("More?"))
    dialogue.expect(data={"items": ["pizza", "coke", "fries"]}, state="Ask whether to add more")


def build_pin_agent(tried: list[str]) -> Agent:
    """Build an agent that asks for a PIN again when it is wrong."""

    def check_pin(pin: str) -> Any:
        """Check a PIN."""
        tried.append(pin)
        return ToolUpdate("right" if pin == "1234" else "wrong", data={"is_right": pin == "1234"})

    agent = Agent("Bank")
    fields = {"pin": {"type": "string"}, "is_right": {"type": "boolean"}}
    route = agent.create_route("Log in", gather_schema={"type": "object", "properties": fields, "required": ["pin"]})
    asks = route.initial_state.transition_to(chat_state="Ask for the PIN", gather=["pin"])
    checks = asks.transition_to(tool_state=check_pin)
    checks.transition_to(chat_state="Welcome the user", condition=lambda data: data.get("is_right") is True)
    checks.transition_to(state=asks)
    return agent


async def test_a_tool_may_lead_back_to_its_question() -> None:
    tried: list[str] = []
    dialogue = Dialogue(build_pin_agent(tried))
    await dialogue.says("1111", understands(pin="1111"), says("Wrong. The PIN?"))
    dialogue.expect(state="Ask for the PIN", asks=["pin"], data={"pin": None})
    assert 'check_pin({"pin":"1111"}) returned: wrong' in last_prompt(dialogue)
    assert 'do not ask for it again: {"is_right":false}' in last_prompt(dialogue)
    await dialogue.says("Sorry, 1234", understands(pin="1234"), says("Welcome"))
    dialogue.expect(state="Welcome the user")
    assert tried == ["1111", "1234"]


async def test_the_same_wrong_value_is_tried_once_a_turn_and_asked_for_again() -> None:
    tried: list[str] = []
    dialogue = Dialogue(build_pin_agent(tried))
    for number in range(1, 4):
        await dialogue.says("1111", understands(pin="1111"), says("Wrong. The PIN?"))
        dialogue.expect(state="Ask for the PIN", asks=["pin"])
        assert tried == ["1111"] * number
