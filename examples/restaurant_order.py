"""Take orders in a restaurant: a cart with corrections, pickup or delivery, and a second request for a table.

    python examples/restaurant_order.py

With a provider's key in the environment that provider answers; without one, a rule-based stand-in does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any, Literal

from pydantic import BaseModel, Field

from example_helpers import converse, run, with_available_model
from tellback import END_ROUTE, Agent, CompositionMode, ToolContext
from tellback.agent import State
from tellback.testing import FlowModel

PRICES = {"margherita": 9, "funghi": 11, "tiramisu": 6, "cola": 3}
LARGE, EXTRA = 3, 1

WANTS_MORE = "the guest orders something in addition"
PICKS_UP = "the guest picks the order up"
WANTS_DELIVERY = "the guest wants the order delivered"


class Item(BaseModel):
    """One line of the cart."""

    dish: Literal["margherita", "funghi", "tiramisu", "cola"]
    count: int = Field(default=1, ge=1, le=20)
    size: Literal["normal", "large"] = "normal"
    extras: list[str] = []

    @property
    def price(self) -> int:
        """The price of the line, in euros."""
        return self.count * (PRICES[self.dish] + LARGE * (self.size == "large") + EXTRA * len(self.extras))

    def __str__(self) -> str:
        size = "large " * (self.size == "large")
        extras = f" with {' and '.join(self.extras)}" if self.extras else ""
        return f"{self.count} {size}{self.dish}{extras}"


class Order(BaseModel):
    """The data of an order. Only a delivery needs the address; tools set the fields with a default."""

    items: list[Item] = Field(min_length=1)
    ready_at: time
    address: str
    bill: str = ""
    order_number: str = ""


class Reservation(BaseModel):
    """The data of a reservation."""

    guests: int = Field(ge=1, le=12)
    day: date
    arrival: time
    reservation_number: str = ""


@dataclass
class Kitchen:
    """A stand-in for the systems of a restaurant: it stores what was ordered and reserved."""

    tickets: list[dict[str, Any]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)

    def place_order(self, items: list[Item], ready_at: time, ctx: ToolContext, address: str = "") -> str:
        """Send the order to the kitchen, and return its number."""
        number = find_earlier_order(ctx) or f"P-{len(self.tickets) + 1}"
        self.tickets.append(
            {
                "number": number,
                "items": [str(item) for item in items],
                "ready_at": f"{ready_at:%H:%M}",
                "address": address,
            }
        )
        return number

    def reserve_table(self, guests: int, day: date, arrival: time) -> str:
        """Reserve a table, and return its number."""
        self.tables.append({"guests": guests, "day": f"{day}", "arrival": f"{arrival:%H:%M}"})
        return f"T-{len(self.tables)}"


def find_earlier_order(ctx: ToolContext) -> str | None:
    """Return the number of the order that was placed before the guest changed it."""
    progress = ctx.session.progress
    runs = [*(each for runs in progress.replaced_runs.values() for each in runs), *progress.runs.values()]
    return next((each.content for each in reversed(runs) if each.tool == "place_order" and not each.error), None)


def add_up(items: list[Item]) -> str:
    """Return the items and their price."""
    return f"{', '.join(map(str, items))}: {sum(item.price for item in items)} euros"


def add_confirmation(details: State, kitchen: Kitchen, way: str, wording: str, *more_fields: str) -> None:
    """Add the end of a branch: the price, the confirmation, and the order."""
    fields = ["items", "ready_at", *more_fields]
    (
        # The price follows the questions: when a tool runs again, all questions after it are asked again.
        details.transition_to(tool_state=add_up, save_as="bill")
        .transition_to(
            chat_state=f"Repeat the whole order for {way} with its price, and ask whether it is right",
            canned_responses=[wording],
        )
        # With repeat=False the order is placed once; changed values are sent only after a new confirmation.
        .transition_to(
            tool_state=kitchen.place_order,
            arguments={name: name for name in fields},
            save_as="order_number",
            repeat=False,
        )
        .transition_to(state=END_ROUTE)
    )


def build(kitchen: Kitchen) -> Agent:
    """Build the agent."""
    agent = Agent(
        name="Gina",
        goal="Take orders and reserve tables for a pizzeria",
        rules=[
            "answer a question of the guest before you go on",
            "name the whole order and its price before you place it",
        ],
        composition_mode=CompositionMode.CANNED_FLUID,
        context={"parking": "free, behind the house", "vegetarian": "all dishes", "usual_minutes": 30},
    )
    order = agent.create_route(
        title="Order food",
        conditions=["the guest wants to order food or drinks"],
        gather_schema=Order,
        canned_responses=["Thank you! Your order has the number {{order_number}}."],
    )
    ask = order.initial_state.transition_to(
        chat_state="Ask what they would like", gather=["items"], canned_responses=["What would you like?"]
    )
    more = ask.transition_to(
        chat_state="Repeat what is in the cart, and ask whether they want anything else",
        canned_responses=[
            "So far: {{#items}}{{count}} {{size}} {{dish}}{{#extras}}, {{.}}{{/extras}}; {{/items}}anything else?"
        ],
    )
    more.transition_to(state=ask, condition=WANTS_MORE)
    branch = more.transition_to(
        chat_state="Ask whether they pick it up or want it delivered",
        canned_responses=["Do you pick it up, or shall we bring it?"],
    )
    pickup = branch.transition_to(
        chat_state="Ask when they pick it up",
        condition=PICKS_UP,
        gather=["ready_at"],
        canned_responses=["When do you pick it up?"],
    )
    add_confirmation(pickup, kitchen, "pickup", "{{bill}}, ready for pickup at {{ready_at}}. Is that right?")
    delivery = branch.transition_to(
        chat_state="Ask for the address and the time",
        condition=WANTS_DELIVERY,
        gather=["address", "ready_at"],
        canned_responses=["Where do we bring it, and when?"],
    )
    add_confirmation(
        delivery, kitchen, "delivery", "{{bill}}, delivered to {{address}} at {{ready_at}}. Is that right?", "address"
    )

    table = agent.create_route(
        title="Reserve a table",
        conditions=["the guest wants a table"],
        gather_schema=Reservation,
        canned_responses=["Your table is reserved, with the number {{reservation_number}}."],
    )
    (
        table.initial_state.transition_to(
            chat_state="Ask for how many, which day and what time",
            gather=["guests", "day", "arrival"],
            canned_responses=["For how many, on which day, and at what time?"],
        )
        .transition_to(
            chat_state="Repeat the reservation, and ask whether it is right",
            canned_responses=["A table for {{guests}} on {{day}} at {{arrival}}. Shall I reserve it?"],
        )
        .transition_to(tool_state=kitchen.reserve_table, save_as="reservation_number", repeat=False)
        .transition_to(state=END_ROUTE)
    )
    return agent


def fallback_model() -> FlowModel:
    """A stand-in that reads the messages of this example."""
    return FlowModel(
        routes={"Order food": [*PRICES, "margheritas"], "Reserve a table": ["table"]},
        reads={
            "items": read_items,
            "ready_at": r"(?:up at|make it) (\d+:\d+)",
            "arrival": r"eat at (\d+:\d+)",
            "guests": r"for (\d+)",
        },
        holds={WANTS_MORE: ["as well"], PICKS_UP: ["pick"], WANTS_DELIVERY: ["bring", "deliver"]},
    )


def read_items(text: str) -> list[dict[str, Any]] | None:
    """Read items such as "2 large colas"."""
    found = re.findall(rf"(\d+) (large )?({'|'.join(PRICES)})", text)
    return [{"dish": dish, "count": count, "size": size.strip() or "normal"} for count, size, dish in found] or None


async def main() -> None:
    """Play the conversation."""
    kitchen = Kitchen()
    agent = with_available_model(build(kitchen), fallback_model())
    await converse(
        agent,
        [
            "3 large margheritas, please",
            "2 colas as well",
            "Is all of it vegetarian?",
            "That's all",
            "We pick it up at 19:00",
            "Yes, that's right",
            "How long does it usually take?",
            "Could you make it 19:30?",
            "Right, thank you",
            "And a table for 4 on 2026-12-01, to eat at 20:00",
            "Yes, please",
        ],
    )
    print("\nThe kitchen received:", *kitchen.tickets, *kitchen.tables, sep="\n")


if __name__ == "__main__":
    run(main())
