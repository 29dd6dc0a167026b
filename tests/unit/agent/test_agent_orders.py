"""An order with a list of items, two ways to get it, and an action that is done once for each confirmation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from tellback.agent import END_ROUTE, Agent
from tellback.testing import Dialogue, says, understands
from tests.unit.agent.test_agent_actions import last_prompt

MORE, PICKUP, DELIVERY = "the guest wants more", "the guest picks it up", "the guest wants it delivered"
PIZZAS, COLAS = {"dish": "pizza", "count": 3}, {"dish": "cola", "count": 2}


class Line(BaseModel):
    dish: Literal["pizza", "cola", "soup"]
    count: int = 1


class Order(BaseModel):
    items: list[Line]
    address: str


@dataclass
class Kitchen:
    """An agent that takes orders, and the orders that were placed."""

    agent: Agent = field(default_factory=lambda: Agent("Gino"))
    placed: list[tuple[list[tuple[str, int]], str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        def place(items: list[Line], address: str | None = None) -> str:
            """Place the order."""
            self.placed.append(([(each.dish, each.count) for each in items], address))
            return f"P-{len(self.placed)}"

        self.route = self.agent.create_route("Order food", gather_schema=Order)
        what = self.route.initial_state.transition_to(chat_state="Ask what", gather=["items"])
        more = what.transition_to(chat_state="Anything else?")
        more.transition_to(state=what, condition=MORE)
        how = more.transition_to(chat_state="Pickup or delivery?")
        pickup = how.transition_to(chat_state="Confirm the pickup", condition=PICKUP)
        pickup.transition_to(tool_state=place, arguments={"items": "items"}, repeat=False).transition_to(
            state=END_ROUTE
        )
        address = how.transition_to(chat_state="Ask for the address", gather=["address"], condition=DELIVERY)
        address.transition_to(chat_state="Confirm the delivery").transition_to(
            tool_state=place, repeat=False
        ).transition_to(state=END_ROUTE)
        other = self.agent.create_route("Reserve a table", conditions=["the guest wants a table"])
        other.initial_state.transition_to(chat_state="Ask when")

    async def order(self, *words: str) -> Dialogue:
        """Return a dialogue with pizzas and colas, and with further answers that hold."""
        dialogue = Dialogue(self.agent)
        text = "Three pizzas and two colas"
        reading = understands(route=self.route, items=[PIZZAS, COLAS], words={"items": text})
        await dialogue.says(text, reading, says("Anything else?"))
        dialogue.expect(state="Anything else?", data={"items": [PIZZAS, COLAS]})
        if words:
            await dialogue.says("That's all", understands(answered=True), says("Pickup or delivery?"))
        for condition in words:
            await dialogue.says("Yes: this", understands(answered=True, holds=[condition]), says("Right?"))
        return dialogue


async def test_an_item_is_removed_long_after_it_was_stated() -> None:
    dialogue = await Kitchen().order()
    for number in range(9):
        await dialogue.says(f"Question {number}?", understands(answered=False), says("Hm. Anything else?"))
    text = "Take the colas out again"
    reading = understands(items=[PIZZAS], forget=["items"], words={"items": text}, answered=False)
    await dialogue.says(text, reading, says("Done. Anything else?"))
    dialogue.expect(data={"items": [PIZZAS]})
    assert dialogue.last.trace.rejected == ()


async def test_one_value_of_an_item_is_corrected() -> None:
    dialogue = await Kitchen().order()
    text = "Oh, only two pizzas"
    reading = understands(
        items=[{"dish": "pizza", "count": 2}, COLAS], forget=["items"], words={"items": text}, answered=False
    )
    await dialogue.says(text, reading, says("Two. Anything else?"))
    dialogue.expect(data={"items": [{"dish": "pizza", "count": 2}, COLAS]})


async def test_a_replacement_that_is_rejected_leaves_the_list() -> None:
    dialogue = await Kitchen().order()
    reading = understands(
        items=[{"dish": "soup", "count": 7}], forget=["items"], words={"items": "two colas"}, answered=False
    )
    await dialogue.says("Hm, two colas...", reading, says("Anything else?"))
    dialogue.expect(data={"items": [PIZZAS, COLAS]})
    assert [each.field for each in dialogue.last.trace.rejected] == ["items"]
    assert any("not forgotten" in each for each in dialogue.last.trace.problems)


async def test_an_equal_item_is_another_one() -> None:
    dialogue = await Kitchen().order()
    text = "And another three pizzas and two colas"
    reading = understands(items=[PIZZAS, COLAS], words={"items": text}, answered=False, holds=[MORE])
    await dialogue.says(text, reading, says("Anything else?"))
    dialogue.expect(data={"items": [PIZZAS, COLAS, PIZZAS, COLAS]})


async def test_a_wrong_number_in_an_item_is_rejected() -> None:
    dialogue = Dialogue(Kitchen().agent)
    reading = understands(route="Order food", items=[PIZZAS], words={"items": "Two pizzas"})
    await dialogue.says("Two pizzas", reading, says("What?"))
    dialogue.expect(data={"items": None})


async def test_a_guest_who_wants_nothing_more_leaves_the_loop() -> None:
    dialogue = await Kitchen().order()
    await dialogue.says("Yes, something sweet", understands(holds=[MORE], answered=True), says("What?"))
    dialogue.expect(state="Ask what", asks=["items"])
    await dialogue.says("Which soup is it?", understands(answered=False), says("Tomato. What?"))
    dialogue.expect(state="Ask what")
    await dialogue.says("Oh no, nothing after all", understands(answered=True), says("Anything else?"))
    dialogue.expect(state="Anything else?", data={"items": [PIZZAS, COLAS]})


async def test_a_choice_that_changes_after_the_action_is_confirmed_again() -> None:
    kitchen = Kitchen()
    dialogue = await kitchen.order(PICKUP)
    await dialogue.says("Yes", understands(answered=True), says("P-1"))
    dialogue.expect(completed=True)
    assert kitchen.placed == [([("pizza", 3), ("cola", 2)], None)]
    text = "Please bring it to 12 Hill Road instead"
    change = "the user wants to change what was done: Order food"
    reading = understands(scores={}, holds=[change, DELIVERY], data={"address": "12 Hill Road"})
    await dialogue.says(text, reading, says("To 12 Hill Road?"))
    dialogue.expect(state="Confirm the delivery", completed=False)
    assert len(kitchen.placed) == 1
    assert f"Chosen: {DELIVERY}." in last_prompt(dialogue)
    await dialogue.says("Yes", understands(answered=True), says("P-2"))
    assert kitchen.placed[1:] == [([("pizza", 3), ("cola", 2)], "12 Hill Road")]


async def test_a_yes_with_a_question_confirms() -> None:
    kitchen = Kitchen()
    dialogue = await kitchen.order(PICKUP)
    await dialogue.says("And how long will it take?", understands(answered=True), says("Half an hour. Right?"))
    assert kitchen.placed == []
    await dialogue.says("Yes, and how long will it take?", understands(answered=True), says("Half an hour"))
    assert len(kitchen.placed) == 1


async def test_the_prompt_says_what_is_done_also_on_another_branch_and_what_is_not() -> None:
    kitchen = Kitchen()
    dialogue = await kitchen.order(DELIVERY)
    await dialogue.says("12 Hill Road", understands(address="12 Hill Road"), says("Right?"))
    assert "Not done yet, never say that it was: place." in last_prompt(dialogue)
    await dialogue.says("Yes", understands(answered=True), says("P-1"))
    assert "Not done yet" not in last_prompt(dialogue)
    change = "the user wants to change what was done: Order food"
    await dialogue.says(
        "I must change the address", understands(scores={}, holds=[change], forget=["address"]), says("Where to?")
    )
    dialogue.expect(state="Ask for the address")
    [line] = [line for line in last_prompt(dialogue).splitlines() if line.startswith("place(")]
    assert '"address":"12 Hill Road"' in line
    assert "was done with earlier values" in line
    assert "Not done yet" not in last_prompt(dialogue)


async def test_the_prompt_acknowledges_what_the_user_no_longer_wants() -> None:
    kitchen = Kitchen()
    dialogue = Dialogue(kitchen.agent)
    wishes = understands(scores={kitchen.route: 95, "Reserve a table": 90}, data={"items": [PIZZAS]})
    await dialogue.says("Three pizzas, and a table", wishes, says("Anything else? Then the table"))
    dropped: Any = understands(holds=["the user no longer wants this: Reserve a table"], answered=False)
    await dialogue.says("Forget the table", dropped, says("Fine. Anything else?"))
    assert "The user no longer wants: 'Reserve a table'." in last_prompt(dialogue)
    assert "Comes next" not in last_prompt(dialogue)
