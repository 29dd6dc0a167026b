"""A long dialogue with the agent of restaurant_order.py: the kitchen gets exactly what the guest has confirmed."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from tellback.testing import Dialogue, says, understands
from tests.integration.test_examples import EXAMPLES

ORDER, TABLE = "Order food", "Reserve a table"
CHANGES_ORDER = f"the user wants to change what was done: {ORDER}"
ASK = "Ask what they would like"
MORE = "Repeat what is in the cart, and ask whether they want anything else"
BRANCH = "Ask whether they pick it up or want it delivered"
PICKUP = "Ask when they pick it up"
DELIVERY = "Ask for the address and the time"
CONFIRM_PICKUP = "Repeat the whole order for pickup with its price, and ask whether it is right"
CONFIRM_DELIVERY = "Repeat the whole order for delivery with its price, and ask whether it is right"
CONFIRM_TABLE = "Repeat the reservation, and ask whether it is right"

MARGHERITAS = {"dish": "margherita", "count": 3}
COLAS = {"dish": "cola", "count": 3}
FUNGHI = {"dish": "funghi", "count": 1, "extras": ["olives"]}
LARGE_FUNGHI = {**FUNGHI, "size": "large"}
TIRAMISU = {"dish": "tiramisu", "count": 1}


@pytest.fixture
def example() -> Iterator[Any]:
    sys.path.insert(0, str(EXAMPLES))
    yield importlib.import_module("restaurant_order")
    sys.path.remove(str(EXAMPLES))


def items(*lines: dict[str, Any]) -> str:
    """Return lines of a cart as a model writes them: objects as JSON text."""
    return json.dumps(lines)


class Guest:
    """A guest of the restaurant: each turn compares the agent and the kitchen with what is expected."""

    def __init__(self, example: Any) -> None:
        self.kitchen = example.Kitchen()
        agent = example.build(self.kitchen)
        agent.clock = lambda: datetime(2026, 11, 19, 17, tzinfo=UTC)
        self.dialogue = Dialogue(agent)
        self.confirmed: list[dict[str, Any]] = []
        self.reserved: list[dict[str, Any]] = []

    @property
    def instructions(self) -> str:
        """The instructions for the last reply."""
        return self.dialogue.last.trace.calls[-1].instructions or ""

    async def says(
        self,
        text: str,
        reading: Any,
        *,
        state: str | None,
        route: str | None = ORDER,
        asks: Sequence[str] = (),
        cart: Sequence[str] = (),
        tools: Sequence[str] = (),
        completed: bool = False,
        confirms: dict[str, Any] | None = None,
        reserves: dict[str, Any] | None = None,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        """Say something, and check the turn. `cart` and `known` are all known values."""
        known = known or {}
        self.confirmed += [] if confirms is None else [confirms]
        self.reserved += [] if reserves is None else [reserves]
        await self.dialogue.says(text, reading, says("The reply."))
        self.dialogue.expect(
            route=route, state=state, asks=[*asks], data=known, tools=tools, calls=2, completed=completed
        )
        last = self.dialogue.last
        data = dict(last.session.extracted)
        assert [str(item) for item in data.pop("items", ())] == [*cart]
        assert data.keys() == known.keys()
        assert not last.trace.rejected, text
        assert self.kitchen.tickets == self.confirmed, text
        assert self.kitchen.tables == self.reserved, text


async def test_a_long_dialogue_places_exactly_the_confirmed_orders(example: Any) -> None:
    more, picks_up, delivered = example.WANTS_MORE, example.PICKS_UP, example.WANTS_DELIVERY
    guest = Guest(example)

    await guest.says("Good evening!", understands(words={}), route=None, state=None)
    await guest.says(
        "Three margheritas, and a table for two tomorrow at eight",
        understands(
            scores={ORDER: 95, TABLE: 90},
            items=items(MARGHERITAS),
            guests=2,
            day="2026-11-20",
            arrival="20:00",
            words={
                "items": "Three margheritas",
                "guests": "a table for two",
                "day": "tomorrow",
                "arrival": "at eight",
            },
        ),
        state=MORE,
        cart=["3 margherita"],
    )
    assert f"The user also wants: {TABLE}. Say that this comes next" in guest.instructions

    # A question is no answer.
    await guest.says("Do you have parking?", understands(answered=False, words={}), state=MORE, cart=["3 margherita"])

    # The cart: additions, corrections, and an item that is taken out.
    await guest.says(
        "Two colas as well, please",
        understands(route=ORDER, holds=[more], items=items({"dish": "cola", "count": 2}), words={"items": "Two colas"}),
        state=MORE,
        cart=["3 margherita", "2 cola"],
    )
    await guest.says(
        "Make that three",
        understands(route=ORDER, items=items(MARGHERITAS, COLAS), forget=["items"], words={"items": "Make that three"}),
        state=MORE,
        cart=["3 margherita", "3 cola"],
    )
    await guest.says(
        "And a funghi with olives",
        understands(route=ORDER, holds=[more], items=items(FUNGHI), words={"items": "a funghi with olives"}),
        state=MORE,
        cart=["3 margherita", "3 cola", "1 funghi with olives"],
    )
    await guest.says(
        "No, the large one",
        understands(
            route=ORDER,
            items=items(MARGHERITAS, COLAS, LARGE_FUNGHI),
            forget=["items"],
            words={"items": "No, the large one"},
        ),
        state=MORE,
        cart=["3 margherita", "3 cola", "1 large funghi with olives"],
    )
    await guest.says(
        "Is it vegetarian?",
        understands(route=ORDER, answered=False, words={}),
        state=MORE,
        cart=["3 margherita", "3 cola", "1 large funghi with olives"],
    )
    cart = ["3 margherita", "1 large funghi with olives"]
    await guest.says(
        "Take the cola out again",
        understands(
            route=ORDER, items=items(MARGHERITAS, LARGE_FUNGHI), forget=["items"], words={"items": "Take the cola out"}
        ),
        state=MORE,
        cart=cart,
    )
    await guest.says(
        "Yes, something sweet",
        understands(route=ORDER, holds=[more], answered=True, words={}),
        state=ASK,
        asks=["items"],
        cart=cart,
    )
    cart += ["1 tiramisu"]
    await guest.says(
        "A tiramisu",
        understands(route=ORDER, items=items(TIRAMISU), words={"items": "A tiramisu"}),
        state=MORE,
        cart=cart,
    )
    await guest.says("That's all, thanks", understands(route=ORDER, answered=True, words={}), state=BRANCH, cart=cart)

    # Pickup, and then delivery.
    await guest.says("How long does a delivery take?", understands(answered=False, words={}), state=BRANCH, cart=cart)
    await guest.says(
        "Then we pick it up",
        understands(route=ORDER, holds=[picks_up], answered=True, words={}),
        state=PICKUP,
        asks=["ready_at"],
        cart=cart,
    )
    known = {"ready_at": "19:00:00", "bill": "3 margherita, 1 large funghi with olives, 1 tiramisu: 48 euros"}
    await guest.says(
        "At seven in the evening",
        understands(route=ORDER, ready_at="19:00", words={"ready_at": "seven in the evening"}),
        state=CONFIRM_PICKUP,
        tools=["add_up"],
        cart=cart,
        known=known,
    )
    await guest.says(
        "Is the mozzarella from buffaloes?",
        understands(route=ORDER, answered=False, words={}),
        state=CONFIRM_PICKUP,
        cart=cart,
        known=known,
    )
    await guest.says(
        "Actually, please bring it to us",
        understands(route=ORDER, holds=[delivered], answered=False, words={}),
        state=DELIVERY,
        asks=["address"],
        cart=cart,
        known={"ready_at": "19:00:00"},
    )
    known["address"] = "12 Hill Road"
    await guest.says(
        "12 Hill Road",
        understands(route=ORDER, address="12 Hill Road", words={"address": "12 Hill Road"}),
        state=CONFIRM_DELIVERY,
        tools=["add_up"],
        cart=cart,
        known=known,
    )
    cart = ["2 margherita", "1 large funghi with olives", "1 tiramisu"]
    known["bill"] = f"{', '.join(cart)}: 39 euros"
    await guest.says(
        "Oh, only two margheritas",
        understands(
            route=ORDER,
            items=items({"dish": "margherita", "count": 2}, LARGE_FUNGHI, TIRAMISU),
            forget=["items"],
            answered=False,
            words={"items": "only two margheritas"},
        ),
        state=CONFIRM_DELIVERY,
        tools=["add_up"],
        cart=cart,
        known=known,
    )

    # The order is placed, and the reservation begins by itself.
    first = {"number": "P-1", "items": cart, "ready_at": "19:00", "address": "12 Hill Road"}
    table: dict[str, Any] = {"guests": 2, "day": "2026-11-20", "arrival": "20:00:00"}
    await guest.says(
        "Yes, that's right",
        understands(route=ORDER, answered=True, words={}),
        route=TABLE,
        state=CONFIRM_TABLE,
        tools=["place_order"],
        confirms=first,
        known=table,
    )
    assert f"{ORDER!r} was completed now: conclude it first" in guest.instructions
    await guest.says(
        "Can we sit at the window?",
        understands(route=TABLE, answered=False, words={}),
        route=TABLE,
        state=CONFIRM_TABLE,
        known=table,
    )
    table["guests"] = 3
    await guest.says(
        "Make it three people",
        understands(route=TABLE, guests=3, answered=False, words={"guests": "three people"}),
        route=TABLE,
        state=CONFIRM_TABLE,
        known=table,
    )
    await guest.says(
        "Perfect",
        understands(route=TABLE, answered=True, words={}),
        route=TABLE,
        state=None,
        completed=True,
        tools=["reserve_table"],
        reserves={"guests": 3, "day": "2026-11-20", "arrival": "20:00"},
        known={**table, "reservation_number": "T-1"},
    )

    # After the end: questions do nothing, and changes need a new confirmation.
    table["reservation_number"] = "T-1"
    await guest.says(
        "How long will the food take?", understands(scores={ORDER: 40}, words={}), route=None, state=None, known=table
    )
    known["ready_at"] = "19:30:00"
    await guest.says(
        "Please make it 30 minutes later",
        understands(
            scores={ORDER: 60}, holds=[CHANGES_ORDER], ready_at="19:30", words={"ready_at": "30 minutes later"}
        ),
        state=CONFIRM_DELIVERY,
        cart=cart,
        known=known,
    )
    await guest.says(
        "Does that cost extra?",
        understands(route=ORDER, answered=False, words={}),
        state=CONFIRM_DELIVERY,
        cart=cart,
        known=known,
    )
    await guest.says(
        "Okay, do it",
        understands(route=ORDER, answered=True, words={}),
        state=None,
        completed=True,
        tools=["place_order"],
        confirms={**first, "ready_at": "19:30"},
        cart=cart,
        known={**known, "order_number": "P-1"},
    )
    await guest.says(
        "I have to change the address",
        understands(scores={ORDER: 60}, holds=[CHANGES_ORDER], forget=["address"], words={}),
        state=DELIVERY,
        asks=["address"],
        cart=cart,
        known={"ready_at": "19:30:00"},
    )
    known["address"] = "14 Hill Road"
    await guest.says(
        "14 Hill Road",
        understands(route=ORDER, address="14 Hill Road", words={"address": "14 Hill Road"}),
        state=CONFIRM_DELIVERY,
        cart=cart,
        known=known,
    )
    known["order_number"] = "P-1"
    await guest.says(
        "Yes",
        understands(route=ORDER, answered=True, words={}),
        state=None,
        completed=True,
        tools=["place_order"],
        confirms={**first, "ready_at": "19:30", "address": "14 Hill Road"},
        cart=cart,
        known=known,
    )
    await guest.says("Thanks, is it on its way?", understands(words={}), route=None, state=None, cart=cart, known=known)
    assert len(guest.dialogue.responses) >= 30
