"""Test the agent of flight_booking.py, without a network or a key.

    python examples/test_a_flow.py        (or: pytest examples/test_a_flow.py)

Each turn states how the model understands a message and what it answers; the flow is the real one. The tests check that
the agent does not ask twice, does not lose data, and does not book without the user's agreement.
"""

import asyncio
import sys

import pytest

from flight_booking import ACCEPTS_OFFER, build
from tellback.testing import Dialogue, FlowModel, SimulatedUser, says, simulate, understands


def test_who_says_all_at_once_is_asked_nothing() -> None:
    """Three fields in one message: the agent searches immediately."""

    async def run_dialogue() -> None:
        dialogue = Dialogue(build())
        await dialogue.says(
            "Two of us to Rome on December 1",
            understands(route="Book a flight", destination="Rome", departure="2026-12-01", passengers=2),
            says("TP1 at 124 euros, or LH7 at 164."),
        )
        dialogue.expect(state="Offer the flights found", tools=["search_flights"], asks=[])

    asyncio.run(run_dialogue())


def test_a_change_of_mind_searches_again_and_books_only_what_was_agreed() -> None:
    """Oslo instead of Rome: the other fields stay, and nothing is booked before the user agrees."""

    async def run_dialogue() -> None:
        dialogue = Dialogue(build())
        await dialogue.says(
            "Two of us to Rome on December 1",
            understands(route="Book a flight", destination="Rome", departure="2026-12-01", passengers=2),
            says("TP1 at 124 euros."),
        )
        await dialogue.says("No, Oslo", understands(destination="Oslo"), says("TP1 to Oslo, 124 euros."))
        dialogue.expect(data={"destination": "Oslo", "passengers": 2}, tools=["search_flights"])
        await dialogue.says("I take it", understands(holds=[ACCEPTS_OFFER]), says("Booked."))
        dialogue.expect(tools=["book_flight"])

    asyncio.run(run_dialogue())


@pytest.mark.parametrize("eager", [0, 3])
def test_any_user_gets_there(eager: int) -> None:
    """Users who answer only questions, or mention more, both get an offer."""
    facts = {"destination": "Rome", "departure": "2026-12-01", "passengers": "2"}
    model = FlowModel(routes={"Book a flight": ["fly"]})
    simulation = asyncio.run(simulate(build().with_model(model), SimulatedUser("I want to fly", facts, eager=eager)))
    tool_names = [call.name for exchange in simulation.exchanges for call in exchange.response.tool_calls]
    assert "search_flights" in tool_names, str(simulation)


if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", __file__]))
