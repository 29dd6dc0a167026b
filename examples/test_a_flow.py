"""Tests of an agent's flow: the flight booking of flight_booking.py, with no network, no key and no waiting.

    python examples/test_a_flow.py        (or: pytest examples/test_a_flow.py)

Each turn says what the model understands and answers; the flow between is the real one. What is tested is what a user
would be annoyed by: to be asked twice, to lose what was said, to be booked without having agreed.
"""

import asyncio
import sys

import pytest

from flight_booking import ACCEPTS_OFFER, build
from tellback.testing import Dialogue, FlowModel, SimulatedUser, says, simulate, understands


def test_who_says_all_at_once_is_asked_nothing() -> None:
    """Three facts in one message: the flights are searched at once."""

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
    """Oslo instead of Rome: what else was said stays, and nothing is booked before a yes."""

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
    """A user who answers what is asked, or says more than that: both end up with the flights offered."""
    facts = {"destination": "Rome", "departure": "2026-12-01", "passengers": "2"}
    model = FlowModel(routes={"Book a flight": ["fly"]})
    simulation = asyncio.run(simulate(build().with_model(model), SimulatedUser("I want to fly", facts, eager=eager)))
    tool_names = [call.name for exchange in simulation.exchanges for call in exchange.response.tool_calls]
    assert "search_flights" in tool_names, str(simulation)


if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", __file__]))
